"""Sums of steps over whole calendar periods: the months, quarters and years of a history and of its horizon."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import (
    calendar_unit,
    ordinals,
    period_alias,
    steps_in_words,
    steps_per_day,
    to_period,
)
from tsforecast.data.calendar.stamps import STAMP, stamps_of
from tsforecast.data.magnitude import compact
from tsforecast.data.task import ForecastTask
from tsforecast.wording import listed, option

log = logging.getLogger(__name__)

_UNITS = {"hour": "h", "day": "D", "week": "W-SUN", "month": "M", "quarter": "Q-DEC", "year": "Y-DEC"}
_WORDS = {unit: word for word, unit in _UNITS.items()}
_FILLED = 0.1  # share of the steps of a period that may be gaps
_LEAST = 3  # whole periods of a series of which a model can say something

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Periods:
    """Sums over the whole periods of one calendar unit.

    Attributes:
        name: Of the unit, as it was given.
        weights: Of the steps of the horizon in the sum of each whole period within it, (period, step).
        start: First of these periods.
        task: Sums over the whole periods before the forecast, of series that have three at least. Its horizon reaches
            over those within.
    """

    name: str
    weights: Array
    start: pd.Period
    task: ForecastTask


def find_periods(given: str | Sequence[str], task: ForecastTask) -> list[Periods]:
    """Return the sums over whole periods of a task.

    A step counts to the period of its time stamp. Gaps are filled along a line between their neighbours; a period with
    more than a tenth of its steps missing is missing.

    Args:
        given: Names of units, longer than a step: hour, day, week, month, quarter, year, or a frequency such as Y-JUN.
        task: Series of one target that end together, on a grid.

    Raises:
        ValueError: If a unit is not known, not longer than a step, or not whole within the horizon.
    """
    names = [given] if isinstance(given, str) else [*given]
    if not names or len({_unit(name) for name in names}) < len(names):
        raise ValueError(f"expected {option('aggregate')} such as month or quarter, each once, got {names}")
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        raise ValueError(f"expected one target with {option('aggregate')}, got several: forecast each of them alone")
    return [_periods(name, _unit(name), task) for name in names]


def step_name(freq: str) -> str:
    """Return the word for a step of a frequency, or the frequency."""
    return _WORDS.get(freq, freq)


def _unit(name: str) -> str:
    known = _UNITS.get(name.lower())
    try:
        found = known or period_alias(name)
        single = calendar_unit(found)[0] == 1
    except ValueError:
        single = False
    if not single:
        raise ValueError(f"expected {option('aggregate')} to be {listed([*_UNITS])}, or a frequency such as Y-JUN, "
                         f"got {name!r}")  # fmt: skip
    return found  # pyright: ignore[reportPossiblyUnboundVariable]


def _periods(name: str, unit: str, task: ForecastTask) -> Periods:
    horizon = task.prediction_length
    if steps_per_day(unit) >= steps_per_day(task.freq):
        raise ValueError(f"expected {option('aggregate')} longer than a step of {task.freq!r}, got {name!r}")
    entries, edges = [], np.empty(0, np.int64)
    known: dict[Any, NDArray[np.int64]] = {}  # most series begin together
    for entry in task.entries:
        length = entry["target"].shape[-1]
        key = entry["start"], length, (entry.get("info") or {}).get(STAMP)
        if key not in known:
            known[key] = _edges(entry, length + horizon, unit)
        edges = known[key] - length
        if (edges >= 0).sum() < 2:
            raise ValueError(
                f"no whole {name!r} lies within the horizon of {steps_in_words(horizon, task.freq)}: give a longer one"
            )
        if (summed := _summed(entry, known[key], unit)) is not None:
            entries.append(summed)
    whole = edges[edges >= 0]
    weights = np.zeros((len(whole) - 1, horizon))
    for row, begin, end in zip(weights, whole[:-1], whole[1:], strict=True):
        row[begin:end] = 1.0
    if left := int(whole[0] + horizon - whole[-1]):
        log.info("%s of the horizon are in no whole %r, and in no sum", steps_in_words(left, task.freq), name)
    last = task.entries[-1]
    start = _period(last, last["target"].shape[-1] + int(whole[0]), unit)
    ahead = int((edges > 0).sum())  # with the period in which the history ends
    sums = replace(task, freq=unit, prediction_length=ahead, entries=entries, windows=0, step=0)
    return Periods(name, weights, start, sums)


def _period(entry: Mapping[str, Any], step: int, unit: str) -> pd.Period:
    """Return the period of a step of a series."""
    stamp = stamps_of(entry["start"] + step, 1, entry.get("info"))[0]
    return to_period(pd.Timestamp(stamp), unit)


def _edges(entry: Mapping[str, Any], steps: int, unit: str) -> NDArray[np.int64]:
    """Return the first steps of periods that begin among so many steps of a series, and right behind them."""
    codes = ordinals(stamps_of(entry["start"] - 1, steps + 2, entry.get("info")), unit)
    return np.flatnonzero(np.diff(codes))


def _summed(entry: dict[str, Any], edges: NDArray[np.int64], unit: str) -> dict[str, Any] | None:
    """Return a series of sums over its whole periods; None where it has fewer than three."""
    target = np.asarray(entry["target"], np.float64)
    past = edges[edges <= len(target)]
    missing = np.isnan(target)
    if len(past) <= _LEAST or missing.all():
        return None
    steps = np.arange(len(target))
    filled = np.interp(steps, steps[~missing], target[~missing])
    sums = np.where(_totals(missing.astype(float), past) > _FILLED * np.diff(past), np.nan, _totals(filled, past))
    if (~np.isnan(sums)).sum() < _LEAST:
        return None
    info = {key: value for key, value in (entry.get("info") or {}).items() if key != STAMP}
    found = {key: value for key, value in entry.items() if not key.startswith("past_feat") and key != "info"}
    found |= {"start": _period(entry, int(past[0]), unit), "target": compact(sums[None])[0]} | (
        {"info": info} if info else {}
    )
    if "feat_dynamic_real" in entry:
        rows = np.asarray(entry["feat_dynamic_real"], np.float64)
        within = edges[(edges >= past[0]) & (edges <= rows.shape[1])]
        means = [_totals(row, within) / np.diff(within) for row in rows]
        found["feat_dynamic_real"] = compact(np.stack(means))
    return found


def _totals(row: Array, edges: NDArray[np.int64]) -> Array:
    return np.add.reduceat(row[: edges[-1]], edges[:-1])
