"""Builds the C++ of this folder, keeps the program in torch's cache of extensions, and loads it.

The source includes no header of torch, so that it compiles within seconds and no version of torch is in the program.
The name of the file ends with a digest of what it holds. It is loaded only if it is whole, and if this user alone can
write it and its folder.
The environment variable TSFORECAST_KERNELS set to 0 leaves all to torch.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Iterator

import torch

from tsforecast.core.torch_internals import extensions_folder

SWITCH = "TSFORECAST_KERNELS"
_HERE = pathlib.Path(__file__).resolve().parent
_SOURCES = tuple(sorted(path.name for path in _HERE.iterdir() if path.suffix in (".cpp", ".h")))
_FLAGS = ("-std=c++17", "-O3", "-shared", "-fPIC")
# Sums in any order, which vectors need; NaN and inf stay what they are.
_MATHS = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math")
_VECTORS = {
    "AVX512": ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mavx2"),
    "AVX2": ("-mfma", "-mavx2"),
}
_TIMEOUT_SECONDS = 120


def is_ready() -> bool:
    """Whether steps go through the program: it was built, now or earlier, and is not switched off."""
    return loaded() is not None


def build() -> bool:
    """Build the program where that was not done before and a compiler is found.

    Processes that build at once do not wait for each other: the last finished file takes the place of the others.

    Returns:
        Whether the program is ready.

    Warns:
        RuntimeWarning: If it cannot be compiled or loaded; once in a process.
    """
    if is_ready():
        return True
    command = compiler()
    if _is_off() or command is None or _FAILED:
        return False
    try:
        _compile(command)
    except (OSError, subprocess.SubprocessError) as error:
        _FAILED.append(f"{shlex.join(command)} cannot compile it: {getattr(error, 'stderr', None) or error}")
        _warn(_FAILED[0])
        return False
    loaded.cache_clear()  # it has answered that there is none
    if not is_ready():
        _FAILED.append("what was built cannot be loaded")
    return is_ready()


def can_build() -> bool:
    """Whether `build` has anything to do."""
    return not is_ready() and not _is_off() and compiler() is not None and not _FAILED


def _is_off() -> bool:
    # Windows has no `getuid`, no `flock` and other flags.
    return os.environ.get(SWITCH) == "0" or platform.system() == "Windows"


def compiler() -> list[str] | None:
    """Return the command of the C++ compiler, of the environment variable CXX or the first that is found."""
    given = shlex.split(os.environ.get("CXX", ""))
    for words in [given] if given else [["c++"], ["g++"], ["clang++"]]:
        path = shutil.which(words[0])
        if path is not None:
            return [path, *words[1:]]
    return None


@functools.cache
def loaded() -> ctypes.CDLL | None:
    """Return the program, loaded; None where it was not built or is switched off.

    Warns:
        RuntimeWarning: If there is one that cannot be loaded, or must not be. `build` makes it anew.
    """
    if _is_off():
        return None
    try:
        programs, refused = _built(), None
    except ValueError as error:
        _FAILED.append(str(error))
        _warn(_FAILED[0])
        return None
    for program in programs:
        try:
            refused = _refusal(program)
            if refused is None:
                return ctypes.CDLL(str(program))
        except OSError as error:
            refused = f"{program} cannot be loaded: {error}"
    if refused is not None:
        _warn(refused)
    return None


def _built() -> list[pathlib.Path]:
    """Return the files that hold the program: more than one where compilers differed, or a file is damaged."""
    return sorted((extensions_folder() / "tsforecast").glob(f"filters-{_key()}-*.so"))


def _refusal(program: pathlib.Path) -> str | None:
    """Return the reason to refuse a file, or None: others could have written it, or it is damaged."""
    for path, is_right in ((program.parent, stat.S_ISDIR), (program, stat.S_ISREG)):
        status = path.lstat()  # not `stat`: a link could lead to somebody else's file
        writers = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not is_right(status.st_mode) or status.st_uid != os.getuid() or writers:
            return f"{path} is not loaded: others than its owner, who must be you, can write it"
    if _digest(program) != program.stem.rpartition("-")[2]:
        return f"{program} is not loaded: it is damaged"
    return None


def _digest(program: pathlib.Path) -> str:
    return hashlib.sha256(program.read_bytes()).hexdigest()[:32]


def _key() -> str:
    """Return a digest of sources, options and kind of processor."""
    # Machines of several kinds may share a home folder.
    words = [*_FLAGS, *_MATHS, *_vectors(), platform.system(), platform.machine()]
    digest = hashlib.sha256("\0".join(words).encode())
    for name in _SOURCES:
        digest.update((_HERE / name).read_bytes())  # headers, too: a program of older ones must not be loaded
    return digest.hexdigest()[:16]


def _vectors() -> tuple[str, ...]:
    return _VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())


def _compile(command: list[str]) -> None:
    """Compile to a private file, then move it to its place; use several threads if the compiler can."""
    folder = extensions_folder() / "tsforecast"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # a folder that others can write is refused by `loaded`
    with _workspace(folder) as workspace:
        made = workspace / "filters.so"
        words = [*command, *_FLAGS, *_MATHS, *_vectors(), str(_HERE / "filters.cpp"), "-o", str(made)]
        run = functools.partial(
            subprocess.run,
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
            # What a killed compiler leaves there, the next build removes.
            env={**os.environ, "TMPDIR": str(workspace)},
        )
        try:
            run([*words, "-fopenmp"])
        except subprocess.CalledProcessError:  # a compiler without OpenMP
            run(words)
        made.chmod(0o700)
        for program in _built():
            if _refusal(program) is not None:
                program.unlink()
        # In one step: nobody loads half a file.
        os.replace(made, folder / f"filters-{_key()}-{_digest(made)}.so")


@contextlib.contextmanager
def _workspace(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Make an empty folder beside the program, and remove the folders of killed builds.

    Builds share a lock, so a free lock means that none is running. A lock ends with its process.
    """
    import fcntl

    lock = os.open(folder, os.O_RDONLY)  # on the folder itself: no file is left of it
    try:
        with contextlib.suppress(OSError):  # others build, or there are no locks here
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob("building-*/"):
                shutil.rmtree(left, ignore_errors=True)
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as workspace:
            yield pathlib.Path(workspace)
    finally:
        os.close(lock)


def _warn(reason: str) -> None:
    """Say it once in a process."""
    if reason not in _WARNED:
        _WARNED.add(reason)
        warnings.warn(f"Steps of filters are left to torch, which takes longer: {reason[:2000]}", RuntimeWarning, 4)


# Why it could not be built in this process, and what was said.
_FAILED: list[str] = []
_WARNED: set[str] = set()
