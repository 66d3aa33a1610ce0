"""Rarity of each step of a series, by its standardised errors and those before it.

Errors are divided by their size. The size follows the volatility, as fast as earlier errors suggest, and the season if
some of its steps err more than others. Each step then has three statistics: the size of its error, and mean and mean
square of the errors of a stretch. Ranks and a fitted tail give the rarity of a single step (`Tail`). Stretches overlap,
so few of them tell something new. Their statistics are means of bounded errors and nearly Gaussian: Student's t allows
for a spread that is estimated from few stretches. A stretch leaves out outliers, which are judged alone.

A past with an event in it would hide the next one. So rare steps are left out of the past, unless they last.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy import stats

from tsforecast.analysis.error_sizes import BOUND, scaled
from tsforecast.analysis.judging import LEAST, grown
from tsforecast.analysis.tails import Tail

SHORTEST = 5  # errors of a stretch, at least
_SPREAD = 0.8  # share of a statistic's values within its spread: outliers among the past do not widen it
_NARROWEST = 0.5  # spread of a statistic, in that of independent Gaussian errors
_REMOVED = 0.02  # share of the largest errors of the past that may be outliers
_EXPECTED = 0.01  # times that an ordinary past has an error as large as an outlier, at most
_EVENT = 0.001  # tail probability, up to which a step is no part of an ordinary past
_PASSING = 48  # steps that an event is left out for: what lasts longer is ordinary
_WIDEST = 4.0  # spreads, to which a statistic of the past is bounded before its mean square is taken

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Rarity:
    """The rarity of the steps of a series.

    Attributes:
        tails: Tail probability of each step; NaN before the judged part, and where there is no error.
        reach: Errors beyond which a single step is rarer than the given rate.
    """

    tails: Float[np.ndarray, " time"]
    reach: Float[np.ndarray, " time"]


def rarity(
    errors: Float[np.ndarray, " time"],
    ahead: Float[np.ndarray, " time"],
    floor: Float[np.ndarray, " time"],
    learn: int,
    length: int,
    rate: float,
    season: int = 1,
) -> Rarity:
    """Return the rarity of each step from `learn` on, by the steps before it.

    Steps count as past in blocks: whenever the past has grown by a twentieth, it is learnt from again. The tail
    probabilities of the statistics are combined by Bonferroni's bound, which is near for small ones.

    Args:
        errors: Of single steps, standardised by a model; NaN where there is none.
        ahead: Errors given the past, to be summed over stretches. Given all other steps, a shift of the level leaves no
            error.
        floor: Errors that the resolution of the data makes; smaller ones count as none.
        learn: Steps of the first part.
        length: Steps of a stretch.
        rate: For `reach`.
        season: Steps of a season, in which errors may differ in size; 1 for none.

    Raises:
        ValueError: If there are too few errors in the first part.
    """
    known = _known(errors[:learn])
    first = int(known[min(length, learn // 4, len(known) - LEAST)])  # beginnings err more, but some have to be left
    single, size, inner = scaled(errors, floor, first, learn, length, season)
    past = _ordinary(np.abs(single[first:learn]))
    reach = Tail.of(past).quantile(rate) * size
    mean = _stretches(scaled(ahead, floor, first, learn, length, season)[2], length)[0]
    statistics = (mean, 0), (_stretches(inner, length)[1], 1)
    tails, rare, time = np.full(len(errors), np.nan), np.zeros(len(errors), bool), learn
    while time < len(errors):
        end, event = grown(time), _passing(rare[:time])
        within = np.convolve(event, np.ones(length))[first:time] > 0  # stretches that hold an event
        alone = Tail.of(_ordinary(np.abs(single[first:time][~event[first:]]))).probabilities(np.abs(single[time:end]))
        both = [_of_stretches(x[first:time][~within], x[time:end], length, centred) for x, centred in statistics]
        stretch = np.fmin(*both)
        tails[time:end] = np.minimum(3 * np.fmin(alone, stretch), 1.0)
        rare[time:end] |= 3 * alone <= _EVENT
        for last in time + np.flatnonzero(3 * stretch <= _EVENT):
            rare[max(last - length + 1, learn) : last + 1] = True
        time = end
    tails[np.isnan(errors)] = np.nan
    return Rarity(tails, reach)


def _passing(rare: Bool[np.ndarray, " time"]) -> Bool[np.ndarray, " time"]:
    """Return a mask of rare steps in events that pass: those early in their run."""
    time = np.arange(len(rare))
    return rare & (time - np.maximum.accumulate(np.where(rare, -1, time)) <= _PASSING)


def _known(first: Numbers) -> Int[np.ndarray, " known"]:
    """Return the places of the errors of a first part.

    Raises:
        ValueError: If there are too few.
    """
    known = np.flatnonzero(~np.isnan(first))
    if len(known) < LEAST:
        raise ValueError(
            f"expected at least {LEAST} predicted values before the judged part, got {len(known)}; give more of the "
            "past, or a later since"
        )
    return known


def _ordinary(past: Float[np.ndarray, " error"]) -> Float[np.ndarray, " kept"]:
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


def _stretches(errors: Numbers, length: int) -> tuple[Float[np.ndarray, "time 2"], Float[np.ndarray, "time 2"]]:
    """Return mean and mean square of the stretch that ends with each step, each with one over its usual spread.

    The mean square leaves out the largest error; its cube root is nearly Gaussian (Wilson and Hilferty 1931). Where a
    stretch has fewer than `SHORTEST` errors they are NaN.
    """
    bounded = np.concatenate([np.full(length - 1, np.nan), errors.clip(-BOUND, BOUND)])
    window = np.lib.stride_tricks.sliding_window_view(bounded, length)
    count = (~np.isnan(window)).sum(1)
    count = np.where(count >= SHORTEST, count, np.nan)
    squares = np.nan_to_num(window**2)
    square = 3 * np.cbrt((squares.sum(1) - squares.max(1)) / (count - 1))
    return np.stack([np.nansum(window, 1) / count, count**0.5], 1), np.stack([square, (count / 2) ** 0.5], 1)


def _of_stretches(
    past: Float[np.ndarray, "past 2"], new: Float[np.ndarray, "new 2"], length: int, centred: int
) -> Float[np.ndarray, " new"]:
    """Return the rarity of a statistic of stretches, by its past.

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
    spread = float(np.mean(np.minimum(before, _WIDEST * spread) ** 2)) ** 0.5
    windows = max(len(past) / length, 2.0)
    return 2 * stats.t.sf(now / (max(spread, _NARROWEST) * np.sqrt(1 + 1 / windows)), windows - 1)
