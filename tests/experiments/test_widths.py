"""Intervals stretched until they hold what they say."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from gluonts.model import QuantileForecast
from scipy.stats import norm

from tests.experiments.test_zeroshot import task_of
from tsforecast.evaluation import score
from tsforecast.evaluation.metrics import LEVELS

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 200  # steps of a forecast


@pytest.fixture(scope="module")
def widths():
    return importlib.import_module("experiments.zeroshot.widths")


@pytest.fixture(scope="module")
def task():
    """White noise, of variance 1."""
    return task_of(np.random.default_rng(0).standard_normal((50, 2 * WIDTH)), WIDTH)


def forecasts(task, deviation):
    """Say of each series that it is white noise of this standard deviation."""
    quantiles = np.repeat(deviation * norm.ppf(LEVELS)[:, None], WIDTH, axis=1)
    for entry in task.test().input:
        start = entry["start"] + len(entry["target"])
        yield QuantileForecast(quantiles, start, [str(level) for level in LEVELS], item_id=entry["item_id"])


@pytest.mark.parametrize("deviation", [0.7, 1.0, 1.6])
def test_the_factor_is_what_intervals_are_too_narrow_by(widths, task, deviation):
    found = widths.stretch(score(forecasts(task, deviation), task.test()))
    # Shares of 10 000 independent labels: three standard errors of .8, at the slope of the coverage there.
    error = 3 * np.sqrt(0.8 * 0.2 / 10_000) / (2 * norm.pdf(norm.ppf(0.9)) * norm.ppf(0.9))
    assert found == pytest.approx(1 / deviation, rel=error)


def test_far_too_narrow_intervals_are_stretched_to_the_widest_that_is_scored(widths, task):
    found = widths.stretch(score(forecasts(task, 0.01), task.test()))
    assert found == pytest.approx(norm.ppf(0.99) / norm.ppf(0.9))


def test_stretched_forecasts_hold_what_they_say(widths, task):
    scores = score(widths.stretched(forecasts(task, 0.8), 1 / 0.8), task.test())
    assert scores.overall["coverage"]["80"] == pytest.approx(0.8, abs=3 * np.sqrt(0.8 * 0.2 / 10_000))
    np.testing.assert_array_equal(
        [forecast.quantile(0.5) for forecast in widths.stretched(forecasts(task, 0.8), 3.0)], 0.0
    )
