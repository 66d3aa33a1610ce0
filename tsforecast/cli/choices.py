"""Choices of a run that the user left open, those of the data (`auto`, presets), and their reasons."""

import logging
from collections.abc import Mapping
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
from tsforecast.forecasting.data_summary import DataSummary
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.grid_training import GridTraining
from tsforecast.forecasting.selection import Selection
from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.component_names import component_names, longest_cycle

_SPLIT = ("freq", "prediction_length", "windows")

log = logging.getLogger(__name__)

# Options of a run that are neither the model's nor the estimator's.
RUN = frozenset({"config", "recipe"} | {field.name for field in options_of(TrainingOptions)})
DATA = frozenset(field.name for field in options_of(DataOptions))


def choices(
    options: Mapping[str, Any] | Namespace, task: ForecastTask, training: GridTraining, net: AbstractForecaster
) -> dict[str, dict[str, Any]]:
    """Choices for run.json, of the split, "auto" and lengths by frequency: name -> {"value", "reason"}."""
    found = {name: (getattr(task, name), task.reasons[name]) for name in _SPLIT if name in task.reasons}
    if options.get("components") == "auto":
        found["components"] = ("+".join(component_names("auto", task.freq)), f"by the frequency {task.freq}")
    summary = training.known
    if options.get("transformation") == "auto":
        why = "training values are whole numbers but for one in a hundred at most, and none is negative"
        if net.units.transformation != "log1p":
            why = "training values are no whole numbers" if summary.lowest >= 0 else _lowest(summary)
        found["transformation"] = (net.units.transformation, why)
    if options.get("clip") == "auto":
        found["clip"] = (net.units.options.clip, _lowest(summary))
    smooth = longest_cycle(net.dynamics.season_names, task.freq) > 0
    reason = f"by the frequency {task.freq}" + (" and the cycle of the longest smooth season" if smooth else "")
    for name, value in (("context_length", training.context_length), ("train_length", training.train_length)):
        if options.get(name) is None:
            has_own = name == "context_length" and training.model == "markov"
            found[name] = (value or "all", "that of markov, whose regimes last" if has_own else reason)
    if options.get("train_length") is None and training.is_lengthened:
        found["train_length"] = ("all", "a covariate varies in early steps alone")
    if options.get("train_horizon") is None:
        far = training.train_horizon > training.prediction_length
        why = "three forecasts, since the model has no calendar" if far else "that of a forecast"
        found["train_horizon"] = (training.train_horizon, why)
    found["scaling_length"] = (training.context_length or "all", "that of the context")
    return {name: {"value": value, "reason": reason} for name, (value, reason) in found.items()}


def tell(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Logs one line for each choice but those of the split, which were said when the data were read."""
    for name, choice in found.items():
        if name in _SPLIT:
            continue
        log.info("chosen: %s %s: %s", name.replace("_", " "), choice["value"], choice["reason"])


def _lowest(summary: DataSummary) -> str:
    return (
        "no training value is negative" if summary.lowest >= 0 else f"the lowest training value is {summary.lowest:g}"
    )


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
