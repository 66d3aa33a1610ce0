"""Switching systems: one step against the textbook, and the filter's estimate against exact likelihoods.

The exact likelihoods are enumerated, found by quadrature, or a Kalman filter's.
"""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from tests.core.particles.oracles import (
    AUXILIARIES,
    PRIOR,
    STATES,
    STEPS,
    SWITCHES,
    TARGETS,
    Chain,
    LinearDecoder,
    Mixed,
    Recurrent,
    Step,
    assert_same,
    errors_from_one,
    follow,
    later,
    log_density,
    many,
    padded,
    product,
    random_proposal,
    run,
    series,
    systems,
    wide,
)
from tests.oracles import generator, random_conditional, random_gaussian
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, map_tensors, particles
from tsforecast.core.particles import proposals
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.particles.proposals import DiagonalGaussian, propose, propose_diagonal
from tsforecast.core.particles.switching import GaussianSwitching

pytestmark = pytest.mark.usefixtures("float64")

EXACT = {"rtol": 1e-8, "atol": 1e-8}


# The proposals.


def given_noise(monkeypatch, noises: list[torch.Tensor]) -> None:
    """What is drawn next, in place of random numbers."""
    left = list(noises)
    monkeypatch.setattr(proposals, "normal", lambda shape, like, generator: left.pop(0).expand(shape))


@pytest.mark.parametrize("weight", [None, torch.tensor([True, False, True])])
def test_propose_draws_from_the_product_and_weighs_by_it(weight, monkeypatch):
    rng, size = generator(0), 2
    conditional, prior = random_conditional((3,), size, 4, rng), random_gaussian((3,), 4, rng)
    proposal = DiagonalGaussian(torch.randn(3, size, generator=rng), 0.2 + torch.rand(3, size, generator=rng))
    marginal = conditional.marginal(prior)
    expected, _ = marginal.product(Gaussian(proposal.mean, torch.diag_embed(proposal.variance)))
    if weight is not None:  # without a proposal it is the model itself
        expected = Gaussian(
            torch.where(weight[:, None], expected.mean, marginal.mean),
            torch.where(weight[:, None, None], expected.cov, marginal.cov),
        )
    # A sample is affine in the two noises: its mean and covariance are read off.
    units = [torch.zeros(2 * size), *torch.eye(2 * size)]
    drawn = []
    for unit in units:
        given_noise(monkeypatch, list(unit.split(size)))
        sample, log_ratio, posterior = propose(conditional, prior, proposal, weight)
        drawn.append(sample)
        density = marginal.log_prob(sample) - expected.log_prob(sample)
        torch.testing.assert_close(log_ratio, density, **EXACT)
        exact, _ = conditional.posterior(prior, sample)
        torch.testing.assert_close(posterior.mean, exact.mean, **EXACT)
        torch.testing.assert_close(posterior.cov, exact.cov, **EXACT)
    root = torch.stack([x - drawn[0] for x in drawn[1:]], -1)
    torch.testing.assert_close(drawn[0], expected.mean, **EXACT)
    torch.testing.assert_close(root @ root.mT, expected.cov, **EXACT)


@pytest.mark.parametrize("weight", [None, torch.tensor([True, False, True])])
def test_propose_diagonal_draws_from_the_product_and_weighs_by_it(weight, monkeypatch):
    rng = generator(0)
    prior, proposal = (
        DiagonalGaussian(torch.randn(3, 2, generator=rng), 0.2 + torch.rand(3, 2, generator=rng)) for _ in range(2)
    )
    variance = 1 / (1 / prior.variance + 1 / proposal.variance)
    expected = DiagonalGaussian(variance * (prior.mean / prior.variance + proposal.mean / proposal.variance), variance)
    if weight is not None:
        pick = functools.partial(torch.where, weight[:, None])
        expected = DiagonalGaussian(pick(expected.mean, prior.mean), pick(expected.variance, prior.variance))
    noise = torch.randn(3, 2, generator=rng)
    given_noise(monkeypatch, [noise])
    sample, log_ratio = propose_diagonal(prior, proposal, weight)
    torch.testing.assert_close(sample, expected.mean + expected.variance.sqrt() * noise, **EXACT)
    torch.testing.assert_close(log_ratio, prior.log_prob(sample) - expected.log_prob(sample), **EXACT)


def test_without_a_proposal_samples_are_of_the_model():
    rng = generator(1)
    conditional, prior = random_conditional((3,), 2, 4, rng), random_gaussian((3,), 4, rng)
    flat = DiagonalGaussian(torch.zeros(3, 2), torch.full((3, 2), 1e12))
    sample, log_ratio, _ = propose(conditional, prior, generator=generator(2))
    near, near_ratio, _ = propose(conditional, prior, flat, generator=generator(2))
    assert bool((log_ratio == 0).all())
    torch.testing.assert_close(near, sample, rtol=0, atol=1e-4)  # a shift by noise of size 1e6 / 1e12
    torch.testing.assert_close(near_ratio, log_ratio, rtol=0, atol=1e-4)
    prior = DiagonalGaussian(prior.mean, prior.variance)
    assert bool((propose_diagonal(prior, generator=generator(2))[1] == 0).all())
    assert (
        float(propose_diagonal(prior, DiagonalGaussian(torch.zeros(3, 4), torch.full((3, 4), 1e12)))[1].abs().max())
        < 1e-6
    )


@pytest.mark.parametrize("ratio", [1e-4, 1e-8, 1e-12, 1e-16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_proposal_far_sharper_than_the_prior_weighs_as_it_should(ratio, dtype):
    """log p - log pi tends to log N(m; mu, V) - log N(b; m, D), whatever the precision: networks may be that sure."""
    prior = DiagonalGaussian(torch.full((64, 1), 0.3, dtype=dtype), torch.full((64, 1), 2.0, dtype=dtype))
    proposal = DiagonalGaussian(torch.zeros(64, 1, dtype=dtype), torch.full((64, 1), 2.0 * ratio, dtype=dtype))
    for draw in (
        lambda: propose_diagonal(prior, proposal, generator=generator(0)),
        lambda: propose(
            LinearGaussian(torch.zeros(64, 1, 1, dtype=dtype), prior.mean, prior.variance[..., None]),
            Gaussian(torch.zeros(64, 1, dtype=dtype), torch.ones(64, 1, 1, dtype=dtype)),
            proposal,
            generator=generator(0),
        )[:2],
    ):
        sample, log_ratio = draw()
        exact = DiagonalGaussian(*(x.double() for x in (proposal.mean, proposal.variance)))
        far = DiagonalGaussian(prior.mean.double(), prior.variance.double() + exact.variance)
        expected = far.log_prob(exact.mean) - exact.log_prob(sample.double())
        assert bool(log_ratio.isfinite().all())
        # The smallest distance from m which the numbers near mu can have is eps; its square over D is the error.
        eps = torch.finfo(dtype).eps
        room = 20 * eps * (1 + float((sample.double().square() / exact.variance).max()))
        assert float((log_ratio.double() - expected).abs().max()) < room + 10 * eps / ratio**0.5


# One step, and several, against the formulas for one particle.


def weight_gain(
    step: Step,
    switch: torch.Tensor,
    emitted: torch.Tensor,
    proposals: tuple[DiagonalGaussian | None, DiagonalGaussian | None],
    decoder: LinearDecoder | None,
    value: torch.Tensor,
    rows: torch.Tensor,
    time: int,
) -> float:
    """log gamma of one step of one particle: log p(y, z, s) - log pi(z, s), with pi ~ p times the proposal."""
    if not bool(rows.any()):
        return 0.0
    gain = 0.0
    if proposals[0] is not None:
        gain += log_density(step.switch, switch) - log_density(product(step.switch, proposals[0]), switch)
    if decoder is None:
        return gain + log_density(step.emitted, value, rows)
    if proposals[1] is not None:
        gain += log_density(step.emitted, emitted) - log_density(product(step.emitted, proposals[1]), emitted)
    return gain + float(decoder.log_prob(emitted, value, rows, time))


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("proposed", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_weights_and_beliefs_are_the_textbook_s(recurrent, decoded, proposed, missing):
    steps, count, num_particles = 4, 3, 3
    model = Mixed(7, 2, recurrent, LinearDecoder.random(1) if decoded else None)
    proposal = random_proposal(2, 2, count, steps, variance=0.7) if proposed else None
    seen = random_proposal(3, AUXILIARIES, count, steps, variance=0.7) if proposed and decoded else None
    values = torch.randn(steps, count, TARGETS, generator=generator(0))
    observed = torch.ones_like(values, dtype=torch.bool)
    if missing:
        observed[1, 0], observed[2, 0, 0], observed[0, 1], observed[3, 2, 1] = False, False, False, False
    system = model.system(count, proposal=proposal, auxiliary_proposal=seen)
    filtered = particles.filter(
        system,
        system.begin(num_particles, many(PRIOR, count)),
        values,
        observed if missing else None,
        threshold=0.0,
        keep_history=True,
        generator=generator(5),
    )
    history = filtered.history
    log_weight = history.log_weight + filtered.log_likelihood.cumsum(0).unsqueeze(1)
    for particle, which in np.ndindex(num_particles, count):
        rows = observed[:, which]
        path = map_tensors(lambda x, i=(particle, which): x[:, *i] if x.ndim > 2 else x, history)
        # What the belief is conditioned on: the observed components, or the auxiliary if there is any of them.
        emitted, given = values[:, which], rows
        if decoded:
            emitted, given = path.auxiliary, rows.any(-1, keepdim=True).expand(-1, AUXILIARIES)
        expected = -np.log(num_particles)
        found = follow(model, (PRIOR.mean.numpy(), PRIOR.cov.numpy()), None, path.switch, emitted, given)
        for t, step in enumerate(found):
            proposals = tuple(
                None if x is None else DiagonalGaussian(x.mean[t, which], x.variance[0, which])
                for x in (proposal, seen)
            )
            expected += weight_gain(
                step, path.switch[t], emitted[t], proposals, model.decoder, values[t, which], rows[t], t
            )
            np.testing.assert_allclose(log_weight[t, particle, which], expected, **EXACT)
            np.testing.assert_allclose(path.state.mean[t], step.belief[0], **EXACT)
            np.testing.assert_allclose(path.state.cov[t], step.belief[1], **EXACT)


# Unbiased estimates.


@functools.cache
def chain_exact(missing: bool) -> torch.Tensor:
    return torch.logsumexp(Chain.random(3).exact(*series(1, missing))[0], 0)


@functools.cache
def mixed_exact(missing: bool, decoded: bool) -> torch.Tensor:
    model = Mixed(1, decoder=LinearDecoder.random(4) if decoded else None)
    values, observed = series(4, missing, 3)
    exact = model.by_quadrature(values, observed, 40)
    assert abs(float(exact - model.by_quadrature(values, observed, 28))) < 1e-3  # far below any standard error here
    return exact


@pytest.mark.parametrize("num_particles", [1, 4, 64])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("optimal", [False, True])
def test_categorical_estimate_is_unbiased(num_particles, threshold, missing, optimal):
    count = 4000 if num_particles < 64 else 250
    seed = num_particles + int(10 * threshold) + 100 * missing + 1000 * optimal
    system = Chain.random(3).system(count, optimal)
    filtered = run(system, *series(1, missing), count, num_particles, seed, threshold=threshold)
    estimates = filtered.log_likelihood.sum(0)
    assert abs(errors_from_one(estimates, chain_exact(missing))) < 4
    assert float(estimates.std()) > 0


def test_a_switch_that_does_not_advance_would_be_noticed():
    """The same check fails for a chain whose switch stays what it was first."""
    stuck = dataclasses.replace(
        Chain.random(3).system(4000), transition=lambda switch, time: torch.where(switch > 0, 0.0, -1e3)
    )
    filtered = run(stuck, *series(1, missing=False), 4000, 4, 0)
    assert abs(errors_from_one(filtered.log_likelihood.sum(0), chain_exact(False))) > 20


def test_a_chain_whose_switches_are_all_alike_is_a_kalman_filter():
    """Then no estimate is random; the same for a single switch."""
    chain = Chain.random(3)
    same = {
        name: x if name in ("initial", "transition") else x[:1].expand(x.shape) for name, x in chain.parameters.items()
    }
    values, observed = series(1, missing=True)
    a, b, r, c, d, q = (same[name][:1] for name in ("A", "b", "R", "C", "d", "Q"))
    system = LinearSystem(LinearGaussian(a, b, r), LinearGaussian(c, d, q))
    exact = system.log_likelihood(PRIOR, values, observed)
    filtered = run(Chain(same).system(2), values, observed, 2, 5, 0, threshold=2.0)
    torch.testing.assert_close(filtered.log_likelihood, exact[:, None].expand(-1, 2), **EXACT)


@pytest.mark.parametrize("num_particles", [1, 4, 64])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("proposed", [False, True])
def test_nonlinear_estimate_is_unbiased(num_particles, threshold, missing, proposed):
    count = 4000 if num_particles < 64 else 400
    seed = num_particles + int(10 * threshold) + 100 * missing + 1000 * proposed
    proposal = random_proposal(0, 1, count, 3) if proposed else None
    system = Mixed(1).system(count, proposal=proposal)
    filtered = run(system, *series(4, missing, 3), count, num_particles, seed, threshold=threshold)
    assert abs(errors_from_one(filtered.log_likelihood.sum(0), mixed_exact(missing, False))) < 4


@pytest.mark.parametrize("num_particles", [1, 4, 64])
@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize("missing", [False, True])
def test_nonlinear_estimate_with_an_auxiliary_is_unbiased(num_particles, threshold, missing):
    count = 4000 if num_particles < 64 else 400
    proposals = {
        "proposal": random_proposal(0, 1, count, 3),
        "auxiliary_proposal": random_proposal(1, AUXILIARIES, count, 3),
    }
    system = Mixed(1, decoder=LinearDecoder.random(4)).system(count, **proposals)
    filtered = run(system, *series(4, missing, 3), count, num_particles, num_particles, threshold=threshold)
    assert abs(errors_from_one(filtered.log_likelihood.sum(0), mixed_exact(missing, True))) < 4


@pytest.mark.parametrize("num_particles", [1, 4, 16])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("proposed", [False, True])
@pytest.mark.parametrize("decoded", [False, True])
def test_recurrent_estimate_is_unbiased(num_particles, missing, proposed, decoded):
    model = Recurrent(decoder=LinearDecoder.random(4) if decoded else None)
    values, observed, exact = model.data(missing, steps=3 if decoded else STEPS)
    count = 4000
    proposal = random_proposal(0, model.size, count, variance=6.0) if proposed else None
    seen = random_proposal(1, AUXILIARIES, count, variance=12.0) if proposed and decoded else None
    system = model.system(count, proposal, auxiliary_proposal=seen)
    filtered = run(system, values, observed, count, num_particles, 7 + num_particles)
    assert abs(errors_from_one(filtered.log_likelihood.sum(0), exact)) < 4


def test_paper_form_is_biased():
    """Without conditioning on the switch: the form that the paper prints."""
    model = Recurrent()
    values, observed, exact = model.data(missing=False)
    biased = model.system(4000, condition_on_switch=False)
    filtered = run(biased, values, observed, 4000, 16, 3)
    assert abs(errors_from_one(filtered.log_likelihood.sum(0), exact)) > 10


# Where nothing is left to chance.


@pytest.mark.parametrize("num_particles", [1, 7])
@pytest.mark.parametrize("threshold", [0.0, 2.0])
def test_one_base_matrix_is_a_kalman_filter(num_particles, threshold):
    """The switch is drawn, and chooses nothing."""
    model = Mixed(2, size=2, bases=1)
    values, observed = series(5, missing=True)
    regimes = [model.regime(torch.zeros(2), t) for t in range(STEPS)]
    transition = LinearGaussian(
        *(torch.stack([getattr(r.transition, x) for r in regimes]) for x in ("matrix", "offset", "noise"))
    )
    system = LinearSystem(transition, map_tensors(lambda x: x[None], regimes[0].emission))
    exact = system.log_likelihood(PRIOR, values, observed)
    filtered = run(model.system(2), values, observed, 2, num_particles, 0, threshold=threshold)
    torch.testing.assert_close(filtered.log_likelihood, exact[:, None].expand(-1, 2), **EXACT)
    assert float(filtered.particles.switch.std()) > 0


def exact_proposal(decoder: LinearDecoder, values: torch.Tensor, count: int) -> DiagonalGaussian:
    """q(z) proportional to p(y | z), of a decoder with a diagonal weight."""
    weight = decoder.weight.diagonal()
    mean = (values - decoder.offset) / weight
    return DiagonalGaussian(wide(mean, count), (decoder.variance / weight.square()).expand(1, count, -1))


@pytest.mark.parametrize("steps", [1, STEPS])
def test_the_exact_proposal_of_an_auxiliary_leaves_only_its_memory_to_chance(steps):
    """Of the first step the estimate is exact. Of later ones it is not: the belief depends on the auxiliary drawn."""
    decoder = LinearDecoder.random(3, auxiliaries=TARGETS)
    decoder.weight = torch.diag(torch.tensor([1.5, -0.7]))
    gls = (
        random_conditional((1,), STATES, STATES, generator(1)),
        random_conditional((1,), TARGETS, STATES, generator(2)),
    )
    exact_system = LinearSystem(
        gls[0], map_tensors(lambda x: x[None], decoder.after(map_tensors(lambda x: x[0], gls[1])))
    )
    values, _ = series(6, missing=False, steps=steps)
    count = 4000
    shape = (1, count, 1)
    system = GaussianSwitching(
        DiagonalGaussian(torch.zeros(shape), torch.ones(shape)),
        lambda switch, time: switch,
        lambda switch, time: Regime(
            *(map_tensors(lambda x: x[0], part) for part in gls), switch_noise=torch.ones_like(switch)
        ),
        auxiliary_proposal=exact_proposal(decoder, values, count),
        likelihood=decoder,
        auxiliary_dim=TARGETS,
    )
    exact = exact_system.log_likelihood(PRIOR, values)
    estimates = run(system, values, None, count, 3, 0).log_likelihood
    torch.testing.assert_close(estimates[0], exact[0].expand(count), **EXACT)
    if steps > 1:
        assert float(estimates[1].std()) > 1e-3
        assert abs(errors_from_one(estimates.sum(0), exact.sum())) < 4


# Series that begin later.


@pytest.mark.parametrize("kind", systems(1))
def test_a_padded_series_is_the_series_bit_for_bit(kind):
    """With the random numbers that are left after the padding, through which the particles stand still."""
    pad, count = 3, 4
    plain = systems(count)[kind]
    system = later(plain, pad)
    values, observed = (wide(x, count) for x in series(2, missing=True))
    start = plain.begin(4, many(PRIOR, count))
    rng = generator(0)
    before = particles.filter(
        system, start, padded(values, pad)[:pad], padded(observed, pad)[:pad], threshold=2.0, generator=rng
    )
    assert not bool(before.log_likelihood.any())
    assert_same(before.particles, start)
    expected = particles.filter(plain, start, values, observed, generator=rng)
    found = particles.filter(system, start, padded(values, pad), padded(observed, pad), generator=generator(0))
    assert_same(found.particles, expected.particles)
    assert_same(found.log_likelihood[pad:], expected.log_likelihood)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("proposed", [False, True])
def test_a_series_that_begins_later_beside_others_is_as_if_alone(recurrent, proposed, monkeypatch):
    """With noise of zero, so that nothing depends on how many numbers were drawn before."""
    monkeypatch.setattr(proposals, "normal", lambda shape, like, generator: like.new_zeros(shape))
    begins = torch.tensor([0, 2, 4])
    model = Mixed(7, 2, recurrent)
    # Each series has a first switch of its own at every step, of which that of its begin must be read.
    initial = DiagonalGaussian(torch.randn(STEPS, 3, 2, generator=generator(3)), torch.full((STEPS, 3, 2), 0.5))
    proposal = random_proposal(0, 2, 3) if proposed else None
    values = torch.randn(STEPS, 3, TARGETS, generator=generator(4))
    active = torch.arange(STEPS)[:, None] >= begins
    system = dataclasses.replace(model.system(3, proposal=proposal), initial=initial, active=active)
    start = system.begin(1, many(PRIOR, 3))
    together = particles.filter(system, start, values, active[..., None].expand(-1, -1, TARGETS), keep_history=True)
    for which, begin in enumerate(begins.tolist()):
        pick = lambda x: x if x is None else map_tensors(lambda v: v[:, which : which + 1], x)  # noqa: B023, E731
        own = map_tensors(lambda x: x[begin : begin + 1], pick(initial))  # noqa: B023
        alone = dataclasses.replace(model.system(1, proposal=pick(proposal)), initial=own)
        begun = alone.begin(1, many(PRIOR, 1))
        expected = particles.filter(alone, begun, pick(values)[begin:], keep_history=True, first=begin)
        torch.testing.assert_close(together.log_likelihood[begin:, [which]], expected.log_likelihood, **EXACT)
        assert bool((together.log_likelihood[:begin, which] == 0).all())
        found = together.history
        torch.testing.assert_close(found.switch[begin:, :, [which]], expected.history.switch, **EXACT)
        torch.testing.assert_close(found.state.mean[begin:, :, [which]], expected.history.state.mean, **EXACT)
        torch.testing.assert_close(found.state.cov[begin:, :, [which]], expected.history.state.cov, **EXACT)
        assert found.begun[:, which].tolist() == active[:, which].tolist()


def test_a_recurrent_series_that_begins_later_is_unbiased_beside_others():
    model, count, pad = Recurrent(), 4000, 2
    values, observed, exact = model.data(missing=True)
    plain = model.system(2 * count, random_proposal(0, model.size, 2 * count, STEPS + pad))
    begins = torch.cat([torch.zeros(count), torch.full((count,), pad)])
    system = dataclasses.replace(plain, active=torch.arange(STEPS + pad)[:, None] >= begins)
    early = torch.cat([wide(values, count), torch.zeros(pad, count, TARGETS)])
    seen = torch.cat([wide(observed, count), torch.zeros(pad, count, TARGETS, dtype=torch.bool)])
    both = torch.cat([early, padded(wide(values, count), pad)], 1)
    mask = torch.cat([seen, padded(wide(observed, count), pad)], 1)
    filtered = particles.filter(system, system.begin(4, many(PRIOR, 2 * count)), both, mask, generator=generator(1))
    for estimates in filtered.log_likelihood.sum(0).split(count):
        assert abs(errors_from_one(estimates, exact)) < 4


def test_a_chain_reads_the_first_switch_of_the_step_at_which_it_begins():
    begins = torch.tensor([0, 2, 4])
    first = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]])  # (time, series)
    initial = 1e3 * (torch.nn.functional.one_hot(first, SWITCHES).double() - 1)
    system = dataclasses.replace(
        Chain.random(3).system(3), initial=initial, active=torch.arange(STEPS)[:, None] >= begins
    )
    filtered = run(system, *series(1, missing=False), 3, 4, 0, keep_history=True)
    for which, begin in enumerate(begins.tolist()):
        switch = filtered.history.switch[:, :, which]
        assert not bool(switch[:begin].any())
        assert bool((switch[begin].argmax(-1) == first[begin, which]).all())


# Gradients, with common random numbers.


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("decoded", [False, True])
def test_gradients_agree_with_finite_differences(recurrent, decoded):
    """Of all parameters of the model and its proposals; without resampling, which is not continuous."""
    count, steps = 2, 3
    model = Mixed(7, 2, recurrent, LinearDecoder.random(1) if decoded else None)
    values, observed = series(2, True, steps)
    names = [name for name in model.parameters if recurrent or name != "F"]
    inputs = [model.parameters[name] for name in names]
    inputs += [random_proposal(0, 2, count, steps).mean, torch.full((1, count, 2), 1.5)]
    if decoded:
        inputs += [random_proposal(1, AUXILIARIES, count, steps).mean, torch.full((1, count, AUXILIARIES), 1.5)]
        inputs += [model.decoder.weight, model.decoder.offset, model.decoder.variance]

    def estimate(*inputs):
        moved = dataclasses.replace(model)
        moved.parameters = model.parameters | dict(zip(names, inputs, strict=False))
        rest = list(inputs[len(names) :])
        proposals = {"proposal": DiagonalGaussian(*rest[:2])}
        if decoded:
            proposals["auxiliary_proposal"] = DiagonalGaussian(*rest[2:4])
            moved.decoder = LinearDecoder(*rest[4:])
        system = moved.system(count, **proposals)
        return run(system, values, observed, count, 3, 0, threshold=0.0).log_likelihood.sum(0)

    inputs = [x.clone().requires_grad_() for x in inputs]
    slopes = torch.autograd.grad(estimate(*inputs).sum(), inputs)
    assert all(bool(slope.any()) for slope in slopes)
    rng, size = generator(8), 1e-5
    for _ in range(3):
        directions = [torch.randn(x.shape, generator=rng) for x in inputs]
        ends = [
            estimate(*(x + sign * size * d for x, d in zip(inputs, directions, strict=True))).sum() for sign in (1, -1)
        ]
        slope = sum((g * d).sum() for g, d in zip(slopes, directions, strict=True))
        # The error of the difference is of the order size^2, and rounding over size.
        torch.testing.assert_close((ends[0] - ends[1]) / (2 * size), slope, rtol=1e-6, atol=1e-7)


# Sizes at the edge.


@pytest.mark.parametrize("num_particles", [1, 3])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("size", [1, 2])
def test_smallest_sizes(num_particles, steps, size):
    model = Mixed(3, size, recurrent=True, decoder=LinearDecoder.random(1))
    values = torch.randn(steps, TARGETS, generator=generator(0))
    proposals = {
        "proposal": random_proposal(0, size, 2, steps),
        "auxiliary_proposal": random_proposal(1, AUXILIARIES, 2, steps),
    }
    filtered = run(model.system(2, **proposals), values, None, 2, num_particles, 0)
    assert filtered.log_likelihood.shape == (steps, 2)
    assert bool(filtered.log_likelihood.isfinite().all())
    assert filtered.particles.switch.shape == (num_particles, 2, size)
    assert bool(filtered.particles.begun.all())
