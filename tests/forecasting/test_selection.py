"""Which candidate is chosen, by forecasts that are known; and the whole way through an estimator."""

import json

import numpy as np
import pandas as pd
import pytest
from gluonts.model import Predictor
from gluonts.model.forecast import SampleForecast
from properscoring import crps_ensemble

from tsforecast import StateSpaceEstimator
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.candidates import Candidate, candidates
from tsforecast.forecasting.presets import EPOCHS
from tsforecast.forecasting.selection import (
    ROUNDS,
    Trial,
    comparison,
    labels_of,
    pooled,
    quantiles_of,
    relative_scores,
    select,
    windows_of,
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
    """Forecasts the truth and an error, by twenty paths."""

    def __init__(self, error, spread=0.0, length=60):
        super().__init__(prediction_length=4)
        self.error, self.spread, self.length = error, spread, length

    def predict(self, dataset, **_):
        for past in dataset:
            whole = next(e for e in entries([self.length] * 3) if e["item_id"] == past["item_id"])["target"]
            begin = past["target"].shape[-1]
            values = whole[begin : begin + 4] + self.error
            paths = np.stack([values + self.spread * z for z in np.random.default_rng(begin).standard_normal(20)])
            yield SampleForecast(paths, start_date=past["start"] + begin, item_id=past["item_id"])


def shifted(errors):
    """Errors fall with the share of a whole training; a bank, which begins with learnt parameters, needs few epochs."""
    whole = {"bank": EPOCHS["bank"]}
    return lambda candidate, epochs, _: Shifted(errors[str(candidate)] / epochs * whole.get(candidate.model, 20) / 20)


def names_of(trials):
    return [(str(trial.candidate), trial.epochs) for trial in trials]


def test_few_candidates_are_all_trained_long():
    found = select(task(), shifted({"bank": 5.0, "issm": 1.0, "issm objective=likelihood": 9.0}))
    assert found.chosen == Candidate("issm")
    assert names_of(found.trials) == [("bank", 20), ("issm", 20), ("issm objective=likelihood", 20)]
    rows = found.rows()
    assert [row["model"] for row in rows] == ["issm", "bank", "issm"]
    assert rows[0]["crps"] < rows[1]["crps"]
    assert found.table().splitlines()[1].startswith("issm ")


def test_halving_keeps_the_better_half_and_the_first():
    """Of variants that cost alike."""
    variants = [str(candidate) for candidate in candidates(task(), ["issm"])]
    count = len(variants)
    assert count > 4
    errors = {name: float(count - place) for place, name in enumerate(variants)}
    found = select(task(), lambda c, n, _: Shifted(errors[str(c)] / n), compared=candidates(task(), ["issm"]))
    assert names_of(found.trials[:count]) == [(name, ROUNDS[0]) for name in variants]
    left = [variants[0], *variants[count // 2 :]]
    assert names_of(found.trials[count:]) == [(name, ROUNDS[1]) for name in left]


def test_what_costs_little_is_always_trained_long():
    errors = {"bank": 9.0, "bank scales=free": 5.0, "issm": 2.0, "issm objective=likelihood": 1.0, "gls": 3.0}
    found = select(task(lengths=(300, 300, 300)), lambda c, n, _: Shifted(errors[str(c)] / n, length=300))
    assert names_of(found.trials[:5]) == [(name, ROUNDS[1]) for name in errors]
    assert str(found.chosen) == "issm objective=likelihood"


def test_the_first_is_taken_where_scores_are_the_same():
    found = select(task(), shifted({"bank": 1.005, "issm": 1.0, "issm objective=likelihood": 9.0}))
    assert found.chosen == Candidate("bank")
    assert found.reason.endswith("; issm is not 1% better, and of such the one that was named first is taken")


def test_a_bank_is_trained_once():
    """Its training has as many epochs as the first round: the second takes the score of the first."""
    asked = []

    def train(candidate, epochs, _):
        asked.append((str(candidate), epochs))
        return Shifted(1.0)

    compared = [Candidate("bank", {"clip": clip}) for clip in ("auto", "none", "nonnegative")] + [Candidate("gls")]
    compared.insert(0, Candidate("bank"))
    found = select(task(), train, compared=compared)
    assert [one for one in asked if one[0] == "bank"] == [("bank", EPOCHS["bank"])]
    assert [trial.epochs for trial in found.trials if str(trial.candidate) == "bank"] == [*ROUNDS]
    assert next(row for row in found.rows() if row["model"] == "bank")["epochs"] == EPOCHS["bank"]


def test_a_candidate_that_diverges_loses():
    def train(candidate, epochs, _):
        if candidate.model == "bank":
            raise FloatingPointError("not finite")
        return Shifted(1.0)

    found = select(task(), train)
    assert found.chosen.model == "issm"
    assert json.loads(json.dumps(found.rows(), allow_nan=False))[-1]["crps"] is None
    assert found.table().splitlines()[-1].split() == ["bank", "-", "-", str(EPOCHS["bank"])]
    nothing = [Trial(Candidate(name), 20, np.full(3, np.inf), 1.0, 0.0) for name in ("bank", "issm")]
    assert pooled(nothing, *labels_of(ForecastTask("toy", "M", 4, 3, entries()))) is None


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
    spans = [comparison(task(lengths=(n, n)), 0).windows for n in (200, 700, 1000, 5000)]
    assert spans == [5, 10, 19, 28]
    assert len(comparison(task(lengths=(40,) * 200), 0).entries) == 128
    found = select(task(lengths=(20, 20)), lambda *_: pytest.fail("nothing is to be compared"))
    assert found.chosen == Candidate("bank")
    assert found.reason == (
        "not compared with others: half of the series would need 28 steps, a window of 4 behind two seasons of 12; "
        "the median has 20"
    )


def test_windows_of_long_series_lie_apart():
    """Ten of each, the last at the end; what lies between them is past of the next."""
    compared = comparison(task(lengths=(5000, 4000)), 0)
    pasts, labels = windows_of(compared)
    for number, entry in enumerate(compared.entries):
        ends = [past["target"].shape[-1] for past in pasts[10 * number : 10 * number + 10]]
        assert ends == [entry["target"].shape[-1] - 4 - 12 * back for back in range(9, -1, -1)]
        np.testing.assert_array_equal(labels[10 * number + 9]["target"], entry["target"][-4:])
    values, owner = labels_of(compared)
    assert len(values) == 2 * 10 * 4
    np.testing.assert_array_equal(owner, np.repeat([0, 1], 40))
    assert [entry["target"].shape[-1] for entry in compared.train] == [5000 - 28 * 4, 4000 - 28 * 4]


def test_the_end_of_long_series_is_compared_on():
    """With covariates cut alike, and a start that belongs to what is left."""
    long = entries(lengths=(10_050, 9_000))
    for entry in long:
        entry["feat_dynamic_real"] = np.arange(entry["target"].shape[-1] + 4.0)[None]
    found = comparison(ForecastTask("toy", "M", 4, 0, long), 0).entries
    assert [entry["target"].shape for entry in found] == [(10_000,), (9_000,)]
    assert found[0]["start"] == long[0]["start"] + 50
    np.testing.assert_array_equal(found[0]["target"], long[0]["target"][50:])
    np.testing.assert_array_equal(found[0]["feat_dynamic_real"][0], np.arange(50.0, 10_054.0))


def test_candidates():
    assert [str(c) for c in candidates(task())] == ["bank", "issm", "issm objective=likelihood"]
    assert "bank scales=free" in [str(c) for c in candidates(task(lengths=(300, 300)))]
    assert [str(c) for c in candidates(task(targets=2))] == ["gls"]
    hours = [entry | {"start": pd.Period("2020-01-01 00:00", "h")} for entry in entries(lengths=(600, 600))]
    of_days = "issm components=damped_level+hour_of_day train_horizon=72"
    assert of_days in [str(c) for c in candidates(ForecastTask("toy", "h", 24, 0, hours))]
    assert of_days in [str(c) for c in candidates(ForecastTask("toy", "h", 24, 0, hours), ["issm"])]
    assert not any(c.is_of_model for c in candidates(ForecastTask("toy", "h", 24, 0, hours)) if str(c) == of_days)
    uneven = [*hours, *hours, {**hours[0], "target": hours[0]["target"][:20]}]
    assert candidates(ForecastTask("toy", "h", 24, 0, uneven)) == candidates(ForecastTask("toy", "h", 24, 0, hours))
    shares = [{**entry, "target": np.clip(entry["target"] / 100, 0, 1)} for entry in entries()]
    assert "issm transformation=logit" in [str(c) for c in candidates(ForecastTask("toy", "M", 4, 0, shares))]
    daily = ForecastTask("toy", "D", 4, 0, entries(lengths=(800,), freq="D"))
    assert any("year" in str(c) for c in candidates(daily, ["issm"]))
    assert any("year" in str(c) for c in candidates(ForecastTask("toy", "W-SUN", 4, 0, entries((160,), "W")), ["issm"]))
    assert not any("year" in str(c) for c in candidates(ForecastTask("toy", "D", 40, 0, daily.entries)))


def test_models_by_name_are_compared_with_all_their_variants():
    variants = [str(c) for c in candidates(task(), ["issm", "rsgls-issm"])]
    assert {"issm", "issm objective=likelihood", "issm transformation=log1p"} <= set(variants)
    assert "issm components=level+month_of_year" in variants
    assert variants[-1].startswith("rsgls-issm objective=crps")
    assert len(set(variants)) == len(variants)
    with pytest.raises(ValueError, match="expected models among bank, issm, gls, rsgls-issm, got kvae"):
        candidates(task(), ["kvae"])


def test_the_score_is_the_crps_of_each_series():
    """Twenty paths are their own quantiles, so the score is that of the sample."""
    compared = ForecastTask("toy", "M", 4, 3, entries())
    predictor = Shifted(1.5, spread=2.0)
    (trial, *_) = select(compared, lambda *_: predictor).trials
    pasts, labels = zip(*compared.test(), strict=True)
    forecasts = predictor.predict(pasts)
    scores = [crps_ensemble(y["target"], f.samples.T).sum() for f, y in zip(forecasts, labels, strict=True)]
    np.testing.assert_allclose(trial.losses, np.reshape(scores, (3, -1)).sum(1), rtol=1e-5)
    assert trial.size == pytest.approx(sum(np.abs(y["target"]).sum() for y in labels))


def trial_of(name, predictor, compared):
    quantiles = quantiles_of(predictor, compared)
    values, owner = labels_of(compared)
    losses = crps_ensemble(values, quantiles)
    return Trial(Candidate(name), 8, np.bincount(owner, losses), np.abs(values).sum(), 0.0, quantiles)


def test_a_mixture_is_taken_where_it_is_better():
    """One candidate is too high and one too low; the weights are the best of a grid, by the CRPS of the mixture."""
    compared = ForecastTask("toy", "M", 4, 3, entries())
    labels = labels_of(compared)
    trials = [trial_of("bank", Shifted(1.0, 1.0), compared), trial_of("issm", Shifted(-1.6, 1.0), compared)]
    found = pooled(trials, *labels)
    assert found.candidate.options["members"] == "bank; issm"
    weight = float(found.candidate.options["weights"].split(",")[0])
    values, owner = labels
    unit = np.mean([t.losses for t in trials], 0)[owner]

    def scored(share):
        both = np.concatenate([t.quantiles for t in trials], 1)
        weights = np.repeat([share / 20, (1 - share) / 20], 20)[None].repeat(len(values), 0)
        return crps_ensemble(values, both, weights)

    grid = np.linspace(0, 1, 101)
    assert weight == pytest.approx(grid[np.argmin([(scored(w) / unit).sum() for w in grid])], abs=0.011)
    np.testing.assert_allclose(found.losses, np.bincount(owner, scored(weight)), rtol=1e-9)

    def train(candidate, *_):
        return Shifted({"bank": 1.0, "issm": -1.6}[candidate.model] if not candidate.options else 50.0, 1.0)

    selection = select(compared, train)
    assert selection.chosen.model == "pool"
    assert selection.rows()[0]["model"] == "pool"
    assert selection.rows()[0]["relative"] < 0.95 * selection.rows()[1]["relative"]


def test_no_mixture_where_one_is_better_than_all():
    compared = ForecastTask("toy", "M", 4, 3, entries())
    trials = [trial_of("bank", Shifted(0.5, 1.0), compared), trial_of("issm", Shifted(3.0, 1.0), compared)]
    assert pooled(trials, *labels_of(compared)) is None
    gap = [{**entry, "target": np.where(np.arange(60) > 55, np.nan, entry["target"])} for entry in compared.entries]
    missing = ForecastTask("toy", "M", 4, 3, gap)  # values that are missing count nowhere
    assert select(missing, lambda c, *_: Shifted(3.0 if c.options else 0.5, 1.0)).trials[0].losses.max() < 10


def test_all_series_count_alike():
    """A small series forecast at half the loss outweighs a large one at nine tenths."""
    better = Trial(Candidate("bank"), 8, np.array([1000.0, 0.5, 0.0]), 1.0, 0.0)
    worse = Trial(Candidate("issm"), 8, np.array([900.0, 1.0, 0.0]), 1.0, 0.0)
    failed = Trial(Candidate("gls"), 8, np.full(3, np.inf), 1.0, 0.0)
    scores = relative_scores([better, worse, failed])
    assert scores[:2] == pytest.approx([(1000 / 950 + 0.5 / 0.75 + 1) / 3, (900 / 950 + 1 / 0.75 + 1) / 3])
    assert scores[2] > 1e9


def test_windows_of_all_candidates_score_as_much_unless_they_say(monkeypatch):
    """A pool trains its members on the same windows: a gls among them is not trained farther by itself."""
    trained = []

    def train(self, data, *args, **kwargs):
        found = original(self, data, *args, **kwargs)
        trained.append((self.model, self.on_grid.train_horizon))
        return found

    original = StateSpaceEstimator.train_model
    monkeypatch.setattr(StateSpaceEstimator, "train_model", train)
    hours = [entry | {"start": pd.Period("2020-01-01 00:00", "h")} for entry in entries(lengths=(600, 600))]
    options = {"context_length": 30, "num_batches_per_epoch": 1, "trainer_kwargs": {"max_epochs": 1}}
    estimator = StateSpaceEstimator("auto", "h", 4, seed=0, **options)
    estimator.choose(hours, [Candidate("gls"), Candidate("gls", {"train_horizon": 12})])
    assert set(trained) == {("gls", 4), ("gls", 12)}
    StateSpaceEstimator("gls", "h", 4, seed=0, **options).train(hours)
    assert trained[-1] == ("gls", 12)


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
    estimator.selection = None
    with pytest.raises(ValueError, match="chooses a model anew"):
        estimator.train_model(data, from_predictor=predictor)
    assert estimator.selection is None  # it is refused before models are compared
