"""Results under the names of the user's own columns, so that they can be joined with the data."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.table import Table

log = logging.getLogger(__name__)

CELLS = "cells"  # in `info` of entries and forecasts: the cells that name the series, where these are not its item
PERIOD = "period"  # in `info` of forecasts: what each value is of, such as a month; and the column of it
_NAMES = "names"  # in `attrs` of a table: its columns of items and time stamps
Cells = Mapping[str, tuple[Any, ...]]


def item_cells(table: Table, firsts: NDArray[np.int64]) -> list[tuple[Any, ...]] | None:
    """Return the cells that name each series, by its first row; None where items are their cells."""
    if table.cells is None:
        return None
    items = table.frame[table.item].iloc[firsts]
    return list(table.cells.loc[items].itertuples(index=False, name=None))


def cells_of(entries: Iterable[Mapping[str, Any]]) -> Cells:
    """Return the cells that name series, by item, as far as entries have them."""
    infos = ((str(entry.get("item_id")), entry.get("info") or {}) for entry in entries)
    return {item: info[CELLS] for item, info in infos if CELLS in info}


def as_read(frame: pd.DataFrame, columns: Columns | None, cells: Cells | None = None) -> pd.DataFrame:
    """Return a table with its columns `item_id` and `timestamp` under their names in the data.

    Args:
        frame: A row for each series and time stamp, or for each series.
        columns: Of the data. Where they have no column of items or several of time stamps, `item_id` or `timestamp` is
            left.
        cells: By item, see `cells_of`. Series that several columns name together have these columns again.
    """
    columns = columns or Columns()
    names = {"item_id": columns.items or ["item_id"], "timestamp": columns.stamps}
    if len(names["timestamp"]) != 1 or names["timestamp"] == ["index"]:  # of a frame without a name for it
        names["timestamp"] = ["timestamp"]
    others = {*frame.columns} - names.keys()
    for own, given in names.items():
        if own in frame and (taken := [name for name in given if name in others]):
            log.info("the column %r of the result is called %r: it has another of the name %r", given, own, taken[0])
            names[own] = [own]
    found: dict[str, Any] = {}
    for name in frame.columns:
        if name == "item_id" and columns.items and (cells or len(names[name]) > 1):
            own = _item_columns(frame[name], names[name], cells or {})
            names[name], found = [*own], found | own
        else:
            found[names[name][0] if name in names else str(name)] = frame[name]
    table = pd.DataFrame(found, index=frame.index)
    table.attrs[_NAMES] = {name: given for name, given in names.items() if name in frame}
    return table


def standard(frame: Any) -> pd.DataFrame:
    """Return a table that `as_read` made with `item_id` and `timestamp` again; any other as it is.

    Raises:
        ValueError: If it is none of pandas: only these keep what their columns are.
    """
    if not isinstance(frame, pd.DataFrame):
        kind = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
        raise ValueError(
            f"expected a frame of pandas, which keeps what its columns are, got a {kind}: ask for it by data of pandas"
        )
    names = frame.attrs.get(_NAMES, {})
    found = frame.copy(deep=False)
    for own, given in names.items():
        if given == [own]:
            continue
        place = [*found.columns].index(given[0])
        cells: Any = found[given[0]] if len(given) == 1 else found[given].astype(str).agg("/".join, axis=1)
        found = found.drop(columns=given)
        found.insert(place, own, cells.astype(str) if own == "item_id" else cells)
    found.attrs.pop(_NAMES, None)
    return found


def names_of(frame: Any) -> pd.Series:
    """Return the name of the series of each row of a standard table, with its target where there are several."""
    names = frame["item_id"].astype(str)
    return names + ", " + frame["target"].astype(str) if "target" in frame else names


def _item_columns(items: Any, names: list[str], cells: Cells) -> dict[str, Any]:
    """Return the columns that name series; the items in one column where their cells are not known."""
    codes, distinct = pd.factorize(items)
    if not all(len(cells.get(str(item), ())) == len(names) for item in distinct):
        return {names[0] if len(names) == 1 else "item_id": items}
    rows = [cells[str(item)] for item in distinct]
    return {name: pd.Series([row[k] for row in rows]).to_numpy()[codes] for k, name in enumerate(names)}
