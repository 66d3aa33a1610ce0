"""The difference of two models over independent sequences, with its interval."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from tsforecast.evaluation import Difference


def mean_difference(first: ArrayLike, second: ArrayLike) -> Difference:
    """Mean of the first minus mean of the second, with Student's interval over independent pairs.

    Args:
        first: (pair,), a score for each of some independent things, such as sequences of video.
        second: Of the same things in the same order.

    Returns:
        The difference; the interval is without end where there is one pair.

    Raises:
        ValueError: If shapes differ or there is nothing.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(f"expected two vectors of scores of the same things, got shapes {a.shape} and {b.shape}")
    change = a - b
    estimate = float(change.mean())
    if len(a) == 1:
        return Difference(estimate, -np.inf, np.inf)
    half = float(stats.t.ppf(0.975, len(a) - 1) * stats.sem(change))
    return Difference(estimate, estimate - half, estimate + half)
