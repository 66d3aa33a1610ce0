"""Points that can be evaluated, where not all can: whole numbers and choices."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_AGAIN = 1e6  # standard deviations of the values that a point costs which is known
_SAME = 1e-9  # of the width of the box, by which points differ that are the same
_FURTHER = 256  # points among which a new one is looked for, where all of a region are known

Function = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The points of a box that can be evaluated.

    Attributes:
        low: Lower corner.
        high: Upper corner.
        snap: Moves points to such ones; None where all are.
        seed: Of further points.
    """

    low: Float[Tensor, " dim"]
    high: Float[Tensor, " dim"]
    snap: Function | None
    seed: int

    def point(self, places: Float[Tensor, "*place dim"]) -> Float[Tensor, "*place dim"]:
        """Return the points nearest to places."""
        return places if self.snap is None else self.snap(places)

    def function(self, function: Function, centre: Tensor, side: float, known: Float[Tensor, "known dim"]) -> Function:
        """Return the function of points that are snapped first, known ones last; its slope is the one there.

        Args:
            function: Of coordinates of a trust region.
            centre: Of the region, where the box goes from -1 to 1.
            side: Of the region, likewise.
            known: Points that were evaluated.
        """
        if self.snap is None:
            return function
        width = self.high - self.low

        def snapped(x: Tensor) -> Tensor:
            with torch.no_grad():
                point = self.point(self.low + ((centre + x * side + 1) / 2).clamp(0, 1) * width)
                moved = ((2 * (point - self.low) / width - 1) - centre) / side
                again = self._is_among(point, known)
            # Straight through: a snap has no slope of its own.
            return function(x + (moved - x).detach()) - _AGAIN * again

        return snapped

    def new(self, point: Float[Tensor, " dim"], known: Float[Tensor, "known dim"]) -> Float[Tensor, " dim"]:
        """Return a point, or another one in its place if it is known; the same if all seem to be known."""
        if self.snap is None or not bool(self._is_among(point, known)):
            return point
        engine = torch.quasirandom.SobolEngine(len(self.low), scramble=True, seed=self.seed)
        others = self.point(self.low + engine.draw(_FURTHER, dtype=torch.float64) * (self.high - self.low))
        others = others[~self._is_among(others, known)]
        return others[0] if len(others) else point

    def _is_among(
        self, points: Float[Tensor, "*point dim"], known: Float[Tensor, "known dim"]
    ) -> Bool[Tensor, "*point"]:
        """Return whether points are known, but for rounding, as of a logarithm."""
        away = (points.unsqueeze(-2) - known).abs() / (self.high - self.low)
        return (away < _SAME).all(-1).any(-1)
