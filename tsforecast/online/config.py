"""A learner in use, built from plain values, which all adapters share."""

import dataclasses
import itertools
import math
import numbers
from typing import Any

import torch
from torch import Tensor, nn

from tsforecast.learners import (
    LEARNERS,
    AbstractLikelihood,
    AbstractNetworkLearner,
    BernoulliLikelihood,
    GaussianLikelihood,
    LearnerConfig,
    NamedLearner,
)
from tsforecast.learners.likelihoods.predictions import Expectation
from tsforecast.learners.statistics import Statistics
from tsforecast.online.leading import Leading
from tsforecast.online.noise import BEGIN, Noise

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}

# Points that are predicted at a time, since the variance of each needs a Jacobian.
_CHUNK = 256


@dataclasses.dataclass(frozen=True)
class Stream:
    """A learner in use, and the statistics by which its inputs are standardised.

    The belief is that of the next observation's time. It has drifted already, so that predictions are one step ahead.

    Attributes:
        config: Configuration of the learner.
        sizes: Inputs and outputs of the network: at the beginning, and each time that it grew.
        learner: The learner, which has the settings.
        belief: The belief after all observations.
        statistics: Statistics of the inputs.
        steps: Number of updates.
        noise: Of numbers, where it is learnt; None where it is that of the learner.
    """

    config: "OnlineConfig"
    sizes: tuple[tuple[int, int], ...]
    learner: AbstractNetworkLearner[Any]
    belief: Any
    statistics: Statistics
    steps: int
    noise: Noise | None = None

    @property
    def noisy(self) -> AbstractNetworkLearner[Any]:
        """Return the learner with the noise of now."""
        return self.learner if self.noise is None else self.noise.of(self.learner)

    def learn(self, rows: Tensor, target: Tensor, dt: float | None = None, counts: Tensor | None = None) -> "Stream":
        """Return the stream after some points that are learnt from together.

        Args:
            rows: Inputs as they came, shape (point, feature); NaN is missing. Each is standardised by the rows up to
                itself. By those before it alone, the first would be tens of standard deviations from the mean.
            target: Standardised targets of shape (point, 1); NaN where nothing is to be learnt.
            dt: Time until the next observation; None for a unit for each of these points.
            counts: How often each target counts; None for once. In the statistics every row counts once.
        """
        statistics, inputs = self.statistics, []
        for row in rows:  # each by the statistics until then, as one at a time
            statistics, scaled = statistics.standardise(row)
            inputs.append(scaled)
        points = torch.stack(inputs).nan_to_num()  # a missing feature counts as its mean, which is 0
        # A saved stream goes on with the same numbers.
        generator = torch.Generator().manual_seed(_scramble(self.config.learner.seed, self.steps + 1))
        missing = target.isnan()
        observed = ~missing if bool(missing.any()) else None  # learners are faster without a mask
        learner, noise = self.noisy, self.noise
        if noise is not None:
            noise = noise.after(learner.expect(self.belief, points), target, counts)
        belief = learner.update(self.belief, points, target, observed, generator, counts)
        after = dataclasses.replace(self, belief=belief, statistics=statistics, steps=self.steps + 1, noise=noise)
        return after.later(float(len(rows)) if dt is None else dt)

    def predict(self, rows: Tensor, spread: bool = False) -> Expectation:
        """Return mean and variance of the targets of some points.

        Args:
            rows: As for `learn`.
            spread: Whether the variance is that of the target, or of its noise alone, which is faster.
        """
        parts = [self._predict(part, spread) for part in (rows.split(_CHUNK) if len(rows) > _CHUNK else (rows,))]
        if len(parts) == 1:
            return parts[0]
        return Expectation(torch.cat([part.mean for part in parts]), torch.cat([part.variance for part in parts]))

    def _predict(self, rows: Tensor, spread: bool) -> Expectation:
        inputs = self.statistics.standardise(rows)[1].nan_to_num()  # a prediction teaches the statistics nothing
        return self.noisy.expect(self.belief, inputs, spread)

    def probabilities(self, rows: Tensor) -> Tensor:
        """Return the probabilities of the classes, shape (point, class)."""
        mean = self.predict(rows).mean
        return torch.cat([1 - mean, mean], -1) if isinstance(self.learner.likelihood, BernoulliLikelihood) else mean

    def forget(self, rate: float) -> "Stream":
        """Return the stream with a part of all evidence forgotten at once.

        Args:
            rate: The part, in natural parameters: the belief is mixed with the prior.

        Raises:
            TypeError: If the belief cannot be mixed with its prior.
            ValueError: If the rate is not between 0 and 1, or the learner has no belief that could forget.
        """
        return dataclasses.replace(self, belief=self.learner.forget(self.belief, rate))

    def later(self, dt: float) -> "Stream":
        """Return the stream after a time without observations."""
        return dataclasses.replace(self, belief=self.learner.drift(self.belief, dt)) if dt else self

    def with_outputs(self, count: int) -> "Stream":
        """Return the stream with the first outputs of the network alone.

        Raises:
            ValueError: If the learner tells two classes apart, and more are asked for.
        """
        if isinstance(self.learner.likelihood, BernoulliLikelihood) and count > 2:
            name = self.config.learner.learner
            raise ValueError(f"expected two classes for learner {name!r}, got a third: take another, such as 'lofi'")
        network = self.learner.network
        network = Leading(network.network if isinstance(network, Leading) else network, count)
        return dataclasses.replace(self, learner=self.learner.with_network(network))

    def grow(self, inputs: int, outputs: int) -> "Stream":
        """Return the stream with a network of more inputs or outputs, whose new weights have their prior.

        Features that have not come yet have been inputs of 0. So what was predicted without them stays as it was.

        Args:
            inputs: Number of inputs, not fewer than there are.
            outputs: Number of outputs, likewise.
        """
        if (inputs, outputs) == self.sizes[-1]:
            return self
        seed = _scramble(self.config.learner.seed, -len(self.sizes))  # negative: never that of a step
        larger, network = self.config.build(inputs, outputs, self.learner.likelihood, seed), self.learner.network
        if isinstance(network, Leading):
            larger = larger.with_network(Leading(larger.network, network.outputs))
        learner, belief = larger.adopt(self.learner, self.belief)
        statistics = self.statistics.widen(inputs)
        sizes = (*self.sizes, (inputs, outputs))
        return dataclasses.replace(self, sizes=sizes, learner=learner, belief=belief, statistics=statistics)


@dataclasses.dataclass(frozen=True)
class OnlineConfig:
    """Plain values that choose a learner, and the network whose weights it learns.

    Attributes:
        learner: Settings of the learner; its prior lies around random weights of the usual size (0 for a linear model).
        hidden: Widths of the hidden layers; none for a linear model.
        activation: "tanh", "relu" or "sigmoid".

    Raises:
        ValueError: If a name is unknown, or a number outside of its range.
    """

    learner: LearnerConfig
    hidden: tuple[int, ...]
    activation: str

    @staticmethod
    def of(source: Any) -> "OnlineConfig":
        """Return the configuration in those attributes of an estimator, or of options, that are named as settings."""
        hidden = tuple(source.hidden) if isinstance(source.hidden, list) else source.hidden
        return OnlineConfig(LearnerConfig(**LearnerConfig.values_of(source)), hidden, source.activation)

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"expected activation to be one of {known}, got {self.activation!r}")
        widths = self.hidden if isinstance(self.hidden, tuple) else (None,)
        if not all(isinstance(width, numbers.Integral) and width > 0 for width in widths):
            raise ValueError(f"expected hidden to be a tuple of positive widths, or (), got {self.hidden!r}")

    @property
    def named(self) -> NamedLearner:
        """Return the algorithm of this name, and what it takes."""
        return LEARNERS[self.learner.learner]

    def likelihood(self, prediction: str) -> AbstractLikelihood:
        """Return the likelihood of a class, with one logit for a learner of two classes, else one each.

        Args:
            prediction: "plug-in" at the mean of the belief, or "moderated" by its variance.

        Raises:
            ValueError: If the prediction is not known.
        """
        return self.named.classes(prediction=prediction)

    def numeric(self, noise: float | None) -> AbstractLikelihood:
        """Return the likelihood of a standardised number.

        Args:
            noise: Variance around the output of the network; None for the one that learning begins with.

        Raises:
            ValueError: If it is not positive, or the learner is for classes alone.
        """
        if not self.named.numbers:
            raise ValueError(f"expected a learner of numbers, got {self.learner.learner!r}, which learns classes alone")
        if noise is not None and not 0 < noise < math.inf:
            raise ValueError(f"expected noise to be positive and finite, got {noise!r}")
        return GaussianLikelihood(BEGIN if noise is None else float(noise))

    def begin_numbers(self, inputs: int, noise: float | None) -> Stream:
        """Return the learner of a standardised number before any observation.

        Args:
            inputs: Number of features to begin with.
            noise: Variance around the output of the network; None to learn it, where the learner has no weight.

        Raises:
            ValueError: As by `numeric` and `begin`.
        """
        stream = self.begin(inputs, 1, self.numeric(noise))
        learns = noise is None and Noise.suits(stream.learner)
        return dataclasses.replace(stream, noise=Noise()) if learns else stream

    def begin(self, inputs: int, outputs: int, likelihood: AbstractLikelihood) -> Stream:
        """Return the learner before any observation.

        Args:
            inputs: Number of features to begin with.
            outputs: Number of classes to begin with; 1 for a number.
            likelihood: Likelihood of a target.

        Raises:
            ValueError: If the learner does not take these choices together.
        """
        learner = self.build(inputs, outputs, likelihood, self.learner.seed)
        try:
            belief = learner.drift(learner.init(), 1.0)  # as for any other step, a unit of time passes before the first
        except TypeError as error:
            raise ValueError(
                f"expected a drift that learner {self.learner.learner!r} takes, got {self.learner.drift!r}: {error}"
            ) from error
        return Stream(self, ((inputs, outputs),), learner, belief, Statistics.empty(inputs), 0)

    def build(
        self, inputs: int, outputs: int, likelihood: AbstractLikelihood, seed: int
    ) -> AbstractNetworkLearner[Any]:
        """Return the learner, as `begin` has it.

        Args:
            inputs: Number of features.
            outputs: Number of classes; 1 for a number.
            likelihood: Likelihood of a target.
            seed: Seed of initial weights, and of what the constructor draws.

        Raises:
            ValueError: If the learner does not take these choices together.
        """
        module = self._module(inputs, 1 if isinstance(likelihood, BernoulliLikelihood) else outputs, seed)
        return self.learner.build(module, likelihood, seed=seed)

    def _module(self, inputs: int, outputs: int, seed: int) -> nn.Module:
        """Return layers that begin as `nn.Linear`, by a generator of their own; with zeros for a linear model."""
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise((inputs, *self.hidden, outputs)):
            layer = nn.utils.skip_init(nn.Linear, fan_in, fan_out, dtype=torch.float64)
            bound = fan_in**-0.5 if self.hidden else 0.0  # without hidden units nothing has to break a symmetry
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
            layers += [layer, ACTIVATIONS[self.activation]()]
        return nn.Sequential(*layers[:-1])


def _scramble(seed: int, number: int) -> int:
    """Return a seed for each number, so that a copy of a stream goes on with the same random numbers."""
    return (seed + number * 0x9E3779B97F4A7C15) % 2**64
