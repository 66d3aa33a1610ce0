"""The score of weighted points, which has a gradient of its own."""

import math

import pytest
import torch

from tsforecast.models.parts import crps
from tsforecast.models.parts.crps import crps_of_gaussians, crps_of_points, crps_of_samples, weighted_crps


def by_pairs(points, weight, values, factor=1.0):
    """E|X - y| - E|X - X'| / 2 by all pairs."""
    apart = (points.unsqueeze(-1) - points.unsqueeze(-2)).abs()
    pairs = torch.einsum("...i,...j,...ij->...", weight, weight, apart)
    return (weight * (points - values.unsqueeze(-1)).abs()).sum(-1) - 0.5 * factor * pairs


@pytest.mark.parametrize("at_once", [20, 100_000])
def test_score_and_gradient_are_those_of_all_pairs(monkeypatch, at_once):
    """However many rows are sorted at once, and by weights that do not sum to one."""
    monkeypatch.setattr(crps, "_AT_ONCE", at_once)
    points, weight = torch.randn(3, 4, 9).double().requires_grad_(), torch.rand(3, 4, 9).double().requires_grad_()
    values, slope = torch.randn(3, 4).double(), torch.randn(3, 4).double()
    found, expected = crps_of_points(points, weight, values), by_pairs(points, weight, values)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for x in (points, weight):
        (one,), (other,) = (torch.autograd.grad(score, x, slope, retain_graph=True) for score in (found, expected))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_samples_have_the_fair_score():
    paths, values = torch.randn(2, 5, 3, 1).double(), torch.randn(2, 1, 3, 1).double()
    ratio = torch.rand(5, 3, 1).double()
    found = weighted_crps(paths, values, ratio)
    points, weight = paths.movedim(1, -1), (ratio / 5).movedim(0, -1).expand(2, 3, 1, 5)
    torch.testing.assert_close(found, by_pairs(points, weight, values.squeeze(1), 5 / 4), rtol=1e-12, atol=1e-12)


def shared(points, values, ratio):
    """By all pairs of points of different distributions, each with its weights: E|X - y| - E|X - X'| / 2."""
    count, number = points.shape[-2:]
    error = (ratio * (points - values[..., None, None]).abs().mean(-1)).mean(-1)
    apart = (points.flatten(-2).unsqueeze(-1) - points.flatten(-2).unsqueeze(-2)).abs()
    apart = apart.unflatten(-1, (count, number)).unflatten(-3, (count, number)).mean((-1, -3))
    pairs = torch.einsum("...i,...j,...ij->...ij", ratio, ratio, apart) * (1 - torch.eye(count))
    return error - 0.5 * pairs.sum((-1, -2)) / (count * (count - 1))


def test_distributions_have_the_score_of_pairs_of_different_ones():
    points, values = torch.randn(2, 3, 1, 4, 6).double().sort(-1).values, torch.randn(2, 3, 1).double()
    ratio = torch.rand(3, 1, 4).double()
    expected = shared(points, values, ratio)
    torch.testing.assert_close(crps_of_samples(points, values, ratio), expected, rtol=1e-12, atol=1e-12)


def test_gaussians_have_the_score_of_their_quantiles():
    """As their number grows: the error of n quantiles in the middle of equal shares is of the order 1 / n."""
    mean, deviation = torch.randn(2, 4, 3, 1).double(), torch.rand(2, 4, 3, 1).double() + 0.1
    values, ratio = torch.randn(2, 1, 3, 1).double(), torch.rand(4, 3, 1).double()
    found, errors = crps_of_gaussians(mean, deviation, values, ratio), []
    for number in (100, 400):
        normal = torch.special.ndtri((torch.arange(number).double() + 0.5) / number)
        points = (mean.unsqueeze(-1) + deviation.unsqueeze(-1) * normal).movedim(1, -2)
        score = crps_of_samples(points, values.squeeze(1), ratio.movedim(0, -1))
        errors.append((score - found).abs().max())
    assert errors[0] < 0.01
    assert errors[1] < 0.4 * errors[0]


@pytest.mark.parametrize("count", [1, 5])
def test_equal_gaussians_have_the_score_of_one(count):
    mean, deviation, values = torch.randn(2, 1, 3, 1).double(), torch.rand(2, 1, 3, 1).double(), torch.zeros(2, 1, 3, 1)
    found = crps_of_gaussians(*(x.expand(2, count, 3, 1) for x in (mean, deviation)), values, torch.ones(count, 3, 1))
    normal = torch.distributions.Normal(0.0, 1.0)
    z = -mean / deviation
    exact = deviation * (z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - math.pi**-0.5)
    torch.testing.assert_close(found, exact.squeeze(1), rtol=1e-12, atol=1e-12)


def test_gradients_of_each_series_are_those_of_all():
    """As `torch.func` takes them, one series after the other."""
    points, weight, values = torch.randn(3, 4, 9).double(), torch.rand(3, 4, 9).double(), torch.randn(3, 4).double()
    total = lambda *args: crps_of_points(*args).sum()  # noqa: E731
    found = torch.func.vmap(torch.func.grad(total, (0, 1)))(points, weight, values)
    inputs = points.requires_grad_(), weight.requires_grad_()
    for one, other in zip(found, torch.autograd.grad(total(*inputs, values), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
