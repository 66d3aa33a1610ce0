"""Decoders against scipy's distributions."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tsforecast.nn import DECODERS, ScaledLikelihood
from tsforecast.nn.decoders import StudentTDecoder

EXACT = {"rtol": 1e-8, "atol": 1e-8}
LOCATION = torch.tensor([[5.0, 20.0], [0.0, 3.0]], dtype=torch.float64)
SCALE = torch.tensor([[2.0, 7.0], [1.0, 0.5]], dtype=torch.float64)  # (series, target)
AUXILIARY = 3


@pytest.fixture(params=DECODERS)
def name(request):
    return request.param


def make_decoder(name):
    torch.manual_seed(0)
    decoder = DECODERS[name](AUXILIARY, 2, (8,)).double()
    auxiliary = 2 * torch.randn(4, 2, AUXILIARY, dtype=torch.float64)  # (particle, series, auxiliary)
    return decoder, auxiliary


def parameters_of(decoder, auxiliary):
    """What the network says: for each parameter one column a target."""
    return [x.detach().numpy() for x in decoder.layers(auxiliary).unflatten(-1, (-1, 2)).unbind(-2)]


def theirs(name, decoder, auxiliary, location=LOCATION, scale=SCALE):
    """Scipy's distribution of the value in scaled units, or of the count or choice in those of the data."""
    raw = parameters_of(decoder, auxiliary)
    if name == "gaussian":
        return stats.norm(raw[0], np.exp(-raw[1]))
    if name == "student-t":
        return stats.t(2 + np.log1p(np.exp(raw[2])), raw[0], np.exp(-raw[1]))
    if name == "bernoulli":
        return stats.bernoulli(1 / (1 + np.exp(-raw[0])))
    mean = np.maximum(location.numpy(), scale.numpy()) * np.exp(raw[0])
    return stats.nbinom(np.exp(-raw[1]), 1 / (1 + np.exp(raw[1]) * mean))


def test_log_prob_is_that_of_scipy(name):
    decoder, auxiliary = make_decoder(name)
    distribution = theirs(name, decoder, auxiliary)
    rng = np.random.default_rng(0)
    for _ in range(5):
        value = rng.normal(size=(2, 2)) if name in ("gaussian", "student-t") else rng.integers(0, 40, (2, 2))
        value = value % 2 if name == "bernoulli" else value
        scaled = torch.as_tensor(value, dtype=torch.float64)
        if name in ("gaussian", "student-t"):
            expected = distribution.logpdf(value)
        else:
            expected, scaled = distribution.logpmf(value), (scaled - LOCATION) / SCALE
        found = decoder.log_prob(auxiliary, scaled, LOCATION, SCALE)
        torch.testing.assert_close(found, torch.as_tensor(expected), **EXACT)


def test_samples_follow_the_distribution(name):
    decoder, auxiliary = make_decoder(name)
    count = 4000
    wide = auxiliary[0].expand(count, -1, -1)
    with torch.no_grad():
        samples = decoder.sample(wide, LOCATION, SCALE, torch.Generator().manual_seed(1))
    assert samples.shape == (count, 2, 2)
    distribution = theirs(name, decoder, auxiliary[0])
    if name in ("gaussian", "student-t"):
        uniform = distribution.cdf(samples.numpy())
        for i, j in np.ndindex(2, 2):
            assert stats.kstest(uniform[:, i, j], "uniform").pvalue > 1e-4
        return
    values = (samples * SCALE + LOCATION).numpy()
    np.testing.assert_allclose(values, values.round(), atol=1e-12)
    values = values.round()
    assert values.min() == 0
    # Mean and variance within standard errors, those of the variance from the sample's fourth moment.
    error = (values.mean(0) - distribution.mean()) / (distribution.std() / count**0.5)
    assert np.abs(error).max() < 4.5
    square = (values - distribution.mean()) ** 2
    assert np.abs((square.mean(0) - distribution.var()) / (square.std(0) / count**0.5)).max() < 4.5
    zero = distribution.pmf(0)
    assert np.abs(((values == 0).mean(0) - zero) / np.sqrt(zero * (1 - zero) / count)).max() < 4.5


def test_dispersion_is_that_of_the_variance():
    """mean + dispersion mean^2."""
    decoder, auxiliary = make_decoder("negative-binomial")
    mean, dispersion = (x.detach().numpy() for x in decoder.distribution(auxiliary, LOCATION, SCALE))
    distribution = theirs("negative-binomial", decoder, auxiliary)
    np.testing.assert_allclose(distribution.mean(), mean)
    np.testing.assert_allclose(distribution.var(), mean + dispersion * mean**2)


def test_large_counts_lose_no_digits_in_float32():
    decoder, auxiliary = make_decoder("negative-binomial")
    location = torch.tensor([[1e6, 1e5], [1e3, 30.0]], dtype=torch.float64)
    scale = location / 10
    mean = decoder.distribution(auxiliary, location, scale)[0].detach()
    value = ((1.5 * mean).round() - location) / scale
    exact = decoder.log_prob(auxiliary, value, location, scale)
    exact.sum().backward()
    gradients = [p.grad.clone() for p in decoder.parameters()]
    decoder = decoder.float()
    decoder.zero_grad()
    found = decoder.log_prob(*(x.float() for x in (auxiliary, value, location, scale)))
    found.sum().backward()
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    for parameter, expected in zip(decoder.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.double(), expected, rtol=1e-3, atol=1e-3)


def test_extreme_auxiliaries_stay_finite(name):
    decoder, auxiliary = make_decoder(name)
    decoder = decoder.float()
    location, scale = LOCATION.float(), SCALE.float()
    for size in (1e4, -1e4):
        decoder.zero_grad()
        extreme = size * auxiliary.float()
        value = torch.ones(2, 2) if name != "bernoulli" else (1 - location) / scale
        log_prob = decoder.log_prob(extreme, value, location, scale)
        assert torch.isfinite(log_prob).all()
        log_prob.sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in decoder.parameters())
        assert torch.isfinite(decoder.sample(extreme, location, scale)).all()


def test_samples_of_continuous_values_are_reparametrised():
    for name in ("gaussian", "student-t"):
        decoder, auxiliary = make_decoder(name)
        decoder.sample(auxiliary, LOCATION, SCALE, torch.Generator().manual_seed(0)).square().sum().backward()
        last = decoder.layers[-1]
        assert (last.bias.grad != 0).all()


def test_samples_of_student_t_know_how_they_depend_on_the_degrees_of_freedom():
    """The derivative of E log(1 + x^2), by quadrature."""
    decoder, count = StudentTDecoder(1, 1, ()), 20000
    zeros = torch.zeros(count, 1, dtype=torch.float64)
    each = torch.full_like(zeros, 0.7, requires_grad=True)
    decoder.raw = lambda auxiliary: [zeros, zeros, each]
    samples = decoder.sample(zeros, LOCATION[:1, :1], SCALE[:1, :1], torch.Generator().manual_seed(0))
    samples.square().log1p().sum().backward()
    step = 1e-4

    def expected(raw):
        distribution = stats.t(2 + np.log1p(np.exp(raw)))
        return integrate.quad(lambda x: np.log1p(x**2) * distribution.pdf(x), -np.inf, np.inf, epsabs=1e-11)[0]

    slope = (expected(0.7 + step) - expected(0.7 - step)) / (2 * step)
    gradients = each.grad.flatten()
    assert abs(gradients.mean() - slope) < 4.5 * gradients.std() / count**0.5
    assert abs(slope) > 10 * gradients.std() / count**0.5


def test_masks_of_observed_components(name):
    decoder, auxiliary = make_decoder(name)
    likelihood = ScaledLikelihood(decoder, LOCATION, SCALE)
    value = ((torch.arange(4.0).reshape(2, 2) % 2).double() - LOCATION) / SCALE
    terms = decoder.log_prob(auxiliary, value, LOCATION, SCALE)
    torch.testing.assert_close(likelihood.log_prob(auxiliary, value, None, 0), terms.sum(-1), **EXACT)
    observed = torch.tensor([[True, False], [False, False]])
    found = likelihood.log_prob(auxiliary, value, observed, 0)
    torch.testing.assert_close(found[:, 0], terms[:, 0, 0], **EXACT)
    assert torch.equal(found[:, 1], torch.zeros(4, dtype=torch.float64))
    other = torch.where(observed, value, 1.0)
    assert torch.equal(likelihood.log_prob(auxiliary, other, observed, 0), found)
    found.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in decoder.parameters())


def test_samples_come_from_the_generator_in_scaled_units(name):
    decoder, auxiliary = make_decoder(name)
    likelihood = ScaledLikelihood(decoder, LOCATION, SCALE)
    state = torch.get_rng_state()
    some, same, other = (likelihood.sample(auxiliary, 0, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert some.shape == (4, 2, 2)
    assert torch.equal(some, same)
    assert not torch.equal(some, other)


@pytest.mark.parametrize("targets", [2, 4])
def test_a_skip_adds_the_first_components_to_the_location(name, targets):
    torch.manual_seed(0)
    decoder = DECODERS[name](AUXILIARY, targets, (8,), skip=True).double()
    auxiliary = torch.randn(4, 2, AUXILIARY, dtype=torch.float64)
    rest = decoder.layers(auxiliary)
    raw = decoder.raw(auxiliary)
    padded = torch.cat([auxiliary, torch.zeros(4, 2, 1, dtype=torch.float64)], -1)[..., :targets]
    torch.testing.assert_close(raw[0] - rest[..., :targets], padded, **EXACT)
    for number, other in enumerate(raw[1:], start=1):
        torch.testing.assert_close(other, rest[..., targets * number : targets * (number + 1)], **EXACT)


def test_means_are_those_of_scipy(name):
    decoder, auxiliary = make_decoder(name)
    expected = theirs(name, decoder, auxiliary).mean()
    if name in ("negative-binomial", "bernoulli"):
        expected = (expected - LOCATION.numpy()) / SCALE.numpy()
    found = decoder.mean(auxiliary, LOCATION, SCALE)
    torch.testing.assert_close(found, torch.as_tensor(expected), **EXACT)
