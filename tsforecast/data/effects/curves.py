"""Tables of fitted curves: the effect of each covariate, value by value."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import steps_per_day
from tsforecast.data.effects.calendar import periods
from tsforecast.data.effects.effects import Effects
from tsforecast.data.effects.link import moved

_POINTS = 25  # of a curve; a straight line has two
_NORMAL = 1.2815515655446004  # deviations of an interval of 80 %

Array = NDArray[np.float64]


def curves_of(effects: Effects, names: Sequence[str]) -> pd.DataFrame:
    """Return the curves of all covariates that vary, see `tsforecast.analysis.drivers.effect_curves`."""
    day = int(steps_per_day(effects.basis.freq)) if effects.basis.by_hour else 1
    start = pd.Period("2024-01-01", effects.basis.freq)
    assert isinstance(start, pd.Period)
    times = periods(start, day)
    hours = np.append(times.hour + times.minute / 60, np.nan) if effects.basis.by_hour else np.array([np.nan])
    frames = []
    for item in (None, *effects.own):
        for column, name in enumerate(names):
            values = _points(effects, column)
            if not len(values):
                continue
            effect, deviation = _along(effects, item, column, values, times)
            frames += [
                pd.DataFrame(
                    {"item_id": item or "", "covariate": name, "hour": hour, "value": values}
                    | {
                        key: moved(np.ones(len(values)), effect[:, k] + by * deviation[:, k], effects.bend, 1.0) - 1
                        for key, by in (("effect", 0.0), ("lower", -_NORMAL), ("upper", _NORMAL))
                    }
                )
                for k, hour in enumerate(hours)
            ]
    keys = ("item_id", "covariate", "hour", "value", "effect", "lower", "upper")
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({key: [] for key in keys})


def _points(effects: Effects, column: int) -> Array:
    """Return values of a covariate, from the lowest of its curve to the highest; none where it has none."""
    own = [one for one in effects.basis.signals if one.column == column]
    if not own:
        return np.zeros(0)
    knots = [(one.knots[0], one.knots[-1]) for one in own if one.knots]
    return np.linspace(*(knots[0] if knots else own[0].ends), _POINTS if knots else 2)


def _along(effects: Effects, item: str | None, column: int, values: Array, times: object) -> tuple[Array, Array]:
    """Return effects less that of the mean, and their deviations, (value, hour); the last column is of all hours."""
    signals = effects.basis.signals
    typical = np.array(
        [next((one.centre for one in signals if one.column == k), 0.0) for k in range(effects.num_covariates)]
    )
    found, doubt = [], []
    for value in (typical[column], *values):
        given = np.broadcast_to(np.where(np.arange(len(typical)) == column, value, typical), (len(times), len(typical)))  # pyright: ignore
        means = [np.clip(given[0, one.column], *one.ends) for one in signals if one.half_life]
        means = np.array([1.0] * len(effects.basis.relative) + means)
        effect, differences, _ = effects.along([item], times, given[None], means[None])
        found.append(np.append(effect[0], effect[0].mean()))
        doubt.append(np.concatenate([differences[0], differences[0].mean(0, keepdims=True)]))
    width = 1 if len(found[0]) == 2 else len(found[0])  # one period a day has no hours
    rises, apart = np.array(found)[1:] - found[0], np.array(doubt)[1:] - doubt[0]
    return rises[:, -width:], np.sqrt(np.square(apart).sum(-1))[:, -width:]
