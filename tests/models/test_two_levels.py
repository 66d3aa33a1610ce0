"""Hours by default have a level of days beside one of hours: a week ahead, on series that move at both speeds."""

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from tsforecast import StateSpaceEstimator
from tsforecast.data import ForecastTask
from tsforecast.data.quantiles import forecast_quantiles

DAY, WEEK, WINDOWS, SERIES = 24, 168, 3, 32
ONE_LEVEL = "damped_level+hour_of_day+hour_by_kind_of_day+day_of_week"


@pytest.fixture(scope="module")
def task():
    """A random walk that wanders by two in a week, beside an AR(1) that forgets within a day."""
    slow, fast, noise = np.random.default_rng(0).normal(size=(3, SERIES, 12 * WEEK))
    hours = 3 * np.sin(2 * np.pi * np.arange(12 * WEEK) / DAY)
    values = 0.15 * slow.cumsum(-1) + lfilter([0.6], [1, -0.8], fast, axis=-1) + hours + 0.3 * noise
    start = pd.Period("2024-01-01", "h")
    entries = [{"item_id": str(number), "start": start, "target": one} for number, one in enumerate(values)]
    return ForecastTask("two speeds", "h", WEEK, WINDOWS, entries)


def losses(task, **options):
    """Return the quantile loss of each window."""
    sizes = {"context_length": 2 * WEEK, "batch_size": 8, "num_batches_per_epoch": 4, "seed": 0}
    trainer = {"max_epochs": 20, "enable_progress_bar": False}
    predictor = StateSpaceEstimator("issm", "h", WEEK, trainer_kwargs=trainer, **sizes, **options).train(task.train)
    test, found, levels = task.test(), [], (0.1, 0.5, 0.9)
    for (_, label), forecast in zip(test, predictor.predict(test.input, num_samples=0), strict=True):
        quantiles = forecast_quantiles(forecast, levels)
        error, level = label["target"] - quantiles, np.array(levels)[:, None]
        found.append(np.maximum(level * error, (level - 1) * error).mean())
    return np.array(found)


def test_a_week_ahead_the_default_is_ahead_of_one_level(task):
    gain = losses(task, components=ONE_LEVEL) - losses(task)
    assert gain.mean() > 3 * gain.std(ddof=1) / len(gain) ** 0.5
