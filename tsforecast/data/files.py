"""Writing files whole or not at all."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path, which takes the place of `path` when the block ends well and is removed when it fails."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files of processes that were killed while they wrote; nobody may be writing there."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.\d+\.\w+", path.name):
            path.unlink(missing_ok=True)
