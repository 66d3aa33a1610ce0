"""Files and folders that are written whole or not at all."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from tsforecast.io.locks import claim, is_free, lock_open_file, release

_LEFTOVER = re.compile(r"\..*\.part-[0-9a-f]{16}(\.\w+)?", re.DOTALL)
TOGETHER = ".ready"  # the folder of files that are complete, but not all in their places
_ASIDE = ".aside"  # the end of a folder's name while another takes its place
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Return whether a file could not be written because there is no room for it."""
    return error.errno in _FULL


@contextlib.contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Gives the path of a new, empty file that takes the place of `path` when the block ends well.

    The new file lies beside `path` under a name of its own and is on the disk before it takes the place: whatever
    happens, `path` is the old file or the new one. A block that fails leaves nothing behind.
    """
    path = Path(path)
    temporary = _beside(path)
    handle = claim(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    try:
        with _named_if_full(path):
            yield temporary
            _flush(temporary)
            temporary.replace(path)
            _flush(path.parent)
    finally:
        release(handle)
        temporary.unlink(missing_ok=True)


def write_json(path: str | Path, contents: Any, **options: Any) -> None:
    """Writes a file of JSON, whole or not at all, see `replace_file`; options are those of `json.dumps`."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(contents, indent=1, **options) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _named_if_full(path: Path) -> Iterator[None]:
    """Adds the name of a file to the error of a full disk, where that has none."""
    try:
        yield
    except OSError as error:
        if is_full(error) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def append_file(path: str | Path) -> Iterator[TextIO]:
    """Opens a text file to add lines at its end; they are on the disk when the block ends well.

    One process at a time adds; others wait. A block that fails adds nothing. A kill can leave half of a line: whoever
    reads on knows how long the file was.
    """
    path = Path(path)
    with path.open("a", encoding="utf-8", newline="") as guard:
        lock_open_file(guard.fileno(), wait=True)
        size = path.stat().st_size
        try:
            with _named_if_full(path):
                with path.open("a", encoding="utf-8", newline="") as file:
                    yield file
                _flush(path)
        except BaseException:
            os.truncate(path, size)
            raise


@contextlib.contextmanager
def replace_folder(path: str | Path) -> Iterator[Path]:
    """Gives a new, empty folder beside `path` that takes its place, with all its files, when the block ends well."""
    path = Path(path)
    _restore(path)
    aside = path.with_name(f".{path.name}{_ASIDE}")
    with scratch_folder(path.parent, path.name) as temporary:
        yield temporary
        _flush_all(temporary)
        if path.exists():
            path.rename(aside)  # from here to the next line a kill leaves no folder: `_restore` puts this one back
        temporary.rename(path)
        _flush(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(parent: str | Path, name: str = "scratch") -> Iterator[Path]:
    """Gives a new folder, and removes it when the block ends; if killed, `remove_leftovers` finds it by its name."""
    temporary = _beside(Path(parent, name))
    temporary.mkdir()
    handle = None if sys.platform == "win32" else claim(temporary, os.O_RDONLY)
    try:
        yield temporary
    finally:
        release(handle)
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def replace_together(folder: str | Path, names: Sequence[str]) -> Iterator[Path]:
    """Gives a new folder; these of its files take their places in `folder` together at the end, or are removed there.

    The first name is a mark: it is removed before anything else changes and comes back last. While it is there, all
    files are of the same block.
    """
    with replace_folder(Path(folder, TOGETHER)) as scratch:
        yield scratch
    settle_together(folder, names)


def settle_together(folder: str | Path, names: Sequence[str]) -> None:
    """Ends a `replace_together` that was killed when all was written, but not all in its place."""
    folder = Path(folder)
    ready = folder / TOGETHER
    if not ready.is_dir():
        return
    cleared = ready / "cleared"
    if not cleared.exists():
        for name in names:
            _remove(folder / name)
        _flush(folder)
        cleared.touch()
    for name in (*names[1:], names[0]):
        if (ready / name).exists():
            (ready / name).rename(folder / name)
    _flush(folder)
    shutil.rmtree(ready)


def make_folder(folder: str | Path) -> None:
    """Makes a folder to write into, or removes the leftovers of killed processes from one that is there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)


def remove_leftovers(folder: str | Path) -> None:
    """Removes temporary files and folders that killed processes have left in a folder; others are still written.

    A folder that was about to be replaced, and has no successor, is put back.
    """
    folder = Path(folder)
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        if path.name.startswith(".") and path.name.endswith(_ASIDE) and path.is_dir():
            _restore(path.with_name(path.name[1 : -len(_ASIDE)]))
        elif _LEFTOVER.fullmatch(path.name) and not path.is_symlink() and is_free(path):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_checksum(folder: Path) -> str:
    """SHA-256 of the names and contents of all files below a folder, in hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {checksum(path)}\n".encode())
    return digest.hexdigest()


def _beside(path: Path) -> Path:
    """A name for a temporary file or folder, with the suffix: writers choose a format by it."""
    return path.with_name(f".{path.stem[:40]}.part-{secrets.token_hex(8)}{path.suffix}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _restore(path: Path) -> None:
    """Ends a replacement of a folder that was interrupted between its two renames, or after them."""
    aside = path.with_name(f".{path.name}{_ASIDE}")
    if not aside.is_dir():
        return
    if path.exists():
        shutil.rmtree(aside)
    else:
        aside.rename(path)


def _flush_all(folder: Path) -> None:
    """Waits until everything below a folder is on the disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            _flush(Path(root, name))
        _flush(Path(root))


def _flush(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if sys.platform == "win32" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():  # some file systems do not flush folders
            raise
    finally:
        os.close(handle)
