"""Mixtures of Gaussians against SciPy, one component at a time."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import cumulative_simpson
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from tests.core.particles.oracles import errors_from
from tests.oracles import generator, random_gaussian
from tsforecast.core import Gaussian
from tsforecast.core.mixture import GaussianMixture

EXACT = {"rtol": 1e-8, "atol": 1e-8}


def mixture(batch: tuple[int, ...] = (2,), components: int = 3, dim: int = 2) -> GaussianMixture:
    rng = generator(0)
    weight = torch.randn(components, *batch, generator=rng, dtype=torch.float64)
    gaussian = random_gaussian((components, *batch), dim, rng)
    return GaussianMixture(torch.log_softmax(weight, 0), Gaussian(3 * gaussian.mean, gaussian.cov))


def parts(mixture: GaussianMixture, *index: int) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Weights, means and covariances at an index of the batch."""
    at = (slice(None), *index)
    weight, gaussian = mixture.log_weight[at].exp(), mixture.components
    return list(zip(weight.tolist(), gaussian.mean[at].numpy(), gaussian.cov[at].numpy(), strict=True))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_moments(batch):
    """Second moment less the squared mean, by the definition of both."""
    found = mixture(batch)
    for index in np.ndindex(*batch):
        each = parts(found, *index)
        mean = sum(w * m for w, m, _ in each)
        cov = sum(w * (v + np.outer(m, m)) for w, m, v in each) - np.outer(mean, mean)
        np.testing.assert_allclose(found.mean[index], mean, **EXACT)
        np.testing.assert_allclose(found.cov[index], cov, **EXACT)
        np.testing.assert_allclose(found.variance[index], np.diag(cov), **EXACT)
    torch.testing.assert_close(found.cov, found.cov.mT, rtol=0, atol=0)


def test_variance_of_means_far_from_zero_does_not_cancel():
    far = mixture()
    far = GaussianMixture(far.log_weight, Gaussian(far.components.mean + 1e8, far.components.cov))
    torch.testing.assert_close(far.variance, mixture().variance, rtol=1e-6, atol=0)
    torch.testing.assert_close(far.cov, mixture().cov, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_densities(batch):
    found = mixture(batch)
    value = torch.randn(*batch, 2, generator=generator(1), dtype=torch.float64)
    log_prob = found.log_prob(value)
    for index in np.ndindex(*batch):
        density = sum(w * multivariate_normal.pdf(value[index], m, v) for w, m, v in parts(found, *index))
        np.testing.assert_allclose(log_prob[index], math.log(density), **EXACT)


def test_a_density_integrates_to_one_and_to_the_distribution_function():
    """By Simpson's rule, up to each point of a grid."""
    one, grid = mixture((), dim=1), torch.linspace(-40, 40, 8001, dtype=torch.float64)
    gaussian = Gaussian(
        *(x.unsqueeze(1).expand(-1, len(grid), *x.shape[1:]) for x in (one.components.mean, one.components.cov))
    )
    found = GaussianMixture(one.log_weight[:, None].expand(-1, len(grid)), gaussian)
    density = found.log_prob(grid[:, None]).exp()
    below = cumulative_simpson(density.numpy(), x=grid.numpy(), initial=0)
    assert below[-1] == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(found.cdf(grid[:, None])[:, 0], below, atol=1e-8)


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.5, 0.9, 1 - 1e-6])
def test_quantiles_are_the_roots_of_the_distribution_function(level):
    found = mixture()
    quantile = found.quantile(level)
    for index in np.ndindex(2):
        for dim in range(2):
            each = [(w, m[dim], math.sqrt(v[dim, dim])) for w, m, v in parts(found, *index)]
            root = brentq(lambda x: sum(w * norm.cdf(x, m, s) for w, m, s in each) - level, -60, 60, xtol=1e-13)  # noqa: B023
            assert float(quantile[index][dim]) == pytest.approx(root, abs=1e-8)


def test_quantiles_and_distribution_function_undo_each_other():
    found = mixture()
    level = torch.rand(2, 2, generator=generator(2), dtype=torch.float64)
    torch.testing.assert_close(found.cdf(found.quantile(level)), level, rtol=0, atol=1e-13)
    value = 3 * torch.randn(2, 2, generator=generator(2), dtype=torch.float64)
    torch.testing.assert_close(found.quantile(found.cdf(value)), value, **EXACT)


def test_quantiles_in_float32_and_of_components_far_apart():
    weight = torch.log(torch.tensor([0.2, 0.5, 0.3])).unsqueeze(-1)
    mean = torch.tensor([-1e6, 0.0, 1e6]).reshape(3, 1, 1)
    found = GaussianMixture(weight, Gaussian(mean, torch.ones(3, 1, 1, 1)))
    assert found.quantile(0.45).dtype == torch.float32
    # The level is the median of the component in the middle, which is narrow beside the distances.
    assert float(found.quantile(0.45)) == pytest.approx(0.0, abs=1.0)
    double = GaussianMixture(weight.double(), Gaussian(mean.double(), torch.ones(3, 1, 1, 1).double()))
    assert float(double.quantile(0.45)) == pytest.approx(0.0, abs=1e-7)
    assert float(double.quantile(0.1)) == pytest.approx(-1e6, abs=1e-7)


def test_one_component_is_a_gaussian():
    found = mixture(components=1)
    one = Gaussian(found.components.mean[0], found.components.cov[0])
    deviation = one.variance.sqrt()
    torch.testing.assert_close(found.mean, one.mean, **EXACT)
    torch.testing.assert_close(found.cov, one.cov, **EXACT)
    expected = one.mean + deviation * norm.ppf(0.3)
    torch.testing.assert_close(found.quantile(0.3), expected, **EXACT)


def test_components_without_weight_or_without_variance():
    """A weight of zero has no influence; a variance of zero is a step."""
    found = mixture((), dim=1)
    more = GaussianMixture(
        torch.cat([found.log_weight, torch.tensor([-torch.inf])]),
        Gaussian(
            torch.cat([found.components.mean, torch.tensor([[7.0]]).double()]),
            torch.cat([found.components.cov, torch.ones(1, 1, 1).double()]),
        ),
    )
    at = torch.tensor([0.3], dtype=torch.float64)
    for name in ("log_prob", "cdf", "quantile"):
        torch.testing.assert_close(getattr(more, name)(at), getattr(found, name)(at), **EXACT)
    torch.testing.assert_close(more.cov, found.cov, **EXACT)
    certain = GaussianMixture(
        torch.log(torch.tensor([0.5, 0.5])), Gaussian(torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1, 1))
    )
    assert [float(certain.cdf(torch.tensor([x]))) for x in (0.9, 1.5, 2.1)] == [0.0, 0.5, 1.0]
    assert float(certain.quantile(0.25)) == pytest.approx(1.0)
    assert float(certain.quantile(0.75)) == pytest.approx(2.0)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_levels_outside_are_refused(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        mixture().quantile(level)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_samples(batch):
    """Moments, and the share below each quantile, within standard errors."""
    found = mixture(batch)
    drawn = found.sample((20_000,), generator(3))
    assert drawn.shape == (20_000, *batch, 2)
    assert errors_from(drawn, found.mean) < 4.5
    second = found.cov + found.mean[..., :, None] * found.mean[..., None, :]
    assert errors_from(drawn[..., :, None] * drawn[..., None, :], second) < 4.5
    for level in (0.1, 0.5, 0.9):
        below = (drawn < found.quantile(level)).double()
        assert errors_from(below, torch.full_like(found.mean, level)) < 4.5
    assert found.sample(generator=generator(0)).shape == (*batch, 2)
    assert found.sample((4, 5), generator(0)).shape == (4, 5, *batch, 2)


def test_samples_carry_gradients_to_the_components():
    """Reparametrised in means and covariances, not in the weights."""
    mean = torch.zeros(2, 1, requires_grad=True)
    log_weight = torch.log(torch.tensor([0.3, 0.7])).requires_grad_()
    drawn = GaussianMixture(log_weight, Gaussian(mean, torch.ones(2, 1, 1))).sample((10_000,), generator(0))
    slope, none = torch.autograd.grad(drawn.mean(), [mean, log_weight], allow_unused=True)
    assert none is None
    assert float(slope.sum()) == pytest.approx(1.0, abs=1e-5)
    assert abs(float(slope[0]) - 0.3) < 4.5 * math.sqrt(0.21 / 10_000)
