"""How often a point counts: twice is the point seen twice at once, never is as if it were not there."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.learners.dense import assert_belief, bayes, moments, outputs_of, randn, vector_of
from tests.learners.test_verbs import NAMES, make
from tests.learners.test_weight import EVIDENCES, FAMILIES, PAIRS, problem
from tests.oracles import generator
from tsforecast.learners import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    ConjugateRegression,
    GaussianLikelihood,
    InverseMultiquadric,
    MomentMatched,
    ekf,
)

pytestmark = pytest.mark.usefixtures("float64")

EXACT: dict[str, Any] = {"atol": 1e-10, "rtol": 1e-10}
ONES = torch.ones(3, dtype=torch.float64)


def points(classes=False):
    """Three, of which the second has a target that cannot be read."""
    inputs, target = randn(3, 3), randn(3, 1, seed=1)
    target = (target > 0).double() if classes else target
    return inputs, target, torch.where(torch.arange(3).unsqueeze(-1) == 1, torch.nan, target)


def update(learner, rows, target, counts=None, observed=None):
    return learner.update(learner.init(), rows, target, observed, generator(5), counts)


def assert_same_belief(learner, one, other):
    torch.testing.assert_close(learner.weights(one), learner.weights(other), **EXACT)
    torch.testing.assert_close(learner.variances(one), learner.variances(other), **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_a_point_that_never_counts_is_not_there(name):
    learner = make(name)
    inputs, target, unreadable = points(name == "adf")
    rest = [0, 2]
    expected = update(learner, inputs[rest], target[rest])
    found = update(learner, inputs, unreadable, torch.tensor([1.0, 0.0, 1.0]))
    assert_same_belief(learner, found, expected)
    nothing = update(learner, inputs, torch.full_like(target, torch.nan), 0 * ONES)
    assert_same_belief(learner, nothing, learner.init())
    assert not torch.allclose(learner.weights(found), learner.weights(learner.init()))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "adf"])  # which see a label after the other
def test_a_point_that_counts_twice_is_seen_twice_at_once(name):
    learner = make(name)
    inputs, target, _ = points()
    twice = [0, 1, 1, 2]
    expected = update(learner, inputs[twice], target[twice])
    assert_same_belief(learner, update(learner, inputs, target, torch.tensor([1.0, 2.0, 1.0])), expected)
    assert_same_belief(learner, update(learner, inputs, target, ONES), update(learner, inputs, target))


@pytest.mark.parametrize(("family", "evidence"), PAIRS)
@pytest.mark.parametrize("weight", ["plain", "noise", "predictive"])
def test_every_family_and_evidence_counts_exactly(family, evidence, weight):
    """Of classes, with robust weights, and where one point never counts."""
    module, inputs, _ = problem()
    chosen: dict[str, Any] = {} if weight == "plain" else {"weight": InverseMultiquadric(0.7, norm=weight)}
    target = torch.tensor([[1.0], [0.0], [1.0]])
    learner = ekf(
        module, CategoricalLikelihood(), 0.05, family=FAMILIES[family], evidence=EVIDENCES[evidence], **chosen
    )
    for counts, rows in (([1, 2, 1], [0, 1, 1, 2]), ([0, 3, 1], [1, 1, 1, 2])):
        expected = update(learner, inputs[rows], target[rows])
        found = update(learner, inputs, target, torch.tensor(counts).double())
        torch.testing.assert_close(moments(found), moments(expected), **EXACT)


def test_a_count_divides_the_noise():
    """Oracle: Bayes with a noise of each point, R / c."""
    inputs, target, counts = randn(3, 2), randn(3, 1, seed=1), torch.tensor([0.3, 1.0, 2.5])
    module = nn.Linear(2, 1)
    mean = vector_of(module)
    matrix = torch.cat([inputs, torch.ones(3, 1)], -1)
    residual = (target - outputs_of(module, mean, inputs))[:, 0]
    expected = bayes(mean, 0.2 * torch.eye(3), matrix, torch.diag(0.5 / counts), residual)
    assert_belief(update(ekf(module, GaussianLikelihood(0.5), 0.2), inputs, target, counts), *expected)


def test_the_factor_of_a_matched_moment_is_raised_to_the_power():
    """Oracle: the change of natural parameters by a label that counts once, times the count."""
    module, x, y = nn.Linear(2, 1, bias=False), torch.tensor([[3.0, -1.0]]), torch.ones(1, 1)
    mean, before = torch.tensor([-1.0, 1.0]), torch.eye(2) / 0.5
    for chosen in ({}, {"weight": InverseMultiquadric(2.0)}):
        learner = ekf(module, BernoulliLikelihood(), 0.5, mean=mean, evidence=MomentMatched(), **chosen)
        after = update(learner, x, y)
        full = torch.linalg.inv(after.cov)
        precision = before + 2.5 * (full - before)
        natural = before @ mean + 2.5 * (full @ after.mean - before @ mean)
        found = update(learner, x, y, torch.tensor([2.5]))
        assert_belief(found, torch.linalg.solve(precision, natural), torch.linalg.inv(precision))


def test_counts_of_a_regression_with_unknown_noise():
    """Oracle: natural parameters (Lambda, Lambda m, a, b + m' Lambda m / 2) gain those of each point, c times."""
    learner = ConjugateRegression(torch.zeros(2), 3 * torch.ones(2), shape=2.0, rate=1.5)
    inputs, target, counts = randn(4, 2), randn(4, 1, seed=1), torch.tensor([0.3, 0.0, 1.0, 2.5])
    precision = torch.eye(2) / 3 + inputs.T @ torch.diag(counts) @ inputs
    natural = inputs.T @ (counts * target[:, 0])
    mean = torch.linalg.solve(precision, natural)
    found = update(learner, inputs, target, counts)
    expected = (mean, torch.linalg.inv(precision), 2.0 + counts.sum() / 2)
    torch.testing.assert_close((found.mean, found.cov, found.shape), expected)
    energy = (counts * target[:, 0].square()).sum() / 2
    torch.testing.assert_close(found.rate, 1.5 + energy - mean @ precision @ mean / 2)
