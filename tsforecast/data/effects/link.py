"""The scale of effects of covariates: that of the data, or a logarithm for large values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

BENDS = (np.inf, 1.0, 0.3, 0.1)  # in sizes of the series; from ten times these on effects multiply

_ROUNDING = 1e-12  # of the size of a series: what is left of 0

Array = NDArray[np.float64]


def linked(values: Array, bend: float, size: float | Array) -> Array:
    """Return values on the scale on which effects add up, in sizes of their series: a logarithm from the bend on."""
    return values / size if np.isinf(bend) else bend * np.arcsinh(values / (bend * size))


def log_slope(values: Array, bend: float, size: float) -> Array:
    """Return the logarithm of the derivative of `linked`."""
    share = 0.0 * values if np.isinf(bend) else np.square(values / (bend * size))
    return -0.5 * np.log1p(share) - np.log(size)


def moved(values: Array, effect: Array, bend: float | Array, size: float | Array) -> Array:
    """Return values with an effect added on the scale of `linked`; shapes broadcast.

    By the sum of two hyperbolic sines, y cosh(a) + (y^2 + c^2)^(1/2) sinh(a), for a = effect / bend, c = bend * size.
    """
    flat = np.isinf(bend)
    bend = np.where(flat, 1.0, bend)
    angle, corner = effect / bend, bend * size
    with np.errstate(over="ignore", invalid="ignore"):
        bent = values * np.cosh(angle) + np.hypot(values, corner) * np.sinh(angle)
    return np.where(flat, values + size * effect, bent)


def restored(values: NDArray[Any], effect: Array, link: Array) -> Array:
    """Return values that an effect was taken from with the effect, see `Effects.adjusted`; shapes broadcast."""
    bend, size, lowest = link
    found = np.maximum(moved(values, effect, bend, size), lowest)
    return np.where(np.abs(found) < _ROUNDING * size, 0.0, found)
