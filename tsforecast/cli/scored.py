"""What `evaluate` has written into a run folder, read again: each table is checked before anybody computes with it."""

from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.evaluation.report import PROTOCOLS
from tsforecast.io.reading import MOST_RECORD, read_json

_NAMES = ("protocol", "model", "item_id")  # columns of text
# Columns that are read of each table, and whether a cell may be empty, as a score is where nothing was observed.
TABLES: dict[str, dict[str, bool]] = {
    "per_forecast.csv": {
        "protocol": False, "model": False, "item_id": True, "start": False, "crps": True, "size": False,
    },
    "per_horizon.csv": {"protocol": False, "model": False, "step": False, "crps": True},
    "calibration.csv": {"protocol": False, "model": False, "probability": False, "pit": True, "coverage": True},
}  # fmt: skip


def read_scores(path: Path) -> dict[str, Any]:
    """Return the contents of scores.json; a ValueError says where they are not as `evaluate` writes them."""
    scores = read_json(path)
    if not isinstance(scores, dict) or not isinstance(scores.get("model"), str):
        raise ValueError(f"{path}: expected a model and its scores")
    baselines = scores.get("baselines")
    if not isinstance(baselines, dict):
        raise ValueError(f"{path}: expected baselines by name")
    _check_scores(path, scores["model"], scores)
    if any(protocol not in scores for protocol in PROTOCOLS):
        raise ValueError(f"{path}: expected scores under {' and '.join(PROTOCOLS)}")
    for name, found in baselines.items():
        _check_scores(path, name, found)
    return scores


def _check_scores(path: Path, name: str, found: Any) -> None:
    """Refuses scores of a model which are no numbers under each protocol that it has."""
    present = [protocol for protocol in PROTOCOLS if isinstance(found, dict) and protocol in found]
    if not present:
        raise ValueError(f"{path}: expected scores of {name!r} under {' or '.join(PROTOCOLS)}")
    for protocol in present:
        values = found[protocol]
        if not isinstance(values, dict) or not isinstance(values.get("coverage"), dict) or "crps" not in values:
            raise ValueError(f"{path}: expected crps and coverage of {name!r}, {protocol}")
        for metric, value in (values | values["coverage"]).items():
            number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1023
            if metric != "coverage" and value is not None and not number:
                raise ValueError(f"{path}: expected a number as {metric} of {name!r}, {protocol}, got {value!r:.80}")


def read_table(path: Path, models: list[str]) -> pd.DataFrame:
    """A table of scores.

    Raises:
        ValueError: If the file is too long or cut short, lacks a column or a model, or has a cell that does not fit its
            column. The message names file and column.
    """
    size = path.stat().st_size
    if size > MOST_RECORD:
        raise ValueError(f"{path}: expected at most {MOST_RECORD >> 20} MiB, got {size >> 20}")
    with path.open("rb") as file:
        file.seek(max(size - 1, 0))
        if file.read() != b"\n":
            raise ValueError(f"{path} is cut short: its last line has no end")
    try:
        # By a converter: for a type pandas would take a series called NA for a missing name.
        table = pd.read_csv(path, converters=dict.fromkeys(_NAMES, str), low_memory=False)
    except ValueError as error:  # pandas' own errors are among these
        raise ValueError(f"{path}: {str(error).strip()}") from error
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(f"{path}: expected {len(table.columns)} cells in each line, as its header has")
    for name, may_lack in TABLES[path.name].items():
        if name not in table:
            raise ValueError(f"{path}: expected a column {name}, got {', '.join(map(str, table.columns[:20]))[:200]}")
        table[name] = _checked(path, pd.Series(table[name]), may_lack)
    for model in models:
        if not (table["model"] == model).any():
            raise ValueError(f"{path}: expected rows of {model!r} in the column model, got none")
    return table


def _checked(path: Path, column: pd.Series, may_lack: bool) -> pd.Series:
    """A column as text, dates or numbers, as its name says."""
    expected = "text" if column.name in _NAMES else "a date" if column.name == "start" else "a number"
    if column.name == "protocol":
        expected = " or ".join(PROTOCOLS)
        values = column.where(column.isin(PROTOCOLS))
    elif column.name in _NAMES:
        values = column.where((column != "") | may_lack)
    elif column.name == "start":
        values = pd.Series(pd.to_datetime(column.astype(str), errors="coerce", format="ISO8601"))
    else:
        values = pd.Series(pd.to_numeric(column, errors="coerce"))
        values = values if may_lack else values.where(values.abs() < float("inf"))
    wrong = values.isna() & ~(column.isna() & may_lack)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise ValueError(f"{path}, line {row + 2}, column {column.name}: expected {expected}, got {column[row]!r:.80}")
    return values
