"""Classical forecasts to compare with: naive, empirical random walk, and those of statsforecast.

Each is fitted once, on the training range, and carried to later forecast dates without refitting, so a baseline knows
exactly what a model knows. Forecasts are exact quantiles at every level that `score` reads, not samples. Where the
training range of a series has no negative value, negative quantiles are set to 0.
"""

import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gluonts.dataset import Dataset
from gluonts.model import Forecast, Predictor, QuantileForecast
from scipy.stats import norm

from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.evaluation.metrics import LEVELS, Array
from tsforecast.progress import follow

logger = logging.getLogger(__name__)

_LEVELS = np.array(LEVELS)
_NORMAL = norm.ppf(_LEVELS)


@dataclass(frozen=True)
class SeasonalNaive:
    """The value one season ago, with Gaussian errors whose variance grows by each season ahead.

    Attributes:
        season: Lag in steps; 1 is a random walk.
        std: Root mean square of the training range's changes over one season.
    """

    season: int
    std: float

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
    """The value one season ago plus the quantiles of all changes over as many seasons that the training range has seen.

    Attributes:
        season: Lag in steps; 1 is the empirical random walk.
        training: The training range.
    """

    season: int
    training: Array

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


@dataclass(frozen=True)
class Classical:
    """A model of statsforecast, filtered on with its fitted parameters; errors are taken as Gaussian.

    Attributes:
        model: Fitted; of AutoETS without states and residuals, which are as long as the series.
    """

    model: Any

    @classmethod
    def fit(cls, name: str, history: Array, season: int) -> "Classical":
        """Fits to a training range.

        Raises:
            ValueError: If the forecasts of the fitted model are not finite.
            Exception: Whatever statsforecast raises, for example on tiny series.
        """
        from statsforecast import models  # takes seconds to import, and few need it

        model: Any
        if name == "auto_ets":  # multiplicative parts are left out of the search: their quantiles can overflow
            model = models.AutoETS(season_length=season, model="AZA" if season > 1 else "AZN")
        elif name == "auto_arima":
            model = models.AutoARIMA(season_length=season)
        elif name == "auto_theta":
            model = models.AutoTheta(season_length=season, decomposition_type="additive")
        else:
            cycles = [lag for lag in (season, _LONGER.get(season, 0)) if 1 < lag <= len(history) // 2]
            model = models.AutoETS(season_length=1, model="ZZN")
            model = models.MSTL(season_length=cycles, trend_forecaster=model) if cycles else model
        model = model.fit(history)
        if name == "auto_ets":
            fitted: dict[str, Any] = model.model_
            model.model_ = {key: fitted[key] for key in ("m", "components", "par", "fit", "n_params")}
        classical = cls(model)
        if not np.isfinite(classical.quantiles(history, season + 1)).all():
            raise ValueError(f"the forecasts of {name} are not finite")
        return classical

    def quantiles(self, history: Array, length: int) -> Array:
        """Quantiles (level, length) after `history`."""
        with np.errstate(invalid="ignore", divide="ignore"):  # undamped models divide by 1 - phi and drop the result
            forecast = self.model.forward(y=history, h=length, level=[95])
        mean = np.asarray(forecast["mean"])
        return mean + (np.asarray(forecast["hi-95"]) - mean) / norm.ppf(0.975) * _NORMAL[:, None]


FittedSeries = SeasonalNaive | EmpiricalChanges | Classical
# The season beside the main one that a model of several takes: the week of hours and of half hours.
_LONGER = {24: 168, 48: 336}


def _last_season(history: Array, season: int, length: int) -> Array:
    return history[len(history) - season + np.arange(length) % season]


_FITS: dict[str, tuple[Callable[[Array, int], FittedSeries], bool]] = {  # fit, and whether it takes the season
    "seasonal_naive": (SeasonalNaive.fit, True),
    "random_walk": (SeasonalNaive.fit, False),
    "empirical_seasonal": (EmpiricalChanges.fit, True),
    "empirical_random_walk": (EmpiricalChanges.fit, False),
    **{name: (partial(Classical.fit, name), True) for name in ("auto_ets", "auto_theta", "mstl", "auto_arima")},
}
BASELINES = (*_FITS, "deepar")


def default_baselines(season: int) -> tuple[str, ...]:
    """Those that are fitted at once and differ: without a season the random walks are the seasonal forms."""
    walks = ("seasonal_naive", "empirical_random_walk", "auto_ets")
    return walks if season == 1 else (*list(_FITS)[:5],)


@dataclass(frozen=True)
class Baseline:
    """A baseline fitted to the training range of every series.

    Attributes:
        name: Name it was asked by.
        series: By item id, one fitted form per target dimension, and its lowest possible value (0, or -inf).
        failed_fits: How many fits failed and fell back on a random walk.
    """

    name: str
    series: dict[str, list[tuple[FittedSeries, float]]]
    failed_fits: int

    def predictor(self, prediction_length: int) -> Predictor:
        """A GluonTS predictor of quantile forecasts; both protocols share what was fitted."""
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
                np.maximum(fitted.quantiles(fill_missing(row), self.prediction_length), lowest)
                for row, (fitted, lowest) in zip(np.atleast_2d(target), self.baseline.series[item], strict=True)
            ]
            array = rows[0] if target.ndim == 1 else np.stack(rows, axis=-1)
            with expected_alias_warnings():
                start = entry["start"] + target.shape[-1]
            yield QuantileForecast(array, start, keys, item_id=item, info=entry.get("info"))


def fit_baseline(name: str, train: Sequence[dict[str, Any]], season: int, *, workers: int = 1) -> Baseline:
    """Fits a baseline to every series of a training set.

    Args:
        name: One of `BASELINES` but for `deepar`, or with a season of its own, as in `seasonal_naive-168`.
        train: GluonTS entries with `item_id`, cut before the test windows.
        season: Main season in steps, for a name which gives none.
        workers: Processes for statsforecast's models. A script which asks for more than one needs
            `if __name__ == "__main__"`.

    Raises:
        ValueError: If there is no such baseline or its season is not a positive whole number.
    """
    kind, _, lag = name.partition("-")
    if kind not in _FITS or (lag and not (lag.isdecimal() and int(lag))):
        raise ValueError(f"expected one of {', '.join(_FITS)}, or with a season as in auto_ets-24, but got {name!r}")
    fit, seasonal = _FITS[kind]
    lag = int(lag) if lag else season if seasonal else 1
    rows = [(str(entry["item_id"]), np.asarray(row, np.float64)) for entry in train for row in _targets(entry)]
    work = partial(_fit_one, fit, lag)
    series: dict[str, list[tuple[FittedSeries, float]]] = {}
    failed = 0
    slow = isinstance(fit, partial)
    fits = _map(work, [row for _, row in rows], workers if slow else 1)
    fits = follow(fits, name, len(rows), "fits")
    for (item, row), (fitted, success) in zip(rows, fits, strict=True):
        lowest = -np.inf if (row[np.isfinite(row)] < 0).any() else 0.0
        series.setdefault(item, []).append((fitted, lowest))
        failed += not success
    if failed:
        logger.warning("%s: %d of %d fits failed; a random walk takes their place", name, failed, len(rows))
    return Baseline(name, series, failed)


def _targets(entry: dict[str, Any]) -> Array:
    return np.atleast_2d(np.asarray(entry["target"], np.float64))


def _fit_one(fit: Callable[[Array, int], FittedSeries], season: int, row: Array) -> tuple[FittedSeries, bool]:
    history = fill_missing(row)
    try:
        return fit(history, season), True
    except Exception as error:  # statsforecast raises bare exceptions on constant and tiny series
        logger.debug("fit failed: %s", error)
    return SeasonalNaive.fit(history, 1), False


def _map(
    work: Callable[[Array], tuple[FittedSeries, bool]], rows: Sequence[Array], workers: int
) -> Iterator[tuple[FittedSeries, bool]]:
    if workers < 2 or len(rows) < 2:
        yield from map(work, rows)
        return
    # "spawn", because a process which has run torch's threads cannot be forked safely.
    with ProcessPoolExecutor(min(workers, len(rows)), mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(work, rows, chunksize=4)


def fill_missing(values: Array) -> Array:
    """Replaces missing values by the last one seen, leading ones by the first one seen; 0 where none was ever seen."""
    seen = np.flatnonzero(np.isfinite(values))
    if not len(seen):
        return np.zeros(max(len(values), 1))
    last = np.searchsorted(seen, np.arange(len(values)), side="right") - 1
    return values[seen[np.maximum(last, 0)]]
