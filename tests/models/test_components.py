"""Components beside the dense part of a model: exact where one of them has no say."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from tests.models.cases import HORIZON, entries_of, issm_inside, linear_of, make_batch, make_model
from tsforecast.core import kalman
from tsforecast.models import MODELS
from tsforecast.models import make_model as build
from tsforecast.models.parts.units import scaled

EXACT = {"rtol": 1e-10, "atol": 1e-10}
PARTS = ["gls", "sgls", "rsgls", "arsgls", "kvae"]
# The components of `rsgls-issm` in the cases.
SAME = {"components": "damped_level+day_of_week", "series_scales": False}


def seeded(function, *arguments, seed=0):
    torch.manual_seed(seed)
    return function(*arguments)


@torch.no_grad()
def silence(model):
    """The dense part says nothing, nor does the next switch read it."""
    dynamics = model.dynamics
    if not hasattr(dynamics, "mixture"):
        dynamics.emission.zero_()
        return
    dynamics.emission_inputs.zero_()
    dynamics.mixture.bases["emission"].zero_()
    if "recurrence" in dynamics.mixture.bases:
        dynamics.mixture.bases["recurrence"][..., dynamics.issm.structure.num_states :] = 0


@pytest.mark.parametrize("state_dim", [0, 2])
def test_a_linear_system_whose_dense_part_says_nothing_is_the_issm(state_dim):
    """Loss, beliefs, forecasts, imputed values and components."""
    model = make_model("gls-components", state_dim=state_dim)
    assert bool(state_dim) == any("transition" in name for name, _ in model.named_parameters())
    if state_dim:
        silence(model)
    issm, batch = issm_inside(model), make_batch(model, entries_of("gls-components"))
    torch.testing.assert_close(model.loss(batch), issm.loss(batch, False), **EXACT)
    (belief, terms), (expected, expected_terms) = model.filter(batch), issm.filter(batch)
    torch.testing.assert_close(terms, expected_terms, **EXACT)
    size = expected.gaussian.mean.shape[-1]
    torch.testing.assert_close(belief.gaussian.mean[..., :size], expected.gaussian.mean, **EXACT)
    torch.testing.assert_close(belief.gaussian.cov[..., :size, :size], expected.gaussian.cov, **EXACT)
    ours, theirs = model.inference.predictive(belief, batch), issm.predictive(expected, batch)
    torch.testing.assert_close(ours.mean, theirs.mean, **EXACT)
    torch.testing.assert_close(ours.cov, theirs.cov, **EXACT)
    parts, expected_parts = model.inference.decompose(batch), issm.decompose(batch)
    assert set(parts) - set(expected_parts) == ({"rest"} if state_dim else set())
    for name, moments in expected_parts.items():
        for one, two in zip(parts[name], moments, strict=True):
            torch.testing.assert_close(one, two, **EXACT)


@pytest.mark.parametrize("name", PARTS)
def test_components_and_the_rest_add_up(name):
    model = make_model(f"{name}-components")
    batch = make_batch(model, entries_of(f"{name}-components"))
    parts = seeded(model.inference.decompose, batch)
    assert [*parts] == [*model.dynamics.structure.names, "rest", "covariates", "fit"]
    assert parts["rest"][0].abs().max() > 1e-3
    assert (parts["rest"][1][~batch["past_is_pad"]] > 0).all()
    total = sum(mean for name, (mean, _) in parts.items() if name != "fit")
    torch.testing.assert_close(total, parts["fit"][0])


@pytest.mark.parametrize("recurrence", ["exact", "none"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rsgls", {"state_dim": 0}),
        ("rsgls", {"state_dim": 2}),
        ("arsgls", {"state_dim": 0, "auxiliary_dim": 0, "skip": False, "proposal": "encoder"}),
    ],
)
def test_switches_whose_dense_part_says_nothing_are_those_of_the_issm(name, options, recurrence):
    """Of the same parameters and random numbers: likelihoods, beliefs and paths."""
    model = make_model(f"{name}-components", **SAME, **options, recurrence=recurrence, objective="likelihood")
    expected = make_model("rsgls-issm", recurrence=recurrence)
    size = model.dynamics.issm.structure.num_states
    assert bool(options["state_dim"]) == ("transition" in model.dynamics.mixture.bases)
    if options["state_dim"]:
        silence(model)
    mine = model.state_dict()
    cut = lambda x: x[..., :size] if x.ndim == 3 else x  # noqa: E731
    expected.load_state_dict({name: cut(mine[name]) for name in expected.state_dict()})
    batch = make_batch(model, entries_of("rsgls-issm"))
    torch.testing.assert_close(seeded(model.loss, batch), seeded(expected.loss, batch), **EXACT)
    (belief, terms), (theirs, expected_terms) = (seeded(x.filter, batch) for x in (model, expected))
    torch.testing.assert_close(terms, expected_terms, **EXACT)
    torch.testing.assert_close(belief.state.state.mean[..., :size], theirs.state.state.mean, **EXACT)
    torch.testing.assert_close(belief.state.state.cov[..., :size, :size], theirs.state.state.cov, **EXACT)
    assert (belief.state.log_weight.std(0) > 1e-3).any()


@pytest.mark.parametrize("name", ["sgls", "arsgls"])
def test_without_a_choice_the_model_is_the_kalman_filter_of_both_parts(name):
    """Not one number is left to chance: likelihoods, beliefs, states given all data."""
    options = {"sgls": {"switch_dim": 1}}.get(name, {"num_bases": 1, "proposal": "bootstrap", "recurrence": "none"})
    options |= {"auxiliary_dim": 0, "skip": False} if name == "arsgls" else {}
    model = make_model(f"{name}-components", **options)
    with torch.no_grad():
        model.dynamics.mixture.bases["factor"].zero_()
    batch = make_batch(model, entries_of(f"{name}-components"))
    time_slice = model.inference.slice_of(batch, "past")
    values, observed = scaled(time_slice, *model.inference.scale_of(batch))
    system, prior = linear_of(model.inference, time_slice, batch)
    emission = dataclasses.replace(system.rest.emission, noise=torch.zeros_like(system.rest.emission.noise))
    system = dataclasses.replace(system, rest=dataclasses.replace(system.rest, emission=emission))  # without its floor
    assert system.rest.emission.matrix.abs().max() > 0.01
    state, exact = system.posterior(prior, values, observed)
    belief, terms = seeded(model.filter, batch)
    torch.testing.assert_close(terms, exact, **EXACT)
    torch.testing.assert_close(belief.state.marginal.mean, state.mean, **EXACT)
    torch.testing.assert_close(belief.state.marginal.cov, state.cov, **EXACT)
    smoothed = kalman.smooth(system, prior, values, observed).states
    found = seeded(model.inference.smoothed, batch, 3)
    begun = ~batch["past_is_pad"].T
    torch.testing.assert_close(found.mean[begun], smoothed.mean[begun], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.cov[begun], smoothed.cov[begun], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_dim": 0, "components": "none"}, "expected state_dim to be at least 1, got 0"),
        ({"state_dim": -1}, "expected state_dim to be at least [01], got -1"),
        ({"components": "level+weather"}, "unknown component 'weather'"),
        ({"num_targets": 2}, "a sum of components is one target, got 2"),
    ],
)
@pytest.mark.parametrize("name", PARTS)
def test_what_does_not_go_with_components_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(f"{name}-components", **options)


@pytest.mark.parametrize("options", [{"skip": True}, {"likelihood": "student-t"}, {"image_shape": [1, 1]}])
def test_there_is_no_decoder_without_an_auxiliary(options):
    with pytest.raises(ValueError, match="there is no decoder"):
        make_model("arsgls-components", **{"skip": False, **options}, auxiliary_dim=0)


def test_components_behind_a_network_have_no_parts():
    model = make_model("arsgls-components-decoded")
    with pytest.raises(ValueError, match="has no components with names"):
        model.inference.decompose(make_batch(model, entries_of("arsgls-components-decoded")))


@pytest.mark.parametrize("name", ["rsgls", "arsgls"])
def test_switches_that_are_drawn_say_nothing_of_components_at_first(name):
    """With seasons of any size the model begins as without recurrence: the same particles see the same likelihoods."""
    torch.manual_seed(0)
    options = {"auxiliary_dim": 1, "skip": True} if name == "arsgls" else {"linear_epochs": 1}
    model = build(
        MODELS[name], freq="h", prediction_length=HORIZON, season=24, num_series=3, transformation="none", clip="none",
        num_time_features=4, persistence=0.95, components="level+hour_of_day", state_dim=2,
        num_bases=3, switch_dim=2, objective="likelihood", **options,
    ).double()  # fmt: skip
    with torch.no_grad():
        model.dynamics.issm.season_means.copy_(5 * torch.randn(24))
    profile = model.dynamics.issm.season_means.detach().numpy()
    rng = np.random.default_rng(0)
    entries = [
        {
            "item_id": f"s{k}",
            "start": pd.Period("2024-01-01", "h"),
            "target": np.tile(profile, 8) + rng.normal(size=192),
        }
        for k in range(3)
    ]
    batch = make_batch(model, entries)
    found = []
    for factor in (1.0, 0.0):
        with torch.no_grad():
            model.dynamics.mixture.bases["recurrence"].mul_(factor)
            torch.manual_seed(1)
            found.append(model.filter(batch)[1].mean(0))
    # Few particles differ by their luck. Where switches tell of the seasons, it is 0.4 and more.
    torch.testing.assert_close(*found, atol=0.1, rtol=0)
