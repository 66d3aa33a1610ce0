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
from tsforecast.forecasting.candidates import Candidate, bursting, candidates, without_comparison
from tsforecast.forecasting.selection import _best, pooled, select
from tsforecast.forecasting.trials import Trial, comparison, gain, quantiles_of, shares_of, values_of, windows_of

BANK, ISSM, TRAINED = Candidate("bank", {"max_epochs": 0}), Candidate("issm", {"max_epochs": 20}), Candidate("bank")
FAR = Candidate("issm", {"train_horizon": 5})  # which no pool can have


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
    """Return a training whose forecasts are off by so much for each candidate; of a mapping by series, of each."""
    return lambda candidate, _: Shifted(errors[str(candidate)])


def test_every_candidate_is_trained_once_and_the_best_is_taken():
    asked = []

    def train(candidate, entries):
        asked.append((str(candidate), [entry["target"].shape[-1] for entry in entries]))
        return Shifted({"bank max_epochs=0": 5.0, "issm max_epochs=20": 1.0, "bank": 3.0}[str(candidate)])

    found = select(task(), train)
    assert asked == [(name, [60 - 7 * 4] * 3) for name in ("bank max_epochs=0", "issm max_epochs=20", "bank")]
    assert found.chosen == ISSM
    assert [row["model"] for row in found.rows()] == ["issm", "pool", "bank", "bank"]  # the pool has halves of two
    assert found.rows()[0]["score"] < found.rows()[1]["score"]
    assert found.table().splitlines()[1].startswith("issm ")
    assert found.reason.endswith("on 7 windows of 4 steps before the end of 3 of 3 series")


@pytest.mark.parametrize(("worse", "chosen"), [(2.0, "issm"), (4.5, "bank")])
def test_a_trained_model_is_taken_where_the_gain_is_more_than_its_standard_error(worse, chosen):
    """It is better by 2 on two series, and worse on the third by 2, or by so much that the gain may be chance."""

    class Mixed(Shifted):
        def predict(self, dataset, **_):
            for past in dataset:
                own = Shifted({"s2": worse}.get(past["item_id"], 1.0))
                yield from own.predict([past])

    def train(candidate, _):
        return Mixed(0.0) if candidate.model == "issm" else Shifted(3.0)

    trials = {trial.candidate.model: trial for trial in select(task(), train, compared=[BANK, FAR]).trials}
    share = np.ones(3)
    value, error = gain(trials["bank"], trials["issm"], share)
    each = (trials["bank"].losses - trials["issm"].losses).sum(1)
    assert value == pytest.approx(each.sum())
    assert error >= np.sqrt(3) * each.std(ddof=1) * (1 - 1e-9)
    assert value > 0
    found = select(task(), train, compared=[BANK, FAR])
    assert found.chosen.model == chosen
    assert ("standard error" in found.reason) == (chosen == "bank")


def test_one_window_of_one_series_shows_no_gain():
    one = ForecastTask("toy", "M", 4, 0, entries((12,)))
    found = select(one, lambda c, _: Shifted(9.0 if c == BANK else 0.0, length=12), compared=[BANK, FAR])
    assert (found.chosen, found.trials[0].losses.shape) == (BANK, (1, 1))
    assert "standard error of inf" in found.reason


def test_a_candidate_that_fails_loses():
    def train(candidate, _):
        if candidate.model == "bank":
            raise FloatingPointError("not finite") if candidate.options else ValueError("too short")
        return Shifted(1.0)

    found = select(task(), train)
    assert found.chosen.model == "issm"
    assert [row["score"] for row in json.loads(json.dumps(found.rows(), allow_nan=False))][1:] == [None, None]
    assert found.table().splitlines()[-1].split()[-2] == "-"
    nothing = [Trial(one, np.full((3, 1), np.inf), 0.0) for one in (BANK, ISSM)]
    assert pooled(nothing, values_of(ForecastTask("toy", "M", 4, 1, entries())), np.ones(3)) is None


def test_a_budget_ends_the_comparison(monkeypatch):
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("tsforecast.forecasting.selection.time.monotonic", lambda: float(next(now)))
    found = select(task(), lambda *_: Shifted(1.0), time_budget=15.0)
    assert 1 <= len(found.trials) < 3
    assert found.notes[0] == f"the time was over after {len(found.trials)} of 3 candidates"


def test_windows_by_the_length_of_series():
    """Up to ten, in half of the median series, behind a season or behind none."""
    assert comparison(task(lengths=(60, 60, 9)), 0).windows == 7
    assert len(comparison(task(lengths=(60, 60, 9)), 0).entries) == 2
    assert [comparison(task(lengths=(n, n)), 0).windows for n in (24, 16, 9)] == [3, 1, 1]
    assert comparison(task(lengths=(8, 8)), 0) is None
    assert [comparison(task(lengths=(n, n)), 0).windows for n in (200, 700, 1000, 5000)] == [10, 10, 19, 28]
    assert len(comparison(task(lengths=(40,) * 600), 0).entries) == 512
    assert len(comparison(task(lengths=(5000,) * 20), 0).entries) == 250_000 // (10 * 3000)
    found = select(task(lengths=(8, 8)), lambda *_: pytest.fail("nothing is to be compared"))
    assert found.chosen == BANK
    assert found.reason == (
        "not compared with others: the median series has 8 steps, and a comparison needs 9: a window of 4 behind 5"
    )


def test_without_a_comparison_a_bank_learns_of_many_series_with_short_windows():
    assert without_comparison(task()) == BANK
    assert without_comparison(task(lengths=(60,) * 20)) == TRAINED
    assert without_comparison(ForecastTask("toy", "ms", 4, 0, entries(freq="ms"))).model == "bank"
    assert not without_comparison(ForecastTask("toy", "ms", 4, 0, entries(freq="ms"))).options
    hours = entries(lengths=(600,) * 20, freq="h")
    assert without_comparison(ForecastTask("toy", "h", 24, 0, hours)) == BANK
    assert without_comparison(task(targets=2)) == BANK


def test_windows_of_long_series_lie_apart():
    """Ten of each, the last at the end; what lies between them is past of the next."""
    compared = comparison(task(lengths=(5000, 4000)), 0)
    pasts, labels = windows_of(compared)
    for number, entry in enumerate(compared.entries):
        ends = [past["target"].shape[-1] for past in pasts[10 * number : 10 * number + 10]]
        assert ends == [entry["target"].shape[-1] - 4 - 12 * back for back in range(9, -1, -1)]
        np.testing.assert_array_equal(labels[10 * number + 9]["target"], entry["target"][-4:])
    values = values_of(compared)
    assert values.shape == (2, 10, 4)
    np.testing.assert_array_equal(values[1, -1], compared.entries[1]["target"][-4:])
    assert [entry["target"].shape[-1] for entry in compared.train] == [3000 - 28 * 4, 3000 - 28 * 4]


def test_the_end_of_long_series_is_compared_on():
    """With covariates cut alike, and a start that belongs to what is left."""
    long = entries(lengths=(3050, 2990))
    for entry in long:
        entry["feat_dynamic_real"] = np.arange(entry["target"].shape[-1] + 4.0)[None]
    found = comparison(ForecastTask("toy", "M", 4, 0, long), 0).entries
    assert [entry["target"].shape for entry in found] == [(3000,), (2990,)]
    assert found[0]["start"] == long[0]["start"] + 50
    np.testing.assert_array_equal(found[0]["target"], long[0]["target"][50:])
    np.testing.assert_array_equal(found[0]["feat_dynamic_real"][0], np.arange(50.0, 3054.0))


def test_candidates(caplog):
    assert candidates(task()) == [BANK, ISSM, TRAINED]
    assert [c.model for c in candidates(task(lengths=(300, 300)))] == ["bank", "issm", "gls", "bank"]
    assert [c.model for c in candidates(task(targets=2))] == ["bank", "issm", "gls", "bank"]
    hours = [entry | {"start": pd.Period("2020-01-01 00:00", "h")} for entry in entries(lengths=(700, 700))]
    assert str(candidates(ForecastTask("toy", "h", 24, 0, hours))[-1]) == f"bank batch_size={6400 // (28 * 24 + 24)}"
    of_days = "issm components=damped_level+hour_of_day train_horizon=72 max_epochs=20"
    tried = [str(c) for c in bursting(ForecastTask("toy", "h", 24, 0, hours))]
    assert tried == [of_days, "markov", "sgls preset=fast components=damped_level+hour_of_day train_horizon=72"]
    assert bursting(task(targets=2)) == []
    assert of_days in [str(c) for c in candidates(ForecastTask("toy", "h", 24, 0, hours), ["issm"])]
    uneven = [*hours, *hours, {**hours[0], "target": hours[0]["target"][:20]}]
    assert candidates(ForecastTask("toy", "h", 24, 0, uneven)) == candidates(ForecastTask("toy", "h", 24, 0, hours))
    shares = [{**entry, "target": np.clip(entry["target"] / 100, 0, 1)} for entry in entries()]
    assert Candidate("issm", {"transformation": "logit", "max_epochs": 20}) in candidates(
        ForecastTask("toy", "M", 4, 0, shares)
    )
    daily = ForecastTask("toy", "D", 4, 0, entries(lengths=(800,), freq="D"))
    assert any("year" in str(c) for c in candidates(daily, ["issm"]))
    assert any("year" in str(c) for c in candidates(ForecastTask("toy", "W-SUN", 4, 0, entries((160,), "W")), ["issm"]))
    with caplog.at_level("INFO", "tsforecast"):
        assert not any("year" in str(c) for c in candidates(ForecastTask("toy", "D", 40, 0, daily.entries), ["issm"]))
    assert "no issm with a year is compared: it takes 852 steps, and the median series has" in caplog.text


def test_models_by_name_are_compared_with_all_their_variants():
    variants = [str(c) for c in candidates(task(), ["issm", "rsgls-issm", "markov", "sgls"])]
    expected = {"issm max_epochs=20", "issm objective=likelihood max_epochs=20", "markov", "sgls preset=fast"}
    assert expected | {"issm components=level+month_of_year max_epochs=20"} <= set(variants)
    assert sum(name.startswith("rsgls-issm objective=crps") for name in variants) == 1
    assert len(set(variants)) == len(variants)
    with pytest.raises(ValueError, match="expected models among bank, issm, gls, rsgls-issm, markov, sgls, got kvae"):
        candidates(task(), ["kvae"])


def test_the_score_is_the_crps_of_each_window():
    """Twenty paths are their own quantiles, so the score is that of the sample."""
    predictor = Shifted(1.5, spread=2.0)
    found = select(ForecastTask("toy", "M", 4, 0, entries()), lambda *_: predictor)
    compared = comparison(ForecastTask("toy", "M", 4, 0, entries()), 0)
    pasts, labels = zip(*compared.test(), strict=True)
    forecasts = predictor.predict(pasts)
    scores = [crps_ensemble(y["target"], f.samples.T).sum() for f, y in zip(forecasts, labels, strict=True)]
    np.testing.assert_allclose(found.trials[0].losses, np.reshape(scores, (3, -1)), rtol=1e-5)
    size = sum(np.abs(y["target"]).sum() for y in labels)
    assert found.rows()[0]["score"] == pytest.approx(np.sum(scores) / size)


def trial_of(candidate, predictor, compared):
    quantiles = quantiles_of(predictor, compared)
    return Trial(candidate, crps_ensemble(values_of(compared), quantiles).sum(2), 0.0, quantiles)


def test_a_mixture_is_taken_where_it_is_better():
    """One candidate is too high and one too low; the weights are the best of a grid, by the CRPS of the mixture."""
    compared = ForecastTask("toy", "M", 4, 3, entries())
    values = values_of(compared)
    trials = [trial_of(BANK, Shifted(1.0, 1.0), compared), trial_of(ISSM, Shifted(-1.6, 1.0), compared)]
    share = shares_of(compared, values, "equal")
    found = pooled(trials, values, share)
    assert found.candidate.options["members"] == "bank learning_rate=0; issm"
    assert found.candidate.options["max_epochs"] == 20
    weight = float(found.candidate.options["weights"].split(",")[0])

    def scored(part):
        both = np.concatenate([t.quantiles for t in trials], -1)
        weights = np.broadcast_to(np.repeat([part / 20, (1 - part) / 20], 20), both.shape)
        return crps_ensemble(values, both, weights).sum(2)

    grid = np.linspace(0, 1, 101)
    assert weight == pytest.approx(grid[np.argmin([(share @ scored(w)).sum() for w in grid])], abs=0.011)
    np.testing.assert_allclose(found.losses, scored(weight), rtol=1e-9)
    np.testing.assert_allclose(pooled(trials, values, share, equal=True).losses, scored(0.5), rtol=1e-9)

    def train(candidate, *_):
        return Shifted({str(BANK): 1.0, str(ISSM): -1.6}.get(str(candidate), 50.0), 1.0)

    selection = select(compared, train)
    assert selection.chosen.model == selection.rows()[0]["model"] == "pool"
    best, halves, single = (row["score"] for row in selection.rows()[:3])
    assert selection.trials[2].candidate.options["weights"] == "0.50,0.50"
    assert best < halves < 0.95 * single


def test_direct_forecasts_of_a_member_are_of_the_whole_pool():
    compared = ForecastTask("toy", "M", 4, 3, entries())
    direct = Candidate("bank", {"max_epochs": 0, "direct": 0.5})
    trials = [trial_of(one, Shifted(error, 1.0), compared) for one, error in ((direct, 1.0), (ISSM, -1.6))]
    share = shares_of(compared, values_of(compared), "equal")
    plain = pooled([trial_of(BANK, Shifted(1.0, 1.0), compared), trials[1]], values_of(compared), share)
    found = pooled(trials, values_of(compared), share)
    weight = float(plain.candidate.options["weights"].split(",")[0])
    options = found.candidate.options
    assert options["members"] == "bank learning_rate=0; issm"
    assert options["direct"] == pytest.approx(weight / 2, abs=0.006)
    bank, issm = (float(one) * (1 - options["direct"]) for one in options["weights"].split(","))
    assert bank == pytest.approx(weight / 2, abs=0.01)
    assert issm == pytest.approx(1 - weight, abs=0.01)
    both = [trial_of(one, Shifted(error, 1.0), compared) for one, error in ((BANK, 1.0), (direct, -1.6))]
    assert pooled(both, values_of(compared), share) is None


def test_halves_are_taken_where_other_weights_gain_less_than_their_standard_error():
    compared = ForecastTask("toy", "M", 4, 3, entries())

    def train(candidate, *_):
        return Shifted({str(BANK): 1.0, str(ISSM): -1.05}.get(str(candidate), 50.0), 1.0)

    selection = select(compared, train)
    assert selection.chosen.options["weights"] == "0.50,0.50"


def test_no_mixture_where_one_is_better_than_all():
    compared = ForecastTask("toy", "M", 4, 3, entries())
    trials = [trial_of(BANK, Shifted(0.5, 1.0), compared), trial_of(ISSM, Shifted(3.0, 1.0), compared)]
    assert pooled(trials, values_of(compared), np.ones(3)) is None
    assert pooled([trials[0], trial_of(TRAINED, Shifted(-0.5, 1.0), compared)], values_of(compared), np.ones(3)) is None
    gap = [{**entry, "target": np.where(np.arange(60) > 55, np.nan, entry["target"])} for entry in compared.entries]
    missing = ForecastTask("toy", "M", 4, 3, gap)  # values that are missing count nowhere
    assert select(missing, lambda *_: Shifted(0.5, 1.0)).trials[0].losses.max() < 10


def test_a_gain_within_twice_its_error_is_none():
    compared = comparison(task(lengths=(60,) * 4), 0)
    values, share = values_of(compared), np.ones(4)
    before = Trial(BANK, np.ones((4, values.shape[1])), 1.0)
    for gains, chosen in ((0.6, 0.8, 1.0, 1.2), 1), ((0.0, 0.0, 0.0, 0.8), 0):
        after = Trial(ISSM, before.losses - np.array(gains)[:, None] / values.shape[1], 1.0)
        lower, error = gain(before, after, share)
        assert (lower > 2 * error) == bool(chosen)
        assert lower > 0.99 * error
        assert _best([before, after], share)[0] is (before, after)[chosen]


def test_of_many_series_a_bank_that_learns_is_first():
    assert candidates(task(lengths=(60,) * 25))[0] == TRAINED
    assert candidates(task(lengths=(60,) * 5))[0] == BANK
    alike = task(lengths=(60,) * 25)
    for entry in alike.entries:
        entry["target"] = entry["target"] + 20 * alike.entries[0]["target"]
    assert candidates(alike)[0] == BANK


def test_series_are_weighed_as_the_user_says():
    """The first is a thousand times as large as the others, and the bank is best there alone."""
    large = entries(lengths=(60,) * 12)
    large[0]["target"] = large[0]["target"] * 1000

    class Relative(Predictor):
        def __init__(self, errors):
            super().__init__(prediction_length=4)
            self.errors = errors

        def predict(self, dataset, **_):
            for past in dataset:
                whole = next(e for e in large if e["item_id"] == past["item_id"])["target"]
                begin, first = past["target"].shape[-1], past["item_id"] == "s0"
                values = whole[begin : begin + 4] + self.errors[first] * (1000 if first else 1)
                yield SampleForecast(np.stack([values] * 20), past["start"] + begin, item_id=past["item_id"])

    def train(candidate, _):
        return Relative((3.0, 1.0) if candidate == BANK else (1.0, 2.0))

    task = ForecastTask("toy", "M", 4, 0, large)
    by_sum, equal = (select(task, train, compared=[BANK, ISSM], weights=one) for one in ("sum", "equal"))
    assert (by_sum.chosen, equal.chosen) == (BANK, ISSM)
    assert by_sum.notes[-1] == (
        "half of the score comes from 1 of 12 series; weights 'equal' would choose issm max_epochs=20"
    )
    constant = ForecastTask("toy", "M", 4, 1, [*entries((60,)), {**entries((60,))[0], "target": np.ones(60)}])
    share = shares_of(constant, values_of(constant), "equal")
    history = constant.train[0]["target"].astype(float)
    np.testing.assert_allclose(share, [1 / (4 * np.abs(history[12:] - history[:-12]).mean()), 0])
    with pytest.raises(ValueError, match="expected series_weights to be one of sum, equal, got 'large'"):
        StateSpaceEstimator("auto", "M", 4, series_weights="large")


def test_a_preset_is_no_option_of_a_member():
    assert Candidate("rsgls-issm", {"num_bases": 2}).member == "rsgls-issm num_bases=2"
    assert Candidate("rsgls-issm", {"preset": "best"}).member is None


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


def test_an_estimator_trains_what_was_chosen():
    data = entries()
    estimator = StateSpaceEstimator("auto", "M", 4, seed=0, time_budget=0.0, trainer_kwargs={"max_epochs": 1})
    predictor = estimator.train(data)
    assert estimator.selection.chosen == BANK  # after one comparison the time is over
    assert len(estimator.selection.trials) == 1
    assert type(predictor.prediction_net).__name__ == "BankForecaster"
    assert len(list(predictor.predict(data))) == 3
    with pytest.raises(ValueError, match="takes no hyperparameters, got components"):
        StateSpaceEstimator("auto", "M", 4, components="level")
    estimator.selection = None
    with pytest.raises(ValueError, match="chooses a model anew"):
        estimator.train_model(data, from_predictor=predictor)
    assert estimator.selection is None  # it is refused before models are compared
