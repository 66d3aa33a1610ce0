"""Streams: one observation after the other, from a file, a library, or standard input."""

import importlib
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data.folder import data_home
from tsforecast.data.tables.contents import MISSING
from tsforecast.io.binary import check_packed, is_parquet, read_parquet
from tsforecast.io.reading import parse_json

_CHUNK = 10_000  # rows of a file in memory at a time
_TRUTH = {text: value for value in (True, False) for text in (f"{value}", f"{value}".lower(), f"{value}".upper())}


@dataclass(frozen=True)
class Observation:
    """One item of a stream.

    Attributes:
        features: Numbers by name; None or NaN where missing.
        target: What is to be predicted; None where it is missing.
        time: When it was made; None if the stream has no time.
        key: Key by which a target that comes later finds its observation; None if targets do not come later.
        place: Where it stands, for messages, such as "row 3"; empty if nobody knows.
    """

    features: dict[str, Any]
    target: Any
    time: pd.Timestamp | None
    key: Hashable = None
    place: str = ""


def _library(name: str) -> Any:
    """Return a module of a library that is not always there.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ValueError(f"{name.split('.')[0]} is not installed: pip install 'tsforecast[online]'") from error


def _sklearn(name: str) -> Iterator[Observation]:
    datasets = _library("sklearn.datasets")
    data: Any = getattr(datasets, f"load_{name}")()
    names = [str(feature) for feature in data.feature_names]
    for row, target in zip(data.data.tolist(), data.target.tolist(), strict=True):
        yield Observation(dict(zip(names, row, strict=True)), target, None)


def _phishing() -> Iterator[Observation]:
    datasets = _library("river.datasets")
    for features, target in datasets.Phishing():
        yield Observation({str(name): value for name, value in features.items()}, int(target), None)


# Name -> (what it is, whether its target is a class, the stream).
STREAMS: dict[str, tuple[str, bool, Callable[[], Iterator[Observation]]]] = {
    "digits": ("handwritten digits, 8 x 8 pixels (scikit-learn)", True, lambda: _sklearn("digits")),
    "breast-cancer": ("benign or malignant (scikit-learn)", True, lambda: _sklearn("breast_cancer")),
    "diabetes": ("progression of a disease (scikit-learn)", False, lambda: _sklearn("diabetes")),
    "phishing": ("web pages that fish for passwords or do not (river)", True, _phishing),
}


# Name of a stream that `datasets/streams.py` prepares -> what it is prepared from.
PREPARED = {
    "elec2": "elecNormNew.arff",
    "noaa": "NEweather_data.csv NEweather_class.csv",
    "gas-drift": "FOLDER",
    "spambase": "spambase.data",
    "uci-regression": "TABLE",
    "mnist": "FOLDER",
}


def find_stream(path: str | Path) -> Path:
    """Return a file, or the one in `data_home()` that was prepared under a name.

    Args:
        path: Path of a file, which goes first; or a name, which is in no folder.

    Raises:
        FileNotFoundError: If there is neither; the message says how a known stream is prepared.
    """
    path = Path(path)
    if path.is_file():
        return path
    if path.name != str(path):
        raise FileNotFoundError(f"there is no file {path}")
    prepared = data_home() / f"{path}.csv"
    if prepared.is_file():
        return prepared
    if path.name in PREPARED:
        how = f"python datasets/streams.py {path} {PREPARED[path.name]}"
        raise FileNotFoundError(f"{path} is not prepared (there is no file {prepared}): make it by `{how}`")
    raise FileNotFoundError(
        f"there is no file {path} and no stream of this name: {', '.join(STREAMS)} come with libraries, "
        f"{', '.join(PREPARED)} are prepared by datasets/streams.py"
    )


def delayed(items: Iterable[Observation], delay: int | pd.Timedelta) -> Iterator[Observation]:
    """Return the same stream with targets that come later, each alone, some time after its observation.

    Args:
        items: Observations with their targets.
        delay: Number of observations, or time. What is due after the last observation comes at the end.

    Raises:
        ValueError: If the delay is negative, or in time for observations that have none.
    """
    if (delay if isinstance(delay, int) else delay.total_seconds()) < 0:
        raise ValueError(f"expected a delay of at least 0, got {delay}")
    due: deque[tuple[Any, Observation]] = deque()  # (when it is due, in observations or time; the target)
    now = None
    for number, item in enumerate(items):
        if isinstance(delay, int):
            place: Any = number
        elif item.time is None:
            raise ValueError(f"expected observations with a time, for a delay of {delay}; name its column by --time")
        else:
            place = item.time
        while due and due[0][0] <= place:  # all that is due before the next prediction
            moment, late = due.popleft()
            # With a delay in observations, the target comes at the time of the observation before.
            yield replace(late, time=now if isinstance(delay, int) else moment)
        now = item.time
        yield replace(item, target=None, key=number)  # its number is a key that no column gives
        if item.target is not None:
            due.append((place + delay, Observation({}, item.target, None, number, item.place)))
    for moment, late in due:
        yield replace(late, time=now if isinstance(delay, int) else moment)


def read_stream(
    path: str | Path, target: str, time: str | None = None, key: str | None = None
) -> Iterator[Observation]:
    """Return the rows of a CSV or Parquet file, in their order.

    Args:
        path: Path of the file, or name of a prepared stream, see `find_stream`.
        target: Column of the target; empty where it is missing. A class may be called `NA` or `None`; in a column of
            numbers such words are missing values.
        time: Column of time stamps, which must not fall.
        key: Column by which a target that comes later finds its observation. All other columns are features.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is empty, or lacks a column.
    """
    path = find_stream(path)
    try:
        if is_parquet(path):
            chunks: Iterable[pd.DataFrame] = [read_parquet(path)]
        else:
            check_packed(path)
            # So that a file may be longer than memory.
            parts = pd.read_csv(path, chunksize=_CHUNK, low_memory=False, keep_default_na=False, na_values=[""])
            kinds: dict[Hashable, bool] = {}  # of the whole file: a chunk may hold nothing but words
            chunks = (_checked(part, kinds) for part in parts)
        count = 0
        for chunk in chunks:
            for name in filter(None, (target, time, key)):
                if name not in chunk.columns:
                    raise ValueError(f"there is no column {name!r}; there are {', '.join(map(str, chunk.columns))}")
            for row in chunk.to_dict("records"):
                count += 1
                yield _observation(
                    {str(name): value for name, value in row.items()}, (target, time, key), f"row {count}"
                )
    except (ValueError, OSError) as error:  # what pandas raises is one of these
        raise ValueError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    if not count:
        raise ValueError(f"{path} has no rows")


def _checked(chunk: pd.DataFrame, kinds: dict[Hashable, bool]) -> pd.DataFrame:
    """Return rows as long as the header, in which one text does not make text of all numbers of its column.

    Args:
        chunk: Rows of the file, in which only empty cells are missing.
        kinds: Whether columns that held anything so far held a number or truth value. There `NA` and the like are
            missing, and elsewhere they are text such as a class. Columns of the chunk are added.

    Raises:
        ValueError: If the first row is longer, where pandas would take its first cells for an index. Of later rows
            pandas itself says so.
    """
    if not isinstance(chunk.index, pd.RangeIndex):
        width = len(chunk.columns)
        raise ValueError(f"line 2: expected {width} cells, as the header has, got {width + chunk.index.nlevels}")
    read = {}
    for name in chunk.columns:
        if chunk[name].dtype != object:
            kinds[name] = kinds.get(name, False) or bool(chunk[name].notna().any())
            continue
        cells: Any = pd.Series([_as_number(cell) for cell in chunk[name]], chunk.index, object)
        words = cells.isin(MISSING)
        rest = cells[~words & cells.notna()]
        if len(rest) and rest.isin(_TRUTH).all():
            cells = pd.Series([_TRUTH.get(cell, cell) for cell in cells], chunk.index, object)
            kinds[name] = True
        elif len(rest):
            kinds[name] = kinds.get(name, False) or any(not isinstance(cell, str) for cell in rest)
        read[name] = cells.mask(words) if kinds.get(name, True) else cells
    return chunk.assign(**read)


def _as_number(cell: Any) -> Any:
    """Return the number that a text is, or the cell as it is."""
    if not isinstance(cell, str) or "_" in cell:
        return cell
    for read in (int, float):
        try:
            number = read(cell)
        except ValueError:
            continue
        return number if math.isfinite(number) or any(map(str.isdigit, cell)) else cell  # "inf" may be a label
    return cell


def read_lines(
    lines: Iterable[str], target: str, time: str | None = None, key: str | None = None
) -> Iterator[Observation]:
    """Return observations from JSON objects, one a line; empty lines are left out.

    Args:
        lines: Lines of an open file, such as standard input.
        target: Name of the target; null or absent where it is missing.
        time: Name of time stamps.
        key: Name of the key by which a target that comes later finds its observation.

    Raises:
        ValueError: If a line is no JSON object, or has no time or key. The message has its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise ValueError(f"line {number}: expected a JSON object, got {line.strip()[:80]!r}") from error
        if not isinstance(row, dict):
            raise ValueError(f"line {number}: expected a JSON object, got {type(row).__name__}")
        yield _observation(row, (target, time, key), f"line {number}")


def _observation(row: dict[str, Any], names: tuple[str, str | None, str | None], place: str) -> Observation:
    """Return the observation in a row, given the names of target, time and key."""
    target, time, key = names
    value = row.pop(target, None)
    if value is None or value != value:
        value = None
    stamp = None
    if time is not None:
        try:
            stamp = pd.Timestamp(row.pop(time, None))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{place}: expected a time stamp in {time!r} ({error})") from error
        if not isinstance(stamp, pd.Timestamp):
            raise ValueError(f"{place}: expected a time stamp in {time!r}, got none")
        # Times with and without a zone cannot be compared.
        stamp = stamp.tz_convert(None) if stamp.tzinfo is not None else stamp
    if key is None:
        return Observation(row, value, stamp, place=place)
    label = row.pop(key, None)
    if not isinstance(label, str | int | float) or label != label:  # a NaN equals no key
        raise ValueError(f"{place}: expected a text or number in {key!r}, got {label!r}")
    return Observation(row, value, stamp, label, place)
