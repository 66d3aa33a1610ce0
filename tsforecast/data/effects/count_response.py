"""Low counts as a linear regression: the working response of quasi-Poisson regression, level by level."""

import numpy as np

from tsforecast.data.effects.errors import Matrix, Part

BEND = 0.01  # of the scale of counts, in sizes of the series: effects multiply all but zeros
_LEVEL = 28  # steps of a level: four weeks of days
_FARTHEST = 5.0  # bound of the logarithm of an effect
_LEAST = 1e-3  # lower bound of the dispersion


def working(columns: list[Matrix], targets: list[Matrix], coefficients: Matrix) -> list[Part]:
    """Return rows and values whose least squares are a step to the coefficients of highest likelihood.

    Counts are Poisson, but for a dispersion of each series, with a mean of level times exp(x b). Every 28 steps have a
    level of their own: that of highest likelihood, so that their sum alone says nothing (conditional Poisson
    regression; Armstrong et al. 2014). With mu the means by the coefficients so far, the values are
    x b + (y - mu) / mu with variance dispersion / mu (McCullagh and Nelder 1989, section 2.5). Errors have variance 1.

    Args:
        columns: Of each series, (time, column).
        targets: Of each series, (time,), NaN where missing.
        coefficients: So far, (series, column).
    """
    return [_part(x, y, own) for x, y, own in zip(columns, targets, coefficients, strict=True)]


def _part(columns: Matrix, counts: Matrix, coefficients: Matrix) -> Part:
    steps = np.flatnonzero(np.isfinite(counts))
    levels = (len(counts) - 1 - steps) // _LEVEL  # counted from the end, so that the latest level is whole
    kept = (np.bincount(levels, counts[steps]) > 0)[levels]
    steps, levels = steps[kept], np.unique(levels[kept], return_inverse=True)[1]
    rows, values = columns[steps], counts[steps]
    linear = np.clip(rows @ coefficients, -_FARTHEST, _FARTHEST)
    mean = np.exp(linear)
    mean *= (np.bincount(levels, values) / np.bincount(levels, mean))[levels]
    rest = (values - mean) / mean
    free = max(len(steps) - levels.max(initial=-1) - 1, 1)
    weight = np.sqrt(mean / max(float((mean * rest**2).sum()) / free, _LEAST))
    of_level = np.bincount(levels, mean)
    # One column at a time: sums by level of all at once would take a sort.
    both = [x - (np.bincount(levels, mean * x) / of_level)[levels] for x in (rest + linear, *rows.T)]
    response, *centred = [weight * x for x in both]
    return Part(np.stack(centred, 1) if centred else rows, response, steps)
