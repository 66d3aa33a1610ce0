"""Fifty thousand observations in single precision: covariances stay positive definite, and near those of float64.

Oracles are written in NumPy in double precision: in closed form where a family is exact, as dense recursions otherwise.
"""

import functools

import jaxtyping
import numpy as np
import pytest
import torch
from torch import nn

from tests.learners.dense import moments
from tsforecast.learners import (
    LOFI,
    LRKF,
    BayesianForgetting,
    BlockDiagonal,
    ConjugateRegression,
    Diagonal,
    ExponentialForgetting,
    Full,
    GaussianLearner,
    GaussianLikelihood,
    LayerChain,
    NoDrift,
    Wiener,
)

OBSERVATIONS, FEATURES = 50_000, 10
EYE = np.eye(FEATURES)


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes and types are checked by all other tests; here they would take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@functools.cache
def stream():
    """Correlated inputs; targets with noise of variance 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(OBSERVATIONS, FEATURES)) + 0.5 * rng.normal(size=(OBSERVATIONS, 1))
    return x, x @ rng.normal(size=FEATURES) + rng.normal(size=OBSERVATIONS)


def run_single(learner, points: int):
    """Drift and update, `points` at a time."""
    x, y = (torch.tensor(data, dtype=torch.float32) for data in stream())
    belief, dt = learner.init(), torch.tensor(float(points))
    for inputs, target in zip(x.split(points), y.unsqueeze(-1).split(points), strict=True):
        belief = learner.update(learner.drift(belief, dt), inputs, target)
    return belief


def assert_near(mean: torch.Tensor, cov: torch.Tensor, exact_mean: np.ndarray, exact_cov: np.ndarray):
    """Standard deviations within 1 %, and the mean within 1 % of itself and of a few standard deviations."""
    assert mean.dtype == cov.dtype == torch.float32
    assert torch.linalg.cholesky_ex(cov).info == 0
    mean, cov = mean.double().numpy(), cov.double().numpy()
    sd = np.sqrt(np.diag(exact_cov))
    assert np.linalg.eigvalsh(cov).min() > 0.99 * np.linalg.eigvalsh(exact_cov).min()
    assert np.abs(np.sqrt(np.diag(cov)) / sd - 1).max() < 0.01
    assert np.linalg.norm(mean - exact_mean) < 0.01 * np.linalg.norm(exact_mean)
    assert np.abs((mean - exact_mean) / sd).max() < 0.1


def learner_of(family, drift) -> GaussianLearner:
    network = LayerChain((FEATURES, 1), (nn.Identity,), (False,))
    zero = torch.zeros(FEATURES)
    return GaussianLearner(network, GaussianLikelihood(1.0), zero, zero + 1, family=family, weight_drift=drift)


def test_the_full_filter_without_drift_holds_while_its_precision_grows():
    """From a prior of 10 000 times the noise, 10 000 steps of S - w'w. Oracle: all data at once."""
    x, y = stream()
    cov = np.linalg.inv(EYE / 1e4 + x.T @ x)
    rows, target = (torch.tensor(data, dtype=torch.float32).split(5) for data in (x, y))
    belief = Full().init(torch.zeros(FEATURES), torch.full((FEATURES,), 1e4))
    for row, value in zip(rows, target, strict=True):
        belief = Full().condition(belief, row, value - row @ belief.mean)
    assert_near(*moments(belief), cov @ x.T @ y, cov)


def test_conjugate_regression_holds_for_fifty_thousand_observations():
    """Oracle: all data at once, in m, S, a and b."""
    x, y = stream()
    cov = np.linalg.inv(EYE + x.T @ x)
    mean = cov @ x.T @ y
    belief = run_single(ConjugateRegression(torch.zeros(FEATURES), torch.ones(FEATURES)), 50)
    assert_near(belief.mean, belief.cov, mean, cov)
    assert belief.shape == 6.0 + OBSERVATIONS / 2
    rate = 6.0 + (y @ y - mean @ x.T @ y) / 2
    assert abs(belief.rate.item() / rate - 1) < 0.01


RATE, FORGET, RANK, POINTS = 1e-5, 0.999, 4, 40
FAMILIES = {
    "full": Full(),
    "precision": Diagonal("precision"),
    "covariance": Diagonal("covariance"),
    "blocks": BlockDiagonal((4, 6)),
    "lofi": LOFI(RANK),
    "lrkf": LRKF(RANK),
}
DRIFTS = {
    "none": NoDrift(),
    "wiener": Wiener(RATE),
    "bayesian": BayesianForgetting(1 - FORGET),
    "exponential": ExponentialForgetting(FORGET),
}


def leading(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors[:, -RANK:] * values[-RANK:]) @ vectors[:, -RANK:].T


def recursion(name: str, drift: str, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance after the stream, of a prior N(0, `start`), with one time unit for each observation.

    Beside the covariance go the parts of what is of low rank: `kept` of the covariance, `columns` of the precision.
    """
    mean, cov, kept = np.zeros(FEATURES), start, start
    diagonal, columns = np.ones(FEATURES), np.zeros((FEATURES, FEATURES))
    keep, inside = FORGET**POINTS, np.arange(FEATURES) < 4
    for x, y in zip(*(np.split(data, OBSERVATIONS // POINTS) for data in stream()), strict=True):
        if drift == "wiener":
            cov = cov + RATE * POINTS * EYE
            diagonal = 1 / (1 / diagonal + RATE * POINTS)
            columns = np.linalg.inv(cov) - np.diag(diagonal)
        elif drift == "bayesian":
            precision = keep * np.linalg.inv(cov) + (1 - keep) * EYE
            mean = np.linalg.solve(precision, keep * np.linalg.solve(cov, mean))
            cov, diagonal, columns = np.linalg.inv(precision), keep * diagonal + (1 - keep), keep * columns
        elif drift == "exponential":
            cov = cov / keep
        gain = np.linalg.solve(x @ cov @ x.T + np.eye(POINTS), x @ cov).T
        left = EYE - gain @ x
        before, mean, cov = cov, mean + gain @ (y - x @ mean), left @ cov @ left.T + gain @ gain.T
        if name == "precision":
            cov = np.diag(1 / (1 / np.diag(before) + (x**2).sum(0)))
        elif name == "covariance":
            cov = np.diag(np.diag(cov))
        elif name == "blocks":
            cov = cov * (inside[:, None] == inside)
        elif name == "lofi":
            total = columns + x.T @ x
            columns = leading(total)
            diagonal = diagonal + np.diag(total - columns)
            cov = np.linalg.inv(np.diag(diagonal) + columns)
        elif name == "lrkf":
            kept = cov = leading(left @ kept @ left.T + gain @ gain.T)
    return mean, cov


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("full", "wiener"),
        ("full", "bayesian"),
        ("full", "exponential"),
        ("precision", "none"),
        ("covariance", "wiener"),
        ("blocks", "wiener"),
        ("blocks", "exponential"),
        ("lofi", "none"),
        ("lofi", "wiener"),
        ("lofi", "bayesian"),
        ("lrkf", "wiener"),
    ],
)
def test_fifty_thousand_observations_in_single_precision_end_where_double_precision_does(name, drift):
    """Some at a time, with a drift before them; oracle: the family's recursion by dense matrices."""
    learner = learner_of(FAMILIES[name], DRIFTS[drift])
    start = moments(learner.init())[1].double().numpy()
    mean, cov = recursion(name, drift, start)
    belief = run_single(learner, POINTS)
    got_mean, got_cov = moments(belief)
    if name == "lrkf":  # singular: its part along its rows
        _, vectors = np.linalg.eigh(cov)
        along = vectors[:, -RANK:]
        inside = torch.tensor(along.T, dtype=torch.float32)
        assert (got_cov - inside.T @ (inside @ got_cov @ inside.T) @ inside).norm() < 0.01 * got_cov.norm()
        got_mean, got_cov, mean, cov = (
            inside @ got_mean,
            inside @ got_cov @ inside.T,
            along.T @ mean,
            along.T @ cov @ along,
        )
    assert_near(got_mean, got_cov, mean, cov)
