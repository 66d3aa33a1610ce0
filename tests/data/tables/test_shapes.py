"""Tables that are not long, or whose items no column names alone."""

import logging

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.wording import command_line_wording

DAYS = pd.date_range("2024-01-01", periods=30)
YEARS = [str(year) for year in range(1960, 2000)]


def read(tmp_path, frame, **options):
    """The task of a file, which is that of the data frame."""
    frame.to_csv(tmp_path / "mine.csv", index=False)
    task = read_task(tmp_path / "mine.csv", windows=0, **options)
    for found, same in zip(task.entries, read_task(frame, windows=0, **options).entries, strict=True):
        assert found["start"] == same["start"]
        np.testing.assert_array_equal(found["target"], same["target"])
    return task


def items(task):
    return [entry["item_id"] for entry in task.entries]


@pytest.mark.parametrize(
    ("left", "names"),
    [
        ({"region": ["north", "south"]}, ["north", "south"]),
        ({"Country Name": ["Chad", "Mali"], "Code": ["TD", "ML"]}, ["Chad", "Mali"]),
        ({"Province": ["Hubei", None], "Country": ["China", "Mali"]}, ["China", "Mali"]),
        ({"kind": ["a", "a"], "place": ["x", "y"]}, ["x", "y"]),
        ({"store": [3, 4]}, ["3", "4"]),
        ({"number": [3, 4]}, ["3", "4"]),
    ],
)
def test_dates_across_the_top(tmp_path, caplog, left, names):
    values = pd.DataFrame(np.arange(80.0).reshape(2, 40), columns=YEARS)
    with caplog.at_level(logging.INFO):
        task = read(tmp_path, pd.concat([pd.DataFrame(left), values], axis=1))
    assert (items(task), task.freq, str(task.entries[0]["start"])) == (names, "Y-DEC", "1960")
    np.testing.assert_array_equal(task.entries[1]["target"], np.arange(40, 80))
    assert "table with a row for each series: item " in caplog.text
    assert "time in the names of 40 columns" in caplog.text


def test_dates_across_the_top_as_written_anywhere(tmp_path):
    values = {f"{day.month}/{day.day}/{day.year % 100}": [1.0, 2.0] for day in DAYS}
    task = read(tmp_path, pd.DataFrame({"Province": ["A", "B"], "Country": ["X", "X"], "Lat": [1.5, 2.5], **values}))
    assert (items(task), task.freq) == (["A/X", "B/X"], "D")
    frame = pd.DataFrame({"item": ["a", "b"], "size": ["s", "l"], **values}).assign(**{"1/5/24": [1.0, "x"]})
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"mine.csv, line 3, column '1/5/24': expected a number, got 'x'"):
        read_task(path, columns=Columns(static_categories=["size"]))
    task = read(tmp_path, frame.assign(**{"1/5/24": [1.0, 2.0]}), columns=Columns(static_categories=["size"]))
    assert task.categories == {"size": ["l", "s"]}


def test_names_like_years_are_stores(tmp_path):
    """Beside a column of dates."""
    frame = pd.DataFrame({"date": DAYS, "1901": 1.0, "1902": 2.0, "1903": 3.0, "1904": 4.0})
    assert items(read(tmp_path, frame)) == ["1901", "1902", "1903", "1904"]
    assert items(read(tmp_path, pd.DataFrame({"date": DAYS, "MT_1": 1.0, "MT_2": 2.0, "MT_10": 3.0}))) == [
        "MT_1",
        "MT_2",
        "MT_10",
    ]


def test_numbers_of_steps_across_the_top(tmp_path):
    frame = pd.DataFrame({"Series": ["N1", "N2"], **{str(step): [1.0, 2.0] for step in range(1, 20)}})
    with pytest.raises(ValueError, match=r"columns such as '18' and '19' are steps .* write dates as their names"):
        read(tmp_path, frame)


def test_items_by_what_tells_series_apart(tmp_path):
    one = pd.DataFrame({"ds": DAYS, "y": np.arange(30.0)})
    both = pd.concat([one.assign(Land="DE", note="x"), one.assign(Land="FR", note="x")], ignore_index=True)
    assert items(read(tmp_path, both)) == ["DE", "FR"]  # the only text that does
    numbered = both.drop(columns="note").reset_index(names="id")
    assert items(read(tmp_path, numbered)) == ["DE", "FR"]  # not a row's own number
    assert items(read(tmp_path, one.reset_index(names="id"))) == ["mine"]
    assert items(read(tmp_path, one.assign(note=[f"n{k}" for k in range(30)]))) == ["mine"]
    weekly = pd.concat(
        [both.drop(columns="note").assign(Store=k).rename(columns={"y": "Weekly_Sales"}) for k in (1, 2)]
    )
    task = read(tmp_path, weekly.assign(Temperature=1.5))
    assert (items(task), task.targets) == (["DE/1", "FR/1", "DE/2", "FR/2"], ("Weekly_Sales",))


def test_a_repeated_row_does_not_make_series_of_notes(tmp_path):
    frame = pd.DataFrame({"ds": [*DAYS, DAYS[3]], "y": 1.0, "note": ["as usual"] * 30 + ["again"]})
    with (
        command_line_wording(),
        pytest.raises(ValueError, match=r"2024-01-04 .* occurs twice.* name it by --item NAME"),
    ):
        read(tmp_path, frame)


def test_time_stamps_of_several_columns(tmp_path, caplog):
    months = pd.date_range("1949-01-01", periods=24, freq="MS")
    parts = {"year": months.year, "month": months.strftime("%B"), "passengers": np.arange(24.0)}
    with caplog.at_level(logging.INFO):
        assert str(read(tmp_path, pd.DataFrame(parts)).entries[0]["start"]) == "1949-01"
    assert "one series: time 'year' and 'month', target 'passengers'" in caplog.text
    parts["month"] = months.month
    assert read(tmp_path, pd.DataFrame(parts)).freq == "M"
    hours = pd.date_range("2024-01-25", periods=300, freq="h")
    parts = {"Date": hours.strftime("%d/%m/%Y"), "Time": hours.strftime("%H:%M:%S"), "load": np.arange(300.0)}
    assert read(tmp_path, pd.DataFrame(parts)).freq == "h"
    parts = {"y": hours.year, "m": hours.month, "d": hours.day, "h": hours.hour, "load": np.arange(300.0)}
    task = read(tmp_path, pd.DataFrame(parts), columns=Columns(timestamp=["y", "m", "d", "h"]))
    assert (task.freq, str(task.entries[0]["start"])) == ("h", "2024-01-25 00:00")


def test_a_faulty_cell_does_not_hide_the_target(tmp_path):
    frame = pd.DataFrame({"Month": DAYS, "#Passengers": [*["1"] * 28, "error", "1"]})
    with pytest.raises(ValueError, match=r"line 30, column '#Passengers': expected a number, got 'error'"):
        read(tmp_path, frame)


def test_another_table_is_read_as_the_first(tmp_path):
    """By what was found there: its own rows may say less."""
    one = pd.DataFrame({"date": DAYS, "sales": np.arange(30.0)})
    frame = pd.concat([one.assign(store=store, sku=sku) for store in (1, 2) for sku in "ab"])
    found = read_task(frame, windows=0).columns
    assert items(read_task(frame[frame["store"] == 2], windows=0)) == ["a", "b"]
    assert items(read_task(frame[frame["store"] == 2], windows=0, columns=found)) == ["2/a", "2/b"]
    wide = read_task(pd.DataFrame({"date": DAYS, "T1": 1.0, "T2": 2.0, "T3": 3.0}), windows=0).columns
    assert items(read_task(pd.DataFrame({"date": DAYS, "T1": 1.0, "T9": 2.0}), windows=0, columns=wide)) == ["T1", "T9"]
    across = pd.DataFrame({"name": ["x", "y"], "code": ["p", "q"], **dict.fromkeys(YEARS, 1.0)})
    found = read_task(across, windows=0).columns
    later = across.rename(columns={year: str(int(year) + 1) for year in YEARS})
    (entry,) = read_task(later[:1], windows=0, columns=found).entries
    assert (entry["item_id"], str(entry["start"])) == ("x", "1961")
