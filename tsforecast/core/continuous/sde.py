"""Linear stochastic differential equations: their contract, their sums, and their discrete systems over gaps."""

import abc
import dataclasses
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.linalg import broadcast_shapes
from tsforecast.core.linear import LinearGaussian
from tsforecast.core.system import LinearSystem


class AbstractSDE(abc.ABC):
    """dx = F x dt + dw with E[dw dw'] = Q dt; of its states an observation reads the sum that `readout` weighs.

    Over a gap g the state moves by a linear-Gaussian conditional, which is exact (Särkkä and Solin 2019, section 6.1):

        A(g) = exp(F g),    noise(g) = int_0^g exp(F s) Q exp(F s)' ds

    Both compose: a gap g, then a gap h, is the gap g + h. A gap of zero is the identity without noise, by which several
    observations of one moment are taken one after the other. Parameters have leading dimensions of a batch, such as one
    of series.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Return the number of states."""

    @property
    @abc.abstractmethod
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return F, in one over the unit of time."""

    @property
    @abc.abstractmethod
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return Q, in squared units of the states over the unit of time."""

    @property
    @abc.abstractmethod
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the weights of the states in an observation."""

    @abc.abstractmethod
    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Return the transition over gaps; they broadcast with the batch of the parameters.

        Args:
            gaps: Times that pass, at least 0.
        """


@dataclasses.dataclass(frozen=True)
class SumSDE(AbstractSDE):
    """Independent equations side by side, observed through their sum.

    Attributes:
        parts: At least one.
    """

    parts: Sequence[AbstractSDE]

    @property
    def size(self) -> int:
        """Return the number of states of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return the drifts as blocks."""
        return block_diagonal([part.drift for part in self.parts])

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return the diffusions as blocks."""
        return block_diagonal([part.diffusion for part in self.parts])

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the weights of all parts."""
        rows = [part.readout for part in self.parts]
        batch = broadcast_shapes(*(row.shape[:-1] for row in rows))
        return torch.cat([row.expand(*batch, -1) for row in rows], -1)

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Return the transitions of all parts as blocks."""
        moved = [part.discretise(gaps) for part in self.parts]
        matrix, noise = (block_diagonal([getattr(one, name) for one in moved]) for name in ("matrix", "noise"))
        return LinearGaussian(matrix, matrix.new_zeros(self.size), noise)


def over_gaps(
    sde: AbstractSDE,
    gaps: Float[Tensor, "time *#batch"],
    noise: Float[Tensor, "*#batch target target"],
    emission: Float[Tensor, "*#batch target state"] | None = None,
    offset: Float[Tensor, "*#batch target"] | None = None,
) -> LinearSystem:
    """Return the system with a step for each gap: step t passes the time `gaps[t]`, and then emits.

    Args:
        sde: Of the state.
        gaps: In the unit of time of the equation. That of the first step leads from the prior to the first observation.
        noise: Covariance of an observation given the state, which a dimension of time may lead.
        emission: Matrix from the state, likewise; None for a single target that reads `readout`.
        offset: Of the observation, likewise; None for zero.

    Raises:
        ValueError: If a gap is below zero or not finite.
    """
    if not bool((gaps >= 0).all() & gaps.isfinite().all()):  # backwards in time a covariance is not positive
        raise ValueError(f"expected gaps of at least 0, got {float(gaps[~((gaps >= 0) & gaps.isfinite())][0])}")
    moved = sde.discretise(gaps)
    ndim = gaps.ndim
    matrix = sde.readout.unsqueeze(-2) if emission is None else emission  # one target reads the sum
    offset = noise.new_zeros(noise.shape[-1]) if offset is None else offset
    lead = lambda x, event: x.reshape(*[1] * (ndim + event - x.ndim), *x.shape)  # noqa: E731
    return LinearSystem(
        LinearGaussian(moved.matrix, lead(moved.offset, 1), moved.noise),
        LinearGaussian(lead(matrix, 2), lead(offset, 1), lead(noise, 2)),
    )


def block_diagonal(blocks: Sequence[Float[Tensor, "..."]]) -> Tensor:
    """Return the block-diagonal matrix (*batch, dim, dim) of square blocks (*batch, size, size); batches broadcast."""
    size = sum(block.shape[-1] for block in blocks)
    batch = broadcast_shapes(*(block.shape[:-2] for block in blocks))
    whole, first = blocks[0].new_zeros(*batch, size, size), 0
    for block in blocks:
        last = first + block.shape[-1]
        whole[..., first:last, first:last] = block
        first = last
    return whole
