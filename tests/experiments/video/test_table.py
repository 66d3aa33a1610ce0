"""The table of models of video: a line for every run, over interruptions."""

import csv
import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.data.test_datasets import script

pytestmark = pytest.mark.usefixtures("unchecked_module")

FOLDER = Path(__file__).resolve().parents[3]
TINY = {"filters": 2, "state_dim": 3, "hidden": 4, "num_bases": 2, "num_particles": 2, "batch_size": 4}


@pytest.fixture(scope="module")
def modules():
    """By the path under which the table calls them."""
    names = ("train", "evaluate")
    found = {f"experiments/video/{name}.py": importlib.import_module(f"experiments.video.{name}") for name in names}
    return found | {"datasets/video.py": script("video")}


@pytest.fixture
def table(modules, tmp_path, monkeypatch):
    """The module, its calls in this process, and a folder for what it writes."""
    spec = importlib.util.spec_from_file_location("video_table", FOLDER / "experiments" / "video" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    calls = []

    def call(arguments):
        calls.append(arguments)
        try:
            modules[arguments[0]].main(arguments[1:])
        except SystemExit as error:
            raise RuntimeError(f"{arguments} failed: {error}") from error

    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(module, "call", call)
    monkeypatch.setattr(
        module,
        "SETTINGS",
        {"small": {"": TINY, "kvae-rb": {"memory_dim": 3}, "arsgls": {"switch_dim": 2, "num_particles": 1}}},
    )
    module.calls = calls
    modules["datasets/video.py"].main(["box", "--sequences", "8", "--test-sequences", "3"])
    return module


def run(module, monkeypatch, folder, *options):
    monkeypatch.setattr(
        sys, "argv", ["video.py", "--output", str(folder / "video.csv"), "--runs", str(folder), *options]
    )
    module.main()
    with (folder / "video.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_run_has_a_line_and_is_done_once(table, tmp_path, monkeypatch, capfd):
    options = ["--datasets", "box", "--models", "kvae-rb", "arsgls", "--budget", "1"]
    options += ["--evaluation", "--samples 1 --sequences 2 --floor-samples 1"]
    rows = run(table, monkeypatch, tmp_path, *options)
    assert [(row["dataset"], row["model"], row["recipe"], row["seed"]) for row in rows] == [
        ("box", "kvae-rb", "small", "0"),
        ("box", "arsgls", "small", "0"),
    ]
    for row in rows:
        assert all(value != "" for name, value in row.items() if name != "commit"), row
        assert float(row["train_s"]) >= 1 == float(row["budget_s"])
        assert (int(row["test_sequences"]), int(row["samples"])) == (2, 1)
        folder = tmp_path / f"box-{row['model']}-small-1-0"
        scores = json.loads((folder / "video_scores.json").read_text())
        assert float(row["wasserstein"]) == pytest.approx(scores["scores"]["all"]["wasserstein"], abs=1e-4)
        assert float(row["expected_iou"]) == pytest.approx(scores["expected"]["all"]["iou"], abs=1e-4)
        assert float(row["last_frame"]) == pytest.approx(scores["last frame"]["all"]["wasserstein"], abs=1e-4)
        with (folder / "video_horizon.csv").open(newline="") as stream:
            horizon = {line["horizon"]: line for line in csv.DictReader(stream) if line["model"] == row["model"]}
        for step in ("1", "5", "10", "20", "40"):
            for name in ("wasserstein", "expected_wasserstein"):
                assert float(row[f"{name}_{step}"]) == pytest.approx(float(horizon[step][name]), abs=1e-4)
        words = row["command"].split()
        assert words[:2] == ["python", "experiments/video/train.py"]
        assert words.count("--num_particles") == 1
        assert words[words.index("--num_particles") + 1] == {"kvae-rb": "2", "arsgls": "1"}[row["model"]]
        assert words[words.index("--max_minutes") + 1] == "0.0166667"
    printed = capfd.readouterr().out + capfd.readouterr().err
    assert "kvae-rb" in printed
    assert "true physics" in printed
    before = len(table.calls)
    assert run(table, monkeypatch, tmp_path, *options) == rows  # nothing is left to do
    assert len(table.calls) == before
    # A run whose scores are not in the table yet is gone on with, and one that fails does not stop the others.
    (tmp_path / "video.csv").unlink()
    (tmp_path / "box-kvae-rb-small-1-0" / "run.json").write_text("damaged")
    with pytest.raises(SystemExit, match="1 of 2 runs failed"):
        run(table, monkeypatch, tmp_path, *options)
    assert [arguments[:2] for arguments in table.calls[before:]][:2] == [["experiments/video/train.py", "--resume"]] * 2
    with (tmp_path / "video.csv").open(newline="") as stream:
        again = list(csv.DictReader(stream))
    assert [(row["model"], row["train_s"], row["wasserstein"]) for row in again] == [
        (row["model"], row["train_s"], row["wasserstein"]) for row in rows[1:]
    ]
