"""Classical forecasts to compare with: naive, empirical random walk, exponential smoothing.

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
from tqdm import tqdm

from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.evaluation.scores import LEVELS, Array

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
class ExponentialSmoothing:
    """statsforecast's AutoETS with additive errors and seasons, filtered on with its fitted parameters.

    Models with multiplicative parts are left out of the search: their quantiles can overflow.

    Attributes:
        model: The part of the fitted model that filtering needs (its states and residuals are as long as the series).
    """

    model: dict[str, Any]

    @classmethod
    def fit(cls, history: Array, season: int) -> "ExponentialSmoothing":
        """Fits to a training range.

        Raises:
            ValueError: If the forecasts of the fitted model are not finite.
            Exception: Whatever statsforecast raises, for example on tiny series.
        """
        from statsforecast.models import AutoETS  # takes seconds to import, and only this baseline needs it

        fitted = AutoETS(season_length=season, model="AZA" if season > 1 else "AZN").fit(history).model_
        smoothing = cls({key: fitted[key] for key in ("m", "components", "par", "fit", "n_params")})
        if not np.isfinite(smoothing.quantiles(history, season + 1)).all():
            raise ValueError(f"the forecasts of ETS {fitted['components']} are not finite")
        return smoothing

    def quantiles(self, history: Array, length: int) -> Array:
        """Quantiles (level, length) after `history`."""
        from statsforecast.models import AutoETS

        carried = AutoETS(season_length=self.model["m"])
        carried.model_ = self.model
        with np.errstate(invalid="ignore", divide="ignore"):  # undamped models divide by 1 - phi and drop the result
            forecast = carried.forward(y=history, h=length, level=[95])
        std = (forecast["hi-95"] - forecast["mean"]) / norm.ppf(0.975)
        return forecast["mean"] + std * _NORMAL[:, None]


FittedSeries = SeasonalNaive | EmpiricalChanges | ExponentialSmoothing


def _last_season(history: Array, season: int, length: int) -> Array:
    return history[len(history) - season + np.arange(length) % season]


_FITS: dict[str, tuple[Callable[[Array, int], FittedSeries], bool]] = {  # fit, and whether it takes the season
    "seasonal_naive": (SeasonalNaive.fit, True),
    "random_walk": (SeasonalNaive.fit, False),
    "empirical_seasonal": (EmpiricalChanges.fit, True),
    "empirical_random_walk": (EmpiricalChanges.fit, False),
    "auto_ets": (ExponentialSmoothing.fit, True),
}
BASELINES = tuple(_FITS)


def default_baselines(season: int) -> tuple[str, ...]:
    """All baselines which differ from each other: without a season the random walks are the seasonal forms."""
    twins = ("random_walk", "empirical_seasonal") if season == 1 else ()
    return tuple(name for name in BASELINES if name not in twins)


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
            yield QuantileForecast(array, start, keys, item_id=item)


def fit_baseline(name: str, train: Sequence[dict[str, Any]], season: int, *, workers: int = 1) -> Baseline:
    """Fits a baseline to every series of a training set.

    Args:
        name: One of `BASELINES`, or with a season of its own, as in `seasonal_naive-168`.
        train: GluonTS entries with `item_id`, cut before the test windows.
        season: Main season in steps, for a name which gives none.
        workers: Processes for `auto_ets`. A script which asks for more than one needs `if __name__ == "__main__"`.

    Raises:
        ValueError: If there is no such baseline or its season is not a positive whole number.
    """
    kind, _, lag = name.partition("-")
    if kind not in _FITS or (lag and not (lag.isdecimal() and int(lag))):
        raise ValueError(
            f"expected one of {', '.join(BASELINES)}, or with a season as in auto_ets-24, but got {name!r}"
        )
    fit, seasonal = _FITS[kind]
    lag = int(lag) if lag else season if seasonal else 1
    rows = [(str(entry["item_id"]), np.asarray(row, np.float64)) for entry in train for row in _targets(entry)]
    work = partial(_fit_one, fit, lag)
    series: dict[str, list[tuple[FittedSeries, float]]] = {}
    failed = 0
    slow = kind == "auto_ets"
    fits = _map(work, [row for _, row in rows], workers if slow else 1)
    fits = tqdm(fits, desc=name, total=len(rows), unit="fit", disable=None if slow else True, leave=False)
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
