import numpy as np
import pandas as pd
import pytest

from tsforecast.data.checks import as_numbers, check_entries


def entry(**changes):
    fields = {"item_id": "a", "start": pd.Period("2024-01-01", freq="h"), "target": np.arange(10.0)}
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    "good",
    [
        entry(),
        entry(item_id=None),
        entry(target=[1, 2, 3]),
        entry(target=[1, None, 3.5]),
        entry(target=[[1, None], [None, 2.0]]),
        entry(target=np.ma.masked_equal(np.arange(5), 3)),
        entry(target=np.full(10, 3.0)),  # constant
        entry(target=np.r_[np.nan, np.ones(5), np.nan]),
        entry(target=np.ones((2, 5), np.float32)),
        entry(feat_static_cat=[0, 3], feat_static_real=[0.5]),
        entry(feat_static_cat=np.array([1.0])),
        entry(feat_dynamic_real=np.zeros((2, 10)), unused=[[1], [2, 3]]),
        entry(feat_dynamic_real=np.zeros((2, 12))),
    ],
)
def test_sound_entries_pass(good):
    check_entries([good], "1H")
    check_entries(iter([good, good]), "h")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (entry(start=pd.Timestamp("2024-01-01")), r"'a'.*pandas.Period, got Timestamp; write start=pd.Period"),
        (entry(start=None), "Period, got NoneType"),
        (entry(start=pd.Period("2024-01-01", freq="D")), r"'a'.*frequency 'h', got 'D'"),
        (entry(start=pd.Period("2024-01-01", freq="2h")), r"frequency 'h', got '2h'"),
        (entry(target=None), "no field 'target'"),
        (entry(target=[]), "target is empty; leave"),
        (entry(target=["1", "b"]), "'a', target: expected numbers"),
        (entry(target=[[1.0], [1.0, 2.0]]), "ragged"),
        (entry(target=np.zeros((1, 2, 3))), r"\(time,\) or \(target, time\), got \(1, 2, 3\)"),
        (entry(target=[1.0, np.inf, 2.0]), "infinite at step 1; write NaN"),
        (entry(target=[-np.inf, 2.0]), "infinite at step 0"),
        (entry(target=[1.0, None, "b"]), "'a', target: expected numbers"),
        (entry(target=[None, None]), "all values of the target are missing"),
        (entry(target=np.ma.masked_all(3)), "all values of the target are missing"),
        (entry(feat_dynamic_real=np.ma.masked_equal(np.arange(10.0)[None], 7)), "missing or infinite at step 7"),
        (entry(target=[np.nan] * 5), "all values of the target are missing"),
        (entry(feat_static_cat=[0.5]), "whole numbers in feat_static_cat"),
        (entry(feat_static_cat=["red"]), "feat_static_cat: expected numbers"),
        (entry(feat_static_real=[np.nan]), "feat_static_real to be a list of finite numbers"),
        (entry(feat_dynamic_real=np.zeros(10)), r"feat_dynamic_real of shape \(covariate, time\), got \(10,\)"),
        (entry(feat_dynamic_real=np.zeros((1, 9))), "'a'.*end too early, after 9 steps; expected 10"),
        (entry(feat_dynamic_real=np.r_[np.zeros(7), np.nan, 0, 0][None]), "missing or infinite at step 7"),
    ],
)
def test_each_fault_is_named_with_its_series(bad, message):
    with pytest.raises(ValueError, match=message):
        check_entries([entry(), bad], "h")


def test_all_missing_where_that_is_allowed():
    blank = entry(target=[np.nan] * 5)
    check_entries([entry(), blank], "h", all_missing=True)
    for bad in (entry(target=[]), entry(target=[np.nan, np.inf]), entry(target=[np.nan] * 5, start=None)):
        with pytest.raises(ValueError, match="'a'"):
            check_entries([blank, bad], "h", all_missing=True)


def test_series_without_name_is_named_by_its_number():
    with pytest.raises(ValueError, match="series number 1: the target is empty"):
        check_entries([entry(), entry(item_id=None, target=[])], "h")


def test_empty_data_set():
    with pytest.raises(ValueError, match="data set is empty"):
        check_entries([], "h")


def test_too_short():
    check_entries([entry()], "h", min_length=10)
    with pytest.raises(ValueError, match="10 steps are too short, at least 11 are needed"):
        check_entries([entry()], "h", min_length=11)


def test_covariates_must_reach_the_end_of_the_forecast():
    data = [entry(feat_dynamic_real=np.zeros((1, 15)))]
    check_entries(data, "h", future=5)
    with pytest.raises(
        ValueError, match=r"after 15 steps; expected 16: the 10 steps .* and the 6 steps of the forecast"
    ):
        check_entries(data, "h", future=6)


@pytest.mark.parametrize(
    "other",
    [
        entry(target=np.ones((2, 10))),
        entry(feat_static_cat=[1]),
        entry(feat_static_cat=[1, 2], feat_dynamic_real=np.zeros((1, 10))),
    ],
)
def test_all_series_have_the_same_fields(other):
    first = entry(feat_static_cat=[1, 2])
    with pytest.raises(
        ValueError, match="same fields as in the first series, target univariate, feat_static_cat 2, got"
    ):
        check_entries([first, other], "h")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, 2.5], [1, np.nan, 2.5]),
        (np.array([1, pd.NA, 2], dtype=object), [1, np.nan, 2]),
        (np.ma.array([1, 2, 3], mask=[0, 1, 0]), [1, np.nan, 3]),
        (np.ma.array([1.0, 2.0]), [1, 2]),
        ([True, False], [1, 0]),
    ],
)
def test_none_and_masked_values_are_missing(values, expected):
    np.testing.assert_array_equal(as_numbers(values), expected)
    assert not np.ma.isMaskedArray(as_numbers(values))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        (
            [1.0, 2e300],
            {},
            r"series 'a': the target is 2e\+300 at step 1, expected at most 1e\+300 in size; correct it",
        ),
        ([-1e37, 1.0], {"largest": 1e36}, r"the target is -1e\+37 at step 0, expected at most 1e\+36"),
        ([1, 2, -3], {"support": "counts"}, "the target is -3 at step 2, expected a count: a whole number from 0"),
        ([1.0, np.nan, 2.5], {"support": "counts"}, "the target is 2.5 at step 2, expected a count"),
        ([0.0, 1.0, 1.5], {"support": "unit"}, "the target is 1.5 at step 2, expected a number from 0 to 1"),
        ([[0.0, 1.0], [0.5, -1.0]], {"support": "unit"}, "the target is -1 at step 1, expected a number from 0 to 1"),
    ],
)
def test_values_that_a_model_cannot_take_are_named(target, options, message):
    entry = {"item_id": "a", "start": pd.Period("2024-01-01", "D"), "target": np.array(target)}
    with pytest.raises(ValueError, match=message):
        check_entries([entry], "D", **options)
    fine = {**entry, "target": np.array([np.nan, 0.0, 1.0]), "known_future": np.array([target]).ravel()}
    with pytest.raises(ValueError, match="series 'a': known_future is"):
        check_entries([fine], "D", **options)
    check_entries([{**fine, "known_future": [np.nan, 1.0]}], "D", **options)
