"""Hierarchies and groups of series: sums of them, by columns that nest and cross or by a summing matrix."""

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.summing import Hierarchy, sums_of
from tsforecast.data.tables.dataframes import as_pandas
from tsforecast.data.tables.naming import CELLS
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.io.excel import is_excel, read_excel
from tsforecast.wording import counted, listed, option, shortened, suggestion

log = logging.getLogger(__name__)

ALL = "(all)"  # the cell of a sum in a column over which it sums
_EXPECTED = "expected a summing matrix: its first column names the sums, and each series has a column"

_FILES = (".csv", ".csv.gz", ".parquet", ".xlsx")  # of summing matrices

# Columns, a file, or a frame of pandas, polars and the like.
Given = str | Path | Sequence[str] | Any


def with_levels(columns: Columns, given: Given | None) -> Columns:
    """Return columns of a table with the levels of a hierarchy among those that name its series."""
    if given is None or (groups := _groups(given)) is None:
        return columns
    levels = [name for group in groups for name in group]
    known = {name.lower() for name in levels}
    return replace(columns, item=[*levels, *(name for name in columns.items if name.lower() not in known)])


def find_hierarchy(given: Given, task: ForecastTask, items: Sequence[str] = ()) -> tuple[Hierarchy, ForecastTask]:
    """Return a hierarchy of the series of a task, and the task of its nodes: sums that differ, then the series.

    Args:
        given: Columns that nest, from the top, as "region/shop"; several such groups cross. Or a summing matrix, a row
            for each sum and a column for each series: a data frame, or its file.
        task: Series that end together, with as many covariates behind the end as a forecast needs.
        items: Columns that name a series alone, where the user has given them.

    Raises:
        ValueError: If a sum or a series is not known, is in two places, or differs from the sum of its series.
        FileNotFoundError: If the file is missing.
    """
    if isinstance(task.entries, StreamedEntries):
        raise ValueError("expected a hierarchy of series that are read at once, got buckets of more rows than are")
    entries = {str(entry["item_id"]): entry for entry in task.entries}
    if any(np.ndim(entry["target"]) > 1 for entry in task.entries):
        raise ValueError("expected one target with a hierarchy, got several: forecast each of them alone")
    if static := {name for entry in task.entries for name in entry if name.startswith("feat_static")}:
        raise ValueError(
            f"expected no static columns with a hierarchy, got {', '.join(sorted(static))}: leave them out"
        )
    groups = _groups(given)
    tree = _by_matrix(_matrix(given), entries) if groups is None else _by_columns(groups, task, items)
    made = [*sums_of(tree, entries)]
    differ = f", of which {len(made)} differ" if len(made) < len(tree.aggregates) else ""
    log.info("hierarchy: %d series below %s%s", len(tree.bottoms), counted(len(tree.aggregates), "sum"), differ)
    return tree, replace(task, entries=[*made, *(entries[name] for name in tree.bottoms)])


def _groups(given: Given) -> list[list[str]] | None:
    """Return the columns of every group; None for a summing matrix."""
    if isinstance(as_pandas(given), pd.DataFrame):
        return None
    parts = [str(given)] if isinstance(given, str | Path) else [*given] if isinstance(given, Sequence) else [given]
    if len(parts) == 1 and str(parts[0]).lower().endswith(_FILES):
        return None
    groups = [[name.strip() for name in str(part).split("/")] for part in parts]
    names = [name for group in groups for name in group]
    if not all(isinstance(x, str) for x in parts) or not names or "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"expected {option('hierarchy')} such as region/shop, each column once, or a summing matrix as a frame or "
            f"in a .csv file, got {shortened(' '.join(map(str, parts)))!r}"
        )
    return groups


def _cells(entry: Mapping[str, Any]) -> tuple[str, ...]:
    own = (entry.get("info") or {}).get(CELLS) or (entry["item_id"],)
    return tuple(str(cell) for cell in own)


def _by_columns(groups: list[list[str]], task: ForecastTask, items: Sequence[str]) -> Hierarchy:
    """Return the hierarchy of columns: a level for each combination of depths in the groups."""
    names = [] if task.columns is None else task.columns.items
    lower = [name.lower() for name in names]
    if missing := [name for group in groups for name in group if name.lower() not in lower]:
        raise ValueError(f"{option('hierarchy')} names the column {missing[0]!r}, but series are named by {names}: "
                         "give a table with a row for each series and time stamp, or a summing matrix")  # fmt: skip
    rows = {str(entry["item_id"]): _cells(entry) for entry in task.entries}
    bottoms = [item for item, cells in rows.items() if ALL not in cells]
    if not bottoms:
        raise ValueError(f"expected rows of series at the bottom, got sums alone, with {ALL!r} in each")
    cells = np.array([rows[item] for item in bottoms], dtype=object)
    _refuse_two_places(bottoms, cells[:, [lower.index(name.lower()) for name in items if name.lower() in lower]])
    codes = np.stack([pd.factorize(column)[0] for column in cells.T], axis=1)
    own = [[lower.index(name.lower()) for name in group] for group in groups]
    from scipy import sparse  # takes half a second to import, and few data have sums

    sums, named = [], {}
    for depths in product(*(range(len(group) + 1) for group in own)):
        key = [place for group, depth in zip(own, depths, strict=True) for place in group[:depth]]
        first, inverse = np.unique(codes[:, key], axis=0, return_index=True, return_inverse=True)[1:] if key else (
            np.zeros(1, np.int64), np.zeros(len(bottoms), np.int64))  # fmt: skip
        if len(key) == len(names):
            continue  # the series themselves
        order = np.argsort(first)
        inverse = np.argsort(order)[inverse.ravel()]
        for row in first[order]:
            label = [cells[row, place] if place in key else ALL for place in range(len(names))]
            named["/".join(label)] = tuple(label)
        sums.append(sparse.csr_array((np.ones(len(bottoms)), (inverse, np.arange(len(bottoms))))))
    known = {*named, *bottoms}
    if other := [item for item in rows if item not in known]:
        raise ValueError(f"rows of sums that the hierarchy lacks: {listed(other)}; leave them out")
    return Hierarchy(tuple(bottoms), tuple(named), sparse.csr_array(sparse.vstack(sums)), named)


def _refuse_two_places(bottoms: Sequence[str], identities: NDArray[Any]) -> None:
    """Raises where series of the same items are in two places."""
    if not identities.shape[1]:
        return
    seen: dict[tuple[str, ...], str] = {}
    for item, cells in zip(bottoms, map(tuple, identities), strict=True):
        if cells in seen:
            raise ValueError(
                f"the series {'/'.join(cells)!r} is in two places of the hierarchy, {seen[cells]!r} and {item!r}: "
                f"correct one of them, or leave out {option('item')}, if these are two series"
            )
        seen[cells] = item


def _matrix(given: Any) -> pd.DataFrame:
    """Return a summing matrix, with names of sums as its index."""
    frame = as_pandas(given)
    if isinstance(frame, pd.DataFrame):
        if frame.shape[1] and not pd.api.types.is_numeric_dtype(frame.iloc[:, 0]):
            frame = frame.set_index(frame.columns[0])
    else:
        path = Path(given if isinstance(given, str | Path) else given[0])
        if not path.exists():
            raise FileNotFoundError(f"there is no summing matrix {path}")
        try:
            frame = (
                pd.read_parquet(path)
                if path.suffix == ".parquet"
                else read_excel(path)[0]
                if is_excel(path)
                else pd.read_csv(path, sep=None, engine="python", dtype={0: str}, keep_default_na=False)
            )
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}: {_EXPECTED} ({error})") from error
        frame = frame.set_index(frame.columns[0])
    if frame.empty:
        raise ValueError(f"{_EXPECTED}; got none")
    frame = frame.set_axis(frame.index.astype(str), axis=0).set_axis(frame.columns.astype(str), axis=1)
    for names, what in ((frame.index, "row"), (frame.columns, "column")):
        if (twice := names[names.duplicated()]).size:
            raise ValueError(f"the summing matrix has two {what}s {twice[0]!r}; expected each name once")
    numbers: Any = frame.apply(pd.to_numeric, errors="coerce")
    if (wrong := ~np.isfinite(numbers.to_numpy(float))).any():
        row, column = np.argwhere(wrong)[0]
        place = f"row {frame.index[row]!r}, column {frame.columns[column]!r}"
        raise ValueError(
            f"the summing matrix has {str(frame.iat[row, column])!r} in {place}; expected numbers, mostly 0 and 1"
        )
    return numbers


def _by_matrix(frame: pd.DataFrame, entries: Mapping[str, Any]) -> Hierarchy:
    """Return the hierarchy of a summing matrix; rows of single series are left out."""
    bottoms = list(frame.columns)
    if unknown := [name for name in bottoms if name not in entries]:
        near = suggestion(unknown[0], entries)
        near = f"; {near}" if near else ""
        raise ValueError(f"the summing matrix has a column {unknown[0]!r}, which is no series of the data{near}")
    weights = frame.to_numpy(float)
    kept = []
    for row, name in enumerate(frame.index):
        if name not in bottoms:
            kept.append(row)
        elif not np.array_equal(weights[row], np.eye(len(bottoms))[bottoms.index(name)]):
            raise ValueError(
                f"the summing matrix has {name!r} as a series and, with other weights, as a sum; rename one"
            )
    names = [str(frame.index[row]) for row in kept]
    if other := [name for name in entries if name not in {*names, *bottoms}]:
        first = f"; its first column, {frame.index.name!r}, names the sums" if frame.index.name in other else ""
        raise ValueError(
            f"series that the summing matrix lacks: {listed(other)}; give each a column, or leave it out{first}"
        )
    if empty := [frame.index[row] for row in kept if not weights[row].any()]:
        raise ValueError(f"the summing matrix has no series in its row {empty[0]!r}")
    if alone := [name for name in bottoms if not frame.loc[names, name].any()]:
        log.info("%d series are in no sum (%s): their forecasts stay as they are", len(alone), listed(alone, 5))
    from scipy import sparse  # takes half a second to import, and few data have sums

    return Hierarchy(tuple(bottoms), tuple(names), sparse.csr_array(weights[kept]))
