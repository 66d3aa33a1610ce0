"""The record of a table as it was read, and the places of its cells in the file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tsforecast.data.tables.roles import ACROSS_TIME, WIDE_ITEM, WIDE_TARGET, Columns


@dataclass(frozen=True)
class Table:
    """A table as read, with the places of its cells in the source."""

    path: Path  # where it comes from
    frame: pd.DataFrame  # in long form. Index = position in the file, counted from 0
    columns: Columns  # all roles filled in, of the long form; `item` is None for a single series
    roles: Columns  # what the columns of the source are, by which another source of the same form can be read
    # Line number of row 0 in a text file, where a header comes first; 1 in Parquet, 0 in a DataFrame.
    first_line: int = field(default=1)
    delimiter: str | None = None  # between the cells of a text file
    origin: Callable[[int], str] | None = None  # says where a row of the frame stands, if they come from several files
    # Columns that name the series, as they are in the source; None where items are their cells.
    cells: pd.DataFrame | None = None

    @property
    def item(self) -> str | None:
        """The column that names the series; None for a single series."""
        return self.columns.items[0] if self.columns.items else None

    @property
    def unit(self) -> str:
        """The word for a row of the file."""
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
