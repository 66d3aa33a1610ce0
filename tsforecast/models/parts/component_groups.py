"""Components of mixtures, grouped by their transformation and unit."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.models.transformations import transformation_of


@dataclasses.dataclass(frozen=True)
class Group:
    """Components of one transformation, in rows that belong to a series, step and target.

    Attributes:
        transformation: Its name.
        weight: Of each component.
        mean: In transformed units.
        deviation: Likewise.
        size: Divisor of the values; one for all components if they share it.
        has_known: Whether a deviation is 0.
    """

    transformation: str
    weight: Float[Tensor, "cell component"]
    mean: Float[Tensor, "cell component"]
    deviation: Float[Tensor, "cell component"]
    size: Float[Tensor, "cell component_or_1"]
    has_known: bool

    def distance(self, values: Float[Tensor, " cell"]) -> Float[Tensor, " cell"]:
        """Return the distance of each value from the nearest component with a weight, in standard deviations."""
        point = transformation_of(self.transformation).apply(values.unsqueeze(1) / self.size)
        distance = (point - self.mean).abs() / self.deviation
        # Known values have no distance in deviations.
        return torch.where((self.weight > 0) & (self.deviation > 0), distance, torch.inf).amin(1)

    def of(self, cell: Int[Tensor, " other"]) -> "Group":
        """Return some of the rows."""
        parts = {name: getattr(self, name).index_select(0, cell) for name in ("weight", "mean", "deviation", "size")}
        return dataclasses.replace(self, **parts)


def quantile(probability: Tensor) -> Tensor:
    """Return standard normal quantiles of at most a half, finite however small the probability."""
    # 0 would give an infinite score.
    return torch.special.ndtri(probability.clamp(torch.finfo(probability.dtype).tiny, 0.5))


def cdf(values: Float[Tensor, " cell"], groups: Sequence[Group], upper: bool = False) -> Float[Tensor, " cell"]:
    """Return the probability of at most the given values, before clipping; with `upper` that of more."""
    sign = -1.0 if upper else 1.0
    total = torch.zeros_like(values)
    for group in groups:
        # Not `apply`: values outside of the domain have a place, too.
        point = transformation_of(group.transformation).place(values.unsqueeze(1) / group.size)
        distance = point - group.mean
        share = 0.5 * torch.erfc(-sign / math.sqrt(2) * distance / group.deviation)  # `ndtr` loses its lower tail
        if group.has_known:
            share = torch.where(group.deviation == 0, ((distance >= 0) != upper).to(share), share)
        total = total + (group.weight * share).sum(1)
    return total
