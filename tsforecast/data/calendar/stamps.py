"""Where in its step a time stamp stands, so that later steps are dated as rows of the user's own would be.

Data entries count steps in periods, such as a month, or a week that ends on Friday. A period says nothing of the day by
which a user dates it. A `Place` does. Entries carry it as `info["stamp"]`, and GluonTS hands `info` on to forecasts.
Entries without it are dated by the beginnings of their periods.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import DAYS, MONTHS, TICKS, calendar_unit, expected_alias_warnings, weekday

STAMP = "stamp"  # in `info` of entries and forecasts
_LAST = 30  # days behind the first day of a month, cut to its last
_MONTHS_IN = {"M": 1, "Q": 3, "Y": 12}


class Place(NamedTuple):
    """Where in its step a time stamp stands."""

    months: int = 0  # whole months behind the beginning of a quarter or year
    days: int = 0  # days behind the beginning of the week or month, at most up to the month's last
    nanoseconds: int = 0  # behind the beginning of the day, or of a shorter step
    business: bool = False  # whether a weekend is left for the nearest working day of the month

    def of(self, periods: pd.PeriodIndex) -> NDArray[Any]:
        """Return the time stamps of steps, as datetime64[ns]."""
        with expected_alias_warnings():
            begin = periods.to_timestamp().to_numpy().astype("datetime64[ns]")
            unit = calendar_unit(periods.freqstr)[1]
        if unit[0] in _MONTHS_IN:
            first, last = _month(begin.astype("datetime64[M]") + self.months)
            day = np.minimum(first + self.days, last)
            if self.business:
                day = np.busday_offset(day, 0, roll="backward" if self.days else "forward")
        else:
            day = begin + np.timedelta64(self.days, "D")
        return day.astype("datetime64[ns]") + np.timedelta64(self.nanoseconds, "ns")


BEGINNING = Place()


def saved_place(values: Any) -> Place:
    """Return the place of a file; a ValueError if it is none."""
    kinds = [type(value) for value in BEGINNING]
    if not isinstance(values, list) or [type(value) for value in values] != kinds:
        raise ValueError(f"expected the place of a time stamp in its step, got {values!r:.80}")
    return Place(*values)


@lru_cache(maxsize=10_000)
def place_at(stamp: pd.Timestamp, freq: str) -> Place:
    """Return the place of a time stamp in its step."""
    return find_places(np.array([stamp.to_datetime64()], "datetime64[ns]"), np.array([0, 1]), freq)[0][0]


def placed(place: Place) -> dict[str, Any]:
    """Return the field of an entry that says the place of its time stamps; none for the beginnings of its steps."""
    return {} if place == BEGINNING else {"info": {STAMP: place}}


def place_of(carrier: Mapping[str, Any] | None) -> Place:
    """Return the place that `info` of an entry or forecast has; the beginning of the step where it has none."""
    return (carrier or {}).get(STAMP, BEGINNING)


def stamps_of(start: pd.Period, steps: int, info: Mapping[str, Any] | None) -> NDArray[Any]:
    """Return the time stamps of steps."""
    return _stamps(start, steps, place_of(info))


def stamp_of(step: pd.Period, info: Mapping[str, Any] | None) -> pd.Timestamp:
    """Return the time stamp of a step, see `stamps_of`."""
    found: Any = pd.Timestamp(stamps_of(step, 1, info)[0])
    return found


def shown(stamp: Any) -> str:
    """Return a time stamp as people write it: midnight is the date alone."""
    return str(pd.Timestamp(stamp)).removesuffix(" 00:00:00")


def week_shift(start: pd.Period, info: Mapping[str, Any] | None) -> int:
    """Return the days between the periods of weeks and the weeks of a user behind them.

    Weeks that are dated by Mondays begin there, as in ISO 8601. Others are their periods: those that are dated by
    Fridays end there.
    """
    days = place_of(info).days
    return days if start.freqstr.partition("-")[0].endswith("W") and stamp_of(start, info).dayofweek == 0 else 0


def step_of(date: Any, start: pd.Period, info: Mapping[str, Any] | None) -> pd.Period:
    """Return the step of a series at a date; a ValueError if it is no date."""
    with expected_alias_warnings():
        found: Any = pd.Period(pd.Timestamp(date) - pd.Timedelta(week_shift(start, info), "D"), freq=start.freq)
    return found


@lru_cache(maxsize=4096)  # most series share them, and pandas takes a millisecond
def _stamps(start: pd.Period, steps: int, place: Place) -> NDArray[Any]:
    with expected_alias_warnings():
        return place.of(pd.period_range(start, periods=steps, freq=start.freq))


def find_places(stamps: NDArray[Any], bounds: NDArray[np.int64], freq: str) -> tuple[list[Place], int | None]:
    """Return the place of the time stamps of each series, rows `bounds[k]` to `bounds[k + 1]`, and a row apart.

    Returns:
        A place for each series: of all its rows, or else of most. The row is None where all rows have that of their
        series.
    """
    common = _place(stamps, freq)
    if common is not None:
        return [common] * (len(bounds) - 1), None
    found, other = [], None
    for begin, end in pairwise(bounds.tolist()):
        place = _place(stamps[begin:end], freq)
        if place is None:
            parts = np.stack(_parts(stamps[begin:end], freq), axis=1)
            distinct, code, counts = np.unique(parts, axis=0, return_inverse=True, return_counts=True)
            most = int(np.argmax(counts))
            place = Place(*distinct[most].tolist())
            if other is None:
                other = begin + int(np.argmax(code.ravel() != most))
        found.append(place)
    return found, other


def _place(stamps: NDArray[Any], freq: str) -> Place | None:
    """The place that all time stamps have; None where they have several."""
    months, days, nanoseconds = _parts(stamps, freq)
    if (months != months[0]).any() or (nanoseconds != nanoseconds[0]).any():
        return None
    rest = int(months[0]), int(nanoseconds[0])
    if calendar_unit(freq)[1][0] not in _MONTHS_IN:
        return Place(rest[0], int(days[0]), rest[1]) if (days == days[0]).all() else None
    first, last = _month(stamps.astype("datetime64[M]"))
    day = first + days
    for within in (_LAST, int(days.max())):
        if (day == np.minimum(first + within, last)).all():
            return Place(rest[0], within, rest[1])
    if (day == np.busday_offset(first, 0, roll="forward")).all():
        return Place(rest[0], 0, rest[1], True)
    if (day == np.busday_offset(last, 0, roll="backward")).all():
        return Place(rest[0], _LAST, rest[1], True)
    return None


def _parts(stamps: NDArray[Any], freq: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Months, days and nanoseconds of each time stamp behind the beginning of its step."""
    unit, _, anchor = calendar_unit(freq)[1].partition("-")
    day, none = stamps.astype("datetime64[D]"), np.zeros(len(stamps), np.int64)
    months, days = none, none
    if unit == "W":
        days = (weekday(day) - (DAYS.index(anchor) + 1)) % 7
    elif unit in _MONTHS_IN:
        month = stamps.astype("datetime64[M]")
        days = (day - _month(month)[0]).astype(np.int64)
        begin = (MONTHS.index(anchor) + 1) if anchor else 0
        months = (month.astype(np.int64) - begin) % _MONTHS_IN[unit]
    begin = stamps.astype(f"datetime64[{TICKS[unit]}]") if unit in TICKS else day
    return months, days, (stamps - begin.astype("datetime64[ns]")).astype(np.int64)


def _month(month: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """First and last days of months."""
    return month.astype("datetime64[D]"), (month + 1).astype("datetime64[D]") - 1
