"""Transformations of targets, and the way back."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

TRANSFORMATIONS = ("none", "log1p", "asinh")


def transformed(values: Float[Tensor, "*shape"], name: str) -> Float[Tensor, "*shape"]:
    """Return values in transformed units; those for which log1p has no value are taken as barely above -1.

    Args:
        values: Values in the units of the data.
        name: One of `TRANSFORMATIONS`.
    """
    if name == "log1p":
        return torch.log1p(values.clamp_min(-1 + 1e-6))
    return torch.asinh(values) if name == "asinh" else values


def restored(
    values: Float[Tensor, "*shape"], name: str, size: Float[Tensor, "*#shape"] | None = None
) -> Float[Tensor, "*shape"]:
    """Return values in the units of the data, finite however far a tail is.

    Args:
        values: Values in transformed units.
        name: One of `TRANSFORMATIONS`.
        size: Size of the series, where the result enters a loss. From a million times this size on the tangent takes
            over. So paths that explode leave loss and gradient finite, and are still called back.
    """
    if name == "none":
        return values
    inverse, slope = (torch.expm1, torch.exp) if name == "log1p" else (torch.sinh, torch.cosh)
    if size is None:
        bound = math.log(torch.finfo(values.dtype).max) - 1
        return inverse(values.clamp(-bound, bound))
    most = torch.log(1e6 * (size + 1))
    kept = values.clamp(-most, most)
    return inverse(kept) + (values - kept) * slope(kept)
