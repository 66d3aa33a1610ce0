"""Quantiles and means of mixtures of Gaussians behind maps, by the compiled program."""

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
    """Return the quantiles of mixtures; None outside the program.

    Args:
        weight: Weights, which add up to 1. Components of weight 0 cost nothing.
        mean: Means of the components' maps of values.
        deviation: Their standard deviations.
        unit: What values are divided by before they are mapped.
        maps: The map of each component.
        normal: Standard normal quantiles of the levels.
    """
    tensors = _served(weight, mean, deviation, unit, maps, normal)
    if tensors is None:
        return None
    order = normal.argsort()  # the program finds each quantile from the one below
    found = mean.new_empty(len(normal), len(mean), mean.shape[-1])
    sizes = len(maps), len(normal), mean.shape[-1]
    call("mixture_quantiles", mean[:, 0].numel(), sizes, *tensors, normal[order].contiguous(), found)
    return found[order.argsort()]


def means(
    weight: Float[Tensor, "series component"],
    mean: Float[Tensor, "series component step"],
    deviation: Float[Tensor, "series component step"],
    unit: Float[Tensor, " series"],
    maps: Sequence[str],
    clipped: bool,
    ends: Float[Tensor, "series 2"],
) -> Float[Tensor, "series step"] | None:
    """Return the means of mixtures; None outside the program.

    Args:
        weight: As `quantiles` takes it.
        mean: Likewise.
        deviation: Likewise.
        unit: Likewise.
        maps: Likewise.
        clipped: Whether values below 0 are set to 0.
        ends: Between which the means of the components lie.
    """
    tensors = _served(weight, mean, deviation, unit, maps, ends)
    if tensors is None:
        return None
    found = mean.new_empty(len(mean), mean.shape[-1])
    sizes = len(maps), int(clipped), mean.shape[-1]
    call("mixture_means", found.numel(), sizes, *tensors, ends.contiguous(), found)
    return found


def _served(
    weight: Tensor, mean: Tensor, deviation: Tensor, unit: Tensor, maps: Sequence[str], other: Tensor
) -> list[Tensor] | None:
    """Return the mixture as the program reads it; None where it does not serve."""
    numbers = weight, mean, deviation, unit
    is_served = mean.dtype == torch.float64 and set(maps) <= set(MAPS)  # tails and roots want float64
    is_served = is_served and serves(mean[:, 0].numel(), (1,), *numbers, other)
    if not is_served or not bool((deviation > 0).all()):  # it multiplies by their inverses
        return None
    kinds = torch.tensor([MAPS.index(name) for name in maps])
    return [x.contiguous() for x in (*numbers, kinds)]
