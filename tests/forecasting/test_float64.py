"""Series with a row years before the others: what float32 cannot hold is done in float64, whatever is asked."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils import _pytree as pytree

from tsforecast import StateSpaceEstimator
from tsforecast.analysis import anomalies
from tsforecast.analysis.explain import explain
from tsforecast.analysis.regimes import regime_report
from tsforecast.core.linalg import NotPositiveDefiniteError

DAY = pd.Period("2012-01-01", "D")
GAP, KNOWN = 3600, 90
QUIET = {"max_epochs": 0, "accelerator": "cpu", "enable_progress_bar": False, "logger": False}


@pytest.fixture(scope="module")
def late():
    """A series of which nothing is known for years behind its first value."""
    values = 100 + np.random.default_rng(0).normal(0, 5, KNOWN)
    return {"item_id": "late", "start": DAY, "target": np.concatenate([[100.0], np.full(GAP, np.nan), values])}


@pytest.fixture(scope="module")
def usual(late):
    """The same without its early value."""
    return {"item_id": "usual", "start": DAY, "target": late["target"][-KNOWN:]}


@pytest.fixture(scope="module")
def predictor(usual):
    """A bank of one model: a trend, of which nothing is known after years."""
    options = {"structures": "level+trend", "transformations": "none", "seed": 0}
    return StateSpaceEstimator("bank", "D", 7, **options, trainer_kwargs=QUIET).train([usual])


def test_float32_does_not_do(predictor, late):
    """Else the others test nothing."""
    histories = predictor.histories()
    batch, windows, _ = histories.batch_of([late])
    with torch.no_grad(), pytest.raises(NotPositiveDefiniteError):
        histories.filtered(windows, batch)


def test_beliefs_move_on_and_forecast(predictor, late, usual, caplog):
    """They are in the precision of all other beliefs, and those of a series in two parts are those of the whole."""
    with caplog.at_level(logging.INFO, "tsforecast"):
        beliefs = predictor.filter([late, usual])
    assert "1 belief in float64" in caplog.text
    kinds = [[x.dtype for x in pytree.tree_leaves(beliefs[item].belief) if x is not None] for item in beliefs]
    assert kinds[0] == kinds[1]
    for forecast, direct in zip(predictor.forecast_from(beliefs), predictor.predict([late, usual]), strict=True):
        np.testing.assert_allclose(forecast.quantile(0.5), direct.quantile(0.5), rtol=1e-3)
    first = {**late, "target": late["target"][:100]}
    rest = {**late, "start": DAY + 100, "target": late["target"][100:]}
    moved = predictor.update(predictor.filter([first]), [rest])
    (stepwise,), (whole, _) = predictor.forecast_from(moved), predictor.forecast_from(beliefs)
    np.testing.assert_allclose(stepwise.quantile(0.9), whole.quantile(0.9), rtol=1e-2)


def test_forecasts_are_taken_apart(predictor, late, caplog):
    with caplog.at_level(logging.INFO, "tsforecast"):
        parts = explain(predictor, [late])
    assert "in float64" in caplog.text
    (direct,) = predictor.predict([late])
    fit = parts[parts["part"] == "fit"]
    np.testing.assert_allclose(fit["mean"], direct.mean, rtol=1e-3)


def _fail_in_float32(monkeypatch, predictor, *names):
    """Makes inference fail in float32 as behind a gap, which takes no thousands of steps."""
    kind = type(predictor.prediction_net.inference)

    def failing(whole):
        def method(self, *given, **others):
            if next(iter(self.dynamics.parameters())).dtype == torch.float32:
                raise NotPositiveDefiniteError("as behind a gap")
            return whole(self, *given, **others)

        return method

    for name in names:
        monkeypatch.setattr(kind, name, failing(getattr(kind, name)))


def test_missing_values_are_imputed(predictor, usual, monkeypatch, caplog):
    _fail_in_float32(monkeypatch, predictor, "impute")
    holed = {**usual, "target": np.where(np.arange(KNOWN) % 9 == 4, np.nan, usual["target"])}
    with caplog.at_level(logging.INFO, "tsforecast"):
        (found,) = predictor.impute([holed], 20)
    assert caplog.text.count("1 series in float64") == 1
    seen = ~np.isnan(holed["target"])
    np.testing.assert_array_equal(found.samples[:, seen], np.tile(usual["target"][seen], (20, 1)))
    assert ((found.samples > 70) & (found.samples < 130)).all()


def test_steps_are_judged(predictor, usual, monkeypatch, caplog):
    expected = anomalies([usual], predictor, since="2012-02-20")
    _fail_in_float32(monkeypatch, predictor, "filter")
    with caplog.at_level(logging.INFO, "tsforecast"):
        found = anomalies([usual], predictor, since="2012-02-20")
    assert caplog.text.count("1 series in float64") == 1
    for name in ("expected", "tail"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3)


def test_regimes_are_told(usual, monkeypatch, caplog):
    options = {"regimes": 2, "order": 1, "seed": 0, "trainer_kwargs": QUIET | {"max_epochs": 1}}
    predictor = StateSpaceEstimator("markov", "D", 7, **options).train([usual])
    expected = regime_report(predictor, [usual])
    _fail_in_float32(monkeypatch, predictor, "regimes", "regimes_ahead")
    with caplog.at_level(logging.INFO, "tsforecast"):
        found = regime_report(predictor, [usual])
    assert caplog.text.count("1 series in float64") == 2
    for one, other in ((found.regimes, expected.regimes), (found.ahead, expected.ahead)):
        np.testing.assert_allclose(one["p_1"], other["p_1"], atol=1e-4)
