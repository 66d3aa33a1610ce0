"""A named agent and its settings as plain values."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tsforecast.core.devices import find_device
from tsforecast.decisions.encoding import AbstractEncoding, ArmOutput, BlockFeatures, Concatenated, OutputPerArm
from tsforecast.decisions.ensembles import BootstrapRewards, DropoutRewards
from tsforecast.decisions.fitting import Descent
from tsforecast.decisions.learnt import LearntRewards
from tsforecast.decisions.linear import LinearRewards, WindowRewards
from tsforecast.decisions.logistic import LogisticRewards
from tsforecast.decisions.matching import MatchedRewards
from tsforecast.decisions.neural_linear import NeuralLinearRewards
from tsforecast.decisions.rewards import AbstractRewards
from tsforecast.decisions.rules import UCB, AbstractRule, EpsilonGreedy, Greedy, Softmax, Thompson
from tsforecast.decisions.stein import SteinRewards
from tsforecast.decisions.subspace import SubspaceRewards
from tsforecast.decisions.tangent import TangentRewards
from tsforecast.learners.batch.laplace import Laplace
from tsforecast.learners.beliefs.diagonal import Diagonal
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.config import DRIFTS, LEARNERS, LearnerConfig
from tsforecast.learners.drift import AbstractDrift, NoDrift
from tsforecast.learners.likelihoods.likelihood import GaussianLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.particles.svgd import s2vgd
from tsforecast.settings import AgentSettings, DriftSettings

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}

# Rules by name; some take a number, or have their own where that is None.
RULES: dict[str, Callable[[float | None], AbstractRule]] = {
    "thompson": lambda amount: Thompson(),
    "ucb": lambda amount: UCB() if amount is None else UCB(amount),
    "greedy": lambda amount: Greedy(),
    "epsilon": lambda amount: EpsilonGreedy() if amount is None else EpsilonGreedy(amount),
    "softmax": lambda amount: Softmax() if amount is None else Softmax(amount),
}

# Encodings by name; those that know arms by features take a row for each.
ENCODINGS: dict[str, Callable[[Tensor], AbstractEncoding]] = {
    "output": lambda arms: OutputPerArm(len(arms)),
    "concatenated": Concatenated,
    "block": BlockFeatures,
}

_DESCENT = {"steps": "steps", "learning_rate": "rate", "batch": "batch"}  # settings of every network that is fitted


@dataclasses.dataclass(frozen=True)
class AgentConfig(AgentSettings):
    """Plain values of a named agent, with the settings of `AgentSettings`.

    Among `settings` of networks that are fitted are also `steps`, `learning_rate` and `batch`.

    Attributes:
        agent: A name in `AGENTS`.
        arms: How many there are.
        features: Of a context.
        hidden: Widths of hidden layers; () is linear.
        scales_rewards: Whether rewards are in units of their standard deviation in the warm-up, from their
            mean; those of agents that learn 0 and 1 never are.
        seed: Of initial weights, and of all that is drawn.
        arm_features: Numbers by which an arm is like others, a row for each; None to tell arms apart and no more. For
            encodings "concatenated" and "block".

    Raises:
        ValueError: If a name is unknown, a number outside of its range, or the agent does not take it.
    """

    agent: str = "lofi"
    arms: int = 2
    features: int = 1
    _: dataclasses.KW_ONLY
    hidden: tuple[int, ...] = (50,)
    scales_rewards: bool = True
    seed: int = 0
    arm_features: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        tables = {
            "agent": AGENTS, "rule": ("auto", *RULES), "encoding": ENCODINGS, "activation": ACTIVATIONS,
            "drift": DRIFTS,
        }  # fmt: skip
        for name, table in tables.items():
            if getattr(self, name) not in table:
                raise ValueError(f"expected {name} to be one of {', '.join(table)}, got {getattr(self, name)!r}")
        for name, least in (("arms", 2), ("features", 1), ("warm_up", 1), ("rank", 0), ("seed", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ValueError(f"expected {name} to be a whole number from {least} on, got {getattr(self, name)!r}")
        for name in ("variance", "noise"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"expected {name} to be positive and finite, got {getattr(self, name)!r}")
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"expected hidden layers of at least one unit, got {self.hidden}")
        if self.arm_features is not None:
            self._check_arm_features(self.arm_features)
        if self.device != "cpu" and AGENTS[self.agent][0] not in (_learnt, _stein):
            raise ValueError(
                f"expected device cpu for agent {self.agent!r}, got {self.device!r}: only learners and particles have "
                "weights elsewhere"
            )

    def _check_arm_features(self, rows: tuple[tuple[float, ...], ...]) -> None:
        """Refuse features of arms that are no table of numbers, or that the agent would not see."""
        if len(rows) != self.arms or not rows[0] or {len(row) for row in rows} != {len(rows[0])}:
            raise ValueError(f"expected arm_features of {self.arms} rows of the same length, got {len(rows)} rows")
        if not all(math.isfinite(x) for row in rows for x in row):
            raise ValueError("expected finite numbers as features of arms, got others")
        takes = AGENTS[self.agent][0] in (_learnt, _tangent, _stein) or self.agent.startswith("subspace")
        if not takes or self.encoding == "output":
            raise ValueError(
                "expected a learner such as lofi or ekf, and encoding concatenated or block, where arms have features, "
                f"got agent {self.agent!r} and encoding {self.encoding!r}, which has a part for each arm"
            )

    def build(self) -> tuple[AbstractRewards[Any], AbstractRule]:
        """Return the model of rewards, and the rule.

        Raises:
            ValueError: If the agent does not take these choices together.
        """
        make, rule = AGENTS[self.agent]
        try:
            model = make(self, dict(self.settings or {}))
        except TypeError as error:
            raise ValueError(f"expected settings and a drift that agent {self.agent!r} takes, got {error}") from error
        return model, RULES[rule if self.rule == "auto" else self.rule](self.amount)

    @property
    def weight_drift(self) -> AbstractDrift:
        """Return the drift of weights."""
        drift = DRIFTS[self.drift]
        return NoDrift() if drift is None else drift(self.rate)

    @property
    def forgetting(self) -> float:
        """Return the rate of forgetting of an agent that takes no other drift."""
        if self.drift not in ("none", "forgetting"):
            raise ValueError(f"expected drift to be none or forgetting for agent {self.agent!r}, got {self.drift!r}")
        return self.rate if self.drift == "forgetting" else 0.0

    def chain(self, encoding: AbstractEncoding) -> tuple[LayerChain, Tensor]:
        """Return a network with an output for each arm, or one for all, and its initial weights."""
        # Features of arms are inputs: one output serves all.
        outputs = self.arms if isinstance(encoding, OutputPerArm) else 1
        widths = (encoding.width(self.features), *self.hidden, outputs)
        activations = (*(ACTIVATIONS[self.activation] for _ in self.hidden), nn.Identity)
        network = LayerChain(widths, activations, (True,) * len(activations))
        generator = torch.Generator().manual_seed(self.seed)
        parts = []
        for fan_in, size in zip(widths, network.sizes, strict=False):  # as `nn.Linear` draws them
            parts.append((2 * torch.rand(size, generator=generator) - 1) / fan_in**0.5)
        return network, torch.cat(parts)

    def encoded(self) -> tuple[AbstractNetwork, Tensor, AbstractEncoding]:
        """Return a network with one output, its initial weights, and the encoding of its inputs."""
        rows = torch.eye(self.arms) if self.arm_features is None else torch.tensor(self.arm_features)
        encoding = ENCODINGS[self.encoding](rows)
        network, mean = self.chain(encoding)
        return ArmOutput(network) if isinstance(encoding, OutputPerArm) else network, mean, encoding


def _descent(settings: dict[str, Any], **defaults: Any) -> Descent:
    """Return the descent that settings name; its names are taken out of them."""
    given = {field: settings.pop(name) for name, field in _DESCENT.items() if name in settings}
    return Descent(**{**defaults, **given})


def _linear(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
    return LinearRewards(config.arms, config.features, weight_drift=config.weight_drift, **settings)


def _window(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
    if config.drift != "none":
        raise ValueError(f"expected drift to be none for a window, which forgets all at once, got {config.drift!r}")
    return WindowRewards(config.arms, config.features, **settings)


def _logistic(config: AgentConfig, settings: dict[str, Any], **own: Any) -> AbstractRewards[Any]:
    chosen = {**own, **settings}
    chosen["at"] = tuple(chosen.get("at", ()))  # a list where it comes from JSON
    return LogisticRewards(config.arms, config.features, weight_drift=config.weight_drift, **chosen)


def _learnt(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
    network, mean, encoding = config.encoded()
    mean = mean.to(find_device(config.device))
    descent = _descent(settings)
    named = LearnerConfig(config.agent, **DriftSettings.values_of(config, settings=settings, seed=config.seed))
    learner = named.build(network, GaussianLikelihood(config.noise), mean)
    learner.drift(learner.init(), 1.0)  # raises now what a belief that does not take this drift would raise later
    full = isinstance(getattr(learner, "family", None), Full)
    return LearntRewards(config.arms, config.features, learner, encoding, descent, draws_outputs=full)


def _subspace(iterated: bool, diagonal: bool = False) -> Callable[[AgentConfig, dict[str, Any]], AbstractRewards[Any]]:
    def make(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
        network, mean, encoding = config.encoded()
        return SubspaceRewards(
            config.arms,
            config.features,
            network,
            mean,
            encoding,
            iterated=iterated,
            variance=config.variance,
            noise=config.noise,
            family=Diagonal() if diagonal else Full(),
            weight_drift=config.weight_drift,
            descent=_descent(settings, steps=1000),  # directions come from these steps: there must be many
            **settings,
        )

    return make


def _of_chain(model: Any, **defaults: Any) -> Callable[[AgentConfig, dict[str, Any]], AbstractRewards[Any]]:
    """Return the constructor of an agent that retrains a network with an output for each arm."""

    def make(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
        network, mean = config.chain(OutputPerArm(config.arms))
        own = {**defaults, **settings}
        descent = _descent(own, steps=30)  # longer trainings fit the luck of the first rewards
        return model(config.arms, config.features, network, mean, descent=descent, forgetting=config.forgetting, **own)

    return make


def _tangent(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
    network, mean, encoding = config.encoded()
    width = config.hidden[-1] if config.hidden else 1  # m, by which the tangent kernel is divided
    own = {"descent": _descent(settings, steps=30), "forgetting": config.forgetting}
    return TangentRewards(config.arms, config.features, network, mean, encoding, width, **own, **settings)


def _stein(config: AgentConfig, settings: dict[str, Any]) -> AbstractRewards[Any]:
    network, _, encoding = config.encoded()
    # A precision that is learnt from few rewards pulls all weights to zero, and no context matters any more.
    own = {"steps": 2, "learning_rate": 0.01, "variance": 1.0, **settings}
    warm_up = {name: own.pop(name) for name in ("warm_up_steps",) if name in own}
    learner = s2vgd(
        network,
        GaussianLikelihood(config.noise),
        learns_noise=True,
        generator=torch.Generator().manual_seed(config.seed),
        rate=own.pop("learning_rate"),
        forgetting=config.forgetting,
        **own,
    )
    learner = dataclasses.replace(learner, start=learner.start.to(find_device(config.device)))
    return SteinRewards(config.arms, config.features, learner, encoding, **warm_up)


# Name -> constructor of the model of rewards, and the agent's own rule.
AGENTS: dict[str, tuple[Callable[[AgentConfig, dict[str, Any]], AbstractRewards[Any]], str]] = {
    "linear": (_linear, "thompson"),
    "linucb": (_linear, "ucb"),
    "linear-window": (_window, "thompson"),
    "adf": (_logistic, "thompson"),
    "ep": (functools.partial(_logistic, every=100), "thompson"),
    "laplace": (functools.partial(_logistic, every=100, batch=Laplace()), "thompson"),
    "fab-cost": (functools.partial(_logistic, at=(100, 10_000)), "thompson"),
    "subspace-svd": (_subspace(iterated=True), "thompson"),
    "subspace-random": (_subspace(iterated=False), "thompson"),
    "subspace-svd-diagonal": (_subspace(iterated=True, diagonal=True), "thompson"),
    "neural-linear": (_of_chain(NeuralLinearRewards), "thompson"),
    "neural-linear-limited": (_of_chain(NeuralLinearRewards, memory=100), "thompson"),
    "neural-greedy": (_of_chain(NeuralLinearRewards, head="network"), "greedy"),
    "lim2": (_of_chain(MatchedRewards), "thompson"),
    "neural-ts": (_tangent, "thompson"),
    "neural-ucb": (_tangent, "ucb"),
    "bootstrap": (_of_chain(BootstrapRewards), "thompson"),
    "dropout": (_of_chain(DropoutRewards), "thompson"),
    "stein": (_stein, "thompson"),
    **{name: (_learnt, "thompson") for name, named in LEARNERS.items() if named.numbers and name != "subspace-ekf"},
}
