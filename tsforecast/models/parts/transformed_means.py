"""Means of Gaussians behind transformations, after clipping."""

import math

import numpy as np
import torch
from torch import Tensor

from tsforecast.models.parts.transformation import restored, transformed

_NODES, _REACH = 64, 9.0  # of a quadrature: nodes, and standard deviations on either side


def transformed_mean(mean: Tensor, deviation: Tensor, transformation: str, clip: str) -> Tensor:
    """Return E[g(z)] for z ~ N(mean, deviation^2), or E[max(g(z), 0)] where values are clipped.

    Most transformations are sums of exp(a z), and E[exp(a z); z > 0] = exp(a m + a^2 s^2 / 2) Phi((m + a s^2) / s).

    Args:
        mean: Of any shape.
        deviation: Of the same shape; 0 where z is known.
        transformation: Whose inverse g is.
        clip: "nonnegative", or "none".

    Raises:
        ValueError: If there is no such transformation.
    """
    clipped = clip != "none"
    match transformation:
        case "none":
            return _linear(mean, deviation, clipped)
        case "log1p":
            return _power(1, mean, deviation, clipped) - _power(0, mean, deviation, clipped)
        case "asinh":
            return _asinh(mean, deviation, clipped)
        case "symlog":
            return restored(torch.asinh(_asinh(mean, deviation, clipped)), "symlog")
        case "sqrt":
            return _sqrt(mean, deviation, clipped)
        case "symsqrt":
            return restored(transformed(_sqrt(mean, deviation, clipped), "sqrt"), "symsqrt")
        case "logit":
            return _logit(mean, deviation)
    raise ValueError(f"there is no mean behind the transformation {transformation!r}")


def _linear(mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
    if not clipped:
        return mean
    ratio = mean / deviation.clamp_min(torch.finfo(mean.dtype).tiny)
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    return mean * torch.special.ndtr(ratio) + deviation * density


def _asinh(mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
    return 0.5 * (_power(1, mean, deviation, clipped) - _power(-1, mean, deviation, clipped))


def _power(factor: int, mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
    """Return E[exp(factor z)], where clipped of z > 0 alone."""
    log = factor * mean + 0.5 * factor**2 * deviation.square()
    if clipped:
        shifted = mean + factor * deviation.square()
        log = log + torch.special.log_ndtr(shifted / deviation.clamp_min(torch.finfo(mean.dtype).tiny))
    return log.clamp_max(math.log(torch.finfo(mean.dtype).max) - 1).exp()


def _sqrt(mean: Tensor, deviation: Tensor, clipped: bool) -> Tensor:
    """Return E[z (1 + |z| / 4)]."""
    spread = deviation.clamp_min(torch.finfo(mean.dtype).tiny)
    below, density = torch.special.ndtr(mean / spread), torch.exp(-0.5 * (mean / spread).square())
    square, product = mean.square() + deviation.square(), mean * deviation * density / math.sqrt(2 * math.pi)
    quarter = square * below + product if clipped else square * (2 * below - 1) + 2 * product
    return _linear(mean, deviation, clipped) + 0.25 * quarter


def _logit(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return the mean by quadrature between the places of 0 and 1, and what lies behind that of 1."""
    spread = deviation.clamp_min(torch.finfo(mean.dtype).tiny)
    places = (transformed(torch.tensor(end, dtype=mean.dtype), "logit").to(mean) for end in (0.0, 1.0))
    low, high = ((place - mean) / spread for place in places)
    above = torch.special.ndtr(-high)
    low, high = low.clamp(-_REACH, _REACH).unsqueeze(-1), high.clamp(-_REACH, _REACH).unsqueeze(-1)
    nodes, weights = (torch.from_numpy(x).to(mean) for x in np.polynomial.legendre.leggauss(_NODES))
    points = 0.5 * (low + high + (high - low) * nodes)
    values = restored(mean.unsqueeze(-1) + deviation.unsqueeze(-1) * points, "logit")
    density = torch.exp(-0.5 * points.square()) / math.sqrt(2 * math.pi)
    between = 0.5 * ((high - low) * density * values * weights).sum(-1)
    return torch.where(deviation > 0, between + above, restored(mean, "logit"))
