"""A basis of curves: covariates as they are and smoothed over their past, by the time of day, and in pairs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import steps_per_day
from tsforecast.data.effects.calendar import day_harmonics, products

_DEGREE = 3
_KNOTS, _PAIR_KNOTS = 6, 4  # places of knots, at quantiles
_BY_HOUR = 3  # harmonics of a day that curves change with
_SAME = 1e-12  # of the size of a covariate, up to which its deviation is rounding
_REACH = 1.0  # ranges of the middle 98 % of a covariate's values, around these: further values count as the ends
_BEYOND = 0.05  # of these ranges: so far beyond the outermost values, lines go on
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
    """A covariate, or an exponential mean of its past."""

    column: int  # its place among the covariates
    half_life: float  # of the mean, in steps; 0 for the covariate itself
    ends: tuple[float, float]  # lowest and highest value of the covariate that counts as itself
    centre: float  # mean of the training data
    spread: float  # their standard deviation
    knots: tuple[float, ...]  # of its curve; none for a straight line
    means: tuple[float, ...]  # of the splines of this curve in the training data

    def line(self, values: Matrix) -> Matrix:
        """Return the signal as a column (time, 1)."""
        return ((values - self.centre) / self.spread)[:, None]

    def curve(self, values: Matrix) -> Matrix:
        """Return the splines of the signal less their means, (time, spline): their sum is no constant."""
        return splines(values, self.knots) - np.array(self.means)


def splines(values: Matrix, knots: tuple[float, ...]) -> Matrix:
    """Return cubic B-splines (time, knots + 2) over knots; beyond the last ones they stay as they are."""
    return _pieces(knots)(np.clip(values, knots[0], knots[-1]))


@lru_cache(maxsize=1000)
def _pieces(knots: tuple[float, ...]) -> Any:
    """Return all splines over knots as polynomials between them, for speed."""
    from scipy.interpolate import BSpline, PPoly  # takes half a second to import, and few data have covariates

    full = np.concatenate([[knots[0]] * _DEGREE, knots, [knots[-1]] * _DEGREE])
    pieces = [PPoly.from_spline(BSpline(full, one, _DEGREE)) for one in np.eye(len(knots) + _DEGREE - 1)]
    return PPoly(np.stack([one.c for one in pieces], -1), pieces[0].x)


def ends_of(values: Matrix) -> tuple[float, float]:
    """Return the lowest and the highest value that counts as itself: none far from the middle 98 % of values (row,)."""
    inner = np.quantile(values, [0.01, 0.99])
    reach, beyond = (share * (inner[1] - inner[0]) for share in (_REACH, _BEYOND))
    low, high = float(values.min() - beyond), float(values.max() + beyond)
    return (max(low, float(inner[0] - reach)), min(high, float(inner[1] + reach))) if reach > 0 else (low, high)


def signal_of(values: Matrix, column: int, half_life: float, ends: tuple[float, float], bends: bool) -> Signal | None:
    """Return the signal of values (row,) of the training data; None if they are all the same."""
    spread = values.std()
    if spread <= _SAME * max(np.abs(values).max(), 1e-300):
        return None
    # Inside of the outer values: an outlier would stretch the last piece of the curve.
    knots = np.quantile(values, np.linspace(0.01, 0.99, _KNOTS))
    # Long after a rare event its mean is next to nothing, and splines over such pieces are infinite.
    knots = knots[np.diff(knots, prepend=-np.inf) > _SAME * spread]
    curved = bends and len(np.unique(values[:: max(len(values) // 1000, 1)])) > 2 and len(knots) > 3
    own = tuple(map(float, knots)) if curved else ()
    means = tuple(splines(values, own).mean(0).tolist()) if own else ()
    return Signal(column, half_life, ends, float(values.mean()), float(spread), own, means)


def half_lives(freq: str) -> tuple[float, ...]:
    """Return the half-lives of means over the past, in steps: parts of a day and days, or a few steps."""
    day = steps_per_day(freq)
    return tuple(x * day for x in (0.125, 1.0, 3.0)) if day >= 4 else (1.0, 4.0)


def smoothed(values: Matrix, half_life: float, before: Matrix | float = np.nan) -> tuple[Matrix, Matrix]:
    """Return the exponential mean (..., time) of values until each step, and the one to go on from; NaN to begin."""
    from scipy.signal import lfilter  # takes time to import, and few data have covariates

    begin = np.broadcast_to(before, values.shape[:-1])
    if not values.shape[-1]:
        return values, begin
    keep, begin = 0.5 ** (1 / half_life), np.where(np.isnan(begin), values[..., 0], begin)
    found, _ = lfilter([1 - keep], [1, -keep], values, zi=keep * begin[..., None])
    return found, found[..., -1]


@dataclass(frozen=True)
class Basis:
    """Columns that curves are sums of."""

    freq: str  # frequency of the series
    signals: tuple[Signal, ...]  # the covariates and their means
    by_hour: str  # whether lines ("line"), or curves too ("curve"), change with the time of day; "" for neither
    # Places of signals whose joint surface is a part, with the knots of both.
    pairs: tuple[tuple[int, int, tuple[float, ...], tuple[float, ...]], ...]
    relative: tuple[int, ...] = ()  # covariates that count by the mean of their series

    @property
    def num_means(self) -> int:
        """Return the number of means of a series: of whole covariates, and of signals over their past."""
        return len(self.relative) + sum(one.half_life > 0 for one in self.signals)

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return sum(_width(self))

    def without(self, column: int) -> "Basis":
        """Return the basis without a covariate."""
        kept = [k for k, one in enumerate(self.signals) if one.column != column]
        places = {k: place for place, k in enumerate(kept)}
        pairs = ((places[a], places[b], *knots) for a, b, *knots in self.pairs if a in places and b in places)
        return replace(self, signals=tuple(self.signals[k] for k in kept), pairs=tuple(pairs))

    def groups(self, times: Any, values: list[Matrix]) -> Iterator[tuple[frozenset[int], Matrix]]:
        """Yield the parts of the basis, each of shape (time, column), with the covariates that they are made of."""
        hours = day_harmonics(times, _BY_HOUR) if self.by_hour else None
        for signal, own in zip(self.signals, values, strict=True):
            line, covariate = signal.line(own), frozenset([signal.column])
            yield covariate, line
            if hours is not None:
                yield covariate, line * hours
            if signal.knots:
                curve = signal.curve(own)
                yield covariate, curve
                if hours is not None and self.by_hour == "curve" and not signal.half_life:
                    yield covariate, products(curve, hours)
        for first, second, knots, others in self.pairs:
            both = frozenset([self.signals[first].column, self.signals[second].column])
            yield both, products(splines(values[first], knots), splines(values[second], others))

    def values(self, covariates: Matrix, before: Matrix | float = np.nan) -> tuple[list[Matrix], Matrix]:
        """Return values (..., time) of all signals of covariates, and means at the end, given means before."""
        known = np.broadcast_to(before, (*covariates.shape[:-2], self.num_means))
        if not covariates.shape[-2]:
            return [np.zeros(covariates.shape[:-1])] * len(self.signals), known
        covariates, found, after = covariates.copy(), [], list[Matrix]()
        for column in self.relative:
            mean = np.where(np.isnan(known[..., len(after)]), covariates[..., column].mean(-1), known[..., len(after)])
            covariates[..., column] /= np.where(mean == 0, 1.0, mean)[..., None]  # free goods of a new series
            after.append(mean)
        for signal in self.signals:
            own = np.clip(covariates[..., signal.column], *signal.ends)
            if signal.half_life:
                own, last = smoothed(own, signal.half_life, known[..., len(after)])
                after.append(last)
            found.append(own)
        return found, np.stack(after, -1) if after else known


def basis_of(samples: list[Matrix], freq: str, columns: Sequence[int] | None = None) -> Basis | None:
    """Return the richest basis that so many values (time, covariate) of series can bear; None if none varies."""
    relative = relative_in(samples)
    samples = [_by_mean(x, relative) for x in samples]
    columns = range(samples[0].shape[1]) if columns is None else columns
    count, lives, rows = len(columns), half_lives(freq), sum(map(len, samples))
    within_day = steps_per_day(freq) >= 4
    basis = None
    for by_hour, means, bends, paired in _RICHNESS:
        basis = _basis(samples, columns, freq, by_hour if within_day else "", lives[means], bends, paired)
        if basis is None or basis.width <= min(_WIDEST, max(rows // _PER_COLUMN, count)):
            break
    return None if basis is None else replace(basis, relative=relative)


def relative_in(samples: list[Matrix]) -> tuple[int, ...]:
    """Return covariates that differ more between series than within them, as prices of goods do: all are positive."""
    found = []
    for column in range(samples[0].shape[1] if len(samples) > 1 else 0):
        values = [x[:, column] for x in samples]
        if min(x.min() for x in values) > 0:
            logs = [np.log(x) for x in values]
            if np.var([x.mean() for x in logs]) > np.mean([x.var() for x in logs]) > 0:
                found.append(column)
    return tuple(found)


def _by_mean(values: Matrix, columns: tuple[int, ...]) -> Matrix:
    some = list(columns)
    values = values.copy()
    values[:, some] /= values[:, some].mean(0)
    return values


def _basis(
    samples: list[Matrix],
    columns: Sequence[int],
    freq: str,
    by_hour: str,
    means: tuple[float, ...],
    bends: bool,
    paired: bool,
) -> Basis | None:
    signals: list[Signal] = []
    for column in columns:
        ends = ends_of(np.concatenate([x[:, column] for x in samples]))
        near = [np.clip(x[:, column], *ends) for x in samples]
        for half_life in (0.0, *means):
            values = [smoothed(x, half_life)[0] for x in near] if half_life else near
            one = signal_of(np.concatenate(values), column, half_life, ends, bends)
            signals += [] if one is None else [one]
    if not signals:
        return None
    own = [k for k, one in enumerate(signals) if one.knots and not one.half_life]
    pairs = [(a, b) for a in own for b in own if a < b] if paired else []
    # Fewer knots with the same ends.
    knots = {k: tuple(np.quantile(signals[k].knots, np.linspace(0, 1, _PAIR_KNOTS)).tolist()) for k in own}
    return Basis(freq, tuple(signals), by_hour, tuple((a, b, knots[a], knots[b]) for a, b in pairs))


def _width(basis: Basis) -> Iterator[int]:
    hours = 2 * _BY_HOUR
    for one in basis.signals:
        curve = len(one.knots) + _DEGREE - 1 if one.knots else 0
        by_hour = {"": 0, "line": 1, "curve": 1 + (0 if one.half_life else curve)}[basis.by_hour]
        yield 1 + curve + by_hour * hours
    for *_, first, second in basis.pairs:
        yield (len(first) + _DEGREE - 1) * (len(second) + _DEGREE - 1)
