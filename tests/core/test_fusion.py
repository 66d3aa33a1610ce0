"""Products of beliefs against joint Gaussians that are conditioned directly."""

import math

import pytest
import torch

from tests.learners.dense import assert_same, randn
from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian
from tsforecast.core.fusion import conflict, pointwise_information, product, reliabilities


def linear_sources(count, dim=3, seed=0):
    """A prior, and for each source x_m = A_m z + noise: its belief, its value, and what x_m is marginally."""
    rng = generator(seed)
    prior = Gaussian(randn(dim, seed=seed), random_covariance((), dim, rng))
    matrices = [randn(2, dim, seed=seed + k + 1) for k in range(count)]
    noises = [random_covariance((), 2, rng) for _ in range(count)]
    values = [randn(2, seed=seed + 50 + k) for k in range(count)]
    beliefs = [conditioned(prior, a, r, x) for a, r, x in zip(matrices, noises, values, strict=True)]
    return prior, matrices, noises, values, beliefs


def conditioned(prior, matrix, noise, value):
    """By the textbook's gain."""
    total = matrix @ prior.cov @ matrix.T + noise
    gain = prior.cov @ matrix.T @ torch.linalg.inv(total)
    cov = prior.cov - gain @ matrix @ prior.cov
    return Gaussian(prior.mean + gain @ (value - matrix @ prior.mean), 0.5 * (cov + cov.T))


def log_marginal(prior, matrix, noise, value):
    total = matrix @ prior.cov @ matrix.T + noise
    return torch.distributions.MultivariateNormal(matrix @ prior.mean, total).log_prob(value)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_product_is_the_joint_posterior(count):
    prior, matrices, noises, values, beliefs = linear_sources(count)
    stacked = torch.cat(matrices), torch.block_diag(*noises), torch.cat(values)
    joint = conditioned(prior, *stacked)
    found = product(beliefs, prior)
    assert_same(found.mean, joint.mean)
    assert_same(found.cov, joint.cov)
    alone = sum(log_marginal(prior, *each) for each in zip(matrices, noises, values, strict=True))
    assert_same(pointwise_information(beliefs, prior), log_marginal(prior, *stacked) - alone)


def test_a_missing_source_is_the_prior_and_has_no_influence():
    prior, *_, beliefs = linear_sources(3)
    with_missing = product([*beliefs, prior], prior)
    assert_same(with_missing.mean, product(beliefs, prior).mean)
    assert_same(with_missing.cov, product(beliefs, prior).cov)
    assert_same(pointwise_information([*beliefs, prior], prior), pointwise_information(beliefs, prior))
    assert conflict(beliefs[0], prior, prior) == 0
    sound = reliabilities([*beliefs, prior], prior, 0.8)
    assert_same(sound[3], 0.8)  # nothing was learnt of it
    assert_same(reliabilities([prior], prior, 0.7), torch.tensor([0.7]).double())


def test_conflict_is_a_ratio_of_divergences():
    prior, *_, beliefs = linear_sources(2)
    one, other = (torch.distributions.MultivariateNormal(b.mean, b.cov) for b in beliefs)
    start = torch.distributions.MultivariateNormal(prior.mean, prior.cov)
    kl = torch.distributions.kl_divergence
    assert_same(conflict(*beliefs, prior), kl(other, one) / kl(other, start))
    assert conflict(beliefs[0], beliefs[0], prior) == 0


def test_beliefs_of_a_batch_are_fused_each_on_its_own():
    prior, *_, beliefs = linear_sources(2)
    moved = [Gaussian(b.mean + torch.arange(4.0).double().unsqueeze(-1), b.cov) for b in beliefs]
    found = product(moved, prior)
    told = pointwise_information(moved, prior)
    for k in range(4):
        alone = [Gaussian(b.mean[k], b.cov) for b in moved]
        assert_same(found.mean[k], product(alone, prior).mean)
        assert_same(told[k], pointwise_information(alone, prior))
    assert found.mean.shape == (4, 3)


def scalar(mean, variance=0.1):
    return Gaussian(torch.tensor(mean).double().unsqueeze(-1), torch.tensor([[variance]]).double())


def test_a_source_that_contradicts_all_others_is_found():
    prior = scalar(0.0, 1.0)
    sound = reliabilities([scalar(0.5), scalar(0.6), scalar(0.4), scalar(-2.0)], prior)
    assert (sound[:3] > 0.9).all()
    assert sound[3] < 0.01
    steps = [0.5] * 6
    broken = [0.5] * 3 + [-0.5] * 3
    each = [scalar(steps), scalar(steps), scalar(broken)]
    alone, summed = reliabilities(each, prior), reliabilities(each, prior, sums=3)
    assert_same(alone[0], reliabilities([scalar(0.5)] * 3, prior))
    assert summed[5, 2] < alone[5, 2] < 0.9
    assert summed[2, 2] > alone[2, 2]


def test_two_sets_of_sources_by_hand():
    prior, *_, beliefs = linear_sources(2)
    told = pointwise_information(beliefs, prior).exp()
    weights = torch.tensor([0.01, 0.09, 0.09, 0.81]).double() * torch.stack([*torch.ones(3).double(), told])
    assert_same(reliabilities(beliefs, prior, 0.9), (weights[2:].sum() / weights.sum()).expand(2))


def test_what_is_no_product_is_refused():
    prior = scalar(0.0, 1.0)
    vague = scalar(0.0, 3.0)
    with pytest.raises(ValueError, match="together surer than the prior that they share"):
        product([vague, vague], prior)
    with pytest.raises(ValueError, match="one source or more, got none"):
        product([], prior)
    with pytest.raises(ValueError, match=r"size of the prior, 1, got \[1, 2\]"):
        product([Gaussian(torch.zeros(2), torch.eye(2))], scalar(0.0))
    with pytest.raises(ValueError, match="1 to 12 sources, got 13"):
        reliabilities([prior] * 13, prior)
    with pytest.raises(ValueError, match=r"reliable to be between 0 and 1, got 1\.0"):
        reliabilities([prior], prior, 1.0)
    assert math.isfinite(float(pointwise_information([vague], prior)))
