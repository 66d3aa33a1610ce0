"""Names of the files of a store, and the reading of an earlier format."""

import logging
import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tsforecast.live.log import HEADER, MOST_BYTES, header

log = logging.getLogger(__name__)

_NAMED = re.compile(r"(snapshot-|log-)(\d{16})(\.bin)?")
_HEAD_BEFORE = struct.Struct("<8s16sQ")
_FRAME_BEFORE = struct.Struct("<II")


def snapshot_of(path: Path, number: int) -> Path:
    """Return the folder of the snapshot before a micro-batch."""
    return path / f"snapshot-{number:016d}"


def log_of(path: Path, number: int) -> Path:
    """Return the file of the log from a micro-batch on."""
    return path / f"log-{number:016d}.bin"


def count_of(path: Path) -> Path:
    """Return the file that counts the acknowledged records."""
    return path / "acknowledged.bin"


def remove_others(path: Path, number: int) -> None:
    """Remove snapshots and logs that are not current: older ones, and one that was not finished."""
    for other in list(path.iterdir()):
        match = _NAMED.fullmatch(other.name)
        if match is not None and int(match[2]) != number:
            shutil.rmtree(other) if other.is_dir() else other.unlink()


def first_before(path: Path) -> int:
    """Return the number of the last snapshot with a log in a store of format 2; the store does not say it.

    Raises:
        ValueError: If there is none.
    """
    numbers = [int(match[2]) for one in path.iterdir() if (match := _NAMED.fullmatch(one.name)) and one.is_dir()]
    numbers = [number for number in numbers if log_of(path, number).is_file()]
    if not numbers:
        raise ValueError(f"{path} has no snapshot with a log; restore the folder")
    return max(numbers)


def read_before(path: Path, store: bytes, first: int) -> Iterator[bytes]:
    """Return the records of a log of format 2; the number of acknowledged ones is not in it.

    A last record that reaches beyond the file, one whose check fails at its very end, and zeros count as torn by a loss
    of power. As a damaged length looks alike, the file is then kept under another name.

    Raises:
        ValueError: If it is of another store, or damaged before its end.
        OSError: If it can not be read.
    """
    with path.open("rb") as file:
        if file.read(HEADER + 1) == header(store, first):
            return  # of this format already: a conversion was stopped that had found no records
        file.seek(0)
        head = file.read(_HEAD_BEFORE.size)
        if len(head) < _HEAD_BEFORE.size or _HEAD_BEFORE.unpack(head) != (b"tsflive1", store, first):
            raise ValueError(f"{path} is no log of this store from record {first} on; restore the file")
        end = os.fstat(file.fileno()).st_size
        place = _HEAD_BEFORE.size
        while frame := file.read(_FRAME_BEFORE.size):
            length, check = _FRAME_BEFORE.unpack(frame) if len(frame) == _FRAME_BEFORE.size else (MOST_BYTES, 0)
            behind = place + len(frame) + length
            contents = file.read(length) if length <= MOST_BYTES and behind <= end else b""
            if zlib.crc32(contents, zlib.crc32(frame[:4])) != check or len(contents) < length:
                if behind >= end or (not any(frame) and _only_zeros(file)):
                    _keep(path, end - place)
                    return
                raise ValueError(
                    f"{path}: the record at byte {place} is damaged, and is not the last; restore the file"
                )
            place = behind
            yield contents


def _keep(path: Path, size: int) -> None:
    kept = path.with_name(f"torn-{path.name}")
    shutil.copyfile(path, kept)
    facts = path, size, kept
    log.warning("%s: its last %d bytes are no whole record, torn or damaged; %s keeps the file as it was", *facts)


def _only_zeros(file: BinaryIO) -> bool:
    return not any(any(chunk) for chunk in iter(lambda: file.read(1 << 20), b""))
