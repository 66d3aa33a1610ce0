"""Conditioning on sums: beside the formula of MinT, our own Gaussian, and Nixtla's hierarchicalforecast where it is."""

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse

from tsforecast.core import Gaussian, LinearGaussian
from tsforecast.forecasting.reconciliation import Correlation, SumConditioning, shrinkage, shrunk, unshrunk

SUMS = np.array([[1.0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 0]])
NODES = np.concatenate([SUMS, np.eye(5)])


@pytest.fixture(scope="module")
def residuals():
    rng = np.random.default_rng(0)
    series = rng.normal(size=(5, 20)) * np.array([[1.0], [2], [3], [4], [5]])
    return NODES @ series + rng.normal(size=(9, 20))


@pytest.fixture(scope="module")
def forecasts():
    return 20 + 10 * np.random.default_rng(1).normal(size=(9, 3))


def _dense(deviations, correlation):
    full = np.diag(correlation.own) + correlation.common @ correlation.common.T
    return full * np.outer(deviations, deviations)


def _min_trace(covariance, values):
    inverse = np.linalg.inv(covariance)
    return NODES @ np.linalg.solve(NODES.T @ inverse @ NODES, NODES.T @ inverse @ values)


def test_given_sums_the_mean_is_that_of_minimum_trace(residuals, forecasts):
    deviations, correlation = shrunk(residuals)
    found = SumConditioning(sparse.csr_array(SUMS), deviations, correlation).nodes(forecasts)
    np.testing.assert_allclose(found, _min_trace(_dense(deviations, correlation), forecasts), atol=1e-8)
    np.testing.assert_allclose(found[:4], SUMS @ found[4:], atol=1e-10)


def test_the_map_conditions_a_gaussian_on_an_observation_without_noise(residuals, forecasts):
    deviations, correlation = shrunk(residuals)
    covariance = _dense(deviations, correlation)
    gap = torch.from_numpy(np.concatenate([np.eye(4), -SUMS], axis=1))
    zeros = torch.zeros(4, dtype=torch.float64)
    sums = LinearGaussian(gap, zeros, torch.zeros(4, 4, dtype=torch.float64))
    prior = Gaussian(torch.from_numpy(forecasts[:, 0]), torch.from_numpy(covariance))
    posterior, _ = sums.posterior(prior, zeros, torch.ones(4, dtype=torch.bool))
    given = SumConditioning(sparse.csr_array(SUMS), deviations, correlation)
    np.testing.assert_allclose(given.nodes(forecasts)[:, 0], posterior.mean.numpy(), atol=1e-8)
    linear = given.nodes(np.eye(9))
    np.testing.assert_allclose(linear @ covariance @ linear.T, posterior.cov.numpy(), atol=1e-8)


def test_sparse_and_dense_systems_agree():
    rng = np.random.default_rng(2)
    leaves = sparse.kron(sparse.eye_array(60), np.ones((1, 4)), format="csr")  # 60 sums of four series each
    sums = sparse.csr_array(sparse.vstack([leaves, sparse.csr_array(leaves.sum(0)[None])]))
    deviations, correlation = rng.uniform(1, 2, 301), Correlation(np.full(301, 0.5), np.full((301, 1), np.sqrt(0.5)))
    values = rng.normal(size=(301, 2))
    found = SumConditioning(sums, deviations, correlation).nodes(values)
    covariance = _dense(deviations, correlation)
    gap = np.concatenate([np.eye(61), -sums.toarray()], axis=1)
    gain = covariance @ gap.T @ np.linalg.inv(gap @ covariance @ gap.T)
    np.testing.assert_allclose(found, values - gain @ gap @ values, atol=1e-8)


def test_series_that_never_vary_leave_the_rest_to_others(forecasts):
    still = np.array([1.0, 1, 1, 1, 0, 0, 1, 1, 1])
    found = SumConditioning(sparse.csr_array(SUMS), still, Correlation(np.ones(9), np.zeros((9, 1)))).nodes(forecasts)
    np.testing.assert_allclose(found[4:6], forecasts[4:6], atol=1e-3)
    np.testing.assert_allclose(found[:4], SUMS @ found[4:], atol=1e-10)


def test_the_shrunk_correlation_is_that_of_schaefer_and_strimmer(residuals):
    deviations, correlation = shrunk(residuals)
    standard = (residuals - residuals.mean(1, keepdims=True)) / residuals.std(1, keepdims=True)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    products = np.array([standard[i] * standard[j] for i, j in pairs])
    share = products.var(axis=1, ddof=1).sum() / 20 / np.square(products.mean(1)).sum()
    expected = (1 - share) * np.corrcoef(residuals) + share * np.eye(9)
    np.testing.assert_allclose(_dense(np.ones(9), correlation), expected, atol=1e-8)
    np.testing.assert_allclose(deviations, residuals.std(1, ddof=1))


def test_the_share_of_a_few_rows_of_many_values_takes_no_memory():
    """As of the steps of a horizon, over all windows of all series: among the values there are 16 million pairs."""
    rows = np.random.default_rng(0).normal(size=(4, 4000)) + np.random.default_rng(1).normal(size=4000)
    tracemalloc.start()
    share = shrinkage(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * rows.nbytes
    assert 0 < share < 0.01


def test_draws_have_the_correlation(residuals):
    correlation = shrunk(residuals)[1]
    drawn = correlation.sample(40_000, 1, np.random.default_rng(0))[:, 0]
    expected = _dense(np.ones(9), correlation)
    error = (1 - np.square(expected)) / np.sqrt(40_000)  # of a correlation of Gaussians
    assert (np.abs(np.corrcoef(drawn) - expected) <= 5 * error + 1e-12).all()


def test_missing_residuals_are_left_out(residuals):
    missing = residuals.copy()
    missing[0, :5], missing[3] = np.nan, np.nan
    deviations, correlation = shrunk(missing)
    np.testing.assert_allclose(deviations[0], np.std(residuals[0, 5:], ddof=1))
    np.testing.assert_allclose(np.diag(_dense(np.ones(9), correlation)), 1)
    assert not correlation.common[3].any()


@pytest.mark.parametrize("method", ["ols", "wls_struct", "wls_var", "mint_shrink"])
def test_means_are_those_of_hierarchicalforecast(residuals, forecasts, method):
    methods = pytest.importorskip("hierarchicalforecast.methods")
    ours = shrunk(residuals)
    none = Correlation(np.ones(9), np.zeros((9, 1)))
    deviations, correlation = {
        "ols": (np.ones(9), none),
        "wls_struct": (np.sqrt(NODES.sum(1)), none),
        "wls_var": (np.sqrt(np.square(residuals).mean(1)), none),
        "mint_shrink": ours,
    }[method]
    found = SumConditioning(sparse.csr_array(SUMS), deviations, correlation).nodes(forecasts)
    history = np.zeros_like(residuals)
    theirs = methods.MinTrace(method).fit_predict(
        S=NODES, y_hat=forecasts, y_insample=history + residuals, y_hat_insample=history
    )
    np.testing.assert_allclose(found, theirs["mean"], rtol=1e-6)


def test_a_share_of_correlations_is_left_out(residuals):
    missing = residuals.copy()
    missing[0] = np.nan  # without residuals: correlated with none
    whole = unshrunk(missing)
    before, after = (_dense(np.ones(9), one) for one in (whole, whole.without(0.25)))
    np.testing.assert_allclose(after, np.where(np.eye(9), 1, 0.75 * before), atol=1e-12)
