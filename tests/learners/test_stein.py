"""Stein variational gradient descent against loops, optimisers of torch, dense matrices and exact posteriors."""

import itertools
import math

import pytest
import torch
from torch import nn

from tests.learners.dense import assert_same, mlp, outputs_of, randn, vector_of
from tsforecast.learners import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    Structure,
    s2vgd,
    svgd,
)
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.loop import run
from tsforecast.learners.particles.matrix_structure import reflect
from tsforecast.learners.particles.stein import Adam, Moments, RMSprop, bandwidth, direction, squared_distances


def numbers(seed=0):
    return torch.Generator().manual_seed(seed)


def looped(particles, scores, h=None):
    """phi by two loops over particles; the median over pairs, and log(M + 1)."""
    count = len(particles)
    if h is None:
        squares = sorted(float((a - b).square().sum()) for a, b in itertools.combinations(particles, 2))
        middle = (squares[(len(squares) - 1) // 2] + squares[len(squares) // 2]) / 2
        h = middle / math.log(count + 1)
    found = torch.zeros_like(particles)
    for i in range(count):
        for j in range(count):
            k = torch.exp(-(particles[i] - particles[j]).square().sum() / h)
            found[i] += (k * scores[j] + 2 / h * (particles[i] - particles[j]) * k) / count
    return found


@pytest.mark.parametrize("count", [2, 5, 6])
def test_the_direction_is_that_of_two_loops(count):
    particles, scores = randn(count, 4), randn(count, 4, seed=1)
    assert_same(direction(particles, scores), looped(particles, scores))
    assert_same(direction(particles, scores, 0.7), looped(particles, scores, 0.7))


def test_one_particle_follows_the_gradient_and_equal_ones_do_not_push():
    particle, score = randn(1, 4), randn(1, 4, seed=1)
    assert_same(direction(particle, score), score)
    assert_same(direction(particle.expand(3, 4), score.expand(3, 4)), score.expand(3, 4))
    assert bandwidth(squared_distances(particle)) == 1


def log_posterior(module, theta, x, y, scale=1.0):
    """Of weights, log lambda and log gamma: as the paper of SVGD writes it for networks."""
    weights, log_lambda, log_gamma = theta[:-2], theta[-2], theta[-1]
    residual = y - outputs_of(module, weights, x)
    log_lik = 0.5 * (log_gamma - math.log(2 * math.pi) - log_gamma.exp() * residual.square()).sum()
    prior = 0.5 * len(weights) * (log_lambda - math.log(2 * math.pi)) - 0.5 * log_lambda.exp() * weights @ weights
    gammas = log_lambda - 0.1 * log_lambda.exp() + log_gamma - 0.1 * log_gamma.exp()
    return scale * log_lik + prior + gammas


def make(count, structured, **settings):
    module = mlp(3, 4, 1).double()
    function = s2vgd if structured else svgd
    own = {"reflections": 0, "scales": False} if structured else {}
    learner = function(
        module, GaussianLikelihood(0.5), mean=vector_of(module), num_particles=count, learns_noise=True,
        generator=numbers(), **own, **settings,
    )  # fmt: skip
    return module, learner


@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize("count", [1, 4])
def test_without_structure_s2vgd_is_svgd_step_for_step(structured, count):
    """Against plain loops with the gradient of the written log-posterior, and the optimiser of torch."""
    module, learner = make(count, structured, rate=0.02, steps=8)
    x, y = randn(12, 3, seed=2), randn(12, 1, seed=3)
    theta = learner.start.clone().requires_grad_()
    assert_same(theta[:, -1], torch.full((count,), math.log(2.0)).double())
    optimiser = torch.optim.Adam([theta], lr=0.02)
    for _ in range(8):
        total = torch.stack([log_posterior(module, t, x, y) for t in theta]).sum()
        scores = torch.autograd.grad(total, theta)[0]
        detached = theta.detach()
        theta.grad = -(scores if count == 1 else looped(detached, scores))
        optimiser.step()
    assert_same(learner.update(learner.init(), x, y).values, theta.detach())


def test_rmsprop_divides_by_the_root_of_fading_squares():
    values, step = torch.zeros(2).double(), RMSprop()
    moments = Moments.none(values)
    square = None
    for k in range(4):
        uphill = randn(2, seed=k)
        square = uphill**2 if square is None else 0.9 * square + 0.1 * uphill**2
        after, moments = step(values, uphill, moments, 0.1)
        assert_same(after - values, 0.1 * uphill / (square.sqrt() + 1e-6))
        values = after
    assert moments.count == 4
    assert isinstance(make(1, False)[1].adaptive, Adam)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_particles_of_a_gaussian_posterior_rest_where_its_mean_is_theirs(count):
    """Of a linear network with known noise and prior, where the posterior is exact.

    At rest sum_j c_j (theta_j - mean) = 0 with c_j = sum_i k(theta_i, theta_j): for two particles that is their mean.
    """
    x, y = randn(20, 3), randn(20, 1, seed=1)
    network = nn.Linear(3, 1, bias=False).double()
    zeros = torch.zeros(3).double()
    learner = svgd(
        network, GaussianLikelihood(0.4), 2.0, mean=zeros, num_particles=count, rate=0.1, generator=numbers()
    )
    belief = learner.fit(learner.keep(learner.init(), x, y), 300, anneal=True)
    exact = torch.linalg.solve(torch.eye(3).double() / 2 + x.T @ x / 0.4, x.T @ y / 0.4)[:, 0]
    squared = squared_distances(belief.values)
    share = (-squared / bandwidth(squared)).exp().sum(0)
    assert_same(share @ belief.values / share.sum(), exact, rtol=0, atol=1e-3)
    if count == 2:
        assert_same(learner.weights(belief), exact, rtol=0, atol=1e-3)
    assert (learner.variances(belief) > 0).all()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_reflections_are_orthogonal_with_the_sign_of_their_number(count):
    vectors, eye = randn(count, 5), torch.eye(5).double()
    product = reflect(eye, vectors)
    dense = eye
    for v in vectors:
        dense = (eye - 2 * torch.outer(v, v) / (v @ v)) @ dense
    assert_same(product, dense)
    assert_same(product @ product.T, eye)
    assert_same(torch.linalg.det(product), (-1.0) ** count)


@pytest.mark.parametrize(("reflections", "scales"), [(1, True), (2, True), (3, False), (0, True)])
def test_the_implied_covariance_is_a_kronecker_product(reflections, scales):
    """Cov vec(W) = Q L2^2 Q' (x) P L1^2 P' for C ~ N(0, I), by the Jacobian of vec(W) in C."""
    rows, columns = 3, 4
    structure = Structure(((rows, columns), (rows,)), reflections, scales)
    count = rows * columns + rows
    assert structure.lengths == (count, reflections * 7, 7 * scales)
    free, others = randn(count), randn(sum(structure.lengths) - count, seed=1)
    jacobian = torch.func.jacrev(lambda c: structure.weights(torch.cat([c, others])))(free)
    assert_same(jacobian[-rows:, -rows:], torch.eye(rows).double())  # the bias
    order = torch.arange(rows * columns).view(rows, columns).T.flatten()  # of vec, which stacks columns
    matrix = jacobian[: rows * columns, : rows * columns][order]
    entries, diagonal = others.split([reflections * 7, 7 * scales])
    p = reflect(torch.eye(rows).double(), entries[: rows * reflections].view(-1, rows))
    q = reflect(torch.eye(columns).double(), entries[rows * reflections :].view(-1, columns))
    left, right = diagonal.split([rows, columns]) if scales else (torch.ones(rows), torch.ones(columns))
    u, v = p @ torch.diag(left.double()).square() @ p.T, q @ torch.diag(right.double()).square() @ q.T
    assert_same(matrix @ matrix.T, torch.kron(v, u))


def test_a_side_of_one_unit_is_not_reflected_and_kernels_are_matrices():
    one = Structure(((1, 3),), 2, False)
    assert one.lengths == (3, 6, 0)
    variables = randn(9)
    rows = reflect(variables[:3].view(3, 1), variables[3:].view(2, 3)).flatten()
    assert_same(one.weights(variables), rows)
    assert Structure(((2, 3, 5, 5), (2,)), 1, True).lengths == (152, 77, 77)


def test_points_of_a_step_stand_for_all():
    """The mean over all batches of one point is the score of all."""
    _, learner = make(3, False, batch=1)
    x, y = randn(7, 3, seed=2), randn(7, 1, seed=3)
    belief = learner.keep(learner.init(), x, y)
    points, scale = learner.draw(belief, numbers())
    assert (len(points.target), scale) == (1, 7)
    each = [learner.posterior.scores(belief.values, Points(x[k : k + 1], y[k : k + 1], None), 7.0) for k in range(7)]
    assert_same(torch.stack(each).mean(0), learner.posterior.scores(belief.values, Points(x, y, None)))


def test_counts_are_copies_and_missing_targets_say_nothing():
    _, learner = make(3, False, steps=3)
    x, y = randn(4, 3, seed=2), randn(4, 1, seed=3)
    rows = torch.tensor([0, 1, 1, 3])
    counted = learner.update(learner.init(), x, y, counts=torch.tensor([1.0, 2.0, 0.0, 1.0]).double())
    copied = learner.update(learner.init(), x[rows], y[rows])
    assert_same(counted.values, copied.values)
    observed = torch.tensor([True, False, True, True]).unsqueeze(-1)
    missing = learner.update(learner.init(), x, torch.where(observed, y, math.nan), observed)
    assert_same(missing.values, learner.update(learner.init(), x[observed[:, 0]], y[observed[:, 0]]).values)
    assert len(missing.target) == 3


@pytest.mark.parametrize("likelihood", [CategoricalLikelihood(), BernoulliLikelihood()])
def test_classes_are_told_by_the_mean_of_probabilities(likelihood):
    several = isinstance(likelihood, CategoricalLikelihood)
    module = mlp(2, 5, 3 if several else 1).double()
    x = randn(60, 2)
    y = (x[:, :1] > 0).double()
    learner = s2vgd(module, likelihood, mean=vector_of(module), num_particles=5, rate=0.05, generator=numbers())
    belief = learner.fit(learner.keep(learner.init(), x, y), 60)
    outputs = torch.stack([outputs_of(module, w, x) for w in learner.each(belief)])
    p = (outputs.softmax(-1) if several else outputs.sigmoid()).mean(0)
    assert_same(learner.expect(belief, x).mean, p)
    of_target = p.gather(-1, y.long()) if several else torch.where(y == 1, p, 1 - p)
    assert_same(learner.log_prob(belief, x, y), of_target[:, 0].log())
    assert_same(learner.predict(belief, x).log_prob(y[:, 0] if several else y), of_target[:, 0].log())
    assert ((of_target > 0.5).double().mean()) > 0.9


def test_a_stream_is_learnt_from_without_gradients_and_data_fade():
    module, learner = make(3, False, steps=2, forgetting=0.5)
    x, y = randn(6, 2, 3, seed=2), randn(6, 2, 1, seed=3)
    with torch.no_grad():
        belief, told = run(learner, learner.init(), x, y)
    assert told.log_prob.shape == (6, 2)
    assert_same(belief.counts, 0.5 ** torch.arange(5, -1, -1).repeat_interleave(2).double())
    again, _ = run(learner, learner.init(), x, y)
    assert_same(again.values, belief.values)
    assert belief.values[:, :-2].shape[-1] == vector_of(module).numel()


def test_what_does_not_fit_is_refused():
    module = mlp(2, 3, 1)
    with pytest.raises(ValueError, match="one particle or more, got 0"):
        svgd(module, GaussianLikelihood(), num_particles=0)
    with pytest.raises(ValueError, match="step to be one of adam, rmsprop, got 'sgd'"):
        svgd(module, GaussianLikelihood(), step="sgd")
    with pytest.raises(ValueError, match="a Gaussian likelihood, to learn its noise, got CategoricalLikelihood"):
        svgd(module, CategoricalLikelihood(), learns_noise=True)
    with pytest.raises(ValueError, match="reflections to be at least 0, got -1"):
        s2vgd(module, GaussianLikelihood(), reflections=-1)
    with pytest.raises(ValueError, match="variance to be positive"):
        svgd(module, GaussianLikelihood(), 0.0)
    with pytest.raises(ValueError, match="steps and batch of 1 or more"):
        svgd(module, GaussianLikelihood(), steps=0)
    learner = svgd(module, GaussianLikelihood())
    with pytest.raises(ValueError, match="got one that keeps all data"):
        learner.adopt(learner, learner.init())
    with pytest.raises(ValueError, match="rate to be at least 0 and at most 1"):
        learner.forget(learner.init(), 2.0)
