"""Which candidate is chosen, by forecasts that are known; and the whole way through an estimator."""

import json

import numpy as np
import pandas as pd
import pytest
from gluonts.model import Predictor
from gluonts.model.forecast import QuantileForecast

from tsforecast import StateSpaceEstimator
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation import score
from tsforecast.forecasting.selection import (
    ROUNDS,
    Candidate,
    Trial,
    candidates,
    comparison,
    relative_scores,
    select,
    series_losses,
)


def entries(lengths=(60, 60, 60), freq="M", targets=0):
    rng = np.random.default_rng(0)
    shape = (targets,) if targets else ()
    return [
        {
            "item_id": f"s{k}",
            "start": pd.Period("2010-01", freq),
            "target": (50 + rng.standard_normal((*shape, length)).cumsum(-1)).astype(np.float32),
        }
        for k, length in enumerate(lengths)
    ]


def task(**options):
    return ForecastTask("toy", "M", 4, 0, entries(**options))


class Shifted(Predictor):
    """Forecasts the truth and an error, with quantiles that are all the same."""

    def __init__(self, error):
        super().__init__(prediction_length=4)
        self.error = error

    def predict(self, dataset, **_):
        for past in dataset:
            whole = next(e for e in entries() if e["item_id"] == past["item_id"])["target"]
            begin = past["target"].shape[-1]
            values = whole[begin : begin + 4] + self.error
            yield QuantileForecast(
                np.stack([values] * 9),
                start_date=past["start"] + begin,
                forecast_keys=[str(k / 10) for k in range(1, 10)],
                item_id=past["item_id"],
            )


def shifted(errors):
    return lambda candidate, epochs, _: Shifted(errors[str(candidate)] / epochs)


def test_halving_keeps_the_better_half_and_takes_the_best():
    found = select(task(), shifted({"bank": 5.0, "issm": 1.0, "issm objective=likelihood": 9.0}))
    assert found.chosen == Candidate("issm")
    assert [(str(t.candidate), t.epochs) for t in found.trials] == [
        ("bank", ROUNDS[0]), ("issm", ROUNDS[0]), ("issm objective=likelihood", ROUNDS[0]),
        ("bank", ROUNDS[1]), ("issm", ROUNDS[1]),
    ]  # fmt: skip
    rows = found.rows()
    assert [row["model"] for row in rows] == ["issm", "bank", "issm"]
    assert rows[0]["crps"] < rows[1]["crps"]
    assert found.table().splitlines()[1].startswith("issm ")


def test_the_first_is_taken_where_scores_are_the_same():
    found = select(task(), shifted({"bank": 1.005, "issm": 1.0, "issm objective=likelihood": 9.0}))
    assert found.chosen == Candidate("bank")


def test_a_candidate_that_diverges_loses():
    def train(candidate, epochs, _):
        if candidate.model == "bank":
            raise FloatingPointError("not finite")
        return Shifted(1.0)

    found = select(task(), train)
    assert found.chosen.model == "issm"
    assert json.loads(json.dumps(found.rows(), allow_nan=False))[-1]["crps"] is None
    assert found.table().splitlines()[-1].split() == ["bank", "-", "-", str(ROUNDS[0])]


def test_a_budget_ends_the_comparison(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("tsforecast.forecasting.selection.time.monotonic", lambda: float(next(now)))
    found = select(task(), shifted({"bank": 5.0, "issm": 1.0, "issm objective=likelihood": 9.0}), time_budget=15.0)
    assert len(found.trials) < 5
    assert found.chosen == Candidate("bank")


def test_series_that_are_too_short_are_left_out():
    assert comparison(task(lengths=(60, 60, 9)), 0).windows == 3
    assert len(comparison(task(lengths=(60, 60, 9)), 0).entries) == 2
    assert comparison(task(lengths=(32, 32)), 0).windows == 2
    assert comparison(task(lengths=(20, 20)), 0) is None
    assert len(comparison(task(lengths=(40,) * 200), 0).entries) == 128
    found = select(task(lengths=(20, 20)), lambda *_: pytest.fail("nothing is to be compared"))
    assert found.chosen == Candidate("bank")
    assert "too short" in found.reason


def test_candidates():
    assert [str(c) for c in candidates(task())] == ["bank", "issm", "issm objective=likelihood"]
    assert "bank scales=free" in [str(c) for c in candidates(task(lengths=(300, 300)))]
    assert [str(c) for c in candidates(task(targets=2))] == ["gls"]
    daily = ForecastTask("toy", "D", 4, 0, entries(lengths=(800,), freq="D"))
    assert any("year" in str(c) for c in candidates(daily))
    assert any("year" in str(c) for c in candidates(ForecastTask("toy", "W-SUN", 4, 0, entries((160,), "W"))))
    assert not any("year" in str(c) for c in candidates(ForecastTask("toy", "D", 40, 0, daily.entries)))


def test_the_score_is_that_of_the_evaluation():
    compared = ForecastTask("toy", "M", 4, 3, entries())
    losses, size = series_losses(Shifted(1.5), compared)
    expected = score(Shifted(1.5).predict(past for past, _ in compared.test()), compared.test()).per_forecast
    sums = (expected["crps"] * expected["size"]).groupby("item_id").sum()
    np.testing.assert_allclose(losses, sums, rtol=1e-9)
    assert size == pytest.approx(expected["size"].sum())


def test_all_series_count_alike():
    """A small series forecast at half the loss outweighs a large one at nine tenths."""
    better = Trial(Candidate("bank"), 8, np.array([1000.0, 0.5, 0.0]), 1.0, 0.0)
    worse = Trial(Candidate("issm"), 8, np.array([900.0, 1.0, 0.0]), 1.0, 0.0)
    failed = Trial(Candidate("gls"), 8, np.full(3, np.inf), 1.0, 0.0)
    scores = relative_scores([better, worse, failed])
    assert scores[:2] == pytest.approx([(1000 / 950 + 0.5 / 0.75 + 1) / 3, (900 / 950 + 1 / 0.75 + 1) / 3])
    assert scores[2] > 1e9


def test_an_estimator_trains_what_was_chosen(monkeypatch):
    monkeypatch.setattr("tsforecast.forecasting.selection.ROUNDS", (1, 2))
    data = entries()
    estimator = StateSpaceEstimator("auto", "M", 4, seed=0, time_budget=0.0, trainer_kwargs={"max_epochs": 1})
    predictor = estimator.train(data)
    assert estimator.selection.chosen.model == "bank"  # after one comparison the time is over
    assert len(estimator.selection.trials) == 1
    assert type(predictor.prediction_net).__name__ == "BankForecaster"
    assert len(list(predictor.predict(data))) == 3
    with pytest.raises(ValueError, match="takes no hyperparameters, got components"):
        StateSpaceEstimator("auto", "M", 4, components="level")
    with pytest.raises(ValueError, match="chooses a model anew"):
        estimator.train_model(data, from_predictor=predictor)
