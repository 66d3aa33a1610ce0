"""Marginal distributions of a horizon, against draws, and against integrals over the standard normal."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from tsforecast.models.parts import marginals
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.transformations import OF_SIZE_ONE, TRANSFORMATIONS, transformation_of

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99)
CASES = [(name,) for name in dict.fromkeys((*TRANSFORMATIONS, *OF_SIZE_ONE))] + [
    ("none", "log1p"),
    ("symlog", "asinh", "none"),
]
SIZE = torch.tensor([[1.0, 5.0], [0.1, 30.0]], dtype=torch.float64)  # series, target
SERIES, HORIZON, TARGETS = 2, 3, 2


def make_marginals(names, clip="none", deviation=None):
    """Components around values of about 5; those that see data as they are have larger means."""
    generator = torch.Generator().manual_seed(len(names))
    shape = (SERIES, len(names), HORIZON, TARGETS)
    mean = 1.5 + torch.randn(shape, generator=generator, dtype=torch.float64)
    spread = 0.2 + torch.rand(shape, generator=generator, dtype=torch.float64)
    spread = spread if deviation is None else torch.full_like(spread, deviation)
    for k, name in enumerate(names):
        if name == "none":
            mean[:, k], spread[:, k] = 4 * mean[:, k], 3 * spread[:, k]
    weight = torch.randn(SERIES, len(names), generator=generator, dtype=torch.float64).log_softmax(1)
    return Marginals(weight, mean, spread, SIZE.unsqueeze(1).expand(-1, len(names), -1), names, clip)


def draws(found, count):
    """Values by their definition: choose a component, draw its Gaussian, go back to the units of the data, clip."""
    generator = torch.Generator().manual_seed(7)
    weight = found.log_weight.exp()
    chosen = torch.multinomial(weight, count, replacement=True, generator=generator)  # (series, draw)
    noise = torch.randn((count, *found.mean.shape), generator=generator, dtype=torch.float64)
    parts = (found.mean + found.deviation * noise).unbind(2)
    values = torch.stack(
        [transformation_of(name).restore(x) for x, name in zip(parts, found.transformations, strict=True)]
    )
    index = chosen.T[None, ..., None, None].expand(1, *values.shape[1:])
    values = values.gather(0, index)[0] * SIZE.unsqueeze(1)
    return values.clamp_min(0.0) if found.clip == "nonnegative" else values


@pytest.mark.parametrize("clip", ["none", "nonnegative"])
@pytest.mark.parametrize("names", CASES)
def test_quantiles_are_those_of_draws(names, clip):
    found, count = make_marginals(names, clip), 100_000
    values = draws(found, count)
    for level, quantile in zip(LEVELS, found.quantile(torch.tensor(LEVELS)), strict=True):
        standard_error = (level * (1 - level) / count) ** 0.5
        # Values at 0, where many are clipped, count on either side.
        below, upto = (values < quantile).double().mean(0), (values <= quantile).double().mean(0)
        assert (below < level + 4.5 * standard_error).all()
        assert (upto > level - 4.5 * standard_error).all()


@pytest.mark.parametrize("names", CASES)
def test_the_distribution_function_is_the_sum_of_the_formula(names):
    found = make_marginals(names)
    inverse = {
        "none": lambda x: x,
        "log1p": lambda x: np.log(np.maximum(1 + x, 1e-300)),
        "asinh": np.arcsinh,
        "symlog": lambda x: np.arcsinh(10 * x),
        "logit": lambda x: special.logit(0.01 + 0.98 * x),
        "sqrt": lambda x: 2 * np.sign(x) * (np.sqrt(1 + np.abs(x)) - 1),
        "symsqrt": lambda x: 2 * np.sign(x) * (np.sqrt(1 + 10 * np.abs(x)) - 1),
    }
    for level, quantile in zip(LEVELS, found.quantile(torch.tensor(LEVELS, dtype=torch.float64)), strict=True):
        expected = sum(
            weight[:, None, None]
            * stats.norm.cdf(inverse[name](quantile.numpy() / SIZE.unsqueeze(1).numpy()), mean, deviation)
            for weight, mean, deviation, name in zip(
                found.log_weight.exp().numpy().T,
                found.mean.numpy().swapaxes(0, 1),
                found.deviation.numpy().swapaxes(0, 1),
                names,
                strict=True,
            )
        )
        np.testing.assert_allclose(found.cdf(quantile), expected, atol=1e-12)
        np.testing.assert_allclose(expected, level, atol=1e-7)
    below = torch.full_like(found.mean[:, 0], -1.5) * SIZE.unsqueeze(1)
    assert (found.cdf(below) == 0).all() == (names in [("log1p",), ("logit",)])


@pytest.mark.parametrize("clip", ["none", "nonnegative"])
@pytest.mark.parametrize("names", CASES)
def test_means_are_integrals(names, clip):
    found = make_marginals(names, clip)
    forward = {
        "none": lambda x: x,
        "log1p": np.expm1,
        "asinh": np.sinh,
        "symlog": lambda x: np.sinh(x) / 10,
        "logit": lambda x: np.clip((special.expit(x) - 0.01) / 0.98, 0, 1),
        "sqrt": lambda x: x + x * np.abs(x) / 4,
        "symsqrt": lambda x: (x + x * np.abs(x) / 4) / 10,
    }
    kinks = {"logit": special.logit([0.01, 0.99])}

    def mean(name, location, scale):
        def weighted(z):
            value = forward[name](location + scale * z)
            return (max(value, 0.0) if clip == "nonnegative" else value) * stats.norm.pdf(z)

        ends = [-12, *((place - location) / scale for place in kinks.get(name, [0.0])), 12]
        return sum(integrate.quad(weighted, *pair)[0] for pair in itertools.pairwise(ends))

    for place in np.ndindex(SERIES, HORIZON, TARGETS):
        series, *cell = place
        weights = found.log_weight[series].exp().tolist()
        parts = zip(
            names, found.mean[series, :, *cell].tolist(), found.deviation[series, :, *cell].tolist(), strict=True
        )
        expected = sum(w * mean(*part) for w, part in zip(weights, parts, strict=True))
        assert found.expectation()[place].item() == pytest.approx(
            expected * SIZE[series, cell[1]].item(), rel=1e-7, abs=1e-7
        )


@pytest.mark.parametrize("names", [("none",), ("log1p", "asinh")])
def test_means_of_a_function_are_integrals(names):
    """Against an adaptive rule; what lies beyond four standard deviations is left out by ours."""
    found, function = make_marginals(names, deviation=0.3), lambda x: torch.hypot(x, torch.ones_like(x)) + x / 2
    mine = found.means_of(function)[1, :, 0, 1]

    def density(z, m, s, name):
        value = transformation_of(name).restore(torch.tensor(m + s * z, dtype=torch.float64)) * SIZE[1, 1]
        return float(function(value)) * stats.norm.pdf(z)

    for k, name in enumerate(names):
        given = float(found.mean[1, k, 0, 1]), float(found.deviation[1, k, 0, 1]), name
        assert float(mine[k]) == pytest.approx(integrate.quad(density, -8, 8, given)[0], rel=5e-4)


@pytest.mark.parametrize("names", CASES)
def test_known_values_are_their_own_quantiles_and_means(names):
    values = [-0.05, 0.0, 3.0] if "logit" not in names else [0.0, 0.03, 0.1]
    known = torch.tensor(values, dtype=torch.float64)[None, :, None].expand(SERIES, HORIZON, TARGETS)
    found = make_marginals(names, deviation=0.0)
    mean = torch.stack([transformation_of(name).apply(known / SIZE.unsqueeze(1)) for name in names], 1)
    found = replace(found, mean=mean)
    for quantile in found.quantile(torch.tensor(LEVELS)):
        torch.testing.assert_close(quantile, known, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.expectation(), known, rtol=1e-12, atol=1e-12)
    clipped = replace(found, clip="nonnegative")
    torch.testing.assert_close(clipped.expectation(), known.clamp_min(0), rtol=1e-12, atol=1e-12)


def test_components_far_apart():
    """The distribution function is flat between them, and jumps where one of them is known."""
    weight = torch.tensor([[0.5, 0.5]], dtype=torch.float64).log()
    mean = torch.tensor([-1.0, np.arcsinh(1e6)]).double().reshape(1, 2, 1, 1)
    deviation = torch.tensor([0.0, 1e-3]).double().reshape(1, 2, 1, 1)
    found = Marginals(weight, mean, deviation, SIZE[:1, :1].expand(1, 2).unsqueeze(-1), ("none", "asinh"))
    low, middle, high = found.quantile(torch.tensor([0.3, 0.4999, 0.75], dtype=torch.float64)).flatten().tolist()
    assert (low, middle) == pytest.approx((-1.0, -1.0))
    assert high == pytest.approx(1e6)


@pytest.mark.parametrize("name", ["log1p", "asinh"])
def test_wide_tails_stay_finite(name):
    found = Marginals.single(*(torch.full((1, 1, 1), 500.0, dtype=torch.float64) for _ in range(2)), name)
    assert torch.isfinite(found.quantile(torch.tensor([0.001, 0.999]))).all()
    assert torch.isfinite(found.expectation()).all()


def test_a_hundred_quantiles_take_few_looks_at_the_distribution_and_end_exactly(monkeypatch):
    """Of components that are narrow beside their distances, of unequal weights, and of two transformations in turn."""
    rng = torch.Generator().manual_seed(0)
    mean, deviation = (f(3, 40, 5, 1, generator=rng, dtype=torch.float64) for f in (torch.randn, torch.rand))
    log_weight = torch.randn(3, 40, generator=rng, dtype=torch.float64).log_softmax(1)
    size = torch.ones(3, 40, 1, dtype=torch.float64)
    mixture = Marginals(log_weight, mean, 0.02 + 0.2 * deviation, size, ("none", "asinh") * 20)
    levels, looks, cdf = torch.linspace(0.005, 0.995, 100, dtype=torch.float64), [], marginals.cdf

    def counted(values, *others):
        looks.append(len(values))
        return cdf(values, *others)

    monkeypatch.setattr(marginals, "cdf", counted)
    found = mixture.quantile(levels)
    assert sum(looks) < 5.5 * found.numel()
    for level, values in zip(levels, found, strict=True):
        torch.testing.assert_close(mixture.cdf(values), level.expand_as(values), rtol=0, atol=1e-7)


def test_values_that_are_known_with_some_probability_at_some_steps(monkeypatch):
    """The compiled program has the other steps, where each has weights of its own."""
    names = ("symlog", "none", "none")
    several = make_marginals(names)
    chances = torch.tensor([[0.9, 0.0, 0.3], [0.0, 0.0, 0.0]], dtype=torch.float64)[:, None, :, None]
    own = several.log_weight[:, :2].log_softmax(1)[..., None, None] + torch.log1p(-chances)
    mean, deviation = several.mean[..., :1].clone(), several.deviation[..., :1].clone()
    mean[:, 2], deviation[:, 2] = 0.0, 0.0
    found = Marginals(torch.cat([own, chances.log()], 1), mean, deviation, several.size[..., :1], names, "nonnegative")
    levels = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    quantiles = found.quantile(levels)
    monkeypatch.setattr(Marginals, "_by_program", lambda *_: None)
    assert torch.allclose(quantiles, found.quantile(levels), rtol=1e-6, atol=1e-6)
    at_most_zero = found.cdf(torch.zeros(2, 3, 1, dtype=torch.float64))[0, 0, 0]
    assert at_most_zero >= 0.9
    assert (quantiles[:, 0, 0, 0] == 0).sum() == (levels <= at_most_zero).sum()
    free = Marginals(
        several.log_weight[:, :2].log_softmax(1), *(x[:, :2] for x in (mean, deviation, found.size)), names[:2]
    )
    assert torch.allclose(
        quantiles[:, 1], replace(free, clip="nonnegative").quantile(levels)[:, 1], rtol=1e-6, atol=1e-6
    )
