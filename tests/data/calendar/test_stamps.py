"""Forecasts are dated as further rows of the user's own table, and have the names of its columns."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tsforecast.cli import forecast_tables
from tsforecast.data.calendar.frequency import expected_alias_warnings, to_period
from tsforecast.data.calendar.stamps import BEGINNING, Place, place_of, saved_place, stamp_of, step_of
from tsforecast.data.catalog import load_task
from tsforecast.data.folder import read_folder, write_folder
from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.forecasting import beliefs
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.io.tensors import load_tensors, save_tensors
from tsforecast.plots import plot_forecasts

STEPS = 30
MONTH = pd.DateOffset(months=1)
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# Every convention as pandas continues it: first time stamp, and frequency.
CONVENTIONS = {
    **{f"weeks on {day}": ("2021-01-01", f"W-{day}") for day in DAYS},
    "weeks at six": ("2021-01-01 06:00", "W-TUE"),
    "every other week": ("2021-01-01", "2W-FRI"),
    "month starts": ("2021-01-01", "MS"),
    "month ends": ("2021-01-01", "ME"),
    "month ends in the evening": ("2021-01-01 18:00", "ME"),
    "15th of the month": ("2021-01-15", MONTH),
    "first business days of months": ("2021-01-01", "BMS"),
    "last business days of months": ("2021-01-01", "BME"),
    "every other month": ("2021-01-01", "2ME"),
    "quarter starts": ("2021-01-01", "QS"),
    "quarter ends": ("2021-01-01", "QE"),
    "quarters from February": ("2021-01-01", "QS-FEB"),
    "last business days of quarters": ("2021-01-01", "BQE"),
    "15th in the middle of quarters": ("2021-02-15", 3 * MONTH),
    "year starts": ("2001-01-01", "YS"),
    "year ends": ("2001-01-01", "YE"),
    "years to June": ("2001-01-01", "YE-JUN"),
    "last business days of years": ("2001-01-01", "BYE"),
    "a day of March": ("2001-03-10", 12 * MONTH),
    "business days": ("2021-01-01", "B"),
    "business days at four": ("2021-01-01 16:00", "B"),
    "days": ("2021-01-01", "D"),
    "days at six": ("2021-01-01 06:00", "D"),
    "hours": ("2021-01-01", "h"),
    "half past": ("2021-01-01 00:30", "h"),
    "quarters of an hour": ("2021-01-01", "15min"),
    "quarters of an hour from five past": ("2021-01-01 00:05", "15min"),
}


@pytest.fixture(scope="module")
def level():
    """A level, which has no season: so it can forecast at any frequency."""
    return make_estimator(epochs=1, components="level").train(make_entries())


def predictor_at(freq, level):
    return StateSpacePredictor(level.prediction_net, level.input_transform, HORIZON, freq)


def table_of(stamps, **names):
    parts = [pd.DataFrame({"unique_id": item, "ds": stamps, "y": np.arange(len(stamps)) + 1.0}) for item in "ab"]
    return pd.concat(parts, ignore_index=True).rename(columns=names)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_forecasts_are_dated_as_the_next_rows(convention, level, tmp_path):
    start, step = CONVENTIONS[convention]
    stamps = pd.date_range(start, periods=STEPS + HORIZON, freq=step)
    whole = table_of(stamps)
    past = whole[whole["ds"].isin(stamps[:STEPS])]
    past.to_csv(tmp_path / "past.csv", index=False)
    task = read_task(tmp_path / "past.csv", prediction_length=HORIZON, beyond=True)
    predictor = predictor_at(task.freq, level)
    found = [predictor.predict_frame(past)]
    for name in ("out.csv", "out.parquet"):
        forecast_tables.write(predictor.predict(task.latest), (0.5,), (), task.columns, tmp_path / name)
    found += [pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"]), pd.read_parquet(tmp_path / "out.parquet")]
    for frame in found:
        assert list(frame)[:2] == ["unique_id", "ds"]
        assert len(frame.merge(whole, on=["unique_id", "ds"], how="inner")) == len(frame) == 2 * HORIZON
        assert list(frame.loc[frame["unique_id"] == "b", "ds"]) == list(stamps[STEPS:])
    back = read_task(table_of(stamps[:STEPS]), prediction_length=HORIZON, beyond=True)
    write_folder(back, tmp_path / "folder")
    for entry in read_folder(tmp_path / "folder").entries:
        first = back.entries[0]
        assert (entry["start"], place_of(entry.get("info"))) == (first["start"], place_of(first.get("info")))


def test_each_series_has_a_place_of_its_own(level):
    stamps = {"a": pd.date_range("2021-01-01", periods=36, freq="W-MON"), "b": pd.date_range("2021-01-01", periods=36, freq="W-FRI")}  # fmt: skip # noqa: E501
    table = pd.concat([pd.DataFrame({"unique_id": item, "ds": own[:STEPS], "y": 1.0}) for item, own in stamps.items()])
    found = predictor_at("W-SUN", level).predict_frame(table, start="each")
    for item, own in stamps.items():
        assert list(found.loc[found["unique_id"] == item, "ds"]) == list(own[STEPS : STEPS + HORIZON])


def test_a_stamp_that_stands_elsewhere_is_said(level, caplog):
    """Weeks that end on Fridays, one of them on a Thursday because of a holiday."""
    stamps = pd.date_range("2021-01-01", periods=STEPS + HORIZON, freq="W-FRI")
    table = table_of(stamps[:STEPS])
    table.loc[STEPS + 9, "ds"] -= pd.Timedelta(1, "D")
    with caplog.at_level(logging.INFO):
        found = predictor_at("W-FRI", level).predict_frame(table)
    assert (
        f"row {STEPS + 9}, column 'ds': {stamps[9] - pd.Timedelta(1, 'D')} stands elsewhere in its step" in caplog.text
    )
    assert list(found["ds"].unique()) == list(stamps[STEPS:])
    caplog.clear()
    with caplog.at_level(logging.INFO):
        predictor_at("W-FRI", level).predict_frame(table_of(stamps[:STEPS]))
    assert "stands elsewhere" not in caplog.text


def named(table, predictor, **columns):
    return predictor.predict_frame(table, columns=Columns(**columns))


def test_items_come_back_as_they_are(level):
    predictor, days = predictor_at("D", level), pd.date_range("2021-01-01", periods=STEPS + HORIZON)
    table = table_of(days, unique_id="store", ds="day", y="sales")
    numbers = table.assign(store=table["store"].map({"a": 1, "b": 2}))
    found = named(numbers[numbers["day"] < days[STEPS]], predictor)
    assert found["store"].dtype == np.int64
    assert len(found.merge(numbers, on=["store", "day"])) == 2 * HORIZON
    several = pd.concat([numbers.assign(area="north"), numbers.assign(area="south")])
    found = named(several[several["day"] < days[STEPS]], predictor, item=["area", "store"])
    assert list(found)[:3] == ["area", "store", "day"]
    assert len(found.merge(several, on=["area", "store", "day"])) == 4 * HORIZON
    empty = pd.concat([numbers.assign(area="north"), numbers.assign(area=None)])
    assert named(empty, predictor, item=["area", "store"])["area"].unique().tolist() == ["north", ""]


def test_names_where_a_table_has_none(level, caplog):
    predictor, days = predictor_at("D", level), pd.date_range("2021-01-01", periods=STEPS)
    one = pd.DataFrame({"day": days, "sales": 1.0})
    assert list(named(one, predictor))[:2] == ["item_id", "day"]
    assert list(named(one.set_index("day"), predictor))[:2] == ["item_id", "day"]
    assert list(named(pd.DataFrame({"sales": 1.0}, index=days), predictor))[:2] == ["item_id", "timestamp"]
    parts = pd.DataFrame({"year": days.year, "month": days.month, "day": days.day, "sales": 1.0})
    assert list(named(parts, predictor))[:2] == ["item_id", "timestamp"]
    wide = pd.DataFrame({"day": days, "s1": 1.0, "s2": 2.0, "s3": 3.0})
    assert list(named(wide, predictor))[:2] == ["item_id", "day"]
    with caplog.at_level(logging.INFO):
        taken = named(one.rename(columns={"day": "mean"}), predictor, timestamp="mean", target="sales")
    assert list(taken)[:3] == ["item_id", "timestamp", "mean"]
    assert "the column ['mean'] of the result is called 'timestamp'" in caplog.text
    entries = [{"item_id": "a", "start": pd.Period("2021-01-01", "D"), "target": np.ones(STEPS)}]
    assert list(predictor.predict_frame(entries))[:2] == ["item_id", "timestamp"]


def test_names_that_csv_has_to_quote(level, tmp_path):
    days = pd.date_range("2021-01-01", periods=STEPS)
    table = table_of(days, unique_id="shop, of which", ds='the "day"', y="sales")
    columns = Columns(item="shop, of which", timestamp='the "day"')
    task = read_task(table, prediction_length=HORIZON, columns=columns, beyond=True)
    forecast_tables.write(predictor_at("D", level).predict(task.latest), (0.5,), (), task.columns, tmp_path / "out.csv")
    assert list(pd.read_csv(tmp_path / "out.csv")) == ["shop, of which", 'the "day"', "mean", "0.5"]


def test_beliefs_are_dated_likewise(level, tmp_path):
    stamps = pd.date_range("2021-01-01", periods=STEPS + HORIZON, freq="W-FRI")
    predictor = predictor_at("W-FRI", level)
    entries = read_task(table_of(stamps[: STEPS - 1]), prediction_length=HORIZON, beyond=True).latest
    known = predictor.update(predictor.filter(entries), [{"item_id": "a", "start": to_period(stamps[STEPS - 1], "W-FRI"), "target": np.ones(1)}])  # fmt: skip # noqa: E501
    beliefs.save_beliefs(tmp_path / "beliefs.pt", known.values(), predictor.prediction_net)
    for one in (known, beliefs.load_beliefs(tmp_path / "beliefs.pt", predictor.prediction_net)):
        forecast = next(predictor.forecast_from(one))
        assert stamp_of(forecast.start_date, forecast.info) == stamps[STEPS]
    old = load_tensors(tmp_path / "beliefs.pt", torch.device("cpu"))
    for row in old["beliefs"]:
        del row["stamp"]  # of a version that did not know it
    save_tensors(old, tmp_path / "old.pt")
    forecast = next(predictor.forecast_from(beliefs.load_beliefs(tmp_path / "old.pt", predictor.prediction_net)))
    assert stamp_of(forecast.start_date, forecast.info) == stamps[STEPS] - pd.Timedelta(6, "D")


def test_pictures_have_the_time_stamps(level):
    stamps = pd.date_range("2021-01-01", periods=STEPS, freq="W-FRI")
    entries = read_task(table_of(stamps), prediction_length=HORIZON, beyond=True).latest
    figure = plot_forecasts(entries, list(predictor_at("W-FRI", level).predict(entries)), history=3)
    observed = next(line for line in figure.axes[0].lines if line.get_label() == "observed")
    np.testing.assert_array_equal(np.asarray(observed.get_xdata(), "datetime64[ns]"), stamps[-3:])


def test_entries_without_a_place_are_dated_by_their_periods(level):
    with expected_alias_warnings():
        entry = {"item_id": "a", "start": pd.Period("2021-01", "M"), "target": np.ones(STEPS), "info": {"of": "a user"}}
    (forecast,) = predictor_at("M", level).predict([entry])
    assert stamp_of(forecast.start_date, forecast.info) == pd.Timestamp("2023-07-01")
    assert all("info" not in entry for entry in load_task("exchange").entries)
    assert Place() == BEGINNING


def test_a_date_lies_in_the_week_of_its_stamp():
    for freq, date, stamp in (
        ("W-MON", "2021-12-29", "2021-12-27"),  # weeks that are dated by Mondays begin there
        ("W-MON", "2021-12-27", "2021-12-27"),
        ("W-FRI", "2021-12-29", "2021-12-31"),  # others end with their day
        ("W-SUN", "2021-12-29", "2022-01-02"),
        ("ME", "2021-12-29", "2021-12-31"),
    ):
        stamps = pd.date_range("2021-01-01", periods=STEPS, freq=freq)
        (entry,) = read_task(pd.DataFrame({"ds": stamps, "y": 1.0}), prediction_length=2, beyond=True).entries
        assert stamp_of(step_of(date, entry["start"], entry["info"]), entry["info"]) == pd.Timestamp(stamp)


@pytest.mark.parametrize("values", [None, [0, 0, 0], [0, 0, 0.5, False], ["0", 0, 0, False], {"months": 1}])
def test_places_of_files_are_checked(values):
    assert saved_place(json.loads(json.dumps(Place(2, 30, 0, True)))) == Place(2, 30, 0, True)
    with pytest.raises(ValueError, match="expected the place of a time stamp"):
        saved_place(values)
