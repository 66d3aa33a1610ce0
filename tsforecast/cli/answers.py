"""Answers of commands in files: tables in the words of the data, and records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data import ForecastTask
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.io.files import make_folder, replace_file

PAGE = "page.html"  # of charts, beside the tables


def heading(task: ForecastTask, what: str) -> str:
    """Return the title of a page: the data, their unit, and the subject."""
    from tsforecast.plots.style import measured  # with matplotlib, which tables do without

    named = measured(", ".join(task.targets[:3]), task.unit)
    return f"{task.name}{f', {named}' if named not in ('', task.name) else ''}: {what}"


def write_table(table: pd.DataFrame, path: Path, index: bool = False) -> Path:
    """Write a CSV file, whole or not at all, and return its path."""
    with replace_file(path) as temporary:
        table.to_csv(temporary, index=index)
    return path


def write_tables(
    folder: Path, columns: Columns | None, entries: Sequence[Mapping[str, Any]], **tables: pd.DataFrame
) -> None:
    """Write tables into a folder."""
    make_folder(folder)
    cells = cells_of(entries)
    for name, table in tables.items():
        write_table(as_read(table, columns, cells), folder / f"{name}.csv")
