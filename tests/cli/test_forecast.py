"""`tsforecast forecast FILE`."""

import functools
import importlib
import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast import StateSpaceEstimator
from tsforecast.cli import main
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.plots import save_figure


@pytest.fixture(scope="module")
def shops() -> pd.DataFrame:
    """Weekly sales of two shops over two years."""
    random, dates = np.random.default_rng(3), pd.date_range("2018-01-05", periods=104, freq="W-FRI")
    frames = [pd.DataFrame({"unique_id": name, "ds": dates, "y": 50 + random.normal(0, 5, 104)}) for name in ("x", "y")]
    return pd.concat(frames)


@pytest.fixture
def file(shops, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shops.to_csv("shops.csv", index=False)
    return "shops.csv"


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """A step for each epoch: how well it forecasts is looked at in `test_at_once.py`."""
    for module in ("analysis.anomalies", "cli.choices", "cli.train", "evaluation.cross_validation"):
        importlib.import_module(f"tsforecast.{module}")  # which would keep what is here for a while
    few = functools.partial(StateSpaceEstimator, num_batches_per_epoch=1)
    monkeypatch.setattr("tsforecast.forecasting.estimator.StateSpaceEstimator", few)


def test_a_file_becomes_a_table_and_a_picture(file, tmp_path, monkeypatch, caplog):
    drawn = []
    monkeypatch.setattr(
        "tsforecast.cli.forecast.save_figure", lambda figure, path: drawn.append(figure) or save_figure(figure, path)
    )
    with caplog.at_level(logging.INFO, "tsforecast"):
        assert main(["forecast", file, "--horizon", "4", "--keep", "kept"]) == 0
    found = pd.read_csv("shops-forecasts.csv")
    assert list(found.columns[:3]) == ["unique_id", "ds", "mean"]
    assert found["ds"].unique().tolist() == ["2020-01-03", "2020-01-10", "2020-01-17", "2020-01-24"]
    assert (tmp_path / "shops-forecasts.png").stat().st_size > 10_000
    assert "shops-forecasts.png: their picture" in caplog.text
    assert [one.get_suptitle() for one in drawn] == [
        "shops, y: forecasts of 4 weeks by bank (a mixture of structural models)"
    ]
    assert "seasonal naive" in caplog.text
    assert "chosen: bank, a mixture of" in caplog.text
    assert main(["predict", "kept", "--output", "again.csv"]) == 0
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "shops-forecasts.csv").read_bytes()
    assert main(["evaluate", "kept", "--baselines", "none", "--plot_series", "0"]) == 0
    assert main(["explain", "kept", "--output", "parts"]) == 0
    assert main(["explain", "kept", "--importance", "1", "--output", "parts"]) == 2  # without a covariate
    assert main(["forecast", file, "--horizon", "4", "--keep", "kept"]) == 2


def test_rows_behind_the_last_target_are_forecast_with_what_they_know(shops, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    table = shops.assign(promotion=np.tile(np.arange(104) % 5 == 0, 2))
    table["y"] += 30 * table["promotion"]
    table.loc[table["ds"] > "2019-11-29", "y"] = np.nan
    table.to_csv("plan.csv", index=False)
    with caplog.at_level(logging.INFO, "tsforecast"):
        assert main(["forecast", "plan.csv", "--plot_series", "0", "--keep", "kept"]) == 0
    is_known = table["y"].notna()
    table[is_known].to_csv("past.csv", index=False)
    table[~is_known].drop(columns="y").to_csv("known.csv", index=False)
    words = ["predict", "kept", "--data", "past.csv", "--output", "later.csv"]
    assert main(words) == 2  # whose covariates are not known
    assert main([*words, "--known", "known.csv"]) == 0
    pd.testing.assert_frame_equal(pd.read_csv("later.csv"), pd.read_csv("plan-forecasts.csv"), rtol=1e-5)
    found = pd.read_csv("plan-forecasts.csv").merge(
        table.assign(ds=table["ds"].astype(str)), on=["unique_id", "ds"], validate="1:1"
    )
    assert len(found) == 2 * 4
    assert "covariates 'promotion'" in caplog.text
    assert found.loc[found["promotion"], "mean"].min() > found.loc[~found["promotion"], "mean"].max() + 15


def test_series_that_are_too_short_to_compare_are_forecast(shops, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    shops.groupby("unique_id").head(10).to_csv("short.csv", index=False)
    with caplog.at_level(logging.INFO, "tsforecast"):
        assert main(["forecast", "short.csv", "--horizon", "4", "--plot_series", "0", "--output", "out.csv"]) == 0
    assert "no comparison: it takes 12 steps, and the median series has 10" in caplog.text
    assert len(pd.read_csv("out.csv")) == 8


@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_few_business_days_are_forecast_without_a_word_of_how_far(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=20, freq="B"), "y": 10.0 + np.arange(20) % 5})
    table.to_csv("few.csv", index=False)
    with caplog.at_level(logging.INFO, "tsforecast"):
        assert main(["forecast", "few.csv", "--plot_series", "0"]) == 0
        assert main(["forecast", "few.csv", "--plot_series", "0", "--horizon", "5"]) == 0
    assert "prediction length 10 by default: the series has 20 values" in caplog.text
    assert "seasonal naive" in caplog.text


def test_each_series_is_forecast_from_its_own_end_where_that_is_asked(shops, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = (shops["unique_id"] == shops["unique_id"].iloc[0]) & (shops["ds"] > "2019-11-29")
    shops[~ended].to_csv("ends.csv", index=False)
    assert main(["forecast", "ends.csv", "--horizon", "4", "--start", "each", "--output", "out.csv"]) == 0
    found = pd.read_csv("out.csv").groupby("unique_id", sort=False)["ds"].min()
    assert found.tolist() == ["2019-12-06", "2020-01-03"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "table.xlsx"], "expected --output to end with"),
        (["--horizon", "0"], "--horizon: expected at least 1"),
        (["--start", "each", "--aggregate", "month"], "expected --start common"),
        (["--quantiles", "2"], "between 0 and 1"),
    ],
)
def test_what_cannot_be_done_is_said(file, words, message, capsys):
    assert main(["forecast", file, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["forecast", "nothing.csv"]) == 2
    assert "nothing.csv" in capsys.readouterr().err


def test_a_table_without_covariates_that_have_no_effect_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random, days = np.random.default_rng(0), pd.date_range("2024-01-01", periods=67)
    noise = pd.DataFrame({"day": days, "sales": 50 + random.normal(size=67), "price": random.normal(size=67)})
    noise.loc[60:, "sales"] = np.nan
    noise.to_csv("noise.csv", index=False)
    noise[["day", "sales"]].dropna().to_csv("new.csv", index=False)
    assert main(["forecast", "noise.csv", "--output", "a.csv", "--plot-series=0", "--keep", "run"]) == 0
    assert "no covariate has an effect; dropped" in capsys.readouterr().err
    for given in (["--output", "same.csv"], ["--data", "new.csv", "--output", "b.csv"]):
        assert main(["predict", "run", *given]) == 0
    ours, same = (pd.read_csv(name).drop(columns="item_id") for name in ("b.csv", "same.csv"))
    pd.testing.assert_frame_equal(ours, same)
    assert main(["explain", "run", "--data", "new.csv", "--plot-series=0"]) == 0
    found = load_predictor("run/predictor", "cpu").predict_frame(noise[["day", "sales"]].dropna())
    np.testing.assert_allclose(found["mean"], ours["mean"])
