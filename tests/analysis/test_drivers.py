"""What covariates do, as curves with intervals, and what forecasts lose without them."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.analysis.drivers import effect_curves, importance
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.plots.drivers import plot_curves

HORIZON, STEPS, COLUMNS = 7, 500, {"target": "sales", "covariates": ["warmth", "noise"]}


def sales(ahead=HORIZON):
    """Return a frame of daily sales that cold and heat raise, beside a column of noise; the last sales are missing."""
    rng, days = np.random.default_rng(0), pd.date_range("2020-01-06", periods=STEPS + ahead)
    warmth = 12 + 8 * rng.normal(size=len(days))
    target = 200 * np.exp(0.002 * (warmth - 12) ** 2 + 0.05 * rng.normal(size=len(days)))
    target[STEPS:] = np.nan
    return pd.DataFrame(
        {"item_id": "shop", "timestamp": days, "sales": target, "warmth": warmth, "noise": rng.normal(size=len(days))}
    )


@pytest.fixture(scope="module")
def predictor():
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    estimator = StateSpaceEstimator("bank", "D", HORIZON, seed=0, trainer_kwargs=trainer)
    return estimator.train(sales(0), columns=COLUMNS)


def test_a_curve_is_that_of_the_truth_and_noise_has_none(predictor):
    frame = effect_curves(predictor)
    assert [*frame["covariate"].unique()] == ["warmth"]
    assert frame["hour"].isna().all()
    assert (frame["item_id"] == "").all()
    own = frame[frame["covariate"] == "warmth"]
    truth = np.exp(0.002 * (own["value"] - 12) ** 2) - 1
    # Values that are large are multiplied on the scale, those of the mean size nearly so.
    assert np.corrcoef(own["effect"], truth)[0, 1] > 0.98
    assert (own["lower"] < own["effect"]).all()


def test_forecasts_lose_without_what_matters_alone(predictor):
    found = importance(predictor, sales(), windows=20)
    assert [*found["covariate"]] == ["warmth", "noise"]
    warmth, noise = found["lost"]
    assert warmth > 0.3
    assert warmth > 3 * found["std_error"][0]
    assert noise == 0
    np.testing.assert_allclose(found["without"], found["loss"] * (1 + found["lost"]), rtol=1e-9)
    with pytest.raises(ValueError, match="a series of more than 101 horizons"):
        importance(predictor, sales(), windows=100)


def test_hours_have_curves_of_their_own():
    rng, time = np.random.default_rng(1), np.arange(1500)
    warmth = 10 + 5 * rng.normal(size=len(time)).cumsum() / np.sqrt(np.arange(1, len(time) + 1))
    by_day = 1 + np.cos(2 * np.pi * (time % 24 - 14) / 24)
    entry = {
        "start": pd.Period("2024-01-01 00:00", "h"), "item_id": "a", "feat_dynamic_real": warmth[None],
        "target": 100 + warmth * by_day + rng.normal(size=len(time)),
    }  # fmt: skip
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    predictor = StateSpaceEstimator("bank", "h", 24, seed=0, trainer_kwargs=trainer).train([entry])
    frame = effect_curves(predictor)
    rise = frame.groupby("hour")["effect"].agg(lambda x: x.iloc[-1] - x.iloc[0])
    assert len(rise) == 24
    assert rise[14] > 3 * abs(rise[2])
    mean = frame[frame["hour"].isna()]["effect"].to_numpy()
    shown = frame.dropna(subset="hour").pivot_table(index="value", columns="hour", values="effect").mean(axis=1)
    np.testing.assert_allclose(mean, shown, rtol=0.05, atol=0.002)


def test_pictures_tell_what_is_lost(predictor, tmp_path):
    lost = pd.DataFrame({"covariate": ["noise", "warmth"], "lost": [0.01, 0.5]})
    figure = plot_curves(effect_curves(predictor), lost=lost)
    titles = [axis.get_title(loc="left") for axis in figure.axes if axis.get_visible()]
    assert titles == ["warmth: without it the loss changes by +50.0 %"]
    with pytest.raises(ValueError, match="at least one covariate"):
        plot_curves(effect_curves(predictor).iloc[:0])


def test_a_model_without_curves_says_so():
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    options = {"seed": 0, "trainer_kwargs": trainer, "effects": "given"}
    straight = StateSpaceEstimator("bank", "D", HORIZON, **options).train(sales(0), columns=COLUMNS)
    with pytest.raises(ValueError, match="behind curves of covariates"):
        effect_curves(straight)
