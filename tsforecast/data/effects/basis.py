"""A basis of curves: covariates as they are and smoothed over their past, by the time of day, and in pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings, steps_per_day

_DEGREE = 3
_KNOTS, _PAIR_KNOTS = 6, 4  # places of knots, at quantiles
_DAY, _WEEK_KINDS = 8, 3  # harmonics of a day; kinds of its days: of the week, Saturday, Sunday
_BY_HOUR, _YEAR = 3, 3  # harmonics of a day that curves change with; of a year
_SAME = 1e-12  # of the size of a covariate, up to which its deviation is rounding
_REACH = 1.0  # of the middle 98 % of a covariate's values beyond these: further values count as the last of them
DAYS_OF_YEAR = 365.25
_WIDEST = 400  # columns
_PER_COLUMN = 10  # values that a column wants at least
# What changes with the time of day, which half-lives, whether covariates bend, and pairs of them: the richest first.
_RICHNESS = (
    ("curve", slice(None), True, True),
    ("curve", slice(-2, None), True, False),
    ("line", slice(-2, None), True, False),
    ("line", slice(1), True, False),
    ("", slice(1), True, False),
    ("", slice(0), True, False),
    ("", slice(0), False, False),
)

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Signal:
    """A covariate, or an exponential mean of its past.

    Attributes:
        column: Its place among the covariates.
        half_life: Of the mean, in steps; 0 for the covariate itself.
        ends: Lowest and highest value of the covariate that counts as itself.
        centre: Mean of the training data.
        spread: Their standard deviation.
        knots: Of its curve; none for a straight line.
        means: Of the splines of this curve in the training data.
    """

    column: int
    half_life: float
    ends: tuple[float, float]
    centre: float
    spread: float
    knots: tuple[float, ...]
    means: tuple[float, ...]

    def line(self, values: Matrix) -> Matrix:
        """Return the signal as a column (time, 1)."""
        return ((values - self.centre) / self.spread)[:, None]

    def curve(self, values: Matrix) -> Matrix:
        """Return the splines of the signal less their means, (time, spline): their sum is no constant."""
        return splines(values, self.knots) - np.array(self.means)


def splines(values: Matrix, knots: tuple[float, ...]) -> Matrix:
    """Return cubic B-splines (time, knots + 2) over knots; beyond the last ones they stay as they are."""
    from scipy.interpolate import BSpline  # takes half a second to import, and few data have covariates

    low, high = knots[0], knots[-1]
    full = np.concatenate([[low] * _DEGREE, knots, [high] * _DEGREE])
    return BSpline.design_matrix(np.clip(values, low, high), full, _DEGREE).toarray()


def ends_of(values: Matrix) -> tuple[float, float]:
    """Return the lowest and the highest value (row,) that counts as itself: none far from the middle 98 %."""
    inner = np.quantile(values, [0.01, 0.99])
    reach = _REACH * (inner[1] - inner[0])
    low, high = float(values.min()), float(values.max())
    return (max(low, float(inner[0] - reach)), min(high, float(inner[1] + reach))) if reach > 0 else (low, high)


def signal_of(values: Matrix, column: int, half_life: float, ends: tuple[float, float], bends: bool) -> Signal | None:
    """Return the signal of values (row,) of the training data; None if they are all the same."""
    spread = values.std()
    if spread <= _SAME * max(np.abs(values).max(), 1e-300):
        return None
    # Inside of the outer values: an outlier would stretch the last piece of the curve.
    knots = np.unique(np.quantile(values, np.linspace(0.01, 0.99, _KNOTS)))
    curved = bends and len(np.unique(values[:: max(len(values) // 1000, 1)])) > 2 and len(knots) > 3
    own = tuple(map(float, knots)) if curved else ()
    means = tuple(splines(values, own).mean(0).tolist()) if own else ()
    return Signal(column, half_life, ends, float(values.mean()), float(spread), own, means)


def half_lives(freq: str) -> tuple[float, ...]:
    """Return the half-lives of means over the past, in steps: parts of a day and days, or a few steps."""
    day = steps_per_day(freq)
    return tuple(x * day for x in (0.125, 1.0, 3.0)) if day >= 4 else (1.0, 4.0)


def smoothed(values: Matrix, half_life: float, before: float | None) -> tuple[Matrix, float]:
    """Return the exponential mean (time,) of values until each step, and the one to go on from.

    Args:
        values: Of shape (time,).
        half_life: In steps.
        before: The mean before the first; None to begin with this.
    """
    from scipy.signal import lfilter  # likewise

    keep = 0.5 ** (1 / half_life)
    begin = values[0] if before is None else before
    found, _ = lfilter([1 - keep], [1, -keep], values, zi=[keep * begin])
    return found, float(found[-1]) if len(found) else begin


@dataclass(frozen=True)
class Basis:
    """Columns that curves are sums of.

    Attributes:
        freq: Frequency of the series.
        signals: The covariates and their means.
        by_hour: Whether lines ("line"), or curves too ("curve"), change with the time of day; "" for neither.
        pairs: Places of signals whose joint surface is a part, with the knots of both.
    """

    freq: str
    signals: tuple[Signal, ...]
    by_hour: str
    pairs: tuple[tuple[int, int, tuple[float, ...], tuple[float, ...]], ...]

    @property
    def smoothed(self) -> list[int]:
        """Return the places of the signals that are means over the past."""
        return [k for k, one in enumerate(self.signals) if one.half_life]

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return sum(_width(self))

    def groups(self, start: pd.Period, values: list[Matrix]) -> Iterator[tuple[str, Matrix]]:
        """Yield the parts of the basis with names, each of shape (time, column).

        Args:
            start: First period.
            values: Of each signal, (time,).
        """
        hours = day_harmonics(start, len(values[0]), _BY_HOUR) if self.by_hour else None
        for number, (signal, own) in enumerate(zip(self.signals, values, strict=True)):
            line = signal.line(own)
            yield f"{number} line", line
            if hours is not None:
                yield f"{number} line by hour", line * hours
            if signal.knots:
                curve = signal.curve(own)
                yield f"{number} curve", curve
                if hours is not None and self.by_hour == "curve" and not signal.half_life:
                    yield f"{number} curve by hour", _products(curve, hours)
        for first, second, knots, others in self.pairs:
            yield f"{first} with {second}", _products(splines(values[first], knots), splines(values[second], others))

    def columns(self, start: pd.Period, values: list[Matrix]) -> Matrix:
        """Return all columns side by side, (time, column)."""
        return np.concatenate([part for _, part in self.groups(start, values)], 1)

    def values(
        self, covariates: Matrix, before: dict[int, float] | None = None
    ) -> tuple[list[Matrix], dict[int, float]]:
        """Return the values of all signals, and the means at the end.

        Args:
            covariates: Of shape (time, covariate).
            before: Means by the signals' places, of the steps before; None where the series begins.
        """
        found, after = [], {}
        for number, signal in enumerate(self.signals):
            own = np.clip(covariates[:, signal.column], *signal.ends)
            if signal.half_life:
                own, after[number] = smoothed(own, signal.half_life, (before or {}).get(number))
            found.append(own)
        return found, after


def _products(first: Matrix, second: Matrix) -> Matrix:
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


def day_harmonics(start: pd.Period, length: int, harmonics: int) -> Matrix:
    """Return sines and cosines of the time of day, (time, 2 * harmonics)."""
    times = _times(start, length)
    return _waves(2 * np.pi * (times.hour + times.minute / 60) / 24, harmonics)


def calendar_groups(start: pd.Period, length: int, freq: str, yearly: bool) -> Iterator[tuple[str, Matrix]]:
    """Yield the columns of the calendar alone.

    It is the time of day by the kind of day, the day of the week, and the year: in a part of it that is any slow curve.
    """
    times = _times(start, length)
    weekday = np.asarray(times.dayofweek)
    if steps_per_day(freq) >= 4:
        kind = np.eye(_WEEK_KINDS)[np.where(weekday == 5, 1, np.where(weekday == 6, 2, 0))]
        highest = min(_DAY, int(steps_per_day(freq) // 2))
        yield "time of day", _products(kind, day_harmonics(start, length, highest))
    if steps_per_day(freq) >= 1:
        yield "day of week", np.eye(7)[weekday]
    if yearly and default_season(freq) > 1:
        yield "year", _waves(2 * np.pi * np.asarray(times.dayofyear) / DAYS_OF_YEAR, _YEAR)


def _times(start: pd.Period, length: int) -> Any:
    with expected_alias_warnings():
        return pd.period_range(start, periods=length, freq=start.freq)


def _waves(angle: Any, harmonics: int) -> Matrix:
    angle = np.asarray(angle, dtype=np.float64)
    return np.stack([f(k * angle) for k in range(1, harmonics + 1) for f in (np.sin, np.cos)], -1)


def basis_of(samples: list[Matrix], freq: str) -> Basis | None:
    """Return the richest basis that so many values can bear; None if no covariate varies.

    Args:
        samples: Covariates of each series, (time, covariate).
        freq: Their frequency.
    """
    count, lives, rows = samples[0].shape[1], half_lives(freq), sum(map(len, samples))
    within_day = steps_per_day(freq) >= 4
    basis = None
    for by_hour, means, bends, paired in _RICHNESS:
        basis = _basis(samples, freq, by_hour if within_day else "", lives[means], bends, paired)
        if basis is None or basis.width <= min(_WIDEST, max(rows // _PER_COLUMN, count)):
            return basis
    return basis


def _basis(
    samples: list[Matrix], freq: str, by_hour: str, means: tuple[float, ...], bends: bool, paired: bool
) -> Basis | None:
    signals: list[Signal] = []
    for column in range(samples[0].shape[1]):
        ends = ends_of(np.concatenate([x[:, column] for x in samples]))
        near = [np.clip(x[:, column], *ends) for x in samples]
        for half_life in (0.0, *means):
            values = [smoothed(x, half_life, None)[0] for x in near] if half_life else near
            one = signal_of(np.concatenate(values), column, half_life, ends, bends)
            signals += [] if one is None else [one]
    if not signals:
        return None
    own = [k for k, one in enumerate(signals) if one.knots and not one.half_life]
    pairs = [(a, b) for a in own for b in own if a < b] if paired else []
    knots = {k: _coarse(signals[k].knots) for k in own}
    return Basis(freq, tuple(signals), by_hour, tuple((a, b, knots[a], knots[b]) for a, b in pairs))


def _coarse(knots: tuple[float, ...]) -> tuple[float, ...]:
    """Return fewer knots with the same ends."""
    return tuple(np.quantile(knots, np.linspace(0, 1, _PAIR_KNOTS)).tolist())


def _width(basis: Basis) -> Iterator[int]:
    hours = 2 * _BY_HOUR
    for one in basis.signals:
        curve = len(one.knots) + _DEGREE - 1 if one.knots else 0
        by_hour = {"": 0, "line": 1, "curve": 1 + (0 if one.half_life else curve)}[basis.by_hour]
        yield 1 + curve + by_hour * hours
    for *_, first, second in basis.pairs:
        yield (len(first) + _DEGREE - 1) * (len(second) + _DEGREE - 1)
