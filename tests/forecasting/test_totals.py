"""Running totals: what counts as one, and forecasts that are sums of forecast increments."""

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import tsforecast
from tsforecast.data import ForecastTask
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import load_predictor, save_predictor, with_prediction_length
from tsforecast.forecasting.quick_bank import conditioned
from tsforecast.forecasting.totals import are_totals, increments, of_increments

_DAYS, _HORIZON = 200, 14
LEVELS = np.arange(1, 10) / 10


def _used(series: int = 3, days: int = _DAYS, seed: int = 0) -> np.ndarray:
    """Return what meters count each day, less on weekends."""
    rng = np.random.default_rng(seed)
    week = np.where(np.arange(days) % 7 < 5, 20.0, 8.0)
    return np.array([1.0, 5.0, 30.0])[:series, None] * week * rng.uniform(0.8, 1.2, (series, days))


def _task(values: np.ndarray, windows: int = 1) -> ForecastTask:
    start = pd.Period("2024-01-01", "D")
    entries = [{"item_id": f"meter {number}", "start": start, "target": row} for number, row in enumerate(values)]
    return ForecastTask("meters", "D", _HORIZON, windows, entries)


def _frame(values: np.ndarray) -> pd.DataFrame:
    days = pd.date_range("2024-01-01", periods=values.shape[1])
    parts = [pd.DataFrame({"meter": f"meter {n}", "day": days, "kwh": row}) for n, row in enumerate(values)]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def task() -> ForecastTask:
    return _task(1000 + _used().cumsum(1))


@pytest.fixture(scope="module")
def predictor(task):
    return fitted(task)


def _loss(forecasts, task: ForecastTask) -> float:
    found = []
    for forecast, (_, label) in zip(forecasts, task.test(), strict=True):
        error = label["target"] - np.stack([forecast.quantile(level) for level in LEVELS])
        found.append(np.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1) * error).mean() / label["target"][0])
    return float(np.mean(found))


def test_forecasts_are_sums_of_forecast_increments(task, predictor):
    pasts = [past for past, _ in task.test()]
    torch.manual_seed(0)
    found = list(predictor.predict(pasts, num_samples=50))
    alone = fitted(of_increments(task))
    torch.manual_seed(0)
    parts = list(alone.predict([past for past, _ in of_increments(task).test()], num_samples=50))
    for one, part, past in zip(found, parts, pasts, strict=True):
        np.testing.assert_allclose(one.samples, past["target"][-1] + part.samples.astype(float).cumsum(1), rtol=1e-6)
        assert (one.item_id, one.start_date) == (part.item_id, part.start_date)
        assert (np.diff(one.samples) >= 0).all()


def test_they_are_far_better_than_those_of_levels(task, predictor):
    pasts = [past for past, _ in task.test()]
    levels = conditioned(task, list(task.train), 0, "none")
    assert _loss(predictor.predict(pasts), task) < 0.5 * _loss(levels.predict(pasts, num_samples=0), task)


def test_the_log_says_it(task, caplog):
    with caplog.at_level(logging.INFO):
        fitted(task)
    assert "as running totals: their increments are forecast, and summed" in caplog.text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (_used().cumsum(1), True),
        (_used(), False),
        (np.repeat(_used(days=20).cumsum(1), 10, 1), True),  # most steps stand still
        (np.cumsum(np.random.default_rng(0).normal(0.3, 1.0, (3, 200)), 1), False),  # a trend, with falls
        (_used(days=20).cumsum(1), False),  # too short to say
        (np.full((3, 200), 7.0), False),
        (np.concatenate([_used().cumsum(1)[:2], _used()[:1]]), False),  # one of three falls
        (np.concatenate([_used().cumsum(1), np.full((2, 200), 7.0)]), True),
        (np.where(np.arange(200) % 9 == 0, np.nan, _used().cumsum(1)), True),
    ],
)  # fmt: skip
def test_totals_hardly_ever_fall(values, expected):
    assert are_totals(_task(values).entries) is expected


def test_all_targets_are_totals_or_none():
    both = {"target": _used(2).cumsum(1)}
    assert are_totals([both])
    assert not are_totals([{"target": np.stack([_used(1).cumsum(1)[0], _used(1)[0]])}])
    np.testing.assert_array_equal(increments(both)["target"][:, 1:], np.diff(both["target"]))


def test_a_meter_that_is_changed_begins_anew():
    values = np.array([100.0, 103.0, 107.0, 2.0, 6.0, np.nan, 14.0])
    expected = [np.nan, 3.0, 4.0, np.nan, 4.0, 4.0, 4.0]
    np.testing.assert_array_equal(increments({"target": values})["target"], expected)
    known = increments({"target": values, "known_future": np.array([15.0, np.nan, 21.0, 24.0])})["known_future"]
    np.testing.assert_array_equal(known, [1.0, np.nan, np.nan, 3.0])


def test_totals_below_zero_rise_as_others():
    values = np.array([-100.0, -90.0, -91.0, -2.0, 5.0])
    np.testing.assert_array_equal(increments({"target": values})["target"], [np.nan, 10.0, -1.0, 89.0, 7.0])
    used = _used().cumsum(1)
    own, other = (tsforecast.forecast(_frame(used - below), horizon=3) for below in (0.0, 1e5))
    np.testing.assert_allclose(own["mean"] - 1e5, other["mean"], rtol=1e-6)


@pytest.mark.parametrize("readings", [[0, 1, 2, 3, 4], [0, 2, 4], [2]])
def test_totals_that_are_not_read_every_day_rise_on_all_days(readings):
    whole = 1000 + _used(days=_DAYS + _HORIZON).cumsum(1)
    past = np.where(np.isin(np.arange(_DAYS) % 7, readings), whole[:, :_DAYS], np.nan)
    found = tsforecast.forecast(_frame(past), horizon=_HORIZON, freq="D")
    risen = found.groupby("meter")["mean"].last().to_numpy() - whole[:, _DAYS - 1]
    np.testing.assert_allclose(risen, whole[:, -1] - whole[:, _DAYS - 1], rtol=0.15)


def test_a_seed_gives_the_same_forecasts():
    frame = _frame(_used().cumsum(1))
    one, other = (tsforecast.forecast(frame, horizon=3, seed=1) for _ in range(2))
    pd.testing.assert_frame_equal(one, other)


def test_a_known_total_holds(task, predictor):
    past = next(iter(task.test()))[0]
    known = np.full(_HORIZON, np.nan)
    known[:2] = past["target"][-1] + np.array([21.0, 40.0])
    (found,) = predictor.predict([{**past, "known_future": known}])
    np.testing.assert_allclose(found.samples[:, :2], np.broadcast_to(known[:2], (len(found.samples), 2)), rtol=1e-6)
    assert np.ptp(found.samples[:, 2]) > 0
    known[:] = np.nan
    known[4] = past["target"][-1] + 100.0
    (found,) = predictor.predict([{**past, "known_future": known}])
    np.testing.assert_allclose(found.samples[:, 4], known[4], rtol=1e-6)
    assert (np.diff(found.samples, axis=1) >= 0).all()
    assert (np.ptp(found.samples[:, [0, 1, 2, 3, 5]], axis=0) > 0).all()


def test_steps_that_no_one_has_seen_count(task, predictor):
    past = next(iter(task.test()))[0]
    whole = past["target"].copy()
    late = np.append(whole[:-10], np.full(10, np.nan))
    torch.manual_seed(0)
    (full,), (short,) = (list(predictor.predict([{**past, "target": values}], 400)) for values in (whole, late))
    assert abs(short.mean[-1] - full.mean[-1]) < 0.2 * (whole[-1] - whole[-11])
    assert short.samples[:, 0].std() > 2 * full.samples[:, 0].std()
    (empty,) = predictor.predict([{**past, "target": np.full(50, np.nan)}])
    assert np.isfinite(empty.samples).all()


def test_saved_and_loaded_they_are_the_same(task, predictor, tmp_path: Path):
    pasts = [past for past, _ in task.test()]
    save_predictor(predictor, tmp_path / "saved")
    again = load_predictor(tmp_path / "saved")
    for one in (predictor, again):
        torch.manual_seed(0)
        one.found = list(one.predict(pasts))
    for one, other in zip(predictor.found, again.found, strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
    assert next(iter(with_prediction_length(again, 5).predict(pasts))).prediction_length == 5


def test_other_answers_are_refused_with_advice(task, predictor):
    with pytest.raises(ValueError, match="the model is one of their increments: it forecasts totals"):
        predictor.filter(task.entries)
    with pytest.raises(ValueError, match="`tsforecast train bank --data FILE`"):
        list(predictor.impute(task.entries))


def test_a_table_has_totals_and_sums_of_them(task):
    days = pd.date_range("2024-01-01", periods=_DAYS)
    parts = [pd.DataFrame({"meter": one["item_id"], "day": days, "kwh": one["target"]}) for one in task.entries]
    frame = pd.concat(parts, ignore_index=True)
    found = tsforecast.forecast(frame, horizon=_HORIZON)
    last = frame.groupby("meter")["kwh"].last()
    first = found.groupby("meter").first()
    assert list(found.columns[:3]) == ["meter", "day", "mean"]
    assert (first["0.1"] >= last).all()
    assert (found.groupby("meter")["0.5"].diff().dropna() > 0).all()
    frame["town"] = np.where(frame["meter"] == "meter 0", "a", "b")
    summed = tsforecast.forecast(frame, horizon=_HORIZON, hierarchy="town/meter")
    assert summed["mean"].gt(0).all()
    tops = summed.iloc[-1]["mean"], summed["mean"].max()
    assert max(tops) == pytest.approx(found.groupby("meter")["mean"].last().sum(), rel=0.01)


def test_covariates_explain_increments():
    rng = np.random.default_rng(1)
    cold = rng.uniform(0, 10, (1, _DAYS + _HORIZON))
    used = 5 + 3 * cold + rng.normal(0, 0.2, cold.shape)
    days = pd.date_range("2024-01-01", periods=_DAYS + _HORIZON)
    frame = pd.DataFrame({"day": days, "target": used[0].cumsum(), "cold": cold[0]})
    actual = frame["target"].to_numpy()[_DAYS - 1 :].copy()
    frame.loc[_DAYS:, "target"] = np.nan
    found = tsforecast.forecast(frame)
    assert len(found) == _HORIZON
    assert np.abs(np.diff(found["mean"]) - np.diff(actual)[1:]).mean() < 1.5
    assert abs(found["mean"].iloc[-1] - actual[-1]) < 0.05 * (actual[-1] - actual[0])


def test_auto_models_increments_and_a_named_model_totals(task, caplog):
    pasts = [past for past, _ in task.test()]
    options = {"prediction_length": _HORIZON, "freq": "D", "seed": 0, "num_batches_per_epoch": 1}
    auto = StateSpaceEstimator("auto", models="bank", trainer_kwargs={"max_epochs": 1}, **options)
    with caplog.at_level(logging.INFO, "tsforecast"):
        found = auto.train(task.train)
    assert found.totals
    assert "their increments are forecast, and summed" in caplog.text
    for past, forecast in zip(pasts, found.predict(pasts), strict=True):
        assert forecast.quantile(0.1)[0] >= past["target"][-1]
    for totals in (None, True):
        own = StateSpaceEstimator("bank", totals=totals, trainer_kwargs={"max_epochs": 0}, **options)
        assert own.train(task.train).totals is bool(totals)
    levels = StateSpaceEstimator("auto", totals=False, models="bank", trainer_kwargs={"max_epochs": 1}, **options)
    assert not levels.train(task.train).totals


def test_a_single_reading_ends_no_training(task):
    one = {**task.train[0], "item_id": "new", "target": np.append(np.full(_DAYS - _HORIZON - 1, np.nan), 500.0)}
    entries = [*task.train, one]
    trainer = {"max_epochs": 0, "enable_progress_bar": False}
    estimator = StateSpaceEstimator("bank", "D", _HORIZON, totals=True, seed=0, trainer_kwargs=trainer)
    predictor = estimator.train(entries)
    assert np.isfinite([forecast.mean for forecast in predictor.predict(entries)]).all()
    again = StateSpaceEstimator("bank", "D", _HORIZON, seed=0, trainer_kwargs=trainer)
    assert again.train_from(predictor, entries).totals
    levels = StateSpaceEstimator("bank", "D", _HORIZON, totals=False, seed=0, trainer_kwargs=trainer)
    with pytest.raises(ValueError, match="expected totals=True as in the predictor, got False"):
        levels.train_from(predictor, entries)


def test_sums_with_a_seed_are_the_same_again():
    frame = _frame(_used(days=60).cumsum(1)).assign(town=lambda x: np.where(x["meter"] == "meter 0", "a", "b"))
    one, other = (tsforecast.forecast(frame, horizon=3, seed=1, hierarchy="town/meter") for _ in range(2))
    pd.testing.assert_frame_equal(one, other)
