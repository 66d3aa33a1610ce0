"""Frequency strings: one place that knows the old and the new names of pandas.

pandas names a frequency in two ways: periods are counted in `M`, `Q-DEC`, `Y-DEC`, offsets stepped in `ME`, `QE-DEC`,
`YE-DEC`; capital `H`, `T`, `S` are old names of `h`, `min`, `s`. Data entries carry periods, GluonTS' helpers
(`get_seasonality`, `time_features_from_frequency_str`) want offsets. Users may write any of them.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.wording import counted

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

# Names of a unit, old and new, as period unit. A business month lies within its month: one a month all the same.
_UNITS = {
    **{name: "ns" for name in ("N", "ns")},
    **{name: "us" for name in ("U", "us")},
    **{name: "ms" for name in ("L", "ms")},
    **{name: "s" for name in ("S", "s", "sec")},
    **{name: "min" for name in ("T", "min")},
    **{name: "h" for name in ("H", "h")},
    "D": "D",
    "d": "D",
    "B": "B",
    "W": "W",
    **{name: "M" for name in ("M", "ME", "MS", "BM", "BME", "BMS")},
    **{name: "Q" for name in ("Q", "QE", "QS", "BQ", "BQE", "BQS")},
    **{name: "Y" for name in ("Y", "YE", "YS", "A", "AS", "BY", "BYE", "BYS", "BA", "BAS")},
}
_STARTS = ("QS", "BQS", "YS", "AS", "BYS", "BAS")  # anchored at their first month instead of the last
_PARTS = re.compile(r"\s*(\d*)\s*([A-Za-z]+)(?:-([A-Za-z]{3}))?\s*")
TICKS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "min": "m", "h": "h", "D": "D"}  # as NumPy names them
_STEPS_PER_DAY = {"h": 24, "min": 1440}
_DAY = 86_400_000_000_000  # nanoseconds


@lru_cache(maxsize=1000)
def _split(freq: str) -> tuple[int, str, str]:
    """Multiple, period unit and anchor ("" where the unit has none) of a frequency string."""
    match = _PARTS.fullmatch(freq)
    if match is None or match[2] not in _UNITS or match[1] == "0":
        raise ValueError(
            f"frequency {freq!r} is not known; expected e.g. '15min', 'h', 'D', 'B', 'W-SUN', 'M', 'Q' or 'Y', "
            "with a number before it for multiples"
        )
    multiple, unit, anchor = int(match[1] or 1), _UNITS[match[2]], (match[3] or "").upper()
    if anchor not in {"W": ("", *DAYS), "Q": ("", *MONTHS), "Y": ("", *MONTHS)}.get(unit, ("",)):
        raise ValueError(f"frequency {freq!r} has the anchor {anchor!r}, which its unit does not take")
    if unit == "W":
        return multiple, unit, anchor or "SUN"
    if unit in ("Q", "Y"):
        if match[2] in _STARTS:
            anchor = MONTHS[MONTHS.index(anchor or "JAN") - 1]
            if unit == "Q" and anchor in ("MAR", "JUN", "SEP"):  # the same quarters, numbered by the calendar year
                anchor = "DEC"
        return multiple, unit, anchor or "DEC"
    for larger, size in (("s", 1000), ("min", 60), ("h", 60)):  # 60 minutes are an hour: the seasons hang on it
        if unit == {"s": "ms", "min": "s", "h": "min"}[larger] and multiple % size == 0:
            multiple, unit = multiple // size, larger
    return multiple, unit, ""


def period_alias(freq: str) -> str:
    """The name of a frequency in `pandas.Period`, as in its `freqstr`.

    Args:
        freq: Any name that pandas or its users give: "H", "1h", "60min", "ME", "MS", "QS", "A", "W", "B", ...

    Returns:
        "h", "h", "h", "M", "M", "Q-DEC", "Y-DEC", "W-SUN", "B" for these examples.
    """
    multiple, unit, anchor = _split(freq)
    return (str(multiple) if multiple > 1 else "") + unit + (f"-{anchor}" if anchor else "")


def offset_alias(freq: str) -> str:
    """The name of a frequency in `pandas.tseries.frequencies.to_offset` and GluonTS: "h", "ME", "QE-DEC", ..."""
    multiple, unit, anchor = _split(freq)
    unit = {"M": "ME", "Q": "QE", "Y": "YE"}.get(unit, unit)
    return (str(multiple) if multiple > 1 else "") + unit + (f"-{anchor}" if anchor else "")


def default_season(freq: str) -> int:
    """The main season in steps: an hour of seconds, a day of hours and minutes, a week of days, a year of longer steps.

    Returns:
        360 for "10s", 48 for "30min", 24 for "h", 7 for "D", 5 for "B", 52 for "W", 12 for "M", 4 for "Q"; 1 (none)
        where it is no whole number of steps, and below a second.
    """
    multiple, unit, _ = _split(freq)
    cycle = {"s": 3600, "min": 1440, "h": 24, "D": 7, "B": 5, "W": 52, "M": 12, "Q": 4}.get(unit, 1)
    if unit == "h" and multiple == 24:
        return 7
    return cycle // multiple if cycle % multiple == 0 else 1


def has_clock(freq: str) -> bool:
    """Return whether steps are hours, minutes or seconds, whose main season is a turn of the clock."""
    return calendar_unit(freq)[1] in ("h", "min", "s") and default_season(freq) > 1


def default_horizon(freq: str) -> int:
    """A customary forecast length in steps.

    Returns:
        A day for hours and for steps of at least 15 minutes, and an hour for shorter steps of minutes. Longer steps
        have 30 days or business days, 8 weeks, 12 months, 8 quarters or 6 years. Steps below a minute have 60.
    """
    multiple, unit, _ = _split(freq)
    if (multiple, unit) == (24, "h"):
        return 30
    if unit in _STEPS_PER_DAY:
        steps = _STEPS_PER_DAY[unit] // multiple
        return max(1, steps if steps <= 96 else 60 // multiple)
    return {"D": 30, "B": 30, "W": 8, "M": 12, "Q": 8, "Y": 6}.get(unit, 60)


def default_windows(freq: str) -> int:
    """A customary number of test windows: 7 for hours and shorter steps, else 5."""
    length = step_nanoseconds(freq)
    return 7 if length is not None and length < _DAY else 5


def step_nanoseconds(freq: str) -> int | None:
    """Length of a step where it is fixed (days and shorter), None where the calendar decides (B, W, M, Q, Y)."""
    multiple, unit, _ = _split(freq)
    return int(np.timedelta64(multiple, TICKS[unit]) / np.timedelta64(1, "ns")) if unit in TICKS else None


def steps_per_day(freq: str) -> float:
    """Mean number of steps in a day, also where the calendar decides: 24 for "h", 5 / 7 for "B"."""
    multiple, unit, _ = _split(freq)
    length = step_nanoseconds(freq)
    if length is not None:
        return _DAY / length
    return {"B": 5 / 7, "W": 1 / 7, "M": 12 / 365.25, "Q": 4 / 365.25, "Y": 1 / 365.25}[unit] / multiple


_NOUNS = {"s": "second", "min": "minute", "h": "hour", "D": "day", "B": "business day", "W": "week", "M": "month",
          "Q": "quarter", "Y": "year", "A": "year", "A-DEC": "year"}  # fmt: skip


def steps_in_words(count: int, freq: str) -> str:
    """Return a number of steps as a person says it: "14 days", "48 steps of 30 minutes"."""
    multiple, unit, _ = _split(freq)
    noun = _NOUNS.get(unit)
    if noun is None:
        return f"{counted(count, 'step')} of {freq!r}"
    return counted(count, noun) if multiple == 1 else f"{counted(count, 'step')} of {counted(multiple, noun)}"


def calendar_unit(freq: str) -> tuple[int, str]:
    """Multiple, and the alias of a single step: (3, "M") for "3ME", (1, "W-SUN") for "W"."""
    multiple, unit, anchor = _split(freq)
    return multiple, unit + (f"-{anchor}" if anchor else "")


@contextmanager
def expected_alias_warnings() -> Iterator[None]:
    """Silences pandas' warning about periods of business days; GluonTS' data entries have such periods.

    There is no other way to write such an entry, so the warning says nothing to our users. Arithmetic on these
    periods warns too: wrap what walks through entries of business days.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Period with BDay freq is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", r"PeriodDtype\[B\] is deprecated", FutureWarning)
        yield


def to_period(timestamp: Any, freq: str) -> pd.Period:
    """The period of a frequency around a timestamp; its `freqstr` is `period_alias(freq)`."""
    return _period(timestamp, period_alias(freq))


@lru_cache(maxsize=10_000)  # series mostly begin together, and pandas takes its time
def _period(timestamp: Any, alias: str) -> pd.Period:
    with expected_alias_warnings():
        period = pd.Period(timestamp, freq=alias)
    if not isinstance(period, pd.Period):
        raise ValueError(f"expected a time stamp, got {timestamp!r}")
    return period


def weekday(stamps: Any) -> NDArray[np.int64]:
    """Days of the week, 0 = Monday."""
    return (np.asarray(stamps, dtype="datetime64[D]").astype(np.int64) + 3) % 7  # 1970 began on a Thursday


def ordinals(stamps: Any, unit: str) -> NDArray[np.int64]:
    """Number of the period of a calendar unit (B, W, M, Q, Y) around each time stamp."""
    with expected_alias_warnings():
        return np.asarray(pd.DatetimeIndex(stamps).to_period(unit).asi8)
