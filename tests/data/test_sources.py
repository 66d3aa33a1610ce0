import json
import logging
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsforecast.data import task as task_module
from tsforecast.data.sources import read_task
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import instances


def long_frame(items=("a", "b"), length=60, freq="D", start="2024-01-01", **extra):
    stamps = pd.date_range(start, periods=length, freq=freq)
    parts = [
        pd.DataFrame({"item_id": item, "timestamp": stamps, "target": 100.0 * k + np.arange(length)})
        for k, item in enumerate(items)
    ]
    return pd.concat(parts, ignore_index=True).assign(**extra)


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".csv.gz"])
def test_long_format(tmp_path, suffix):
    path = write(long_frame().sample(frac=1, random_state=0), tmp_path / f"mine{suffix}")
    task = read_task(path, prediction_length=5, windows=2)
    assert (task.freq, task.prediction_length, task.windows) == ("D", 5, 2)
    entries = {entry["item_id"]: entry for entry in task.entries}
    assert set(entries) == {"a", "b"}
    for k, item in enumerate("ab"):
        assert entries[item]["start"] == pd.Period("2024-01-01", freq="D")
        assert entries[item]["target"].dtype == np.float32
        np.testing.assert_array_equal(entries[item]["target"], 100 * k + np.arange(60))
    assert [len(entry["target"]) for entry in task.train] == [50, 50]
    assert len(instances(task.test())[0]) == 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("pandas_freq", "alias", "horizon", "windows"),
    [
        ("h", "h", 24, 3),
        ("15min", "15min", 80, 1),
        ("D", "D", 30, 2),
        ("B", "B", 30, 2),
        ("W-SUN", "W-SUN", 8, 5),
        ("W-WED", "W-WED", 8, 5),
        ("MS", "M", 12, 5),
        ("ME", "M", 12, 5),
        ("QS", "Q-DEC", 8, 5),
        ("QE", "Q-DEC", 8, 5),
        ("YS", "Y-DEC", 6, 5),
        ("2h", "2h", 12, 6),
        ("10s", "10s", 60, 1),
        ("BME", "M", 12, 5),
    ],
)
def test_frequency_horizon_and_windows_by_default(tmp_path, caplog, pandas_freq, alias, horizon, windows):
    if pandas_freq == "YS":
        path = write(long_frame(length=200, freq=pandas_freq, start="1800-01-01"), tmp_path / "a.csv")
    else:
        path = write(long_frame(length=400, freq=pandas_freq, start="1990-01-01"), tmp_path / "a.csv")
    with caplog.at_level(logging.INFO):
        task = read_task(path)
    assert (task.freq, task.prediction_length, task.windows) == (alias, horizon, windows)
    assert f"frequency {alias}, inferred" in caplog.text
    assert f"prediction length {horizon} by default" in caplog.text
    assert task.entries[0]["target"].shape[0] == (200 if pandas_freq == "YS" else 400)
    assert windows * horizon <= max(horizon, len(task.entries[0]["target"]) / 5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("pandas_freq", "alias"),
    [
        ("h", "h"),
        ("30min", "30min"),
        ("D", "D"),
        ("B", "B"),
        ("W-TUE", "W-TUE"),
        ("MS", "M"),
        ("QE", "Q-DEC"),
        ("YE", "Y-DEC"),
    ],
)
def test_gaps_are_missing_values(tmp_path, caplog, pandas_freq, alias):
    frame = long_frame(items=("a",), length=80, freq=pandas_freq)
    dropped = [3, 4, 10, 31, 62]
    path = write(frame.drop(index=dropped), tmp_path / "a.csv")
    with caplog.at_level(logging.INFO):
        task = read_task(path, prediction_length=2, windows=1)
    assert task.freq == alias
    assert "despite gaps" in caplog.text
    assert "5 of 80 steps have no row" in caplog.text
    expected = np.arange(80.0)
    expected[dropped] = np.nan
    np.testing.assert_array_equal(task.entries[0]["target"], expected)


@given(st.sets(st.integers(1, 199), max_size=150), st.sampled_from(["h", "D", "B", "W-SUN", "MS", "15min"]))
@settings(max_examples=30, deadline=None)
def test_rows_land_on_their_steps(tmp_path_factory, dropped, freq):
    """Whatever rows are missing and however they are shuffled: a value stands where its time stamp says."""
    frame = long_frame(items=("a",), length=200, freq=freq).drop(index=sorted(dropped)).sample(frac=1, random_state=1)
    path = write(frame, tmp_path_factory.mktemp("grid") / "a.parquet")
    steps = np.sort(frame["target"].to_numpy()).astype(int)
    if np.gcd.reduce(steps) > 1:
        with pytest.raises(ValueError, match="longer freq"):
            read_task(path, freq=freq, windows=0)
        return
    target = read_task(path, freq=freq, windows=0).entries[0]["target"]
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(target)), steps)
    np.testing.assert_array_equal(target[steps], steps)


def test_columns_by_other_names_and_a_single_series(tmp_path, caplog):
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=50, freq="h"), "load": np.arange(50.0)})
    task = read_task(write(frame, tmp_path / "plant.csv"), prediction_length=3)
    assert [entry["item_id"] for entry in task.entries] == ["plant"]
    frame = frame.assign(junk="x", load2=1.0)
    with caplog.at_level(logging.INFO):
        task = read_task(write(frame, tmp_path / "plant.csv"), columns=Columns(target="load"))
    assert "columns not used: 'junk', 'load2'" in caplog.text
    frame = long_frame().rename(columns={"item_id": "Unique_ID", "timestamp": "Date", "target": "Y"})
    assert len(read_task(write(frame, tmp_path / "b.csv")).entries) == 2
    frame = long_frame().set_index(["item_id", "timestamp"])
    frame.to_parquet(tmp_path / "b.parquet")
    assert len(read_task(tmp_path / "b.parquet").entries) == 2


def test_items_stay_text(tmp_path):
    path = write(long_frame(items=("007", "NA", "1e5", "null")), tmp_path / "a.csv")
    assert [entry["item_id"] for entry in read_task(path).entries] == ["007", "NA", "1e5", "null"]
    path = write(long_frame(items=(3, 10)), tmp_path / "a.parquet")
    assert [entry["item_id"] for entry in read_task(path).entries] == ["3", "10"]


def test_other_delimiters_and_decimal_comma(tmp_path):
    frame = long_frame().assign(target=lambda table: table["target"] + 0.25)
    frame.to_csv(tmp_path / "a.csv", sep=";", decimal=",", index=False)
    for columns in (Columns(decimal=","), None):
        task = read_task(tmp_path / "a.csv", columns=columns)
        np.testing.assert_array_equal(task.entries[0]["target"], np.arange(60) + 0.25)
    with pytest.raises(ValueError, match=r"line 2, column 'target': expected a number, got '0,25'.*decimal=','"):
        read_task(tmp_path / "a.csv", columns=Columns(decimal="."))
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert len(read_task(tmp_path / "a.tsv").entries) == 2


def test_blank_lines_and_empty_targets(tmp_path):
    text = "timestamp,target\n2024-01-01,1\n\n2024-01-02,\n2024-01-03,NA\n2024-01-04,4\n2024-01-05,5\n\n"
    (tmp_path / "a.csv").write_text(text)
    task = read_task(tmp_path / "a.csv", prediction_length=1)
    np.testing.assert_array_equal(task.entries[0]["target"], [1, np.nan, np.nan, 4, 5])


def test_covariates_with_a_known_future(tmp_path):
    frame = long_frame(length=40).assign(price=lambda table: table["target"] * 2, promo=1)
    frame.loc[frame["timestamp"] >= "2024-01-31", "target"] = np.nan  # 30 days of target, 10 of covariates alone
    path = write(frame, tmp_path / "a.csv")
    columns = Columns(covariates=["price", "promo"])
    task = read_task(path, prediction_length=5, windows=2, columns=columns)
    for k, (entry, train) in enumerate(zip(task.entries, task.train, strict=True)):
        assert entry["target"].shape == (30,)
        assert entry["feat_dynamic_real"].shape == (2, 40)
        np.testing.assert_array_equal(entry["feat_dynamic_real"][0], 2 * (100 * k + np.arange(40)))
        assert train["target"].shape == (20,)
        assert train["feat_dynamic_real"].shape == (2, 20)
    past, _ = instances(task.test())
    assert [(len(entry["target"]), entry["feat_dynamic_real"].shape[1]) for entry in past[:2]] == [(20, 25), (25, 30)]
    assert [entry["feat_dynamic_real"].shape[1] for entry in task.latest] == [35, 35]
    ahead = read_task(path, prediction_length=10, columns=columns, beyond=True)
    assert ahead.windows == 0
    assert [entry["feat_dynamic_real"].shape[1] for entry in ahead.latest] == [40, 40]
    assert [entry["feat_dynamic_real"].shape[1] for entry in ahead.train] == [30, 30]
    without = read_task(path, prediction_length=5, windows=2)
    assert without.entries[0]["target"].shape == (40,)
    with pytest.raises(ValueError, match=r"line 41: the covariates of series 'a' end here, 1 steps of 'D' before its"):
        read_task(path, prediction_length=11, columns=columns, beyond=True)


def with_future(**extra):
    """Return 50 days of two series, and 10 more whose target is empty."""
    frame = long_frame(price=np.tile(np.arange(60.0), 2), **extra)
    frame.loc[frame["timestamp"] >= "2024-02-20", "target"] = np.nan
    return frame


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_that_go_on_behind_the_last_target_are_covariates(tmp_path, suffix, caplog):
    """Where the reader is told to look for them: those with a gap, or always the same in a series, are not."""
    caplog.set_level(logging.INFO)
    gap = np.where(np.arange(120) == 7, np.nan, 1.0 * np.arange(120))
    rare = np.where(np.arange(120) % 10, "", np.arange(120).astype(str))  # as text of a file with many empty cells
    path = write(with_future(gap=gap, rare=rare, size=np.repeat([3, 4], 60), note="x"), tmp_path / f"a{suffix}")
    task = read_task(path, columns=Columns(ahead=True), beyond=True)
    assert "prediction length 10: as far as covariates are known" in caplog.text
    for name, count in (("gap", 1), ("rare", 108)):
        assert f"{name!r} is no covariate, for {count} of its 120 cells are empty: fill them" in caplog.text
    assert "categories" not in caplog.text
    assert task.prediction_length == 10
    for entry in task.entries:
        assert entry["target"].shape == (50,)
        np.testing.assert_array_equal(entry["feat_dynamic_real"], np.arange(60.0)[None])
    assert task.columns is not None
    assert list(task.columns.covariates) == ["price"]
    again = read_task(path, columns=task.columns, prediction_length=10, beyond=True)  # as a run keeps its columns
    assert again.entries[0]["feat_dynamic_real"].shape == (1, 60)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_categories_that_go_on_behind_the_last_target_are_covariates(tmp_path, suffix, caplog):
    """Each rarer one, as 0 and 1; empty cells are one, too. Not those of a series, nor notes."""
    caplog.set_level(logging.INFO)
    event = np.where(np.arange(120) % 7 == 3, "fair", np.where(np.arange(120) % 11 == 5, "snow", ""))
    holiday = np.where(np.arange(120) % 20 == 3, "a", "0")
    others = {"region": np.repeat(["n", "s"], 60), "note": [f"row {k}" for k in range(120)]}
    path = write(
        with_future(event=np.where(event == "", None, event), holiday=holiday, **others), tmp_path / f"a{suffix}"
    )
    task = read_task(path, columns=Columns(ahead=True), beyond=True)
    assert task.columns is not None
    names = ["price", "event=fair", "event=snow", "holiday=a"]
    assert list(task.columns.covariates) == names
    assert "columns not used: 'region', 'note'" in caplog.text
    expected = [event == "fair", event == "snow", holiday == "a"]
    again = read_task(path, columns=task.columns, prediction_length=10, beyond=True)  # as a run keeps its columns
    for found in (task, again):
        np.testing.assert_array_equal(found.entries[1]["feat_dynamic_real"][1:], np.stack(expected)[:, 60:])


def test_values_of_any_type_are_numbers_or_categories():
    """Yes and no beside nothing, whole numbers in a column of objects, and decimals of a data base; no lists."""
    promo, code = (np.arange(120) % 7 == 3), np.arange(120) % 5
    frame = with_future(promo=np.where(promo, True, None), code=code.astype(object), note=[[k] for k in range(120)])
    frame["price"] = [Decimal(k) for k in frame["price"]]
    frame["event"] = np.where(promo, "a=b", "")
    task = read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert task.columns is not None
    assert list(task.columns.covariates) == ["price", "promo=True", "code", "event=a=b"]
    expected = np.stack([np.arange(60.0), promo[:60], code[:60], promo[:60]])
    np.testing.assert_array_equal(task.entries[0]["feat_dynamic_real"], expected)


def test_many_categories_are_no_covariates_and_some_can_be_named(caplog):
    event = np.where(np.arange(120) % 2, [f"e{k % 40}" for k in range(120)], "none")
    with caplog.at_level(logging.INFO):
        task = read_task(with_future(event=event), columns=Columns(ahead=True), beyond=True)
    assert task.columns is not None
    assert list(task.columns.covariates) == ["price"]
    assert "'event' has 21 categories" in caplog.text
    assert "covariates=['event=e1', 'event=e3']" in caplog.text


@pytest.mark.parametrize("nothing", [None, ""])
def test_texts_that_are_empty_behind_the_last_target_alone_are_not_known_there(nothing):
    frame = with_future(event=np.where(np.arange(120) % 7 == 3, "fair", "none"))
    frame.loc[frame["target"].isna(), "event"] = nothing
    task = read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert task.columns is not None
    assert list(task.columns.covariates) == ["price"]


def test_covariates_that_end_before_the_forecast_are_left_out_where_none_was_named(caplog):
    caplog.set_level(logging.INFO)
    task = read_task(with_future(), prediction_length=11, columns=Columns(ahead=True), beyond=True)
    assert "covariates are left out: they are known for 10 steps" in caplog.text
    assert [entry["target"].shape for entry in task.entries] == [(60,), (60,)]
    assert "feat_dynamic_real" not in task.entries[0]


@pytest.mark.parametrize("columns", [Columns(), Columns(ahead=True, past_covariates=["price"])])
def test_no_covariate_is_looked_for_unless_told(columns):
    assert "feat_dynamic_real" not in read_task(with_future(), windows=0, columns=columns).entries[0]


def test_an_empty_target_of_some_series_makes_no_covariate():
    frame = with_future()
    frame.loc[frame["item_id"] == "a", "target"] = 1.0 + np.arange(60)
    assert "feat_dynamic_real" not in read_task(frame, windows=0, columns=Columns(ahead=True)).entries[0]


@pytest.mark.parametrize("order", ["descending", "shuffled"])
def test_what_is_behind_the_last_target_is_so_in_time(order):
    frame = with_future()
    frame = frame[::-1] if order == "descending" else frame.sample(frac=1, random_state=0)
    task = read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert task.prediction_length == 10
    assert [entry["feat_dynamic_real"].tolist() for entry in task.entries] == 2 * [[list(range(60))]]
    past = frame[frame["target"].notna()].copy()
    past.loc[past["timestamp"] < "2024-01-05", "target"] = np.nan  # rows at the end of the table, and no future
    assert "feat_dynamic_real" not in read_task(past, columns=Columns(ahead=True), beyond=True).entries[0]


def test_numbers_of_rows_are_no_covariates_and_decimal_commas_are(caplog):
    caplog.set_level(logging.INFO)
    frame = with_future(row=np.arange(120), note="x")
    frame["price"] = [f"{price / 8:.3f}".replace(".", ",") for price in frame["price"]]
    frame["target"] = frame["target"].astype(object).where(frame["target"].notna(), "?")
    task = read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert "covariates 'price'; columns not used: 'row', 'note'" in caplog.text
    np.testing.assert_array_equal(task.entries[0]["feat_dynamic_real"], np.arange(60.0)[None] / 8)


def test_forecasts_that_begin_behind_rows_of_the_future_are_said(caplog):
    frame = with_future()
    read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert "forecasts begin behind" not in caplog.text
    frame = frame[(frame["item_id"] != "a") | frame["target"].notna()]
    with caplog.at_level(logging.INFO):
        read_task(frame, columns=Columns(ahead=True), beyond=True)
    assert "no covariates: 1 of 2 series have no row behind the last target" in caplog.text
    assert "the last 10 steps of all series have no target: forecasts begin behind them" in caplog.text


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_that_can_only_be_errors_are_missing_for_forecasts_and_named(dtype, caplog):
    """Not where all others are the same, where they are many, or where no other value follows."""
    names = ("once", "one", "both", "last", "many", "flat")
    frame, wave = long_frame(items=names, length=200), np.sin(np.arange(200))
    frame["target"] = np.tile(wave, len(names)).astype(dtype)
    for name, steps, value in (
        ("once", [7], 201), ("one", [7], 190), ("both", [7, 150], -9999), ("last", [198, 199], 9999),
        ("many", [7, 8, 9], 9999),
    ):  # fmt: skip
        frame.loc[frame.index[frame["item_id"] == name][steps], "target"] = value
    frame.loc[frame["item_id"] == "flat", "target"] = np.where(np.arange(200) == 7, 9999, 0)
    found = {entry["item_id"]: entry["target"] for entry in read_task(frame, beyond=True).entries}
    assert {name: np.flatnonzero(np.isnan(target)).tolist() for name, target in found.items()} == {
        "once": [7], "one": [], "both": [7, 150], "last": [], "many": [], "flat": [],
    }  # fmt: skip
    assert "count as missing, first '201 of once at 2024-01-08', '-9999 of both at 2024-01-08'" in caplog.text
    assert not np.isnan([entry["target"] for entry in read_task(frame, windows=1).entries]).any()


def test_covariates_hold_their_value_where_a_row_is_missing(tmp_path):
    frame = long_frame(items=("a",), length=10).assign(price=np.arange(10.0)).drop(index=[4, 5])
    task = read_task(write(frame, tmp_path / "a.csv"), windows=0, columns=Columns(covariates=["price"]))
    np.testing.assert_array_equal(task.entries[0]["feat_dynamic_real"], [[0, 1, 2, 3, 3, 3, 6, 7, 8, 9]])


def test_static_columns(tmp_path):
    frame = long_frame(items=("a", "b", "c"))
    frame["kind"] = frame["item_id"].map({"a": "shop", "b": "depot", "c": "shop"})
    frame["size"] = frame["item_id"].map({"a": 1.5, "b": 2.5, "c": 3.5})
    path = write(frame, tmp_path / "a.csv")
    columns = Columns(static_categories=["kind"], static_reals=["size"])
    task = read_task(path, columns=columns)
    assert task.categories == {"kind": ["depot", "shop"]}
    assert [entry["feat_static_cat"].tolist() for entry in task.entries] == [[1], [0], [1]]
    assert [entry["feat_static_real"].tolist() for entry in task.entries] == [[1.5], [2.5], [3.5]]
    later = read_task(path, columns=columns, categories={"kind": ["shop", "office", "depot"]})
    assert [entry["feat_static_cat"].tolist() for entry in later.entries] == [[0], [2], [0]]
    with pytest.raises(
        ValueError, match=r"line 62, column 'kind': the category 'depot' was not seen in training, only 's"
    ):
        read_task(path, columns=columns, categories={"kind": ["shop"]})


def test_multivariate_target(tmp_path):
    frame = long_frame().assign(other=lambda table: -table["target"])
    path = write(frame, tmp_path / "a.csv")
    task = read_task(path, columns=Columns(target=["other", "target"]))
    np.testing.assert_array_equal(task.entries[1]["target"], [-100.0 - np.arange(60), 100.0 + np.arange(60)])
    assert read_task(path, columns=Columns(target=["other"])).entries[0]["target"].shape == (1, 60)


def test_offsets_from_utc(tmp_path, caplog):
    """The clock of Berlin repeats an hour in October and skips one in March; UTC does neither."""
    for day in ("2024-10-26", "2024-03-30"):
        local = pd.date_range(day, periods=72, freq="h", tz="Europe/Berlin")
        frame = pd.DataFrame({"timestamp": local, "target": np.arange(72.0)})
        for suffix in (".csv", ".parquet"):
            with caplog.at_level(logging.INFO):
                task = read_task(write(frame, tmp_path / f"a{suffix}"))
            assert "converted to UTC" in caplog.text
            assert task.entries[0]["start"] == pd.Period(local[0].tz_convert("UTC").tz_localize(None), freq="h")
            np.testing.assert_array_equal(task.entries[0]["target"], np.arange(72))


def test_midnights_of_a_time_zone_are_dates(tmp_path):
    local = pd.date_range("2024-03-01", periods=60, freq="D", tz="Europe/Berlin")
    frame = pd.DataFrame({"timestamp": local, "target": np.arange(60.0)})
    for suffix in (".csv", ".parquet"):
        task = read_task(write(frame, tmp_path / f"a{suffix}"))
        assert (task.freq, str(task.entries[0]["start"]), len(task.entries[0]["target"])) == ("D", "2024-03-01", 60)


def test_local_clock_without_offsets(tmp_path):
    local = pd.date_range("2024-03-30", periods=72, freq="h", tz="Europe/Berlin").tz_localize(None)
    frame = pd.DataFrame({"timestamp": local, "target": np.arange(72.0)})
    target = read_task(write(frame, tmp_path / "a.csv")).entries[0]["target"]
    assert np.flatnonzero(np.isnan(target)).tolist() == [26]  # 02:00 does not exist on the 31st
    local = pd.date_range("2024-10-26", periods=72, freq="h", tz="Europe/Berlin").tz_localize(None)
    frame = pd.DataFrame({"timestamp": local, "target": np.arange(72.0)})
    with pytest.raises(ValueError, match=r"line 29.*2024-10-27 02:00:00.*occurs twice, first in .*line 28.*UTC offset"):
        read_task(write(frame, tmp_path / "a.csv"))


@pytest.mark.parametrize(
    "pattern", ["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%d", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M:%S"]
)
def test_ways_to_write_dates(tmp_path, pattern):
    frame = long_frame(items=("a",)).assign(timestamp=lambda table: table["timestamp"].dt.strftime(pattern))
    path = write(frame, tmp_path / "a.csv")
    for columns in (Columns(), Columns(timestamp_format=pattern)):
        task = read_task(path, columns=columns)
        assert (task.freq, str(task.entries[0]["start"]), len(task.entries[0]["target"])) == ("D", "2024-01-01", 60)


def test_constant_series_are_fine(tmp_path, caplog):
    frame = long_frame(items=("a",)).assign(target=5)
    with caplog.at_level(logging.INFO):
        assert len(read_task(write(frame, tmp_path / "a.csv")).entries) == 1
    assert "series 'a' is constant" in caplog.text


def test_a_short_series_does_not_shorten_the_forecasts_of_others(tmp_path, caplog):
    """Horizon by the median series; windows by what nine in ten series have that are longer than the horizon."""
    frame = pd.concat(
        [long_frame(length=800), long_frame(("short",), 20), long_frame(("void",), 800).assign(target=np.nan)]
    )
    path = write(frame, tmp_path / "a.csv")
    task = read_task(path)
    assert (task.prediction_length, task.windows) == (30, 5)
    assert task.reasons == {"freq": "of most time stamps"} | dict.fromkeys(
        ("prediction_length", "windows"), "the custom at frequency D"
    )
    assert [entry["item_id"] for entry in task.entries] == ["a", "b"]
    assert "are left out: 'short'" in caplog.text
    assert "are left out: 'void'" in caplog.text
    assert [entry["item_id"] for entry in read_task(path, windows=0).entries] == ["a", "b", "short"]
    some = pd.concat([long_frame([f"s{k}" for k in range(17)], 800), long_frame(("x", "y", "z"), 320)])
    task = read_task(write(some, path))
    assert (task.prediction_length, task.windows, len(task.entries)) == (30, 2, 20)
    assert task.reasons["windows"] == "nine in ten series have 320 or more"
    task = read_task(write(long_frame(length=60), path))
    assert (task.prediction_length, task.reasons["prediction_length"]) == (12, "the median series has 60 values")


@pytest.mark.parametrize(("length", "horizon"), [(3, 1), (20, 10), (61, 30)])
def test_a_short_table_is_forecast_half_as_far_as_it_goes(length, horizon):
    columns = Columns(ahead=True)
    frame = pd.concat([long_frame(("a",), length), long_frame(("b",), 3)])
    assert read_task(frame, windows=0, columns=columns, beyond=True).prediction_length == horizon


def test_numbers_too_small_for_float32_stay_what_they_are(tmp_path):
    table = pd.DataFrame({"timestamp": pd.date_range("2024-01-01", periods=3), "target": [1e-300, 2e-300, np.nan]})
    table.to_csv(tmp_path / "small.csv", index=False)
    (entry,) = read_task(tmp_path / "small.csv", "D", 1, 0).entries
    assert entry["target"].tolist()[:2] == [1e-300, 2e-300]
    line = {"start": "2024-01-01", "target": [1e300, 1.0]}
    (tmp_path / "large.json").write_text(json.dumps(line) + "\n")
    assert read_task(tmp_path / "large.json", "D", 1, 0).entries[0]["target"].tolist() == [1e300, 1.0]


def test_the_last_end_is_looked_for_once(tmp_path, monkeypatch):
    """Not by each series, which takes the square of their number."""
    task = read_task(write(long_frame(length=30, price=1.0), tmp_path / "a.csv"), "D", 3)
    calls = []
    monkeypatch.setattr(task_module, "max", lambda *a, **k: calls.append(a) or max(*a, **k), raising=False)
    assert len(task.gaps_at_end) == len(task.entries) > 1
    assert len(calls) == 1


def test_series_that_end_early_go_on_with_missing_values(tmp_path):
    frame = long_frame(length=30, price=1.0)
    frame.loc[(frame["item_id"] == "b") & (frame["target"] >= 120), "target"] = np.nan  # the last ten of b
    frame.loc[frame.index.isin([27, 28, 29]), "target"] = np.nan  # and the last three of a
    columns = Columns(covariates=["price"])
    task = read_task(write(frame, tmp_path / "a.csv"), "D", 3, columns=columns, beyond=True)
    assert task.gaps_at_end == [0, 7]
    together = task.ending_together().latest
    assert [entry["target"].shape[-1] for entry in together] == [27, 27]
    assert np.isnan(together[1]["target"][20:]).all()
    assert [entry["feat_dynamic_real"].shape for entry in together] == [(1, 30), (1, 30)]
    short = frame.drop(index=frame.index[-2:])
    task = read_task(write(short, tmp_path / "b.csv"), "D", 3, columns=columns, beyond=True)
    with pytest.raises(
        ValueError, match=r"'b' ends 7 steps before others, and its covariates 2 steps before the forecast"
    ):
        task.ending_together()
