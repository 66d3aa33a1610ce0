"""Settings of learners, agents and adaptations as plain values, declared once for constructors and commands."""

import dataclasses
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BeliefSettings:
    """Belief about the weights of a network.

    Attributes:
        variance: Of every weight in the prior.
        rank: Of lofi and lrkf; cut to the number of weights.
        settings: What else the constructor takes, by name.
    """

    variance: float = 0.1
    rank: int = field(default=10, metadata={"least": 0})
    settings: Mapping[str, Any] | None = None

    @classmethod
    def values_of(cls, source: Any, **others: Any) -> dict[str, Any]:
        """Return these settings of a record that has them, by name; `others` come in the place of its own."""
        return {field.name: getattr(source, field.name) for field in dataclasses.fields(cls)} | others


@dataclass(frozen=True, kw_only=True)
class DriftSettings(BeliefSettings):
    """Drift of the weights.

    Attributes:
        drift: "auto" (Wiener, for learners that take a drift), "none" (or the learner's own), "wiener", "ou",
            "forgetting" (towards the prior), "exponential" or "shrink" (and perturb).
        rate: Of the drift, in a unit of time; for the last two, what 1 is reduced by.
    """

    drift: str = "auto"
    rate: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class OutlierSettings(DriftSettings):
    """Outliers.

    Attributes:
        weight: "none" (or the learner's own), "imq" (outliers count less) or "gate" (outliers do not count).
        threshold: From which on an observation is an outlier, in standard deviations.
    """

    weight: str = "none"
    threshold: float = 3.0


@dataclass(frozen=True, kw_only=True)
class AdaptationSettings(DriftSettings):
    """Learning on, after each period as long as a forecast.

    Attributes:
        rate: Of the drift, in a period.
        part: Regular expression that names of parameters must contain; "" for all of them.
        evidence: "likelihood" of a period given what came before; or "objective", by which the model was trained.
        memory: Of vb: "none", "random" or "grs"; it keeps windows with what lies before them.
        memory_size: Number of windows that a memory keeps.
    """

    drift: str = "wiener"
    rate: float = 0.02
    part: str = ""
    evidence: str = "objective"
    memory: str = "none"
    memory_size: int = field(default=25, metadata={"least": 1})


@dataclass(frozen=True, kw_only=True)
class AgentSettings(DriftSettings):
    """Agent.

    Attributes:
        rule: "auto" (the agent's own), "thompson", "ucb", "greedy", "epsilon" or "softmax".
        amount: Standard deviations of ucb, 1; probability of epsilon, 0.05; temperature of softmax, 0.2.
        encoding: Of context and arm, for networks that a learner or NeuralTS has: "output" for one output an arm,
            "concatenated", or "block".
        activation: "relu", "tanh" or "sigmoid".
        variance: Of every weight, or direction, in the prior of a learner.
        noise: Variance of a reward, in the units of rewards, of a learner.
        drift: "none", "wiener", "ou", "forgetting", "exponential" or "shrink"; agents that retrain a network take
            "forgetting" alone, by which older rounds count for less.
        warm_up: Rewards of each arm before the agent chooses by its rule.
        device: Of the weights of a learner or of particles: "cpu", "cuda" or "auto". A GPU is faster where a belief has
            all covariances of thousands of weights. Other agents compute on the CPU alone.
    """

    rule: str = "auto"
    amount: float | None = None
    encoding: str = "output"
    activation: str = "relu"
    variance: float = 0.01
    noise: float = 0.1
    drift: str = "none"
    warm_up: int = field(default=20, metadata={"least": 1})
    device: str = field(default="cpu", metadata={"later": True})


@dataclass(eq=False, repr=False)
class EstimatorSettings:
    """Arguments of all online estimators, of scikit-learn and of River.

    scikit-learn wants constructors that take anything; `tsforecast.online.config.OnlineConfig` checks what they took.

    Args:
        learner: A name in `tsforecast.learners.LEARNERS`; "adf" tells two classes apart.
        hidden: Widths of the hidden layers; () is a linear model.
        activation: "tanh", "relu" or "sigmoid".
        variance: As in `OutlierSettings`, as are drift, rate, weight, threshold and rank.
        seed: Seed of initial weights, and of what the learner draws.
        settings: Further arguments of the learner's constructor, by name.
    """

    learner: Any = "lofi"
    hidden: Any = (20,)
    activation: Any = "tanh"
    variance: Any = OutlierSettings.variance
    _: KW_ONLY
    drift: Any = OutlierSettings.drift
    rate: Any = OutlierSettings.rate
    weight: Any = OutlierSettings.weight
    threshold: Any = OutlierSettings.threshold
    rank: Any = OutlierSettings.rank
    seed: Any = 0
    settings: Any = None
