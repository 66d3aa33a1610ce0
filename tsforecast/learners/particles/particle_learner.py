"""A belief of particles over the weights of a network, moved by Stein variational gradient descent: SVGD and S2VGD."""

import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal

from tsforecast.core.gaussian import map_tensors, register_record
from tsforecast.core.torch_internals import device_of
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.likelihoods.classes import CategoricalLikelihood
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.over_network import AbstractNetworkLearner, AbstractPointsLearner
from tsforecast.learners.particles.stein import AbstractStep, Moments, direction
from tsforecast.learners.particles.weight_posterior import WeightPosterior
from tsforecast.learners.shapes import Inputs, Observed, Samples, Scalar, Target, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class Particles:
    """Particles that stand for a posterior, and the data that it is given.

    Attributes:
        values: Variables of each particle: weights, or what a structure makes weights of, and log-precisions.
        moments: Of the steps so far.
        inputs: Of all points so far.
        target: Of all points so far.
        observed: False where a component of a target is missing.
        counts: How often each point counts.
    """

    values: Float[Tensor, "particle variable"]
    moments: Moments
    inputs: Inputs
    target: Target
    observed: Observed
    counts: Float[Tensor, " point"]


@dataclasses.dataclass(frozen=True)
class SteinLearner(AbstractPointsLearner[Particles]):
    """Particles that move towards the posterior of all data so far, a few steps with every observation.

    Data are kept, as in Stein Thompson sampling (Zhang et al. 2018, algorithm 1): so neither `vmap` nor a compiled loop
    takes it. One particle is the mode of the posterior (MAP).

    Attributes:
        start: Variables of each particle to begin with.
        posterior: Of the variables; made by `stein`.
        adaptive: How long a step is.
        rate: Learning rate.
        steps: Number of steps with each update.
        batch: Points of a step, drawn with replacement; all where there are fewer.
        forgetting: Part of each point's count that a unit of time takes away.

    Raises:
        ValueError: If a number is outside of its range, or the particles do not fit the posterior.
    """

    start: Float[Tensor, "particle variable"]
    posterior: WeightPosterior
    adaptive: AbstractStep
    rate: float = 1e-3
    steps: int = 10
    batch: int = 100
    forgetting: float = 0.0

    def __post_init__(self) -> None:
        if self.start.ndim != 2 or not len(self.start) or self.start.shape[1] != self.posterior.size:
            raise ValueError(
                f"expected one particle or more of {self.posterior.size} variables, got {tuple(self.start.shape)}"
            )
        if not self.rate > 0 or self.steps < 1 or self.batch < 1 or not 0 <= self.forgetting <= 1:
            raise ValueError(
                "expected a positive rate, steps and batch of 1 or more, and forgetting from 0 to 1, got "
                f"{self.rate}, {self.steps}, {self.batch} and {self.forgetting}"
            )

    def init(self) -> Particles:
        """Return the particles to begin with, and no data."""
        none = self.start.new_zeros(0)
        inputs, target = none.view(0, 1), none.view(0, 1)
        return Particles(self.start, Moments.none(self.start), inputs, target, target.bool(), none)

    def drift(self, belief: Particles, dt: Scalar) -> Particles:
        """Data count less; the particles move with the next update."""
        if not self.forgetting:
            return belief
        return dataclasses.replace(belief, counts=belief.counts * (1 - self.forgetting) ** dt)

    def outputs(self, belief: Particles, inputs: Inputs) -> Float[Tensor, "particle point output"]:
        """Return the outputs of the network for every particle."""
        return torch.func.vmap(lambda x: self.network(self.posterior.weights(x), inputs))(belief.values)

    def predict(self, belief: Particles, inputs: Inputs) -> Distribution:
        """Return the mixture of the particles' predictions; for classes it is the mean of the probabilities."""
        if isinstance(self.likelihood, CategoricalLikelihood):
            return Categorical(probs=self.expect(belief, inputs).mean)
        outputs = self.outputs(belief, inputs)
        if self.posterior.learns_noise:
            deviation = (-0.5 * belief.values[:, -1]).exp()[:, None, None].expand_as(outputs)
            each = Independent(Normal(outputs.movedim(0, 1), deviation.movedim(0, 1)), 1)
        else:
            each = self.likelihood.predictive(outputs.movedim(0, 1), _no_cov(outputs).movedim(0, 1))
        return MixtureSameFamily(Categorical(logits=outputs.new_zeros(len(inputs), len(belief.values))), each)

    def expect(self, belief: Particles, inputs: Inputs, spread: bool = True) -> Expectation:
        """Return mean and variance of the mixture; the spread costs nothing."""
        outputs = self.outputs(belief, inputs)
        expect = torch.func.vmap(lambda v, x, c: self.posterior.noise(v).expect(x, c))
        each = expect(belief.values, outputs, _no_cov(outputs))
        mean = each.mean.mean(0)
        return Expectation(mean, (each.variance + (each.mean - mean).square()).mean(0))

    def log_prob(
        self, belief: Particles, inputs: Inputs, target: Target, observed: Observed | None = None
    ) -> Float[Tensor, " point"]:
        """Return the log-density of targets under the mixture."""
        points = Points.of(inputs, target, observed)
        each = torch.func.vmap(lambda x: self.posterior.log_likelihood(x, points))(belief.values)
        return each.logsumexp(0) - math.log(len(belief.values))  # the mean of densities

    def learn(
        self, belief: Particles, points: Points, generator: torch.Generator | None, done: Any = None
    ) -> Particles:
        """Keep the points, and take some steps on all data so far; none where no point says anything."""
        kept = self.keep(belief, points.inputs, points.target, points.observed, points.counts)
        return self.fit(kept, self.steps, generator) if len(kept.counts) > len(belief.counts) else belief

    def keep(
        self,
        belief: Particles,
        inputs: Inputs,
        target: Target,
        observed: Observed | None = None,
        counts: Float[Tensor, " point"] | None = None,
    ) -> Particles:
        """Return the belief with more points, before any step: for `fit`. Points that say nothing are not kept."""
        points = Points.of(inputs, target, observed, counts)
        seen = torch.ones_like(target, dtype=torch.bool) if points.observed is None else points.observed
        count = target.new_ones(len(target)) if counts is None else counts.to(target.dtype)
        new = [x[seen.any(-1)] for x in (inputs, points.target, seen, count)]
        old = (belief.inputs, belief.target, belief.observed, belief.counts)
        if len(belief.counts):
            new = [torch.cat(pair) for pair in zip(old, new, strict=True)]
        return Particles(belief.values, belief.moments, *new)

    def fit(
        self, belief: Particles, steps: int, generator: torch.Generator | None = None, anneal: bool = False
    ) -> Particles:
        """Return the belief after some steps towards the posterior of the data that it keeps.

        Args:
            belief: With its data.
            steps: How many.
            generator: Of the points of each step.
            anneal: Whether the rate falls to zero, by half a cosine.
        """
        with torch.inference_mode(False):
            # Of tensors of inference mode no gradient can be taken.
            data = map_tensors(lambda x: x.clone() if x.is_inference() else x, belief)
            values, moments = data.values, data.moments
            for step in range(steps):
                points, scale = self.draw(data, generator)
                rate = self.rate * (0.5 + 0.5 * math.cos(math.pi * step / steps) if anneal else 1.0)
                values, moments = self.descend(values, moments, points, scale, rate)
            return dataclasses.replace(data, values=values, moments=moments)

    def draw(self, belief: Particles, generator: torch.Generator | None = None) -> tuple[Points, float]:
        """Return the points of a step, and the number of points that each stands for."""
        total = len(belief.counts)
        rows: Tensor | slice = slice(None)
        if total > self.batch:
            rows = torch.randint(total, (self.batch,), generator=generator, device=device_of(generator, belief.counts))
        part = (x[rows] for x in (belief.inputs, belief.target, belief.observed, belief.counts))
        return Points(*part), max(total / self.batch, 1.0)  # each drawn point stands for others

    def descend(
        self, values: Float[Tensor, "particle variable"], moments: Moments, points: Points, scale: float, rate: Scalar
    ) -> tuple[Float[Tensor, "particle variable"], Moments]:
        """Return all particles after one step: a pure function for `torch.func.vmap`."""
        uphill = direction(values, self.posterior.scores(values, points, scale))
        return self.adaptive(values, uphill, moments, rate)

    def forget(self, belief: Particles, rate: float) -> Particles:
        """Points count less by this part, and each particle goes back by it on the line to where it began."""
        if not 0 <= rate <= 1:
            raise ValueError(f"expected rate to be at least 0 and at most 1, got {rate}")
        values = torch.lerp(belief.values, self.start, rate)
        return dataclasses.replace(belief, values=values, counts=belief.counts * (1 - rate))

    def adopt(self, smaller: AbstractNetworkLearner[Any], belief: Any) -> tuple["SteinLearner", Particles]:
        """Refuse: the data that are kept have the old size."""
        raise ValueError("expected a learner that can grow, got one that keeps all data")

    def with_network(self, network: AbstractNetwork) -> "SteinLearner":
        """Return the same learner over another network with the same weights."""
        posterior = dataclasses.replace(self.posterior, network=network)
        return dataclasses.replace(self, network=network, posterior=posterior)

    def each(self, belief: Particles) -> Float[Tensor, "particle weight"]:
        """Return the weights of every particle."""
        return torch.func.vmap(self.posterior.weights)(belief.values)

    def weights(self, belief: Particles) -> Weights:
        """Return the mean of the weights."""
        return self.each(belief).mean(0)

    def variances(self, belief: Particles) -> Weights:
        """Return the variances of the weights among the particles."""
        return self.each(belief).var(0, correction=0)

    def sample(self, belief: Particles, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Return the weights of particles that are drawn with replacement."""
        where = device_of(generator, belief.values)
        chosen = torch.randint(len(belief.values), (num_samples,), generator=generator, device=where)
        return torch.func.vmap(self.posterior.weights)(belief.values[chosen])

    def scored(self, belief: Particles, points: Points) -> tuple[Prediction, None]:
        """Return the moments of the mixture, and its log-density of the targets."""
        expected = self.expect(belief, points.inputs)
        score = self.log_prob(belief, points.inputs, points.target, points.observed)
        return Prediction(expected.mean, expected.variance, score), None


def _no_cov(outputs: Tensor) -> Tensor:
    """Return the covariances of outputs that are certain."""
    return outputs.new_zeros(*outputs.shape, outputs.shape[-1])
