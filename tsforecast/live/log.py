"""A log of records that are on the disk before they are acknowledged.

The file begins with `HEADER` bytes: a mark, the identity of the store, and the number of its first record. A record is
its length and a CRC-32 of length and contents, then the contents. A kill or a loss of power can leave the last record
torn: such an end is cut when the file is opened. Damage before the end is an error.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tsforecast.data.files import replace_file

_MARK = b"tsflive1"
_HEAD = struct.Struct("<8s16sQ")
_FRAME = struct.Struct("<II")
HEADER = _HEAD.size
MOST_BYTES = 1 << 28  # of a record


class Log:
    """The open end of a log: records are added, and flushed.

    Args:
        path: Of a file that `create` made and `read` has gone through.
        size: Bytes up to the end of its last whole record; what lies behind is cut.

    Raises:
        OSError: If the file can not be opened.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._handle = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
        self._cut(size)

    def append(self, contents: bytes) -> None:
        """Add a record, which `flush` brings onto the disk.

        Raises:
            OSError: If it can not be written, as when the disk is full; then nothing is added.
        """
        head = struct.pack("<I", len(contents))
        record = memoryview(_FRAME.pack(len(contents), zlib.crc32(contents, zlib.crc32(head))) + contents)
        written = 0
        try:
            while written < len(record):
                written += os.write(self._handle, record[written:])
        except OSError:
            self._cut(self.size)
            raise
        self.size += len(record)

    def flush(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            OSError: If they do not get there. What the disk holds is then unknown: the log must not be written on.
        """
        getattr(os, "fdatasync", os.fsync)(self._handle)

    def cut_to(self, size: int) -> None:
        """Remove the records behind a size."""
        self._cut(size)
        self.size = size

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._handle, size)
        os.lseek(self._handle, size, os.SEEK_SET)


def create(path: Path, store: bytes, first: int) -> None:
    """Writes a log without records, whole or not at all.

    Args:
        path: Of the file.
        store: Identity of the store, 16 bytes.
        first: Number of the first record.
    """
    with replace_file(path) as temporary:
        temporary.write_bytes(_HEAD.pack(_MARK, store, first))


def read(path: Path, store: bytes, first: int) -> Iterator[tuple[bytes, int]]:
    """Return the records of a log, and the size of the file up to the end of each.

    A torn end has no record: one that reaches beyond the file, one whose check fails at its very end, or zeros.

    Args:
        path: Of the file.
        store: Identity that it should have.
        first: Number of the first record that it should have.

    Raises:
        ValueError: If it is of another store, or damaged before its end.
        OSError: If it can not be read.
    """
    with path.open("rb") as file:
        head = file.read(HEADER)
        if len(head) < HEADER or _HEAD.unpack(head) != (_MARK, store, first):
            raise ValueError(f"{path} is no log of this store from record {first} on; restore the file")
        end = os.fstat(file.fileno()).st_size
        place = HEADER
        while frame := file.read(_FRAME.size):
            if len(frame) < _FRAME.size:
                return
            length, check = _FRAME.unpack(frame)
            behind = place + _FRAME.size + length
            if behind > end:
                return
            contents = file.read(length) if length <= MOST_BYTES else b""
            if zlib.crc32(contents, zlib.crc32(frame[:4])) != check or len(contents) < length:
                if behind == end or (not any(frame) and _only_zeros(file)):
                    return
                raise ValueError(
                    f"{path}: the record at byte {place} is damaged, and is not the last; restore the file"
                )
            place = behind
            yield contents, place


def _only_zeros(file: BinaryIO) -> bool:
    return not any(any(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))
