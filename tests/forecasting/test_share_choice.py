"""The choice of the share of direct forecasts."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.data import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting.at_once import fitted
from tsforecast.forecasting.direct import NAME, direct_forecast
from tsforecast.forecasting.share_choice import _held_out, _parabola
from tsforecast.forecasting.trials import LEVELS

DAY = 24
DAYS = NAME + "days"


def task_of(values: np.ndarray, windows: int = 0):
    """Return the task of hourly series (series, time), forecast a day ahead."""
    stamps = pd.date_range("2024-01-01", periods=values.shape[1], freq="h")
    parts = [pd.DataFrame({"item_id": str(k), "timestamp": stamps, "target": row}) for k, row in enumerate(values)]
    return read_task(pd.concat(parts), "h", DAY, windows)


@pytest.fixture(scope="module")
def predictors():
    """Return tasks and predictors of days in which one shape or another comes by turns, and of a random walk."""
    random = np.random.default_rng(0)
    shapes = random.normal(size=(3, DAY))
    # The day before says which shape comes, and a model of one season has their mean.
    turns = 10 + np.tile(shapes, (40, 1)).ravel() + random.normal(0, 0.1, 120 * DAY)
    walk = 100 + random.normal(size=120 * DAY).cumsum()
    tasks = [task_of(values[None], 1) for values in (turns, walk)]
    return [(task, fitted(task)) for task in tasks]


def test_it_is_larger_where_the_days_before_say_more(predictors):
    turns, walk = (predictor.direct for _, predictor in predictors)
    assert 0.25 <= walk < 0.5 < turns <= 0.75


def test_crps_of_a_mixture_is_the_parabola(predictors):
    task, predictor = predictors[1]
    past, label = next(iter(task.test()))
    forecast = next(iter(predictor.predict([past], num_samples=0)))
    slope, bend = _parabola(past, label, forecast, DAY)
    unit = np.abs(past["target"][DAY:] - past["target"][:-DAY]).mean()
    sides = [forecast.of_models(set(forecast.weights) - {DAYS}), forecast.of_models({DAYS})]
    values = np.concatenate([side.quantiles(LEVELS) for side in sides])
    found = {}
    for share in (0.0, 0.3, 1.0):
        weight = np.repeat([1 - share, share], len(LEVELS)) / len(LEVELS)
        apart = np.abs(values[:, None] - values[None]).transpose(2, 0, 1) @ weight @ weight
        found[share] = (weight @ np.abs(values - label["target"]) - apart / 2).mean() / unit
    for share, value in found.items():
        assert value - found[0.0] == pytest.approx(slope * share + bend / 2 * share**2, abs=1e-6)


def test_a_window_without_a_value_says_nothing(predictors):
    task, predictor = predictors[1]
    past, label = next(iter(task.test()))
    forecast = next(iter(predictor.predict([past], num_samples=0)))
    assert np.isnan(_parabola(past, {**label, "target": np.full(DAY, np.nan)}, forecast, DAY)).all()
    flat = {**past, "target": np.ones_like(past["target"])}
    assert np.isnan(_parabola(flat, label, forecast, DAY)).all()


def test_windows_without_regressions_are_said(caplog):
    """Hours of service alone: half of the steps have no value."""
    values = np.random.default_rng(3).normal(10, 1, 60 * DAY)
    values[np.arange(60 * DAY) % DAY < 12] = np.nan
    with caplog.at_level("INFO"):
        assert fitted(task_of(values[None])).direct == 0.5
    assert "regressions count for a half: windows have none" in caplog.text


def test_several_targets_have_one_share():
    values = np.random.default_rng(2).normal(10, 1, (60 * DAY, 2))
    frame = pd.DataFrame(values, columns=["a", "b"])
    frame["timestamp"] = pd.date_range("2024-01-01", periods=len(values), freq="h")
    assert 0.25 <= fitted(read_task(frame, "h", DAY, 1, columns=Columns(target=["a", "b"]))).direct <= 0.75


def test_parts_of_a_mixture_are_the_forecasts_of_its_models(predictors):
    task, predictor = predictors[0]
    past, _ = next(iter(task.test()))
    forecast = next(iter(predictor.predict([past], num_samples=0)))
    direct = direct_forecast(np.asarray(past["target"], np.float64), DAY, DAY)
    assert direct is not None
    np.testing.assert_allclose(forecast.of_models({DAYS}).mean, direct.parts()[0].mean(0), rtol=1e-4)
    predictor.direct, share = 0.0, predictor.direct
    alone = next(iter(predictor.predict([past], num_samples=0)))
    predictor.direct = share
    model = forecast.of_models(set(forecast.weights) - {DAYS})
    np.testing.assert_allclose(model.quantile(0.9), alone.quantile(0.9), rtol=1e-6)


@pytest.mark.parametrize(
    ("series", "days", "expected"), [(1, 400, (28, 1)), (3, 120, (10, 3)), (12, 120, (4, 8)), (1, 22, None)]
)
def test_few_series_have_more_windows_and_short_ones_none(series, days, expected):
    task = task_of(np.random.default_rng(1).normal(size=(series, days * DAY)))
    held_out = _held_out(task, list(task.train), 0)
    assert (None if held_out is None else (held_out.windows, len(held_out.entries))) == expected
