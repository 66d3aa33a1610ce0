"""How the process keeps the memory that it frees."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def keep_freed_memory() -> bool:
    """Lets the C library keep up to a gigabyte of freed memory for what is allocated next.

    By default glibc gives freed tensors of some megabytes back to the system, and the next operation waits until the
    system has filled as many fresh pages with zeros.

    Returns:
        Whether the C library takes the advice; others than glibc do not, and nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 32 << 20) and mallopt(_TRIM_THRESHOLD, 1 << 30))
