"""Tables of users: reading them, and where in the file a cell stands."""

import csv
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsforecast.data.reading import check_packed, check_parquet
from tsforecast.data.roles import MISSING, WIDE_ITEM, WIDE_TARGET, Columns, resolve
from tsforecast.data.signs import find_decimal

log = logging.getLogger(__name__)

_SAMPLE = 100  # rows by which columns are recognised


@dataclass(frozen=True)
class Table:
    """A table as read, with what is needed to point at a cell of it.

    Attributes:
        path: Where it comes from.
        frame: In long form. Index = position in the file, counted from 0.
        columns: All roles filled in; `item` is None for a single series.
        first_line: Line number of row 0 in a text file, where a header comes first; 1 in Parquet, 0 in a DataFrame.
        delimiter: Between the cells of a text file.
    """

    path: Path
    frame: pd.DataFrame
    columns: Columns
    first_line: int = field(default=1)
    delimiter: str | None = None

    @property
    def item(self) -> str | None:
        """The column that names the series; None for a single series."""
        return self.columns.items[0] if self.columns.items else None

    def place(self, row: int, column: str | None = None) -> str:
        """Where a row of the frame stands in the file, for error messages."""
        kind = "line" if self.first_line > 1 else "row"
        where = f"{self.path}, {kind} {self.frame.index.to_numpy()[row] + self.first_line}"
        if column is not None and self.columns.wide and column != self.columns.timestamp:
            column = str(self.frame[WIDE_ITEM].iloc[row])
        return where if column is None else f"{where}, column {column!r}"


def read_table(source: Path | pd.DataFrame, columns: Columns) -> Table:
    """Reads a CSV or Parquet file, or takes a DataFrame, as far as its columns have a role.

    Args:
        source: A path, or a DataFrame. A path that ends in .parquet or .pq is read as Parquet. All others are text
            files with a header, delimited by comma, semicolon, tab or bar; .gz, .bz2, .xz and .zip are unpacked. A
            DataFrame stays as it is; items and time stamps may stand in its index.
        columns: Roles of the columns; those left open are found by name.

    Returns:
        The table in long form, without rows in which every cell is empty. Items are text; numbers are not checked yet.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, can not be read, or a column is not there.
    """
    if isinstance(source, pd.DataFrame):
        table = _from_frame(Path("DataFrame"), source, columns, first_line=0)
    elif not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    elif source.suffix in (".parquet", ".pq"):
        try:
            check_parquet(source)
            frame = pd.read_parquet(source)
        except (OSError, ValueError) as error:
            raise ValueError(f"{source}: not readable as Parquet ({error})") from error
        table = _from_frame(source, frame, columns, first_line=1)
    else:
        check_packed(source)
        table = _read_text(source, columns)
    empty = table.frame.isna()
    for name, column in table.frame.select_dtypes(["object", "string"]).items():
        empty[name] |= column.isin([""])
    frame: pd.DataFrame = table.frame[~empty.all(axis=1)]  # pyright: ignore[reportAssignmentType]
    if len(frame) == 0:
        raise ValueError(f"{table.path}: there are no rows; expected one with time stamp and target for each step")
    table = replace(table, frame=frame)
    return _melted(table) if columns.wide else _with_items(table)


def _from_frame(path: Path, frame: pd.DataFrame, columns: Columns, first_line: int) -> Table:
    if isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex) and frame.index.name is None:
        frame = frame.rename_axis("index")
    if set(frame.index.names) - {None}:  # pandas users keep time stamps and items in the index
        frame = frame.reset_index()
    frame = frame.rename(columns=str).reset_index(drop=True)
    columns = resolve(path, frame.head(_SAMPLE), columns)
    if columns.decimal is None:
        columns = _with_decimal(path, columns, frame)
    return Table(path, frame[_used(columns)], columns, first_line)  # pyright: ignore[reportArgumentType]


def _used(columns: Columns) -> list[str]:
    return [*columns.items, str(columns.timestamp), *columns.static_categories, *columns.numbers]


def _melted(table: Table) -> Table:
    """A wide table in long form: rows stand as often as there are series, one series after the other."""
    stamp, series = str(table.columns.timestamp), table.columns.targets
    frame = table.frame.melt([stamp], series, WIDE_ITEM, WIDE_TARGET, ignore_index=False)
    return replace(table, frame=frame, columns=replace(table.columns, item=WIDE_ITEM, target=WIDE_TARGET))


def _read_text(path: Path, columns: Columns) -> Table:
    try:
        first = pd.read_csv(path, header=None, nrows=1, sep="\0", dtype=str, quoting=csv.QUOTE_NONE)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path}: the file is empty; expected a header and rows with time stamp and target") from error
    except (UnicodeDecodeError, OSError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: not readable as text ({error}); expected CSV in UTF-8, or .parquet") from error
    delimiter = max(",;\t|", key=str(first.iloc[0, 0]).count)
    try:
        _refuse_twice(path, pd.read_csv(path, sep=delimiter, nrows=1, header=None, dtype=str).iloc[0])
        sample = pd.read_csv(path, sep=delimiter, nrows=_SAMPLE, dtype=str, keep_default_na=False)
        columns = resolve(path, sample, columns)
        decided = columns if columns.decimal else _with_decimal(path, columns, sample)
        frame = _cells(path, delimiter, decided)
        if (
            columns.decimal is None
            and decided.decimal == "."
            and (wider := _with_decimal(path, columns, frame)) != decided
        ):
            decided, frame = wider, _cells(path, delimiter, wider)
    except (UnicodeDecodeError, OSError, pd.errors.ParserError) as error:
        raise ValueError(
            f"{path}: not readable ({str(error).strip()}); expected the same number of cells in each row"
        ) from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes surplus cells at the left for an index
        raise ValueError(f"{path}: the rows have more cells than the header; expected the same number in each row")
    return Table(path, frame[_used(columns)], decided, 2, delimiter)  # pyright: ignore[reportArgumentType]


def _with_decimal(path: Path, columns: Columns, frame: pd.DataFrame) -> Columns:
    """The columns with the decimal sign of their numbers, which is logged where it is a comma."""
    decimal = find_decimal(frame[name] for name in columns.numbers)
    if decimal == ",":
        log.info("%s: numbers have a decimal comma", path)
    return replace(columns, decimal=decimal)


def _cells(path: Path, delimiter: str, columns: Columns) -> pd.DataFrame:
    """All columns are read: told which to take, pandas lets surplus cells pass in silence."""
    text = {name: str for name in (*columns.items, str(columns.timestamp), *columns.static_categories)}
    return pd.read_csv(  # pyright: ignore[reportCallIssue]
        path,
        sep=delimiter,
        dtype=text,  # pyright: ignore[reportArgumentType]
        keep_default_na=False,
        na_values={name: MISSING for name in (str(columns.timestamp), *columns.numbers)},
        decimal=columns.decimal or ".",
        skip_blank_lines=False,
        low_memory=False,
    )


def _refuse_twice(path: Path, header: Any) -> None:
    """Raises where two columns have one name: pandas would number them."""
    twice = header[header.duplicated() & header.notna()]
    if len(twice):
        raise ValueError(f"{path}: two columns are called {twice.iloc[0]!r}; rename one of them")


def _with_items(table: Table) -> Table:
    """The table with its items as text in one column; empty cells are refused."""
    items = []
    for name in table.columns.items:
        column = table.frame[name]
        empty = (column.isna() | (column.astype(str).str.strip() == "")).to_numpy()
        if empty.any():
            place = table.place(int(np.argmax(empty)), name)
            raise ValueError(f"{place}: the item is empty; name the series of this row or delete it")
        items.append(column.astype(str))
    if not items:
        return table
    joined, rest = items[0], items[1:]
    for column in rest:
        joined = joined + "/" + column
    name = "/".join(table.columns.items)
    return replace(table, frame=table.frame.assign(**{name: joined}), columns=replace(table.columns, item=name))
