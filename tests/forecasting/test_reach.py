"""Forecasts of series that jump stay within reach of what has been seen."""

import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast import StateSpaceEstimator
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.windows import first_value
from tsforecast.forecasting.data_summary import largest_move, say_late, typical_change
from tsforecast.models.parts.marginals import Marginals

HORIZON, STEPS = 6, 48
QUICK = {
    "trainer_kwargs": {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 1},
    "num_batches_per_epoch": 2,
}
POOL = {"members": "bank structures=trend,level; issm components=trend", "weights": "0.5,0.5"}
MODELS = [
    ("bank", {"structures": "trend,damped_trend"}, "MS"),
    ("bank", {"structures": "trend,level", "transformations": "asinh,symsqrt"}, "W"),
    ("issm", {"components": "trend", "transformation": "log1p"}, "D"),
    ("issm", {"components": "trend", "transformation": "asinh"}, "h"),
    ("issm", {"components": "trend", "transformation": "sqrt"}, "QS"),
    ("issm", {"components": "trend"}, "YS"),
    ("pool", POOL, "MS"),
]


def jumpy() -> dict[str, np.ndarray]:
    """Sales that were nothing for long, pause, jump, or have only begun."""
    rng = np.random.default_rng(0)
    sales = np.round(40_000 * np.exp(0.1 * rng.normal(size=(7, STEPS))))
    sales[0, :30], sales[1, :44], sales[2, 20:30], sales[3, -8:] = 0, 0, 0, 0
    sales[4, :40] = np.round(sales[4, :40] / 1000)
    sales[5, :-2] = np.nan
    return dict(zip(("late", "just open", "closed", "closing", "shift", "young", "usual"), sales, strict=True))


def entries(freq: str) -> list[dict]:
    start = pd.Period("2020-01-01", {"MS": "M", "QS": "Q", "YS": "Y"}.get(freq, freq))
    return [{"item_id": name, "start": start, "target": values} for name, values in jumpy().items()]


@pytest.mark.parametrize(("model", "options", "freq"), MODELS)
def test_no_quantile_leaves_the_range_by_more_than_ten_widths(model, options, freq):
    with expected_alias_warnings():
        data = entries(freq)
        estimator = StateSpaceEstimator(model, data[0]["start"].freqstr, HORIZON, seed=0, **QUICK, **options)
        predictor = estimator.train(data)
    move = predictor.prediction_net.data.largest_move
    assert move == 10  # no series has moved so far in its last steps
    change = predictor.prediction_net.data.typical_change
    for entry, forecast in zip(data, predictor.predict(data, num_samples=200), strict=True):
        values = entry["target"][~np.isnan(entry["target"])]
        width = max(np.ptp(values), change * values.max())
        reached = np.concatenate([forecast.samples, forecast.quantile(0.99)[None], forecast.mean[None]])
        assert (reached <= values.max() + 10.001 * width).all(), entry["item_id"]
        assert (reached >= 0).all()


def test_a_jump_is_not_followed_by_another(tmp_path):
    """Without bounds the same model forecasts what is out of all proportion: so they are what holds it."""
    data = entries("D")
    options = {"components": "trend", "transformation": "log1p", **QUICK}
    predictor = StateSpaceEstimator("issm", "D", HORIZON, seed=0, **options).train(data)
    bounded = list(predictor.predict(data, num_samples=0))
    again = pickle.loads(pickle.dumps(bounded[1]))
    np.testing.assert_array_equal(again.quantile(0.99), bounded[1].quantile(0.99))
    beliefs = predictor.filter(data)
    live = list(predictor.forecast_from(beliefs, num_samples=0))
    np.testing.assert_allclose(live[1].quantile(0.99), bounded[1].quantile(0.99), rtol=1e-5)
    predictor.prediction_net.data = dataclasses.replace(predictor.prediction_net.data, largest_move=0.0)
    free = list(predictor.predict(data, num_samples=0))
    assert max(one.quantile(0.99).max() for one in free) > 2 * max(one.quantile(0.99).max() for one in bounded)


def test_known_values_of_the_future_may_lie_anywhere():
    data = entries("D")
    options = {"components": "level", **QUICK}
    predictor = StateSpaceEstimator("issm", "D", HORIZON, seed=0, **options).train(data)
    known = np.full(HORIZON, np.nan)
    known[2] = 1e8
    (forecast,) = predictor.predict([{**data[-1], "known_future": known}], num_samples=3)
    assert forecast.quantile(0.5)[2] == pytest.approx(1e8)
    assert forecast.samples[:, 2] == pytest.approx(1e8)


def test_bounds_of_marginals_are_those_of_a_censored_distribution(float64):
    bounds = torch.tensor([[[-1.0], [2.0]]])
    free = Marginals.single(torch.tensor([[[0.5]]]), torch.tensor([[[2.0]]]), "none")
    censored = dataclasses.replace(free, bounds=bounds)
    levels = torch.tensor([0.05, 0.4, 0.99])
    torch.testing.assert_close(censored.quantile(levels), free.quantile(levels).clamp(-1, 2))
    at = torch.tensor([[[-1.5]]]), torch.tensor([[[0.3]]]), torch.tensor([[[2.0]]])
    below, within, above = (float(censored.cdf(one)) for one in at)
    assert (below, above) == (0, 1)
    assert within == float(free.cdf(at[1]))


@pytest.mark.parametrize(
    ("values", "begin"),
    [
        ([0, 0, 0, 0, 30, 31, 29, 33, 30], 4),  # a shop that opened late
        ([0, 1, 0, 1, 3000, 3100, 2900, 3300, 3000], 4),  # and had test orders
        ([3, 0, 0, 0, 30, 31, 29, 33, 30], 0),  # grew to ten times as much
        ([0, 30, 31, 29, 33, 30], 0),  # a single day
        ([0, 0, 0, 5, 5, 0, 0, 5, 5, 5], 0),  # nights
        ([0, 0, 0, 0, 0, 2, 0, 0, 0, 0], 0),  # rare demand
        ([30, 31, 0, 0, 0, 33, 30, 31], 0),  # a closure
        ([0, 0, 0, 0, 0, -30, 31, 29, 33, 30], 0),  # no amounts: they have both signs
        ([np.nan, np.nan, 0, 0, np.nan, 0, 30, 31, 29, 33, 30], 6),
        ([*range(100)], 0),  # a ramp
        ([*(1.1 ** np.arange(50))], 0),  # growth
        ([0, 0, 0, 0, 9, 0, 90, 120, 110, 130, 120], 4),  # a shop that opened by and by
        ([np.nan, np.nan], 1),
        ([0, 0, 0], 0),
    ],
)
def test_a_series_begins_where_its_values_are_of_its_size(values, begin):
    column = np.array(values, float)[:, None]
    assert first_value(column, ~np.isnan(column)) == begin


def test_largest_moves_are_those_of_the_last_steps():
    rng = np.random.default_rng(1)
    calm = 100 + rng.normal(size=60)
    wild = np.concatenate([calm[:50], 100 + 40 * np.arange(10)])  # far beyond what had been
    change = typical_change([{"target": calm}], 1)
    width = max(np.ptp(calm[:50]), change * calm[:50].max())
    assert largest_move([{"target": calm}], 10, change) == 10
    assert largest_move([{"target": calm}, {"target": wild}], 10, change) == pytest.approx(
        (wild[-1] - calm[:50].max()) / width
    )
    zeros, missing = {"target": np.zeros(20)}, {"target": np.full(20, np.nan)}
    assert largest_move([zeros, missing], 10, change) == 10


def test_the_log_names_series_that_begin_late(caplog):
    caplog.set_level("INFO", logger="tsforecast.forecasting.data_summary")
    say_late(entries("D"))
    assert "3 series begin with values that are nothing" in caplog.text
    assert "'late', 'just open', 'shift'" in caplog.text
