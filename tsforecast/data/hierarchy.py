"""Hierarchies and groups of series: sums of them, by columns that nest and cross or by a summing matrix."""

import csv
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.calendar.stamps import stamp_of
from tsforecast.data.magnitude import compact
from tsforecast.data.tables.naming import CELLS
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.wording import counted, listed, option, suggestion

log = logging.getLogger(__name__)

ALL = "(all)"  # the cell of a sum in a column over which it sums
_FILLED = 0.1  # share of a sum that may come from gaps of its series
_NEAR = 1e-4  # relative difference of a sum in the data and the sum of its series that is rounding

_EXPECTED = "expected a summing matrix: its first column names the sums, and each series has a column"

Given = str | Sequence[str] | pd.DataFrame
Node = TypeVar("Node")


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Sums of series.

    Attributes:
        bottoms: Names of the series at the bottom.
        aggregates: Names of the sums.
        sums: Weights of the series in each sum, mostly 1.
        cells: Cells that name each sum in the columns of the data, by its name; empty for a summing matrix.
    """

    bottoms: tuple[str, ...]
    aggregates: tuple[str, ...]
    sums: Any  # a sparse array
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse sums of single series alone.

        Raises:
            ValueError: If there is none of two series.
        """
        if not (np.diff(self.sums.indptr) > 1).any():
            raise ValueError(
                "expected a hierarchy in which one sum at least has two series, got "
                f"{len(self.bottoms)} series below {counted(len(self.aggregates), 'sum')}"
            )

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sums that differ from all before and from every series, and the node of each sum among these.

        Nodes are these sums, then the series.
        """
        known: dict[bytes, int] = {}
        kept, nodes = [], []
        for row in range(len(self.aggregates)):
            own = slice(self.sums.indptr[row], self.sums.indptr[row + 1])
            members, weights = self.sums.indices[own], self.sums.data[own]
            if len(members) == 1 and weights[0] == 1:
                nodes.append(-1 - int(members[0]))
                continue
            order = np.argsort(members)
            key = members[order].tobytes() + weights[order].tobytes()
            if key not in known:
                known[key] = len(kept)
                kept.append(row)
            nodes.append(known[key])
        places = np.array(nodes, np.int64)
        return np.array(kept, np.int64), np.where(places < 0, len(kept) - 1 - places, places)

    def expanded(self, nodes: Sequence[Node]) -> list[Node]:
        """Return a list by sums and series from a list by nodes."""
        kept, places = self.places
        return [*(nodes[place] for place in places), *nodes[len(kept) :]]

    @property
    def distinct(self) -> Any:
        """Return the weights of the sums that differ."""
        return self.sums[self.places[0]].tocsr()


def with_levels(columns: Columns, given: Given | None) -> Columns:
    """Return the columns of a table with the levels of a hierarchy among those that name its series.

    Args:
        columns: Of the table.
        given: As for `find_hierarchy`; a summing matrix names no columns, nor does None.

    Raises:
        ValueError: If a level has no name, or a column is given twice.
    """
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
    made = [*_sums(tree, entries, task)]
    differ = f", of which {len(made)} differ" if len(made) < len(tree.aggregates) else ""
    log.info("hierarchy: %d series below %s%s", len(tree.bottoms), counted(len(tree.aggregates), "sum"), differ)
    return tree, replace(task, entries=[*made, *(entries[name] for name in tree.bottoms)])


def _groups(given: Given) -> list[list[str]] | None:
    """Return the columns of every group; None for a summing matrix."""
    if isinstance(given, pd.DataFrame):
        return None
    parts = [given] if isinstance(given, str) else [*map(str, given)] if isinstance(given, Sequence) else [str(given)]
    if len(parts) == 1 and parts[0].lower().endswith((".csv", ".csv.gz", ".parquet")):
        return None
    groups = [[name.strip() for name in part.split("/")] for part in parts]
    names = [name for group in groups for name in group]
    if not names or "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"expected {option('hierarchy')} such as region/shop, each column once, or a summing matrix in a "
            f".csv file, got {' '.join(parts)!r}"
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
    if isinstance(given, pd.DataFrame):
        frame = given
        if frame.shape[1] and not pd.api.types.is_numeric_dtype(frame.iloc[:, 0]):
            frame = frame.set_index(frame.columns[0])
    else:
        path = Path(given if isinstance(given, str) else given[0])
        if not path.exists():
            raise FileNotFoundError(f"there is no summing matrix {path}")
        try:
            frame = (
                pd.read_parquet(path)
                if path.suffix == ".parquet"
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


def _sums(tree: Hierarchy, entries: Mapping[str, dict[str, Any]], task: ForecastTask) -> Iterator[dict[str, Any]]:
    """Yield the entries of the sums that differ."""
    bottoms = [entries[name] for name in tree.bottoms]
    starts = np.array([entry["start"].ordinal for entry in bottoms]) // bottoms[0]["start"].freq.n
    first = bottoms[int(np.argmin(starts))]
    before = starts - starts.min()
    values = _aligned(bottoms, before, "target")[0]
    totals = _totals(tree, values, [str(entry["item_id"]) for entry in bottoms])
    covariates = None
    if all("feat_dynamic_real" in entry for entry in bottoms):
        log.info("covariates of a sum are the means of those of its series")
        covariates = _aligned(bottoms, before, "feat_dynamic_real")
    for row, own in zip(tree.places[0], totals[tree.places[0]], strict=True):
        name = tree.aggregates[row]
        if name in entries:
            own = _agreed(name, own, entries[name], first)
        info = {key: value for key, value in (first.get("info") or {}).items() if key != CELLS}
        info |= {CELLS: tree.cells[name]} if len(tree.cells.get(name, ())) > 1 else {}
        entry = {"item_id": name, "start": first["start"], "target": compact(own[None])[0]}
        if covariates is not None:
            share = abs(tree.sums[[row]])
            seen = share @ (~np.isnan(covariates[0])).astype(float)
            means = [(share @ np.nan_to_num(one) / np.maximum(seen, 1e-300))[0] for one in covariates]
            entry["feat_dynamic_real"] = compact(np.stack(means))
        yield entry | ({"info": info} if info else {})


def _aligned(bottoms: Sequence[dict[str, Any]], before: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    """Return the values of all series from the first start on, (row, series, time), NaN before the start of each."""
    rows = [np.atleast_2d(np.asarray(entry[name], np.float64)) for entry in bottoms]
    length = max(skip + row.shape[1] for skip, row in zip(before, rows, strict=True))
    values = np.full((len(rows[0]), len(rows), length), np.nan)
    for place, (skip, row) in enumerate(zip(before, rows, strict=True)):
        values[:, place, skip : skip + row.shape[1]] = row
    return values


def _totals(tree: Hierarchy, values: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float64]:
    """Return the sums (aggregate, time); NaN before their series begin, and where gaps are too large a part.

    A series counts as 0 before its first value. Gaps behind it are filled along a line between their neighbours.
    """
    known, steps = ~np.isnan(values), np.arange(values.shape[1])
    begun = np.maximum.accumulate(known, axis=1)
    filled = np.zeros_like(values)
    for row, own in enumerate(known):
        if own.any():
            filled[row] = np.where(begun[row], np.interp(steps, steps[own], values[row, own]), 0.0)
    gaps = begun & ~known
    size = abs(tree.sums)
    total, part, whole = tree.sums @ filled, size @ (gaps * np.abs(filled)), size @ np.abs(filled)
    is_begun = size @ begun.astype(float) > 0
    is_open = (size @ gaps.astype(float) > 0) & ((part > _FILLED * whole) | (whole == 0))
    late = [name for name, row in zip(names, begun, strict=True) if row.any() and not row[0]]
    if late:
        log.info("%d series begin after others (%s): sums count them as 0 before", len(late), listed(late, 5))
    if gaps.any():
        log.info(
            "series have gaps: of %d steps of sums %d hold values along a line between neighbours, up to %d %% of the "
            "sum; %d have more of these and are missing",
            *(is_begun.sum(), ((part > 0) & ~is_open).sum(), 100 * _FILLED, (is_begun & is_open).sum()),
        )
    return np.where(is_begun & ~is_open, total, np.nan)


def _agreed(name: str, total: NDArray[np.float64], entry: dict[str, Any], first: dict[str, Any]) -> NDArray[np.float64]:
    """Return a sum with the values that the data give it.

    Raises:
        ValueError: If they differ from the sum of its series.
    """
    skip = (entry["start"].ordinal - first["start"].ordinal) // entry["start"].freq.n
    target = np.asarray(entry["target"], np.float64)
    given = np.full(len(total), np.nan)
    source = target[max(-skip, 0) : len(total) - skip]
    given[max(skip, 0) : max(skip, 0) + len(source)] = source
    both = ~np.isnan(given) & ~np.isnan(total)
    size = np.abs(total[both]).mean() if both.any() else 0.0
    far = both & (np.abs(given - total) > _NEAR * np.maximum(np.abs(np.nan_to_num(total)), size))
    if far.any():
        step = int(np.argmax(far))
        raise ValueError(
            f"{name!r} is {given[step]:g} at {stamp_of(first['start'] + step, first.get('info'))}, but the sum of its "
            f"series is {total[step]:g}, and differs at {counted(int(far.sum()), 'step')}: correct the data, or leave "
            "out the rows of sums, which are then made"
        )
    return np.where(np.isnan(total), given, total)
