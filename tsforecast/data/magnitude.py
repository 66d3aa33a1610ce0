"""Numbers of any size: powers of two that bring targets into the range of float32 and back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Series whose largest value lies between 2^-30 and 2^30 are left as they are. Others are divided by a power of two, so
# that squares and products of what models compute of them stay within float32; the division is without error.
_LARGEST_EXPONENT = 30
_FLOAT32 = np.finfo(np.float32)
_FINE = 1e-3  # of the spread of samples, which rounding may change


def find_exponents(windows: Sequence[dict[str, Any]], scaling_length: int) -> NDArray[np.int64]:
    """Exponents of the powers of two that divide the targets of windows, (series, target); 0 for most.

    Args:
        windows: As `tsforecast.data.windows.cut` makes them.
        scaling_length: Values at the end of the past from which a model takes its scaling; 0 for all. Only these count:
            one value of long ago does not make the rest vanish.
    """
    return np.stack([_exponents(w["past_target"], w["past_observed"], scaling_length) for w in windows])


def _exponents(
    values: NDArray[np.floating[Any]], observed: NDArray[np.bool_], scaling_length: int
) -> NDArray[np.int64]:
    if scaling_length and len(values) > scaling_length:
        later = np.cumsum(observed[::-1], axis=0)[::-1]
        observed = observed & (later <= scaling_length)
    largest = np.max(np.abs(values), axis=0, where=observed, initial=0.0)
    exponents = np.frexp(largest)[1].astype(np.int64) - 1
    return np.where((largest > 0) & (np.abs(exponents) > _LARGEST_EXPONENT), exponents, 0)


def too_large(values: NDArray[np.floating[Any]], is_target: bool) -> tuple[tuple[int, ...], str] | None:
    """The place of a value that no model takes, and its fault, or None; features must have a place in float32."""
    wrong = np.isinf(values) if is_target else np.abs(values) > np.float64(_FLOAT32.max)
    if not wrong.any():
        return None
    place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    fault = "infinite" if np.isinf(values[place]) else f"{values[place]:g}, beyond the largest, 3.4e38"
    return place, f"the value is {fault}"


def in_range(
    values: NDArray[np.floating[Any]], exponents: NDArray[np.int64] | None = None
) -> NDArray[np.floating[Any]]:
    """Targets (series, time, target) in float64, divided by powers of two (series, target); NaN stays.

    What is beyond float32 then is cut at its largest number: models take what is so far away as missing.
    """
    values = values.astype(np.float64)
    if exponents is not None and exponents.any():
        values = np.ldexp(values, -exponents[:, None, :])
    return np.clip(values, _FLOAT32.min, _FLOAT32.max)


def in_units(samples: NDArray[np.floating[Any]], exponents: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
    """Samples (sample, time[, target]) of a series in units of the data: in float32 where that rounds by little."""
    if exponents.any():
        return np.ldexp(samples.astype(np.float64), exponents if samples.ndim == 3 else exponents[0])
    axes = (0, 1)
    largest = np.abs(samples).max(axes, initial=0.0)
    fine = (
        (largest * _FLOAT32.eps <= _FINE * np.ptp(samples, axes)) & (largest <= _FLOAT32.max) if samples.size else True
    )
    return samples.astype(np.float32) if np.all(fine) else samples


def compact(values: NDArray[np.float64]) -> NDArray[np.floating[Any]]:
    """In float32 where that keeps all numbers as they are."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return narrow if np.array_equal(narrow, values, equal_nan=True) else values
