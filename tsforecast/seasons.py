"""Seasons by name: the number of factors or harmonics of each, and the place of a time stamp in its cycle."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

# Season name -> (number of factors, index by the calendar: of a `pandas.PeriodIndex`, days in the cycle).
SEASONS: dict[str, tuple[int, Callable[[Any], Any], float]] = {
    "minute_of_hour": (60, lambda t: t.minute, 1 / 24),
    "half_hour_of_day": (48, lambda t: 2 * t.hour + t.minute // 30, 1),
    "hour_of_day": (24, lambda t: t.hour, 1),
    "hour_by_kind_of_day": (48, lambda t: t.hour + 24 * (t.dayofweek >= 5), 7),
    "hour_of_week": (168, lambda t: t.hour + 24 * t.dayofweek, 7),
    "day_of_week": (7, lambda t: t.dayofweek, 7),
    "day_of_month": (31, lambda t: t.day - 1, 365.25 / 12),
    "week_of_year": (53, lambda t: (t.dayofyear - 1) // 7, 365.25),
    "month_of_year": (12, lambda t: t.month - 1, 365.25),
    "quarter_of_year": (4, lambda t: t.quarter - 1, 365.25),
}
_CYCLE = "cycle_of_"


class Cycle(NamedTuple):
    """A cycle of the calendar, for smooth seasons."""

    positions: int  # number of positions in it
    days: float  # its mean length
    position: Callable[[Any], Any]  # position by the calendar: of a `pandas.PeriodIndex`


def _minute(times: Any) -> Any:
    return 60 * times.hour + times.minute


# Positions are minutes. Those of a short year or month are stretched to the longest, so that each begins at 0 and ends
# where the next begins.
CYCLES = {
    "day": Cycle(1440, 1, _minute),
    "week": Cycle(10_080, 7, lambda t: 1440 * t.dayofweek + _minute(t)),
    "month": Cycle(44_640, 365.25 / 12, lambda t: (1440 * (t.day - 1) + _minute(t)) * 31 // t.days_in_month),
    "year": Cycle(527_040, 365.25, lambda t: (1440 * (t.dayofyear - 1) + _minute(t)) * 366 // (365 + t.is_leap_year)),
}
DEFAULT_HARMONICS = 3
_SMOOTH = re.compile(r"(.+)_with_([1-9]\d*)_harmonics?")


class SmoothSeason(NamedTuple):
    """A season that is a sum of harmonics."""

    cycle: str  # name of its cycle: one in `CYCLES`, or `cycle_of_N`
    positions: int  # number of positions in the cycle
    harmonics: int  # number of harmonics


def cycle_length(name: str) -> int | None:
    """Return N of the season `cycle_of_N`, counted in steps from a fixed date, and None for any other name."""
    count = name.removeprefix(_CYCLE)
    return int(count) if name.startswith(_CYCLE) and count.isdigit() and int(count) > 1 else None


def num_factors(name: str) -> int | None:
    """Return the number of factors of a season, and None if no season of factors has that name."""
    return SEASONS[name][0] if name in SEASONS else cycle_length(name)


def smooth_season(name: str) -> SmoothSeason | None:
    """Return the smooth season of a name such as `year` or `year_with_5_harmonics`, and None for other names."""
    match = _SMOOTH.fullmatch(name)
    cycle, harmonics = (match[1], int(match[2])) if match else (name, DEFAULT_HARMONICS)
    if cycle in CYCLES:
        return SmoothSeason(cycle, CYCLES[cycle].positions, harmonics)
    positions = cycle_length(cycle) if match else None
    return None if positions is None else SmoothSeason(cycle, positions, harmonics)


def season_index(name: str, times: Any, steps: Any) -> Any:
    """Return where in the cycle of a season each step is: the active factor, or the position of a smooth season."""
    smooth = smooth_season(name)
    name = name if smooth is None else smooth.cycle
    if length := cycle_length(name):
        return steps % length
    return SEASONS[name][1](times) if name in SEASONS else CYCLES[name].position(times)
