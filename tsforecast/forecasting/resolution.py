"""The estimator with what data decide: the candidate of "auto", the preset of a switching model."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.calendar.frequency import calendar_unit, default_season
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting import grid_training, presets
from tsforecast.forecasting.arguments import AUTO
from tsforecast.forecasting.candidates import Candidate, candidates, structures
from tsforecast.forecasting.effect_choice import chosen_effects, earlier_effects
from tsforecast.forecasting.gluonts_estimator import AbstractEstimator
from tsforecast.forecasting.grid_training import CURVES, GIVEN, takes_curves
from tsforecast.forecasting.grid_windows import training_loader
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.regime_choice import categories, regime_options, undecided
from tsforecast.forecasting.selection import Selection, select
from tsforecast.models import MODELS, options_of
from tsforecast.models.parts.markov_choice import ORDERS
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

Estimator = TypeVar("Estimator", bound=AbstractEstimator)
_OF_CATEGORIES = ("switch_dim", "state_dim", "scaling")  # what data say of a categorical switch
_OF_BOTH_SWITCHES = frozenset({  # options that leave the kind of switch open
    "scaling", "transformation", "clip", "num_samples", "seed", "freq", "prediction_length",
})  # fmt: skip
_CHOSEN_BY = 10_000  # series, at least, that choose a model where one bucket at a time is in memory
_OF_TRAINER = frozenset({"max_epochs", "gradient_clip_val", "enable_progress_bar", "callbacks", "logger"})


def with_effects_chosen(estimator: Estimator, data: Iterable[dict[str, Any]]) -> Estimator:
    """Return the estimator with effects of covariates, or without, by windows before the end."""
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, began = estimator.__init_args__, time.monotonic()
    found = chosen_effects(_compared(estimator, data), arguments["seed"], estimator.modelled(data))
    return _with(estimator, {}, effects=found, preset=arguments["preset"], time_budget=left(estimator, began))


def with_preset(
    estimator: Estimator, data: Iterable[dict[str, Any]], from_predictor: StateSpacePredictor | None = None
) -> tuple[Estimator, Selection | None]:
    """Return the estimator with the options of its preset, and what was compared for components and switch."""
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, selection = estimator.__init_args__, None
    model, name = arguments["model"], arguments["preset"]
    began, target = time.monotonic(), np.asarray(next(iter(data))["target"])
    epochs, targets = estimator.trainer_kwargs.get("max_epochs"), len(target) if target.ndim > 1 else 1
    found = presets.preset(model, estimator.freq, estimator.prediction_length, name, epochs, targets, arguments)
    given = {*estimator.trainer_kwargs, *(option for option, value in arguments.items() if value is not None)}
    regimes = _regimes(estimator, data, from_predictor) if name == presets.BEST else None
    has_components = model == "rsgls-issm" or "components" in found
    chosen = None
    if regimes and ("switch" in given or from_predictor is not None):
        chosen = Candidate(model)
    elif name == presets.BEST and not {"components", "train_horizon"} & given:
        selection = _structure(estimator, data, has_components, regimes)
        chosen = selection and selection.chosen
    if chosen and regimes and chosen.model == model:
        found = presets.of_categories(model, epochs) | regimes
    elif chosen and has_components:
        found |= {option: value for option, value in chosen.options.items() if option != "max_epochs"}
    options = {option: value for option, value in found.items() if option not in given}
    log.info("preset %s: %s", name, ", ".join(f"{option}={value}" for option, value in options.items()))
    try:
        return _with(estimator, options, time_budget=left(estimator, began)), selection
    except ValueError as error:
        raise ValueError(f"{error}; with preset 'none' a {model} has its own defaults") from error


def with_regimes(
    estimator: Estimator, data: Iterable[dict[str, Any]], from_predictor: StateSpacePredictor | None = None
) -> Estimator:
    """Return the estimator of a `markov` with the regimes of the data, or of the predictor it starts from."""
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, began = estimator.__init_args__, time.monotonic()
    if (arguments.get("order") or 0) > max(ORDERS):
        _refuse_too_large(estimator, data)
    if from_predictor is None:
        left_of_data = _without_effects(estimator, data)
        options = regime_options(left_of_data, arguments, default_season(estimator.freq), arguments["seed"])
    else:
        own = getattr(from_predictor.network, "hyperparameters", {})
        options = {name: own[name] for name in undecided(arguments) if name in own}
    if arguments.get("form") == "mean" or arguments.get("transition_covariates"):  # EM begins at neither of these
        options["max_epochs"] = estimator.trainer_kwargs.get("max_epochs", presets.DEFAULT_EPOCHS)
    return _with(estimator, options, time_budget=left(estimator, began))


def _refuse_too_large(estimator: AbstractEstimator, data: Any) -> None:
    """Refuse many lags whose training takes too much memory before regimes are looked for, which takes minutes."""
    least = {"regimes": 1, "seasonal": False, "stages": 1}
    given = {name: value for name, value in estimator.__init_args__.items() if name in least and value is not None}
    with warnings_only("tsforecast.forecasting"):  # the training tells it
        training = _with(estimator, {**least, **given}).on_grid.with_past(data)
        data = training.adjusted(data)
        training = training.for_data(data, False, None)
        module = training.module()
        prepared = training.preparation(module.dynamics.season_names).for_windows(training.train_horizon)
        training_loader(training, prepared.apply(data, is_train=True), module, None, estimator.trainer_kwargs)


def _regimes(
    estimator: AbstractEstimator, data: Any, from_predictor: StateSpacePredictor | None
) -> dict[str, Any] | None:
    """Return the options of a categorical switch that data show; None where there may be none."""
    arguments = estimator.__init_args__
    model = arguments["model"]
    if model not in presets.OF_CATEGORIES:
        return None
    given = {name: arguments[name] for name in options_of(MODELS[model]) if arguments.get(name) is not None}
    own = given if from_predictor is None else getattr(from_predictor.network, "hyperparameters", {})
    wanted = own.get("switch")
    if model == "rsgls-issm" and not wanted and calendar_unit(estimator.freq)[1] in ("h", "min"):
        return None  # seasons of hours have so many states that the filter of each category takes long
    if wanted == "gaussian" or not (wanted or given.keys() <= _OF_BOTH_SWITCHES):
        return None
    found = {name: own[name] for name in _OF_CATEGORIES if name in own}
    if len(found) < len(_OF_CATEGORIES):
        found = categories(_without_effects(estimator, data), given, arguments["seed"], least=2 if wanted else 1)
    return found and {"switch": "categorical", **found}


def _without_effects(estimator: AbstractEstimator, data: Any) -> Any:
    """Return entries as the model will see them: without effects of covariates."""
    with warnings_only(grid_training.__name__):  # which the training tells
        data = estimator.modelled(data)
        return estimator.on_grid.with_effects(data, estimator.__init_args__["effects"], None).adjusted(data)


def _structure(
    estimator: AbstractEstimator, data: Any, has_components: bool, regimes: Mapping[str, Any] | None
) -> Selection | None:
    """Return the choice of components and training windows of the `issm` inside, or regimes; None without one."""
    compared = structures(_compared(estimator, data), has_components)
    if regimes is not None:
        compared.append(Candidate(estimator.__init_args__["model"], {"preset": presets.BEST, **regimes}))
    if len(compared) < 2:
        return None
    names = ("accelerator", "devices", "gradient_clip_val")
    trainer = {name: estimator.trainer_kwargs[name] for name in names if name in estimator.trainer_kwargs}
    options = {name: estimator.__init_args__[name] for name in ("seed", "time_budget", "effects")}
    options |= {"model": AUTO, "freq": estimator.freq, "prediction_length": estimator.prediction_length}
    options["totals"] = estimator.totals
    inside = type(estimator)(**options, trainer_kwargs=trainer)
    if options["effects"] == AUTO and inside.on_grid.takes_effects(data):
        inside = with_effects_chosen(inside, data)  # once for all candidates
    return choose(inside, data, compared)


def choose(estimator: AbstractEstimator, data: Any, compared: Sequence[Candidate] | None) -> Selection:
    """Return the model and options that the data choose; see `StateSpaceEstimator.choose`."""
    estimator.on_grid.check(data, estimator.on_grid.train_horizon)
    arguments, task = estimator.__init_args__, _compared(estimator, data)
    earlier = earlier_effects(task, arguments["seed"]) if arguments["effects"] == CURVES else None

    def train(candidate: Candidate, entries: Sequence[dict[str, Any]]) -> StateSpacePredictor:
        quiet = {"enable_progress_bar": False, "callbacks": None, "logger": False}
        found = of_candidate(estimator, candidate, None, **quiet)
        found.totals = False  # of the increments that are compared
        found.earlier_effects = earlier if found.effects == CURVES else None
        return found.train(entries)

    models, budget = arguments["models"], arguments["time_budget"]
    if compared is None and models is not None:
        compared = candidates(task, models.replace(" ", "").split(","))
    half = None if budget is None else 0.5 * budget
    return select(task, train, arguments["seed"], half, compared, arguments["series_weights"])


def _compared(estimator: AbstractEstimator, data: Any) -> ForecastTask:
    """Return the series on which candidates are compared, as they are modelled."""
    seed = estimator.__init_args__["seed"]
    entries = data.sample(_CHOSEN_BY, seed) if isinstance(data, StreamedEntries) else list(data)
    return ForecastTask("data", estimator.freq, estimator.prediction_length, 0, list(estimator.modelled(entries)))


def left(estimator: AbstractEstimator, began: float) -> float | None:
    """Return the seconds that are left of the time budget; None without one."""
    budget = estimator.__init_args__["time_budget"]
    return None if budget is None else max(budget - (time.monotonic() - began), 0.0)


def of_candidate(estimator: Estimator, candidate: Candidate, time_budget: float | None, **trainer: Any) -> Estimator:
    """Return the estimator of a candidate, with a time for its training and other options of the trainer.

    Epochs that the user has given win, but over none. Covariates are given to what takes no effects of them.
    """
    given = estimator.trainer_kwargs.keys() & {"max_epochs"} if candidate.options.get("max_epochs") else ()
    own = {name: value for name, value in candidate.options.items() if name not in given}
    options = {"train_horizon": estimator.on_grid.train_horizon, **own, **trainer}
    arguments = estimator.__init_args__
    curved = takes_curves(candidate.model, {**arguments, **own})
    effects = GIVEN if arguments["effects"] == CURVES and not curved else arguments["effects"]
    return _with(estimator, options, model=candidate.model, time_budget=time_budget, effects=effects)


def _with(estimator: Estimator, options: Mapping[str, Any], **arguments: Any) -> Estimator:
    """Return an estimator with other options, those of the trainer among them, and without a preset."""
    own = {name: value for name, value in options.items() if name not in _OF_TRAINER}
    trainer = {name: value for name, value in options.items() if name in _OF_TRAINER}
    found = {"freq": estimator.freq, "totals": estimator.totals, "preset": presets.NONE}
    given = {**estimator.__init_args__, **found, **arguments, **own}
    return type(estimator)(**{**given, "trainer_kwargs": {**estimator.trainer_kwargs, **trainer}})
