"""`tsforecast bucket`, and the commands that take its folder."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main
from tsforecast.data import sources as table_module

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    frame = pd.concat(
        [pd.DataFrame({"shop": f"{k}", "day": days, "sales": 50 + k + rng.normal(size=60)}) for k in range(7)]
    )
    path = tmp_path_factory.mktemp("data") / "sales.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def folder(table):
    out = table.parent / "buckets"
    assert main(["bucket", str(table), str(out), "--buckets", "3", "--quiet"]) == 0
    return out


def test_commands_take_the_folder_as_data(folder, table, tmp_path, capsys):
    few = ["--prediction_length=7", "--windows=2", "--max_epochs=1", "--batch_size=4", "--num_batches_per_epoch=1"]
    found = {}
    for name, data in (("table", table), ("buckets", folder)):
        run = str(tmp_path / name)
        assert main(["train", "issm", "--data", str(data), *few, "--output", run, "--accelerator=cpu"]) == 0
        assert main(["evaluate", run, "--baselines=none", "--plot_series=0", "--device=cpu"]) == 0
        for other, source in (("own", []), ("table", ["--data", str(table)]), ("buckets", ["--data", str(folder)])):
            out = tmp_path / f"{name}-{other}.csv"
            assert main(["predict", run, *source, "--output", str(out), "--device=cpu"]) == 0
            read = pd.read_csv(out).rename(columns={"shop": "item_id", "day": "timestamp"})
            found[name, other] = read.sort_values(["item_id", "timestamp"], ignore_index=True)
    for name in ("table", "buckets"):
        assert len(found[name, "own"]) == 7 * 7
        for other in ("table", "buckets"):
            # Batches have other series beside each other, which moves the last digits of float32.
            pd.testing.assert_frame_equal(found[name, other], found[name, "own"], rtol=1e-5)


def test_what_is_wrong_is_said_in_a_line(folder, table, tmp_path, capsys):
    out = str(tmp_path / "out")
    for arguments, message in (
        ([str(tmp_path / "*.csv"), out], "there is no file"),
        ([str(table), out, "--buckets", "0"], "--buckets: expected at least 1"),
        ([str(table), out, "--holidays", "US"], "--holidays goes with training and prediction"),
        ([str(table), out, "--target", "sale"], "did you mean 'sales'?"),
        ([str(table), str(folder), "--buckets", "4"], "was begun with other --buckets"),
        ([str(table), str(table.parent)], "holds no buckets; give a new folder"),
    ):
        assert main(["bucket", *arguments]) == 2
        told = capsys.readouterr().err.strip().split("\n")[-1]
        assert told.startswith("error: ")
        assert message in told
        assert "Traceback" not in told


def test_a_run_of_another_data_set_does_not_take_the_folder(folder, tmp_path, capsys):
    days = pd.date_range("2024-01-01", periods=60, freq="h")
    frame = pd.DataFrame({"item_id": "a", "timestamp": days, "heat": np.arange(60.0)})
    frame.to_csv(tmp_path / "heat.csv", index=False)
    run, few = str(tmp_path / "run"), ["--windows=0", "--max_epochs=1", "--num_batches_per_epoch=1"]
    assert main(["train", "issm", "--data", str(tmp_path / "heat.csv"), *few, "--output", run]) == 0
    assert main(["predict", run, "--data", str(folder), "--output", str(tmp_path / "f.csv")]) == 2
    assert "there is no column 'heat' among its targets, which are 'sales'" in capsys.readouterr().err


def test_the_survey_names_its_inputs(folder, table):
    source = json.loads((folder / "survey.json").read_text())["source"]
    assert [name for name, *_ in source["inputs"]] == [str(table.resolve())]
    assert source["buckets"] == 3


def test_a_folder_too_large_to_keep_is_trained_on_bucket_by_bucket(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_module, "MOST_KEPT", 10)
    few = ["--prediction_length=7", "--windows=2", "--max_epochs=2", "--batch_size=4", "--num_batches_per_epoch=2"]
    run, other = str(tmp_path / "run"), str(tmp_path / "other")
    for name in (run, other):
        command = ["train", "issm", "--data", str(folder), *few, "--accelerator=cpu", "--validation", "--output", name]
        assert main(command) == 0
    assert "420 rows are read bucket by bucket" in capsys.readouterr().err
    records = [json.loads((Path(name) / "run.json").read_text()) for name in (run, other)]
    assert [record["series"] for record in records] == [7, 7]
    assert records[0]["fingerprint"] == records[1]["fingerprint"]
    losses = [pd.read_csv(Path(name) / "metrics.csv") for name in (run, other)]
    pd.testing.assert_frame_equal(*losses)
    assert main(["evaluate", run, "--baselines=none", "--plot_series=1", "--device=cpu"]) == 0
    assert main(["predict", run, "--output", str(tmp_path / "found.csv"), "--device=cpu"]) == 0
    assert len(pd.read_csv(tmp_path / "found.csv")) == 7 * 7


def test_auto_chooses_by_a_sample_of_such_a_folder(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_module, "MOST_KEPT", 10)
    options = ["--prediction_length=7", "--windows=2", "--max_epochs=1", "--models=issm", "--time_budget=0.1"]
    run = tmp_path / "run"
    assert main(["train", "auto", "--data", str(folder), *options, "--accelerator=cpu", "--output", str(run)]) == 0
    assert json.loads((run / "run.json").read_text())["selection"]["chosen"].startswith("issm")
