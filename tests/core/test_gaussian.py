import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from tests.oracles import generator, random_covariance, random_gaussian
from tsforecast.core import Gaussian, LinearGaussian, NotPositiveDefiniteError, map_tensors
from tsforecast.core.gaussian import unbind

EXACT = {"rtol": 1e-8, "atol": 1e-8}
seeds, dims = st.integers(0, 2**31), st.integers(1, 4)


def same(one: Gaussian, two: Gaussian):
    torch.testing.assert_close(one.mean.expand_as(two.mean), two.mean, **EXACT)
    torch.testing.assert_close(one.cov.expand_as(two.cov), two.cov, **EXACT)


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
@pytest.mark.parametrize("shared", [True, False])
def test_densities_equal_those_of_torch_distributions(batch, shared):
    """Oracle: torch.distributions.MultivariateNormal."""
    rng = generator(0)
    mean = torch.randn(*batch, 3, generator=rng).double()
    p = Gaussian(mean, random_covariance(() if shared else batch, 3, rng))
    q = random_gaussian(batch, 3, rng)
    theirs, others = MultivariateNormal(p.mean, p.cov), MultivariateNormal(q.mean, q.cov)
    value = torch.randn(5, *batch, 3, generator=rng).double()
    torch.testing.assert_close(p.log_prob(value), theirs.log_prob(value), **EXACT)
    torch.testing.assert_close(p.entropy(), theirs.entropy(), **EXACT)
    torch.testing.assert_close(p.kl(q), kl_divergence(theirs, others), **EXACT)
    torch.testing.assert_close(p.kl(p), torch.zeros(batch).double(), **EXACT)
    torch.testing.assert_close(p.variance, theirs.variance, **EXACT)
    assert p.batch_shape == torch.Size(batch)


@settings(max_examples=25, deadline=None)
@given(seeds, dims)
def test_product_equals_the_sum_of_log_densities(seed, dim):
    rng = generator(seed)
    p, q = random_gaussian((2,), dim, rng), random_gaussian((2,), dim, rng)
    product, log_scale = p.product(q)
    x = torch.randn(2, dim, generator=rng).double()
    torch.testing.assert_close(product.log_prob(x) + log_scale, p.log_prob(x) + q.log_prob(x), **EXACT)
    reverse, same_scale = q.product(p)
    same(reverse, product)
    torch.testing.assert_close(same_scale, log_scale, **EXACT)


@settings(max_examples=25, deadline=None)
@given(seeds, dims)
def test_product_is_the_posterior_of_a_direct_observation(seed, dim):
    """p(a) N(b; a, B) at b: a product of densities over a."""
    rng = generator(seed)
    prior, noise = random_gaussian((), dim, rng), random_gaussian((), dim, rng)
    eye, nothing = torch.eye(dim).double(), torch.zeros(dim).double()
    posterior, log_prob = LinearGaussian(eye, nothing, noise.cov).posterior(prior, noise.mean)
    product, log_scale = prior.product(noise)
    same(product, posterior)
    torch.testing.assert_close(log_scale, log_prob, **EXACT)


def test_a_flat_density_changes_nothing():
    p = random_gaussian((), 3, generator(1))
    flat = Gaussian(torch.zeros(3).double(), 1e12 * torch.eye(3).double())
    same(p.product(flat)[0], p)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(2, 5), st.data())
def test_conditional_and_marginal_make_the_joint(seed, dim, data):
    """log p(x) = log p(x_known) + log p(x_free | x_known), and the known are exact."""
    rng = generator(seed)
    p, x = random_gaussian((), dim, rng), torch.randn(dim, generator=rng).double()
    known = data.draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=dim - 1, unique=True))
    free = [i for i in range(dim) if i not in known]
    mask = torch.zeros(dim, dtype=torch.bool)
    mask[known] = True
    given_known = p.condition(torch.where(mask, x, 1e5), mask)
    assert torch.equal(given_known.mean[known], x[known])
    assert (given_known.cov[known] == 0).all()
    together = p.marginal(known).log_prob(x[known]) + given_known.marginal(free).log_prob(x[free])
    torch.testing.assert_close(together, p.log_prob(x), **EXACT)


def test_conditioning_step_by_step_equals_at_once_in_any_order():
    rng = generator(2)
    p, x = random_gaussian((3,), 4, rng), torch.randn(3, 4, generator=rng).double()
    mask = lambda *index: torch.tensor([i in index for i in range(4)]).expand(3, 4)  # noqa: E731
    at_once = p.condition(x, mask(0, 2))
    rest = at_once.marginal([1, 3])
    for first, second in ((0, 2), (2, 0)):
        one = p.condition(x, mask(first)).marginal([i for i in range(4) if i != first])
        position = [i for i in range(4) if i != first].index(second)
        others = [i for i in range(3) if i != position]
        value = x[:, [i for i in range(4) if i != first]]
        two = one.condition(value, torch.tensor([i == position for i in range(3)]).expand(3, 3)).marginal(others)
        same(two, rest)
    same(p.condition(x, mask()), p)


def test_known_values_that_contradict_each_other_are_refused():
    copies = Gaussian(torch.zeros(2).double(), torch.ones(2, 2).double())
    with pytest.raises(NotPositiveDefiniteError, match="the covariance of the known values"):
        copies.condition(torch.zeros(2).double(), torch.tensor([True, True]))


@settings(max_examples=15, deadline=None)
@given(seeds, dims)
def test_a_divergence_is_positive_and_does_not_grow_when_dimensions_are_dropped(seed, dim):
    rng = generator(seed)
    p, q = random_gaussian((), dim + 1, rng), random_gaussian((), dim + 1, rng)
    whole, part = p.kl(q), p.marginal(slice(0, dim)).kl(q.marginal(slice(0, dim)))
    assert whole >= part - 1e-9
    assert part >= 0


def test_samples_have_mean_and_covariance_of_the_density():
    """Within five standard errors: sqrt(V_ii / n), and sqrt((V_ij^2 + V_ii V_jj) / n) for covariances."""
    rng, count = generator(3), 40_000
    p = random_gaussian((2,), 3, rng)
    x = p.sample((count,), rng)
    assert x.shape == (count, 2, 3)
    centred = x - p.mean
    assert (centred.mean(0).abs() < 5 * (p.variance / count).sqrt()).all()
    bound = ((p.cov.square() + p.variance[..., :, None] * p.variance[..., None, :]) / count).sqrt()
    spread = torch.einsum("nbi,nbj->bij", centred, centred) / count
    assert ((spread - p.cov).abs() < 5 * bound).all()


def test_series_that_share_a_covariance_are_sampled_independently():
    x = Gaussian(torch.zeros(6, 2), torch.eye(2)).sample((3,), generator(0))
    assert len(x.unique()) == 36


def test_records_are_pytrees():
    p = random_gaussian((3,), 2, generator(4))
    means = torch.func.vmap(lambda g: g.mean + g.variance)(p)
    torch.testing.assert_close(means, p.mean + p.variance)
    assert map_tensors(torch.Tensor.float, {"a": [p]})["a"][0].cov.dtype == torch.float32


def test_unbind_has_one_adjoint_for_all_steps():
    record = Gaussian(torch.randn(5, 3, 2, dtype=torch.float64, requires_grad=True), torch.eye(2)[None])
    entry = unbind(record)
    entries = [entry(step) for step in range(5)]
    torch.testing.assert_close(torch.stack([x.mean for x in entries]), record.mean)
    assert all(x.cov.equal(torch.eye(2)) for x in entries)  # one for all steps
    assert len({x.mean.grad_fn for x in entries}) == 1
