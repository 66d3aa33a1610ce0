"""Online gradient descent: the learner without a belief that all others are compared with."""

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from tsforecast.core.gaussian import register_record
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.over_network import AbstractNetworkLearner, AbstractPointsLearner
from tsforecast.learners.shapes import Inputs, Samples, Scalar, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class Point:
    """A belief in one point: weights, and no doubt of them.

    Attributes:
        mean: Of the network.
    """

    mean: Weights


@dataclasses.dataclass(frozen=True)
class GradientDescent(AbstractPointsLearner[Point]):
    """theta += rate grad log p(y | theta), one step for each observation.

    Attributes:
        mean: Weights to begin with.
        rate: Length of a step.

    Raises:
        ValueError: If the rate is not positive.
    """

    mean: Weights
    rate: float = 0.01

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ValueError(f"expected rate to be positive, got {self.rate}")

    def init(self) -> Point:
        """Return the weights to begin with."""
        return Point(self.mean)

    def drift(self, belief: Point, dt: Scalar) -> Point:
        """Return the belief as it is: gradient descent has no drift."""
        return belief

    def predict(self, belief: Point, inputs: Inputs) -> Distribution:
        """Return the likelihood at the weights."""
        return self.likelihood.predictive(*self._outputs(belief, inputs))

    def expect(self, belief: Point, inputs: Inputs, spread: bool = True) -> Expectation:
        """The likelihood at the weights; there is no other spread than that of the noise."""
        return self.likelihood.expect(*self._outputs(belief, inputs))

    def learn(self, belief: Point, points: Points, generator: torch.Generator | None, done: Any = None) -> Point:
        """Take one gradient step on the log-likelihood."""
        log_prob = Model(self.network, self.likelihood, Full()).log_prob  # which family does not matter to a likelihood
        return Point(belief.mean + self.rate * torch.func.grad(log_prob)(belief.mean, points))

    def forget(self, belief: Point, rate: float) -> Point:
        """Refuse: nothing is known of a prior.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"expected a learner with a prior, to forget on drift, got {type(self).__name__}")

    def adopt(self, smaller: AbstractNetworkLearner[Point], belief: Point) -> tuple["GradientDescent", Point]:
        """Put the weights where the network says that they belong."""
        network, places = self.network.adopt(smaller.network)
        places = places.to(self.mean.device)
        mean = self.mean.index_copy(0, places, smaller.weights(smaller.init()))
        return dataclasses.replace(self, network=network, mean=mean), Point(mean.index_copy(0, places, belief.mean))

    def weights(self, belief: Point) -> Weights:
        """Return the weights; nothing else is known."""
        return belief.mean

    def variances(self, belief: Point) -> Weights:
        """Return zeros: the belief is one point."""
        return torch.zeros_like(belief.mean)

    def sample(self, belief: Point, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Return the weights, again and again."""
        return belief.mean.expand(num_samples, -1)

    def scored(self, belief: Point, points: Points) -> tuple[Prediction, None]:
        """Return the likelihood at the weights, and its score."""
        return self.likelihood.predict(*self._outputs(belief, points.inputs), points.target, points.observed), None

    def _outputs(self, belief: Point, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs, and their covariances: zeros."""
        outputs = self.network(belief.mean, inputs)
        return outputs, outputs.new_zeros(*outputs.shape, outputs.shape[-1])
