"""Rare counts: what counts as such, the stretches of the past that continue them, and forecasts by these."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.data import ForecastTask
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.rare import are_rare, stretches

_HORIZON = 14


def _task(values: np.ndarray) -> ForecastTask:
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"part {number}", "start": start, "target": row} for number, row in enumerate(values)]
    return ForecastTask("parts", "D", _HORIZON, 1, entries)


def test_whole_numbers_that_are_mostly_zero_are_rare_counts():
    values = np.array([0.0, 0.0, 3.0, np.nan, 0.0, 1.0])
    assert are_rare(values)
    assert not are_rare(np.append(values, 0.5))
    assert not are_rare(-values)
    assert not are_rare(values + 1)
    assert not are_rare(np.full(3, np.nan))


def test_stretches_begin_whole_seasons_before_the_end():
    values = np.arange(300) % 7 == 299 % 7
    found: Any = stretches(values.astype(float), 10, 7)
    np.testing.assert_array_equal(found, np.broadcast_to(values[:10][(300 % 7 + np.arange(10)) % 7], found.shape))
    assert len(found) == (300 - 10 - 300 % 7) // 7 + 1
    few = np.resize([0.0, 0.0, 1.0], 60)
    many: Any = stretches(few, 10, 7)
    assert len(many) == 51
    assert stretches(few[:30], 10, 7) is None
    assert stretches(np.zeros(60), 10, 7) is None


def test_stretches_come_from_the_latest_values_of_one_mean():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.poisson(3.0, 150), rng.poisson(0.1, 150)]).astype(float)
    found: Any = stretches(values, 5, 1)
    assert len(found) < 160
    assert found.mean() < 0.3
    missing = values.copy()
    missing[200] = np.nan
    left: Any = stretches(missing, 5, 1)
    assert np.isfinite(left).all()


def test_a_half_without_values_says_nothing_of_the_mean(recwarn):
    values = np.resize([0.0, 0.0, 0.0, 1.0], 400)
    values[:190] = np.nan
    assert stretches(values, 5, 1) is not None
    assert not recwarn.list


def test_targets_of_unlike_lengths_share_weights():
    rng = np.random.default_rng(2)
    even = rng.poisson(0.3, 300)
    jumps = np.concatenate([rng.poisson(0.02, 240), rng.poisson(0.4, 60)])
    start = pd.Period("2024-01-01", "D")
    entry = {"item_id": "pair", "start": start, "target": np.stack([even, jumps]).astype(float)}
    task = ForecastTask("pair", "D", 5, 0, [entry])
    predictor = fitted(task)
    predictor.direct = 0.9
    found: Any = next(iter(predictor.predict([entry], num_samples=0)))
    quantiles = np.asarray(found.quantiles((0.5, 0.9, 0.99, 0.999)))
    assert np.isfinite(quantiles).all()
    assert sum(np.mean(one) for one in found.weights.values()) == pytest.approx(1.0)
    assert np.mean(found.weights["past stretches"]) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_means_and_sums_are_those_of_the_counts(rate, caplog):
    rng = np.random.default_rng(3)
    values = rng.poisson(rate, (40, 300 + _HORIZON)).astype(float)
    task = _task(values)
    with caplog.at_level(logging.INFO, "tsforecast"):
        predictor = fitted(task)
    assert "past stretches of rare counts count for" in caplog.text
    pasts = [past for past, _ in task.test()]
    torch.manual_seed(0)
    exact: list[Any] = list(predictor.predict(pasts, 0))
    drawn: list[Any] = list(predictor.predict(pasts, 400))
    weights = [sum(np.mean(w) for name, w in one.weights.items() if name == "past stretches") for one in exact]
    assert np.allclose(weights, predictor.direct, atol=1e-6)
    assert predictor.direct >= 0.5
    means = np.array([one.mean.sum() for one in exact])
    actual = values[:, -_HORIZON:].sum(1)
    low, high = np.quantile([one.samples.sum(1) for one in drawn], [0.1, 0.9], axis=1)
    covered = ((actual >= low) & (actual <= high)).mean()
    assert covered > 0.8 - 3 * np.sqrt(0.8 * 0.2 / len(actual))
    predictor.direct = 0.0
    alone = np.array([one.mean.sum() for one in predictor.predict(pasts, 0)])
    assert abs(means.mean() / (rate * _HORIZON) - 1) < abs(alone.mean() / (rate * _HORIZON) - 1)
