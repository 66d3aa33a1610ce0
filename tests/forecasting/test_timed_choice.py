"""The cycles that few observations show, and how uncertain they leave them."""

import numpy as np
import pytest
import torch

from tests.forecasting.test_irregular import HOUR, entries, train
from tsforecast import StateSpaceEstimator
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.forecasting.timed_choice import ENOUGH, given_others, has_enough
from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Series


def wandering(day: float, loudness: float = 0.0, count: int = 120) -> list[dict]:
    """A level that fades within hours and its noise, beside a day of some size, at random times of a month.

    The logarithm of the size of what is not regular is a cosine of the day, of some loudness.
    """
    rng = np.random.default_rng(3)
    times = np.sort(rng.choice(30 * 24 * 60, count, replace=False)) * (HOUR // 60)
    gaps, level, found = np.diff(times, prepend=times[0]) / HOUR, 0.0, []
    for gap in gaps:
        kept = np.exp(-gap / 10)
        level = kept * level + np.sqrt(1 - kept**2) * rng.standard_normal()
        found.append(level)
    angle = 2 * np.pi * times / HOUR / 24
    irregular = np.array(found) + 0.3 * rng.standard_normal(count)
    values = 20 + np.exp(loudness * np.cos(angle)) * irregular + day * np.sin(angle)
    return [{"item_id": "a", "times": times, "target": values}]


def untrained(data: list[dict], **options) -> AbstractForecaster:
    """The model that training begins with."""
    training = StateSpaceEstimator("issm", horizon="6h", seed=0, **options).on_clock
    return training.untrained(ForecastTask("d", "ns", HOUR, 0, data, gap=6 * HOUR), data)


@pytest.mark.parametrize(("day", "expected"), [(0.0, "level+damped_level"), (2.0, "level+damped_level+day")])
def test_cycles_are_chosen_that_few_observations_show(day, expected):
    """A week is never there."""
    assert untrained(wandering(day)).hyperparameters["components"] == expected


@pytest.mark.parametrize(("loudness", "expected"), [(0.0, False), (1.5, True)])
def test_noise_has_a_rhythm_that_few_observations_show(loudness, expected):
    net = untrained(wandering(1.0, loudness), components="damped_level+day_with_2_harmonics")
    assert net.dynamics.rhythm.requires_grad == expected


def test_densities_given_others_are_those_of_the_joint_gaussian():
    """Oracle: the joint Gaussian of all observations, each conditioned on all others; one of them is missing."""
    predictor = train(components="level+damped_level+day_with_1_harmonic")
    entry = entries()[1]  # two observations are of one moment
    target = np.where(np.arange(len(entry["times"])) == 7, np.nan, entry["target"])
    batch = predictor.on_clock.clock.past([{**entry, "target": target}])
    inference = predictor.prediction_net.inference
    with torch.no_grad():
        found = given_others(inference, batch)
        time_slice = inference.slice_of(batch, "past")
        model = inference.dynamics.linear(time_slice, Series.of(batch))
        joint = model.system.predictive(model.prior, len(target))
        values, observed = scaled(time_slice, *inference.scale_of(batch))
    assert observed is not None
    seen = observed[:, 0, 0]
    precision = torch.linalg.inv(joint.cov[0][seen][:, seen])
    error = (precision @ (values[:, 0, 0] - joint.mean[0])[seen]) / precision.diagonal()
    expected = torch.distributions.Normal(0.0, precision.diagonal().rsqrt()).log_prob(error)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_cycles_of_few_observations_keep_their_variance():
    """Their mean is not fitted, since it would be taken for known; it is from fifty observations a coefficient on."""
    few = train(components="level+day_with_1_harmonic", data=entries(3))
    many = train(components="level+day_with_1_harmonic", data=entries(4))
    unit = few.on_clock.clock.unit
    assert not has_enough("level+day_with_1_harmonic", unit, entries(3))
    assert sum(len(entry["times"]) for entry in entries(4)) >= 2 * ENOUGH
    for predictor, is_fitted in ((few, False), (many, True)):
        dynamics = predictor.prediction_net.dynamics
        assert bool((dynamics.cycle_means != 0).all()) == is_fitted
        assert bool((dynamics.rhythm != 0).any()) == is_fitted
    assert Clock.of(few.prediction_net, ["s0"]).cycles == (24 * HOUR,)
