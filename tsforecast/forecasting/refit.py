"""Forecasts of test windows by a model that is trained again before each."""

from dataclasses import replace
from typing import Any

import torch
from gluonts.model import Forecast

from tsforecast.data.task import ForecastTask, instances
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.progress import follow, silent_trainings


def refitted(
    estimator: StateSpaceEstimator, task: ForecastTask, num_samples: int = 100, seed: int = 0
) -> list[Forecast]:
    """Return forecasts of the test windows of a task, each by a model that is trained on all values before it.

    Args:
        estimator: What trains the model; what data decide is decided anew before each window.
        task: A task with test windows.
        num_samples: Number of sample paths.
        seed: Of the sample paths.

    Returns:
        Forecasts in the order of `task.test("rolling")`.
    """
    pasts, _ = instances(task.test("rolling"))
    found: list[Any] = [None] * len(pasts)
    for window in follow(range(task.windows), "refit", task.windows, "windows"):
        with silent_trainings():
            predictor = estimator.train(replace(task, windows=task.windows - window).train)
        torch.manual_seed(seed)
        places = range(window, len(pasts), task.windows)
        forecasts = predictor.predict([pasts[place] for place in places], num_samples=num_samples)
        for place, forecast in zip(places, forecasts, strict=True):
            found[place] = forecast
    return found
