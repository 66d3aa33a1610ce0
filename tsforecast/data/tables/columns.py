"""Tables of users: reading them, and where in the file a cell stands."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from tsforecast.data.tables.contents import MISSING
from tsforecast.data.tables.layout import Layout, encodings, find_layout
from tsforecast.data.tables.roles import (
    ACROSS_TARGET,
    ACROSS_TIME,
    WIDE_ITEM,
    WIDE_TARGET,
    Columns,
    resolve,
    told,
)
from tsforecast.data.tables.shapes import dates_across, from_across, tell_apart
from tsforecast.data.tables.signs import find_decimal, may_be_thousands, refuse_ambiguous
from tsforecast.io.reading import PACKED, check_packed, check_parquet, is_parquet, read_parquet, whole_parquet

log = logging.getLogger(__name__)
Read = TypeVar("Read")

SAMPLE = 100  # rows by which columns are recognised
SAME_NUMBER = "expected the same number of cells in each row"


@dataclass(frozen=True)
class Table:
    """A table as read, with what is needed to point at a cell of it.

    Attributes:
        path: Where it comes from.
        frame: In long form. Index = position in the file, counted from 0.
        columns: All roles filled in, of the long form; `item` is None for a single series.
        roles: What the columns of the source are, by which another source of the same form can be read.
        first_line: Line number of row 0 in a text file, where a header comes first; 1 in Parquet, 0 in a DataFrame.
        delimiter: Between the cells of a text file.
        origin: Says where a row of the frame stands, if they come from several files.
        cells: Columns that name the series, as they are in the source; None where items are their cells.
    """

    path: Path
    frame: pd.DataFrame
    columns: Columns
    roles: Columns
    first_line: int = field(default=1)
    delimiter: str | None = None
    origin: Callable[[int], str] | None = None
    cells: pd.DataFrame | None = None

    @property
    def item(self) -> str | None:
        """The column that names the series; None for a single series."""
        return self.columns.items[0] if self.columns.items else None

    @property
    def unit(self) -> str:
        """What a row of the file is called."""
        return "line" if self.first_line > 1 else "row"

    def place(self, row: int, column: str | None = None) -> str:
        """Where a row of the frame stands in the file, for error messages."""
        if self.origin is None:
            where = f"{self.path}, {self.unit} {self.frame.index.to_numpy()[row] + self.first_line}"
        else:
            where = self.origin(row)
        for header in (WIDE_ITEM, ACROSS_TIME):  # where names of the file's columns are in the long form
            if header in self.frame and column in (WIDE_TARGET, ACROSS_TIME):
                column = str(self.frame[header].iloc[row])
        return where if column is None else f"{where}, column {column!r}"


def read_table(source: Path | pd.DataFrame, columns: Columns, rows: int | None = None) -> Table:
    """Reads a CSV or Parquet file, or takes a DataFrame, as far as its columns have a role.

    Args:
        source: A path, or a DataFrame. A path that ends in .parquet or .pq is read as Parquet. All others are text
            files with a header, delimited by comma, semicolon, tab or bar; .gz, .bz2, .xz and .zip are unpacked. A
            DataFrame stays as it is; items and time stamps may stand in its index.
        columns: Roles of the columns; those left open are found by name.
        rows: Read no more than the first of a file; None for all.

    Returns:
        The table in long form, without rows in which every cell is empty. Items are text; numbers are not checked yet.
        The log says what the columns were found to be.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, can not be read, or a column is not there.
    """
    if isinstance(source, pd.DataFrame):
        table = _from_frame(Path("DataFrame"), source, columns, first_line=0)
    elif not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    elif is_parquet(source):
        frame = read_parquet(source) if rows is None else next(parquet_parts(source, rows))
        table = _from_frame(source, frame, columns, first_line=1)
    else:
        check_packed(source)
        table = _of_text(source, lambda layout: _in_layout(source, layout, columns, rows))
    return in_long_form(table)


class Found(NamedTuple):
    """Roles of the columns, those that may belong to the item, and those whose names are time stamps."""

    columns: Columns
    others: list[str]
    across: list[str]

    @property
    def used(self) -> list[str]:
        """Columns of the table in long form that have a role."""
        columns = self.columns
        return [*columns.items, *columns.stamps, *columns.static_categories, *columns.numbers]


def find_roles(path: Path, sample: pd.DataFrame, columns: Columns) -> Found:
    """The roles of the columns, by the first rows."""
    across = dates_across(sample, columns)
    if not across:
        return Found(*resolve(path, sample, columns), [])
    sample = from_across(sample, across)
    columns, others = resolve(path, sample, replace(columns, timestamp=ACROSS_TIME, target=ACROSS_TARGET, wide=False))
    found = Found(columns, others, across)
    used = {*found.used}
    rest = [name for name in map(str, sample.columns) if name not in used]
    return found if others else found._replace(others=rest)  # numbers, too, where there is nothing else


def filled_rows(frame: pd.DataFrame, found: Found) -> pd.DataFrame:
    """The table, with its time stamps in a column, without rows in which every cell is empty."""
    if found.across:
        frame = from_across(frame, found.across)
    values = [name for name in found.used if name != ACROSS_TIME]
    empty: Any = frame[values].isna()
    for name, column in frame[values].select_dtypes(["object", "string"]).items():  # pyright: ignore[reportAttributeAccessIssue]
        empty[name] |= column.isin([""])
    return frame[~empty.all(axis=1)]  # pyright: ignore[reportReturnType]


def settled(path: Path, frame: pd.DataFrame, found: Found, given: Columns, **place: Any) -> Table:
    """The table, once all of it has told which columns name the series."""
    names = [str(name) for name in frame.columns]
    frame, columns = filled_rows(frame, found), found.columns
    if len(frame) == 0:
        raise ValueError(f"{path}: there are no rows; expected one with time stamp and target for each step")
    if given.item is None and not columns.wide:
        item = tell_apart(frame, columns.stamps, columns.items, found.others)
        columns = replace(columns, item=item[0] if len(item) == 1 else item or None)
    across = {*found.across}
    log.info("%s: %s", path, told([name for name in names if name not in across], columns, len(across)))
    roles = replace(columns, decimal=given.decimal)
    if found.across or columns.wide:  # other tables of this form have other dates, or other series
        opened = {"timestamp": None} if found.across else {}
        roles = replace(roles, target=given.target, **opened)
    frame = frame[found._replace(columns=columns).used]  # pyright: ignore[reportAssignmentType]
    return Table(path, *with_stamps(frame, columns), roles, **place)


def with_stamps(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, Columns]:
    """The table with its time stamps in one column."""
    if len(columns.stamps) == 1:
        return frame, replace(columns, timestamp=columns.stamps[0])
    parts = [frame[name].astype("string").str.strip() for name in columns.stamps]
    joined, name = parts[0], " ".join(columns.stamps)
    for part in parts[1:]:
        joined = joined + " " + part
    return frame.assign(**{name: joined.astype(object)}), replace(columns, timestamp=name)


def with_decimal(path: Path, columns: Columns, frame: pd.DataFrame) -> Columns:
    """The columns with the decimal sign of their numbers, which is logged where it is a comma."""
    if columns.decimal is not None:
        return columns
    decimal = find_decimal(frame[columns.numbers])
    if decimal == ",":
        log.info("%s: numbers have a decimal comma", path)
    return replace(columns, decimal=decimal)


def without_index(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index in columns, whose names are text: users keep time stamps and items there."""
    if isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex) and frame.index.name is None:
        frame = frame.rename_axis("index")
    if set(frame.index.names) - {None}:
        frame = frame.reset_index()
    return frame.rename(columns=str).reset_index(drop=True)


def _from_frame(path: Path, frame: pd.DataFrame, given: Columns, first_line: int) -> Table:
    frame = without_index(frame)
    found = find_roles(path, frame.head(SAMPLE), given)
    long = from_across(frame, found.across) if found.across else frame
    found = found._replace(columns=with_decimal(path, found.columns, long))
    if given.decimal is None and found.columns.decimal == ".":
        text = long[found.columns.numbers].select_dtypes(["object", "string"])  # pyright: ignore[reportArgumentType]
        refuse_ambiguous(path, text, None)
    return settled(path, frame, found, given, first_line=first_line)


def parquet_parts(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yields a Parquet file by so many rows, one time without any if it is empty; row numbers are in the index.

    Raises:
        ValueError: If it is none, damaged, or a bomb.
    """
    with whole_parquet(path):
        check_parquet(path)
        with parquet.ParquetFile(path) as file:
            done, batches = 0, file.iter_batches(rows)
            while batch := next(batches, None):
                frame = without_index(pa.Table.from_batches([batch]).to_pandas())
                yield frame.set_axis(pd.RangeIndex(done, done + len(frame)))
                done += len(frame)
            if not done:
                yield without_index(file.schema_arrow.empty_table().to_pandas())


def check_form(path: Path, columns: Columns) -> None:
    """Refuses a table that is not readable, or lacks a column, by its first rows: as `read_table` does, and quickly.

    Packed files, folders and those of GluonTS pass unread.

    Raises:
        ValueError: If something is wrong with it.
    """
    name = path.name.lower()
    if not path.is_file() or name.endswith((*PACKED, ".json", ".jsonl")):
        return
    if is_parquet(path):
        find_roles(path, next(parquet_parts(path, SAMPLE)), columns)
    else:
        _of_text(path, lambda layout: find_roles(path, _sample(path, layout), columns))


def _sample(path: Path, layout: Layout) -> pd.DataFrame:
    return pd.read_csv(path, nrows=SAMPLE, dtype=str, **layout.options)


def _of_text(path: Path, read: Callable[[Layout], Read]) -> Read:
    """What a function reads of a text file, in the encoding that fits it."""
    layout = None
    *others, last = encodings(path)
    try:
        for encoding in others:
            try:
                layout = find_layout(path, encoding)
                return read(layout)
            except UnicodeError:
                log.info("%s: the text is not in %s; taken as %s", path, encoding.upper(), last)
        layout = find_layout(path, last)
        return read(layout)
    except (UnicodeError, OSError, pd.errors.ParserError) as error:
        expected = "expected CSV in UTF-8, or .parquet" if layout is None else SAME_NUMBER
        raise ValueError(f"{path}: not readable ({str(error).strip()}); {expected}") from error


def _in_layout(path: Path, layout: Layout, given: Columns, rows: int | None) -> Table:
    """The table of a text file.

    Raises:
        ValueError: As `read_table` does.
        UnicodeError: If it has another encoding.
        pandas.errors.ParserError: If rows differ in length.
    """
    sample = _sample(path, layout)
    found = find_roles(path, sample, given)
    numbers = found.across or found.columns.numbers
    parts = sample if not found.across else from_across(sample, found.across)
    found = found._replace(columns=with_decimal(path, found.columns, parts))
    frame = cells_of(path, layout, found, numbers, nrows=rows)
    refuse_surplus(path, frame)
    if given.decimal is None and found.columns.decimal == "." and find_decimal(frame[numbers]) == ",":
        log.info("%s: numbers have a decimal comma", path)
        found = found._replace(columns=replace(found.columns, decimal=","))
        frame = cells_of(path, layout, found, numbers, nrows=rows)
    if given.decimal is None and found.columns.decimal == "." and layout.delimiter != ",":
        floats = frame[numbers].select_dtypes("float")
        broken = floats.columns[(floats % 1 > 0).any()].tolist()
        if broken and all(may_be_thousands(frame[name].to_numpy()) for name in broken):
            text = pd.read_csv(path, usecols=broken, dtype=str, nrows=rows, **layout.options)
            refuse_ambiguous(path, text, layout.delimiter)
    return settled(path, frame, found, given, first_line=layout.skipped + 2, delimiter=layout.delimiter)


def refuse_surplus(path: Path, frame: pd.DataFrame) -> None:
    """Raises where rows have more cells than the header: pandas takes surplus cells at the left for an index."""
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(f"{path}: the rows have more cells than the header; expected the same number in each row")


def cells_of(path: Path, layout: Layout, found: Found, numbers: list[str], **part: Any) -> Any:
    """All columns of a text file: told which to take, pandas lets surplus cells pass in silence.

    Args:
        path: Of the file.
        layout: Of its text.
        found: Roles of its columns.
        numbers: Columns of numbers.
        part: Options of `pandas.read_csv` that say which rows to read.
    """
    names, of_numbers = set(layout.names), set(numbers)
    text = [name for name in (*found.used, *found.others) if name in names and name not in of_numbers]
    return pd.read_csv(
        path,
        dtype=dict.fromkeys(text, str),  # pyright: ignore[reportArgumentType]
        na_values=dict.fromkeys([name for name in (*found.columns.stamps, *numbers) if name in names], MISSING),
        decimal=found.columns.decimal or ".",
        low_memory=False,
        **layout.options,
        **part,
    )


def in_long_form(table: Table) -> Table:
    """The table with a row for each series and time stamp, and its items as text in one column.

    Raises:
        ValueError: If an item is empty.
    """
    return _melted(table) if table.columns.wide else _with_items(table)


def _melted(table: Table) -> Table:
    """A wide table in long form: rows stand as often as there are series, one series after the other."""
    stamp, series = str(table.columns.timestamp), table.columns.targets
    frame = table.frame.melt([stamp], series, WIDE_ITEM, WIDE_TARGET, ignore_index=False)
    return replace(table, frame=frame, columns=replace(table.columns, item=WIDE_ITEM, target=WIDE_TARGET))


def _with_items(table: Table) -> Table:
    """The table with its items as text in one column; rows without any are refused."""
    if not table.columns.items:
        return table
    # By category: a few names stand for millions of rows.
    codes, names = zip(*(_text_categories(pd.Series(table.frame[name])) for name in table.columns.items), strict=True)
    rows = pd.DataFrame(dict(enumerate(codes)))
    group = codes[0] if len(codes) == 1 else rows.groupby(list(rows), sort=False).ngroup().to_numpy()
    firsts = rows.groupby(group).first()
    parts = [["" if code < 0 else str(text[code]) for code in firsts[k]] for k, text in enumerate(names)]
    joined = [one[0] if len(one) == 1 else joined_name(one) for one in zip(*parts, strict=True)]
    nameless = np.isin(group, [code for code, one in zip(firsts.index, joined, strict=True) if not one])
    if nameless.any():
        place = table.place(int(np.argmax(nameless)), table.columns.items[0])
        raise ValueError(f"{place}: the item is empty; name the series of this row or delete it")
    if len(codes) > 1 or table.frame[table.columns.items[0]].dtype.kind != "O":  # no text
        cells = table.frame[table.columns.items].iloc[np.unique(group, return_index=True)[1]].set_axis(joined)
        cells = cells.fillna(dict.fromkeys(cells.select_dtypes("object"), ""))
        table = replace(table, cells=cells[~cells.index.duplicated()])
    name, (places, items) = "/".join(table.columns.items), pd.factorize(pd.Index(joined))
    items = pd.Categorical.from_codes(places[np.searchsorted(firsts.index, group)], pd.Index(items))
    return replace(table, frame=table.frame.assign(**{name: items}), columns=replace(table.columns, item=name))


def joined_name(parts: Sequence[str]) -> str:
    r"""Return one name of several columns, "north/1": no two rows of other names have the same.

    A slash within a part stands behind a backslash ("north\/a/1"), and so does a backslash. Parts at the end that are
    empty are left out.
    """
    filled = max((number for number, part in enumerate(parts, 1) if part), default=0)
    return "/".join(re.sub(r"([\\/])", r"\\\1", part) for part in parts[:filled])


def _text_categories(column: pd.Series) -> tuple[NDArray[np.int64], pd.Index]:
    """Return the number of the text of every cell, -1 where it is empty, and the texts."""
    codes, values = pd.factorize(column)
    text = pd.Index(values).astype(str)
    names = text.unique()
    places = np.where(text.str.strip() == "", -1, names.get_indexer(text))
    return np.append(places, -1)[codes], names
