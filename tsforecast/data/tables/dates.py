"""Dates as people write them: each way to read a column of text as time stamps."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"  # fmt: skip # noqa: E501
_CLOCK = r"(?:[T ,]+(?P<hour>\d{1,2}):(?P<rest>\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(?P<half>[ap]\.?m\.?)?)?"
_YEAR, _DAY, _BETWEEN = r"(?P<year>\d{4}|\d{2})", r"(?P<day>\d{1,2})", r"[\s,./'-]*"
_PIVOT = 40  # years of two digits are 1940 to 2039
# A date and, in a column of its own, the hour of the day. The date has a day: `2020 12` is a month.
_WHOLE = r"\d{1,4}([-/.])\w{1,9}\2\d{1,4}|\d{8}|\d{4} \d{1,2} \d{1,2}"
_AND_HOUR = rf"(?P<date>{_WHOLE})(?: 00:00(?::00)?)? (?P<hour>\d{{1,2}})(?:\.0+)?"

MONTH_FIRST, DAY_FIRST = "month/day/year", "day/month/year"
FROM_0, FROM_1 = "with hours from 0 to 23", "with hours from 1 to 24, of which 24 is the last of its day"
# Parts of a date, by how a reader of the log calls it. Months are numbers, names or quarters.
_FORMS = {
    MONTH_FIRST: rf"(?P<month>\d{{1,2}})[./-]{_DAY}[./-]{_YEAR}{_CLOCK}",
    DAY_FIRST: rf"{_DAY}[./-](?P<month>\d{{1,2}})[./-]{_YEAR}{_CLOCK}",
    "year, month, day and hour": rf"(?P<year>\d{{4}}) (?P<month>\d{{1,2}})(?: {_DAY}(?: (?P<hour>\d{{1,2}}))?)?",
    "month/year": r"(?P<month>\d{1,2})[./-](?P<year>\d{4})",
    "month and year": rf"(?:{_DAY}{_BETWEEN})?{_NAME}{_BETWEEN}{_YEAR}{_CLOCK}",
    "month, day and year": rf"{_NAME}\s+{_DAY},?\s+{_YEAR}{_CLOCK}",
    "year and month": rf"(?P<year>\d{{4}}){_BETWEEN}{_NAME}(?:{_BETWEEN}{_DAY})?{_CLOCK}",
    "year and quarter": r"(?P<year>\d{4})[\s:./-]*q(?P<quarter>[1-4])",
    "quarter and year": r"q(?P<quarter>[1-4])[\s:./'-]*(?P<year>\d{4}|\d{2})",
}


class Reading(NamedTuple):
    """One way to read a column, with NaT where it does not fit."""

    name: str
    stamps: Any


def readings(text: pd.Series) -> Iterator[Reading]:
    """Yields a column of stripped cells as ISO 8601 says and, unless that fits throughout, as fits some cells."""
    codes, distinct = pd.factorize(text)  # many series have the same dates
    cells = pd.Series(distinct, dtype=object)
    first = pd.to_datetime(cells.where(cells.str.contains(r"\d")), format="ISO8601", errors="coerce")  # not "now"
    yield Reading("ISO 8601", pd.Series(first.to_numpy()[codes], index=text.index))
    if first.notna().all():
        return
    parts = {name: cells.str.extract(f"^{form}$", re.IGNORECASE) for name, form in _FORMS.items()}
    found = [Reading(name, _from_parts(some)) for name, some in parts.items() if some.notna().to_numpy().any()]
    found += _with_hours(cells)
    found += [
        Reading("weeks, by their Mondays", pd.to_datetime(cells + "-1", format="%G-W%V-%u", errors="coerce")),
        Reading("years and twelfths of them", _decimal_years(cells)),
        Reading("seconds since 1970", _since_1970(cells, 10, "s")),
        Reading("milliseconds since 1970", _since_1970(cells, 13, "ms")),
    ]
    for name, stamps in found:
        if stamps.notna().any():
            yield Reading(name, pd.Series(stamps.to_numpy()[codes], index=text.index))


def _with_hours(cells: pd.Series) -> list[Reading]:
    """Dates beside hours in both counts; hour 1 of 24 begins at midnight."""
    parts = cells.str.extract(f"^{_AND_HOUR}$")
    if parts["date"].isna().any():
        return []
    hour: Any = parts["hour"].astype(int)
    found = []
    for name, dates in readings(parts["date"]):
        for count, least in ((FROM_0, 0), (FROM_1, 1)):
            stamps = dates + pd.to_timedelta(hour - least, unit="h")
            found.append(Reading(f"{name}, {count}", stamps.where(hour.between(least, least + 23))))
    return found


def short_years(text: pd.Series) -> bool:
    """Whether years of the first cell have two digits, so that their century is a guess."""
    return re.search(r"\d{4}", text.iloc[0]) is None


def _from_parts(found: pd.DataFrame) -> Any:
    """Time stamps of years, months and so on; NaT where there is no year."""
    parts: Any = found.reindex(columns=["year", "quarter", "month", "day", "hour", "rest", "half"]).astype("string")
    year = parts["year"].fillna("")
    number: Any = pd.to_numeric(year, errors="coerce")
    century = number.lt(_PIVOT).map({True: "20", False: "19"}).astype("string")
    year = year.where(year.str.len() != 2, century + year)
    quarter: Any = pd.to_numeric(parts["quarter"])
    quarter = (quarter * 3 - 2).astype("Int64").astype("string")
    names = {name: str(number) for number, name in enumerate(_MONTHS, 1)}
    month = parts["month"].fillna(quarter)
    month = month.str[:3].str.lower().map(names).astype("string").fillna(month)
    hour: Any = pd.to_numeric(parts["hour"].fillna("0"))
    hour = hour.astype("Int64")
    half = parts["half"].str[0].str.lower()
    hour = hour.where(~(half.notna() & hour.between(1, 12)), hour % 12 + 12 * half.eq("p").fillna(False))
    pieces = [month, parts["day"].fillna("1"), hour.astype("string")]
    month, day, clock = (piece.str.zfill(2) for piece in pieces)
    text = year + "-" + month + "-" + day + " " + clock + ":" + parts["rest"].fillna("00")
    return pd.to_datetime(text, format="ISO8601", errors="coerce")


def _decimal_years(cells: pd.Series) -> Any:
    """Months or quarters as R counts them: 1949.083 is February 1949."""
    number: Any = pd.to_numeric(cells.where(cells.str.fullmatch(r"\d{4}(\.\d*)?")), errors="coerce")
    months = (number * 12).round()
    fits = (number * 12 - months).abs() < 0.02
    whole = months.where(fits).fillna(-1).astype(int)
    text = (whole // 12).astype(str) + "-" + (whole % 12 + 1).astype(str).str.zfill(2)
    return pd.to_datetime(text, format="%Y-%m", errors="coerce")


def _since_1970(cells: pd.Series, digits: int, unit: str) -> Any:
    number: Any = pd.to_numeric(cells.where(cells.str.fullmatch(rf"\d{{{digits}}}(\.\d*)?")), errors="coerce")
    return pd.to_datetime(number, unit=unit, errors="coerce")
