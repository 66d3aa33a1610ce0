"""Forecasts of a table at once: a bank that begins with what other series have taught."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from gluonts.itertools import batcher

from tsforecast.data.hierarchy import Given, find_hierarchy, with_levels
from tsforecast.data.periods import find_periods
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame
from tsforecast.data.sources import check_count, read_task
from tsforecast.data.tables.dataframes import alike, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.sum_models import with_all_sums
from tsforecast.wording import options_called

_TOGETHER = 1024  # series whose forecasts are held


@options_called(prediction_length="horizon")
def forecast(
    data: Any,
    horizon: int | None = None,
    *,
    freq: str | None = None,
    quantiles: Sequence[float] = TENTHS,
    columns: Columns | Mapping[str, Any] | None = None,
    start: str = "common",
    seed: int = 0,
    hierarchy: Given | None = None,
    aggregate: str | Sequence[str] = (),
) -> Any:
    """Return forecasts beyond the end of all series of a table.

    Examples:
        >>> tsforecast.forecast(frame, horizon=14)  # doctest: +SKIP

    Args:
        data: A row for each series and time stamp, or its file, see `tsforecast.data.read_task`; covariates reach over
            the horizon. Where none is named, they are the numbers and categories that go on behind the last targets.
        horizon: Steps of a forecast; None for as far as covariates are known, or what is customary at the frequency.
        freq: Frequency in any of its names; None for what the table shows.
        quantiles: Levels between 0 and 1.
        columns: What the columns are, see `StateSpaceEstimator.train`; None for what is found by usual names.
        start: Of the forecasts: "common" for all behind the series that ends last, "each" for each series' own end.
        seed: Of what is random, in training and in forecasts.
        hierarchy: Columns that nest, such as "region/shop", or a summing matrix, see `tsforecast.data.hierarchy`: all
            sums are forecast, too, and add up.
        aggregate: Periods, such as "month" or ("quarter", "year"), see `tsforecast.data.periods`: sums over those that
            are whole within the horizon are forecast, too, and steps add up to them.

    Returns:
        A row for each series and step, in the columns of the table and a frame of its kind, see
        `StateSpacePredictor.predict_frame`; with `aggregate` a row for each period, too, named by a column `period`.

    Raises:
        ValueError: If the table is not as expected; the message says what is, and names the row.
    """
    levels = check_levels(quantiles)
    check_count("horizon", horizon, 1)
    roles = columns_of(columns)
    has_sums = hierarchy is not None or bool(aggregate)
    read = replace(with_levels(roles, hierarchy), ahead=True)
    if has_sums and start != "common":
        raise ValueError(f"expected start='common' with a hierarchy or periods, got {start!r}")
    if start not in ("common", "each"):
        raise ValueError(f"expected start to be 'common' or 'each', got {start!r}")
    task = read_task(data, freq, horizon, 0, columns=read, beyond=True)
    if has_sums:
        task, tree = task.ending_together(), None
        if hierarchy is not None:
            tree, task = find_hierarchy(hierarchy, task, roles.items)
        periods = find_periods(aggregate, task) if aggregate else []
        predictor = fitted(task, seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            found = with_all_sums(predictor, task, tree, periods, seed=seed)
        return alike(forecast_frame(found, levels, (), task.columns), data)
    predictor, ahead = fitted(task, seed), task if start == "each" else task.ending_together()
    found = predictor.predict(ahead.latest, num_samples=0 if predictor.has_marginals else None)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # Paths of all series together, where quantiles are not exact, would need gigabytes.
        frames = [forecast_frame(chunk, levels, task.targets, task.columns) for chunk in batcher(found, _TOGETHER)]
    return alike(pd.concat(frames, ignore_index=True), data)
