"""Backward simulation: its weights and states exactly, one path at a time; and what it estimates, without a bias."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.core.particles.oracles import (
    AUXILIARIES,
    PRIOR,
    STATES,
    SWITCHES,
    TARGETS,
    Chain,
    LinearDecoder,
    Mixed,
    Recurrent,
    errors_from,
    follow,
    later,
    log_density,
    many,
    padded,
    series,
    wide,
)
from tests.oracles import generator
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, map_tensors, particles
from tsforecast.core.particles import backward
from tsforecast.core.particles.smoothing import sample_given, smooth

pytestmark = pytest.mark.usefixtures("float64")

EXACT = {"rtol": 1e-8, "atol": 1e-8}


# One path at a time.


def states_given_path(
    model: Mixed, belief, before: Tensor | None, switches: Tensor, emitted: Tensor, given: Tensor, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of x_0, ..., x_T jointly, by adding up precisions; arguments as of `follow`."""
    size = STATES * (len(switches) + 1)
    precision, score = np.zeros((size, size)), np.zeros(size)

    def add(where: list[tuple[int, np.ndarray]], value: np.ndarray, noise: np.ndarray) -> None:
        """sum of matrix x_t over `where` = value + noise."""
        matrix = np.zeros((len(value), size))
        for t, block in where:
            matrix[:, STATES * t : STATES * (t + 1)] = block
        precision[:] += matrix.T @ np.linalg.solve(noise, matrix)
        score[:] += matrix.T @ np.linalg.solve(noise, value)

    add([(0, np.eye(STATES))], *belief)
    for t, switch in enumerate(switches):
        if before is not None and model.recurrent:
            past = model.regime(before, first + t - 1)
            residual = switch - model.drift(before, first + t)
            add([(t, past.recurrence.numpy())], residual.numpy(), np.diag(past.switch_noise.numpy()))
        regime, before = model.regime(switch, first + t), switch
        x, y = regime.transition, regime.emission
        add([(t + 1, np.eye(STATES)), (t, -x.matrix.numpy())], x.offset.numpy(), x.noise.numpy())
        rows = given[t].numpy()
        if rows.any():
            residual = (emitted[t] - y.offset).numpy()[rows]
            add([(t + 1, y.matrix.numpy()[rows])], residual, y.noise.numpy()[np.ix_(rows, rows)])
    cov = np.linalg.inv(precision)
    return cov @ score, cov


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_ancestors_weights_and_states_of_every_path(recurrent, decoded, missing, begun, monkeypatch):
    """The probability of an ancestor: its weight times that of all that follows of the path, given it."""
    first, count, num_particles, num_samples = 2 if begun else 0, 2, 3, 2
    model = Mixed(7, 2, recurrent, LinearDecoder.random(1) if decoded else None)
    system = model.system(count)
    values, mask = (torch.stack(x, 1) for x in zip(*(series(s, True) for s in range(count)), strict=True))
    mask[:, 1] = mask[:, 1].roll(2, 0)
    values = torch.where(mask, torch.randn(values.shape, generator=generator(0)), 0.0)
    mask = mask if missing else None
    rng = generator(1)
    start, at = system.begin(num_particles, many(PRIOR, count)), slice(first, None)
    if begun:
        start = particles.filter(
            system, start, values[:first], None if mask is None else mask[:first], generator=rng
        ).particles
    values, mask = values[at], None if mask is None else mask[at]
    filtered = particles.filter(system, start, values, mask, keep_history=True, generator=rng, first=first)
    draw, log_weights, indices = backward.draw_index, [], []

    def record(mass: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
        log_weights.append(mass.log())
        indices.append(draw(mass, dim, generator))
        return indices[-1]

    monkeypatch.setattr(backward, "draw_index", record)
    found = smooth(system, start, filtered.history, values, mask, num_samples=num_samples, generator=rng, first=first)
    assert len(log_weights) == len(values) + 1
    seen = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    for sample, which in np.ndindex(num_samples, count):
        switches, emitted, given = found.switches[:, sample, which], values[:, which], seen[:, which]
        if decoded:
            emitted = found.auxiliaries[:, sample, which]
            given = given.any(-1, keepdim=True).expand(-1, AUXILIARIES)
        for step in range(len(values)):
            before = start if step == 0 else map_tensors(lambda x: x[step - 1], filtered.history)  # noqa: B023
            expected = before.log_weight[:, which].clone()
            for i in range(num_particles):
                belief = before.state.mean[i, which].numpy(), before.state.cov[i, which].numpy()
                past = before.switch[i, which] if begun or step > 0 else None
                path = follow(model, belief, past, switches[step:], emitted[step:], given[step:], first + step)
                for u, now in enumerate(path, step):
                    expected[i] += log_density(now.switch, switches[u]) + log_density(now.emitted, emitted[u], given[u])
            weight = torch.log_softmax(log_weights[len(values) - step][sample, :, which], 0)
            torch.testing.assert_close(weight, torch.log_softmax(expected, 0), **EXACT)
        origin = indices[-1][sample, which]
        belief = start.state.mean[origin, which].numpy(), start.state.cov[origin, which].numpy()
        past = start.switch[origin, which] if begun else None
        mean, cov = states_given_path(model, belief, past, switches, emitted, given, first)
        for t in range(len(values) + 1):
            now, then = slice(STATES * t, STATES * (t + 1)), slice(STATES * (t - 1), STATES * t)
            states = found.states
            state = states.initial if t == 0 else map_tensors(lambda x: x[t - 1], states.states)  # noqa: B023
            np.testing.assert_allclose(state.mean[sample, which], mean[now], **EXACT)
            np.testing.assert_allclose(state.cov[sample, which], cov[now, now], **EXACT)
            if t > 0:
                np.testing.assert_allclose(states.cross[t - 1, sample, which], cov[now, then], **EXACT)


def test_the_last_draw_is_from_the_filter_s_weights_and_moments_are_those_of_the_mixture():
    system = Mixed(7, 2, True).system(2)
    values = wide(series(1, missing=False)[0], 2)
    start = system.begin(3, many(PRIOR, 2))
    filtered = particles.filter(system, start, values, keep_history=True, threshold=0.0, generator=generator(0))
    found = smooth(system, start, filtered.history, values, num_samples=4000, generator=generator(1))
    last = found.switches[-1]
    for which in range(2):
        share = (last[:, which, None] == filtered.particles.switch[:, which]).all(-1).double().mean(0)
        weight = filtered.particles.log_weight[:, which].exp()
        assert bool(((share - weight).abs() < 4.5 * (weight * (1 - weight) / len(last)).sqrt()).all())
    mean, cov = found.states.states.mean, found.states.states.cov
    torch.testing.assert_close(found.mean, mean.mean(1), **EXACT)
    second = (cov + mean[..., :, None] * mean[..., None, :]).mean(1)
    torch.testing.assert_close(found.cov, second - found.mean[..., :, None] * found.mean[..., None, :], **EXACT)


# What is estimated. With Z the filter's estimate of the likelihood Z*, Z / Z* times an average over paths is without a
# bias, whatever the number of particles: backward simulation draws an ancestor from its conditional distribution given
# all that follows, and changes no expectation (Del Moral, Doucet and Singh 2010). So few particles do, and many runs.


def weighted(log_likelihood: Tensor, exact: Tensor, found: Tensor) -> Tensor:
    """Z / Z* times averages over samples, (series, time, ...), of (time, sample, series, ...)."""
    ratio = (log_likelihood.sum(0) - exact).exp()
    average = found.mean(1).transpose(0, 1)
    return ratio.reshape(-1, *[1] * (average.ndim - 1)) * average


def second_moment(mean: Tensor, cov: Tensor) -> Tensor:
    return cov + mean[..., :, None] * mean[..., None, :]


def assert_unbiased(
    found, log_likelihood: Tensor, log_evidence: Tensor, expected: dict[str, Tensor], first: int = 0
) -> None:
    """Of switches, and first and second moments of the states, from step `first` on."""
    states = found.states.states
    for name, what in {
        "switch": found.switches,
        "mean": states.mean,
        "second": second_moment(states.mean, states.cov),
    }.items():
        assert errors_from(weighted(log_likelihood, log_evidence, what[first:]), expected[name]) < 4.5, name


@pytest.mark.parametrize(("missing", "threshold"), [(False, 2.0), (True, 0.5), (True, 2.0)])
def test_categorical_smoothing_agrees_with_enumeration(missing, threshold):
    chain, count = Chain.random(3), 4000
    values, observed = series(1, missing)
    log_joint, paths, smoothed = chain.exact(values, observed)
    weight = torch.softmax(log_joint, 0)
    states = smoothed.states
    expected = {
        "switch": torch.einsum("p,tpk->tk", weight, torch.nn.functional.one_hot(paths.T, SWITCHES).double()),
        "mean": torch.einsum("p,tpn->tn", weight, states.mean),
        "second": torch.einsum("p,tpij->tij", weight, second_moment(states.mean, states.cov)),
    }
    system = chain.system(count)
    start = system.begin(3, many(PRIOR, count))
    values, observed = wide(values, count), wide(observed, count)
    filtered = particles.filter(
        system, start, values, observed, keep_history=True, threshold=threshold, generator=generator(0)
    )
    found = smooth(system, start, filtered.history, values, observed, num_samples=3, generator=generator(1))
    assert_unbiased(found, filtered.log_likelihood, torch.logsumexp(log_joint, 0), expected)


def linear_moments(model: Recurrent, values: Tensor, observed: Tensor | None, cut: int) -> dict[str, Tensor]:
    """Of the Kalman smoother of all data, for the steps from `cut` on."""
    system, prior = model.linear(len(values))
    found = map_tensors(lambda x: x[cut:], kalman.smooth(system, prior, values, observed).states)
    mean, cov = found.mean[:, :STATES], found.cov[:, :STATES, :STATES]
    return {"switch": found.mean[:, STATES:], "mean": mean, "second": second_moment(mean, cov)}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("decoded", [False, True])
@pytest.mark.parametrize("cut", [0, 2])
def test_recurrent_smoothing_agrees_with_the_kalman_smoother(missing, decoded, cut):
    """Of all data; also where the smoother is given only what follows the first steps, and the particles after them."""
    model, count, steps = Recurrent(decoder=LinearDecoder.random(4) if decoded else None), 4000, 4
    values, observed, exact = model.data(missing, steps)
    system, rng = model.system(count), generator(0)
    start = system.begin(3, many(PRIOR, count))
    wider, mask = wide(values, count), wide(observed, count)
    terms = []
    if cut:
        seen = None if mask is None else mask[:cut]
        before = particles.filter(system, start, wider[:cut], seen, generator=rng)
        start, terms = before.particles, [before.log_likelihood]
    wider, mask = wider[cut:], None if mask is None else mask[cut:]
    filtered = particles.filter(system, start, wider, mask, keep_history=True, generator=rng, first=cut)
    found = smooth(system, start, filtered.history, wider, mask, num_samples=3, generator=rng, first=cut)
    log_likelihood = torch.cat([*terms, filtered.log_likelihood])
    assert_unbiased(found, log_likelihood, exact, linear_moments(model, values, observed, cut))


def test_smoothing_of_a_series_that_begins_later():
    """The padding in front is no time in which the state moves."""
    model, count, pad = Recurrent(), 4000, 2
    values, observed, exact = model.data(missing=True)
    system = later(model.system(count), pad)
    start = system.begin(3, many(PRIOR, count))
    wider, mask = (padded(wide(x, count), pad) for x in (values, observed))
    filtered = particles.filter(system, start, wider, mask, keep_history=True, generator=generator(0))
    found = smooth(system, start, filtered.history, wider, mask, num_samples=3, generator=generator(1))
    assert_unbiased(found, filtered.log_likelihood, exact, linear_moments(model, values, observed, 0), pad)


def test_smoothed_auxiliaries_know_of_later_observations():
    """Where nothing is observed too: there z_t has the mean C E[x_t | all] + d. Only the auxiliary is random here."""
    model, count, steps = Mixed(2, bases=1, decoder=LinearDecoder.random(1)), 4000, 3
    values, observed = series(1, True, steps)
    values = 3 * values
    assert not bool(observed[1].any())
    regimes = [model.regime(torch.zeros(1), t) for t in range(steps)]
    transitions = [(r.transition.matrix, r.transition.offset, r.transition.noise) for r in regimes]
    emission = model.decoder.after(regimes[0].emission)
    linear = LinearSystem(
        LinearGaussian(*(torch.stack(x) for x in zip(*transitions, strict=True))),
        LinearGaussian(emission.matrix[None], emission.offset[None], emission.noise[None]),
    )
    smoothed = kalman.smooth(linear, PRIOR, values, observed)
    system = model.system(count)
    start = system.begin(8, many(PRIOR, count))
    values, observed = wide(values, count), wide(observed, count)
    filtered = particles.filter(system, start, values, observed, keep_history=True, generator=generator(0))
    found = smooth(system, start, filtered.history, values, observed, num_samples=3, generator=generator(1))
    exact = smoothed.log_likelihood.sum()
    assert errors_from(weighted(filtered.log_likelihood, exact, found.states.states.mean), smoothed.states.mean) < 4.5
    expected = smoothed.states.mean[1] @ regimes[0].emission.matrix.mT + regimes[0].emission.offset
    assert errors_from(weighted(filtered.log_likelihood, exact, found.auxiliaries)[:, 1], expected) < 4.5


# Sampling what is not known.


def conditioned(system: LinearSystem, prior: Gaussian, values: Tensor, observed: Tensor) -> Gaussian:
    """Of the observations of all steps jointly, given some of their components."""
    joint = system.predictive(prior, len(values))
    return joint.condition(values.flatten(), observed.flatten())


@pytest.mark.parametrize("kind", ["independent", "decoded", "correlated"])
def test_samples_given_values_known_in_part(kind):
    """Against the joint Gaussian; with so many particles that no bias is left beside the standard errors."""
    steps, runs, samples = 3, 200, 5
    model = Recurrent(decoder=LinearDecoder.random(4) if kind == "decoded" else None)
    if kind == "independent":
        model.Q = torch.diag(model.Q.diagonal())
    linear, prior = model.linear(steps)
    observed = torch.tensor([[False, False], [True, False], [True, True]])
    values = torch.where(observed, kalman.simulate(linear, prior, steps, 1, generator(1))[1][:, 0], 0.0)
    exact = linear.predictive(prior, steps).condition(values.flatten(), observed.flatten())
    system = model.system(runs)
    start = system.begin(2, many(PRIOR, runs))
    found = sample_given(
        system, start, wide(values, runs), wide(observed, runs), samples, generator(0), num_particles=200
    )
    assert found.shape == (steps, samples, runs, TARGETS)
    flat, known = found.permute(2, 1, 0, 3).flatten(2), observed.flatten()  # (run, sample, time and target)
    assert bool((flat[..., known] == values.flatten()[known]).all())
    exact = exact.marginal((~known).nonzero().flatten())
    free = flat[..., ~known]
    assert errors_from(free.mean(1), exact.mean) < 4.5
    second = (free[..., :, None] * free[..., None, :]).mean(1)
    assert errors_from(second, second_moment(exact.mean, exact.cov)) < 4.5
