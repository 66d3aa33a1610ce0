"""Training checkpoints that may be damaged or foreign: what is in them is tried before a training goes on from it."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from tsforecast.data.epochs import EpochLoader
from tsforecast.forecasting.pace import Pace
from tsforecast.io.tensors import load_tensors

# What a state of the wrong kind raises in torch and in Lightning.
_FAULTS = (KeyError, IndexError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError, AssertionError)


class CheckOptimizers(pl.Callback):
    """Refuses a checkpoint whose optimizers, schedules or loops do not fit, just before they are restored.

    The loader of batches is told of those that were made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tries the states on copies of what Lightning has made; a ValueError if one does not fit."""
        checkpoint = load_tensors(self.path, pl_module.device)
        place = "its optimizers"
        try:
            for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
                _try_optimizer(optimizer, state)
            place = "its learning rate schedules"
            schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
            for schedule, state in zip(schedules, checkpoint["lr_schedulers"], strict=True):
                trial = copy.deepcopy(schedule)
                trial.load_state_dict(state)
                if not isinstance(trial, ReduceLROnPlateau):  # this schedule steps by a metric
                    trial.step()
            place = "its loops"
            counts = checkpoint["loops"]["fit_loop"]
            _check_counts(counts, trainer.fit_loop.state_dict())
            if isinstance(loader := trainer.train_dataloader, EpochLoader):
                # By itself Lightning does it only where no schedule has asked for the number of batches before.
                loader.load_state_dict(counts["state_dict"]["combined_loader"][0])
        except _FAULTS as error:
            fault = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(
                f"{self.path} is not a readable checkpoint ({place}: {fault:.300}): it is damaged or not of tsforecast"
            ) from error


def _try_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Makes a step with gradients of zero on a copy, which fails for a state of other shapes or values."""
    trial = copy.deepcopy(optimizer)
    trial.load_state_dict(state)
    weights = [weight for group in trial.param_groups for weight in group["params"]]
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    type(trial).step(trial)  # not by the wrapper in which a schedule counts steps
    if not all(bool(weight.isfinite().all()) for weight in weights):
        raise ValueError("weights are not finite after a step")


def _check_counts(given: Any, like: Mapping[str, Any]) -> None:
    """Refuses counts of which one that `like` has is missing or of another type."""
    for name, value in like.items():
        if isinstance(value, Mapping):
            _check_counts(given[name], value)
        elif isinstance(value, list):  # of loaders, each with the number of batches it has made
            for one, other in zip(given[name], value, strict=True):
                _check_counts(one, other)
        elif type(given[name]) is not type(value) or not 0 <= given[name] < 2**63:
            raise ValueError(f"expected {name} to be a {type(value).__name__}, got {given[name]!r:.80}")


def check_callbacks(checkpoint: Mapping[str, Any]) -> None:
    """Raise a ValueError for states of Lightning's callbacks that would fail later, or that name files elsewhere.

    Lightning removes the files and folders that its callback for checkpoints names. It only looks whether a name begins
    with the callback's folder, and takes what is no local path for a file of its own.
    """
    for callback, state in checkpoint.get("callbacks", {}).items():
        if callback == Pace.__qualname__:
            Pace().load_state_dict(state)
        elif callback.startswith("ModelCheckpoint"):
            _check_paths(state)
            scores = [state[key] for key in ("best_model_score", "current_score", "kth_value")]
            for score in filter(lambda score: score is not None, (*scores, *state["best_k_models"].values())):
                if not isinstance(score, torch.Tensor) or score.numel() != 1:
                    raise ValueError(f"expected a score in the state of {callback[:40]}, got {score!r:.80}")
        elif callback.startswith("Timer"):
            for name, seconds in state["time_elapsed"].items():
                if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
                    raise ValueError(f"expected seconds of {name!r}, got {seconds!r:.80}")


def _check_paths(state: Mapping[str, Any]) -> None:
    named = [state[key] for key in ("best_model_path", "kth_best_model_path", "last_model_path")]
    for file in filter(None, (*named, *state["best_k_models"])):
        folder = Path(file).parent
        if ":" in file.removeprefix(folder.drive) or folder.resolve() != folder or str(folder) != state["dirpath"]:
            raise ValueError(f"it names the file {file[:200]!r}, which is none of the run")
