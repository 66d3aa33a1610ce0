"""Forecasts of a table at once: a bank that begins with what other series have taught."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.data.quantiles import TENTHS, check_levels
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import as_lists, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.grid_training import GridTraining, build_kernels
from tsforecast.forecasting.lengths import bank_learns
from tsforecast.forecasting.predictor import StateSpacePredictor

log = logging.getLogger(__name__)

_SERIES = 256  # that parameters are fitted to, at most: all have the same
_BATCH = 64  # windows of a step, at most


def forecast(
    data: pd.DataFrame,
    horizon: int | None = None,
    *,
    freq: str | None = None,
    quantiles: Sequence[float] = TENTHS,
    columns: Columns | Mapping[str, Any] | None = None,
    start: str = "common",
    seed: int = 0,
) -> pd.DataFrame:
    """Return forecasts beyond the end of all series of a table.

    Examples:
        >>> tsforecast.forecast(frame, horizon=14)  # doctest: +SKIP

    Args:
        data: A row for each series and time stamp, see `tsforecast.data.read_task`; covariates reach over the horizon.
        horizon: Steps of a forecast; None for what is customary at the frequency.
        freq: Frequency in any of its names; None for what the table shows.
        quantiles: Levels between 0 and 1.
        columns: What the columns are, see `StateSpaceEstimator.train`; None for what is found by usual names.
        start: Of the forecasts: "common" for all behind the series that ends last, "each" for each series' own end.
        seed: Of what is random in training.

    Returns:
        A row for each series and step, in the columns of the table, see `StateSpacePredictor.predict_frame`.

    Raises:
        ValueError: If the table is not as expected; the message says what is, and names the row.
    """
    levels = check_levels(quantiles)
    task = read_task(data, freq, horizon, 0, columns=columns_of(columns))
    predictor = fitted(task, seed)
    return predictor.predict_frame(data, levels, 0, task.columns, start)


def fitted(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts the series of a task, fitted to its training part within seconds.

    One target has a bank. It begins with what other series of the frequency have taught; its parameters, the same for
    all series, then learn from these for a few epochs. Of fewer than twenty series, and where training windows are
    long, as of hours, they stay as they are, and each series decides by its own past. Several targets have a `gls`.

    Args:
        task: The series.
        seed: Of what is random in training.

    Raises:
        ValueError: If the series cannot be trained on.
    """
    entries = list(task.train)
    several = any(np.ndim(entry["target"]) > 1 for entry in entries)
    learns = several or bank_learns(task.freq, task.prediction_length, entries)
    model = "gls" if several else "bank"
    if learns and len(entries) > _SERIES and not task.categories:  # a category without a series would be unknown
        log.info("%s learns from %d of %d series, since all have the same parameters", model, _SERIES, len(entries))
        order = np.random.default_rng(seed).permutation(len(entries))[:_SERIES]
        entries = [entries[number] for number in sorted(order)]
    if not learns:
        log.info("parameters stay those that other series have taught, as of few series or long training windows")
    predictor = _trained(model, task, entries, seed) if learns else _conditioned(task, entries, seed)
    # By which a table of the same form is read again: entries alone say nothing of them.
    predictor.columns = None if task.columns is None else as_lists(task.columns)
    predictor.categories = task.categories or None
    return predictor


def _trained(model: str, task: ForecastTask, entries: list[dict[str, Any]], seed: int) -> StateSpacePredictor:
    """Return what forecasts series after a training on them."""
    from tsforecast.forecasting.estimator import StateSpaceEstimator  # Lightning takes seconds to import

    # Of a few short series, windows of a large batch would be the same again and again.
    windows = sum(max(entry["target"].shape[-1] - task.prediction_length, 1) for entry in entries)
    options: dict[str, Any] = {"seed": seed, "batch_size": int(np.clip(windows // 4, 8, _BATCH))}
    options["trainer_kwargs"] = {"enable_progress_bar": False}
    return StateSpaceEstimator(model, task.freq, task.prediction_length, **options).train(entries)


def _conditioned(task: ForecastTask, entries: list[dict[str, Any]], seed: int) -> StateSpacePredictor:
    """Return a bank whose parameters are those that other series have taught."""
    sizes = task.freq, task.prediction_length, {}, _BATCH, None, seed
    training = GridTraining("bank", *sizes).with_lengths(None, None, None, "cpu").with_effects(entries, AUTO, None)
    build_kernels()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return training.for_data(training.adjusted(entries), True, None).predictor()
