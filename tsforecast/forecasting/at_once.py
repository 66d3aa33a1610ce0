"""Forecasts of a table at once: a bank that begins with what other series have taught."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gluonts.model.forecast import SampleForecast

from tsforecast.data.hierarchy import Given, Hierarchy, find_hierarchy, with_levels
from tsforecast.data.periods import Periods, find_periods
from tsforecast.data.quantiles import TENTHS, check_levels, forecast_frame
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import alike, as_lists, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.direct import has_days, is_long
from tsforecast.forecasting.effect_choice import chosen_effects
from tsforecast.forecasting.lengths import bank_learns
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.quick_bank import conditioned, learnt_in_part
from tsforecast.forecasting.share_choice import chosen_share
from tsforecast.forecasting.temporal import joint_forecasts, with_sums

log = logging.getLogger(__name__)

_SERIES = 2048  # that parameters are fitted to, at most: a training sees each once, or a few times
_ENOUGH = 1000  # steps of all series from which on they teach an `issm` what the bank does not know
_MEMBERS, _EPOCHS = "bank learning_rate=0; issm", 20  # of the mixture with it


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
            the horizon. Where none is named, they are the numbers that go on behind the last target of every series.
        horizon: Steps of a forecast; None for as far as covariates are known, or what is customary at the frequency.
        freq: Frequency in any of its names; None for what the table shows.
        quantiles: Levels between 0 and 1.
        columns: What the columns are, see `StateSpaceEstimator.train`; None for what is found by usual names.
        start: Of the forecasts: "common" for all behind the series that ends last, "each" for each series' own end.
        seed: Of what is random in training.
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
        found = with_all_sums(fitted(task, seed), task, tree, periods, seed=seed)
        return alike(forecast_frame(found, levels, (), task.columns), data)
    predictor, ahead = fitted(task, seed), task if start == "each" else task.ending_together()
    found = list(predictor.predict(ahead.latest, num_samples=0 if predictor.has_marginals else None))
    return alike(forecast_frame(found, levels, task.targets, task.columns), data)


def with_all_sums(
    predictor: StateSpacePredictor,
    task: ForecastTask,
    tree: Hierarchy | None,
    periods: Sequence[Periods] = (),
    num_samples: int | None = None,
    seed: int = 0,
) -> list[SampleForecast]:
    """Return forecasts of series, and of their sums in a hierarchy and over periods, which add up.

    Args:
        predictor: Of the series.
        task: The series, or nodes of the hierarchy, which end together.
        tree: The hierarchy; None for none.
        periods: Whose sums are forecast, see `tsforecast.data.periods.find_periods`.
        num_samples: Number of sample paths; None for as many as there is room for.
        seed: Of the paths.
    """
    found: Any = joint_forecasts(predictor, task, num_samples, seed) if tree is None else (
        predictor.predict_sums(task, tree, num_samples, seed))  # fmt: skip
    return [*(with_sums(found, periods, task.freq) if periods else found)]


def fitted(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts the series of a task, fitted to its training part within seconds.

    It is a bank, which begins with what other series of the frequency have taught; its parameters, the same for all
    series, then learn from these in a few steps; where series have shocks in common, as far as windows before the end
    say. Of fewer than twenty series, and where training windows are long, as of hours, they stay as they are, and each
    series decides by its own past. Forecasts are then mixtures: of hours and minutes with direct forecasts, where most
    series have three weeks, else in equal parts with those of an `issm`, which learns from 1000 steps or more.

    Args:
        task: The series.
        seed: Of what is random in training.

    Raises:
        ValueError: If the series cannot be trained on.
    """
    entries = list(task.train)
    learns = bank_learns(task.freq, task.prediction_length, entries)
    if learns and len(entries) > _SERIES and not task.categories:  # a category without a series would be unknown
        log.info("a bank learns from %d of %d series, since all have the same parameters", _SERIES, len(entries))
        order = np.random.default_rng(seed).permutation(len(entries))[:_SERIES]
        entries = [entries[number] for number in sorted(order)]
    effects = chosen_effects(task, seed)
    if learns:
        predictor = learnt_in_part(task, entries, seed, effects)
    elif has_days(task.freq):
        predictor = _beside_direct(task, entries, seed, effects)
    elif sum(entry["target"].shape[-1] for entry in entries) >= _ENOUGH:
        log.info("half a bank, whose parameters stay those that other series have taught, and half an issm that learns")
        predictor = _halves(task, entries, seed, effects)
    else:
        log.info("parameters stay those that other series have taught, as of few and short series")
        predictor = conditioned(task, entries, seed, effects)
    # By which a table of the same form is read again: entries alone say nothing of them.
    predictor.columns = None if task.columns is None else as_lists(task.columns)
    predictor.categories = task.categories or None
    return predictor


def _beside_direct(task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str) -> StateSpacePredictor:
    """Return a bank that stays as it begins, beside direct forecasts where most series are long enough for these."""
    predictor = conditioned(task, entries, seed, effects)
    length = int(np.median([entry["target"].shape[-1] for entry in entries]))
    if is_long(length, task.freq, task.prediction_length):
        log.info("a bank, whose parameters stay those that other series have taught, and regressions on days")
        predictor.direct = chosen_share(predictor, task, entries, seed)
    else:
        log.info("parameters stay those that other series have taught, as of less than three weeks")
    return predictor


def _halves(task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str) -> StateSpacePredictor:
    """Return a mixture of a bank that stays as it begins and an `issm`, after its training on series."""
    from tsforecast.forecasting.estimator import StateSpaceEstimator  # Lightning takes seconds to import

    options = {
        "seed": seed,
        "effects": effects,
        "trainer_kwargs": {"enable_progress_bar": False, "max_epochs": _EPOCHS},
    }
    estimator = StateSpaceEstimator("pool", task.freq, task.prediction_length, members=_MEMBERS, **options)
    estimator.columns_of_entries = task.columns
    return estimator.train(entries)
