"""LOFI: a belief whose precision is diagonal plus low rank (Chang et al. 2023)."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.learners.family import AbstractFamily
from tsforecast.core.linalg import cholesky

# Weights at a time where a temporary of the size of the factor would be made.
_CHUNK = 1 << 16


@register_record
@dataclasses.dataclass(frozen=True)
class LowRankPrecision:
    """N(mean, (diag(diagonal) + factor factor')^{-1}).

    Attributes:
        mean: Of the weights.
        diagonal: Of the precision, positive.
        factor: Columns of the precision's other part; each lies in one piece of memory, which is faster.
    """

    mean: Float[Tensor, " weight"]
    diagonal: Float[Tensor, " weight"]
    factor: Float[Tensor, "weight rank"]


@dataclasses.dataclass(frozen=True)
class LOFI(AbstractFamily[LowRankPrecision]):
    """Diagonal plus low-rank precision: O(P (L + C)^2) a step and O(P L) memory.

    An update adds columns to the factor; of all columns, rotated to be orthogonal, the `rank` longest are kept, and
    what the others give to the diagonal of the precision is added there.

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

    def init(self, mean: Float[Tensor, " weight"], variance: Float[Tensor, " weight"]) -> LowRankPrecision:
        """All columns are zero."""
        return LowRankPrecision(mean, 1 / variance, mean.new_zeros(self.rank, len(mean)).T)

    def prior(self, mean: Float[Tensor, " weight"], variance: Float[Tensor, " weight"]) -> LowRankPrecision:
        """Without columns."""
        return LowRankPrecision(mean, 1 / variance, mean.new_zeros(len(mean), 0))

    def condition(
        self, belief: LowRankPrecision, matrix: Float[Tensor, "row weight"], residual: Float[Tensor, " row"]
    ) -> LowRankPrecision:
        """m+ = m + Lambda+^{-1} H' e before anything is dropped, by Lambda+^{-1} F = U^{-1} F (I + F' U^{-1} F)^{-1}.

        F are the columns and those of H'.
        """
        exact = dataclasses.replace(belief, factor=torch.cat([belief.factor.T, matrix]).T)
        padded = torch.nn.functional.pad(residual, (belief.factor.shape[-1], 0)).unsqueeze(-1)
        change = exact.factor @ torch.cholesky_solve(padded, _inner(exact)).squeeze(-1) / belief.diagonal
        return self._truncate(dataclasses.replace(exact, mean=belief.mean + change))

    def _truncate(self, belief: LowRankPrecision) -> LowRankPrecision:
        """Keeps the longest of the columns after they are made orthogonal."""
        diagonal, columns = belief.diagonal, belief.factor.T
        if not self.rank:
            return LowRankPrecision(
                belief.mean, diagonal if self.spherical else diagonal + _squares(columns), belief.factor[:, :0]
            )
        _, rotation = torch.linalg.eigh(columns @ columns.T)
        dropped = max(len(rotation) - self.rank, 0)
        # Products with a part of a small matrix are slow where it is not contiguous.
        if dropped and not self.spherical:
            diagonal = diagonal + _squares(rotation[:, :dropped].T.contiguous() @ columns)
        return LowRankPrecision(belief.mean, diagonal, (rotation[:, dropped:].T.contiguous() @ columns).T)

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

    def push(
        self,
        belief: LowRankPrecision,
        decay: Float[Tensor, "*decay"] | float,
        offset: Float[Tensor, " weight"] | float,
        noise: Float[Tensor, "*noise"] | float,
    ) -> LowRankPrecision:
        """Exact: U+ = 1 / (decay^2 / U + q), W+ = decay U+ / U W chol((I + W' (q U+ / U) W)^{-1})."""
        diagonal = 1 / (decay * decay / belief.diagonal + noise)
        ratio = diagonal / belief.diagonal
        moved = belief.factor * (decay * ratio).unsqueeze(-1)
        if belief.factor.shape[-1]:
            inner = belief.factor.T @ (belief.factor * (noise * ratio).unsqueeze(-1))
            factor = cholesky(inner + torch.eye(len(inner), dtype=inner.dtype, device=inner.device))
            moved = torch.linalg.solve_triangular(factor.T, moved, upper=True, left=False)
        return LowRankPrecision(decay * belief.mean + offset, diagonal, moved)

    def temper(
        self, belief: LowRankPrecision, keep: Float[Tensor, ""] | float, prior: LowRankPrecision
    ) -> LowRankPrecision:
        """Exact where the prior has no columns; else columns of both are stacked and cut to the rank."""
        diagonal = keep * belief.diagonal + (1 - keep) * prior.diagonal
        keep = torch.as_tensor(keep, dtype=diagonal.dtype, device=diagonal.device)
        mine, its = belief.factor * keep.sqrt(), prior.factor * (1 - keep).sqrt()
        mixed = LowRankPrecision(belief.mean, diagonal, torch.cat([mine, its], -1))
        pull = prior.diagonal * (prior.mean - belief.mean) + prior.factor @ (
            prior.factor.T @ (prior.mean - belief.mean)
        )
        mean = belief.mean + (1 - keep) * solve(mixed, pull)
        if not prior.factor.shape[-1]:
            return LowRankPrecision(mean, diagonal, mine)
        return self._truncate(dataclasses.replace(mixed, mean=mean))

    def inflate(self, belief: LowRankPrecision, factor: Float[Tensor, ""] | float) -> LowRankPrecision:
        """The precision divided by the factor."""
        return LowRankPrecision(belief.mean, belief.diagonal / factor, belief.factor / factor**0.5)

    def spread(self, belief: LowRankPrecision) -> Float[Tensor, " weight"]:
        """Marginal variances."""
        return self.variance(belief)

    def mean(self, belief: LowRankPrecision) -> Float[Tensor, " weight"]:
        """The mean."""
        return belief.mean

    def variance(self, belief: LowRankPrecision) -> Float[Tensor, " weight"]:
        """diag(Lambda^{-1}), by Woodbury's identity."""
        if not belief.factor.shape[-1]:
            return 1 / belief.diagonal
        scaled = belief.factor / belief.diagonal.unsqueeze(-1)
        return 1 / belief.diagonal - torch.linalg.solve_triangular(_inner(belief), scaled.T, upper=False).square().sum(
            0
        )

    def sample(
        self, belief: LowRankPrecision, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "sample weight"]:
        """Exact: z1 / sqrt(U) - U^{-1} W M^{-1} (W' z1 / sqrt(U) - z2), with M = I + W' U^{-1} W."""
        size, rank = belief.factor.shape
        like = {"dtype": belief.mean.dtype, "device": belief.mean.device}
        white = torch.randn(num_samples, size, generator=generator, **like) / belief.diagonal.sqrt()
        if rank:
            seen = white @ belief.factor - torch.randn(num_samples, rank, generator=generator, **like)
            white = white - torch.cholesky_solve(seen.T, _inner(belief)).T @ belief.factor.T / belief.diagonal
        return belief.mean + white


def solve(belief: LowRankPrecision, vector: Float[Tensor, " weight"]) -> Float[Tensor, " weight"]:
    """Lambda^{-1} vector."""
    scaled = vector / belief.diagonal
    if not belief.factor.shape[-1]:
        return scaled
    seen = torch.cholesky_solve((belief.factor.T @ scaled).unsqueeze(-1), _inner(belief)).squeeze(-1)
    return scaled - belief.factor @ seen / belief.diagonal


def _inner(belief: LowRankPrecision) -> Tensor:
    """Cholesky factor of I + W' U^{-1} W; many weights in chunks."""
    inner = torch.eye(belief.factor.shape[-1], dtype=belief.factor.dtype, device=belief.factor.device)
    for part, precision in zip(belief.factor.T.split(_CHUNK, -1), belief.diagonal.split(_CHUNK), strict=True):
        inner = inner + (part / precision) @ part.T
    return cholesky(inner, "I + W' U^-1 W of a belief")


def _squares(columns: Tensor) -> Tensor:
    return columns.square().sum(0)
