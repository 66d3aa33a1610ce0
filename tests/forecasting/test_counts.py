"""Low counts: what counts as such, the models that continue them, and forecasts by these."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch

from tsforecast.data import ForecastTask
from tsforecast.data.effects.link import moved
from tsforecast.data.low_counts import are_low, are_mostly_low
from tsforecast.forecasting import counts
from tsforecast.forecasting.candidates import candidates
from tsforecast.forecasting.counts import count_paths
from tsforecast.forecasting.default_model import fitted

_HORIZON = 14


def _task(values: np.ndarray, freq: str = "D") -> ForecastTask:
    start = pd.Period("2024-01-01", freq)
    entries = [{"item_id": f"part {number}", "start": start, "target": row} for number, row in enumerate(values)]
    return ForecastTask("parts", freq, _HORIZON, 1, entries)


def test_whole_numbers_of_a_small_mean_are_low_counts():
    values = np.array([0.0, 0.0, 3.0, np.nan, 0.0, 1.0] * 2)
    assert are_low(values)
    assert not are_low(np.append(values, 0.5))
    assert not are_low(-values)
    assert not are_low(values + 10)
    assert not are_low(values[:9])
    assert not are_low(np.full(20, np.nan))
    assert are_mostly_low([{"target": values}, {"target": values}, {"target": values + 10}])
    assert not are_mostly_low([{"target": values}, {"target": values + 10}])


def test_a_model_without_forgetting_is_the_conjugate_posterior(monkeypatch):
    """Against SciPy: a gamma prior and Poisson counts have a negative binomial prediction."""
    monkeypatch.setattr(counts, "_DISCOUNTS", np.array([1.0]))
    monkeypatch.setattr(counts, "_NOISES", np.array([1e12]))
    values = np.random.default_rng(0).poisson(1.5, 40).astype(float)
    values[[3, 20]] = np.nan
    seen = np.isfinite(values)
    bank = counts._Bank.of(np.where(seen, values, 0.0), seen, np.ones(45), 1)
    found = [bank.log_likelihood(np.where(seen, values, 0.0), np.array([step]))[0, 0] for step in range(40)]
    shape, scale = 0.5, 0.5 / np.nanmean(values)
    for value, one in zip(values, found, strict=True):
        if np.isfinite(value):
            assert one == pytest.approx(scipy.stats.nbinom(shape, scale / (1 + scale)).logpmf(value), abs=1e-6)
            shape, scale = shape + value, scale + 1
    drawn = count_paths(values, 3, 1).ravel()
    law = scipy.stats.nbinom(shape, scale / (1 + scale))
    error = np.sqrt(3 * law.var() / len(drawn))  # the three steps of a path share a rate
    assert abs(drawn.mean() - law.mean()) < 4 * error


def test_a_season_is_found_and_goes_on():
    rates = np.where(np.arange(210 + 14) % 7 == 3, 4.0, 0.2)
    values = np.random.default_rng(1).poisson(rates[:210]).astype(float)
    means = count_paths(values, 14, 7).mean(0)
    assert means[rates[210:] > 1].min() > 2.5
    assert means[rates[210:] < 1].max() < 1.0


def test_an_exposure_is_no_news_of_the_rate():
    """A campaign that doubles rates: known ahead it says nothing of other steps."""
    exposure = np.where(np.arange(224) % 3 == 0, 6.0, 1.0)
    values = np.random.default_rng(5).poisson(0.4 * exposure[:210]).astype(float)
    means = count_paths(values, 14, 7, exposure).mean(0)
    np.testing.assert_allclose(means / exposure[210:], 0.4, rtol=0.35)
    fair = count_paths(values, 14, 7, np.full(224, 3.0)).mean(0)
    np.testing.assert_allclose(fair, values.mean(), rtol=0.5)


@pytest.mark.parametrize("bend", [np.inf, 1.0, 0.1])
def test_effects_of_covariates_are_exposures(bend):
    size = 0.5
    effect = np.where(np.arange(214) % 5 == 0, 1.0, -0.1)
    raw = np.random.default_rng(6).poisson(np.where(effect > 0, 1.5, 0.3)[:200]).astype(float)
    adjusted = moved(raw, -effect[:200], bend, size)
    window = {"past_effect": effect[:200], "future_effect": effect[200:], "link": np.array([bend, size, 0.0])}
    (paths,) = counts.of_window(adjusted[None], window, 14, 7)
    back = moved(paths, effect[200:], bend, size)
    np.testing.assert_allclose(back, np.rint(back), atol=1e-6)
    assert back.min() > -1e-6
    means = back.mean(0)
    assert means[effect[200:] > 0].min() > 1.5 * means[effect[200:] < 0].max()
    assert counts.of_window(adjusted[None] + 0.3, window, 14, 7) == [None]


def test_a_rate_that_moves_is_followed():
    values = np.random.default_rng(2).poisson(np.repeat([4.0, 0.1, 6.0], 60)).astype(float)
    assert 4.5 < count_paths(values, 5, 1).mean() < 7.5
    assert count_paths(values[:120], 5, 1).mean() < 0.6


def test_paths_are_those_of_the_series_alone():
    values = np.random.default_rng(3).poisson(0.5, (2, 60)).astype(float)
    np.testing.assert_array_equal(count_paths(values[0], 7, 7), count_paths(values[0].copy(), 7, 7))
    one, other = (count_paths(row, 7, 1).sum(1) for row in values)
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))


@pytest.mark.parametrize("values", [np.zeros(30), np.resize([0.0, 9.0], 30), np.r_[np.full(20, np.nan), np.ones(10)]])
def test_few_or_equal_counts_have_finite_paths(values, recwarn):
    found = count_paths(values, 40, 7)
    assert found.shape == (400, 40)
    assert np.isfinite(found).all()
    assert not recwarn.list


def test_auto_compares_them():
    values = np.random.default_rng(4).poisson(0.5, (5, 100)).astype(float)
    assert any("direct" in one.options for one in candidates(_task(values)))
    assert not any("direct" in one.options for one in candidates(_task(values + 20)))


def test_targets_share_weights():
    rng = np.random.default_rng(2)
    entry = {"item_id": "pair", "start": pd.Period("2024-01-01", "D"), "target": rng.poisson(0.3, (2, 300)) * 1.0}
    predictor = fitted(ForecastTask("pair", "D", 5, 0, [entry]))
    predictor.direct = 0.9
    found: Any = next(iter(predictor.predict([entry], num_samples=0)))
    quantiles = np.asarray(found.quantiles((0.5, 0.9, 0.99, 0.999)))
    assert np.isfinite(quantiles).all()
    assert sum(np.mean(one) for one in found.weights.values()) == pytest.approx(1.0)
    assert np.mean(found.weights["counts"]) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_means_and_sums_are_those_of_the_counts(rate, caplog):
    rng = np.random.default_rng(3)
    values = rng.poisson(rate, (19, 50 + _HORIZON)).astype(float)  # too few to train on
    task = _task(values)
    with caplog.at_level(logging.INFO, "tsforecast"):
        predictor = fitted(task)
    assert "models of low counts count for" in caplog.text
    pasts = [past for past, _ in task.test()]
    torch.manual_seed(0)
    exact: list[Any] = list(predictor.predict(pasts, 0))
    drawn: list[Any] = list(predictor.predict(pasts, 400))
    weights = [sum(np.mean(w) for name, w in one.weights.items() if name == "counts") for one in exact]
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
