"""The highest point of a function in a box, by projected gradient ascent from many starts."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

_CANDIDATES = 1000  # random points of which the best are starts
_AROUND = 300  # further ones near points that are known to be good, at distances of all sizes


@dataclasses.dataclass(frozen=True)
class Ascent:
    """Adam from the best of many random points, with each coordinate put back into the box after every step.

    Attributes:
        starts: Points that climb.
        steps: Of each.
        length: Of the first step, as a part of the box's width; later ones are shorter.

    Raises:
        ValueError: If a number is outside of its range.
    """

    starts: int = 32
    steps: int = 30
    length: float = 0.015

    def __post_init__(self) -> None:
        if self.starts < 1 or self.steps < 0 or not 0 < self.length <= 1:
            raise ValueError(
                f"expected starts from 1, steps from 0 and a length between 0 and 1, got {self.starts}, {self.steps} "
                f"and {self.length}"
            )

    def __call__(
        self,
        function: Callable[[Tensor], Tensor],
        low: Float[Tensor, " dim"],
        high: Float[Tensor, " dim"],
        good: Float[Tensor, "good dim"],
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, " dim"]:
        """Return the highest point that was reached.

        Args:
            function: Of points, one a row; differentiable.
            low: Lower corner of the box.
            high: Upper corner.
            good: Points near which to look, too; those outside of the box are moved to its border.
            generator: Of random points.

        Raises:
            ValueError: If the function has no finite value where it was looked at.
        """
        width = high - low

        def at(place: Tensor) -> Tensor:
            return function(low + place * width)

        places = torch.rand(_CANDIDATES, len(low), generator=generator, dtype=low.dtype)
        if len(good):
            # A tenth to a thousandth of the box.
            sd = 10 ** (-1 - 2 * torch.rand(_AROUND, 1, generator=generator, dtype=low.dtype))
            noise = sd * torch.randn(_AROUND, len(low), generator=generator, dtype=low.dtype)
            centres = ((good - low) / width)[torch.arange(_AROUND) % len(good)]
            places = torch.cat([places, centres + noise]).clamp(0, 1)
        with torch.no_grad():
            values = at(places)
        if not bool(values.isfinite().any()):
            raise ValueError("expected a surrogate with finite values: take another learner, or a smaller variance")
        best = values.nan_to_num(nan=-torch.inf).topk(min(self.starts, len(places))).indices  # a NaN is no start
        climbed = self._climb(at, places[best])
        with torch.no_grad():
            return low + climbed[at(climbed).nan_to_num(nan=-torch.inf).argmax()] * width

    def _climb(self, at: Callable[[Tensor], Tensor], places: Tensor) -> Tensor:
        """Move all starts at once, within the unit box."""
        with torch.enable_grad():
            moved = places.clone().requires_grad_()
            adam = torch.optim.Adam([moved], lr=self.length, betas=(0.9, 0.99), maximize=True)
            for k in range(self.steps):
                # Steps shrink to nothing, so that the end is settled.
                adam.param_groups[0]["lr"] = self.length * (1 - k / self.steps)
                # Starts do not touch each other: the sum has the slope of each.
                (moved.grad,) = torch.autograd.grad(at(moved).sum(), moved)
                adam.step()
                with torch.no_grad():
                    moved.clamp_(0, 1)
        return moved.detach()
