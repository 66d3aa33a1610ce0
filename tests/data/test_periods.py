"""Sums over whole periods: which steps they have, gaps, covariates, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from tsforecast.data import read_task
from tsforecast.data.periods import find_periods
from tsforecast.data.tables.roles import Columns

HORIZON = 70


def _task(stamps, values, horizon, **columns):
    frame = pd.DataFrame({"date": stamps, "item": "a", "y": values, **columns})
    return read_task(frame, None, horizon, columns=Columns(target="y", item="item"), beyond=True).ending_together()


def test_sums_are_those_of_pandas_over_whole_months(caplog):
    caplog.set_level("INFO")
    days = pd.date_range("2023-01-10", "2024-02-13")
    values = np.random.default_rng(0).normal(50, 9, len(days))
    (found,) = find_periods("month", _task(days, values, HORIZON))
    whole = pd.Series(values, days).resample("MS").sum()["2023-02":"2024-01"]
    (entry,) = found.task.entries
    np.testing.assert_allclose(entry["target"], whole, rtol=1e-6)
    assert entry["start"] == pd.Period("2023-02", "M")
    assert found.task.prediction_length == 2  # February, in which the history ends, and March
    assert found.start == pd.Period("2024-03", "M")
    ahead = pd.date_range("2024-02-14", periods=HORIZON)
    np.testing.assert_array_equal(found.weights, [ahead.to_period("M") == "2024-03"])
    assert "39 days of the horizon are in no whole 'month', and in no sum" in caplog.messages


def test_a_week_counts_to_the_month_of_its_time_stamp():
    fridays = pd.date_range("2023-01-06", periods=60, freq="W-FRI")
    (found,) = find_periods(["month"], _task(fridays, np.arange(60.0), 14))
    whole = pd.Series(np.arange(60.0), fridays).resample("MS").sum()
    np.testing.assert_allclose(found.task.entries[0]["target"], whole)
    assert found.weights.sum(1).tolist() == [5, 4, 5]  # so many Fridays have March, April and May 2024
    assert found.start == pd.Period("2024-03", "M")


def test_gaps_are_filled_where_they_are_few():
    months = pd.date_range("2015-01-01", periods=72, freq="MS")
    values = np.full(72, 10.0)
    values[14] = np.nan  # one month of a year is less than a tenth
    values[[30, 31]] = np.nan
    (found,) = find_periods("year", _task(months, values, 12))
    np.testing.assert_allclose(found.task.entries[0]["target"], [120, 120, np.nan, 120, 120, 120])


def test_covariates_of_sums_are_means():
    months = pd.date_range("2015-01-01", periods=48, freq="MS")
    price = np.arange(48.0)
    values = np.where(np.arange(48) < 42, 5.0, np.nan)
    frame = pd.DataFrame({"date": months, "item": "a", "y": values, "price": price})
    task = read_task(frame, None, 6, columns=Columns(target="y", item="item", covariates=["price"]), beyond=True)
    (found,) = find_periods("quarter", task)
    np.testing.assert_allclose(found.task.entries[0]["feat_dynamic_real"], [np.arange(1, 48, 3)])


def test_short_series_have_no_sums_of_their_own():
    days = pd.date_range("2024-01-01", periods=60)
    long = pd.DataFrame({"date": days, "item": "a", "y": 1.0})
    frame = pd.concat([long, long[-25:].assign(item="b")])
    task = read_task(frame, None, 31, columns=Columns(target="y", item="item"), beyond=True)
    (found,) = find_periods("week", task.ending_together())
    assert [entry["item_id"] for entry in found.task.entries] == ["a", "b"]
    short = read_task(pd.concat([long, long[-20:].assign(item="b")]), None, 31,
                      columns=Columns(target="y", item="item"), beyond=True)  # fmt: skip
    (found,) = find_periods("week", short.ending_together())
    assert [entry["item_id"] for entry in found.task.entries] == ["a"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "fortnight",
            "'hour', 'day', 'week', 'month', 'quarter', 'year', or a frequency such as Y-JUN, got 'fortnight'",
        ),
        ("2M", "got '2M'"),
        ("hour", "longer than a step of 'D', got 'hour'"),
        ("day", "longer than a step of 'D', got 'day'"),
        ("year", "no whole 'year' lies within the horizon of 70 days: give a longer one"),
        (["month", "M"], "each once"),
        ([], "such as month or quarter"),
    ],
)
def test_what_is_no_period_is_said(given, said):
    task = _task(pd.date_range("2023-01-10", periods=300), 1.0, HORIZON)
    with pytest.raises(ValueError, match=said):
        find_periods(given, task)


def test_several_targets_are_refused():
    frame = pd.DataFrame({"date": pd.date_range("2023-01-10", periods=300), "y": 1.0, "z": 2.0})
    task = read_task(frame, None, HORIZON, columns=Columns(target=["y", "z"]), beyond=True)
    with pytest.raises(ValueError, match="expected one target with aggregate, got several"):
        find_periods("month", task)
