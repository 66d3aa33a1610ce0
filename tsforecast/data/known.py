"""Known future targets and covariates for conditional forecasts, from a user's table."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.magnitude import compact
from tsforecast.data.tables.cells import Stamps, numbers, timestamps
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
    covariates: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Adds known future target values to entries, on which forecasts are conditioned, and ranges of covariates.

    Args:
        entries: GluonTS data entries; the forecast begins with the step after each target.
        source: Table in long format: item, time stamp, target. Steps without a row and rows with an empty target are
            free; series without a row are free altogether.
        prediction_length: Steps of the forecast.
        columns: What the columns are; found by their names where left open. Without an item column the rows belong to
            the only entry. Covariates are those of the entries, in their order, which reach over the forecast (see
            `with_room`): a cell that is filled takes the place of what the entry has for the step. Where some are named
            here, columns of targets and covariates may be left out.
        covariates: Names of the entries' covariates; NAME_low and NAME_high are columns of a range.

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
    pairs = _pairs(source, covariates) if covariates else {}
    roles = columns or Columns()
    there, ends = _names(source), [name for pair in pairs.values() for name in pair]
    given, own = (
        [there[one.lower()] for one in names if one.lower() in there] for names in (roles.targets, roles.covariates)
    )
    read = replace(roles, covariates=[*own, *ends])
    if some := bool(given or own) and bool(roles.targets) and not roles.wide:  # a table needs a column of numbers
        read = replace(roles, target=given or own[:1], covariates=[*own[not given :], *ends])
    table = read_table(source, read)
    stamps, free = timestamps(table), np.full(len(table.frame), np.nan)

    def column(name: str) -> NDArray[np.float64]:
        return numbers(table, there[name.lower()]) if name.lower() in there else free

    values = np.stack(
        [column(name) if some else numbers(table, name) for name in (roles if some else table.columns).targets]
    )
    filled = [column(name) for name in roles.covariates]
    ranges = np.full((2, len(covariates), len(table.frame)), np.nan)
    for name, pair in pairs.items():
        low, high = ranges[:, list(covariates).index(name)] = [numbers(table, one) for one in pair]
        if (wrong := (low > high) | (np.isnan(low) != np.isnan(high))).any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{table.place(row, pair[0])}: expected it at most {pair[1]}, got {low[row]:g} and {high[row]:g}"
            )
    cells = np.array([*values, *filled, *ranges.reshape(-1, len(table.frame))])
    result = []
    for entry, rows in zip(entries, _rows_of(table, entries, cells), strict=True):
        known = np.full((*entry["target"].shape[:-1], prediction_length), np.nan)
        future = np.full((len(filled), prediction_length), np.nan)
        between = np.full((*ranges.shape[:2], prediction_length), np.nan)
        if len(rows) > 0:
            if (width := 1 if known.ndim == 1 else len(known)) != len(values):
                raise ValueError(f"{table.path}: expected {width} target columns as in the data, got {len(values)}")
            steps = _steps_ahead(table, rows, stamps, entry, prediction_length)
            known[..., steps] = values[0, rows] if known.ndim == 1 else values[:, rows]
            if filled:
                future[:, steps] = np.stack(filled)[:, rows]
            between[..., steps] = ranges[..., rows]
        more = _with_covariates(entry, future, table.path, [*roles.covariates]) if filled else {}
        result.append({**entry, **more, "known_future": compact(known)})
        if not np.isnan(between).all():
            result[-1][RANGE] = between
    return result


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


def _pairs(source: Path | pd.DataFrame, covariates: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the columns of low and high values of the covariates that have them in a file."""
    there, pairs = {*_names(source).values()}, {}
    for name in covariates:
        pair = (f"{name}_low", f"{name}_high")
        own = [one for one in pair if one in there]
        if len(own) == 1:
            where = source if isinstance(source, Path) else "the table"
            raise ValueError(f"{where}: expected both {' and '.join(pair)} of a range, got {own[0]} alone")
        pairs |= {name: pair} if own else {}
    return pairs


def _names(source: Path | pd.DataFrame) -> dict[str, str]:
    """Return the names of columns by themselves in lower case."""
    names = map(str, source.columns) if isinstance(source, pd.DataFrame) else names_in(source)
    return {name.lower(): name for name in names}


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
