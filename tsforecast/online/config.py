"""A learner in use, built from plain values: what the adapters share beside features."""

import dataclasses
import inspect
import itertools
import math
import numbers
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tsforecast.learners import (
    DRIFTS,
    LEARNERS,
    AbstractLikelihood,
    AbstractNetwork,
    AbstractNetworkLearner,
    BernoulliLikelihood,
    CategoricalLikelihood,
    Gate,
    GaussianLikelihood,
    InverseMultiquadric,
)
from tsforecast.learners.loop import Expectation
from tsforecast.learners.network import as_network
from tsforecast.online.features import Statistics

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}
WEIGHTS = {"none": None, "imq": InverseMultiquadric, "gate": Gate}

# Points at a time where variances are predicted: a Jacobian each.
_CHUNK = 256


@dataclasses.dataclass(frozen=True)
class Leading(AbstractNetwork):
    """The first outputs of a network: weights of the others have no influence and keep their prior.

    Attributes:
        network: With all outputs.
        outputs: Number of those in use.
    """

    network: AbstractNetwork
    outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the network."""
        return self.network.sizes

    def __call__(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """Some of the columns."""
        return self.network(weights, inputs)[:, : self.outputs]

    def linearise(self, weights: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Some of the columns and of the rows."""
        outputs, jacobian = self.network.linearise(weights, inputs)
        return outputs[:, : self.outputs], jacobian[:, : self.outputs]

    def adopt(self, smaller: AbstractNetwork) -> tuple["Leading", Tensor]:
        """The same outputs of the network that adopts."""
        if not isinstance(smaller, Leading):
            raise ValueError(f"expected the first outputs of a network, got {smaller}")
        network, places = self.network.adopt(smaller.network)
        return Leading(network, self.outputs), places


@dataclasses.dataclass(frozen=True)
class Stream:
    """A learner in use, and the statistics by which its inputs are standardised.

    The belief is that of the next observation's time: it has drifted already, so that predictions are one step ahead.

    Attributes:
        recipe: Of the learner.
        sizes: Inputs and outputs of the network: at the beginning, and each time that it grew.
        learner: Settings.
        belief: After all observations.
        statistics: Of the inputs.
        steps: Number of updates.
    """

    recipe: "Recipe"
    sizes: tuple[tuple[int, int], ...]
    learner: AbstractNetworkLearner[Any]
    belief: Any
    statistics: Statistics
    steps: int

    def learn(self, rows: Tensor, target: Tensor, dt: float | None = None, counts: Tensor | None = None) -> "Stream":
        """After some points that are learnt from together.

        Args:
            rows: Inputs as they came, shape (point, feature); NaN is missing. Each is standardised by the rows up to
                itself: by those before it alone, the first would be tens of standard deviations from the mean.
            target: Shape (point, 1); standardised already, NaN where nothing is to be learnt.
            dt: Time until the next observation; None for a unit for each of these points.
            counts: How often each target counts; None for once. In the statistics every row counts once.
        """
        statistics, inputs = self.statistics, []
        for row in rows:
            statistics, scaled = statistics.standardise(row)
            inputs.append(scaled)
        points = torch.stack(inputs).nan_to_num()
        generator = torch.Generator().manual_seed(_scramble(self.recipe.seed, self.steps + 1))
        missing = target.isnan()
        observed = ~missing if bool(missing.any()) else None
        belief = self.learner.update(self.belief, points, target, observed, generator, counts)
        after = dataclasses.replace(self, belief=belief, statistics=statistics, steps=self.steps + 1)
        return after.later(float(len(rows)) if dt is None else dt)

    def predict(self, rows: Tensor, spread: bool = False) -> Expectation:
        """What is expected of the targets of some points.

        Args:
            rows: As for `learn`.
            spread: Whether the variance is that of the target, or of its noise alone, which is faster.
        """
        parts = [self._predict(part, spread) for part in (rows.split(_CHUNK) if len(rows) > _CHUNK else (rows,))]
        if len(parts) == 1:
            return parts[0]
        return Expectation(torch.cat([part.mean for part in parts]), torch.cat([part.variance for part in parts]))

    def _predict(self, rows: Tensor, spread: bool) -> Expectation:
        inputs = self.statistics.standardise(rows)[1].nan_to_num()
        return self.learner.expect(self.belief, inputs, spread)

    def probabilities(self, rows: Tensor) -> Tensor:
        """Of the classes, shape (point, class)."""
        mean = self.predict(rows).mean
        return torch.cat([1 - mean, mean], -1) if isinstance(self.learner.likelihood, BernoulliLikelihood) else mean

    def forget(self, rate: float) -> "Stream":
        """With a part of all evidence forgotten at once.

        Args:
            rate: The part, in natural parameters: the belief is mixed with the prior.

        Raises:
            TypeError: If the belief cannot be mixed with its prior.
            ValueError: If the rate is not between 0 and 1, or the learner has no belief that could forget.
        """
        return dataclasses.replace(self, belief=self.learner.forget(self.belief, rate))

    def later(self, dt: float) -> "Stream":
        """After a time without observations."""
        return dataclasses.replace(self, belief=self.learner.drift(self.belief, dt)) if dt else self

    def with_outputs(self, count: int) -> "Stream":
        """With the first outputs of the network alone.

        Raises:
            ValueError: If the learner tells two classes apart, and more are asked for.
        """
        if isinstance(self.learner.likelihood, BernoulliLikelihood) and count > 2:
            name = self.recipe.learner
            raise ValueError(f"expected two classes for learner {name!r}, got a third: take another, such as 'lofi'")
        network = self.learner.network
        network = Leading(network.network if isinstance(network, Leading) else network, count)
        return dataclasses.replace(self, learner=self.learner.with_network(network))

    def grow(self, inputs: int, outputs: int) -> "Stream":
        """With a network of more inputs or outputs, whose new weights have their prior.

        Features that have not come yet have been inputs of 0: what was predicted without them stays as it was.

        Args:
            inputs: Not fewer than there are.
            outputs: Likewise.
        """
        if (inputs, outputs) == self.sizes[-1]:
            return self
        seed = _scramble(self.recipe.seed, -len(self.sizes))
        larger, network = self.recipe.build(inputs, outputs, self.learner.likelihood, seed), self.learner.network
        if isinstance(network, Leading):
            larger = larger.with_network(Leading(larger.network, network.outputs))
        learner, belief = larger.adopt(self.learner, self.belief)
        statistics = self.statistics.widen(inputs)
        sizes = (*self.sizes, (inputs, outputs))
        return dataclasses.replace(self, sizes=sizes, learner=learner, belief=belief, statistics=statistics)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Plain values that say which learner it is.

    Attributes:
        learner: A name in `tsforecast.learners.LEARNERS`.
        hidden: Widths of the hidden layers; none for a linear model.
        activation: "tanh", "relu" or "sigmoid".
        variance: Of every weight in the prior, around random weights of the usual size (0 for a linear model).
        drift: "auto" (Wiener, for learners that take a drift), "none" (or the learner's own), "wiener", "ou",
            "forgetting" (towards the prior), "exponential" or "shrink" (and perturb).
        rate: Of the drift, for each observation; for the last two, what 1 is reduced by.
        weight: "none" (or the learner's own), "imq" (outliers count less) or "gate" (outliers do not count).
        threshold: From which on an observation is an outlier, in standard deviations.
        rank: Of lofi and lrkf; cut to the number of weights.
        seed: Of initial weights, and of what the learner draws.
        settings: What else the learner's constructor takes, by name.

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    learner: str
    hidden: tuple[int, ...]
    activation: str
    variance: float
    drift: str
    rate: float
    weight: str
    threshold: float
    rank: int
    seed: int
    settings: Mapping[str, Any] | None

    @staticmethod
    def of(estimator: Any) -> "Recipe":
        """From the attributes of an estimator that have these names."""
        values = {field.name: getattr(estimator, field.name) for field in dataclasses.fields(Recipe)}
        if isinstance(values["hidden"], list):
            values["hidden"] = tuple(values["hidden"])
        return Recipe(**values)

    def __post_init__(self) -> None:
        for name, table in (
            ("learner", LEARNERS),
            ("activation", ACTIVATIONS),
            ("drift", ("auto", *DRIFTS)),
            ("weight", WEIGHTS),
        ):
            value = getattr(self, name)
            if value not in table:
                raise ValueError(f"expected {name} to be one of {', '.join(table)}, got {value!r}")
        widths = self.hidden if isinstance(self.hidden, tuple) else (None,)
        if not all(isinstance(width, numbers.Integral) and width > 0 for width in widths):
            raise ValueError(f"expected hidden to be a tuple of positive widths, or (), got {self.hidden!r}")
        if not 0 < self.variance < math.inf:
            raise ValueError(f"expected variance to be positive and finite, got {self.variance!r}")

    def likelihood(self, prediction: str) -> AbstractLikelihood:
        """Of a class; `adf` has one logit, and so two classes.

        Args:
            prediction: "plug-in" at the mean of the belief, or "moderated" by its variance.

        Raises:
            ValueError: If the prediction is not known.
        """
        return (
            BernoulliLikelihood(prediction) if self.learner == "adf" else CategoricalLikelihood(prediction=prediction)
        )

    def numeric(self, noise: float) -> AbstractLikelihood:
        """Of a standardised number.

        Args:
            noise: Variance around the output of the network.

        Raises:
            ValueError: If it is not positive, or the learner is for classes alone.
        """
        if self.learner == "adf":
            raise ValueError("expected a learner of numbers, got 'adf', which learns classes alone")
        if not 0 < noise < math.inf:
            raise ValueError(f"expected noise to be positive and finite, got {noise!r}")
        return GaussianLikelihood(float(noise))

    def begin(self, inputs: int, outputs: int, likelihood: AbstractLikelihood) -> Stream:
        """The learner before any observation.

        Args:
            inputs: Features to begin with.
            outputs: Classes to begin with; 1 for a number.
            likelihood: Of a target.

        Raises:
            ValueError: If the learner does not take these choices together.
        """
        learner = self.build(inputs, outputs, likelihood, self.seed)
        try:
            belief = learner.drift(learner.init(), 1.0)
        except TypeError as error:
            raise ValueError(
                f"expected a drift that learner {self.learner!r} takes, got {self.drift!r}: {error}"
            ) from error
        return Stream(self, ((inputs, outputs),), learner, belief, Statistics.empty(inputs), 0)

    def build(
        self, inputs: int, outputs: int, likelihood: AbstractLikelihood, seed: int
    ) -> AbstractNetworkLearner[Any]:
        """The learner, as `begin` has it.

        Args:
            inputs: Features.
            outputs: Classes; 1 for a number.
            likelihood: Of a target.
            seed: Of initial weights, and of what the constructor draws.

        Raises:
            ValueError: If the learner does not take these choices together.
        """
        module = self._module(inputs, 1 if isinstance(likelihood, BernoulliLikelihood) else outputs, seed)
        constructor = LEARNERS[self.learner]
        accepted = inspect.signature(constructor).parameters
        offered = {
            "rank": min(self.rank, as_network(module).size),
            "threshold": self.threshold,
            "generator": torch.Generator().manual_seed(seed),
        }
        choices: dict[str, Any] = {name: value for name, value in offered.items() if name in accepted}
        takes_drift = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
        name = ("wiener" if takes_drift else "none") if self.drift == "auto" else self.drift
        drift, weight = DRIFTS[name], WEIGHTS[self.weight]
        if drift is not None:
            choices["drift"] = drift(self.rate)
        if weight is not None:
            choices["weight"] = weight(self.threshold)
        choices |= self.settings or {}
        try:
            return constructor(module, likelihood, self.variance, **choices)
        except TypeError as error:
            raise ValueError(
                f"expected what learner {self.learner!r} takes, got {', '.join(sorted(choices))}: {error}"
            ) from error

    def _module(self, inputs: int, outputs: int, seed: int) -> nn.Module:
        """Layers as `nn.Linear` begins them, by a generator of their own; zeros for a linear model."""
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise((inputs, *self.hidden, outputs)):
            layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=torch.float64)
            bound = fan_in**-0.5 if self.hidden else 0.0
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
            layers += [layer, ACTIVATIONS[self.activation]()]
        return nn.Sequential(*layers[:-1])


def _scramble(seed: int, number: int) -> int:
    """A seed for each number: a stream is a value, and a copy of it goes on with the same random numbers."""
    return (seed + number * 0x9E3779B97F4A7C15) % 2**64
