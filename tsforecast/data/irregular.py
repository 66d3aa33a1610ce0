"""Series with clocks of their own: time stamps to the nanosecond, any gaps, several observations of one moment.

Data entries are those of `tsforecast.data.timed_entries`.
"""

import logging
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.tables.cells import numbers, timestamps
from tsforecast.data.tables.formats import read_table
from tsforecast.data.tables.naming import CELLS, item_cells
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.series import in_order, static_features
from tsforecast.data.tables.table import Table
from tsforecast.data.task import ForecastTask
from tsforecast.data.timed_entries import check_timed, median_gap
from tsforecast.io.binary import check_packed, is_parquet, open_unpacked, read_parquet
from tsforecast.io.reading import MOST_RECORD, expect_file, parse_json
from tsforecast.progress import warnings_only
from tsforecast.wording import listed, option

log = logging.getLogger(__name__)

_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
DEFAULT_WINDOWS = 5
_TEST_SHARE = 0.2  # of the time of the median series, which the test windows take together by default


def read_irregular(
    source: str | Path | pd.DataFrame | Iterable[Mapping[str, Any]],
    horizon: str | int | None = None,
    windows: int | None = None,
    *,
    columns: Columns | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    name: str | None = None,
) -> ForecastTask:
    """Reads series with time stamps on no grid.

    Rows may come in any order; equal time stamps are several observations of one moment. Time stamps with an offset
    become UTC. Rows without a value are left out; with covariates they say what is known at further times.

    Args:
        source: A CSV or Parquet file, or a DataFrame, in the forms of `tsforecast.data.read_task`; JSON lines with
            `item_id`, `times` (nanoseconds, or text) and `target`; or data entries.
        horizon: Time of a forecast, such as "6h", or nanoseconds; None for a share of the time of the median series, so
            that all test windows are a fifth of it.
        windows: Number of test windows; None for five.
        columns: What the columns are; found by their names where left open.
        categories: Values of the static categories that a model was trained with; None for those of the table.
        name: Of the data; None for that of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a cell, a time stamp, a static column or an option is not as expected.
    """
    columns = columns or Columns()
    path = source if isinstance(source, str | Path) else None
    if path is not None and str(path).endswith(_LINES):
        found = check_timed(_lines(Path(path)))
        task = ForecastTask(Path(path).name.split(".")[0], "ns", 1, 0, found)
    elif path is not None or isinstance(source, pd.DataFrame):
        task = _of_table(read_table(source if path is None else Path(path), columns), categories)  # pyright: ignore
    else:
        task = ForecastTask("data", "ns", 1, 0, check_timed(source))  # pyright: ignore[reportArgumentType]
    task = replace(task, gap=median_gap(task.entries), name=name or task.name)
    return _with_windows(task, horizon, windows)


def _with_windows(task: ForecastTask, horizon: str | int | None, windows: int | None) -> ForecastTask:
    """The task with a horizon and test windows, by the rule of `read_irregular` where they are None."""
    windows = DEFAULT_WINDOWS if windows is None else windows
    if windows < 0:
        raise ValueError(f"expected {option('windows')} of at least 0, got {windows}")
    spans = np.array([int(entry["times"][-1] - entry["times"][0]) for entry in task.entries])
    if horizon is None:
        if not spans.any():
            names = listed([str(entry["item_id"]) for entry in task.entries], 5)
            raise ValueError(f"{task.name}: expected a series with observations at two times, got {names}")
        length = max(int(_TEST_SHARE * float(np.median(spans)) / max(windows, 1)), task.gap)
        log.info("%s: horizon %s by default", task.name, in_words(length))
    else:
        length = horizon if isinstance(horizon, int) else nanoseconds(horizon, "horizon")
    task = replace(task, prediction_length=length, windows=windows)
    if not windows:
        return task
    have = [entry["times"][0] <= task.origins(entry)[0] for entry in task.entries]
    kept = list(compress(task.entries, have))
    short = [str(entry["item_id"]) for entry, has in zip(task.entries, have, strict=True) if not has]
    what = f"no past before {windows} test windows of {in_words(length)}"
    if len(short) > len(kept):
        raise ValueError(
            f"{task.name}: {len(short)} of {len(task.entries)} series have {what} ({listed(short, 5)}): give a shorter "
            f"{option('horizon')} or fewer {option('windows')}, or delete these series"
        )
    if short:
        log.warning("%s: %d series with %s are left out: %s", task.name, len(short), what, listed(short, 10))
    return replace(task, entries=kept)


def nanoseconds(text: str, name: str) -> int:
    """Return a time such as "6h", "90min" or "1D" in nanoseconds."""
    try:
        found = pd.Timedelta(text) if re.search(r"[^\W\d_]|:", text) else pd.NaT  # pandas takes "6" for nanoseconds
    except ValueError:
        found = pd.NaT
    if not isinstance(found, pd.Timedelta) or found.value <= 0:
        raise ValueError(f"expected {option(name)} to be a time such as 6h, 90min or 1D, got {text!r}")
    return int(found.as_unit("ns").value)


def in_words(time: int) -> str:
    """Return a time in nanoseconds as people write it: "6 h", "90 min", "4.967 D"."""
    units = {name: seconds * 10**9 for name, seconds in (("D", 86_400), ("h", 3600), ("min", 60), ("s", 1))}
    for name, size in units.items():
        if time % size == 0 and time < 1000 * size:
            return f"{time // size} {name}"
    for name, size in units.items():
        if time >= size:
            return f"{time / size:.4g} {name}"
    return str(pd.Timedelta(time, "ns"))


def read_times(
    source: str | Path | pd.DataFrame, columns: Columns
) -> tuple[dict[str | None, NDArray[np.int64]], dict[str | None, NDArray[np.float64]]]:
    """Reads the times that forecasts are wanted at, ascending: by item, or under None those of all series.

    Args:
        source: CSV or Parquet file, or DataFrame, with time stamps, covariates where the data have some, and perhaps
            items; other columns are not read.
        columns: Of the data.

    Returns:
        The times, and covariates (covariate, time) at them.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no time stamps, or lacks covariates.
    """
    roles = replace(columns, target=None, static_categories=(), static_reals=(), decimal=None)
    frame = _frame(source)
    names = [str(name) for name in frame.columns]
    items = [name for name in columns.items or ["item_id"] if name in names]
    stamps = columns.stamps or [next((n for n in names if n.lower() in ("timestamp", "date", "time", "ds")), names[0])]
    if lacking := [name for name in columns.covariates if name not in names]:
        raise ValueError(f"the table of {option('at')} needs the covariates of the data: there is no {listed(lacking)}")
    found = [*items, *[name for name in stamps if name in names], *columns.covariates]
    kept = frame[found].assign(**{"(asked)": 0.0})
    with warnings_only("tsforecast.data.tables.columns"):  # the target is none of the user's
        table = read_table(kept, replace(roles, item=items or None, timestamp=stamps, target="(asked)", wide=False))
    if not isinstance(source, pd.DataFrame):
        table = replace(table, path=Path(source), first_line=1 if is_parquet(Path(source)) else 2)
    times = timestamps(table).astype(np.int64)
    rows: dict[str | None, NDArray[np.int64]] = {None: np.argsort(times, kind="stable")}
    if table.item is not None:
        owners = table.frame[table.item].astype(str).to_numpy()[rows[None]]
        rows = {str(item): group.to_numpy() for item, group in pd.Series(rows[None]).groupby(owners, sort=False)}
    known = [numbers(table, name, gaps=False) for name in columns.covariates]
    covariates = {item: np.stack([column[own] for column in known]) for item, own in rows.items()} if known else {}
    return {item: times[own] for item, own in rows.items()}, covariates


def _frame(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame):
        return source
    path = expect_file(source)
    try:
        check_packed(path)
        return read_parquet(path) if is_parquet(path) else pd.read_csv(path, dtype=str)
    except (pd.errors.ParserError, UnicodeError, OSError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path}: not readable ({str(error).strip()}); expected CSV or Parquet") from error


def _of_table(table: Table, categories: Mapping[str, Sequence[str]] | None) -> ForecastTask:
    """The series of a table in long form, in the order of their time stamps."""
    columns, path = table.columns, table.path
    for role in ("static_reals", "holidays"):
        if getattr(columns, role):
            raise ValueError(
                f"{path}: {option(role)} does not go with {option('irregular', True)}: models in continuous time take "
                "covariates and static categories"
            )
    table, stamps, items, bounds = in_order(table)
    values = np.stack([numbers(table, name) for name in columns.targets])
    covariates = [numbers(table, name, gaps=False) for name in columns.covariates]
    static, found = static_features(table, bounds, categories)
    cells = item_cells(table, bounds[:-1])
    entries, times, empty = [], stamps.astype(np.int64), []
    for index, item in enumerate(items):
        rows = np.arange(bounds[index], bounds[index + 1])
        missing = np.isnan(values[:, rows]).all(axis=0)
        asked, rows = rows[missing], rows[~missing]
        if not len(rows):
            empty.append(item)
            continue
        target = values[:, rows]
        entry = {"item_id": item, "times": times[rows], "target": target if len(target) > 1 else target[0]}
        if covariates:
            known, further = (np.stack([column[part] for column in covariates]) for part in (rows, asked))
            entry |= {"feat_dynamic_real": known, "asked_times": times[asked], "asked_dynamic_real": further}
        entry |= {} if cells is None else {"info": {CELLS: cells[index]}}
        entries.append(entry | {name: each[index] for name, each in static.items()})
    if empty:
        log.warning("%s: %d series have no value and are left out (%s)", path, len(empty), listed(empty, 10))
    if not entries:
        raise ValueError(f"{path}: no series has a value")
    same = sum(int((np.diff(entry["times"]) == 0).sum()) for entry in entries)
    if same:
        log.info(
            "%s: %d rows have the time stamp of another row of their series: observations of one moment", path, same
        )
    known = {"categories": found, "targets": tuple(columns.targets), "columns": table.roles}
    return ForecastTask(path.stem.split(".")[0], "ns", 1, 0, check_timed(entries), **known)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The entries of a file of JSON lines."""
    check_packed(expect_file(path))
    entries = []
    try:
        with open_unpacked(path) as file:
            for number, line in enumerate(file, start=1):
                if len(line) > MOST_RECORD:
                    raise ValueError(f"line {number} is too long")
                if line.strip():
                    entries.append(parse_json(line.decode("utf-8")))
    except (ValueError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: expected a JSON object in each line ({error!s:.200})") from error
    if entries and isinstance(entries[0], Mapping) and "start" in entries[0] and "times" not in entries[0]:
        raise ValueError(
            f"{path}: the entries have 'start' and no 'times': they are regular, read them without "
            f"{option('irregular', True)}; or give each value its time in 'times'"
        )
    return entries
