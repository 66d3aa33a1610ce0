"""Which tensors the compiled program takes: all else is refused, or as torch has it."""

import dataclasses

import pytest
import torch
from torch.autograd import forward_ad

from tests.core.test_structural import CASES, STEPS, problem
from tests.oracles import generator, random_conditional, random_gaussian, random_system
from tsforecast.core import Gaussian, Harmonics, LinearGaussian, LinearSystem, Season, Trend
from tsforecast.core.innovation import ISSMEmission, ISSMTransition
from tsforecast.core.kernels import calls, structural
from tsforecast.core.particles.proposals import DiagonalGaussian, propose
from tsforecast.core.stepping import step

pytestmark = pytest.mark.usefixtures("program", "unchecked_module")
SERIES = 9
PRIOR, CONDITIONAL = random_gaussian((SERIES,), 3, generator(1)), random_conditional((SERIES,), 2, 3, generator(2))
VALUES, SEEN = torch.randn(SERIES, 2, generator=generator(3)).double(), torch.arange(2 * SERIES).reshape(-1, 2) % 3 > 0
GUESS = DiagonalGaussian(torch.zeros(SERIES, 2).double(), torch.ones(SERIES, 2).double())
COMPONENTS = Trend(damped=True), Season(4), Harmonics(7, 2)


def whole_series():
    return problem(COMPONENTS, CASES[2])


def chain():
    rng = generator(4)
    values, seen = (
        torch.randn(STEPS, SERIES, 2, generator=rng).double(),
        torch.rand(STEPS, SERIES, 2, generator=rng) > 0.3,
    )
    return random_system((STEPS, SERIES), 3, 2, rng), random_gaussian((SERIES,), 3, rng), values, seen


def structured():
    prior = random_gaussian((SERIES,), 4, generator(5))
    transition = ISSMTransition(None, torch.ones(4).double(), ((0, 1),))
    return transition, ISSMEmission(torch.tensor([0, 2]), *torch.ones(2, 1).double(), 4), prior


def by_whole_series(mean=None, mask=lambda x: x):
    system, prior, values, seen = whole_series()
    return system.posterior(prior if mean is None else Gaussian(mean, prior.cov), values, mask(seen))[1]


def by_chain(mean=None, mask=lambda x: x):
    system, prior, values, seen = chain()
    return system.posterior(prior if mean is None else Gaussian(mean, prior.cov), values, mask(seen))[1]


def by_condition(mean=PRIOR.mean, mask=lambda x: x):
    return CONDITIONAL.posterior(Gaussian(mean, PRIOR.cov), VALUES, mask(SEEN))[1]


def by_proposal(mean=PRIOR.mean, mask=lambda x: x):
    sample, log_ratio, _ = propose(CONDITIONAL, Gaussian(mean, PRIOR.cov), GUESS, mask(SEEN[:, 0]), generator(6))
    return sample.sum(-1) + log_ratio


def by_step(mean=None, mask=lambda x: x):
    transition, emission, prior = structured()
    prior = prior if mean is None else Gaussian(mean, prior.cov)
    return step(transition, emission, prior, VALUES[:, :1], mask(SEEN[:, :1]))[1]


EVERY = [by_whole_series, by_chain, by_condition, by_proposal, by_step]


@pytest.mark.parametrize("function", EVERY)
def test_a_mask_of_numbers_is_refused(function):
    """Read byte by byte, it would name the wrong ones."""
    for dtype in (torch.int64, torch.int32, torch.float32, torch.float64):
        with pytest.raises(RuntimeError, match=r"boolean tensor|bitwise_and"):
            function(mask=lambda x: x.to(dtype))  # noqa: B023


def test_where_series_have_begun_is_no_number_either():
    system, prior, values, _ = whole_series()
    begun = torch.arange(STEPS)[:, None] >= torch.arange(values.shape[1])
    for dtype in (torch.int64, torch.float64):
        with pytest.raises(RuntimeError, match="boolean tensor"):
            dataclasses.replace(system, active=begun.to(dtype)).posterior(prior, values)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_positions_in_seasons_are_integers_of_any_size(dtype):
    system, prior, values, seen = whole_series()
    same = dataclasses.replace(system, index=system.index.to(dtype))
    assert torch.equal(same.posterior(prior, values, seen)[1], system.posterior(prior, values, seen)[1])


def test_positions_that_change_before_the_adjoint_are_noticed():
    system, prior, values, _ = whole_series()
    terms = system.posterior(prior, values.requires_grad_())[1]
    system.index.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        terms.sum().backward()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("index", lambda x: x[:-1]),
        ("index", lambda x: x[..., :1]),
        ("index", lambda x: x.double()),
        ("state_noise", lambda x: x[:-1]),
        ("state_noise", lambda x: x[..., :-1]),
        ("emission_noise", lambda x: x[:-1]),
        ("damping", lambda x: x[..., :0]),
        ("values", lambda x: torch.cat([x, x])),
        ("seen", lambda x: x[:-1]),
        ("mean", lambda x: x[..., :-1]),
        ("cov", lambda x: x[..., :-1, :-1]),
    ],
)
def test_whole_series_of_other_sizes_are_refused(name, change):
    """The program would read what lies behind them in memory."""
    system, prior, values, seen = whole_series()
    given = {"values": values, "seen": seen, "mean": prior.mean, "cov": prior.cov}
    if name in given:
        given[name] = change(given[name])
    else:
        system = dataclasses.replace(system, **{name: change(getattr(system, name))})
    with pytest.raises((RuntimeError, IndexError)):
        system.posterior(Gaussian(given["mean"], given["cov"]), given["values"], given["seen"])


def test_dampings_that_no_component_has_get_no_gradient():
    system, prior, values, _ = whole_series()
    damping = system.damping[..., [0, 0]].requires_grad_()
    terms = dataclasses.replace(system, damping=damping).posterior(prior, values)[1]
    assert not torch.autograd.grad(terms.sum(), damping)[0][..., 1].any()


def test_chains_of_other_sizes_are_as_torch_has_them(by_torch):
    """One noise, offset or mask for several targets is broadcast."""
    system, prior, values, seen = chain()
    a, c = system.transition, system.emission
    for transition, emission, mask in (
        (a, LinearGaussian(c.matrix, c.offset[..., :1], c.noise), seen),
        (a, c, seen[..., :1]),
        (LinearGaussian(a.matrix, a.offset[..., :1], a.noise), c, None),
        (LinearGaussian(a.matrix, a.offset, a.noise[..., :1, :1]), c, None),
    ):
        other = LinearSystem(transition, emission)
        found, expected = other.posterior(prior, values, mask)[1], by_torch(other.posterior, prior, values, mask)[1]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for mean, cov in ((torch.zeros(SERIES, 4).double(), prior.cov), (prior.mean, prior.cov[:, :2, :2])):
        with pytest.raises(RuntimeError):
            system.posterior(Gaussian(mean, cov), values)


def test_steps_of_other_sizes_are_as_torch_has_them(by_torch):
    """One noise, offset, value or mask for several targets is broadcast, with its gradient."""
    c = CONDITIONAL

    def posterior(offset, noise, value, mask):
        leaves = [x.detach().requires_grad_() for x in (offset, noise, value)]
        given = LinearGaussian(c.matrix, leaves[0], leaves[1])
        belief, log_prob = given.posterior(PRIOR, leaves[2], mask)
        total = log_prob.sum() + belief.mean.sum() + belief.cov.square().sum()
        return log_prob, *torch.autograd.grad(total, leaves)

    noise = 3 * c.noise
    for args in (
        (c.offset[:, :1], noise, VALUES, SEEN),
        (c.offset, noise, VALUES[:, :1], None),
        (c.offset, c.noise + 0.1 * noise[:, :1, :1], VALUES, SEEN),
    ):
        for one, two in zip(posterior(*args), by_torch(posterior, *args), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)
    for mean, cov in ((PRIOR.mean[:, :2], PRIOR.cov), (PRIOR.mean, PRIOR.cov[:, :2, :2])):
        with pytest.raises(RuntimeError):
            c.posterior(Gaussian(mean, cov), VALUES)


@pytest.mark.parametrize("function", EVERY)
def test_derivatives_in_forward_mode_are_right_or_refused(function):
    size = {by_whole_series: (problem(COMPONENTS, CASES[2])[1].mean.shape), by_step: (SERIES, 4)}.get(
        function, (SERIES, 3)
    )
    mean, tangent = torch.zeros(size).double().requires_grad_(), torch.randn(size, generator=generator(7)).double()
    expected = (torch.autograd.grad(function(mean).sum(), mean)[0] * tangent).sum()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(mean.detach(), tangent)
        if function in (by_whole_series, by_chain):
            with pytest.raises(NotImplementedError, match="jvp"):
                function(dual)
        else:
            found = forward_ad.unpack_dual(function(dual).sum()).tangent
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_cotangent_with_a_derivative_is_refused():
    mean = PRIOR.mean.clone().requires_grad_()
    log_prob = by_condition(mean).sum()
    with forward_ad.dual_level(), pytest.raises(TypeError, match="without derivatives in forward mode"):
        torch.autograd.grad(log_prob, mean, forward_ad.make_dual(*torch.ones(2).double()))


def test_memory_that_a_function_does_not_read_is_refused():
    prior, out = torch.zeros(8, 3, 3), torch.empty(8, 3)
    with pytest.raises(
        TypeError, match=r"push_forward reads contiguous torch.float32 .* Tensor 1 is torch.int32 on cpu"
    ):
        calls.call("push_forward", 8, (3, 3, 1), prior, prior.int(), out, out, prior, out, prior, prior)
    with pytest.raises(TypeError, match=r"Tensor 1 is torch\.float32 on meta"):
        calls.call("push_forward", 8, (3, 3, 1), prior, prior.to("meta"), out, out, prior, out, prior, prior)
    with pytest.raises(TypeError, match=r"Tensor 0 is torch\.float32 on cpu"):
        calls.call("push_forward", 8, (3, 3, 1), prior.mT, prior, out, out, prior, out, prior, prior)


def test_numbers_that_are_stored_with_the_other_sign_are_left_to_torch():
    """The imaginary part of a conjugate is a view of such numbers."""
    x = torch.randn(8, 3, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert not calls.serves(8, (3,), x)
    assert calls.serves(8, (3,), x.resolve_neg())


def test_positions_beyond_the_state_are_refused():
    transition, emission, prior = structured()
    far = dataclasses.replace(emission, index=torch.tensor([0, 4]))
    with pytest.raises(RuntimeError, match="out of bounds"):
        step(transition, far, prior, VALUES[:, :1])
    for slopes in (((0, 4),), ((-1, 1),)):
        with pytest.raises(IndexError, match="positions of levels and slopes among 4 states"):
            structural.move(slopes, prior.mean, prior.cov, None, None, torch.ones(SERIES, 4).double(), None)


def test_leading_dimensions_are_those_of_the_call_or_one():
    """Of a tensor of another size the program would read what is behind it."""
    for lead in ((5, 9), (1, 9), (5, 1), (1, 1)):
        assert calls.fits(torch.zeros(*lead, 3, 2), (5, 9), 3, 2)
    for shape in ((4, 9, 3, 2), (5, 8, 3, 2), (5, 3, 3, 2), (5, 9, 2, 3), (5, 9, 3), (5, 9, 1, 2), (5, 9, 3, 2, 1)):
        assert not calls.fits(torch.zeros(shape), (5, 9), 3, 2)
    assert calls.fits(None, (5, 9), 3, 2)
