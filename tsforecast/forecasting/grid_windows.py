"""The windows that a training on a grid of time sees: how many there are in a batch, and batches in an epoch."""

import math
from typing import Any

from tsforecast.data.epochs import EpochLoader
from tsforecast.forecasting.grid_training import GridTraining
from tsforecast.forecasting.lengths import windows_by_length
from tsforecast.forecasting.memory import bytes_of_step, measured_on, windows_within
from tsforecast.models import AbstractForecaster

_LEAST_BATCHES, _LEAST_POOLED = 4, 12  # few epochs of a few series are not enough
# Batches in an epoch: a sample of the series is enough where all have the same parameters, and where there are so many.
_MOST_POOLED, _MOST = 25, 250


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

    def of(windows: int) -> EpochLoader:
        return EpochLoader(
            data,
            training.context_length or None,
            training.train_horizon,
            windows,
            training.num_batches_per_epoch or _num_batches(training, module),
            training.seed,
            recent=training.train_length or None,
            buffer=buffer or 4096,
            scaling_length=_free_scaling(module),
            count=training.known.count,
            growing=module.dynamics.is_growing,
        )

    windows = _num_windows(training, module)
    if measured_on(trainer):
        windows = windows_within(windows, bytes_of_step(module, of(1)))
    return of(windows)


def validation_loader(training: GridTraining, data: Any, module: AbstractForecaster) -> EpochLoader:
    """Return a loader of the last window of each series that has one."""
    context, scaling = training.context_length or None, _free_scaling(module)
    sizes = (context, training.prediction_length, training.batch_size, None, 0)
    return EpochLoader(data, *sizes, at_end=True, scaling_length=scaling)


def _num_windows(training: GridTraining, module: AbstractForecaster) -> int:
    """Return the number of windows in a batch: fewer long ones, where all series have the same parameters."""
    length = module.data.num_targets * ((training.context_length or 1) + training.train_horizon)
    return min(training.batch_size, windows_by_length(length)) if module.dynamics.is_pooled else training.batch_size


def _num_batches(training: GridTraining, module: AbstractForecaster) -> int:
    """Return the number of batches in an epoch: a pass over the data, within bounds."""
    least, most = (_LEAST_POOLED, _MOST_POOLED) if module.dynamics.is_pooled else (_LEAST_BATCHES, _MOST)
    return min(max(math.ceil(training.known.count / training.batch_size), least), most)


def _free_scaling(module: AbstractForecaster) -> int | None:
    """Return the number of values that scaling is taken from; None where the unit of the data matters to the model."""
    return module.data.scaling_length if module.units.is_scale_free else None
