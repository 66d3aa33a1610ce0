"""Switching models are tried where regimes were planted, and not where there are none."""

import numpy as np
import pandas as pd
import pytest

from tsforecast import StateSpaceEstimator
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.bursts import _signs, bursts
from tsforecast.forecasting.selection import select
from tsforecast.models.parts.bank_inference import BankInference

LENGTH = 400


def made(kind, length=LENGTH):
    """Return three daily series with a season of the week and errors that are calm, or wild for a fortnight."""
    found = []
    for k in range(3):
        random, wild = np.random.default_rng(k), [False]
        for _ in range(length - 1):
            wild.append(random.random() < (0.93 if wild[-1] else 0.02))
        noise = random.normal(0, 1, length) * np.where(wild, 8 if kind == "regimes" else 1, 1)
        target = (100 + 5 * np.sin(2 * np.pi * np.arange(length) / 7) + noise).astype(np.float32)
        found.append({"item_id": f"s{k}", "start": pd.Period("2020-01-01", "D"), "target": target})
    return found


def conditioned(entries):
    return StateSpaceEstimator("bank", "D", 7, seed=0, trainer_kwargs={"max_epochs": 0}).train(entries)


@pytest.mark.parametrize(("kind", "expected"), [("regimes", True), ("none", False)])
def test_planted_regimes_are_seen(kind, expected):
    entries = made(kind)
    found, said = bursts(conditioned(entries), entries)
    assert found == expected, said
    assert "kurtosis" in said


def test_short_series_show_none():
    entries = made("regimes", 90)
    assert bursts(conditioned(entries), entries) == (False, "half of the series would need 100 errors to show bursts")


@pytest.mark.parametrize(("kind", "tried"), [("regimes", ["markov", "sgls"]), ("none", [])])
def test_switching_models_are_tried_where_errors_come_in_bursts(kind, tried):
    """All other candidates fail, but for the conditioned bank, which tells."""
    asked = []

    def train(candidate, entries):
        asked.append(candidate.model)
        if len(asked) > 1:
            raise ValueError("not to be trained here")
        return conditioned(entries)

    found = select(ForecastTask("toy", "D", 7, 0, made(kind)), train)
    assert asked == ["bank", "issm", "gls", "bank", *tried]
    assert found.notes[0].startswith(f"switching models are {'' if tried else 'not '}tried: the kurtosis of errors is")


def test_squared_errors_of_one_step_ahead():
    """An outlier has the largest, a missing value none; without them they are about 1 by the noise of the model."""
    entry = made("none", 200)[0]
    entry["target"][[150, 170]] = 130, np.nan
    predictor = conditioned([entry])
    inference = predictor.histories().net.inference
    assert isinstance(inference, BankInference)
    squares = inference.squared_errors(predictor.histories().batch_of([entry])[0])[:, 0].detach().numpy()
    assert np.nanargmax(squares) == 150
    assert np.isnan(squares[170])
    assert np.isnan(squares).sum() == 1
    assert squares[150] > 50 * np.nanmedian(squares)


def test_errors_are_ranked_within_the_season():
    """Errors that are large in the same steps of every season come in no bursts; those of whole seasons do."""
    random = np.random.default_rng(0)
    squares, step = random.chisquare(1, 700), np.arange(700)
    assert abs(_signs(squares * np.where(step % 7 < 3, 50, 1), 7)[1]) < 3 / np.sqrt(700)
    assert _signs(squares * np.where(step // 7 % 10 < 2, 50, 1), 7)[1] > 0.25
    assert _signs(np.zeros(700), 7) is None
