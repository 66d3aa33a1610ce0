"""Private parts of torch that have no public counterpart; those of its compiler are in `core.loop.compiled`."""

import functools
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad


def is_transformed(x: Tensor) -> bool:
    """Whether its values cannot steer control flow: inside `vmap`, `grad`, a trace, or `branchless`."""
    return is_wrapped(x) or is_recorded()


def is_wrapped(x: Tensor) -> bool:
    """Whether it stands for another tensor or for many: inside `vmap` and `grad`."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)  # pyright: ignore[reportAttributeAccessIssue]


def is_recorded() -> bool:
    """Whether operations are recorded to be run later: inside a trace, or `branchless`."""
    tracing = torch._C._TorchDispatchModeKey.PROXY  # pyright: ignore[reportAttributeAccessIssue]
    return _BRANCHLESS[0] or torch._C._get_dispatch_mode(tracing) is not None  # pyright: ignore[reportAttributeAccessIssue]


def may_transform() -> bool:
    """Whether some tensors may be wrapped or have tangents: inside a transformation, or in forward mode."""
    stack = torch._C._functorch.peek_interpreter_stack()  # pyright: ignore[reportAttributeAccessIssue]
    return stack is not None or forward_ad._current_level >= 0


def has_tangent(x: Tensor) -> bool:
    """Whether it carries a derivative in forward mode."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None


@contextmanager
def branchless() -> Iterator[None]:
    """Within it no value steers control flow, so that a GPU is never waited for and a CUDA graph can be captured.

    What fails to factorise gives NaN instead of an error. It holds for all threads: backward passes have their own.
    """
    before, _BRANCHLESS[0] = _BRANCHLESS[0], True
    try:
        yield
    finally:
        _BRANCHLESS[0] = before


def is_branchless() -> bool:
    """Whether `branchless` holds."""
    return _BRANCHLESS[0]


def constant(values: Sequence[Any], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return plain numbers as a tensor on the device of another, for reading only.

    In `branchless` it is remembered: the device would wait for the copy, and none can be captured.
    """
    make = _remembered if is_branchless() else _remembered.__wrapped__
    return make(tuple(values), dtype or torch.int64, like.device)


@functools.lru_cache(maxsize=1024)
def _remembered(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


_BRANCHLESS = [False]


def standard_gamma(shape: Float[Tensor, "*batch"], generator: torch.Generator | None = None) -> Float[Tensor, "*batch"]:
    """Gamma numbers of unit rate, reparametrised; `torch.distributions` takes no generator. See `normal` for devices.

    Args:
        shape: Parameter of the distribution, positive.
        generator: Of random numbers.
    """
    drawn = torch._standard_gamma(shape.to(device_of(generator, shape)), generator=generator)  # pyright: ignore[reportPrivateImportUsage]
    return drawn.to(shape.device)


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Standard normal numbers, the same on every device: they are drawn where the generator is.

    Args:
        shape: Of what is returned.
        like: A tensor of its precision and device.
        generator: Of random numbers, on any device; None for that of the device of `like`.
    """
    where = device_of(generator, like)
    return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=where).to(like.device)


def device_of(generator: torch.Generator | None, like: Tensor) -> torch.device:
    """Return where random numbers are drawn that go beside a tensor: where the generator is, if there is one."""
    return like.device if generator is None else generator.device


def extensions_folder() -> pathlib.Path:
    """Return where torch keeps the extensions that it compiles; importing its own function for that takes a second.

    Raises:
        ValueError: If a variable of the environment names a relative path: anybody's folder may be the working one.
    """
    from torch._appdirs import user_cache_dir

    cache = user_cache_dir(appname="torch_extensions")
    if os.environ.get("XDG_CACHE_HOME") == "":  # counts as unset, which torch overlooks
        cache = pathlib.Path.home() / ".cache" / "torch_extensions"
    folder = pathlib.Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cache)
    if not folder.is_absolute():
        raise ValueError(f"expected TORCH_EXTENSIONS_DIR and XDG_CACHE_HOME to be absolute paths, got {str(folder)!r}")
    return folder
