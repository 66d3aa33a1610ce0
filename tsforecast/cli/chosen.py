"""What `tsforecast train` lets the data decide: the model of `auto`, the preset of a switching model."""

from collections.abc import Callable
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace

from tsforecast.cli.option_groups import DataOptions, TrainingOptions
from tsforecast.cli.records import options_of
from tsforecast.data import ForecastTask
from tsforecast.forecasting import presets
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.selection import Selection

# Options of a run that are neither the model's nor the estimator's.
RUN = frozenset({"config", "recipe"} | {field.name for field in options_of(TrainingOptions)})
DATA = frozenset(field.name for field in options_of(DataOptions))
# Arguments of the estimator that are no options of a run.
_OTHERS = frozenset(
    {
        "model", "freq", "prediction_length", "horizon", "seed", "trainer_kwargs", "num_samples", "models", "preset",
        "series_weights",
    }
)  # fmt: skip


def settled(
    parser: Callable[[list[str]], ArgumentParser], model: str, given: Namespace, chosen: Namespace, task: ForecastTask
) -> tuple[str, Namespace, Selection | None]:
    """Return model and options with all that the training part of a task decides, and what was compared for them.

    Args:
        parser: Makes the parser of some models.
        model: Name of the model, or "auto".
        given: Options that were given: they win over those of a preset.
        chosen: All options of the run.
        task: The data.
    """
    if model != AUTO and model not in presets.SWITCHING:
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
    found = parser([decided.model]).parse_args([decided.model])[decided.model]
    options = {name: value for name, value in decided.__init_args__.items() if name not in _OTHERS}
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
