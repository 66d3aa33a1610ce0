"""How far the parameters of a bank go from what other series have taught to what these teach."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.data import ForecastTask
from tsforecast.forecasting import quick_bank
from tsforecast.forecasting.lengths import effective_number
from tsforecast.forecasting.quick_bank import conditioned, learnt_in_part


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(quick_bank, "_STEPS", 4)


def panel(steps: int, horizon: int = 4) -> ForecastTask:
    """Twenty shops, months of which have the same shocks."""
    random = np.random.default_rng(0)
    common = np.cumsum(random.normal(0, 1, steps))
    entries = [
        {"item_id": str(k), "start": pd.Period("2015-01", "M"), "target": 50 + common + random.normal(0, 0.1, steps)}
        for k in range(20)
    ]
    return ForecastTask("panel", "M", horizon, 0, entries)


def parameters(predictor) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in predictor.network.parameters() if one.requires_grad])


def chosen(task: ForecastTask):
    return learnt_in_part(task, list(task.train), 0, "auto")


@pytest.mark.parametrize("best", [0.0, 0.25, 1.0])
def test_parameters_go_the_share_of_the_way_that_forecasts_windows_best(best, monkeypatch, caplog):
    task, losses, shares = panel(30), [], (0.0, 0.25, 0.5, 0.75, 1.0)

    def loss_of(predictor, held_out, weights, pasts):
        assert [past["item_id"] for past in pasts[:3]] == [held_out.entries[0]["item_id"]] * 3
        assert (held_out.windows, weights) == (3, "equal")
        losses.append(parameters(predictor))
        return float(shares[len(losses) - 1] != best)

    monkeypatch.setattr(quick_bank, "loss_of", loss_of)
    with caplog.at_level(logging.INFO):
        found = parameters(chosen(task))
    assert f"takes {100 * best:.0f} % of a training" in caplog.text
    begin, end = parameters(conditioned(task, list(task.train), 0, "auto")), losses[-1]
    assert not torch.equal(begin, end)
    # The training on all series is another one than that before the windows, which the losses are of.
    path = quick_bank._trained(task, list(task.train), 0, "auto")
    torch.testing.assert_close(found, parameters(path.at(best)))
    torch.testing.assert_close(parameters(path.at(0.0)), begin)
    torch.testing.assert_close(losses[2], 0.5 * (losses[0] + losses[4]))


def test_windows_are_not_trained_on(monkeypatch):
    task, seen = panel(30), []
    monkeypatch.setattr(quick_bank, "_trained", lambda task, entries, *_: seen.append(entries) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        chosen(task)
    assert [len(entry["target"]) for entry in seen[0]] == [18] * 20


def test_where_nothing_can_be_compared_parameters_stay(caplog):
    task = panel(8)  # a window would leave no more than its own length before it
    with caplog.at_level(logging.INFO):
        found = parameters(chosen(task))
    assert "too short for a window, so the bank keeps" in caplog.text
    torch.testing.assert_close(found, parameters(conditioned(task, list(task.train), 0, "auto")))


def test_independent_series_teach_all_the_way():
    random = np.random.default_rng(1)
    entries = [{**entry, "target": random.normal(50, 1, 30)} for entry in panel(30).entries]
    task = ForecastTask("alone", "M", 4, 0, entries)
    path = quick_bank._trained(task, entries, 0, "auto")
    torch.testing.assert_close(parameters(chosen(task)), parameters(path.at(1.0)))


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_series_with_shocks_in_common_count_less(correlation):
    """The mean of n series of variance 1 and correlation r has the variance of the mean of n / (1 + (n - 1) r)."""
    random, count = np.random.default_rng(2), 40
    shocks = np.sqrt(correlation) * random.normal(size=4000) + np.sqrt(1 - correlation) * random.normal(
        size=(count, 4000)
    )
    start = pd.Period("2000-01-03", "W-SUN")
    entries = [{"start": start + k, "target": np.cumsum(one)[k:]} for k, one in enumerate(shocks)]
    entries[3]["target"][100:300] = np.nan
    expected = count / (1 + (count - 1) * correlation)
    # Of the mean correlation the error is about sqrt(2) / n + r over the root of the steps.
    error = (np.sqrt(2) / count + correlation) / np.sqrt(4000)
    found = effective_number(entries, 4000)
    assert abs(count / found - count / expected) < 4 * (count - 1) * error


def test_series_apart_in_time_or_without_a_change_are_independent():
    start = pd.Period("2000-01", "M")
    apart = [{"start": start + 1_000_000 * k, "target": np.sin(np.arange(24.0))} for k in range(3)]
    assert effective_number(apart, 12) == 3
    still = [{"start": start, "target": np.ones(24)}] * 3
    assert effective_number(still, 12) == 1
    late = [{"start": start, "target": np.r_[np.full(30, np.nan), 1.0, 2.0]}] * 30  # none is known a season apart
    assert effective_number([*apart, *still, *late], 12) == 3


def test_the_same_shocks_of_all_series_do_not_make_a_bank_too_sure(monkeypatch):
    """Twenty shops are hardly more than one: a training on all is surer of what comes than what it chooses."""
    monkeypatch.setattr(quick_bank, "_STEPS", 24)
    task, widths = panel(30), {}
    full = quick_bank._trained(task, list(task.train), 0, "auto").at(1.0)
    for name, predictor in (("all the way", full), ("chosen", chosen(task))):
        low, high = np.transpose([one.quantiles((0.1, 0.9)) for one in predictor.predict(task.train, 0)], (1, 0, 2))
        widths[name] = np.mean(high - low)
    assert widths["all the way"] < widths["chosen"]
