"""Private parts of torch for which it has no public way; those of its compiler are in `core.loop.compiled`."""

import os
import pathlib
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def is_transformed(x: Tensor) -> bool:
    """Whether it is inside `torch.func.vmap` or `grad` or of a trace, so that its values cannot steer control flow."""
    inside = torch._C._functorch.is_functorch_wrapped_tensor(x)  # pyright: ignore[reportAttributeAccessIssue]
    tracing = torch._C._TorchDispatchModeKey.PROXY  # pyright: ignore[reportAttributeAccessIssue]
    return inside or torch._C._get_dispatch_mode(tracing) is not None  # pyright: ignore[reportAttributeAccessIssue]


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
    """Return where torch keeps the extensions that it compiles; importing its own function for that takes a second."""
    from torch._appdirs import user_cache_dir

    return pathlib.Path(os.environ.get("TORCH_EXTENSIONS_DIR") or user_cache_dir(appname="torch_extensions"))
