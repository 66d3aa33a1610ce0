"""Posteriors of all data at once: sites, expectation propagation, assumed density filtering, Laplace, FAB-COST."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.special
import torch
from torch import nn

from tests.learners.dense import assert_same, randn
from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian
from tsforecast.learners import (
    ADF,
    EP,
    BayesianForgetting,
    Laplace,
    LogisticSite,
    PoissonSite,
    ProbitSite,
    Sites,
    Wiener,
    adf,
    fab_cost,
)
from tsforecast.learners.batch.batch_posterior import change_between
from tsforecast.learners.loop import run

pytestmark = pytest.mark.usefixtures("float64")

SITES = {
    "logistic": LogisticSite(),
    "mackay": LogisticSite("mackay"),
    "probit": ProbitSite(),
    "poisson": PoissonSite(),
}
EXACT = [name for name in SITES if name != "mackay"]
# Written with NumPy and SciPy, for a label of -1 or 1, or a count.
LOG_LINKS = {
    "logistic": lambda f, y: -np.logaddexp(0, -(2 * y - 1) * f),
    "probit": lambda f, y: scipy.special.log_ndtr((2 * y - 1) * f),
    "poisson": lambda f, y: y * f - np.exp(f) - scipy.special.gammaln(y + 1),
}
EVERY = pytest.mark.parametrize("name", SITES)


def data(name: str, points: int = 20, dim: int = 2, seed: int = 0, scale: float = 1.0):
    """Inputs, targets, and a prior with correlations."""
    rng = generator(seed)
    inputs = torch.randn(points, dim, generator=rng)
    f = 0.7 * inputs @ torch.randn(dim, generator=rng)
    target = (
        torch.poisson(f.exp(), rng) if name == "poisson" else (torch.rand(points, generator=rng) < f.sigmoid()) * 1.0
    )
    prior = Gaussian(0.3 * torch.randn(dim, generator=rng), scale * random_covariance((), dim, rng))
    return prior, inputs, target[:, None]


def grid_moments(log_density, centre: float, reach: float) -> tuple[float, float]:
    """Mean and variance of a density on the line, by the trapezoidal rule."""
    grid = np.linspace(centre - reach, centre + reach, 200_001)
    with np.errstate(over="ignore"):
        values = log_density(grid)
    mass = np.exp(values - values.max())
    mean = (mass * grid).sum() / mass.sum()
    return mean, (mass * (grid - mean) ** 2).sum() / mass.sum()


def tilted(name: str, mean: float, variance: float, target: float):
    """The logarithm of N(f; mean, variance) p(target | f), up to a constant."""
    return lambda f: LOG_LINKS[name](f, target) - 0.5 * (f - mean) ** 2 / variance


def exact_moments(name: str, prior: Gaussian, inputs: torch.Tensor, target: torch.Tensor, counts=None, size: int = 200):
    """Mean and covariance of the posterior over two weights, on a grid around the mode."""
    counts = torch.ones(len(inputs)) if counts is None else counts
    found = Laplace(SITES[name]).fit(prior, inputs, target, counts=counts).belief
    root = torch.linalg.cholesky(found.cov).numpy()
    axis = np.linspace(-12, 12, size)
    place = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    theta = found.mean.numpy() + place @ root.T
    gap = theta - prior.mean.numpy()
    log_density = -0.5 * (gap @ np.linalg.inv(prior.cov.numpy()) * gap).sum(-1)
    with np.errstate(over="ignore"):
        for x, y, share in zip(inputs.numpy(), target[:, 0].numpy(), counts.tolist(), strict=True):
            log_density += share * LOG_LINKS[name](theta @ x, y)
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    mean = mass @ theta
    return torch.tensor(mean), torch.tensor((theta - mean).T @ (mass[:, None] * (theta - mean)))


# Sites.


@pytest.mark.parametrize("name", EXACT)
def test_tilted_moments_are_those_of_quadrature(name):
    """Over means, variances and targets of all sizes; in units of the standard deviation that is left."""
    targets = [0.0, 1.0, 7.0, 300.0] if name == "poisson" else [0.0, 1.0]
    for mean in (-20.0, -2.0, 0.3, 4.0):
        for variance in (1e-3, 0.5, 8.0, 300.0):
            for target in targets:
                ours = SITES[name].moments(*map(torch.tensor, (mean, variance, target)))
                density = tilted(name, mean, variance, target)
                first, second = grid_moments(density, ours[0].item(), 60 * ours[1].sqrt().item())
                assert abs(ours[0].item() - first) < 1e-6 * math.sqrt(second)
                assert abs(ours[1].item() / second - 1) < 1e-6


@EVERY
def test_derivatives_are_those_of_the_log_likelihood(name):
    f, target = torch.linspace(-4, 3, 12), torch.arange(12) % 2 * 1.0
    slope = torch.func.grad(lambda f: SITES[name].log_prob(f, target).sum())
    ours = SITES[name].derivatives(f, target)
    assert_same(ours[0], slope(f))
    assert_same(ours[1], -torch.func.grad(lambda f: slope(f).sum())(f))


# Posteriors.


@EVERY
def test_the_first_sweep_is_assumed_density_filtering(name):
    prior, inputs, target = data(name)
    first = EP(SITES[name], sweeps=1).fit(prior, inputs, target)
    pass_ = ADF(SITES[name]).fit(prior, inputs, target)
    assert_same(first.belief.mean, pass_.belief.mean)
    assert_same(first.belief.cov, pass_.belief.cov)
    half = ADF(SITES[name]).fit(prior, inputs[:7], target[:7])
    rest = ADF(SITES[name]).fit(prior, inputs, target, half.sites)
    assert_same(rest.belief.mean, pass_.belief.mean)
    assert_same(rest.sites.precision, pass_.sites.precision)


@pytest.mark.parametrize("link", ["probit", "mackay"])
def test_a_pass_is_what_the_learner_of_this_name_does_one_by_one(link):
    prior, inputs, target = data(link, dim=3)
    learner = adf(nn.Linear(3, 1, bias=False), link=link)
    belief, _ = run(learner, prior, inputs[:, None], target[:, None])
    found = ADF(SITES[link]).fit(prior, inputs, target).belief
    assert_same(found.mean, belief.mean)
    assert_same(found.cov, belief.cov)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
@pytest.mark.parametrize("name", EXACT)
def test_at_the_fixed_point_every_tilted_density_has_the_moments_of_the_belief(name, schedule):
    """Cavities by an inverse of the precision without one site, tilted moments on a grid: both by NumPy."""
    prior, inputs, target = data(name, points=12, dim=3, scale=4.0)
    found = EP(SITES[name], schedule=schedule, tolerance=1e-9, sweeps=200).fit(prior, inputs, target)
    assert found.converged
    precision = torch.linalg.inv(prior.cov) + inputs.T @ (found.sites.precision[:, None] * inputs)
    linear = torch.linalg.solve(prior.cov, prior.mean) + found.sites.linear @ inputs
    assert_same(found.belief.cov, torch.linalg.inv(precision))
    assert_same(found.belief.mean, torch.linalg.solve(precision, linear))
    for x, y, tau, nu in zip(
        inputs, target[:, 0].tolist(), *map(torch.Tensor.tolist, vars(found.sites).values()), strict=True
    ):
        cavity = torch.linalg.inv(precision - tau * torch.outer(x, x))
        a, s2 = (x @ cavity @ (linear - nu * x)).item(), (x @ cavity @ x).item()
        mean, sd = (x @ found.belief.mean).item(), (x @ found.belief.cov @ x).sqrt().item()
        first, second = grid_moments(tilted(name, a, s2, y), mean, 60 * sd)
        assert abs(first - mean) < 1e-6 * sd
        assert abs(math.sqrt(second) / sd - 1) < 1e-6


@EVERY
def test_order_schedule_damping_and_start_do_not_change_the_fixed_point(name):
    prior, inputs, target = data(name, points=15, dim=3)
    settings = {"tolerance": 1e-10, "sweeps": 200}
    found = EP(SITES[name], **settings).fit(prior, inputs, target)
    order = torch.randperm(15, generator=generator(3))
    others = [
        EP(SITES[name], **settings).fit(prior, inputs[order], target[order]),
        EP(SITES[name], schedule="parallel", **settings).fit(prior, inputs, target),
        EP(SITES[name], damping=0.4, **settings).fit(prior, inputs, target),
        EP(SITES[name], **settings).fit(prior, inputs, target, Laplace(SITES[name]).fit(prior, inputs, target).sites),
    ]
    for other in others:
        assert other.converged
        assert_same(other.belief.mean, found.belief.mean)
        assert_same(other.belief.cov, found.belief.cov)
    again = EP(SITES[name], **settings).fit(prior, inputs, target, found.sites)
    assert again.sweeps == 1
    assert again.sweeps < found.sweeps


@pytest.mark.parametrize("damping", [0.0, 0.8])
def test_a_parallel_sweep_keeps_half_of_every_old_site_at_least(damping):
    """Of one weight, so that cavities are written out: sites are as found in the first sweep, and then mixed."""
    prior, inputs, target = data("logistic", points=6, dim=1, scale=4.0)
    start = Sites(torch.linspace(0.1, 0.6, 6), torch.linspace(-0.5, 0.5, 6))
    one = EP(schedule="parallel", sweeps=1, damping=damping)
    for sites, keep in ((None, damping), (start, max(damping, 0.5))):
        old = Sites(torch.zeros(6), torch.zeros(6)) if sites is None else sites
        x = inputs[:, 0]
        precision = 1 / prior.cov[0, 0] + (old.precision * x.square()).sum()
        linear = prior.mean[0] / prior.cov[0, 0] + (old.linear * x).sum()
        without = precision - old.precision * x.square()
        mean, variance = (linear - old.linear * x) / without * x, x.square() / without
        matched, left = LogisticSite().moments(mean, variance, target[:, 0])
        new = 1 / left - 1 / variance, matched / left - mean / variance
        found = one.fit(prior, inputs, target, sites).sites
        assert_same(found.precision, (1 - keep) * new[0] + keep * old.precision)
        assert_same(found.linear, (1 - keep) * new[1] + keep * old.linear)


def test_a_sequential_sweep_keeps_as_much_of_a_site_as_damping_says():
    prior, inputs, target = data("logistic", points=1)
    whole = EP(sweeps=1).fit(prior, inputs, target).sites
    damped = EP(sweeps=1, damping=0.4).fit(prior, inputs, target).sites
    assert_same(damped.precision, 0.6 * whole.precision)
    assert_same(damped.linear, 0.6 * whole.linear)


def test_a_change_is_that_of_means_or_of_standard_deviations():
    before = Gaussian(torch.zeros(2), torch.diag(torch.tensor([1.0, 4.0])))
    moved = Gaussian(torch.tensor([0.0, 3.0]), torch.diag(torch.tensor([1.0, 4.0])))
    wider = Gaussian(torch.zeros(2), torch.diag(torch.tensor([1.0, 1.0])))
    assert change_between(before, before) == 0
    assert change_between(before, moved) == 1.5
    assert change_between(before, wider) == 1.0


def test_laplace_finds_the_mode_where_full_steps_leave_it():
    """From a rate of 1 to a count of 300 Newton's step is 299 in the logarithm."""
    prior = Gaussian(torch.zeros(1), torch.full((1, 1), 100.0))
    found = Laplace(PoissonSite()).fit(prior, torch.ones(1, 1), torch.full((1, 1), 300.0))
    assert found.converged
    mode = found.belief.mean[0]
    assert abs(300 - mode.exp() - mode / 100) < 1e-6
    assert_same(found.belief.cov[0, 0], 1 / (mode.exp() + 0.01))


@pytest.mark.parametrize("name", EXACT)
def test_one_point_is_exact(name):
    """Its only cavity is the prior."""
    prior, inputs, target = data(name, points=1)
    found = EP(SITES[name]).fit(prior, inputs, target).belief
    mean, cov = exact_moments(name, prior, inputs, target)
    torch.testing.assert_close(found.mean, mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.cov, cov, atol=1e-6, rtol=0)


@pytest.mark.parametrize("counts", [None, torch.linspace(0.1, 1, 20).double()], ids=["whole", "parts"])
@pytest.mark.parametrize("name", EXACT)
def test_against_integration_over_two_weights_ep_errs_least(name, counts):
    """Mean errors in standard deviations, averaged over five data sets of 20 points."""
    errors = {"ep": [], "adf": [], "laplace": []}
    methods = {"ep": EP(SITES[name]), "adf": ADF(SITES[name]), "laplace": Laplace(SITES[name])}
    for seed in range(5):
        prior, inputs, target = data(name, seed=seed, scale=9.0)
        mean, cov = exact_moments(name, prior, inputs, target, counts)
        for method, posterior in methods.items():
            found = posterior.fit(prior, inputs, target, counts=counts).belief
            errors[method].append(((found.mean - mean) / cov.diagonal().sqrt()).norm().item())
    ep, others = np.mean(errors["ep"]), [np.mean(errors[name]) for name in ("adf", "laplace")]
    assert ep < 0.25 * min(others)
    assert ep < 0.02


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_a_point_that_counts_for_nothing_is_as_if_it_were_not_there(name, schedule):
    prior, inputs, target = data(name, points=24, scale=9.0)
    fit = EP(SITES[name], schedule=schedule, sweeps=200)
    counts = torch.cat([torch.ones(20), torch.zeros(4)])
    found, expected = fit.fit(prior, inputs, target, counts=counts), fit.fit(prior, inputs[:20], target[:20])
    assert found.converged
    torch.testing.assert_close(found.belief.mean, expected.belief.mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.belief.cov, expected.belief.cov, atol=1e-5, rtol=0)
    assert (found.sites.precision[20:] < 1e-8).all()


@pytest.mark.parametrize("name", EXACT)
def test_moments_of_powers_are_those_of_quadrature(name):
    for mean, variance, count in itertools.product((-3.0, 0.4, 25.0), (1e-3, 0.5, 300.0), (0.01, 0.2, 1.0)):
        for target in (0.0, 1.0) if name != "poisson" else (0.0, 3.0, 400.0):
            parts = (torch.tensor([x]) for x in (mean, variance, target, count))
            ours = [x.item() for x in SITES[name].powered_moments(*parts)]

            def density(f, target=target, mean=mean, variance=variance, count=count):
                return count * LOG_LINKS[name](f, target) - 0.5 * (f - mean) ** 2 / variance

            first, second = grid_moments(density, ours[0], 60 * math.sqrt(ours[1]))
            assert abs(ours[0] - first) < 1e-6 * math.sqrt(second)
            assert abs(ours[1] / second - 1) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_the_mode_of_a_power_is_found_in_few_steps(name, dtype):
    """Also far from the mean: a Poisson rate there may be 1e26."""
    looked = []

    class Counted(type(SITES[name])):
        def derivatives(self, f, target):
            looked.append(f)
            return super().derivatives(f, target)

    targets = (0.0, 1.0) if name != "poisson" else (0.0, 3.0, 400.0)
    for values in itertools.product((-30.0, 0.4, 25.0, 60.0), (1e-3, 0.5, 300.0), targets, (1e-12, 0.2, 1.0)):
        looked.clear()
        first, second = Counted().powered_moments(*(torch.tensor([x], dtype=dtype) for x in values))
        assert len(looked) <= 42, values  # halving alone takes a hundred
        assert first.isfinite()
        assert second > 0


def test_moments_of_many_learners_are_those_of_each():
    """Under `vmap` no value ends the search for a mode."""
    rng = generator(0)
    mean, variance = torch.randn(3, 4, generator=rng), torch.rand(3, 4, generator=rng) + 0.1
    target = torch.ones(3, 4)
    together = torch.func.vmap(SITES["poisson"].moments)(mean, variance, target)
    for k in range(3):
        first, second = SITES["poisson"].moments(mean[k], variance[k], target[k])
        torch.testing.assert_close(together[0][k], first)
        torch.testing.assert_close(together[1][k], second)


def test_a_pass_takes_points_by_what_they_count_for():
    """As the first sweep does, and where some points have sites from which to go on."""
    prior, inputs, target = data("logistic")
    counts = torch.linspace(0.2, 1, len(inputs))
    first = EP(sweeps=1).fit(prior, inputs, target, counts=counts)
    pass_ = ADF().fit(prior, inputs, target, counts=counts)
    assert_same(first.belief.mean, pass_.belief.mean)
    half = ADF().fit(prior, inputs[:7], target[:7], counts=counts[:7])
    rest = ADF().fit(prior, inputs, target, half.sites, counts)
    assert_same(rest.belief.mean, pass_.belief.mean)
    precision = torch.linalg.inv(prior.cov) + inputs.T @ (pass_.sites.precision[:, None] * inputs)
    assert_same(pass_.belief.cov, torch.linalg.inv(precision))


@pytest.mark.parametrize("share", [1.0, 0.4])
@EVERY
def test_the_laplace_approximation_is_the_mode_and_its_curvature(name, share):
    prior, inputs, target = data(name, dim=3)
    counts = share ** torch.arange(float(len(inputs)))

    def log_joint(weights):
        likelihood = (counts * SITES[name].log_prob(inputs @ weights, target[:, 0])).sum()
        normal = torch.distributions.MultivariateNormal(prior.mean, prior.cov, validate_args=False)
        return likelihood + normal.log_prob(weights)

    found = Laplace(SITES[name]).fit(prior, inputs, target, counts=counts)
    assert found.converged
    assert_same(torch.func.grad(log_joint)(found.belief.mean), torch.zeros(3))
    assert_same(torch.linalg.inv(found.belief.cov), -torch.func.hessian(log_joint)(found.belief.mean))


def test_a_site_without_which_nothing_proper_is_left_is_skipped_until_there_is():
    prior = Gaussian(torch.zeros(1), torch.eye(1))
    inputs, target = torch.ones(2, 1), torch.tensor([[1.0], [0.0]])
    start = Sites(torch.tensor([3.0, -1.5]), torch.zeros(2))
    for schedule in ("sequential", "parallel"):
        assert EP(sweeps=1, schedule=schedule).fit(prior, inputs, target, start).skipped == 1
        found = EP(schedule=schedule, sweeps=100).fit(prior, inputs, target, start)
        assert found.converged
        assert found.skipped == 0
        expected = EP().fit(prior, inputs, target)
        torch.testing.assert_close(found.belief.mean, expected.belief.mean, atol=1e-5, rtol=0)


@EVERY
@pytest.mark.parametrize("method", [EP, ADF, Laplace])
def test_one_class_a_constant_context_repeated_points_and_no_points(name, method):
    prior = Gaussian(torch.zeros(3), 100.0 * torch.eye(3))
    for inputs in (torch.ones(30, 3), torch.zeros(30, 3), 1e3 * randn(30, 3), randn(1, 3).expand(30, 3)):
        found = method(SITES[name]).fit(prior, inputs, torch.ones(30, 1)).belief
        assert found.mean.isfinite().all()
        assert torch.linalg.eigvalsh(found.cov).min() > 0
        assert torch.linalg.eigvalsh(found.cov).max() < 100.0 + 1e-6
    nothing = method(SITES[name]).fit(prior, torch.zeros(0, 3), torch.zeros(0, 1)).belief
    assert_same(nothing.mean, prior.mean)
    assert_same(nothing.cov, prior.cov)


@pytest.mark.parametrize("method", [EP, ADF, Laplace])
def test_bad_data_are_refused(method):
    prior, inputs, target = data("logistic")
    with pytest.raises(ValueError, match=r"a label 0 or 1, got -1 at index \[0\]"):
        method().fit(prior, inputs, -torch.ones_like(target))
    with pytest.raises(ValueError, match=r"a count 0, 1, ..., got 0.5 at index \[0\]"):
        method(PoissonSite()).fit(prior, inputs, 0.5 + 0 * target)
    wrong = inputs.clone()
    wrong[3, 1] = torch.nan
    with pytest.raises(ValueError, match=r"expected finite inputs, got nan at index \[3, 1\]"):
        method().fit(prior, wrong, target)
    with pytest.raises(ValueError, match=r"expected finite targets, got nan at index \[0, 0\]"):
        method().fit(prior, inputs, torch.nan * target)
    with pytest.raises(ValueError, match="a target for each of 20 points, got 19"):
        method().fit(prior, inputs, target[1:])
    with pytest.raises(ValueError, match="expected 2 inputs, one for each weight, got 1"):
        method().fit(prior, inputs[:, :1], target)
    with pytest.raises(ValueError, match="at most 20 sites, one for each point, got 21"):
        method().fit(prior, inputs, target, Sites(torch.zeros(21), torch.zeros(21)))
    with pytest.raises(ValueError, match=r"a count for each of 20 points, got \(19,\)"):
        method().fit(prior, inputs, target, counts=torch.ones(19))
    for wrong in (-0.5, 1.5, math.nan):
        with pytest.raises(ValueError, match=f"counts from 0 to 1, got {wrong:g}"):
            method().fit(prior, inputs, target, counts=torch.full((20,), wrong))


def test_bad_settings_are_refused():
    for settings, match in (
        ({"sweeps": 0}, "sweeps to be at least 1"),
        ({"damping": 1.0}, "damping to be at least 0 and below 1"),
        ({"tolerance": math.nan}, "tolerance to be at least 0 and finite"),
        ({"schedule": "other"}, "schedule to be one of sequential, parallel, got 'other'"),
    ):
        with pytest.raises(ValueError, match=match):
            EP(**settings)
    with pytest.raises(ValueError, match="rule to be one of exact, mackay, got 'probit'"):
        LogisticSite("probit")


# FAB-COST.


def test_fab_cost_predicts_a_point_without_a_label_and_learns_nothing_from_it():
    _, inputs, target = data("logistic", points=3, dim=3)
    learner = fab_cost(nn.Linear(3, 1), at=(5,))
    before = learner.update(learner.init(), inputs[:2], target[:2])
    nothing = torch.tensor([[False]])
    after, prediction = learner.step(before, inputs[2:], torch.full((1, 1), math.nan), nothing)
    assert_same(after.belief.mean, before.belief.mean)
    assert_same(after.belief.cov, before.belief.cov)
    assert int(after.count) == len(after.rows) == 2
    assert_same(prediction.mean, learner.expect(before, inputs[2:]).mean)
    assert prediction.log_prob.item() == 0


def test_fab_cost_filters_between_the_steps_at_which_it_fits_all_data():
    _, inputs, target = data("logistic", points=12, dim=3)
    learner = fab_cost(nn.Linear(3, 1), variance=2.0, at=(5, 9), batch=EP())
    belief = learner.init()
    assert_same(learner.variances(belief), torch.full((4,), 2.0))
    rows = torch.cat([inputs, torch.ones(12, 1)], 1)
    prior = Gaussian(learner.mean, 2 * torch.eye(4))
    expected = prior
    for k in range(12):
        belief, prediction = learner.step(belief, inputs[k : k + 1], target[k : k + 1])
        probability = learner.predict(belief, inputs[k : k + 1]).mean
        assert ((probability - target[k]).abs() < (prediction.mean[0] - target[k]).abs()).all()
        expected = ADF().fit(expected, rows[k : k + 1], target[k : k + 1]).belief
        if k + 1 in (5, 9):
            expected = EP().fit(prior, rows[: k + 1], target[: k + 1]).belief
        torch.testing.assert_close(learner.weights(belief), expected.mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(belief.belief.cov, expected.cov, atol=1e-5, rtol=0)
        assert len(belief.rows) == (k + 1 if k + 1 < 9 else 0)  # kept as long as a fit lies ahead
    assert int(belief.count) == 12


def test_fab_cost_takes_what_is_observed_in_blocks():
    _, inputs, target = data("logistic", points=12, dim=3)
    learner = fab_cost(nn.Linear(3, 1), at=(), every=4, batch=Laplace())
    observed = torch.ones_like(target, dtype=torch.bool)
    observed[[2, 7]] = False
    belief = learner.update(learner.init(), inputs, torch.where(observed, target, torch.nan), observed)
    left = observed[:, 0]
    other = learner.update(learner.init(), inputs[left], target[left])
    assert_same(belief.belief.mean, other.belief.mean)
    assert len(belief.rows) == int(belief.count) == 10
    rows = torch.cat([inputs, torch.ones(12, 1)], 1)[left]
    expected = Laplace().fit(learner.init().belief, rows, target[left]).belief
    assert_same(belief.belief.cov, expected.cov)
    assert learner.sample(belief, 3, generator(0)).shape == (3, 4)


def test_points_that_leave_the_memory_keep_their_sites():
    """Their factors exp(linear f - precision f^2 / 2) multiply the prior, written out in natural parameters."""
    _, inputs, target = data("logistic", points=15, dim=2)
    learner = fab_cost(nn.Linear(2, 1), at=(), every=5, memory=4, batch=EP())
    belief = learner.init()
    rows = torch.cat([inputs, torch.ones(15, 1)], 1)
    precision, linear = torch.linalg.inv(belief.prior.cov), torch.linalg.inv(belief.prior.cov) @ belief.prior.mean
    left = 0
    for k in range(15):
        before = belief
        belief = learner.update(belief, inputs[k : k + 1], target[k : k + 1])
        assert torch.equal(belief.rows, rows[k + 1 - len(belief.rows) : k + 1])
        assert 4 <= len(belief.rows) < 8 or k < 4
        if k + 1 - len(belief.rows) > left:  # at 8 and 12: no fit came with it
            gone = k + 1 - len(belief.rows) - left
            x, tau, nu = before.rows[:gone], before.precision[:gone], before.linear[:gone]
            precision, linear, left = precision + x.T @ torch.diag(tau) @ x, linear + x.T @ nu, left + gone
            torch.testing.assert_close(torch.linalg.inv(belief.prior.cov), precision, atol=1e-8, rtol=0)
            torch.testing.assert_close(
                torch.linalg.solve(belief.prior.cov, belief.prior.mean), linear, atol=1e-8, rtol=0
            )
        if (k + 1) % 5 == 0:
            expected = EP().fit(belief.prior, belief.rows, target[k + 1 - len(belief.rows) : k + 1]).belief
            torch.testing.assert_close(belief.belief.mean, expected.mean, atol=1e-5, rtol=0)
    assert left == 8


@pytest.mark.parametrize("batch", [EP(), Laplace()], ids=["ep", "laplace"])
def test_points_of_a_fit_count_for_less_the_older_they_are(batch):
    """Also those whose sites are in the prior; at a fit nothing else is known of what came before."""
    _, inputs, target = data("logistic", points=16, dim=2)
    learner = fab_cost(nn.Linear(2, 1), at=(), every=4, memory=5, batch=batch)
    learner = dataclasses.replace(learner, weight_drift=BayesianForgetting(0.1))
    belief, rows = learner.init(), torch.cat([inputs, torch.ones(16, 1)], 1)
    first = torch.linalg.inv(belief.prior.cov)
    for k in range(16):
        belief = learner.drift(belief, 1.0)
        before = belief
        belief = learner.update(belief, inputs[k : k + 1], target[k : k + 1])
        kept = len(belief.rows)
        assert_same(belief.counts, 0.9 ** torch.arange(kept - 1.0, -1, -1))
        scaled = belief.rows.T @ (belief.precision[:, None] * belief.rows)
        sites = torch.linalg.inv(belief.belief.cov) - torch.linalg.inv(belief.prior.cov)
        torch.testing.assert_close(sites, scaled, atol=1e-8, rtol=0)  # the belief is the prior times what is left
        if kept < len(before.rows) + 1:
            gone = len(before.rows) + 1 - kept
            x, tau = before.rows[:gone], before.precision[:gone]
            expected = torch.linalg.inv(before.prior.cov) + x.T @ (tau[:, None] * x)
            torch.testing.assert_close(torch.linalg.inv(belief.prior.cov), expected, atol=1e-8, rtol=0)
        if k % 4 == 3:
            old = rows[k + 1 - kept : k + 1], target[k + 1 - kept : k + 1]
            again = batch.fit(belief.prior, *old, counts=0.9 ** torch.arange(kept - 1.0, -1, -1)).belief
            torch.testing.assert_close(belief.belief.mean, again.mean, atol=1e-5, rtol=0)
    absorbed = torch.linalg.inv(belief.prior.cov) - first
    left = learner.forget(belief, 0.5)
    torch.testing.assert_close(torch.linalg.inv(left.prior.cov) - first, 0.5 * absorbed, atol=1e-8, rtol=0)
    torch.testing.assert_close(left.counts, 0.5 * belief.counts)


def test_what_fab_cost_cannot_do_says_so():
    learner = fab_cost(nn.Linear(3, 1))
    belief = learner.init()
    with pytest.raises(ValueError, match="a linear network with one output"):
        fab_cost(nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(ValueError, match=r"expected positive steps, got at=\(0,\), every=0 and memory=0"):
        fab_cost(nn.Linear(3, 1), at=(0,))
    with pytest.raises(ValueError, match=r"Bayesian forgetting or no drift, .* got Wiener"):
        dataclasses.replace(learner, weight_drift=Wiener(0.1))
    with pytest.raises(ValueError, match="a learner that can grow"):
        learner.adopt(learner, belief)
    with pytest.raises(ValueError, match="points that count once"):
        learner.update(belief, torch.ones(1, 3), torch.ones(1, 1), counts=torch.ones(1))
    with pytest.raises(ValueError, match="expected finite inputs"):
        learner.update(belief, torch.full((1, 3), math.nan), torch.ones(1, 1))
    assert int(belief.count) == 0
    assert learner.drift(belief, 3.0) is belief
