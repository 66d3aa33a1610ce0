"""Calls of the compiled program: the tensors that it takes, and their hand-over."""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tsforecast.core.kernels.building import SWITCH, loaded
from tsforecast.core.torch_internals import has_tangent, is_recorded, is_wrapped, may_transform

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
# What the pointers of every function point at: n numbers, m a mask, i integers, f which filters failed.
_POINTERS = {
    "push_forward": "nnnnn nnn",
    "push_backward": "nnn nnn nnnn",
    "condition_forward": "nnnnnm nnnf",
    "condition_backward": "nnnm nnn nnn",
    "propose_forward": "nnnnnnnnnm nnnnf",
    "propose_backward": "nnnnnnnm nnnnn nnnnn",
    "chain_forward": "nmnn nnnnnn nnnfn",
    "chain_backward": "nmnn nnnnnn nnnn nnn nnnnnn",
    "structural_forward": "nnnnninnnnm nnnnf",
    "structural_backward": "nnnninnnnm nnnn nnnnnnn",
    "innovation_forward": "inmminnnnnn nnnnn",
    "innovation_backward": "inmminnnnnn nnnnn nnnnnn",
    "mixture_quantiles": "nnnnin n",
    "mixture_means": "nnnnin n",
    "regimes_smooth": "nnnn nnnn",
}
_TYPES = {"m": torch.bool, "i": torch.int64, "f": torch.int32}


def serves(
    count: int,
    sizes: tuple[int, ...],
    *numbers: Tensor | None,
    masks: tuple[Tensor | None, ...] = (),
    largest: int = LARGEST,
    fewest: int = FEWEST,
) -> bool:
    """Whether so many filters of these sizes go through the program. All else is left to torch.

    Args:
        count: Number of filters.
        sizes: Of states and observations.
        numbers: All of one type, float32 or float64.
        masks: Of booleans.
        largest: The largest of the sizes.
        fewest: The least number of filters.
    """
    # A recording of torch's operations would miss the call.
    if count < fewest or max(sizes) > largest or min(sizes) == 0 or loaded() is None or is_recorded():
        return False
    dtype = numbers[0].dtype if numbers[0] is not None else None
    if dtype not in _NAMES:
        return False
    transforms = may_transform()
    for given, expected in ((numbers, dtype), (masks, torch.bool)):
        for x in given:
            if x is None:
                continue
            # A lazily negated tensor stores the numbers without their sign.
            if x.dtype is not expected or not x.is_cpu or x.is_neg():
                return False
            # Tensors within a transform have no memory of their own, or a tangent that the program would drop.
            if transforms and (is_wrapped(x) or has_tangent(x)):
                return False
    return True


def fits(x: Tensor | None, lead: tuple[int, int], *event: int) -> bool:
    """Whether a tensor has two leading dimensions, of these sizes or 1, and then exactly these."""
    if x is None:
        return True
    first, second, *rest = x.shape
    return first in (1, lead[0]) and second in (1, lead[1]) and (*rest,) == event


def call(name: str, count: int, sizes: tuple[int, ...], *tensors: Tensor | None) -> int:
    """Run a function of the program and return its result.

    Args:
        name: Of the function, without its type.
        count: Number of filters.
        sizes: Of observation and state.
        tensors: In the order of the function, contiguous; None for a null pointer.

    Raises:
        TypeError: If the memory of a tensor is not what the function reads.
    """
    program = loaded()
    assert program is not None
    dtype = next(x.dtype for x in tensors if x is not None and x.dtype in _NAMES)
    function, types = _function(program, name, dtype)
    transforms, pointers = may_transform(), []
    for x, expected in zip(tensors, types, strict=True):
        if x is None:
            pointers.append(None)
            continue
        if x.dtype is not expected or not x.is_contiguous() or not x.is_cpu or (transforms and has_tangent(x)):
            raise TypeError(
                f"{name} reads contiguous {expected} on the CPU without derivatives in forward mode. Tensor "
                f"{len(pointers)} is {x.dtype} on {x.device}. {SWITCH}=0 leaves all to torch."
            )
        pointers.append(x.data_ptr())
    threads = max(1, min(torch.get_num_threads(), count // _FILTERS_PER_THREAD))
    numbers = (count, *sizes[:2], threads, *sizes[2:])  # the program reads the threads behind the two sizes
    return function((ctypes.c_int64 * len(numbers))(*numbers), (ctypes.c_void_p * len(pointers))(*pointers))


@functools.cache
def _function(program: ctypes.CDLL, name: str, dtype: torch.dtype) -> tuple[Any, list[torch.dtype]]:
    """Return a function of the program, and the types behind its pointers."""
    function = getattr(program, f"{name}_{_NAMES[dtype]}")  # C has no templates: each type is a function
    function.restype = ctypes.c_int64
    return function, [_TYPES.get(letter, dtype) for letter in _POINTERS[name].replace(" ", "")]


def flat(x: Tensor | None, batch: torch.Size, *event: int) -> Tensor | None:
    """Return a tensor in one piece, with an entry for every filter: its sizes are those of the batch, then these."""
    if x is None:
        return None
    shape = (*batch, *event)
    return (x if x.shape == shape else x.expand(shape)).contiguous()


def anew(
    reference: Callable[..., Any], inputs: tuple[Tensor | None, ...], needs: tuple[bool, ...], bars: tuple[Any, ...]
) -> list[Tensor | None]:
    """Return the cotangents by torch's own operations, so that they can be differentiated again."""
    with torch.enable_grad():
        # Views: the same tensor may be given twice, with a cotangent for each.
        views = [x.view_as(x) if need and x is not None else x for x, need in zip(inputs, needs, strict=True)]
        outputs = reference(*views)
    # The program also returns failures, which the reference does not.
    pairs = [(x, bar) for x, bar in zip(outputs, bars, strict=False) if bar is not None and x.requires_grad]
    wanted = [x for x, need in zip(views, needs, strict=True) if need and x is not None]
    gradients = iter(
        torch.autograd.grad([x for x, _ in pairs], wanted, [b for _, b in pairs], create_graph=True, allow_unused=True)
    )
    return [next(gradients) if need and x is not None else None for x, need in zip(views, needs, strict=True)]
