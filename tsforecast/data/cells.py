"""Cells of users' tables: text becomes time stamps and numbers, or an error that names the line."""

import logging
import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.columns import MISSING, Table

Stamps = np.ndarray  # of datetime64[ns]; a checker of types at run time takes the unit amiss
log = logging.getLogger(__name__)

_OFFSET = r"\s*(?:Z|[+-]\d{2}(?::?\d{2})?)$"  # distance from UTC at the end of a time of day
_ZONED = r"\d{1,2}:\d{2}.*?" + _OFFSET
_EPOCH = re.compile(r"\d{9,}(\.\d*)?")


def numbers(table: Table, column: str) -> NDArray[np.float64]:
    """A column as float64, NaN where the cell is empty.

    Raises:
        ValueError: If a cell holds text or an infinite number; the message names its line.
    """
    raw = table.frame[column]
    values = np.asarray(pd.to_numeric(raw, errors="coerce"), dtype=np.float64)
    text = np.isnan(values) & ~np.asarray(raw.isna() | raw.isin(MISSING))
    if text.any():
        row = int(np.argmax(text))
        cell = str(raw.iloc[row])
        remedy = "correct it, or leave it empty if it is missing"
        if re.fullmatch(r"[+-]?[\d.]*,\d+", cell) and table.columns.decimal == ".":
            remedy = "if its comma is the decimal sign, give decimal=','"
        raise ValueError(f"{table.place(row, column)}: expected a number, got {cell!r}; {remedy}")
    infinite = np.isinf(values)
    if infinite.any():
        place = table.place(int(np.argmax(infinite)), column)
        raise ValueError(f"{place}: the value is infinite; leave the cell empty if it is missing")
    return values


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
        return _without_zone(table, _stamps(raw.dt.tz_convert(None)), _stamps(raw.dt.tz_localize(None)))
    if isinstance(raw.dtype, pd.PeriodDtype):
        return _stamps(raw.dt.to_timestamp())
    if raw.dtype.kind == "M":
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
            "give timestamp_format, e.g. '%d/%m/%Y'"
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
        remedy = "write it as 2024-12-31 or 2024-12-31 23:00, or give timestamp_format"
        if _EPOCH.fullmatch(cell):
            remedy = "numbers of seconds are not read: convert them, e.g. with pandas.to_datetime(column, unit='s')"
        raise ValueError(f"{table.place(row, str(table.columns.timestamp))}: {cell!r} is not a time stamp; {remedy}")
