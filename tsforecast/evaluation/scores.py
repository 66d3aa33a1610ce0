"""Scores of probabilistic forecasts: weighted quantile loss, calibration, scaled errors.

The CRPS here is the normalised quantile loss of the GluonTS line of papers. With quantile levels `A`, cells `c`
(series, window, step, target) whose label `y_c` is observed, and forecast quantiles `q_c(a)`,

    CRPS_A = 1/|A| sum_{a in A} [ sum_c 2 (a - 1[y_c < q_c(a)]) (y_c - q_c(a)) ] / [ sum_c |y_c| ],

one numerator and one denominator over all cells. It equals `gluonts.ev.metrics.MeanWeightedSumQuantileLoss(A)`; the
sums are taken here in one vectorised pass, because GluonTS walks through the forecasts once per level and axis.
Quantiles of samples are order statistics without interpolation, as `SampleForecast.quantile` takes them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.split import TestData
from gluonts.ev.ts_stats import seasonal_error
from gluonts.model import Forecast, SampleForecast
from numpy.typing import NDArray

from tsforecast.data.frequency import default_season, expected_alias_warnings
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.progress import follow

HUNDREDTHS = tuple(k / 100 for k in range(1, 100))
INTERVALS = (50, 80, 95)  # central prediction intervals that are reported, in percent
LEVELS = tuple(sorted({*HUNDREDTHS, 0.025, 0.975}))  # every level that a forecast is read at

_NOMINAL = (*range(2, 100, 2), 95)  # central intervals whose coverage is counted, in percent
_LOWER = np.array([LEVELS.index(round(0.5 - width / 200, 3)) for width in _NOMINAL])
_UPPER = np.array([LEVELS.index(round(0.5 + width / 200, 3)) for width in _NOMINAL])
_TENTHS = np.array([LEVELS.index(level) for level in TENTHS])
_HUNDREDTHS = np.array([LEVELS.index(level) for level in HUNDREDTHS])
_MEDIAN = LEVELS.index(0.5)
_GRID = np.linspace(0, 1, 101)  # where the distribution of the PIT is tabulated

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores of one model under one protocol.

    Attributes:
        overall: `crps` (tenths), `crps_99` (hundredths), `nd` (sum of absolute errors of the median / sum of absolute
            labels), `mase` (mean of absolute errors / seasonal error of the series before the forecast), `coverage`
            (shares of labels inside the closed central intervals, keyed by percent), `num_forecasts`, and `num_samples`
            (None when the forecasts are not samples).
        per_horizon: The same scores for every step ahead, indexed by `step` from 1.
        per_series: The same scores for every series, indexed by `item_id`, in the order of the data.
        per_forecast: The same scores for every forecast, indexed by `item_id` and `start` in the order of the data, and
            `size`, the sum of absolute labels, by which `crps` is to be weighted.
        calibration: Indexed by probability 0, .01, .., 1: `pit` is the share of labels whose probability integral
            transform is at most that (the diagonal, if forecasts are calibrated), `coverage` the share inside the
            central interval of that probability (even percents only).
    """

    overall: dict[str, Any]
    per_horizon: pd.DataFrame
    per_series: pd.DataFrame
    per_forecast: pd.DataFrame
    calibration: pd.DataFrame


@expected_alias_warnings()
def score(
    forecasts: Iterable[Forecast], test_data: TestData, *, season: int | None = None, progress: str | None = None
) -> Scores:
    """Scores forecasts against the labels of a test split, in one pass and with memory for one forecast at a time.

    Labels which are missing (NaN or infinite) count nowhere. The seasonal error in `mase` is that of the whole series
    before the forecast; where it is 0 or unknown the series has no `mase`.

    Args:
        forecasts: Sample or quantile forecasts, in the order of `test_data`: samples (sample, horizon[, target]).
        test_data: What GluonTS' `TestTemplate.generate_instances` returns; targets (horizon,) or (target, horizon).
        season: Season of `mase` in steps; by default the main season of the frequency (`default_season`: a week for
            daily data).
        progress: Name of the work, to say how far it is; without it nothing is said.

    Raises:
        ValueError: If forecasts and test windows differ in number, series, date or shape, or if a forecast contains
            NaN.
    """
    stream = iter(forecasts)
    sums: dict[str, Array] = {}
    single: dict[tuple[str, pd.Timestamp], Array] = {}
    steps: Array | None = None
    inside, pit, labels = np.zeros(len(_NOMINAL)), np.zeros(len(_GRID)), 0
    num_forecasts, num_samples = 0, set()
    windows = follow(test_data, progress, len(test_data), "forecasts") if progress else test_data
    for past, future in windows:
        forecast = next(stream, None)
        if forecast is None:
            raise ValueError(f"expected a forecast for every test window, but they ended after {num_forecasts}")
        label = np.asarray(future["target"], np.float64)
        seen = np.isfinite(label)
        label = np.where(seen, label, 0.0)
        _check_window(forecast, future, label.shape)
        quantiles = _time_last(forecast_quantiles(forecast, LEVELS))
        if np.isnan(quantiles).any():
            raise ValueError(f"the forecast of series {forecast.item_id!r} from {forecast.start_date} contains NaN")
        scale = _seasonal_error(past["target"], season or default_season(future["start"].freqstr))
        hit = (quantiles[_LOWER] <= label) & (label <= quantiles[_UPPER]) & seen
        cells = _statistics(label, seen, quantiles, scale, hit)
        item = str(future.get("item_id", num_forecasts))
        single[item, future["start"].to_timestamp()] = cells.sum(-1)
        sums[item] = sums.get(item, 0) + cells.sum(-1)
        steps = cells if steps is None else steps + cells
        inside += hit.sum(tuple(range(1, hit.ndim)))
        pit += _pit_distribution(forecast, quantiles, label, seen)
        labels += seen.sum()
        num_samples.add(forecast.num_samples if isinstance(forecast, SampleForecast) else None)
        num_forecasts += 1
    if next(stream, None) is not None:
        raise ValueError(f"expected {num_forecasts} forecasts, one per test window, but there are more")
    if steps is None:
        raise ValueError("expected at least one test window, but the test data is empty")
    per_forecast = np.stack(list(single.values()), axis=1)
    overall = _table(steps.sum(-1)[:, None], pd.RangeIndex(1)).iloc[0].to_dict()
    coverage = {str(width): overall.pop(f"coverage_{width}") for width in INTERVALS}
    with np.errstate(invalid="ignore"):
        calibration = pd.DataFrame({"pit": pit / labels}, index=pd.Index(_GRID.round(2), name="probability"))
        calibration["coverage"] = pd.Series(inside[:-1] / labels, index=[width / 100 for width in _NOMINAL[:-1]])
    calibration.loc[[0.0, 1.0], "coverage"] = 0.0, 1.0
    return Scores(
        overall={
            **overall,
            "coverage": coverage,
            "num_forecasts": num_forecasts,
            "num_samples": num_samples.pop() if len(num_samples) == 1 else None,
        },
        per_horizon=_table(steps, pd.RangeIndex(1, steps.shape[1] + 1, name="step")),
        per_series=_table(np.stack(list(sums.values()), axis=1), pd.Index(list(sums), name="item_id")),
        per_forecast=_table(per_forecast, pd.MultiIndex.from_tuples(list(single), names=["item_id", "start"])).assign(
            size=per_forecast[1]
        ),
        calibration=calibration,
    )


def _time_last(values: Array) -> Array:
    return values.swapaxes(-1, -2) if values.ndim == 3 else values


def _check_window(forecast: Forecast, future: dict[str, Any], shape: tuple[int, ...]) -> None:
    item = future.get("item_id")
    if None not in (forecast.item_id, item) and str(forecast.item_id) != str(item):
        raise ValueError(f"expected a forecast of series {item!r}, but it is of {forecast.item_id!r}")
    if forecast.start_date != future["start"]:
        raise ValueError(f"expected a forecast of series {item!r} from {future['start']}, not {forecast.start_date}")
    found = (forecast.prediction_length,) if len(shape) == 1 else (forecast.dim(), forecast.prediction_length)
    if found != shape:
        raise ValueError(f"expected a forecast of shape {shape} for series {item!r}, but it has {found}")


def _seasonal_error(past: NDArray[Any], season: int) -> Array:
    """Mean absolute change over a season, () or (target, 1); NaN where it is 0 or cannot be computed."""
    values = np.ma.masked_invalid(np.asarray(past, np.float64))
    error = np.ma.filled(np.ma.asarray(seasonal_error(values, seasonality=season, time_axis=-1)), np.nan)
    return np.where(error > 0, error, np.nan)


def _statistics(label: Array, seen: NDArray[np.bool_], quantiles: Array, scale: Array, hit: NDArray[np.bool_]) -> Array:
    """Sums over targets (statistic, horizon), in the order in which `_table` reads them."""
    level = np.reshape(LEVELS, (-1,) + (1,) * label.ndim)
    error = label - quantiles
    with np.errstate(invalid="ignore"):  # an infinite quantile times 0: the cell is not seen, or its loss is infinite
        loss = np.where(seen, 2 * np.maximum(level * error, (level - 1) * error), 0.0)
        scaled = np.where(seen & (scale > 0), np.abs(error[_MEDIAN]) / scale, 0.0)
    rows = [
        seen,
        np.abs(label),
        loss[_TENTHS].mean(0),
        loss[_HUNDREDTHS].mean(0),
        np.where(seen, np.abs(error[_MEDIAN]), 0.0),
        scaled,
        seen & (scale > 0),
        *(hit[_NOMINAL.index(width)] for width in INTERVALS),
    ]
    cells = np.stack([np.broadcast_to(row, label.shape) for row in rows]).astype(np.float64)
    return cells.sum(1) if label.ndim == 2 else cells


def _table(sums: Array, index: pd.Index) -> pd.DataFrame:
    """Scores from sums (statistic, row); NaN where nothing was observed."""
    count, size, tenths, hundredths, absolute, scaled, scaled_count, *covered = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {"crps": tenths / size, "crps_99": hundredths / size, "nd": absolute / size}
        columns["mase"] = scaled / scaled_count
        columns |= {f"coverage_{width}": hits / count for width, hits in zip(INTERVALS, covered, strict=True)}
    return pd.DataFrame(columns, index=index)


def _pit_distribution(forecast: Forecast, quantiles: Array, label: Array, seen: NDArray[np.bool_]) -> Array:
    """Sums over labels of the distribution function of the PIT on a grid, without random numbers.

    A sample of finite size, or a forecast with atoms, only tells an interval in which the PIT lies; the uniform
    distribution on it is taken (Czado, Gneiting and Held, 2009, "Predictive model assessment for count data"). With n
    samples the label's rank is uniform on n + 1 values if it is exchangeable with them.
    """
    if isinstance(forecast, SampleForecast):
        samples = _time_last(np.asarray(forecast.samples, np.float64))
        low = (samples < label).sum(0) / (len(samples) + 1)
        high = ((samples <= label).sum(0) + 1) / (len(samples) + 1)
    else:
        bounds = np.array([0.0, *LEVELS, 1.0])
        low = bounds[(quantiles < label).sum(0)]
        high = bounds[(quantiles <= label).sum(0) + 1]
    low, high = low[seen], high[seen]
    return np.clip((_GRID[:, None] - low) / (high - low), 0.0, 1.0).sum(1)
