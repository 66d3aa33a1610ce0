"""Quantiles of mixtures of Gaussians behind maps, by the compiled program."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.kernels.calls import call, serves

MAPS = ("none", "asinh", "symlog", "symsqrt")  # names of the maps, in the order of their numbers


def quantiles(
    weight: Float[Tensor, "series component"],
    mean: Float[Tensor, "series component step"],
    deviation: Float[Tensor, "series component step"],
    unit: Float[Tensor, " series"],
    maps: Sequence[str],
    normal: Float[Tensor, " level"],
) -> Float[Tensor, "level series step"] | None:
    """Return the quantiles of mixtures; None for what the program does not serve.

    Args:
        weight: Weights, which add up to 1. Components of weight 0 cost nothing.
        mean: Means of the components' maps of values.
        deviation: Their standard deviations.
        unit: What values are divided by before they are mapped.
        maps: The map of each component.
        normal: Standard normal quantiles of the levels.
    """
    numbers = weight, mean, deviation, unit, normal
    count = mean[:, 0].numel()
    is_served = mean.dtype == torch.float64 and set(maps) <= set(MAPS) and serves(count, (1,), *numbers)
    if not is_served or not bool((deviation > 0).all()):
        return None
    order = normal.argsort()
    found = mean.new_empty(len(normal), len(mean), mean.shape[-1])
    kinds = torch.tensor([MAPS.index(name) for name in maps])
    tensors = [x.contiguous() for x in (weight, mean, deviation, unit, kinds, normal[order])]
    call("mixture_quantiles", count, (len(maps), len(normal), mean.shape[-1]), *tensors, found)
    return found[order.argsort()]
