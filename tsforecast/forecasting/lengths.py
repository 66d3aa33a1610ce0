"""How much is trained on where nobody says: by the frequency, and by the cycle of a smooth season."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tsforecast.data.calendar.frequency import calendar_unit, default_season, has_clock
from tsforecast.models.parts.bank_prior import learnt

# A batch of 64 windows with the seasons of hours then takes about a gigabyte to train on.
_LONGEST_CONTEXT = 2000
_WINDOWS, _LEAST_WINDOWS = 64, 8  # in a batch
_USUAL_LENGTH = 700  # steps of windows, of which a batch has all windows: four weeks of hours
_LONG = 20  # seasons of a series that is long
# Steps of a window of a bank above which its priors are better than what it learns, and series below whose number.
_MOST_LEARNT, _FEWEST_SERIES = 400, 20
INDEPENDENT = 10  # series, as which a set must count to teach a bank all the way
_CLIPPED = 4.0  # standard deviations of a change, at most, in a correlation of series
_FAR = 3  # horizons of hours that a model without a calendar is trained on: from one alone it drifts in later days


def context_by_frequency(freq: str, cycle: int) -> int:
    """Return the number of steps of the past in a training window, by frequency and the cycle of a smooth season."""
    unit, season = calendar_unit(freq)[1], default_season(freq)
    if has_clock(freq):
        usual = 28 * season
    else:
        usual = {"D": 120, "B": 250}.get(unit, max(10 * season, 100))
    return min(max(usual, cycle), _LONGEST_CONTEXT)


def recent_by_frequency(freq: str, cycle: int) -> int:
    """Return the number of steps of eight weeks where a day is the main season, else or for longer cycles 0."""
    per_day = default_season(freq) if has_clock(freq) else 0
    return 56 * per_day if 2 * cycle <= 56 * per_day else 0


def far_by_frequency(freq: str, prediction_length: int) -> int:
    """Return the steps of the future that windows of a model without a calendar score: of hours three horizons."""
    return (_FAR if has_clock(freq) else 1) * prediction_length


def are_long(lengths: Sequence[int], freq: str) -> bool:
    """Return whether series of so many steps are long: parameters of each may pay, and so may long windows."""
    return bool(np.median(lengths) >= _LONG * max(default_season(freq), 10))


def window_of_bank(freq: str, prediction_length: int, lengths: Sequence[int]) -> int:
    """Return the steps of a training window of a bank: by frequency, or of the median series where it is shorter."""
    return int(min(context_by_frequency(freq, 0) + prediction_length, np.median(lengths)))


def bank_learns(freq: str, prediction_length: int, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a bank learns from series where no comparison says whether it should.

    It does not from few series, nor by long windows, unless nothing is known of the frequency.
    """
    if learnt(freq) is None:
        return True
    return len(entries) >= _FEWEST_SERIES and window_is_short(freq, prediction_length, entries)


def window_is_short(freq: str, prediction_length: int, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the training windows of a bank are so short that it may learn from them better than its prior."""
    lengths = [entry["target"].shape[-1] for entry in entries]
    return window_of_bank(freq, prediction_length, lengths) <= _MOST_LEARNT


def windows_by_length(length: int) -> int:
    """Return the number of windows in a batch of a model whose parameters all series share, by their length.

    Windows of that many steps tell such parameters as well as several short ones, and take as long.
    """
    return max(min(_WINDOWS, _WINDOWS * _USUAL_LENGTH // length), _LEAST_WINDOWS)


def effective_number(entries: Sequence[Mapping[str, Any]], season: int) -> float:
    """Return the number of independent series that would teach as much: n / (1 + (n - 1) r) (Kish 1965).

    The r is the mean correlation of pairs of series: of the changes from one season to the next, or of steps where most
    series have fewer than two seasons. The n series are those that change; it is 1 if none does.
    """
    targets = [(entry["start"], np.asarray(row)) for entry in entries for row in np.atleast_2d(entry["target"])]
    lag = season if np.median([len(row) for _, row in targets]) > 2 * season else 1
    steps, standard = [], []
    for start, row in targets:
        change = row[lag:].astype(np.float64) - row[:-lag]
        known = np.flatnonzero(np.isfinite(change))
        spread = change[known].std() if len(known) else 0.0
        if spread > 0:
            steps.append(start.ordinal // start.freq.n + known)
            standard.append(np.clip((change[known] - change[known].mean()) / spread, -_CLIPPED, _CLIPPED))
    if not steps:
        return 1.0
    _, at = np.unique(np.concatenate(steps), return_inverse=True)
    values = np.concatenate(standard)
    sums, squares, counts = (np.bincount(at, weights) for weights in (values, values**2, None))
    pairs = (counts * (counts - 1.0)).sum()
    correlation = max((sums**2 - squares).sum() / pairs, 0.0) if pairs else 0.0
    return len(standard) / (1 + (len(standard) - 1) * correlation)
