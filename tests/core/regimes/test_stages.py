"""Durations that are sums of geometric ones, beside all regimes and durations enumerated."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import nbinom

from tsforecast.core.regimes import chain
from tsforecast.core.regimes.em import SwitchingRegression, em_step
from tsforecast.core.regimes.stages import of_regimes, pairs_of_regimes, spread, staged

EXACT = {"rtol": 1e-10, "atol": 1e-10}
STEPS = 5


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of_paths(transition, stages):
    """A function: path -> p(s_0, ..., s_T), by durations; the first one is cut on the left, the last on the right."""
    regimes, leave = len(transition), 1 - np.diag(transition)
    balance = np.vstack([(np.eye(regimes) - transition).T[:-1], np.ones(regimes)])
    share = np.linalg.solve(balance, np.eye(regimes)[-1])  # of time, which durations of so many stages leave as it is
    left, length, regime = np.meshgrid(*map(np.arange, (stages + 1, STEPS + 4, regimes)), indexing="ij")
    spent = length - left  # steps beyond one for each stage that is left
    ended, cut = nbinom.pmf(spent, left, leave[regime]), nbinom.sf(spent - 1, left, leave[regime])

    def probability(path):
        runs = [(regime, len(list(run))) for regime, run in itertools.groupby(path)]
        which = [ended] * (len(runs) - 1) + [cut]
        (first, length), value = runs[0], 1.0
        value = share[first] * which[0][1:, length, first].mean()  # each stage is as likely as the others
        for (before, _), (after, length), table in zip(runs, runs[1:], which[1:], strict=False):
            value *= transition[before, after] / leave[before] * table[stages, length, after]
        return value

    return probability


@pytest.mark.parametrize(("regimes", "stages"), [(2, 1), (2, 3), (3, 2)])
def test_regimes_are_those_of_all_paths_with_durations(regimes, stages):
    log_transition = torch.log_softmax(draw(regimes, regimes) + torch.eye(regimes), -1)
    density = draw(STEPS, 1, regimes, seed=1)
    states = regimes * stages
    of_states = density.repeat_interleave(stages, -1).repeat_interleave(states, -1)
    start = spread(chain.stationary(log_transition), stages)[None]
    moved = staged(log_transition, stages)[None, None]
    torch.testing.assert_close(moved.exp().sum(-1), torch.ones(1, 1, states, dtype=torch.float64), **EXACT)
    smoothed = chain.smooth(moved, of_states, start)
    ahead = chain.ahead(moved.expand(2, -1, -1, -1), chain.filter(moved, of_states, start).belief)
    probability = of_paths(log_transition.exp().numpy(), stages)
    pairs, later, total = np.zeros((STEPS, regimes, regimes)), np.zeros((2, regimes)), 0.0
    for path in itertools.product(range(regimes), repeat=STEPS + 3):  # two steps ahead have no density
        value = probability(path)
        value *= np.exp(sum(float(density[time, 0, path[time + 1]]) for time in range(STEPS)))
        total += value
        pairs[range(STEPS), path[:STEPS], path[1 : STEPS + 1]] += value
        later[range(2), path[STEPS + 1 :]] += value
    np.testing.assert_allclose(float(smoothed.log_likelihood.sum()), np.log(total), **EXACT)
    np.testing.assert_allclose(pairs_of_regimes(smoothed.pairs, stages)[:, 0], pairs / total, **EXACT)
    np.testing.assert_allclose(of_regimes(smoothed.probabilities, stages)[:, 0], pairs.sum(1) / total, **EXACT)
    np.testing.assert_allclose(of_regimes(ahead, stages)[:, 0], later / total, **EXACT)


@pytest.mark.parametrize(("regimes", "stages"), [(2, 3), (3, 2)])
def test_em_ends_where_the_likelihood_of_durations_is_level(regimes, stages):
    design = torch.ones(60, 1, 1, dtype=torch.float64)
    level = torch.arange(60)[:, None] // 9 % regimes
    values = (2.0 * level + draw(60, 1, seed=2)).unsqueeze(-1)
    model = SwitchingRegression(
        torch.arange(regimes, dtype=torch.float64)[:, None, None],
        torch.ones(regimes, 1, 1, dtype=torch.float64),
        torch.log_softmax(torch.eye(regimes, dtype=torch.float64), -1),
        torch.full((regimes,), -np.log(regimes), dtype=torch.float64),
        stages,
    )
    terms = []
    for _ in range(150):
        model, term = em_step(model, design, values)
        terms.append(float(term.sum()))
    assert (np.diff(terms) > -1e-9).all()
    logits = model.log_transition.clamp_min(-12.0).requires_grad_()
    moved = staged(torch.log_softmax(logits, -1), stages)
    density = model.log_density(design, values)[..., ::regimes].repeat_interleave(stages, -1)
    start = spread(model.initial, stages).unsqueeze(0)
    found = chain.filter(moved[None, None], density.repeat_interleave(regimes * stages, -1), start)
    assert float(found.log_likelihood.detach().sum()) == pytest.approx(terms[-1], abs=1e-3)
    (gradient,) = torch.autograd.grad(found.log_likelihood.sum(), logits)
    assert float(gradient.abs().max()) < 1e-3 * len(values)


def test_a_single_regime_stays_whatever_its_stages():
    """Its logarithms are finite: filters multiply them by the zeros of other states."""
    found = staged(torch.zeros(1, 1, dtype=torch.float64), 2)
    assert found.isfinite().all()
    torch.testing.assert_close(found.exp(), torch.eye(2, dtype=torch.float64), atol=1e-30, rtol=0)
