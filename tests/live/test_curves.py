"""A service whose model is behind curves of covariates: it answers as the predictor does, also after a restart."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from tests.live.stores import observations, same_rows
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.predictor import load_predictor, save_predictor
from tsforecast.live.beginning import Source, begin_store
from tsforecast.live.opening import open_store

HORIZON, FIRST, STEPS = 24, 400, 500
START = pd.Period("2023-01-02 00:00", "h")


def entries(count=2):
    """Return hourly loads that cold and heat raise, and their temperatures; each is ten times the one before."""
    rng, time = np.random.default_rng(0), np.arange(STEPS + HORIZON)
    found = []
    for k in range(count):
        warmth = 12 + 9 * np.sin(time / (50 + 7 * k)) + rng.normal(size=len(time))
        target = 100 * 10**k * np.exp(0.003 * (warmth - 12) ** 2 + 0.1 * np.sin(time / 24 * 2 * np.pi))
        target *= np.exp(0.03 * rng.normal(size=len(time)))
        target[7::31] = np.nan
        found.append({"item_id": f"s{k}", "start": START, "target": target, COVARIATES: warmth[None]})
    return found


def part(entry, first, last, ahead=0):
    """Return steps of an entry from a first to a last one, with covariates of some more."""
    known = entry[COVARIATES][:, first : last + ahead]
    return {**entry, "start": entry["start"] + first, "target": entry["target"][first:last], COVARIATES: known}


@pytest.fixture(scope="module")
def predictor():
    trainer = {"enable_progress_bar": False, "max_epochs": 0}
    estimator = StateSpaceEstimator("bank", "h", HORIZON, seed=0, trainer_kwargs=trainer)
    found = estimator.train([part(one, 0, FIRST) for one in entries()])
    assert found.input_transform.effects is not None
    return found


@pytest.fixture
def store_of(predictor, tmp_path):
    def make(given, **options):
        save_predictor(predictor, tmp_path / "predictor")
        begin_store(tmp_path / "store", tmp_path / "predictor", [Source("all", lambda: given)], device="cpu", **options)
        return tmp_path / "store"

    return make


def steps_of(given, first, last):
    rows = [
        (one["item_id"], one["start"].ordinal + k, one["target"][k], None, one[COVARIATES][:, k])
        for k in range(first, last)
        for one in given
    ]
    items, ordinals, values, _, covariates = zip(*rows, strict=True)
    return observations(items, ordinals, values, None, covariates)


def forecasts_of(store, given, at, **options):
    rows = np.array([store.rows.index[one["item_id"]] for one in given])
    known = np.stack([one[COVARIATES].T[at : at + HORIZON] for one in given])
    return store.engine.forecasts(store.rows, rows, HORIZON, covariates=store.engine.covariates_of(known), **options)


def same_forecasts(mine, theirs, rtol=1e-5):
    for one, other in zip(mine, theirs, strict=True):
        assert (one.item_id, one.start_date) == (other.item_id, other.start_date)
        for level in (0.1, 0.5, 0.9):
            np.testing.assert_allclose(one.quantile(level), other.quantile(level), rtol=rtol)


@pytest.mark.parametrize("cuts", [[400, 401, 403, 440], [400, 440]])
def test_forecasts_are_those_of_the_predictor_after_the_same_observations(predictor, store_of, cuts):
    given = entries()
    whole = predictor.filter([part(one, 0, FIRST) for one in given])
    whole = predictor.update(whole, [part(one, FIRST, 440) for one in given])
    ahead = [{"item_id": one["item_id"], COVARIATES: one[COVARIATES][:, 440 : 440 + HORIZON]} for one in given]
    with open_store(store_of([part(one, 0, FIRST) for one in given])) as store:
        for first, last in pairwise(cuts):
            (outcomes,) = store.observe([steps_of(given, first, last)])
            assert set(outcomes) == {"applied"}
        same_forecasts(forecasts_of(store, given, 440), predictor.forecast_from(whole, ahead, num_samples=0))
        known = np.full((2, HORIZON, 1), np.nan)
        known[:, 3] = [[150.0], [1500.0]]
        some = [{**one, "known_future": known[k, :, 0]} for k, one in enumerate(ahead)]
        mine = forecasts_of(store, given, 440, future=known)
        same_forecasts(mine, predictor.forecast_from(whole, some, num_samples=0))
        np.testing.assert_allclose(mine[1].quantile(0.2)[3], 1500, rtol=1e-5)
        (refused,) = store.observe([steps_of(given, 441, 442)])
        assert refused == ["covariates"] * 2


def test_a_series_that_begins_is_filtered_anew_with_its_size_until_it_has_enough_values(predictor, store_of):
    """A new series of another size; its first values are missing, and its covariates count from the first step on."""
    given = entries(3)
    fresh = part(given[2], 0, STEPS, HORIZON)
    fresh["target"][:3] = np.nan
    with open_store(store_of([part(one, 0, FIRST) for one in given[:2]], warm_up=30)) as store:
        for first, last in pairwise((0, 1, 2, 9, 10, 25)):
            store.observe([steps_of([fresh], first, last)])
            assert 2 in store.rows.young
            alone = predictor.predict([part(fresh, 0, last, HORIZON)], num_samples=0)
            same_forecasts(forecasts_of(store, [fresh], last), alone, rtol=1e-4)
        # From thirty values on the scale stays, as that of a belief does.
        store.observe([steps_of([fresh], 25, 40)])
        assert 2 not in store.rows.young
        store.observe([steps_of([fresh], 40, 60)])
        kept = predictor.update(predictor.filter([part(fresh, 0, 40)]), [part(fresh, 40, 60)])
        ahead = {"item_id": "s2", COVARIATES: fresh[COVARIATES][:, 60 : 60 + HORIZON]}
        mine = forecasts_of(store, [fresh], 60)
        same_forecasts(mine, predictor.forecast_from(kept, [ahead], num_samples=0), rtol=1e-4)


def test_a_restart_is_no_restart(store_of):
    """From the log, and from a snapshot: rows and what covariates have been are those of one run, to the bit."""
    given = entries(3)
    path = store_of([part(one, 0, FIRST) for one in given[:2]])
    with open_store(path) as store:
        store.observe([steps_of(given, 400, 404)])
        store.observe([steps_of(given, 404, 405)])
        before = store.rows
    with open_store(path) as store:
        same_rows(store.rows, before)
        assert not np.isnan(store.rows.memory[:3]).any()
        store.snapshot()
    with open_store(path) as store:
        same_rows(store.rows, before)
        store.observe([steps_of(given, 405, 410)])
        (again,) = forecasts_of(store, given[:1], 410)
    with open_store(path) as store:
        (other,) = forecasts_of(store, given[:1], 410)
        np.testing.assert_array_equal(again.quantile(0.3), other.quantile(0.3))


def test_a_learner_sees_what_a_predictor_sees(tmp_path):
    """Parameters learn from targets without effects; its windows have effects in the place of covariates."""
    given, learn = entries(), Adaptation(rate=0.05, variance=0.5, rank=2)
    trainer = {"enable_progress_bar": False, "max_epochs": 1, "limit_train_batches": 1}
    estimator = StateSpaceEstimator("issm", "h", HORIZON, seed=0, trainer_kwargs=trainer, context_length=48)
    save_predictor(estimator.train([part(one, 0, FIRST) for one in given]), tmp_path / "predictor")
    first = [part(one, 0, FIRST) for one in given]
    source = Source("all", lambda: first)
    begin_store(tmp_path / "store", tmp_path / "predictor", [source], device="cpu", adaptation=learn)
    adaptive = AdaptivePredictor(load_predictor(tmp_path / "predictor"), learn)
    adaptive.learn([part(one, 0, FIRST + HORIZON) for one in given])
    with open_store(tmp_path / "store") as store:
        store.observe([steps_of(given, FIRST, FIRST + HORIZON + 1)])
        assert store.learning is not None
        mine = store.learning.adaptive.module.parameters()
        for one, other in zip(mine, adaptive.module.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
