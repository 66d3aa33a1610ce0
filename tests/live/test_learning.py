"""A learner behind a store is `AdaptivePredictor`, and a restart leaves nothing of it behind."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tests.live.stores import FIRST, begun, make_store, observations, same_rows, steps_of, trained
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.predictor import save_predictor
from tsforecast.live.opening import open_store
from tsforecast.live.rules import Pending

LEARN = Adaptation(rate=0.05, variance=0.5, rank=2)


def learner_of(store) -> AdaptivePredictor:
    assert store.learning is not None
    return store.learning.adaptive


def test_it_learns_what_a_predictor_learns_from_the_same_periods(tmp_path):
    """In any cut into requests; one that reaches over the end of a period counts on both sides of it."""
    entries = make_entries()
    adaptive = AdaptivePredictor(trained("issm"), LEARN)
    for end in (FIRST + HORIZON, FIRST + 2 * HORIZON):
        adaptive.learn(begun(entries, end))
    for batches, cuts in ((8, [30, 31, 33, 35, 38, 39]), (6, [30, 36, 39])):
        with open_store(make_store(tmp_path / str(batches), adaptation=LEARN)) as store:
            before = [p.clone() for p in learner_of(store).module.parameters()]
            for first, last in pairwise(cuts):
                (outcomes,) = store.observe([steps_of(entries, first, last)])
                assert set(outcomes) == {"applied"}
            found = learner_of(store)
            for a, b in zip(pytree.tree_leaves(found.belief), pytree.tree_leaves(adaptive.belief), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
            parameters = (found.module.parameters(), adaptive.module.parameters(), before)
            for mine, its, old in zip(*parameters, strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-3, atol=1e-5)
                assert not torch.equal(mine, old)
            assert store.number == batches  # pieces of requests, and the ends of two periods


def test_states_are_filtered_and_forecast_by_the_parameters_of_the_time(tmp_path):
    entries = make_entries()
    adaptive = AdaptivePredictor(trained("issm"), LEARN)
    beliefs = adaptive.predictor.filter(begun(entries))
    for first, last in ((FIRST, FIRST + HORIZON), (FIRST + HORIZON, 36)):
        news = [{**e, "start": e["start"] + first, "target": e["target"][first:last]} for e in entries]
        beliefs = adaptive.predictor.update(beliefs, news)
        if last < 36:
            adaptive.learn(begun(entries, last))
    with open_store(make_store(tmp_path, adaptation=LEARN)) as store:
        store.observe([steps_of(entries, FIRST, 36)])
        forecasts = store.engine.forecasts(store.rows, np.arange(5), HORIZON)
        for forecast, other in zip(forecasts, adaptive.predictor.forecast_from(beliefs, num_samples=0), strict=True):
            np.testing.assert_allclose(forecast.quantile(0.9), other.quantile(0.9), rtol=1e-3)


def test_a_restart_from_the_log_equals_a_service_that_was_never_stopped_to_the_bit(tmp_path):
    """With new series, gaps over several periods, and series that lag behind the end of a period."""
    entries = make_entries()
    start = entries[0]["start"].ordinal
    batches = [
        steps_of(entries, 30, 33),
        steps_of(entries[:2], 33, 36),  # ends a period, before others have seen all of it
        steps_of(entries[2:], 33, 34),  # behind its end
        observations(["late"] * 3, start + np.arange(37, 40), [5.0, 6.0, 5.5]),
        observations(["s1"], [start + 49], [7.0]),  # ends two, of one of which nothing was seen
    ]
    never = make_store(tmp_path, adaptation=LEARN, warm_up=2)
    often = tmp_path / "often"
    shutil.copytree(never, often)
    with open_store(never) as store:
        outcomes = [store.observe([batch]) for batch in batches]
        assert {name for (found,) in outcomes for name in found} == {"applied"}
        for first in range(0, 6, 2):
            with open_store(often) as other:
                assert [other.observe([batch]) for batch in batches[first : first + 2]] == outcomes[first : first + 2]
                if first == 2:
                    other.snapshot()
        with open_store(often) as other:
            same_rows(other.rows, store.rows)
            assert store.rows.seen[5] == 3
            assert other.number == store.number == 11
            assert other.learning.begin == store.learning.begin == start + 46
            for a, b in zip(*(pytree.tree_leaves(learner_of(x).belief) for x in (other, store)), strict=True):
                assert torch.equal(a, b)
            for a, b in zip(*(learner_of(x).module.parameters() for x in (other, store)), strict=True):
                assert torch.equal(a, b)


def test_a_series_that_begins_far_ahead_ends_no_periods(tmp_path):
    """It would have the learner skip all that the others have to come."""
    entries = make_entries()
    start = entries[0]["start"].ordinal
    with open_store(make_store(tmp_path, adaptation=LEARN), max_gap=20) as store:
        begin = store.learning.begin
        far = begin + HORIZON + 20 + 1
        assert store.observe([observations(["far"], [far], [1.0])]) == [["gap"]]
        assert (store.number, store.learning.begin) == (0, begin)
        assert store.observe([observations(["near"], [start + 31], [1.0])]) == [["applied"]]
        assert store.observe([observations(["far"], [far - 1], [1.0])]) == [["applied"]]
        assert store.learning.begin > begin


def test_what_can_not_be_is_said(tmp_path):
    unbounded = make_estimator("issm", epochs=1, scaling="none", context_length=0).train(make_entries())
    save_predictor(unbounded, tmp_path / "predictor-issm")
    with pytest.raises(ValueError, match="train it with a context_length"):
        make_store(tmp_path, adaptation=LEARN)
    plain = make_store(tmp_path / "plain")
    with open_store(plain) as store:
        steps = store.rules.sift(store.rows, [Pending(steps_of(make_entries(), 30, 31))], 0)
        store._log.append(steps.split(np.ones(5, int), 5)[0].to_bytes())  # the end of a period
        store._acknowledge(0)
    with pytest.raises(ValueError, match="expected micro-batch 0 of this model"), open_store(plain):
        pass
    learns = make_store(tmp_path / "learns", adaptation=LEARN)
    (snapshot,) = learns.glob("snapshot-*")
    (snapshot / "learnt.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"learnt.pt is missing or damaged"), open_store(learns):
        pass
