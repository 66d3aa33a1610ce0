"""Phases of a season that always have the same value."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.data.task import ForecastTask
from tsforecast.forecasting import closed_phases
from tsforecast.forecasting.closed_phases import ClosedPhases
from tsforecast.forecasting.default_model import fitted

WEEK, HORIZON = 7, 14


def chances(values, freq="D", horizon=HORIZON, **window):
    """Return values and chances of a series."""
    known = np.full((horizon, 1), np.nan)
    own = {"past_target": values[:, None], "past_observed": np.isfinite(values)[:, None], "known_future": known}
    found = ClosedPhases.of([{**own, **window}], freq, horizon, 1)
    return (np.zeros((2, horizon))) if found is None else (found.values[0, :, 0], found.chances[0, :, 0])


def sales(weeks=20, seed=0):
    """Return sales of a shop that is closed on the last day of each week."""
    found = np.random.default_rng(seed).gamma(9, 10, (weeks, WEEK)).round(1)
    found[:, -1] = 0
    return found.ravel()


def test_a_closed_day_has_its_value_by_the_rule_of_laplace():
    values, found = chances(sales())
    closed = np.arange(HORIZON) % WEEK == WEEK - 1
    assert (values[closed] == 0).all()
    np.testing.assert_allclose(found[closed], 21 / 22, rtol=1e-6)  # zeros of other days would be a miracle
    assert not found[~closed].any()


def test_missing_days_count_for_nothing_and_an_open_one_breaks_the_rule():
    some = sales()
    some[-1] = np.nan
    np.testing.assert_allclose(chances(some)[1].max(), 20 / 21, rtol=1e-6)
    some[-1 - 15 * WEEK] = 3.0
    assert not chances(some)[1].any()
    np.testing.assert_allclose(chances(sales(4))[1].max(), 5 / 6, rtol=1e-2)
    assert not chances(sales(3))[1].any()


def test_zeros_by_chance_constants_and_known_steps_are_no_closed_phases():
    rare = np.random.default_rng(0).poisson(0.1, 20 * WEEK).astype(float)
    assert not chances(rare)[1].any()
    assert not chances(np.full(20 * WEEK, 5.0))[1].any()
    assert not chances(sales(), known_future=np.zeros((HORIZON, 1)))[1].any()


def test_hours_are_compared_with_those_of_other_days():
    rng = np.random.default_rng(0)
    week = rng.gamma(9, 10, (25, WEEK, 24))
    week[:, :, :8] = 0  # at night
    week[:, -1] = 0
    found = chances(week.ravel(), "h", 7 * 24)[1].reshape(WEEK, 24)
    assert (found[:, :8] > 0.95).all()
    assert (found[-1] > 0.95).all()
    assert not found[:-1, 8:].any()


@pytest.mark.parametrize("has_covariate", [False, True])
def test_forecasts_of_closed_days_are_zero(has_covariate):
    """Means, quantiles and paths; with a covariate, whose effect is taken away and given back, too."""
    rng, length = np.random.default_rng(1), 15 * WEEK
    entries = []
    for number in range(3):
        offers = (rng.random(length + HORIZON) < 0.2).astype(float)
        target = sales(15, number) * (1 + offers[:length] * has_covariate)
        given = {"feat_dynamic_real": offers[None]} if has_covariate else {}
        start = pd.Period("2024-01-01", "D")
        entries.append({"item_id": str(number), "start": start, "target": target, **given})
    task = ForecastTask("shops", "D", HORIZON, 0, entries)
    torch.manual_seed(0)
    closed = np.arange(HORIZON) % WEEK == WEEK - 1
    for forecast in fitted(task).predict(task.latest, 200):
        one: Any = forecast
        assert (one.quantiles((0.1, 0.5, 0.9))[:, closed] == 0).all()
        assert (one.quantile(0.5)[~closed] > 20).all()
        chance = 16 / 17
        assert one.mean[closed].max() < 0.1 * one.mean[~closed].min()
        zeros = (one.samples[:, closed] == 0).all(1).mean()
        assert zeros > chance - 4 * np.sqrt(chance * (1 - chance) / 200)
        assert one.weights[closed_phases.NAME] == pytest.approx(chance / WEEK, rel=1e-3)
