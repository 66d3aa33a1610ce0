"""Columns of the calendar beside those of covariates, so that no covariate takes their place."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, expected_alias_warnings, steps_per_day

_DAY, _WEEK_KINDS = 8, 3  # harmonics of a day; kinds of its days: of the week, Saturday, Sunday
_YEAR = 3  # harmonics
DAYS_OF_YEAR = 365.25

Matrix = NDArray[np.float64]


def periods(start: pd.Period, length: int) -> Any:
    """Return the periods of steps from a first one on."""
    with expected_alias_warnings():
        return pd.period_range(start, periods=length, freq=start.freq)


def periods_of(ordinals: NDArray[np.int64], freq: str) -> Any:
    """Return the periods of ordinals (step,)."""
    with expected_alias_warnings():
        return pd.PeriodIndex.from_ordinals(ordinals, freq=freq)


def day_harmonics(times: Any, harmonics: int) -> Matrix:
    """Return sines and cosines of the time of day of periods, (time, 2 * harmonics)."""
    return _waves(2 * np.pi * (times.hour + times.minute / 60) / 24, harmonics)


def calendar_groups(times: Any, freq: str, yearly: bool) -> Iterator[Matrix]:
    """Yield the columns of the calendar alone.

    It is the time of day by the kind of day, the day of the week, and the year: in a part of it that is any slow curve.
    """
    weekday = np.asarray(times.dayofweek)
    if steps_per_day(freq) >= 4:
        kind = np.eye(_WEEK_KINDS)[np.where(weekday == 5, 1, np.where(weekday == 6, 2, 0))]
        highest = min(_DAY, int(steps_per_day(freq) // 2))
        yield products(kind, day_harmonics(times, highest))
    if steps_per_day(freq) >= 1:
        yield np.eye(7)[weekday]
    if yearly and default_season(freq) > 1:
        yield _waves(2 * np.pi * np.asarray(times.dayofyear) / DAYS_OF_YEAR, _YEAR)


def products(first: Matrix, second: Matrix) -> Matrix:
    """Return the products of each column of one matrix and each of another, (time, column)."""
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


def _waves(angle: Any, harmonics: int) -> Matrix:
    angle = np.asarray(angle, dtype=np.float64)
    return np.stack([f(k * angle) for k in range(1, harmonics + 1) for f in (np.sin, np.cos)], -1)
