"""Names of the files of a store."""

import re
import shutil
from pathlib import Path

_NAMED = re.compile(r"(snapshot-|log-)(\d{16})(\.bin)?")


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
