"""Series with clocks of their own: what is read, and what is refused with a remedy."""

import json

import numpy as np
import pandas as pd
import pytest

from tsforecast.data import Columns
from tsforecast.data.irregular import in_words, read_irregular, read_times
from tsforecast.data.timed_entries import before, check_timed

HOUR = 3600 * 10**9


def table(**columns) -> pd.DataFrame:
    stamps = ["2024-01-01 00:00:00.000000001", "2024-01-01 03:00", "2024-01-01 03:00", "2024-01-02", "2024-01-05"]
    return pd.DataFrame({"item_id": "a", "timestamp": stamps, "target": [1.0, 2.0, 3.0, np.nan, 5.0], **columns})


def test_rows_keep_their_times_to_the_nanosecond():
    """Rows come in any order, two of one moment stay two, and a row without a value is none."""
    task = read_irregular(table().iloc[::-1], windows=0)
    (entry,) = task.entries
    begin = pd.Timestamp("2024-01-01").value
    assert entry["times"].tolist() == [begin + 1, begin + 3 * HOUR, begin + 3 * HOUR, begin + 96 * HOUR]
    assert entry["target"].tolist() in ([1.0, 2.0, 3.0, 5.0], [1.0, 3.0, 2.0, 5.0])
    assert task.gap == (3 * HOUR - 1 + 93 * HOUR) // 2  # the median of gaps above zero


def test_the_end_of_each_series_is_held_out_by_time():
    times = np.array([0, 1, 2, 7, 8, 9, 10]) * HOUR
    task = read_irregular([{"item_id": "a", "times": times, "target": np.arange(7.0)}], "2h", 2)
    pairs = [(past["target"].tolist(), label["target"].tolist()) for past, label in task.timed_test()]
    assert pairs == [([0, 1, 2], [3, 4]), ([0, 1, 2, 3, 4], [5, 6])]
    assert task.train[0]["target"].tolist() == [0, 1, 2]
    assert before(task.entries[0], 7 * HOUR)["target"].tolist() == [0, 1, 2, 3]


def test_json_lines_have_times_as_numbers_or_text(tmp_path):
    rows = [
        {"item_id": "a", "times": [0, 5, 5], "target": [1, 2, 3]},
        {"item_id": "b", "times": ["1970-01-01T00:00:00.000000007", "1970-01-01T01:00:00+00:30"], "target": [4, None]},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    one, two = read_irregular(tmp_path / "x.jsonl", windows=0).entries
    assert one["times"].tolist() == [0, 5, 5]
    assert two["times"].tolist() == [7, HOUR // 2]
    assert np.isnan(two["target"][1])


def test_times_to_answer_at_are_by_item_or_for_all(tmp_path):
    (tmp_path / "at.csv").write_text("site,when\nb,2024-01-02\na,2024-01-03\na,2024-01-01\n")
    by_item, _ = read_times(tmp_path / "at.csv", Columns(item="site", timestamp="when"))
    assert {item: len(times) for item, times in by_item.items()} == {"a": 2, "b": 1}
    assert by_item["a"][0] == pd.Timestamp("2024-01-01").value
    assert list(read_times(pd.DataFrame({"timestamp": ["2024-01-01"]}), Columns())[0]) == [None]


def test_covariates_stay_with_their_times(tmp_path):
    """Also where the rows are sorted, and at times without a value."""
    task = read_irregular(table(heat=[0.0, 1, 2, 3, 4]).iloc[::-1], windows=0, columns=Columns(covariates=["heat"]))
    (entry,) = task.entries
    assert entry["feat_dynamic_real"].tolist() in ([[0, 1, 2, 4]], [[0, 2, 1, 4]])
    assert entry["feat_dynamic_real"][0, 1] == entry["target"][1] - 1
    assert entry["asked_times"].tolist() == [pd.Timestamp("2024-01-02").value]
    assert entry["asked_dynamic_real"].tolist() == [[3.0]]
    early = before(entry, int(entry["times"][1]))
    assert early["feat_dynamic_real"].shape == (1, 3)
    (tmp_path / "at.csv").write_text("timestamp,heat\n2024-01-03,7\n2024-01-01,8\n")
    times, covariates = read_times(tmp_path / "at.csv", Columns(covariates=["heat"]))
    assert times[None].tolist() == sorted(times[None])
    assert covariates[None].tolist() == [[8.0, 7.0]]


ENTRY = {"item_id": "a", "times": [0, 1], "target": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "expected a series at least"),
        (
            [{"item_id": "a", "target": [1.0]}],
            "expected data entries with 'times' and 'target', got 'item_id', 'target'",
        ),
        ([ENTRY | {"times": [5, 1]}], "series 'a': its times go back from 1970.*5 to 1970.*1; sort them"),
        ([ENTRY | {"times": [5]}], "expected as many times as values, got 1 times"),
        ([ENTRY | {"times": [0.5, 1.5]}], "series 'a': expected times as nanoseconds or as time stamps"),
        ([ENTRY | {"times": ["2024-01-01", "soon"]}], "series 'a': expected times as nanoseconds or as time stamps"),
        ([ENTRY | {"target": [1.0, np.inf]}], "series 'a': a value is infinite"),
        ([ENTRY | {"target": [np.nan, np.nan]}], "series 'a' has no value; leave it out"),
        ([ENTRY | {"feat_dynamic_real": [[1.0]]}], r"series 'a': expected feat_dynamic_real of shape \(covariate, 2\)"),
        ([ENTRY | {"feat_dynamic_real": [[1.0, np.nan]]}], "series 'a': feat_dynamic_real has a value that is missing"),
        ([ENTRY | {"feat_dynamic_real": [[1.0, 2.0]]}, ENTRY | {"item_id": "b"}], "series 'b': expected as many cova"),
        ([ENTRY, ENTRY], "expected an item_id of its own for each series, got 'a'"),
        ([ENTRY, ENTRY | {"item_id": "b", "target": [[1.0, 2.0]]}], "series 'b': expected a target of shape"),
    ],
)
def test_entries_that_are_not_as_expected_are_refused(entries, message):
    with pytest.raises(ValueError, match=message):
        check_timed(entries)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (table(), {"horizon": "soon"}, "expected horizon to be a time such as 6h, 90min or 1D, got 'soon'"),
        (table(), {"horizon": "-1h"}, "expected horizon to be a time such as 6h"),
        (table(), {"horizon": "6"}, "expected horizon to be a time such as 6h, 90min or 1D, got '6'"),
        (table(), {"horizon": "3D"}, "1 of 1 series have no past before 5 test windows of 3 D"),
        (table(), {"windows": -1}, "expected windows of at least 0, got -1"),
        (table().head(1), {}, "expected a series with observations at two times, got '"),
        (table(timestamp=["now?"] * 5), {}, "is not a time stamp"),
        (table(price=1.0), {"columns": Columns(static_reals=["price"])}, "static_reals does not go with irregular"),
        (table(price=[1, None, 1, 1, 1]), {"columns": Columns(covariates=["price"])}, "the cell is empty"),
    ],
)
def test_tables_that_are_not_as_expected_are_refused(frame, options, message):
    with pytest.raises(ValueError, match=message):
        read_irregular(frame, **options)


def test_lines_of_regular_entries_are_told_apart(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"start": "2024-01-01", "target": [1]}')
    with pytest.raises(ValueError, match="the entries have 'start' and no 'times': they are regular"):
        read_irregular(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_text("{times")
    with pytest.raises(ValueError, match="expected a JSON object in each line"):
        read_irregular(tmp_path / "y.jsonl")


@pytest.mark.parametrize(
    ("seconds", "words"), [(21_600, "6 h"), (5400, "90 min"), (86_400, "1 D"), (429_156, "4.967 D")]
)
def test_times_are_written_as_people_write_them(seconds, words):
    assert in_words(seconds * 10**9) == words


def test_a_table_of_times_is_named_by_its_file(tmp_path, caplog):
    path = tmp_path / "at.csv"
    path.write_text("time\n2024-01-01\nsoon\n")
    with caplog.at_level("INFO"), pytest.raises(ValueError, match=r"at.csv, line 3, column 'time': 'soon'"):
        read_times(path, Columns(timestamp="time"))
    assert "(asked)" not in caplog.text
