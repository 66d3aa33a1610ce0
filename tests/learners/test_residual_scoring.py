"""Factors and scores at an optimum that is found by quadrature, in closed form, or by a fit of the library."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

from tsforecast.learners import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Diagonal,
    GaussianLikelihood,
    Independent,
)
from tsforecast.learners.evidence.gauss_newton import conjugate_gradients
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.memory import variational_fit
from tsforecast.learners.memory.residual_scoring import Factors, corrected, factors_of, residuals, scores, without
from tsforecast.learners.memory.variational_fit import AdamFit, LinearisedFit, Problem
from tsforecast.learners.networks.layer_chain import as_network

pytestmark = pytest.mark.usefixtures("float64")


def logistic():
    """Two weights and six labels: x' w is the logit."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, 2, generator=generator)
    label = torch.tensor([1.0, 1.0, -1.0, 1.0, -1.0, -1.0])
    return inputs * label.unsqueeze(-1)


NODES, SHARES = (torch.tensor(x) for x in np.polynomial.hermite_e.hermegauss(60))
SHARES = SHARES / SHARES.sum()


def grid(mean, variance):
    """Nodes and shares of a Gaussian with two independent weights."""
    places = torch.stack(torch.meshgrid(NODES, NODES, indexing="ij"), -1).flatten(0, 1)
    return mean + variance.sqrt() * places, (SHARES[:, None] * SHARES).flatten()


def expected(parameters, rows):
    """E_q[log p_n] of each point, by quadrature; parameters are means and variances."""
    mean, variance = parameters[:2], parameters[2:]
    draws, share = grid(mean, variance)
    return share @ nn.functional.logsigmoid(draws @ rows.T)


def optimum(prior, rows):
    """The best mean and variance, and the bound there: by SciPy, with gradients by autograd."""

    def bound(free):
        mean, variance = free[:2], free[2:].exp()
        divergence = variance / prior.variance + (mean - prior.mean).square() / prior.variance
        divergence = 0.5 * (divergence - 1 - variance.log() + prior.variance.log()).sum()
        return expected(torch.cat([mean, variance]), rows).sum() - divergence

    def loss(values):
        free = torch.tensor(values, requires_grad=True)
        value = -bound(free)
        return value.item(), torch.autograd.grad(value, free)[0].numpy()

    found = minimize(loss, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-11})
    free = torch.tensor(found.x)
    return Independent(free[:2], free[2:].exp()), bound(free)


def at_optimum():
    rows = logistic()
    prior = Independent(torch.tensor([0.3, -0.2]), torch.tensor([2.0, 0.7]))
    fitted, bound = optimum(prior, rows)
    jacobian = torch.func.jacrev(lambda p: expected(p, rows))(torch.cat([fitted.mean, fitted.variance]))
    return rows, prior, fitted, bound, factors_of(jacobian[:, :2], -2 * jacobian[:, 2:], fitted.mean)


def natural(belief):
    return belief.mean / belief.variance, 1 / belief.variance


def test_factors_at_an_optimum_sum_to_what_the_fit_gained():
    _, prior, fitted, _, factors = at_optimum()
    for parts, after, before in zip((factors.linear, factors.precision), natural(fitted), natural(prior), strict=True):
        torch.testing.assert_close(parts.sum(0), after - before, rtol=0, atol=1e-6)


def test_the_bound_is_the_normaliser_and_the_scores():
    rows, prior, fitted, bound, factors = at_optimum()
    draws, share = grid(fitted.mean, fitted.variance)
    log_prob = nn.functional.logsigmoid(draws @ rows.T)
    score = scores("grs", factors, fitted.mean, draws, log_prob, log_prob[0], share)

    def log_z(belief):
        linear, precision = natural(belief)
        return (0.5 * math.log(2 * math.pi) - 0.5 * precision.log() + 0.5 * linear**2 / precision).sum()

    torch.testing.assert_close(bound, log_z(fitted) - log_z(prior) + score.sum(), rtol=0, atol=1e-6)


def test_what_is_corrected_takes_the_prior_to_the_fit_and_only_points_that_count_change():
    _, prior, fitted, _, factors = at_optimum()
    noise = torch.randn(6, 2, generator=torch.Generator().manual_seed(1))
    wrong = Factors(factors.linear + noise, factors.precision - noise)
    counting = torch.tensor([True, False, True, True, True, True])
    found = corrected(wrong, prior, fitted, counting)
    torch.testing.assert_close(found.linear[1], wrong.linear[1])
    torch.testing.assert_close(found.precision.sum(0), 1 / fitted.variance - 1 / prior.variance, rtol=0, atol=1e-8)
    change = natural(fitted)[0] - natural(prior)[0]
    torch.testing.assert_close(found.linear.sum(0), change, rtol=0, atol=1e-8)


@pytest.mark.parametrize("place", [0.0, 1.5])
def test_gaussian_likelihoods_have_a_centred_score_and_a_variance_of_zero(place):
    """Of a linear network with two weights at every Gaussian q; the published score is no constant of it."""
    generator = torch.Generator().manual_seed(2)
    inputs, target = torch.randn(5, 2, generator=generator), torch.randn(5, generator=generator)
    mean, variance = torch.tensor([0.4, -1.0]) + place, torch.tensor([0.3, 0.1])
    residual = target - inputs @ mean
    factors = factors_of(residual[:, None] * inputs, inputs.square(), mean)
    draws, share = grid(mean, variance)

    def log_prob(weights):
        return -0.5 * (target - weights @ inputs.T).square() - 0.5 * math.log(2 * math.pi)

    def score(kind):
        return scores(kind, factors, mean, draws, log_prob(draws), log_prob(mean), share)

    torch.testing.assert_close(score("centred"), torch.zeros(5), rtol=0, atol=1e-10)
    cross = (inputs[:, 0] * inputs[:, 1]).square() * variance.prod()  # what independent weights can not describe
    torch.testing.assert_close(score("residual_variance"), cross, rtol=0, atol=1e-10)
    assert score("grs").std() > 0.1


def test_a_likelihood_of_one_weight_is_what_it_is_at_zero():
    """The published score of a Gaussian term is log p(y | w = 0), wherever q lies."""
    target, mean, variance = torch.tensor([1.0, -3.0]), torch.tensor([0.7]), torch.tensor([0.2])
    factors = factors_of((target - mean)[:, None], torch.ones(2, 1), mean)
    draws = mean + variance.sqrt() * NODES[:, None]
    log_prob = -0.5 * (target - draws).square()
    found = scores("grs", factors, mean, draws, log_prob, log_prob[0], SHARES)
    torch.testing.assert_close(found, -0.5 * target.square(), rtol=0, atol=1e-10)
    torch.testing.assert_close(residuals(factors, torch.zeros(1, 1), -0.5 * target[None] ** 2)[0], found)


@pytest.mark.parametrize("kept", list(itertools.islice(itertools.product([True, False], repeat=6), 0, 64, 9)))
def test_adding_the_others_is_subtracting_what_is_kept(kept):
    _, prior, fitted, _, factors = at_optimum()
    factors = corrected(factors, prior, fitted)
    kept, floor = torch.tensor(kept), torch.full((2,), 1e-9)
    one, two = (without(kept, factors, prior, fitted, adding, floor) for adding in (True, False))
    torch.testing.assert_close((one.mean, one.variance), (two.mean, two.variance), rtol=1e-8, atol=1e-8)
    if not any(kept):
        torch.testing.assert_close((one.mean, one.variance), (fitted.mean, fitted.variance), rtol=1e-8, atol=1e-8)
    if all(kept):
        torch.testing.assert_close((one.mean, one.variance), (prior.mean, prior.variance), rtol=1e-8, atol=1e-8)


def test_precisions_stay_at_the_floor_where_too_much_would_be_taken():
    before = Independent(torch.zeros(2), torch.ones(2))
    fitted = Independent(torch.tensor([0.5, 2.0]), torch.tensor([0.5, 0.5]))
    factors = Factors(torch.tensor([[1.0, 1.0]]), torch.tensor([[0.5, 3.0]]))
    found = without(torch.tensor([True]), factors, before, fitted, False, torch.full((2,), 0.01))
    torch.testing.assert_close(found.variance, torch.tensor([1 / 1.5, 100.0]))
    torch.testing.assert_close(found.mean, torch.tensor([0.0, 2.0]))


def test_an_unknown_score_is_refused():
    with pytest.raises(ValueError, match="expected score to be one of grs, centred, residual_variance, got 'x'"):
        scores(
            "x",
            Factors(torch.zeros(1, 1), torch.zeros(1, 1)),
            torch.zeros(1),
            torch.zeros(1, 1),
            torch.zeros(1, 1),
            torch.zeros(1),
        )


# The fits of the library.


def problem(likelihood):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(12, 2, generator=generator)
    target = inputs.sum(-1, keepdim=True)
    target = (target > 0).double() if isinstance(likelihood, BernoulliLikelihood) else target
    layer = nn.Linear(2, 1, bias=False)
    return Model(as_network(layer), likelihood, Diagonal()), Points.of(inputs, target, None)


def test_a_linearised_fit_of_a_linear_model_is_the_variational_optimum():
    """Mean of the exact posterior, precisions of its diagonal (Bishop 2006, section 10.1.2); factors sum up."""
    model, points = problem(GaussianLikelihood(0.5))
    prior = Independent(torch.tensor([0.2, -0.1]), torch.tensor([1.0, 3.0]))
    fit = LinearisedFit(1)
    fitted = fit(Problem(model, prior, prior, points, torch.tensor(True)))
    precision = torch.diag(1 / prior.variance) + points.inputs.T @ points.inputs / 0.5
    linear = prior.mean / prior.variance + points.inputs.T @ points.target[:, 0] / 0.5
    torch.testing.assert_close(fitted.mean, torch.linalg.solve(precision, linear), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fitted.variance, 1 / precision.diagonal(), rtol=1e-8, atol=1e-8)
    terms = fit.with_terms(Problem(model, prior, prior, points, torch.tensor(True)))
    factors = factors_of(terms.gradient, terms.precision, fitted.mean)
    change = natural(fitted)[0] - natural(prior)[0]
    torch.testing.assert_close(factors.linear.sum(0), change, rtol=1e-8, atol=1e-8)


def test_gauss_newton_steps_do_not_overshoot():
    """Labels that one line separates, and a start far away: the density never falls, and its gradient vanishes."""
    model, points = problem(BernoulliLikelihood())
    prior = Independent(torch.zeros(2), torch.full((2,), 100.0))

    def density(weights):
        return model.log_prob(weights, points) - 0.5 * (weights.square() / prior.variance).sum()

    start, last = Independent(torch.tensor([-8.0, 9.0]), prior.variance), -math.inf
    for passes in (1, 2, 4, 8, 40):
        mean = LinearisedFit(passes, 0.0)(Problem(model, prior, start, points, torch.tensor(True))).mean
        assert density(mean) >= last
        last = density(mean)
    assert torch.func.grad(density)(mean).abs().max() < 1e-4


def test_steps_by_products_are_those_of_the_jacobian(monkeypatch):
    """Three classes, points that count as they like, and one whose class is missing; in parts of four points."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(11, 2, generator=generator)
    target = torch.arange(11.0).remainder(3).unsqueeze(-1)
    observed = (torch.arange(11) != 4).unsqueeze(-1)
    network = as_network(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)))
    points = Points.of(inputs, target, observed, 0.5 + torch.rand(11, generator=generator))
    size = 27
    prior = Independent(torch.randn(size, generator=generator), 0.2 + torch.rand(size, generator=generator))
    asked = Problem(Model(network, CategoricalLikelihood(), Diagonal()), prior, prior, points, torch.tensor(True))
    whole = LinearisedFit(40, 0.0).with_terms(asked)
    monkeypatch.setattr(variational_fit, "_LARGE", 4 * 3 * size)
    parts = LinearisedFit(40, 0.0).with_terms(asked)
    for one, other in ((parts.belief, whole.belief), (LinearisedFit(40, 0.0)(asked), whole.belief)):
        torch.testing.assert_close(one.mean, other.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(one.variance, other.variance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(parts.gradient, whole.gradient, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(parts.precision, whole.precision, rtol=1e-5, atol=1e-6)


def test_conjugate_gradients_solve():
    root = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    matrix, right = root @ root.T + torch.eye(6), torch.arange(6.0)
    found = conjugate_gradients(lambda x: matrix @ x, right, torch.zeros(6))
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=0.01, atol=0.02)
    torch.testing.assert_close(conjugate_gradients(lambda x: matrix @ x, 0 * right, 0 * right), 0 * right)


def test_adam_comes_to_the_optimum_and_its_terms_are_unbiased():
    """Oracle: quadrature. The optimum within Monte Carlo error; terms within five standard errors of ten estimates."""
    rows, prior, best, _, exact = at_optimum()
    model = Model(as_network(nn.Linear(2, 1, bias=False)), BernoulliLikelihood(), Diagonal())
    points = Points.of(rows, torch.ones(6, 1), None)
    fit = AdamFit(iterations=400, draws=200, term_draws=4000, rate=0.05)
    generator = torch.Generator().manual_seed(4)
    fitted = fit(Problem(model, prior, prior, points, torch.tensor(False)), generator)
    assert ((fitted.mean - best.mean) / best.variance.sqrt()).abs().max() < 0.03
    assert (fitted.variance / best.variance).log().abs().max() < 0.06
    found = torch.stack([torch.stack(fit.terms(model, best, points, generator)) for _ in range(10)])
    error = found.std(0) / math.sqrt(10)
    gradient = exact.linear - exact.precision * best.mean
    assert ((found.mean(0) - torch.stack([gradient, exact.precision])).abs() < 5 * error).all()


@pytest.mark.parametrize("adding", [True, False])
def test_a_weight_that_is_known_by_the_memory_alone_gets_the_floor_and_the_mean_of_the_fit(adding):
    """Of two weights, whose precisions without the memory are .3 and .001; the floor is .01."""
    before = Independent(torch.tensor([1.0, 1.0]), torch.tensor([10.0, 10.0]))
    factors = Factors(torch.tensor([[0.5, -3.0], [2.0, 6.0]]), torch.tensor([[0.2, -0.099], [4.0, 5.0]]))
    precision = 0.1 + factors.precision.sum(0)
    fitted = Independent((0.1 + factors.linear.sum(0)) / precision, 1 / precision)
    found = without(torch.tensor([False, True]), factors, before, fitted, adding, torch.full((2,), 0.01))
    torch.testing.assert_close(found.variance, torch.tensor([1 / 0.3, 100.0]))
    torch.testing.assert_close(found.mean, torch.stack([torch.tensor(0.6 / 0.3), fitted.mean[1]]))
