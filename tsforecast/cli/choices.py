"""Choices of a run that the user left open, and their reasons."""

import logging
from collections.abc import Mapping
from typing import Any

from jsonargparse import Namespace

from tsforecast.data import ForecastTask
from tsforecast.forecasting.data_summary import DataSummary
from tsforecast.forecasting.grid_training import GridTraining
from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.component_names import component_names, longest_cycle

_SPLIT = ("freq", "prediction_length", "windows")

log = logging.getLogger(__name__)


def choices(
    options: Mapping[str, Any] | Namespace, task: ForecastTask, training: GridTraining, net: AbstractForecaster
) -> dict[str, dict[str, Any]]:
    """Choices for run.json.

    Args:
        options: Of the run: what they give was not chosen.
        task: The data, with the reasons of its split.
        training: Of the model.
        net: The model that it trains.

    Returns:
        Name -> {"value", "reason"}: the split of a user's file, what "auto" stands for, and lengths by frequency.
    """
    found = {name: (getattr(task, name), task.reasons[name]) for name in _SPLIT if name in task.reasons}
    if options.get("components") == "auto":
        found["components"] = ("+".join(component_names("auto", task.freq)), f"by the frequency {task.freq}")
    summary = training.known
    if options.get("transformation") == "auto":
        found["transformation"] = (net.units.transformation, _of_transformation(net.units.transformation, summary))
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


def _of_transformation(name: str, summary: DataSummary) -> str:
    if name == "log1p":
        return "training values are whole numbers but for one in a hundred at most, and none is negative"
    return "training values are no whole numbers" if summary.lowest >= 0 else _lowest(summary)
