"""A step of structural filters beside torch's operations, in float64."""

import pytest
import torch

from tests.core.kernels.test_steps import EXACT, same, symmetric
from tests.oracles import generator, random_gaussian
from tsforecast.core import DiagonalLinearGaussian, Gaussian, NotPositiveDefiniteError
from tsforecast.core.composed import ComposedEmission, ComposedTransition
from tsforecast.core.innovation import ISSMEmission, ISSMTransition
from tsforecast.core.kernels import calls, structural
from tsforecast.core.stepping import step, step_unseen

SHAPE = (3, 4)
pytestmark = pytest.mark.usefixtures("program")


def conditionals(slopes, dense, damped, noise, damping, share, matrix, emitted):
    """Transition and emission of a sum of states, beside as many dense ones; the observation's noises are the last."""
    rest = noise.shape[-1] - 2 - dense
    own = ISSMTransition(damping if damped else None, noise[..., :rest], slopes, share)
    index = torch.tensor([[0, 3], [0, 2], [0, 1], [0, 3]])
    reading = ISSMEmission(
        index, emitted[..., -1], noise[..., -1], rest, 0.5 + torch.rand(4, 2, generator=generator(1)).double()
    )
    if not dense:
        return own, reading
    first = DiagonalLinearGaussian(matrix, emitted[..., 1:-1], noise[..., rest:-2])
    beside = DiagonalLinearGaussian(emitted[..., None, 1:-1], emitted[..., :1], noise[..., -2:-1])
    return ComposedTransition(own, first), ComposedEmission(reading, beside)


# Whole rows of vectors and others, with and without trends, dampings and dense states; some series have no slope.
@pytest.mark.parametrize(
    ("states", "dense", "slopes", "damped"),
    [(5, 0, (), True), (16, 0, (), False), (6, 3, (), True), (5, 16, ((0, 1),), True), (7, 0, ((0, 1), (2, 4)), False)],
)
@pytest.mark.parametrize("seen", ["all", "some", "none", "transition alone"])
def test_step(states, dense, slopes, damped, seen, by_torch, monkeypatch):
    rng = generator(states)
    draw = lambda *shape: torch.randn(*shape, generator=rng).double()  # noqa: E731
    prior, value = random_gaussian(SHAPE, states + dense, rng), draw(4, 1)
    noise, damping = 0.1 + draw(*SHAPE, states + dense + 2).square(), 0.8 + 0.1 * draw(4, states)
    matrix, emitted = 0.3 * draw(*SHAPE, dense, dense), draw(*SHAPE, dense + 2)
    share = (torch.arange(4) % 2).double().unsqueeze(-1) if states == 5 else None
    observed = None if seen == "all" else torch.tensor([True, False, True, False]).unsqueeze(-1)

    def moved(noise, damping, matrix, emitted, mean, cov, value):
        parts = conditionals(slopes, dense, damped, noise, damping, share, matrix, emitted)
        before = Gaussian(mean, symmetric(cov))
        if seen == "none":
            belief, expected = step_unseen(*parts, before)
            rest = expected.mean, expected.cov
        elif seen == "transition alone":
            belief, rest = parts[0].marginal(before), ()
        else:
            belief, log_prob = step(*parts, before, value, observed)
            rest = (log_prob,)
        unused = sum(0 * x.sum() for x in (damping, matrix, value, emitted))
        return belief.mean + unused, belief.cov, *rest

    names = same(moved, (noise, damping, matrix, emitted, prior.mean, prior.cov, value), by_torch, monkeypatch)
    assert names == {"structural_forward", "structural_backward"}


def test_second_derivatives_are_those_of_dense_matrices(by_torch):
    rng = generator(2)
    prior, given = random_gaussian((9,), 4, rng), ISSMEmission(torch.tensor([0]), *torch.ones(2, 1).double(), 4)
    start = 0.5 + torch.rand(9, 4, generator=rng).double()

    def hessian():
        damping = start.clone().requires_grad_()
        log_prob = step(
            ISSMTransition(damping, torch.ones(4).double(), ((0, 1),)), given, prior, torch.zeros(1).double()
        )[1]
        first = torch.autograd.grad(log_prob.sum(), damping, create_graph=True)[0]
        return torch.autograd.grad((first * first.detach()).sum(), damping)[0]

    torch.testing.assert_close(hessian(), by_torch(hessian), **EXACT)


def test_a_variance_that_is_not_positive_is_named():
    prior = random_gaussian((9,), 4, generator(1))
    cov = prior.cov.clone()
    cov[4] = -100 * cov[4]
    given = ISSMEmission(torch.tensor([0]), *torch.ones(2, 1).double(), 4)
    with pytest.raises(
        NotPositiveDefiniteError, match=r"variance of an observation is not positive .* series 4 \(1 of 9"
    ):
        step(
            ISSMTransition(None, torch.ones(4).double(), ()), given, Gaussian(prior.mean, cov), torch.zeros(1).double()
        )


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan")])
def test_a_variance_of_zero_is_named_too(variance):
    """Nothing is known of what is observed exactly, and observed again."""
    prior, noise = Gaussian(torch.zeros(9, 4).double(), torch.zeros(9, 4, 4).double()), torch.ones(9).double()
    noise[3] = variance
    given = ISSMEmission(torch.tensor([0]), torch.zeros(1).double(), noise, 4)
    with pytest.raises(
        NotPositiveDefiniteError, match=r"variance of an observation is not positive .* series 3 \(1 of 9"
    ):
        step(ISSMTransition(None, torch.zeros(4).double(), ()), given, prior, torch.zeros(1).double())


def test_many_states_and_other_steps_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(structural, "call", lambda *_: pytest.fail("the program was asked"))
    rng = generator(0)
    for states, count in ((calls.LARGEST + 1, 8), (4, 7)):
        prior = random_gaussian((count,), states, rng)
        given = ISSMEmission(torch.tensor([0]), *torch.ones(2, 1).double(), states)
        step(ISSMTransition(None, torch.ones(states).double(), ()), given, prior, torch.zeros(1).double())
    prior, dense = (
        random_gaussian((9,), 2, rng),
        DiagonalLinearGaussian(*torch.ones(3, 2, 2).double()[:1], *torch.ones(2, 2)),
    )
    step(dense, dense, prior, torch.zeros(2))


def test_numbers_of_another_type_and_mapped_ones_are_left_to_torch(monkeypatch):
    """Wherever they come in: as values, or as offsets."""
    monkeypatch.setattr(structural, "step", lambda *_: pytest.fail("the program was asked"))
    prior, moved = random_gaussian((9,), 4, generator(0)), ISSMTransition(None, torch.ones(4).double(), ())
    given = lambda offset: ISSMEmission(torch.tensor([0]), offset, torch.ones(1).double(), 4)  # noqa: E731
    step(moved, given(torch.zeros(1).double()), prior, torch.zeros(1))
    step(moved, given(torch.zeros(1)), prior, torch.zeros(1).double())
    torch.func.vmap(lambda x: step(moved, given(x), prior, torch.zeros(1).double())[1])(torch.zeros(2, 1).double())
