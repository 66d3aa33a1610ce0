"""The fit of effects of covariates: basis, scale and coefficients."""

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, steps_per_day
from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.basis import Basis, basis_of
from tsforecast.data.effects.calendar import DAYS_OF_YEAR, calendar_groups, periods
from tsforecast.data.effects.effects import COVARIATES, Effects, name_of, size_of
from tsforecast.data.effects.link import BENDS, linked, log_slope
from tsforecast.data.effects.regression import Fit, fit
from tsforecast.data.effects.screening import blocks_of, useless

log = logging.getLogger(__name__)

_ROWS = 40_000  # values that are fitted to: four and a half years of hours
_ROUNDS = 6  # of the regression, and half of them where a scale is chosen
_CHOOSING = 10_000  # values by which the scale is chosen
_MOST = 256  # series that are fitted to
_OWN, _OWN_LENGTH = 32, 20  # series, at most, with curves of their own; values a column wants for that
_DIRECTIONS, _LEFT_OUT = 24, 0.005  # of the uncertainty of coefficients, at most; share of it that is left out
_RARE = 1e-9  # deviation of a column that does not count

Array = NDArray[np.float64]


_KNOWN: dict[bytes, Effects | None] = {}  # the last ones: the candidates of a choice have the same data


def fit_effects(data: Iterable[dict[str, Any]], freq: str) -> Effects | None:
    """Return the effects of covariates; None if none of these varies, or targets are several.

    Of very many series some are fitted to, and the last steps of long ones.

    Args:
        data: GluonTS data entries with `feat_dynamic_real`.
        freq: Their frequency.
    """
    entries = _with_values(data)
    if not entries or any(np.ndim(entry["target"]) > 1 for entry in entries):
        return None
    digest = hashlib.blake2b(f"{freq} {len(entries)}".encode())
    for entry in entries:
        digest.update(f"{entry['start']} {entry.get('item_id')}".encode())
        digest.update(np.ascontiguousarray(as_numbers(entry["target"])).tobytes())
        digest.update(np.ascontiguousarray(as_numbers(entry[COVARIATES])).tobytes())
    key = digest.digest()
    if key not in _KNOWN:
        while len(_KNOWN) > 1:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[key] = _fitted(entries, freq)
    return _KNOWN[key]


def no_effects(data: Iterable[dict[str, Any]], freq: str) -> Effects:
    """Return effects of no covariate, by which a model sees none of them.

    Args:
        data: GluonTS data entries with `feat_dynamic_real`.
        freq: Their frequency.

    Raises:
        ValueError: If targets are several.
    """
    entries = _with_values(data)
    if any(np.ndim(entry["target"]) > 1 for entry in entries):
        raise ValueError("expected one target where effects are 'none', got several: leave covariates out of the data")
    found = _fitted(entries, freq, Basis(freq, (), "", ()))
    assert found is not None
    return found


def refit_without(data: Iterable[dict[str, Any]], effects: Effects, column: int) -> Effects:
    """Return effects of all covariates but one, with the same columns and on the same scale as others.

    Args:
        data: GluonTS data entries, as `fit_effects` takes them.
        effects: Fitted to the same data.
        column: The place of the covariate that is left out.
    """
    found = _fitted(_with_values(data), effects.basis.freq, effects.basis.without(column), effects.bend)
    assert found is not None
    return found


def _with_values(data: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in data if np.isfinite(as_numbers(entry["target"]).astype(np.float64)).any()]


@dataclass(frozen=True)
class _Sample:
    """The series that are fitted to: columns of deviation 1, of the covariates and behind them of the calendar.

    Attributes:
        columns: Of each series, (time, column).
        targets: Of each series, (time,).
        sizes: Of each series.
        groups: Number of the group of each column.
        lags: Of the errors.
        units: Mean and deviation of each column before, (2, column).
        owners: The covariates that the columns of each group are made of.
    """

    columns: list[Array]
    targets: list[Array]
    sizes: list[float]
    groups: NDArray[np.int64]
    lags: tuple[int, ...]
    units: Array
    owners: list[frozenset[int]]

    def on_scale(self, bend: float, last: int) -> tuple[list[Array], list[Array]]:
        """Return columns and targets of the last steps of each series, on a scale."""
        pairs = zip(self.targets, self.sizes, strict=True)
        values = [linked(target[-last:], bend, size) for target, size in pairs]
        return [own[-last:] for own in self.columns], values

    def fit(self, bend: float, last: int, rounds: int) -> Fit:
        """Return the fit to these."""
        return fit(*self.on_scale(bend, last), self.groups, self.lags, rounds)

    def useless(self, bend: float, last: int, found: Fit, own: list[Fit]) -> set[int]:
        """Return the covariates that do not help to predict these steps from earlier ones, for all or in own curves."""
        blocks = blocks_of(*self.on_scale(bend, last), self.lags, found)
        of_own = [
            block
            for number, one in enumerate(own)
            for block in blocks_of([self.columns[number]], [self.rest(number, bend, found)], self.lags, one)
        ]
        dropped = useless(blocks, self.groups, self.owners)
        return dropped & useless(of_own, self.groups, self.owners) if own and dropped else dropped

    def log_density(self, bend: float, last: int) -> float:
        """Return the mean log-density of these steps, in the units of the data."""
        pairs = [(target[-last:], size) for target, size in zip(self.targets, self.sizes, strict=True)]
        slopes = [log_slope(target[np.isfinite(target)], bend, size) for target, size in pairs]
        return self.fit(bend, last, _ROUNDS // 2).log_density + float(np.concatenate(slopes).mean())

    def rest(self, number: int, bend: float, found: Fit) -> Array:
        """Return what a fit leaves of a series."""
        return linked(self.targets[number], bend, self.sizes[number]) - self.columns[number] @ found.coefficients

    def deviations(self, number: int, bend: float, found: Fit) -> Fit:
        """Return the fit of the coefficients of a series less those of all."""
        return fit([self.columns[number]], [self.rest(number, bend, found)], self.groups, self.lags, _ROUNDS)


def _fitted(
    entries: list[dict[str, Any]], freq: str, basis: Basis | None = None, bend: float | None = None
) -> Effects | None:
    """Return the effects; of a basis and on a scale that are chosen where they are None."""
    targets = [as_numbers(entry["target"]).astype(np.float64) for entry in entries]
    sizes = [size_of(target) for target in targets]
    some = np.random.default_rng(0).permutation(len(entries))[:_MOST]
    last = max(_ROWS // len(some), 1)
    is_fitted = basis is None or bool(basis.signals)
    if is_fitted and (len(some) < len(entries) or max(map(len, targets)) > last):
        log.info("effects of covariates: %d of %d series, %d steps at most", len(some), len(entries), last)
    covariates = [as_numbers(entries[k][COVARIATES]).astype(np.float64).T[: len(targets[k])] for k in some]
    given, count = basis, covariates[0].shape[1]
    basis = basis_of(covariates, freq) if basis is None else basis
    if basis is None:
        return None
    names = {name: size for entry, size in zip(entries, sizes, strict=True) if (name := name_of(entry))}
    lowest = 0.0 if min(np.nanmin(target) for target in targets) >= 0 else -np.inf
    starts, values = [entries[k]["start"] for k in some], [targets[k][-last:] for k in some]
    yearly = max(map(len, targets)) > DAYS_OF_YEAR * steps_per_day(freq)
    while basis.signals:
        sample = _sample(basis, starts, covariates, values, [sizes[k] for k in some], yearly)
        recent = max(_CHOOSING // len(some), min(last, 4 * max(sample.lags)))
        scale = max(BENDS, key=lambda one: sample.log_density(one, recent)) if bend is None else bend
        found, width = sample.fit(scale, last, _ROUNDS), basis.width
        long = 1 < len(entries) <= _OWN and min(map(len, values)) >= _OWN_LENGTH * width
        fits = [sample.deviations(number, scale, found) for number in range(len(some) * long)]
        dropped = set() if given else sample.useless(scale, last, found, fits)
        if dropped:
            kept = sorted({one.column for one in basis.signals} - dropped)
            basis = basis_of(covariates, freq, kept) or replace(basis, signals=(), pairs=())
            continue
        centres, spreads = sample.units[:, :width]
        # Series without a name share all.
        own = {
            name: one.coefficients[:width] / spreads
            for k, one in zip(some, fits, strict=False)
            if (name := name_of(entries[k]))
        }
        coefficients, columns = found.coefficients[:width] / spreads, np.concatenate(sample.columns)[:, :width]
        doubt = _factor(found.covariance[:width, :width], columns) / spreads[:, None]
        return Effects(basis, count, scale, centres, coefficients, doubt, own, names, lowest)
    return Effects(basis, count, np.inf, np.zeros(0), np.zeros(0), np.zeros((0, 0)), {}, names, lowest)


def _sample(
    basis: Basis, starts: list[Any], covariates: list[Array], values: list[Array], sizes: list[float], yearly: bool
) -> _Sample:
    """Return the columns of a basis beside the last values of each series."""
    parts, owners, widths = list[Array](), list[frozenset[int]](), list[int]()
    for start, given, value in zip(starts, covariates, values, strict=True):
        times = periods(start, len(given))
        groups = [*basis.groups(times, basis.values(given)[0])]
        groups += [(frozenset(), part) for part in calendar_groups(times, basis.freq, yearly)]
        owners, widths = [of for of, _ in groups], [part.shape[1] for _, part in groups]
        parts.append(np.concatenate([part[-len(value) :] for _, part in groups], 1))
    every = np.concatenate(parts)
    centres, spreads = every.mean(0), every.std(0)
    spreads = np.where(spreads > _RARE, spreads, np.inf)
    columns, places = [(part - centres) / spreads for part in parts], np.repeat(np.arange(len(widths)), widths)
    lags = _lags(basis.freq, max(map(len, values)))
    return _Sample(columns, values, sizes, places, lags, np.stack([centres, spreads]), owners)


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
