"""Beliefs that micro-batches move are those of filtering at once."""

import numpy as np
import pytest
import torch

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tests.live.stores import FIRST, begun, day, make_store, observations, steps_of, trained
from tsforecast.forecasting.live_beliefs import LiveBelief, join
from tsforecast.live import batches
from tsforecast.live import engine as live_engine
from tsforecast.live.engine import Engine
from tsforecast.live.layout import Layout
from tsforecast.live.opening import open_store
from tsforecast.live.rules import Pending, Rules


def stacked(engine, beliefs: dict[str, LiveBelief]):
    return engine.layout.stack(join([one.belief for one in beliefs.values()]))


@pytest.mark.parametrize("model", ["issm", "bank", "pool", "rsgls-issm"])
def test_a_stacked_belief_comes_back(model):
    predictor = trained(model)
    torch.manual_seed(0)
    belief = join([one.belief for one in predictor.filter(make_entries()).values()])
    layout = Layout(predictor.prediction_net)
    parts = layout.stack(belief)
    assert all(len(part) == 5 for part in parts)
    again = layout.stack(layout.belief(parts))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    for one, other in zip(Layout(predictor.prediction_net).stack(layout.belief(parts)), parts, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    spread = [x for x in torch.utils._pytree.tree_leaves(belief) if isinstance(x, torch.Tensor)]
    back = [x for x in torch.utils._pytree.tree_leaves(layout.belief(parts)) if isinstance(x, torch.Tensor)]
    for a, b in zip(spread, back, strict=True):
        torch.testing.assert_close(a.expand_as(b), b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", ["issm", "bank"])
@pytest.mark.parametrize("spans", [[(30, 31), (31, 36), (36, 44)], [(30, 44)]])
def test_observations_one_by_one_equal_an_update_with_all(tmp_path, model, spans):
    entries = make_entries()
    predictor = trained(model)
    whole = predictor.update(
        predictor.filter(begun(entries)),
        [{**e, "start": e["start"] + FIRST, "target": e["target"][FIRST:]} for e in entries],
    )
    with open_store(make_store(tmp_path, model)) as store:
        for first, last in spans:
            (outcomes,) = store.observe([steps_of(entries, first, last)])
            assert set(outcomes) == {"applied"}
        assert store.rows.names == [e["item_id"] for e in entries]
        assert store.rows.end[:5].tolist() == [one.end.ordinal for one in whole.values()]
        for mine, theirs in zip(store.rows.parts, stacked(store.engine, whole), strict=True):
            torch.testing.assert_close(mine[:5], theirs, rtol=1e-4, atol=2e-5)
        forecasts = store.engine.forecasts(store.rows, np.arange(5), HORIZON)
        for forecast, other in zip(forecasts, predictor.forecast_from(whole, num_samples=0), strict=True):
            assert (forecast.item_id, forecast.start_date) == (other.item_id, other.start_date)
            np.testing.assert_allclose(forecast.quantile(0.9), other.quantile(0.9), rtol=1e-5)


def test_filtering_in_float64_agrees_to_rounding():
    """What the test above allows for is the rounding of float32."""
    entries = make_entries()
    estimator = make_estimator("issm", epochs=1, scaling="none", transformation="none")
    predictor = estimator.train(entries)
    predictor.prediction_net.double()
    engine = Engine(predictor, warm_up=5)
    whole = predictor.filter(entries)
    rows = engine.empty()
    rules = Rules(1, 100, 100)
    for number, (first, last) in enumerate([(0, 12), (12, 13), (13, 30), (30, 44)]):
        steps = rules.sift(rows, [Pending(steps_of(entries, first, last))], number)
        engine.commit(rows, engine.moved(rows, steps))
    assert not rows.young
    for mine, theirs in zip(rows.parts, stacked(engine, whole), strict=True):
        torch.testing.assert_close(mine[:5], theirs, rtol=1e-9, atol=1e-9, check_dtype=False)


def test_a_series_that_begins_is_as_filtering_it_from_its_first_value(tmp_path):
    entries = make_entries(count=3)
    predictor = trained("issm")
    with open_store(make_store(tmp_path, entries=begun(entries[:1]), warm_up=20)) as store:
        for last in range(1, 20):
            store.observe([steps_of(entries[1:], last - 1, last)])
        whole = predictor.filter(begun(entries, 19)[1:])
        assert store.rows.names == ["s0", "s1", "s2"]
        assert {*store.rows.young} == {1, 2}
        for mine, theirs in zip(store.rows.parts, stacked(store.engine, whole), strict=True):
            torch.testing.assert_close(mine[1:3], theirs, rtol=1e-5, atol=1e-6)
        for last in range(20, 34):
            store.observe([steps_of(entries[1:], last - 1, last)])
        assert not store.rows.young  # and they keep their scales from here on


def test_a_gap_is_missing_values(tmp_path):
    entries = make_entries(missing=False)
    with open_store(make_store(tmp_path, entries=begun(entries))) as store:
        ends = store.rows.end[:2].copy()
        store.observe([observations(["s0", "s1"], [ends[0] + 3, ends[1] + 1], [5.0, 6.0])])
        got = [part[:2].clone() for part in store.rows.parts]
        assert store.rows.end[:2].tolist() == [ends[0] + 4, ends[1] + 2]
        assert store.far == 0
    (tmp_path / "other").mkdir()
    with open_store(make_store(tmp_path / "other", entries=begun(entries))) as store:
        for k in range(4):
            items = ["s0", "s1"][: 2 if k < 2 else 1]
            values = [5.0 if k == 3 else np.nan, 6.0 if k == 1 else np.nan][: len(items)]
            store.observe([observations(items, ends[: len(items)] + k, values)])
        for mine, theirs in zip(store.rows.parts, got, strict=True):
            torch.testing.assert_close(mine[:2], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["s0", "begins"])
def test_a_long_stretch_of_one_series_does_not_lengthen_the_others(tmp_path, name):
    """Arrays grow with the steps that there are; beliefs are those of the series alone."""
    entries = make_entries(missing=False)
    with open_store(make_store(tmp_path, entries=begun(entries)), max_gap=10_000) as store:
        first, (item, *others) = int(store.rows.end[0]), [name, *(f"new {k}" for k in range(300))]
        given = observations([item, *others, item], [first, *[first] * 300, first + 9000], np.ones(302))
        steps = store.rules.sift(store.rows, [Pending(given)], 0)
        moved = store.engine.moved(store.rows, steps)
        assert len(moved.news.steps) == 300 + 9001
        store.engine.commit(store.rows, moved)
        row = store.rows.index[item]
        together = [part[row : row + 1].clone() for part in store.rows.parts]
    (tmp_path / "other").mkdir()
    with open_store(make_store(tmp_path / "other", entries=begun(entries)), max_gap=10_000) as store:
        store.observe([observations([item, item], [first, first + 9000], np.ones(2))])
        row = store.rows.index[item]
        for mine, theirs in zip(store.rows.parts, together, strict=True):
            torch.testing.assert_close(mine[row : row + 1], theirs, rtol=1e-5, atol=1e-6)


def test_histories_of_different_lengths_are_filtered_in_groups(tmp_path, monkeypatch):
    """Each as alone; groups are no larger than they may, but for a history that is longer alone."""
    entries = make_entries(missing=False)
    lengths = [3, 40, 2, 7, 40, 12]
    given = [(f"new {k}", 100 + n) for k, length in enumerate(lengths) for n in range(length)]
    padded = []
    monkeypatch.setattr(batches, "_PADDED", 30)
    collate = live_engine.collate
    monkeypatch.setattr(
        live_engine, "collate", lambda windows, *more: padded.append(windows) or collate(windows, *more)
    )
    with open_store(make_store(tmp_path, entries=begun(entries), warm_up=50)) as store:
        values = np.random.default_rng(0).normal(10, 1, size=len(given))
        store.observe([observations(*zip(*given, strict=True), values)])
        assert [sorted(len(one["past_target"]) for one in some) for some in padded] == [[2, 3, 7], [12], [40], [40]]
        for k in range(len(lengths)):
            rows, history = np.array([5 + k]), store.rows.young[5 + k]
            assert len(history) == lengths[k]
            alone = store.engine.begun(store.rows, [], rows, [history], store.rows.end[rows])
            for mine, theirs in zip(store.rows.gather(rows), alone.parts, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_value_too_far_away_counts_as_missing(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        end = int(store.rows.end[0])
        store.observe([observations(["s0"], [end], [1e30])])
        assert store.far == 1
        far = [part[:1].clone() for part in store.rows.parts]
    (tmp_path / "other").mkdir()
    with open_store(make_store(tmp_path / "other")) as store:
        store.observe([observations(["s0"], [end], [np.nan])])
        for mine, theirs in zip(store.rows.parts, far, strict=True):
            assert torch.equal(mine[:1], theirs)


def test_what_if_values_are_taken_as_given(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        future = np.full((1, HORIZON, 1), np.nan)
        future[0, 1] = 7.5
        (forecast,) = store.engine.forecasts(store.rows, np.array([2]), HORIZON, future)
        assert forecast.quantile(0.1)[1] == forecast.quantile(0.9)[1] == pytest.approx(7.5)
        assert forecast.quantile(0.1)[0] < forecast.quantile(0.9)[0]


def test_times_are_those_of_periods():
    calendar = Engine(trained("issm"), 5).calendar
    assert calendar.ordinals_of(["2024-01-02", "2024-01-02T23:59:59.5"]).tolist() == [day("2024-01-02")] * 2
    assert calendar.stamps(day("2024-02-28"), 3) == (
        "2024-02-28T00:00:00",
        "2024-02-29T00:00:00",
        "2024-03-01T00:00:00",
    )
    for wrong in ("now", "2024", "2024-02-31", "2024-01-02T00:00Z", "1200-01-01", "2200-01-01", "٢٠٢٤-01-01", ""):
        with pytest.raises(ValueError, match="expected"):
            calendar.ordinals_of(["2024-01-01", wrong])
    for far in (10**4, 10**6):  # few periods far apart are computed alone, and the range that is kept stays
        known, periods = len(calendar.at(np.arange(1000))[0]), np.array([5, -far])
        kept = len(calendar._known[0])
        for a, b, c in zip(calendar.at(periods), calendar.at(periods[:1]), calendar.at(periods[1:]), strict=True):
            np.testing.assert_array_equal(a, np.concatenate([b, c]))
        assert (known, kept) == (1000, 1000 + 512)
