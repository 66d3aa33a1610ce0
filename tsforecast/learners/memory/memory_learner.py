"""Online variational Bayes with a memory: a Gaussian for what it describes well, and observations as they came.

The posterior is q(w) p(M | w), with independent weights in q and a memory M of fixed capacity (Kurle et al., *Continual
Learning with Bayesian Neural Networks for Non-stationary Data*, 2020).
"""

import dataclasses
import functools
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.learners.beliefs.diagonal import Diagonal, Independent
from tsforecast.learners.drift import AbstractDrift, NoDrift
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.gaussian_learner import AbstractPartlyGaussian, GaussianLearner
from tsforecast.learners.likelihoods.classes import CategoricalLikelihood
from tsforecast.learners.likelihoods.likelihood import LogDensity
from tsforecast.learners.memory.coreset import Memory
from tsforecast.learners.memory.memory_update import AbstractMemoryUpdate, Block, NoMemory
from tsforecast.learners.memory.variational_fit import AbstractFit, LinearisedFit
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.shapes import Scalar, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class Remembered:
    """A posterior q(w) p(M | w), and the fit that stands for it in predictions.

    Attributes:
        gaussian: q: the evidence of all that is not in the memory.
        fitted: Nearest independent weights to the product.
        memory: M.
    """

    gaussian: Independent
    fitted: Independent
    memory: Memory


@dataclasses.dataclass(frozen=True)
class MemoryLearner(AbstractPartlyGaussian[Remembered]):
    """Blocks of observations are fitted together with a memory of earlier ones.

    The points of one `update` are a block: larger ones are fitted better, and cost less a point. An empty block changes
    nothing.

    Drifts move the Gaussian and the fit. Forgetting raises the likelihoods in the memory to a power that falls with
    their age. Other drifts leave them as they are.

    Attributes:
        mean: Prior mean of the weights.
        variance: Prior variance of each weight.
        start: Where the first fit begins.
        features: Shape of the inputs of an observation.
        update_memory: How a memory is filled.
        fit: How independent weights are fitted.
        weight_drift: Of the weights between observations.

    Raises:
        ValueError: If a vector does not fit the network.
    """

    mean: Weights
    variance: Weights
    start: Independent
    features: tuple[int, ...]
    update_memory: AbstractMemoryUpdate = dataclasses.field(default_factory=NoMemory)
    fit: AbstractFit = dataclasses.field(default_factory=LinearisedFit)
    weight_drift: AbstractDrift = dataclasses.field(default_factory=NoDrift)

    def __post_init__(self) -> None:
        _ = self.plain  # making it checks the prior
        if self.start.mean.shape != self.mean.shape or self.start.variance.shape != self.mean.shape:
            raise ValueError(f"expected a start for {len(self.mean)} weights, got {tuple(self.start.mean.shape)}")

    @functools.cached_property
    def plain(self) -> GaussianLearner:
        """Return the learner with a Gaussian alone; it drifts and predicts."""
        drift = self.weight_drift
        return GaussianLearner(self.network, self.likelihood, self.mean, self.variance, Diagonal(), weight_drift=drift)

    @property
    def _targets(self) -> int:
        """Return the number of components of a target."""
        if isinstance(self.likelihood, CategoricalLikelihood | LogDensity):
            return 1
        with torch.no_grad():
            return self.network(self.mean, self.mean.new_zeros(1, *self.features)).shape[-1]

    def init(self) -> Remembered:
        """Return the prior, and an empty memory."""
        prior, size = self.plain.init(), self.update_memory.size
        targets = self._targets if size else 1  # without a memory nothing asks the network
        return Remembered(prior, prior, Memory.empty(size, self.features, targets, self.mean))

    def drift(self, belief: Remembered, dt: Scalar) -> Remembered:
        """Move Gaussian and fit by the drift of the weights, and let likelihoods in the memory fade."""
        gaussian, fitted = (self.plain.drift(x, dt) for x in (belief.gaussian, belief.fitted))
        return Remembered(gaussian, fitted, belief.memory.later(dt, self.weight_drift.kept(dt)))

    def gaussian(self, belief: Remembered) -> Independent:
        """Return the fit."""
        return belief.fitted

    def learn(
        self, belief: Remembered, points: Points, generator: torch.Generator | None, done: Any = None
    ) -> Remembered:
        """Fit Gaussian, memory and block together, and choose the observations that the memory keeps."""
        if not len(points.target):
            return belief
        new = Memory.of(points)
        candidates = belief.memory.taken().joined(new) if len(belief.memory) else new  # no work for free places
        prior = self.plain.prior
        # A tensor: nothing may branch on numbers in a compiled loop.
        is_first = (belief.fitted.mean == prior.mean).all()
        start = _where(is_first, self.start, belief.fitted)
        model = Model(self.network, self.likelihood, Diagonal())
        block = Block(model, self.fit, belief.gaussian, start, is_first, candidates, len(points.target), prior)
        learnt = self.update_memory(block, generator)
        memory = learnt.memory.padded(len(belief.memory)) if len(belief.memory) else belief.memory
        return Remembered(learnt.gaussian, learnt.fitted, memory)

    def forget(self, belief: Remembered, rate: float) -> Remembered:
        """The Gaussian and the fit are mixed with the prior, in natural parameters; the memory fades as much."""
        gaussian, fitted = (self.plain.forget(x, rate) for x in (belief.gaussian, belief.fitted))
        return Remembered(gaussian, fitted, belief.memory.later(0.0, 1 - rate))

    def adopt(self, smaller: AbstractNetworkLearner[Any], belief: Any) -> tuple["MemoryLearner", Remembered]:
        """Embed both Gaussians; inputs that are new are 0 in the memory."""
        if not isinstance(smaller, MemoryLearner):
            raise ValueError(f"expected a MemoryLearner, got {type(smaller).__name__}")
        plain, gaussian = self.plain.adopt(smaller.plain, belief.gaussian)
        fitted = self.plain.adopt(smaller.plain, belief.fitted)[1]
        start = self.plain.adopt(smaller.plain, smaller.start)[1]
        places = self.plain.network.adopt(smaller.network)[1].to(self.mean.device)
        own = torch.ones_like(self.mean, dtype=torch.bool).index_fill(0, places, False)
        start = _where(own, self.start, start)
        learner = dataclasses.replace(
            self, network=plain.network, mean=plain.mean, variance=plain.variance, start=start
        )
        memory = belief.memory
        if len(memory):
            memory = memory.widened(self.features, learner._targets)
        return learner, Remembered(gaussian, fitted, memory)


def _where(condition: Bool[Tensor, "*weight"], one: Independent, other: Independent) -> Independent:
    """Return means and variances of the one where the condition holds, else of the other."""
    mean, variance = torch.where(condition, one.mean, other.mean), torch.where(condition, one.variance, other.variance)
    return Independent(mean, variance)
