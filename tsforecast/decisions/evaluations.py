"""Evaluations of a costly function: its values, those of further objectives, and the excess over limits."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record


@register_record
@dataclasses.dataclass(frozen=True)
class Evaluations:
    """Knowledge of a function: all that the next point depends on.

    Attributes:
        points: Where it was evaluated, in order.
        values: There; NaN where an evaluation failed.
        costs: Values of further objectives, which are to be small, too; None for no columns.
        excess: By how much limits were exceeded: a point is feasible where all are at most 0; None for no columns.
    """

    points: Float[Tensor, "point dim"]
    values: Float[Tensor, " point"]
    costs: Float[Tensor, "point cost"] | None = None
    excess: Float[Tensor, "point limit"] | None = None

    @property
    def objectives(self) -> Float[Tensor, "point objective"]:
        """Return the values of all objectives."""
        return self.values[:, None] if self.costs is None else torch.cat([self.values[:, None], self.costs], 1)

    @property
    def limits(self) -> Float[Tensor, "point limit"]:
        """Return the excess over each limit."""
        return self.values.new_zeros(len(self.values), 0) if self.excess is None else self.excess

    @property
    def succeeded(self) -> Bool[Tensor, " point"]:
        """Return whether all numbers of an evaluation are known."""
        return self.objectives.isfinite().all(1) & self.limits.isfinite().all(1)

    @property
    def feasible(self) -> Bool[Tensor, " point"]:
        """Return whether an evaluation succeeded and exceeds no limit."""
        return self.succeeded & (self.limits <= 0).all(1)

    @property
    def best_number(self) -> int:
        """Return the number of the feasible evaluation with the least value."""
        return int(torch.where(self.feasible, self.values, math.inf).argmin())

    @property
    def best(self) -> tuple[Float[Tensor, " dim"], float]:
        """Return the feasible point with the least value, and the value.

        Raises:
            ValueError: If no evaluation has succeeded, or none is feasible.
        """
        if not bool(self.succeeded.any()):
            raise ValueError(f"expected an evaluation that succeeded, got {len(self.values)} that did not")
        if not bool(self.feasible.any()):
            raise ValueError(f"expected an evaluation within all limits, got none of {len(self.values)}")
        place = self.best_number
        return self.points[place], self.values[place].item()

    @property
    def front(self) -> list[int]:
        """Return the numbers of the feasible evaluations that no other one dominates."""
        numbers = self.feasible.nonzero()[:, 0]
        values = self.objectives[numbers]
        at_least, better = (values[:, None] <= values).all(-1), (values[:, None] < values).any(-1)
        return numbers[~(at_least & better).any(0)].tolist()


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """The evaluation whose point is the best one to take, where values are noisy.

    Attributes:
        number: Of the evaluation, from 0.
        mean: Of the function there.
        sd: Standard deviation of that mean.
    """

    number: int
    mean: float
    sd: float
