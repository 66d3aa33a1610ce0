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


def test_periods_are_the_whole_months_of_the_horizon(caplog):
    caplog.set_level("INFO")
    (found,) = find_periods("month", _task(pd.date_range("2023-01-10", "2024-02-13"), 1.0, HORIZON))
    assert found.start == pd.Period("2024-03", "M")
    ahead = pd.date_range("2024-02-14", periods=HORIZON)
    np.testing.assert_array_equal(found.weights, [ahead.to_period("M") == "2024-03"])
    assert "39 days of the horizon are in no whole 'month', and in no sum" in caplog.messages


def test_a_week_counts_to_the_month_of_its_time_stamp():
    fridays = pd.date_range("2023-01-06", periods=60, freq="W-FRI")
    (found,) = find_periods(["month"], _task(fridays, 1.0, 14))
    assert found.weights.sum(1).tolist() == [5, 4, 5]  # so many Fridays have March, April and May 2024
    assert found.start == pd.Period("2024-03", "M")


def test_a_horizon_of_whole_quarters_is_in_sums_alone(caplog):
    caplog.set_level("INFO")
    (found,) = find_periods("Q", _task(pd.date_range("2021-01-31", periods=24, freq="ME"), 1.0, 6))
    np.testing.assert_array_equal(found.weights, np.kron(np.eye(2), np.ones(3)))
    assert not any("in no whole" in one for one in caplog.messages)


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
