"""What is particular to the Kalman variational auto-encoder: its bound, by hand and by samples."""

import math

import pytest
import torch

from tests.models.cases import make_batch, make_entries, make_model, without
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.particles.given_switches import linear_given_switches
from tsforecast.core.sampled_evidence import sampled_evidence
from tsforecast.models import KVAERBForecaster, Series
from tsforecast.models import make_model as build
from tsforecast.models.parts.units import scaled

EXACT = {"rtol": 1e-9, "atol": 1e-9}


def filtered_by(model, batch, num_particles=1, seed=0):
    location, scale = model.inference.scale_of(batch)
    time_slice = model.inference.slice_of(batch, "both")
    torch.manual_seed(seed)
    filtered, system, start = model.inference.filtering.run(
        time_slice, Series.of(batch), location, scale, num_particles=num_particles, keep_history=True
    )
    values, observed = scaled(time_slice, location, scale)
    return filtered, system, start, values, observed


def bound(model, batch):
    """The bound on the log-likelihood of past and future."""
    return -model.inference.likelihood(model.inference, batch) * (
        batch["past_observed"].sum((1, 2)) + batch["future_observed"].sum((1, 2))
    )


def make_case(case="kvae-rb", lengths=(9, 7)):
    model = make_model(case)
    return model, make_batch(model, make_entries(model.data.num_targets, lengths))


@pytest.mark.parametrize("case", ["kvae-rb", "kvae-targets", "kvae-components"])
def test_the_bound_is_reconstruction_minus_encoder_plus_the_kalman_likelihood_of_z(case):
    model, batch = make_case(case)
    with torch.no_grad():
        filtered, system, start, values, observed = filtered_by(model, batch)
        given = linear_given_switches(system, start, filtered.history, values, observed)
        expected = given[0].log_likelihood(*given[1:]).sum(0).squeeze(0)  # by blocks of steps, not by the loop
        z = filtered.history.auxiliary
        for time in range(len(values)):
            seen = observed[time].any(-1)
            proposal = torch.distributions.Normal(system.proposal.mean[time], system.proposal.variance[time].sqrt())
            decoded = system.likelihood.log_prob(z[time], values[time], observed[time], time)[0]
            expected = expected + torch.where(seen, decoded - proposal.log_prob(z[time, 0]).sum(-1), 0.0)
        torch.testing.assert_close(filtered.log_likelihood.sum(0), expected, **EXACT)
        torch.manual_seed(0)
        torch.testing.assert_close(bound(model, batch), expected, **EXACT)


@pytest.mark.parametrize("name", ["kvae-rb", "kvae-mc"])
def test_the_bound_is_of_the_whole_history(name):
    """Also where forecasts have particles at its end alone."""
    bounds = []
    for length in (0, 3):
        model = make_model(name, skip=True, particle_length=length)
        batch = make_batch(model, make_entries(lengths=(9, 7)))
        torch.manual_seed(0)
        bounds.append(bound(model, batch))
    assert torch.equal(*bounds)


def test_particles_are_samples_of_equal_weight_and_terms_their_means():
    model, batch = make_case(lengths=(9,))
    many = {k: x.repeat(300, *[1] * (x.ndim - 1)) if isinstance(x, torch.Tensor) else x * 300 for k, x in batch.items()}
    with torch.no_grad():
        one, five = (filtered_by(model, many, count)[0] for count in (1, 5))
    torch.testing.assert_close(
        five.particles.log_weight, torch.full((5, 300), -math.log(5), dtype=torch.float64), **EXACT
    )
    bounds, means = (found.log_likelihood.sum(0) for found in (one, five))
    assert abs(bounds.mean() - means.mean()) < 4 * ((bounds.var() + means.var()) / 300).sqrt()
    assert means.var() < bounds.var() / 2


def test_where_nothing_is_observed_the_memory_reads_what_was_expected():
    model = make_model("kvae-rb")
    entries = [without(make_entries(1, (9,))[0], 3, 4)]
    with torch.no_grad():
        filtered, system, start, _, observed = filtered_by(model, make_batch(model, entries))
        history, missing = filtered.history, [t for t in range(9) if not observed[t].any()]
        assert {3, 4} <= {*missing}
        for time in missing:
            if time == 0:
                continue
            regime = system.regime(history.switch[time], time)
            belief = type(start.state)(history.state.mean[time], history.state.cov[time])
            expected = regime.emission.marginal(belief).mean
            torch.testing.assert_close(history.auxiliary[time], expected, **EXACT)
            following = system.memory(history.switch[time], expected, time + 1)
            torch.testing.assert_close(history.switch[time + 1], following, **EXACT)


def given_repeated(model, batch, count):
    """Of one draw of z: the linear system and its data, many times over."""
    filtered, system, start, values, observed = filtered_by(model, batch)
    linear, prior, *data = linear_given_switches(system, start, filtered.history, values, observed)
    wide = lambda x: x.expand(x.shape[0], count, *x.shape[2:])  # noqa: E731
    prior = map_tensors(lambda x: x.expand(count, *x.shape[1:]), prior)
    parts = (map_tensors(wide, part) for part in (linear.transition, linear.emission))
    return (type(linear)(*parts), prior, *(wide(x) for x in data))


@pytest.mark.parametrize("case", ["kvae-mc", "kvae-components"])
def test_the_sampled_evidence_has_the_exact_one_as_its_mean(case):
    """Given z; also for a series that begins late, whose steps before are no steps, and for seasons, of which a step
    moves one factor."""
    model, batch = make_case(case, (9, 5))
    with torch.no_grad():
        given = given_repeated(model, batch, 1000)
        draws = sampled_evidence(*given)
        expected = given[0].log_likelihood(*given[1:]).sum(0)
    assert draws.std(0).min() > 0.1
    assert ((draws.mean(0) - expected[0]) / (draws.std(0) / math.sqrt(len(draws)))).abs().max() < 4


def test_its_gradient_is_unbiased_and_has_a_variance_that_the_exact_one_has_not():
    model, batch = make_case("kvae-mc", (5, 4))
    given = given_repeated(model, batch, 240)
    groups = sampled_evidence(*given).unflatten(0, (12, 20)).mean(1).sum(-1)
    expected = given[0].log_likelihood(*given[1:]).sum(0).mean(0).sum()
    parameter = model.dynamics.log_inverse_noises
    gradients = torch.stack([torch.autograd.grad(x, parameter, retain_graph=True)[0] for x in groups])
    (exact,) = torch.autograd.grad(expected, parameter)
    spread = gradients.std(0)
    assert spread.min() > 1e-3
    # Student's t of 11 degrees of freedom exceeds this once in 5000 times.
    assert ((gradients.mean(0) - exact) / (spread / math.sqrt(len(groups)))).abs().max() < 5.5


def test_the_sampled_bound_is_the_exact_one_plus_noise():
    sampled, batch = make_case("kvae-mc")
    exact = make_model("kvae-rb")
    exact.load_state_dict(sampled.state_dict())
    found = []
    for model in (exact, sampled):
        torch.manual_seed(0)
        found.append(bound(model, batch))
    assert (found[0] != found[1]).all()
    torch.manual_seed(0)
    filtered, system, start, values, observed = filtered_by(sampled, batch)
    given = linear_given_switches(system, start, filtered.history, values, observed)
    expected = found[0] + (sampled_evidence(*given) - given[0].log_likelihood(*given[1:]).sum(0)).squeeze(0)
    torch.testing.assert_close(found[1], expected, **EXACT)


def test_the_crps_of_paths_teaches_nothing_by_weights_that_never_differ():
    """Their gradients cancel, but for rounding, of what may be a million times as large as those of the paths."""
    gradients = []
    for weight in (1.0, 1e9):
        model = make_model("kvae-targets", reconstruction_weight=weight).float()
        batch = make_batch(model, make_entries(2, (9, 7)))
        torch.manual_seed(0)
        model.loss(batch).mean().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*gradients, rtol=0.0, atol=0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "cauchy"}, "likelihood to be one of"),
        ({"auxiliary_dim": 0}, "auxiliary_dim to be at least 1"),
        ({"likelihood": "bernoulli", "transformation": "log1p"}, "take transformation 'none'"),
        ({"likelihood": "bernoulli", "objective": "crps", "transformation": "none"}, "take objective 'likelihood'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        build(KVAERBForecaster, **options)
