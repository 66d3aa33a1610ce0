"""The particle filter's own parts: resampling and its gradients, continuing, forecasting, faults, precision."""

import dataclasses
import itertools
import math

import jaxtyping
import pytest
import torch

from tests.core.particles.oracles import (
    AUXILIARIES,
    PRIOR,
    STATES,
    STEPS,
    TARGETS,
    Chain,
    LinearDecoder,
    Mixed,
    Recurrent,
    assert_same,
    cast,
    errors_from,
    errors_from_one,
    leaves,
    many,
    run,
    series,
    systems,
    wide,
)
from tests.oracles import generator
from tsforecast.core import (
    Gaussian,
    LinearGaussian,
    LinearSystem,
    NotPositiveDefiniteError,
    kalman,
    map_tensors,
    particles,
)
from tsforecast.core.particles.resampling import resample, systematic_ancestors
from tsforecast.core.particles.state import ParticleState, take

pytestmark = pytest.mark.usefixtures("float64")

EXACT = {"rtol": 1e-8, "atol": 1e-8}


def labelled(log_weight: torch.Tensor) -> ParticleState:
    """Particles whose every part tells which particle and series they are of."""
    count, num_series = log_weight.shape
    label = torch.arange(count)[:, None] + 100.0 * torch.arange(num_series)
    return ParticleState(
        switch=label[..., None].expand(-1, -1, 2),
        state=Gaussian(label[..., None].expand(-1, -1, 3), label[..., None, None].expand(-1, -1, 3, 3)),
        log_weight=log_weight,
        recurrence=label[..., None, None].expand(-1, -1, 2, 3),
        switch_noise=label[..., None].expand(-1, -1, 2),
        auxiliary=label[..., None],
        begun=torch.arange(num_series) % 2 == 0,
    )


# Resampling.


@pytest.mark.parametrize("count", [1, 3, 7, 20])
def test_systematic_resampling_takes_the_floor_or_the_ceiling_and_is_unbiased(count):
    """The expectation over the uniform number is a sum: counts change only where P times the cumulated weight does."""
    weight = torch.softmax(2 * torch.randn(7, generator=generator(0)), 0)
    jumps = torch.cat([torch.zeros(1), (count * weight.cumsum(0)).frac().sort().values, torch.ones(1)])
    lengths, uniforms = jumps.diff(), 0.5 * (jumps[1:] + jumps[:-1])
    shifted = weight.log()[:, None].expand(-1, len(uniforms)) + 5.0  # of any scale
    index = systematic_ancestors(shifted, uniforms, count)
    taken = torch.nn.functional.one_hot(index, 7).sum(0).double()  # (uniform, particle)
    assert bool((taken.sum(1) == count).all())
    assert bool(((taken - count * weight).abs() < 1).all())
    torch.testing.assert_close(lengths @ taken, count * weight, rtol=0, atol=1e-12)
    assert bool((index.diff(dim=0) >= 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_particle_without_weight_is_never_taken(dtype, where):
    """At the ends of the uniform's range, where rounding reaches one."""
    log_weight = torch.zeros(65, 2, dtype=dtype)
    log_weight[0 if where == "first" else -1] = -torch.inf
    uniform = torch.tensor([0.0, 1 - torch.finfo(dtype).eps / 2], dtype=dtype)
    for count in (1, 64, 1000):
        index = systematic_ancestors(log_weight, uniform, count)
        assert not bool((index == (0 if where == "first" else 64)).any())


def test_resampling_moves_whole_particles_and_only_where_it_is_due():
    log_weight = torch.log_softmax(torch.randn(6, 3, generator=generator(1)) * torch.tensor([3.0, 0.7, 3.0]), 0)
    before = labelled(log_weight)
    sizes = before.effective_sample_size
    torch.testing.assert_close(sizes, 1 / log_weight.exp().square().sum(0), **EXACT)
    assert (sizes < 3).tolist() == [True, False, True]
    after = resample(before, 0.5, generator=generator(2))
    assert_same(after.begun, before.begun)
    torch.testing.assert_close(after.log_weight[:, [0, 2]], torch.full((6, 2), -math.log(6)), rtol=0, atol=0)
    torch.testing.assert_close(after.log_weight[:, 1], log_weight[:, 1], rtol=0, atol=0)
    label = after.auxiliary[..., 0]
    assert_same(label[:, 1], before.auxiliary[:, 1, 0])
    for part in (after.switch, after.state.mean, after.state.cov, after.recurrence, after.switch_noise):
        assert_same(part, label.reshape(*label.shape, *[1] * (part.ndim - 2)).expand(part.shape))
    uniform = torch.rand(3, generator=generator(2))
    expected = systematic_ancestors(log_weight, uniform, 6) + 100.0 * torch.arange(3)
    assert_same(label[:, [0, 2]], expected[:, [0, 2]])


def test_threshold_zero_never_resamples_and_two_always():
    even = labelled(torch.full((4, 2), -math.log(4)))
    worst = labelled(torch.log(torch.tensor([[1.0], [0.0], [0.0], [0.0]])).expand(-1, 2))
    assert resample(worst, 0.0) is worst
    assert_same(resample(even, 2.0), even)  # systematic resampling of equal weights takes each once
    assert bool((resample(worst, 2.0).auxiliary == worst.auxiliary[0]).all())
    assert bool((resample(worst, 2.0).log_weight == -math.log(4)).all())


def test_weights_of_the_gradient_that_keeps_the_ancestors():
    """The same numbers; d/dw of each is that of the ancestor's own log-weight."""
    raw = torch.randn(5, 2, generator=generator(0), requires_grad=True)
    before = labelled(torch.log_softmax(raw, 0))
    dropped = resample(before, 2.0, "fivo", generator(1))
    kept = resample(before, 2.0, "stop-gradient", generator(1))
    assert_same(kept.log_weight, dropped.log_weight)
    assert not bool(torch.autograd.grad(dropped.log_weight.sum(), raw, retain_graph=True)[0].any())
    factors = torch.randn(5, 2, generator=generator(2))
    (found,) = torch.autograd.grad((factors * kept.log_weight).sum(), raw, retain_graph=True)
    index = (kept.auxiliary[..., 0] - 100.0 * torch.arange(2)).long()
    (expected,) = torch.autograd.grad((factors * before.log_weight.gather(0, index)).sum(), raw)
    torch.testing.assert_close(found, expected, **EXACT)


def test_taking_another_number_of_particles():
    taken = take(labelled(torch.zeros(4, 2)), torch.tensor([[0, 3], [2, 1], [2, 0], [1, 1], [3, 3]]))
    assert taken.auxiliary[..., 0].tolist() == [[0, 103], [2, 101], [2, 100], [1, 101], [3, 103]]
    assert taken.state.cov.shape == (5, 2, 3, 3)


# The estimate.


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_the_estimate_grows_with_the_number_of_particles(threshold):
    """In expectation, and stays below log p(y): by Jensen's inequality."""
    model = Recurrent(6)
    values, observed, exact = model.data(missing=False)
    found = [
        run(model.system(1500), values, observed, 1500, count, count, threshold=threshold).log_likelihood.sum(0)
        for count in (1, 4, 32)
    ]
    for fewer, more in itertools.pairwise(found):
        gain = more - fewer
        assert float(gain.mean() / (gain.std() / math.sqrt(len(gain)))) > 4
    for estimates in found:
        assert float((estimates.mean() - exact) / (estimates.std() / math.sqrt(len(estimates)))) < 4


def test_weights_stay_normalised_and_sizes_are_of_the_weights():
    model = Recurrent()
    values, observed, _ = model.data(missing=True)
    filtered = run(model.system(3), values, observed, 3, 8, 0, keep_history=True)
    torch.testing.assert_close(filtered.history.log_weight.exp().sum(1), torch.ones(STEPS, 3), **EXACT)
    sizes = 1 / filtered.history.log_weight.exp().square().sum(1)
    torch.testing.assert_close(filtered.effective_sample_size, sizes, **EXACT)
    assert_same(map_tensors(lambda x: x[-1], filtered.history), filtered.particles)


@pytest.mark.parametrize("kind", systems(1))
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_filtering_in_two_stretches_is_filtering_at_once(kind, cut):
    """Bit for bit, whatever is missing; series begin at steps of their own, before and after the cut."""
    count = 3
    active = torch.arange(STEPS)[:, None] >= torch.tensor([0, 2, 3])
    system = dataclasses.replace(systems(count)[kind], active=active)
    values, observed = (wide(x, count) for x in series(1, missing=True))
    observed = observed & active[..., None]
    start = system.begin(4, many(PRIOR, count))
    options = {"threshold": 0.8, "keep_history": True}
    whole = particles.filter(system, start, values, observed, generator=generator(0), **options)
    rng = generator(0)
    first = particles.filter(system, start, values[:cut], observed[:cut], generator=rng, **options)
    second = particles.filter(
        system, first.particles, values[cut:], observed[cut:], generator=rng, first=cut, **options
    )
    assert_same(second.particles, whole.particles)
    joined = [torch.cat([a, b]) for a, b in zip(leaves(first.history), leaves(second.history), strict=True)]
    assert_same(joined, leaves(whole.history))
    assert_same(torch.cat([first.log_likelihood, second.log_likelihood]), whole.log_likelihood)


@pytest.mark.parametrize("kind", systems(1))
@pytest.mark.parametrize("num_particles", [1, 4, 10])
def test_nothing_observed_changes_nothing(kind, num_particles):
    """The log-likelihood is zero and all weights are as they were, after other steps too."""
    system = systems(2, 2 * STEPS)[kind]
    values = wide(series(1, missing=False)[0], 2)
    unseen = torch.zeros_like(values, dtype=torch.bool)
    start = system.begin(num_particles, many(PRIOR, 2))
    filtered = particles.filter(system, start, values, unseen, threshold=0.0, generator=generator(0))
    assert bool((filtered.log_likelihood == 0).all())
    assert_same(filtered.particles.log_weight, start.log_weight)
    started = particles.filter(system, start, values, threshold=0.0, generator=generator(0)).particles
    on = particles.filter(system, started, values, unseen, threshold=0.0, generator=generator(1), first=STEPS)
    assert float(on.log_likelihood.abs().max()) < 1e-14
    assert_same(on.particles.log_weight, started.log_weight, rtol=0, atol=1e-13)
    if kind not in ("chain", "optimal"):
        assert float((on.particles.switch - started.switch).abs().min()) > 0


def test_what_stands_in_missing_places_has_no_influence():
    for kind, system in systems(2).items():
        values, observed = (wide(x, 2) for x in series(1, missing=True))
        other = torch.where(observed, values, 1e6)
        found, expected = (
            particles.filter(system, system.begin(4, many(PRIOR, 2)), x, observed, generator=generator(0))
            for x in (other, values)
        )
        assert_same(found.particles, expected.particles)
        assert_same(found.log_likelihood, expected.log_likelihood), kind


# Gradients through resampling.


def gradient_errors(model, values, observed, system_of, exact_of, num_particles, **options) -> float:
    """How far the mean over runs of d(Z / Z*) is from d log Z*, in standard errors, the worst of some directions.

    Every run has a copy of its own of all parameters, moved along random directions.
    """
    runs, size = 4000, len(model.moving)
    at = torch.zeros(size, requires_grad=True)
    exact = exact_of(model.moved(at))
    (expected,) = torch.autograd.grad(exact, at)
    each = torch.zeros(runs, size, requires_grad=True)
    filtered = run(system_of(model.moved(each), runs), values, observed, runs, num_particles, 0, **options)
    ratio = (filtered.log_likelihood.sum(0) - exact.detach()).exp()
    assert abs(errors_from_one(filtered.log_likelihood.sum(0).detach(), exact.detach())) < 4
    (found,) = torch.autograd.grad(ratio.sum(), each)
    return errors_from(found, expected)


@pytest.mark.parametrize("optimal", [False, True])
@pytest.mark.parametrize(
    ("threshold", "gradient", "biased"),
    [(0.0, "fivo", False), (2.0, "stop-gradient", False), (0.5, "stop-gradient", False), (2.0, "fivo", True)],
)
def test_gradients_of_a_chain_against_enumeration(optimal, threshold, gradient, biased):
    """Unbiased, except where the ancestors' score is dropped: the documented bias, 22 % here."""
    values, observed = series(1, missing=True)
    errors = gradient_errors(
        Chain.random(3),
        values,
        observed,
        lambda chain, count: chain.system(count, optimal),
        lambda chain: torch.logsumexp(chain.exact(values, observed)[0], 0),
        num_particles=4,
        threshold=threshold,
        gradient=gradient,
    )
    assert errors > 15 if biased else errors < 4.5


@pytest.mark.parametrize(
    ("threshold", "gradient", "biased"),
    [(0.0, "fivo", False), (2.0, "stop-gradient", False), (0.5, "stop-gradient", False), (2.0, "fivo", True)],
)
def test_gradients_of_a_recurrent_system_against_the_kalman_filter(threshold, gradient, biased):
    """Unbiased, except where the ancestors' score is dropped: that bias is 9 % here."""
    model = Recurrent(6)
    values, observed, _ = model.data(missing=True)

    def exact(model: Recurrent) -> torch.Tensor:
        system, prior = model.linear()
        return kalman.filter(system, prior, values, observed).log_likelihood.sum()

    errors = gradient_errors(
        model, values, observed, lambda m, count: m.system(count), exact, 4, threshold=threshold, gradient=gradient
    )
    assert errors > 8 if biased else errors < 4.5


# Forecasts.


def mixture_moments(parts: list[tuple[float, torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and second moment of weighted Gaussians."""
    mean = sum(w * m for w, m, _ in parts)
    second = sum(w * (v + m[:, None] * m) for w, m, v in parts)
    return mean, second


def assert_moments(paths: torch.Tensor, parts: list[tuple[float, torch.Tensor, torch.Tensor]]) -> None:
    """Samples (time, sample, dim) against a mixture over their joint distribution over time."""
    flat = paths.transpose(0, 1).flatten(1)
    mean, second = mixture_moments(parts)
    assert errors_from(flat, mean) < 4.5
    assert errors_from(flat[:, :, None] * flat[:, None], second) < 4.5


def observing_all(system: LinearSystem) -> LinearSystem:
    """The same system with observations of its whole state beside those it has."""
    emission, size = system.emission, system.transition.matrix.shape[-1]
    noise = torch.block_diag(emission.noise[0], torch.zeros(size, size))[None]
    offset = torch.cat([emission.offset, torch.zeros(1, size)], -1)
    return LinearSystem(
        system.transition, LinearGaussian(torch.cat([emission.matrix, torch.eye(size)[None]], -2), offset, noise)
    )


@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_forecasts_have_the_moments_of_the_linear_model(decoded, begun):
    """Jointly over time, observations, states and switches; from particles of unequal weights too."""
    model = Recurrent(decoder=LinearDecoder.random(4) if decoded else None)
    values, observed, _ = model.data(missing=True)
    system, samples, steps = model.system(1), 20_000, 3
    linear, prior = model.linear(steps, begun)
    if begun:
        start = run(system, values, observed, 1, 4, 0, threshold=0.0).particles
        assert float(start.effective_sample_size) < 3.6
        none = torch.zeros(model.size, model.size)
        priors = [
            Gaussian(torch.cat([mean, switch]), torch.block_diag(cov, none))
            for mean, cov, switch in zip(start.state.mean[:, 0], start.state.cov[:, 0], start.switch[:, 0], strict=True)
        ]
    else:
        start, priors = system.begin(4, many(PRIOR, 1)), [prior] * 4
    paths = particles.forecast(system, start, steps, samples, generator(1), first=STEPS if begun else 0)
    found = torch.cat([paths[0], paths[2], paths[1]], -1)[:, :, 0]  # observations, states, switches
    parts = []
    for weight, prior in zip(start.log_weight.exp()[:, 0].tolist(), priors, strict=True):
        joint = observing_all(linear).predictive(prior, steps)
        parts.append((weight, joint.mean, joint.cov))
    assert_moments(found, parts)


def test_forecasts_where_only_some_series_have_begun():
    """The others' first switch is their first."""
    model, steps, samples = Recurrent(), 2, 20_000
    active = torch.tensor([True, False]).expand(STEPS, -1)
    values, observed, _ = model.data(missing=True)
    system = dataclasses.replace(model.system(2), active=active)
    start = run(system, values, observed, 2, 1, 0).particles
    paths = torch.cat(particles.forecast(system, start, steps, samples, generator(1), first=STEPS)[::2], -1)
    linear, prior = model.linear(steps)
    exact = observing_all(linear).predictive(prior, steps)
    keep = torch.arange(STATES + TARGETS) + torch.arange(steps)[:, None] * (STATES + TARGETS + model.size)
    exact = exact.marginal(keep.flatten())
    assert_moments(paths[:, :, 1], [(1.0, exact.mean, exact.cov)])
    linear, _ = model.linear(steps, begun=True)
    nothing = torch.zeros(model.size, model.size)
    prior = Gaussian(
        torch.cat([start.state.mean[0, 0], start.switch[0, 0]]), torch.block_diag(start.state.cov[0, 0], nothing)
    )
    exact = observing_all(linear).predictive(prior, steps).marginal(keep.flatten())
    assert_moments(paths[:, :, 0], [(1.0, exact.mean, exact.cov)])


def given_switches(model: Recurrent, switches: torch.Tensor) -> LinearSystem:
    """Of the states, with a path of switches (time, switch) held fixed: they move the offset only."""
    transition = LinearGaussian(model.A[None], switches @ model.B.mT, model.R[None])
    return LinearSystem(transition, LinearGaussian(model.C[None], model.d[None], model.Q[None]))


def test_forecasts_with_switches_held_fixed():
    model, steps, samples = Recurrent(), 3, 20_000
    values, observed, _ = model.data(missing=True)
    system = model.system(1)
    start = run(system, values, observed, 1, 4, 0, threshold=0.0).particles
    weights = start.log_weight.exp()[:, 0].tolist()
    beliefs = [Gaussian(*x) for x in zip(start.state.mean[:, 0], start.state.cov[:, 0], strict=True)]

    held = torch.randn(steps, 1, 1, model.size, generator=generator(3))
    paths, switches, _ = particles.forecast(system, start, steps, samples, generator(1), STEPS, switches=held)
    assert_same(switches, held.expand(-1, samples, -1, -1))
    joints = [given_switches(model, held[:, 0, 0]).predictive(belief, steps) for belief in beliefs]
    assert_moments(paths[:, :, 0], [(w, x.mean, x.cov) for w, x in zip(weights, joints, strict=True)])

    paths, switches, _ = particles.forecast(system, start, steps, samples, generator(1), STEPS, hold=True)
    assert_same(switches, switches[:1].expand_as(switches))
    stays = [x.expand(steps, -1) for x in start.switch[:, 0]]
    joints = [given_switches(model, s).predictive(belief, steps) for s, belief in zip(stays, beliefs, strict=True)]
    assert_moments(paths[:, :, 0], [(w, x.mean, x.cov) for w, x in zip(weights, joints, strict=True)])


def test_forecasts_of_a_chain_against_enumeration():
    chain, samples, steps = Chain.random(3), 40_000, 3
    paths, switches, _ = particles.forecast(
        chain.system(1), chain.system(1).begin(2, many(PRIOR, 1)), steps, samples, generator(0)
    )
    values = paths[:, :, 0]
    log_prior, all_paths, _ = chain.exact(torch.zeros(steps, TARGETS), torch.zeros(steps, TARGETS, dtype=torch.bool))
    weight = log_prior.exp()
    assert float(weight.sum()) == pytest.approx(1.0)
    one_hot = torch.nn.functional.one_hot(all_paths.T, switches.shape[-1]).double()
    assert errors_from(switches[:, :, 0].transpose(0, 1), torch.einsum("p,tpk->tk", weight, one_hot)) < 4.5
    pick = {name: chain.parameters[name][all_paths.T] for name in ("A", "b", "R", "C", "d", "Q")}
    system = LinearSystem(
        LinearGaussian(pick["A"], pick["b"], pick["R"]), LinearGaussian(pick["C"], pick["d"], pick["Q"])
    )
    _, found = kalman.forecast(system, many(PRIOR, len(weight)), steps)
    exact = torch.einsum("p,tpi->ti", weight, found.mean)
    second = torch.einsum("p,tpij->tij", weight, found.cov + found.mean[..., None] * found.mean[..., None, :])
    assert errors_from(values.transpose(0, 1), exact) < 4.5
    assert errors_from((values[..., None] * values[..., None, :]).transpose(0, 1), second) < 4.5


@pytest.mark.parametrize("recurrent", [False, True])
def test_one_step_predictions_agree_with_sampled_values(recurrent):
    """The mixture's means, variances and distribution functions, averaged over its random switches."""
    count, model = 4000, Mixed(7, 2, recurrent)
    values, observed = series(1, missing=True)
    one = run(model.system(1), values, observed, 1, 4, 0, threshold=0.0).particles
    same = map_tensors(lambda x: x.expand(count) if x.ndim == 1 else x.expand(4, count, *x.shape[2:]), one)
    system = model.system(count)
    mixture = particles.predict(system, same, STEPS, generator(1))
    paths = particles.forecast(system, same, 1, 10, generator(2), first=STEPS)[0][0].mean(0)  # (series, target)
    assert mixture.mean.shape == paths.shape
    assert errors_from(mixture.mean - paths, torch.zeros(TARGETS)) < 4.5
    once = particles.forecast(system, same, 1, 1, generator(3), first=STEPS)[0][0, 0]
    second = mixture.variance + mixture.mean.square()
    assert errors_from(second - once.square(), torch.zeros(TARGETS)) < 4.5
    for level in (-2.0, 0.0, 1.5):
        below = (once < level).double()
        assert errors_from(mixture.cdf(torch.full((TARGETS,), level)) - below, torch.zeros(TARGETS)) < 4.5
    assert float(same.effective_sample_size[0]) < 3.5


@pytest.mark.parametrize("kind", systems(1))
def test_predictions_of_the_step_after_the_data(kind):
    """To which no proposal belongs, nor a mask; and of what is emitted, whose size is not that of an observation."""
    system = dataclasses.replace(systems(2)[kind], active=torch.arange(STEPS)[:, None] >= torch.tensor([0, 3]))
    start = run(system, *series(1, missing=True), 2, 4, 0).particles
    mixture = particles.predict(system, start, STEPS, generator(0))
    assert mixture.mean.shape == (2, AUXILIARIES if kind == "auxiliary" else TARGETS)
    assert_same(mixture.log_weight, start.log_weight)


def test_predicted_auxiliaries_decode_to_the_forecast_s_mean():
    count, model = 4000, Mixed(7, 2, True, LinearDecoder.random(1))
    system = model.system(count)
    start = run(system, *series(1, missing=True), count, 2, 0).particles
    predicted = particles.predict(system, start, STEPS, generator(1)).mean @ model.decoder.weight.mT
    paths = particles.forecast(system, start, 1, 10, generator(2), first=STEPS)[0][0].mean(0)
    assert errors_from(predicted + model.decoder.offset - paths, torch.zeros(TARGETS)) < 4.5


def test_predictions_of_a_chain_are_the_filter_s_own_likelihood():
    """With alike switches the density at the next value is its likelihood; nothing is left to chance."""
    chain = Chain.random(3)
    chain.parameters = {
        n: x if n in ("initial", "transition") else x[:1].expand(x.shape) for n, x in chain.parameters.items()
    }
    values, _ = series(1, missing=False)
    system = chain.system(1)
    whole = run(system, values, None, 1, 3, 0)
    for cut in range(1, STEPS):
        start = run(system, values[:cut], None, 1, 3, 0).particles
        density = particles.predict(system, start, cut, generator(0)).log_prob(values[cut])
        torch.testing.assert_close(density, whole.log_likelihood[cut], **EXACT)


# Faults.


@pytest.mark.parametrize("gradient", ["", "FIVO", "reinforce"])
def test_an_unknown_gradient_is_refused(gradient):
    system = systems(1)["open"]
    with pytest.raises(ValueError, match="fivo, stop-gradient"):
        particles.filter(system, system.begin(2, many(PRIOR, 1)), torch.zeros(1, 1, TARGETS), gradient=gradient)


def test_no_steps_are_refused():
    system = systems(1)["open"]
    with pytest.raises(ValueError, match="at least 1"):
        particles.filter(system, system.begin(2, many(PRIOR, 1)), torch.zeros(0, 1, TARGETS))


def models() -> dict:
    return {
        "chain": Chain.random(3),
        "open": Mixed(7, 2),
        "recurrent": Mixed(7, 2, True),
        "linear": Recurrent(),
        "auxiliary": Mixed(7, 2, True, LinearDecoder.random(1)),
    }


@pytest.mark.parametrize("kind", models())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gradient", particles.GRADIENTS)
def test_an_outlier_of_a_million_deviations_leaves_everything_finite(kind, dtype, gradient):
    """The likelihood, its gradient and all that follows."""
    model = cast(models()[kind], dtype)
    values = series(1, missing=False)[0].to(dtype)
    values[2, 0] = 1e6
    values = values.requires_grad_()
    prior = cast(PRIOR, dtype)
    filtered = run(model.system(3), values, None, 3, 8, 0, prior=prior, gradient=gradient)
    assert all(bool(x.isfinite().all()) for x in leaves(filtered.particles))
    assert bool(filtered.log_likelihood.isfinite().all())
    assert bool((filtered.log_likelihood[2] < -1e9).all())
    (slope,) = torch.autograd.grad(filtered.log_likelihood.sum(), values)
    assert bool(slope.isfinite().all())
    paths = particles.forecast(model.system(3), filtered.particles, 2, 5, generator(0), first=STEPS)
    assert all(bool(x.isfinite().all()) for x in paths)


@pytest.mark.parametrize("kind", models())
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float64, 1e200)])
def test_an_impossible_observation_names_step_and_series(kind, dtype, size):
    """Steps are the system's own; also where the filter goes on from another time slice."""
    model = cast(models()[kind], dtype)
    values = wide(series(1, missing=False)[0].to(dtype), 3).clone()
    system = model.system(3)
    start = system.begin(4, many(cast(PRIOR, dtype), 3))
    values[3, 1, 0] = size
    with pytest.raises(NotPositiveDefiniteError, match=r"at step 3, series 1 \(1 series failed\).*impossible"):
        particles.filter(system, start, values, generator=generator(0))
    first = particles.filter(system, start, values[:2], generator=generator(0)).particles
    with pytest.raises(NotPositiveDefiniteError, match=r"at step 3, series 1 "):
        particles.filter(system, first, values[2:], generator=generator(0), first=2)


def test_one_failed_particle_is_no_failure():
    """A weight of zero is a weight; only where none is left there is an error."""
    model = Recurrent()
    values, _, _ = model.data(missing=False)
    system = model.system(2)
    start = system.begin(4, many(PRIOR, 2))
    lost = dataclasses.replace(start, log_weight=torch.log(torch.tensor([[0.0], [0.5], [0.5], [0.0]])).expand(-1, 2))
    for gradient in particles.GRADIENTS:
        filtered = particles.filter(system, lost, wide(values, 2), None, gradient=gradient, generator=generator(0))
        assert bool(filtered.log_likelihood.isfinite().all())
        assert bool(filtered.particles.log_weight.isfinite().all())  # both dead particles were replaced


# Precision.


@pytest.fixture
def unchecked():
    """Without checks of shapes, which would take most of the time of many small steps."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("unchecked")
def test_float32_over_5000_steps(monkeypatch):
    """Agrees with float64 on the same random numbers, to 1e-5 nats a step on average.

    An ancestor may differ where a point of the resampling falls on the boundary of a weight; particles forget that.
    """
    steps, count, num_particles = 5000, 2, 4
    model = Recurrent()
    values = wide(model.data(missing=False, steps=steps)[0], count)

    def in_double(draw):
        def drawn(*shape, generator=None, dtype=None, device=None):
            return draw(*shape, generator=generator, dtype=torch.float64, device=device).to(dtype)

        return drawn

    monkeypatch.setattr(torch, "randn", in_double(torch.randn))
    monkeypatch.setattr(torch, "rand", in_double(torch.rand))
    found = []
    for dtype in (torch.float32, torch.float64):
        system = cast(model, dtype).system(count)
        start = system.begin(num_particles, many(cast(PRIOR, dtype), count))
        with torch.no_grad():
            filtered = particles.filter(system, start, values.to(dtype), generator=generator(0))
        assert filtered.particles.switch.dtype == dtype
        found.append(filtered.log_likelihood.double())
    difference = found[0] - found[1]
    assert float(difference.mean(0).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", systems(1))
def test_a_filter_without_particles_is_refused(kind):
    with pytest.raises(ValueError, match="at least one particle, got num_particles=0"):
        systems(1)[kind].begin(0, many(PRIOR, 1))
