"""Beliefs that are kept: moved on by what is new, they are what filtering everything would have given."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.forecasting.test_estimator import HORIZON, SMALL, make_entries, make_estimator
from tsforecast.core import Gaussian
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.forecasting.beliefs import load_beliefs, save_beliefs
from tsforecast.forecasting.live_beliefs import LiveBelief, continued, missing_steps
from tsforecast.models import MODELS, Belief, ExactInference, Series
from tsforecast.models.parts.units import Units

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")

EXACT = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    options = {"history_length": None} if "history_length" in SMALL[request.param] else {}
    return make_estimator(request.param, epochs=1, **options).train(make_entries())


def cut(entries, first, last):
    return [
        {**e, "start": e["start"] + (first or 0), "target": e["target"][first:last], "item_id": e["item_id"]}
        for e in entries
    ]


def seeded(function, *args, seed=0, **kwargs):
    torch.manual_seed(seed)
    result = function(*args, **kwargs)
    return result if isinstance(result, dict) else list(result)


def freeze_scales(monkeypatch, predictor, entries):
    """All filtering begins with the scales of these histories."""
    begun = {item: (b.belief.location, b.belief.scale) for item, b in predictor.filter(entries).items()}
    names = {k + 1: e["item_id"] for k, e in enumerate(entries)}

    def of_past(self, batch, dtype):
        parts = [begun[names[int(k)]] for k in batch["series_index"]]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    monkeypatch.setattr(Units, "of_past", of_past)


def same_beliefs(some, others):
    assert some.keys() == others.keys()
    for item, known in some.items():
        other = others[item]
        assert known.end == other.end
        pytree.tree_map(
            lambda a, b: torch.testing.assert_close(a, b, **EXACT) if isinstance(a, torch.Tensor) else None,
            known.belief,
            other.belief,
        )


@pytest.mark.parametrize("model", ["issm", "gls"])
def test_an_update_equals_filtering_from_the_start(model, monkeypatch):
    entries = make_entries()
    predictor = make_estimator(model, epochs=1).train(entries)
    freeze_scales(monkeypatch, predictor, cut(entries, 0, 30))
    whole = predictor.filter(entries)
    known = predictor.filter(cut(entries, 0, 30))
    for first, last in ((30, 31), (31, 36), (36, None)):
        known = predictor.update(known, cut(entries, first, last))
    same_beliefs(known, whole)
    for a, b in zip(seeded(predictor.forecast_from, known), seeded(predictor.forecast_from, whole), strict=True):
        np.testing.assert_allclose(a.samples, b.samples, rtol=1e-3, atol=1e-3)


def test_a_kept_belief_forecasts_as_its_history_does(trained):
    entries = make_entries()
    direct = seeded(trained.predict, entries)
    kept = seeded(lambda: trained.forecast_from(trained.filter(entries)))
    for a, b in zip(direct, kept, strict=True):
        assert (a.item_id, a.start_date, a.samples.shape) == (b.item_id, b.start_date, b.samples.shape)
        if isinstance(trained.prediction_net.inference, ExactInference):  # filtering particles draws numbers, too
            np.testing.assert_allclose(a.samples, b.samples, rtol=1e-3, atol=1e-3)


def test_particles_go_on_from_where_they_were():
    """With one series and the same random numbers, two updates draw what one would."""
    entries = make_entries(count=1)
    predictor = make_estimator("rsgls-issm", epochs=1, history_length=None).train(make_entries())
    known = seeded(predictor.filter, cut(entries, 0, 30))
    torch.manual_seed(5)
    once = predictor.update(known, cut(entries, 30, 36))
    torch.manual_seed(5)
    twice = predictor.update(predictor.update(known, cut(entries, 30, 33)), cut(entries, 33, 36))
    same_beliefs(once, twice)


def test_series_of_different_lengths_and_new_ones(trained):
    entries = make_entries()
    known = trained.filter(cut(entries[:3], 0, 30))
    before = {item: dataclasses.replace(k) for item, k in known.items()}
    news = [*cut(entries[:1], 30, 31), *cut(entries[1:2], 30, 34), *entries[3:4]]
    after = trained.update(known, news)
    assert list(after) == ["s0", "s1", "s2", "s3"]
    starts = {e["item_id"]: e["start"] for e in entries}
    lengths = {"s0": 31, "s1": 34, "s2": 30, "s3": len(entries[3]["target"])}
    assert {item: (k.end - starts[item]).n for item, k in after.items()} == lengths
    same_beliefs(known, before)  # they were not changed
    same_beliefs({"s2": known["s2"]}, {"s2": after["s2"]})
    forecasts = list(trained.forecast_from(after, [{"item_id": "s3"}, {"item_id": "s0"}], num_samples=4))
    assert [f.item_id for f in forecasts] == ["s3", "s0"]
    assert [f.start_date for f in forecasts] == [after["s3"].end, after["s0"].end]
    assert all(f.samples.shape == (4, HORIZON) and np.isfinite(f.samples).all() for f in forecasts)


def test_steps_that_were_left_out_are_missing():
    entries = make_entries()
    predictor = make_estimator(epochs=1).train(entries)
    known = predictor.filter(cut(entries, 0, 30))
    holes = cut(entries, 30, 36)
    for entry in holes:
        entry["target"] = np.where(np.arange(6) < 2, np.nan, entry["target"])
    same_beliefs(predictor.update(known, cut(entries, 32, 36)), predictor.update(known, holes))


def test_known_future_values_and_covariates():
    rng = np.random.default_rng(1)
    entries = [
        {**e, "feat_dynamic_real": rng.normal(size=(2, len(e["target"]) + HORIZON)), "feat_static_cat": [k % 2]}
        for k, e in enumerate(make_entries())
    ]
    predictor = make_estimator("gls", epochs=1).train(entries)
    known = predictor.filter(entries)
    horizon = [
        {"item_id": e["item_id"], "feat_dynamic_real": e["feat_dynamic_real"][:, -HORIZON:],
         "known_future": [np.nan, 7.0, np.nan, np.nan]}
        for e in entries
    ]  # fmt: skip
    for forecast in predictor.forecast_from(known, horizon):
        np.testing.assert_allclose(forecast.samples[:, 1], 7.0, rtol=1e-4)
        assert forecast.samples[:, 0].std() > 0
    with pytest.raises(ValueError, match=r"'s0': expected feat_dynamic_real over 4 steps from .* on, got 2"):
        list(predictor.forecast_from(known, [{**horizon[0], "feat_dynamic_real": np.zeros((2, 2))}]))
    later = {"item_id": "s0", "start": known["s0"].end + 1, "target": [1.0], "feat_dynamic_real": np.zeros((2, 1))}
    with pytest.raises(ValueError, match=r"'s0': 1 step from .* on left out; give them with their covariates"):
        predictor.update(known, [later])


def test_saved_and_read_again(trained, tmp_path):
    known = trained.filter([{**e, "feat_static_real": [1.0]} for e in make_entries()])
    save_beliefs(tmp_path / "beliefs.pt", known.values(), trained.prediction_net)
    same_beliefs(load_beliefs(tmp_path / "beliefs.pt", trained.prediction_net), known)
    assert [p.name for p in tmp_path.iterdir()] == ["beliefs.pt"]


def test_bad_input_and_foreign_files(tmp_path):
    entries = make_entries()
    predictor = make_estimator(epochs=1).train(entries)
    known = predictor.filter(entries)
    with pytest.raises(ValueError, match=r"'s1': expected observations from .* on, got some from .*; give each"):
        predictor.update(known, cut(entries[1:2], 30, None))
    with pytest.raises(ValueError, match="expected an item_id of its own for each series, got 's0'"):
        predictor.filter([entries[0], entries[0]])
    with pytest.raises(ValueError, match="expected an item_id of its own for each series, got None"):
        predictor.filter([{name: entries[0][name] for name in ("start", "target")}])
    with pytest.raises(ValueError, match="series 'x' is not among the beliefs; filter its history first"):
        list(predictor.forecast_from(known, [{"item_id": "x"}]))
    with pytest.raises(ValueError, match="expected data of frequency 'D', got 'W-SUN'"):
        predictor.update(known, [{**entries[0], "start": pd.Period("2030-01-06", "W")}])
    path = tmp_path / "beliefs.pt"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_beliefs(path, predictor.prediction_net)
    save_beliefs(path, known.values(), predictor.prediction_net)
    with pytest.raises(ValueError, match="holds beliefs of another model"):
        load_beliefs(path, make_estimator(epochs=1, seed=1).train(entries).prediction_net)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="holds no readable beliefs"):
        load_beliefs(path, predictor.prediction_net)


@pytest.mark.parametrize("freq", ["2h", "15min", "3D", "D"])
def test_steps_left_out_are_counted_in_steps_of_the_frequency(freq):
    state = Gaussian(torch.zeros(1, 1), torch.eye(1).unsqueeze(0))
    code = torch.zeros(1, dtype=torch.long)
    belief = Belief(state, torch.zeros(1, 1), torch.ones(1, 1), Series(code, code[:, None], torch.zeros(1, 0)))
    with expected_alias_warnings():
        end = pd.Period("2024-01-02", freq)
        known = LiveBelief("a", end, belief, {})
        for steps in (0, 1, 5):
            assert missing_steps(known, end + steps) == steps
        news = continued(known, {"start": end + 3, "target": [1.0, 2.0]})
    assert news["start"] == end
    np.testing.assert_array_equal(news["target"], [np.nan, np.nan, np.nan, 1.0, 2.0])
