"""The model of regimes alone: what its options do, and what its start finds."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tests.models.cases import HORIZON, entries_of, make_batch, make_model, without
from tsforecast.core.regimes import chain
from tsforecast.models import MODELS
from tsforecast.models import make_model as build
from tsforecast.models.parts.markov_start import EMStart

EXACT = {"rtol": 1e-8, "atol": 1e-8}


def switching_entries(steps=90, series=2, seed=0):
    """An autoregression around 0 with noise .3, or around 4 with noise 1; regimes last 20 steps on average."""
    rng = np.random.default_rng(seed)
    entries, truth = [], []
    for k in range(series):
        regime = (rng.random(steps) < 0.05).cumsum() % 2
        value, values = 0.0, []
        for s in regime:
            value = (0.0, 4.0)[s] * 0.5 + 0.5 * value + (0.3, 1.0)[s] * rng.normal()
            values.append(value)
        start = pd.Period("2024-01-01", "D")
        entries.append({"item_id": f"s{k}", "start": start, "target": np.array(values, np.float32)})
        truth.append(regime)
    return entries, np.array(truth)


def plain(**options):
    data = {"freq": "D", "prediction_length": HORIZON, "num_series": 2, "transformation": "none", "clip": "none"}
    return build(MODELS["markov"], **{**data, "season": 7, "seasonal": False, **options}).double()


def test_em_finds_the_regimes_from_data_and_a_trained_model_keeps_its_own():
    entries, truth = switching_entries()
    model = plain()
    batch = make_batch(model, entries)
    with torch.no_grad():
        before = float(model.loss(batch).mean())
    EMStart(3, 0)(model.inference, batch)
    assert float(model.loss(batch).detach().mean()) < before - 0.2
    found = model.inference.regimes(batch)
    assert (found.path.T.numpy() == truth[:, :-HORIZON]).mean() > 0.95
    torch.testing.assert_close(found.pairs.sum(-2), found.probabilities, **EXACT)
    assert (model.inference.regime_scales().diff() > 0).all()  # from calm to wild
    state = {name: value.clone() for name, value in model.state_dict().items()}
    again = plain()
    again.load_state_dict(state)
    EMStart(1, 1)(again.inference, batch)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in state.items())


def test_steps_before_all_lags_are_known_do_not_change_those_behind():
    """Kim's filter over all steps, as after a gap at the end, and Hamilton's behind the first ones."""
    for options in ({"order": 1, "seasonal": False}, {"form": "mean", "order": 2}, {"order": 1, "season": 3}):
        model = make_model("markov", scaling="none", **options)
        entries = [{**e, "target": np.nan_to_num(e["target"])} for e in entries_of("markov", lengths=(20, 16, 14))]
        batch, cut = (make_batch(model, [without(e, *gap) for e in entries]) for gap in ((), (-HORIZON - 1,)))
        fast, slow = model.filter(batch)[1], model.filter(cut)[1]
        torch.testing.assert_close(fast[:-1], slow[:-1], **EXACT)
        assert model.inference._head(model.inference.slice_of(batch, "past").observed) < len(fast) - 1


def test_forecasts_are_those_of_regimes_simulated_ahead():
    """Means and probabilities of sample paths, by the moments of the chain in closed form."""
    entries, _ = switching_entries(40)
    model = plain(order=0)
    EMStart(1, 0)(model.inference, make_batch(model, entries))
    batch = make_batch(model, entries, train=False)
    with torch.no_grad():
        belief, _ = model.filter(batch)
        paths = model.forecast(belief, batch, 4000, torch.Generator().manual_seed(0))[..., 0]
        ahead = model.inference.regimes_ahead(belief, batch)
        markov = model.dynamics.markov(model.inference.slice_of(batch, "future"), belief.series)
        location, unit = markov.system.location[0, 0], markov.log_unit[:, 0].exp()
        mean = (ahead @ location) * unit + markov.centre[:, 0]
        mean = mean * belief.scale[:, 0] + belief.location[:, 0]
    error = paths.std(1) / paths.shape[1] ** 0.5
    assert ((paths.mean(1) - mean.T).abs() < 4.5 * error).all()
    held = model.inference.forecast(belief, batch, 50, torch.Generator().manual_seed(0), hold_switch=True)
    assert torch.isfinite(held).all()
    given = {**batch, "known_future": torch.ones_like(batch["known_future"])}
    with pytest.raises(ValueError, match="known values or a held regime"):
        model.inference.forecast(belief, given, 5, hold_switch=True)


@pytest.mark.parametrize("given", [False, True])
def test_without_lags_quantiles_are_those_of_the_mixture_over_paths_of_regimes(given):
    """Oracle: all paths of regimes enumerated, weighed by what is known of the future; also of a known value."""
    entries, _ = switching_entries(30)
    model = plain(order=0, persistence=0.7)
    EMStart(1, 0)(model.inference, make_batch(model, entries))
    batch = make_batch(model, entries, train=False)
    if given:
        known = torch.full_like(batch["known_future"], torch.nan)
        known[:, 2] = batch["past_target"].reshape(len(known), -1).median(1, keepdim=True).values
        batch = {**batch, "known_future": known}
    with torch.no_grad():
        belief, _ = model.filter(batch)
        found = model.inference.marginals(belief, batch)
        markov = model.dynamics.markov(model.inference.slice_of(batch, "future"), belief.series)
    unit = markov.log_unit[:, 0].exp() * belief.scale[:, 0]
    centre = markov.centre[:, 0] * belief.scale[:, 0] + belief.location[:, 0]
    place = (markov.system.location[0].expand(2, 2) * unit[:, None] + centre[:, None]).detach().numpy()
    scale = (markov.system.log_scale.exp() * unit[:, None]).detach().numpy()
    transition, first = markov.log_transition[0, 0].exp().detach().numpy(), belief.particles.log_weight.exp().numpy()
    for series in range(2):
        weight = np.zeros((HORIZON, 2))
        for path in itertools.product(range(2), repeat=HORIZON):
            share = first[:, series] @ transition[:, path[0]]
            for one, other in itertools.pairwise(path):
                share *= transition[one, other]
            if given:
                share *= stats.norm.pdf(float(known[series, 2]), place[series, path[2]], scale[series, path[2]])
            weight[range(HORIZON), path] += share
        weight /= weight.sum(1, keepdims=True)
        quantile = found.quantile(torch.tensor([0.1, 0.8]))[:, series, :, 0].numpy()
        below = (weight * stats.norm.cdf((quantile[..., None] - place[series]) / scale[series])).sum(-1)
        free = [step for step in range(HORIZON) if not (given and step == 2)]
        np.testing.assert_allclose(below[:, free], np.broadcast_to([[0.1], [0.8]], (2, len(free))), atol=1e-7)
        mean = (weight * place[series]).sum(-1)
        np.testing.assert_allclose(found.expectation()[series, free, 0].numpy(), mean[free], rtol=1e-9)
        if given:
            np.testing.assert_allclose(quantile[:, 2], float(known[series, 2]), rtol=1e-9)
    assert model.inference.has_marginals
    assert plain(order=1).inference.marginals(belief, batch) is None


def test_covariates_move_the_transitions():
    model = make_model("markov-mean")
    batch = make_batch(model, entries_of("markov-mean"))
    time_slice = model.inference.slice_of(batch, "past")
    belief = model.filter(batch)[0]
    markov = model.dynamics.markov(time_slice, belief.series)
    assert markov.log_transition.shape[:2] == time_slice.dynamic_real.shape[:2]
    logits = model.dynamics.transition + torch.einsum(
        "d,dij->ij", time_slice.dynamic_real[3, 1], model.dynamics.transition_effects
    )
    torch.testing.assert_close(markov.log_transition[3, 1], torch.log_softmax(logits, -1), **EXACT)


def test_an_empty_series_has_the_regimes_of_the_long_run():
    model = plain(order=1)
    entries, _ = switching_entries(12)
    batch = make_batch(model, [without(entries[0], *range(8))])
    found = model.inference.regimes(batch)
    share = chain.stationary(torch.log_softmax(model.dynamics.transition, -1)).exp()
    torch.testing.assert_close(found.probabilities, share.expand_as(found.probabilities), **EXACT)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regimes": 0}, "regimes to be at least 1, got 0"),
        ({"num_targets": 2, "form": "mean"}, "form='intercept' with 2 targets"),
        ({"switching": "location+noise"}, "location, scale, coefficients, effects, got 'noise'"),
        ({"switching": ""}, "something that differs"),
        ({"switching": "coefficients", "order": 0}, "got order=0"),
        ({"form": "mean", "order": 10}, "at most 1024 histories"),
        ({"objective": "crps"}, "take objective 'likelihood'"),
        ({"persistence": 1.0}, "between 0 and 1"),
        ({"form": "median"}, "intercept, mean"),
        ({"initial": "uniform"}, "stationary, free"),
        ({"order": -1}, "order to be at least 0"),
        ({"transition_covariates": True}, "but the data have none"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plain(**options)


def test_units_are_those_of_all_of_the_past_or_of_the_training_data():
    """Not of the last values, which a mixture of regimes distorts."""
    entries, _ = switching_entries(60)
    past = np.stack([entry["target"][:-HORIZON] for entry in entries]).astype(np.float64)
    model = plain(scaling="history", scaling_length=10)
    location, scale = model.units.of_past(make_batch(model, entries), torch.float64)
    np.testing.assert_allclose(location[:, 0], past.mean(1), rtol=1e-9)
    np.testing.assert_allclose(scale[:, 0], np.abs(np.diff(past)).mean(1), rtol=1e-9)
    model = plain(scaling="training", common_centre=2.0, common_scale=3.0)
    location, scale = model.units.of_past(make_batch(model, entries), torch.float64)
    assert location.tolist() == [[2.0]] * 2
    assert scale.tolist() == [[3.0]] * 2
    assert model.dynamics.own is None  # series that share a unit have none of their own
