"""Sheets of Excel files that may come from strangers: their memory is bounded, and no formula or macro is run."""

import logging
import warnings
import zipfile
from collections.abc import Iterator
from datetime import datetime, time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsforecast.io.binary import check_archive
from tsforecast.io.reading import first_line

log = logging.getLogger(__name__)

SUFFIXES = (".xlsx", ".xlsm")
_MOST_TAGS = 8_000_000  # of XML in all parts: some two million cells, which take a gigabyte while they are read
_MOST_ROWS = 1 << 20  # of a sheet, by Excel
_MOST_PLACES = 20_000_000  # cells of a sheet with the empty ones before others: a cell may claim to stand anywhere
_CHUNK = 1 << 20
_TO_CSV = "save the sheet as CSV"


def is_excel(path: Path) -> bool:
    """Return whether a path is that of an Excel file, by its name."""
    return path.name.lower().endswith(SUFFIXES)


def read_excel(path: Path, most: int | None = None) -> tuple[pd.DataFrame, int]:
    """Return the first sheet as a frame, and the number of the sheet's row below the header.

    The header is the first row with several filled cells; what is above it is taken as a title. Values of formulas are
    those that Excel has saved.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise ValueError(f"{path}: Excel files need openpyxl: pip install 'tsforecast[excel]'; or {_TO_CSV}") from error
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path)
            tags = sum(_count_tags(archive, member) for member in archive.namelist())
        if tags > _MOST_TAGS:
            raise ValueError(f"it has more than {_MOST_TAGS // 4} cells; {_TO_CSV}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and validations, which are not read
            book = openpyxl.load_workbook(path, read_only=True, data_only=True, keep_links=False)
        try:
            sheet, *others = book.worksheets
            if others:
                titles = ", ".join(repr(other.title) for other in others[:5])
                log.info("%s: the sheet %r is read; not read: %s", path, sheet.title, titles)
            sheet.reset_dimensions()  # which a file may claim as it likes
            return _frame(path, _rows(sheet.iter_rows(values_only=True)), most)
        finally:
            book.close()
    except Exception as error:  # of many kinds, as parts of the file may be anything
        reason = first_line(error)[:200]
        raise ValueError(
            reason if reason.startswith(str(path)) else f"{path}: not readable as Excel ({reason})"
        ) from error


def _count_tags(archive: zipfile.ZipFile, name: str) -> int:
    with archive.open(name) as file:
        return sum(chunk.count(b"<") for chunk in iter(lambda: file.read(_CHUNK), b""))


def _rows(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a sheet, as far as they are not absurdly far down or to the right."""
    places = 0
    for number, row in enumerate(rows):
        places += len(row)
        if number >= _MOST_ROWS or places > _MOST_PLACES:
            raise ValueError(f"the sheet is larger than {_MOST_ROWS} rows or {_MOST_PLACES} cells; {_TO_CSV}")
        yield tuple(row)


def _frame(path: Path, rows: Iterator[tuple[Any, ...]], most: int | None) -> tuple[pd.DataFrame, int]:
    """Return the table below the header, and the number of its first row."""
    titled, number, header = False, 0, ()
    for row in rows:
        number, filled = number + 1, sum(cell is not None for cell in row)
        if filled > 1:
            header = row
            break
        titled |= filled == 1
    if not header:
        raise ValueError(f"{path}: the first sheet has no table; expected a header and rows with time stamp and target")
    if titled:
        log.info("%s: row %d is taken as the header, what is above it as a title", path, number)
    found = list(islice(rows, most))
    width = max([len(header), *map(len, found)])
    names = [_name(cell, place) for place, cell in enumerate((*header, *[None] * (width - len(header))))]
    frame = pd.DataFrame([(*row, *[None] * (width - len(row))) for row in found], columns=pd.Index(names))
    unnamed = frame.columns.str.startswith("Unnamed: ") & np.asarray(frame.isna().all())
    return frame.loc[:, ~unnamed], number + 1


def _name(cell: Any, place: int) -> str:
    """Return the name of a column, as pandas has it where there is none."""
    if cell is None or not str(cell).strip():
        return f"Unnamed: {place}"
    if isinstance(cell, datetime) and cell.time() == time():
        return f"{cell:%Y-%m-%d}"
    return str(cell).strip()
