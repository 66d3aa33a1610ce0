"""A bank within seconds: its parameters are what other series have taught, or learn in a few steps."""

from typing import Any

import numpy as np
import torch

from tsforecast.data.effects.effects import Effects
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.grid_training import GridTraining, build_kernels
from tsforecast.forecasting.grid_windows import training_loader
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models.parts.parameter_groups import learning_rate_factor

_BATCH = 32  # windows of a step, at most
_STEPS = 48  # of a training
_RATE, _MOMENTA = 0.2, (0.9, 0.95)  # its learning rate at the beginning, and the memories of Adam


def conditioned(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str | Effects
) -> StateSpacePredictor:
    """Return a bank whose parameters are those that other series have taught; see `trained`."""
    return _training(task, entries, seed, _BATCH, effects).predictor()


def trained(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str | Effects
) -> StateSpacePredictor:
    """Return a bank whose parameters have learnt from series by a few steps of Adam (Kingma and Ba 2015).

    It is written out, since optimisers of torch, and Lightning, take seconds to import.

    Args:
        task: The task.
        entries: Series that teach.
        seed: Of what is random in training.
        effects: Of covariates, or whether they have some, see `GridTraining.with_effects`.

    Raises:
        FloatingPointError: If the loss of a step, or its gradient, is not finite.
    """
    # Of a few short series, windows of a large batch would be the same again and again.
    windows = sum(max(entry["target"].shape[-1] - task.prediction_length, 1) for entry in entries)
    training = _training(task, entries, seed, int(np.clip(windows // 4, 8, _BATCH)), effects)
    network = training.module()
    prepared = training.preparation(network.dynamics.season_names).for_windows(training.train_horizon)
    loader = training_loader(training, prepared.apply(training.adjusted(entries), True), network, None, {})
    parameters = [one for one in network.parameters() if one.requires_grad]
    means, squares = ([torch.zeros_like(one) for one in parameters] for _ in range(2))
    for step, batch in enumerate(loader):
        loss = network.loss(batch).mean()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        if not all(bool(torch.isfinite(x).all()) for x in (loss, *gradients) if x is not None):
            raise FloatingPointError(
                f"the loss of step {step} is {loss.item()}, or its gradient is not finite: look for extreme values in "
                "the data"
            )
        rate = _RATE * learning_rate_factor(step, 0, _STEPS)
        with torch.no_grad():
            for one, gradient, mean, square in zip(parameters, gradients, means, squares, strict=True):
                if gradient is None:
                    continue
                mean.lerp_(gradient, 1 - _MOMENTA[0])
                square.lerp_(gradient.square(), 1 - _MOMENTA[1])
                unbiased = (mean / (1 - _MOMENTA[0] ** (step + 1)), square / (1 - _MOMENTA[1] ** (step + 1)))
                one -= rate * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
    return training.predictor(network)


def _training(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, batch_size: int, effects: str | Effects
) -> GridTraining:
    """Return the training of a bank, with all that the data say."""
    sizes = task.freq, task.prediction_length, {}, batch_size, _STEPS, seed
    training = GridTraining("bank", *sizes).with_past(entries).with_lengths(None, None, None, "cpu")
    training = training.with_effects(task.train, effects, None, task.columns)  # also of series that teach nothing
    build_kernels()
    return training.for_data(training.adjusted(entries), True, None)
