"""Learners of disjoint data as one."""

import pytest
import torch
from torch import nn

from tests.learners.dense import FAMILIES, SIZE, assert_belief, assert_same, moments, randn, random_belief
from tsforecast.learners import (
    LOFI,
    LRKF,
    Diagonal,
    Full,
    GaussianLikelihood,
    Independent,
    LowRankPrecision,
    decoupled_ekf,
    ekf,
    expect_of_experts,
    fuse,
    lofi,
    vd_ekf,
)

NAMES = ["full", "precision", "blocks", "lofi", "lofi-0"]


def surer(belief, by=0.25):
    """A belief of a wider prior."""
    return FAMILIES[by_type(belief)].inflate(belief, by)


def by_type(belief):
    return {"Gaussian": "full", "Independent": "precision", "Blocked": "blocks"}.get(type(belief).__name__, "lofi")


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_precisions_add_up_and_the_prior_counts_once(name, count):
    family = FAMILIES[name]
    prior = family.init(randn(SIZE, seed=9), 2 + randn(SIZE, seed=8).abs())
    beliefs = [surer(random_belief(name, seed)) for seed in range(count)]
    mean, cov = moments(prior)
    precision = (1 - count) * torch.linalg.inv(cov)
    linear = precision @ mean
    for belief in beliefs:
        own = torch.linalg.inv(moments(belief)[1])
        precision, linear = precision + own, linear + own @ moments(belief)[0]
    expected = torch.linalg.inv(precision)
    assert_belief(fuse(beliefs, prior), expected @ linear, expected)


@pytest.mark.parametrize("make", [ekf, vd_ekf, lofi, lambda *a, **k: decoupled_ekf(*a, layers=True, **k)])
def test_learners_of_shards_are_the_learner_of_all_where_the_model_is_linear(make):
    """Exact for the full family and for LOFI with all columns; for the others with orthogonal inputs or one layer."""
    x, y = randn(12, 4), randn(12, 1, seed=1)
    if make is vd_ekf:
        x = torch.eye(4).double().repeat(3, 1)
    settings = {"rank": 12} if make is lofi else {}
    learner = make(nn.Linear(4, 1, bias=False).double(), GaussianLikelihood(0.3), 2.0, **settings)
    beliefs = [learner.update(learner.init(), x[k::3], y[k::3]) for k in range(3)]
    together = learner.update(learner.init(), x, y)
    fused = fuse(beliefs, learner.init())
    assert_same(fused.mean, together.mean)
    assert_belief(fused, *moments(together))


def test_fewer_columns_keep_the_mean_and_the_diagonal_of_the_precision():
    prior = LOFI(3).init(randn(SIZE), torch.full((SIZE,), 3.0).double())
    beliefs = [surer(random_belief("lofi", seed)) for seed in range(3)]
    whole, cut = fuse(beliefs, prior), fuse(beliefs, prior, rank=2)
    assert cut.factor.shape == (SIZE, 2)
    assert_same(cut.mean, whole.mean)
    kept, all_of_it = (torch.linalg.inv(moments(belief)[1]).diagonal() for belief in (cut, whole))
    assert_same(kept, all_of_it)


def test_an_expert_is_right_but_which_is_not_known():
    learner = vd_ekf(nn.Linear(2, 1).double(), GaussianLikelihood(0.5), 1.0)
    x = randn(5, 2)
    beliefs = [Independent(randn(3, seed=k), torch.full((3,), 0.1 + k).double()) for k in range(2)]
    one, other = (learner.expect(belief, x) for belief in beliefs)
    found = expect_of_experts(learner, beliefs, x, torch.tensor([0.25, 0.75]).double())
    mean = 0.25 * one.mean + 0.75 * other.mean
    second = 0.25 * (one.variance + one.mean**2) + 0.75 * (other.variance + other.mean**2)
    assert_same(found.mean, mean)
    assert_same(found.variance, second - mean**2)
    assert_same(expect_of_experts(learner, beliefs, x).mean, 0.5 * (one.mean + other.mean))
    with pytest.raises(ValueError, match="2 probabilities that sum to 1"):
        expect_of_experts(learner, beliefs, x, torch.tensor([0.9, 0.9]))
    with pytest.raises(ValueError, match="one learner or more"):
        expect_of_experts(learner, [], x)


def test_beliefs_that_do_not_fit_are_refused():
    zeros, ones = torch.zeros(3), torch.ones(3)
    diagonal, full = Diagonal().init(zeros, ones), Full().init(zeros, ones)
    with pytest.raises(ValueError, match="one learner or more, got none"):
        fuse([], diagonal)
    with pytest.raises(ValueError, match=r"like the prior, Independent of shape \(3,\), got Gaussian"):
        fuse([full], diagonal)
    with pytest.raises(ValueError, match=r"got Independent of shape \(2,\)"):
        fuse([Diagonal().init(zeros[:2], ones[:2])], diagonal)
    vague = Diagonal().init(zeros, torch.tensor([1.0, 5.0, 1.0]))
    with pytest.raises(ValueError, match=r"precision -0\.6 in weight 1"):
        fuse([vague, vague], diagonal)
    with pytest.raises(ValueError, match="together surer than the prior"):
        fuse([Full().init(zeros, 5 * ones)] * 2, full)
    with pytest.raises(ValueError, match="a rank for beliefs of LOFI alone"):
        fuse([diagonal], diagonal, rank=3)
    with pytest.raises(ValueError, match="beliefs with a precision"):
        fuse([LRKF(2).init(zeros, ones)], LRKF(2).init(zeros, ones))
    prior = LowRankPrecision(zeros, ones, torch.ones(3, 1))
    with pytest.raises(ValueError, match="a prior without columns"):
        fuse([prior], prior)
