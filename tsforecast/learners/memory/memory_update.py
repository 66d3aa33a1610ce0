"""Updates of a Gaussian and a memory by a block: some observations are kept as they came, the others summed up."""

import abc
import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.learners.beliefs.diagonal import Diagonal, Independent
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.memory.coreset import Memory, at_random, best, k_centre
from tsforecast.learners.memory.residual_scoring import SCORES, Factors, corrected, factors_of, scores, without
from tsforecast.learners.memory.variational_fit import AbstractFit, Problem

# Weights at which the score of an observation is taken.
_DRAWS = 32
# Part of the prior's precision that the Gaussian keeps at least.
_FLOOR = 1e-3


@dataclasses.dataclass(frozen=True)
class Block:
    """A block to learn from: the belief before, and all observations that are at hand as they came.

    Attributes:
        model: Network and likelihood.
        fit: How q is found.
        before: Gaussian part of the belief.
        start: Where a fit begins.
        is_first: Whether nothing was fitted before.
        candidates: The memory so far, then the new observations.
        new: Number of new observations.
        prior: At the very beginning.
    """

    model: Model
    fit: AbstractFit
    before: Independent
    start: Independent
    is_first: Bool[Tensor, ""]
    candidates: Memory
    new: int
    prior: Independent

    def fitted(self, before: Independent, points: Points, generator: torch.Generator | None) -> Independent:
        """Return the fit to some of the observations."""
        return self.fit(Problem(self.model, before, self.start, points, self.is_first), generator)


@dataclasses.dataclass(frozen=True)
class Learnt:
    """The Gaussian and the memory after a block.

    Attributes:
        gaussian: Evidence of all that is not in the memory.
        fitted: Fit to the Gaussian and the memory, by which is predicted.
        memory: Observations as they came.
    """

    gaussian: Independent
    fitted: Independent
    memory: Memory


class AbstractMemoryUpdate(abc.ABC):
    """A way to fill a memory. Settings only.

    Attributes:
        size: Capacity of the memory.
    """

    size: int

    @abc.abstractmethod
    def __call__(self, block: Block, generator: torch.Generator | None) -> Learnt:
        """Return Gaussian, fit and memory after a block."""


@dataclasses.dataclass(frozen=True)
class NoMemory(AbstractMemoryUpdate):
    """Online variational Bayes: all goes into the Gaussian."""

    size: int = 0

    def __post_init__(self) -> None:
        if self.size:
            raise ValueError(f"expected size 0 without a memory, got {self.size}")

    def __call__(self, block: Block, generator: torch.Generator | None) -> Learnt:
        """Return the fit to the block, twice."""
        fitted = block.fitted(block.before, block.candidates.points, generator)
        return Learnt(fitted, fitted, block.candidates.only(torch.zeros_like(block.candidates.valid), 0))


@dataclasses.dataclass(frozen=True)
class Coreset(AbstractMemoryUpdate):
    """Variational continual learning (Nguyen et al. 2018): the memory is chosen first, the rest is fitted.

    Predictions are of a second fit, to the Gaussian and the memory.

    Attributes:
        size: Capacity of the memory.
        spread: Whether observations are kept that cover the inputs ("k-center"), instead of any.
    """

    size: int
    spread: bool = False

    def __post_init__(self) -> None:
        check_size(self.size)

    def __call__(self, block: Block, generator: torch.Generator | None) -> Learnt:
        """Choose, fit the others, fit the memory."""
        candidates = block.candidates
        kept = k_centre(candidates, self.size) if self.spread else at_random(candidates, self.size, generator)
        gaussian = block.fitted(block.before, candidates.without(kept).points, generator)
        memory = candidates.only(kept, self.size)
        return Learnt(gaussian, block.fitted(gaussian, memory.points, generator), memory)


@dataclasses.dataclass(frozen=True)
class ResidualMemory(AbstractMemoryUpdate):
    """Gaussian residual scoring (Kurle et al. 2020): all is fitted, and the worst described observations are kept.

    The Gaussian is the fit without what the memory keeps. A second fit, to that Gaussian and the memory, has the same
    optimum, so that the first one serves for predictions.

    Attributes:
        size: Capacity of the memory.
        score: One of `SCORES`.
        draws: Weights at which the scores are taken.
        floor: Part of the prior's precision that the Gaussian keeps at least.
    """

    size: int
    score: str = "residual_variance"
    draws: int = _DRAWS
    floor: float = _FLOOR

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.score not in SCORES:
            raise ValueError(f"expected score to be one of {', '.join(SCORES)}, got {self.score!r}")
        if self.draws < 2:
            raise ValueError(f"expected draws to be at least 2, got {self.draws}")
        if not 0 < self.floor <= 1:
            raise ValueError(f"expected floor to be positive and at most 1, got {self.floor}")

    def __call__(self, block: Block, generator: torch.Generator | None) -> Learnt:
        """Fit, score, choose, and take the kept observations out of the fit."""
        candidates, points = block.candidates, block.candidates.points
        problem = Problem(block.model, block.before, block.start, points, block.is_first)
        fit = block.fit.with_terms(problem, generator)
        fitted = fit.belief
        factors = corrected(
            factors_of(fit.gradient, fit.precision, fitted.mean), block.before, fitted, candidates.valid
        )
        kept = best(self.scored(block.model, factors, fitted, points, generator), candidates.valid, self.size)
        floor = self.floor / block.prior.variance
        # By the shorter sum: of what leaves the memory, or of what stays.
        gaussian = without(kept, factors, block.before, fitted, block.new <= self.size, floor)
        return Learnt(gaussian, fitted, candidates.only(kept, self.size))

    def scored(
        self, model: Model, factors: Factors, fitted: Independent, points: Points, generator: torch.Generator | None
    ) -> Float[Tensor, " point"]:
        """Return the score of each observation, by weights drawn from the fit."""
        draws = Diagonal().sample(fitted, self.draws, generator)
        weights = torch.cat([draws, fitted.mean.unsqueeze(0)])  # the mean is where scores are centred

        def log_prob(theta: Tensor) -> Tensor:
            terms = model.likelihood.log_prob(model.network(theta, points.inputs), points.target, points.observed)
            return terms if points.counts is None else terms * points.counts

        log_probs = torch.func.vmap(log_prob, randomness="same")(weights)
        return scores(self.score, factors, fitted.mean, draws, log_probs[:-1], log_probs[-1])


def check_size(size: int) -> None:
    """Refuses a memory without places.

    Raises:
        ValueError: If there is none.
    """
    if size < 1:
        raise ValueError(f"expected a memory_size of at least 1, or memory 'none', got {size}")
