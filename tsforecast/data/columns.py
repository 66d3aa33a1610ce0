"""Tables of users: which column is what, reading them, and where in the file a cell stands."""

import csv
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

log = logging.getLogger(__name__)

# Names under which a column is found without being told, in order of preference; letter case does not matter.
ITEM_NAMES = ("item_id", "item", "series", "series_id", "unique_id", "id")
TIMESTAMP_NAMES = ("timestamp", "date", "datetime", "time", "ds")
TARGET_NAMES = ("target", "value", "y")

MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None", "none", "NaT"]


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are. Columns that are not named here are ignored.

    Attributes:
        item: Name of the series. None: one of `ITEM_NAMES`, or the whole table is one series.
        timestamp: None: one of `TIMESTAMP_NAMES`.
        target: One column, or several for a multivariate target. None: one of `TARGET_NAMES`, or the only column left.
        covariates: Numbers known ahead of time (prices, holidays), which become `feat_dynamic_real`.
        static_categories: Text or numbers constant within a series, which become codes in `feat_static_cat`.
        static_reals: Numbers constant within a series, which become `feat_static_real`.
        timestamp_format: As `strptime` takes it, e.g. "%d/%m/%Y"; None: ISO 8601 or whatever is unambiguous.
        decimal: Decimal sign of a text file.
    """

    item: str | None = None
    timestamp: str | None = None
    target: str | Sequence[str] | None = None
    covariates: Sequence[str] = ()
    static_categories: Sequence[str] = ()
    static_reals: Sequence[str] = ()
    timestamp_format: str | None = None
    decimal: str = "."

    @property
    def targets(self) -> list[str]:
        """The target columns as a list."""
        return [self.target] if isinstance(self.target, str) else list(self.target or ())

    @property
    def numbers(self) -> list[str]:
        """All columns that hold numbers."""
        return [*self.targets, *self.covariates, *self.static_reals]


@dataclass(frozen=True)
class Table:
    """A table as read, with what is needed to point at a cell of it.

    Attributes:
        path: Where it comes from.
        frame: Index = position in the file, counted from 0.
        columns: All roles filled in; `item` is None for a single series.
        first_line: Line number of row 0 in a text file, where a header comes first; 1 otherwise.
    """

    path: Path
    frame: pd.DataFrame
    columns: Columns
    first_line: int = field(default=1)

    def place(self, row: int, column: str | None = None) -> str:
        """Where a row of the frame stands in the file, for error messages."""
        kind = "line" if self.first_line > 1 else "row"
        where = f"{self.path}, {kind} {self.frame.index.to_numpy()[row] + self.first_line}"
        return where if column is None else f"{where}, column {column!r}"


def read_table(path: Path, columns: Columns) -> Table:
    """Reads a CSV or Parquet file as far as its columns have a role.

    Args:
        path: Ends in .parquet or .pq, or is a text file with a header and one of the delimiters comma, semicolon, tab
            and bar; .gz, .bz2, .xz and .zip are unpacked.
        columns: Roles of the columns; those left open are found by name.

    Returns:
        The table, without rows in which every cell is empty. Items are text; numbers are not checked yet.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty, can not be read, or a column is not there.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix in (".parquet", ".pq"):
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: not readable as Parquet ({error})") from error
        if set(frame.index.names) - {None}:  # pandas users keep time stamps and items in the index
            frame = frame.reset_index()
        frame = frame.rename(columns=str).reset_index(drop=True)
        columns = _resolve(path, list(frame.columns), columns)
        table = Table(path, frame, columns)
    else:
        table = _read_text(path, columns)
    empty = table.frame.isna()
    for name, column in table.frame.select_dtypes(["object", "string"]).items():
        empty[name] |= column.isin([""])
    frame: pd.DataFrame = table.frame[~empty.all(axis=1)]  # pyright: ignore[reportAssignmentType]
    if len(frame) == 0:
        raise ValueError(f"{path}: the file has no rows; expected a row with time stamp and target for each step")
    if table.columns.item is not None:
        frame = frame.assign(**{table.columns.item: _items(table, frame)})
    return replace(table, frame=frame)


def _read_text(path: Path, columns: Columns) -> Table:
    try:
        first = pd.read_csv(path, header=None, nrows=1, sep="\0", dtype=str, quoting=csv.QUOTE_NONE)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path}: the file is empty; expected a header and rows with time stamp and target") from error
    except (UnicodeDecodeError, OSError, pd.errors.ParserError) as error:
        raise ValueError(f"{path}: not readable as text ({error}); expected CSV in UTF-8, or .parquet") from error
    delimiter = max(",;\t|", key=str(first.iloc[0, 0]).count)
    try:
        names = [str(name) for name in pd.read_csv(path, sep=delimiter, nrows=0).columns]
        columns = _resolve(path, names, columns)
        text = {name: str for name in (columns.item, columns.timestamp, *columns.static_categories) if name is not None}
        # All columns are read: told which to take, pandas lets surplus cells pass in silence.
        frame = pd.read_csv(  # pyright: ignore[reportCallIssue]
            path,
            sep=delimiter,
            dtype=text,  # pyright: ignore[reportArgumentType]
            keep_default_na=False,
            na_values={name: MISSING for name in (columns.timestamp or "", *columns.numbers)},
            decimal=columns.decimal,
            skip_blank_lines=False,
            low_memory=False,
        )
    except (UnicodeDecodeError, OSError, pd.errors.ParserError) as error:
        raise ValueError(
            f"{path}: not readable ({str(error).strip()}); expected the same number of cells in each row"
        ) from error
    if not isinstance(frame.index, pd.RangeIndex):  # pandas takes surplus cells at the left for an index
        raise ValueError(f"{path}: the rows have more cells than the header; expected the same number in each row")
    return Table(path, frame[[*text, *columns.numbers]], columns, first_line=2)


def _items(table: Table, frame: pd.DataFrame) -> pd.Series:
    """The item column as text, refusing empty cells."""
    column: pd.Series = frame[str(table.columns.item)]  # pyright: ignore[reportAssignmentType]
    empty = (column.isna() | (column.astype(str).str.strip() == "")).to_numpy()
    if empty.any():
        place = replace(table, frame=frame).place(int(np.argmax(empty)), table.columns.item)
        raise ValueError(f"{place}: the item is empty; name the series of this row or delete it")
    return column.astype(str)


def _resolve(path: Path, names: list[str], columns: Columns) -> Columns:
    """Fills in the roles that were left open."""
    given = [columns.item, columns.timestamp, *columns.numbers, *columns.static_categories]
    for name in given:
        if name is not None and name not in names:
            raise ValueError(f"{path}: there is no column {name!r}; the columns are {', '.join(map(repr, names))}")
    named = [name for name in given if name is not None]
    if len(set(named)) < len(named):
        raise ValueError(f"{path}: a column has two roles; expected each column once, got {named}")
    free = [name for name in names if name not in named]

    def find(candidates: tuple[str, ...]) -> str | None:
        by_case = {name.lower(): name for name in reversed(free)}
        return next((by_case[name] for name in candidates if name in by_case), None)

    item = columns.item or find(ITEM_NAMES)
    timestamp = columns.timestamp or find(TIMESTAMP_NAMES)
    target = columns.target or find(TARGET_NAMES)
    rest = [name for name in free if name not in (item, timestamp)]
    if not target and len(rest) == 1:
        target = rest[0]
    for role, name, option in (("time stamps", timestamp, "timestamp"), ("a target", target, "target")):
        if not name:
            listed = ", ".join(map(repr, names))
            raise ValueError(f"{path}: no column looks like {role}; name it ({option}=...), the columns are {listed}")
    ignored = [name for name in rest if name != target]
    if ignored:
        log.info("%s: columns without a role are ignored: %s", path, ", ".join(ignored))
    return replace(columns, item=item, timestamp=timestamp, target=target)
