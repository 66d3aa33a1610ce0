"""Text files as programs write them: encoding, lines above the header, delimiter."""

import codecs
import csv
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

log = logging.getLogger(__name__)

_LOOKED_AT = 20  # lines
_DELIMITERS = ",;\t|"


class Layout(NamedTuple):
    """The layout of the table of a text file."""

    encoding: str  # of the file
    skipped: int  # lines above the header
    delimiter: str  # between cells
    names: list[str]  # the header; columns without a name are called as pandas calls them

    @property
    def options(self) -> dict[str, Any]:
        """Options of `pandas.read_csv`."""
        return {
            "encoding": self.encoding,
            "skiprows": self.skipped,
            "sep": self.delimiter,
            "header": 0,
            "names": self.names,
            "skip_blank_lines": False,
            "keep_default_na": False,
        }


def find_layout(path: Path, encoding: str) -> Layout:
    """The layout of a text file; a ValueError if it is empty, no text, or two columns have one name."""
    lines = _first_lines(path, encoding)
    if not any(line.strip(_DELIMITERS + ' "') for line in lines):
        raise ValueError(f"{path}: the file is empty; expected a header and rows with time stamp and target")
    skipped, delimiter = _above_the_header(path, lines)
    options = {"sep": delimiter, "encoding": encoding, "skiprows": skipped, "header": None}
    header = pd.read_csv(path, nrows=1, dtype=str, **options).iloc[0]  # pyright: ignore[reportCallIssue, reportArgumentType]
    if len(twice := header[header.duplicated() & header.notna()]):  # which pandas would number
        raise ValueError(f"{path}: two columns are called {twice.iloc[0]!r}; rename one of them")
    names = [str(name).strip() if pd.notna(name) else f"Unnamed: {number}" for number, name in enumerate(header)]
    rows = list(csv.reader((line for line in lines[skipped + 1 :] if line.strip()), delimiter=delimiter))
    if rows and all(len(row) == len(names) + 1 and not row[-1] for row in rows):
        names.append(f"Unnamed: {len(names)}")  # an empty cell at the end of each row, but not of the header
    return Layout(encoding, skipped, delimiter, names)


def encodings(path: Path) -> list[str]:
    """The encodings that a text file may have: UTF-16 says so, and Excel writes cp1252 in Western Europe."""
    with path.open("rb") as file:
        return ["utf-16"] if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else ["utf-8", "cp1252"]


def _first_lines(path: Path, encoding: str) -> list[str]:
    options = {"header": None, "names": ["line"], "sep": "\0", "dtype": str, "quoting": csv.QUOTE_NONE}
    options |= {"keep_default_na": False, "skip_blank_lines": False, "encoding": encoding, "nrows": _LOOKED_AT}
    found = pd.read_csv(path, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]
    if not isinstance(found.index, pd.RangeIndex):
        raise ValueError(f"{path}: not readable as text, it has zero bytes; expected CSV, or .parquet")
    return [str(line) for line in found["line"]]


def _above_the_header(path: Path, lines: list[str]) -> tuple[int, str]:
    """Lines above the header, and the delimiter of its cells."""
    if said := re.fullmatch(r"\"?sep=(.)\"?", lines[0].strip()):  # written and read by Excel
        return 1, said[1]
    filled = [number for number, line in enumerate(lines) if line.strip(_DELIMITERS + ' "')]
    header = filled[0]
    for number in filled[1:]:  # a title has no delimiter, where the rows below it have
        delimiter = _delimiter(lines[number])
        rows = [lines[other].count(delimiter) for other in filled if other >= number]
        titled = not any(sign in line for line in lines[header:number] for sign in _DELIMITERS)
        if titled and rows[0] > 0 and len(rows) > 1 and len(set(rows)) == 1:
            log.info("%s: line %d is taken as the header, what is above it as a title", path, number + 1)
            return number, delimiter
    return header, _delimiter(lines[header])


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=line.count)
