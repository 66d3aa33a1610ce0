"""Public holidays as covariates."""

import logging
import sys

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.public_holidays import AFTER, BEFORE, BRIDGE, HOLIDAY, NUMBER
from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.wording import command_line_wording


def frame_of(freq, start="2019-01-01", end="2021-12-31 23:00", **more):
    times = pd.date_range(start, end, freq=freq)
    return pd.DataFrame({"date": times, "y": np.sin(np.arange(len(times))), **more})


def effects_of(task, number=0):
    """Effects by name, each with the steps that have it."""
    assert task.columns is not None
    entry = task.entries[number]
    rows = entry["feat_dynamic_real"]
    steps = pd.period_range(entry["start"], periods=rows.shape[1]).to_timestamp()
    country, *names = task.columns.holidays
    assert country == "US"
    return {name: {str(step)[:10] for step in steps[row > 0]} for name, row in zip(names, rows, strict=True)}


def test_a_package_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", None)
    with command_line_wording(), pytest.raises(ValueError, match=r"^--holidays US needs .* 'tsforecast\[holidays\]'"):
        read_task(frame_of("D"), columns=Columns(holidays="US"))


@pytest.fixture
def package():
    return pytest.importorskip("holidays")


@pytest.mark.usefixtures("package")
def test_days_around_holidays():
    """Thanksgiving of 2021 was on 25 November, the Fourth of July of 2019 a Thursday, and that of 2021 a Sunday."""
    for freq, number in (("D", 8), ("h", 4)):
        found = effects_of(read_task(frame_of(freq), prediction_length=10, windows=2, columns=Columns(holidays="US")))
        assert list(found)[:4] == [HOLIDAY, BEFORE, AFTER, BRIDGE]
        assert len(found) == number
        assert {"2019-07-04", "2021-07-05", "2021-11-25"} <= found[HOLIDAY]
        assert {"2019-07-03", "2021-07-03", "2021-11-24"} <= found[BEFORE]
        assert {"2019-07-05", "2021-07-06", "2021-11-26"} <= found[AFTER]
        assert {"2019-07-05", "2021-11-26"} <= found[BRIDGE]
        assert not found[BRIDGE] & {"2019-07-03", "2021-07-06"}
        assert "2022-01-01" in found[HOLIDAY]  # in the forecast
    working = effects_of(read_task(frame_of("B"), prediction_length=10, windows=2, columns=Columns(holidays="US")))
    assert "2020-02-14" in working[BEFORE]  # a Friday, before Washington's Birthday


@pytest.mark.usefixtures("package")
def test_names_that_have_an_effect_are_seen_before_the_test_part():
    """Of those that were seen in several years, the ones whose days are unlike others."""
    frame = frame_of("D", start="2018-02-01")
    christmas = (frame["date"].dt.month == 12) & (frame["date"].dt.day == 25)
    labor = frame["date"].isin(pd.to_datetime(["2018-09-03", "2019-09-02", "2020-09-07", "2021-09-06"]))
    frame["y"] = 100 + frame["y"] + 500 * christmas + 300 * labor
    task = read_task(frame, prediction_length=10, windows=37, columns=Columns(holidays="US"))
    found = effects_of(task)
    assert list(found)[4:6] == ["Christmas Day", "Labor Day"]
    assert "Juneteenth National Independence Day" not in found  # seen in 2021 alone
    assert found["Christmas Day"] >= {"2018-12-25", "2020-12-25", "2021-12-25"}
    assert task.columns is not None
    short = read_task(frame[-30:], freq="D", prediction_length=10, columns=task.columns, beyond=True)
    assert list(effects_of(short)) == list(found)  # those of the model, not of the file
    assert short.latest[0]["feat_dynamic_real"].shape == (8, 40)


@pytest.mark.usefixtures("package")
def test_longer_steps_have_the_number_of_holidays():
    for freq, expected in (("W-SUN", {"2020-12-21": 1, "2019-07-01": 1}), ("MS", {"2020-11-01": 2, "2020-12-01": 1})):
        task = read_task(frame_of(freq), prediction_length=4, windows=1, columns=Columns(holidays=["US"]))
        assert task.columns is not None
        assert task.columns.holidays == ["US", NUMBER]
        (entry,) = task.entries
        (row,) = entry["feat_dynamic_real"]
        steps = pd.period_range(entry["start"], periods=len(row)).to_timestamp()
        numbers = dict(zip(steps.strftime("%Y-%m-%d"), row, strict=True))
        assert expected.items() <= numbers.items()
        assert len(row) == len(entry["target"]) + 4


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("freq", "given", "dated", "begins"),
    [
        ("W-MON", None, "2021-11-22", 0),
        ("W-MON", "W", "2021-11-22", 0),
        ("W-FRI", None, "2021-11-26", -6),
        ("W-SUN", None, "2021-11-28", -6),
        ("W-WED", None, "2021-12-01", -6),
    ],
)
def test_weeks_begin_on_their_mondays_or_end_with_their_day(freq, given, dated, begins, caplog):
    """Thanksgiving of 2021 was on Thursday, 25 November, in week 47 of ISO 8601."""
    with caplog.at_level(logging.INFO):
        task = read_task(frame_of(freq), given, prediction_length=4, windows=1, columns=Columns(holidays="US"))
    (entry,) = task.entries
    (row,) = entry["feat_dynamic_real"]
    stamps = pd.DatetimeIndex(stamps_of(entry["start"], len(row), entry.get("info")))
    assert stamps[0].day_name()[:3].upper() == freq[2:]
    late = (stamps > "2021-11-18") & (stamps < "2021-12-06")
    assert stamps[late][row[late] > 0].strftime("%Y-%m-%d").tolist() == [dated]
    first, last = (f"{stamps[0] + pd.Timedelta(days, 'D'):%Y-%m-%d}" for days in (begins, begins + 6))
    assert f"the step dated {stamps[0]} has the holidays from {first} to {last}" in caplog.text


@pytest.mark.usefixtures("package")
def test_covariates_of_holidays_reach_as_far_as_forecasts_need_them():
    frame = frame_of("D", price=1.5)
    early = pd.concat([frame.assign(item_id="a"), frame[:-20].assign(item_id="b")])
    task = read_task(early, "D", 15, columns=Columns(holidays="US"), beyond=True).ending_together()
    assert [entry["feat_dynamic_real"].shape[1] for entry in task.latest] == [len(frame) + 15] * 2
    known = pd.concat([frame, frame_of("D", "2022-01-01", "2022-01-15", price=2.5).assign(y=np.nan)])
    task = read_task(known, "D", 15, columns=Columns(covariates=["price"], holidays="US"), beyond=True)
    (entry,) = task.latest
    assert entry["feat_dynamic_real"].shape[1] == len(frame) + 15
    np.testing.assert_array_equal(entry["feat_dynamic_real"][0, -16:], [1.5] + [2.5] * 15)
    assert entry["feat_dynamic_real"][1, -15] == 1  # the first of January


@pytest.mark.usefixtures("package")
def test_countries():
    frame = frame_of("D")
    for given, message in {
        "USS": "there is no country 'USS'; did you mean 'US'",
        "Germany": "there is no country 'Germany'; did you mean 'DE'",
        "AU-XX": "AU has no subdivision 'XX'; there are 'ACT', 'NSW'",
    }.items():
        with pytest.raises(ValueError, match=message):
            read_task(frame, columns=Columns(holidays=given))
    victoria = read_task(frame, windows=0, columns=Columns(holidays="au-vic")).entries[0]["feat_dynamic_real"][0]
    whole = read_task(frame, windows=0, columns=Columns(holidays="AU")).entries[0]["feat_dynamic_real"][0]
    cup = int((frame["date"] == "2020-11-03").to_numpy().argmax())
    assert (victoria[cup], whole[cup]) == (1, 0)
    with pytest.raises(ValueError, match="no holiday of 'US' tells steps of the training part apart"):
        read_task(frame_of("D", "2020-03-01", "2020-04-01"), windows=0, columns=Columns(holidays="US"))
