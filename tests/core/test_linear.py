import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import (
    generator,
    plain_log_likelihood,
    random_conditional,
    random_data,
    random_gaussian,
    random_system,
)
from tsforecast.core import DiagonalLinearGaussian, Gaussian, LinearGaussian, LinearSystem, kalman, map_tensors

EXACT = {"rtol": 1e-8, "atol": 1e-8}
seeds, dims = st.integers(0, 2**31), st.integers(1, 4)


def same(one: Gaussian, two: Gaussian):
    torch.testing.assert_close(one.mean.expand_as(two.mean), two.mean, **EXACT)
    torch.testing.assert_close(one.cov.expand_as(two.cov), two.cov, **EXACT)


def joint(prior: Gaussian, conditional: LinearGaussian) -> Gaussian:
    """The joint Gaussian of (a, b), by the formula."""
    m, d, q = conditional.matrix, conditional.offset, conditional.noise
    cross = prior.cov @ m.mT
    cov = torch.cat([torch.cat([prior.cov, cross], -1), torch.cat([cross.mT, m @ cross + q], -1)], -2)
    return Gaussian(torch.cat([prior.mean, (m @ prior.mean[..., None])[..., 0] + d], -1), cov)


@settings(max_examples=25, deadline=None)
@given(seeds, dims, dims)
def test_bayes(seed, out, dim):
    """p(a) p(b | a) = p(b) p(a | b), at any a and b; p(b | a) is read off the formula."""
    rng = generator(seed)
    prior, conditional = random_gaussian((3,), dim, rng), random_conditional((3,), out, dim, rng)
    a, b = (torch.randn(3, n, generator=rng).double() for n in (dim, out))
    posterior, log_prob = conditional.posterior(prior, b)
    forward = Gaussian((conditional.matrix @ a[..., None])[..., 0] + conditional.offset, conditional.noise)
    torch.testing.assert_close(log_prob, conditional.marginal(prior).log_prob(b), **EXACT)
    torch.testing.assert_close(prior.log_prob(a) + forward.log_prob(b), log_prob + posterior.log_prob(a), **EXACT)


@settings(max_examples=25, deadline=None)
@given(seeds, dims, dims)
def test_marginal_and_posterior_are_those_of_the_joint(seed, out, dim):
    rng = generator(seed)
    prior, conditional = random_gaussian((2,), dim, rng), random_conditional((2,), out, dim, rng)
    both = joint(prior, conditional)
    same(conditional.marginal(prior), both.marginal(slice(dim, None)))
    value = torch.randn(2, out, generator=rng).double()
    seen = torch.rand(2, out, generator=rng) > 0.4
    mask = torch.cat([torch.zeros(2, dim, dtype=torch.bool), seen], -1)
    expected = both.condition(torch.cat([torch.zeros(2, dim).double(), value], -1), mask).marginal(slice(0, dim))
    posterior, log_prob = conditional.posterior(prior, value, seen)
    same(posterior, expected)
    for i in range(2):  # the observed alone
        alone = both.marginal(slice(dim, None))
        here = map_tensors(lambda x, i=i: x[i], alone).marginal(seen[i].nonzero()[:, 0])
        expected_log_prob = here.log_prob(value[i][seen[i]]) if seen[i].any() else torch.tensor(0.0).double()
        torch.testing.assert_close(log_prob[i], expected_log_prob, **EXACT)


@settings(max_examples=25, deadline=None)
@given(seeds, dims, st.permutations(range(3)))
def test_the_order_of_independent_observations_does_not_matter(seed, dim, order):
    """Three observations one by one in any order, or all at once as one vector with a block-diagonal noise."""
    rng = generator(seed)
    prior = random_gaussian((), dim, rng)
    parts = [random_conditional((), 2, dim, rng) for _ in range(3)]
    values = torch.randn(3, 2, generator=rng).double()
    together = LinearGaussian(
        torch.cat([p.matrix for p in parts]),
        torch.cat([p.offset for p in parts]),
        torch.block_diag(*[p.noise for p in parts]),
    )
    expected, expected_log_prob = together.posterior(prior, values.ravel())
    belief, total = prior, torch.tensor(0.0).double()
    for i in order:
        belief, log_prob = parts[i].posterior(belief, values[i])
        total = total + log_prob
    same(belief, expected)
    torch.testing.assert_close(total, expected_log_prob, **EXACT)


@settings(max_examples=25, deadline=None)
@given(seeds, dims)
def test_pushing_through_two_conditionals_is_pushing_through_their_product(seed, dim):
    rng = generator(seed)
    prior = random_gaussian((), dim, rng)
    one, two = random_conditional((), 3, dim, rng), random_conditional((), 2, 3, rng)
    product = LinearGaussian(
        two.matrix @ one.matrix,
        two.matrix @ one.offset + two.offset,
        two.matrix @ one.noise @ two.matrix.T + two.noise,
    )
    same(two.marginal(one.marginal(prior)), product.marginal(prior))
    value = torch.randn(2, generator=rng).double()
    torch.testing.assert_close(
        two.posterior(one.marginal(prior), value)[1], product.posterior(prior, value)[1], **EXACT
    )


@settings(max_examples=25, deadline=None)
@given(seeds, dims)
def test_missing_is_absent(seed, dim):
    """No component observed: belief and likelihood unchanged, to the last bit; some: as if the others did not exist."""
    rng = generator(seed)
    prior, conditional = random_gaussian((2,), dim, rng), random_conditional((), 3, dim, rng)
    value = torch.randn(2, 3, generator=rng).double()
    belief, log_prob = conditional.posterior(prior, value, torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(belief.mean, prior.mean)
    assert torch.equal(belief.cov, prior.cov)
    assert (log_prob == 0).all()
    kept = [0, 2]
    mask = torch.tensor([True, False, True]).expand(2, 3)
    smaller = LinearGaussian(conditional.matrix[kept], conditional.offset[kept], conditional.noise[kept][:, kept])
    expected, expected_log_prob = smaller.posterior(prior, value[:, kept])
    belief, log_prob = conditional.posterior(prior, value, mask)
    same(belief, expected)
    torch.testing.assert_close(log_prob, expected_log_prob, **EXACT)


def test_a_noiseless_transition_and_an_exact_observation_are_allowed():
    """Noise of zero: the predictive covariance is that of the prior alone."""
    prior = random_gaussian((), 2, generator(5))
    exact = LinearGaussian(torch.eye(2).double(), torch.zeros(2).double(), torch.zeros(2, 2).double())
    value = torch.tensor([0.3, -1.0]).double()
    belief, log_prob = exact.posterior(prior, value)
    torch.testing.assert_close(belief.mean, value, **EXACT)
    torch.testing.assert_close(belief.cov, torch.zeros(2, 2).double(), **EXACT)
    torch.testing.assert_close(log_prob, prior.log_prob(value), **EXACT)
    same(exact.marginal(prior), prior)


def test_a_diagonal_noise_is_the_same_noise():
    """The same verbs and, with the same random numbers, the same samples; shared and own parameters; zeros too."""
    rng = generator(8)
    prior = random_gaussian((4, 2), 3, rng)
    value, state = torch.randn(4, 2, 2, generator=rng).double(), torch.randn(4, 2, 3, generator=rng).double()
    seen = torch.rand(4, 2, 2, generator=rng) > 0.4
    for batch in ((), (2,), (4, 2)):
        full = random_conditional(batch, 2, 3, rng)
        variance = full.noise.diagonal(dim1=-2, dim2=-1).clone()
        variance[..., 1] = 0.0
        diagonal = DiagonalLinearGaussian(full.matrix, full.offset, variance.requires_grad_())
        dense = LinearGaussian(full.matrix, full.offset, torch.diag_embed(variance))
        same(diagonal.marginal(prior), dense.marginal(prior))
        for mine, its in zip(diagonal.posterior(prior, value, seen), dense.posterior(prior, value, seen), strict=True):
            if isinstance(mine, Gaussian):
                same(mine, its)
            else:
                torch.testing.assert_close(mine, its, **EXACT)
        mine, its = (x.sample(state, torch.Generator().manual_seed(1)) for x in (diagonal, dense))
        torch.testing.assert_close(mine, its, **EXACT)
        mean = (full.matrix * state[..., None, :]).sum(-1) + full.offset
        torch.testing.assert_close(mine[..., 1], mean[..., 1], **EXACT)
        mine.sum().backward()
        assert variance.grad is not None
        assert variance.grad[..., 0].ne(0).all()
        assert variance.grad[..., 1].eq(0).all()


def leaves_of(system: LinearSystem, prior: Gaussian, values: torch.Tensor) -> list[torch.Tensor]:
    transition, emission = system.transition, system.emission
    leaves = [transition.matrix, transition.offset, transition.noise, emission.matrix, emission.offset, emission.noise]
    return [x.clone().requires_grad_() for x in (*leaves, prior.mean, prior.cov, values)]


def rebuild(leaves) -> tuple[LinearSystem, Gaussian, torch.Tensor]:
    """With covariances symmetrised, so that perturbations of single entries stay covariances."""
    a, b, r, c, d, q, m, v, y = leaves
    r, q, v = (0.5 * (x + x.mT) for x in (r, q, v))
    return LinearSystem(LinearGaussian(a, b, r), LinearGaussian(c, d, q)), Gaussian(m, v), y


CASES = [(1, (3,), True), (1, (3,), False), (1, (), False), (7, (3,), True), (7, (), True), (7, (), False)]


@pytest.mark.parametrize(("time", "batch", "missing"), CASES)
def test_gradients_of_the_block_form_equal_autograd_of_the_textbook_filter(time, batch, missing):
    """Every parameter, the prior and the values; a weight of its own for every step, and the last belief weighs too."""
    rng, steps = generator(6), 7
    system, prior = random_system((time, *batch), 2, 2, rng), random_gaussian(batch, 2, rng)
    values, observed = random_data((steps, 3), 2, rng)
    mask = observed if missing else None
    weights = torch.randn(steps, 3, generator=rng).double()
    push = torch.randn(3, 2, generator=rng).double()
    leaves = leaves_of(system, prior, values)
    gradients = []
    model, start, y = rebuild(leaves)
    belief, terms = model.posterior(start, y, mask)
    expected_terms = plain_log_likelihood(model, start, y, mask)
    torch.testing.assert_close(terms, expected_terms, **EXACT)
    last = kalman.filter(model, start, y, mask).belief
    for ours, end in ((terms, belief), (expected_terms, last)):
        total = (ours * weights).sum() + (end.mean * push).sum() + (end.cov.sum(-1) * push).sum()
        gradients.append(torch.autograd.grad(total, leaves, retain_graph=True))
    for ours, expected in zip(*gradients, strict=True):
        assert expected.abs().sum() > 0
        torch.testing.assert_close(ours, expected, **EXACT)


@pytest.mark.parametrize(("time", "batch", "missing"), CASES[:2] + CASES[3:5])
def test_gradients_of_the_block_form_against_finite_differences(time, batch, missing):
    rng, steps = generator(7), 7
    system, prior = random_system((time, *batch), 2, 2, rng), random_gaussian(batch, 2, rng)
    values, observed = random_data((steps, 3), 2, rng)

    def run(*leaves):
        model, start, y = rebuild(leaves)
        belief, terms = model.posterior(start, y, observed if missing else None)
        return terms, belief.mean, belief.cov

    assert torch.autograd.gradcheck(run, leaves_of(system, prior, values), fast_mode=True)


@pytest.mark.parametrize("needed", range(9))
def test_a_gradient_does_not_depend_on_which_others_are_asked_for(needed):
    rng = generator(8)
    system, prior = random_system((1, 3), 2, 2, rng), random_gaussian((3,), 2, rng)
    values, observed = random_data((7, 3), 2, rng)
    leaves = leaves_of(system, prior, values)

    def total(leaves):
        model, start, y = rebuild(leaves)
        return model.log_likelihood(start, y, observed).sum()

    expected = torch.autograd.grad(total(leaves), leaves)[needed]
    alone = [x.detach().requires_grad_(i == needed) for i, x in enumerate(leaves)]
    torch.testing.assert_close(torch.autograd.grad(total(alone), alone[needed])[0], expected, **EXACT)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("time", [1, 5])
def test_vmap_of_grad_equals_a_loop(time, missing):
    """Over parameters, prior, values and masks at once, and over parameters with the data shared."""
    rng, count = generator(9), 4
    system, prior = random_system((time, count, 2), 2, 2, rng), random_gaussian((count, 2), 2, rng)
    values, observed = random_data((5, count, 2), 2, rng)
    leaves = [x.detach().movedim(1, 0) for x in leaves_of(system, prior, values)[:6]]
    leaves += [prior.mean, prior.cov, values.movedim(1, 0)]
    masks = observed.movedim(1, 0)

    def loss(leaves, mask):
        model, start, y = rebuild(leaves)
        return model.log_likelihood(start, y, mask if missing else None).square().sum()

    together = torch.func.vmap(torch.func.grad(loss))(leaves, masks)
    outside = torch.func.grad(lambda x: torch.func.vmap(loss)(x, masks).sum())(leaves)
    for ours, expected in zip(outside, together, strict=True):
        torch.testing.assert_close(ours, expected, **EXACT)
    on_one_series = torch.func.vmap(torch.func.grad(loss), in_dims=([0] * 8 + [None], None))
    shared = on_one_series([*leaves[:8], values[:, 0]], masks[0])
    for i in range(count):
        alone = torch.func.grad(loss)([x[i] for x in leaves], masks[i])
        on_shared = torch.func.grad(loss)([*(x[i] for x in leaves[:8]), values[:, 0]], masks[0])
        for ours, expected in zip([x[i] for x in (*together, *shared)], (*alone, *on_shared), strict=True):
            torch.testing.assert_close(ours, expected, **EXACT)


def test_vmap_of_grad_works_in_the_step_form_too():
    rng = generator(10)
    system, prior = random_system((1, 4), 2, 2, rng), random_gaussian((4,), 2, rng)
    values, observed = random_data((5, 4), 2, rng)
    noise = system.emission.noise[0]

    def loss(noise, mean, values, observed):
        emission = LinearGaussian(system.emission.matrix[:, 0], system.emission.offset[:, 0], noise[None])
        transition = map_tensors(lambda x: x[:, 0], system.transition)
        model, start = LinearSystem(transition, emission), Gaussian(mean, prior.cov[0])
        return kalman.filter(model, start, values, observed).log_likelihood.sum()

    arguments = (noise, prior.mean, values.movedim(1, 0), observed.movedim(1, 0))
    together = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(*arguments)
    for i in range(4):
        alone = torch.func.grad(loss, argnums=(0, 1))(*(x[i] for x in arguments))
        for ours, expected in zip(together, alone, strict=True):
            torch.testing.assert_close(ours[i], expected, **EXACT)


def test_second_derivatives_of_the_block_form_are_refused_with_advice():
    rng = generator(11)
    system, prior = random_system((1,), 2, 1, rng), random_gaussian((), 2, rng)
    values, _ = random_data((4,), 1, rng)
    mean = prior.mean.clone().requires_grad_()
    total = system.log_likelihood(Gaussian(mean, prior.cov), values).sum()
    (slope,) = torch.autograd.grad(total, mean, create_graph=True)
    with pytest.raises(RuntimeError, match=r"kalman\.filter"):
        slope.sum().backward()


@pytest.mark.parametrize("steps", [1, 2, 5, 11, 13, 29])
@pytest.mark.parametrize("targets", [1, 3, 13])
def test_blocks_of_any_length_give_the_likelihood_of_every_step(steps, targets):
    """Numbers of steps that fill no whole block; the step form is the oracle."""
    rng = generator(steps)
    system, prior = random_system((1, 2), 3, targets, rng), random_gaussian((2,), 3, rng)
    values, observed = random_data((steps, 2), targets, rng)
    expected = kalman.filter(system, prior, values, observed)
    belief, terms = system.posterior(prior, values, observed)
    torch.testing.assert_close(terms, expected.log_likelihood, **EXACT)
    same(belief, expected.belief)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("missing", [True, False])
def test_variances_that_grow_alike_leave_the_errors(shared, missing):
    """Parts of the likelihood of a system say what it is with all variances times a factor."""
    rng, factor = generator(7), 2.3
    system, prior = (
        random_system((1,) if shared else (1, 2), 3, 1, rng),
        random_gaussian(() if shared else (2,), 3, rng),
    )
    values, observed = random_data((7, 2), 1, rng)
    seen = observed if missing else None
    belief, scales, squares = system.innovations(prior, values, seen)
    same(belief, system.posterior(prior, values, seen)[0])
    wide = LinearSystem(*(dataclasses.replace(x, noise=factor * x.noise) for x in (system.transition, system.emission)))
    expected = wide.posterior(dataclasses.replace(prior, cov=factor * prior.cov), values, seen)[1]
    count = observed.squeeze(-1).to(values.dtype) if missing else torch.ones_like(scales)
    torch.testing.assert_close(scales - 0.5 * count * math.log(factor) - 0.5 * squares / factor, expected, **EXACT)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_blocks_of_a_varying_system_compose(length):
    """The recursion of `blocks` also holds where parameters vary: forced, since the default takes one step a block."""
    from tsforecast.core.series.blocks import condition_on_blocks

    rng = generator(12)
    system, prior = random_system((6, 2), 3, 2, rng), random_gaussian((2,), 3, rng)
    values, observed = random_data((6, 2), 2, rng)
    belief, (terms,) = condition_on_blocks(system.blocks(0, length, 6 // length), prior, values, observed)
    expected = kalman.filter(system, prior, values, observed)
    torch.testing.assert_close(terms, expected.log_likelihood, **EXACT)
    same(belief, expected.belief)


def test_no_data_leave_the_belief_as_it_is():
    rng = generator(13)
    system, prior = random_system((1,), 2, 1, rng), random_gaussian((), 2, rng)
    belief, terms = system.posterior(prior, torch.zeros(0, 1).double())
    assert belief is prior
    assert terms.shape == (0,)


def test_the_block_form_can_stop_and_go_on():
    rng = generator(14)
    system, prior = random_system((1, 3), 2, 1, rng), random_gaussian((3,), 2, rng)
    values, observed = random_data((30, 3), 1, rng)
    whole, terms = system.posterior(prior, values, observed)
    half, one = system.posterior(prior, values[:13], observed[:13])
    end, two = system.posterior(half, values[13:], observed[13:])
    torch.testing.assert_close(torch.cat([one, two]), terms, **EXACT)
    same(end, whole)
