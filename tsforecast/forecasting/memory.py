"""How much memory a training step takes, before there is one: what its forward pass keeps for the gradient."""

import logging
import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tsforecast.models import AbstractForecaster

log = logging.getLogger(__name__)

BYTES = 1.25 * 2**30  # of what a step keeps, where nobody asks for larger batches than usual
_BEHIND = 1.8  # times what the forward pass keeps: gradients, and what is computed on the way back
_FEW, _USUAL = 8, 64  # windows of a batch
_SHARE = 0.5  # of the machine's memory, for larger batches


def bytes_of_step(module: AbstractForecaster, batches: Iterable[dict[str, Tensor]]) -> int:
    """Return about how many bytes a training step takes for each window.

    What the first of some batches would keep is counted, and let go at once; a count beyond the machine ends it. It is
    that of the whole model where it begins as a linear one. No random number is used up, and the module stays as it is.

    Args:
        module: On the CPU.
        batches: As the training has them, but of a single window.

    Raises:
        ValueError: If it is too large for the machine.
    """
    there: dict[int, weakref.ref] = {}  # by address, which what comes later may take again
    total, most, batch = 0, _machine(), next(iter(batches))
    windows = len(batch["past_target"])

    def count(x: Tensor) -> None:
        nonlocal total
        storage = x.untyped_storage()
        address = storage.data_ptr()
        if address not in there:
            there[address] = weakref.ref(storage, lambda _: there.pop(address))
            total += storage.nbytes()
            if _BEHIND * total > windows * most:
                raise ValueError(
                    f"a training step takes more than {most / 2**30:.1f} GiB for one window, half of this machine's "
                    "memory: take a shorter --context_length, a lower --order, fewer --components, or fewer "
                    "--num_particles"
                )

    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(count, lambda _: torch.empty(0)):
        module.inference.loss(batch, False).sum()
    return int(_BEHIND * total / windows)


def windows_within(windows: int, needed: int) -> int:
    """Return how many windows a batch may have, so that a training step stays within its bound; says it if fewer.

    Few windows, which are long, have more than usual.

    Args:
        windows: That are asked for.
        needed: Bytes of each.
    """
    bound = BYTES if _FEW < windows <= _USUAL else max(BYTES, _machine())
    most = max(int(bound / max(needed, 1)), 1)
    if most < windows:
        log.info(
            "windows in a batch: %d instead of %d, since each takes about %.0f MiB in a training step; a shorter "
            "--context_length or fewer --components take less",
            most,
            windows,
            needed / 2**20,
        )
    return min(windows, most)


def _machine() -> float:
    """Return how many bytes of this machine a training step may take."""
    return _SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def measured_on(options: dict[str, Any]) -> bool:
    """Return whether the options of a trainer make it train on the CPU, whose memory is bounded here."""
    accelerator = options.get("accelerator", "auto")
    return accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available())
