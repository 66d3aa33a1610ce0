"""Folders in the layout of GluonTS: `metadata.json`, `train/*.json[.gz]`, `test/*.json[.gz]`; reading and writing.

The full data sets are kept in this form. Its metadata has `windows` beside GluonTS' `freq` and `prediction_length`;
the test part holds every series once, at full length.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.common import infer_file_type
from gluonts.dataset.jsonl import JsonLinesWriter
from gluonts.exceptions import GluonTSDataError
from numpy.typing import NDArray
from tqdm import tqdm

from tsforecast.data.calendar.frequency import default_horizon, expected_alias_warnings, period_alias, to_period
from tsforecast.data.calendar.stamps import BEGINNING, STAMP, Place, place_at, placed, saved_place, stamp_of
from tsforecast.data.checks import check_entries
from tsforecast.data.magnitude import compact, too_large
from tsforecast.data.tables.naming import CELLS
from tsforecast.data.task import ForecastTask
from tsforecast.data.usable import tell, unusable, without
from tsforecast.io.binary import check_packed
from tsforecast.io.files import replace_folder
from tsforecast.io.reading import MOST_TEXT, fits, read_json
from tsforecast.progress import is_watched
from tsforecast.wording import option

Entry = dict[str, Any]
log = logging.getLogger(__name__)

# Fields of metadata that are read, GluonTS' and ours, with their types.
_METADATA: dict[str, type] = {"freq": str, "time_granularity": str, "prediction_length": int, "windows": int}


def data_home() -> Path:
    """The folder of prepared data sets: `TSFORECAST_DATA`, or `.tsforecast` in the user's home folder."""
    return Path(os.environ.get("TSFORECAST_DATA") or Path.home() / ".tsforecast")


def write_folder(task: ForecastTask, path: Path) -> None:
    """Writes a task as a GluonTS folder: it appears only when it is complete, and replaces an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"freq": task.freq, "prediction_length": task.prediction_length, "windows": task.windows}
    with replace_folder(path) as scratch:
        (scratch / "metadata.json").write_text(json.dumps({**meta, "name": task.name}) + "\n", encoding="utf-8")
        with expected_alias_warnings():
            for part, entries in (("train", task.train), ("test", task.entries)):
                (scratch / part).mkdir()
                shown = tqdm(entries, desc=f"writing {part}", unit="series", disable=not is_watched())
                JsonLinesWriter().write_to_folder(map(_dated, shown), scratch / part)  # pyright: ignore[reportArgumentType]


def _dated(entry: Entry) -> Entry:
    """The entry as its line has it: its start is a time stamp."""
    info = {name: value for name, value in (entry.get("info") or {}).items() if name != CELLS}
    info |= {STAMP: list(info[STAMP])} if STAMP in info else {}
    return {**entry, "start": str(stamp_of(entry["start"], entry.get("info")))} | ({"info": info} if info else {})


def read_folder(
    path: Path,
    freq: str | None = None,
    prediction_length: int | None = None,
    windows: int | None = None,
    name: str | None = None,
    *,
    all_missing: bool = False,
) -> ForecastTask:
    """Reads a data set in GluonTS' layout: as `TrainDatasets.save` writes it, or as published with rolling windows.

    A published test part repeats every series once a window, each time a window longer; the longest version of each
    is taken, and the number of windows is found from it. Without a test part everything is for training unless
    `windows` is given.

    Args:
        path: Folder with `train`, mostly `metadata.json` (in it or in `metadata/`) and `test`; or a single file of
            JSON lines, or a folder of such files.
        freq: Frequency; read from the metadata where None.
        prediction_length: Steps of one window; from the metadata or the test part where None, else the custom of the
            frequency.
        windows: Number of test windows; from the metadata or the test part where None, else 0.
        name: Name of the task; that of the folder where None.
        all_missing: Whether a series may have no value, as it may at prediction.

    Returns:
        The task; series without `item_id` are numbered.

    Raises:
        FileNotFoundError: If there is nothing to read.
        ValueError: If a line is no series, the parts do not fit each other, or the frequency is nowhere to be found.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no folder or file {path}")
    meta = _read_metadata(path)
    freq = freq or meta.get("freq") or meta.get("time_granularity")
    if freq is None:
        raise ValueError(f"{path}: no frequency in metadata.json; give it, e.g. {option('freq', 'h')}")
    alias = period_alias(freq)
    train = list(_read_part(path / "train" if (path / "train").is_dir() else path, alias))
    horizon = prediction_length or meta.get("prediction_length")
    if (path / "test").is_dir():
        entries, steps, repeats = _longest(path, train, list(_read_part(path / "test", alias)))
        horizon, windows = _test_windows(
            path, horizon, meta.get("windows") if windows is None else windows, steps, repeats
        )
    else:
        entries, horizon = train, horizon or default_horizon(alias)
        windows = int(meta.get("windows", 0)) if windows is None else windows
    left_out = unusable([(path, entry) for entry in entries], windows * horizon, all_missing)
    tell(path, left_out, len(entries))
    entries = without(entries, left_out)
    try:
        check_entries(entries, alias, min_length=windows * horizon + 1, all_missing=all_missing)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return ForecastTask(name or path.name, alias, horizon, windows, entries)


def _test_windows(
    path: Path, horizon: int | None, windows: int | None, steps: int | None, repeats: int
) -> tuple[int, int]:
    """Steps of a window and number of windows; the test part tells the unknown ones."""
    if horizon is None and steps is not None and steps % repeats == 0:
        horizon = steps // repeats
    if windows is None and horizon is not None and steps is not None and steps % horizon == 0:
        windows = steps // horizon
    if windows is None or horizon is None:
        raise ValueError(
            f"{path}: the test part does not tell the windows (it goes {steps} steps beyond the training part); "
            f"give {option('prediction_length')} and {option('windows')}"
        )
    return horizon, windows


def _read_metadata(path: Path) -> dict[str, Any]:
    """Contents of metadata.json, {} where there is none."""
    for file in (path / "metadata.json", path / "metadata" / "metadata.json"):
        if file.is_file():
            meta = read_json(file, MOST_TEXT)
            if not isinstance(meta, dict):
                raise ValueError(f"{file}: expected an object with freq and prediction_length")
            for name, kind in _METADATA.items():
                if not fits(meta.get(name), kind | None):
                    raise ValueError(f"{file}: expected {name} of type {kind.__name__}, got {meta[name]!r:.80}")
            return meta
    return {}


def _read_part(path: Path, freq: str) -> Iterator[Entry]:
    """The entries of all files of a folder (or of one file), in the order of the files' names."""
    candidates = [path] if path.is_file() else sorted(path.glob("*"))
    loaders = []
    for file in candidates:
        if file.is_file() and not file.name.startswith(".") and file.name != "metadata.json":
            check_packed(file)
            try:
                loader = infer_file_type(file)
            except (OSError, ValueError) as error:
                raise ValueError(f"{file}: not readable ({type(error).__name__})") from error
            if loader is not None:
                loaders.append((file, loader))
    if not loaders:
        raise FileNotFoundError(f"{path}: no JSON lines (.json, .jsonl, with or without .gz) or Arrow files here")
    for file, loader in loaders:
        line = 0
        try:
            for line, raw in enumerate(loader, start=1):
                yield _entry(raw, f"{file}, line {line}", str(line - 1), freq)
        except (GluonTSDataError, OSError, EOFError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}, line {line + 1}: not readable ({type(error).__name__})") from error


def _entry(raw: Any, place: str, number: str, freq: str) -> Entry:
    """A data entry out of a line of a file."""
    if not isinstance(raw, dict) or "start" not in raw or "target" not in raw:
        raise ValueError(f"{place}: expected an object with the fields start and target")
    entry: Entry = {"item_id": str(raw.get("item_id", number))}
    try:
        entry["start"] = to_period(raw["start"], freq)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: start {raw['start']!r} is not a time stamp") from error
    entry |= placed(_place(raw, freq))
    entry["target"] = _array(raw["target"], f"{place}, field target", is_target=True)
    for name in ("feat_static_cat", "feat_static_real", "feat_dynamic_real"):
        if raw.get(name) is not None and len(raw[name]) > 0:
            values = _array(raw[name], f"{place}, field {name}")
            entry[name] = values.astype(np.int64) if name == "feat_static_cat" else values
    return entry


def _place(raw: dict[str, Any], freq: str) -> Place:
    """The place of time stamps that a line says, or that of its start."""
    info = raw.get("info")
    if isinstance(info, dict) and STAMP in info:
        return saved_place(info[STAMP])
    try:
        return place_at(pd.Timestamp(raw["start"]).tz_localize(None), freq)
    except (TypeError, ValueError):  # a period of several days
        return BEGINNING


def _array(values: Any, place: str, is_target: bool = False) -> NDArray[np.floating[Any]]:
    """Numbers of a line; null and "NaN" are missing values."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: expected numbers, got something else or ragged rows ({error})") from error
    if found := too_large(numbers, is_target):
        remedy = "correct it, or write null if it is missing" if is_target else "correct it"
        raise ValueError(f"{place}, step {found[0][-1]}: {found[1]}; {remedy}")
    return compact(numbers)


def _longest(path: Path, train: list[Entry], test: list[Entry]) -> tuple[list[Entry], int | None, int]:
    """The full series of a test part, the steps that they add to the training part, and the copies of each.

    The steps are None where they differ between the series.
    """
    if not train or len(test) % len(train) != 0:
        raise ValueError(f"{path}: {len(test)} series in test are no multiple of the {len(train)} in train")
    repeats = len(test) // len(train)
    full = _group_longest(train, test)
    steps = set()
    for short, long in zip(train, full, strict=True):
        length = short["target"].shape[-1]
        head = long["target"][..., :length]
        if long["start"] != short["start"] or not np.array_equal(head, short["target"], equal_nan=True):
            raise ValueError(
                f"{path}: the test series {long['item_id']!r} does not begin with its training series; expected "
                "test series which repeat the training part and go on"
            )
        steps.add(long["target"].shape[-1] - length)
    return full, steps.pop() if len(steps) == 1 else None, repeats


def _group_longest(train: list[Entry], test: Iterable[Entry]) -> list[Entry]:
    """For every training series the longest test series of its name, or of its place where names do not match."""
    test = list(test)
    names = [entry["item_id"] for entry in train]
    by_name: dict[str, Entry] = {}
    for entry in test:
        known = by_name.get(entry["item_id"])
        if known is None or entry["target"].shape[-1] > known["target"].shape[-1]:
            by_name[entry["item_id"]] = entry
    if len(set(names)) == len(names) and set(by_name) == set(names):
        return [by_name[name] for name in names]
    return [
        {**max(test[place :: len(train)], key=lambda entry: entry["target"].shape[-1]), "item_id": name}
        for place, name in enumerate(names)
    ]
