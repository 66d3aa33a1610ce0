"""Roots of many rising functions at once."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

_ROUNDS = 60  # of a search, at most; three are usual
_EXACT = 1e-7  # value of a function at which its search ends


def rising_root(
    function: Callable[[Tensor, Tensor], Tensor],
    points: Sequence[Float[Tensor, " cell"]],
    values: Sequence[Float[Tensor, " cell"]],
) -> Float[Tensor, " cell"]:
    """Return where a rising function of each cell is 0, or jumps over it (Chandrupatla 1997).

    Steps go through three points where that is safe, and else halve the interval, so that jumps are found.

    Args:
        function: Of points and the cells that they belong to.
        points: One where it is at most 0, one where it is at least 0, and any third.
        values: What it is there.
    """
    # The interval has the ends `here`, the newest point, and `there`; `gone` is the point that was left last.
    there, here, gone = points
    at_there, at_here, at_gone = values
    index = torch.arange(len(here), device=here.device)
    root = torch.where(at_here.abs() < at_there.abs(), here, there)
    done = (torch.minimum(at_here.abs(), at_there.abs()) < _EXACT) | ~_is_wide(here, there)
    for _ in range(_ROUNDS):
        left = torch.nonzero(~done).squeeze(-1)
        if not len(left):
            break
        index, here, there, gone, at_here, at_there, at_gone = (
            x[left] for x in (index, here, there, gone, at_here, at_there, at_gone)
        )
        point = here + _share(here, there, gone, at_here, at_there, at_gone) * (there - here)
        value = function(point, index)  # of cells that are not done alone
        same = value.sign() == at_here.sign()
        gone, at_gone = torch.where(same, here, there), torch.where(same, at_here, at_there)
        there, at_there = torch.where(same, there, here), torch.where(same, at_there, at_here)
        here, at_here = point, value
        root[index] = torch.where(at_here.abs() < at_there.abs(), here, there)
        done = (at_here.abs() < _EXACT) | ~_is_wide(here, there)  # a jump has no 0: its interval only shrinks
    return root


def _share(here: Tensor, there: Tensor, gone: Tensor, at_here: Tensor, at_there: Tensor, at_gone: Tensor) -> Tensor:
    """Return the share of the way from `here` to `there` at the root, by inverse quadratic steps; a half if unsure."""
    place, level = (here - there) / (gone - there), (at_here - at_there) / (at_gone - at_there)
    # Where the inverse quadratic is monotone (Chandrupatla 1997).
    safe = (level.square() < place) & ((1 - level).square() < 1 - place)
    along, across = at_here / (at_there - at_here), at_here / (at_gone - at_here)
    share = along * at_gone / (at_there - at_gone) + (gone - here) / (there - here) * across * at_there / (
        at_gone - at_there
    )
    return torch.where(safe & (share > 0) & (share < 1), share, 0.5)


def _is_wide(one: Tensor, other: Tensor) -> Tensor:
    """Return whether there are numbers between the ends of intervals that matter."""
    return (one - other).abs() > 4 * torch.finfo(one.dtype).eps * (one.abs() + other.abs())
