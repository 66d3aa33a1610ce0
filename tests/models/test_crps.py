"""The score of weighted points, which has a gradient of its own."""

import pytest
import torch

from tsforecast.models.parts import crps
from tsforecast.models.parts.crps import crps_of_points, weighted_crps


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


def test_gradients_of_each_series_are_those_of_all():
    """As `torch.func` takes them, one series after the other."""
    points, weight, values = torch.randn(3, 4, 9).double(), torch.rand(3, 4, 9).double(), torch.randn(3, 4).double()
    total = lambda *args: crps_of_points(*args).sum()  # noqa: E731
    found = torch.func.vmap(torch.func.grad(total, (0, 1)))(points, weight, values)
    inputs = points.requires_grad_(), weight.requires_grad_()
    for one, other in zip(found, torch.autograd.grad(total(*inputs, values), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
