"""Targets of any unit in float32: divided by powers of two, and back."""

import numpy as np
import pytest

from tsforecast.data.magnitude import compact, find_exponents, in_float32, in_units


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
    narrow = in_float32(values[None, :, None], exponents)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow[0, :, 0], values / 2.0 ** exponents[0, 0], rtol=1e-7)
    np.testing.assert_array_equal(
        in_units(narrow[0, :, 0][None], exponents[0])[0], narrow[0, :, 0].astype(float) * 2.0 ** exponents[0]
    )
    plain = np.ones((2, 3), np.float32)
    assert in_units(plain, np.zeros(1, np.int64)) is plain
    several = in_units(np.ones((2, 3, 2), np.float32), np.array([0, 40]))
    assert several[0, 0].tolist() == [1.0, 2.0**40]


def test_what_is_still_too_large_is_cut():
    assert in_float32(np.array([[[1e300]], [[-1e300]]])).ravel().tolist() == [
        3.4028234663852886e38,
        -3.4028234663852886e38,
    ]


@pytest.mark.parametrize(
    ("values", "kept"), [([1e-300], True), ([1e39, 1.0], True), ([1.2e-38, 3e38], False), ([0.0, np.nan], False)]
)
def test_float32_where_it_keeps_what_there_is(values, kept):
    found = compact(np.array(values))
    assert found.dtype == (np.float64 if kept else np.float32)
    np.testing.assert_allclose(found, values, rtol=1e-6)
