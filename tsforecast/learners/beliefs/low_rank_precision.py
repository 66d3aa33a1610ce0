"""LOFI: a belief with a precision that is diagonal plus low rank (Chang et al. 2023)."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import cholesky
from tsforecast.core.torch_internals import is_transformed, normal
from tsforecast.learners.beliefs.family import AbstractFamily, damped_factor
from tsforecast.learners.shapes import Decay, Noise, Places, Residual, Rows, Samples, Scalar, Weights

# Weights at a time where a temporary of the size of the factor would be made: what is read of them stays in the cache.
_CHUNK = 1 << 13

_INNER = "I + W' U^-1 W of a belief"


@register_record
@dataclasses.dataclass(frozen=True)
class LowRankPrecision:
    """N(mean, (diag(diagonal) + factor factor')^{-1}).

    Attributes:
        mean: Of the weights.
        diagonal: Of the precision, positive.
        factor: Columns of the precision's other part; each lies in one piece of memory, which is faster.
    """

    mean: Weights
    diagonal: Weights
    factor: Float[Tensor, "weight rank"]


@dataclasses.dataclass(frozen=True)
class LOFI(AbstractFamily[LowRankPrecision]):
    """Diagonal plus low-rank precision: O(P (L + C)^2) a step and O(P L) memory.

    An update adds columns to the factor, and rotates all columns to be orthogonal. The `rank` longest are kept. What
    the others give to the diagonal of the precision is added there.

    Attributes:
        rank: Number L of columns; 0 is the diagonal family that keeps precisions.
        spherical: Whether what is not kept is dropped instead of added to the diagonal.

    Raises:
        ValueError: If the rank is negative.
    """

    rank: int = 10
    spherical: bool = False

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"expected rank to be at least 0, got {self.rank}")

    def init(self, mean: Weights, variance: Weights) -> LowRankPrecision:
        """Return the belief with independent weights: all columns are zero."""
        return LowRankPrecision(mean, 1 / variance, mean.new_zeros(self.rank, len(mean)).T)

    def prior(self, mean: Weights, variance: Weights) -> LowRankPrecision:
        """Return the prior; it needs no columns."""
        return LowRankPrecision(mean, 1 / variance, mean.new_zeros(len(mean), 0))

    def condition(self, belief: LowRankPrecision, matrix: Rows, residual: Residual) -> LowRankPrecision:
        """m+ = m + Lambda+^{-1} H' e before anything is dropped, by Lambda+^{-1} F = U^{-1} F (I + F' U^{-1} F)^{-1}.

        F are the columns and those of H'.
        """
        columns = _columns(belief.factor.T, matrix)
        gram, inner = _grams(belief.diagonal, columns)
        # Columns of the belief have no residual.
        padded = torch.nn.functional.pad(residual, (belief.factor.shape[-1], 0)).unsqueeze(-1)
        change = torch.cholesky_solve(padded, damped_factor(inner, _INNER))
        return self._truncate(belief, columns, gram, change.T)

    def truncate(self, belief: LowRankPrecision) -> LowRankPrecision:
        """Return the belief with the longest `rank` columns alone; the mean stays."""
        rows = belief.factor.T
        gram = functools.reduce(torch.add, [part @ part.T for part in _split(rows)])
        return self._truncate(belief, _columns(rows), gram)

    def _truncate(
        self, belief: LowRankPrecision, columns: Iterable[Tensor], gram: Tensor, change: Tensor | None = None
    ) -> LowRankPrecision:
        """Keep the longest of all columns F, made orthogonal.

        Args:
            belief: Whose factor is not read.
            columns: F, as rows, in pieces.
            gram: F' F.
            change: What F is multiplied by to give the change of the mean times the diagonal.
        """
        rotation = torch.linalg.eigh(gram)[1].T  # the shortest first
        dropped = max(len(gram) - self.rank, 0)
        # All that is made of the columns is one product.
        turn = torch.cat([rotation, torch.zeros_like(rotation[:1]) if change is None else change])
        pieces = zip(_split(belief.mean), _split(belief.diagonal), columns, strict=True)
        parts = (self._turned(mean, diagonal, turn @ rows, dropped) for mean, diagonal, rows in pieces)
        if not _in_pieces(belief.mean):
            return LowRankPrecision(*next(parts))
        mean, diagonal = torch.empty_like(belief.mean), torch.empty_like(belief.diagonal)
        factor = mean.new_empty(len(gram) - dropped, len(mean)).T
        for start, part in zip(range(0, len(mean), _CHUNK), parts, strict=True):
            place = slice(start, start + _CHUNK)
            mean[place], diagonal[place], factor[place] = part
        return LowRankPrecision(mean, diagonal, factor)

    def _turned(self, mean: Tensor, diagonal: Tensor, turned: Tensor, dropped: int) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, diagonal and factor, from rotated columns with the change below them."""
        mean = torch.addcdiv(mean, turned[-1], diagonal)  # U^{-1} F times the solution
        if dropped and not self.spherical:
            diagonal = diagonal + turned[:dropped].square().sum(0)
        return mean, diagonal, turned[dropped:-1].T

    def covariance(
        self, belief: LowRankPrecision, matrix: Float[Tensor, "*batch row weight"]
    ) -> Float[Tensor, "*batch row row"]:
        """H U^{-1} H' - (H U^{-1} W) (I + W' U^{-1} W)^{-1} (W' U^{-1} H')."""
        scaled = matrix / belief.diagonal
        own = scaled @ matrix.mT
        if not belief.factor.shape[-1]:
            return own
        cross = (scaled @ belief.factor).mT
        white = torch.linalg.solve_triangular(_inner(belief).expand(*cross.shape[:-2], -1, -1), cross, upper=False)
        return own - white.mT @ white

    def push(self, belief: LowRankPrecision, decay: Decay, offset: Weights | float, noise: Noise) -> LowRankPrecision:
        """Exact: U+ = 1 / (decay^2 / U + q), W+ = decay U+ / U W chol((I + W' (q U+ / U) W)^{-1})."""
        diagonal = 1 / (decay * decay / belief.diagonal + noise)
        ratio = diagonal / belief.diagonal
        moved = belief.factor * (decay * ratio).unsqueeze(-1)
        if belief.factor.shape[-1]:
            inner = belief.factor.T @ (belief.factor * (noise * ratio).unsqueeze(-1))
            factor = cholesky(inner + torch.eye(len(inner), dtype=inner.dtype, device=inner.device))
            moved = torch.linalg.solve_triangular(factor.T, moved, upper=True, left=False)
        return LowRankPrecision(decay * belief.mean + offset, diagonal, moved)

    def temper(self, belief: LowRankPrecision, keep: Scalar, prior: LowRankPrecision) -> LowRankPrecision:
        """Exact where the prior has no columns; else columns of both are stacked and cut to the rank."""
        diagonal = keep * belief.diagonal + (1 - keep) * prior.diagonal
        keep = torch.as_tensor(keep, dtype=diagonal.dtype, device=diagonal.device)
        mine, its = belief.factor * keep.sqrt(), prior.factor * (1 - keep).sqrt()
        way = prior.mean - belief.mean
        towards = prior.diagonal * way + prior.factor @ (prior.factor.T @ way)
        mixed = LowRankPrecision(belief.mean, diagonal, torch.cat([mine, its], -1))
        # As a step from the mean: a difference keeps its digits.
        mean = belief.mean + (1 - keep) * solve(mixed, towards)
        after = LowRankPrecision(mean, diagonal, mine)
        if not prior.factor.shape[-1]:
            return after
        return self._truncate(after, _columns(mixed.factor.T), mixed.factor.T @ mixed.factor)

    def inflate(self, belief: LowRankPrecision, factor: Scalar) -> LowRankPrecision:
        """Return the belief with its precision divided by the factor."""
        return LowRankPrecision(belief.mean, belief.diagonal / factor, belief.factor / factor**0.5)

    def bound(self, belief: LowRankPrecision, most: Weights) -> LowRankPrecision:
        """The diagonal of the precision is at least 1 / most, and so is all of it; the columns only add to it."""
        return LowRankPrecision(belief.mean, torch.maximum(belief.diagonal, 1 / most), belief.factor)

    def variance(self, belief: LowRankPrecision) -> Weights:
        """Return diag(Lambda^{-1}), by Woodbury's identity."""
        if not belief.factor.shape[-1]:
            return 1 / belief.diagonal
        scaled = belief.factor / belief.diagonal.unsqueeze(-1)
        return 1 / belief.diagonal - torch.linalg.solve_triangular(_inner(belief), scaled.T, upper=False).square().sum(
            0
        )

    def sample(self, belief: LowRankPrecision, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Exact: z1 / sqrt(U) - U^{-1} W M^{-1} (W' z1 / sqrt(U) - z2), with M = I + W' U^{-1} W."""
        size, rank = belief.factor.shape
        white = normal((num_samples, size), belief.mean, generator) / belief.diagonal.sqrt()
        if rank:
            seen = white @ belief.factor - normal((num_samples, rank), belief.mean, generator)
            white = white - torch.cholesky_solve(seen.T, _inner(belief)).T @ belief.factor.T / belief.diagonal
        return belief.mean + white

    def embed(self, belief: LowRankPrecision, prior: LowRankPrecision, places: Places) -> LowRankPrecision:
        """Columns are zero where weights are new; there are `rank` again, which more weights may have raised."""
        mean = prior.mean.index_copy(0, places, belief.mean)
        rows = torch.nn.functional.pad(belief.factor.T, (0, 0, 0, self.rank - belief.factor.shape[-1]))
        factor = mean.new_zeros(self.rank, len(mean)).index_copy(1, places, rows).T
        return LowRankPrecision(mean, prior.diagonal.index_copy(0, places, belief.diagonal), factor)


def solve(belief: LowRankPrecision, vector: Weights) -> Weights:
    """Return Lambda^{-1} v for a vector v."""
    scaled = vector / belief.diagonal
    if not belief.factor.shape[-1]:
        return scaled
    seen = torch.cholesky_solve((belief.factor.T @ scaled).unsqueeze(-1), _inner(belief)).squeeze(-1)
    return scaled - belief.factor @ seen / belief.diagonal


def _inner(belief: LowRankPrecision) -> Tensor:
    """Return the lower factor of I + W' U^{-1} W."""
    pieces = zip(_split(belief.factor.T), _split(belief.diagonal), strict=True)
    grams = [(rows / precision) @ rows.T for rows, precision in pieces]
    return damped_factor(functools.reduce(torch.add, grams), _INNER)


def _grams(diagonal: Tensor, columns: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """F' F and F' U^{-1} F: one product, in one pass over the columns F."""
    pieces = zip(_split(diagonal), columns, strict=True)
    grams = [torch.mm(rows, torch.cat([rows, rows / precision]).T) for precision, rows in pieces]
    gram, inner = functools.reduce(torch.add, grams).chunk(2, -1)
    return gram, inner


@dataclasses.dataclass(frozen=True)
class _Pieces:
    """Rows stacked piece by piece, anew whenever they are read: many weights are never copied all at once."""

    parts: tuple[Tensor, ...]

    def __iter__(self) -> Iterator[Tensor]:
        return map(torch.cat, zip(*map(_split, self.parts), strict=True))


def _columns(*parts: Tensor) -> Iterable[Tensor]:
    """Put all rows below each other, in pieces."""
    return _Pieces(parts) if _in_pieces(parts[0]) else (torch.cat(parts),)


def _split(x: Tensor) -> tuple[Tensor, ...]:
    """Cut a long vector of weights into pieces."""
    return x.split(_CHUNK, -1) if _in_pieces(x) else (x,)


def _in_pieces(x: Tensor) -> bool:
    """Say whether pieces of a result are written one by one; transformations do not allow it."""
    return x.shape[-1] > _CHUNK and not is_transformed(x)
