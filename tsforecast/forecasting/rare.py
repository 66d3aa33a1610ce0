"""Rare counts: whole numbers that are mostly zero, whose past stretches say what comes.

A Gaussian behind a transformation has the quantiles of such counts, which are zeros, but neither their mean nor their
sums. Stretches of the past have both (a moving block bootstrap, Künsch 1989).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ZEROS = 0.5  # of the values, at least
_STRETCHES = 28  # at least
_LATEST = 365  # stretches, at most


def are_rare(values: NDArray[Any]) -> bool:
    """Return whether values, (..., time) with NaN where missing, are whole numbers from 0 on, and mostly zero."""
    seen = values[np.isfinite(values)]
    return len(seen) > 0 and bool((seen >= 0).all() and (seen % 1 == 0).all() and (seen == 0).mean() >= _ZEROS)


def stretches(values: Array, horizon: int, season: int) -> Array | None:
    """Return past stretches as long as the horizon, (stretch, step), from the latest values of one mean.

    They begin whole seasons before the end where there are enough of these.

    Args:
        values: Of the past, (time,), NaN where missing.
        horizon: Steps ahead.
        season: Steps of a season.

    Returns:
        None of less than 28 stretches, or of nothing but zeros.
    """
    values = _steady(values[-_LATEST - horizon + 1 :], _STRETCHES + horizon - 1)
    if len(values) < horizon:
        return None
    every = np.lib.stride_tricks.sliding_window_view(values, horizon)
    aligned = every[len(values) % season :: season]
    for found in (aligned, every):
        whole = found[np.isfinite(found).all(1)]
        if len(whole) >= _STRETCHES:
            return whole if whole.any() else None
    return None


def _steady(values: Array, least: int) -> Array:
    """Return the latest values whose halves have the same mean, within two standard errors, or the least number."""
    while len(values) >= 2 * least:
        first, last = (half[np.isfinite(half)] for half in np.array_split(values, 2))
        if not (len(first) and len(last)):
            break
        error = np.sqrt(first.var() / len(first) + last.var() / len(last))
        if abs(first.mean() - last.mean()) <= 2 * error:
            break
        values = values[-(len(values) // 2) :]
    return values
