"""Commands that are killed at any change of a file go on to the result of those that are not.

Moments are drawn by a seed, a few for each command; `TSFORECAST_KILLS=100 pytest tests/test_kills.py` takes more.
"""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tests.kills import Commands, Ended
from tsforecast.io.locks import lock_folder

KILLS = int(os.environ.get("TSFORECAST_KILLS", "3"))
EPOCHS = ["--batch_size=2", "--num_batches_per_epoch=3", "--accelerator=cpu", "--threads=1"]
QUICK = ["--components=level+day_of_week", "--learning_rate=3", "--seed=1", *EPOCHS]
# The second epoch is the best, the third better than the first: a run that forgets the second takes the third.
VALIDATED = ["--validation", "--max_epochs=4"]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    server = Commands(tmp_path_factory.mktemp("server") / "said")
    yield server
    server.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[object]:
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=60, freq="D")
    season = 10 * (days.dayofweek.to_numpy() >= 5)
    frames = [
        pd.DataFrame({"item_id": f"shop {k}", "timestamp": days, "sales": 50 + 20 * k + season + rng.normal(size=60)})
        for k in range(2)
    ]
    path = tmp_path_factory.mktemp("data") / "sales.csv"
    pd.concat(frames).to_csv(path, index=False)
    return ["--data", path, "--target", "sales", "--prediction_length", 7, "--windows", 2]


@pytest.fixture(scope="module")
def trained(commands, data, tmp_path_factory) -> tuple[Path, Ended]:
    run = tmp_path_factory.mktemp("runs") / "whole"
    ended = commands.run("train", "issm", *data, *QUICK, *VALIDATED, "--output", run, folder=run)
    assert ended.status == 0, ended.said
    return run, ended


def moments(changes: list[str], seed: int) -> list[int]:
    """Some of the changes, spread over all of them."""
    count = min(KILLS, len(changes))
    parts = np.array_split(np.arange(1, len(changes) + 1), count)
    return [int(np.random.default_rng(seed).choice(part)) for part in parts]


def kill(commands: Commands, *argv: object, folder: Path, moment: int, names: tuple[str, ...] = ()) -> None:
    ended = commands.run(*argv, folder=folder, moment=moment, names=names)
    assert ended.status == -signal.SIGKILL, ended.said


def again(commands: Commands, start: list[object], resume: list[object], folder: Path) -> None:
    """As a user goes on: by --resume, and where that says that nothing has begun by the same command."""
    ended = commands.run(*resume, folder=folder)
    if ended.status:
        assert "no run folder" in ended.said or "start it again" in ended.said, ended.said
        ended = commands.run(*start, folder=folder)
    assert ended.status == 0, ended.said
    assert "Traceback" not in ended.said


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


def assert_same_training(run: Path, whole: Path) -> None:
    found, expected = contents(run), contents(whole)
    assert found.keys() == expected.keys()
    for name in expected:
        if name.startswith("predictor") or name == "metrics.csv":
            assert found[name] == expected[name], name
    for name in ("best.ckpt", "last.ckpt"):
        mine, its = (weights(folder / "checkpoints" / name) for folder in (run, whole))
        assert all(torch.equal(mine[key], its[key]) for key in its), name


def test_the_best_epoch_is_remembered_by_the_one_after_it(commands, data, trained, tmp_path):
    whole, _ = trained
    losses = pd.read_csv(whole / "metrics.csv")["val_loss"]
    assert losses.idxmin() == 1
    assert losses[2] < losses[0]
    run = tmp_path / "run"
    start = ["train", "issm", *data, *QUICK, *VALIDATED, "--output", run]
    kill(commands, *start, folder=run, moment=3, names=("last.ckpt",))  # just before that of the third epoch
    again(commands, start, ["train", "--resume", run], run)
    assert_same_training(run, whole)


def test_a_training_that_is_killed(commands, data, trained, tmp_path):
    whole, ended = trained
    for moment in moments(ended.changes, 0):
        run = tmp_path / f"run{moment}"
        start = ["train", "issm", *data, *QUICK, *VALIDATED, "--output", run]
        kill(commands, *start, folder=run, moment=moment)
        again(commands, start, ["train", "--resume", run], run)
        assert_same_training(run, whole)


def test_a_report_is_of_one_call(commands, trained, tmp_path):
    """Killed while it writes, `evaluate` leaves the old report or the new one, or one that says it is not complete."""
    run, reports = tmp_path / "run", []
    shutil.copytree(trained[0], run)
    common = ["evaluate", run, "--baselines=none", "--num_samples=4"]
    old, new = [*common, "--seed=1", "--plot_series=1"], [*common, "--seed=2", "--plot_series=0"]
    for command, name in ((old, "old"), (new, "new")):
        ended = commands.run(*command, folder=run)
        assert ended.status == 0, ended.said
        reports.append(contents(run))
        shutil.copytree(run, tmp_path / name)
    assert reports[0]["scores.json"] != reports[1]["scores.json"]
    assert {name for name in reports[0] if name.startswith("plots")}
    assert not {name for name in reports[1] if name.startswith("plots")}
    for moment in moments(ended.changes, 1)[::2]:  # each costs three commands
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "old", run)
        kill(commands, *new, folder=run, moment=moment)
        left = {name: text for name, text in contents(run).items() if not name.startswith(".")}
        assert left in reports or "scores.json" not in left
        ended = commands.run("compare", run, "--output", tmp_path / "page.html", folder=run)
        assert ended.status == 0, ended.said
        left = {name: text for name, text in contents(run).items() if not name.startswith(".")}
        assert left in reports
        assert commands.run(*new, folder=run).status == 0
        assert contents(run) == reports[1]


def test_a_stream_that_is_killed(commands, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "target"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["vd-ekf", "--hidden=4", "--save_every=20", "--data", tmp_path / "t.csv"]
    whole = tmp_path / "whole"
    ended = commands.run("stream", *options, "--output", whole, folder=whole)
    assert ended.status == 0, ended.said
    for moment in moments(ended.changes, 2):
        run = tmp_path / f"run{moment}"
        start = ["stream", *options, "--output", run]
        kill(commands, *start, folder=run, moment=moment)
        again(commands, start, ["stream", "--resume", run], run)
        tables = [pd.read_csv(folder / "items.csv").drop(columns="milliseconds") for folder in (run, whole)]
        pd.testing.assert_frame_equal(*tables)
        scores = [json.loads((folder / "scores.json").read_text()) for folder in (run, whole)]
        assert scores[0] | {"milliseconds_per_item": 0} == scores[1] | {"milliseconds_per_item": 0}
        assert contents(run).keys() | {"config.yaml"} == contents(whole).keys()


def test_an_optimisation_that_is_killed(commands, tmp_path):
    options = ["branin", "--hidden=5", "--evaluations=12"]
    whole = tmp_path / "whole"
    ended = commands.run("optimise", *options, "--output", whole, folder=whole)
    assert ended.status == 0, ended.said
    for moment in moments(ended.changes, 3)[::2]:
        run = tmp_path / f"run{moment}"
        start = ["optimise", *options, "--output", run]
        kill(commands, *start, folder=run, moment=moment)
        again(commands, start, ["optimise", "--resume", run], run)
        tables = [pd.read_csv(folder / "evaluations.csv").drop(columns="seconds") for folder in (run, whole)]
        pd.testing.assert_frame_equal(*tables)
        assert contents(run).keys() | {"config.yaml"} == contents(whole).keys()


def test_policies_that_are_killed(commands, tmp_path):
    options = ["CartPole-v1", "--particles=2", "--episodes=2", "--horizon=5", "--hidden=3", "--iterations=3"]
    whole = tmp_path / "whole"
    ended = commands.run("policy", *options, "--output", whole, folder=whole)
    assert ended.status == 0, ended.said
    for moment in moments(ended.changes, 4)[::2]:
        run = tmp_path / f"run{moment}"
        start = ["policy", *options, "--output", run]
        kill(commands, *start, folder=run, moment=moment)
        again(commands, start, ["policy", "--resume", run], run)
        tables = [pd.read_csv(folder / "returns.csv").drop(columns="seconds") for folder in (run, whole)]
        pd.testing.assert_frame_equal(*tables)
        assert contents(run).keys() | {"config.yaml"} == contents(whole).keys()


def test_a_search_that_is_killed(commands, data, tmp_path):
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({"learning_rate": {"low": 0.01, "high": 1.0, "log": True}}))
    start = [
        "tune",
        "issm",
        *data,
        *EPOCHS,
        "--components=level",
        "--max_epochs=1",
        "--learning_rate=0.3",
        "--trials=2",
    ]
    start += ["--space", tmp_path / "space.yaml", "--study"]
    whole = tmp_path / "whole"
    ended = commands.run(*start, whole, folder=whole)
    assert ended.status == 0, ended.said
    expected = pd.read_csv(whole / "trials.csv").drop(columns=["trial", "seconds"])
    assert expected["learning_rate"][0] == 0.3  # what the options say comes first
    for moment in moments(ended.changes, 3):
        study = tmp_path / f"study{moment}"
        kill(commands, *start, study, folder=study, moment=moment)
        ended = commands.run(*start, study, folder=study)
        assert ended.status == 0, ended.said
        found = pd.read_csv(study / "trials.csv").drop(columns=["trial", "seconds"])
        pd.testing.assert_frame_equal(found, expected)
        assert (study / "best.yaml").read_bytes() == (whole / "best.yaml").read_bytes()
        assert contents(study).keys() == contents(whole).keys()


def test_two_processes_in_one_folder(commands, data, tmp_path):
    run = tmp_path / "run"
    with lock_folder(run):
        ended = commands.run("train", "issm", *data, *QUICK, "--output", run, folder=run)
        assert ended.status == 2
        assert f"error: {run} is in use by process {os.getpid()} on" in ended.said
        assert [path.name for path in run.iterdir()] == [".lock"]


def test_buckets_that_are_killed(commands, tmp_path):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=20, freq="D")
    for number in range(2):
        parts = [pd.DataFrame({"item": f"{number} {k}", "day": days, "y": rng.normal(size=20)}) for k in range(4)]
        pd.concat(parts).to_csv(tmp_path / f"{number}.csv", index=False)
    start = ["bucket", tmp_path / "*.csv", "--buckets", 3]
    whole = tmp_path / "whole"
    ended = commands.run(*start, whole, folder=whole)
    assert ended.status == 0, ended.said
    for moment in moments(ended.changes, 5):
        out = tmp_path / f"out{moment}"
        kill(commands, *start, out, folder=out, moment=moment)
        assert commands.run(*start, out, folder=out).status == 0
        assert contents(out) == contents(whole)
    run, few = tmp_path / "run", ["--windows=0", "--prediction_length=2", "--max_epochs=1", *QUICK]
    assert commands.run("train", "issm", "--data", whole, *few, "--output", run, folder=run).status == 0
    predict, done = ["predict", run, "--data", whole, "--device=cpu", "--output"], tmp_path / "forecasts"
    ended = commands.run(*predict, done, folder=done)
    assert ended.status == 0, ended.said
    for moment in moments(ended.changes, 6):
        out = tmp_path / f"forecasts{moment}"
        kill(commands, *predict, out, folder=out, moment=moment)
        assert commands.run(*predict, out, folder=out).status == 0
        assert contents(out) == contents(done)
