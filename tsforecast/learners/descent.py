"""Online gradient descent: the learner without a belief that all others are compared with."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution

from tsforecast.core.gaussian import register_record
from tsforecast.learners.beliefs.full import Full
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.over_network import AbstractNetworkLearner


@register_record
@dataclasses.dataclass(frozen=True)
class Point:
    """A belief in one point: weights, and no doubt of them.

    Attributes:
        mean: Of the network.
    """

    mean: Float[Tensor, " weight"]


@dataclasses.dataclass(frozen=True)
class GradientDescent(AbstractNetworkLearner[Point]):
    """theta += rate grad log p(y | theta), one step for each observation.

    Attributes:
        network: From inputs and weights to outputs.
        likelihood: Of a target given outputs.
        mean: Weights to begin with.
        rate: Length of a step.

    Raises:
        ValueError: If the rate is not positive.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood
    mean: Float[Tensor, " weight"]
    rate: float = 0.01

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ValueError(f"expected rate to be positive, got {self.rate}")

    def init(self) -> Point:
        """Return the weights to begin with."""
        return Point(self.mean)

    def drift(self, belief: Point, dt: Float[Tensor, ""] | float) -> Point:
        """Return the belief as it is: gradient descent has no drift."""
        return belief

    def predict(self, belief: Point, inputs: Float[Tensor, "point *feature"]) -> Distribution:
        """Return the likelihood at the weights."""
        outputs = self.network(belief.mean, inputs)
        return self.likelihood.predictive(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[-1]))

    def expect(self, belief: Point, inputs: Float[Tensor, "point *feature"], spread: bool = True) -> Expectation:
        """The likelihood at the weights; there is no other spread than that of the noise."""
        outputs = self.network(belief.mean, inputs)
        return self.likelihood.expect(outputs, outputs.new_zeros(*outputs.shape, outputs.shape[-1]))

    def update(
        self,
        belief: Point,
        inputs: Float[Tensor, "point *feature"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None = None,
        generator: torch.Generator | None = None,
        counts: Float[Tensor, " point"] | None = None,
    ) -> Point:
        """Take one gradient step on the log-likelihood."""
        log_prob = Model(self.network, self.likelihood, Full()).log_prob
        gradient = torch.func.grad(log_prob)(belief.mean, Points.of(inputs, target, observed, counts))
        return Point(belief.mean + self.rate * gradient)

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

    def weights(self, belief: Point) -> Float[Tensor, " weight"]:
        """Return the weights; nothing else is known."""
        return belief.mean

    def variances(self, belief: Point) -> Float[Tensor, " weight"]:
        """Return zeros: the belief is one point."""
        return torch.zeros_like(belief.mean)

    def sample(
        self, belief: Point, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "sample weight"]:
        """Return the weights, again and again."""
        return belief.mean.expand(num_samples, -1)

    def step(
        self,
        belief: Point,
        inputs: Float[Tensor, "point *feature"],
        target: Float[Tensor, "point target"],
        observed: Bool[Tensor, "point target"] | None = None,
        dt: Float[Tensor, ""] | float = 1.0,
        generator: torch.Generator | None = None,
    ) -> tuple[Point, Prediction]:
        """Predict and score the target, then take one gradient step."""
        outputs = self.network(belief.mean, inputs)
        known = target if observed is None else torch.where(observed, target, 0.0)
        cov = outputs.new_zeros(*outputs.shape, outputs.shape[-1])
        return self.update(belief, inputs, target, observed), self.likelihood.predict(outputs, cov, known, observed)
