"""Series on regular grids: the data entries that the rows of a table make."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.calendar.stamps import BEGINNING, STAMP, find_places
from tsforecast.data.magnitude import compact
from tsforecast.data.past import PAST
from tsforecast.data.tables.cells import Stamps, numbers, timestamps
from tsforecast.data.tables.naming import CELLS, item_cells
from tsforecast.data.tables.regular import grid_steps, infer_frequency
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.table import Table
from tsforecast.wording import option

log = logging.getLogger(__name__)


class End(NamedTuple):
    """Where the last row of a series stands, for messages."""

    table: Table
    row: int

    def __str__(self) -> str:
        return self.table.place(self.row)


@dataclass(frozen=True)
class TableSeries:
    """The series of a table, or of several that belong together."""

    path: Path  # where they come from
    freq: str  # their frequency
    entries: list[tuple[End, dict[str, Any]]]  # data entries, each behind the end of its rows
    categories: dict[str, list[str]]  # names behind the codes of static categories, by column
    columns: Columns  # in the long form
    roles: Columns  # what the columns of the source are


def series_of(
    table: Table, freq: str | None = None, categories: Mapping[str, Sequence[str]] | None = None
) -> TableSeries:
    """The series of a table on their grids."""
    columns, path = table.columns, table.path
    table, stamps, items, bounds = in_order(table)
    freq = freq or infer_frequency(table, stamps, bounds)
    steps = grid_steps(table, stamps, bounds, freq)
    places, other = find_places(stamps, bounds, freq)
    if other is not None:
        log.info(
            "%s: %s stands elsewhere in its step of %r than most time stamps of its series, by which it is forecast",
            *(table.place(other, str(columns.timestamp)), pd.Timestamp(stamps[other]), freq),
        )
    cells = item_cells(table, bounds[:-1])
    targets = np.stack([numbers(table, name) for name in columns.targets])
    covariates = [numbers(table, name, gaps=False) for name in columns.covariates]
    past = np.array([numbers(table, name) for name in columns.past_covariates]).reshape(-1, len(stamps))
    static, categories = static_features(table, bounds, categories)
    # Without its cells, which messages do not need and would keep in memory.
    ends, entries = replace(table, frame=table.frame[[]]), []
    for index, item in enumerate(items):
        rows = slice(int(bounds[index]), int(bounds[index + 1]))
        if columns.wide:  # the table begins with its longest series: the others begin with their first value
            rows = slice(rows.start + int(np.argmax(~np.isnan(targets[0, rows]))), rows.stop)
        entry = {"item_id": item, "start": to_period(stamps[rows.start], freq)}
        entry |= _on_grid(steps[rows] - steps[rows.start], targets[:, rows], [column[rows] for column in covariates])
        if len(past):  # as targets, on the same grid
            beside = _on_grid(steps[rows] - steps[rows.start], past[:, rows], [])["target"]
            entry[PAST] = beside[:, : entry["target"].shape[1]]
        if isinstance(columns.target, str):
            entry["target"] = entry["target"][0]
        entry |= {name: values[index] for name, values in static.items()}
        info = {} if places[index] == BEGINNING else {STAMP: places[index]}
        info |= {} if cells is None else {CELLS: cells[index]}
        entry |= {"info": info} if info else {}
        entries.append((End(ends, rows.stop - 1), entry))
    return TableSeries(path, freq, entries, categories, columns, table.roles)


def in_order(table: Table) -> tuple[Table, Stamps, list[str], NDArray[np.int64]]:
    """The rows of a table series by series, in the order of their time stamps.

    Returns:
        The table, its time stamps, the names of the series, and their bounds: series k has the rows `bounds[k]` to
        `bounds[k + 1]`.
    """
    stamps = timestamps(table)
    if table.item is None:
        codes, items = np.zeros(len(stamps), dtype=np.int64), [table.path.stem]
    else:
        codes, names = pd.factorize(table.frame[table.item])
        items = [str(item) for item in names]
    order = np.lexsort((stamps, codes))
    if (np.diff(order) < 0).any():
        log.info("%s: rows were not in the order of items and time stamps; sorted", table.path)
        table, stamps, codes = replace(table, frame=table.frame.iloc[order]), stamps[order], codes[order]
    return table, stamps, items, np.searchsorted(codes, np.arange(len(items) + 1))


def _on_grid(
    steps: NDArray[np.int64], targets: NDArray[np.float64], covariates: list[NDArray[np.float64]]
) -> dict[str, NDArray[np.floating[Any]]]:
    """Target (target, time) with NaN in gaps, and covariates (covariate, time or longer) that hold their last value."""
    length = int(steps[-1]) + 1
    target = np.full((len(targets), length), np.nan)
    target[:, steps] = targets
    target = compact(target)
    if not covariates:
        return {"target": target}
    source = np.searchsorted(steps, np.arange(length), side="right") - 1
    observed = np.flatnonzero(~np.isnan(target).all(axis=0))
    length = int(observed[-1]) + 1 if len(observed) else 0
    return {
        "target": target[:, :length],
        "feat_dynamic_real": compact(np.stack(covariates))[:, source],
    }


def static_features(
    table: Table, bounds: NDArray[np.int64], categories: Mapping[str, Sequence[str]] | None
) -> tuple[dict[str, NDArray[Any]], dict[str, list[str]]]:
    """Static features by field, each of shape (series, feature), and the names behind the codes."""
    firsts, known, codes = bounds[:-1], {}, []
    for name in table.columns.static_categories:
        column = table.frame[name]
        empty = (column.isna() | (column.astype(str) == "")).to_numpy()
        if empty.any():
            raise ValueError(
                f"{table.place(int(np.argmax(empty)), name)}: the category is empty; name it, such as none"
            )
        values = column.astype(str).to_numpy(dtype=object)
        _refuse_change(table, name, values, bounds)
        values = values[firsts]
        known[name] = sorted(set(values)) if categories is None else list(categories.get(name, ()))
        code = pd.Index(known[name]).get_indexer(values)
        if (code < 0).any():
            index = int(np.argmax(code < 0))
            raise ValueError(
                f"{table.place(int(firsts[index]), name)}: the category {values[index]!r} was not seen in training, "
                f"only {', '.join(map(repr, known[name]))}; take one of these, or train with data that have it"
            )
        codes.append(code)
    reals = []
    for name in table.columns.static_reals:
        values = numbers(table, name, gaps=False)
        _refuse_change(table, name, values, bounds)
        reals.append(values[firsts])
    static: dict[str, NDArray[Any]] = {}
    if codes:
        static["feat_static_cat"] = np.stack(codes, axis=1).astype(np.int64)
    if reals:
        static["feat_static_real"] = compact(np.stack(reals, axis=1))
    return static, known


def _refuse_change(table: Table, name: str, values: NDArray[Any], bounds: NDArray[np.int64]) -> None:
    """Raises where a static column is not constant within a series."""
    changed = values != np.repeat(values[bounds[:-1]], np.diff(bounds))
    if changed.any():
        row = int(np.argmax(changed))
        raise ValueError(
            f"{table.place(row, name)}: {values[row]!r} differs from the first value of its series; correct it, or "
            f"name the column under {option('covariates')} if it changes with time"
        )
