"""Closed forms beside dense Gaussians, a numerical optimum, and permutations that are enumerated."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from experiments.invariance.gap import (
    OverParametrised,
    abiding,
    by_unit,
    dense,
    equal_gap,
    log_permanent,
    mean_field,
    permutation_gaps,
)
from tsforecast.learners import Diagonal, Independent
from tsforecast.learners.networks.layer_chain import as_network
from tsforecast.learners.networks.network import weights_of

MODEL = OverParametrised(7, 10, 1.3, 0.4, 1.5)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def function(variance=2.0, mean=0.8, count=7):
    return Independent(torch.full((count,), mean).double(), torch.full((count,), variance).double())


def test_the_gap_is_the_divergence_and_the_difference_of_bounds():
    for variance in (0.1, 2.0, 50.0):
        g, prior = function(variance), MODEL.prior()
        q, mixed = dense(mean_field(g, prior)), abiding(g, prior)
        gap = equal_gap(7, prior.variance[0].item(), variance)
        assert q.kl(mixed).item() == pytest.approx(gap, rel=1e-8)
        assert (MODEL.bound(mixed) - MODEL.bound(q)).item() == pytest.approx(gap, rel=1e-8)
        assert MODEL.fit(mixed).item() == pytest.approx(MODEL.fit(q).item(), rel=1e-8)


def test_shifts_are_averaged_out_for_any_inputs():
    """Oracle: the function of x' w alone, as one observation of it; covariances of the two differ."""
    rng = torch.Generator().manual_seed(0)
    x, m, mu = torch.randn(3, 5, generator=rng, dtype=torch.float64)
    v, s = torch.rand(2, 5, generator=rng, dtype=torch.float64) + 0.2
    found = abiding(Independent(m, v), Independent(mu, s), x)
    precision = torch.diag(1 / s) + torch.outer(x, x) / (x @ (v * x))
    mean = torch.linalg.solve(precision, mu / s + x * (x @ m) / (x @ (v * x)))
    torch.testing.assert_close(found.mean, mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.cov, torch.linalg.inv(precision), rtol=1e-8, atol=1e-8)


def test_the_best_mixture_is_the_posterior():
    ones = torch.ones(7, dtype=torch.float64) / 7
    precision = torch.eye(7, dtype=torch.float64) / (7 * 1.5) + 10 * torch.outer(ones, ones) / 0.4
    mean = torch.linalg.solve(precision, 10 * ones * 1.3 / 0.4)
    for found in (abiding(MODEL.abiding_optimum(), MODEL.prior()), MODEL.posterior()):
        torch.testing.assert_close(found.mean, mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found.cov, torch.linalg.inv(precision), rtol=1e-8, atol=1e-8)


def test_the_best_independent_weights_are_those_of_the_corrected_formula():
    def bound(values):
        free = torch.tensor(values, requires_grad=True)
        ones = torch.ones(7, dtype=torch.float64)
        g = Independent(free[0] * ones, free[1].exp() * ones)
        value = -MODEL.bound(dense(mean_field(g, MODEL.prior())))
        return value.item(), torch.autograd.grad(value, free)[0].numpy()

    found = minimize(bound, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    best = MODEL.mean_field_optimum()
    assert best.mean[0].item() == pytest.approx(found[0], abs=1e-6)
    assert best.variance[0].log().item() == pytest.approx(found[1], abs=1e-6)
    q = mean_field(best, MODEL.prior())
    torch.testing.assert_close(q.mean, MODEL.posterior().mean, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("weights", [1, 3, 30])
def test_no_optimum_is_further_from_the_prior_than_the_data_allow(weights):
    model = OverParametrised(weights, 10, 1.0, 1 / (2 * math.pi * math.e))
    prior = dense(model.prior())
    assert dense(mean_field(model.mean_field_optimum(), model.prior())).kl(prior) <= model.most_divergence()
    assert model.posterior().kl(prior) <= model.most_divergence()


def test_permanents_are_sums_over_permutations():
    matrix = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = [sum(matrix[:, j, p[j]] for j in range(5)) for p in itertools.permutations(range(5))]
    torch.testing.assert_close(log_permanent(matrix), torch.stack(rows).logsumexp(0), rtol=1e-8, atol=1e-8)
    with pytest.raises(ValueError, match="at most 22 units, got 23"):
        log_permanent(torch.zeros(23, 23))


def test_the_gap_of_units_is_that_of_all_orders_which_leave_the_network_as_it_is():
    """Oracle: the network with its units in each order, whose beliefs are averaged."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    network, widths = as_network(module), (2, 3, 2)
    belief = Independent(weights_of(module), 0.1 + 0.2 * torch.rand(network.size, dtype=torch.float64))
    draws = Diagonal().sample(belief, 6)
    places = torch.arange(network.size)
    inputs = torch.randn(4, 2, dtype=torch.float64)
    orders = []
    for order in itertools.permutations(range(3)):
        entering, bias, leaving, rest = places.split([6, 3, 6, 2])
        own = list(order)
        moved = torch.cat([entering.view(3, 2)[own].flatten(), bias[own], leaving.view(2, 3)[:, own].flatten(), rest])
        torch.testing.assert_close(network(draws[0][moved], inputs), network(draws[0], inputs))
        normal = torch.distributions.Normal(belief.mean, belief.variance.sqrt())
        orders.append(normal.log_prob(draws[:, moved]).sum(-1))
    expected = orders[0] - torch.stack(orders).logsumexp(0) + math.log(6)
    units = Independent(by_unit(belief.mean, widths), by_unit(belief.variance, widths))
    torch.testing.assert_close(permutation_gaps(units, 3, by_unit(draws, widths)), expected, rtol=1e-8, atol=1e-8)


def test_units_of_one_belief_have_no_gap_and_units_far_apart_all_of_it():
    same = Independent(torch.zeros(8).double(), torch.ones(8).double())
    draws = Diagonal().sample(same, 5, torch.Generator().manual_seed(2))
    torch.testing.assert_close(permutation_gaps(same, 4, draws), torch.zeros(5).double(), rtol=0, atol=1e-8)
    apart = Independent(100 * torch.arange(8).double(), torch.ones(8).double())
    found = permutation_gaps(apart, 4, apart.mean.unsqueeze(0))
    torch.testing.assert_close(found, double(math.log(24)), rtol=1e-8, atol=1e-8)
