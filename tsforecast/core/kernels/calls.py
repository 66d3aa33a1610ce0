"""Calls of the compiled program: which tensors it takes, and how they are handed over."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tsforecast.core.kernels.building import loaded
from tsforecast.core.torch_internals import is_transformed

# The largest state or observation: of larger ones a covariance leaves the caches of a core.
LARGEST = 256
# Filters from which on a call pays, and filters for each thread.
FEWEST = 8
_FILTERS_PER_THREAD = 32
# What is said where the adjoint of a whole series is to be differentiated.
ONCE = (
    "The whole-series likelihood is once differentiable. For second derivatives, sum the log-likelihoods of "
    "tsforecast.core.kalman.filter, which is ordinary autograd."
)
_NAMES = {torch.float32: "float32", torch.float64: "float64"}


def serves(
    count: int, sizes: tuple[int, ...], *tensors: Tensor | None, largest: int = LARGEST, fewest: int = FEWEST
) -> bool:
    """Whether so many filters of these sizes go through the program: tensors of one type on the CPU, all plain."""
    if count < fewest or max(sizes) > largest or min(sizes) == 0 or loaded() is None:
        return False
    dtype = tensors[0].dtype if tensors[0] is not None else None
    if dtype not in _NAMES:
        return False
    return all(
        x is None
        or (x.device.type == "cpu" and (x.dtype is dtype or not x.is_floating_point()) and not is_transformed(x))
        for x in tensors
    )


def call(name: str, count: int, sizes: tuple[int, ...], *tensors: Tensor | None) -> int:
    """Run a function of the program and return what it returns.

    Args:
        name: Of the function, without its type.
        count: Number of filters.
        sizes: Of observation and state.
        tensors: In the order of the function, contiguous; None for a null pointer.
    """
    program = loaded()
    assert program is not None
    dtype = next(x.dtype for x in tensors if x is not None and x.dtype in _NAMES)
    function = getattr(program, f"{name}_{_NAMES[dtype]}")
    function.restype = ctypes.c_int64
    threads = max(1, min(torch.get_num_threads(), count // _FILTERS_PER_THREAD))
    numbers = (count, *sizes[:2], threads, *sizes[2:])
    pointers = [None if x is None else x.data_ptr() for x in tensors]
    return function((ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_void_p * len(pointers))(*pointers))


def flat(x: Tensor | None, batch: torch.Size, event: int) -> Tensor | None:
    """Return a tensor with one of it for every filter, in one piece."""
    if x is None:
        return None
    shape = x.shape[x.ndim - event :] if event else ()
    return (x if x.shape == (*batch, *shape) else x.expand(*batch, *shape)).contiguous()


def anew(
    reference: Callable[..., Any], inputs: tuple[Tensor | None, ...], needs: tuple[bool, ...], bars: tuple[Any, ...]
) -> list[Tensor | None]:
    """Return the cotangents of torch's own operations, which can be differentiated again."""
    with torch.enable_grad():
        views = [x.view_as(x) if need and x is not None else x for x, need in zip(inputs, needs, strict=True)]
        outputs = reference(*views)
    pairs = [(x, bar) for x, bar in zip(outputs, bars, strict=False) if bar is not None and x.requires_grad]
    wanted = [x for x, need in zip(views, needs, strict=True) if need and x is not None]
    found = iter(
        torch.autograd.grad([x for x, _ in pairs], wanted, [b for _, b in pairs], create_graph=True, allow_unused=True)
    )
    return [next(found) if need and x is not None else None for x, need in zip(views, needs, strict=True)]
