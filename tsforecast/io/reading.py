"""Reading files that may come from strangers: their size is bounded before they are parsed, and no code of them runs.

Every function raises one ValueError that names the file and says what was expected.
"""

import bz2
import contextlib
import gzip
import json
import lzma
import math
import os
import re
import types
import typing
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pyarrow import parquet

MOST_TEXT = 1 << 20  # bytes of a file of settings
MOST_RECORD = 1 << 28  # bytes of a file with a line or a name for each series
MOST_DEPTH = 32  # brackets within brackets: parsers call themselves for each, and overflow the stack

# What may unpack to more than this is expected to be at most so many times its size: numbers as text shrink to a tenth.
_UNSUSPECTED = 1 << 28
_MOST_RATIO = 100
_CHUNK = 1 << 20

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = (*_OPENERS, ".zip")
_REFUSED = (".zst", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz")  # pandas unpacks these too: nothing bounds how far
_STRINGS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """The text of a file in UTF-8.

    Args:
        path: Of the file.
        most: Bytes.

    Raises:
        ValueError: If it is longer, or no text.
        OSError: If it can not be opened.
    """
    path = Path(path)
    if not path.is_file():  # not of a pipe or a device, which may never end
        raise FileNotFoundError(f"there is no file {path}")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path}: expected at most {_size(most)}, got {_size(path.stat().st_size)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8 ({error.reason} at byte {error.start})") from error


def parse_json(text: str) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: If it is none, or deeper than `MOST_DEPTH`.
    """
    if text.count("[") + text.count("{") > MOST_DEPTH:
        depth = 0
        for bracket in _BRACKETS.finditer(_STRINGS.sub("", text)):
            depth += 1 if bracket[0] in "[{" else -1
            _check_depth(depth)
    return json.loads(text)


def read_json(path: str | Path, most: int = MOST_RECORD) -> Any:
    """What a JSON file says.

    Raises:
        ValueError: If it is none, or longer than `most` bytes, or deeper than `MOST_DEPTH`.
        OSError: If it can not be opened.
    """
    text = read_text(path, most)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: not readable as JSON ({error})") from error


def check_yaml(text: str) -> None:
    """Refuses YAML that says more than plain values: tags, which name classes; and aliases, which multiply.

    Raises:
        ValueError: If there are any, or it is no YAML, or longer than `MOST_TEXT` or deeper than `MOST_DEPTH`.
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"expected at most {_size(MOST_TEXT)} of YAML, got {_size(len(text))}")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            _check_depth(depth)
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"expected plain values, got an alias (*{event.anchor})")
            if isinstance(event, yaml.ScalarEvent):
                _check_text(event.value)
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise ValueError(f"expected plain values, got the tag {tag}")
    except yaml.YAMLError as error:
        raise ValueError(f"this is no YAML ({error})") from error


def _check_text(text: str) -> None:
    """Refuses a text that is deep itself: parsers of options read texts once more."""
    if sum(text.count(sign) for sign in "[{-?") > MOST_DEPTH:
        depth = 0
        try:
            for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                _check_depth(depth)
        except yaml.YAMLError:  # then nobody reads it as YAML
            return


def read_yaml(path: str | Path) -> Any:
    """What a YAML file says; it may hold plain values only, see `check_yaml`.

    Raises:
        ValueError: If it is none, or longer or deeper than a file of settings can be.
        OSError: If it can not be opened.
    """
    text = read_text(path)
    try:
        check_yaml(text)
        return yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:  # the second of values such as an impossible date
        raise ValueError(f"{path}: {error}") from error


def check_packed(path: str | Path) -> None:
    """Refuses a packed file (.gz, .bz2, .xz or .zip, by its name) that is cut short, damaged, or a bomb.

    Nothing of what it unpacks to is kept. Files of other names pass, but those that pandas would unpack.

    Raises:
        ValueError: If something is wrong; the message says what to do.
    """
    path = Path(path)
    suffix = path.suffix.lower()  # as pandas has it
    if path.name.lower().endswith(_REFUSED):
        raise ValueError(f"{path}: expected a file packed as {', '.join(PACKED)}, or none; unpack it yourself")
    if suffix not in PACKED or not path.is_file():
        return
    try:
        if suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                check_archive(archive, path)
                for member in archive.infolist():
                    with archive.open(member) as file:
                        _count(file.read, path)
        else:
            with _OPENERS[suffix](path, "rb") as file:
                _count(file.read, path)
    except (EOFError, OSError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); fetch or write it again") from error


def open_unpacked(path: str | Path) -> Any:
    """Opens what a packed file (.gz, .bz2, .xz or .zip, by its name) unpacks to, and others as they are, to read bytes.

    Raises:
        ValueError: If an archive has more than one file.
        OSError: If it can not be opened.
    """
    path = Path(path)
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise ValueError(f"{path}: expected an archive of one file, got {len(names)}")
            return archive.open(names[0])
    return _OPENERS.get(path.suffix.lower(), open)(path, "rb")


def _count(read: Callable[[int], bytes], path: Path) -> None:
    """Reads to the end, or as far as is to be expected."""
    size = path.stat().st_size
    expanded = 0
    while chunk := read(_CHUNK):
        expanded += len(chunk)
        _check_expansion(path, size, expanded, "unpack it yourself")


def check_archive(archive: zipfile.ZipFile, path: str | Path) -> None:
    """Refuses a zip archive that unpacks to far more than its size.

    Raises:
        ValueError: If it does.
    """
    expanded = sum(member.file_size for member in archive.infolist())
    _check_expansion(Path(path), Path(path).stat().st_size, expanded, "unpack it, or write it without compression")


def _check_expansion(path: Path, size: int, expanded: int, remedy: str) -> None:
    most = max(_UNSUSPECTED, _MOST_RATIO * size)
    if expanded > most:
        raise ValueError(
            f"{path} has {_size(size)} and unpacks to more than {_size(most)}, which looks like an attack on the "
            f"memory: if it is what you expect, {remedy}"
        )


def check_parquet(path: str | Path) -> None:
    """Refuses a Parquet file that unpacks to far more than its size.

    Raises:
        ValueError: If it does.
        OSError: If it can not be opened, or is none.
    """
    path = Path(path)
    with parquet.ParquetFile(path) as file:
        about = file.metadata
        expanded = sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        expanded = max(expanded, 8 * about.num_rows * about.num_columns)  # equal values are kept once
    _check_expansion(path, path.stat().st_size, expanded, "write it without compression and dictionaries")


def is_parquet(path: Path) -> bool:
    """Whether a path is that of a Parquet file, by its name."""
    return path.name.lower().endswith((".parquet", ".pq"))


def read_parquet(path: Path, columns: list[str] | None = None) -> Any:
    """The frame of a Parquet file, read in this thread alone.

    Args:
        path: Of the file.
        columns: Those to read; None for all.

    Raises:
        ValueError: If it is none, damaged, or a bomb.
    """
    with whole_parquet(path):
        check_parquet(path)
        return parquet.read_table(path, columns=columns, use_threads=False).to_pandas(use_threads=False)


@contextlib.contextmanager
def whole_parquet(path: Path) -> Iterator[None]:
    """Raises a ValueError of one line where a Parquet file is damaged.

    What pandas has written into a file about its columns can be damaged in any way.
    """
    try:
        yield
    except Exception as error:
        raise ValueError(f"{path}: not readable as Parquet ({first_line(error)[:200]})") from error


def load_array(path: str | Path) -> NDArray[Any]:
    """The array of an npy file; one of Python objects, which runs code, is refused.

    Raises:
        ValueError: If the file is damaged, or its header tells of more or less than it has.
        OSError: If it can not be opened.
    """
    with Path(path).open("rb") as file:
        try:
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, dtype = read[np.lib.format.read_magic(file)](file)
            if (
                not dtype.hasobject
                and math.prod(shape) * dtype.itemsize != os.fstat(file.fileno()).st_size - file.tell()
            ):
                raise ValueError(f"expected as many bytes as an array of shape {shape} has")
            file.seek(0)
            return np.load(file, allow_pickle=False)
        except (ValueError, KeyError, EOFError) as error:
            raise ValueError(f"{path}: damaged, or no npy file ({first_line(error)[:200]})") from error


def load_arrays(path: str | Path, wanted: Collection[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Arrays of an npz file; those of Python objects, which run code, are refused.

    Args:
        path: Of the file.
        wanted: Names of the arrays to read; some may not be there.

    Returns:
        The arrays by name, and the names of all others, which were not read.

    Raises:
        ValueError: If the file is damaged, no npz file, or a bomb.
    """
    if not Path(path).is_file():  # nor a pipe or a device, which may never end
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in wanted}
            others = sorted(set(file.files) - set(wanted))
    except OSError:
        raise
    except Exception as error:  # a file can be damaged in any way
        message = first_line(error)[:200]
        known = str(path) in message
        raise ValueError(message if known else f"{path}: damaged, or no npz file ({message})") from error
    for name, values in arrays.items():
        if not isinstance(values, np.ndarray):  # what lies in the archive under its name is given as it is
            raise ValueError(f"{path}: expected an array {name!r}, got something else")
    return arrays, others


def fits(value: Any, annotation: Any) -> bool:
    """Whether a value of a JSON file is of a type, as an argument is annotated."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in arguments)
    if origin is list:
        return isinstance(value, list) and all(fits(member, arguments[0]) for member in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(member, arguments[1]) for member in value.values())
    if annotation in (None, type(None)):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation in (int, str, bool):
        return type(value) is annotation
    raise TypeError(f"a constructor declares the type {annotation}, which no plain value has")


def has_fields(value: Any, kinds: Mapping[str, Any]) -> bool:
    """Whether a value of a JSON file is an object whose fields are of these types."""
    return isinstance(value, dict) and all(fits(value.get(name), kind) for name, kind in kinds.items())


def first_line(error: Exception) -> str:
    """Without torch's advice to load the file without protection."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    return "it holds more than tensors and plain values" if "weights_only" in text else text


def _check_depth(depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ValueError(f"expected at most {MOST_DEPTH} brackets or blocks within each other, got more")


def _size(count: int | float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
