"""Targets that end at different steps: those that go on say something about the end of others."""

import numpy as np
import pandas as pd
import pytest

from tsforecast import StateSpaceEstimator
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.predictor import with_prediction_length

HORIZON, LATE = 4, 3


@pytest.fixture(scope="module", params=["bank", "issm"])
def predictor(request):
    trainer = {"max_epochs": 0 if request.param == "bank" else 1, "enable_progress_bar": False}
    options = {"structures": "level,trend"} if request.param == "bank" else {"components": "level"}
    estimator = StateSpaceEstimator(request.param, "D", HORIZON, seed=0, trainer_kwargs=trainer, **options)
    return estimator.train([entry()])


def entry():
    rng = np.random.default_rng(0)
    values = rng.multivariate_normal(np.zeros(2), [[1, 0.9], [0.9, 1]], 120).cumsum(0).T + np.array([[30], [60]])
    return {"start": pd.Period("2024-01-01", "D"), "target": values, "item_id": "a"}


def test_a_late_target_is_forecast_as_if_the_other_were_known_of_the_future(predictor):
    target = entry()["target"]
    late = target.copy()
    late[1, -LATE:] = np.nan
    known = np.full((2, LATE + HORIZON), np.nan)
    known[0, :LATE] = target[0, -LATE:]
    (found,) = predictor.predict([{**entry(), "target": late}], num_samples=20)
    longer = with_prediction_length(predictor, LATE + HORIZON)
    short = {**entry(), "target": target[:, :-LATE], "known_future": known}
    (expected,) = longer.predict([short], num_samples=0)
    assert found.start_date == entry()["start"] + 120
    assert found.samples.shape == (20, HORIZON, 2)
    levels = (0.1, 0.5, 0.9)
    np.testing.assert_allclose(found.quantiles(levels), expected.quantiles(levels)[:, LATE:], rtol=1e-6)
    (unaware,) = longer.predict([{**entry(), "target": target[:, :-LATE]}], num_samples=0)
    moved = np.sign(target[0, -1] - unaware.quantile(0.5)[LATE - 1, 0])
    assert moved * (found.quantile(0.5)[0, 1] - unaware.quantile(0.5)[LATE, 1]) > 0


def test_beliefs_of_several_targets_are_saved_and_read_again(predictor, tmp_path):
    known = predictor.filter([entry()])
    save_beliefs(tmp_path / "beliefs.pt", known.values(), predictor.prediction_net)
    read = load_beliefs(tmp_path / "beliefs.pt", predictor.prediction_net)
    (mine,), (its,) = (predictor.forecast_from(one) for one in (known, read))
    (whole,) = predictor.predict([entry()], num_samples=0)
    for forecast in (mine, its):
        np.testing.assert_allclose(forecast.quantile(0.9), whole.quantile(0.9), rtol=1e-5)
