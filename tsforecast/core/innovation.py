"""The step of an innovation model: its transition and its emission, by their structure."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.kernels import structural
from tsforecast.core.kernels.calls import serves
from tsforecast.core.linalg import add_diagonal, broadcast_shapes, symmetrise
from tsforecast.core.linear import (
    AbstractByMoments,
    AbstractLinearGaussian,
    LinearGaussian,
    condition_scalar,
    with_noise,
)
from tsforecast.core.shapes import Drawn, Given, JointMoments, Observed, Posterior, Value
from tsforecast.core.torch_internals import constant, normal


class Move(NamedTuple):
    """A transition by its structure, as the compiled operation takes it.

    Attributes:
        slopes: (level, slope) positions.
        mean: Predicted mean of the state.
        cov: Covariance before it.
        diagonal: Dampings; None for ones.
        matrix: Of dense states behind those of the components; None without.
        noise: Variances.
        share: Whether slopes are added; None if they are.
    """

    slopes: tuple[tuple[int, int], ...]
    mean: Tensor
    cov: Tensor
    diagonal: Tensor | None
    matrix: Tensor | None
    noise: Tensor
    share: Tensor | None

    def is_served(self, *others: Tensor | None, observed: Tensor | None = None) -> bool:
        """Return whether the program takes it, together with other tensors of the same step."""
        return is_served(Gaussian(self.mean, self.cov), *self[3:], *others, observed=observed)

    def belief(self) -> Gaussian:
        """Return the predicted belief."""
        return Gaussian(*structural.move(*self))


def is_served(prior: Gaussian, *others: Tensor | None, observed: Tensor | None = None) -> bool:
    """Return whether the program moves a belief, together with other tensors of the same step."""
    # A covariance that many share is moved once, by torch.
    count, states = prior.cov.shape[:-2].numel(), prior.mean.shape[-1]
    numbers = prior.mean, prior.cov, *others
    return prior.mean.shape[:-1].numel() == count and serves(count, (states,), *numbers, masks=(observed,))


@register_record
@dataclasses.dataclass(frozen=True)
class ISSMTransition(AbstractByMoments):
    """x_t given x_{t-1}: dampings on the diagonal, and slopes added to their levels.

    Attributes:
        diagonal: (*batch, state), or None for ones.
        noise: Variances, (*batch, state).
        slopes: (level, slope) positions of every trend.
        slope: Whether slopes are added, (*batch, 1) of ones and zeros; None if they are.
    """

    diagonal: Float[Tensor, "*#batch state"] | None
    noise: Float[Tensor, "*#batch state"]
    slopes: tuple[tuple[int, int], ...]
    slope: Float[Tensor, "*#batch 1"] | None = None

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predicted belief, in O(n^2) for n states."""
        moved = self.moved(prior)
        if moved is not None and moved.is_served():
            return moved.belief()
        mean, cov = self.push(prior.mean.unsqueeze(-1)).squeeze(-1), prior.cov
        if self.slopes:
            cov = symmetrise(self.push(self.push(cov).mT))  # A (A P)' = A P A', by adding rows twice
        elif self.diagonal is not None:  # without slopes A is diagonal
            cov = cov * (self.diagonal.unsqueeze(-1) * self.diagonal.unsqueeze(-2))
        # Only what was made here may be written into.
        return Gaussian(mean, add_diagonal(cov, self.noise, in_place=cov is not prior.cov))

    def moved(self, prior: Gaussian) -> Move | None:
        """Return the transition as the program takes it; None where it does not take such a belief."""
        if not is_served(prior):
            return None
        mean = self.push(prior.mean.unsqueeze(-1)).squeeze(-1)
        return Move(self.slopes, mean, prior.cov, self.diagonal, None, self.noise, self.slope)

    def push(self, x: Float[Tensor, "*#batch state column"]) -> Float[Tensor, "*#batch state column"]:
        """Return the product of the matrix and some columns."""
        return self._product(x, [(slope, level) for level, slope in self.slopes])

    def pull(self, x: Float[Tensor, "*#batch state column"]) -> Float[Tensor, "*#batch state column"]:
        """Return the product of the transposed matrix and some columns."""
        return self._product(x, self.slopes)

    def _product(self, x: Tensor, moves: Sequence[tuple[int, int]]) -> Tensor:
        """Return columns that are damped, with one row added to another for each pair (from, to)."""
        moved = x if self.diagonal is None else x * self.diagonal.unsqueeze(-1)
        if not moves:
            return moved
        source, place = (constant(positions, x) for positions in zip(*moves, strict=True))
        added = x if self.slope is None else x * self.slope.unsqueeze(-1)
        batch = broadcast_shapes(moved.shape, added.shape)
        return moved.expand(batch).index_add(-2, place, added.expand(batch).index_select(-2, source))

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the state moved on, with noise."""
        mean = self.push(value.unsqueeze(-1)).squeeze(-1)
        return with_noise(mean, self.noise, generator)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        eye = torch.eye(self.noise.shape[-1], dtype=self.noise.dtype, device=self.noise.device)
        return LinearGaussian(self.push(eye), torch.zeros_like(self.noise), torch.diag_embed(self.noise))


@register_record
@dataclasses.dataclass(frozen=True)
class ISSMEmission(AbstractLinearGaussian):
    """y_t given x_t: the sum of the active states, one target.

    Attributes:
        index: Positions of the active states, (*batch, active).
        offset: (*batch,).
        noise: Variance, (*batch,).
        num_states: Size of the state.
        coefficient: Coefficients of the active states, (*batch, active); None for ones.
    """

    index: Int[Tensor, "*#batch active"]
    offset: Float[Tensor, "*#batch"]
    noise: Float[Tensor, "*#batch"]
    num_states: int
    coefficient: Float[Tensor, "*#batch active"] | None = None

    def read(self, x: Float[Tensor, "*#batch state column"]) -> Float[Tensor, "*#batch column"]:
        """Return the sum of the active rows, by their coefficients."""
        if self.index.shape[:-1].numel() == 1 and self.index.ndim < x.ndim:  # the same states of all series
            rows = x.index_select(-2, self.index.flatten())
        else:
            batch = broadcast_shapes(x.shape[:-2], self.index.shape[:-1])
            index = self.index.expand(*batch, -1).unsqueeze(-1)
            index = index.expand(*index.shape[:-1], x.shape[-1])
            rows = x.expand(*batch, *x.shape[-2:]).gather(-2, index)
        return (rows if self.coefficient is None else rows * self.coefficient.unsqueeze(-1)).sum(-2)

    def _predict(self, prior: Gaussian) -> tuple[Tensor, Tensor, Tensor]:
        cross = self.read(prior.cov)
        mean = self.read(prior.mean.unsqueeze(-1)).squeeze(-1) + self.offset
        return mean, cross, self.read(cross.unsqueeze(-1)).squeeze(-1) + self.noise

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return the predictive density of the observation."""
        mean, _, variance = self._predict(prior)
        return Gaussian(mean.unsqueeze(-1), variance[..., None, None])

    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """Return the belief after an update by a scalar division and an outer product."""
        mean, cross, variance = self._predict(prior)
        seen = None if observed is None else observed[..., 0]
        return condition_scalar(prior, value[..., 0] - mean, cross, variance, seen)

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of the observation, its covariance with the state, and its variance."""
        mean, cross, variance = self._predict(prior)
        return mean.unsqueeze(-1), cross.unsqueeze(-2), variance[..., None, None]

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return the sum of the active states, with noise."""
        mean = self.read(value.unsqueeze(-1)).squeeze(-1) + self.offset
        # Noise is drawn for each, also where they share a mean.
        mean = mean.expand(broadcast_shapes(mean.shape, self.noise.shape))
        noise = normal(mean.shape, mean, generator)
        return (mean + self.noise.sqrt() * noise).unsqueeze(-1)

    def dense(self) -> LinearGaussian:
        """Return the same conditional by its matrices."""
        return LinearGaussian(self.row().unsqueeze(-2), self.offset.unsqueeze(-1), self.noise[..., None, None])

    def row(self) -> Float[Tensor, "*#batch state"]:
        """Return the coefficients of all states."""
        coefficient = (
            torch.ones_like(self.index, dtype=self.noise.dtype) if self.coefficient is None else self.coefficient
        )
        index, entries = torch.broadcast_tensors(self.index, coefficient)
        return entries.new_zeros(*index.shape[:-1], self.num_states).scatter_add(-1, index, entries)
