"""Memory of the process: what it keeps, what is not searched for garbage, and what it can not have."""

import atexit
import ctypes
import gc
import itertools
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def keep_freed_memory() -> bool:
    """Lets the C library keep up to a gigabyte of freed memory for what is allocated next.

    By default glibc gives freed tensors of some megabytes back to the system. The next operation then waits until the
    system has filled as many fresh pages with zeros.

    Returns:
        Whether the C library takes the advice; others than glibc do not, and nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # Covariances of 6000 weights have 144 MB, those of particles of many states 50; before version 2.35 no more than
    # 32 is taken.
    kept = any(mallopt(_MMAP_THRESHOLD, size << 20) for size in (256, 32))
    return kept and bool(mallopt(_TRIM_THRESHOLD, 1 << 30))


def imported(name: str) -> ModuleType:
    """Import a module, and leave all that is there then out of the search for garbage.

    The search walks through a million objects of modules, which live as long as the process: again and again while they
    are imported, and once more at the end. That is a third of the seconds of a short command.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        atexit.register(gc.freeze)
        if was_on:
            gc.enable()


def available_memory() -> int | None:
    """Bytes that the process can still take: those of the machine, or of its container; None where nothing tells."""
    found = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if path.is_file() and (limit := path.read_text().strip()).isdecimal():
            found.append(int(limit))
    return min(found, default=None)


def check_forecast_memory(series: int, steps: int, num_samples: int, joint: bool) -> None:
    """Raise a ValueError for forecasts with a batch too large for the memory."""
    least = 4 * series * steps * (2 * num_samples + (2 * steps if joint else 0))  # float32: what is made, and a copy
    there = available_memory()
    if there is not None and least > there:
        drawn, fewer = (f" and {num_samples} sample paths", ", or fewer --num_samples") if num_samples else ("", "")
        raise ValueError(
            f"a batch of {series} series of {steps} steps{drawn} needs at least {least / 2**30:.0f} GiB of memory, of "
            f"which there are {there / 2**30:.0f}; give a shorter --prediction_length{fewer}"
        )


def check_learner_memory(widths: Sequence[int], rank: int) -> None:
    """Raise a ValueError for a learner of a network with weights too many for the memory."""
    weights = sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(widths))
    columns = min(rank, weights)
    least = 8 * weights * (4 + columns)  # float64: the network, the prior, the mean, a variance, and the columns
    there = available_memory()
    if there is not None and least > there:
        raise ValueError(
            f"a network of {weights} weights needs at least {least // 2**30} GiB of memory, of which there are "
            f"{there / 2**30:.0f}; give smaller --hidden, --expected_features, --expected_classes or --rank"
        )


def refused_memory(error: Exception) -> str | None:
    """The lack of memory in a RuntimeError of torch, such as "298 GiB at once"; None where that is not the error."""
    if not isinstance(error, MemoryError) and "DefaultCPUAllocator" not in str(error):
        return None
    found = re.search(r"allocate (\d+) bytes", str(error))
    return f"{int(found[1]) / 2**30:.3g} GiB at once" if found else "a few bytes more"
