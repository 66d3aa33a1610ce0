"""How rare each step of a series is, by its standardised errors and those before it.

Errors are divided by their size, which follows the volatility as fast as the errors before say. Each step then has
three statistics: the size of its error, and mean and mean square of the errors of a stretch. Ranks and a fitted tail
say how rare a single step is (`Tail`). Stretches overlap, so few of them tell something new. Their statistics are means
of bounded errors and nearly Gaussian: Student's t allows for a spread that is estimated from few stretches. A stretch
leaves out outliers, which are judged alone.
"""

import dataclasses

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats

from tsforecast.analysis.judging import LEAST, grown
from tsforecast.analysis.tails import Tail
from tsforecast.core.outliers import FAR, MOST

SHORTEST = 5  # errors of a stretch, at least
_BOUND = 3.0  # in units of their size, for errors in a stretch and in the mean square
_BOUNDED = 0.97  # mean square of a standard Gaussian variable within these bounds
# Share of the newest square in the next mean square, and of what lasts from one step to the next (Bollerslev 1986);
# the first is a constant size.
_VOLATILITIES = np.array([(0.0, 0.0), *((new, kept) for kept in (0.9, 0.97, 0.995) for new in (0.03, 0.08, 0.15))])
_LIKELIER = 3.0  # in log-likelihood, by which a volatility beats the constant size
_DEGREES = 5  # of freedom of the likelihood's Student distribution
_ECHO = 0.05  # share of an outlier that the next errors are no smaller than
_SPREAD = 0.8  # share of a statistic's values within its spread: outliers among the past do not widen it
_NARROWEST = 0.5  # spread of a statistic, in that of independent Gaussian errors
_REMOVED = 0.02  # share of the largest errors of the past that may be outliers
_EXPECTED = 0.01  # times that an ordinary past has an error as large as an outlier, at most
_SMALLEST = 1e-9  # size of errors, in standard deviations of the model

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Rarity:
    """How rare the steps of a series are.

    Attributes:
        tails: Tail probability of each step; NaN before the judged part, and where there is no error.
        reach: Errors beyond which a step alone is as rare as was asked.
    """

    tails: Float[Numbers, " time"]
    reach: Float[Numbers, " time"]


def rarity(
    errors: Float[Numbers, " time"],
    ahead: Float[Numbers, " time"],
    floor: Float[Numbers, " time"],
    learn: int,
    length: int,
    rate: float,
) -> Rarity:
    """Return how rare each step from `learn` on is, by those before it.

    Steps count as past in blocks: whenever the past has grown by a twentieth, it is learnt from again. The tail
    probabilities of the statistics are combined by Bonferroni's bound, which is near for small ones.

    Args:
        errors: Of single steps, standardised by a model; NaN where there is none.
        ahead: Those given the past, of which a stretch has its sum: given all, a shift of the level leaves none.
        floor: Errors that the resolution of the data makes; smaller ones count as none.
        learn: Steps of the first part.
        length: Steps of a stretch.
        rate: For `reach`.

    Raises:
        ValueError: If there are too few errors in the first part.
    """
    first = int(np.flatnonzero(~np.isnan(errors[:learn]))[min(length, learn // 4)]) if _enough(errors[:learn]) else 0
    single, size, inner = _scaled(errors, floor, first, learn, length)
    past = _ordinary(np.abs(single[first:learn]))
    reach = Tail.of(past).quantile(rate) * size
    shift, square = _stretches(_scaled(ahead, floor, first, learn, length)[2], length)[0], _stretches(inner, length)[1]
    found, time = np.full(len(errors), np.nan), learn
    while time < len(errors):
        end = grown(time)
        alone = Tail.of(_ordinary(np.abs(single[first:time]))).probabilities(np.abs(single[time:end]))
        both = [_of_stretches(x[first:time], x[time:end], length, centred) for x, centred in ((shift, 0), (square, 1))]
        found[time:end] = np.minimum(3 * np.fmin(alone, np.fmin(*both)), 1.0)
        time = end
    found[np.isnan(errors)] = np.nan
    return Rarity(found, reach)


def _enough(first: Numbers) -> bool:
    """Return whether a first part has enough errors.

    Raises:
        ValueError: If it has not.
    """
    known = int((~np.isnan(first)).sum())
    if known < LEAST:
        raise ValueError(
            f"expected at least {LEAST} predicted values before the judged part, got {known}; give more of the past, "
            "or a later since"
        )
    return True


def sizes(errors: Numbers, floor: Numbers, first: int, learn: int) -> Float[Numbers, " time"]:
    """Return the expected size of each error given those before it.

    The mean square is a constant, or a GARCH(1, 1) recursion whose squares are bounded: what the errors before are
    likeliest under; outliers tell nothing. In the first part both are those of all of it.

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
        bounded = np.where((run > 0) & (run <= MOST), square, np.minimum(error**2, _BOUND**2 * square) / _BOUNDED)
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
    """Return the mean square of errors, of which outliers count no more than their bound."""
    square = (float(np.median(np.abs(errors))) / 0.6745) ** 2 or float(np.mean(errors**2))
    for _ in range(10):
        square = float(np.minimum(errors**2, _BOUND**2 * square).mean()) / _BOUNDED
    return square


def _scaled(
    errors: Numbers, floor: Numbers, first: int, learn: int, length: int
) -> tuple[Float[Numbers, " time"], Float[Numbers, " time"], Float[Numbers, " time"]]:
    """Return errors in units of their sizes, these sizes, and the former as stretches have them: NaN for outliers.

    Errors within the floor are 0. Behind an outlier a share of it, which halves with every stretch, is the floor if it
    is above the size: a model needs some steps to follow, and what it then misses is no news. Stretches leave these
    steps out. More outliers in a row than the model leaves out are a change, and stay.
    """
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
    scaled = np.where(np.abs(errors) <= least, 0.0, errors / size)
    return scaled, size, np.where(left_out, np.nan, scaled)


def _ordinary(past: Float[Numbers, " error"]) -> Float[Numbers, " kept"]:
    """Return the sizes of the errors of a past without its outliers.

    The largest few are outliers if an ordinary past would have errors like the smallest of them less than
    `_EXPECTED` times, by the tail of the others.
    """
    past = np.sort(past[~np.isnan(past)])
    for count in range(int(_REMOVED * len(past)), 0, -1):
        kept = past[: len(past) - count]
        if Tail.of(kept).probabilities(past[len(kept) : len(kept) + 1])[0] * len(past) < _EXPECTED:
            return kept
    return past


def _stretches(errors: Numbers, length: int) -> tuple[Float[Numbers, "time 2"], Float[Numbers, "time 2"]]:
    """Return mean and mean square of the stretch that ends with each step, each with one over its usual spread.

    The mean square leaves out the largest error; its cube root is nearly Gaussian (Wilson and Hilferty 1931). Where a
    stretch has fewer than `SHORTEST` errors they are NaN.
    """
    bounded = np.concatenate([np.full(length - 1, np.nan), errors.clip(-_BOUND, _BOUND)])
    window = np.lib.stride_tricks.sliding_window_view(bounded, length)
    count = (~np.isnan(window)).sum(1)
    count = np.where(count >= SHORTEST, count, np.nan)
    squares = np.nan_to_num(window**2)
    square = 3 * np.cbrt((squares.sum(1) - squares.max(1)) / (count - 1))
    return np.stack([np.nansum(window, 1) / count, count**0.5], 1), np.stack([square, (count / 2) ** 0.5], 1)


def _of_stretches(
    past: Float[Numbers, "past 2"], new: Float[Numbers, "new 2"], length: int, centred: int
) -> Float[Numbers, " new"]:
    """Return how rare a statistic of stretches is, by its past.

    Args:
        past: Of the steps before.
        new: Of the steps that are judged.
        length: Steps of a stretch.
        centred: 1 to measure from the median of the past, 0 from zero.
    """
    past = past[~np.isnan(past).any(1)]
    if len(past) < SHORTEST:
        return np.full(len(new), np.nan)
    centre = float(np.median(past[:, 0])) if centred else 0.0
    before, now = (np.abs(x[:, 0] - centre) * x[:, 1] for x in (past, new))
    spread = float(np.quantile(before, _SPREAD)) / stats.norm.ppf(0.5 + 0.5 * _SPREAD)
    windows = max(len(past) / length, 2.0)
    return 2 * stats.t.sf(now / (max(spread, _NARROWEST) * np.sqrt(1 + 1 / windows)), windows - 1)
