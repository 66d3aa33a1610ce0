"""The compiled chain beside torch's operations, in float64; and long series in float32."""

import pytest
import torch

from tests.core.kernels.test_steps import same, symmetric
from tests.oracles import generator, random_gaussian, random_system
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman
from tsforecast.core.components import Level, Trend
from tsforecast.core.kernels.chain import filter_chain
from tsforecast.core.seasonal import Harmonics, Season
from tsforecast.core.series.chain import Chain
from tsforecast.core.structural import ISSM

pytestmark = pytest.mark.usefixtures("program")
STEPS, SERIES = 27, 8
CHAIN = {"chain_forward", "chain_backward"}


@pytest.mark.parametrize(("steps", "states", "targets", "missing"), [(1, 16, 3, True), (STEPS, 3, 2, False)])
def test_dense_systems(steps, states, targets, missing, by_torch, monkeypatch):
    rng = generator(states)
    system, prior = random_system((steps, SERIES), states, targets, rng), random_gaussian((SERIES,), states, rng)
    values = torch.randn(STEPS, SERIES, targets, generator=rng).double()
    seen = torch.rand(STEPS, SERIES, targets, generator=rng) > 0.3 if missing else None
    parts = [getattr(x, name) for x in (system.transition, system.emission) for name in ("matrix", "offset", "noise")]

    def posterior(a, b, r, c, d, q, mean, cov, values):
        system = LinearSystem(LinearGaussian(a, b, symmetric(r)), LinearGaussian(c, d, symmetric(q)))
        belief, terms = system.posterior(Gaussian(mean, symmetric(cov)), values, seen)
        return belief.mean, belief.cov, terms

    assert same(posterior, [*parts, prior.mean, prior.cov, values], by_torch, monkeypatch) == CHAIN


@pytest.mark.parametrize(
    ("components", "cycles", "begins"),
    [
        ((Level(), Season(4)), (4,), False),
        ((Trend(damped=True), Season(4)), (4,), True),
        ((Level(damped=True), Harmonics(7, 2)), (7,), True),
    ],
)
def test_innovation_models(components, cycles, begins, by_torch, monkeypatch):
    """Their blocks, which many states and mapped parameters go through."""
    monkeypatch.setattr(ISSM, "whole", lambda *_: None)
    rng = generator(1)
    steps, series = torch.arange(STEPS)[:, None], torch.arange(SERIES)
    index = torch.stack([(steps + series) % cycle for cycle in cycles], -1)
    active = steps >= series % 5 if begins else None
    noise = 0.1 + torch.rand(STEPS, SERIES, sum(len(c.noises) for c in components), generator=rng).double()
    emission_noise, damping = 0.1 + torch.rand(1, SERIES, generator=rng).double(), torch.full((SERIES, 1), 0.9).double()
    prior = random_gaussian((SERIES,), sum(c.size for c in components), rng)
    values = torch.randn(STEPS, SERIES, 1, generator=rng).double()
    seen = torch.rand(STEPS, SERIES, 1, generator=rng) > 0.2
    damped = any(c.is_damped for c in components)

    def posterior(noise, emission_noise, damping, mean, cov, values):
        offset = 0 * damping[None, :, 0]
        factors = damping if damped else damping[:, :0]
        system = ISSM(components, index, noise, emission_noise, factors, offset, active)
        belief, terms = system.posterior(Gaussian(mean, symmetric(cov)), values, seen)
        return belief.mean, belief.cov, terms

    inputs = noise, emission_noise, damping, prior.mean, prior.cov, values
    assert same(posterior, inputs, by_torch, monkeypatch) == CHAIN


@pytest.mark.parametrize(("crossed", "diagonal"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_drift_of_each_column(columns, crossed, diagonal, by_torch, monkeypatch):
    """Series that share a covariance are columns of means, each with a drift of its own."""
    rng, blocks, targets, states = generator(columns), 3, 2, 3

    def drawn(*shape):
        return torch.randn(*shape, generator=rng).double()

    square = 0.3 * drawn(blocks, SERIES, targets, targets), 0.3 * drawn(blocks, SERIES, states, states)
    noise, state_noise = (x @ x.mT + torch.eye(x.shape[-1]).double() for x in square)
    matrix, transition = drawn(blocks, SERIES, targets, states), 0.5 * drawn(blocks, SERIES, states, states)
    if diagonal:
        transition, state_noise = (
            x.diagonal(dim1=-2, dim2=-1).unsqueeze(-1).clone() for x in (transition, state_noise)
        )
    cross = 0.1 * drawn(blocks, SERIES, targets, states) if crossed else None
    rows, drift = drawn(blocks, SERIES, targets, columns), drawn(blocks, SERIES, states, columns)
    mean, cov = drawn(SERIES, states, columns), torch.eye(states).double().expand(SERIES, -1, -1)

    def filtered(rows, mean, cov, matrix, noise, transition, drift, state_noise, *cross):
        given = cross[0] if cross else None
        parts = matrix, symmetric(noise), given, transition, drift, state_noise
        return Chain.apply(True, True, rows, None, mean, symmetric(cov), *parts)[:3]

    inputs = rows, mean, cov, matrix, noise, transition, drift, state_noise, *([] if cross is None else [cross])
    assert same(filtered, inputs, by_torch, monkeypatch) == CHAIN


def test_nothing_after_a_failure_is_a_number():
    """Under `vmap` nobody looks at what has failed: the terms say it, and one block of a series is named."""
    rng, blocks, targets = generator(3), 4, 2
    rows, matrix = (torch.randn(blocks, SERIES, targets, x, generator=rng).double() for x in (2, 3))
    mean, cov = torch.zeros(SERIES, 3, 2).double(), torch.eye(3).double().expand(SERIES, 3, 3).contiguous()
    noise = torch.eye(targets).double().repeat(blocks, SERIES, 1, 1)
    noise[1, 5] = noise[2, 2] = -100 * torch.eye(targets)
    state_noise, drift = cov.expand(blocks, -1, -1, -1).contiguous(), mean.expand(blocks, -1, -1, -1).contiguous()
    spoilt = torch.full((blocks, SERIES), 7, dtype=torch.int32)
    del spoilt  # what is not written may be what was there before
    terms, _, _, info = filter_chain(False, False, rows, None, mean, cov, matrix, noise, None, None, drift, state_noise)
    expected = torch.zeros(blocks, SERIES, dtype=torch.int32)
    expected[1, 5] = expected[2, 2] = 1
    assert torch.equal(info, expected)
    failed = torch.zeros(blocks, SERIES, dtype=torch.bool)
    failed[1:, 5] = failed[2:, 2] = True
    assert torch.equal(terms.isnan(), failed[..., None, None].expand_as(terms))


def test_long_series_in_float32_stay_positive_definite(by_torch):
    """Small noises beside a wide prior, for so long that rounding would add up."""
    eye = torch.eye(3).expand(1, SERIES, 3, 3)
    transition = LinearGaussian(torch.tril(eye + 0.1 * torch.ones(3, 3)), torch.zeros(1, SERIES, 3), 1e-4 * eye)
    emission = LinearGaussian(torch.ones(1, SERIES, 1, 3), torch.zeros(1, SERIES, 1), 0.1 * torch.ones(1, SERIES, 1, 1))
    damped = LinearGaussian(0.9 * transition.matrix, transition.offset, transition.noise)
    system, prior = LinearSystem(damped, emission), Gaussian(torch.zeros(SERIES, 3), 100 * eye[0])
    values = torch.randn(3003, SERIES, 1, generator=generator(0))  # the last steps are no whole round of eight
    with torch.no_grad():
        belief, terms = system.posterior(prior, values)
        expected, _ = by_torch(system.posterior, prior, values)
    assert terms.isfinite().all()
    assert torch.linalg.eigvalsh(belief.cov).min() > 0
    torch.testing.assert_close(belief.cov, belief.cov.mT, rtol=0, atol=0)
    torch.testing.assert_close(belief.cov, expected.cov, rtol=2e-3, atol=1e-6)


def test_rounding_does_not_grow_in_a_system_that_explodes():
    """What is added to a covariance beside its symmetric part is never taken off by an observation."""
    rng = generator(6)
    system, prior = random_system((1, SERIES), 3, 3, rng), random_gaussian((SERIES,), 3, rng)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=rng).double())[0]
    transition = LinearGaussian((1.3 * turn).expand(1, SERIES, 3, 3), system.transition.offset, system.transition.noise)
    terms = LinearSystem(transition, system.emission).log_likelihood(prior, torch.zeros(500, SERIES, 3).double())
    torch.testing.assert_close(terms[-1], terms[-8], rtol=1e-8, atol=0)  # it has long been stationary
    before = kalman.filter(LinearSystem(transition, system.emission), prior, torch.zeros(500, SERIES, 3).double())
    torch.testing.assert_close(terms, before.log_likelihood, rtol=1e-8, atol=1e-8)


def test_many_cotangents_at_once_are_those_one_by_one():
    """A vector-Jacobian product inside `vmap`, of the tape that the program has written."""
    rng = generator(5)
    system, prior = random_system((1, SERIES), 3, 1, rng), random_gaussian((SERIES,), 3, rng)
    values = torch.randn(STEPS, SERIES, 1, generator=rng).double()

    def per_series(matrix):
        moved = LinearGaussian(matrix, system.transition.offset, system.transition.noise)
        return LinearSystem(moved, system.emission).posterior(prior, values)[1].sum(0)

    matrix = system.transition.matrix.detach().requires_grad_()
    terms, eye = per_series(matrix), torch.eye(SERIES).double()
    one_by_one = torch.stack([torch.autograd.grad(terms, matrix, row, retain_graph=True)[0] for row in eye])
    found = torch.func.jacrev(per_series)(matrix.detach())
    torch.testing.assert_close(found, one_by_one, rtol=1e-12, atol=1e-12)
