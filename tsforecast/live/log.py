"""A log of records that are on the disk before they are acknowledged.

The file begins with a header: a mark, the identity of the store, the number of its first record, and a CRC-32 of these.
A record is its number, its length, the check of the record before it, a CRC-32 of these three, its own check, and its
contents. The check is the CRC-32 of these three and the contents: so records form a chain that begins at the header.

The number of acknowledged records is kept elsewhere, see `tsforecast.live.count`. A kill or a loss of power can damage
only the bytes behind them. Any other damage is an error, and the file stays as it is.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tsforecast.io.files import replace_file

_MARK = b"tsflive2"
_HEAD = struct.Struct("<8s16sQ")
_FRAME = struct.Struct("<QII")
_CHECK = struct.Struct("<I")
HEADER = _HEAD.size + _CHECK.size
MOST_BYTES = 1 << 28  # of a record
_ADVICE = "nothing was changed: restore the folder of the store from a copy, or begin a new store and send again"


class End(NamedTuple):
    """A place in a log between two records."""

    number: int  # of the record behind it
    size: int  # bytes before it
    check: int  # of the record before it, or of the header


class Log:
    """The open end of a log: records are added, and flushed.

    Args:
        path: Of a file that `create` made and `read` has gone through.
        end: Behind its last record; what lies behind it is cut.

    Raises:
        OSError: If the file can not be opened.
    """

    def __init__(self, path: Path, end: End) -> None:
        self.path = path
        self._handle = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
        self.cut_to(end)

    def append(self, contents: bytes) -> None:
        """Add a record; `flush` brings it onto the disk.

        Raises:
            OSError: If it can not be written, as when the disk is full; `cut_to` removes what was written of it.
        """
        head, check = _framed(self.end, contents)
        record = memoryview(head + contents)
        written = 0
        while written < len(record):
            written += os.write(self._handle, record[written:])
        self.end = End(self.end.number + 1, self.end.size + len(record), check)

    def flush(self) -> None:
        """Wait until all records are on the disk.

        Raises:
            OSError: If they do not get there. What the disk holds is then unknown.
        """
        flush(self._handle)

    def cut_to(self, end: End) -> None:
        """Remove all that lies behind a place."""
        os.ftruncate(self._handle, end.size)
        os.lseek(self._handle, end.size, os.SEEK_SET)
        self.end = end

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def flush(handle: int) -> None:
    """Wait until the contents of an open file are on the disk."""
    getattr(os, "fdatasync", os.fsync)(handle)


def create(path: Path, store: bytes, first: int) -> End:
    """Write a log without records, whole or not at all, and return its end."""
    with replace_file(path) as temporary:
        temporary.write_bytes(header(store, first))
    return _begin(store, first)


def header(store: bytes, first: int) -> bytes:
    """Return the beginning of a log."""
    return _HEAD.pack(_MARK, store, first) + _CHECK.pack(_begin(store, first).check)


def read(path: Path, store: bytes, first: int, counted: End, *, beyond: bool = False) -> Iterator[tuple[bytes, End]]:
    """Return the records of a log that were acknowledged, and the end of each.

    Args:
        path: Of the file, which is not changed.
        store: Identity that it should have.
        first: Number of the first record that it should have.
        counted: End of the last record that was acknowledged.
        beyond: Whether whole records behind that one are returned as well.

    Raises:
        ValueError: If it is of another store, damaged, or ends before the last record that was acknowledged.
        OSError: If it can not be read.
    """
    if not path.is_file():
        raise ValueError(f"there is no log {path}; {_ADVICE}")
    with path.open("rb") as file:
        if file.read(HEADER) != header(store, first):
            raise ValueError(f"{path} is damaged, or no log of this store from record {first} on; {_ADVICE}")
        end = _begin(store, first)
        while end.number < counted.number:
            record = _record(file, end)
            if record is None:
                raise ValueError(
                    f"{path}: record {end.number} at byte {end.size} is damaged or missing, and records up to "
                    f"{counted.number - 1} were acknowledged; {_ADVICE}"
                )
            contents, end = record
            yield contents, end
        if end != counted:
            raise ValueError(f"{path} is not the log whose records were acknowledged up to {counted.number}; {_ADVICE}")
        while beyond and (record := _record(file, end)):
            contents, end = record
            yield contents, end


def _framed(before: End, contents: bytes) -> tuple[bytes, int]:
    """Return the bytes before the contents of a record, and the check of the record."""
    frame = _FRAME.pack(before.number, len(contents), before.check)
    own = zlib.crc32(frame)
    check = zlib.crc32(contents, own)  # not of bytes with their own check, whose CRC is always the same
    return frame + _CHECK.pack(own) + _CHECK.pack(check), check


def _begin(store: bytes, first: int) -> End:
    """Return the end of a log without records."""
    return End(first, HEADER, zlib.crc32(_HEAD.pack(_MARK, store, first)))


def _record(file: BinaryIO, before: End) -> tuple[bytes, End] | None:
    """Return the next record and its end; None where it is not whole, or does not follow the one before."""
    head = file.read(_FRAME.size + 2 * _CHECK.size)
    if len(head) < _FRAME.size + 2 * _CHECK.size:
        return None
    _, length, _ = _FRAME.unpack_from(head)
    own = _CHECK.unpack_from(head, _FRAME.size)[0]
    if own != zlib.crc32(head[: _FRAME.size]) or length > MOST_BYTES:
        return None  # before so many bytes are read
    contents = file.read(length)
    framed, check = _framed(before, contents)
    return (contents, End(before.number + 1, before.size + len(head) + length, check)) if framed == head else None
