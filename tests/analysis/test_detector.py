"""The online detector: exact levels, the same for one record and many, and alarms that are news."""

import numpy as np
import pytest
import torch

from tsforecast.analysis.detector import Detector
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman

LEARN, RECORDS, AT = 240, 480, 400


def series(seed=0):
    """Hours of ten days and as many again, with a daily pattern, a gap, and a day that is another one."""
    rng = np.random.default_rng(seed)
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(RECORDS) * np.timedelta64(1, "h")
    values = 10 + 5 * np.sin(np.arange(RECORDS) * 2 * np.pi / 24) + rng.normal(size=RECORDS)
    values[300] = np.nan
    values[AT : AT + 10] += 12
    return hours, values


def begun(detector, hours, values):
    return detector.begin(hours[:LEARN], values[:LEARN])


def test_levels_are_those_of_a_kalman_filter():
    hours, values = series()
    detector = Detector()
    state = begun(detector, hours, values)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    for level, gain, own in (
        (state.fast, detector.fast, values[:LEARN]),
        ((state.daily.mean[7], state.daily.variance[7]), detector.seasonal, values[7:LEARN:24]),
    ):
        walk = gain**2 / (1 - gain)
        system = LinearSystem(LinearGaussian(one, one[:, 0] * 0, walk * one), LinearGaussian(one, one[:, 0] * 0, one))
        prior = Gaussian(one[0, 0] * 0, 1e9 * one[0])
        belief = kalman.filter(system, prior, torch.from_numpy(own)[:, None]).belief
        assert level[0] == pytest.approx(float(belief.mean), rel=1e-6)
        assert level[1] == pytest.approx(float(belief.cov), rel=1e-6)


def test_one_record_at_a_time_is_all_at_once():
    hours, values = series()
    detector = Detector(memory=300)
    state = begun(detector, hours, values)
    _, whole = detector.step(state, hours[LEARN:], values[LEARN:])
    parts = []
    for first, end in ((LEARN, LEARN + 1), (LEARN + 1, 299), *((k, k + 1) for k in range(299, 320)), (320, RECORDS)):
        state, found = detector.step(state, hours[first:end], values[first:end])
        parts.append(found)
    for name in ("expected", "tail", "alarm"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(whole, name))


def test_the_strange_day_is_told_once():
    hours, values = series()
    detector = Detector()
    _, found = detector.step(begun(detector, hours, values), hours[LEARN:], values[LEARN:])
    assert np.isnan(found.tail).nonzero()[0].tolist() == [300 - LEARN]
    first = int(found.alarm.argmax())
    assert AT - LEARN <= first < AT - LEARN + 10
    assert (found.alarm[first + 1 : first + 96] == 0).all()
    assert found.tail[first] < 1e-4
    ordinary = found.tail[: AT - LEARN]
    assert np.nanmean(ordinary < 0.1) < 0.2


def test_what_can_not_be_is_refused():
    hours, values = series()
    with pytest.raises(ValueError, match="a gain between 0 and 1 as fast, got 1"):
        Detector(fast=1.0)
    with pytest.raises(ValueError, match="at least 20 values to learn what is ordinary, got 5"):
        Detector().begin(hours[:5], values[:5])
