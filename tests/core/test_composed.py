"""Structural components beside a dense system, against one dense system with the matrices of both."""

import dataclasses

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.core.test_structural import CASES, STEPS, random_issm, same, textbook
from tests.oracles import generator, random_data, random_gaussian, random_system
from tsforecast.core import (
    ComposedSystem,
    DiagonalLinearGaussian,
    Gaussian,
    Harmonics,
    Level,
    LinearGaussian,
    LinearSystem,
    Season,
    Trend,
    kalman,
)
from tsforecast.core.composed import beside, compose
from tsforecast.core.particles.proposals import DiagonalGaussian, propose

EXACT = {"rtol": 1e-10, "atol": 1e-10}
SUMS = [(Level(),), (Level(damped=True), Season(4)), (Trend(damped=True), Harmonics(9, 1), Season(3))]
# Whether the dense part varies with time, and whether its matrices differ between series.
DENSE = ["constant", "own of each series", "varying with time"]
SERIES, STATES = 3, 2


def problem(components, case: str, dense: str = DENSE[1], targets: int = 1, seed: int = 0, steps: int = STEPS):
    rng = generator(seed)
    batch = () if case == CASES[0] or dense == DENSE[0] else (SERIES,)
    rest = random_system((steps if dense == DENSE[2] else 1, *batch), STATES, targets, rng)
    system = ComposedSystem(random_issm(components, case, SERIES, rng, steps), rest)
    prior = random_gaussian(() if case == CASES[0] else (SERIES,), system.structure.num_states + STATES, rng)
    return system, prior, *random_data((steps, SERIES), targets, rng)


def by_hand(system: ComposedSystem) -> LinearSystem:
    """One dense system, whose matrices are filled block by block."""
    one, two = textbook(system.structure), system.rest
    size, out = system.structure.num_states, system.num_targets
    steps = len(one.transition.matrix)
    shapes = [x.shape[1:-2] for x in (one.transition.matrix, two.transition.matrix)]
    batch = torch.broadcast_shapes(*shapes)
    total = size + STATES

    def filled(rows: int, columns: int, *parts) -> torch.Tensor:
        whole = torch.zeros(steps, *batch, rows, columns).double()
        for row, column, part in parts:
            part = part.reshape(len(part), *[1] * (len(batch) + 3 - part.ndim), *part.shape[1:])
            whole[..., row : row + part.shape[-2], column : column + part.shape[-1]] += part
        return whole

    def offset(dim: int, row: int, *parts) -> torch.Tensor:
        return filled(dim, 1, *((at, 0, x.unsqueeze(-1)) for at, x in zip((0, row), parts, strict=True))).squeeze(-1)

    a, b = one.transition, two.transition
    c, d = one.emission, two.emission
    return LinearSystem(
        LinearGaussian(
            filled(total, total, (0, 0, a.matrix), (size, size, b.matrix)),
            offset(total, size, a.offset, b.offset),
            filled(total, total, (0, 0, a.noise), (size, size, b.noise)),
        ),
        LinearGaussian(
            filled(out, total, (0, 0, c.matrix), (0, size, d.matrix)),
            offset(out, 0, c.offset, d.offset),
            filled(out, out, (0, 0, c.noise), (0, 0, d.noise)),
        ),
    )


@pytest.mark.parametrize("components", SUMS, ids=lambda c: "+".join(type(x).__name__ for x in c))
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dense", DENSE)
@pytest.mark.parametrize("targets", [1, 2])
def test_steps_and_blocks_equal_those_of_one_dense_system(components, case, dense, targets, monkeypatch):
    """Over ten steps: two blocks of four and a rest, and more than any period."""
    monkeypatch.setattr(ComposedSystem, "block_shape", lambda *_: (4, 2))
    steps = 10
    system, prior, values, observed = problem(components, case, dense, targets, steps=steps)
    whole = by_hand(system)
    for t in (0, steps - 1):
        for at in (system.at, system.by_step()):
            for ours, theirs in zip(at(t), whole.at(t), strict=True):
                for name in ("matrix", "offset", "noise"):
                    one, two = getattr(ours.dense(), name), getattr(theirs, name)
                    torch.testing.assert_close(*torch.broadcast_tensors(one, two), **EXACT)
                same(ours.marginal(prior), theirs.marginal(prior))
                for one, two in zip(ours.joint(prior), theirs.joint(prior), strict=True):
                    torch.testing.assert_close(*torch.broadcast_tensors(one, two), **EXACT)
    for mask in (None, observed):
        expected, expected_terms = whole.posterior(prior, values, mask)
        belief, terms = system.posterior(prior, values, mask)
        torch.testing.assert_close(terms, expected_terms, **EXACT)
        same(belief, expected)
        by_step = kalman.filter(system, prior, values, mask)
        torch.testing.assert_close(by_step.log_likelihood, expected_terms, **EXACT)
        same(by_step.belief, expected)
    same(system.predictive(prior, 7), whole.predictive(prior, 7))
    same(system.marginals(prior, steps), whole.marginals(prior, steps))
    ours, theirs = (kalman.smooth(x, prior, values, observed) for x in (system, whole))
    same(ours.states, theirs.states)
    same(ours.initial, theirs.initial)
    torch.testing.assert_close(ours.cross, theirs.cross, **EXACT)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_step_by_variances_equals_that_by_covariances(targets):
    """As the particles take it, also where the dense part differs between particles and the structure does not."""
    rng = generator(4)
    system, prior, values, observed = problem(SUMS[1], CASES[1], DENSE[1], targets)
    for conditional in system.at(3):
        shape = (2, SERIES, conditional.rest.offset.shape[-1])
        variance = torch.rand(*shape, generator=rng).double()
        matrix = conditional.rest.matrix + torch.randn(2, 1, 1, 1, generator=rng).double()
        forms = (
            DiagonalLinearGaussian(matrix, conditional.rest.offset, variance),
            LinearGaussian(matrix, conditional.rest.offset, torch.diag_embed(variance)),
        )
        ours, theirs = (dataclasses.replace(conditional, rest=form) for form in forms)
        same(ours.marginal(prior), theirs.dense().marginal(prior))
    emitted, log_prob = ours.posterior(prior, values[3], observed[3])
    expected, expected_log_prob = theirs.dense().posterior(prior, values[3], observed[3])
    same(emitted, expected)
    torch.testing.assert_close(log_prob, expected_log_prob, **EXACT)
    proposal = DiagonalGaussian(values[3], torch.ones_like(values[3]))
    found = [propose(x, prior, proposal, generator=generator(5)) for x in (ours, theirs.dense())]
    for one, two in zip(*(pytree.tree_leaves(x) for x in found), strict=True):
        torch.testing.assert_close(one, two, **EXACT)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dense", DENSE)
@pytest.mark.parametrize("form", ["block", "step"])
def test_gradients_equal_autograd_of_one_dense_system(case, dense, form):
    """Every parameter, prior and values; every step has a weight of its own, and the last belief weighs too."""
    system, prior, values, observed = problem(SUMS[2], case, dense)
    weights = torch.randn(STEPS, SERIES, generator=generator(3)).double()
    given, tree = pytree.tree_flatten((system, prior, values))
    leaves = [x.clone().requires_grad_() if torch.is_tensor(x) and x.is_floating_point() else x for x in given]
    wanted = [x for x in leaves if torch.is_tensor(x) and x.requires_grad and x.numel()]
    gradients = []
    for function in (None, form):
        model, start, y = pytree.tree_unflatten(leaves, tree)
        start = Gaussian(start.mean, 0.5 * (start.cov + start.cov.mT))
        if function == "block":
            belief, terms = model.posterior(start, y, observed)
        else:
            filtered = kalman.filter(by_hand(model) if function is None else model, start, y, observed)
            belief, terms = filtered.belief, filtered.log_likelihood
        total = (terms * weights).sum() + belief.mean.sum() + belief.cov.square().sum()
        gradients.append(torch.autograd.grad(total, wanted))
    for expected, ours in zip(*gradients, strict=True):
        assert expected.abs().sum() > 0
        if expected.ndim > 2 and expected.shape[-1] == expected.shape[-2]:  # of a covariance the symmetric part counts
            expected, ours = (x + x.mT for x in (expected, ours))
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)


def test_samples_have_the_moments_of_the_joint_gaussian():
    system, prior, *_ = problem(SUMS[1], CASES[1], DENSE[1], targets=2)
    count, steps = 20000, 3
    _, paths = kalman.simulate(system, prior, steps, count, generator(6))
    exact = by_hand(system).predictive(prior, steps)
    centred = paths.movedim(0, -2).flatten(-2) - exact.mean
    for sample, expected in ((centred, 0.0), (centred.unsqueeze(-1) * centred.unsqueeze(-2), exact.cov)):
        error = (sample.mean(0) - expected) / (sample.std(0) / count**0.5)
        assert error.abs().max() < 4.5


def test_derivatives_of_each_series_by_vmap_equal_those_of_a_loop():
    """As adaptation takes them."""
    system, prior, values, observed = problem(SUMS[1], CASES[1], DENSE[0])
    at = lambda k: lambda x: x[:, k] if x.ndim > 1 and x.shape[1] == SERIES else x  # noqa: E731

    def score(noise, index, y, mask, mean, cov):
        structure = dataclasses.replace(
            pytree.tree_map_only(torch.Tensor, at(0), system.structure), state_noise=noise, index=index
        )
        structure = dataclasses.replace(structure, damping=system.structure.damping[0])
        return ComposedSystem(structure, system.rest).log_likelihood(Gaussian(mean, cov), y, mask).sum()

    arguments = (
        *(system.structure.state_noise.movedim(1, 0), system.structure.index.movedim(1, 0)),
        *(x.movedim(1, 0) for x in (values, observed)),
        *(prior.mean, prior.cov),
    )
    together = torch.func.vmap(torch.func.grad(score))(*arguments)
    for k in range(SERIES):
        torch.testing.assert_close(together[k], torch.func.grad(score)(*(x[k] for x in arguments)), **EXACT)


def test_an_empty_part_leaves_the_structure():
    system, prior, *_ = problem(SUMS[1], CASES[1])
    assert compose(system.structure, None) is system.structure
    assert beside(prior, None) is prior
    joined = beside(prior, random_gaussian((), STATES, generator(1)))
    assert joined.cov.shape == (SERIES, *2 * (system.structure.num_states + 2 * STATES,))
