"""The share of direct forecasts in a mixture, by windows before the end."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from gluonts.model.forecast import Forecast
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.low_counts import are_low
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.direct import SHARE, has_days, is_direct, is_long
from tsforecast.forecasting.exact import ExactForecast
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.trials import LEVELS, SHARE_OF_LONG, count_windows, seasonal_error, span, windows_of
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

_HELD_OUT, _WINDOWS = 8, 4  # series and windows that choose, at most
_FEW = 3  # series, which have ten windows

Array = NDArray[np.float64]


def chosen_share(
    predictor: StateSpacePredictor, task: ForecastTask, entries: Sequence[dict[str, Any]], seed: int, what: str
) -> float:
    """Return the share of direct forecasts, halfway from a half to that of least CRPS on windows before the end.

    The CRPS of a mixture is a parabola in the share, so that its lowest point has a closed form (Gneiting and Raftery
    2007, equation 21). A few windows are little evidence, therefore halfway.

    Args:
        predictor: Of the model alone, which gets a share for the windows.
        task: With frequency and horizon.
        entries: Series, of which a few are drawn.
        seed: Of these.
        what: Name of the direct forecasts in the log.

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
    long = [one for one in entries if _has_direct(one["target"][..., : -windows * steps], task.freq, steps)]
    order = np.random.default_rng(seed).permutation(len(long))[:_HELD_OUT]
    own = [long[number] for number in sorted(order)]
    return ForecastTask(task.name, task.freq, steps, windows, own) if own else None


def _has_direct(target: NDArray[Any], freq: str, horizon: int) -> bool:
    """Return whether a past, (..., time), is long enough for a direct forecast, or one of low counts."""
    if has_days(freq):
        return is_long(target.shape[-1], freq, horizon)
    return all(are_low(row) for row in np.atleast_2d(target))


def _parabola(past: dict[str, Any], label: dict[str, Any], forecast: Forecast, day: int) -> tuple[float, float]:
    """Return slope and bend of the CRPS, in seasonal errors, as a function of the share; NaN without one."""
    assert isinstance(forecast, ExactForecast)
    names = set(forecast.weights)
    continued = {name for name in names if is_direct(name) and forecast.weights[name]}
    if not continued:
        return np.nan, np.nan
    model, direct = (forecast.of_models(own).quantiles(LEVELS) for own in (names - continued, continued))
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
