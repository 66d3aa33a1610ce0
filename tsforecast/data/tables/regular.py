"""From time stamps to steps of a regular grid: inferring the frequency, finding duplicates, gaps and strays."""

import logging
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import DAYS, calendar_unit, ordinals, period_alias, step_nanoseconds, weekday
from tsforecast.data.tables.cells import Stamps
from tsforecast.data.tables.roles import column_option
from tsforecast.data.tables.table import Table
from tsforecast.wording import option

log = logging.getLogger(__name__)

_INSPECTED = 100  # series that the frequency is inferred from, the longest ones
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_IRREGULAR = "or keep the times as they are: `train issm --irregular`, or `StateSpaceEstimator(horizon=..)`"
_DAY = 86_400_000_000_000  # nanoseconds


def infer_frequency(table: Table, stamps: Stamps, bounds: NDArray[np.int64]) -> str:
    """The frequency of most series; of series with gaps, the most frequent distance between their time stamps.

    Args:
        table: Where the time stamps come from, for messages.
        stamps: Time stamps, ascending within each series.
        bounds: Series k has the rows `bounds[k]` to `bounds[k + 1]`; shape (series + 1,).

    Returns:
        Period alias; "B" where days are left out on weekends only.
    """
    lengths = np.diff(bounds)
    longest = np.argsort(-lengths, kind="stable")[:_INSPECTED]
    inspected = [stamps[bounds[k] : bounds[k + 1]] for k in longest if lengths[k] >= 3]
    if not inspected:
        raise ValueError(
            f"{table.path}: the frequency can not be inferred, no series has three time stamps; give it, e.g. "
            f"{option('freq', 'D')}"
        )
    votes: dict[str, int] = {}
    for series in inspected:
        inferred = pd.infer_freq(pd.DatetimeIndex(series))
        if inferred is not None:
            try:
                alias = period_alias(inferred)
            except ValueError:  # pandas knows frequencies that no period has, such as twice a month
                continue
            votes[alias] = votes.get(alias, 0) + len(series)
    freq = max(votes, key=lambda alias: votes[alias]) if votes else _by_gaps(inspected)
    log.info("%s: frequency %s, inferred%s", table.path, freq, "" if votes else " despite gaps")
    return freq


def _by_gaps(inspected: list[Stamps]) -> str:
    """The frequency of the most frequent distance."""
    gaps = np.concatenate([np.diff(series.astype(np.int64)) for series in inspected])
    distances, counts = np.unique(gaps[gaps > 0], return_counts=True)
    if len(distances) == 0:
        return "D"  # repeated time stamps only, which are refused right after
    gap = int(distances[np.argmax(counts)])
    for alias, least, most in (("M", 28, 31), ("Q-DEC", 90, 92), ("Y-DEC", 365, 366)):
        if least * _DAY <= gap <= most * _DAY:
            return alias
    if gap == 7 * _DAY:
        return f"W-{DAYS[weekday(inspected[0][:1])[0]]}"
    if gap == _DAY:
        crosses = any(series[-1] - series[0] >= np.timedelta64(7, "D") for series in inspected)
        return "B" if crosses and bool((weekday(np.concatenate(inspected)) < 5).all()) else "D"
    for unit, size in (
        ("D", _DAY),
        ("h", _DAY // 24),
        ("min", _DAY // 1440),
        ("s", 10**9),
        ("ms", 10**6),
        ("us", 1000),
    ):
        if gap % size == 0:
            return period_alias(f"{gap // size}{unit}")
    return period_alias(f"{gap}ns")


def grid_steps(table: Table, stamps: Stamps, bounds: NDArray[np.int64], freq: str) -> NDArray[np.int64]:
    """Steps from the first row of its series to each row.

    Returns:
        Shape (rows,); 0 at the first row of each series. A step that is left out is a gap.

    Raises:
        ValueError: If two rows fall into one step, a row falls between two steps, or the grid is finer than the data.
    """
    first = np.repeat(bounds[:-1], np.diff(bounds))
    _refuse_duplicates(table, stamps, first)
    place, size = step_numbers(table, stamps, freq)
    distance = place - place[first]
    stray = distance % size != 0
    if stray.any():
        row = int(np.argmax(stray))
        raise ValueError(
            f"{_place(table, row)}: {_show(stamps[row])} is no whole number of steps of frequency {freq!r} behind the "
            f"first time stamp of its series, {_show(stamps[first[row]])}; correct it, resample the series to regular "
            f"steps, or give the right {option('freq')}; {_IRREGULAR}"
        )
    steps = distance // size
    _refuse_collisions(table, stamps, steps, first, freq)
    _refuse_finer_grid(table, steps, bounds, freq)
    return steps


def step_numbers(table: Table, stamps: Stamps, freq: str) -> tuple[NDArray[np.int64], int]:
    """Time stamps, of business days none on a weekend, as numbers, and the distance of two steps in these."""
    size = step_nanoseconds(freq)
    if size is not None:
        return stamps.astype(np.int64), size
    size, unit = calendar_unit(freq)
    if unit == "B":
        _refuse_weekends(table, stamps)
    return ordinals(stamps, unit), size


def _refuse_weekends(table: Table, stamps: Stamps) -> None:
    """Raises at the first Saturday or Sunday: pandas would move it to Monday."""
    days = weekday(stamps)
    if (days >= 5).any():
        row = int(np.argmax(days >= 5))
        raise ValueError(
            f"{_place(table, row)}: {_show(stamps[row])} is a {_WEEKDAYS[days[row]]}, no business day; "
            f"give {option('freq', 'D')} or delete the row"
        )


def _place(table: Table, row: int) -> str:
    return table.place(row, str(table.columns.timestamp))


def _show(stamp: Any) -> str:
    return str(pd.Timestamp(stamp))


def _refuse_duplicates(table: Table, stamps: Stamps, first: NDArray[np.int64]) -> None:
    same = (stamps[1:] == stamps[:-1]) & (first[1:] == first[:-1])
    if same.any():
        row = int(np.argmax(same)) + 1
        item = table.item
        of = f" of item {table.frame[item].iloc[row]!r}" if item is not None else ""
        name_it = column_option("item", "NAME" if item is None else [*item.split("/"), "NAME"])
        raise ValueError(
            f"{_place(table, row)}: the time stamp {_show(stamps[row])}{of} occurs twice, first in "
            f"{table.place(row - 1)}; keep one row or add them up. If another column tells the series apart, name it "
            f"by {name_it}. If a clock was set back there, write the time stamps with their UTC offset"
        )


def _refuse_collisions(
    table: Table, stamps: Stamps, steps: NDArray[np.int64], first: NDArray[np.int64], freq: str
) -> None:
    same = (steps[1:] == steps[:-1]) & (first[1:] == first[:-1])
    if same.any():
        row = int(np.argmax(same)) + 1
        raise ValueError(
            f"{_place(table, row)}: {_show(stamps[row])} falls into the same step of frequency {freq!r} as "
            f"{_show(stamps[row - 1])} in {table.place(row - 1)}; aggregate the rows, or give a shorter "
            f"{option('freq')}"
        )


def _refuse_finer_grid(table: Table, steps: NDArray[np.int64], bounds: NDArray[np.int64], freq: str) -> None:
    """Refuses a frequency finer than all distances of the data, and warns where most steps are missing."""
    common = int(np.gcd.reduce(steps))
    if common > 1:
        raise ValueError(
            f"{table.path}: all rows are {common} steps of frequency {freq!r} apart, or a multiple; give a longer "
            f"{option('freq')} which fits the data"
        )
    cells = int((steps[bounds[1:] - 1] + 1).sum())
    if cells > 1000 * len(steps) + 1_000_000:
        raise ValueError(
            f"{table.path}: at frequency {freq!r} the {len(steps)} rows would be spread over {cells} steps; give a "
            f"longer {option('freq')}, or correct time stamps that lie far from the others"
        )
    gaps = cells - len(steps)
    if gaps:
        level = logging.WARNING if gaps > cells / 2 else logging.INFO
        log.log(level, "%s: %d of %d steps have no row and count as missing values", table.path, gaps, cells)
