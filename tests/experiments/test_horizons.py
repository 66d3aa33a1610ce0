"""Scores an hour, a day and a week ahead, on paths whose quantiles are known."""

import numpy as np
import pandas as pd
import pytest
from gluonts.model import SampleForecast

from experiments.horizons.run import DAY, WEEK, scored


def test_scopes_are_scored_by_the_joint_paths():
    start = pd.Period("2024-01-10", "h")
    past = {"target": np.arange(3.0 * DAY)}  # a seasonal error of 24
    level = np.linspace(-1, 1, 201)[:, None]  # paths that stay where they are, from -1 to 1
    forecast = SampleForecast(np.broadcast_to(level, (201, WEEK)).copy(), start)
    label = np.full(WEEK, 0.5)
    label[0], label[-DAY:] = 0.9, 0.0
    found = scored(past, {"target": label}, forecast)
    held = {scope: one["coverage_80"] for scope, one in found.items()}
    assert held["1"] == 0  # beyond .8
    assert (held["day 1"], held["day 2"], held["day 7"]) == (pytest.approx(23 / 24), 1, 1)
    assert (held["sum of day"], held["max of day"], held["max of week"]) == (1, 0, 0)
    quantiles, levels = np.linspace(-0.8, 0.8, 9), np.arange(1, 10) / 10
    loss = 2 * np.mean(np.maximum(-levels * quantiles, (1 - levels) * quantiles)) / DAY
    assert found["day 7"]["sql"] == pytest.approx(loss)
