"""`datasets/zeroshot.py`, on small files in the form in which users find the raw data."""

import dataclasses
import gzip
import json

import numpy as np
import pytest

from tests.data.test_datasets import script
from tsforecast.data import load_task
from tsforecast.data.task import instances

zeroshot = script("zeroshot")
TSF = """# Dataset Information
# Two series.
@relation Small
@attribute series_name string
@attribute start_timestamp date
@frequency monthly
@missing true
@data
T1:1998-01-01 00-00-00:1,?,3.5,4
T2:2001-02-01 00-00-00:5,6,7,8,9
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.fixture
def change(monkeypatch):
    """Gives a task of the benchmark other numbers, so that a small file stands for the whole."""

    def change(name, **changed):
        monkeypatch.setitem(zeroshot.TASKS, name, dataclasses.replace(zeroshot.TASKS[name], **changed))

    return change


def write_lines(path, *rows):
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def prepare(raw, name, home):
    zeroshot.main(["--raw", str(raw), "--tasks", name, "--out", str(home)])
    return load_task(f"zeroshot-{name}")


def labels(task):
    return [future["target"] for future in instances(task.test())[1]]


def test_a_file_of_the_monash_archive(raw, home, change):
    change("monash_cif_2016", series=2, horizon=2)
    (raw / "deeper").mkdir()
    (raw / "deeper" / "cif_2016_dataset.tsf").write_text(TSF)
    task = prepare(raw, "monash_cif_2016", home)
    assert (task.freq, task.prediction_length, task.windows) == ("M", 2, 1)
    assert [(e["item_id"], str(e["start"])) for e in task.entries] == [("T1", "1998-01"), ("T2", "2001-02")]
    np.testing.assert_array_equal(task.entries[0]["target"], [1, np.nan, 3.5, 4])
    np.testing.assert_array_equal(labels(task), [[3.5, 4], [8, 9]])


def test_exchange_is_tested_on_the_last_30_of_all_its_rows(raw, home):
    rows = np.arange(400.0).reshape(50, 8)
    np.savetxt(raw / "exchange_rate.txt", rows, delimiter=",", fmt="%.1f")
    task = prepare(raw, "exchange_rate", home)
    assert (task.freq, task.prediction_length, task.windows) == ("B", 30, 1)
    np.testing.assert_array_equal(labels(task), rows[20:].T)


@pytest.mark.parametrize(("name", "first", "unused"), [("ETTh", 76, 0), ("ETTm", 4, 72)])
def test_ett_is_tested_on_24_steps_and_of_quarters_on_the_first_of_a_day(raw, home, name, first, unused):
    for number in (1, 2):
        rows = [f"2016-07-01 00:00:00,{','.join(str(number * 1000 + step) for _ in range(7))}" for step in range(100)]
        (raw / f"{name}{number}.csv").write_text("\n".join(["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT", *rows]) + "\n")
    task = prepare(raw, name, home)
    expected = np.arange(first, first + 24)
    np.testing.assert_array_equal(labels(task), [1000 + expected] * 7 + [2000 + expected] * 7)
    assert [entry["item_id"] for entry in task.entries][6:8] == [f"{name}1-OT", f"{name}2-HUFL"]


def test_every_series_of_cif_is_forecast_for_twelve_months(raw, home, change):
    change("monash_cif_2016", series=2)
    rows = [{"item_id": f"ts{n}", "target": list(range(28)), "n_test": n} for n in (6, 12)]
    write_lines(raw / "cif_2016.jsonl.gz", *rows)
    assert [len(label) for label in labels(prepare(raw, "monash_cif_2016", home))] == [12, 12]


def test_yearly_m1_is_rounded_half_up_and_other_periods_are_left_out(raw, home, change):
    change("monash_m1_yearly", series=2)
    rows = [
        {"item_id": "a", "period": "YEARLY", "start": None, "target": [0.125, 2.5, 3.999, 1, 1, 1, 1]},
        {"item_id": "b", "period": "QUARTERLY", "start": "1990-01-01", "target": list(range(30))},
        {"item_id": "c", "period": "YEARLY", "start": "1972-01-01", "target": list(range(9))},
    ]
    write_lines(raw / "m1_all.jsonl.gz", *rows)
    task = prepare(raw, "monash_m1_yearly", home)
    assert [(e["item_id"], str(e["start"])) for e in task.entries] == [("a", "2000"), ("c", "1972")]
    np.testing.assert_array_equal(task.entries[0]["target"][:3], [0.13, 2.5, 4.0])


@pytest.mark.parametrize(("decimal", "start"), [(1982.0833, "1982-02"), (1984.9167, "1984-12"), (1.0, "2000-01")])
def test_monthly_m3_has_the_sign_that_the_benchmark_has(raw, home, change, decimal, start):
    change("monash_m3_monthly", series=2)
    target = [5.0] * 83 + [1200.0] + [5.0] * 12
    rows = [
        {"item_id": item, "period": "MONTHLY", "start_year_decimal": decimal, "target": target}
        for item in ("N2786", "N2787")
    ]
    write_lines(raw / "m3_all.jsonl.gz", *rows)
    task = prepare(raw, "monash_m3_monthly", home)
    assert [entry["target"][83] for entry in task.entries] == [-1200, 1200]
    assert [str(entry["start"]) for entry in task.entries] == [start, start]


def test_arrays_and_missing_values(raw, home, change):
    change("monash_hospital", series=2)
    values = np.arange(40, dtype=np.int32).reshape(2, 20)
    np.savez(raw / "hospital_monthly_767x84.npz", values=values, item_id=["a", "b"], start="2000-01-01", freq="M")
    np.testing.assert_array_equal(labels(prepare(raw, "monash_hospital", home)), values[:, 8:])
    change("monash_car_parts", series=1)
    write_lines(raw / "car_parts.jsonl.gz", {"item_id": "p", "target": [0, None, *range(18)], "start": "1998-01-01"})
    assert (
        np.isnan(prepare(raw, "monash_car_parts", home).entries[0]["target"]).tolist() == [False, True] + [False] * 18
    )


def test_the_checksum_is_of_values_whatever_the_file(raw, home, change, caplog):
    one, two = zeroshot.Series("a", "2000-01-01", np.array([1.0, np.nan])), zeroshot.Series("b", "", np.arange(3.0))
    assert zeroshot.digest([one, two]) == zeroshot.digest([two, one._replace(item="c")])
    assert zeroshot.digest([one, two]) != zeroshot.digest([one, two._replace(values=np.arange(3.0) + 1e-9)])
    (raw / "cif_2016_dataset.tsf").write_text(TSF)
    change("monash_cif_2016", series=2, horizon=2)
    prepare(raw, "monash_cif_2016", home)
    assert "the values of monash_cif_2016 are not those of experiments/zeroshot/results/zeroshot.csv" in caplog.text
    caplog.clear()
    known = zeroshot.digest(zeroshot.read_series(raw / "cif_2016_dataset.tsf"))
    change("monash_cif_2016", sha256=known)
    prepare(raw, "monash_cif_2016", home)
    assert "are not those" not in caplog.text


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "cif_2016_dataset.tsf",
            TSF + "T3:1,2\n",
            "cif_2016_dataset.tsf, line 11: expected 2 attributes and then values",
        ),
        ("cif_2016_dataset.tsf", TSF.replace("3.5", "x"), "line 9: expected numbers (could not convert"),
        ("cif_2016_dataset.tsf", TSF.split("T1")[0], "expected 2 series for monash_cif_2016, got 0"),
        ("cif_2016_dataset.tsf", TSF.replace("1,?,3.5,4", "1,2"), "expected more than 2 values"),
        ("cif_2016.jsonl", '{"item_id": "a"}\n', "line 1: expected an object with item_id and target"),
        ("cif_2016.jsonl", "[]\n", "line 1: expected an object with item_id and target"),
        ("cif_2016.jsonl", '{"item_id": "a", "target": [[1], 2]}\n', "line 1: expected numbers"),
        (
            "cif_2016_dataset.tsf",
            TSF.replace("2001-02-01", "soon"),
            "the start 'soon' of T2 is not a time stamp",
        ),
        ("cif_2016.jsonl.gz", b"\x1f\x8bnothing", "got a damaged file"),
        ("exchange_rate.txt", "1,2\n", "line 1: expected 8 columns, got 2"),
        ("exchange_rate.txt", "", "expected rows of numbers, got none"),
        ("hospital_monthly_767x84.npz", b"PK nothing", "expected an .npz file with values, item_id and start"),
    ],
)
def test_other_files_are_refused_in_one_sentence(raw, home, change, file, content, message):
    (raw / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    change("monash_cif_2016", series=2, horizon=2)
    name = {"e": "exchange_rate", "h": "monash_hospital"}.get(file[0], "monash_cif_2016")
    with pytest.raises(SystemExit) as ended:
        zeroshot.main(["--raw", str(raw), "--tasks", name, "--out", str(home)])
    text = str(ended.value.code)
    assert text.startswith(f"error: {raw / file}")
    assert message in text
    assert "\n" not in text
    assert not home.exists()


def test_what_is_missing_is_named_and_the_rest_is_prepared(raw, home, change):
    change("monash_cif_2016", series=2, horizon=2)
    (raw / "cif_2016_dataset.tsf").write_text(TSF)
    with pytest.raises(SystemExit, match=r"error: ETTh: below .* there is no ETTh1.csv and ETTh2.csv"):
        zeroshot.main(["--raw", str(raw), "--tasks", "ETTh", "monash_cif_2016", "--out", str(home)])
    assert [path.name for path in home.iterdir()] == ["zeroshot-monash_cif_2016"]
