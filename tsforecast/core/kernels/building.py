"""Builds the C++ of this folder, keeps the program in torch's cache of extensions, and loads it.

The source includes no header of torch, so that it compiles within seconds and no version of torch is in the program.
The environment variable TSFORECAST_KERNELS set to 0 leaves all to torch.
"""

import ctypes
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings

import torch

from tsforecast.core.torch_internals import extensions_folder

SWITCH = "TSFORECAST_KERNELS"
_HERE = pathlib.Path(__file__).resolve().parent
_SOURCES = ("filters.cpp", "chain.h", "innovation.h", "steps.h", "structural.h", "small.h")
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
    if os.environ.get(SWITCH) == "0" or command is None or _FAILED:
        return False
    try:
        _compile(command, _program())
    except (OSError, subprocess.SubprocessError) as error:
        _fail(f"{shlex.join(command)} cannot compile it: {getattr(error, 'stderr', None) or error}")
        return False
    loaded.cache_clear()
    return is_ready()


def can_build() -> bool:
    """Whether `build` has anything to do."""
    return not is_ready() and os.environ.get(SWITCH) != "0" and compiler() is not None and not _FAILED


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
    """Return the program, loaded; None where it was not built or is switched off."""
    if os.environ.get(SWITCH) == "0" or platform.system() == "Windows":
        return None
    program = _program()
    try:
        # What another user could have put there is not run.
        if not program.is_file() or program.stat().st_uid != os.getuid():
            return None
        return ctypes.CDLL(str(program))
    except OSError as error:
        _fail(f"{program} cannot be loaded: {error}")
        return None


def _program() -> pathlib.Path:
    """Return where the program is: its name tells sources, options and kind of processor."""
    words = [*_FLAGS, *_MATHS, *_vectors(), platform.system(), platform.machine()]
    digest = hashlib.sha256("\0".join(words).encode())
    for name in _SOURCES:
        digest.update((_HERE / name).read_bytes())
    return extensions_folder() / "tsforecast" / f"filters-{digest.hexdigest()[:16]}.so"


def _vectors() -> tuple[str, ...]:
    return _VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())


def _compile(command: list[str], program: pathlib.Path) -> None:
    """Compile to a file of our own, then move it to its place; with several threads where the compiler knows how."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = pathlib.Path(folder) / program.name
        words = [*command, *_FLAGS, *_MATHS, *_vectors(), str(_HERE / "filters.cpp"), "-o", str(made)]
        run = functools.partial(
            subprocess.run,
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        try:
            run([*words, "-fopenmp"])
        except subprocess.CalledProcessError:
            run(words)
        os.replace(made, program)


def _fail(reason: str) -> None:
    if not _FAILED:
        _FAILED.append(reason)
        warnings.warn(f"Steps of filters are left to torch, which takes longer: {reason[:2000]}", RuntimeWarning, 4)


# Why it could not be built or loaded in this process.
_FAILED: list[str] = []
