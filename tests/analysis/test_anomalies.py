"""Anomalies of every kind, planted; false alarms on real series; and what is refused."""

import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import stats

from tsforecast import StateSpaceEstimator, load_task
from tsforecast.analysis import anomalies
from tsforecast.analysis.accounts import accounts
from tsforecast.analysis.anomalies import learning_steps
from tsforecast.analysis.residuals import mean_squares
from tsforecast.data.windows import collate, cut

STEPS, AT, RATE = 190, 150, 0.01
PLANTED = ("spike", "level shift", "variance", "missing")
pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")
FAST = {"max_epochs": 1, "accelerator": "cpu"}


def trained(entries, freq, model="issm", **options):
    estimator = StateSpaceEstimator(
        model, freq, 5, seed=0, num_batches_per_epoch=1, trainer_kwargs=FAST, context_length=40, **options
    )
    return estimator.train(entries)


@pytest.fixture(scope="module")
def planted():
    """Daily levels that wander, with an anomaly in each but the last, and a model of them."""
    rng = np.random.default_rng(3)
    entries = []
    for kind in (*PLANTED, "none"):
        target = 50 + np.cumsum(0.05 * rng.normal(size=STEPS)) + rng.normal(size=STEPS)
        if kind == "spike":
            target[AT] += 9
        elif kind == "level shift":
            target[AT:] += 9
        elif kind == "variance":
            target[AT : AT + 25] += 5 * rng.normal(size=25)
        elif kind == "missing":
            target[AT : AT + 12] = np.nan
        entries.append({"item_id": kind, "start": pd.Period("2024-01-01", "D"), "target": target.astype(np.float32)})
    return entries, trained(entries, "D", components="level")


@pytest.mark.parametrize("given", ["past", "all"])
def test_kinds_are_told_apart_by_the_component_that_moves(planted, given):
    entries, predictor = planted
    found = anomalies(entries, predictor, rate=RATE, given=given, since="2024-04-10")
    assert list(found["item_id"].unique()) == [*PLANTED, "none"]
    assert len(found) == len(entries) * STEPS
    for kind in PLANTED:
        rows = found[(found["item_id"] == kind) & found["flagged"]]
        rarest = rows.loc[rows["score"].idxmax()]
        assert rarest["kind"] == kind, given
        within = (rarest["timestamp"] - pd.Timestamp("2024-01-01")).days - AT
        assert (-7 if given == "all" else 0) <= within <= 30  # with hindsight a shift is seen from both sides
        assert (found.loc[rows.index, "tail"] <= RATE).all()
    learnt = 100
    assert found.groupby("item_id")["tail"].apply(lambda x: x.isna().sum()).loc["none"] == learnt


@pytest.mark.usefixtures("unchecked_types")
def test_kinds_in_a_bank_are_told_by_what_moves_in_its_models(planted):
    entries = [{**entry, "target": entry["target"][60:]} for entry in planted[0][:2]]
    bank = trained(entries, "D", "bank", structures="level", transformations="none")
    found = anomalies(entries, bank, rate=RATE, since="2024-03-15")
    for kind in PLANTED[:2]:
        rows = found[(found["item_id"] == kind) & found["flagged"]]
        assert rows.loc[rows["score"].idxmax(), "kind"] == kind


@pytest.mark.usefixtures("unchecked_types")
def test_gains_in_a_mixture_are_means_of_those_in_its_models(planted):
    """Oracle: the residuals of the linear model by itself, which is in the pool with a weight, beside a bank of it."""
    entries, alone = planted
    pool = trained(entries, "D", "pool", members="issm components=level; bank structures=level transformations=none")
    member, bank = pool.prediction_net.inference.members
    member.dynamics.load_state_dict(alone.prediction_net.dynamics.state_dict())
    histories = pool.histories()
    (prepared,) = histories.transform(iter(entries[-1:]), is_train=True)
    batch = collate([cut(prepared, STEPS, None, 0)], histories.device)
    with torch.no_grad():
        whole, one, two = (mean_squares(x.linear, batch, 100) for x in (pool.prediction_net.inference, member, bank))
        assert set(whole) == {"error", "level"}
        for name in whole:
            torch.testing.assert_close(whole[name], 0.5 * one[name] + 0.5 * two[name])
        own = next(accounts(alone, entries[-1:], [100]))
    np.testing.assert_allclose(one["level"][:, 0].sqrt(), own.shocks["level"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one["error"][:, 0].sqrt(), np.abs(own.residuals(0)), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("unchecked_types")
def test_gains_of_series_in_a_bank_are_those_of_each_alone_by_all_states_of_a_season(planted):
    entries = [{**entry, "target": entry["target"][:60]} for entry in planted[0][:2]]
    bank = trained(entries, "D", "bank", structures="level+day_of_week", transformations="none,asinh")
    prepared = list(bank.histories().transform(iter(entries), is_train=True))
    inference = bank.prediction_net.inference
    with torch.no_grad():
        both, first, second = (
            mean_squares(inference, collate([cut(one, 60, None, 0) for one in part], "cpu"), 40)
            for part in (prepared, prepared[:1], prepared[1:])
        )
    for name in ("error", "level", "season"):
        torch.testing.assert_close(both[name], torch.cat([first[name], second[name]], 1), rtol=1e-3, atol=1e-4)
    one = trained(entries, "D", components="level+day_of_week")
    (prepared,) = one.histories().transform(iter(entries[:1]), is_train=True)
    with torch.no_grad():
        found = mean_squares(one.prediction_net.inference, collate([cut(prepared, 60, None, 0)], "cpu"), 40)
    own = next(accounts(one, entries[:1], [40])).shocks
    np.testing.assert_allclose(found["season"][:, 0].sqrt(), own["season"], rtol=1e-3, atol=1e-3)


def test_every_step_is_judged_by_what_is_before_it(planted):
    entries, predictor = planted
    short = [{**entry, "target": entry["target"][: AT + 10]} for entry in entries[:1]]
    whole = anomalies(entries[:1], predictor, rate=RATE, since="2024-03-20")
    part = anomalies(short, predictor, rate=RATE, since="2024-03-20")
    both = whole.merge(part, on=["item_id", "timestamp"], suffixes=("", "_then"))
    assert len(both) == len(part)
    for name in ("expected", "lower", "upper", "error", "tail"):
        np.testing.assert_allclose(both[name], both[f"{name}_then"], rtol=1e-4, atol=1e-5)


def test_a_mixture_by_beliefs_is_that_of_forecasts(planted):
    entries, _ = planted
    few = [{**entry, "target": entry["target"][:60]} for entry in entries[-1:]]
    predictor = trained(few, "D", "bank", structures="level", transformations="none")
    found = anomalies(few, predictor, rate=0.05, since="2024-02-20")
    assert found["expected"].first_valid_index() == 25  # half of the 50 steps before
    beliefs = predictor.filter([{**few[0], "target": few[0]["target"][:25]}])
    for time in range(25, 60):
        if time % 9 == 0:
            forecast = next(iter(predictor.forecast_from(beliefs, num_samples=0)))
            row = found.loc[time]
            assert row["expected"] == pytest.approx(forecast.quantile(0.5)[0], rel=1e-5)
            level = float(stats.norm.cdf(row["error"]))
            assert forecast.quantile(level)[0] == pytest.approx(row["value"], rel=1e-4)
        step = {**few[0], "start": few[0]["start"] + time, "target": few[0]["target"][time : time + 1]}
        beliefs = predictor.update(beliefs, [step])
    with pytest.raises(ValueError, match="needs a model that is one linear system"):
        anomalies(few, predictor, given="all", since="2024-02-20")


def test_false_alarms_on_real_series_have_the_rate_that_is_set():
    """Hours of electricity before Christmas: the share of flagged steps, within three standard errors over series."""
    task = load_task("electricity-18dec")
    entries = [{**entry, "target": entry["target"][-260:]} for entry in task.entries[10:20]]
    rate = 0.01
    found = anomalies(entries, trained(entries, "h", components="level+hour_of_day"), rate=rate)
    shares = found[found["tail"].notna()].groupby("item_id")["flagged"].mean()
    error = shares.std() / np.sqrt(len(shares))
    assert abs(shares.mean() - rate) < 3 * error
    assert error < rate


@pytest.mark.parametrize(("case", "kind"), [("ramp", "level shift"), ("constant", "level shift"), ("zeros", "spike")])
def test_what_everybody_sees_is_flagged_by_its_kind_and_what_follows_is_not(case, kind):
    """A drop in a ramp that comes back, a constant that steps, zeros with one spike."""
    rng, steps, at = np.random.default_rng(6), 260, 180
    target = {"ramp": np.arange(steps) + 0.5 * rng.normal(size=steps), "constant": np.full(steps, 5.0)}.get(case)
    target = np.zeros(steps) if target is None else target
    if case == "ramp":
        target[at : at + 10] -= 150
    elif case == "constant":
        target[at:] = 8
    else:
        target[at] = 10
    entry = {"item_id": case, "start": pd.Period("2024-01-01", "D"), "target": target.astype(np.float32)}
    predictor = trained([{**entry, "target": entry["target"][:120]}], "D", components="trend")
    found = anomalies([entry], predictor, rate=0.001, since="2024-04-30")
    places = np.flatnonzero(found["flagged"])
    assert places[0] == at
    assert found["kind"][at] == kind
    if case == "zeros":
        assert len(places) == 1
    else:
        assert len(places) <= 24


def test_a_spike_of_counts_is_rare_by_what_is_ordinary_for_counts(caplog):
    """Poisson counts of a week with quiet days: expected values and bounds are counts, 9 on a quiet day is a spike."""
    caplog.set_level(logging.INFO, "tsforecast")
    rng, steps, at = np.random.default_rng(4), 300, 240
    mean = np.tile([1.0, 1, 4, 8, 12, 8, 4], steps)[:steps]
    target = rng.poisson(mean).astype(np.float32)
    target[at - at % 7] = 9
    entry = {"item_id": "sold", "start": pd.Period("2024-01-01", "D"), "target": target}
    model = trained([{**entry, "target": target[:200]}], "D", components="level+day_of_week")
    halves = {**entry, "item_id": "halves", "target": target + np.float32(0.5)}  # no counts
    both = anomalies([entry, halves], model, rate=0.001, since=entry["start"] + 200)
    assert both.groupby("item_id")["distribution"].unique().map(list).to_dict() == {
        "sold": ["negative binomial"], "halves": ["model"],
    }  # fmt: skip
    (said,) = [record.getMessage() for record in caplog.records if "negative binomial" in record.getMessage()]
    assert said.startswith("1 of 2 series are counts")
    assert said.endswith("judges sold")
    found = both[both["item_id"] == "sold"]
    assert np.flatnonzero(found["flagged"]).tolist() == [at - at % 7]
    judged = found[200:]
    for name in ("expected", "lower", "upper"):
        assert (judged[name] == judged[name].round()).all()
    assert (judged["lower"] >= 0).all()
    upper = judged["upper"].to_numpy()
    assert upper[0::7].mean() > upper[4::7].mean()  # the busiest day, and a quiet one


def test_a_frame_alone_is_judged_by_a_model_of_its_first_part(planted, monkeypatch):
    entries, predictor = planted
    seen = {}

    def train(self, entries):
        seen["model"], seen["lengths"] = self.model, [len(entry["target"]) for entry in entries]
        return predictor

    monkeypatch.setattr(StateSpaceEstimator, "train", train)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D")
    frame = pd.DataFrame({"item_id": "a", "day": days, "sales": entries[0]["target"]})
    found = anomalies(pl.from_pandas(frame), rate=RATE)
    assert seen == {"model": "issm", "lengths": [int(0.3 * STEPS)]}
    assert list(found) == [
        "item_id", "day", "value", "expected", "lower", "upper", "error", "tail", "score",
        "flagged", "event", "kind", "distribution",
    ]  # fmt: skip
    assert found["kind"][AT] == "spike"
    assert not np.signbit(found["score"]).any()


def test_what_is_wrong_is_said(planted):
    entries, predictor = planted
    for options, message in (
        ({"rate": 0.0}, "false-alarm rate between 0 and 0.5, got 0.0"),
        ({"given": "future"}, "expected given to be 'past' or 'all', got 'future'"),
        ({"stretch": 1}, "a stretch of at least 2 steps, got 1"),
        ({"since": "2030-01-01"}, "within the data, which go from 2024-01-01 to 2024-07-08, got 2030-01-01"),
        ({"since": "soon"}, "expected since to be a date, got 'soon'"),
        ({"since": "2024-01-20"}, "at least 40 values before the judged part, to learn what is ordinary, got 19"),
    ):
        with pytest.raises(ValueError, match=message):
            anomalies(entries, predictor, **options)
    with pytest.raises(ValueError, match="the data set is empty"):
        anomalies([], predictor)
    with pytest.raises(ValueError, match="all are missing"):
        learning_steps({**entries[0], "target": np.full(50, np.nan)}, None)
    assert learning_steps({**entries[0], "target": np.r_[np.full(10, np.nan), np.ones(100)]}, None) == 50  # 40 values
