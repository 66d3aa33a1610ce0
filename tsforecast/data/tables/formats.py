"""Tables out of text files, Parquet and Excel files, and data frames."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from tsforecast.data.tables.columns import (
    SAMPLE,
    Schema,
    category_of,
    find_schema,
    table_of,
    with_categories,
    with_decimal,
)
from tsforecast.data.tables.contents import MISSING
from tsforecast.data.tables.layout import Layout, encodings, find_layout
from tsforecast.data.tables.long_form import from_across, in_long_form
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.signs import find_decimal, may_be_thousands, refuse_ambiguous
from tsforecast.data.tables.table import Table
from tsforecast.io.binary import PACKED, check_packed, check_parquet, is_parquet, read_parquet, whole_parquet
from tsforecast.io.excel import is_excel, read_excel
from tsforecast.io.reading import expect_file

log = logging.getLogger(__name__)
Read = TypeVar("Read")

SAME_NUMBER = "expected the same number of cells in each row"


def read_table(source: Path | pd.DataFrame, columns: Columns, rows: int | None = None) -> Table:
    """Reads a CSV, Parquet or Excel file, or takes a DataFrame, as far as its columns have a role.

    Args:
        source: A path, or a DataFrame. A path that ends in .parquet or .pq is read as Parquet, and of .xlsx the first
            sheet. All others are text files with a header, delimited by comma, semicolon, tab or bar; .gz, .bz2, .xz
            and .zip are unpacked. A DataFrame stays as it is; items and time stamps may stand in its index.
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
    elif is_parquet(expect_file(source)):
        frame = read_parquet(source) if rows is None else next(parquet_parts(source, rows))
        table = _from_frame(source, frame, columns, first_line=1)
    elif is_excel(source):
        frame, first = read_excel(source, rows)
        table = _from_frame(source, frame, columns, first_line=first)
    else:
        check_packed(source)
        table = _of_text(source, lambda layout: _in_layout(source, layout, columns, rows))
    return in_long_form(table)


def frame_in(path: Path, rows: int | None = None) -> pd.DataFrame:
    """Return the first rows of a file, or all, with all of its columns; cells of a text file stay as they are written.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it can not be read.
    """
    if is_parquet(expect_file(path)):
        return read_parquet(path) if rows is None else next(parquet_parts(path, rows))
    if is_excel(path):
        return read_excel(path, rows)[0]
    check_packed(path)
    return _of_text(path, lambda layout: first_rows(path, layout, rows))


def names_in(path: Path) -> list[str]:
    """Return the names of the columns of a file; a ValueError if it can not be read."""
    return [str(name) for name in frame_in(path, SAMPLE).columns]


def check_form(path: Path, columns: Columns) -> None:
    """Refuses a table that is not readable, or lacks a column, by its first rows: as `read_table` does, and quickly.

    Packed files, folders and those of GluonTS pass unread.
    """
    name = path.name.lower()
    if not path.is_file() or name.endswith((*PACKED, ".json", ".jsonl")):
        return
    find_schema(path, frame_in(path, SAMPLE), columns)


def without_index(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its index in columns, under names as text: users keep time stamps and items there."""
    if isinstance(frame.index, pd.DatetimeIndex | pd.PeriodIndex) and frame.index.name is None:
        frame = frame.rename_axis("index")
    if set(frame.index.names) - {None}:
        frame = frame.reset_index()
    return frame.rename(columns=str).reset_index(drop=True)


def parquet_parts(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yields a Parquet file, which is sound, by so many rows, once if empty; row numbers are in the index."""
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


def _from_frame(path: Path, frame: pd.DataFrame, given: Columns, first_line: int) -> Table:
    frame = with_categories(without_index(frame), given)
    schema = find_schema(path, frame.head(SAMPLE), given)
    long = from_across(frame, schema.across) if schema.across else frame
    schema = schema._replace(columns=with_decimal(path, schema.columns, long))
    if given.decimal is None and schema.columns.decimal == ".":
        text = long[schema.columns.numbers].select_dtypes(["object", "string"])  # pyright: ignore[reportArgumentType]
        refuse_ambiguous(path, text, None)
    return table_of(path, frame, schema, given, first_line=first_line)


def first_rows(path: Path, layout: Layout, rows: int | None = SAMPLE) -> pd.DataFrame:
    """The first rows of a text file, or all, as text: they decide on the columns."""
    return pd.read_csv(path, nrows=rows, dtype=str, **layout.options)


def _of_text(path: Path, read: Callable[[Layout], Read]) -> Read:
    """The result of a function that reads a text file, in the encoding that fits it."""
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
    """The table of a text file."""
    sample = with_categories(first_rows(path, layout), given)
    schema = find_schema(path, sample, given)
    numbers = schema.across or schema.columns.numbers
    parts = sample if not schema.across else from_across(sample, schema.across)
    schema = schema._replace(columns=with_decimal(path, schema.columns, parts))
    frame: Any = with_categories(cells_of(path, layout, schema, numbers, nrows=rows), given)
    refuse_surplus(path, frame)
    if given.decimal is None and schema.columns.decimal == "." and find_decimal(frame[numbers]) == ",":
        log.info("%s: numbers have a decimal comma", path)
        schema = schema._replace(columns=replace(schema.columns, decimal=","))
        frame = with_categories(cells_of(path, layout, schema, numbers, nrows=rows), given)
    if given.decimal is None and schema.columns.decimal == "." and layout.delimiter != ",":
        floats = frame[numbers].select_dtypes("float")
        broken = floats.columns[(floats % 1 > 0).any()].tolist()
        if broken and all(may_be_thousands(frame[name].to_numpy()) for name in broken):
            text = pd.read_csv(path, usecols=broken, dtype=str, nrows=rows, **layout.options)
            refuse_ambiguous(path, text, layout.delimiter)
    return table_of(path, frame, schema, given, first_line=layout.skipped + 2, delimiter=layout.delimiter)


def refuse_surplus(path: Path, frame: pd.DataFrame) -> None:
    """Raises where rows have more cells than the header: pandas takes surplus cells at the left for an index."""
    if not isinstance(frame.index, pd.RangeIndex):
        raise ValueError(f"{path}: the rows have more cells than the header; expected the same number in each row")


def cells_of(path: Path, layout: Layout, schema: Schema, numbers: list[str], **part: Any) -> Any:
    """All columns of a text file: for a choice of columns pandas drops surplus cells in silence."""
    names, of_numbers = set(layout.names), set(numbers)
    made = [category_of(name, names) for name in (*schema.columns.covariates, *schema.columns.targets)]
    wanted = (*schema.used, *schema.others, *(found[0] for found in made if found))
    text = [name for name in wanted if name in names and name not in of_numbers]
    return pd.read_csv(
        path,
        dtype=dict.fromkeys(text, str),  # pyright: ignore[reportArgumentType]
        na_values=dict.fromkeys([name for name in (*schema.columns.stamps, *numbers) if name in names], MISSING),
        decimal=schema.columns.decimal or ".",
        low_memory=False,
        **layout.options,
        **part,
    )
