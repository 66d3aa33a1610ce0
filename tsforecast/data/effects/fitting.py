"""The fit of effects of covariates: basis, scale and coefficients."""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, has_clock, steps_per_day
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.basis import Basis, basis_of
from tsforecast.data.effects.calendar import DAYS_OF_YEAR, calendar_groups, periods
from tsforecast.data.effects.count_response import BEND
from tsforecast.data.effects.effects import COVARIATES, Effects, name_of, size_of
from tsforecast.data.effects.link import BENDS, linked, log_slope
from tsforecast.data.effects.regression import Fit, differences, differences_of_counts, fit, fit_counts
from tsforecast.data.effects.screening import Evidence, useless
from tsforecast.data.low_counts import are_mostly_low

log = logging.getLogger(__name__)

_ROWS, _OF_ALL = 40_000, 400_000  # values of a series, and of all, that are fitted to
_WORK = 6.4e9  # values times squared columns, about: with many columns, fewer values
_ROUNDS = 6  # of the regression, and half of them where a scale is chosen
_CHOOSING = 10_000  # values by which the scale is chosen
_MOST = 256  # series that are fitted to
_OWN, _OWN_LENGTH = 32, 20  # series that say whether own curves help; values a column of these wants
_NARROW = 7  # columns of a group, at most, that lines and days of the week have
_DIRECTIONS, _LEFT_OUT = 24, 0.005  # of the uncertainty of coefficients, at most; share of it that is left out
_RARE = 1e-9  # deviation of a column that does not count

Array = NDArray[np.float64]


_KNOWN: dict[bytes, Effects | None] = {}  # the last ones: the candidates of a choice have the same data


def fit_effects(data: Iterable[dict[str, Any]], freq: str) -> Effects | None:
    """Return the effects of covariates; None if none of these varies.

    Of very many series some are fitted to, and the last steps of long ones.
    """
    entries = _with_values(data)
    if not entries:
        return None
    digest = hashlib.blake2b(f"{freq} {len(entries)}".encode())
    for entry in entries:
        digest.update(f"{entry['start']} {entry.get('item_id')}".encode())
        digest.update(np.ascontiguousarray(as_numbers(entry["target"])).tobytes())
        digest.update(np.ascontiguousarray(as_numbers(entry[COVARIATES])).tobytes())
    key = digest.digest()
    if key not in _KNOWN:
        while len(_KNOWN) > 2:  # of all data, and of what lies before windows: all of it, or series that teach
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[key] = _fitted(entries, freq)
    return _KNOWN[key]


def no_effects(data: Iterable[dict[str, Any]], freq: str) -> Effects:
    """Return effects of no covariate, by which a model sees none of them; a ValueError if targets are several."""
    entries = _with_values(data)
    found = _fitted(entries, freq, Basis(freq, (), "", ()))
    assert found is not None
    return found


def refit_without(data: Iterable[dict[str, Any]], effects: Effects, column: int) -> Effects:
    """Return effects of all covariates but one, with the same columns and on the same scale as others."""
    found = _fitted(_with_values(data), effects.basis.freq, effects.basis.without(column), effects.bend)
    assert found is not None
    return found


def _with_values(data: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [entry for entry in data if np.isfinite(as_numbers(entry["target"]).astype(np.float64)).any()]
    if any(np.ndim(entry["target"]) > 1 for entry in found):
        raise ValueError(
            "expected one target where covariates have effects, or none, got several: leave out effects, and the "
            "model has a straight line for each covariate, or leave out covariates"
        )
    return found


@dataclass(frozen=True)
class _Sample:
    """The series that are fitted to: columns of deviation 1, of the covariates and behind them of the calendar."""

    columns: list[Array]  # of each series, (time, column)
    targets: list[Array]  # of each series, (time,)
    sizes: list[float]  # of each series
    groups: NDArray[np.int64]  # number of the group of each column
    lags: tuple[int, ...]  # of the errors
    units: Array  # mean and deviation of each column before, (2, column)
    owners: list[frozenset[int]]  # the covariates that the columns of each group are made of
    firsts: list[int]  # the time of the first step of each series
    events: frozenset[int]  # covariates of two values
    are_counts: bool  # low ones, whose mean has effects on its logarithm

    def on_scale(self, bend: float, last: int) -> tuple[list[Array], list[Array]]:
        """Return columns and targets of the last steps of each series, on a scale."""
        values = [target[-last:] for target in self.targets]
        if not self.are_counts:
            values = [linked(target, bend, size) for target, size in zip(values, self.sizes, strict=True)]
        return [own[-last:] for own in self.columns], values

    def fit(self, bend: float, last: int, rounds: int, own: bool = True) -> Fit:
        """Return the fit to these, in which coefficients differ from series to series or not."""
        columns, targets = self.on_scale(bend, last)
        differ = self.own if own and len(columns) > 1 else None
        if self.are_counts:
            return fit_counts(columns, targets, self.groups, rounds, differ)
        return fit(columns, targets, self.groups, self.lags, rounds, differ)

    def differences(self, bend: float, last: int, found: Fit) -> Array:
        """Return what coefficients of each series differ by, (series, column)."""
        columns, targets = self.on_scale(bend, last)
        if self.are_counts:
            return differences_of_counts(columns, targets, found, _ROUNDS // 2)
        return differences(columns, targets, self.lags, found)

    @property
    def own(self) -> NDArray[np.bool_]:
        """Return the columns whose coefficients differ: all where series are long, and those of lines elsewhere."""
        if min(map(len, self.targets)) >= _OWN_LENGTH * len(self.groups):
            return np.ones(len(self.groups), bool)
        return (np.bincount(self.groups) <= _NARROW)[self.groups]

    def useless(self, bend: float, last: int, found: Fit) -> set[int]:
        """Return the covariates that do not help to predict these steps from earlier ones, or in curves of long series.

        Those of short series would take what wanders for a cause, and each its own.
        """
        columns, targets = self.on_scale(bend, last)
        starts = [first + len(own) - len(y) for first, own, y in zip(self.firsts, self.targets, targets, strict=True)]
        if self.are_counts:
            evidence = Evidence.of_counts(columns, targets, found, starts)
            return useless([evidence], self.groups, self.owners, self.events)
        dropped = useless(
            [Evidence.of(columns, targets, self.lags, found, starts)], self.groups, self.owners, self.events
        )
        if not dropped or not self.own.all() or not found.own.any():
            return dropped
        apart = replace(found, prior=found.own, coefficients=np.zeros_like(found.coefficients))
        pairs = [(x, y - x @ found.coefficients) for x, y in zip(columns[:_OWN], targets[:_OWN], strict=True)]
        own = [Evidence.of([x], [y], self.lags, apart, [0]) for x, y in pairs]
        return dropped & useless(own, self.groups, self.owners, self.events)

    def log_density(self, bend: float, last: int) -> float:
        """Return the mean log-density of these steps, in the units of the data."""
        pairs = [(target[-last:], size) for target, size in zip(self.targets, self.sizes, strict=True)]
        slopes = [log_slope(target[np.isfinite(target)], bend, size) for target, size in pairs]
        return self.fit(bend, last, _ROUNDS // 2, own=False).log_density + float(np.concatenate(slopes).mean())


def _fitted(
    entries: list[dict[str, Any]], freq: str, basis: Basis | None = None, bend: float | None = None
) -> Effects | None:
    """Return the effects; of a basis and on a scale that are chosen where they are None."""
    targets = [as_numbers(entry["target"]).astype(np.float64) for entry in entries]
    sizes = [size_of(target) for target in targets]
    some = np.random.default_rng(0).permutation(len(entries))[:_MOST]
    covariates = [_covariates(entries[k]) for k in some]
    given, count = basis, covariates[0].shape[1]
    if basis is None and all(np.nanmax(target) == np.nanmin(target) for target in targets):
        basis = Basis(freq, (), "", ())  # nothing moves that an effect could move
    basis = basis_of(covariates, freq) if basis is None else basis
    if basis is None:
        return None
    last = _steps(basis, len(some))
    if basis.signals and (len(some) < len(entries) or max(map(len, targets)) > last):
        log.info("effects of covariates: %d of %d series, %d steps at most", len(some), len(entries), last)
    names = {name: size for entry, size in zip(entries, sizes, strict=True) if (name := name_of(entry))}
    lowest = 0.0 if min(np.nanmin(target) for target in targets) >= 0 else -np.inf
    are_counts = are_mostly_low(entries) and not has_clock(freq)
    yearly = max(map(len, targets)) > DAYS_OF_YEAR * steps_per_day(freq)
    while basis.signals:
        sample = _sample(basis, [entries[k] for k in some], [sizes[k] for k in some], last, yearly, are_counts)
        recent = max(_CHOOSING // len(some), min(last, 4 * max(sample.lags)))
        scale = bend or BEND
        if bend is None and not sample.are_counts:
            scale = max(BENDS, key=lambda one: sample.log_density(one, recent))
        found, width = sample.fit(scale, last, _ROUNDS), basis.width
        dropped = set() if given else sample.useless(scale, last, found)
        if dropped:
            kept = sorted({one.column for one in basis.signals} - dropped)
            basis = basis_of(covariates, freq, kept) or replace(basis, signals=(), pairs=())
            continue
        spreads, own = sample.units[1, :width] / (scale if sample.are_counts else 1.0), dict[str, Array]()
        for begin in range(0, len(entries) * bool(found.own[:width].any()), _MOST):
            chunk = slice(begin, begin + _MOST)
            part = _sample(basis, entries[chunk], sizes[chunk], last, yearly, are_counts, sample.units)
            more = part.differences(scale, last, found)[:, :width] / spreads
            pairs = zip(entries[chunk], more, strict=True)
            own |= {name: one for entry, one in pairs if (name := name_of(entry))}  # series without a name share all
        coefficients, columns = found.coefficients[:width] / spreads, np.concatenate(sample.columns)[:, :width]
        doubt = _factor(found.covariance[:width, :width], columns) / spreads[:, None]
        return Effects(basis, count, scale, sample.units[0, :width], coefficients, doubt, own, names, lowest)
    return Effects(basis, count, np.inf, np.zeros(0), np.zeros(0), np.zeros((0, 0)), {}, names, lowest)


def _covariates(entry: dict[str, Any]) -> Array:
    """Return the covariates of an entry beside its target, (time, covariate)."""
    return as_numbers(entry[COVARIATES]).astype(np.float64).T[: np.shape(entry["target"])[-1]]


def _steps(basis: Basis, series: int) -> int:
    """Return the number of steps of each series in the fit."""
    every = np.clip(_WORK / max(basis.width, 1) ** 2, _ROWS, _OF_ALL)
    return int(max(min(_ROWS, every // series), 1))


def _sample(
    basis: Basis,
    entries: list[dict[str, Any]],
    sizes: list[float],
    last: int,
    yearly: bool,
    are_counts: bool,
    units: Array | None = None,
) -> _Sample:
    """Return the columns of a basis beside the last values of each series; their own units where None."""
    parts, owners, widths, targets, firsts = (
        list[Array](),
        list[frozenset[int]](),
        list[int](),
        list[Array](),
        list[int](),
    )
    for entry in entries:
        given, target = _covariates(entry), as_numbers(entry["target"]).astype(np.float64)[-last:]
        times = periods(entry["start"], len(given))
        groups = [*basis.groups(times, basis.values(given)[0])]
        groups += [(frozenset(), part) for part in calendar_groups(times, basis.freq, yearly)]
        owners, widths = [of for of, _ in groups], [part.shape[1] for _, part in groups]
        parts.append(np.concatenate([part[-len(target) :] for _, part in groups], 1))
        targets.append(target)
        firsts.append(entry["start"].ordinal + len(given) - len(target))
    if units is None:
        every = np.concatenate(parts)
        spreads = every.std(0)
        units = np.stack([every.mean(0), np.where(spreads > _RARE, spreads, np.inf)])
    columns, places = [(part - units[0]) / units[1] for part in parts], np.repeat(np.arange(len(widths)), widths)
    lags = _lags(basis.freq, max(map(len, targets)))
    values = np.concatenate([_covariates(entry) for entry in entries])
    events = frozenset(k for k, one in enumerate(values.T) if np.isin(one, [one.min(), one.max()]).all())
    return _Sample(columns, targets, sizes, places, lags, units, owners, firsts, events, are_counts)


def _factor(covariance: Array, columns: Array) -> Array:
    """Return a narrow root of a covariance, (column, direction): its product with itself is nearly that.

    Directions are left out that are the least of the variance of sums of the columns, on average over their rows.
    """
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    product = columns @ root
    shares, turned = np.linalg.eigh(product.T @ product)
    kept = np.cumsum(shares) > _LEFT_OUT * shares.sum()
    kept[:-_DIRECTIONS] = False
    return root @ turned[:, kept]


def _lags(freq: str, longest: int) -> tuple[int, ...]:
    """Return the lags of the errors: a step, a season, and a week of days."""
    season = default_season(freq)
    wanted = [1, *([season] if season > 1 else []), *([7 * season] if steps_per_day(freq) >= 4 < season else [])]
    return tuple(lag for lag in wanted if 3 * lag < longest) or (1,)
