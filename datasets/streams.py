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
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tsforecast.data.folder import data_home
from tsforecast.io.files import replace_file

ELEC2 = ["date", "day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
NOAA = [
    "temperature", "dew_point", "pressure", "visibility", "wind", "wind_max", "temperature_max", "temperature_min",
]  # fmt: skip
GASES = {"1": "ethanol", "2": "ethylene", "3": "ammonia", "4": "acetaldehyde", "5": "acetone", "6": "toluene"}
PLACES = [str(k) for k in range(1, 129)]  # of the numbers of a measurement: 8 of each of 16 sensors
# 48 frequencies of words, 6 of characters, 3 lengths of runs of capital letters.
SPAM = (
    [f"word{k}" for k in range(1, 49)]
    + [f"char{k}" for k in range(1, 7)]
    + ["capitals_mean", "capitals_longest", "capitals_total"]
)
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PARTS = {"train": "train", "test": "t10k"}

log = logging.getLogger(__name__)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines of a file of text, gzipped or not, each with its number; empty ones are left out.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not text, or has no line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        lines = _bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text, got bytes that are none ({error})") from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise ValueError(f"{path}: expected rows of a table, got an empty file")
    return numbered


def _bytes(path: Path) -> bytes:
    """What a file holds, unpacked where it begins as gzipped files do."""
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a gzipped file, got one that is damaged ({error})") from error


def _cells(line: str) -> list[str]:
    """What stands between semicolons, commas or blanks."""
    mark = next((mark for mark in ";," if mark in line), None)
    return line.split() if mark is None else [cell.strip() for cell in next(csv.reader([line], delimiter=mark))]


def _numbers(path: Path, rows: Iterable[tuple[int, list[str]]], columns: int) -> NDArray[np.float64]:
    """Cells as numbers, shape (row, column).

    Args:
        path: For the message.
        rows: Number and cells of each line.
        columns: How many each must have.

    Raises:
        ValueError: If there is no row, one has another length, or a cell is no finite number.
    """
    values = []
    for number, cells in rows:
        if len(cells) != columns:
            raise ValueError(f"{path}, line {number}: expected {columns} columns, got {len(cells)}")
        try:
            values.append([float(cell) for cell in cells])
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: expected numbers ({error})") from error
        if not np.isfinite(values[-1]).all():
            raise ValueError(f"{path}, line {number}: expected finite numbers, got {', '.join(cells)[:80]}")
    if not values:
        raise ValueError(f"{path}: expected rows of a table, got none")
    return np.array(values)


def _table(path: Path, columns: int) -> NDArray[np.float64]:
    """A file of nothing but numbers."""
    return _numbers(path, [(number, _cells(line)) for number, line in _lines(path)], columns)


def _words(path: Path, classes: NDArray[np.float64], one: str, zero: str) -> NDArray[np.str_]:
    """Words for the classes 1 and 0."""
    wrong = classes[~np.isin(classes, [0, 1])]
    if len(wrong):
        raise ValueError(f"{path}: expected the class 1 for {one} or 0 for {zero}, got {wrong[0]:g}")
    return np.where(classes == 1, one, zero)


def _frame(features: NDArray[Any], names: Sequence[str], target: ArrayLike) -> pd.DataFrame:
    """A stream: the target is its last column."""
    return pd.DataFrame(features, columns=pd.Index(names)).assign(target=target)


def _shuffled(frame: pd.DataFrame, seed: int | None) -> pd.DataFrame:
    """In a random order; None leaves it as it is."""
    if seed is None:
        return frame
    return frame.sample(frac=1, random_state=np.random.default_rng(seed), ignore_index=True)


def read_elec2(path: Path) -> pd.DataFrame:
    """The electricity market of New South Wales, half hours in the order of time; the target is UP or DOWN.

    Args:
        path: elecNormNew.arff, or the same as CSV with a row of names; the class UP or DOWN, or 1 or 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form.
    """
    lines = _lines(path)
    first = next((k + 1 for k, (_, line) in enumerate(lines) if line.lower() == "@data"), None)
    if first is None:
        names, first = _cells(lines[0][1]), 1
    else:
        head = (re.match(r"@attribute\s+['\"]?([^'\"\s]+)", line, re.IGNORECASE) for _, line in lines[:first])
        names = [found[1] for found in head if found]
    if [name.lower() for name in names] != [*ELEC2, "class"]:
        raise ValueError(f"{path}: expected the columns {', '.join(ELEC2)}, class, got {', '.join(names)[:200]}")
    classes = {"UP": "1", "DOWN": "0"}
    rows = []
    for number, line in lines[first:]:
        *cells, word = (cell.strip("'") for cell in _cells(line))
        rows.append((number, [*cells, classes.get(word.upper(), word)]))
    values = _numbers(path, rows, len(ELEC2) + 1)
    return _frame(values[:, :-1], ELEC2, _words(path, values[:, -1], "UP", "DOWN"))


def read_noaa(data: Path, classes: Path) -> pd.DataFrame:
    """Weather at Bellevue in Nebraska, a row a day from 1949 to 1999; the target is rain or dry.

    Args:
        data: NEweather_data.csv, eight numbers a day, without a row of names.
        classes: NEweather_class.csv, 1 for rain and 0 for none.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If they have not this form, or not as many rows as each other.
    """
    values, rain = _table(data, len(NOAA)), _table(classes, 1)[:, 0]
    if len(rain) != len(values):
        raise ValueError(f"{classes}: expected {len(values)} rows as in {data}, got {len(rain)}")
    return _frame(values, NOAA, _words(classes, rain, "rain", "dry"))


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
    parts = []
    for batch in batches:
        path = next((p for p in (folder / f"batch{batch}.dat", folder / f"batch{batch}.dat.gz") if p.is_file()), None)
        if path is None:
            raise FileNotFoundError(
                f"there is no file batch{batch}.dat in {folder}; --batches takes those that there are"
            )
        gases, rows = [], []
        for number, line in _lines(path):
            head, *cells = line.split()
            pairs = [cell.partition(":") for cell in cells]
            gas = GASES.get(head.partition(";")[0])
            if gas is None or [place for place, _, _ in pairs] != PLACES:
                raise ValueError(
                    f"{path}, line {number}: expected a gas from 1 to {len(GASES)} and 1:number to "
                    f"{len(PLACES)}:number, got {line[:60]!r}"
                )
            gases.append(gas)
            rows.append((number, [value for _, _, value in pairs]))
        values = _numbers(path, rows, len(PLACES))
        parts.append(_shuffled(_frame(values, [f"x{place}" for place in PLACES], gases), seed))
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
    values = _table(path, len(SPAM) + 1)
    return _shuffled(_frame(values[:, :-1], SPAM, _words(path, values[:, -1], "spam", "ham")), seed)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read_regression(path: Path, column: str | None = None, seed: int | None = None) -> pd.DataFrame:
    """A table of numbers, of which one is to be predicted.

    Args:
        path: Commas, semicolons or blanks between the cells; a row of names first, or none: x1, x2, ....
        column: Name of the target; None for the last column.
        seed: Of the order; None for that of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has not this form, a single column, or none of this name.
    """
    rows = [(number, _cells(line)) for number, line in _lines(path)]
    head = rows[0][1]
    # A row with any number is one of the data: where a value is missing, it is no row of names.
    named = not any(map(_is_number, head))
    names = head if named else [f"x{k + 1}" for k in range(len(head))]
    column = names[-1] if column is None else column
    features = [name for name in names if name != column]
    if len(names) < 2 or len(set(names)) < len(names) or column not in names or "target" in features:
        raise ValueError(
            f"{path}: expected features and the target {column!r}, each with a name of its own, "
            f"got the columns {', '.join(names)[:200]}"
        )
    frame = pd.DataFrame(_numbers(path, rows[named:], len(names)), columns=pd.Index(names))
    return _shuffled(frame[features].assign(target=frame[column]), seed)


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


def _packed_digits(path: Path, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images and labels of an npz file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with np.load(path) as parts:
            return parts[f"x_{part}"], parts[f"y_{part}"]
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: expected images x_{part} and labels y_{part} ({error})") from error


def read_mnist(folder: Path, part: str = "train", digits: list[int] | None = None) -> pd.DataFrame:
    """Handwritten digits, a column for each pixel (0 to 255); the target is the digit's name.

    Args:
        folder: With train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-..., with or without .gz; or a file
            mnist.npz with `x_train`, `y_train`, `x_test` and `y_test`, as Keras has it.
        part: "train" or "test".
        digits: Those to take; None for all.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is no IDX file, they do not fit each other, or nothing is left.
    """
    if folder.suffix == ".npz":
        images, labels = _packed_digits(folder, part)
    else:
        images = _idx(folder, f"{PARTS[part]}-images-idx3-ubyte", 3)
        labels = _idx(folder, f"{PARTS[part]}-labels-idx1-ubyte", 1)
    if len(images) != len(labels) or labels.max(initial=0) > 9:
        raise ValueError(
            f"{folder}: expected {len(images)} labels from 0 to 9, one an image, "
            f"got {len(labels)} up to {labels.max(initial=0)}"
        )
    taken = np.isin(labels, range(10) if digits is None else digits)
    if not taken.any():
        raise ValueError(f"{folder}: expected images of the digits {digits}, got none among {len(labels)}")
    pixels = images.reshape(len(images), -1)[taken]
    return _frame(pixels, [f"pixel{k}" for k in range(pixels.shape[1])], [DIGITS[label] for label in labels[taken]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="STREAM")

    def command(name: str, read: Callable[..., pd.DataFrame], **sources: str) -> argparse.ArgumentParser:
        text = (read.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, description=text, help=text)
        for source, what in sources.items():
            sub.add_argument(source, type=Path, help=what)
        home = data_home()
        sub.add_argument("--out", type=Path, default=home, help="folder (TSFORECAST_DATA; default: %(default)s)")
        sub.add_argument("--name", default=name, help="of the stream (default: %(default)s)")
        sub.set_defaults(read=read)
        return sub

    command("elec2", read_elec2, path="elecNormNew.arff, or the same as CSV")
    command("noaa", read_noaa, data="NEweather_data.csv", classes="NEweather_class.csv")
    gas = command("gas-drift", read_gas, folder="with batch1.dat to batch10.dat")
    gas.add_argument("--batches", type=int, nargs="+", default=list(range(1, 11)), help="to take (default: all ten)")
    spam = command("spambase", read_spambase, path="spambase.data")
    table = command("uci-regression", read_regression, path="numbers, with or without a row of names")
    table.add_argument("--column", help="name of the target (default: the last column)")
    for sub in (gas, spam, table):
        order = sub.add_mutually_exclusive_group()
        order.add_argument(
            "--seed", type=int, default=0, help="of a random order, of gas-drift in each batch (default: %(default)s)"
        )
        order.add_argument("--keep-order", dest="seed", action="store_const", const=None, help="that of the file")
    mnist = command("mnist", read_mnist, folder="with train-images-idx3-ubyte[.gz] and so on, or mnist.npz")
    mnist.add_argument("--part", choices=list(PARTS), default="train", help="(default: %(default)s)")
    mnist.add_argument(
        "--digits", type=int, nargs="+", choices=range(10), metavar="DIGIT", help="to take (default: all)"
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options = vars(_parser().parse_args(arguments))
    read, out, name = (options.pop(key) for key in ("read", "out", "name"))
    try:
        frame = read(**options)
        out.mkdir(parents=True, exist_ok=True)
        with replace_file(out / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, lineterminator="\n")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    log.info("%s: %d rows, %d features", out / f"{name}.csv", len(frame), frame.shape[1] - 1)
    if not pd.api.types.is_numeric_dtype(frame["target"]):
        log.info("classes: %s", ", ".join(f"{k} {n}" for k, n in frame["target"].value_counts().items()))


if __name__ == "__main__":
    main()
