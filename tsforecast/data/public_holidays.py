"""Public holidays of a country as covariates: the days themselves, the days around them, and a few by name."""

import datetime as dt
import difflib
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.field_names import FieldName
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import calendar_unit, expected_alias_warnings, step_nanoseconds
from tsforecast.data.calendar.stamps import stamp_of, week_shift
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.wording import listed, option, plain, suggestion

log = logging.getLogger(__name__)

HOLIDAY, BEFORE, AFTER, BRIDGE = "public holiday", "day before", "day after", "bridging day"
NUMBER = "holidays on working days"  # in a step of more than a day
_YEARS = 2  # in which a holiday has been seen before it has an effect of its own
_MOST_NAMES = 4  # with an effect of their own: each is seen but once a year
_COMPARED = 100  # series whose values say which holidays are unlike other days
_CODE = 3  # letters of the code of a country, at most
_DAY = 86_400_000_000_000  # nanoseconds


def with_holidays(task: ForecastTask, given: str | Sequence[str]) -> ForecastTask:
    """The task with covariates that tell of the public holidays of a country.

    Steps of up to a day have an indicator each for holidays, for the days before and after, and for working days
    between a holiday and a weekend. Steps of a day also have one for each of the few holidays that were seen in several
    years and whose values differ most from those a week before and after. Longer steps have the number of holidays on
    working days. Effects that do not vary in the training part are left out.

    Args:
        task: Any task. Its own covariates come first.
        given: Code of a country, such as "US", or with a subdivision, "AU-VIC". The effects may follow, as
            `task.columns` has them after an earlier call; else they are chosen, and logged.

    Returns:
        The task with longer `feat_dynamic_real`, which reach over the forecast that all series have in common. Its
        `columns` have the effects.

    Raises:
        ValueError: If the package `holidays` is missing, the country is not known, or its effects do not vary.
    """
    country, *effects = [given] if isinstance(given, str) else given
    days = _Days.of(country, *_span(task), task.freq)
    if not effects:
        effects = _chosen(task, days)
        if not effects:
            raise ValueError(f"{task.name}: no holiday of {country!r} tells steps of the training part apart")
        log.info("%s: holidays of %s: %s", task.name, country, listed(effects))
    if calendar_unit(task.freq)[1].startswith("W"):
        _tell_week(task)
    entries, rows = [], {}
    end = max(_end(entry) for entry in task.entries)  # of the series that ends last
    for entry in task.entries:
        start, own = entry["start"], entry.get(FieldName.FEAT_DYNAMIC_REAL)
        shift = week_shift(start, entry.get("info"))
        length = (end - start.ordinal) // start.freq.n + task.prediction_length if own is None else np.shape(own)[1]
        key = (start, length, shift)
        if key not in rows:  # series share them
            places = days.places(*key)
            rows[key] = np.stack([days.of_steps(effect, places) for effect in effects])
        found = rows[key]
        entries.append({**entry, FieldName.FEAT_DYNAMIC_REAL: found if own is None else np.concatenate([own, found])})
    columns = replace(task.columns or Columns(), holidays=[country, *effects])
    return replace(task, entries=entries, columns=columns)


def _tell_week(task: ForecastTask) -> None:
    """Logs the days of the week of a time stamp."""
    start, info = task.entries[0]["start"], task.entries[0].get("info")
    first = start.start_time + pd.Timedelta(week_shift(start, info), "D")
    last = first + (start.end_time - start.start_time)
    told = task.name, stamp_of(start, info), f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}"
    log.info("%s: the step dated %s has the holidays from %s to %s", *told)


def _end(entry: dict[str, Any]) -> int:
    """Ordinal of the step behind a series."""
    return entry["start"].ordinal + entry["target"].shape[-1] * entry["start"].freq.n


def _span(task: ForecastTask) -> tuple[pd.Timestamp, pd.Timestamp]:
    """First time of all series, and last of all their forecasts and covariates."""
    with expected_alias_warnings():
        first = min(entry["start"] for entry in task.entries)
        end = max(task.entries, key=_end)
        last = end["start"] + (end["target"].shape[-1] + task.prediction_length)
        own = [
            e["start"] + np.shape(e[FieldName.FEAT_DYNAMIC_REAL])[1]
            for e in task.entries
            if FieldName.FEAT_DYNAMIC_REAL in e
        ]
        return first.start_time, max([last, *own]).end_time


@dataclass(frozen=True)
class _Days:
    """Days, or working days where there are no others, with their holidays."""

    freq: str  # frequency of the task
    days: Any  # in order
    names: dict[str, NDArray[np.bool_]]  # for each holiday, whether it is on a day

    @classmethod
    def of(cls, country: str, first: pd.Timestamp, last: pd.Timestamp, freq: str) -> "_Days":
        step = "B" if calendar_unit(freq) == (1, "B") else "D"
        margin = pd.Timedelta(7, "D")
        days: Any = pd.date_range(first - margin, last + margin, freq=step, normalize=True)
        found: dict[str, NDArray[np.bool_]] = {}
        for date, names in _holidays(country, days[0].year, days[-1].year):
            place = days.get_indexer([pd.Timestamp(date)])[0]
            for name in names if place >= 0 else ():
                found.setdefault(name, np.zeros(len(days), dtype=bool))[place] = True
        return cls(freq, days, found)

    @property
    def short(self) -> bool:
        """Whether a step is a day at most."""
        length = step_nanoseconds(self.freq)
        return calendar_unit(self.freq) == (1, "B") if length is None else length <= _DAY

    @property
    def daily(self) -> bool:
        """Whether a step is a day."""
        return calendar_unit(self.freq) == (1, "B") or step_nanoseconds(self.freq) == _DAY

    @property
    def kinds(self) -> list[str]:
        """Effects that are no names."""
        return [HOLIDAY, BEFORE, AFTER, BRIDGE] if self.short else [NUMBER]

    def effect(self, name: str) -> NDArray[np.bool_]:
        """Whether each day has an effect; never for a holiday that is not among these years."""
        holiday = np.any([*self.names.values(), np.zeros(len(self.days), dtype=bool)], axis=0)
        before, after = np.roll(holiday, -1), np.roll(holiday, 1)
        weekday = self.days.dayofweek.to_numpy()
        if name == HOLIDAY:
            return holiday
        if name == BEFORE:
            return before & ~holiday
        if name == AFTER:
            return after & ~holiday
        if name == BRIDGE:
            return ~holiday & (((weekday == 4) & after) | ((weekday == 0) & before))
        if name == NUMBER:
            return holiday & (weekday < 5)
        return self.names.get(name, np.zeros(len(self.days), dtype=bool))

    def of_steps(self, name: str, places: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.float32]:
        """An effect on each step, by the places of its first and last days: as a flag, or as a number of days."""
        effect = self.effect(name)
        if self.short:
            return effect[places[0]].astype(np.float32)
        return np.diff(np.r_[0, np.cumsum(effect)][np.stack([places[0], places[1] + 1])], axis=0)[0].astype(np.float32)

    def places(self, start: pd.Period, length: int, shift: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places of the first and last day of each step, some days behind its period."""
        first, last = _places(self.days[0], self.days.freqstr, start, length)
        return first + shift, last + shift


@lru_cache(maxsize=64)  # series share starts, and pandas takes its time
def _places(
    first: pd.Timestamp, step: str, start: pd.Period, length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    with expected_alias_warnings():
        steps: Any = pd.period_range(start, periods=length, freq=start.freq)
        ends = [steps.start_time, steps.end_time]
    origin = np.datetime64(first, "D")
    first_days, last_days = (np.asarray(end, dtype="datetime64[D]") for end in ends)
    if step == "B":
        return np.busday_count(origin, first_days), np.busday_count(origin, last_days)
    return (first_days - origin).astype(np.int64), (last_days - origin).astype(np.int64)


def _chosen(task: ForecastTask, days: _Days) -> list[str]:
    """Effects that vary in the training part, and names that were seen there in several years."""
    test = task.test_length
    parts = [
        (entry["start"], entry["target"].shape[-1] - test, week_shift(entry["start"], entry.get("info")))
        for entry in task.entries
    ]
    seen = np.zeros(len(days.days), dtype=bool)
    varying: dict[str, None] = {}
    for part in dict.fromkeys(parts):
        places = days.places(*part)
        seen[places[0][0] : places[1][-1] + 1] = True
        for kind in days.kinds:
            if np.ptp(days.of_steps(kind, places)) > 0:
                varying[kind] = None
    kinds = [kind for kind in days.kinds if kind in varying]
    if not kinds or not days.daily:
        return kinds  # hours of a holiday are seen but on a day or two: names cost more there than they tell
    years = {name: len(set(days.days.year[on & seen])) for name, on in days.names.items()}
    often = [name for name, count in years.items() if count >= _YEARS]
    unlike = _unlike(task, days, test)
    often.sort(key=lambda name: (-years[name], -float(np.nanmean(np.r_[0, unlike[days.names[name] & seen]]))))
    return [*kinds, *often[:_MOST_NAMES]]


def _unlike(task: ForecastTask, days: _Days, test: int) -> NDArray[np.float64]:
    """Distances of the values of a day from those a week before and after, relative to their size; NaN if unknown."""
    week = 5 if days.days.freqstr == "B" else 7
    total, count = np.zeros(len(days.days)), np.zeros(len(days.days))
    for entry in task.entries[:_COMPARED]:
        target = np.atleast_2d(entry["target"])[:, : entry["target"].shape[-1] - test].astype(np.float64)
        place = days.places(entry["start"], target.shape[1])[0]
        for values in target / np.maximum(np.nanmean(np.abs(target), axis=1, keepdims=True), 1e-300):
            on = ~np.isnan(values)
            number = np.bincount(place[on], minlength=len(days.days))
            with np.errstate(invalid="ignore"):
                mean = np.bincount(place[on], values[on], minlength=len(days.days)) / np.where(number, number, np.nan)
            apart = np.abs(mean - (np.roll(mean, week) + np.roll(mean, -week)) / 2)
            total, count = total + np.nan_to_num(apart), count + ~np.isnan(apart)
    return total / np.where(count > 0, count, np.nan)


def _holidays(country: str, first: int, last: int) -> list[tuple[dt.date, list[str]]]:
    """Holidays of these years, in order, with their names in English where the package has them."""
    try:
        import holidays  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError(
            f"{option('holidays', country)} needs the package holidays: pip install 'tsforecast[holidays]'"
        ) from error
    known = holidays.list_supported_countries()
    code, _, part = country.upper().partition("-")
    if code not in known:
        raise ValueError(f"{option('holidays')}: there is no country {country!r}; {_near(country, known)}")
    parts = {str(name).upper(): str(name) for name in known[code]}
    if part and part not in parts:
        raise ValueError(f"{option('holidays')}: {code} has no subdivision {part!r}; there are {listed(known[code])}")
    languages = getattr(holidays, "list_localized_countries", dict)().get(code, [])
    language = "en_US" if "en_US" in languages else None
    found = holidays.country_holidays(code, subdiv=parts.get(part), years=range(first, last + 1), language=language)
    return [
        # Without remarks, such as that a holiday is observed on another day.
        (date, [re.sub(r"\s*\(.*?\)", "", name).strip() for name in names.split("; ")])
        for date, names in sorted(found.items())
    ]


def _near(country: str, codes: Iterable[str]) -> str:
    """A hint for an unknown code of a country."""
    from holidays.registry import COUNTRIES  # pyright: ignore[reportMissingImports]

    by_name = {plain(name): entry[1] for name, entry in COUNTRIES.items()}
    near = difflib.get_close_matches(plain(country), list(by_name), n=1) if len(country) > _CODE else []
    if near:
        return f"did you mean {by_name[near[0]]!r}?"
    return suggestion(country, codes) or "expected a code such as US, DE or AU-VIC"
