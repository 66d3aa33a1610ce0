"""The windows that a training on a grid of time sees: how many fit in memory, in a batch, and batches in an epoch."""

import logging
import math
import os
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tsforecast.data.epochs import EpochLoader
from tsforecast.forecasting.grid_training import GridTraining
from tsforecast.forecasting.lengths import windows_by_length
from tsforecast.models import AbstractForecaster

_LEAST_BATCHES, _LEAST_POOLED = 4, 12  # few epochs of a few series are not enough
# Batches in an epoch: a sample of the series is enough where all have the same parameters, and where there are so many.
_MOST_POOLED, _MOST = 25, 250

log = logging.getLogger(__name__)

BYTES = 1.25 * 2**30  # of what a step keeps, where nobody asks for larger batches than usual
_BEHIND = 1.8  # times what the forward pass keeps: gradients, and what is computed on the way back
_FEW, _USUAL = 8, 64  # windows of a batch
_SHARE = 0.5  # of the machine's memory, for larger batches


def training_loader(
    training: GridTraining, data: Any, module: AbstractForecaster, buffer: int | None, trainer: dict[str, Any]
) -> EpochLoader:
    """Return a loader of random windows.

    Args:
        training: Lengths and sizes.
        data: Prepared entries.
        module: The model that is trained.
        buffer: Windows among which the order is shuffled; None for the usual number.
        trainer: Options of Lightning's `Trainer`.
    """
    is_pooled = module.dynamics.is_pooled  # all series have the same parameters: fewer long windows are enough
    least, most = (_LEAST_POOLED, _MOST_POOLED) if is_pooled else (_LEAST_BATCHES, _MOST)

    def of(windows: int) -> EpochLoader:
        return EpochLoader(
            data,
            training.context_length or None,
            training.train_horizon,
            windows,
            training.num_batches_per_epoch
            or min(max(math.ceil(training.known.count / training.batch_size), least), most),
            training.seed,
            recent=training.train_length or None,
            buffer=buffer or 4096,
            scaling_length=_free_scaling(module),
            count=training.known.count,
            growing=module.dynamics.is_growing,
        )

    length = module.data.num_targets * ((training.context_length or 1) + training.train_horizon)
    windows = min(training.batch_size, windows_by_length(length)) if is_pooled else training.batch_size
    accelerator = trainer.get("accelerator", "auto")
    if accelerator == "cpu" or (accelerator == "auto" and not torch.cuda.is_available()):  # whose memory is bounded
        windows = windows_within(windows, bytes_of_step(module, of(1)))
    return of(windows)


def validation_loader(training: GridTraining, data: Any, module: AbstractForecaster) -> EpochLoader:
    """Return a loader of the last window of each series that has one."""
    context, scaling = training.context_length or None, _free_scaling(module)
    sizes = (context, training.prediction_length, training.batch_size, None, 0)
    return EpochLoader(data, *sizes, at_end=True, scaling_length=scaling)


def _free_scaling(module: AbstractForecaster) -> int | None:
    """Return the number of values that scaling is taken from; None where the unit of the data matters to the model."""
    return module.data.scaling_length if module.units.is_scale_free else None


def bytes_of_step(module: AbstractForecaster, batches: Iterable[dict[str, Tensor]]) -> int:
    """Return about how many bytes a training step takes for each window.

    What the first of some batches would keep is counted, and let go at once; a count beyond the machine ends it. It is
    that of the whole model where it begins as a linear one. No random number is used up, and the module stays as it is.
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
