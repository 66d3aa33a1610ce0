"""Covariates whose past alone is known: forecast beside the target, and not shown."""

import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast import StateSpaceEstimator
from tsforecast.analysis.explain import explain
from tsforecast.data import Columns, read_task
from tsforecast.forecasting.predictor import load_predictor, save_predictor

HORIZON = 4


@pytest.fixture(scope="module")
def table():
    """Sales follow the visitors of the day before; the last sales are not there yet."""
    rng = np.random.default_rng(0)
    visitors = 50 + 10 * rng.standard_normal(300)
    sales = 2 * np.roll(visitors, 1) + rng.standard_normal(300)
    days = pd.date_range("2023-01-01", periods=300)
    return pd.DataFrame({"day": days, "sales": sales, "visitors": visitors})


COLUMNS = {"timestamp": "day", "target": "sales", "past_covariates": ["visitors"]}


def train(table, model, epochs, **options):
    trainer = {"max_epochs": epochs, "enable_progress_bar": False}
    return StateSpaceEstimator(model, "D", HORIZON, seed=0, trainer_kwargs=trainer, **options).train(
        table, columns=COLUMNS
    )


@pytest.fixture(scope="module")
def predictor(table):
    return train(table, "bank", 0)


def test_they_are_a_role_of_columns(table):
    gap = table.assign(visitors=table["visitors"].where(table.index != 7))
    (entry,) = read_task(gap, "D", HORIZON, 2, columns=Columns(**COLUMNS)).train
    assert entry["target"].shape == (292,)
    assert entry["past_feat_dynamic_real"].shape == (1, 292)
    assert np.isnan(entry["past_feat_dynamic_real"][0, 7])


def test_forecasts_are_those_of_the_target_alone(table, predictor, tmp_path):
    save_predictor(predictor, tmp_path / "run")
    for one in (predictor, load_predictor(tmp_path / "run")):
        found = one.predict_frame(table, [0.1, 0.5, 0.9], columns=one.columns)
        assert len(found) == HORIZON
        assert "target" not in found
    (entry,) = read_task(table, "D", HORIZON, 0, columns=Columns(**COLUMNS)).entries
    (forecast,) = predictor.predict([entry], num_samples=7)
    assert forecast.samples.shape == (7, HORIZON)
    assert forecast.quantile(0.5).shape == (HORIZON,)
    short = {**entry, "target": np.where(np.arange(40) == 9, np.nan, entry["target"][:40])}
    short["past_feat_dynamic_real"] = entry["past_feat_dynamic_real"][:, :40]
    (filled,) = predictor.impute([short], 5)
    assert filled.samples.shape == (5, 40)


def test_parts_are_those_of_the_target_alone(table, predictor):
    whole = table.dropna()[-60:]
    found = explain(predictor, whole)
    assert "target" not in found
    means = predictor.predict_frame(whole, [0.5])["mean"]
    np.testing.assert_allclose(found.loc[found["part"] == "fit", "mean"], means, rtol=1e-4)


def test_the_past_of_a_covariate_tells_of_the_future_where_dynamics_are_shared(table, predictor):
    """The first step ahead follows the last visitors in a `gls`, and does not in a model of each alone."""
    shared = train(table, "gls", 6, state_dim=8, learning_rate=0.03)
    (entry,) = read_task(table, "D", HORIZON, 0, columns=Columns(**COLUMNS)).entries
    more = {**entry, "past_feat_dynamic_real": entry["past_feat_dynamic_real"].copy()}
    more["past_feat_dynamic_real"][0, -1] += 20
    low, high = (one.quantile(0.5)[0] for one in shared.predict([entry, more], num_samples=0))
    assert high > low + 1
    low, high = (one.quantile(0.5)[0] for one in predictor.predict([entry, more], num_samples=0))
    assert high == pytest.approx(low, abs=1e-4)


def test_what_is_missing_or_not_as_long_is_said(table, predictor):
    (entry,) = read_task(table, "D", HORIZON, 0, columns=Columns(**COLUMNS)).entries
    without = {name: value for name, value in entry.items() if name != "past_feat_dynamic_real"}
    with pytest.raises(ValueError, match="expected past_feat_dynamic_real of 1 rows"):
        list(predictor.predict([without]))
    short = {**entry, "past_feat_dynamic_real": entry["past_feat_dynamic_real"][:, 1:]}
    with pytest.raises(ValueError, match="over the 300 steps of the target, got 299"):
        list(predictor.predict([short]))


@pytest.mark.parametrize("model", ["deepstate", "rsgls-issm"])
def test_models_of_one_target_refuse_them(table, model):
    with pytest.raises(ValueError, match="covariates whose past alone is known are further targets"):
        train(table, model, 1)


def test_auto_scores_the_target_alone(table, caplog):
    caplog.set_level(logging.INFO)
    trainer = {"max_epochs": 1, "enable_progress_bar": False}
    options = {"models": "bank,gls", "num_batches_per_epoch": 1, "trainer_kwargs": trainer}
    estimator = StateSpaceEstimator("auto", "D", HORIZON, seed=0, **options)
    predictor = estimator.train(table[-80:], columns=COLUMNS)
    assert "gls one system of all" in caplog.text
    (entry,) = read_task(table[-80:], "D", HORIZON, 0, columns=Columns(**COLUMNS)).entries
    (forecast,) = predictor.predict([entry], num_samples=3)
    assert forecast.samples.shape == (3, HORIZON)
