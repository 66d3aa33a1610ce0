"""The choice whether covariates have effects, by forecasts of windows before the end."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tsforecast.data.effects import fitting
from tsforecast.data.effects.effects import COVARIATES, Effects
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.grid_training import CURVES, NO_EFFECTS
from tsforecast.forecasting.quick_bank import conditioned
from tsforecast.forecasting.trials import before_windows, comparison, count_windows, loss_of, windows_of
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)


def chosen_effects(task: ForecastTask, seed: int | None, data: Iterable[dict[str, Any]] | None = None) -> str:
    """Return whether covariates have effects, "curves" or "none": none where these worsen forecasts.

    A bank that only conditions forecasts windows before the end with and without effects that are fitted to what lies
    before. Nothing is compared where a fit to all data, which the training has anyway, leaves none.

    Args:
        task: Series from whose training parts windows are taken.
        seed: Of the sample of series that are compared.
        data: All series, to which effects are fitted; None for those of the task.

    Returns:
        "auto" where there is nothing to choose: no covariates, or several targets, whose model has the effects.
    """
    entries = list(task.train)
    if not len(entries[0].get(COVARIATES, ())) or np.ndim(entries[0]["target"]) > 1:
        return AUTO
    found = fitting.fit_effects(entries if data is None else data, task.freq)  # which is kept for the training
    if found is None or not found.basis.signals:
        return CURVES  # none is left, as the log of the training says
    held_out = comparison(ForecastTask(task.name, task.freq, task.prediction_length, 0, entries), seed)
    if held_out is None:
        log.info("effects of covariates are kept without a comparison: most series are too short for a window")
        return CURVES
    before = list(held_out.train)
    earlier = _fitted_before(entries, held_out)
    if earlier is None or not earlier.basis.signals:
        log.info("effects of covariates are kept without a comparison: values before the last windows show none")
        return CURVES
    if not _moves(earlier, held_out):
        log.info("effects of covariates are kept without a comparison: these are the same in all of the last windows")
        return CURVES
    score = {
        name: loss_of(conditioned(held_out, before, seed or 0, effects), held_out, "equal")
        for name, effects in ((CURVES, earlier), (NO_EFFECTS, fitting.no_effects(before, task.freq)))
    }
    better = min(score, key=lambda name: score[name])
    log.info(
        "%s windows before the end have a CRPS of %.4g with effects of covariates, %.4g without: they are %s",
        count_windows(held_out), score[CURVES], score[NO_EFFECTS], "left out" if better == NO_EFFECTS else "kept",
    )  # fmt: skip
    return better


def _moves(effects: Effects, held_out: ForecastTask) -> bool:
    """Return whether covariates that have effects change in the windows of a series: there may be no Easter."""
    columns, count = sorted({one.column for one in effects.basis.signals}), count_windows(held_out)
    pasts = windows_of(held_out)[0]
    ahead = [np.asarray(past[COVARIATES])[columns, np.shape(past["target"])[-1] :] for past in pasts]
    each = (np.concatenate(ahead[k : k + count], 1) for k in range(0, len(ahead), count))
    return any(np.ptp(one, axis=1).any() for one in each)


def earlier_effects(task: ForecastTask, seed: int | None) -> Effects | None:
    """Return effects fitted to all values before the windows of a comparison; None without one, or if none varies.

    A comparison sees no more than the last steps of long series, in which there may be no winter.
    """
    own = ForecastTask(task.name, task.freq, task.prediction_length, 0, list(task.train))
    held_out = comparison(own, seed)
    return None if held_out is None else _fitted_before(own.entries, held_out)


def _fitted_before(entries: Sequence[dict[str, Any]], held_out: ForecastTask) -> Effects | None:
    with warnings_only(fitting.__name__):  # the fit to all data says how much of them it takes
        return fitting.fit_effects(before_windows(entries, held_out), held_out.freq)
