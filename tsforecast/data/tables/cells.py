"""Cells of users' tables: text becomes time stamps and numbers, or an error that names the line."""

import logging
import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import ordinals
from tsforecast.data.magnitude import too_large
from tsforecast.data.tables.contents import MISSING
from tsforecast.data.tables.dates import FROM_0, FROM_1, Reading, readings, short_years
from tsforecast.data.tables.roles import column_option
from tsforecast.data.tables.signs import parse, remedy
from tsforecast.data.tables.table import Table

Stamps = np.ndarray  # of datetime64[ns]; a checker of types at run time takes the unit amiss
log = logging.getLogger(__name__)

_OFFSET = r"\s*(?:Z|[+-]\d{2}(?::?\d{2})?)$"  # distance from UTC at the end of a time of day
_ZONED = r"\d{1,2}:\d{2}.*?" + _OFFSET
_YEARS = (1678, 2261)  # all of which nanoseconds reach


class StampForm(NamedTuple):
    """The notation of the time stamps of a table and of all its parts."""

    zoned: bool = False  # whether they have an offset from UTC, or a time zone
    dates: bool = False  # whether all of these are midnight on their own clock, and so are dates
    # What text without an offset is read as, a name of `tsforecast.data.tables.dates`; "" for other cells.
    reading: str = ""


def numbers(table: Table, column: str, *, gaps: bool = True) -> NDArray[np.float64]:
    """A column as float64, NaN where the cell is empty, as it may be with gaps: a target, of numbers of any size."""
    raw: Any = table.frame[column]
    if raw.dtype.kind in "mMc" or isinstance(raw.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        raise ValueError(f"{table.place(0, column)}: expected a number, got {raw.iloc[0]!r}")
    missing = np.asarray(raw.isna() if raw.dtype.kind in "fiub" else raw.isna() | raw.isin(MISSING))
    decimal = table.columns.decimal or "."
    values, grouped = parse(raw, decimal, table.delimiter)
    if grouped is not None:
        log.info("%s: thousands are separated in numbers such as %r", table.path, grouped)
    text = np.isnan(values) & ~missing
    if text.any():
        row = int(np.argmax(text))
        cells = raw[text].astype(str)
        what = (
            remedy(cells, decimal)
            or _categories(table, column, cells, int((~missing).sum()))
            or ("correct it, or leave it empty if it is missing" if gaps else "correct it; every row needs one")
        )
        others = f" ({len(cells)} cells of this column are none)" if len(cells) > 1 else ""
        raise ValueError(f"{table.place(row, column)}: expected a number, got {cells.iloc[0]!r}{others}; {what}")
    if missing.any() and not gaps:
        place = table.place(int(np.argmax(missing)), column)
        raise ValueError(
            f"{place}: the cell is empty, but this column needs a number in every row; fill it (0, or the last value), "
            "or delete the row"
        )
    if found := too_large(values, is_target=gaps):
        what = "correct it, or leave the cell empty if it is missing" if gaps else "correct it"
        raise ValueError(f"{table.place(found[0][0], column)}: {found[1]}; {what}")
    return values


def _categories(table: Table, column: str, text: pd.Series, filled: int) -> str:
    """Return the ways to use a column of text that was given for numbers; "" where it has numbers, too."""
    columns = table.columns
    if len(text) < filled or column not in (*columns.covariates, *columns.static_reals):
        return ""
    of_series = f"{column_option('static_categories', [column])} takes a category of each series"
    if column in columns.static_reals:
        return of_series
    value = text.value_counts().index.tolist()[:2][-1]  # the most frequent is what others are compared with
    return f"name its categories, such as {column_option('covariates', [f'{column}={value}'])}; {of_series}"


def timestamps(table: Table) -> Stamps:
    """The time stamps without a time zone.

    Time stamps with an offset from UTC are taken to UTC, where no hour occurs twice or is left out. If all of them are
    midnight on their own clock they are dates, and stay the dates which they are.

    Raises:
        ValueError: If a cell is empty or no time stamp, day and month can not be told apart, or only some time stamps
            have an offset.
    """
    return read_stamps(table)[0]


def read_stamps(table: Table, form: StampForm | None = None) -> tuple[Stamps, StampForm]:
    """The time stamps as `timestamps` gives them, and their notation: that of an earlier part, or found and logged."""
    column = str(table.columns.timestamp)
    raw = table.frame[column]
    empty = np.asarray(raw.isna())
    if empty.any():
        place = table.place(int(np.argmax(empty)), column)
        raise ValueError(f"{place}: the time stamp is empty; fill it or delete the row")
    if isinstance(raw.dtype, pd.DatetimeTZDtype):
        _check_range(table, raw)
        return _without_zone(table, _stamps(raw.dt.tz_convert(None)), _stamps(raw.dt.tz_localize(None)), form)
    if isinstance(raw.dtype, pd.PeriodDtype):
        _check_range(table, raw)
        return _stamps(raw.dt.to_timestamp()), StampForm()
    if raw.dtype.kind == "M":
        _check_range(table, raw)
        _refuse_other_zone(table, np.zeros(len(raw), bool), form)
        return _stamps(raw), StampForm()
    codes, distinct = pd.factorize(raw.astype(str))  # many series have the same dates
    cells = pd.Series(distinct, dtype=object).str.strip()
    text = pd.Series(cells.to_numpy()[codes], index=raw.index, dtype=object)
    zoned = np.asarray(cells.str.contains(_ZONED, regex=True), bool)[codes]
    _refuse_other_zone(table, zoned, form)
    if not zoned.any():
        return _parse(table, text, None if form is None else form.reading)
    if table.columns.timestamp_format is not None:
        moments = pd.to_datetime(text, format=table.columns.timestamp_format, utc=True, errors="coerce")
        _check(table, text, moments)
        return _without_zone(table, _stamps(moments.dt.tz_convert(None)), None, form)
    moments = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    _check(table, text, moments)
    wall = pd.to_datetime(text.str.replace(_OFFSET, "", regex=True), format="ISO8601", errors="coerce")
    return _without_zone(table, _stamps(moments.dt.tz_convert(None)), _stamps(wall), form)


def _refuse_other_zone(table: Table, zoned: NDArray[np.bool_], form: StampForm | None) -> None:
    """Raises where some time stamps have a time zone, and others, or those of the form, have none."""
    wrong = zoned != (zoned[0] if form is None else form.zoned)
    if wrong.any():
        row, column = int(np.argmax(wrong)), str(table.columns.timestamp)
        raise ValueError(
            f"{table.place(row, column)}: {str(table.frame[column].iloc[row])!r} and the rows before differ in whether "
            "they have a time zone; give all time stamps an offset from UTC, or none"
        )


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


def _without_zone(
    table: Table, moments: Stamps, wall: Stamps | None, form: StampForm | None
) -> tuple[Stamps, StampForm]:
    """UTC, or where the local clock shows midnight throughout, its dates."""
    midnight = np.zeros(len(moments), bool) if wall is None else wall == wall.astype("datetime64[D]")
    if form is not None:
        if not form.zoned:
            _refuse_other_zone(table, np.ones(len(moments), bool), form)
        if form.dates and not midnight.all():
            row, column = int(np.argmin(midnight)), str(table.columns.timestamp)
            raise ValueError(
                f"{table.place(row, column)}: {str(table.frame[column].iloc[row])!r} is no midnight of its time zone, "
                "as the first time stamps are, which are taken as dates; write all of them in UTC"
            )
        return (wall if form.dates and wall is not None else moments), form
    if wall is not None and bool(midnight.all()):
        log.info("%s: time stamps at midnight of their time zone are taken as dates", table.path)
        return wall, StampForm(True, True)
    log.info("%s: time stamps with a time zone are converted to UTC", table.path)
    return moments, StampForm(True)


def _parse(table: Table, text: pd.Series, reading: str | None) -> tuple[Stamps, StampForm]:
    """Text without offsets: in the given format, as it was read before, or in the only way to read all rows."""
    if table.columns.timestamp_format is not None:
        parsed = pd.to_datetime(text, format=table.columns.timestamp_format, errors="coerce")
        _check(table, text, parsed)
        return _stamps(parsed), StampForm()
    if reading:
        found = next((stamps for name, stamps in readings(text) if name == reading), pd.Series(pd.NaT, text.index))
        _check(table, text, found)
        return _stamps(found), StampForm(reading=reading)
    found = list(readings(text))
    complete = [reading for reading in found if reading.stamps.notna().all()]
    if any(reading.name.endswith(FROM_0) for reading in complete):  # no hour says that they are counted from 1
        complete = [reading for reading in complete if not reading.name.endswith(FROM_1)]
    if not complete:
        _check(table, text, max(found, key=lambda reading: int(reading.stamps.notna().sum())).stamps)
    chosen = _only(table, text, complete)
    if chosen.name != "ISO 8601":
        century = ", years of two digits as 1940 to 2039" if short_years(text) else ""
        told = table.path, text.iloc[0], chosen.stamps.iloc[0], chosen.name, century
        log.info("%s: time stamps such as %r (%s) are read as %s%s", *told)
    return _stamps(chosen.stamps), StampForm(reading=chosen.name)


def _only(table: Table, text: pd.Series, complete: list[Reading]) -> Reading:
    """The reading that fits: of day and month in both orders, the one with regular time stamps."""
    if len(complete) == 1 or complete[0].stamps.equals(complete[1].stamps):
        return complete[0]
    regular = [reading for reading in complete if _is_regular(reading.stamps)]
    if len(regular) == 1:
        return regular[0]
    first = text.iloc[int(np.argmax(complete[0].stamps != complete[1].stamps))]
    mark, year = next(sign for sign in "/.-" if sign in first), "%y" if short_years(text) else "%Y"
    day_first, month_first = (mark.join([*order, year]) for order in (("%d", "%m"), ("%m", "%d")))
    raise ValueError(
        f"{table.place(0, str(table.columns.timestamp))}: in {first!r} day and month can not be told apart; "
        f"give {column_option('timestamp_format', day_first)}, or {month_first!r}"
    )


def _is_regular(stamps: pd.Series) -> bool:
    """Whether time stamps are equally far apart, on the first of months, or of a frequency that pandas knows."""
    distinct: Any = pd.DatetimeIndex(np.unique(stamps.to_numpy()))
    if len(distinct) < 3:
        return False
    if len(distinct.day.unique()) == 1 and bool((distinct == distinct.normalize()).all()):
        return bool(distinct.day[0] == 1) or len(np.unique(np.diff(ordinals(distinct, "M")))) == 1
    return len(np.unique(np.diff(distinct))) == 1 or pd.infer_freq(distinct) is not None


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
        raise ValueError(f"{table.place(row, str(table.columns.timestamp))}: {cell!r} is not a time stamp; {remedy}")
