"""The trust region of an optimisation: a box around the best point."""

import dataclasses
import math

from jaxtyping import Float, Int
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class TrustRegion:
    """A box around the best point for the search of the next one (TuRBO, Eriksson et al. 2019).

    It doubles after successes and halves after failures; one that has become too small begins anew at its first size.

    Attributes:
        side: Half of its width to begin with, and at most, where the whole box goes from -1 to 1.
        least: Below which it begins anew.
        successes: Better points in a row, after which it doubles.
        patience: Points in a row that are not better, after which it halves.
        neighbours: Values, at least, that the surrogate is fitted to: the nearest, and all within half as far again.

    Raises:
        ValueError: If a number is outside of its range.
    """

    side: float = 0.8
    least: float = 2.0**-9
    successes: int = 2
    patience: int = 6
    neighbours: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.side <= 2:
            raise ValueError(f"expected 0 < least <= side <= 2, got {self.least} and {self.side}")
        if min(self.successes, self.patience) < 1 or self.neighbours < 2:
            raise ValueError(
                f"expected successes and patience from 1 and neighbours from 2, got {self.successes}, {self.patience} "
                f"and {self.neighbours}"
            )

    def near(self, local: Float[Tensor, "point dim"]) -> Int[Tensor, " near"]:
        """Return the numbers of the points that a surrogate is fitted to, given their places in the region."""
        distance = local.abs().amax(-1)
        # Points just outside shape the surrogate up to the edge.
        number = max(min(self.neighbours, len(local)), int((distance <= 1.5).sum()))
        return distance.topk(number, largest=False).indices

    def side_after(self, values: Float[Tensor, " point"], initial: int) -> float:
        """Return the half width after some values, of which the first ones were no choice of the optimiser."""
        side, good, bad = self.side, 0, 0
        least = math.inf
        # An evaluation that failed is no improvement.
        for k, value in enumerate(values.nan_to_num(nan=math.inf).tolist()):
            better, least = value < least, min(value, least)
            if k < initial:
                continue
            good, bad = (good + 1, 0) if better else (0, bad + 1)
            if good == self.successes:
                side, good = min(2 * side, self.side), 0  # never larger than at first
            if bad == self.patience:
                side, bad = side / 2, 0
            if side < self.least:
                side = self.side
        return side
