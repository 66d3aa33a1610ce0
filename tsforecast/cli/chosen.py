"""Decisions of the data in `tsforecast train`: the model of `auto`, the preset of a switching model."""

from typing import Any

import torch
from jsonargparse import Namespace

from tsforecast.cli import train_parser
from tsforecast.cli.option_groups import DataOptions, TrainingOptions
from tsforecast.cli.records import options_of
from tsforecast.cli.train_parser import NO_OPTIONS, Training
from tsforecast.data import ForecastTask
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.forecasting import presets, regime_choice
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.selection import Selection

# Options of a run that are neither the model's nor the estimator's.
RUN = frozenset({"config", "recipe"} | {field.name for field in options_of(TrainingOptions)})
DATA = frozenset(field.name for field in options_of(DataOptions))


def settled(call: Training, task: ForecastTask) -> tuple[str, Namespace, Selection | None]:
    """Return model and options with all that the training part of a task decides, and what was compared for them.

    Options that were given win over those of a preset.
    """
    model, given, chosen = call.model, call.given, call.chosen
    has_covariates = len(next(iter(task.entries), {}).get(COVARIATES, ())) > 0
    if model not in (AUTO, regime_choice.MODEL, *presets.SWITCHING) and (chosen.effects != AUTO or not has_covariates):
        return model, chosen, None
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    trainer = {"accelerator": chosen.accelerator}
    if model == AUTO or "gradient_clip_val" in given:
        trainer["gradient_clip_val"] = chosen.gradient_clip_val or None
    if "max_epochs" in given:
        trainer["max_epochs"] = chosen.max_epochs
    own = {name: value for name, value in vars(given).items() if name not in RUN | DATA}
    if model == AUTO and "weights" in own:
        own["series_weights"] = own.pop("weights")
    if given.get("config"):  # the options of a recipe or another run, all of them
        own["preset"] = presets.NONE
    estimator = StateSpaceEstimator(
        model, task.freq, task.prediction_length, seed=chosen.seed, trainer_kwargs=trainer, **own
    )
    decided = estimator.settled(task.train)
    if decided is estimator:
        return model, chosen, None
    found = train_parser.options_of(decided.model)
    options = {name: value for name, value in decided.__init_args__.items() if name not in NO_OPTIONS}
    usual = {"max_epochs": found.max_epochs, "gradient_clip_val": chosen.gradient_clip_val}
    trained = {name: decided.trainer_kwargs.get(name, value) for name, value in usual.items()}
    of_run = {name: value for name, value in vars(chosen).items() if name in RUN | DATA}
    found.update(Namespace(**{**of_run, **options, **{name: value or 0 for name, value in trained.items()}}))
    return decided.model, found, estimator.selection


def as_record(selection: Selection) -> dict[str, Any]:
    """Return what run.json keeps of a selection."""
    return {
        "chosen": str(selection.chosen),
        "reason": selection.reason,
        "notes": [*selection.notes],
        "seconds": round(sum(trial.seconds for trial in selection.trials), 1),
        "candidates": selection.rows(),
    }
