"""Time stamps as people write them, read in the only way that fits the whole column, which is said."""

import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.wording import command_line_wording

MONTHS = pd.date_range("1949-01-01", periods=144, freq="MS")
QUARTERS = pd.date_range("1990-01-01", periods=40, freq="QS")
DAYS = pd.date_range("2020-01-01", periods=60, freq="D")
HOURS = pd.date_range("2020-01-01", periods=60, freq="h")


def task_of(tmp_path, cells, **options):
    path = tmp_path / "mine.csv"
    pd.DataFrame({"when": cells, "sales": np.arange(len(cells))}).to_csv(path, index=False)
    return read_task(path, windows=0, columns=Columns(timestamp="when"), **options)


@pytest.mark.parametrize(
    ("cells", "start", "said"),
    [
        (
            MONTHS.strftime("%b-%y"),
            "1949-01",
            "'Jan-49' (1949-01-01 00:00:00) are read as month and year, years of two",
        ),
        (MONTHS.strftime("%B %Y"), "1949-01", "month and year"),
        (MONTHS.strftime("%Y %b"), "1949-01", "year and month"),
        (MONTHS.strftime("%m/%Y"), "1949-01", "month/year"),
        ((1949 + np.arange(144) / 12).round(3), "1949-01", "years and twelfths of them"),
        (MONTHS.strftime("%d.%m.%Y"), "1949-01", "day/month/year"),
        ([f"{q.year}Q{q.quarter}" for q in QUARTERS], "1990Q1", "year and quarter"),
        ([f"Q{q.quarter} {q.year}" for q in QUARTERS], "1990Q1", "quarter and year"),
        (DAYS.strftime("%d-%b-%y"), "2020-01-01", "month and year"),
        (DAYS.strftime("%b %d, %Y"), "2020-01-01", "month, day and year"),
        ([f"{d.month}/{d.day}/{d.year}" for d in DAYS], "2020-01-01", "month/day/year"),
        ([f"{d.day}.{d.month}.{d.year % 100}" for d in DAYS], "2020-01-01", "day/month/year, years of two digits"),
        (HOURS.strftime("%m/%d/%Y %I:%M:%S %p"), "2020-01-01 00:00", "day"),
        (HOURS.astype("int64") // 10**9, "2020-01-01 00:00", "seconds since 1970"),
        (HOURS.astype("int64") // 10**6, "2020-01-01 00:00", "milliseconds since 1970"),
        ([f"2020-W{week:02d}" for week in range(1, 54)], "2019-12-24/2019-12-30", "weeks, by their Mondays"),
    ],
)
def test_every_way_to_write_dates(tmp_path, caplog, cells, start, said):
    with caplog.at_level(logging.INFO):
        (entry,) = task_of(tmp_path, cells).entries
    assert str(entry["start"]) == start
    np.testing.assert_array_equal(entry["target"], np.arange(len(cells)))  # each in its step, none left out
    assert said in caplog.text


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%m/%d/%Y", "%d.%m.%Y", "%d-%b-%Y", "%Y%m%d", "%Y-%m-%d 00:00:00"])
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("options", [{}, {"timestamp": ["Date", "Hour"]}])
def test_dates_beside_hours(tmp_path, caplog, form, least, options):
    hours = pd.date_range("2020-03-01", periods=700, freq="h")
    table = pd.DataFrame({"Date": hours.strftime(form), "Hour": hours.hour + least, "load": np.arange(700.0)})
    table.to_csv(tmp_path / "mine.csv", index=False)
    with caplog.at_level(logging.INFO):
        (entry,) = read_task(tmp_path / "mine.csv", windows=0, columns=Columns(**options)).entries
    assert str(entry["start"]) == "2020-03-01 00:00"
    np.testing.assert_array_equal(entry["target"], np.arange(700))
    assert ("hours from 1 to 24, of which 24 is the last" if least else "hours from 0 to 23") in caplog.text


def test_hours_that_do_not_count_the_day(tmp_path):
    """A number beside a day is no hour of it, unless the user says so; and no day has 25 hours."""
    days = pd.date_range("2020-01-01", periods=60)
    opened = pd.DataFrame({"Date": days, "Hour": np.tile([8, 9, 7], 20), "sales": 1.0})
    task = read_task(opened, windows=0)
    assert (task.freq, task.columns.timestamp) == ("D", "Date")
    table = pd.DataFrame({"Date": "2020-01-01", "Hour": np.arange(26), "load": 1.0})
    with pytest.raises(ValueError, match=r"row 24, .*'2020-01-01 24' is not a time stamp"):
        read_task(table, windows=0, columns=Columns(timestamp=["Date", "Hour"]))
    months = pd.DataFrame({"year": 2020, "month": np.arange(1, 13), "sales": 1.0})
    assert read_task(months, windows=0).freq == "M"


def test_order_of_day_and_month_by_the_whole_column(tmp_path):
    monthly = task_of(tmp_path, MONTHS.strftime("%d/%m/%Y"))  # day by day in the other order, with leaps
    assert (monthly.freq, len(monthly.entries[0]["target"])) == ("M", 144)
    for cells in (DAYS[:12].strftime("%d/%m/%y"), ["03/02/24", "04/02/24", "06/02/24"]):
        with command_line_wording(), pytest.raises(ValueError, match=r"--timestamp_format %d/%m/%y, or '%m/%d/%y'"):
            task_of(tmp_path, cells, freq="D")


def test_a_cell_that_does_not_fit_is_named(tmp_path):
    for cells in (
        ["Jan-49", "Feb-49", "Smarch-49"],
        ["1990Q1", "1990Q2", "1990Q5"],
        ["1577836800", "1577840400", "soon"],
    ):
        with pytest.raises(ValueError, match=rf"line 4, column 'when': '{cells[-1]}' is not a time stamp"):
            task_of(tmp_path, cells, freq="D")
