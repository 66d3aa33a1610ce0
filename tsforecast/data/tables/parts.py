"""Tables larger than memory: a first part decides on their form, and each part is read alike."""

import codecs
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tsforecast.data.tables.cells import StampForm, read_stamps
from tsforecast.data.tables.columns import SAMPLE, Schema, filled_rows, find_schema, with_categories
from tsforecast.data.tables.formats import SAME_NUMBER, cells_of, first_rows, parquet_parts, read_table, refuse_surplus
from tsforecast.data.tables.layout import encodings, find_layout
from tsforecast.data.tables.long_form import in_long_form, with_stamps
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.table import Table
from tsforecast.io.binary import check_packed, is_parquet, open_unpacked
from tsforecast.io.reading import expect_file

log = logging.getLogger(__name__)

_READ = 1 << 20  # bytes of text that are decoded at once


class Form(NamedTuple):
    """The form of the first part of a table, and so of all its parts."""

    columns: Columns
    stamps: StampForm


def find_form(path: Path, columns: Columns, rows: int) -> Form:
    """The form of a table by its first rows; the log says it."""
    table = read_table(path, columns, rows)
    return Form(replace(table.roles, decimal=table.columns.decimal), read_stamps(table)[1])


def read_parts(path: Path, columns: Columns, rows: int) -> Iterator[Table]:
    """Yields a table in parts, in long form. A part has at least one row, and is of one file."""
    expect_file(path)
    try:
        yield from _parquet(path, columns, rows) if is_parquet(path) else _text(path, columns, rows)
    except (UnicodeError, OSError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: not readable ({str(error).strip()}); {SAME_NUMBER}") from error


def _parquet(path: Path, columns: Columns, rows: int) -> Iterator[Table]:
    first = next(parquet_parts(path, SAMPLE))
    schema = _as_before(find_schema(path, first, columns), columns)
    for frame in parquet_parts(path, max(1, rows // _width(schema))):
        yield from _part(path, frame, schema, first_line=1)


def _text(path: Path, columns: Columns, rows: int) -> Iterator[Table]:
    check_packed(path)
    layout = find_layout(path, _encoding(path))
    schema = _as_before(find_schema(path, first_rows(path, layout), columns), columns)
    numbers = schema.across or schema.columns.numbers
    with cells_of(path, layout, schema, numbers, chunksize=max(1, rows // _width(schema))) as frames:
        for frame in frames:
            refuse_surplus(path, frame)
            yield from _part(path, frame, schema, first_line=layout.skipped + 2, delimiter=layout.delimiter)


def _as_before(schema: Schema, columns: Columns) -> Schema:
    """The roles in a file of the same form: a single series stays one, whatever the names of columns."""
    return schema if columns.item else schema._replace(columns=replace(schema.columns, item=None))


def _width(schema: Schema) -> int:
    """Rows of the long form that a row of the file makes."""
    return max(1, len(schema.across) or (len(schema.columns.targets) if schema.columns.wide else 1))


def _part(path: Path, frame: pd.DataFrame, schema: Schema, **place: Any) -> Iterator[Table]:
    """Yields the table of some rows, if there is a cell in them."""
    frame = filled_rows(with_categories(frame, schema.columns), schema)
    if len(frame):
        used: Any = frame[schema.used]
        yield in_long_form(Table(path, *with_stamps(used, schema.columns), schema.columns, **place))


def _encoding(path: Path) -> str:
    """The first encoding that fits all of a text file."""
    *others, last = encodings(path)
    for encoding in others:
        try:
            decoder = codecs.getincrementaldecoder(encoding)()
            with open_unpacked(path) as file:
                while chunk := file.read(_READ):
                    decoder.decode(chunk)
            decoder.decode(b"", True)
            return encoding
        except UnicodeError:
            log.info("%s: the text is not in %s; taken as %s", path, encoding.upper(), last)
    return last
