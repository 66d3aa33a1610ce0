"""Steps of the compiled program beside torch's operations, in float64."""

import math

import pytest
import torch

from tests.oracles import generator, random_conditional, random_covariance, random_gaussian
from tsforecast.core import DiagonalLinearGaussian, Gaussian, LinearGaussian, NotPositiveDefiniteError
from tsforecast.core.kernels import calls, steps
from tsforecast.core.linear import condition
from tsforecast.core.particles import proposals
from tsforecast.core.particles.proposals import DiagonalGaussian, propose

SHAPE = (3, 4)
EXACT = {"rtol": 1e-10, "atol": 1e-10}
pytestmark = pytest.mark.usefixtures("program")


def same(function, inputs, by_torch, monkeypatch):
    """Values, and gradients of a random combination of them; the program was asked."""
    names: list[str] = []

    def noted(name, *args):
        names.append(name)
        return calls_call(name, *args)

    calls_call = calls.call
    for module in ("steps", "chain", "structural", "innovation"):
        monkeypatch.setattr(f"tsforecast.core.kernels.{module}.call", noted)

    def results():
        leaves = [x.clone().requires_grad_() for x in inputs]
        outputs = function(*leaves)
        rng = generator(7)
        total = sum((x * torch.randn(x.shape, generator=rng).double()).sum() for x in outputs)
        return [*outputs, *torch.autograd.grad(total, leaves)]

    expected = by_torch(results)
    assert not names
    found = results()
    assert names
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, **EXACT)
    return set(names)


def symmetric(x):
    return 0.5 * (x + x.mT)


# One and several vectors to a row; fewer and more outputs than states.
@pytest.mark.parametrize(("out", "dim", "missing"), [(1, 3, True), (10, 16, False), (5, 2, True), (3, 19, True)])
def test_marginal_and_posterior(out, dim, missing, by_torch, monkeypatch):
    rng = generator(out)
    prior, conditional = random_gaussian(SHAPE, dim, rng), random_conditional(SHAPE, out, dim, rng)
    value = torch.randn(*SHAPE, out, generator=rng).double()
    seen = torch.rand(*SHAPE, out, generator=rng) > 0.4 if missing else None

    def posterior(matrix, offset, noise, mean, cov, value):
        given = DiagonalLinearGaussian(matrix, offset, noise.square())
        belief, log_prob = given.posterior(Gaussian(mean, symmetric(cov)), value, seen)
        predicted = given.dense().marginal(Gaussian(mean, symmetric(cov)))
        return belief.mean, belief.cov, log_prob, predicted.mean, predicted.cov

    noise = 0.5 + torch.rand(out, generator=rng).double()  # one for all filters
    inputs = conditional.matrix, conditional.offset, noise, prior.mean, prior.cov, value
    names = same(posterior, inputs, by_torch, monkeypatch)
    assert names == {"push_forward", "push_backward", "condition_forward", "condition_backward"}


@pytest.mark.parametrize("output", range(5))
def test_gradients_of_one_output_alone(output, by_torch, monkeypatch):
    """Those that it does not depend on are zeros: memory that nothing was written into is NaN here."""
    rng = generator(output)
    prior, given = random_gaussian(SHAPE, 3, rng), random_conditional(SHAPE, 2, 3, rng)
    value = torch.randn(*SHAPE, 2, generator=rng).double()

    def alone(*leaves):
        matrix, offset, noise, mean, cov, value = leaves
        conditional, before = LinearGaussian(matrix, offset, symmetric(noise)), Gaussian(mean, symmetric(cov))
        belief, log_prob = conditional.posterior(before, value)
        predicted = conditional.marginal(before)
        found = belief.mean, belief.cov, log_prob, predicted.mean, predicted.cov
        return (found[output] + 0 * sum(x.sum() for x in leaves),)

    torch.use_deterministic_algorithms(True)
    try:
        same(alone, (given.matrix, given.offset, given.noise, prior.mean, prior.cov, value), by_torch, monkeypatch)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("proposed", ["model", "all", "some"])
def test_propose(proposed, by_torch, monkeypatch):
    rng = generator(3)
    prior, conditional = random_gaussian(SHAPE, 6, rng), random_conditional(SHAPE, 4, 6, rng)
    guess, variance = torch.randn(4, 4, generator=rng).double(), 0.3 + torch.rand(4, 4, generator=rng).double()
    weight = torch.tensor([True, False, True, False]) if proposed == "some" else None

    def sample(matrix, offset, mean, cov, guess, variance):
        proposal = None if proposed == "model" else DiagonalGaussian(guess, variance)
        given = DiagonalLinearGaussian(matrix, offset, torch.full((4,), 0.2).double())
        b, log_ratio, belief = propose(given, Gaussian(mean, symmetric(cov)), proposal, weight, generator(5))
        return b, log_ratio + 0 * guess.sum() + 0 * variance.sum(), belief.mean, belief.cov

    inputs = conditional.matrix, conditional.offset, prior.mean, prior.cov, guess, variance
    names = same(sample, inputs, by_torch, monkeypatch)
    assert {"propose_forward", "propose_backward"} <= names


@pytest.mark.parametrize("states", [1, 2])
def test_a_proposal_of_many_outputs_in_float32_rounds_no_more_than_torch(states):
    """In the gradient of the matrix nearly all of Cov(b, a) and of the covariance of b cancels."""
    rng, out, count = generator(states), 64, 50
    matrix, cov = torch.randn(count, out, states, generator=rng), random_covariance((count,), states, rng).float()
    mean, noise, guess, more = (torch.randn(count, out, generator=rng) for _ in range(4))
    variance, weights = 0.3 + torch.rand(count, out, generator=rng), torch.randn(count, out, generator=rng)

    def gradient(propose, dtype):
        c, p, *rest = (x.to(dtype) for x in (matrix, cov, mean, noise, guess, variance, more, weights))
        c.requires_grad_()
        among = c @ p @ c.mT + torch.eye(out, dtype=dtype)
        tensors = c.new_zeros(count, states), p, rest[0], c @ p, among, *rest[1:-1], None
        sample, log_ratio, state, state_cov = propose(*tensors)[:4]
        total = (sample * rest[-1]).sum() + log_ratio.sum() + state.sum() + state_cov.sum()
        return torch.autograd.grad(total, c)[0].double()

    exact = gradient(proposals._propose, torch.float64)
    by_torch = gradient(proposals._propose, torch.float32) - exact
    found = gradient(lambda *tensors: steps.propose(proposals._propose, *tensors), torch.float32) - exact
    assert found.norm() < 2 * by_torch.norm()


def test_second_derivatives_are_those_of_torch(by_torch):
    rng = generator(2)
    conditional, value = random_conditional((8,), 2, 3, rng), torch.randn(8, 2, generator=rng).double()
    mean, cov = torch.zeros(8, 3).double(), random_covariance((8,), 3, rng)

    def hessian():
        matrix = conditional.matrix.clone().requires_grad_()
        given = DiagonalLinearGaussian(matrix, conditional.offset, torch.ones(2).double())
        log_prob = given.posterior(Gaussian(mean, cov), value)[1].sum()
        first = torch.autograd.grad(log_prob, matrix, create_graph=True)[0]
        return torch.autograd.grad((first * first.detach()).sum(), matrix)[0]

    torch.testing.assert_close(hessian(), by_torch(hessian), **EXACT)


def test_a_singular_covariance_is_named():
    rng = generator(1)
    prior, conditional = random_gaussian((9,), 3, rng), random_conditional((9,), 2, 3, rng)
    cov = prior.cov.clone()
    cov[4] = -100 * cov[4]
    with pytest.raises(NotPositiveDefiniteError, match=r"observation is not positive definite at series 4 \(1 of 9"):
        conditional.posterior(Gaussian(prior.mean, cov), torch.zeros(9, 2).double())


@pytest.mark.parametrize("row", [0, 1, 8])
@pytest.mark.parametrize("pivot", [0.0, -1.0, math.nan, math.inf])
def test_a_pivot_that_is_not_positive_is_named(row, pivot):
    """Wherever it stands, within the first vector of a row or behind it."""
    among = torch.eye(9).double().repeat(9, 1, 1)
    among[4, row, row] = pivot
    prior, cross = Gaussian(torch.zeros(9, 2).double(), torch.eye(2).double().repeat(9, 1, 1)), torch.zeros(9, 9, 2)
    with pytest.raises(NotPositiveDefiniteError, match=r"at series 4 \(1 of 9"):
        condition(prior, torch.zeros(9, 9).double(), cross.double(), among, None)


def test_a_proposal_names_what_is_singular():
    """The covariance of what is proposed, or its sum with the variance of the proposal."""
    rng = generator(1)
    prior, given = random_gaussian((9,), 3, rng), random_conditional((9,), 2, 3, rng)
    guess = DiagonalGaussian(torch.zeros(9, 2).double(), torch.ones(9, 2).double())
    cov, variance = prior.cov.clone(), guess.variance.clone()
    cov[4] = -100 * cov[4]
    variance[7] = -1e6
    for bad, proposal, where in (
        (Gaussian(prior.mean, cov), None, "covariance of a switch or auxiliary is not positive definite at series 4"),
        (Gaussian(prior.mean, cov), guess, "covariance of a switch or auxiliary is not positive definite at series 4"),
        (
            prior,
            DiagonalGaussian(guess.mean, variance),
            "covariance of a proposal is not positive definite at series 7",
        ),
    ):
        with pytest.raises(NotPositiveDefiniteError, match=rf"{where} \(1 of 9"):
            propose(given, bad, proposal)


@pytest.mark.parametrize(("dtype", "variance"), [(torch.float32, 1e37), (torch.float64, 1e150)])
def test_products_of_huge_variances_do_not_overflow(dtype, variance):
    """Logarithms are taken of several at once; behind them is one matrix after the other."""
    among = variance * torch.eye(13, dtype=dtype).repeat(8, 1, 1)
    prior = Gaussian(torch.zeros(8, 2, dtype=dtype), torch.eye(2, dtype=dtype).repeat(8, 1, 1))
    cross = torch.zeros(8, 13, 2, dtype=dtype)
    log_prob = condition(prior, torch.zeros(8, 13, dtype=dtype), cross, among, None)[1]
    expected = torch.full_like(log_prob, -6.5 * (math.log(variance) + math.log(2 * math.pi)))
    torch.testing.assert_close(log_prob, expected)
    guess = torch.zeros(13, dtype=dtype), torch.full((13,), variance, dtype=dtype)
    given = DiagonalLinearGaussian(cross, guess[0], torch.ones(13, dtype=dtype))
    log_ratio = propose(given, prior, DiagonalGaussian(*guess), None, generator(1))[1]
    # Nothing is learnt from it: the sample is that of the model, and both densities are 1 / sqrt(2 pi D).
    torch.testing.assert_close(log_ratio, torch.zeros_like(log_ratio), rtol=0, atol=13 * 200 * torch.finfo(dtype).eps)


def test_few_and_mapped_filters_are_left_to_torch():
    x = torch.zeros(8, 3, 3)
    assert calls.serves(8, (2, 3), x)
    assert not calls.serves(7, (2, 3), x)
    assert not calls.serves(8, (2, calls.LARGEST + 1), x)
    assert not calls.serves(8, (2, 3), x, x.double())
    assert not calls.serves(8, (2, 3), x.half())
    torch.func.vmap(lambda y: pytest.fail("mapped") if calls.serves(8, (2, 3), y) else y)(x)
