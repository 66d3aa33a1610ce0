"""The model of `tsforecast.forecast`: a bank that begins with what other series have taught, beside another half."""

import logging
from typing import Any

import numpy as np

from tsforecast.data.low_counts import are_mostly_low
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.direct import has_days, is_long
from tsforecast.forecasting.effect_choice import chosen_effects
from tsforecast.forecasting.lengths import bank_learns
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.quick_bank import conditioned, learnt_in_part
from tsforecast.forecasting.share_choice import chosen_share
from tsforecast.forecasting.totals import SUMMED, are_totals, of_increments

log = logging.getLogger(__name__)

_SERIES = 2048  # that parameters are fitted to, at most: a training sees each once, or a few times
_ENOUGH = 1000  # steps of all series from which on they teach an `issm` what the bank does not know
_MEMBERS, _EPOCHS = "bank learning_rate=0; issm", 20  # of the mixture with it


def fitted(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts the series of a task, fitted to its training part within seconds.

    It is a bank, which begins with what other series of the frequency have taught; its parameters, the same for all
    series, then learn from these in a few steps; where series have shocks in common, as far as windows before the end
    say. Of fewer than twenty series, and where training windows are long, as of hours, they stay as they are, and each
    series decides by its own past. Forecasts are then mixtures: of hours or less with direct forecasts, where most
    series have three weeks or horizons are an eighth of a day, else in equal parts with those of an `issm`, which
    learns from 1000 steps or more. Low counts of days or longer steps have models of their own beside it. Of running
    totals the increments are forecast.
    """
    if are_totals(task.train):
        log.info(SUMMED)
        predictor = _fitted(of_increments(task), seed)
        predictor.totals = True
    else:
        predictor = _fitted(task, seed)
    # A table of the same form is read by these again; entries alone say nothing of columns.
    predictor.columns = None if task.columns is None else as_lists(task.columns)
    predictor.categories = task.categories or None
    return predictor


def _fitted(task: ForecastTask, seed: int) -> StateSpacePredictor:
    """Return what forecasts series, whose columns it does not know yet."""
    entries = [entry for entry in task.train if np.isfinite(entry["target"]).any()] or list(task.train)
    learns = bank_learns(task.freq, task.prediction_length, entries)
    if learns and len(entries) > _SERIES and not task.categories:  # a category without a series would be unknown
        log.info("a bank learns from %d of %d series, since all have the same parameters", _SERIES, len(entries))
        order = np.random.default_rng(seed).permutation(len(entries))[:_SERIES]
        entries = [entries[number] for number in sorted(order)]
    effects = chosen_effects(task, seed)
    if has_days(task.freq) and not learns:
        return _beside_direct(task, entries, seed, effects)
    predictor = _without_direct(task, entries, seed, effects, learns)
    if are_mostly_low(entries) and not has_days(task.freq):
        predictor.direct = chosen_share(predictor, task, entries, seed, "models of low counts")
    return predictor


def _without_direct(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str, learns: bool
) -> StateSpacePredictor:
    """Return a bank that learns, or one that stays as it begins, beside an `issm` where there are data for it."""
    if learns:
        return learnt_in_part(task, entries, seed, effects)
    if sum(entry["target"].shape[-1] for entry in entries) >= _ENOUGH:
        log.info("half a bank with parameters learnt from public series, half an issm trained on these series")
        return _halves(task, entries, seed, effects)
    log.info("few and short series: the bank keeps the parameters learnt from public series")
    return conditioned(task, entries, seed, effects)


def _beside_direct(task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str) -> StateSpacePredictor:
    """Return a bank that stays as it begins, beside direct forecasts where most series are long enough for these."""
    predictor = conditioned(task, entries, seed, effects)
    length = int(np.median([entry["target"].shape[-1] for entry in entries]))
    if is_long(length, task.freq, task.prediction_length):
        log.info("a bank with parameters learnt from public series, and regressions")
        predictor.direct = chosen_share(predictor, task, entries, seed, "regressions")
    else:
        log.info("short series or a far horizon: the bank keeps the parameters learnt from public series")
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
