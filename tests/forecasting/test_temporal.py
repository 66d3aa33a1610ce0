"""Forecasts of sums over periods: paths that add up, their spread, and frames."""

import numpy as np
import pandas as pd
import pytest
import torch
from gluonts.model.forecast import SampleForecast

import tsforecast
from tsforecast import Forecaster
from tsforecast.data import Columns, read_task
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.sum_models import joint_forecasts

HORIZON = 9
COLUMNS = {"item": "shop", "target": "sales"}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    months = pd.date_range("2015-01-31", periods=82, freq="ME")  # ends in October
    parts = [
        pd.DataFrame({"shop": shop, "month": months, "sales": rng.poisson(size * (1 + 0.3 * np.sin(np.arange(82))))})
        for shop, size in (("A", 40), ("B", 2))
    ]
    return pd.concat(parts, ignore_index=True)


def test_sums_have_the_spread_of_joint_paths(frame):
    """Steps with the covariance C have a sum with the variance 1'C1, not that of independent steps."""
    task = read_task(frame, None, HORIZON, columns=Columns(item="shop", target="sales"), beyond=True)
    predictor = fitted(task)
    made = list(joint_forecasts(predictor, task, num_samples=4000, seed=1))
    exact = list(predictor.predict(task.latest, 0))
    with torch.random.fork_rng():
        torch.manual_seed(2)
        others = list(predictor.predict(task.latest, 4000))
    for one, own, other in zip(made, exact, others, strict=True):
        assert isinstance(other, SampleForecast)
        np.testing.assert_allclose(one.mean, own.mean, rtol=1e-6)
        np.testing.assert_allclose(np.quantile(one.samples, 0.9, axis=0), own.quantile(0.9), rtol=0.02)
        ones = np.ones(HORIZON)
        variance = ones @ np.cov(other.samples.T) @ ones
        error = np.sqrt(2 * 2 / 4000)  # of the ratio of two sample variances
        assert abs(one.samples.sum(1).var() / variance - 1) < 5 * error


def test_quarters_of_a_frame_are_sums_of_months(frame, caplog):
    caplog.set_level("INFO")
    found = tsforecast.forecast(frame, HORIZON, columns=COLUMNS, aggregate="quarter")
    assert list(found.columns[:4]) == ["shop", "month", "period", "mean"]
    months = found[found["period"] == "month"]
    assert months["month"].iloc[0] == pd.Timestamp("2021-11-30")
    quarters = found[found["period"] == "quarter"].set_index(["shop", "month"])["mean"]
    assert [*quarters.loc["A"].index] == [pd.Timestamp("2022-01-01"), pd.Timestamp("2022-04-01")]
    sums = months.groupby(["shop", months["month"].dt.to_period("Q").dt.start_time])["mean"].sum()
    np.testing.assert_allclose(quarters, sums.loc[quarters.index], atol=1e-6)
    assert (found["0.1"] >= 0).all()
    assert "3 months of the horizon are in no whole 'quarter', and in no sum" in caplog.messages
    again = Forecaster(HORIZON, columns=COLUMNS).fit(frame).predict(aggregate="quarter")
    pd.testing.assert_frame_equal(found, again)


def test_a_hierarchy_adds_up_over_time_too(frame):
    found = tsforecast.forecast(frame, HORIZON, columns={"target": "sales"}, hierarchy="shop", aggregate=["quarter"])
    means = found.pivot(index=["period", "month"], columns="shop", values="mean")
    np.testing.assert_allclose(means["(all)"], means["A"] + means["B"], atol=1e-6)
    quarters, months = means.loc["quarter"], means.loc["month"]
    sums = months.groupby(months.index.to_period("Q").start_time).sum()
    np.testing.assert_allclose(quarters, sums.loc[quarters.index], atol=1e-6)


def test_periods_begin_on_one_date(frame):
    with pytest.raises(ValueError, match="start='common' with a hierarchy or periods, got 'each'"):
        tsforecast.forecast(frame, HORIZON, columns=COLUMNS, aggregate="quarter", start="each")
