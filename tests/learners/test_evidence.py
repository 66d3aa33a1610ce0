"""What an observation says about the weights: likelihoods, linearised, sampled and moment-matched; and predictions."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from torch import nn

from tests.learners.dense import (
    assert_belief,
    assert_same,
    bayes,
    jacobian_of,
    kalman,
    mlp,
    moments,
    outputs_of,
    randn,
    vector_of,
)
from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian as Normal
from tsforecast.learners import (
    LOFI,
    BernoulliLikelihood,
    CategoricalLikelihood,
    Diagonal,
    EmpiricalFisher,
    GaussianLikelihood,
    MomentMatched,
    MonteCarloHessian,
    PoissonLikelihood,
    adf,
    bong,
    ekf,
    vd_ekf,
)
from tsforecast.learners.evidence.moment_matching import logistic_moments, mackay_moments, probit_moments
from tsforecast.learners.evidence.pseudo_observation import Model, Near, Points
from tsforecast.learners.loop import run
from tsforecast.learners.networks.layer_chain import as_network

pytestmark = pytest.mark.usefixtures("float64")

POINTS, OUTPUTS, WEIGHTS = 5, 3, 7


def likelihood_of(name: str, outputs: int = OUTPUTS):
    """The likelihood, targets that come from it, and its log-density for one point, written with torch's own."""
    rng = generator(1)
    if name.startswith("gaussian"):
        noise = {
            "gaussian-number": 0.7,
            "gaussian-tensor": torch.tensor(0.7),
            "gaussian-vector": 0.5 + torch.rand(outputs, generator=rng),
            "gaussian-matrix": random_covariance((), outputs, rng),
        }[name]
        cov = torch.as_tensor(noise)
        cov = cov if cov.ndim == 2 else torch.diag(cov.expand(outputs))
        normal = lambda f: torch.distributions.MultivariateNormal(f, cov, validate_args=False)  # noqa: E731
        return (
            GaussianLikelihood(noise),
            torch.randn(POINTS, outputs, generator=rng),
            lambda f, y: normal(f).log_prob(y),
        )
    if name == "bernoulli":
        target = torch.randint(0, 2, (POINTS, outputs), generator=rng).double()
        return BernoulliLikelihood(), target, lambda f, y: -nn.functional.softplus((1 - 2 * y) * f).sum()
    if name == "poisson":
        target = torch.randint(0, 4, (POINTS, outputs), generator=rng).double()
        return (
            PoissonLikelihood(),
            target,
            lambda f, y: torch.distributions.Poisson(f.exp(), validate_args=False).log_prob(y).sum(),
        )
    target = torch.randint(0, outputs, (POINTS, 1), generator=rng).double()
    chosen = CategoricalLikelihood(smoothing=0.0)
    # One-hot without indexing by what `vmap` has mapped.
    pick = lambda y: (torch.arange(outputs) == y).double()  # noqa: E731
    return chosen, target, lambda f, y: (f.log_softmax(-1) * pick(y)).sum()


LIKELIHOODS = [
    "gaussian-number",
    "gaussian-tensor",
    "gaussian-vector",
    "gaussian-matrix",
    "bernoulli",
    "poisson",
    "categorical",
]
EVERY = pytest.mark.parametrize("name", LIKELIHOODS)


# Linearised likelihoods.


@EVERY
def test_the_whitened_rows_have_the_curvature_and_gradient_of_the_log_likelihood(name):
    """Oracle: J' (-Hess) J and J' grad by automatic differentiation of torch's own log-densities."""
    likelihood, target, log_prob = likelihood_of(name)
    outputs, jacobian = randn(POINTS, OUTPUTS, seed=2), randn(POINTS, OUTPUTS, WEIGHTS, seed=3)
    matrix, residual = likelihood.whiten(outputs, jacobian, target, None)
    curvature = -torch.func.vmap(torch.func.hessian(log_prob))(outputs, target)
    gradient = torch.func.vmap(torch.func.grad(log_prob))(outputs, target)
    assert_same(matrix.mT @ matrix, jacobian.mT @ curvature @ jacobian)
    assert_same((matrix.mT @ residual.unsqueeze(-1))[..., 0], (jacobian.mT @ gradient.unsqueeze(-1))[..., 0])


@EVERY
def test_log_likelihoods_and_their_first_two_derivatives_are_those_of_torch(name):
    likelihood, target, log_prob = likelihood_of(name)
    outputs = randn(POINTS, OUTPUTS, seed=2)
    assert_same(likelihood.log_prob(outputs, target, None), torch.func.vmap(log_prob)(outputs, target))
    ours = lambda f, y: likelihood.log_prob(f[None], y[None], None)[0]  # noqa: E731
    for derivative in (torch.func.grad, torch.func.hessian):
        assert_same(
            torch.stack([derivative(ours)(f, y) for f, y in zip(outputs, target, strict=True)]),
            torch.func.vmap(derivative(log_prob))(outputs, target),
        )


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_factor_of_the_categorical_curvature(classes):
    """B B' = diag(p) - p p' and B e = y - p, with B found by an identity as the Jacobian."""
    outputs, target = 2 * randn(1, classes), torch.tensor([[1.0]])
    p = outputs[0].softmax(-1)
    one_hot = torch.eye(classes)[1]
    matrix, residual = CategoricalLikelihood(smoothing=0.0).whiten(outputs, torch.eye(classes)[None], target, None)
    factor = matrix[0].T
    assert_same(factor @ factor.T, torch.diag(p) - torch.outer(p, p))
    assert_same(factor @ residual[0], one_hot - p)
    matrix, residual = CategoricalLikelihood(smoothing=0.2).whiten(outputs, torch.eye(classes)[None], target, None)
    smooth = 0.8 * p + 0.2 / classes
    assert_same(matrix[0].T @ matrix[0], torch.diag(smooth) - torch.outer(smooth, smooth))
    assert_same(matrix[0].T @ residual[0], one_hot - p)
    matrix, residual = CategoricalLikelihood(jitter=0.1).whiten(outputs, torch.eye(classes)[None], target, None)
    exact = torch.diag(p) - torch.outer(p, p)
    damped = exact @ torch.linalg.inv(exact + 0.1 * torch.eye(classes))
    assert_same(matrix[0].T @ matrix[0], damped @ exact)
    assert_same(matrix[0].T @ residual[0], damped @ (one_hot - p))


def test_a_categorical_update_is_that_of_the_information_form():
    """Lam + J' (diag(p) - p p') J, on a bent network."""
    module, inputs = mlp(2, 3, 4), randn(1, 2)
    learner = ekf(module, CategoricalLikelihood(smoothing=0.0), 0.4)
    weights = vector_of(module)
    p, rows = outputs_of(module, weights, inputs)[0].softmax(-1), jacobian_of(module, weights, inputs)[0]
    precision = torch.eye(len(weights)) / 0.4 + rows.T @ (torch.diag(p) - torch.outer(p, p)) @ rows
    mean = weights + torch.linalg.solve(precision, rows.T @ (torch.eye(4)[2] - p))
    assert_belief(learner.update(learner.init(), inputs, torch.tensor([[2.0]])), mean, torch.linalg.inv(precision))


def test_the_published_form_with_jitter_observes_probabilities():
    """An observation of y by the Jacobian of the softmax, with noise diag(p) - p p' + jitter I."""
    module, inputs = mlp(2, 3, 4), randn(1, 2)
    learner = ekf(module, CategoricalLikelihood(jitter=1e-2), 0.4)
    weights = vector_of(module)
    p, rows = outputs_of(module, weights, inputs)[0].softmax(-1), jacobian_of(module, weights, inputs)[0]
    spread = torch.diag(p) - torch.outer(p, p)
    expected = kalman(
        weights, 0.4 * torch.eye(len(weights)), spread @ rows, spread + 1e-2 * torch.eye(4), torch.eye(4)[2] - p
    )
    assert_belief(learner.update(learner.init(), inputs, torch.tensor([[2.0]])), *expected)


def test_two_classes_are_a_bernoulli_of_the_difference_of_their_logits():
    """Oracle: the update of the logit's difference by hand; the Bernoulli learner comes to the same from one output."""
    module, inputs = nn.Linear(3, 2, bias=False), randn(1, 3)
    learner = ekf(module, CategoricalLikelihood(smoothing=0.0), 0.4)
    weights = vector_of(module)
    row = jacobian_of(module, weights, inputs)[0, 1] - jacobian_of(module, weights, inputs)[0, 0]
    p = torch.sigmoid(row @ weights)
    root = (p * (1 - p)).sqrt()
    expected = bayes(weights, 0.4 * torch.eye(6), (root * row)[None], torch.eye(1), ((1 - p) / root)[None])
    assert_belief(learner.update(learner.init(), inputs, torch.tensor([[1.0]])), *expected)
    single = nn.Linear(3, 1, bias=False)
    difference = module.weight[1] - module.weight[0]
    one = ekf(single, BernoulliLikelihood(), 0.8, mean=difference.detach())
    belief = one.update(one.init(), inputs, torch.tensor([[1.0]]))
    into = torch.cat([-torch.eye(3), torch.eye(3)], 1)
    assert_belief(belief, into @ expected[0], into @ expected[1] @ into.T)


@pytest.mark.parametrize("name", LIKELIHOODS[:6])
def test_missing_components_are_rows_left_out(name):
    """Oracle: the Gauss-Newton update of the observed components alone; what stands elsewhere is not read."""
    likelihood, target, _ = likelihood_of(name)
    observed = torch.rand(POINTS, OUTPUTS, generator=generator(5)) > 0.4
    assert not observed.all(1).any() or observed.any()
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    weights = vector_of(module)
    outputs, jacobian = outputs_of(module, weights, inputs), jacobian_of(module, weights, inputs)
    precision, score = torch.eye(len(weights)) / 0.4, torch.zeros(len(weights))
    for k in range(POINTS):
        seen, f, y = observed[k], outputs[k][observed[k]], target[k][observed[k]]
        if name.startswith("gaussian"):
            noise = torch.as_tensor(likelihood.noise)
            noise = noise if noise.ndim == 2 else torch.diag(noise.expand(OUTPUTS))
            curvature = torch.linalg.inv(noise[seen][:, seen])
            slope = curvature @ (y - f)
        else:
            mean = f.exp() if name == "poisson" else torch.sigmoid(f)
            curvature, slope = torch.diag(mean if name == "poisson" else mean * (1 - mean)), y - mean
        rows = jacobian[k][seen]
        precision, score = precision + rows.T @ curvature @ rows, score + rows.T @ slope
    learner = ekf(module, likelihood, 0.4)
    junk = torch.where(observed, target, torch.nan)
    belief = learner.update(learner.init(), inputs, junk, observed)
    assert_belief(belief, weights + torch.linalg.solve(precision, score), torch.linalg.inv(precision))


@EVERY
def test_a_missing_class_or_point_is_left_out(name):
    likelihood, target, _ = likelihood_of(name)
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    observed = torch.ones_like(target, dtype=torch.bool)
    observed[[1, 4]] = False
    learner = ekf(module, likelihood, 0.4)
    belief = learner.update(learner.init(), inputs, torch.where(observed, target, torch.nan), observed)
    left = [0, 2, 3]
    weights, (matrix, residual) = vector_of(module), rows_of(likelihood, module, inputs[left], target[left])
    assert_belief(belief, *bayes(weights, 0.4 * torch.eye(len(weights)), matrix, torch.eye(len(matrix)), residual))


def rows_of(likelihood, module, inputs, target):
    """All whitened rows; that they are right is tested above."""
    weights = vector_of(module)
    outputs, jacobian = outputs_of(module, weights, inputs), jacobian_of(module, weights, inputs)
    matrix, residual = likelihood.whiten(outputs, jacobian, target, None)
    return matrix.flatten(0, 1), residual.flatten()


@EVERY
@pytest.mark.parametrize("evidence", ["linearised", "linearised-fisher", "empirical-fisher", "hessian"])
def test_what_stands_where_nothing_is_observed_is_not_read(name, evidence):
    """Bit for bit, in belief and score, for every kind of evidence."""
    likelihood, target, _ = likelihood_of(name)
    observed = torch.rand(*target.shape, generator=generator(5)) > 0.5
    assert observed.any()
    assert not observed.all()
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    learner = bong(module, likelihood, 0.01, evidence=evidence)
    results = []
    for junk in (torch.nan, math.inf, 1e30, 1.0):
        filled = torch.where(observed, target, junk)
        results.append(learner.step(learner.init(), inputs, filled, observed, generator=generator(0)))
    for belief, prediction in results:
        assert torch.equal(belief.mean, results[0][0].mean)
        assert torch.equal(belief.cov, results[0][0].cov)
        assert torch.equal(prediction.log_prob, results[0][1].log_prob)
        assert prediction.log_prob.isfinite().all()
    assert not torch.equal(results[0][0].mean, learner.init().mean)
    nothing = torch.zeros_like(observed)
    belief, prediction = learner.step(learner.init(), inputs, target, nothing, generator=generator(0))
    assert_belief(belief, *moments(learner.init()))
    assert (prediction.log_prob == 0).all()


@EVERY
def test_points_of_a_block_are_stacked(name):
    """Linearised once, at the mean before all of them."""
    likelihood, target, _ = likelihood_of(name)
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    learner = ekf(module, likelihood, 0.4)
    weights, (matrix, residual) = vector_of(module), rows_of(likelihood, module, inputs, target)
    expected = bayes(weights, 0.4 * torch.eye(len(weights)), matrix, torch.eye(len(matrix)), residual)
    assert_belief(learner.update(learner.init(), inputs, target), *expected)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["bernoulli", "categorical", "smoothed", "poisson"])
def test_what_was_held_impossible_gives_a_finite_update(name, sign):
    """Logits and log-rates of up to 800, of which the probabilities are 0 and 1."""
    likelihood = CategoricalLikelihood() if name == "smoothed" else likelihood_of(name)[0]
    outputs, width = (
        sign * torch.tensor([[800.0, 30.0, -800.0]]),
        1 if isinstance(likelihood, CategoricalLikelihood) else 3,
    )
    for target in (0.0, 1.0, 2.0):
        matrix, residual = likelihood.whiten(outputs, torch.eye(3)[None], torch.full((1, width), target), None)
        mean, cov = kalman(torch.zeros(3), torch.eye(3), matrix[0], torch.eye(3), residual[0])
        assert mean.isfinite().all()
        assert torch.linalg.eigvalsh(cov).min() > -1e-9


# Moment matching.


def log_logistic(x):
    return -np.logaddexp(0, -x)


def quadrature(mean: float, variance: float, label: int, log_link) -> tuple[float, float]:
    """Of N(f; mean, variance) link(label f), between where it is e^-45 of its largest value."""
    sd = math.sqrt(variance)
    log_density = lambda f: log_link(label * f) - 0.5 * (f - mean) ** 2 / variance  # noqa: E731
    wide = np.linspace(mean - 40 * sd, mean + 40 * sd, 4001)
    values = log_density(wide)
    peak, top = wide[values.argmax()], values.max()
    inside = wide[values > top - 45]
    low, high = inside[0] - 0.02 * sd, inside[-1] + 0.02 * sd
    breaks = [peak, *(x for x in (0.0,) if low < x < high)]

    def integral(power: int, centre: float = 0.0) -> float:
        weight = lambda f: (f - centre) ** power * np.exp(log_density(f) - top)  # noqa: E731
        return scipy.integrate.quad(
            weight, low, high, points=breaks, epsabs=1e-11 * sd**power, epsrel=1e-10, limit=500
        )[0]

    mass = integral(0)
    matched = integral(1, mean) / mass + mean
    return matched, integral(2, matched) / mass


MEANS = [-30.0, -10.0, -3.0, -0.5, 0.0, 0.5, 3.0, 10.0, 30.0]
VARIANCES = [1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 31.6, 100.0, 1e3, 1e4]


@pytest.mark.parametrize("label", [-1, 1])
@pytest.mark.parametrize(
    ("matched", "log_link"),
    [(logistic_moments, log_logistic), (probit_moments, scipy.special.log_ndtr)],
    ids=["logistic", "probit"],
)
def test_moments_of_a_logit_given_a_label_are_those_of_quadrature(matched, log_link, label):
    """In units of the matched standard deviation, over means and variances of all sizes."""
    mean, variance = torch.cartesian_prod(torch.tensor(MEANS), torch.tensor(VARIANCES)).unbind(-1)
    ours = matched(mean, variance, torch.full_like(mean, label))
    theirs = [quadrature(m, v, label, log_link) for m, v in zip(mean.tolist(), variance.tolist(), strict=True)]
    first, second = torch.tensor(theirs).unbind(-1)
    assert_same((ours[0] - first) / second.sqrt(), torch.zeros_like(first))
    assert_same(ours[1] / second, torch.ones_like(first))


@pytest.mark.parametrize("label", [-1, 1])
def test_moments_of_a_logit_of_huge_variance_are_those_of_a_half_line(label):
    """Oracle: the sigmoid as a step at 0 and -pi^2 / 6 delta', which is what else it is beside a wide Gaussian."""
    variance = torch.logspace(5, 38, 34)
    place = torch.linspace(-3, 3, 34)[torch.randperm(34, generator=generator(0))]
    matched, left = logistic_moments(label * place * variance.sqrt(), variance, torch.full_like(place, label))
    a = place.numpy()
    below, density, bend = scipy.stats.norm.cdf(a), scipy.stats.norm.pdf(a), -(math.pi**2) / 6 / variance.numpy()
    mass = below + bend * a * density
    first = (a * below + density + bend * density) / mass
    second = ((1 + a**2) * below + a * density) / mass
    assert_same(label * matched / variance.sqrt(), first)
    assert_same(left / variance, second - first**2)


@pytest.mark.parametrize("label", [-1, 1])
def test_the_approximation_of_mackay_is_near_and_never_widens(label):
    """Its mean is within 0.1 standard deviations for variances up to 1 where the label is no great surprise."""
    mean, variance = torch.cartesian_prod(torch.linspace(-30, 30, 41), torch.tensor(VARIANCES)).unbind(-1)
    matched, left = mackay_moments(mean, variance, torch.full_like(mean, label))
    assert (left <= variance).all()
    assert (left > 0).all()
    shrink = (1 + math.pi * variance / 8).rsqrt()
    log_mass = lambda a: nn.functional.logsigmoid(label * shrink * a)  # noqa: E731
    slope = torch.func.grad(lambda a: log_mass(a).sum())
    assert_same(matched, mean + variance * slope(mean))
    assert_same(left, variance + variance.square() * torch.func.grad(lambda a: slope(a).sum())(mean))
    near = (variance <= 1) & (label * mean >= -3)
    pairs = zip(mean[near].tolist(), variance[near].tolist(), strict=True)
    exact = [quadrature(m, v, label, log_logistic)[0] for m, v in pairs]
    assert ((matched[near] - torch.tensor(exact)).abs() < 0.1 * variance[near].sqrt()).all()


@pytest.mark.parametrize("link", ["logistic", "probit", "mackay"])
@pytest.mark.parametrize("label", [0, 1])
def test_an_assumed_density_step_conditions_on_a_site(link, label):
    """On (h', 1/tau, nu/tau - h'm); in moments, m + S h (m1 - a) / s2 and S - S h h' S (s2 - v1) / s2^2."""
    module, inputs = mlp(2, 3, 1), randn(1, 2)
    learner = adf(module, variance=0.8, link=link)
    prior = Normal(vector_of(module), random_covariance((), 13, generator(1)))
    h, a = jacobian_of(module, prior.mean, inputs)[0, 0], outputs_of(module, prior.mean, inputs)[0, 0]
    s2 = h @ prior.cov @ h
    if link == "mackay":
        m1, v1 = (x.item() for x in mackay_moments(a, s2, torch.tensor(2.0 * label - 1)))
    else:
        m1, v1 = quadrature(
            a.item(), s2.item(), 2 * label - 1, log_logistic if link == "logistic" else scipy.special.log_ndtr
        )
    tau, nu = 1 / v1 - 1 / s2, m1 / v1 - a / s2
    belief = learner.update(prior, inputs, torch.tensor([[float(label)]]))
    assert_belief(belief, *kalman(prior.mean, prior.cov, h[None], 1 / tau[None, None], (nu / tau - a)[None]))
    cross = prior.cov @ h
    assert_belief(belief, prior.mean + cross * (m1 - a) / s2, prior.cov - torch.outer(cross, cross) * (s2 - v1) / s2**2)


def test_moment_matching_takes_points_one_after_the_other():
    """Each at the belief after the one before; the missing are passed over."""
    module, inputs = nn.Linear(3, 1), randn(4, 3)
    target, observed = torch.tensor([[1.0], [torch.nan], [0.0], [1.0]]), torch.tensor([[True], [False], [True], [True]])
    learner = adf(module, variance=2.0, link="probit")
    mean, cov = vector_of(module), 2.0 * torch.eye(4)
    for x, y in zip(inputs[[0, 2, 3]], (1, 0, 1), strict=True):
        h = torch.cat([x, torch.ones(1)])
        a, s2 = h @ mean, h @ cov @ h
        m1, v1 = quadrature(a.item(), s2.item(), 2 * y - 1, scipy.special.log_ndtr)
        cross = cov @ h
        mean, cov = mean + cross * (m1 - a) / s2, cov - torch.outer(cross, cross) * (s2 - v1) / s2**2
    assert_belief(learner.update(learner.init(), inputs, target, observed), mean, cov)
    last, _ = run(learner, learner.init(), inputs[None], target[None], observed[None])
    assert_belief(last, mean, cov)


def test_moment_matching_says_nothing_where_the_logit_is_known():
    module = nn.Linear(2, 1, bias=False)
    learner = adf(module)
    belief = Normal(vector_of(module), torch.diag(torch.tensor([0.0, 1.0])))
    after = learner.update(belief, torch.tensor([[1.0, 0.0]]), torch.ones(1, 1))
    assert_belief(after, belief.mean, belief.cov)


# Sampled evidence.


def drawn(belief: Normal, count: int, seed: int) -> torch.Tensor:
    """Centred draws of a full belief, from the same noise as the learner's."""
    noise = torch.randn(count, len(belief.mean), generator=generator(seed))
    draws = belief.mean + noise @ torch.linalg.cholesky(belief.cov).T
    return draws - draws.mean(0) + belief.mean


@pytest.mark.parametrize("centred", [True, False])
@EVERY
def test_the_empirical_fisher_conditions_on_gradients_at_draws(name, centred):
    """On (G / sqrt K, I, 1 / sqrt K), the rows of G the gradients at draws of the belief."""
    likelihood, target, log_prob = likelihood_of(name)
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    weights = vector_of(module)
    prior = Normal(weights, 0.1 * random_covariance((), len(weights), generator(1)))
    learner = ekf(module, likelihood, 0.4, evidence=EmpiricalFisher(4, centred))
    draws = drawn(prior, 4, 3)
    if not centred:
        noise = torch.randn(4, len(weights), generator=generator(3))
        draws = weights + noise @ torch.linalg.cholesky(prior.cov).T
    total = lambda w: torch.func.vmap(log_prob)(outputs_of(module, w, inputs), target).sum()  # noqa: E731
    rows = torch.stack([torch.func.grad(total)(w) for w in draws]) / 2
    belief = learner.update(prior, inputs, target, generator=generator(3))
    assert_belief(belief, *bayes(prior.mean, prior.cov, rows, torch.eye(4), torch.full((4,), 0.5)))


@EVERY
def test_the_linearised_empirical_fisher_conditions_on_the_gradient(name):
    """On (g', 1, 1), with the gradient of all points at the mean."""
    likelihood, target, log_prob = likelihood_of(name)
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    weights = vector_of(module)
    learner = bong(module, likelihood, 0.4, evidence="linearised-fisher")
    total = lambda w: torch.func.vmap(log_prob)(outputs_of(module, w, inputs), target).sum()  # noqa: E731
    row = torch.func.grad(total)(weights)[None]
    expected = bayes(weights, 0.4 * torch.eye(len(weights)), row, torch.eye(1), torch.ones(1))
    assert_belief(learner.update(learner.init(), inputs, target), *expected)


@pytest.mark.parametrize("hessian", ["full", "exact"])
@EVERY
def test_monte_carlo_hessians_are_added_to_the_precision(name, hessian):
    """Lam + C and m + (Lam + C)^{-1} g with means over draws, of C without what would take precision away."""
    likelihood, target, log_prob = likelihood_of(name)
    module, inputs = mlp(2, 2, OUTPUTS), randn(POINTS, 2, seed=6)
    weights = vector_of(module)
    make, chosen = (ekf, {}) if hessian == "full" else (vd_ekf, {"hessian": hessian})
    learner = make(module, likelihood, 0.1, evidence=MonteCarloHessian(5, **chosen))
    draws = drawn(Normal(weights, 0.1 * torch.eye(len(weights))), 5, 3)
    total = lambda w: torch.func.vmap(log_prob)(outputs_of(module, w, inputs), target).sum()  # noqa: E731
    gradient = torch.stack([torch.func.grad(total)(w) for w in draws]).mean(0)
    curvature = -torch.stack([torch.func.hessian(total)(w) for w in draws]).mean(0)
    if hessian == "full":
        values, vectors = torch.linalg.eigh(curvature)
        assert values.min() < -1e-3  # not concave: something has to be left out
        curvature = vectors @ torch.diag(values.clamp_min(0)) @ vectors.T
    else:
        curvature = torch.diag(curvature.diagonal().clamp_min(0))
    precision = torch.eye(len(weights)) / 0.1 + curvature
    belief = learner.update(learner.init(), inputs, target, generator=generator(3))
    assert_belief(belief, weights + torch.linalg.solve(precision, gradient), torch.linalg.inv(precision))


def test_the_diagonal_by_random_products_is_unbiased(monkeypatch):
    """Mean over many generators within standard errors, before the floor; and one product is not exact."""
    monkeypatch.setattr(Diagonal, "curvature", lambda _, hessian: -hessian)
    module, inputs, target = mlp(2, 2, 1), randn(POINTS, 2), randn(POINTS, 1, seed=1)
    weights = vector_of(module)
    model = Model(as_network(module), GaussianLikelihood(0.5), Diagonal())
    points = Points(inputs, target, None)
    belief = Diagonal().init(weights, torch.full_like(weights, 0.01))
    evidence = MonteCarloHessian(4, hessian="hutchinson")
    found = [evidence(Near(model, belief, points), generator(seed)).increment for seed in range(150)]
    total = lambda w: -(target - outputs_of(module, w, inputs)).square().sum()  # noqa: E731
    exact = []
    for seed in range(150):  # at the same draws, so that the products' randomness alone is tested
        noise = torch.randn(4, len(weights), generator=generator(seed))
        draws = weights + 0.1 * (noise - noise.mean(0))
        exact.append(-torch.func.vmap(torch.func.hessian(total))(draws).mean(0).diagonal())
    error = torch.stack(found) - torch.stack(exact)
    assert error.std(0).min() > 1e-3
    assert (error.mean(0).abs() < 5 * error.std(0) / math.sqrt(150)).all()


# Predictions.


def test_the_prediction_of_a_gaussian_adds_noise_to_the_covariance_of_outputs():
    for name in LIKELIHOODS[:4]:
        for outputs in (1, OUTPUTS):
            likelihood, target, _ = likelihood_of(name, outputs)
            mean, cov = randn(POINTS, outputs, seed=2), random_covariance((POINTS,), outputs, generator(3))
            noise = torch.as_tensor(likelihood.noise)
            noise = noise if noise.ndim == 2 else torch.diag(noise.expand(outputs))
            expected = torch.distributions.MultivariateNormal(mean, cov + noise)
            prediction = likelihood.predict(mean, cov, target, None)
            assert_same(prediction.mean, mean)
            assert_same(prediction.variance, expected.variance)
            assert_same(prediction.log_prob, expected.log_prob(target))
            assert_same(likelihood.predictive(mean, cov).log_prob(target), expected.log_prob(target))
            observed = torch.rand(POINTS, outputs, generator=generator(4)) > 0.4
            scores = likelihood.predict(mean, cov, torch.where(observed, target, torch.nan), observed).log_prob
            for k, seen in enumerate(observed):
                if seen.any():
                    part = torch.distributions.MultivariateNormal(mean[k][seen], (cov[k] + noise)[seen][:, seen])
                    assert_same(scores[k], part.log_prob(target[k][seen]))
                else:
                    assert scores[k] == 0


@pytest.mark.parametrize("kind", ["bernoulli", "categorical", "poisson"])
@pytest.mark.parametrize("prediction", ["plug-in", "moderated"])
def test_predictions_of_discrete_targets_are_those_of_their_distribution(kind, prediction):
    """Mean, variance and score against torch's distributions, at outputs moved as MacKay has it, or the log-normal."""
    _, target, _ = likelihood_of(kind)
    outputs, cov = randn(POINTS, OUTPUTS, seed=2), random_covariance((POINTS,), OUTPUTS, generator(3))
    variance = cov.diagonal(dim1=-2, dim2=-1)
    moved = outputs / (1 + math.pi * variance / 8).sqrt() if kind != "poisson" else outputs + variance / 2
    moved = moved if prediction == "moderated" else outputs
    likelihood = {"bernoulli": BernoulliLikelihood, "categorical": CategoricalLikelihood, "poisson": PoissonLikelihood}[
        kind
    ](prediction=prediction)
    assert likelihood.needs_covariance == (prediction == "moderated")
    found, distribution = likelihood.predict(outputs, cov, target, None), likelihood.predictive(outputs, cov)
    if kind == "categorical":
        p = moved.softmax(-1)
        expected = torch.distributions.Categorical(p)
        score, mean, spread = expected.log_prob(target[:, 0]), p, p - p.square()
        assert_same(distribution.log_prob(target[:, 0]), score)
        assert_same(distribution.probs, p)
    else:
        plain = (
            torch.distributions.Poisson(moved.exp())
            if kind == "poisson"
            else torch.distributions.Bernoulli(moved.sigmoid())
        )
        score, mean, spread = plain.log_prob(target).sum(-1), plain.mean, plain.variance
        assert_same(distribution.log_prob(target), score)
        assert_same(distribution.mean, mean)
        assert_same(distribution.variance, spread)
    assert_same(found.log_prob, score)
    assert_same(found.mean, mean)
    assert_same(found.variance, spread)
    observed = torch.zeros_like(target, dtype=torch.bool)
    observed[1:] = True
    partial = likelihood.predict(outputs, cov, torch.where(observed, target, 0.0), observed).log_prob
    assert_same(partial, torch.where(observed[:, 0], score, 0.0))


@pytest.mark.parametrize("prediction", ["plug-in", "moderated"])
def test_a_learner_moderates_its_predictions_by_its_own_uncertainty(prediction):
    module, inputs, target = mlp(2, 3, 1), randn(POINTS, 2), torch.ones(POINTS, 1)
    learner = ekf(module, BernoulliLikelihood(prediction=prediction), 0.4)
    weights = vector_of(module)
    logit, rows = outputs_of(module, weights, inputs)[:, 0], jacobian_of(module, weights, inputs)[:, 0]
    variance = 0.4 * rows.square().sum(-1) * (prediction == "moderated")
    p = torch.sigmoid(logit / (1 + math.pi / 8 * variance).sqrt())
    assert_same(learner.step(learner.init(), inputs, target)[1].mean[:, 0], p)
    assert_same(learner.predict(learner.init(), inputs).mean[:, 0], p)
    assert_same(learner.step(learner.init(), inputs, target)[1].log_prob, p.log())


# What is refused.


def test_targets_that_a_likelihood_cannot_have_made_are_refused():
    seen = torch.tensor([[True, False], [True, True]])
    for likelihood, right, wrong, message in (
        (GaussianLikelihood(), 0.3, math.inf, "finite"),
        (GaussianLikelihood(), 0.3, math.nan, "finite"),
        (BernoulliLikelihood(), 1.0, 0.5, "0 or 1"),
        (CategoricalLikelihood(), 3.0, -1.0, "class"),
        (CategoricalLikelihood(), 3.0, 1.5, "class"),
        (PoissonLikelihood(), 4.0, -2.0, "count"),
        (PoissonLikelihood(), 4.0, 0.5, "count"),
    ):
        target = torch.full((2, 2), right)
        likelihood.check(target, None)
        target[0, 1] = wrong
        likelihood.check(target, seen)
        with pytest.raises(ValueError, match=rf"{message}.*got {wrong:g} at index \[0, 1\]"):
            likelihood.check(target, None)


def test_settings_of_evidence_outside_of_their_range_are_refused():
    for make, message in (
        (lambda: EmpiricalFisher(-1), "num_samples"),
        (lambda: MonteCarloHessian(0), "num_samples"),
        (lambda: MonteCarloHessian(hessian="guess"), "hessian"),
        (lambda: MomentMatched("cauchit"), "link"),
        (lambda: BernoulliLikelihood("exact"), "prediction"),
        (lambda: PoissonLikelihood("exact"), "prediction"),
        (lambda: CategoricalLikelihood(prediction="exact"), "prediction"),
        (lambda: CategoricalLikelihood(smoothing=1.0), "smoothing"),
        (lambda: CategoricalLikelihood(jitter=-0.1), "jitter"),
    ):
        with pytest.raises(ValueError, match=f"expected {message}"):
            make()


def test_moment_matching_asks_for_one_logit_of_a_bernoulli():
    learner = ekf(mlp(2, 1), GaussianLikelihood(), evidence=MomentMatched())
    with pytest.raises(TypeError, match="Bernoulli"):
        learner.update(learner.init(), randn(1, 2), torch.ones(1, 1))
    learner = adf(mlp(2, 2))
    with pytest.raises(ValueError, match="one logit"):
        learner.update(learner.init(), randn(1, 2), torch.ones(1, 2))


def test_monte_carlo_hessians_ask_for_a_family_that_can_take_them():
    learner = bong(mlp(2, 1), GaussianLikelihood(), evidence="hessian", family=LOFI(2))
    with pytest.raises(TypeError, match="full or diagonal"):
        learner.update(learner.init(), randn(1, 2), torch.ones(1, 1))
