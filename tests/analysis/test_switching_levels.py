"""The switching model of one series: levels of a Kalman filter, and regimes of Hamilton's filter."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import torch

from tsforecast.analysis.switching_levels import SwitchingLevels
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman
from tsforecast.core.regimes import chain

LEARN, RECORDS = 216, 240


def series(seed=0):
    """Hours of ten days, with a daily pattern, a wild part, and a gap."""
    rng = np.random.default_rng(seed)
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(RECORDS) * np.timedelta64(1, "h")
    noise = rng.normal(size=RECORDS) * np.where(np.arange(RECORDS) % 100 > 80, 5.0, 1.0)
    values = 10 + 5 * np.sin(np.arange(RECORDS) * 2 * np.pi / 24) + noise
    values[120] = np.nan
    return hours, values


def begun(model, end=LEARN):
    hours, values = series()
    return model.step(model.begin(hours[:end], values[:end]), hours[:end], values[:end])[0]


def followed(state, k):
    """The levels that record k may follow: their means, and their variances."""
    at = (0, k % 24, k % 168)
    return tuple(np.array([getattr(x, name)[i] for x, i in zip(state.levels, at, strict=True)]) for name in NAMES)


NAMES = ("mean", "variance")


def test_levels_are_those_of_a_kalman_filter():
    model = SwitchingLevels()
    state, (_, values) = begun(model), series()
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    for level, gain, own in (
        ((state.levels[0].mean[0], state.levels[0].variance[0]), model.fast, np.delete(values[:LEARN], 120)),
        ((state.levels[1].mean[7], state.levels[1].variance[7]), model.seasonal, values[7:LEARN:24]),
        ((state.levels[2].mean[31], state.levels[2].variance[31]), model.seasonal, values[31:LEARN:168]),
    ):
        walk = gain**2 / (1 - gain)
        system = LinearSystem(LinearGaussian(one, one[:, 0] * 0, walk * one), LinearGaussian(one, one[:, 0] * 0, one))
        prior = Gaussian(one[0, 0] * 0, 1e9 * one[0])
        belief = kalman.filter(system, prior, torch.from_numpy(own)[:, None]).belief
        assert level[0] == pytest.approx(float(belief.mean), rel=1e-6)
        assert level[1] == pytest.approx(float(belief.cov), rel=1e-6)


def test_regimes_are_those_of_hamiltons_filter():
    model = SwitchingLevels(scales=(1.0, 5.0), forgetting=0.95)
    hours, values = series()
    state = first = begun(model)
    walks = np.array([gain**2 / (1 - gain) for gain in (model.fast, model.seasonal, model.seasonal)])
    transitions, densities, moved, surprises, regimes, expected = [], [], [], [], [], []
    for k in range(LEARN, RECORDS):
        mean, variance = followed(state, k)
        variance, freedom = variance + walks, 1 + state.errors
        scale = np.sqrt(state.squares / state.errors * (1 + variance))[:, None] * model.scales
        densities.append(scipy.stats.t.logpdf(values[k], freedom[:, None], mean[:, None], scale).ravel())
        transitions.append(np.log(state.counts / state.counts.sum(1, keepdims=True)))
        expected.append((state.regime @ np.exp(transitions[-1])).reshape(3, 2).sum(1) @ mean)
        before = state.counts
        state, found = model.step(state, hours[k : k + 1], values[k : k + 1])
        moved.append(state.counts - before)
        surprises.append(found.surprise[0])
        regimes.append(found.regimes[0].ravel())
        assert found.expected[0] == pytest.approx(expected[-1], rel=1e-12)
    histories = np.repeat(np.array(densities), 6, 1)  # numbered by the newest regime first
    whole = chain.filter(
        torch.from_numpy(np.array(transitions))[:, None],
        torch.from_numpy(histories)[:, None],
        torch.from_numpy(np.log(first.regime))[None],
    )
    np.testing.assert_allclose(-np.array(surprises), whole.log_likelihood[:, 0].numpy(), rtol=1e-10)
    np.testing.assert_allclose(np.array(regimes), whole.probabilities[:, 0].numpy(), rtol=1e-8, atol=1e-14)
    pairs = whole.histories[:, 0].exp().numpy().reshape(-1, 6, 6).swapaxes(1, 2)
    np.testing.assert_allclose(np.array(moved), pairs, rtol=1e-8, atol=1e-14)


def test_noise_is_learnt_from_errors_by_the_scales_that_they_had():
    model = SwitchingLevels(scales=(1.0, 5.0), forgetting=0.9)
    hours, values = series()
    state = begun(model)
    after, _ = model.step(state, hours[LEARN : LEARN + 1], values[LEARN : LEARN + 1])
    ahead = (state.regime @ (state.counts / state.counts.sum(1, keepdims=True))).reshape(3, 2)
    mean, variance = followed(state, LEARN)
    for level, gain in enumerate((model.fast, model.seasonal, model.seasonal)):
        spread = 1 + variance[level] + gain**2 / (1 - gain)
        error = values[LEARN] - mean[level]
        noise = np.sqrt(state.squares[level] / state.errors[level] * spread) * np.array(model.scales)
        share = ahead.sum(0) * scipy.stats.t.pdf(error, 1 + state.errors[level], scale=noise)
        square = (share / share.sum() / np.square(model.scales)).sum() * error**2 / spread
        assert after.squares[level] == pytest.approx(0.9 * state.squares[level] + square, rel=1e-10)
        assert after.errors[level] == pytest.approx(0.9 * state.errors[level] + 1, rel=1e-12)


def test_levels_that_are_new_count_for_nothing():
    """On the first day one level is known; the density is that of a mixture over its scales alone."""
    model = SwitchingLevels()
    hours, values = series()
    state = begun(model, 10)
    _, found = model.step(state, hours[10:11], values[10:11])
    ahead = (state.regime @ (state.counts / state.counts.sum(1, keepdims=True))).reshape(3, 3)[0]
    spread = 1 + state.levels[0].variance[0] + model.fast**2 / (1 - model.fast)
    noise = np.sqrt(state.squares[0] / state.errors[0] * spread) * np.array(model.scales)
    density = scipy.stats.t.pdf(values[10], 1 + state.errors[0], state.levels[0].mean[0], noise) @ ahead / ahead.sum()
    assert found.surprise[0] == pytest.approx(-np.log(density), rel=1e-10)
    assert found.expected[0] == state.levels[0].mean[0]
    nothing, found = model.step(model.begin(hours, values), hours[:2], values[:2])
    assert np.isnan(found.surprise).all()  # no error has been seen yet
    np.testing.assert_array_equal(nothing.errors, [1, 0, 0])


def test_a_missing_value_changes_nothing():
    model = SwitchingLevels()
    hours, _ = series()
    state = begun(model)
    after, found = model.step(state, hours[LEARN : LEARN + 1], np.array([np.nan]))
    for field in dataclasses.fields(state):
        if field.name != "levels":
            np.testing.assert_array_equal(getattr(after, field.name), getattr(state, field.name))
    assert np.isnan(found.surprise[0])
    assert np.isfinite(found.expected[0])
    np.testing.assert_array_equal(found.regimes[0].ravel(), state.regime)


def test_a_first_part_without_values_is_refused():
    hours, values = series()
    with pytest.raises(ValueError, match="at least one value in the first part, got 5 records without any"):
        SwitchingLevels().begin(hours[:5], values[:5] * np.nan)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fast": 1.0}, "a gain between 0 and 1 as fast, got 1"),
        ({"seasonal": 0.0}, "a gain between 0 and 1 as seasonal, got 0"),
        ({"forgetting": 1.1}, "forgetting above 0 and at most 1, got 1.1"),
        ({"stay": 1.0}, "a probability between 0 and 1 as stay, got 1.0"),
        ({"scales": ()}, r"scales above 0, at least one, got \(\)"),
        ({"certainty": 0.0}, "a certainty above 0, got 0.0"),
    ],
)
def test_settings_that_can_not_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SwitchingLevels(**settings)
