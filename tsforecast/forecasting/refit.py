"""Forecasts of test windows, by a model that is trained again before each."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from gluonts.model import Forecast, Predictor

from tsforecast.data.task import ForecastTask, instances
from tsforecast.progress import follow, silent_trainings

Train = Callable[[ForecastTask], Predictor]


def refitted(train: Train, task: ForecastTask, num_samples: int | None = None, seed: int = 0) -> list[Forecast]:
    """Return forecasts of the test windows of a task, each by a model that is trained on all values before it.

    What data decide is decided anew before each window.

    Args:
        train: Returns what is trained on `task.train`.
        task: A task with test windows.
        num_samples: Number of sample paths; None for the model's own number, or for none where quantiles are exact.
        seed: Of the sample paths.

    Returns:
        Forecasts in the order of `task.test("rolling")`.
    """
    pasts, _ = instances(task.test("rolling"))
    found: list[Any] = [None] * len(pasts)
    for window in follow(range(task.windows), "refit", task.windows, "windows"):
        with silent_trainings():
            predictor = train(replace(task, windows=task.windows - window))
        torch.manual_seed(seed)
        places = range(window, len(pasts), task.windows)
        forecasts = predicted(predictor, [pasts[place] for place in places], num_samples)
        for place, forecast in zip(places, forecasts, strict=True):
            found[place] = forecast
    return found


def predicted(predictor: Predictor, pasts: list[dict[str, Any]], num_samples: int | None) -> Iterable[Forecast]:
    """Return forecasts behind some pasts; without paths where their number is None and quantiles are exact."""
    if num_samples is None and getattr(predictor, "has_marginals", False):
        num_samples = 0
    return predictor.predict(pasts, num_samples=num_samples)
