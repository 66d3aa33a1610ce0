"""Kim's filter beside all paths enumerated, Hamilton's filter, and the particle filter."""

import itertools
import math

import torch

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, particles
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.regimes import chain, collapse
from tsforecast.core.regimes.autoregression import CompanionTransition, FirstEntry, SwitchingAutoregression

EXACT = {"rtol": 1e-8, "atol": 1e-8}
REGIMES, STEPS, SERIES, STATE = 2, 4, 2, 2


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def system_of(active=None):
    """A level and a slope whose noises and transition the regime chooses, and data with a gap."""
    matrix = torch.tensor([[[1.0, 1.0], [0.0, 0.9]], [[0.5, 0.2], [-0.3, 0.8]]], dtype=torch.float64)
    noise = torch.diag_embed(torch.tensor([[0.1, 0.2], [0.8, 0.4]], dtype=torch.float64))
    read = torch.tensor([[[1.0, 0.0]], [[0.7, 0.4]]], dtype=torch.float64)
    among = torch.tensor([[[0.3]], [[1.2]]], dtype=torch.float64)
    initial = torch.log_softmax(draw(1, SERIES, REGIMES, seed=1), -1)
    log_transition = torch.log_softmax(2 * torch.eye(REGIMES, dtype=torch.float64), -1)

    def parameters(switch, time):
        at = switch.argmax(-1)
        zeros = torch.zeros(STATE, dtype=torch.float64)
        offset = 0.1 * time * torch.ones(1, dtype=torch.float64)
        return Regime(LinearGaussian(matrix[at], zeros, noise[at]), LinearGaussian(read[at], offset, among[at]))

    system = CategoricalSwitching(initial, lambda s, _: log_transition[s.argmax(-1)], parameters, active=active)
    prior = Gaussian(torch.zeros(SERIES, STATE).double(), torch.eye(STATE).double().expand(SERIES, -1, -1))
    observed = torch.ones(STEPS, SERIES, 1, dtype=torch.bool)
    observed[2, 0] = False
    return system, prior, draw(STEPS, SERIES, 1, seed=2), observed


def enumerated(system, prior, values, observed, series):
    """Path -> log p(path, values), by the Kalman filter of every path."""
    found = {}
    eye = torch.eye(REGIMES, dtype=torch.float64)
    start = Gaussian(prior.mean[series], prior.cov[series])
    for path in itertools.product(range(REGIMES), repeat=STEPS):
        steps = [system.parameters(eye[k], time) for time, k in enumerate(path)]
        parts = [[getattr(s, name) for s in steps] for name in ("transition", "emission")]
        stacked = [LinearGaussian(*(torch.stack([getattr(p, f) for p in part]) for f in ("matrix", "offset", "noise")))
                   for part in parts]  # fmt: skip
        terms = kalman.filter(LinearSystem(*stacked), start, values[:, series], observed[:, series]).log_likelihood
        chance = system.initial[0, series, path[0]]
        for before, after in itertools.pairwise(path):
            chance = chance + system.transition(eye[before], 0)[after]
        found[path] = chance + terms.sum()
    return found


def test_a_memory_as_long_as_the_data_makes_it_exact_and_a_shorter_one_nearly():
    system, prior, values, observed = system_of()
    exact = collapse.filter(system, collapse.begin(system, prior, STEPS), values, observed)
    short = collapse.filter(system, collapse.begin(system, prior, 1), values, observed)
    for series in range(SERIES):
        every = enumerated(system, prior, values, observed, series)
        total = torch.logsumexp(torch.stack([*every.values()]), 0)
        torch.testing.assert_close(exact.log_likelihood[:, series].sum(), total, **EXACT)
        error = (short.log_likelihood[:, series].sum() - total).abs()
        assert 1e-8 < error < 0.05
        ones = [
            (value - total).exp() * torch.eye(REGIMES).double()[torch.tensor(path)] for path, value in every.items()
        ]
        expected = torch.stack(ones).sum(0)
        belief = exact.particles.log_weight.new_full((SERIES, REGIMES**STEPS), -STEPS * math.log(2))
        smoothed = chain.smooth(exact.log_transition, exact.log_density, belief)
        torch.testing.assert_close(smoothed.probabilities[:, series], expected, **EXACT)
        near = chain.smooth(short.log_transition, short.log_density, belief[:, :REGIMES] + (STEPS - 1) * math.log(2))
        assert (near.probabilities[:, series] - expected).abs().max() < 0.05


def test_the_particle_filter_has_the_same_likelihood_within_its_error():
    """An unbiased estimate, against the filter with a memory of all steps."""
    system, prior, values, observed = system_of()
    exact = collapse.filter(system, collapse.begin(system, prior, STEPS), values, observed).log_likelihood.sum(0)
    generator = torch.Generator().manual_seed(0)
    ratios = []
    for _ in range(12):
        start = system.begin(50, prior)
        found = particles.filter(system, start, values, observed, generator=generator).log_likelihood.sum(0)
        ratios.append((found - exact).exp())
    ratios = torch.stack(ratios)
    error = ratios.std(0) / len(ratios) ** 0.5
    assert ((ratios.mean(0) - 1).abs() < 4 * error).all()
    assert (error < 0.05).all()


def test_it_goes_on_from_where_it_stopped_and_a_series_begins_when_it_does():
    active = torch.ones(STEPS, SERIES, dtype=torch.bool)
    active[:2, 1] = False
    system, prior, values, observed = system_of(active)
    whole = collapse.filter(system, collapse.begin(system, prior, 2), values, observed)
    first = collapse.filter(system, collapse.begin(system, prior, 2), values[:3], observed[:3])
    second = collapse.filter(system, first.particles, values[3:], observed[3:], first=3)
    torch.testing.assert_close(second.particles.log_weight, whole.particles.log_weight, **EXACT)
    torch.testing.assert_close(second.particles.state.cov, whole.particles.state.cov, **EXACT)
    assert (whole.log_likelihood[:2, 1] == 0).all()


def autoregression(of_mean):
    location, coefficient = draw(8, SERIES, REGIMES, seed=4), 0.4 * draw(1, REGIMES, 2, seed=5)
    return SwitchingAutoregression(location, coefficient, 0.3 * draw(1, REGIMES, seed=6), of_mean)


def test_an_autoregression_with_all_its_lags_is_hamiltons():
    """Behind the first values the Gaussians have no variance, and the collapse loses nothing."""
    for of_mean in (False, True):
        system, values = autoregression(of_mean), draw(8, SERIES, seed=7)
        log_transition = torch.log_softmax(draw(REGIMES, REGIMES, seed=8), -1)
        start = chain.stationary(log_transition).expand(1, SERIES, -1)
        switching = CategoricalSwitching(start, lambda s, _, p=log_transition: p[s.argmax(-1)], system.regime)
        prior = Gaussian(torch.zeros(SERIES, 2).double(), torch.eye(2).double().expand(SERIES, -1, -1))
        found = collapse.filter(switching, collapse.begin(switching, prior, system.memory), values.unsqueeze(-1))
        head = collapse.filter(switching, collapse.begin(switching, prior, system.memory), values[:2].unsqueeze(-1))
        filtered = chain.filter(log_transition[None, None], system.log_density(values), head.particles.log_weight.T)
        torch.testing.assert_close(found.log_likelihood[2:], filtered.log_likelihood, **EXACT)
        torch.testing.assert_close(found.particles.log_weight.T, filtered.belief, **EXACT)
        torch.testing.assert_close(found.particles.state.mean, system.state(values).mean, **EXACT)
        assert (found.particles.state.cov == 0).all()


def test_companion_and_first_entry_are_their_matrices():
    belief = Gaussian(draw(3, 4, seed=1), torch.eye(4).double() + 0.1)
    transition = CompanionTransition(draw(3, 4, seed=2), draw(3, seed=3), draw(3, seed=4).exp())
    emission = FirstEntry(draw(3, seed=5), 4)
    for one in (transition, emission):
        mine, its = one.marginal(belief), one.dense().marginal(belief)
        torch.testing.assert_close(mine.mean, its.mean, **EXACT)
        torch.testing.assert_close(mine.cov.expand(its.cov.shape), its.cov, **EXACT)
        for a, b in zip(one.joint(belief), one.dense().joint(belief), strict=True):
            torch.testing.assert_close(*torch.broadcast_tensors(a, b), **EXACT)
    seen = torch.tensor([[True], [False], [True]])
    value = draw(3, 1, seed=6)
    (mine, terms), (its, others) = (one.posterior(belief, value, seen) for one in (emission, emission.dense()))
    torch.testing.assert_close(terms, others, **EXACT)
    torch.testing.assert_close(mine.mean, its.mean, **EXACT)
    torch.testing.assert_close(mine.cov, its.cov, **EXACT)
    path = transition.sample(belief.mean, torch.Generator().manual_seed(0))
    torch.testing.assert_close(path[:, 1:], belief.mean[:, :-1], **EXACT)
    torch.testing.assert_close(emission.sample(path)[:, 0], path[:, 0] + emission.offset, **EXACT)
