"""The acknowledged part of a log: a small file that is on the disk before every answer.

It also names the current snapshot and log of the store, so that one write replaces both. The file has two places, on
two sectors of the disk, written in turn. So a loss of power leaves one of them.
"""

import logging
import struct
import zlib
from pathlib import Path

from tsforecast.io.files import replace_file
from tsforecast.live.log import End, flush

log = logging.getLogger(__name__)

_MARK = b"tsfcount"
_PLACE = struct.Struct("<8s16sQQQI")
_CHECK = struct.Struct("<I")
_APART = 4096  # bytes from one place to the other


class Count:
    """The count of a store, written on as the log grows.

    Args:
        path: Of a file that `create` made.
        store: Identity that it should have, 16 bytes.

    Attributes:
        first: Number of the current snapshot and log.
        end: Behind the last record that was acknowledged.
        is_whole: Whether both places were.

    Raises:
        ValueError: If it is missing, damaged in both places, or of another store.
        OSError: If it can not be read.
    """

    def __init__(self, path: Path, store: bytes) -> None:
        self.path, self.store = path, store
        if not path.is_file():
            raise ValueError(f"there is no file {path}, which counts what was acknowledged; restore the folder")
        text = path.read_bytes()
        places = [_unpacked(text[start : start + _APART], store) for start in (0, _APART)]
        whole = [place for place in places if place is not None]
        if not whole:
            raise ValueError(f"{path} is damaged, or not of this store; restore the folder")
        self.is_whole = len(whole) == 2
        self.first, self.end = max(whole, key=lambda place: (place[1].number, place[0]))
        self._newest = places.index((self.first, self.end))
        if not self.is_whole:
            log.warning("%s: one of its two places is damaged; whole records behind the other count", path)

    def write(self, first: int, end: End) -> None:
        """Bring a new count onto the disk, till when the old one stands; after an OSError either may be there."""
        other, text = 1 - self._newest, _packed(self.store, first, end)
        with self.path.open("r+b", buffering=0) as file:
            file.seek(other * _APART)
            if file.write(text) != len(text):
                raise OSError(f"{self.path} could not be written")
            flush(file.fileno())
        self.first, self.end, self._newest = first, end, other


def create(path: Path, store: bytes, first: int, end: End) -> None:
    """Write a count, whole or not at all."""
    text = _packed(store, first, end).ljust(_APART, b"\0")
    with replace_file(path) as temporary:
        temporary.write_bytes(text + text)


def _packed(store: bytes, first: int, end: End) -> bytes:
    text = _PLACE.pack(_MARK, store, first, *end)
    return text + _CHECK.pack(zlib.crc32(text))


def _unpacked(text: bytes, store: bytes) -> tuple[int, End] | None:
    """Return the first record and the end in a place; None where it is damaged or of another store."""
    size = _PLACE.size + _CHECK.size
    if len(text) < size or _CHECK.pack(zlib.crc32(text[: _PLACE.size])) != text[_PLACE.size : size]:
        return None
    mark, identity, first, *end = _PLACE.unpack_from(text)
    return (first, End(*end)) if (mark, identity) == (_MARK, store) else None
