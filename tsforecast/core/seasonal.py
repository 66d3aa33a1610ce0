"""Seasonal components of an innovation state-space model: a factor for each position, or a smooth wave."""

import dataclasses
import math

import torch
from torch import Tensor

from tsforecast.core.components import BlockParts, Clock, Component, apply
from tsforecast.core.linalg import broadcast_shapes

# The weight of harmonic k is proportional to k to the minus DECAY, so that its variance falls with the square of k. On
# daily demand and weather that is as good as equal weights or better, above all with five harmonics or a short history.
DECAY = 1.0


@dataclasses.dataclass(frozen=True)
class Season(Component):
    """One factor for each of `factors` positions in a cycle (hour of the day, ...); noise moves the active one only."""

    factors: int
    name: str = "season"

    is_seasonal = True  # the index is the active factor

    @property
    def size(self) -> int:
        """Return the number of seasonal factors; each of them is a state."""
        return self.factors

    @property
    def noises(self) -> tuple[str, ...]:
        """Return one name: only the active factor moves."""
        return (self.name,)

    def emitted(self, index: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the active factor."""
        assert index is not None
        return index.unsqueeze(-1), None

    def spread(self, noise: Tensor, index: Tensor | None) -> Tensor:
        """Return the noise of the active factor, and zero for the others."""
        assert index is not None
        return noise * one_hot(index, self.factors, noise)

    def block(self, noise: Tensor, damping: Tensor | None, index: Tensor | None, clock: Clock) -> BlockParts:
        """Two steps share the noise of the factor that is active at both, up to the earlier one."""
        assert index is not None
        noise = noise[..., 0]
        steps = torch.arange(index.shape[-1], device=index.device)
        same = ((index.unsqueeze(-1) == index.unsqueeze(-2)) & (steps.unsqueeze(-1) >= steps)).to(noise.dtype)
        variance = apply(same, noise)  # what the active factor has gained since the block began
        batch = broadcast_shapes(index.shape, noise.shape)
        zeros = noise.new_zeros(*batch[:-1], self.factors)
        return BlockParts(
            position=index.unsqueeze(-1),
            matrix=noise.new_ones(1),
            cross=variance.unsqueeze(-1),
            noise=((same, variance),),
            transition=noise.new_ones(self.factors),
            # A factor may be active more than once in a block.
            state_noise=zeros.scatter_add(-1, index.expand(batch), noise.expand(batch)),
        )


@dataclasses.dataclass(frozen=True)
class Harmonics(Component):
    """A smooth season: a few sines and cosines over a cycle, with coefficients that are random walks of equal noise.

    The season is the sum over k = 1, ..., K of w_k (a_k cos(2 pi k phase) + b_k sin(2 pi k phase)), where the squares
    of the weights w_k sum to one. So the noise variance is that of the season's change in a step, and the variance of
    the coefficients that of the season, whatever K is.

    Attributes:
        cycle: Number of positions in the cycle, which the index counts: phase = index / cycle.
        harmonics: Number K of harmonics.
        name: Name of the noise.
    """

    cycle: int
    harmonics: int
    name: str = "harmonics"

    is_seasonal = True

    @property
    def size(self) -> int:
        """Return the number of coefficients: two for each harmonic."""
        return 2 * self.harmonics

    @property
    def noises(self) -> tuple[str, ...]:
        """Return one name: all coefficients move alike."""
        return (self.name,)

    def basis(self, index: Tensor, like: Tensor) -> Tensor:
        """Return the weighted cosines of all harmonics, then the sines, (*index, state)."""
        order = torch.arange(1, self.harmonics + 1, device=index.device)
        weight = order.to(like.dtype).pow(-DECAY)
        # The remainder is exact: float32 does not see large angles.
        angle = (index.unsqueeze(-1) * order % self.cycle).to(like.dtype) * (2 * math.pi / self.cycle)
        return torch.cat([angle.cos(), angle.sin()], -1) * (weight / weight.norm()).repeat(2)

    def emitted(self, index: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return all states, and the basis."""
        assert index is not None
        return torch.arange(self.size, device=like.device), self.basis(index, like)

    def spread(self, noise: Tensor, index: Tensor | None) -> Tensor:
        """Return the same noise for all coefficients."""
        return noise.expand(*noise.shape[:-1], self.size)

    def block(self, noise: Tensor, damping: Tensor | None, index: Tensor | None, clock: Clock) -> BlockParts:
        """With c_s the variance of a coefficient of x_s, Cov(y_t, y_s) = (basis_t . basis_s) c_s for s <= t."""
        assert index is not None
        basis, variance = self.basis(index, noise), noise[..., 0].cumsum(-1)
        return BlockParts(
            position=torch.arange(self.size, device=noise.device),
            matrix=basis,
            cross=basis * variance.unsqueeze(-1),
            noise=((basis @ basis.mT, variance),),
            transition=noise.new_ones(self.size),
            state_noise=variance[..., -1:].expand(*variance.shape[:-1], self.size),
        )


def one_hot(index: Tensor, size: int, like: Tensor) -> Tensor:
    """Return `torch.nn.functional.one_hot` without its check of the range, because this fails under `vmap`."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(like.dtype)
