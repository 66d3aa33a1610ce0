"""Quantiles of mixtures by a search for roots, where the compiled program does not serve."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.parts.component_groups import Group, cdf
from tsforecast.models.parts.roots import rising_root

_ROWS, _SAMPLE = (8, 64), 512  # of a table that brackets quantiles, and of the sample it is made of
_CHUNK = 2048  # points at which a mixture is evaluated together: more do not fit into the cache

Quantiles = Callable[[Float[Tensor, " level"]], list[Tensor]]


def mixture_quantiles(
    groups: list[Group],
    weight: Float[Tensor, "cell component"],
    of_components: Quantiles,
    normal: Float[Tensor, " level"],
) -> Float[Tensor, "level cell"]:
    """Return the quantiles of mixtures; they lie between those of their components.

    A coarse table of the distribution function brackets each of them.

    Args:
        groups: The components by their transformations.
        weight: Of the components, in the order of `of_components`.
        of_components: The quantiles of each component, given standard normal ones.
        normal: Standard normal quantiles of the levels.
    """
    unit = torch.stack([group.size.amax(1) for group in groups]).amax(0)
    count = len(unit)

    # In units of asinh tails of all transformations are tame, and in standard deviations the distribution function
    # is nearly straight.
    def score(point: Tensor, cell: Tensor) -> Tensor:
        parts = zip(point.split(_CHUNK), cell.split(_CHUNK), strict=True)
        below = torch.cat([cdf(torch.sinh(x) * unit[k], [group.of(k) for group in groups]) for x, k in parts])
        return torch.special.ndtri(below.clamp(torch.finfo(below.dtype).tiny, 1 - 1e-16))

    table = _table(weight, of_components, normal, unit)
    every = torch.arange(count, device=unit.device)
    # Rounding may let it fall, and a search needs an order.
    known = score(table.flatten(), every.repeat_interleave(table.shape[1])).view(table.shape).cummax(-1)[0]

    aim = normal.expand(count, -1).contiguous()
    right = torch.searchsorted(known, aim).clamp(1, table.shape[1] - 1)  # a bracket has a point on its left
    # A third point, for the first inverse quadratic step.
    beyond = torch.where(right + 1 < table.shape[1], right + 1, right - 2)
    places = (right - 1, right, beyond)
    cells, aim = every.repeat_interleave(len(normal)), aim.flatten()
    points = [table.gather(1, k).flatten() for k in places]
    values = [known.gather(1, k).flatten() - aim for k in places]
    roots = rising_root(lambda x, k: score(x, cells[k]) - aim[k], points, values)
    values = torch.sinh(roots) * unit[cells]
    return values.view(count, -1).T


def _table(
    weight: Float[Tensor, "cell component"],
    of_components: Quantiles,
    normal: Float[Tensor, " level"],
    unit: Float[Tensor, " cell"],
) -> Float[Tensor, "cell row"]:
    """Return rising points between the smallest and the largest quantile, in units of asinh.

    Quantiles of the components, all together, are nearly a sample of the mixture.
    """
    each = -(-_SAMPLE // weight.shape[1])  # rounded up: each component has a point
    middles = torch.special.ndtri((torch.arange(each).to(normal) + 0.5) / each)
    quantiles = torch.stack(of_components(torch.cat([normal.amin()[None], middles, normal.amax()[None]])), 1)
    quantiles = torch.asinh(quantiles.flatten(2) / unit)  # level, component, cell
    sample, order = quantiles[1:-1].flatten(0, 1).T.sort(-1)
    share = weight.repeat(1, each).gather(1, order).cumsum(-1) / each
    rows = min(max(len(normal), _ROWS[0]), _ROWS[1])
    scores = torch.linspace(0, 1, rows).to(normal) * (normal.amax() - normal.amin()) + normal.amin()
    places = torch.searchsorted(share, torch.special.ndtr(scores).expand(len(unit), -1).contiguous())
    inner = sample.gather(1, places.clamp_max(sample.shape[1] - 1))
    low, high = quantiles[0].amin(0).unsqueeze(1), quantiles[-1].amax(0).unsqueeze(1)
    return torch.cat([low, inner.clamp(low, high), high], 1)
