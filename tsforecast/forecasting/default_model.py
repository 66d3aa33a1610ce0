"""The model of `tsforecast.forecast`: a bank that begins with what other series have taught, beside another half."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from gluonts.model.forecast import Forecast
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.tables.dataframes import as_lists
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.direct import SHARE, has_days, has_direct, is_direct, is_long
from tsforecast.forecasting.effect_choice import chosen_effects
from tsforecast.forecasting.exact import ExactForecast
from tsforecast.forecasting.lengths import bank_learns
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.quick_bank import conditioned, learnt_in_part
from tsforecast.forecasting.rare import are_rare
from tsforecast.forecasting.totals import SUMMED, are_totals, of_increments
from tsforecast.forecasting.trials import LEVELS, SHARE_OF_LONG, count_windows, seasonal_error, span, windows_of
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

_SERIES = 2048  # that parameters are fitted to, at most: a training sees each once, or a few times
_ENOUGH = 1000  # steps of all series from which on they teach an `issm` what the bank does not know
_MEMBERS, _EPOCHS = "bank learning_rate=0; issm", 20  # of the mixture with it
_HELD_OUT, _WINDOWS = 8, 4  # series and windows that choose the share of regressions, at most
_FEW = 3  # series, which have ten windows

Array = NDArray[np.float64]


def fitted(task: ForecastTask, seed: int = 0) -> StateSpacePredictor:
    """Return what forecasts the series of a task, fitted to its training part within seconds.

    It is a bank, which begins with what other series of the frequency have taught; its parameters, the same for all
    series, then learn from these in a few steps; where series have shocks in common, as far as windows before the end
    say. Of fewer than twenty series, and where training windows are long, as of hours, they stay as they are, and each
    series decides by its own past. Forecasts are then mixtures: of hours or less with direct forecasts, where most
    series have three weeks or horizons are an eighth of a day, else in equal parts with those of an `issm`, which
    learns from 1000 steps or more. Of running totals the increments are forecast.
    """
    if are_totals(task.train):
        log.info(SUMMED)
        predictor = _fitted(of_increments(task), seed)
        predictor.totals = True
    else:
        predictor = _fitted(task, seed)
    # By which a table of the same form is read again: entries alone say nothing of them.
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
    found = getattr(predictor.input_transform, "effects", None)
    has_signals = found is not None and bool(found.basis.signals)  # which stretches of the past know nothing of
    rare = 2 * sum(are_rare(entry["target"]) for entry in entries) > len(entries)
    if rare and not has_days(task.freq) and not has_signals:
        predictor.direct = chosen_share(predictor, task, entries, seed, "past stretches of rare counts")
    return predictor


def _without_direct(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str, learns: bool
) -> StateSpacePredictor:
    """Return a bank that learns, or one that stays as it begins, beside an `issm` where there are data for it."""
    if learns:
        return learnt_in_part(task, entries, seed, effects)
    if sum(entry["target"].shape[-1] for entry in entries) >= _ENOUGH:
        log.info("half a bank, whose parameters stay those that other series have taught, and half an issm that learns")
        return _halves(task, entries, seed, effects)
    log.info("parameters stay those that other series have taught, as of few and short series")
    return conditioned(task, entries, seed, effects)


def _beside_direct(task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str) -> StateSpacePredictor:
    """Return a bank that stays as it begins, beside direct forecasts where most series are long enough for these."""
    predictor = conditioned(task, entries, seed, effects)
    length = int(np.median([entry["target"].shape[-1] for entry in entries]))
    if is_long(length, task.freq, task.prediction_length):
        log.info("a bank, whose parameters stay those that other series have taught, and regressions")
        predictor.direct = chosen_share(predictor, task, entries, seed, "regressions")
    else:
        log.info("parameters stay those that other series have taught, as of short series or far horizons")
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


def chosen_share(
    predictor: StateSpacePredictor, task: ForecastTask, entries: Sequence[dict[str, Any]], seed: int, what: str
) -> float:
    """Return the share of direct forecasts, halfway from a half to that of least CRPS on windows before the end.

    The CRPS of a mixture is a parabola in the share, so that its lowest point has a closed form (Gneiting and Raftery
    2007, equation 21). A few windows are little evidence, therefore halfway.

    Returns:
        A half where series are too short for windows.
    """
    held_out = _held_out(task, entries, seed)
    if held_out is None:
        log.info("%s count for a half: no series is long enough for windows that choose their share", what)
        return SHARE
    predictor.direct = SHARE
    pasts, labels = windows_of(held_out)
    day = default_season(task.freq)
    with warnings_only("tsforecast.forecasting"):  # the forecasts say it
        forecasts = predictor.predict(pasts, num_samples=0)
        found = [_parabola(*one, day) for one in zip(pasts, labels, forecasts, strict=True)]
    if not (own := [one for one in found if np.isfinite(one).all()]):
        log.info("%s count for a half: windows have none, as where many values are missing", what)
        return SHARE
    slope, bend = np.sum(own, 0)
    best = float(np.clip(-slope / bend, 0, 1)) if bend > 0 else SHARE
    share = round((SHARE + best) / 2, 2)
    windows = count_windows(held_out) * len(held_out.entries)
    log.info(
        "%s count for %.0f %%, halfway between 50 %% and the %.0f %% that are best in %d windows",
        what, share * 100, best * 100, windows,
    )  # fmt: skip
    return share


def _held_out(task: ForecastTask, entries: Sequence[dict[str, Any]], seed: int) -> ForecastTask | None:
    """Return series with windows at their end, before which they are long enough; None if none is."""
    steps = task.prediction_length
    spare = int(SHARE_OF_LONG * np.median([entry["target"].shape[-1] for entry in entries]) / steps)
    windows = max(span(spare) if len(entries) <= _FEW else min(spare, _WINDOWS), 1)
    long = [one for one in entries if has_direct(one["target"][..., : -windows * steps], task.freq, steps)]
    order = np.random.default_rng(seed).permutation(len(long))[:_HELD_OUT]
    own = [long[number] for number in sorted(order)]
    return ForecastTask(task.name, task.freq, steps, windows, own) if own else None


def _parabola(past: dict[str, Any], label: dict[str, Any], forecast: Forecast, day: int) -> tuple[float, float]:
    """Return slope and bend of the CRPS, in seasonal errors, as a function of the share; NaN without one."""
    assert isinstance(forecast, ExactForecast)
    names = set(forecast.weights)
    regressions = {name for name in names if is_direct(name) and forecast.weights[name]}
    if not regressions:
        return np.nan, np.nan
    model, direct = (forecast.of_models(own).quantiles(LEVELS) for own in (names - regressions, regressions))
    actual = np.asarray(label["target"], np.float64).T.reshape(model.shape[1:])
    unit = np.squeeze([seasonal_error(one, day) for one in np.atleast_2d(past["target"])])
    own, others, between = (_distance(*pair) for pair in ((model, model), (direct, direct), (model, direct)))
    slope = np.abs(direct - actual).mean(0) - np.abs(model - actual).mean(0) + own - between
    kept = np.isfinite(actual) & (unit > 0)
    if not kept.any():
        return np.nan, np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        slope, bend = ((x / unit)[kept].mean() for x in (slope, 2 * between - own - others))
    return float(slope), float(bend)


def _distance(one: Array, other: Array) -> Array:
    """Return the mean distance of a value of one distribution from one of the other, by their quantiles."""
    return np.abs(one[:, None] - other[None]).mean((0, 1))
