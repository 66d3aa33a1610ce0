"""The calendar of a model by numbers of periods, and periods of time stamps."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import calendar_unit, expected_alias_warnings, ordinals, period_alias
from tsforecast.data.calendar.stamps import BEGINNING, Place
from tsforecast.data.transform import calendar_of

_STAMP = re.compile(r"(\d{4})-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?", re.ASCII)
_YEARS = ("1700", "2199")  # nanoseconds in 64 bits reach from 1678 to 2261, and a forecast is to fit in
_AHEAD = 512  # periods that are computed beyond those asked for
_WIDEST = 1 << 16  # periods that are kept
_SPARSE = 4096  # periods between the first and the last that are kept, however few are asked for
_STAMPS = 10_000  # time stamps that are kept


class Calendar:
    """Time features and season indices of periods, kept for the range that was asked for last."""

    def __init__(self, freq: str, seasons: tuple[str, ...], place: Place = BEGINNING) -> None:
        self.place = place
        self.freq = period_alias(freq)
        self.multiple = calendar_unit(self.freq)[0]
        self.seasons = seasons
        self._seen: dict[str, int] = {}  # pandas takes its time, and stamps mostly come again
        self._first, self._known = 0, calendar_of(np.zeros(0, np.int64), self.freq, seasons)

    def at(self, periods: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return time features (*shape, feature) and season indices (*shape, season) of ordinals of any shape."""
        first, last = int(periods.min()), int(periods.max())
        if first < self._first or last >= self._first + len(self._known[0]):
            if last - first > min(_WIDEST, _SPARSE * self.multiple + 4 * periods.size):  # not for few periods far apart
                distinct, places = np.unique(periods, return_inverse=True)
                features = calendar_of(distinct, self.freq, self.seasons)
                places = places.reshape(periods.shape)
                return features[0][places], features[1][places]
            self._first = first
            reach = np.arange(first, last + 1 + _AHEAD * self.multiple)
            self._known = calendar_of(reach, self.freq, self.seasons)
        places = periods - self._first
        return self._known[0][places], self._known[1][places]

    def ordinals_of(self, stamps: Sequence[str]) -> NDArray[np.int64]:
        """Return the ordinals of the periods that time stamps, in ISO 8601 without a zone, lie in."""
        seen = self._seen
        if unseen := {stamp for stamp in stamps if stamp not in seen}:
            if len(seen) > _STAMPS:
                seen.clear()
                unseen = set(stamps)
            seen.update(zip(unseen, self._read(list(unseen)).tolist(), strict=True))
        return np.array([seen[stamp] for stamp in stamps], np.int64)

    def _read(self, stamps: list[str]) -> NDArray[np.int64]:
        for stamp in stamps:
            match = _STAMP.fullmatch(stamp)
            if match is None or not _YEARS[0] <= match[1] <= _YEARS[1]:
                raise ValueError(
                    "expected a time such as 2024-06-01 or 2024-06-01T12:30, without a zone and from the years "
                    f"{_YEARS[0]} to {_YEARS[1]}, got {stamp!r:.40}"
                )
        try:
            return ordinals(np.array(stamps, dtype="datetime64[ns]"), self.freq)
        except ValueError as error:  # 2024-02-31
            raise ValueError(f"expected dates that there are ({error})") from error

    def stamp(self, ordinal: int) -> str:
        """Return the time stamp of a period, in ISO 8601."""
        return self.stamps(ordinal, 1)[0]

    def stamps(self, first: int, steps: int) -> tuple[str, ...]:
        """Return time stamps of periods from the first on, in ISO 8601; a ValueError beyond the year 2261."""
        return _stamps(first, steps, self.multiple, self.freq, self.place)

    def period(self, ordinal: int) -> pd.Period:
        """Return the period of a number."""
        return _period(ordinal, self.freq)


# Series mostly end together.
@lru_cache(maxsize=1000)
def _stamps(first: int, steps: int, multiple: int, freq: str, place: Place) -> tuple[str, ...]:
    with expected_alias_warnings():
        times = pd.PeriodIndex.from_ordinals(first + multiple * np.arange(steps), freq=freq)
        return tuple(time.isoformat() for time in pd.DatetimeIndex(place.of(times)))


@lru_cache(maxsize=10_000)
def _period(ordinal: int, freq: str) -> pd.Period:
    with expected_alias_warnings():
        period = pd.Period(ordinal=ordinal, freq=freq)
    assert isinstance(period, pd.Period)
    return period
