"""The log evidence of expectation propagation and Laplace, against integration over one and two weights."""

import math

import numpy as np
import pytest
import torch

from tests.learners.test_batch import EXACT, LOG_LINKS, SITES, data
from tsforecast.core import Gaussian
from tsforecast.learners import ADF, EP, Laplace

pytestmark = pytest.mark.usefixtures("float64")

SETTINGS = {"tolerance": 1e-10, "sweeps": 300}


def exact(name, prior, inputs, target, counts=None, size=150):
    """The log of the integral over one or two weights, by the trapezoidal rule around the mode."""
    counts = torch.ones(len(inputs)) if counts is None else counts
    found = Laplace(SITES[name]).fit(prior, inputs, target, counts=counts).belief
    root = torch.linalg.cholesky(found.cov).numpy()
    axis = np.linspace(-14, 14, size)
    dim = inputs.shape[1]
    place = np.stack(np.meshgrid(*[axis] * dim), -1).reshape(-1, dim)
    theta = found.mean.numpy() + place @ root.T
    law = torch.distributions.MultivariateNormal(prior.mean, prior.cov)
    log_density = law.log_prob(torch.tensor(theta)).numpy()
    with np.errstate(over="ignore"):
        for x, y, share in zip(inputs.numpy(), target[:, 0].numpy(), counts.tolist(), strict=True):
            log_density = log_density + share * LOG_LINKS[name](theta @ x, y)
    cell = (axis[1] - axis[0]) ** dim * np.linalg.det(root)
    return log_density.max() + math.log(np.exp(log_density - log_density.max()).sum() * cell)


@pytest.mark.parametrize("counts", [None, torch.tensor([0.3]).double()], ids=["whole", "part"])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", EXACT)
def test_of_one_point_that_of_ep_is_exact(name, dim, counts):
    for seed, factor in ((0, 1.0), (1, 30.0)):
        prior, inputs, target = data(name, points=1, dim=dim, seed=seed, scale=factor)
        found = EP(SITES[name], **SETTINGS).fit(prior, inputs, target, counts=counts)
        assert abs(found.log_evidence - exact(name, prior, inputs, target, counts)) < 1e-6


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("name", EXACT)
def test_of_points_that_share_no_weight_it_is_the_sum_of_theirs(name, schedule):
    prior, _, target = data(name, points=4, dim=4)
    prior = Gaussian(prior.mean, torch.diag(prior.cov.diagonal()))
    found = EP(SITES[name], schedule=schedule, **SETTINGS).fit(prior, torch.diag(torch.linspace(0.5, 2, 4)), target)
    parts = [
        exact(name, Gaussian(prior.mean[k, None], prior.cov[k, k].view(1, 1)), torch.full((1, 1), 0.5 + 0.5 * k), y)
        for k, y in enumerate(target.unsqueeze(-1))
    ]
    assert abs(found.log_evidence - sum(parts)) < 1e-6


@pytest.mark.parametrize("counts", [None, torch.linspace(0.1, 1, 20).double()], ids=["whole", "parts"])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", EXACT)
def test_of_many_points_both_are_near_enough_to_compare_models(name, dim, counts):
    """Within a tenth of a nat, a Bayes factor of 1.1."""
    for seed in range(4):
        prior, inputs, target = data(name, dim=dim, seed=seed, scale=4.0)
        expected = exact(name, prior, inputs, target, counts)
        for fit in (EP(SITES[name]), Laplace(SITES[name])):
            assert abs(fit.fit(prior, inputs, target, counts=counts).log_evidence - expected) < 0.1


@pytest.mark.parametrize("name", EXACT)
def test_at_the_fixed_point_its_slope_by_the_prior_is_that_of_a_gaussian(name):
    """d log Z / d m0 = S0^-1 (m - m0), by central differences: sites do not matter there to first order."""
    prior, inputs, target = data(name, points=15, dim=3)
    fit = EP(SITES[name], **SETTINGS)
    belief = fit.fit(prior, inputs, target).belief
    expected = torch.linalg.solve(prior.cov, belief.mean - prior.mean)
    for k, step in enumerate(1e-4 * torch.eye(3)):
        ends = [fit.fit(Gaussian(prior.mean + x, prior.cov), inputs, target).log_evidence for x in (step, -step)]
        assert abs((ends[0] - ends[1]) / 2e-4 - expected[k]) < 1e-5


@pytest.mark.parametrize("name", EXACT)
def test_that_of_laplace_is_the_integral_of_the_expansion_at_the_mode(name):
    """The Hessian is that of automatic differentiation."""
    prior, inputs, target = data(name, points=15, dim=3)
    found = Laplace(SITES[name]).fit(prior, inputs, target)
    law = torch.distributions.MultivariateNormal(prior.mean, prior.cov)

    def log_joint(theta):
        return law.log_prob(theta) + SITES[name].log_prob(inputs @ theta, target[:, 0]).sum()

    hessian = torch.func.hessian(log_joint)(found.belief.mean)
    expected = log_joint(found.belief.mean) + 1.5 * math.log(2 * math.pi) - 0.5 * torch.linalg.slogdet(-hessian)[1]
    assert abs(found.log_evidence - expected) < 1e-8


def test_no_data_and_points_of_zeros_say_what_they_must_and_a_single_pass_says_nothing():
    prior, inputs, target = data("logistic", points=3)
    for fit in (EP(**SETTINGS), Laplace()):
        assert abs(fit.fit(prior, inputs[:0], target[:0]).log_evidence) < 1e-12
        zeros = fit.fit(prior, 0 * inputs, target)
        assert abs(zeros.log_evidence - 3 * math.log(0.5)) < 1e-12
    assert math.isnan(ADF().fit(prior, inputs, target).log_evidence)


def test_the_evidence_of_a_warm_start_is_that_of_a_cold_one():
    prior, inputs, target = data("logistic", points=20)
    for fit in (EP(**SETTINGS), Laplace()):
        cold = fit.fit(prior, inputs, target)
        assert abs(fit.fit(prior, inputs, target, cold.sites).log_evidence - cold.log_evidence) < 1e-8
