"""Forecasts of a table at once, and what they begin with."""

import functools
import logging

import numpy as np
import pandas as pd
import pytest
import torch

import tsforecast
from tsforecast import StateSpaceEstimator
from tsforecast.data import read_task
from tsforecast.forecasting import default_model, histories
from tsforecast.models.parts import bank_prior
from tsforecast.models.parts.bank_dynamics import BankDynamics


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Twelve months a year: three series with a season of the year, in a user's column names."""
    random, months = np.random.default_rng(0), np.arange(60)
    season = 20 * np.sin(2 * np.pi * months / 12)
    frames = [
        pd.DataFrame(
            {
                "shop": name,
                "day": pd.date_range("2015-01-01", periods=60, freq="MS"),
                "sales": 100 + months * slope + season + random.normal(0, 2, 60),
            }
        )
        for name, slope in (("a", 0.0), ("b", 0.5), ("c", -0.5))
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def few_steps(monkeypatch):
    """A step for each epoch, where it does not matter how well forecasts are."""
    few = functools.partial(StateSpaceEstimator, num_batches_per_epoch=1)
    monkeypatch.setattr("tsforecast.forecasting.estimator.StateSpaceEstimator", few)


def test_few_long_series_at_a_time_have_the_same_forecasts(table, monkeypatch):
    columns = {"item": "shop", "timestamp": "day", "target": "sales"}
    together = tsforecast.forecast(table, horizon=6, columns=columns)
    taken, whole = [], histories.Histories.batch_of
    monkeypatch.setattr(histories, "_LONG_STEPS", 150)  # of two series of sixty months
    monkeypatch.setattr(histories, "_SHORT_STEPS", 0)
    monkeypatch.setattr(
        histories.Histories, "batch_of", lambda self, entries: taken.append(len(entries)) or whole(self, entries)
    )
    pd.testing.assert_frame_equal(tsforecast.forecast(table, horizon=6, columns=columns), together, rtol=1e-6)
    assert taken == [2, 1]


@pytest.mark.parametrize(("components", "is_cut"), [("damped_level+hour_of_day", True), ("damped_level+year", False)])
def test_hours_before_the_last_weeks_are_filtered_where_a_year_is_sought(components, is_cut, monkeypatch, caplog):
    monkeypatch.setattr(histories, "_HISTORY", 0)  # eight weeks stay
    hours, random = np.arange(2000), np.random.default_rng(3)
    values = np.where(hours < 600, 10.0, 0.0) + np.sin(2 * np.pi * hours / 24) + random.normal(0, 0.1, 2000)
    whole = {"item_id": "a", "start": pd.Period("2021-01-01 00:00", "h"), "target": values}
    late = {**whole, "start": whole["start"] + 656, "target": values[656:]}
    trainer = {"max_epochs": 1, "enable_progress_bar": False}
    estimator = StateSpaceEstimator(
        "issm", "h", 5, components=components, num_batches_per_epoch=1, trainer_kwargs=trainer
    )
    predictor = estimator.train([whole])
    with caplog.at_level("INFO"):
        one, other = (forecast.mean for entry in (whole, late) for forecast in predictor.predict([entry], 0))
    assert ("1 forecast from the last 1344 steps alone" in caplog.text) == is_cut
    assert np.allclose(one, other, rtol=1e-6) == is_cut


def test_a_table_becomes_forecasts_in_its_own_words(table):
    columns = {"item": "shop", "timestamp": "day", "target": "sales"}
    found = tsforecast.forecast(table, horizon=6, columns=columns, quantiles=(0.1, 0.5, 0.9))
    assert list(found.columns) == ["shop", "day", "mean", "0.1", "0.5", "0.9"]
    assert found.shape[0] == 18
    assert found["day"].iloc[:2].tolist() == [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-02-01")]
    # The season is found: its range over the next half year is 20, the noise of a month 2.
    expected = 100 + 20 * np.sin(2 * np.pi * np.arange(60, 66) / 12)
    first = found[found["shop"] == "a"]
    assert np.abs(first["0.5"] - expected).max() < 4 * 2
    assert (first["0.1"] < first["0.9"]).all()


@pytest.mark.usefixtures("few_steps")
def test_a_file_is_read(table, tmp_path):
    table.to_excel(tmp_path / "shops.xlsx", index=False)
    found = tsforecast.forecast(str(tmp_path / "shops.xlsx"), 6, start="each")
    pd.testing.assert_frame_equal(found, tsforecast.forecast(table, 6), check_dtype=False, rtol=1e-6)
    with pytest.raises(ValueError, match="expected start to be 'common' or 'each', got 'mine'"):
        tsforecast.forecast(table, 6, start="mine")


def test_the_same_seed_gives_the_same_forecasts(table):
    one, other = (tsforecast.forecast(table, horizon=3) for _ in range(2))
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(("days", "halves"), [(900, False), (1100, True)])
def test_an_issm_that_learns_stands_beside_the_bank_of_a_long_series_of_days(days, halves, monkeypatch):
    monkeypatch.setattr(default_model, "_EPOCHS", 1)
    values = 10 + np.sin(2 * np.pi * np.arange(days) / 7) + np.random.default_rng(1).normal(0, 0.5, days)
    frame = pd.DataFrame({"timestamp": pd.date_range("2020-01-01", periods=days, freq="D"), "target": values})
    predictor = default_model.fitted(read_task(frame, None, 14, 1))
    dynamics, known = predictor.prediction_net.dynamics, bank_prior.learnt("D")
    if halves:
        torch.testing.assert_close(dynamics.log_weight.exp(), torch.tensor([0.5, 0.5]))
        dynamics = dynamics.members[0]
    assert predictor.direct == 0
    assert isinstance(dynamics, BankDynamics)
    begun = bank_prior.prior_of(dynamics)
    assert known is not None
    assert all(torch.equal(begun["state"][name], value) for name, value in known["state"].items())


@pytest.mark.parametrize(("days", "direct"), [(20, 0.0), (24, 0.5)])
def test_series_of_hours_decide_by_their_own_past(days, direct):
    """Training windows of hours are long: the bank stays as other series have taught it, beside regressions on days."""
    hours = np.arange(24 * days)
    values = 10 + 5 * np.sin(2 * np.pi * hours / 24) + np.random.default_rng(1).normal(0, 0.5, len(hours))
    frame = pd.DataFrame({"timestamp": pd.date_range("2020-01-01", periods=len(hours), freq="h"), "target": values})
    task = read_task(frame, None, 24, 1)
    predictor = default_model.fitted(task)
    dynamics, known = predictor.prediction_net.dynamics, bank_prior.learnt("h")
    assert predictor.direct == direct
    assert known is not None
    assert isinstance(dynamics, BankDynamics)
    begun = bank_prior.prior_of(dynamics)
    for name, value in known["state"].items():
        assert torch.equal(begun["state"][name], value)
    past, label = next(iter(task.test()))
    forecast = next(iter(predictor.predict([past], num_samples=0)))
    assert np.abs(forecast.quantile(0.5) - label["target"]).mean() < 1.0


@pytest.mark.usefixtures("few_steps")
def test_categories_by_name_are_read_again(table, monkeypatch):
    """None of them is left out, as series are where there are many: what no series has would be unknown."""
    monkeypatch.setattr(default_model, "_SERIES", 1)
    named = table.assign(city=table["shop"].map({"a": "Rome", "b": "Oslo", "c": "Bern"}))
    columns = {"item": "shop", "timestamp": "day", "target": "sales", "static_categories": ["city"]}
    found = tsforecast.forecast(named, horizon=2, columns=columns)
    assert len(found) == 6
    assert np.isfinite(found["0.5"]).all()


def test_covariates_of_series_that_are_constant_or_begin_late_are_no_obstacle():
    """Nor are errors below the last digits, as of sales that follow from prices without any."""
    frame = pd.DataFrame(
        {"date": pd.date_range("2020-01-01", periods=107), "price": np.random.default_rng(4).random(107)}
    )
    table = pd.concat([frame.assign(shop=shop) for shop in "ab"], ignore_index=True)
    known = table["date"] < "2020-04-10"
    flat = tsforecast.forecast(table.assign(sales=np.where(known, 5.0, np.nan)))
    np.testing.assert_allclose(flat["0.5"], 5, atol=0.1)
    late = known & ((table["shop"] == "a") | (table["date"] >= "2020-04-01"))
    found = tsforecast.forecast(table.assign(sales=np.where(late, 20 - 8 * table["price"], np.nan)))
    assert found.groupby("shop").size().tolist() == [7, 7]
    assert np.isfinite(found["0.5"]).all()


def test_a_series_without_a_value_is_no_obstacle_to_others(table, caplog):
    void = table.assign(sales=table["sales"].where(table["shop"] != "b"))
    found = tsforecast.forecast(void, horizon=6)
    assert "no value in the history of 1 series ('b')" in caplog.text
    assert (found["shop"].value_counts() == 6).all()
    without = tsforecast.forecast(table[table["shop"] != "b"], horizon=6)
    pd.testing.assert_frame_equal(found[found["shop"] != "b"].reset_index(drop=True), without)


@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize("options", [{}, {"aggregate": "week"}])
def test_business_days_are_forecast_without_a_warning_of_pandas(options):
    stamps, random = pd.date_range("2024-01-01", periods=60, freq="B"), np.random.default_rng(0)
    frame = pd.DataFrame({"timestamp": stamps, "target": random.normal(size=60)})
    assert np.isfinite(tsforecast.forecast(frame, horizon=12, **options)["mean"]).all()


def test_several_targets_have_a_joint_model():
    steps = np.random.default_rng(2).normal(size=(80, 2)).cumsum(0)
    frame = pd.DataFrame({"date": pd.date_range("2020-01-01", periods=80), "x": steps[:, 0], "y": steps[:, 1]})
    found = tsforecast.forecast(frame, horizon=5, columns={"timestamp": "date", "target": ["x", "y"]})
    assert sorted(found["target"].unique()) == ["x", "y"]
    assert len(found) == 10


def test_a_level_that_is_no_share_is_refused(table):
    with pytest.raises(ValueError, match="between 0 and 1"):
        tsforecast.forecast(table, quantiles=(10,))
    with pytest.raises(ValueError, match="expected horizon of at least 1, got 0"):
        tsforecast.forecast(table, 0)


def test_a_row_years_before_the_others_is_forecast_from(caplog):
    """After thousands of missing steps float32 has no digits left of what is known."""
    random, days = np.random.default_rng(0), pd.date_range("2022-01-01", periods=300)
    frame = pd.DataFrame({"date": [pd.Timestamp("2012-01-01"), *days], "y": 100 + random.normal(0, 5, 301)})
    with caplog.at_level(logging.INFO, "tsforecast"):
        found = tsforecast.forecast(frame, horizon=14)
    assert "1 forecast in float64" in caplog.text
    assert ((found["0.1"] > 85) & (found["0.9"] < 115) & (found["0.1"] < found["0.9"])).all()


@pytest.mark.parametrize("days", [14, 28, 91, 182])
def test_steps_of_several_weeks_have_the_season_that_they_tell_apart(days):
    dates = pd.date_range("1990-01-01", periods=80, freq=f"{days}D")
    noise = np.random.default_rng(0).normal(0, 0.5, len(dates))
    year = 10 + 3 * np.sin(2 * np.pi * np.asarray(dates.dayofyear) / 365.25) + noise
    found = tsforecast.forecast(pd.DataFrame({"date": dates[:-8], "target": year[:-8]}), horizon=8)
    assert pd.to_datetime(found["date"]).tolist() == dates[-8:].tolist()
    assert np.abs(found["mean"] - year[-8:]).mean() < 0.5 * np.abs(year - 10).mean()
