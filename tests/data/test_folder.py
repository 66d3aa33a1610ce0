import gzip
import json

import numpy as np
import pandas as pd
import pytest
from gluonts.dataset.common import TrainDatasets, load_datasets

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.catalog import load_task
from tsforecast.data.folder import data_home, read_folder, write_folder
from tsforecast.data.sources import read_task
from tsforecast.data.task import ForecastTask


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def series(start="2024-01-01 00:00:00", length=20, scale=1.0, **fields):
    return {"start": start, "target": [scale * k for k in range(length)], **fields}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("freq", ["h", "B", "M", "W-SUN", "15min", "Q-DEC"])
def test_written_tasks_come_back(tmp_path, freq):
    generator = np.random.default_rng(0)
    entries = []
    for index, length in enumerate((30, 25)):
        target = generator.normal(size=length)
        target[3] = np.nan
        features = {"feat_static_cat": [index], "feat_dynamic_real": generator.normal(size=(2, length))}
        start = to_period("2024-05-01 13:00", freq)
        entries.append({"item_id": f"s{index}", "start": start, "target": target, **features})
    task = ForecastTask("mine", freq, 4, 3, entries)
    write_folder(task, tmp_path / "mine")
    again = read_folder(tmp_path / "mine")
    assert (again.name, again.freq, again.prediction_length, again.windows) == ("mine", freq, 4, 3)
    for before, after in zip(entries, again.entries, strict=True):
        assert (after["item_id"], after["start"]) == (before["item_id"], before["start"])
        np.testing.assert_array_equal(after["target"], before["target"])
        np.testing.assert_array_equal(after["feat_dynamic_real"], before["feat_dynamic_real"])
        np.testing.assert_array_equal(after["feat_static_cat"], before["feat_static_cat"])


def test_gluonts_reads_what_we_write(tmp_path):
    write_folder(load_task("solar"), tmp_path / "solar")
    path = tmp_path / "solar"
    theirs: TrainDatasets = load_datasets(path, path / "train", path / "test")
    assert (theirs.metadata.freq, theirs.metadata.prediction_length) == ("h", 24)
    for mine, entry in zip(load_task("solar").train, theirs.train, strict=True):
        np.testing.assert_array_equal(entry["target"], mine["target"])
        assert entry["start"] == mine["start"]


def test_writing_replaces_and_leaves_nothing_behind(tmp_path):
    task = ForecastTask("t", "D", 2, 1, [{"item_id": "a", "start": pd.Period("2024-01-01"), "target": np.ones(9)}])
    write_folder(task, tmp_path / "home" / "t")
    write_folder(ForecastTask("t", "D", 3, 1, task.entries), tmp_path / "home" / "t")
    assert read_folder(tmp_path / "home" / "t").prediction_length == 3
    broken = ForecastTask(
        "t", "D", 2, 1, [{"item_id": "a", "start": pd.Period("2024-01-01"), "target": np.ones(9)}, {}]
    )
    with pytest.raises(KeyError):
        write_folder(broken, tmp_path / "home" / "t")
    assert read_folder(tmp_path / "home" / "t").prediction_length == 3
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["t"]


@pytest.mark.parametrize("with_names", [True, False])
def test_published_rolling_windows(tmp_path, with_names):
    """Two series, three windows of four steps, as in the data of the copula papers."""
    names = [{"item_id": name} if with_names else {} for name in "ab"]
    lines(tmp_path / "x" / "train" / "train.json", [series(length=20, scale=k + 1, **names[k]) for k in range(2)])
    rows = [series(length=20 + 4 * window, scale=k + 1, **names[k]) for window in (1, 2, 3) for k in range(2)]
    lines(tmp_path / "x" / "test" / "test.json", rows)
    (tmp_path / "x" / "metadata").mkdir()
    (tmp_path / "x" / "metadata" / "metadata.json").write_text('{"time_granularity": "B"}')
    task = read_folder(tmp_path / "x")
    assert (task.freq, task.prediction_length, task.windows) == ("B", 4, 3)
    assert [entry["item_id"] for entry in task.entries] == (["a", "b"] if with_names else ["0", "1"])
    for scale, entry, train in zip((1, 2), task.entries, task.train, strict=True):
        np.testing.assert_array_equal(entry["target"], scale * np.arange(32))
        assert len(train["target"]) == 20
    other = read_folder(tmp_path / "x", prediction_length=6)
    assert (other.prediction_length, other.windows) == (6, 2)


def test_training_part_alone(tmp_path):
    lines(tmp_path / "train" / "data.json.gz", [series()])
    (tmp_path / "metadata.json").write_text('{"freq": "1H", "prediction_length": 5}')
    task = read_folder(tmp_path)
    assert (task.freq, task.prediction_length, task.windows, len(task.entries)) == ("h", 5, 0, 1)
    assert read_folder(tmp_path, windows=2).windows == 2


@pytest.mark.parametrize("name", ["a.json", "a.jsonl.gz"])
def test_a_file_of_json_lines_is_a_data_set(tmp_path, name):
    lines(tmp_path / name, [series(item_id=7), {"start": "2024-01-01", "target": [[1, None], [3, 4]]}][:1])
    task = read_task(tmp_path / name, freq="H", prediction_length=2)
    assert [entry["item_id"] for entry in task.entries] == ["7"]


def test_multivariate_and_missing_values(tmp_path):
    lines(tmp_path / "a.json", [{"start": "2024-01-01", "target": [[1, None, 2], [3, "NaN", 4]]}])
    target = read_task(tmp_path / "a.json", freq="D", windows=0).entries[0]["target"]
    np.testing.assert_array_equal(target, [[1, np.nan, 2], [3, np.nan, 4]])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"start": "2024-01-01"}', "line 2: expected an object with the fields start and target"),
        ("[1, 2]", "line 2: expected an object"),
        ('{"start": "x", "target": [1]}', "line 2: start 'x' is not a time stamp"),
        ('{"start": "2024-01-01", "target": [1, "b"]}', "line 2, field target: expected numbers"),
        ('{"start": "2024', "line 2: not readable"),
    ],
)
def test_faults_name_the_line(tmp_path, row, message):
    (tmp_path / "a.json").write_text('{"start": "2024-01-01", "target": [1, 2]}\n' + row + "\n")
    with pytest.raises(ValueError, match=message) as error:
        read_folder(tmp_path / "a.json", freq="D")
    assert "a.json" in str(error.value)


def test_series_without_values_are_left_out(tmp_path, caplog):
    rows = [json.dumps({"start": "2024-01-01", "target": target}) for target in ([1, 2, 3], [4, 5, 6], [], [None])]
    (tmp_path / "a.json").write_text("\n".join(rows) + "\n")
    assert [entry["item_id"] for entry in read_folder(tmp_path / "a.json", freq="D").entries] == ["0", "1"]
    assert "a.json: 2 series with no value are left out: '2', '3'" in caplog.text
    (tmp_path / "a.json").write_text("\n".join(rows[1:]) + "\n")
    with pytest.raises(ValueError, match="2 of 3 series can not be used: '1', which"):
        read_folder(tmp_path / "a.json", freq="D")


def test_parts_which_do_not_fit(tmp_path):
    lines(tmp_path / "train" / "d.json", [series(), series()])
    with pytest.raises(ValueError, match=r"no frequency in metadata.json; give it"):
        read_folder(tmp_path)
    lines(tmp_path / "test" / "d.json", [series(length=30)] * 3)
    with pytest.raises(ValueError, match="3 series in test are no multiple of the 2 in train"):
        read_folder(tmp_path, freq="h")
    lines(tmp_path / "test" / "d.json", [series(length=30), series(length=30, scale=2)])
    with pytest.raises(ValueError, match="'1' does not begin with its training series"):
        read_folder(tmp_path, freq="h")
    lines(tmp_path / "test" / "d.json", [series(length=30), series(length=31)])
    with pytest.raises(ValueError, match="give prediction_length and windows"):
        read_folder(tmp_path, freq="h")
    assert read_folder(tmp_path, freq="h", prediction_length=5, windows=2).windows == 2


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder or file"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no JSON lines"):
        read_folder(tmp_path, freq="h")
    (tmp_path / "metadata.json").write_text("{")
    with pytest.raises(ValueError, match=r"metadata.json: not readable as JSON"):
        read_folder(tmp_path)


def test_home_of_the_data(monkeypatch, tmp_path):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    assert data_home() == tmp_path
    lines(tmp_path / "own" / "train" / "d.json", [series()])
    (tmp_path / "own" / "metadata.json").write_text('{"freq": "h"}')
    assert load_task("own").name == "own"
    monkeypatch.delenv("TSFORECAST_DATA")
    assert data_home().name == ".tsforecast"
