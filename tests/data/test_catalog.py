import hashlib
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.catalog import CATALOG, SCRIPTS, load_task
from tsforecast.data.folder import write_folder
from tsforecast.data.task import instances
from tsforecast.io.packed import unpack

# series, steps, frequency, horizon, windows, start of training, first and last step of the test part
SPLITS = {
    "exchange": (8, 6221, "B", 30, 5, "1990-01-01", "2013-04-09", "2013-11-04"),
    "electricity": (369, 840, "h", 24, 7, "2014-11-27 01:00", "2014-12-25 01:00", "2015-01-01 00:00"),
    "electricity-18dec": (369, 672, "h", 24, 7, "2014-11-27 01:00", "2014-12-18 01:00", "2014-12-25 00:00"),
    "traffic": (900, 1464, "h", 24, 7, "2018-05-01 00:00", "2018-06-24 00:00", "2018-06-30 23:00"),
    "solar": (17, 8760, "h", 24, 7, "2016-08-01 00:00", "2017-07-25 00:00", "2017-07-31 23:00"),
    "wiki": (1000, 803, "D", 30, 5, "2015-07-01", "2017-04-14", "2017-09-10"),
    "taxi-blizzard": (32, 2688, "30min", 48, 7, "2015-12-07 00:00", "2016-01-25 00:00", "2016-01-31 23:30"),
    "eia-2020": (12, 3864, "h", 24, 7, "2019-12-16 00:00", "2020-05-18 00:00", "2020-05-24 23:00"),
    "electricity-2012-2014": (203, 1512, "h", 24, 28, "2012-01-05 01:00", "2012-02-09 01:00", "2012-03-08 00:00"),
}

# SHA-256 of the float64 arrays (series x time, row by row) as they are in the source files.
CHECKSUMS = {
    "exchange": "cd4716533b3df5648f936768825b12b60a5ddeffda5aa0e87c210dbf264bacbe",
    "electricity": "5363d0aa1fd23c3fc3ae97d53e111528436cec1bf73106306565b8a8f2cce70d",
    "traffic": "f59198156fecf996ce7a830973fdabbd4c3ea02f4660eba2ea471081d0d6b052",
    "solar": "e83e2ced8684f04673876b1f321e4091f938712050ee2c4ccb8c72bde58459fe",
    "wiki": "16286b193324e65c1ee4a78d460149c20c16c4759b7796b32575bf178c57d2f3",
    "taxi-blizzard": "a0180d06033f879b2d53b2efa7a29a96ad2299df06e518610c4ce0ce97f634c8",
    "eia-2020": "31cc555f6241242897b0d1dff168e12123418e55fbaabb5582bee1975e4314dc",
    "electricity-2012-2014": "611e710a55f8552e70ef7f6cc846c43269c987d6cabfb35aa2297fd9942b2f3c",
}
ZEROS = {
    "exchange": 0,
    "electricity": 0.012,
    "traffic": 0.26,
    "solar": 0.53,
    "wiki": 0.034,
    "taxi-blizzard": 0.0094,
    "eia-2020": 0,
    "electricity-2012-2014": 0.006,
}


@pytest.mark.parametrize("name", CHECKSUMS)
def test_bundled_values_are_those_of_the_source(name):
    with files("tsforecast.data").joinpath("bundled", f"{name}.npz").open("rb") as stream:
        values, _, items = unpack(stream)
    assert hashlib.sha256(values.tobytes()).hexdigest() == CHECKSUMS[name]
    assert len(set(items)) == len(values)
    assert (values == 0).mean() == pytest.approx(ZEROS[name], abs=0.006)
    targets = np.stack([entry["target"] for entry in load_task(name).entries])
    np.testing.assert_array_equal(targets, values.astype(np.float32))


def test_every_set_says_what_is_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    for name in CATALOG:
        if name in SCRIPTS:
            write_folder(load_task("exchange"), tmp_path / name)
        task = load_task(name)
        assert len(task.targets) == 1
        assert task.targets[0]
    demand = load_task("eia-2020")
    assert (demand.targets, demand.unit) == (("electricity demand",), "MW")


def test_bundled_files_are_small():
    sizes = [len(file.read_bytes()) for file in files("tsforecast.data").joinpath("bundled").iterdir()]
    assert 0 < sum(sizes) < 4e6


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SPLITS)
def test_splits_are_those_of_the_protocol(name):
    series, steps, freq, horizon, windows, start, first, last = SPLITS[name]
    task = load_task(name)
    assert (task.name, task.freq, task.prediction_length, task.windows) == (name, freq, horizon, windows)
    assert len(task.entries) == len(task.train) == series
    for entry, train in zip(task.entries, task.train, strict=True):
        assert entry["target"].shape == (steps,)
        assert entry["target"].dtype == np.float32
        assert np.isfinite(entry["target"]).all()
        assert str(entry["start"]) == str(train["start"]) == start
        np.testing.assert_array_equal(train["target"], entry["target"][: steps - horizon * windows])
    with expected_alias_warnings():
        begin = pd.Period(first, freq=freq)
        assert task.entries[0]["start"] + (steps - horizon * windows) == begin
        assert begin + (horizon * windows - 1) == pd.Period(last, freq=freq)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["exchange", "solar"])
def test_windows_lie_end_to_end(name):
    task = load_task(name)
    horizon, windows, steps = task.prediction_length, task.windows, len(task.entries[0]["target"])
    pasts, labels = instances(task.test("rolling"))
    assert len(pasts) == len(labels) == windows * len(task.entries)
    for index, (past, label) in enumerate(zip(pasts, labels, strict=True)):
        entry, window = task.entries[index // windows], index % windows
        cut = steps - (windows - window) * horizon
        assert past["item_id"] == label["item_id"] == entry["item_id"]
        np.testing.assert_array_equal(past["target"], entry["target"][:cut])
        np.testing.assert_array_equal(label["target"], entry["target"][cut : cut + horizon])
        with expected_alias_warnings():
            assert label["start"] == entry["start"] + cut
    pasts, labels = instances(task.test("long_term"))
    assert len(labels) == len(task.entries)
    for entry, past, label in zip(task.entries, pasts, labels, strict=True):
        np.testing.assert_array_equal(np.concatenate([past["target"], label["target"]]), entry["target"])
        assert len(label["target"]) == horizon * windows


def test_second_electricity_set_is_the_first_without_its_last_week():
    long, short = load_task("electricity"), load_task("electricity-18dec")
    for a, b in zip(long.entries, short.entries, strict=True):
        assert a["item_id"] == b["item_id"]
        np.testing.assert_array_equal(a["target"][:672], b["target"])


def training_days(name):
    """Means over the days of training: a column for every series."""
    task = load_task(name)
    frame = pd.DataFrame({entry["item_id"]: entry["target"] for entry in task.train})
    frame.index = pd.date_range(task.train[0]["start"].to_timestamp(), periods=len(frame), freq=task.freq)
    return frame.resample("D").mean()


def test_blizzard_is_at_the_end_of_training():
    days = training_days("taxi-blizzard")
    assert (days.idxmin() == pd.Timestamp("2016-01-23")).all()
    assert days.index[-1] == pd.Timestamp("2016-01-24")


def test_spring_of_2020_lowers_the_demand_of_new_york_city():
    days = training_days("eia-2020")["NYIS-ZONJ"]
    working = days[days.index.dayofweek < 5]
    before, after = working[:"2020-03-15"], working["2020-03-30":]
    assert len(before) == 13 * 5
    assert len(after) == 7 * 5
    assert after.max() < before.min()


def weekly(values):
    """Mean weeks of whole weeks, each series over its mean."""
    weeks = values.reshape(len(values), -1, 168).mean(axis=1)
    return weeks / np.maximum(weeks.mean(axis=1, keepdims=True), 1)


def test_weeks_of_2014_fall_on_those_of_2012():
    """Which hour the labels of a source name was found by its weeks; here it is seen that they fit."""
    values = np.stack([entry["target"] for entry in load_task("electricity-2012-2014").entries])
    early, late = weekly(values[:, :840]), weekly(values[:, 840:])
    fits = [np.corrcoef(early.ravel(), np.roll(late, lag, axis=1).ravel())[0, 1] for lag in range(168)]
    assert np.argmax(fits) == 0


@pytest.mark.parametrize("name", SCRIPTS)
def test_full_sets_tell_the_script_to_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"{name}.*python datasets/{SCRIPTS[name]} --help.*TSFORECAST_DATA"):
        load_task(name)


def test_unknown_name_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"no data set 'elektricity'.*exchange.*wiki"):
        load_task("elektricity")


def test_protocol_and_windows_are_checked():
    task = load_task("exchange")
    with pytest.raises(ValueError, match=r"no test windows \(windows=0\)"):
        replace(task, windows=0).test()
    assert len(replace(task, windows=0).train[0]["target"]) == 6221
    with pytest.raises(ValueError, match="'rolling' or 'long_term', got 'long-term'"):
        task.test("long-term")
