"""What is particular to forecasters with particles: exact where switches choose nothing, statistical where they do."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tests.models.cases import (
    CARDINALITY,
    HORIZON,
    SWITCHING,
    entries_of,
    issm_inside,
    linear_of,
    make_batch,
    make_entries,
    make_model,
    resampling_below,
)
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, particles
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.models import MODELS, Belief, Series
from tsforecast.models import make_model as build
from tsforecast.models.parts.crps import crps_of_samples, weighted_crps
from tsforecast.models.parts.objectives import crps_of_marginals
from tsforecast.models.parts.units import scaled
from tsforecast.nn.mlp import resized

EXACT = {"rtol": 1e-9, "atol": 1e-9}
# Options with which a switch has nothing to choose from, and is not weighed.
NO_CHOICE = {"sgls": {"num_bases": 1, "proposal": "bootstrap"}, "sgls-categorical": {"switch_dim": 1}}
# One case for each system and decoder; proposals, gradients and objectives do not matter to what a model is.
SYSTEMS = [
    "sgls", "sgls-categorical", "rsgls", "rsgls-issm", "arsgls", "arsgls-targets", "arsgls-student-t", "arsgls-counts",
    "arsgls-binary",
]  # fmt: skip


def seeded(function, *arguments, seed=0, **options):
    torch.manual_seed(seed)
    return function(*arguments, **options)


def copies(batch, count):
    """One series many times."""
    return {
        name: value.repeat(count, *[1] * (value.ndim - 1)) if isinstance(value, torch.Tensor) else value * count
        for name, value in batch.items()
    }


def errors_from(samples, exact):
    """The largest distance in standard errors between means over the first dimension and what they should be."""
    standard = samples.std(0) / math.sqrt(len(samples))
    return float(((samples.mean(0) - exact).abs() / standard).max())


# With one base matrix the model is a linear system, whatever the switches are.


def inputs_by_hand(model, batch):
    """Features of every step of a batch, (time, series, hidden): one layer over all that is known."""
    parts = [torch.cat([batch[f"past_{n}"], batch[f"future_{n}"]], 1) for n in ("time_feat", "dynamic_real")]
    steps = parts[0].shape[1]
    season = torch.cat([batch["past_season_index"], batch["future_season_index"]], 1)[..., 0]
    fixed = [batch["static_real"], *(torch.eye(n)[batch["static_cat"][:, i]] for i, n in enumerate((3, 2)))]
    parts += [fixed[0].unsqueeze(1).expand(-1, steps, -1), torch.eye(7)[season]]
    parts += [x.unsqueeze(1).expand(-1, steps, -1) for x in fixed[1:]]
    network = model.dynamics.inputs
    hidden = torch.cat(parts, -1).double() @ network.of_time.weight.T + network.of_time.bias
    hidden = hidden + (network.embedding.weight[batch["series_index"]] @ network.of_series.weight.T).unsqueeze(1)
    return torch.where(hidden > 0, hidden, 0.01 * hidden).transpose(0, 1)


def linear_system(model, batch):
    """The system of a dense model with one base matrix, and its prior; the auxiliary integrated out."""
    bases = {name: value[0] for name, value in model.dynamics.mixture.bases.items()}
    noises = {name: torch.diag((-2 * bases[name]).exp()) for name in ("state_noise", "emission_noise")}
    offset = inputs_by_hand(model, batch) @ model.dynamics.emission_inputs[0].T
    matrix, noise = bases["emission"], noises["emission_noise"]
    if model.dynamics.emits.size:
        layer, targets = model.dynamics.decoder.layers, model.data.num_targets
        weight = layer.weight[:targets]
        if model.dynamics.emits.skip:
            weight = weight + torch.eye(targets, model.dynamics.emits.size)
        offset = offset @ weight.T + layer.bias[:targets]
        matrix, noise = weight @ matrix, weight @ noise @ weight.T + torch.diag((-2 * layer.bias[targets:]).exp())
    moved = bases.get("offset", torch.zeros(model.dynamics.bases.state_dim).double())
    system = LinearSystem(
        LinearGaussian(bases["transition"][None, None], moved[None, None], noises["state_noise"][None, None]),
        LinearGaussian(matrix[None, None], offset, noise[None, None]),
    )
    cov = torch.diag((-2 * model.dynamics.prior_log_inverse_scale).exp())
    count = len(batch["series_index"])
    return system, Gaussian(model.dynamics.prior_mean.expand(count, -1), cov.expand(count, -1, -1))


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("case", ["sgls", "rsgls", "arsgls-skip", "kvae-skip"])
def test_the_linear_model_inside_is_that_of_the_matrices_by_hand(case, targets):
    """Of one base, or of two equal ones; the decoder's network has no say but its biases'."""
    model = make_model(case, num_targets=targets, num_bases=2, stable=False)
    with torch.no_grad():
        for base in model.dynamics.mixture.bases.values():
            base[1] = base[0]
        if case == "kvae-skip":
            sizes = [model.dynamics.bases.state_dim, model.dynamics.emits.size]
            state, emitted = model.dynamics.log_inverse_noises.split(sizes)
            extra = {"state_noise": state, "emission_noise": emitted}
            model.dynamics.mixture.bases |= {name: torch.nn.Parameter(x.repeat(2, 1)) for name, x in extra.items()}
            model.dynamics.emission_inputs = model.dynamics.mixture.bases["inputs"]
        else:
            model.dynamics.emission_inputs[1] = model.dynamics.emission_inputs[0]
        if case.endswith("skip"):
            linear_decoder(model)
            model.dynamics.decoder.layers.weight.zero_()
    batch = make_batch(model, make_entries(targets, lengths=(12, 12)))
    found, prior = linear_of(model.inference, model.inference.slice_of(batch, "both"), batch)
    expected, expected_prior = linear_system(model, batch)
    emission = model.dynamics.mixture.bases["emission"][0]
    floor = torch.diag(1e-5 * emission.square() @ expected_prior.variance[0])[:targets, :targets]
    torch.testing.assert_close(found.transition.matrix, expected.transition.matrix, **EXACT)
    torch.testing.assert_close(found.transition.noise, expected.transition.noise, **EXACT)
    torch.testing.assert_close(found.emission.matrix, expected.emission.matrix, **EXACT)
    torch.testing.assert_close(found.emission.offset, expected.emission.offset, **EXACT)
    torch.testing.assert_close(found.emission.noise, expected.emission.noise + floor, **EXACT)
    torch.testing.assert_close(prior.mean, expected_prior.mean, **EXACT)
    torch.testing.assert_close(prior.cov.expand_as(expected_prior.cov), expected_prior.cov, **EXACT)


def linear_decoder(model):
    """Replaces the network of a Gaussian decoder by one layer, with noises that do not depend on the auxiliary."""
    targets = model.data.num_targets
    layer = torch.nn.Linear(model.dynamics.emits.size, 2 * targets).double()
    with torch.no_grad():
        layer.weight[targets:] = 0.0
        layer.bias[targets:] = -1.0
    model.dynamics.decoder.layers = layer


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("case", NO_CHOICE)
def test_a_model_without_a_choice_is_a_kalman_filter(case, targets):
    """Likelihood, belief and states: not one number is left to chance."""
    model = make_model(case, num_targets=targets, **NO_CHOICE[case])
    batch = make_batch(model, make_entries(targets, lengths=(12, 12)))
    system, prior = linear_system(model, batch)
    values, observed = scaled(model.inference.slice_of(batch, "both"), *model.inference.scale_of(batch))
    exact = system.log_likelihood(prior, values, observed)
    torch.testing.assert_close(seeded(model.loss, batch), -exact.sum(0) / observed.sum((0, 2)), **EXACT)
    past = batch["past_target"].shape[1]
    belief, terms = seeded(model.filter, batch, seed=1)
    torch.testing.assert_close(terms, exact[:past], **EXACT)
    state, _ = system.posterior(prior, values[:past], observed[:past])
    torch.testing.assert_close(belief.state.marginal.mean, state.mean, **EXACT)
    torch.testing.assert_close(belief.state.marginal.cov, state.cov, **EXACT)
    smoothed = kalman.smooth(system, prior, values[:past], observed[:past]).states
    found = model.inference.smoothed(batch, 3)
    torch.testing.assert_close(found.mean, smoothed.mean, **EXACT)
    torch.testing.assert_close(found.cov, smoothed.cov, **EXACT)


@pytest.mark.parametrize("case", NO_CHOICE)
def test_without_a_choice_regimes_of_a_padded_series_are_its_own(case):
    model = make_model(case, **NO_CHOICE[case])
    entries = entries_of(case)
    together, alone = (model.inference.smoothed(make_batch(model, part), 3) for part in (entries, entries[2:]))
    steps = len(alone.mean)
    assert steps < len(together.mean)
    torch.testing.assert_close(together.mean[-steps:, 2:], alone.mean, **EXACT)
    torch.testing.assert_close(together.cov[-steps:, 2:], alone.cov, **EXACT)


@pytest.mark.parametrize("case", NO_CHOICE)
def test_without_a_choice_forecasts_have_the_moments_of_the_joint_gaussian(case):
    """Each series of a batch given other parts of its future."""
    model = make_model(case, num_targets=2, **NO_CHOICE[case])
    batch = make_batch(model, make_entries(2, lengths=(12, 12, 12)))
    known = torch.full((3, HORIZON, 2), torch.nan)
    known[1, 1, 0], known[2, 0], known[2, 3, 1] = 1.5, 2.0, -1.0
    count = 800
    with torch.no_grad():
        belief, _ = seeded(model.filter, batch)
        system, _ = linear_system(model, batch)
        past = batch["past_target"].shape[1]
        emission = dataclasses.replace(system.emission, offset=system.emission.offset[past:])
        state = Gaussian(belief.state.marginal.mean, belief.state.marginal.cov)
        joint = LinearSystem(system.transition, emission).predictive(state, HORIZON)
        for future in (torch.full_like(known, torch.nan), known):
            samples = seeded(model.forecast, belief, {**batch, "known_future": future}, count).flatten(2)
            location, scale = (x.repeat(1, HORIZON) for x in (belief.location, belief.scale))
            observed = ~future.flatten(1).isnan()
            value = torch.where(observed, (future.flatten(1) - location) / scale, 0.0)
            exact = joint.condition(value, observed)
            free = ~observed
            centred = (samples - location.unsqueeze(1)) / scale.unsqueeze(1) - exact.mean.unsqueeze(1)
            for k in range(3):
                some = centred[k][:, free[k]]
                assert errors_from(some, 0.0) < 4.5
                products = some.unsqueeze(-1) * some.unsqueeze(-2)
                assert errors_from(products, exact.cov[k][free[k]][:, free[k]]) < 4.5


def one_base(case, targets=1, **options):
    """A recurrent model whose switch chooses nothing but its successor: p(y) is a Kalman filter's.

    Weights are kept in bounds: states move the switch a little, and proposals are vague.
    """
    options = {"num_particles": 16, "num_targets": targets, "num_bases": 1, **options}
    model = make_model(case, **options)
    with torch.no_grad():
        model.dynamics.mixture.bases["recurrence"].mul_(0.3)
        if case == "rsgls-issm":
            model.dynamics.mixture.bases["factor"].zero_()
        for name, parameter in model.named_parameters():
            if name.startswith("dynamics.proposal") and name.endswith("bias") and len(parameter) == 4:
                parameter[2:] -= 2.0  # two means come first, then two logarithms of inverse scales
    if case.startswith("arsgls"):
        linear_decoder(model)
    return model


RECURRENT = ["rsgls", "arsgls", "arsgls-encoder", "arsgls-bootstrap", "arsgls-targets", "rsgls-issm"]


@pytest.mark.parametrize("case", RECURRENT)
@pytest.mark.usefixtures("unchecked_types")
def test_the_likelihood_is_unbiased(case):
    """Where it is known exactly though switches depend on states, and states are learnt of from switches."""
    model = one_base(case, 2 if case.endswith("targets") else 1)
    batch = make_batch(model, make_entries(model.data.num_targets, lengths=(8,)))
    with torch.no_grad():
        values, observed = scaled(model.inference.slice_of(batch, "both"), *model.inference.scale_of(batch))
        if case == "rsgls-issm":
            exact = -issm_inside(model).loss(batch, True) * observed.sum()
        else:
            system, prior = linear_system(model, batch)
            exact = system.log_likelihood(prior, values, observed).sum()
        estimates = -seeded(model.loss, copies(batch, 1500)) * observed.sum()
    ratio = (estimates - exact).exp()
    assert ratio.std() > 1e-3
    assert errors_from(ratio, 1.0) < 4


@pytest.mark.parametrize("case", ["rsgls", "arsgls-targets"])
def test_forecasts_given_a_part_of_the_future_are_those_of_the_joint_gaussian(case):
    targets = 2 if case.endswith("targets") else 1
    model = one_base(case, targets, num_particles=100)
    batch = make_batch(model, make_entries(targets, lengths=(8,)))
    known = torch.full((1, HORIZON, targets), torch.nan)
    known[0, 1, 0], known[0, 3, -1] = 1.5, 0.5
    many = copies({**batch, "known_future": known}, 60)
    with torch.no_grad():
        belief, _ = seeded(model.filter, many)
        samples = model.forecast(belief, many, 20).flatten(2)
        system, prior = linear_system(model, batch)
        steps = system.emission.offset.shape[0]
        joint = system.predictive(prior, steps)
        location, scale = (x[0] for x in model.inference.scale_of(batch))
        values, observed = scaled(model.inference.slice_of(batch, "past"), location, scale)
        future = ((known[0] - location) / scale).flatten()
        given = torch.cat([observed.flatten(), ~future.isnan()])
        value = torch.cat([values.flatten(), torch.where(future.isnan(), 0.0, future)])
        exact = joint.condition(value.unsqueeze(0), given.unsqueeze(0))
        free = future.isnan()
        mean, cov = exact.mean[0, -len(free) :][free], exact.cov[0, -len(free) :, -len(free) :][free][:, free]
        centred = ((samples - location.repeat(HORIZON)) / scale.repeat(HORIZON))[..., free] - mean
    assert errors_from(centred.mean(1), 0.0) < 4
    assert errors_from((centred.unsqueeze(-1) * centred.unsqueeze(-2)).mean(1), cov) < 4


def test_each_factor_is_that_of_its_noise():
    model = make_model("rsgls-issm", proposal="bootstrap", num_bases=1)
    batch = make_batch(model, entries_of("rsgls-issm"))
    for position in range(len(model.dynamics.structure.noise_names)):
        with torch.no_grad():
            model.dynamics.mixture.bases["recurrence"].zero_()
            factor = model.dynamics.mixture.bases["factor"].zero_()
            factor[0, position] = 0.7
            loss = seeded(model.loss, batch)
            assert not torch.allclose(loss, issm_inside(model).loss(batch, True))
            location, scale = model.inference.scale_of(batch)
            time_slice = model.inference.slice_of(batch, "both")
            system, prior = linear_of(issm_inside(model), time_slice, batch)
            noises = torch.cat([system.state_noise, system.emission_noise.unsqueeze(-1)], -1)
            noises[..., position] *= math.exp(2 * 0.7)
            system = dataclasses.replace(system, state_noise=noises[..., :-1], emission_noise=noises[..., -1])
            exact = system.log_likelihood(prior, *scaled(time_slice, location, scale)).sum(0)
        torch.testing.assert_close(loss, -exact / time_slice.observed.sum((0, 2)), **EXACT)


def test_an_issm_with_switches_that_change_nothing_is_the_issm():
    model = make_model("rsgls-issm", proposal="bootstrap")
    with torch.no_grad():
        model.dynamics.mixture.bases["factor"].zero_()
        model.dynamics.mixture.bases["recurrence"].zero_()
    batch = make_batch(model, entries_of("rsgls-issm"))
    torch.testing.assert_close(seeded(model.loss, batch), issm_inside(model).loss(batch, True), **EXACT)
    expected = issm_inside(model).decompose(batch)
    found = seeded(model.inference.decompose, batch)
    assert found.keys() == expected.keys()
    active = ~batch["past_is_pad"]
    for name, parts in expected.items():
        for mine, its in zip(found[name], parts, strict=True):
            torch.testing.assert_close(mine[active], its[active], rtol=1e-7, atol=1e-7)


def test_the_decomposition_by_regimes_adds_up():
    model = make_model("rsgls-issm")
    batch = make_batch(model, entries_of("rsgls-issm"))
    parts = seeded(model.inference.decompose, batch)
    total = sum(mean for name, (mean, _) in parts.items() if name != "fit")
    torch.testing.assert_close(total, parts["fit"][0])
    assert all((deviation > 0).all() for name, (_, deviation) in parts.items() if name != "covariates")


# In general.


@pytest.mark.parametrize("name", ["rsgls-issm", "sgls", "rsgls", "arsgls"])
def test_the_scale_of_a_regime_is_that_of_the_noises_of_its_system(name):
    """Bases of which each is the only one: its noises beside those of the model in which all are mixed evenly."""
    model = make_model(name, num_bases=3)
    if name == "rsgls-issm":
        factors = model.dynamics.mixture.bases["factor"]
        assert (model.dynamics.regime_scales().diff() > 0).all()  # calm to wild, as they begin
        with torch.no_grad():
            factors.copy_(torch.tensor([[0.5], [-1.0], [9.0]]).expand_as(factors))  # the last beyond the largest
        torch.testing.assert_close(model.dynamics.regime_scales(), torch.tensor([0.5, -1.0, 4.0]).exp().to(factors))
        return
    with torch.no_grad():
        for part in ("state_noise", "emission_noise"):  # logarithms of inverse scales
            model.dynamics.mixture.bases[part].copy_(torch.log(torch.tensor([1.0, 2.0, 0.5])).unsqueeze(-1) + 0.7)
    found = model.dynamics.regime_scales()
    torch.testing.assert_close(found, torch.tensor([1.0, 0.5, 2.0]).to(found))


def test_the_noise_of_kvae_does_not_switch():
    assert make_model("kvae-rb").dynamics.regime_scales() is None


@pytest.mark.parametrize("case", SYSTEMS)
def test_a_forecast_is_filtering_over_missing_values(case):
    """Two ways of the model's own future: sample paths, and weighted particles to which nothing is shown."""
    steps = 2
    model = resampling_below(make_model(case), 0.0)  # so that weights matter
    batch = copies(make_batch(model, entries_of(case, lengths=(9,))), 400)
    parts = [name for name in batch if name.startswith("future_") or name == "known_future"]
    batch |= {name: batch[name][:, :steps] for name in parts}
    past = {f"past_{n}": batch[f"future_{n}"] for n in ("time_feat", "season_index", "dynamic_real", "target")}
    blank = torch.zeros_like(batch["future_observed"])
    on = {**batch, **past, "past_observed": blank, "past_is_pad": blank[..., 0]}
    with torch.no_grad():
        belief, _ = seeded(model.filter, batch)
        paths = model.forecast(belief, batch, 20)[:, :, -1]
        later, terms = model.filter(on, belief)
        time_slice = model.inference.slice_of(batch, "future")
        system, _ = model.dynamics.switching(time_slice, belief.series, belief.location, belief.scale, proposing=False)
        reached = later.state
        emission = system.regime(reached.switch, steps - 1).emission
        value = system.simulate_value(emission.sample(reached.state.sample()), steps - 1)
        value = model.units.restore(value * belief.scale + belief.location)
    assert terms.abs().max() < 1e-12
    weight = reached.log_weight.exp().unsqueeze(-1)
    for power in (1, 2):
        difference = paths.pow(power).mean(1) - (weight * value.pow(power)).sum(0)
        assert errors_from(difference / difference.abs().median(), 0.0) < 4


@pytest.mark.parametrize("case", ["rsgls", "arsgls-targets", "rsgls-issm"])
def test_more_particles_give_a_tighter_bound(case):
    """E log p^ grows with their number, and stays below log E p^."""
    bounds = []
    for num_particles in (1, 8, 64):
        model = make_model(case, num_particles=num_particles)
        batch = copies(make_batch(model, entries_of(case, lengths=(9,))), 200)
        with torch.no_grad():
            bound = -seeded(model.loss, batch, seed=num_particles)
        bounds.append((bound.mean().item(), bound.std().item() / math.sqrt(len(bound))))
    for (worse, error), (better, its) in itertools.pairwise(bounds):
        assert better - worse > 4 * math.hypot(error, its)


def stacked(conditionals):
    """One conditional of all steps, (time, series)."""
    dense = [conditional.dense() for conditional in conditionals]
    events = {"matrix": 2, "offset": 1, "noise": 2}
    wide = {name: [getattr(x, name).expand(1, *[-1] * size) for x in dense] for name, size in events.items()}
    return LinearGaussian(**{name: torch.stack(parts) for name, parts in wide.items()})


@pytest.mark.parametrize("case", ["sgls", "sgls-categorical", "rsgls", "rsgls-issm"])
def test_a_held_regime_stays(case):
    """Of one particle the forecast is that of the linear system which its switch chooses."""
    model = make_model(case, num_particles=1)
    batch = make_batch(model, entries_of(case)[:1], train=False)
    count = 4000
    with torch.no_grad():
        belief, _ = seeded(model.filter, batch)
        one = particles.draw(belief.particles, 1)  # categories have a Gaussian for each
        belief = dataclasses.replace(
            belief, state=dataclasses.replace(one, log_weight=torch.zeros_like(one.log_weight))
        )
        time_slice = model.inference.slice_of(batch, "future")
        system, _ = model.dynamics.switching(time_slice, belief.series, belief.location, belief.scale, proposing=False)
        regimes = [system.regime(belief.state.switch[0], time) for time in range(HORIZON)]
        held = LinearSystem(stacked(r.transition for r in regimes), stacked(r.emission for r in regimes))
        start = belief.state.state
        joint = held.predictive(Gaussian(start.mean[0], start.cov[0]), HORIZON)
        samples = seeded(model.inference.forecast, belief, batch, count, hold_switch=True)[0, ..., 0]
        free = seeded(model.forecast, belief, batch, count)[0, ..., 0]
    centred = (samples - belief.location) / belief.scale - joint.mean
    assert errors_from(centred, 0.0) < 4.5
    assert errors_from(centred.unsqueeze(-1) * centred.unsqueeze(-2), joint.cov[0]) < 4.5
    assert not torch.equal(free, samples)
    if case != "rsgls-issm":  # whose factors are close to one
        moved = (free - belief.location) / belief.scale - joint.mean
        assert errors_from(moved.unsqueeze(-1) * moved.unsqueeze(-2), joint.cov[0]) > 4.5
    batch["known_future"][:, 1] = 1.0
    with pytest.raises(ValueError, match="known values or a held switch"):
        model.inference.forecast(belief, batch, 3, hold_switch=True)


@pytest.mark.parametrize("case", SYSTEMS)
def test_regimes(case):
    model = make_model(case)
    batch = make_batch(model, entries_of(case))
    with torch.no_grad():
        state = torch.get_rng_state()
        found, again = (model.inference.smoothed(batch, 9, torch.Generator().manual_seed(2)) for _ in range(2))
        assert torch.equal(state, torch.get_rng_state())
        regimes = model.inference.regimes(batch, 9, torch.Generator().manual_seed(2))
        ahead = model.inference.regimes_ahead(seeded(model.filter, batch)[0], batch, 9)
    weights = regimes.probabilities
    if not model.inference.is_collapsed:
        torch.testing.assert_close(weights, model.dynamics.mixing_weights(found.switches).mean(1))
    torch.testing.assert_close(regimes.pairs.sum(-2)[:, 0], weights[:, 0])  # the series without padding
    torch.testing.assert_close(regimes.pairs[1:, 0].sum(-1), weights[:-1, 0])
    torch.testing.assert_close(ahead.sum(-1), torch.ones(HORIZON, 3, dtype=torch.float64))
    assert torch.equal(found.switches, again.switches)
    steps, states = batch["past_target"].shape[1], found.mean.shape[-1]
    assert found.switches.shape == (steps, 9, 3, model.dynamics.switch_dim)
    assert found.states.states.mean.shape == (steps, 9, 3, states)
    assert found.cov.shape == (steps, 3, states, states)
    assert weights.shape == (steps, 3, 3)
    active = ~batch["past_is_pad"].T
    for values in (found.switches.movedim(1, -1), found.mean, found.cov):
        assert torch.isfinite(values).all()
    torch.testing.assert_close(weights.sum(-1)[active], torch.ones(int(active.sum()), dtype=torch.float64))
    if case.startswith("arsgls"):
        assert torch.isfinite(found.auxiliaries).all()


@pytest.mark.parametrize("case", ["rsgls-issm-crps", "sgls", "arsgls-targets"])
@pytest.mark.parametrize("transformation", ["none", "log1p"])
def test_the_crps_is_that_of_paths(case, transformation):
    """E|X - y| - E|X - X'| / 2 over pairs of different paths; behind a transformation in the units of the data.

    Paths are of values where these are decoded, else of switches, of which each gives a Gaussian.
    """
    model = make_model(case, objective="crps", transformation=transformation)
    entries = [{**entry, "target": np.abs(entry["target"])} for entry in entries_of(case)]
    batch = make_batch(model, entries)
    batch["known_future"] = torch.full_like(batch["future_target"], torch.nan)
    value, observed = batch["future_target"], batch["future_observed"]
    with torch.no_grad():
        loss = seeded(model.loss, batch)
        belief, _ = seeded(model.filter, batch)
        chosen = particles.draw(belief.state, 20 if case == "arsgls-targets" else 10)
        even = dataclasses.replace(chosen, log_weight=torch.zeros_like(chosen.log_weight))
        if case == "arsgls-targets":
            paths = model.forecast(dataclasses.replace(belief, state=even), batch, 20)
            score = crps_of_samples(paths.movedim(1, -1).unsqueeze(-1), value, torch.ones(HORIZON, 1, 20).double())
        else:
            time_slice = model.inference.slice_of(batch, "future")
            given = (time_slice, belief.series, belief.location, belief.scale)
            system = model.dynamics.switching(*given, proposing=False)[0]
            emitted = particles.marginals(system, even, HORIZON)
            normal = torch.special.ndtri((torch.arange(20).double() + 0.5) / 20)
            points = emitted.mean.unsqueeze(-1) + emitted.variance.sqrt().unsqueeze(-1) * normal
            # (time, sample, series, target, point)
            points = points * belief.scale[..., None] + belief.location[..., None]
            points = model.units.restore(points).permute(2, 0, 3, 1, 4)
            score = crps_of_samples(points, value, torch.ones(HORIZON, 1, 10).double())
    past = torch.where(batch["past_observed"], batch["past_target"].abs().double(), 0.0)
    size = belief.scale if transformation == "none" else past.sum(1) / batch["past_observed"].sum(1) + 1
    score = torch.where(observed, score / size.unsqueeze(1), 0.0).sum((1, 2)) / observed.sum((1, 2))
    # Without a transformation the score of Gaussians is exact, and that of twenty points is not.
    close = 1e-6 if case == "arsgls-targets" or transformation != "none" else 0.01
    torch.testing.assert_close(loss, score, rtol=close, atol=1e-6)


@pytest.mark.parametrize("known", [False, True])
def test_switches_that_change_nothing_leave_the_forecast_of_the_linear_model(known):
    """Whatever paths of switches are drawn: exact quantiles, and the same loss."""
    model = make_model("rsgls-issm-open")
    with torch.no_grad():
        model.dynamics.mixture.bases["factor"].zero_()
    batch, inside = make_batch(model, entries_of("rsgls-issm-open")), issm_inside(model, "crps")
    batch["known_future"] = torch.full_like(batch["future_target"], torch.nan)
    torch.testing.assert_close(seeded(model.loss, batch), inside.loss(batch, True), **EXACT)
    if known:
        batch["known_future"][:, 1] = 1.5
    levels = torch.tensor([0.1, 0.5, 0.9]).double()
    with torch.no_grad():
        mine, its = (one.marginals(one.filter(batch)[0], batch) for one in (model.inference, inside))
    torch.testing.assert_close(mine.quantile(levels), its.quantile(levels), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("case", "known"),
    [
        ("sgls", False),
        ("sgls-categorical", False),
        ("rsgls", False),
        ("rsgls-issm", False),
        ("arsgls-targets", False),
        ("arsgls-skip", False),
        ("kvae-skip", False),
        ("sgls", True),
        ("rsgls", True),
        ("kvae-skip", True),
    ],
)
def test_paths_are_distributed_as_the_mixture_says(case, known):
    """Means and second moments of values far ahead, of many copies of a series."""
    model = make_model(case, num_particles=20)
    batch = copies(make_batch(model, entries_of(case, lengths=(9,))), 60 if known else 200)
    batch["known_future"] = torch.full_like(batch["future_target"], torch.nan)
    if known:
        batch["known_future"][:, 1] = 1.0
    with torch.no_grad():
        belief, _ = seeded(model.filter, batch)
        mixture, paths = model.inference.marginals(belief, batch), model.forecast(belief, batch, 40)
    assert torch.equal(mixture.quantile(torch.tensor([0.3]).double())[0, :, 1], batch["known_future"][:, 1]) == known
    weight = mixture.log_weight.exp()[..., None, None]
    moments = (weight * mixture.mean).sum(1), (weight * (mixture.mean**2 + mixture.deviation**2)).sum(1)
    for power, moment in enumerate(moments, 1):
        difference = (paths.pow(power).mean(1) - moment)[:, [0, 2, 3]].flatten(1)
        assert errors_from(difference, 0.0) < 4


@pytest.mark.parametrize("transformation", ["log1p", "asinh"])
def test_paths_that_explode_are_called_back(transformation, monkeypatch):
    """In float32 paths of e^88 made the loss infinite; clipped, they would have had no gradient."""
    model = make_model("arsgls-targets", objective="crps", transformation=transformation).float()
    batch = make_batch(model, entries_of("arsgls-targets"))
    added = torch.full((20, 1, 1), 0.0)
    paths_of = model.inference.paths
    monkeypatch.setattr(type(model.inference), "paths", lambda _, *given: paths_of(*given) + added)
    calm = seeded(model.loss, batch)
    added[:10] = 90 / model.inference.scale_of(batch)[1].min()
    added.requires_grad_()
    loss = seeded(model.loss, batch)
    assert torch.isfinite(loss).all()
    assert (loss > 1e5 * calm).all()
    loss.sum().backward()
    assert torch.isfinite(added.grad).all()
    assert added.grad[:10].sum() > 1e3
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_the_crps_teaches_what_weighs_the_particles():
    """The gradient of a weighted score, of which many draws have the mean of the score by its formula."""
    rng = torch.Generator().manual_seed(3)
    logits = torch.randn(6, generator=rng).double().requires_grad_()
    values, y = torch.randn(6, generator=rng).double(), 0.3
    weight = torch.softmax(logits, 0)
    between = (values.unsqueeze(0) - values.unsqueeze(1)).abs()
    exact = weight @ (values - y).abs() - 0.5 * weight @ between @ weight
    expected = torch.autograd.grad(exact, logits)[0]
    draws, count = 4000, 20
    index = torch.multinomial(torch.softmax(logits, 0).detach(), draws * count, True, generator=rng).view(count, draws)
    shares = torch.softmax(logits, 0).detach()
    log_weight = shares.log()[index].requires_grad_()
    ratio = (log_weight - log_weight.detach()).exp()
    score = weighted_crps(values[index][None, ..., None], torch.full((1, 1, draws, 1), y).double(), ratio.unsqueeze(-1))
    (slopes,) = torch.autograd.grad(score.sum(), log_weight)  # of every draw, and on to the logits by hand
    gradients = (slopes.unsqueeze(-1) * (torch.eye(6)[index] - shares)).sum(0)
    for estimates, truth in ((score.detach().flatten().unsqueeze(1), exact.detach()), (gradients, expected)):
        error = estimates.mean(0) - truth
        assert (error.abs() < 4 * estimates.std(0) / math.sqrt(draws)).all()
    assert (expected.abs() > 6 * gradients.std(0) / math.sqrt(draws)).any()


# What the options change.


@pytest.mark.parametrize("length", [1, 3, 100])
def test_a_cut_gradient_leaves_the_score_as_it_is(length):
    """What only matters before the cut has no gradient; without a step before the cut all is as without one."""
    gradients, losses = {}, {}
    for cut in (0, length):
        model = make_model("rsgls-issm-crps", gradient_length=cut)
        batch = make_batch(model, entries_of("rsgls-issm-crps", lengths=(9,)))
        losses[cut] = seeded(model.loss, batch).mean()
        losses[cut].backward()
        gradients[cut] = {name: p.grad for name, p in model.named_parameters() if p.numel()}
    torch.testing.assert_close(losses[length], losses[0], **EXACT)
    assert gradients[0]["dynamics.dynamics.first.weight"].abs().max() > 0
    if length == 100:
        torch.testing.assert_close(gradients[length], gradients[0], **EXACT)
    else:
        assert gradients[length]["dynamics.dynamics.first.weight"] is None
        cut, whole = (gradients[length]["dynamics.mixture.bases.factor"] for length in (length, 0))
        assert cut.abs().max() > 0
        assert not torch.allclose(cut, whole)


def test_without_recurrence_an_rsgls_is_an_sgls():
    open_loop, without = make_model("sgls"), make_model("rsgls", recurrence="none")
    without.load_state_dict(open_loop.state_dict())
    batch = make_batch(open_loop, entries_of("sgls"))
    with torch.no_grad():
        torch.testing.assert_close(seeded(without.loss, batch), seeded(open_loop.loss, batch), **EXACT)
    assert not any("recurrence" in name for name, _ in make_model("rsgls-issm-open").named_parameters())


def test_the_form_of_the_paper_differs_from_the_second_step_on():
    terms = {}
    for recurrence in ("exact", "paper"):
        model = make_model("rsgls", recurrence=recurrence)
        batch = make_batch(model, make_entries(lengths=(12,)), past=6)
        with torch.no_grad():
            terms[recurrence] = seeded(model.filter, batch)[1]
    different = (terms["exact"] - terms["paper"])[:, 0].abs() > 1e-6
    observed = make_batch(make_model("rsgls"), make_entries(lengths=(12,)), past=6)["past_observed"].flatten()
    assert not different[0]
    assert torch.equal(different[1:], observed[1:])


@pytest.mark.parametrize(("threshold", "same"), [(0.0, True), (2.0, False)])
def test_the_gradient_of_resampling(threshold, same):
    """The names change the gradient, not the value; without resampling there is nothing to change."""
    losses, gradients = [], []
    for name in ("fivo", "stop-gradient"):
        model = resampling_below(make_model("rsgls", resampling_gradient=name), threshold)
        loss = seeded(model.loss, make_batch(model, entries_of("rsgls"))).sum()
        loss.backward()
        losses.append(loss.detach())
        gradients.append(model.dynamics.mixture.bases["transition"].grad)
    torch.testing.assert_close(*losses, **EXACT)
    assert torch.allclose(*gradients, rtol=1e-9) == same


def test_proposals_have_their_networks():
    names = {case: {name for name, _ in make_model(case).dynamics.named_modules()} for case in SWITCHING}
    assert "proposal_network.lower" in names["arsgls"]
    assert "proposal_network.switch" in names["arsgls-encoder"]
    assert "proposal_network.lower" not in names["arsgls-encoder"]
    assert not any(
        name.startswith("proposal_network") for name in names["arsgls-bootstrap"] | names["sgls-categorical"]
    )


@pytest.mark.parametrize("particle_length", [0, 3, 50])
def test_what_comes_before_the_particles_is_filtered_by_the_issm(particle_length):
    """Where the switch changes nothing all of it is the ISSM, also for series that begin among the particles."""
    model = make_model("rsgls-issm-open", particle_length=particle_length)
    with torch.no_grad():
        model.dynamics.mixture.bases["factor"].zero_()
        batch = make_batch(model, make_entries(lengths=(14, 11, 6)))
        belief, terms = model.filter(batch)
        expected, its = issm_inside(model).filter(batch)
    torch.testing.assert_close(terms.sum(0), its.sum(0), **EXACT)
    weights = belief.state.log_weight.exp().unsqueeze(-1)
    torch.testing.assert_close((weights * belief.state.state.mean).sum(0), expected.state.mean, **EXACT)


@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("rsgls-issm", {}),
        ("rsgls", {}),
        ("arsgls", {"skip": True, "auxiliary_dim": 3}),
        ("kvae-rb", {"skip": True, "auxiliary_dim": 3, "objective": "crps"}),
    ],
)
def test_particles_read_the_end_of_a_history_alone(case, options):
    """Their forecast forgets what came before but for what the linear model inside keeps of it."""
    model = make_model(case, particle_length=3, **options)
    batch = make_batch(model, make_entries(lengths=(14, 11, 6)))
    location, scale = model.inference.scale_of(batch)
    past = model.inference.slice_of(batch, "past")
    filtered, _, start = seeded(model.inference.filtering.run, past, Series.of(batch), location, scale)
    assert len(filtered.log_likelihood) == len(past.values)
    assert (filtered.effective_sample_size[:-3] == model.inference.particles.num_particles).all()
    if case != "kvae-rb":  # whose weights never differ
        assert (filtered.effective_sample_size[-3:] < model.inference.particles.num_particles).any()
    system, prior = linear_of(model.inference, past, batch)
    head = past.values[:-3]
    belief, _ = system.posterior(prior, (head - location) / scale, past.observed[:-3])
    torch.testing.assert_close(start.state.mean[0], belief.mean, **EXACT)
    losses = model.loss({**batch})
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    name = "factor" if case == "rsgls-issm" else "transition"
    assert model.dynamics.mixture.bases[name].grad.abs().sum() > 0


def test_a_linear_model_is_trained_first_where_one_is_inside():
    model = make_model("rsgls-issm", linear_epochs=1)
    batch = make_batch(model, entries_of("rsgls-issm"))
    model.train()
    assert torch.equal(model.loss(batch), issm_inside(model, "crps").loss(batch, True))
    model.loss(batch).sum().backward()
    trained = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith("dynamics.issm.")}
    model.eval()
    later = make_model("rsgls-issm", linear_epochs=0).train()
    assert torch.equal(seeded(model.loss, batch), seeded(later.loss, batch))
    assert not torch.equal(seeded(model.loss, batch), issm_inside(model, "crps").loss(batch, True))


@pytest.mark.parametrize("case", ["sgls", "rsgls", "arsgls-skip", "kvae-rb"])
def test_scales_of_a_series_are_added_to_those_of_all_bases(case):
    model, other = make_model(case, series_scales=True), make_model(case)
    kept = {name: x for name, x in model.state_dict().items() if "log_scales" not in name}
    other.load_state_dict(kept)
    batch = copies(make_batch(model, entries_of(case)[:1]), 2)
    added = model.dynamics.log_scales(batch["series_index"], batch["static_cat"])[0].detach()
    assert added.abs().min() > 0
    assert not torch.allclose(seeded(model.loss, batch), seeded(other.loss, batch))
    with torch.no_grad():  # these are inverse
        if case == "kvae-rb":
            other.dynamics.log_inverse_noises -= added
        else:
            other.dynamics.mixture.bases["state_noise"] -= added[: model.dynamics.bases.state_dim]
            other.dynamics.mixture.bases["emission_noise"] -= added[model.dynamics.bases.state_dim :]
    torch.testing.assert_close(seeded(model.loss, batch), seeded(other.loss, batch), **EXACT)
    if case == "kvae-rb":
        return  # its linear model is of the skip
    for one, two in zip(
        pytree.tree_leaves(linear_of(model.inference, model.inference.slice_of(batch, "past"), batch)),
        pytree.tree_leaves(linear_of(other.inference, other.inference.slice_of(batch, "past"), batch)),
        strict=True,
    ):
        torch.testing.assert_close(one, two.expand_as(one), **EXACT)


@pytest.mark.parametrize("case", ["rsgls", "arsgls-skip", "kvae-skip"])
def test_dense_models_are_trained_as_linear_ones_first(case):
    model = make_model(case, linear_epochs=1, objective="crps").train()
    batch = make_batch(model, entries_of(case))
    loss = model.loss(batch)
    past, (location, scale) = model.inference.slice_of(batch, "past"), model.inference.scale_of(batch)
    system, prior = linear_of(model.inference, past, batch)
    state, _ = system.posterior(prior, *scaled(past, location, scale))
    belief, future = Belief(state, location, scale, Series.of(batch)), model.inference.slice_of(batch, "future")
    ahead, _ = linear_of(model.inference, future, batch)
    torch.testing.assert_close(loss, crps_of_marginals(ahead, belief, future, batch, model.units), **EXACT)
    loss.sum().backward()
    assert model.dynamics.mixture.bases["transition"].grad.abs().sum() > 0
    trained = seeded(model.eval().loss, batch)
    model.groups = dataclasses.replace(model.groups, linear_epochs=0)
    assert torch.equal(seeded(model.eval().loss, batch), trained)
    assert torch.equal(seeded(model.train().loss, batch), trained)
    assert not torch.equal(trained, loss)


@pytest.mark.parametrize("log_inverse_scale", [0.0, 4.0])
@pytest.mark.usefixtures("unchecked_types")
def test_what_is_linear_is_filtered_as_such(log_inverse_scale):
    """However small the decoder's noise has become, and whatever an untrained encoder says beside it.

    Not to the last digit: auxiliaries are drawn. Without the decoder's noise in the encoder tens of thousands are lost.
    """
    model = make_model("arsgls-skip", num_particles=16)
    with torch.no_grad():
        linear_decoder(model)
        model.dynamics.decoder.layers.weight.zero_()
        model.dynamics.decoder.layers.bias[1:] = log_inverse_scale
        batch = make_batch(model, make_entries(lengths=(60, 60)))
        time_slice = model.inference.slice_of(batch, "past")
        system, prior = linear_of(model.inference, time_slice, batch)
        exact = system.log_likelihood(prior, *scaled(time_slice, *model.inference.scale_of(batch))).sum(0)
        found = torch.stack([seeded(model.filter, batch, seed=seed)[1].sum(0) for seed in range(10)])
    assert ((found.mean(0) / exact - 1).abs() < 0.1).all(), (found.mean(0), exact)


# Sizes and data at the edge.


@pytest.mark.parametrize("case", SYSTEMS)
def test_smallest_sizes(case):
    sizes = {"num_particles": 1, "switch_dim": 1, "num_bases": 1, "hidden": 1, "embedding_dim": 1}
    sizes |= {} if case == "rsgls-issm" else {"state_dim": 1}
    sizes |= {"auxiliary_dim": 1} if case.startswith("arsgls") else {}
    model = make_model(case, **sizes).float()
    batch = make_batch(model, entries_of(case), past=1)
    batch["past_observed"][0] = True
    batch["past_observed"][1:] = False
    loss = seeded(model.loss, batch)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        belief, terms = model.filter(batch)
        assert terms.shape == (1, 3)
        batch["known_future"][0, 1] = 1.0
        for future in (batch, {**batch, "known_future": torch.full_like(batch["known_future"], torch.nan)}):
            samples = model.forecast(belief, future, 1)
            assert samples.shape == (3, 1, HORIZON, model.data.num_targets)
            assert torch.isfinite(samples).all()
        assert torch.isfinite(model.inference.smoothed(batch, 1).mean).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", [case for case in SYSTEMS if not case.endswith("binary")])
def test_an_outlier_of_a_million_scales(case, dtype):
    """An answer, however unlikely the observation is; not NaN."""
    model = make_model(case, scaling_length=5).to(dtype)
    entry = entries_of(case, lengths=(12,))[0]
    entry["target"][..., 3] = 1e6
    batch = make_batch(model, [entry], train=False)
    assert 1e6 / model.inference.scale_of(batch)[1].max() > 1e5
    with torch.no_grad():
        belief, terms = seeded(model.filter, batch)
        assert torch.isfinite(terms).all()
        assert terms[3].item() < -10
        assert torch.isfinite(model.forecast(belief, batch, 10)).all()


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        ("sgls", {"proposal": "ladder"}, "proposal to be one of encoder, bootstrap, got 'ladder'"),
        ("arsgls", {"proposal": "prior"}, "proposal to be one of ladder, encoder, bootstrap, got 'prior'"),
        ("rsgls", {"resampling_gradient": "none"}, "resampling_gradient to be one of fivo, stop-gradient, got 'none'"),
        ("rsgls-issm", {"recurrence": "both"}, "recurrence to be one of exact, paper, none, got 'both'"),
        ("rsgls-issm", {"gradient_length": -1}, "gradient_length to be at least 0, got -1"),
        ("rsgls-issm", {"persistence": 1.0}, "persistence to be at least 0 and below 1, got 1.0"),
        ("sgls", {"switch": "binary"}, "gaussian, categorical, got 'binary'"),
        ("arsgls", {"likelihood": "poisson"}, "gaussian, student-t, negative-binomial, bernoulli, got 'poisson'"),
        ("arsgls-counts", {"transformation": "log1p"}, "take transformation 'none'"),
        ("arsgls-binary", {"transformation": "asinh"}, "take transformation 'none'"),
        ("arsgls-counts", {"objective": "crps"}, "take objective 'likelihood'"),
        ("arsgls-binary", {"objective": "crps"}, "take objective 'likelihood'"),
        ("arsgls-student-t", {"objective": "crps", "transformation": "log1p"}, "the CRPS is infinite where 'log1p'"),
        ("sgls-categorical", {"objective": "crps"}, "take objective 'likelihood'"),
        ("rsgls-issm", {"num_targets": 2}, "one target, got 2"),
        ("rsgls-issm", {"components": "level+moon"}, "unknown component 'moon'"),
        ("sgls", {"switch_dim": 0}, "switch_dim to be at least 1, got 0"),
        ("sgls", {"num_particles": 0}, "num_particles to be at least 1, got 0"),
        ("sgls", {"hidden": 0}, "hidden to be at least 1, got 0"),
        ("rsgls", {"state_dim": 0}, "state_dim to be at least 1, got 0"),
        ("rsgls", {"linear_share": 1.5}, "linear_share to be between 0 and 1, got 1.5"),
        ("rsgls", {"num_bases": 0}, "num_bases to be at least 1, got 0"),
        ("rsgls-issm", {"num_bases": 0}, "num_bases to be at least 1, got 0"),
        ("arsgls", {"auxiliary_dim": -1}, "auxiliary_dim to be at least 0, got -1"),
        ("arsgls-image", {"skip": True}, "skip is for series, not for frames"),
        ("arsgls-image", {"image_shape": [8]}, r"image_shape to be height and width, got \[8\]"),
        ("arsgls-image", {"image_shape": [8, 16]}, "a target for each of 128 pixels, got num_targets=64"),
        ("arsgls-image", {"filters": 0}, "filters to be at least 1, got 0"),
        ("kvae-image", {"scaling": "series"}, "expected scaling 'none' for frames, got 'series'"),
        ("kvae-image", {"reconstruction_weight": 0.0}, "reconstruction_weight to be above 0, got 0.0"),
        ("arsgls", {"reconstruction_weight": -1.0}, "reconstruction_weight to be above 0, got -1.0"),
        ("rsgls-issm", {"linear_epochs": -1}, "linear_epochs to be at least 0, got -1"),
        (
            "arsgls",
            {"linear_epochs": 1},
            "expected skip true and the likelihood 'gaussian', got skip False and 'gaussian'",
        ),
        ("kvae-skip", {"linear_epochs": 1, "likelihood": "student-t"}, "got skip True and 'student-t'"),
        ("kvae-skip", {"particle_length": 3, "likelihood": "student-t"}, "particle_length are of the linear model"),
        ("rsgls", {"forecast_particles": -1}, "forecast_particles to be at least 0, got -1"),
        ("rsgls-issm", {"particle_length": -1}, "particle_length to be at least 0, got -1"),
    ],
)
def test_bad_options(case, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(case, **options)


@pytest.mark.usefixtures("unchecked_types")
def test_transitions_that_expand_are_named_where_the_filter_fails():
    """As models do that were trained a little on short windows, over thousands of steps."""
    batches = {}
    for stable in (False, True):
        model = make_model("arsgls", stable=stable)
        with torch.no_grad():
            model.dynamics.mixture.bases["transition"].copy_(100 * torch.eye(model.dynamics.bases.state_dim))
        batches[stable] = model, make_batch(model, entries_of("arsgls", lengths=(400, 400)), train=False)
    with pytest.raises(
        NotPositiveDefiniteError, match=r"train with stable=True, or filter less of it \(history_length"
    ):
        seeded(batches[False][0].filter, batches[False][1])
    assert seeded(batches[True][0].filter, batches[True][1])[1].isfinite().all()


@pytest.mark.usefixtures("unchecked_types")
def test_imputation_without_a_choice_is_that_of_the_issm():
    model = make_model("rsgls-issm-open")
    entries = entries_of("rsgls-issm-open", lengths=(10,))
    entries[0]["target"][[3, 4]] = np.nan
    with torch.no_grad():
        model.dynamics.mixture.bases["factor"].zero_()
        batch = make_batch(model, entries, train=False)
        generator = torch.Generator().manual_seed(0)
        mine, its = (found.impute(batch, 1500, generator)[0, ..., 0] for found in (model, issm_inside(model)))
    error = (mine.mean(0) - its.mean(0)) / ((mine.var(0) + its.var(0)) / 1500).sqrt().clamp_min(1e-12)
    missing = ~batch["past_observed"][0, :, 0]
    assert error[missing].abs().max() < 4.5
    assert (mine.std(0) / its.std(0) - 1)[missing].abs().max() < 0.1


def test_a_model_with_linear_epochs_begins_with_the_level_and_the_season():
    """Without an auxiliary, too: the CRPS of the linear model inside is nearly that of `gls` as it begins.

    1.14 times, by what bases differ; from a random beginning, which is shrunk to be stable, seven times.
    """
    fields = {"cardinality": CARDINALITY, "num_static_real": 1, "num_dynamic_real": 2, "num_time_features": 3}
    losses = {}
    begun = {"linear_epochs": 1, "stable": True}
    for name, options in {"gls": {}, "sgls": begun, "rsgls": begun}.items():
        torch.manual_seed(0)
        model = build(
            MODELS[name],
            freq="D",
            season=7,
            prediction_length=HORIZON,
            num_series=3,
            objective="crps",
            **options,
            **fields,
        ).train()
        losses[name] = model.loss(make_batch(model, [seasonal_entry()])).item()
    assert losses["sgls"] < 1.5 * losses["gls"], losses
    assert losses["rsgls"] < 1.5 * losses["gls"], losses


def seasonal_entry():
    """A series whose season is thirty times what changes over it, as networks at random know nothing of."""
    time = np.arange(140)
    target = 100 + 30 * np.sin(2 * np.pi * time / 7) + np.random.default_rng(0).normal(size=140)
    return {**make_entries(lengths=(140,))[0], "target": target.astype(np.float32)}


@pytest.mark.parametrize("name", ["arsgls", "kvae-rb", "kvae-mc"])
def test_with_skips_a_model_begins_with_the_level_and_the_season(name):
    torch.manual_seed(0)
    fields = {"cardinality": CARDINALITY, "num_static_real": 1, "num_dynamic_real": 2, "num_time_features": 3}
    model = build(
        MODELS[name], freq="D", season=7, prediction_length=HORIZON, num_series=3, stable=True, skip=True, **fields
    )
    batch = make_batch(model, [seasonal_entry()])
    with torch.no_grad():
        of_kvae = name != "arsgls"
        noise = model.dynamics.mixture.even().get("emission_noise")
        noise = model.dynamics.noises(Series.of(batch))[1].log() / -2 if of_kvae else noise
        assert (model.dynamics.decoder.log_inverse_scale() > noise[0] + 1).all()  # what is noise is the emission's
        belief, _ = model.filter(batch)
        free = {**batch, "known_future": torch.full_like(batch["future_target"], torch.nan)}
        expected = model.forecast(belief, free, 200)[0].mean(0)
    error = (expected - batch["future_target"][0]).square().mean().sqrt()
    assert error < 0.2 * 30, error


@pytest.mark.parametrize("case", ["arsgls-skip", "kvae-skip"])
def test_what_skips_the_encoder_is_not_bounded(case):
    """Networks see values up to 50 units from a series' beginning; a level may wander farther."""
    model = make_model(case)
    entries = make_entries(lengths=(1000,))
    entries[0]["target"] = np.arange(1000.0)  # in units of a week's change: 143
    batch = make_batch(model, entries, train=False)
    found = []
    with torch.no_grad():
        location, scale = model.inference.scale_of(batch)
        time_slice = model.inference.slice_of(batch, "past")
        for skip in (False, True):
            model.dynamics.emits = dataclasses.replace(model.dynamics.emits, skip=skip)
            system, _ = model.dynamics.switching(time_slice, Series.of(batch), location, scale, proposing=True)
            found.append(system.auxiliary_proposal if case == "arsgls-skip" else system.proposal)
    values, _ = scaled(time_slice, location, scale)
    assert values.max() > 100
    unit = (-model.dynamics.decoder.origin()[1]).exp()
    torch.testing.assert_close(found[1].mean[..., :1], values + unit * found[0].mean[..., :1], **EXACT)
    assert torch.equal(found[1].mean[..., 1:], found[0].mean[..., 1:])
    before, after = (-x.variance.log() / 2 for x in found)
    noise = resized(model.dynamics.decoder.origin()[1], model.dynamics.emits.size)
    inside = before.abs() < 5 - 1e-9
    assert inside.float().mean() > 0.5
    torch.testing.assert_close(after[inside], (before + noise).clamp(-5, 5)[inside], **EXACT)


@pytest.mark.parametrize("case", ["sgls-categorical", "arsgls", "kvae-rb"])
def test_what_is_tracked_is_the_filter_step_by_step(case):
    """After t steps the particles are those of a filter that stops there, by the same random numbers."""
    model = make_model(case)
    batch = make_batch(model, entries_of(case, lengths=(10, 10, 10)), train=False)
    with torch.no_grad():
        history = model.inference.track(batch, torch.Generator().manual_seed(0))
        assert history.log_weight.shape[0] == batch["past_target"].shape[1]
        for steps in (3, history.log_weight.shape[0]):
            cut = {key: x[:, :steps] if key.startswith("past_") else x for key, x in batch.items()}
            location, scale = model.inference.scale_of(batch)
            stop = model.inference.filtering.run(
                model.inference.slice_of(cut, "past"),
                Series.of(batch),
                location,
                scale,
                generator=torch.Generator().manual_seed(0),
            )[0].particles
            torch.testing.assert_close(history.state.mean[steps - 1], stop.state.mean, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(history.log_weight[steps - 1], stop.log_weight, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["sgls-categorical", "rsgls", "rsgls-issm", "arsgls"])
@pytest.mark.usefixtures("unchecked_types")
def test_sums_over_the_horizon_are_calibrated(case):
    """Of data drawn from the model itself the sum over four steps is anywhere among the sums of its forecasts' paths.

    Wrong dependence between steps would leave each of them calibrated, and not their sum.
    """
    series, paths, particles_count, seen, ahead = 600, 99, 200, 4, 4
    model = make_model(case, num_particles=particles_count, proposal="bootstrap")  # an untrained encoder is no guide
    batch = copies(make_batch(model, entries_of(case, lengths=(seen + ahead + 1,))), series)
    time_slice = model.inference.slice_of(batch, "both")
    time_slice = dataclasses.replace(time_slice, active=None, observed=torch.ones_like(time_slice.observed))
    ones = torch.ones(series, 1, dtype=torch.float64)
    with torch.no_grad():
        torch.manual_seed(0)
        system, prior = model.dynamics.switching(time_slice, Series.of(batch), 0 * ones, ones, proposing=False)
        truth, _, _ = particles.forecast(system, system.begin(1, prior), seen + ahead, 1)
        truth = truth[:, 0]
        filtered = particles.filter(system, system.begin(particles_count, prior), truth[:seen])
        sampled, _, _ = particles.forecast(system, filtered.particles, ahead, paths, first=seen)
    rank = (sampled.sum(0) < truth[seen:].sum(0)).sum(0).flatten()
    counts = torch.histc(rank.double(), 10, 0, paths + 1)
    expected = series / 10
    chi = float(((counts - expected).square() / expected).sum())
    assert chi < 27.9, counts  # 9 degrees of freedom: 1 in 1000
    shuffled = torch.stack([step[torch.randperm(paths)] for step in sampled])  # each step as before, their sum is not
    rank = (shuffled.sum(0) < truth[seen:].sum(0)).sum(0).flatten()
    wrong = float(((torch.histc(rank.double(), 10, 0, paths + 1) - expected).square() / expected).sum())
    assert wrong > chi


def test_more_particles_for_forecasts_than_in_training():
    model, few = make_model("rsgls", forecast_particles=9), make_model("rsgls")
    batch = make_batch(model, entries_of("rsgls"))
    assert torch.equal(seeded(model.loss, batch), seeded(few.loss, batch))
    belief, _ = seeded(model.filter, batch)
    assert len(belief.state.log_weight) == 9
    assert len(seeded(few.filter, batch)[0].state.log_weight) == few.inference.particles.num_particles
    assert model.forecast(belief, batch, 5).shape[1] == 5


@pytest.mark.parametrize("case", ["rsgls-issm-crps", "arsgls-skip"])
@pytest.mark.parametrize("length", [2, 3, 5, 7])
def test_gradients_go_back_as_far_as_they_should(case, length):
    """Into the particles of the last three steps, and beyond them into what the linear model filters."""
    options = {"linear_epochs": 0, "particle_length": 3, "gradient_length": length, "scaling": "none"}
    model = make_model(case, **options)
    entries = make_entries(lengths=(12,))
    entries[0]["target"] = np.sin(np.arange(12.0))
    batch = make_batch(model, entries)
    batch["past_target"] = batch["past_target"].double().requires_grad_()
    seeded(model.loss, batch).sum().backward()
    moved = (batch["past_target"].grad[0, :, 0] != 0).tolist()
    assert len(moved) == 12 - HORIZON
    assert moved == [step >= len(moved) - length for step in range(len(moved))]
