"""Components of an innovation state-space model: level and trend, with their terms in blocks of steps."""

import abc
import dataclasses

import torch
from jaxtyping import Int
from torch import Tensor

from tsforecast.core.linalg import broadcast_shapes


@dataclasses.dataclass(frozen=True)
class BlockParts:
    """The terms of one component in a block; leading dimensions (block, *batch) broadcast. See `Blocks`.

    Rows of matrix and cross covariance are zero but for a few entries, at the same positions of the component's states.
    """

    position: Tensor  # (..., step, entry)
    matrix: Tensor  # (..., step, entry)
    cross: Tensor  # (..., step, entry)
    # Pairs of factors (..., step, step) and variances (..., step): Cov(y_t, y_s) is the sum of factor[t, s] variance[s]
    # for s <= t.
    noise: tuple[tuple[Tensor, Tensor], ...]
    transition: Tensor  # (..., state) if diagonal, else (..., state, state)
    state_noise: Tensor  # likewise


@dataclasses.dataclass(frozen=True)
class Component(abc.ABC):
    """One additive part of an ISSM.

    Attributes:
        is_seasonal: Whether it has an index, the position of every step in a cycle.
    """

    is_seasonal = False

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Return the number of states."""

    @property
    def noises(self) -> tuple[str, ...]:
        """Return the names of its noise sources."""
        return ("level",)

    @property
    def is_damped(self) -> bool:
        """Whether it has a damping, a factor in (0, 1) applied every step."""
        return False

    def emitted(self, index: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the indices of the states that a step emits, and their coefficients; None for ones.

        Args:
            index: Position in the cycle, (*batch,), for seasons.
            like: A tensor of the device and type wanted.

        Returns:
            Two tensors whose last dimension counts entries.
        """
        return torch.zeros(1, dtype=torch.long, device=like.device), None

    def row(self, index: Tensor | None, like: Tensor) -> Tensor:
        """Return the coefficients of all states at a step, (*batch, state); see `emitted`."""
        position, coefficient = self.emitted(index, like)
        values = torch.ones_like(position, dtype=like.dtype) if coefficient is None else coefficient
        position = position.expand(values.shape)
        return values.new_zeros(*values.shape[:-1], self.size).scatter(-1, position, values)

    def spread(self, noise: Tensor, index: Tensor | None) -> Tensor:
        """Return the variance that a step adds to each state, (*batch, state), from those of its noise sources."""
        return noise

    @abc.abstractmethod
    def block(self, noise: Tensor, damping: Tensor | None, index: Tensor | None, clock: "Clock") -> BlockParts:
        """Return its part of a block.

        Args:
            noise: Variances, (block, *batch, step, source).
            damping: (*batch,), for damped components.
            index: Position in the cycle, (block, *batch, step), for seasons.
            clock: How many transitions lie between the steps.
        """


@dataclasses.dataclass(frozen=True)
class Clock:
    """Transitions taken up to each step of a block: 1, 2, ..., fewer where the series has not begun.

    Attributes:
        taken: (step,), or (block, *batch, step).
        lag: Number of transitions between any two steps.
    """

    taken: Int[Tensor, "*batch step"]
    lag: Int[Tensor, "*batch step step"]

    @classmethod
    def of(cls, steps: int, moving: Tensor | None, device: torch.device) -> "Clock":
        """Return the clock of a block from a mask of its moving steps, (block, *batch, step); None if all move."""
        taken = torch.arange(1, steps + 1, device=device) if moving is None else moving.cumsum(-1)
        # Lags above the diagonal are looked up too, and cut off later.
        return cls(taken, (taken.unsqueeze(-1) - taken.unsqueeze(-2)).abs())

    def powers(self, damping: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return phi to the powers 0 to `steps`; of the time taken; of the lags; and of the time left in the block."""
        steps = self.taken.shape[-1]
        if damping is None:
            powers = like.new_ones(steps + 1)
        else:
            # A cumulative product would look for zeros in its gradient, and make a GPU wait.
            powers = damping.unsqueeze(-1).pow(torch.arange(steps + 1, device=damping.device))
        # Read from a table: powers of whole numbers repeat.
        return powers, self.look(powers, self.taken), self.look(powers, self.lag), self.look(powers, self.left)

    @property
    def left(self) -> Int[Tensor, "*batch step"]:
        """Transitions from each step to the end of the block."""
        return self.taken[..., -1:] - self.taken

    def look(self, table: Tensor, index: Tensor) -> Tensor:
        """`table` (*batch, steps + 1) read at an index shared by the batch, or at one of each series' own."""
        if self.taken.ndim == 1 or table.ndim == 1:
            return table[..., index]
        events = index.ndim - self.taken.ndim + 1
        batch = broadcast_shapes(table.shape[:-1], index.shape[: index.ndim - events])
        flat = index.expand(*batch, *index.shape[-events:]).flatten(-events)
        return table.expand(*batch, -1).gather(-1, flat).unflatten(-1, index.shape[-events:])


@dataclasses.dataclass(frozen=True)
class Level(Component):
    """A random walk, x_t = phi x_{t-1} + w_t; damped (phi < 1), it returns to zero: an AR(1)."""

    damped: bool = False

    @property
    def size(self) -> int:
        """Return 1: the level alone is a state."""
        return 1

    @property
    def is_damped(self) -> bool:
        """Say whether the component has a damping factor."""
        return self.damped

    def block(self, noise: Tensor, damping: Tensor | None, index: Tensor | None, clock: Clock) -> BlockParts:
        """Return its part of a block. With c_s the variance of x_s, Cov(x_s, x_t) = c_s phi^(t-s) for s <= t."""
        _, taken, by_lag, left = clock.powers(damping, noise)
        variance = apply(by_lag.square().tril(), noise[..., 0])  # phi^(2 (t - s)) of each earlier noise is left
        return BlockParts(
            position=clock.taken.new_zeros(1),
            matrix=taken.unsqueeze(-1),
            cross=(variance * left).unsqueeze(-1),  # x at the end of the block is phi^left x_s
            noise=((by_lag, variance),),
            transition=taken[..., -1:],
            state_noise=variance[..., -1:],
        )


@dataclasses.dataclass(frozen=True)
class Trend(Component):
    """Level and slope: l_t = l_{t-1} + b_{t-1} + w_t, b_t = phi b_{t-1} + w'_t; damped if phi < 1."""

    damped: bool = False

    @property
    def size(self) -> int:
        """Return 2: level and slope are states."""
        return 2

    @property
    def noises(self) -> tuple[str, ...]:
        """Return the names: one noise moves the level, one the slope."""
        return ("level", "slope")

    @property
    def is_damped(self) -> bool:
        """Say whether the component has a damping factor."""
        return self.damped

    def block(self, noise: Tensor, damping: Tensor | None, index: Tensor | None, clock: Clock) -> BlockParts:
        """A^k = [[1, a_k], [0, phi^k]] with a_k = 1 + phi + ... + phi^(k-1)."""
        powers, taken, by_lag, ahead = clock.powers(damping, noise)
        sums = torch.cat([torch.zeros_like(powers[..., :1]), powers[..., :-1].cumsum(-1)], -1)  # a_0, a_1, ...
        sum_taken, sum_lag, sum_ahead = (clock.look(sums, i) for i in (clock.taken, clock.lag, clock.left))
        by_lag, sum_by_lag = by_lag.tril(), sum_lag.tril()  # a noise moves no step before it
        level, slope = noise.unbind(-1)
        # Var l_t; a slope's noise has moved the level a_lag times.
        v11 = level.cumsum(-1) + apply(sum_by_lag.square(), slope)
        v12 = apply(sum_by_lag * by_lag, slope)
        v22 = apply(by_lag.square(), slope)
        first, last = torch.ones_like(taken[..., -1]), torch.zeros_like(taken[..., -1])
        return BlockParts(
            position=torch.arange(2, device=noise.device),
            matrix=torch.stack([torch.ones_like(sum_taken), sum_taken], -1),
            cross=torch.stack([v11 + sum_ahead * v12, ahead * v12], -1),
            noise=((torch.ones_like(sum_lag), v11), (sum_lag, v12)),  # Cov(y_t, y_s) = v11_s + a_{t-s} v12_s
            transition=torch.stack(
                [torch.stack([first, sum_taken[..., -1]], -1), torch.stack([last, taken[..., -1]], -1)], -2
            ),
            state_noise=torch.stack(
                [torch.stack([v11[..., -1], v12[..., -1]], -1), torch.stack([v12[..., -1], v22[..., -1]], -1)], -2
            ),
        )


def apply(matrix: Tensor, vector: Tensor) -> Tensor:
    """`matrix vector`; a single product for all series that share the matrix, instead of one each.

    What is expanded is copied: torch would multiply one matrix after the other.
    """
    if matrix.ndim == 2:
        return vector @ matrix.mT
    if matrix.shape[-3] == 1:
        return vector.contiguous() @ matrix.squeeze(-3).mT
    return (matrix.contiguous() @ vector.contiguous().unsqueeze(-1)).squeeze(-1)
