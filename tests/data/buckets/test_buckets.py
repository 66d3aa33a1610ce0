"""Folders of buckets hold the same series as the tables they are made of, whatever happens on the way."""

import errno
import json
import logging
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet

from tsforecast.data import Columns, read_task
from tsforecast.data.buckets import bucketing, gathering
from tsforecast.data.buckets.bucketing import bucket_of, make_buckets
from tsforecast.data.buckets.survey import SURVEY, WORK, read_survey
from tsforecast.data.tables.formats import parquet_parts
from tsforecast.forecasting.data_summary import summarise

STEPS = 40


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Tables of a few hundred rows are read in many parts, and make several runs."""
    monkeypatch.setattr(bucketing, "FIRST", 60)
    monkeypatch.setattr(bucketing, "PART", 35)
    monkeypatch.setattr(bucketing, "RUN", 80)


def make_frame(items=("a", "b", "c", "ü 4", "007"), freq="D", steps=STEPS, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for number, item in enumerate(items):
        stamps = pd.date_range("2024-01-29", periods=steps + number, freq=freq)
        values = rng.normal(1000, 300, steps + number).round(2)
        values[3:4] = np.nan
        parts.append(pd.DataFrame({"item_id": item, "timestamp": stamps, "sales": values}))
    return pd.concat(parts, ignore_index=True)


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sample(frac=1, random_state=1)


def assert_same(found, expected):
    """Two tasks have the same series, in whatever order."""
    assert found.freq == expected.freq
    assert found.categories == expected.categories
    ours = {entry["item_id"]: entry for entry in found.entries}
    assert ours.keys() == {entry["item_id"] for entry in expected.entries}
    for theirs in expected.entries:
        mine = ours[theirs["item_id"]]
        assert mine.keys() == theirs.keys() - {"info"}  # several columns that name a series are one in buckets
        assert mine["start"] == theirs["start"]
        for name in mine.keys() - {"item_id", "start"}:
            np.testing.assert_array_equal(mine[name], theirs[name])
            assert mine[name].dtype == theirs[name].dtype


def as_text(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def across(frame):
    wide = frame.pivot(index="item_id", columns="timestamp", values="sales").reset_index()
    return wide.rename(columns=lambda name: name if isinstance(name, str) else f"{name:%Y-%m-%d}")


SOURCES = {
    "csv": lambda f, p: as_text(f, p / "t.csv"),
    "in no order": lambda f, p: as_text(shuffled(f), p / "t.csv"),
    "packed": lambda f, p: as_text(f, p / "t.csv.gz"),
    "zip": lambda f, p: as_text(f, p / "t.csv.zip"),
    "of Excel": lambda f, p: as_text(f, p / "t.csv", sep=";", decimal=",", encoding="cp1252", date_format="%d.%m.%Y"),
    "UTF-16": lambda f, p: as_text(f, p / "t.csv", sep="\t", encoding="utf-16"),
    "month first": lambda f, p: as_text(f, p / "t.csv", date_format="%m/%d/%Y"),
    "with an offset": lambda f, p: as_text(f.assign(timestamp=f["timestamp"].dt.tz_localize("Etc/GMT-2")), p / "t.csv"),
    "across the top": lambda f, p: as_text(across(f), p / "t.csv"),
    "Parquet": lambda f, p: f.to_parquet(p / "t.parquet") or p / "t.parquet",
    "Parquet in no order": lambda f, p: shuffled(f).to_parquet(p / "t.parquet") or p / "t.parquet",
    "Parquet with an index": lambda f, p: (
        f.set_index(["item_id", "timestamp"]).to_parquet(p / "t.parquet") or p / "t.parquet"
    ),
    "Parquet in UTC": lambda f, p: (
        f.assign(timestamp=f["timestamp"].dt.tz_localize("UTC")).to_parquet(p / "t.parquet") or p / "t.parquet"
    ),
}


@pytest.fixture(scope="module", params=SOURCES)
def table(request, tmp_path_factory):
    """A file, and what is read from it."""
    path = SOURCES[request.param](make_frame(), tmp_path_factory.mktemp("table"))
    return path, read_task(path)


@pytest.mark.parametrize("buckets", [1, 3])
def test_buckets_hold_what_the_table_holds(table, buckets, tmp_path):
    path, expected = table
    survey = make_buckets([str(path)], tmp_path / "out", buckets)
    assert_same(read_task(tmp_path / "out"), expected)
    found = read_survey(tmp_path / "out")
    assert found.tally.as_json() == survey.tally.as_json()
    assert replace(found, tally=survey.tally) == survey
    assert {path.name for path in (tmp_path / "out").iterdir()} == {SURVEY, *(b.file for b in survey.buckets)}


def test_a_wide_table_and_a_single_series(tmp_path):
    frame = make_frame(["s1", "s2", "s3"])
    wide = frame.pivot(index="timestamp", columns="item_id", values="sales").reset_index()
    for name, table in (("wide", wide), ("one", frame[frame["item_id"] == "s1"][["timestamp", "sales"]])):
        path = as_text(table, tmp_path / f"{name}.csv")
        make_buckets([str(path)], tmp_path / name, 2)
        assert_same(read_task(tmp_path / name), read_task(path))


def test_several_columns_and_roles(tmp_path):
    frame = make_frame()
    frame["store"], frame["price"] = frame["item_id"], np.arange(len(frame)) / 7
    frame["region"] = np.where(frame["item_id"].isin(["a", "007"]), "north", "south")
    frame["size"], frame["returns"] = frame.groupby("item_id").ngroup() + 0.5, 1.0
    frame["event"] = np.where(np.arange(len(frame)) % 5 < 2, "fair", "")
    frame["open"] = np.where(np.arange(len(frame)) % 3 < 2, "true", "false")
    frame.loc[frame.index[7], "open"] = ""  # so that not all parts have the same type
    frame = pd.concat([frame.assign(item_id=sku) for sku in ("x", "y")])
    path = as_text(shuffled(frame), tmp_path / "t.csv")
    columns = Columns(
        item=["store", "item_id"],
        target=["sales", "returns"],
        covariates=["price", "event=fair", "open=true"],
        static_categories=["region"],
        static_reals=["size"],
    )
    survey = make_buckets([str(path)], tmp_path / "out", 4, columns=columns)
    task, expected = read_task(tmp_path / "out"), read_task(path, columns=columns)
    assert_same(task, expected)
    assert task.targets == ("sales", "returns")
    summary = summarise(expected.entries)
    assert survey.series == survey.tally.count == summary.count
    assert (survey.tally.lowest, survey.tally.highest) == (summary.lowest, summary.highest)
    assert survey.tally.auto == summary.auto
    assert [int(code) + 1 for code in survey.tally.codes] == summary.cardinality
    np.testing.assert_allclose(survey.tally.static.units(), summary.static_units, rtol=1e-9)
    np.testing.assert_allclose(survey.tally.dynamic.units(), summary.dynamic_units, rtol=1e-9)
    some = read_task(tmp_path / "out", columns=Columns(target="returns"))
    assert some.targets == ("returns",)
    named = "no column 'cost' among its covariates, which are 'price', 'event=fair', 'open=true'; name them to"
    with pytest.raises(ValueError, match=named):
        read_task(tmp_path / "out", columns=Columns(covariates=["cost"]))


def test_series_that_are_spread_over_files(tmp_path):
    frame = make_frame()
    for month, part in frame.groupby(frame["timestamp"].dt.month):
        as_text(part, tmp_path / f"sales-{month}.csv")
    make_buckets([str(tmp_path / "sales-*.csv")], tmp_path / "out", 2)
    assert_same(read_task(tmp_path / "out"), read_task(as_text(frame, tmp_path / "all.csv")))


def test_the_bucket_of_an_item_is_the_same_everywhere_and_buckets_are_even():
    assert bucket_of("123456789", 10_000) == 0xCBF43926 % 10_000  # the check value of CRC-32
    counts = np.bincount([bucket_of(f"store {k}", 50) for k in range(100_000)], minlength=50)
    assert abs(counts - 2000).max() < 5 * np.sqrt(2000)  # standard deviations of a fair draw


def test_rows_of_a_bucket_are_in_order(tmp_path):
    path = as_text(shuffled(make_frame()), tmp_path / "t.csv")
    survey = make_buckets([str(path)], tmp_path / "out", 2)
    assert sum(bucket.rows for bucket in survey.buckets) == len(make_frame())
    for bucket in survey.buckets:
        frame = parquet.read_table(tmp_path / "out" / bucket.file).to_pandas()
        keys = list(zip(frame["item_id"], frame["timestamp"], strict=True))
        assert keys == sorted(keys)


def spoiled(row, column, cell):
    frame = make_frame().astype({"sales": str, "timestamp": str})
    frame.loc[row, column] = cell
    return frame


@pytest.mark.parametrize(
    ("row", "column", "cell", "message"),
    [
        (150, "sales", "7,5", r"t\.csv, line 152, column 'sales': expected a number, got '7,5'"),
        (150, "timestamp", "13/05/2024", r"t\.csv, line 152, column 'timestamp': '13/05/2024' is not a time stamp"),
        (150, "timestamp", "2024-03-01T00:00Z", r"t\.csv, line 152.*differ in whether they have a time zone"),
        (150, "item_id", "", r"t\.csv, line 152, column 'item_id': the item is empty"),
        (150, "timestamp", "2024-02-30 12:00", r"t\.csv, line 152, column 'timestamp'.*is not a time stamp"),
        (150, "timestamp", "2024-03-05 12:00", r"t\.csv, line 152.*is no whole number of steps of frequency 'D'"),
    ],
)
def test_a_later_part_that_does_not_fit_is_named(row, column, cell, message, tmp_path):
    path = as_text(spoiled(row, column, cell), tmp_path / "t.csv")
    with pytest.raises(ValueError, match=message):
        make_buckets([str(path)], tmp_path / "out", 2, freq="D")
    assert not (tmp_path / "out" / SURVEY).exists()
    with pytest.raises(ValueError, match="is not finished"):
        read_task(tmp_path / "out")


def test_day_and_month_do_not_change_places_in_a_later_part(tmp_path):
    frame = make_frame(["a"], steps=200)
    text = frame.assign(timestamp=frame["timestamp"].dt.strftime("%d/%m/%Y"))
    text.loc[180, "timestamp"] = f"{frame['timestamp'][180]:%m/%d/%Y}"
    path = as_text(text, tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"line 182, column 'timestamp': .* is not a time stamp"):
        make_buckets([str(path)], tmp_path / "out", 1)


def test_local_midnights_stay_dates(tmp_path):
    frame = make_frame(["a"], steps=100)
    frame["timestamp"] = frame["timestamp"].dt.tz_localize("Etc/GMT-2")
    frame.loc[90, "timestamp"] += pd.Timedelta(hours=1)
    path = as_text(frame, tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"line 92, .* is no midnight of its time zone"):
        make_buckets([str(path)], tmp_path / "out", 1)


def test_a_time_stamp_that_occurs_in_two_files(tmp_path):
    one, other = as_text(make_frame(), tmp_path / "one.csv"), tmp_path / "other.parquet"
    make_frame().iloc[[100, 101]].to_parquet(other)
    with pytest.raises(
        ValueError, match=r"occurs twice, first in .*(one\.csv, line 102|other\.parquet, row 1)"
    ) as told:
        make_buckets([str(one), str(other)], tmp_path / "out", 1)
    assert "one.csv, line 10" in str(told.value)
    assert "other.parquet, row" in str(told.value)


def two_frequencies(tmp_path):
    items = [f"s{k}" for k in range(12)]
    parts = [make_frame([item], freq="D" if bucket_of(item, 2) else "h") for item in items]
    return as_text(pd.concat(parts), tmp_path / "t.csv")


def test_buckets_of_two_frequencies(tmp_path):
    with pytest.raises(ValueError, match=r"buckets differ in frequency: (h|D) in 1 .*--freq|buckets differ.*freq="):
        make_buckets([str(two_frequencies(tmp_path))], tmp_path / "out", 2)


def test_a_frequency_that_gaps_hide_can_be_given_afterwards(tmp_path):
    """Half of the series are seen every second day: given the frequency, the same folder is completed."""
    items = [f"s{k}" for k in range(12)]
    parts = [make_frame([item], freq="D") if bucket_of(item, 2) else make_frame([item], freq="2D") for item in items]
    path = as_text(pd.concat(parts), tmp_path / "t.csv")
    with pytest.raises(ValueError, match="buckets differ in frequency"):
        make_buckets([str(path)], tmp_path / "out", 2)
    with pytest.raises(ValueError, match="rows are 2 steps of frequency 'D' apart"):
        make_buckets([str(path)], tmp_path / "out", 2, freq="D")


def test_a_bucket_that_does_not_tell_the_frequency_has_that_of_the_others(tmp_path):
    names = [f"s{k}" for k in range(30)]
    long = [make_frame([name]) for name in names if bucket_of(name, 2) == 0]
    short = [make_frame([name], steps=1) for name in names if bucket_of(name, 2) == 1]
    path = as_text(pd.concat([*long, *short]).dropna(), tmp_path / "t.csv")
    make_buckets([str(path)], tmp_path / "out", 2)
    assert_same(read_task(tmp_path / "out", windows=0), read_task(path, windows=0))
    alone = as_text(pd.concat(short), tmp_path / "short.csv")
    with pytest.raises(ValueError, match="the frequency can not be inferred"):
        make_buckets([str(alone)], tmp_path / "alone", 2)


@pytest.fixture
def made(tmp_path):
    make_buckets([str(as_text(make_frame(), tmp_path / "t.csv"))], tmp_path / "out", 3)
    return tmp_path / "out"


def test_buckets_that_are_broken_missing_or_of_another_folder(made, tmp_path):
    file = made / read_survey(made).buckets[0].file
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"bucket-0000\d\.parquet: expected \d+ bytes, as survey\.json says"):
        read_task(made)
    file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    with pytest.raises(ValueError, match=r"bucket-0000\d\.parquet: expected the checksum"):
        read_task(made)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"1 buckets of survey\.json are missing \('bucket-0000\d"):
        read_task(made)
    file.write_bytes(content)
    shutil.copy(file, made / "bucket-00077.parquet")
    with pytest.raises(ValueError, match=r"1 buckets are not in survey\.json \('bucket-00077\.parquet'\)"):
        read_task(made)


@pytest.mark.parametrize("change", [
    {"format": 1}, {"freq": "fortnight"}, {"targets": []}, {"targets": "sales"}, {"tally": {"count": "many"}},
    {"buckets": []}, {"buckets": [{"file": "../t.csv", "series": 1, "rows": 1, "size": 1, "sha256": ""}]},
    {"last": "soon"},
])  # fmt: skip
def test_a_survey_that_is_damaged(made, change):
    contents = json.loads((made / SURVEY).read_text())
    (made / SURVEY).write_text(json.dumps(contents | change))
    with pytest.raises(ValueError, match=r"survey\.json.*anew by `tsforecast bucket`"):
        read_task(made)


def test_data_of_another_frequency(made):
    with pytest.raises(ValueError, match="the buckets have the frequency 'D', expected 'h'"):
        read_task(made, "h")


def test_inputs_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\*\.csv"):
        make_buckets([str(tmp_path / "no*.csv")], tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        make_buckets([str(tmp_path / "none.csv")], tmp_path / "out")
    with pytest.raises(ValueError, match="is a folder; name its files"):
        make_buckets([str(tmp_path)], tmp_path / "out")
    empty = as_text(make_frame().iloc[:0], tmp_path / "empty.csv")
    with pytest.raises(ValueError, match="there are no rows"):
        make_buckets([str(empty)], tmp_path / "out")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match="not readable as Parquet"):
        make_buckets([str(tmp_path / "broken.parquet")], tmp_path / "out")


def test_a_file_without_a_column_of_the_first(tmp_path):
    one = as_text(make_frame(), tmp_path / "1.csv")
    other = as_text(make_frame(["z"]).rename(columns={"sales": "amount"}), tmp_path / "2.csv")
    with pytest.raises(ValueError, match=r"2\.csv: there is no column 'sales'"):
        make_buckets([str(one), str(other)], tmp_path / "out")


def test_a_folder_of_something_else(made, tmp_path):
    path = as_text(make_frame(), tmp_path / "t.csv")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(ValueError, match="holds no buckets"):
        make_buckets([str(path)], tmp_path / "mine")
    with pytest.raises(ValueError, match="files that have changed since"):
        make_buckets([str(path)], made, 3)
    make_buckets([str(path)], tmp_path / "new", 3)
    with pytest.raises(ValueError, match="was begun with other buckets"):
        make_buckets([str(path)], tmp_path / "new", 5)
    with pytest.raises(ValueError, match="was begun with other columns"):
        make_buckets([str(path)], tmp_path / "new", 3, columns=Columns(target="sales"))


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_what_is_finished_is_not_done_again(tmp_path, monkeypatch, caplog):
    paths = [as_text(part, tmp_path / f"{k}.csv") for k, part in make_frame().groupby("item_id")]
    expected = tmp_path / "whole"
    make_buckets([str(path) for path in paths], expected, 3)
    written, read = [], []
    write, parts = parquet.write_table, bucketing.read_parts

    def full(table, path, **options):
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        write(table, path, **options)

    monkeypatch.setattr(bucketing, "read_parts", lambda path, *rest: read.append(path) or parts(path, *rest))
    monkeypatch.setattr(gathering.parquet, "write_table", full)
    for _ in range(2):
        with pytest.raises(OSError, match=r"No space left on device: '.*bucket-0000\d\.parquet'"):
            make_buckets([str(path) for path in paths], tmp_path / "out", 3)
        assert len(written) == 1
        assert len(list((tmp_path / "out").glob("*.parquet"))) == 1  # which is whole
        assert not list((tmp_path / "out").rglob(".*part*"))
    assert len(read) == len(paths)
    monkeypatch.setattr(gathering.parquet, "write_table", lambda *a, **o: written.append(a[1]) or write(*a, **o))
    make_buckets([str(path) for path in paths], tmp_path / "out", 3)
    assert len(read) == len(paths)
    assert len(written) == len(read_survey(expected).buckets)
    assert contents(tmp_path / "out") == contents(expected)
    with caplog.at_level(logging.INFO, "tsforecast"):
        make_buckets([str(path) for path in paths], tmp_path / "out", 3)
    assert "is finished already" in caplog.text


def test_an_input_that_fails_is_read_again_and_the_others_are_not(tmp_path):
    one = as_text(make_frame(["a", "b"]), tmp_path / "1.csv")
    other = as_text(spoiled(150, "sales", "much"), tmp_path / "2.csv")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"2\.csv, line 152"):
            make_buckets([str(one), str(other)], tmp_path / "out", 2)
        assert (tmp_path / "out" / WORK / "input-00000.json").is_file()
        assert not (tmp_path / "out" / WORK / "input-00001.json").is_file()


def test_items_that_are_all_different_in_the_first_part_name_the_series(tmp_path):
    frame = make_frame([f"s{k}" for k in range(100)], steps=8).sort_values(["timestamp", "item_id"])
    path = as_text(frame, tmp_path / "t.csv")
    survey = make_buckets([str(path)], tmp_path / "out", 2)
    assert survey.series == 100
    assert_same(read_task(tmp_path / "out"), read_task(path))


def test_parts_of_parquet_have_the_numbers_of_their_rows(tmp_path):
    make_frame().to_parquet(tmp_path / "t.parquet", row_group_size=50)
    rows = [part.index.tolist() for part in parquet_parts(tmp_path / "t.parquet", 30)]
    assert [number for part in rows for number in part] == list(range(len(make_frame())))
    assert len(rows) > 5
