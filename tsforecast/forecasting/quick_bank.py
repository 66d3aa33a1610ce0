"""A bank within seconds: its parameters are what other series have taught, or learn in a few steps."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.effects.effects import Effects
from tsforecast.data.effects.fitting import fit_effects
from tsforecast.data.task import ForecastTask
from tsforecast.data.transform import Prepare
from tsforecast.forecasting import grid_training
from tsforecast.forecasting.grid_training import CURVES, GridTraining, build_kernels
from tsforecast.forecasting.grid_windows import training_loader
from tsforecast.forecasting.lengths import INDEPENDENT, effective_number
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.trials import before_windows, comparison, count_windows, loss_of, windows_of
from tsforecast.models.parts.bank_prior import learnt
from tsforecast.models.parts.parameter_groups import learning_rate_factor
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

_BATCH = 32  # windows of a step, at most
_STEPS = 48  # of a training
_RATE, _MOMENTA = 0.2, (0.9, 0.95)  # its learning rate at the beginning, and the memories of Adam


def learnt_in_part(
    task: ForecastTask,
    entries: list[dict[str, Any]],
    seed: int,
    effects: str | Effects,
    weights: str = "equal",
    shares: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 1.0),
) -> StateSpacePredictor:
    """Return a bank between what other series have taught and what these series teach.

    Series that have shocks in common, such as all shops of a town, are few data however many they are: a bank that
    learns from them alone becomes far too sure. Where they count as fewer than ten, parameters go a share of the
    straight way from their beginning to the end of a training, as in robust fine-tuning (Wortsman et al. 2022). The
    share has the least CRPS on windows before the end, after a training on what lies before these.

    Args:
        task: The task.
        entries: Series that teach.
        seed: Of what is random in training.
        effects: Of covariates, or whether they have some, see `GridTraining.with_effects`.
        weights: Of series in the CRPS, see `shares_of`.
        shares: Of the way that may be gone.
    """
    count = effective_number(entries, default_season(task.freq))
    if count >= INDEPENDENT:
        return _trained(task, entries, seed, effects).at(1.0)
    own = ForecastTask(task.name, task.freq, task.prediction_length, 0, entries)
    said = f"a bank learns from {len(entries)} series worth {count:.1f} independent ones"
    if (held_out := comparison(own, seed)) is None:
        if learnt(task.freq) is None:
            return _trained(task, entries, seed, effects).at(1.0)
        log.info("%s, which are too short for a window: parameters stay those that other series have taught", said)
        return conditioned(task, entries, seed, effects)
    before = before_windows(entries, held_out)
    earlier = fit_effects(before, task.freq) if effects == CURVES else None  # which the choice of effects has, too
    with warnings_only(grid_training.__name__):  # effects are told of the last training
        path = _trained(replace(own, entries=before), before, seed, earlier or effects)
    scores = _scores(path, held_out, weights, shares)
    share = min(shares, key=lambda share: scores[share])
    log.info(
        "%s: parameters go %.0f %% of the way of a training, by the CRPS of %s windows before the end (%s)",
        said, 100 * share, count_windows(held_out),
        ", ".join(f"{100 * share:.0f} %: {score:.4g}" for share, score in scores.items()),
    )  # fmt: skip
    return _trained(task, entries, seed, effects).at(share) if share else conditioned(task, entries, seed, effects)


def _scores(path: "_Path", held_out: ForecastTask, weights: str, shares: Sequence[float]) -> dict[float, float]:
    """Return the CRPS of windows by the share of the way."""
    pasts, transform = windows_of(held_out)[0], path.predictor.histories().transform
    if isinstance(transform, Prepare) and transform.effects is not None:
        pasts = [transform.effects.adjusted(past) for past in pasts]  # once for all shares
    return {share: loss_of(path.at(share), held_out, weights, pasts) for share in shares}


def conditioned(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str | Effects
) -> StateSpacePredictor:
    """Return a bank whose parameters are those that other series have taught; see `learnt_in_part`."""
    return _training(task, entries, seed, _BATCH, effects).predictor()


@dataclass(frozen=True)
class _Path:
    """The straight way of parameters from the beginning of a training to its end."""

    predictor: StateSpacePredictor
    begun: list[torch.Tensor]
    ended: list[torch.Tensor]

    def at(self, share: float) -> StateSpacePredictor:
        """Return the predictor, whose parameters are set to those after a share of the way."""
        parameters = [one for one in self.predictor.network.parameters() if one.requires_grad]
        with torch.no_grad():
            for one, begun, ended in zip(parameters, self.begun, self.ended, strict=True):
                one.copy_(torch.lerp(begun, ended, share))
        return self.predictor


def _trained(task: ForecastTask, entries: list[dict[str, Any]], seed: int, effects: str | Effects) -> _Path:
    """Train a bank by a few steps of Adam (Kingma and Ba 2015), and return the way of its parameters.

    It is written out, since optimisers of torch, and Lightning, take seconds to import.
    """
    # Of a few short series, windows of a large batch would be the same again and again.
    windows = sum(max(entry["target"].shape[-1] - task.prediction_length, 1) for entry in entries)
    training = _training(task, entries, seed, int(np.clip(windows // 4, 8, _BATCH)), effects)
    network = training.module()
    prepared = training.preparation(network.dynamics.season_names).for_windows(training.train_horizon)
    loader = training_loader(training, prepared.apply(training.adjusted(entries), True), network, None, {})
    parameters = [one for one in network.parameters() if one.requires_grad]
    begun = [one.detach().clone() for one in parameters]
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
    return _Path(training.predictor(network), begun, [one.detach().clone() for one in parameters])


def _training(
    task: ForecastTask, entries: list[dict[str, Any]], seed: int, batch_size: int, effects: str | Effects
) -> GridTraining:
    """Return the training of a bank, with all that the data say."""
    sizes = task.freq, task.prediction_length, {}, batch_size, _STEPS, seed
    training = GridTraining("bank", *sizes).with_past(entries).with_lengths(None, None, None, "cpu")
    training = training.with_effects(task.train, effects, None, task.columns)  # also of series that teach nothing
    build_kernels()
    return training.for_data(training.adjusted(entries), True, None)
