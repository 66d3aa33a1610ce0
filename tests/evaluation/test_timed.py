"""Scores and baselines of series with clocks of their own."""

import numpy as np
import pytest

from tsforecast.data.task import ForecastTask
from tsforecast.evaluation.metrics import LEVELS
from tsforecast.evaluation.timed import last_value, score_timed, whole_past

HOUR = 3600 * 10**9


def entry(item: str = "a", count: int = 120) -> dict:
    rng = np.random.default_rng(count)
    times = np.sort(rng.integers(0, 200 * HOUR, count))
    return {"item_id": item, "times": times, "target": np.sin(times / HOUR / 3) + 0.05 * rng.standard_normal(count)}


def test_scores_are_sums_over_windows_of_any_length():
    """Oracle: the loss written out, over the values of both windows; one value is missing."""
    past, rng = entry(), np.random.default_rng(0)
    labels = [{"item_id": "a", "times": np.arange(n), "target": rng.standard_normal(n)} for n in (3, 1)]
    labels[0]["target"][1] = np.nan
    quantiles = [np.sort(rng.standard_normal((len(LEVELS), n, 1)), axis=0) for n in (3, 1)]
    found = score_timed([(past, label) for label in labels], quantiles)
    values = np.concatenate([label["target"] for label in labels])
    every = np.concatenate([q[..., 0] for q in quantiles], axis=1)[:, ~np.isnan(values)]
    values = values[~np.isnan(values)]
    level = np.arange(1, 10)[:, None] / 10
    error = values - every[[LEVELS.index(round(k / 10, 1)) for k in range(1, 10)]]
    loss = 2 * np.maximum(level * error, (level - 1) * error).mean(0)
    assert found.overall["crps"] == pytest.approx(loss.sum() / np.abs(values).sum())
    assert found.overall["mse"] == pytest.approx(((every[LEVELS.index(0.5)] - values) ** 2).mean())
    inside = (every[LEVELS.index(0.1)] <= values) & (values <= every[LEVELS.index(0.9)])
    assert found.per_series.loc["a", "coverage_80"] == inside.mean()


def test_persistence_widens_with_the_gap():
    one = entry(count=400)
    one["target"] = np.cumsum(np.random.default_rng(0).standard_normal(400))
    task = ForecastTask("x", "ns", HOUR, 0, [one], gap=HOUR)
    found = last_value(task)(one, one["times"][-1] + np.array([HOUR // 2, 40 * HOUR]))
    wide = found[LEVELS.index(0.9), :, 0] - found[LEVELS.index(0.1), :, 0]
    assert wide[1] > 3 * wide[0]
    assert whole_past(one, np.arange(2))[LEVELS.index(0.5), 1, 0] == pytest.approx(np.median(one["target"]))
