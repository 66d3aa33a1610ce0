"""Seasons by name: how many factors each has, and which of them a time stamp belongs to."""

from collections.abc import Callable
from typing import Any

# Season name -> (number of factors, index by the calendar: of a `pandas.PeriodIndex`).
SEASONS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "minute_of_hour": (60, lambda t: t.minute),
    "half_hour_of_day": (48, lambda t: 2 * t.hour + t.minute // 30),
    "hour_of_day": (24, lambda t: t.hour),
    "hour_by_kind_of_day": (48, lambda t: t.hour + 24 * (t.dayofweek >= 5)),
    "hour_of_week": (168, lambda t: t.hour + 24 * t.dayofweek),
    "day_of_week": (7, lambda t: t.dayofweek),
    "day_of_month": (31, lambda t: t.day - 1),
    "week_of_year": (53, lambda t: (t.dayofyear - 1) // 7),
    "month_of_year": (12, lambda t: t.month - 1),
    "quarter_of_year": (4, lambda t: t.quarter - 1),
}
_CYCLE = "cycle_of_"


def cycle_length(name: str) -> int | None:
    """Return N of the season `cycle_of_N`, which counts steps from a fixed date, and None for any other name."""
    count = name.removeprefix(_CYCLE)
    return int(count) if name.startswith(_CYCLE) and count.isdigit() and int(count) > 1 else None


def num_factors(name: str) -> int | None:
    """Return how many factors a season has, and None where there is no season of that name."""
    return SEASONS[name][0] if name in SEASONS else cycle_length(name)
