"""Targets of any unit: divided by powers of two, and back, and what float32 keeps of them."""

import numpy as np
import pytest

from tsforecast.data.magnitude import compact, find_exponents, in_range, in_units


def window(*values):
    target = np.array(values, dtype=np.float64)[:, None]
    return {"past_target": np.nan_to_num(target), "past_observed": np.isfinite(target)}


@pytest.mark.parametrize(
    ("values", "exponent"),
    [
        ((0.0, 1.0, -7.0), 0),
        ((2.0**30, 1.0), 0),
        ((2.0**31, 1.0), 31),
        ((-(2.0**31), 1.0), 31),
        ((2.0**-30, 0.0), 0),
        ((2.0**-31, 0.0), -31),
        ((1e300, np.nan), 996),
        ((1e-300,), -997),
        ((0.0, 0.0), 0),
        ((np.nan, np.nan), 0),
    ],
)
def test_exponents_are_those_of_the_largest_value_where_it_is_far_from_one(values, exponent):
    assert find_exponents([window(*values)], 0).tolist() == [[exponent]]


def test_only_the_last_values_observed_count():
    values = (1e20, np.nan, 1e-20, 1e-21, np.nan)
    assert find_exponents([window(*values)], 2).tolist() == [[np.frexp(1e-20)[1] - 1]]
    assert find_exponents([window(*values)], 3).tolist() == [[np.frexp(1e20)[1] - 1]]


def test_there_and_back_without_error():
    values = np.array([1.5e300, -2e299, np.nan, 0.0])
    exponents = find_exponents([window(*values)], 0)
    near = in_range(values[None, :, None], exponents)
    assert np.nanmax(np.abs(near)) < 2
    np.testing.assert_array_equal(in_units(near[0, :, 0][None], exponents[0])[0], values)
    several = in_units(np.ones((2, 3, 2), np.float32), np.array([0, 40]))
    assert several[0, 0].tolist() == [1.0, 2.0**40]


def test_what_is_still_too_large_is_cut():
    assert in_range(np.array([[[1e300]], [[-1e300]]])).ravel().tolist() == [
        3.4028234663852886e38,
        -3.4028234663852886e38,
    ]


@pytest.mark.parametrize(
    ("values", "narrow"),
    [
        ([0.0, np.nan, 0.5], True),
        ([2.0**24, -5.0], True),
        ([2.0**24 + 1], False),
        ([0.1], False),
        ([1e-300], False),
        ([1e39, 1.0], False),
    ],
)
def test_float32_holds_numbers_that_it_keeps_as_they_are(values, narrow):
    found = compact(np.array(values))
    assert found.dtype == (np.float32 if narrow else np.float64)
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("shape", [(200, 5), (200, 5, 2)])
@pytest.mark.parametrize(("location", "narrow"), [(0.0, True), (1e3, True), (1e9, False)])
def test_samples_are_in_float32_where_that_rounds_by_little_of_their_spread(shape, location, narrow):
    samples = location + np.random.default_rng(0).normal(size=shape)
    found = in_units(samples, np.zeros(shape[2:] or 1, np.int64))
    assert found.dtype == (np.float32 if narrow else np.float64)
    np.testing.assert_allclose(found, samples, rtol=0, atol=1e-3 * np.ptp(samples))
    assert in_units(np.zeros((0, 5)), np.zeros(1, np.int64)).shape == (0, 5)
