"""Cells of users' tables: text becomes time stamps and numbers, or an error that names the line."""

import logging
import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.columns import Table
from tsforecast.data.magnitude import too_large
from tsforecast.data.roles import MISSING, column_option

Stamps = np.ndarray  # of datetime64[ns]; a checker of types at run time takes the unit amiss
log = logging.getLogger(__name__)

_OFFSET = r"\s*(?:Z|[+-]\d{2}(?::?\d{2})?)$"  # distance from UTC at the end of a time of day
_ZONED = r"\d{1,2}:\d{2}.*?" + _OFFSET
_SIGNS = {",": "comma", ".": "point"}
_YEARS = (1678, 2261)  # all of which nanoseconds reach
_EPOCH = re.compile(r"\d{9,}(\.\d*)?")


def numbers(table: Table, column: str, *, gaps: bool = True) -> NDArray[np.float64]:
    """A column as float64, NaN where the cell is empty.

    Args:
        table: Table of a user.
        column: Its column.
        gaps: Whether it is a target, whose cells may be empty, and may hold numbers of any size.

    Raises:
        ValueError: If a cell holds text or a number that is too large, or is empty where it must not be; the message
            names its line.
    """
    raw: Any = table.frame[column]
    if raw.dtype.kind in "mMc" or isinstance(raw.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        raise ValueError(f"{table.place(0, column)}: expected a number, got {raw.iloc[0]!r}")
    missing = np.asarray(raw.isna() | raw.isin(MISSING))
    values = _parsed(raw, table.columns.decimal)
    text = np.isnan(values) & ~missing
    if text.any():
        row = int(np.argmax(text))
        cells = raw[text].astype(str)
        remedy = _remedy(cells, table.columns.decimal) or (
            "correct it, or leave it empty if it is missing" if gaps else "correct it; every row needs one"
        )
        raise ValueError(f"{table.place(row, column)}: expected a number, got {cells.iloc[0]!r}; {remedy}")
    if missing.any() and not gaps:
        place = table.place(int(np.argmax(missing)), column)
        raise ValueError(
            f"{place}: the cell is empty, but this column needs a number in every row; fill it (0, or the last value), "
            "or delete the row"
        )
    if found := too_large(values, is_target=gaps):
        remedy = "correct it, or leave the cell empty if it is missing" if gaps else "correct it"
        raise ValueError(f"{table.place(found[0][0], column)}: {found[1]}; {remedy}")
    return values


def _parsed(raw: Any, decimal: str) -> NDArray[np.float64]:
    """Cells as float64, NaN where they are no numbers. Text may stand beside numbers that are parsed already."""
    if isinstance(raw.dtype, pd.CategoricalDtype):
        raw = raw.astype(object)
    if decimal != "." and raw.dtype.kind not in "fiub":
        point = raw.astype(str).str.replace(decimal, ".", regex=False)
        raw = point.where(~raw.astype(str).str.contains(".", regex=False))
    parsed: Any = pd.to_numeric(raw, errors="coerce")
    return parsed.to_numpy(dtype=np.float64, na_value=np.nan)


def _remedy(cells: Any, decimal: str) -> str | None:
    """What to do about texts that are numbers with other signs; None where they are no numbers."""
    first = cells.iloc[0].strip()
    other = "." if decimal == "," else ","
    if re.fullmatch(rf"[+-]?[1-9]\d{{0,2}}(\{other}\d{{3}})+(\{decimal}\d+)?", first):
        one = first.count(other) == 1 and decimal not in first
        if one and (cells.str.strip().str.fullmatch(rf"[+-]?\d+\{other}(\d{{1,2}}|\d{{4,}})")).any():
            return f"if its {_SIGNS[other]} is the decimal sign, give {column_option('decimal', other)}"
        plain = first.replace(other, "")
        if one:
            return (
                f"write {plain} if its {_SIGNS[other]} separates thousands, or {first.replace(other, decimal)} if it "
                "is the decimal sign"
            )
        return f"write it without separators of thousands, {plain}"
    if re.fullmatch(rf"[+-]?\d*\{other}\d+", first):
        return f"if its {_SIGNS[other]} is the decimal sign, give {column_option('decimal', other)}"
    return None


def timestamps(table: Table) -> Stamps:
    """The time stamps without a time zone.

    Time stamps with an offset from UTC are taken to UTC, where no hour occurs twice or is left out. If all of them are
    midnight on their own clock they are dates, and stay the dates which they are.

    Raises:
        ValueError: If a cell is empty or no time stamp, day and month can not be told apart, or only some time stamps
            have an offset.
    """
    column = str(table.columns.timestamp)
    raw = table.frame[column]
    empty = np.asarray(raw.isna())
    if empty.any():
        place = table.place(int(np.argmax(empty)), column)
        raise ValueError(f"{place}: the time stamp is empty; fill it or delete the row")
    if isinstance(raw.dtype, pd.DatetimeTZDtype):
        _check_range(table, raw)
        return _without_zone(table, _stamps(raw.dt.tz_convert(None)), _stamps(raw.dt.tz_localize(None)))
    if isinstance(raw.dtype, pd.PeriodDtype):
        _check_range(table, raw)
        return _stamps(raw.dt.to_timestamp())
    if raw.dtype.kind == "M":
        _check_range(table, raw)
        return _stamps(raw)
    text = raw.astype(str).str.strip()
    zoned = np.asarray(text.str.contains(_ZONED, regex=True))
    if not zoned.any():
        return _parse(table, text)
    if not zoned.all():
        row = int(np.argmax(zoned != zoned[0]))
        raise ValueError(
            f"{table.place(row, column)}: {text.iloc[row]!r} and the rows before differ in whether they have a "
            "time zone; give all time stamps an offset from UTC, or none"
        )
    if table.columns.timestamp_format is not None:
        moments = pd.to_datetime(text, format=table.columns.timestamp_format, utc=True, errors="coerce")
        _check(table, text, moments)
        return _without_zone(table, _stamps(moments.dt.tz_convert(None)), None)
    moments = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    _check(table, text, moments)
    wall = pd.to_datetime(text.str.replace(_OFFSET, "", regex=True), format="ISO8601", errors="coerce")
    return _without_zone(table, _stamps(moments.dt.tz_convert(None)), _stamps(wall))


def _check_range(table: Table, cells: Any) -> None:
    """Raises at the first time stamp of another unit that nanoseconds do not reach: it would wrap in silence."""
    outside = np.asarray((cells.dt.year < _YEARS[0]) | (cells.dt.year > _YEARS[1]))
    if outside.any():
        raise _out_of_range(table, int(np.argmax(outside)), cells)


def _out_of_range(table: Table, row: int, cells: Any) -> ValueError:
    place = table.place(row, str(table.columns.timestamp))
    return ValueError(
        f"{place}: {str(cells.iloc[row])!r} is out of the range of time stamps, the years {_YEARS[0]} to {_YEARS[1]}; "
        "correct it, or delete the row"
    )


def _stamps(column: Any) -> Stamps:
    return np.asarray(column, dtype="datetime64[ns]")


def _without_zone(table: Table, moments: Stamps, wall: Stamps | None) -> Stamps:
    """UTC, or where the local clock shows midnight throughout, its dates."""
    if wall is not None and bool((wall == wall.astype("datetime64[D]")).all()):
        log.info("%s: time stamps at midnight of their time zone are taken as dates", table.path)
        return wall
    log.info("%s: time stamps with a time zone are converted to UTC", table.path)
    return moments


def _parse(table: Table, text: pd.Series) -> Stamps:
    """Text without offsets: the given format, ISO 8601, or day and month in the only order that fits all rows."""
    if table.columns.timestamp_format is not None:
        parsed = pd.to_datetime(text, format=table.columns.timestamp_format, errors="coerce")
        _check(table, text, parsed)
        return _stamps(parsed)
    parsed = pd.to_datetime(text, format="ISO8601", errors="coerce")
    if parsed.notna().all():
        return _stamps(parsed)
    readings = [_day_and_month(text, order) for order in ("month day", "day month")]
    complete = [reading for reading in readings if reading.notna().all()]
    if not complete:
        _check(table, text, max([parsed, *readings], key=lambda reading: int(reading.notna().sum())))
    if len(complete) == 2 and not complete[0].equals(complete[1]):
        raise ValueError(
            f"{table.place(0, str(table.columns.timestamp))}: in {text.iloc[0]!r} day and month can not be told apart; "
            f"give {column_option('timestamp_format', '%d/%m/%Y')}, or '%m/%d/%Y'"
        )
    return _stamps(complete[0])


def _day_and_month(text: pd.Series, order: str) -> pd.Series:
    """Dates such as 31.12.2024 or 12/31/2024, with or without a time; NaT where they do not fit."""
    numerals = r"[./-]".join(rf"(?P<{name}>\d{{1,2}})" for name in order.split())
    parts = text.str.extract(rf"^{numerals}[./-](?P<year>\d{{4}})(?:[T ](?P<clock>\d{{1,2}}:\d{{2}}.*))?$")
    clock = parts["clock"].fillna("00:00")
    iso = parts["year"] + "-" + parts["month"].str.zfill(2) + "-" + parts["day"].str.zfill(2)
    iso += " " + clock.where(clock.str[2] == ":", "0" + clock)
    return pd.to_datetime(iso, format="ISO8601", errors="coerce")


def _check(table: Table, text: pd.Series, parsed: pd.Series) -> None:
    """Raises at the first cell that is no time stamp."""
    bad = np.asarray(parsed.isna())
    if bad.any():
        row = int(np.argmax(bad))
        cell = text.iloc[row]
        years = [int(year) for year in re.findall(r"(?<!\d)\d{4}(?!\d)", cell)]
        if len(years) == 1 and not _YEARS[0] <= years[0] <= _YEARS[1]:
            raise _out_of_range(table, row, text)
        remedy = (
            "write it as 2024-12-31 or 2024-12-31 23:00, or give its format by "
            f"{column_option('timestamp_format', '%d %b %Y')}"
        )
        if _EPOCH.fullmatch(cell):
            remedy = "numbers of seconds are not read: convert them, e.g. with pandas.to_datetime(column, unit='s')"
        raise ValueError(f"{table.place(row, str(table.columns.timestamp))}: {cell!r} is not a time stamp; {remedy}")
