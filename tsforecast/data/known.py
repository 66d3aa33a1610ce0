"""Known future targets and covariates for conditional forecasts, from a user's table."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.magnitude import compact
from tsforecast.data.tables.cells import Stamps, numbers, timestamps
from tsforecast.data.tables.columns import category_of
from tsforecast.data.tables.formats import names_in, read_table
from tsforecast.data.tables.regular import step_numbers
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.table import Table
from tsforecast.data.task import ForecastTask

RANGE = "covariate_range"


def attach_known(
    entries: Iterable[dict[str, Any]],
    source: str | Path | pd.DataFrame,
    prediction_length: int,
    columns: Columns | None = None,
) -> list[dict[str, Any]]:
    """Adds known future values of targets and covariates to entries, on which forecasts are conditioned.

    Args:
        entries: GluonTS data entries; the forecast begins with the step after each target. Their covariates reach over
            the forecast (see `with_room`).
        source: Table in long format: item, time stamp, target, covariates. Steps without a row and empty cells are as
            they were, targets free. Where targets or covariates are named, columns of them may be left out.
        prediction_length: Steps of the forecast.
        columns: What the columns are; found by their names where left open. Without an item column the rows belong to
            the only entry. Covariates are those of the entries, in their order: a cell takes the place of what the
            entry has for the step, and NAME_low and NAME_high are columns of a range. Other numbers are not read.

    Returns:
        New entries, each with `known_future`: float32 where that can hold it, NaN where free, of shape
        (prediction_length,) or, for a multivariate target, (target, prediction_length). With ranges also
        `covariate_range`, (2, covariate, prediction_length), NaN where there is none.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a row names an unknown series or a time outside its forecast, occurs twice, or holds no number;
            or if a covariate is not known up to the end of a forecast.
    """
    entries = list(entries)
    source = source if isinstance(source, pd.DataFrame) else Path(source)
    unused = {"past_covariates": (), "static_categories": (), "static_reals": (), "holidays": None}
    roles = replace(columns or Columns(), **unused)
    table = read_table(source, _there(source, roles))
    free, names = np.full(len(table.frame), np.nan), [*map(str, table.frame.columns)]

    def column(name: str) -> NDArray[np.float64]:
        return free if (there := _written(name, names)) is None else numbers(table, there)

    named = roles if roles.targets and not roles.wide else table.columns
    values = np.stack([column(name) for name in named.targets])
    count, size = len(roles.covariates), len(table.frame)
    filled = np.array([column(name) for name in roles.covariates]).reshape(count, size)
    low, high = ([column(ends_of(name)[k]) for name in roles.covariates] for k in range(2))
    ranges = np.array([low, high]).reshape(2, count, size)
    _check_ranges(table, ranges, roles.covariates)
    cells = np.concatenate([values, filled, *ranges])
    stamps, result = timestamps(table), []
    for entry, rows in zip(entries, _rows_of(table, entries, cells), strict=True):
        known = np.full((*entry["target"].shape[:-1], prediction_length), np.nan)
        future = np.full((count, prediction_length), np.nan)
        between = np.full((2, count, prediction_length), np.nan)
        if len(rows) > 0:
            if (width := 1 if known.ndim == 1 else len(known)) != len(values):
                raise ValueError(f"{table.path}: expected {width} target columns as in the data, got {len(values)}")
            steps = _steps_ahead(table, rows, stamps, entry, prediction_length)
            known[..., steps] = values[0, rows] if known.ndim == 1 else values[:, rows]
            future[:, steps], between[..., steps] = filled[:, rows], ranges[..., rows]
        has_covariates = count > 0 and "feat_dynamic_real" in entry
        more = _with_covariates(entry, future, table.path, roles.covariates) if has_covariates else {}
        result.append({**entry, **more, "known_future": compact(known)})
        if not np.isnan(between).all():
            result[-1][RANGE] = between
    return result


def brings_covariates(source: Path | pd.DataFrame, columns: Columns) -> bool:
    """Return whether a table has one of the covariates."""
    names = _names(source)
    return any(category_of(name, names) or _written(name, names) for name in columns.covariates)


def _there(source: Path | pd.DataFrame, roles: Columns) -> Columns:
    """Return the roles of columns without those that a table leaves out."""
    names = _names(source)
    ends = [one for name in roles.covariates for one in ends_of(name)]
    made = [name for name in roles.covariates if category_of(name, names)]
    covariates, targets = (
        [there for name in wanted if (there := _written(name, [*made, *names]))]
        for wanted in ([*roles.covariates, *ends], roles.targets)
    )
    if not roles.targets or roles.wide:
        return replace(roles, covariates=covariates)
    targets = targets or covariates[:1] or roles.targets  # a table needs a column of numbers
    return replace(roles, target=targets, covariates=[name for name in covariates if name not in targets])


def _names(source: Path | pd.DataFrame) -> list[str]:
    return [*map(str, source.columns)] if isinstance(source, pd.DataFrame) else names_in(source)


def _written(name: str, names: Sequence[str]) -> str | None:
    """Return a name as it is written among others: in its own letter case if it can be; None if it is not there."""
    if name in names:
        return name
    return next((one for one in names if one.lower() == name.lower()), None)


def ends_of(name: str) -> tuple[str, str]:
    """Return the columns of low and high values of a covariate."""
    return f"{name}_low", f"{name}_high"


def _check_ranges(table: Table, ranges: Float[np.ndarray, "2 covariate row"], covariates: Sequence[str]) -> None:
    """Refuse ranges with one end, and those the wrong way round."""
    for name, low, high in zip(covariates, *ranges, strict=True):
        first, second = ends_of(name)
        given = [one for one in (first, second) if one.lower() in {str(there).lower() for there in table.frame.columns}]
        if len(given) == 1:
            raise ValueError(f"{table.path}: expected both {first} and {second} of a range, got {given[0]} alone")
        if (wrong := (low > high) | (np.isnan(low) != np.isnan(high))).any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{table.place(row, first)}: expected it at most {second}, got {low[row]:g} and {high[row]:g}"
            )


def _rows_of(table: Table, entries: list[dict[str, Any]], cells: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Return the rows of each entry with a cell that is given, in the table's order."""
    owners, rows = _owners(table, entries), np.flatnonzero(~np.isnan(cells).all(axis=0))
    rows = rows[np.argsort(owners[rows], kind="stable")]
    return np.split(rows, np.searchsorted(owners[rows], np.arange(1, len(entries))))


def with_room(task: ForecastTask) -> ForecastTask:
    """Return a task with covariates up to the end of forecasts that all begin at the last end, NaN where unknown."""
    entries = []
    for entry, gap in zip(task.entries, task.gaps_at_end, strict=True):
        if "feat_dynamic_real" in entry:
            covariates = np.asarray(entry["feat_dynamic_real"])
            steps = entry["target"].shape[-1] + gap + task.prediction_length
            room = ((0, 0), (0, max(steps - covariates.shape[1], 0)))
            entry = {**entry, "feat_dynamic_real": np.pad(covariates, room, constant_values=np.nan)}
        entries.append(entry)
    return replace(task, entries=entries)


def _with_covariates(
    entry: dict[str, Any], future: NDArray[np.float64], path: Path, names: Sequence[str]
) -> dict[str, Any]:
    """The covariates of an entry with those of its future in their places."""
    length, (count, horizon) = entry["target"].shape[-1], future.shape
    found = np.array(entry["feat_dynamic_real"], np.float64)
    ahead = found[:count, length : length + horizon]
    found[:count, length : length + horizon] = np.where(np.isnan(future), ahead, future)
    if (missing := np.isnan(found[:, : length + horizon])).any():
        covariate, step = (int(place[0]) for place in np.nonzero(missing))
        with expected_alias_warnings():
            when = entry["start"] + step
        name = repr(names[covariate]) if covariate < count else "of holidays"
        what = "add it here" if step >= length else "add it to the data, since this is before the forecast"
        raise ValueError(
            f"{path}: the covariate {name} of series {entry.get('item_id')!r} is not known for {when}; {what}"
        )
    return {"feat_dynamic_real": compact(found)}


def _owners(table: Table, entries: list[dict[str, Any]]) -> NDArray[np.int64]:
    """Index of the entry of each row."""
    if table.item is None:
        if len(entries) != 1:
            raise ValueError(f"{table.path}: there is no column of items, but {len(entries)} series; add item_id")
        return np.zeros(len(table.frame), dtype=np.int64)
    items = table.frame[table.item]
    places = {str(entry.get("item_id", index)): index for index, entry in enumerate(entries)}
    owners = np.array([places.get(item, -1) for item in items])
    if (owners < 0).any():
        row = int(np.argmax(owners < 0))
        raise ValueError(f"{table.place(row, table.item)}: there is no series {items.iloc[row]!r} in the data")
    return owners


def _steps_ahead(
    table: Table, rows: NDArray[np.int64], stamps: Stamps, entry: dict[str, Any], prediction_length: int
) -> NDArray[np.int64]:
    """Places of the rows of one entry in its forecast, 0 for the first step."""
    start: pd.Period = entry["start"]
    part = replace(table, frame=table.frame.iloc[rows])
    with expected_alias_warnings():
        begin = np.array([start.start_time.to_datetime64()], "datetime64[ns]")
    ordinal, size = step_numbers(part, stamps[rows], start.freqstr)
    steps = (ordinal - step_numbers(part, begin, start.freqstr)[0]) // size - entry["target"].shape[-1]
    outside = (steps < 0) | (steps >= prediction_length)
    column = str(table.columns.timestamp)
    if outside.any():
        row = int(rows[np.argmax(outside)])
        with expected_alias_warnings():
            first = start + entry["target"].shape[-1]
            last = first + (prediction_length - 1)
        raise ValueError(
            f"{table.place(row, column)}: {pd.Timestamp(stamps[row])} is outside the forecast of series "
            f"{entry.get('item_id')!r}, which goes from {first} to {last}; delete the row or correct its time stamp"
        )
    again = np.setdiff1d(np.arange(len(steps)), np.unique(steps, return_index=True)[1])
    if len(again) > 0:
        raise ValueError(f"{table.place(int(rows[again[0]]), column)}: a second row for the same step; keep one")
    return steps
