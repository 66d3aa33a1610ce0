"""Classical forecasts to compare with: naive, empirical random walk, and those of statsforecast.

A name is the method as its library has it. Each is fitted once, on the training range, and carried to later forecast
dates without refitting, so a baseline knows exactly what a model knows. Forecasts are quantiles at every level that
`score` reads. Where a series has no negative value before the forecast, negative quantiles are set to 0. A series that
is forecast in another way than the name says is counted among the deviations.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset import Dataset
from gluonts.model import Forecast, Predictor, QuantileForecast

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.evaluation.classical import CLASSICS, INSTALL, Classical, is_installed, plausible
from tsforecast.evaluation.metrics import LEVELS, Array
from tsforecast.processes import imported_once
from tsforecast.progress import follow

logger = logging.getLogger(__name__)

_LEVELS = np.array(LEVELS)
_NORMAL = np.array([NormalDist().inv_cdf(level) for level in _LEVELS])
_CYCLES = 3  # of a season that a history must have

# How a series is forecast where it is not as the name says.
NO_SEASON = f"series shorter than {_CYCLES} seasons: without a season"
ADDITIVE = "series whose quantiles overflow: searched over additive forms"
NAIVE = "fits failed or overflowed: a random walk"
NAIVE_LATER = "forecasts overflowed at a later date: a random walk"


@dataclass(frozen=True)
class SeasonalNaive:
    """The value one season ago, with Gaussian errors; their variance grows by each season ahead."""

    season: int  # lag in steps; 1 is a random walk
    std: float  # root mean square of the training range's changes over one season

    @classmethod
    def fit(cls, history: Array, season: int) -> "SeasonalNaive":
        """Fits to a training range; one not longer than the season is taken as a random walk."""
        season = season if len(history) > season else 1
        change = history[season:] - history[:-season]
        return cls(season, float(np.sqrt(np.mean(change**2))) if len(change) else 0.0)

    def quantiles(self, history: Array, length: int) -> Array:
        """Quantiles (level, length) after `history`."""
        seasons = np.arange(length) // self.season + 1
        return _last_season(history, self.season, length) + self.std * np.sqrt(seasons) * _NORMAL[:, None]


@dataclass(frozen=True)
class EmpiricalChanges:
    """The value one season ago plus the quantiles of all changes over seasons that the training range has seen."""

    season: int  # lag in steps; 1 is the empirical random walk
    training: Array  # the training range

    @classmethod
    def fit(cls, history: Array, season: int) -> "EmpiricalChanges":
        """Fits to a training range; one not longer than the season is taken as a random walk."""
        return cls(season if len(history) > season else 1, history)

    def quantiles(self, history: Array, length: int) -> Array:
        """Quantiles (level, length) after `history`."""
        seasons = np.arange(length) // self.season + 1
        changes = np.stack([self._change(count) for count in range(1, int(seasons[-1]) + 1)], axis=1)
        return _last_season(history, self.season, length) + changes[:, seasons - 1]

    def _change(self, seasons: int) -> Array:
        known = min(seasons, (len(self.training) - 1) // self.season)
        if not known:
            return np.zeros(len(_LEVELS))
        lag = known * self.season
        # Further ahead than the training range is long, changes grow as those of a random walk.
        changes = np.sort(self.training[lag:] - self.training[:-lag])
        # The same as np.quantile, and several times faster for so many levels.
        quantiles = np.interp(_LEVELS * (len(changes) - 1), np.arange(len(changes)), changes)
        return quantiles * np.sqrt(seasons / known)


FittedSeries = SeasonalNaive | EmpiricalChanges | Classical


def _last_season(history: Array, season: int, length: int) -> Array:
    return history[len(history) - season + np.arange(length) % season]


_NAIVE: dict[str, tuple[Callable[[Array, int], FittedSeries], bool]] = {  # fit, and whether it takes the season
    "seasonal_naive": (SeasonalNaive.fit, True),
    "random_walk": (SeasonalNaive.fit, False),
    "empirical_seasonal": (EmpiricalChanges.fit, True),
    "empirical_random_walk": (EmpiricalChanges.fit, False),
}
BASELINES = (*_NAIVE, *CLASSICS, "deepar")


def default_baselines(season: int) -> tuple[str, ...]:
    """Those that are fitted within minutes and differ: without a season the random walks are the seasonal forms."""
    walks = ("seasonal_naive", "empirical_random_walk", "auto_ets")
    return walks if season == 1 else (*_NAIVE, "auto_ets")


def installed(names: Sequence[str]) -> list[str]:
    """Return the baselines that can be fitted here; a line says which cannot, for want of statsforecast."""
    absent = [name for name in names if name.partition("-")[0] in CLASSICS and not is_installed()]
    if absent:
        logger.warning("left out: %s: %s", ", ".join(absent), INSTALL)
    return [name for name in names if name not in absent]


@dataclass(frozen=True)
class Baseline:
    """A baseline fitted to the training range of every series.

    Attributes:
        name: Name it was asked by.
        series: By item id, one fitted form per target dimension.
        deviations: Number of series that are forecast in another way than the name says, by this way.
    """

    name: str
    series: dict[str, list[FittedSeries]]
    deviations: Counter[str]

    def predictor(self, prediction_length: int) -> Predictor:
        """A GluonTS predictor of quantile forecasts; both protocols share the fitted series."""
        return _BaselinePredictor(self, prediction_length)


class _BaselinePredictor(Predictor):
    def __init__(self, baseline: Baseline, prediction_length: int) -> None:
        super().__init__(prediction_length=prediction_length)
        self.baseline = baseline

    def predict(self, dataset: Dataset, **kwargs: Any) -> Iterator[Forecast]:
        """Yields one forecast per entry; sample counts and the like have no meaning here."""
        keys = [str(level) for level in LEVELS]
        for entry in dataset:
            item = str(entry["item_id"])
            if item not in self.baseline.series:
                raise ValueError(f"expected a series that {self.baseline.name} was fitted to, but {item!r} was not")
            target = np.asarray(entry["target"], np.float64)
            rows = [
                self._quantiles(fitted, fill_missing(row))
                for row, fitted in zip(np.atleast_2d(target), self.baseline.series[item], strict=True)
            ]
            array = rows[0] if target.ndim == 1 else np.stack(rows, axis=-1)
            with expected_alias_warnings():
                start = entry["start"] + target.shape[-1]
            yield QuantileForecast(array, start, keys, item_id=item, info=entry.get("info"))

    def _quantiles(self, fitted: FittedSeries, history: Array) -> Array:
        quantiles = fitted.quantiles(history, self.prediction_length)
        if isinstance(fitted, Classical) and not plausible(quantiles, history):
            self.baseline.deviations[NAIVE_LATER] += 1
            logger.warning("%s: %s", self.baseline.name, NAIVE_LATER)
            quantiles = SeasonalNaive.fit(history, 1).quantiles(history, self.prediction_length)
        return quantiles if (history < 0).any() else np.maximum(quantiles, 0.0)


def check_baseline(name: str) -> None:
    """Raise a ValueError for a wrong name of a baseline."""
    kind, _, lag = name.partition("-")
    if kind not in (*_NAIVE, *CLASSICS) or (lag and not (lag.isdecimal() and int(lag))):
        known = ", ".join((*_NAIVE, *CLASSICS))
        raise ValueError(f"expected one of {known}, or with a season as in auto_ets-24, but got {name!r}")
    if kind in CLASSICS and not is_installed():
        raise ValueError(f"{name}: {INSTALL}")


def fit_baseline(
    name: str, train: Sequence[dict[str, Any]], season: int, *, horizon: int | None = None, workers: int = 1
) -> Baseline:
    """Fits a baseline to every series of a training set.

    Args:
        name: One of `BASELINES` but for `deepar`, or with a season of its own, as in `seasonal_naive-168`.
        train: GluonTS entries with `item_id`, cut before the test windows.
        season: Main season in steps, for a name which gives none. A series shorter than three of it has season 1.
        horizon: Steps over which the quantiles of statsforecast's models must not overflow; by default a season.
        workers: Processes for statsforecast's models. A script which asks for more than one needs
            `if __name__ == "__main__"`.

    Raises:
        ValueError: If there is no such baseline, its season is not a positive whole number, or its library is not
            installed.
    """
    check_baseline(name)
    kind, _, lag = name.partition("-")
    slow = kind in CLASSICS
    fit, seasonal = (partial(Classical.fit, kind, horizon or season + 1), True) if slow else _NAIVE[kind]
    least = _CYCLES * season if seasonal and not lag else 0
    lag = int(lag) if lag else season if seasonal else 1
    rows = [(str(entry["item_id"]), np.asarray(row, np.float64)) for entry in train for row in _targets(entry)]
    work = partial(_fit_one, fit, lag, least)
    series: dict[str, list[FittedSeries]] = {}
    deviations: Counter[str] = Counter()
    fits = follow(_map(work, [row for _, row in rows], workers if slow else 1), name, len(rows), "fits")
    for (item, _), (fitted, remarks) in zip(rows, fits, strict=True):
        series.setdefault(item, []).append(fitted)
        deviations.update(remarks)
    for remark, count in deviations.items():
        logger.warning("%s: %d of %d %s", name, count, len(rows), remark)
    return Baseline(name, series, deviations)


def _targets(entry: dict[str, Any]) -> Array:
    return np.atleast_2d(np.asarray(entry["target"], np.float64))


def _fit_one(
    fit: Callable[[Array, int], FittedSeries], season: int, least: int, row: Array
) -> tuple[FittedSeries, list[str]]:
    """A fitted form of one series, of season 1 if it is shorter than `least`; and remarks if it is not as named."""
    history = fill_missing(row)
    remarks = [NO_SEASON] if season > 1 and len(history) < least else []
    try:
        fitted = fit(history, 1 if remarks else season)
    except Exception as error:  # statsforecast raises bare exceptions on constant and tiny series
        logger.debug("fit failed: %s", error)
        return SeasonalNaive.fit(history, 1), [NAIVE]
    if isinstance(fitted, Classical) and fitted.additive:
        remarks.append(ADDITIVE)
    return fitted, remarks


def _map(
    work: Callable[[Array], tuple[FittedSeries, list[str]]], rows: Sequence[Array], workers: int
) -> Iterator[tuple[FittedSeries, list[str]]]:
    if workers < 2 or len(rows) < 2:
        yield from map(work, rows)
        return
    with ProcessPoolExecutor(min(workers, len(rows)), imported_once(__name__)) as pool:
        yield from pool.map(work, rows, chunksize=4)


def fill_missing(values: Array) -> Array:
    """Replaces missing values by the last one seen, leading ones by the first one seen; 0 where none was ever seen."""
    if not np.isfinite(values).any():
        return np.zeros(max(len(values), 1))
    return pd.Series(values).where(np.isfinite(values)).ffill().bfill().to_numpy()
