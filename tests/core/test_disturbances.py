"""Auxiliary residuals, against the joint Gaussian conditioned directly and likelihoods of models with a shock."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.oracles import generator, joint, plain, random_data, random_gaussian, random_system
from tsforecast.core import Gaussian, kalman
from tsforecast.core.disturbances import disturbances

STEPS = 7
EXACT = {"rtol": 1e-8, "atol": 1e-8}


@pytest.fixture(autouse=True, params=[3, 64])
def segment(request, monkeypatch):
    """The steps are taken in one part, or in several."""
    monkeypatch.setattr("tsforecast.core.disturbances.SEGMENT", request.param)


def problem(missing: bool, states: int, targets: int):
    rng = generator(states + targets)
    system, prior = random_system((STEPS,), states, targets, rng), random_gaussian((), states, rng)
    values, observed = random_data((STEPS,), targets, rng)
    return system, prior, values, observed if missing else torch.ones_like(observed)


def found(system, prior, values, observed):
    return disturbances(system, prior, values.unsqueeze(1), observed.unsqueeze(1))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("states", "targets"), [(3, 2), (1, 1)])
def test_every_observation_given_the_past_and_given_all_others(missing, states, targets):
    system, prior, values, observed = problem(missing, states, targets)
    ours, dense = found(system, prior, values, observed), joint(plain(system, prior, STEPS))
    y, seen = values.numpy().ravel(), observed.numpy().ravel()
    places = np.arange(STEPS * targets).reshape(STEPS, targets) + dense.observations()[0]
    for t in range(STEPS):
        for j in range(targets):
            before, others = seen.copy(), seen.copy()
            before[t * targets :] = False
            others[t * targets + j] = False
            for (mean, variance), kept in ((ours.predicted, before), (ours.others, others)):
                given = places.ravel()[kept]
                across = dense.cov[places[t, j], given]
                weight = np.linalg.solve(dense.cov[np.ix_(given, given)], across) if kept.any() else across
                expected = dense.mean[places[t, j]] + weight @ (y[kept] - dense.mean[given])
                left = dense.cov[places[t, j], places[t, j]] - weight @ across
                np.testing.assert_allclose(mean[t, 0, j], expected, **EXACT)
                np.testing.assert_allclose(variance[t, 0, j], left, **EXACT)


def test_half_the_square_of_a_shock_is_the_best_gain_in_likelihood():
    system, prior, values, observed = problem(True, 3, 2)
    shocks = found(system, prior, values, observed).shocks

    def likelihood(time, state, size):
        offset = system.transition.offset.clone()
        offset[time, state] += size
        moved = dataclasses.replace(system, transition=dataclasses.replace(system.transition, offset=offset))
        return float(kalman.filter(moved, prior, values, observed).log_likelihood.sum())

    for time, state in ((0, 0), (3, 2), (6, 1)):
        low, middle, high = (likelihood(time, state, size) for size in (-1.0, 0.0, 1.0))  # a parabola in the size
        slope, bend = (high - low) / 2, 2 * middle - high - low
        assert float(shocks[time, 0, state]) ** 2 / 2 == pytest.approx(slope**2 / (2 * bend), rel=1e-8)
        assert np.sign(float(shocks[time, 0, state])) == np.sign(slope)


def test_what_the_data_do_not_tell_of_has_no_shock():
    system, prior, values, observed = problem(False, 3, 2)
    observed[4:] = False
    after = found(system, prior, values, observed).shocks[4:]
    assert torch.equal(after, torch.zeros_like(after))
    assert isinstance(prior, Gaussian)
