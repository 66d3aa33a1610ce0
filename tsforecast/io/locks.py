"""Locks of the operating system: folders that one process at a time writes into, and temporary files in use."""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EBADF)  # network file systems, and folders on some
_held: set[int] = set()  # open lock files of this process


@contextlib.contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Holds a folder, new if need be, for the block: no other process writes into it; an empty new one is removed.

    The lock is the operating system's: it ends with the process, however that dies.

    Raises:
        ValueError: If another process holds the folder, or the path is that of a file.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; expected a folder")
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = _hold(folder / LOCK)
    _held.add(handle)
    try:
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)  # before it is given up: whoever opened it looks for a new one
        _held.discard(handle)
        os.close(handle)
        if is_new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def contents(folder: Path) -> set[str]:
    """Return the names in a folder, without its lock; none where there is no folder."""
    return {path.name for path in folder.iterdir()} - {LOCK} if folder.is_dir() else set()


def _hold(path: Path) -> int:
    """Opens and locks a lock file, and writes into it who holds it."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if lock_open_file(handle) is False:
            owner = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise ValueError(
                f"{path.parent} is in use by {owner or 'another process'}: wait until it has ended, or take another "
                "folder"
            )
        try:
            is_current = os.path.samestat(os.fstat(handle), os.stat(path))
        except FileNotFoundError:
            is_current = False
        if is_current:
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return handle
        os.close(handle)  # its owner removed it in the meantime


def _forget_locks() -> None:
    """A forked worker must not hold a folder when its parent is dead."""
    for handle in _held:
        os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)


def lock_open_file(handle: int, *, wait: bool = False) -> bool | None:
    """Whether an open file is locked now; None where the file system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def claim(path: Path, flags: int) -> int | None:
    """Opens a temporary file or folder and locks it, so that nobody takes it for a leftover."""
    handle = os.open(path, flags, 0o666)
    if sys.platform == "win32":  # where nothing that is open can be renamed
        os.close(handle)
        return None
    lock_open_file(handle)
    return handle


def release(handle: int | None) -> None:
    """Closes a file of `claim`, and so gives its lock up."""
    if handle is not None:
        os.close(handle)


def is_free(path: Path) -> bool:
    """Whether a temporary file or folder is ours, and nobody writes it any more."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):  # it is removed already, or another user's
        return False
    try:
        return lock_open_file(handle) is True
    finally:
        os.close(handle)
