"""Transformations of targets, and the way back."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

# "logit" is for values from 0 to 1, both of which occur: the ends have a finite place. "sqrt" is that of Box and Cox
# (1964) with the power 1/2, of one more than a value's size: it makes the spread of counts even.
TRANSFORMATIONS = ("none", "log1p", "asinh", "logit", "sqrt")
# For values of size one: "symlog" is a logarithm from about a tenth of it on, of either sign, and straight below;
# "symsqrt" is a square root likewise.
OF_SIZE_ONE = ("none", "symlog", "asinh", "symsqrt")
_STEEPNESS = 10.0
_END = 0.01  # from which the logit of 0 is taken, and from 1 likewise


def transformed(values: Float[Tensor, "*shape"], name: str) -> Float[Tensor, "*shape"]:
    """Return values in transformed units.

    Those for which log1p has no value are taken as barely above -1, and those outside of 0 to 1 for the logit as its
    ends.

    Args:
        values: Values in the units of the data.
        name: One of `TRANSFORMATIONS` or `OF_SIZE_ONE`.
    """
    if name == "log1p":
        return torch.log1p(values.clamp_min(-1 + 1e-6))
    if name == "logit":
        return torch.logit(_inside(values))
    if name == "symlog":
        return torch.asinh(_STEEPNESS * values)
    if name == "symsqrt":
        return transformed(_STEEPNESS * values, "sqrt")
    if name == "sqrt":
        return 2 * values / (1 + (1 + values.abs()).sqrt())  # 2 ((1 + |x|)^1/2 - 1), which small values would lose
    return torch.asinh(values) if name == "asinh" else values


def log_slope(values: Float[Tensor, "*shape"], name: str) -> Float[Tensor, "*shape"]:
    """Return the logarithm of the derivative of a transformation, by which densities change.

    Args:
        values: Values in the units of the data.
        name: One of `TRANSFORMATIONS` or `OF_SIZE_ONE`.
    """
    if name == "log1p":
        return -torch.log1p(values.clamp_min(-1 + 1e-6))
    if name == "none":
        return torch.zeros_like(values)
    if name == "logit":
        share = _inside(values)
        return math.log(1 - 2 * _END) - share.log() - torch.log1p(-share)
    steepness = _STEEPNESS if name.startswith("sym") else 1.0
    if name in ("sqrt", "symsqrt"):
        return math.log(steepness) - 0.5 * torch.log1p(steepness * values.abs())
    return math.log(steepness) - 0.5 * torch.log1p((steepness * values).square())


def own_change(values: Float[Tensor, "*shape"], name: str) -> Float[Tensor, "*shape"]:
    """Return what a change of a value by its own size is in transformed units, by the slope there.

    That is at most 1 of a logarithm, and 1 of a logit.

    Args:
        values: Values in transformed units.
        name: One of `TRANSFORMATIONS` or `OF_SIZE_ONE`.
    """
    size = values.abs()
    if name == "logit":
        return torch.ones_like(size)
    if name == "log1p":
        return -torch.expm1(-size)
    if name in ("asinh", "symlog"):
        return size.tanh()
    return size * (1 + 0.25 * size) / (1 + 0.5 * size) if name in ("sqrt", "symsqrt") else size


def restored(
    values: Float[Tensor, "*shape"], name: str, size: Float[Tensor, "*#shape"] | None = None
) -> Float[Tensor, "*shape"]:
    """Return values in the units of the data, finite however far a tail is.

    Args:
        values: Values in transformed units.
        name: One of `TRANSFORMATIONS` or `OF_SIZE_ONE`.
        size: Size of the series, where the result enters a loss. From a million times this size on the tangent takes
            over. So paths that explode leave loss and gradient finite, and are still called back.
    """
    if name == "none":
        return values
    if name == "logit":
        return ((torch.sigmoid(values) - _END) / (1 - 2 * _END)).clamp(0.0, 1.0)
    if name.startswith("sym"):
        plain = "asinh" if name == "symlog" else "sqrt"
        return restored(values, plain, None if size is None else _STEEPNESS * size) / _STEEPNESS
    if name == "sqrt":
        return values * (1 + 0.25 * values.abs())
    inverse, slope = (torch.expm1, torch.exp) if name == "log1p" else (torch.sinh, torch.cosh)
    if size is None:
        bound = math.log(torch.finfo(values.dtype).max) - 1
        return inverse(values.clamp(-bound, bound))
    most = torch.log(1e6 * (size + 1))
    kept = values.clamp(-most, most)
    return inverse(kept) + (values - kept) * slope(kept)


def _inside(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return values from 0 to 1 moved a little inside."""
    return _END + (1 - 2 * _END) * values.clamp(0.0, 1.0)
