"""What `tsforecast train` lets the data or a preset choose: a model, its components, its options."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentParser, Namespace

from tsforecast.data import ForecastTask
from tsforecast.forecasting import presets
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.candidates import Candidate, structures
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.selection import Selection


def choose(chosen: Namespace, task: ForecastTask, compared: Sequence[Candidate] | None = None) -> Selection:
    """Return what the training part of a task chooses.

    Args:
        chosen: Options of the run.
        task: Its data.
        compared: The candidates; None for those of `auto`.
    """
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    trainer = {"accelerator": chosen.accelerator, "gradient_clip_val": chosen.gradient_clip_val or None}
    options = {"seed": chosen.seed, "time_budget": chosen.time_budget, "trainer_kwargs": trainer}
    estimator = StateSpaceEstimator(AUTO, task.freq, task.prediction_length, models=chosen.get("models"), **options)
    return estimator.choose(task.train, compared)


def options_of_auto(
    command: ArgumentParser, selection: Selection, chosen: Namespace, prediction_length: int
) -> Namespace:
    """Return all options of the training of what was chosen: its own, and those of data and run as they were given.

    Args:
        command: The parser of the training.
        selection: Of a model.
        chosen: Options of the run.
        prediction_length: What windows of training score, as in the comparison, where the candidate says no other.
    """
    candidate = selection.chosen
    found = command.parse_args([candidate.model])[candidate.model]
    for name, value in {**vars(chosen), "train_horizon": prediction_length, **candidate.options}.items():
        if name != "models":
            found[name] = value
    return with_time_left(found, selection)


def with_time_left(chosen: Namespace, selection: Selection) -> Namespace:
    """Return options whose time budget is what a selection has left of it."""
    if chosen.time_budget is not None:
        chosen.time_budget = max(chosen.time_budget - seconds_of(selection), 0.0)
    return chosen


def seconds_of(selection: Selection) -> float:
    """Return what the short trainings took."""
    return sum(trial.seconds for trial in selection.trials)


def as_record(selection: Selection) -> dict[str, Any]:
    """Return what run.json keeps of a selection."""
    return {
        "chosen": str(selection.chosen),
        "reason": selection.reason,
        "seconds": round(seconds_of(selection), 1),
        "candidates": selection.rows(),
    }


def preset_options(argv: Sequence[str], model: str, chosen: Namespace, task: ForecastTask) -> presets.Options:
    """Return the options of the preset; none where a recipe or a configuration has them all."""
    if not chosen.get("preset") or chosen.get("recipe") or chosen.get("config"):
        return {}
    epochs = chosen.max_epochs if _names(argv, "max_epochs") else None
    target = np.asarray(next(iter(task.entries))["target"])
    targets = len(target) if target.ndim > 1 else 1
    return presets.preset(model, task.freq, task.prediction_length, chosen.preset, epochs, targets)


def structure(
    argv: Sequence[str], model: str, chosen: Namespace, task: ForecastTask, options: presets.Options
) -> Selection | None:
    """Return the components that the data choose for the preset `best`; None where they are given, or there are none.

    Args:
        argv: Arguments of the command.
        model: Name of the model.
        chosen: Options of the run.
        task: Its data.
        options: Those of the preset.
    """
    if model != "rsgls-issm" and "components" not in options:
        return None
    if chosen.get("preset") != "best" or _names(argv, "components", "train_horizon"):
        return None
    compared = structures(task)
    return choose(chosen, task, compared) if len(compared) > 1 else None


def with_options(argv: Sequence[str], model: str, options: presets.Options) -> list[str]:
    """Return arguments with options before all others, which count more."""
    place = list(argv).index(model) + 1
    return [*argv[:place], *presets.words(options), *argv[place:]]


def _names(argv: Sequence[str], *options: str) -> bool:
    """Return whether the arguments name one of some options."""
    return any(word.split("=")[0].removeprefix("--") in options for word in argv if word.startswith("--"))
