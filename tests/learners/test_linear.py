"""Networks that are linear in their weights, where everything is known in closed form; and the rules."""

import math

import numpy as np
import pytest
import scipy.integrate
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
from tests.oracles import Plain, generator, random_covariance, statsmodels_smoother
from tsforecast.core import Gaussian as Normal
from tsforecast.core import LinearGaussian
from tsforecast.learners import (
    BBB,
    BLR,
    BOG,
    BernoulliLikelihood,
    CategoricalLikelihood,
    ConjugateRegression,
    Diagonal,
    EmpiricalFisher,
    GaussianLearner,
    GaussianLikelihood,
    MonteCarloHessian,
    NormalInverseGamma,
    OrnsteinUhlenbeck,
    Wiener,
    as_network,
    blr,
    bong,
    ekf,
    ewma,
    iterated_ekf,
    ogd,
    rls,
)
from tsforecast.learners.loop import run

pytestmark = pytest.mark.usefixtures("float64")

STEPS, FEATURES, TARGETS = 15, 3, 2
WEIGHTS = FEATURES * TARGETS


def problem(seed: int = 0):
    """Inputs and targets (time, point, ...), noise, and the rows of each time: y = C(x) vec(W)."""
    rng = generator(seed)
    inputs = torch.randn(STEPS, 1, FEATURES, generator=rng)
    target = torch.randn(STEPS, 1, TARGETS, generator=rng)
    noise = random_covariance((), TARGETS, rng)
    rows = torch.stack([torch.kron(torch.eye(TARGETS), x) for x in inputs])
    return inputs, target, noise, rows


def linear(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(FEATURES, TARGETS, bias=False)


def batch(module: nn.Module, variance: float, rows: torch.Tensor, target: torch.Tensor, noise: torch.Tensor):
    """All data at once, by precisions."""
    mean, stacked = vector_of(module), rows.flatten(0, 1)
    residual = target.flatten() - stacked @ mean
    return bayes(mean, variance * torch.eye(len(mean)), stacked, torch.block_diag(*[noise] * len(rows)), residual)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_updates_one_by_one_are_the_posterior_of_all_data_in_any_order(order):
    """Oracles: the batch by precisions, and the conditional of the state-space core for all data at once."""
    inputs, target, noise, rows = problem()
    learner = ekf(linear(), GaussianLikelihood(noise), 0.7)
    mean, cov = batch(linear(), 0.7, rows, target, noise)
    belief = learner.init()
    for k in torch.randperm(STEPS, generator=generator(order)).tolist():
        belief = learner.update(belief, inputs[k], target[k])
    assert_belief(belief, mean, cov)
    emission = LinearGaussian(rows.flatten(0, 1), torch.zeros(len(rows) * TARGETS), torch.block_diag(*[noise] * STEPS))
    prior = Normal(vector_of(linear()), 0.7 * torch.eye(WEIGHTS))
    together, _ = emission.posterior(prior, target.flatten())
    assert_belief(belief, together.mean, together.cov)
    assert_belief(learner.update(learner.init(), inputs.flatten(0, 1), target.flatten(0, 1)), mean, cov)


@pytest.mark.parametrize("forgetting", [1.0, 0.8])
def test_recursive_least_squares_minimise_the_sum_of_squares_with_old_ones_discounted(forgetting):
    """Oracle: NumPy's least squares with the prior as more rows; forgetting comes before each observation."""
    x, y = randn(STEPS, FEATURES), randn(STEPS, seed=1)
    learner = rls(FEATURES, 2.0, 0.5, forgetting)
    last, _ = run(learner, learner.init(), x[:, None], y[:, None, None], dt=torch.ones(STEPS))
    discount = forgetting ** (torch.arange(STEPS - 1, -1, -1) / 2)
    prior = forgetting ** (STEPS / 2) / math.sqrt(2.0) * torch.eye(FEATURES)
    rows = torch.cat([prior, discount[:, None] * x / math.sqrt(0.5)]).numpy()
    values = torch.cat([torch.zeros(FEATURES), discount * y / math.sqrt(0.5)]).numpy()
    assert_same(last.mean, np.linalg.lstsq(rows, values, rcond=None)[0])
    assert_same(last.cov, np.linalg.inv(rows.T @ rows))


def test_a_regression_that_drifts_is_filtered_like_statsmodels():
    """Beliefs, predictions and scores, with missing components and whole steps missing."""
    inputs, target, noise, rows = problem()
    observed = torch.rand(STEPS, 1, TARGETS, generator=generator(1)) > 0.3
    observed[4] = False
    learner = ekf(linear(), GaussianLikelihood(noise), 0.7, drift=OrnsteinUhlenbeck(0.1, 2.0))
    last, prediction = run(learner, learner.init(), inputs, target, observed, torch.full((STEPS,), 0.5))
    keep, mean = math.exp(-0.025), vector_of(linear()).numpy()
    system = Plain(
        [keep * np.eye(WEIGHTS)] * STEPS,
        [(1 - keep) * mean] * STEPS,
        [(1 - keep**2) * 0.7 * np.eye(WEIGHTS)] * STEPS,
        list(rows.numpy()),
        [np.zeros(TARGETS)] * STEPS,
        [noise.numpy()] * STEPS,
        mean,
        0.7 * np.eye(WEIGHTS),
    )
    theirs = statsmodels_smoother(system, target[:, 0].numpy(), observed[:, 0].numpy())
    assert_belief(last, theirs.filtered_state[:, -1], theirs.filtered_state_cov[:, :, -1])
    assert_same(prediction.log_prob[:, 0], theirs.llf_obs)
    for t in range(STEPS):
        cov = rows[t].numpy() @ theirs.predicted_state_cov[:, :, t] @ rows[t].numpy().T + noise.numpy()
        assert_same(prediction.mean[t, 0], rows[t].numpy() @ theirs.predicted_state[:, t])
        assert_same(prediction.variance[t, 0], np.diag(cov))


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (bong, {}),
        (blr, {"iterations": 1, "step": 1.0}),
        (blr, {"iterations": 120, "step": 0.3}),
        (bong, {"evidence": "hessian"}),
        (blr, {"evidence": "hessian", "iterations": 120, "step": 0.3}),
    ],
)
def test_natural_gradient_steps_are_the_kalman_filter(make, settings):
    """Exact expectations: linearised, or the Hessian at draws around the mean."""
    inputs, target, noise, rows = problem()
    learner = make(linear(), GaussianLikelihood(noise), 0.7, **settings)
    belief = learner.update(learner.init(), inputs[:4, 0], target[:4, 0], generator=generator(2))
    assert_belief(belief, *batch(linear(), 0.7, rows[:4], target[:4], noise))


def test_draws_that_are_not_centred_are_not_exact():
    inputs, target, noise, rows = problem()
    learner = ekf(linear(), GaussianLikelihood(noise), 0.7, evidence=MonteCarloHessian(centred=False))
    belief = learner.update(learner.init(), inputs[0], target[0], generator=generator(2))
    mean, cov = batch(linear(), 0.7, rows[:1], target[:1], noise)
    assert_same(belief.cov, cov)
    assert (belief.mean - mean).abs().max() > 0.01


def test_damped_natural_gradient_steps_follow_their_formula():
    """Lam_i = (1-a) Lam + a (Lam_0 + H'H) and m_i = m + a Lam_i^{-1} (Lam_0 (m_0 - m) + H'e), on a bent network."""
    module, inputs, target = mlp(2, 3, 1), randn(4, 2), randn(4, 1, seed=1)
    first = vector_of(module)
    learner = blr(module, GaussianLikelihood(0.5), 0.7, iterations=3, step=0.4)
    start = torch.eye(len(first)) / 0.7
    mean, precision = first, start
    for _ in range(3):
        rows = jacobian_of(module, mean, inputs)[:, 0]
        gradient = rows.T @ (target - outputs_of(module, mean, inputs))[:, 0] / 0.5
        precision = 0.6 * precision + 0.4 * (start + rows.T @ rows / 0.5)
        mean = mean + 0.4 * torch.linalg.solve(precision, start @ (first - mean) + gradient)
    assert_belief(learner.update(learner.init(), inputs, target), mean, torch.linalg.inv(precision))


def test_damped_natural_gradient_steps_of_independent_weights_follow_their_formula():
    """The same with diagonals: Hessians by automatic differentiation, at draws that the belief's variance spreads."""
    module, inputs, target = mlp(2, 2, 1), randn(3, 2), randn(3, 1, seed=1)
    first = vector_of(module)
    learner = ekf(
        module,
        GaussianLikelihood(0.5),
        0.01,
        evidence=MonteCarloHessian(7),
        rule=BLR(2, 0.4),
        family=Diagonal("precision"),
    )
    log_prob = lambda w: -(target - outputs_of(module, w, inputs)).square().sum()  # noqa: E731
    rng = generator(3)
    start = torch.full_like(first, 100.0)
    mean, precision = first, start
    for _ in range(2):
        draws = torch.randn(7, len(first), generator=rng) / precision.sqrt()
        draws = mean + draws - draws.mean(0)
        gradient = torch.stack([torch.func.grad(log_prob)(w) for w in draws]).mean(0)
        hessian = torch.stack([torch.func.hessian(log_prob)(w).diagonal() for w in draws]).mean(0)
        assert hessian.max() > 0  # something has to be floored
        precision = 0.6 * precision + 0.4 * (start - hessian.clamp_max(0))
        mean = mean + 0.4 * (start * (first - mean) + gradient) / precision
    belief = learner.update(learner.init(), inputs, target, generator=generator(3))
    assert_belief(belief, mean, torch.diag(1 / precision))


def objective(mean, root, gradient, curvature, start, prior_mean, prior_cov):
    """E[g'(theta - start) - (theta - start)' C (theta - start) / 2] - KL, for theta ~ N(mean, root root')."""
    normal = torch.distributions.MultivariateNormal
    change = mean - start
    expected = gradient @ change - 0.5 * (change @ curvature @ change + torch.trace(root.T @ curvature @ root))
    if prior_mean is None:
        return expected
    mine, its = normal(mean, root @ root.T), normal(prior_mean, prior_cov)
    return expected - torch.distributions.kl_divergence(mine, its)


@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.parametrize("anchored", [False, True])
def test_plain_steps_follow_the_gradient_of_the_objective(family, anchored):
    """Oracle: explicit steps by automatic differentiation, by mean and root; what differs falls as the step squared."""
    module, inputs, target = mlp(2, 2, 1), randn(3, 2), randn(3, 1, seed=1)
    first = vector_of(module)
    chosen = {"family": Diagonal()} if family == "diagonal" else {}
    prior = 0.3 * torch.eye(len(first))

    def difference(step: float) -> float:
        rule = BBB(3, step) if anchored else BOG(step)
        mean, root = first, torch.linalg.cholesky(prior)
        for _ in range(3 if anchored else 1):
            rows = jacobian_of(module, mean, inputs)[:, 0]
            gradient = rows.T @ (target - outputs_of(module, mean, inputs))[:, 0] / 0.5
            leaves = mean.clone().requires_grad_(), root.clone().requires_grad_()
            pull = (first, prior) if anchored else (None, None)
            value = objective(*leaves, gradient, rows.T @ rows / 0.5, mean, *pull)
            by_mean, by_root = torch.autograd.grad(value, leaves)
            by_root = torch.diag(by_root.diagonal()) if family == "diagonal" else by_root
            mean, root = mean + step * by_mean, root + step * by_root
        learner = ekf(module, GaussianLikelihood(0.5), 0.3, rule=rule, **chosen)
        belief = learner.update(learner.init(), inputs, target)
        cov = belief.cov if family == "full" else torch.diag(belief.variance)
        return max((belief.mean - mean).abs().max().item(), (cov - root @ root.T).abs().max().item())

    assert difference(1e-4) < 1e-5
    assert difference(1e-5) == pytest.approx(difference(1e-4) / 100, rel=0.05)


@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.usefixtures("unchecked_types")
def test_plain_steps_on_the_whole_objective_end_at_its_maximum(family):
    """Of a linear model that is the posterior; with independent weights that with the diagonal of its precision."""
    matrix, residual = randn(3, 4), randn(3, seed=1)
    chosen = {"family": Diagonal()} if family == "diagonal" else {}
    learner = ekf(nn.Linear(4, 1, bias=False), GaussianLikelihood(0.5), 0.3, rule=BBB(2000, 0.05), **chosen)
    belief = learner.update(learner.init(), matrix, residual.unsqueeze(-1))
    precision = torch.eye(4) / 0.3 + matrix.T @ matrix / 0.5
    mean = torch.linalg.solve(precision, learner.mean / 0.3 + matrix.T @ residual / 0.5)
    kept = torch.diag(precision.diagonal()) if family == "diagonal" else precision
    assert_belief(belief, mean, torch.linalg.inv(kept))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("family", ["full", "diagonal"])
@pytest.mark.parametrize("rule", [BOG(0.01), BOG(1.0), BBB(10, 0.01), BBB(3, 1.0)], ids=str)
@pytest.mark.usefixtures("unchecked_types")
def test_plain_steps_keep_beliefs_positive_and_finite_whatever_comes(rule, family, dtype):
    """Inputs of a few, and of thousands; targets far from what is expected; the same observation again and again."""
    network = mlp(3, 4, 1).to(dtype)
    chosen = {"family": Diagonal()} if family == "diagonal" else {}
    learner = ekf(network, GaussianLikelihood(0.01), 0.5, rule=rule, **chosen)
    belief = learner.init()
    scales = torch.tensor([1.0, 3.0, 3000.0, 0.0])
    inputs = (randn(80, 1, 3) * scales[torch.arange(80) % 4].view(-1, 1, 1)).to(dtype)
    inputs[40:] = inputs[1]
    target = (100 * randn(80, 1, 1, seed=1)).to(dtype)
    for x, y in zip(inputs, target, strict=True):
        belief, prediction = learner.step(belief, x, y)
        assert prediction.log_prob.isfinite()
        assert belief.mean.isfinite().all()
        assert (belief.variance > 0).all()
        assert belief.mean.abs().max() < 1e4
        assert learner.sample(belief, 2, generator(0)).isfinite().all()


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "categorical"])
def test_the_iterated_filter_ends_where_the_posterior_has_no_slope(likelihood):
    """Oracle: the gradient of log prior plus log-likelihood, by automatic differentiation; one pass is not there."""
    module, inputs = mlp(2, 3, 1 if likelihood != "categorical" else 3), randn(6, 2)
    noise = torch.tensor(0.2)
    if likelihood == "gaussian":
        chosen, target = GaussianLikelihood(noise), randn(6, 1, seed=1)
        log_prob = lambda f: -0.5 * (target - f).square().sum() / noise  # noqa: E731
    elif likelihood == "bernoulli":
        chosen, target = BernoulliLikelihood(), (randn(6, 1, seed=1) > 0).double()
        log_prob = lambda f: -nn.functional.binary_cross_entropy_with_logits(f, target, reduction="sum")  # noqa: E731
    else:
        chosen, target = CategoricalLikelihood(), torch.tensor([0.0, 1, 2, 2, 1, 2])[:, None]
        log_prob = lambda f: -nn.functional.cross_entropy(f, target[:, 0].long(), reduction="sum")  # noqa: E731
    first = vector_of(module)

    def slope(passes: int) -> float:
        learner = iterated_ekf(module, chosen, 0.3, passes=passes)
        mean = learner.update(learner.init(), inputs, target).mean
        posterior = lambda w: log_prob(outputs_of(module, w, inputs)) - (w - first).square().sum() / 0.6  # noqa: E731
        return torch.func.grad(posterior)(mean).norm().item()

    assert slope(1) > 1e-2
    assert slope(80) < 1e-5


def test_the_iterated_filter_conditions_the_prior_on_the_last_linearisation():
    module, inputs, target = mlp(2, 3, 1), randn(4, 2), randn(4, 1, seed=1)
    first, prior = vector_of(module), 0.3 * torch.eye(13)
    mean, cov = first, prior
    for _ in range(3):
        rows = jacobian_of(module, mean, inputs)[:, 0]
        residual = (target - outputs_of(module, mean, inputs))[:, 0] - rows @ (first - mean)
        mean, cov = kalman(first, prior, rows, 0.2 * torch.eye(4), residual)
    learner = iterated_ekf(module, GaussianLikelihood(0.2), 0.3)
    assert_belief(learner.update(learner.init(), inputs, target), mean, cov)


# The normal-inverse-gamma learner.


def regression(forgetting: float = 0.0) -> ConjugateRegression:
    return ConjugateRegression(randn(FEATURES, seed=5), torch.tensor([0.5, 1.0, 4.0]), 2.5, 1.5, forgetting)


def conjugate_batch(prior: ConjugateRegression, x: torch.Tensor, y: torch.Tensor):
    """m, S, a, b of all data at once."""
    before = torch.diag(1 / prior.variance)
    after = before + x.T @ x
    mean = torch.linalg.solve(after, before @ prior.mean + x.T @ y)
    energy = y @ y + prior.mean @ before @ prior.mean - mean @ after @ mean
    return mean, torch.linalg.inv(after), prior.shape + len(y) / 2, prior.rate + energy / 2


def assert_conjugate(belief: NormalInverseGamma, expected):
    for actual, value in zip((belief.mean, belief.cov, belief.shape, belief.rate), expected, strict=True):
        assert_same(actual, torch.as_tensor(value))


@pytest.mark.parametrize("points", [1, 5])
def test_conjugate_regression_is_the_batch_formula(points):
    """Missing values are left out, and what stands there is not read."""
    learner, x, y = regression(), randn(STEPS, FEATURES), randn(STEPS, seed=1)
    observed = torch.rand(STEPS, generator=generator(2)) > 0.3
    with_gaps = torch.where(observed, y, torch.nan)
    shape = (STEPS // points, points)
    for target, mask, seen in ((y, None, slice(None)), (with_gaps, observed.view(*shape, 1), observed)):
        last, prediction = run(learner, learner.init(), x.view(*shape, -1), target.view(*shape, 1), mask)
        assert_conjugate(last, conjugate_batch(learner, x[seen], y[seen]))
        assert (prediction.log_prob.flatten()[~observed] == 0).all() or mask is None
        assert prediction.log_prob.isfinite().all()


def test_the_prediction_of_conjugate_regression_is_the_integral_over_weight_and_noise():
    """Oracle: one weight, integrated over it and the noise variance numerically; mean and variance by the density."""
    learner = ConjugateRegression(torch.tensor([0.3]), torch.tensor([0.8]), 2.5, 1.5)
    belief = learner.update(learner.init(), torch.tensor([[1.3]]), torch.tensor([[0.4]]))
    m, s, a, b = belief.mean.item(), belief.cov.item(), belief.shape.item(), belief.rate.item()
    x = 0.7

    nodes, weights = np.polynomial.legendre.leggauss(150)
    noise = np.exp(np.log(b / a) + 8 * nodes)[:, None]
    spread = np.sqrt(noise * s)
    grid = m + 9 * spread * nodes
    joint = scipy.stats.norm.pdf(grid, m, spread) * scipy.stats.invgamma.pdf(noise, a, scale=b)
    joint = joint * np.outer(weights, weights) * 9 * spread * 8 * noise  # with the lengths of the grid's cells

    def density(y: float) -> float:
        return (joint * scipy.stats.norm.pdf(y, x * grid, np.sqrt(noise))).sum()

    distribution = learner.predict(belief, torch.tensor([[x]]))
    for y in (-0.9, 1.4):
        target = torch.tensor([[y]])
        _, prediction = learner.step(belief, torch.tensor([[x]]), target)
        assert_same(prediction.log_prob[0], math.log(density(y)))
        assert_same(distribution.log_prob(target)[0], math.log(density(y)))
    log_density = lambda y: learner.step(belief, torch.tensor([[x]]), torch.tensor([[y]]))[1].log_prob.item()  # noqa: E731
    power = [scipy.integrate.quad(lambda y, k=k: y**k * math.exp(log_density(y)), -np.inf, np.inf)[0] for k in range(3)]
    assert_same(power[0], 1.0, rtol=1e-6)
    assert_same(prediction.mean[0, 0], power[1], rtol=1e-6)
    assert_same(prediction.variance[0, 0], power[2] - power[1] ** 2, rtol=1e-4)


def test_the_prediction_of_conjugate_regression_has_no_variance_up_to_two_degrees_of_freedom():
    learner = ConjugateRegression(torch.zeros(1), torch.ones(1), 1.0, 1.0)
    _, prediction = learner.step(learner.init(), torch.ones(1, 1), torch.ones(1, 1))
    assert prediction.variance.item() == math.inf


def test_conjugate_regression_forgets_in_natural_parameters():
    """Lam, Lam m, a and b + m' Lam m / 2 are mixed with the prior's; dt counts."""
    learner, x, y = regression(0.2), randn(4, FEATURES), randn(4, seed=1)
    mean, cov, shape, rate = conjugate_batch(regression(), x, y)
    belief = learner.update(learner.init(), x, y[:, None])
    keep = 0.8**1.7
    before = torch.diag(1 / learner.variance)
    mine = torch.linalg.inv(cov)
    precision = keep * mine + (1 - keep) * before
    linear_part = keep * mine @ mean + (1 - keep) * before @ learner.mean
    energy = keep * (rate + mean @ mine @ mean / 2)
    energy = energy + (1 - keep) * (learner.rate + learner.mean @ before @ learner.mean / 2)
    after = torch.linalg.solve(precision, linear_part)
    expected = (
        after,
        torch.linalg.inv(precision),
        keep * shape + (1 - keep) * learner.shape,
        energy - after @ precision @ after / 2,
    )
    assert_conjugate(learner.drift(belief, torch.tensor(1.7)), expected)
    assert_conjugate(learner.drift(belief, torch.tensor(200.0)), (learner.mean, torch.diag(learner.variance), 2.5, 1.5))
    halves = learner.drift(learner.drift(belief, torch.tensor(0.6)), torch.tensor(1.1))
    assert_conjugate(halves, expected)
    assert regression().drift(belief, torch.tensor(1.7)) is belief


def test_weights_drawn_by_conjugate_regression_have_its_moments():
    """E[w] = m and Cov[w] = b / (a - 1) S; standard errors are those of the draws' own products."""
    learner, x, y = regression(), randn(8, FEATURES), randn(8, seed=1)
    belief = learner.update(learner.init(), x, y[:, None])
    centred = learner.sample(belief, 40_000, generator(0)) - belief.mean
    products = (centred[:, :, None] * centred[:, None, :]).flatten(1)
    expected = (belief.rate / (belief.shape - 1) * belief.cov).flatten()
    for sample, value in ((centred, torch.zeros(FEATURES)), (products, expected)):
        error = (sample.mean(0) - value) / (sample.std(0) / math.sqrt(len(sample)))
        assert error.abs().max() < 5
    kurtosis = centred[:, 0].pow(4).mean() / centred[:, 0].square().mean() ** 2
    degrees = 2 * belief.shape.item()
    fourth = centred[:, 0].pow(4)
    error = (fourth.std() / math.sqrt(len(fourth))) / centred[:, 0].square().mean() ** 2
    assert abs(kurtosis - 3 * (degrees - 2) / (degrees - 4)) < 5 * error  # heavier than a Gaussian's 3


# Named algorithms that are told by what they do.


def test_a_moving_average_settles_at_the_gain_that_is_documented():
    """k^2 noise / (1 - k) = rate variance, and the mean is the average with weights (1 - k)^age."""
    learner = ewma(0.1, None, variance=2.0, noise=1.5)
    belief, zero = learner.init(), torch.zeros(1, 1)
    for _ in range(200):
        belief, _ = learner.step(belief, zero + 1, zero, dt=torch.tensor(1.0))
    after, _ = learner.step(belief, zero + 1, zero + 1, dt=torch.tensor(1.0))
    gain = after.mean.item()
    assert_same(gain**2 * 1.5 / (1 - gain), 0.2)
    assert_same(learner.step(after, zero + 1, zero, dt=torch.tensor(1.0))[0].mean.item(), gain * (1 - gain))


def test_a_robust_moving_average_hardly_sees_an_outlier():
    plain, robust = ewma(0.1, None), ewma(0.1)
    one, far = torch.ones(1, 1), torch.full((1, 1), 1e3)
    assert plain.update(plain.init(), one, far).mean.item() > 400
    assert robust.update(robust.init(), one, far).mean.item() < 0.02


def test_gradient_descent_goes_up_the_log_likelihood():
    """Oracle: autograd on a bent network; missing components are not read."""
    module, inputs, target = mlp(2, 3, 2), randn(3, 2), randn(3, 2, seed=1)
    observed = torch.tensor([[True, False], [True, True], [False, False]])
    learner = ogd(module, GaussianLikelihood(0.5), rate=0.03)
    first = vector_of(module)
    log_prob = lambda w: -(observed * (target - outputs_of(module, w, inputs)).square()).sum()  # noqa: E731
    belief = learner.update(learner.init(), inputs, torch.where(observed, target, torch.nan), observed)
    assert_same(belief.mean, first + 0.03 * torch.func.grad(log_prob)(first))
    stepped, prediction = learner.step(learner.init(), inputs, target, observed, torch.tensor(1.0))
    assert_same(stepped.mean, belief.mean)
    assert_same(prediction.mean, outputs_of(module, first, inputs))
    assert_same(prediction.variance, torch.full((3, 2), 0.5))
    assert_same(learner.predict(learner.init(), inputs).mean, prediction.mean)
    assert torch.equal(learner.sample(belief, 2), belief.mean.expand(2, -1))


def test_a_step_is_drift_prediction_and_update_in_turn():
    """Sharing the linearisation changes nothing."""
    module, inputs, target = mlp(2, 3, 2), randn(3, 2), randn(3, 2, seed=1)
    learner = GaussianLearner(
        as_network(module), GaussianLikelihood(0.5), vector_of(module), torch.full((17,), 0.3), weight_drift=Wiener(0.1)
    )
    start = learner.update(learner.init(), randn(2, 2, seed=2), randn(2, 2, seed=3))
    after, prediction = learner.step(start, inputs, target, dt=torch.tensor(0.7))
    moved = learner.drift(start, torch.tensor(0.7))
    assert_belief(moved, start.mean, start.cov + 0.1 * 0.7 * 0.3 * torch.eye(17))
    rows, outputs = jacobian_of(module, moved.mean, inputs), outputs_of(module, moved.mean, inputs)
    cov = rows @ moved.cov @ rows.mT + 0.5 * torch.eye(2)
    assert_same(prediction.mean, outputs)
    assert_same(prediction.variance, cov.diagonal(dim1=-2, dim2=-1))
    normal = torch.distributions.MultivariateNormal(outputs, cov)
    assert_same(prediction.log_prob, normal.log_prob(target))
    assert_same(learner.predict(moved, inputs).log_prob(target), normal.log_prob(target))
    stacked = rows.flatten(0, 1)
    assert_belief(after, *kalman(*moments(moved), stacked, 0.5 * torch.eye(6), (target - outputs).flatten()))


def test_natural_gradient_steps_move_a_diagonal_mean_by_its_new_variances():
    """As published: Lam+ = Lam + diag(g g'), m+ = m + g / Lam+ of BONG; Lam_i, m_i of BLR as above, with diagonals."""
    module, inputs, target = mlp(2, 3, 1), randn(4, 2), randn(4, 1, seed=1)
    first = vector_of(module)
    start = torch.full_like(first, 1 / 0.7)

    rows = jacobian_of(module, first, inputs)[:, 0]
    gradient = rows.T @ (target - outputs_of(module, first, inputs))[:, 0] / 0.5
    learner = bong(module, GaussianLikelihood(0.5), 0.7, family=Diagonal(), evidence="linearised-fisher")
    precision = start + gradient.square()
    assert_belief(
        learner.update(learner.init(), inputs, target), first + gradient / precision, torch.diag(1 / precision)
    )

    learner = blr(module, GaussianLikelihood(0.5), 0.7, family=Diagonal(), iterations=3, step=0.4)
    mean, precision = first, start
    for _ in range(3):
        rows = jacobian_of(module, mean, inputs)[:, 0]
        gradient = rows.T @ (target - outputs_of(module, mean, inputs))[:, 0] / 0.5
        precision = 0.6 * precision + 0.4 * (start + rows.square().sum(0) / 0.5)
        mean = mean + 0.4 * (start * (first - mean) + gradient) / precision
    assert_belief(learner.update(learner.init(), inputs, target), mean, torch.diag(1 / precision))


def test_the_former_gain_of_natural_gradient_steps_is_had_by_name():
    module, inputs, target = mlp(2, 3, 1), randn(4, 2), randn(4, 1, seed=1)
    former = Diagonal(gain="unprojected")
    learner = bong(module, GaussianLikelihood(0.5), 0.7, family=former, evidence="linearised-fisher")
    same = ekf(module, GaussianLikelihood(0.5), 0.7, family=former, evidence=EmpiricalFisher(num_samples=0))
    found, expected = (x.update(x.init(), inputs, target) for x in (learner, same))
    assert_belief(found, expected.mean, torch.diag(expected.variance))
