"""Scores of probabilistic forecasts: weighted quantile loss, calibration, scaled errors.

The CRPS here is the normalised quantile loss of the GluonTS line of papers. With quantile levels `A`, cells `c`
(series, window, step, target) whose label `y_c` is observed, and forecast quantiles `q_c(a)`,

    CRPS_A = 1/|A| sum_{a in A} [ sum_c 2 (a - 1[y_c < q_c(a)]) (y_c - q_c(a)) ] / [ sum_c |y_c| ],

one numerator and one denominator over all cells. It equals `gluonts.ev.metrics.MeanWeightedSumQuantileLoss(A)`; the
sums are taken here in one vectorised pass, because GluonTS walks through the forecasts once per level and axis.
Quantiles of samples are order statistics without interpolation, as `SampleForecast.quantile` takes them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.split import TestData
from gluonts.ev.ts_stats import seasonal_error
from gluonts.model import Forecast, SampleForecast
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings
from tsforecast.data.calendar.stamps import stamp_of
from tsforecast.data.quantiles import HasQuantiles, forecast_quantiles
from tsforecast.evaluation.metrics import LEVELS, NOMINAL, Array, Window, nested, size, sums_of, table, total
from tsforecast.progress import follow

_GRID = np.linspace(0, 1, 101)  # where the distribution of the PIT is tabulated


@dataclass(frozen=True)
class Totals:
    """Sums over forecasts, to make scores of: those of several parts of the data add up to those of all."""

    cells: Array  # of `sums_of`, (term, horizon)
    inside: Array  # number of labels inside the central interval of each of `NOMINAL`
    pit: Array  # sums of the distribution of the PIT at 0, .01, .., 1
    labels: int  # number of labels
    num_series: int  # number of series
    num_forecasts: int  # number of forecasts
    num_exact: int  # number of those whose quantiles are not of samples
    num_samples: frozenset[int | None]  # all numbers of paths of a forecast, None where there are none

    def __add__(self, other: "Totals") -> "Totals":
        names = [field.name for field in fields(self) if field.name != "num_samples"]
        added = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Totals(**added, num_samples=self.num_samples | other.num_samples)

    def as_json(self) -> dict[str, Any]:
        """Return the sums for `totals_of_json`, exact to the last bit."""
        arrays = {name: getattr(self, name).tolist() for name in ("cells", "inside", "pit")}
        return asdict(self) | arrays | {"num_samples": sorted(self.num_samples, key=lambda n: n or 0)}


def totals_of_json(saved: dict[str, Any]) -> Totals:
    """The sums that `Totals.as_json` wrote."""
    arrays: dict[str, Any] = {name: np.array(saved[name], np.float64) for name in ("cells", "inside", "pit")}
    return Totals(**{**saved, **arrays, "num_samples": frozenset(saved["num_samples"])})


def totals_of(window: Window) -> Totals:
    """Return the sums of one forecast."""
    return Totals(
        cells=sums_of(window),
        inside=window.covered.sum(tuple(range(1, window.covered.ndim))).astype(np.float64),
        pit=_pit_distribution(window),
        labels=int(window.observed.sum()),
        num_series=1,
        num_forecasts=1,
        num_exact=int(window.is_exact),
        num_samples=frozenset([None if window.samples is None else len(window.samples)]),
    )


@dataclass(frozen=True)
class Scores:
    """Scores of one model under one protocol.

    Attributes:
        totals: Sums that those of another part of the data can be added to.
        per_series: The scores of `overall` for every series, indexed by `item_id`, in the order of the data.
        per_forecast: The same scores for every forecast, indexed by `item_id` and `start` in the order of the data.
            Also `size`, the sum of absolute labels, by which `crps` is to be weighted.
    """

    totals: Totals
    per_series: pd.DataFrame
    per_forecast: pd.DataFrame

    @cached_property
    def overall(self) -> dict[str, Any]:
        """Return scores over all cells.

        `crps` (tenths), `crps_99` (hundredths) and `crps_ensemble` (of samples; NaN for other forecasts). `nd` is the
        sum of absolute errors of the median / the sum of absolute labels. `mase` is the mean of absolute errors / the
        seasonal error of the series before the forecast. `coverage` has the shares of labels inside the closed central
        intervals, keyed by percent. `sum_50`, .. and `max_50`, .. are those of the sum over the horizon and of its
        maximum, from joint paths; windows with a missing label do not count, and forecasts without paths have NaN.
        `mse` is the mean squared error of the median. Also `num_forecasts`, `num_exact` (those whose quantiles are not
        of samples), and `num_samples` (paths of each forecast, None where there are none).
        """
        totals = self.totals
        return {
            **nested(table(totals.cells.sum(-1)[:, None], pd.RangeIndex(1)).iloc[0].to_dict()),
            "num_forecasts": totals.num_forecasts,
            "num_exact": totals.num_exact,
            "num_samples": next(iter(totals.num_samples)) if len(totals.num_samples) == 1 else None,
        }

    @cached_property
    def per_horizon(self) -> pd.DataFrame:
        """Return the same scores for every step ahead, indexed by `step` from 1."""
        return table(self.totals.cells, pd.RangeIndex(1, self.totals.cells.shape[1] + 1, name="step"))

    @cached_property
    def calibration(self) -> pd.DataFrame:
        """Return a table indexed by probability 0, .01, .., 1.

        `pit` is the share of labels whose probability integral transform is at most that; the diagonal, if forecasts
        are calibrated. `coverage` is the share inside the central interval of that probability (even percents only).
        """
        pit, inside, labels = self.totals.pit, self.totals.inside, self.totals.labels
        with np.errstate(invalid="ignore"):
            found = pd.DataFrame({"pit": pit / labels}, index=pd.Index(_GRID.round(2), name="probability"))
            found["coverage"] = pd.Series(inside[:-1] / labels, index=[width / 100 for width in NOMINAL[:-1]])
        found.loc[[0.0, 1.0], "coverage"] = 0.0, 1.0
        return found


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

    def windows() -> Iterator[tuple[str, pd.Timestamp, Totals]]:
        stream, count = iter(forecasts), 0
        for past, future in follow(test_data, progress, len(test_data), "forecasts") if progress else test_data:
            forecast = next(stream, None)
            if forecast is None:
                raise ValueError(f"expected a forecast for every test window, but they ended after {count}")
            own, item = totals_of(_window(past, future, forecast, season)), str(future.get("item_id", count))
            yield item, stamp_of(future["start"], future.get("info")), own
            count += 1
        if next(stream, None) is not None:
            raise ValueError(f"expected {count} forecasts, one per test window, but there are more")

    return scores_of(windows())


def scores_of(windows: Iterable[tuple[str, pd.Timestamp, Totals]]) -> Scores:
    """Return the scores of all test windows."""
    sums: dict[str, Array] = {}
    single: dict[tuple[str, pd.Timestamp], Array] = {}
    totals: Totals | None = None
    for item, start, own in windows:
        single[item, start] = own.cells.sum(-1)
        sums[item] = sums.get(item, 0) + own.cells.sum(-1)
        totals = own if totals is None else totals + own
    if totals is None:
        raise ValueError("expected at least one test window, but the test data is empty")
    per_forecast = np.stack(list(single.values()), axis=1)
    starts = pd.MultiIndex.from_tuples(list(single), names=["item_id", "start"])
    return Scores(
        totals=replace(totals, num_series=len(sums)),
        per_series=table(np.stack(list(sums.values()), axis=1), pd.Index(list(sums), name="item_id")),
        per_forecast=table(per_forecast, starts).assign(size=total(per_forecast, size)),
    )


def _window(past: dict[str, Any], future: dict[str, Any], forecast: Forecast, season: int | None) -> Window:
    """Return the labels of a test window, and the forecast of them."""
    label = np.asarray(future["target"], np.float64)
    observed = np.isfinite(label)
    _check_window(forecast, future, label.shape)
    quantiles = _time_last(forecast_quantiles(forecast, LEVELS))
    if np.isnan(quantiles).any():
        raise ValueError(f"the forecast of series {forecast.item_id!r} from {forecast.start_date} contains NaN")
    samples = None
    if isinstance(forecast, SampleForecast) and forecast.num_samples:
        samples = np.asarray(forecast.samples, np.float64)
    return Window(
        label=np.where(observed, label, 0.0),
        observed=observed,
        quantiles=quantiles,
        samples=None if samples is None else _time_last(samples),
        is_exact=isinstance(forecast, HasQuantiles) or samples is None,
        seasonal_error=_seasonal_error(past["target"], season or default_season(future["start"].freqstr)),
    )


def _time_last(values: Array) -> Array:
    return values.swapaxes(-1, -2) if values.ndim == 3 else values


def _check_window(forecast: Forecast, future: dict[str, Any], shape: tuple[int, ...]) -> None:
    item = future.get("item_id")
    if None not in (forecast.item_id, item) and str(forecast.item_id) != str(item):
        raise ValueError(f"expected a forecast of series {item!r}, but it is of {forecast.item_id!r}")
    if forecast.start_date != future["start"]:
        raise ValueError(f"expected a forecast of series {item!r} from {future['start']}, not {forecast.start_date}")
    actual = (forecast.prediction_length,) if len(shape) == 1 else (forecast.dim(), forecast.prediction_length)
    if actual != shape:
        raise ValueError(f"expected a forecast of shape {shape} for series {item!r}, but it has {actual}")


def _seasonal_error(past: NDArray[Any], season: int) -> Array:
    """Mean absolute change over a season, () or (target, 1); NaN where it is 0 or cannot be computed."""
    values = np.ma.masked_invalid(np.asarray(past, np.float64))
    error = np.ma.filled(np.ma.asarray(seasonal_error(values, seasonality=season, time_axis=-1)), np.nan)
    return np.where(error > 0, error, np.nan)


def _pit_distribution(window: Window) -> Array:
    """Sums over labels of the distribution function of the PIT on a grid, without random numbers.

    A sample of finite size, or a forecast with atoms, only tells an interval in which the PIT lies; the uniform
    distribution on it is taken (Czado, Gneiting and Held, 2009, "Predictive model assessment for count data"). With n
    samples the label's rank is uniform on n + 1 values if it is exchangeable with them.
    """
    label, samples = window.label, window.samples
    if samples is not None and not window.is_exact:
        low = (samples < label).sum(0) / (len(samples) + 1)
        high = ((samples <= label).sum(0) + 1) / (len(samples) + 1)
    else:
        bounds = np.array([0.0, *LEVELS, 1.0])
        low = bounds[(window.quantiles < label).sum(0)]
        high = bounds[(window.quantiles <= label).sum(0) + 1]
    low, high = low[window.observed], high[window.observed]
    return np.clip((_GRID[:, None] - low) / (high - low), 0.0, 1.0).sum(1)
