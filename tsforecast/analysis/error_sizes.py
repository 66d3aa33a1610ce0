"""The size that errors of a series are expected to have, from step to step, and errors in its units.

It follows the volatility, and the season where some of its steps err more than others.
"""

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats

from tsforecast.core.outliers import FAR, MOST

BOUND = 3.0  # in units of their size, for errors in a stretch and in the mean square
# Mean square of a standard Gaussian variable z that is clipped to (-b, b): E min(z^2, b^2). What is inside adds
# P(|z| < b) - 2 b pdf(b), by parts, since z pdf(z) is the slope of -pdf(z); what is outside adds b^2 P(|z| > b). It is
# .9950 for b = 3; the variable given that it is inside has .9733.
_BOUNDED = float(1 - 2 * BOUND * stats.norm.pdf(BOUND) + 2 * (BOUND**2 - 1) * stats.norm.sf(BOUND))
# Share of the newest square in the next mean square, and of what lasts from one step to the next (Bollerslev 1986);
# the first is a constant size.
_VOLATILITIES = np.array([(0.0, 0.0), *((new, kept) for kept in (0.9, 0.97, 0.995) for new in (0.03, 0.08, 0.15))])
_LIKELIER = 3.0  # in log-likelihood, by which a volatility beats the constant size
_DEGREES = 5  # of freedom of the likelihood's Student distribution
_ECHO = 0.05  # share of an outlier that the next errors are no smaller than
_SMALLEST = 1e-9  # size of errors, in standard deviations of the model
_UNEQUAL = 0.01  # level of the test by which steps of a season have errors of several sizes
_FEW = 4  # errors of each step of a season from which their size is told
_LITTLE = 0.05  # of the median size, below which an error is no smaller in logarithms

Numbers = NDArray[np.float64]


def sizes(errors: Numbers, floor: Numbers, first: int, learn: int) -> Float[np.ndarray, " time"]:
    """Return the expected size of each error given those before it.

    The mean square is a constant, or a GARCH(1, 1) recursion with bounded squares: the one that makes the errors before
    likeliest, without outliers. In the first part both are estimated from all of it.

    Args:
        errors: Standardised by a model; NaN where there is none.
        floor: Errors that the resolution of the data makes.
        first: First step of those that teach.
        learn: Steps of the first part.
    """
    known = errors[first:learn][~np.isnan(errors[first:learn])]
    least = max(float(np.nanmedian(floor)), _SMALLEST) ** 2
    new, kept = _VOLATILITIES.T
    usual, count = np.full(len(new), max(_mean_square(known), least)), len(known)
    square, squares, run = usual, np.empty((len(errors), len(new))), 0
    for time, error in enumerate(errors):
        squares[time] = square
        if np.isnan(error):
            continue
        run = np.where(error**2 > FAR**2 * square, run + 1, 0)
        bounded = np.where((run > 0) & (run <= MOST), square, np.minimum(error**2, BOUND**2 * square) / _BOUNDED)
        if time >= learn:
            count += 1
            usual = usual + (np.maximum(bounded, least) - usual) / count
        square = np.where(new > 0, (1 - kept) * usual + (kept - new) * square + new * bounded, usual)
    gains = -0.5 * (_DEGREES + 1) * np.log1p(errors[:, None] ** 2 / squares / (_DEGREES - 2)) - 0.5 * np.log(squares)
    gains[:first] = 0.0
    gains[:, 0] += _LIKELIER * (np.arange(len(errors)) == first)
    likeliest = np.nan_to_num(gains).cumsum(0).argmax(1)
    chosen = np.append(np.full(learn, likeliest[learn - 1]), likeliest[learn - 1 : -1])[: len(errors)]
    return np.sqrt(squares[np.arange(len(errors)), chosen])


def _mean_square(errors: Numbers) -> float:
    """Return the mean square of errors; outliers count no more than their bound."""
    square = (float(np.median(np.abs(errors))) / 0.6745) ** 2 or float(np.mean(errors**2))
    for _ in range(10):
        square = float(np.minimum(errors**2, BOUND**2 * square).mean()) / _BOUNDED
    return square


def scaled(
    errors: Numbers, floor: Numbers, first: int, learn: int, length: int, season: int = 1
) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
    """Return errors in units of their sizes, these sizes, and the former as stretches have them: NaN for outliers.

    Errors within the floor are 0. After an outlier a share of it is the floor while it is above the size; the share
    halves with every stretch. A model needs some steps to follow, so its errors there are no news. Stretches leave
    these steps out. More outliers in a row than the model leaves out are a change, and stay.

    Args:
        errors: Standardised by a model; NaN where there is none.
        floor: Errors that the resolution of the data makes.
        first: First step of those that teach.
        learn: Steps of the first part.
        length: Steps of a stretch.
        season: Steps of a season; 1 for none.
    """
    share = of_season(errors, first, learn, season)
    errors, floor = errors / share, floor / share
    least, echo, run, fading = np.maximum(floor, _SMALLEST), 0.0, 0, 0.5 ** (1 / length)
    size, left_out = sizes(errors, floor, first, learn), np.zeros(len(errors), bool)
    for time, error in enumerate(np.abs(errors)):
        if echo > max(size[time], least[time]):
            least[time], left_out[time] = echo, True
        size[time], echo = max(size[time], least[time]), echo * fading
        if not np.isnan(error):
            run = run + 1 if error > FAR * size[time] else 0
            left_out[time] |= 0 < run <= MOST
            echo = max(echo, _ECHO * error) if run else echo
    standard = np.where(np.abs(errors) <= least, 0.0, errors / size)
    return standard, size * share, np.where(left_out, np.nan, standard)


def of_season(errors: Numbers, first: int, learn: int, season: int) -> Float[np.ndarray, " time"]:
    """Return the size of each error by its step of the season, over the usual one.

    Logarithms of errors have means of each step. These shrink towards the mean of all, as much as their differences
    could be chance (random effects, by moments). All are 1 where an F test finds no differences.

    Args:
        errors: Standardised by a model; NaN where there is none.
        first: First step of those that teach.
        learn: Steps of the first part.
        season: Steps of a season; 1 for none.
    """
    phase, alike = np.arange(len(errors)) % season, np.ones(len(errors))
    past = np.abs(errors[first:learn])
    usual = float(np.nanmedian(past))
    if season == 1 or usual <= 0:
        return alike
    logs = np.log(np.maximum(past / usual, _LITTLE))
    groups = [logs[(phase[first:learn] == k) & ~np.isnan(logs)] for k in range(season)]
    if min(map(len, groups)) < _FEW:
        return alike
    variance = float(np.mean([x.var(ddof=1) for x in groups]))
    if variance == 0 or stats.f_oneway(*groups).pvalue > _UNEQUAL:
        return alike
    mean, chance = np.array([x.mean() for x in groups]), variance / np.array([len(x) for x in groups])
    true = max(float(mean.var(ddof=1) - chance.mean()), 0.0)
    return np.exp(true / (true + chance) * (mean - mean.mean()))[phase]
