"""Packed files, Parquet and arrays that may come from strangers: their memory is bounded, and no code of them runs.

Every function raises one ValueError that names the file and says what was expected.
"""

import bz2
import contextlib
import gzip
import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from tsforecast.io.reading import first_line, in_bytes

# What may unpack to more than this is expected to be at most so many times its size: numbers as text shrink to a tenth.
_UNSUSPECTED = 1 << 28
_MOST_RATIO = 100
_CHUNK = 1 << 20

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = (*_OPENERS, ".zip")
_REFUSED = (".zst", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz")  # pandas unpacks these too: nothing bounds how far


def check_packed(path: str | Path) -> None:
    """Refuses a packed file (.gz, .bz2, .xz or .zip, by its name) that is cut short, damaged, or a bomb.

    Nothing of what it unpacks to is kept. Files of other names pass, but those that pandas would unpack.
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
    """Opens a file to read bytes, unpacked where it is packed by its name (.gz, .bz2, .xz or .zip of one file)."""
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
    """Raise a ValueError for a zip archive that unpacks to far more than its size."""
    expanded = sum(member.file_size for member in archive.infolist())
    _check_expansion(Path(path), Path(path).stat().st_size, expanded, "unpack it, or write it without compression")


def _check_expansion(path: Path, size: int, expanded: int, remedy: str) -> None:
    most = max(_UNSUSPECTED, _MOST_RATIO * size)
    if expanded > most:
        raise ValueError(
            f"{path} has {in_bytes(size)} and unpacks to more than {in_bytes(most)}, which looks like an attack on the "
            f"memory: if it is what you expect, {remedy}"
        )


def check_parquet(path: str | Path) -> None:
    """Refuses a Parquet file that unpacks to far more than its size, by a ValueError; an OSError if it is none."""
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
    """The frame of a Parquet file, read in this thread alone."""
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
    """The array of an npy file; a ValueError if damaged, or of Python objects, since these run code."""
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
