"""A learner whose belief is no Gaussian: points in the space of weights, and how well each has explained the data."""

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent, MixtureSameFamily, Normal

from tsforecast.core.gaussian import register_record
from tsforecast.learners import AbstractLikelihood, AbstractNetwork, AbstractNetworkLearner
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.likelihoods.predictions import Expectation, Prediction
from tsforecast.learners.networks.layer_chain import network_and_weights


@register_record
@dataclasses.dataclass(frozen=True)
class Cloud:
    points: Tensor
    log_weights: Tensor


@dataclasses.dataclass(frozen=True)
class Particles(AbstractNetworkLearner[Cloud]):
    """Importance weighting of points that stay where the prior drew them."""

    network: AbstractNetwork
    likelihood: AbstractLikelihood
    points: Tensor
    forgetting: float = 0.0

    def init(self) -> Cloud:
        return Cloud(self.points, self.points.new_zeros(len(self.points)))

    def drift(self, belief: Cloud, dt: Any) -> Cloud:
        return Cloud(belief.points, belief.log_weights * (1 - self.forgetting) ** dt)

    def forget(self, belief: Cloud, rate: float) -> Cloud:
        return Cloud(belief.points, belief.log_weights * (1 - rate))

    def adopt(self, smaller: Any, belief: Cloud) -> tuple["Particles", Cloud]:
        network, places = self.network.adopt(smaller.network)
        points = self.points.index_copy(1, places, smaller.points)
        return dataclasses.replace(self, network=network, points=points), Cloud(points, belief.log_weights)

    def outputs(self, belief: Cloud, inputs: Tensor) -> Tensor:
        return torch.func.vmap(lambda point: self.network(point, inputs))(belief.points)

    def predict(self, belief: Cloud, inputs: Tensor) -> Distribution:
        """Of numbers: one Gaussian for each point."""
        means, variances = (x.movedim(0, 1) for x in self.each(belief, inputs))
        shares = Categorical(logits=belief.log_weights.expand(len(inputs), -1))
        return MixtureSameFamily(shares, Independent(Normal(means, variances.sqrt()), 1))

    def each(self, belief: Cloud, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """What every point expects."""
        expect = torch.func.vmap(lambda x: self.likelihood.expect(x, x.new_zeros(*x.shape, x.shape[-1])))
        found = expect(self.outputs(belief, inputs))
        return found.mean, found.variance

    def expect(self, belief: Cloud, inputs: Tensor, spread: bool = True) -> Expectation:
        share = belief.log_weights.softmax(0)[:, None, None]
        means, variances = self.each(belief, inputs)
        mean = (share * means).sum(0)
        return Expectation(mean, (share * (variances + (means - mean).square())).sum(0))

    def update(self, belief, inputs, target, observed=None, generator=None, counts=None) -> Cloud:
        points = Points.of(inputs, target, observed, counts)
        power = torch.ones(len(inputs), dtype=target.dtype) if counts is None else counts
        log_prob = torch.func.vmap(lambda x: self.likelihood.log_prob(x, points.target, points.observed) @ power)
        return Cloud(belief.points, belief.log_weights + log_prob(self.outputs(belief, inputs)))

    def weights(self, belief: Cloud) -> Tensor:
        return belief.log_weights.softmax(0) @ belief.points

    def variances(self, belief: Cloud) -> Tensor:
        return belief.log_weights.softmax(0) @ (belief.points - self.weights(belief)).square()

    def sample(self, belief: Cloud, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        return belief.points[torch.multinomial(belief.log_weights.softmax(0), num_samples, True, generator=generator)]

    def step(self, belief, inputs, target, observed=None, dt=1.0, generator=None):
        belief = self.drift(belief, dt)
        expected = self.expect(belief, inputs)
        after = self.update(belief, inputs, target, observed)
        log_prob = after.log_weights.logsumexp(0) - belief.log_weights.logsumexp(0)
        return after, Prediction(expected.mean, expected.variance, (log_prob / len(inputs)).expand(len(inputs)))


def make_particles(model, likelihood, variance=0.1, *, mean=None, count=400, forgetting=0.0) -> Particles:
    """As the constructors of `LEARNERS` are."""
    network, mean = network_and_weights(model, mean)
    noise = torch.randn(count, len(mean), generator=torch.Generator().manual_seed(0), dtype=mean.dtype)
    return Particles(network, likelihood, mean + variance**0.5 * noise, forgetting)
