"""The estimator with what data decide: the candidate of "auto", the preset of a switching model."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.calendar.frequency import default_season
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting import presets
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.candidates import Candidate, candidates, structures
from tsforecast.forecasting.gluonts_estimator import AbstractEstimator
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.regime_choice import regime_options, undecided
from tsforecast.forecasting.selection import Selection, select

log = logging.getLogger(__name__)

Estimator = TypeVar("Estimator", bound=AbstractEstimator)
_CHOSEN_BY = 10_000  # series, at least, that choose a model where one bucket at a time is in memory
_OF_TRAINER = frozenset({"max_epochs", "gradient_clip_val", "enable_progress_bar", "callbacks", "logger"})


def with_preset(estimator: Estimator, data: Iterable[dict[str, Any]]) -> tuple[Estimator, Selection | None]:
    """Return the estimator with the options of its preset, and what was compared for the components.

    Raises:
        ValueError: If the data cannot be trained on, or an option does not go with the preset.
    """
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, selection = estimator.__init_args__, None
    model, name = arguments["model"], arguments["preset"]
    began, target = time.monotonic(), np.asarray(next(iter(data))["target"])
    epochs, targets = estimator.trainer_kwargs.get("max_epochs"), len(target) if target.ndim > 1 else 1
    found = presets.preset(model, estimator.freq, estimator.prediction_length, name, epochs, targets, arguments)
    given = {*estimator.trainer_kwargs, *(option for option, value in arguments.items() if value is not None)}
    options = {option: value for option, value in found.items() if option not in given}
    has_components = model == "rsgls-issm" or "components" in options
    if name == presets.BEST and has_components and not {"components", "train_horizon"} & given:
        selection = _structure(estimator, data)
        chosen = selection.chosen.options if selection else {}
        options |= {option: value for option, value in chosen.items() if option != "max_epochs"}
    log.info("preset %s: %s", name, ", ".join(f"{option}={value}" for option, value in options.items()))
    try:
        return _with(estimator, options, time_budget=left(estimator, began)), selection
    except ValueError as error:
        raise ValueError(f"{error}; with preset 'none' a {model} has its own defaults") from error


def with_regimes(
    estimator: Estimator, data: Iterable[dict[str, Any]], from_predictor: StateSpacePredictor | None = None
) -> Estimator:
    """Return the estimator of a `markov` with the regimes of the data, or of the predictor that it starts from.

    Raises:
        ValueError: If the data cannot be trained on.
    """
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, began = estimator.__init_args__, time.monotonic()
    if from_predictor is None:
        options = regime_options(data, arguments, default_season(estimator.freq), arguments["seed"])
    else:
        own = getattr(from_predictor.network, "hyperparameters", {})
        options = {name: own[name] for name in undecided(arguments) if name in own}
    if arguments.get("form") == "mean" or arguments.get("transition_covariates"):  # which EM does not begin at
        options["max_epochs"] = estimator.trainer_kwargs.get("max_epochs", presets.DEFAULT_EPOCHS)
    return _with(estimator, options, time_budget=left(estimator, began))


def _structure(estimator: AbstractEstimator, data: Any) -> Selection | None:
    """Return what components and windows of training the data choose for the `issm` inside; None without a choice."""
    compared = structures(_compared(estimator, data))
    if len(compared) < 2:
        return None
    names = ("accelerator", "devices", "gradient_clip_val")
    trainer = {name: estimator.trainer_kwargs[name] for name in names if name in estimator.trainer_kwargs}
    options = {name: estimator.__init_args__[name] for name in ("seed", "time_budget")}
    options |= {"model": AUTO, "freq": estimator.freq, "prediction_length": estimator.prediction_length}
    inside = type(estimator)(**options, trainer_kwargs=trainer)
    return choose(inside, data, compared)


def choose(estimator: AbstractEstimator, data: Any, compared: Sequence[Candidate] | None) -> Selection:
    """Return the model and options that the data choose; see `StateSpaceEstimator.choose`."""
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments = estimator.__init_args__

    def train(candidate: Candidate, entries: Sequence[dict[str, Any]]) -> StateSpacePredictor:
        quiet = {"enable_progress_bar": False, "callbacks": None, "logger": False}
        return of_candidate(estimator, candidate, None, **quiet).train(entries)

    task, models, budget = _compared(estimator, data), arguments["models"], arguments["time_budget"]
    if compared is None and models is not None:
        compared = candidates(task, models.replace(" ", "").split(","))
    half = None if budget is None else 0.5 * budget
    return select(task, train, arguments["seed"], half, compared, arguments["series_weights"])


def _compared(estimator: AbstractEstimator, data: Any) -> ForecastTask:
    """Return the series on which candidates are compared."""
    seed = estimator.__init_args__["seed"]
    entries = data.sample(_CHOSEN_BY, seed) if isinstance(data, StreamedEntries) else list(data)
    return ForecastTask("data", estimator.freq, estimator.prediction_length, 0, entries)


def left(estimator: AbstractEstimator, began: float) -> float | None:
    """Return the seconds that are left of the time budget; None without one."""
    budget = estimator.__init_args__["time_budget"]
    return None if budget is None else max(budget - (time.monotonic() - began), 0.0)


def of_candidate(estimator: Estimator, candidate: Candidate, time_budget: float | None, **trainer: Any) -> Estimator:
    """Return the estimator of a candidate, with a time for its training and other options of the trainer.

    Epochs that the user has given win, but over none.
    """
    given = estimator.trainer_kwargs.keys() & {"max_epochs"} if candidate.options.get("max_epochs") else ()
    own = {name: value for name, value in candidate.options.items() if name not in given}
    options = {"train_horizon": estimator.on_grid.train_horizon, **own, **trainer}
    return _with(estimator, options, model=candidate.model, time_budget=time_budget)


def _with(estimator: Estimator, options: Mapping[str, Any], **arguments: Any) -> Estimator:
    """Return an estimator with other options, those of the trainer among them, and without a preset."""
    own = {name: value for name, value in options.items() if name not in _OF_TRAINER}
    trainer = {name: value for name, value in options.items() if name in _OF_TRAINER}
    given = {**estimator.__init_args__, "freq": estimator.freq, "preset": presets.NONE, **arguments, **own}
    return type(estimator)(**{**given, "trainer_kwargs": {**estimator.trainer_kwargs, **trainer}})
