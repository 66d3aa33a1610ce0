"""Forecasts of sums over periods: exact conditioning, paths that add up, and frames."""

import numpy as np
import pandas as pd
import pytest

import tsforecast
from tsforecast import Forecaster
from tsforecast.forecasting import coherent
from tsforecast.forecasting.coherent import Marginals, even_scores
from tsforecast.forecasting.temporal import conditioned

HORIZON = 9
COLUMNS = {"item": "shop", "target": "sales"}


def _normal(mean, deviation):
    mean, deviation = np.asarray(mean, float), np.asarray(deviation, float)
    return Marginals(mean[:, None], (mean[:, None] + deviation[:, None] * coherent._SCORES)[:, None])


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    months = pd.date_range("2015-01-31", periods=82, freq="ME")  # ends in October
    parts = [
        pd.DataFrame({"shop": shop, "month": months, "sales": rng.poisson(size * (1 + 0.3 * np.sin(np.arange(82))))})
        for shop, size in (("A", 40), ("B", 2))
    ]
    return pd.concat(parts, ignore_index=True)


def test_paths_are_conditioned_as_by_dense_matrices():
    rng = np.random.default_rng(0)
    weights = np.array([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0]]), np.array([[1.0, 1, 1, 1, 1, 0]])
    steps = _normal([5, 6, 7, 8, 9, 10], [1, 2, 1, 2, 1, 2])
    sums = _normal([20, 16], [3, 2]), _normal([33], [5])
    drawn = rng.normal(size=(50, 6)) @ rng.normal(size=(6, 6))
    found, below = conditioned(steps, drawn, [*zip(weights, sums, strict=True)], is_positive=False)
    values = steps.values(0, even_scores(drawn.T))
    opinions = np.concatenate([own.values(0, even_scores(a @ values)) for a, own in zip(weights, sums, strict=True)])
    matrix = np.concatenate(weights)
    variances = np.square([1.0, 2, 1, 2, 1, 2])
    inner = (matrix * variances) @ matrix.T + np.diag(np.square([3.0, 2, 5]))
    expected = values + variances[:, None] * (matrix.T @ np.linalg.solve(inner, opinions - matrix @ values))
    np.testing.assert_allclose(found, expected.T, atol=1e-9)
    assert below == 0


def test_sums_that_agree_leave_paths_as_they_are():
    steps = _normal([5, 6], [1, 2])
    drawn = np.random.default_rng(0).normal(size=(400, 2))
    values = steps.values(0, even_scores(drawn.T))
    total = np.quantile(values.sum(0), [coherent._LEVELS])
    own = Marginals(values.sum(0).mean()[None, None], total[None])
    found, _ = conditioned(steps, drawn, [(np.ones((1, 2)), own)], is_positive=False)
    # But for straight lines between the quantiles that are kept.
    assert np.abs(found.T - values).mean() < 0.02 * values.std()


def test_constant_series_stay(frame):
    constant = frame.assign(sales=7.0)
    found = tsforecast.forecast(constant, HORIZON, columns=COLUMNS, aggregate="quarter")
    np.testing.assert_allclose(found.loc[found["period"] == "quarter", "mean"], 21.0, rtol=1e-3)


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


def test_series_without_enough_periods_are_sums_of_steps(frame, caplog):
    caplog.set_level("INFO")
    short = frame.groupby("shop").tail(26)
    found = tsforecast.forecast(short, 14, columns=COLUMNS, aggregate="year")
    assert any(one.startswith("2 series have too few whole periods") for one in caplog.messages)
    months = found[(found["period"] == "month") & (found["month"].dt.year == 2022)]
    years = found[found["period"] == "year"].set_index("shop")["mean"]
    np.testing.assert_allclose(years, months.groupby("shop")["mean"].sum(), atol=1e-6)


def test_periods_begin_on_one_date(frame):
    with pytest.raises(ValueError, match="start='common' with a hierarchy or periods, got 'each'"):
        tsforecast.forecast(frame, HORIZON, columns=COLUMNS, aggregate="quarter", start="each")
