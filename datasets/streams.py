"""Streams with and without drift, as tables for `tsforecast stream`, out of the raw files that their owners publish.

    python datasets/streams.py elec2 elecNormNew.arff
    python datasets/streams.py noaa NEweather_data.csv NEweather_class.csv
    python datasets/streams.py gas-drift FOLDER
    python datasets/streams.py spambase spambase.data
    python datasets/streams.py uci-regression yacht_hydrodynamics.data
    python datasets/streams.py mnist FOLDER --digits 3 5

Each writes NAME.csv, which `tsforecast stream LEARNER --data NAME` then finds: a row for each observation, in the order
of the stream, and the column `target` last. Classes are words, so that nobody takes them for numbers. Raw files may be
gzipped. README.md says where they come from and what the streams are not; `python datasets/streams.py NAME --help` says
more about one of them.
"""

import argparse
import csv
import gzip
import logging
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.files import replace_file
from tsforecast.data.folder import data_home

ELEC2 = ["date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
NOAA = [
    "temperature", "dew_point", "pressure", "visibility", "wind", "wind_max", "temperature_max", "temperature_min",
]  # fmt: skip
GASES = {1: "ethanol", 2: "ethylene", 3: "ammonia", 4: "acetaldehyde", 5: "acetone", 6: "toluene"}
SENSORS = 128  # numbers of a measurement: 8 of each of 16 sensors
# 48 frequencies of words, 6 of characters, 3 lengths of runs of capital letters.
SPAM = (
    [f"word{k}" for k in range(1, 49)]
    + [f"char{k}" for k in range(1, 7)]
    + ["capitals_mean", "capitals_longest", "capitals_total"]
)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PARTS = {"train": "train", "test": "t10k"}

log = logging.getLogger(__name__)


def _text(path: Path) -> list[str]:
    """Lines of a file of text, gzipped or not, without empty ones at the end.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not text, or has no line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        lines = _bytes(path).decode().rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text, got bytes that are none ({error})") from error
    if not lines:
        raise ValueError(f"{path}: expected rows of a table, got an empty file")
    return lines


def _bytes(path: Path) -> bytes:
    """What a file holds, unpacked where it begins as gzipped files do."""
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError) as error:
        raise ValueError(f"{path}: expected a gzipped file, got one that is damaged ({error})") from error


def _cells(line: str) -> list[str]:
    """What stands between commas, semicolons or blanks."""
    mark = next((mark for mark in ";," if mark in line), None)
    return line.split() if mark is None else [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]


def _numbers(path: Path, rows: list[list[str]], columns: int, first: int) -> NDArray[np.float64]:
    """Cells as numbers, shape (row, column).

    Args:
        path: For the message.
        rows: Cells of each line.
        columns: How many each must have.
        first: Number of the first line in the file.

    Raises:
        ValueError: If a row has another length, or a cell that is no finite number.
    """
    values = np.empty((len(rows), columns))
    for row, cells in enumerate(rows):
        if len(cells) != columns:
            raise ValueError(f"{path}, line {row + first}: expected {columns} columns, got {len(cells)}")
        try:
            values[row] = [float(cell) for cell in cells]
        except ValueError as error:
            raise ValueError(f"{path}, line {row + first}: expected numbers ({error})") from error
        if not np.isfinite(values[row]).all():
            raise ValueError(f"{path}, line {row + first}: expected finite numbers, got {', '.join(cells)[:80]}")
    return values


def read_elec2(path: Path) -> pd.DataFrame:
    """The electricity market of New South Wales, half hours in the order of time; the target is UP or DOWN.

    Args:
        path: elecNormNew.arff, or the same as CSV with a row of names; the class UP or DOWN, or 1 or 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    lines = _text(path)
    first = next((k + 1 for k, line in enumerate(lines) if line.strip().lower() == "@data"), None)
    if first is None:
        names, first = _cells(lines[0]), 1
    else:
        head = (re.match(r"@attribute\s+['\"]?([^'\"\s]+)", line.strip(), re.IGNORECASE) for line in lines[:first])
        names = [found[1] for found in head if found]
    if [name.lower() for name in names] != [*ELEC2, "class"]:
        raise ValueError(f"{path}: expected the columns {', '.join(ELEC2)}, class, got {', '.join(names)[:200]}")
    rows = [[cell.strip("'") for cell in _cells(line)] for line in lines[first:] if not line.startswith("%")]
    values = _numbers(path, [cells[:-1] for cells in rows], len(ELEC2), first + 1)
    words = {"UP": "UP", "DOWN": "DOWN", "1": "UP", "0": "DOWN"}
    classes = [cells[-1].upper() for cells in rows]
    wrong = next((k for k, name in enumerate(classes) if name not in words), None)
    if wrong is not None:
        raise ValueError(f"{path}, line {wrong + first + 1}: expected the class UP or DOWN, got {classes[wrong]!r}")
    return pd.DataFrame(values, columns=pd.Index(ELEC2)).assign(target=[words[name] for name in classes])


def read_noaa(data: Path, classes: Path) -> pd.DataFrame:
    """Weather at Bellevue in Nebraska, a row a day from 1949 to 1999; the target is rain or dry.

    Args:
        data: NEweather_data.csv, eight numbers a day, without a row of names.
        classes: NEweather_class.csv, 1 for rain and 0 for none.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If they have not this form, or not as many rows as each other.
    """
    values = _numbers(data, [_cells(line) for line in _text(data)], len(NOAA), 1)
    rain = _numbers(classes, [_cells(line) for line in _text(classes)], 1, 1)[:, 0]
    if len(rain) != len(values):
        raise ValueError(f"{classes}: expected {len(values)} rows as in {data}, got {len(rain)}")
    if not np.isin(rain, [0, 1]).all():
        raise ValueError(f"{classes}: expected 1 for rain and 0 for none, got {rain[~np.isin(rain, [0, 1])][0]:g}")
    return pd.DataFrame(values, columns=pd.Index(NOAA)).assign(target=np.where(rain == 1, "rain", "dry"))


def read_gas(folder: Path, batches: list[int], seed: int | None = None) -> pd.DataFrame:
    """Six gases by the signals of sensors that age over three years; the target is the gas.

    Args:
        folder: With batch1.dat to batch10.dat: "gas;concentration 1:number ... 128:number", or "gas 1:number ...".
        batches: Those to take, in this order.
        seed: Of the order within a batch; None for that of the files, in which each gas comes in long runs.

    Raises:
        FileNotFoundError: If a batch is missing.
        ValueError: If a line has not this form.
    """
    generator, parts = np.random.default_rng(seed), []
    for batch in batches:
        path = next((p for p in (folder / f"batch{batch}.dat", folder / f"batch{batch}.dat.gz") if p.is_file()), None)
        if path is None:
            raise FileNotFoundError(
                f"there is no file batch{batch}.dat in {folder}; --batches takes those that there are"
            )
        heads, rows = [], []
        for number, line in enumerate(_text(path), 1):
            head, *cells = line.split()
            pairs = [cell.partition(":") for cell in cells]
            gas = head.partition(";")[0]
            if gas not in map(str, GASES) or [pair[0] for pair in pairs] != [str(k + 1) for k in range(SENSORS)]:
                raise ValueError(
                    f"{path}, line {number}: expected a gas from 1 to 6 and 1:number to {SENSORS}:number, "
                    f"got {line[:60]!r}"
                )
            heads.append(GASES[int(gas)])
            rows.append([pair[2] for pair in pairs])
        frame = pd.DataFrame(_numbers(path, rows, SENSORS, 1), columns=pd.Index([f"x{k + 1}" for k in range(SENSORS)]))
        frame["target"] = heads
        parts.append(frame if seed is None else frame.iloc[generator.permutation(len(frame))])
    return pd.concat(parts, ignore_index=True)


def read_spambase(path: Path, seed: int | None = None) -> pd.DataFrame:
    """Letters by the words in them; the target is spam or ham.

    Args:
        path: spambase.data: 57 numbers and the class, 1 for spam and 0 for none, without a row of names.
        seed: Of the order; None for that of the file, in which all spam comes first.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    values = _numbers(path, [_cells(line) for line in _text(path)], len(SPAM) + 1, 1)
    spam = values[:, -1]
    if not np.isin(spam, [0, 1]).all():
        raise ValueError(f"{path}: expected 1 for spam and 0 for none last, got {spam[~np.isin(spam, [0, 1])][0]:g}")
    frame = pd.DataFrame(values[:, :-1], columns=pd.Index(SPAM)).assign(target=np.where(spam == 1, "spam", "ham"))
    return _shuffled(frame, seed)


def read_regression(path: Path, seed: int | None = None) -> pd.DataFrame:
    """A table of numbers; the target is its last column.

    Args:
        path: Commas, semicolons or blanks between the cells; a row of names first, or none.
        seed: Of the order; None for that of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form, or a single column.
    """
    rows = [_cells(line) for line in _text(path)]
    try:
        names, first = [f"x{k + 1}" for k in range(len([float(cell) for cell in rows[0]]))], 0
    except ValueError:
        names, first = rows[0], 1
    if len(names) < 2 or len(rows) == first:
        raise ValueError(f"{path}: expected rows of features and a target, got {len(names)} columns, "
                         f"{len(rows) - first} rows")  # fmt: skip
    if len(set(names)) < len(names) or "target" in names[:-1]:
        raise ValueError(f"{path}: expected names that differ, and no feature 'target', got {', '.join(names)[:200]}")
    values = _numbers(path, rows[first:], len(names), first + 1)
    return _shuffled(pd.DataFrame(values, columns=pd.Index([*names[:-1], "target"])), seed)


def _shuffled(frame: pd.DataFrame, seed: int | None) -> pd.DataFrame:
    if seed is None:
        return frame
    return frame.iloc[np.random.default_rng(seed).permutation(len(frame))].reset_index(drop=True)


def _idx(folder: Path, name: str, axes: int) -> NDArray[np.uint8]:
    """An array of bytes in the format IDX, from NAME or NAME.gz."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"there is no file {name} or {name}.gz in {folder}")
    content, start = _bytes(path), 4 + 4 * axes
    if content[:4] != bytes((0, 0, 8, axes)) or len(content) < start:
        raise ValueError(f"{path}: expected bytes in {axes} dimensions (IDX), got a file that begins {content[:4]!r}")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path}: expected {' x '.join(map(str, shape))} bytes, got {len(content) - start}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_mnist(
    folder: Path, part: str = "train", digits: list[int] | None = None, limit: int | None = None
) -> pd.DataFrame:
    """Handwritten digits, a column for each pixel (0 to 255); the target is the digit's name.

    Args:
        folder: With train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., with or without .gz.
        part: "train" or "test".
        digits: Those to take; None for all.
        limit: Rows at most; None for all.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is no IDX file, they do not fit each other, or nothing is left.
    """
    images = _idx(folder, f"{PARTS[part]}-images-idx3-ubyte", 3)
    labels = _idx(folder, f"{PARTS[part]}-labels-idx1-ubyte", 1)
    if len(images) != len(labels) or labels.max(initial=0) > 9:
        raise ValueError(
            f"{folder}: expected labels 0 to 9 of {len(images)} images, got {len(labels)} up to {labels.max()}"
        )
    taken = np.flatnonzero(np.isin(labels, range(10) if digits is None else digits))[:limit]
    if not len(taken):
        raise ValueError(f"{folder}: there is no image of the digits {digits} among {len(labels)}")
    names = [f"pixel{k}" for k in range(images[0].size)]
    frame = pd.DataFrame(images[taken].reshape(len(taken), -1), columns=pd.Index(names))
    frame["target"] = [DIGITS[label] for label in labels[taken]]
    return frame


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="stream", required=True, metavar="STREAM")

    def command(name: str, read: Callable[..., pd.DataFrame], **sources: str) -> argparse.ArgumentParser:
        text = (read.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, description=text, help=text)
        for source, what in sources.items():
            sub.add_argument(source, type=Path, help=what)
        home = data_home()
        sub.add_argument("--out", type=Path, default=home, help="folder (TSFORECAST_DATA; default: %(default)s)")
        sub.add_argument("--name", default=name, help="of the stream (default: %(default)s)")
        return sub

    command("elec2", read_elec2, path="elecNormNew.arff, or the same as CSV")
    command("noaa", read_noaa, data="NEweather_data.csv", classes="NEweather_class.csv")
    gas = command("gas-drift", read_gas, folder="with batch1.dat to batch10.dat")
    gas.add_argument("--batches", type=int, nargs="+", default=list(range(1, 11)), help="to take (default: all ten)")
    spam = command("spambase", read_spambase, path="spambase.data")
    table = command("uci-regression", read_regression, path="numbers, the target last")
    for sub in (gas, spam, table):
        order = sub.add_mutually_exclusive_group()
        order.add_argument(
            "--seed", type=int, default=0, help="of a random order, of gas-drift in each batch (default 0)"
        )
        order.add_argument("--keep-order", dest="seed", action="store_const", const=None, help="that of the file")
    mnist = command("mnist", read_mnist, folder="with train-images-idx3-ubyte[.gz] and so on")
    mnist.add_argument("--part", choices=list(PARTS), default="train", help="(default: %(default)s)")
    mnist.add_argument(
        "--digits", type=int, nargs="+", choices=range(10), metavar="DIGIT", help="to take (default: all)"
    )
    mnist.add_argument("--limit", type=int, help="rows at most")
    return parser


READERS: dict[str, Callable[..., pd.DataFrame]] = {
    "elec2": read_elec2, "noaa": read_noaa, "gas-drift": read_gas, "spambase": read_spambase,
    "uci-regression": read_regression, "mnist": read_mnist,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options = vars(_parser().parse_args(arguments))
    stream, out, name = (options.pop(key) for key in ("stream", "out", "name"))
    try:
        frame = READERS[stream](**options)
        out.mkdir(parents=True, exist_ok=True)
        with replace_file(out / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, lineterminator="\n")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    log.info("%s: %d rows, %d features", out / f"{name}.csv", len(frame), frame.shape[1] - 1)
    if frame["target"].dtype == object:
        log.info("classes: %s", ", ".join(f"{k} {n}" for k, n in frame["target"].value_counts().items()))


if __name__ == "__main__":
    main()
