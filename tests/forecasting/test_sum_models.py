"""Models of sums: single weeks of the year, whether they learn, and by whom each node is forecast."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from gluonts.model.forecast import SampleForecast
from scipy import sparse

from tsforecast.data.hierarchy import Hierarchy
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting import quick_bank, sum_models
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.sum_models import fitted_sums, forecasts_of_nodes

WEEKS, HORIZON, NOISE = 3 * 52, 8, 0.01


@pytest.fixture(scope="module")
def ahead():
    """Return values of sums by a year with twenty harmonics, over the horizon, too."""
    rng, order = np.random.default_rng(0), np.arange(1, 21)[:, None]
    days = pd.period_range("2021-01-01", periods=WEEKS + HORIZON, freq="W-FRI").end_time.dayofyear.to_numpy()
    waves = np.cos(order * 2 * np.pi * days / 365.25 + rng.uniform(0, 2 * np.pi, (20, 1))) / np.sqrt(order)
    noise = NOISE * rng.standard_normal((4, WEEKS + HORIZON))
    return 1000 * (1 + 0.1 * waves.sum(0)) * (1 + noise)


@pytest.fixture(scope="module")
def weekly(ahead):
    start = pd.Period("2021-01-01", "W-FRI")
    entries = [{"item_id": str(row), "start": start, "target": one[:WEEKS]} for row, one in enumerate(ahead)]
    return ForecastTask("sums", "W-FRI", HORIZON, 0, entries)


def _means(predictor, task):
    return np.stack([one.mean for one in predictor.predict(task.latest, 0)])


def test_sums_have_single_weeks_of_the_year(ahead, weekly):
    """Of the two kinds that `fitted_sums` chooses from, the one that learns has them."""
    way, errors = quick_bank._trained(weekly, weekly.entries, 0, "auto"), []
    for share in (0.0, 1.0):
        errors.append(np.abs(_means(way.at(share), weekly) / ahead[:, WEEKS:] - 1).mean())
    of_series = np.abs(_means(fitted(weekly), weekly) / ahead[:, WEEKS:] - 1).mean()
    stays, learns = errors
    assert learns < 2 * NOISE < min(of_series, stays)


class _Constant:
    def __init__(self, value):
        self.value = value

    has_marginals = True

    def predict(self, entries, num_samples):
        assert num_samples == 0  # paths would be drawn in vain
        for entry in entries:
            yield SampleForecast(np.full((5, HORIZON), self.value), entry["start"], entry["item_id"])


def test_sums_are_forecast_by_their_model_and_series_by_theirs(weekly, monkeypatch):
    asked = []
    monkeypatch.setattr(sum_models, "fitted_sums", lambda task, seed: asked.append(task) or _Constant(1.0))
    tree = Hierarchy(("1", "2", "3"), ("0",), sparse.csr_array(np.ones((1, 3))))
    predict = forecasts_of_nodes(_Constant(2.0), weekly, tree)
    assert [entry["item_id"] for entry in asked[0].entries] == ["0"]
    order = [weekly.entries[row] for row in (2, 0, 3)]  # as windows have it, in which some series are missing
    found = list(predict(order))
    assert [one.item_id for one in found] == ["2", "0", "3"]
    assert [one.mean[0] for one in found] == [2.0, 1.0, 2.0]


def test_sums_too_short_for_a_window_keep_what_others_have_taught(weekly, caplog):
    caplog.set_level("INFO")
    short = [{**entry, "target": entry["target"][: HORIZON + 1]} for entry in weekly.entries]
    means = _means(fitted_sums(replace(weekly, entries=short)), replace(weekly, entries=short))
    assert np.isfinite(means).all()
    assert any("learnt from public series" in one for one in caplog.messages)
