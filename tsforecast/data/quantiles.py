"""Forecasts as tables: quantiles or sample paths, a row for each step."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from gluonts.model import Forecast, QuantileForecast, SampleForecast
from numpy.typing import NDArray

from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.tables.naming import PERIOD, as_read, cells_of
from tsforecast.data.tables.roles import Columns

TENTHS = tuple(k / 10 for k in range(1, 10))
INTERVALS = (50, 80, 95)  # central prediction intervals whose coverage is reported, in percent


@runtime_checkable
class HasQuantiles(Protocol):
    """A forecast that gives the exact quantiles of several levels at once."""

    def quantiles(self, levels: tuple[float, ...]) -> NDArray[np.float64]:
        """Return quantiles (level, horizon[, target])."""
        ...


def forecast_quantiles(forecast: Forecast, levels: tuple[float, ...]) -> NDArray[np.float64]:
    """Quantiles (level, horizon[, target]) of any GluonTS forecast: exact where it knows them, else with one sort."""
    if _knows_quantiles(type(forecast)):
        return forecast.quantiles(levels)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(forecast, SampleForecast):
        index = np.round((forecast.num_samples - 1) * np.asarray(levels)).astype(int)
        return np.sort(np.asarray(forecast.samples, np.float64), axis=0)[index]
    if isinstance(forecast, QuantileForecast):
        rows = {float(key): row for row, key in enumerate(forecast.forecast_keys) if key != "mean"}
        if rows.keys() >= set(levels):
            return np.asarray(forecast.forecast_array, np.float64)[[rows[level] for level in levels]]
    return np.stack([np.asarray(forecast.quantile(level), np.float64) for level in levels])


@lru_cache
def _knows_quantiles(kind: type) -> bool:
    """Whether forecasts of a class are `HasQuantiles`; kept, as Python takes as long for it as for the quantiles."""
    return issubclass(kind, HasQuantiles)


def check_levels(levels: Sequence[float], name: str = "quantiles") -> tuple[float, ...]:
    """The levels of quantiles as a tuple.

    Raises:
        ValueError: If one is not between 0 and 1, or occurs twice.
    """
    try:
        levels = tuple(float(level) for level in np.atleast_1d(levels))
    except ValueError as error:
        raise ValueError(f"expected {name} to be numbers between 0 and 1, got {levels!r}") from error
    if not levels or not all(0 < level < 1 for level in levels) or len(set(levels)) < len(levels):
        raise ValueError(f"expected {name} between 0 and 1, each once, got {', '.join(map(str, levels)) or 'none'}")
    return levels


def forecast_frame(
    forecasts: Sequence[Forecast],
    levels: tuple[float, ...] | None = TENTHS,
    targets: Sequence[str] = (),
    columns: Columns | None = None,
) -> pd.DataFrame:
    """Forecasts in long format: a row for each step, and for each path and target where there are several.

    Args:
        forecasts: One at least, of any kind.
        levels: Of the quantiles; None for sample paths.
        targets: Names of the targets where there are several; their numbers if these are not as many.
        columns: Of the data, whose names of items and time stamps the table has; None for `item_id` and `timestamp`.

    Returns:
        `item_id`, `timestamp` (as rows of the data would be dated), `period` where there are sums over some, `target`
        where there are several, then `mean` and a column for each quantile, or `path` and `value`.
    """
    parts = [_columns(forecast, levels, targets) for forecast in forecasts]
    frame = pd.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return as_read(frame, columns, cells_of({"item_id": one.item_id, "info": one.info} for one in forecasts))


def _columns(forecast: Forecast, levels: tuple[float, ...] | None, targets: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The columns of one forecast."""
    if levels is None:
        if not isinstance(forecast, SampleForecast):
            raise ValueError("the model forecasts distributions, and no sample paths: ask for quantiles")
        values, keys = np.asarray(forecast.samples), None
    else:
        quantiles = forecast_quantiles(forecast, levels)
        values, keys = np.concatenate([forecast_mean(forecast)[None], quantiles]), ["mean", *map(str, levels)]
    stamps = stamps_of(forecast.start_date, values.shape[1], forecast.info)
    found = long_columns(forecast.item_id, stamps, values, keys, targets)
    if name := (forecast.info or {}).get(PERIOD):
        period = {PERIOD: np.full(len(found["timestamp"]), name, dtype=object)}
        found = {"item_id": found.pop("item_id"), "timestamp": found.pop("timestamp")} | period | found
    return found


def long_columns(
    item: str | None, stamps: Any, values: NDArray[Any], keys: Sequence[str] | None, targets: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return the columns of a series in long format, see `forecast_frame`.

    Args:
        item: Identifier of the series.
        stamps: Time stamps of the steps.
        values: Of shape (path or quantile, step), or (path or quantile, step, target) of several targets.
        keys: Names of the columns of values; None for paths.
        targets: Names of the targets; their numbers if these are not as many.
    """
    several = values.ndim == 3
    values = values.swapaxes(-1, -2) if several else values[:, None]  # (path or quantile, target, step)
    count, width, steps = values.shape
    rows = width * steps * (count if keys is None else 1)
    frame: dict[str, NDArray[Any]] = {"item_id": np.full(rows, item, dtype=object)}
    frame["timestamp"] = np.tile(stamps, rows // steps)
    if several:
        names = list(targets) if len(targets) == width else [str(number) for number in range(width)]
        frame["target"] = np.tile(np.repeat(names, steps), rows // (width * steps))
    if keys is None:
        frame |= {"path": np.repeat(np.arange(count), width * steps), "value": values.ravel()}
    else:
        frame |= {key: row.ravel() for key, row in zip(keys, values, strict=True)}
    return frame


def forecast_mean(forecast: Forecast) -> NDArray[Any]:
    """Return the mean; of paths in double precision, so that a common value comes back as it is."""
    if isinstance(forecast, SampleForecast) and not _knows_quantiles(type(forecast)):
        samples = np.asarray(forecast.samples, np.float64)
        return samples[0] + (samples - samples[0]).mean(axis=0)  # the sum of equal values may be rounded
    if isinstance(forecast, QuantileForecast) and "mean" not in forecast.forecast_keys:  # where GluonTS would warn
        return forecast_quantiles(forecast, (0.5,))[0]
    return np.asarray(forecast.mean)
