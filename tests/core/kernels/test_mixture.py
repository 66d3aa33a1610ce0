"""Quantiles and means of mixtures by the compiled program, by what defines them, written out in float64."""

import math

import pytest
import torch

from tests.oracles import generator
from tsforecast.core.kernels import mixture

pytestmark = pytest.mark.usefixtures("program")
PLACES = {
    "none": lambda x: x,
    "asinh": torch.asinh,
    "symlog": lambda x: torch.asinh(10 * x),
    "symsqrt": lambda x: 2 * x.sign() * ((1 + 10 * x.abs()).sqrt() - 1),
}
VALUES = {
    "none": lambda u: u,
    "asinh": torch.sinh,
    "symlog": lambda u: torch.sinh(u) / 10,
    "symsqrt": lambda u: u * (1 + u.abs() / 4) / 10,
}
LEVELS = torch.tensor([0.9, 1e-6, 0.1, 0.5, 0.25, 1 - 1e-6], dtype=torch.float64)


def random_mixture(names, spread, series=5, steps=3):
    """Return weights, means, deviations and units; deviations differ by a factor of exp(4 spread)."""
    draw = lambda *shape: torch.randn(*shape, generator=generator(0), dtype=torch.float64)  # noqa: E731
    weight = torch.softmax(2 * draw(series, len(names)), 1)
    deviation = (spread * draw(series, len(names), steps)).exp()
    return weight, 2 * draw(series, len(names), steps), deviation, draw(series).exp()


@pytest.mark.parametrize("names", [*((name,) * 7 for name in PLACES), (*PLACES,) * 5])
@pytest.mark.parametrize("spread", [0.3, 1.0])
def test_quantiles_have_their_probabilities(names, spread):
    weight, mean, deviation, unit = random_mixture(names, spread)
    found = mixture.quantiles(weight, mean, deviation, unit, names, torch.special.ndtri(LEVELS))
    assert found is not None
    places = torch.stack([PLACES[name](found / unit[:, None]) for name in names], 2)
    below = 0.5 * torch.erfc((mean - places) / (deviation * math.sqrt(2)))
    expected = LEVELS[:, None, None].expand(found.shape)
    torch.testing.assert_close((weight[..., None] * below).sum(2), expected, rtol=1e-10, atol=1e-10)


def test_quantiles_have_their_probabilities_in_far_tails():
    """On the side of the tail, by logarithms."""
    names, normal = ("none",) * 4, torch.tensor([-37, -20, -7.5, 7.5, 20, 37], dtype=torch.float64)
    weight, mean, deviation, unit = random_mixture(names, 0.3)
    found = mixture.quantiles(weight, mean, deviation, unit, names, normal)
    assert found is not None
    scores = ((found / unit[:, None]).unsqueeze(2) - mean) / deviation
    tails = torch.special.log_ndtr(-normal.sign()[:, None, None, None] * scores)
    tail = torch.logsumexp(weight.log().unsqueeze(-1) + tails, 2)
    expected = torch.special.log_ndtr(-normal.abs())[:, None, None].expand(found.shape)
    torch.testing.assert_close(tail, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("clipped", [True, False])
@pytest.mark.parametrize("end", [math.inf, 1.5])
def test_means_are_integrals(clipped, end):
    """Of each component in turn, by the trapezoidal rule; its mean is cut at the ends, and values below 0 before."""
    names = (*PLACES,) * 5
    weight, mean, deviation, unit = random_mixture(names, 0.3)
    ends = torch.tensor([-end, end], dtype=torch.float64).expand(len(unit), 2)
    scores = torch.linspace(-12, 12, 100_001, dtype=torch.float64)
    density = (-scores.square() / 2).softmax(0)
    parts = []
    for k, name in enumerate(names):
        values = VALUES[name](mean[:, k, :, None] + deviation[:, k, :, None] * scores)
        parts.append(((values.clamp_min(0) if clipped else values) * density).sum(-1) * unit[:, None])
    expected = (weight.unsqueeze(-1) * torch.stack(parts, 1).clamp(-end, end)).sum(1)
    found = mixture.means(weight, mean, deviation, unit, names, clipped, ends)
    assert found is not None
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_a_component_without_a_weight_makes_no_difference():
    names = (*PLACES,) * 3
    weight, mean, deviation, unit = random_mixture(names, 0.3)
    weight[:, 1::2] = 0
    weight = weight / weight.sum(1, keepdim=True)
    normal = torch.special.ndtri(LEVELS)
    found = mixture.quantiles(weight, mean, deviation, unit, names, normal)
    fewer = mixture.quantiles(weight[:, ::2], mean[:, ::2], deviation[:, ::2], unit, names[::2], normal)
    assert found is not None
    assert fewer is not None
    torch.testing.assert_close(found, fewer, rtol=1e-12, atol=1e-12)


def test_what_the_program_does_not_serve():
    """Other maps, known values, numbers of less precision."""
    weight, mean, deviation, unit = random_mixture(("none",) * 2, 0.3)
    normal = torch.special.ndtri(LEVELS)
    assert mixture.quantiles(weight, mean, deviation, unit, ("none", "logit"), normal) is None
    assert mixture.quantiles(weight.float(), mean.float(), deviation, unit, ("none",) * 2, normal) is None
    deviation[0, 0, 0] = 0
    assert mixture.quantiles(weight, mean, deviation, unit, ("none",) * 2, normal) is None
