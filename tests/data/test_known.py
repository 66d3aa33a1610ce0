import numpy as np
import pandas as pd
import pytest

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.known import attach_known, brings_covariates
from tsforecast.data.tables.columns import with_categories
from tsforecast.data.tables.roles import Columns


def entries(freq="h", start="2024-01-01", length=10, items=("a", "b"), targets=None):
    shape = (length,) if targets is None else (targets, length)
    return [{"item_id": item, "start": to_period(start, freq), "target": np.ones(shape)} for item in items]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("freq", "pandas_freq", "start"),
    [
        ("h", "h", "2024-01-01"),
        ("15min", "15min", "2024-01-01 00:07"),
        ("D", "D", "2024-01-01"),
        ("B", "B", "2024-01-03"),
        ("M", "MS", "2024-01-01"),
        ("M", "ME", "2024-01-31"),
        ("W-WED", "W-WED", "2024-01-03"),
        ("3M", "3MS", "2024-01-01"),
        ("Q", "QS", "2024-01-01"),
    ],
)
def test_values_stand_at_their_steps(tmp_path, freq, pandas_freq, start):
    stamps = pd.date_range(start, periods=16, freq=pandas_freq)
    frame = pd.DataFrame({"item_id": "b", "timestamp": stamps[[11, 14, 12]], "target": [1.0, 4.0, np.nan]})
    frame.to_csv(tmp_path / "known.csv", index=False)
    before = entries(freq, start)
    after = attach_known(before, tmp_path / "known.csv", 6)
    assert "known_future" not in before[1]
    np.testing.assert_array_equal(after[0]["known_future"], [np.nan] * 6)
    np.testing.assert_array_equal(after[1]["known_future"], [np.nan, 1, np.nan, np.nan, 4, np.nan])
    assert after[1]["known_future"].dtype == np.float32


def test_ranges_of_covariates_stand_at_their_steps(tmp_path):
    frame = pd.DataFrame({"item_id": "b", "timestamp": ["2024-01-01 11:00", "2024-01-01 12:00"], "target": np.nan})
    frame = frame.assign(heat_low=[1.0, np.nan], heat_high=[2.0, np.nan])
    frame.to_csv(tmp_path / "known.csv", index=False)
    after = attach_known(entries(), tmp_path / "known.csv", 3, Columns(covariates=["price", "heat"]))
    assert "covariate_range" not in after[0]
    assert np.isnan(after[1]["known_future"]).all()
    nothing = [np.nan] * 3
    expected = [[nothing, [np.nan, 1, np.nan]], [nothing, [np.nan, 2, np.nan]]]
    np.testing.assert_array_equal(after[1]["covariate_range"], expected)
    frame.drop(columns="heat_high").to_csv(tmp_path / "half.csv", index=False)
    with pytest.raises(ValueError, match="expected both heat_low and heat_high of a range, got heat_low alone"):
        attach_known(entries(), tmp_path / "half.csv", 3, Columns(covariates=["heat"]))


def test_a_range_the_wrong_way_round_is_said_with_its_line(tmp_path):
    path = tmp_path / "known.csv"
    path.write_text("item_id,timestamp,target,heat_low,heat_high\nb,2024-01-01 11:00,,3,2\n")
    with pytest.raises(ValueError, match="line 2, column 'heat_low': expected it at most heat_high, got 3 and 2"):
        attach_known(entries(), path, 3, Columns(covariates=["heat"]))


def test_columns_that_are_left_out_are_as_they_were(tmp_path):
    """A table of one covariate of two, in other letters, and without targets."""
    path = tmp_path / "known.csv"
    path.write_text("item_id,timestamp,Price\nb,2024-01-01 11:00,9\n")
    before = [{**entry, "feat_dynamic_real": np.arange(26.0).reshape(2, 13)} for entry in entries()]
    after = attach_known(before, path, 3, Columns("item_id", "timestamp", "target", covariates=["heat", "price"]))
    assert np.isnan([one["known_future"] for one in after]).all()
    np.testing.assert_array_equal(after[0]["feat_dynamic_real"], before[0]["feat_dynamic_real"])
    changed = after[1]["feat_dynamic_real"] - before[1]["feat_dynamic_real"]
    assert np.argwhere(changed).tolist() == [[1, 11]]
    assert after[1]["feat_dynamic_real"][1, 11] == 9


def test_categories_that_differ_in_letter_case_alone_are_read_apart(tmp_path):
    """From the column of text, of a file or a frame; the name of one may have a mark of its own."""
    path = tmp_path / "known.csv"
    path.write_text("item_id,timestamp,event\nb,2024-01-01 11:00,Fair\nb,2024-01-01 12:00,a=b\n")
    names = ["event=Fair", "event=fair", "event=a=b"]
    roles = Columns("item_id", "timestamp", "target", covariates=names)
    before = [{**entry, "feat_dynamic_real": np.zeros((3, 13))} for entry in entries()]
    for source in (path, with_categories(pd.read_csv(path), roles)):
        after = attach_known(before, source, 3, roles)[1]["feat_dynamic_real"]
        assert np.argwhere(after).tolist() == [[0, 11], [2, 12]]
    assert brings_covariates(path, roles)
    assert not brings_covariates(path, Columns(covariates=["price"]))


def test_values_and_ranges_of_covariates_are_read_together(tmp_path):
    """One covariate has values, another a range; their names are said once, and targets are left out."""
    path = tmp_path / "known.csv"
    path.write_text("item_id,timestamp,price,heat_LOW,heat_high,other\nb,2024-01-01 11:00,9,1,2,x\n")
    before = [{**entry, "feat_dynamic_real": np.zeros((2, 13))} for entry in entries()]
    roles = Columns("item_id", "timestamp", "target", ["price", "heat"], past_covariates=["wind"], holidays="US")
    after = attach_known(before, path, 3, roles)
    assert np.isnan([one["known_future"] for one in after]).all()
    assert np.argwhere(after[1]["feat_dynamic_real"]).tolist() == [[0, 11]]
    np.testing.assert_array_equal(after[1]["covariate_range"][:, 1, 1], [1, 2])
    assert np.isfinite(after[1]["covariate_range"]).sum() == 2
    assert "covariate_range" not in after[0]
    only = path.read_text().replace("price,", "prize,")
    path.write_text(only)
    np.testing.assert_array_equal(attach_known(before, path, 3, roles)[1]["covariate_range"][:, 1, 1], [1, 2])


def test_multivariate_and_single_series(tmp_path):
    frame = pd.DataFrame({"timestamp": ["2024-01-01 10:00", "2024-01-01 12:00"], "y1": [1.0, np.nan], "y2": [2.0, 3.0]})
    frame.to_parquet(tmp_path / "known.parquet")
    after = attach_known(entries(items=("a",), targets=2), tmp_path / "known.parquet", 3, Columns(target=["y1", "y2"]))
    np.testing.assert_array_equal(after[0]["known_future"], [[1, np.nan, np.nan], [2, np.nan, 3]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,timestamp,target\nc,2024-01-01 10:00,1\n", r"known.csv, line 2, column 'item': there is no series 'c'"),
        (
            "item,timestamp,target\na,2024-01-01 09:00,1\n",
            r"line 2.*outside the forecast .* from 2024-01-01 10:00 to 2024-01-01 12:00",
        ),
        ("item,timestamp,target\na,2024-01-01 13:00,1\n", "line 2.*outside the forecast"),
        ("item,timestamp,target\na,2024-01-01 10:00,1\na,2024-01-01 10:00,2\n", "line 3.*second row for the same step"),
        ("item,timestamp,target\na,2024-01-01 10:00,x\n", "line 2, column 'target': expected a number"),
        ("timestamp,target\n2024-01-01 10:00,1\n", "no column of items, but 2 series"),
    ],
)
def test_faults_name_the_line(tmp_path, text, message):
    (tmp_path / "known.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        attach_known(entries(), tmp_path / "known.csv", 3)


def test_each_row_is_looked_at_once(tmp_path, monkeypatch):
    """Rows of many series in any order; the work is that of the rows, not of rows times series."""
    rng = np.random.default_rng(0)
    items = [f"s{k}" for k in range(300)]
    steps = np.stack([rng.permutation(3)[:2] for _ in items])
    rows = [(item, step, 10 * k + step) for k, item in enumerate(items) for step in steps[k] if k % 3]
    frame = pd.DataFrame([rows[place] for place in rng.permutation(len(rows))], columns=["item_id", "step", "target"])
    frame["timestamp"] = pd.Timestamp("2024-01-01 10:00") + pd.to_timedelta(frame.pop("step"), "h")
    frame.to_csv(tmp_path / "known.csv", index=False)
    looked, find = [], np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", lambda a: looked.append(np.size(a)) or find(a))
    after = attach_known(entries(items=items), tmp_path / "known.csv", 3)
    for k, entry in enumerate(after):
        expected = [10 * k + step if k % 3 and step in steps[k] else np.nan for step in range(3)]
        np.testing.assert_array_equal(entry["known_future"], expected)
    assert sum(looked) < 10 * len(rows)


def test_more_faults(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        attach_known(entries(), tmp_path / "known.csv", 3)
    (tmp_path / "known.csv").write_text("item,timestamp,target\na,2024-01-13,1\n")
    with pytest.raises(ValueError, match="Saturday"):
        attach_known(entries("B", "2024-01-01"), tmp_path / "known.csv", 3)
    with pytest.raises(ValueError, match="expected 2 target columns as in the data, got 1"):
        attach_known(entries("D", "2024-01-03", targets=2), tmp_path / "known.csv", 3)
