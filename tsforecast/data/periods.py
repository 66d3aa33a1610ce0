"""Whole calendar periods within a horizon: the months, quarters and years whose sums forecasts have, too."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import (
    calendar_unit,
    expected_alias_warnings,
    ordinals,
    period_alias,
    steps_in_words,
    steps_per_day,
    to_period,
)
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.task import ForecastTask
from tsforecast.wording import listed, option

log = logging.getLogger(__name__)

UNITS = {"hour": "h", "day": "D", "week": "W-SUN", "month": "M", "quarter": "Q-DEC", "year": "Y-DEC"}
_WORDS = {unit: word for word, unit in UNITS.items()}


@dataclass(frozen=True, eq=False)
class Periods:
    """Sums over the whole periods of one calendar unit within a horizon."""

    name: str  # of the unit, as it was given
    weights: NDArray[np.float64]  # of the steps in the sum of each period, (period, step)
    start: pd.Period  # first of the periods


def find_periods(given: str | Sequence[str], task: ForecastTask) -> list[Periods]:
    """Return the whole periods within the horizon of a task; a step counts to the period of its time stamp.

    Args:
        given: Names of units, longer than a step: hour, day, week, month, quarter, year, or a frequency such as Y-JUN.
        task: Series of one target that end together, on a grid.

    Raises:
        ValueError: If a unit is not known, not longer than a step, or not whole within the horizon.
    """
    names = [given] if isinstance(given, str) else [*map(str, np.atleast_1d(given))]
    if not names or len({_unit(name) for name in names}) < len(names):
        raise ValueError(f"expected {option('aggregate')} such as month or quarter, each once, got {names}")
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        raise ValueError(f"expected one target with {option('aggregate')}, got several: forecast each of them alone")
    return [_periods(name, _unit(name), task) for name in names]


def step_name(freq: str) -> str:
    """Return the word for a step of a frequency, or the frequency."""
    return _WORDS.get(freq, freq)


def _unit(name: str) -> str:
    known = UNITS.get(name.lower())
    try:
        found = known or period_alias(name)
        single = calendar_unit(found)[0] == 1
    except ValueError:
        single = False
    if not single:
        raise ValueError(f"expected {option('aggregate')} to be {listed([*UNITS])}, or a frequency such as Y-JUN, "
                         f"got {name!r}")  # fmt: skip
    return found  # pyright: ignore[reportPossiblyUnboundVariable]


def _periods(name: str, unit: str, task: ForecastTask) -> Periods:
    horizon, last = task.prediction_length, task.entries[-1]
    if steps_per_day(unit) >= steps_per_day(task.freq):
        raise ValueError(f"expected {option('aggregate')} longer than a step of {task.freq!r}, got {name!r}")
    # With the step before and the step behind: a period is whole where its neighbours are others.
    with expected_alias_warnings():
        before = last["start"] + last["target"].shape[-1] - 1
    stamps = stamps_of(before, horizon + 2, last.get("info"))
    edges = np.flatnonzero(np.diff(ordinals(stamps, unit)))
    if len(edges) < 2:
        raise ValueError(
            f"no whole {name!r} lies within the horizon of {steps_in_words(horizon, task.freq)}: give a longer one"
        )
    if left := int(edges[0] + horizon - edges[-1]):
        log.info("%s of the horizon are in no whole %r, and in no sum", steps_in_words(left, task.freq), name)
    steps = np.arange(horizon)
    weights = ((steps >= edges[:-1, None]) & (steps < edges[1:, None])).astype(float)
    begin: Any = stamps[1 + edges[0]]
    return Periods(name, weights, to_period(pd.Timestamp(begin), unit))
