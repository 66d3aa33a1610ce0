"""Training and evaluation of models of video by their scripts, on small frames."""

import csv
import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback

from tsforecast.data import physics
from tsforecast.data.video import load_video, make_video

FOLDER = Path(__file__).resolve().parent.parent / "scripts"
TINY = (
    "--filters 2 --state_dim 3 --hidden 4 --num_bases 2 --num_particles 2 --batch_size 4 --threads 1 --accelerator cpu"
)
MODELS = ["arsgls", "kvae-rb", "kvae-mc"]


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """Scripts import each other as Python finds them beside the one that is run."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def training():
    return importlib.import_module("video_train")


@pytest.fixture(scope="module")
def evaluation():
    return importlib.import_module("video_evaluate")


@pytest.fixture(scope="module")
def runs_module():
    return importlib.import_module("video_runs")


def make_frames(sequences=12, steps=24, grey=False):
    """A square that goes to the right, and round."""
    frames = np.zeros((sequences, steps, 8, 16), np.float32 if grey else np.bool_)
    for sequence in range(sequences):
        for step in range(steps):
            frames[sequence, step, 3:5, (np.arange(3) + sequence + step) % 16] = 0.5 if grey else True
    return frames


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "my.npz"
    np.savez_compressed(path, frames=make_frames())
    return path


def train(training, data, folder, model="kvae-rb", *options, epochs=2):
    arguments = [model, "--data", str(data), "--output", str(folder), "--max_epochs", str(epochs), *TINY.split()]
    arguments += ["--switch_dim", "2"] if model == "arsgls" else ["--memory_dim", "3"]
    return training.main([*arguments, *options])


@pytest.fixture(scope="module", params=MODELS)
def trained(request, training, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / f"my-{request.param}"
    assert train(training, data, folder, request.param) == 0
    return request.param, folder


def test_a_run_is_scored_and_drawn(trained, evaluation, capsys):
    model, folder = trained
    evaluation.main([str(folder), "--samples", "3", "--device", "cpu"])
    summary = json.loads((folder / "video_scores.json").read_text())
    assert summary["model"] == model
    assert summary["sequences"] == 2  # the last sixth
    assert "last frame" in summary
    assert "true physics" not in summary
    for part in ("all", "near", "far"):
        assert 0 <= summary["scores"][part]["wasserstein"] <= np.hypot(7, 15)
    with (folder / "video_horizon.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["model"] for row in rows} == {model, "last frame"}
    assert [int(row["horizon"]) for row in rows[:4]] == [1, 2, 3, 4]
    assert (folder / "film.gif").read_bytes()[:6] in (b"GIF87a", b"GIF89a")
    assert (folder / "film.png").read_bytes()[:4] == b"\x89PNG"
    assert not (folder / "switches.png").exists()  # no collisions are known


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(training, data, tmp_path, runs_module, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(training, data, whole, "arsgls", epochs=3) == 0
    fit = training.fit

    def interrupt(trainer, module):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt

    def stop(model, loader, validation, options, checkpoint=None):
        callbacks = [*options["callbacks"], LambdaCallback(on_train_epoch_start=interrupt)]
        fit(model, loader, validation, {**options, "callbacks": callbacks}, checkpoint)

    monkeypatch.setattr(training, "fit", stop)
    assert train(training, data, stopped, "arsgls", epochs=3) == 130
    with pytest.raises(ValueError, match="no finished run"):
        runs_module.load_model(stopped)
    monkeypatch.setattr(training, "fit", fit)
    assert training.main(["--resume", str(stopped)]) == 0
    models = [runs_module.load_model(folder)[0] for folder in (whole, stopped)]
    for (name, a), b in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
    assert training.main(["--resume", str(whole)]) == 0  # is finished already


def test_missing_frames_are_hidden_from_the_model(trained, evaluation, runs_module):
    _, folder = trained
    model, record = runs_module.load_model(folder)
    _, video = runs_module.find_video(None, record["data"], "test")
    hidden = evaluation.hide(video, 0.5, 0)
    assert hidden.observed[:, [0, 19]].all()
    assert 0.2 < 1 - hidden.observed[:, 1:19].mean() < 0.8
    frames = video.frames.copy()
    frames[~hidden.observed] = ~frames[~hidden.observed]  # what is hidden must not matter
    other = type(video)(frames, hidden.observed, {}, {})
    one, two = (
        np.stack(list(evaluation.futures(model, shown, 2, torch.Generator().manual_seed(0))))
        for shown in (hidden, other)
    )
    assert np.array_equal(one, two)


def test_several_runs_of_one_model_are_drawn_beside_each_other(trained, evaluation, tmp_path, monkeypatch):
    _, folder = trained
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    drawn = []
    plot = evaluation.horizon_plot
    monkeypatch.setattr(
        evaluation, "horizon_plot", lambda table, **options: drawn.append(table) or plot(table, **options)
    )
    picture = tmp_path / "both.png"
    evaluation.main([str(folder), str(other), "--samples", "2", "--device", "cpu", "--output", str(picture)])
    assert set(drawn[0]["model"]) == {folder.name, "other", "last frame"}
    assert drawn[0].groupby(["model", "horizon"]).size().eq(1).all()
    assert picture.exists()


def test_grey_frames_have_a_gaussian_decoder(training, evaluation, tmp_path):
    path = tmp_path / "grey.npz"
    np.savez_compressed(path, frames=make_frames(grey=True))
    assert train(training, path, tmp_path / "run", "kvae-rb", "--likelihood", "gaussian", epochs=1) == 0
    evaluation.main([str(tmp_path / "run"), "--samples", "2", "--device", "cpu", "--missing", "0.3"])
    assert json.loads((tmp_path / "run" / "video_scores.json").read_text())["missing"] == 0.3


def test_worlds_have_true_physics_as_floor(training, evaluation, tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    sys.path.insert(0, str(FOLDER.parent / "datasets"))
    try:
        importlib.import_module("video").main(["box", "--sequences", "8", "--test-sequences", "4"])
    finally:
        sys.path.pop(0)
    folder = tmp_path / "run"
    options = ["kvae-rb", "--dataset", "box", "--output", str(folder), "--max_epochs", "1", *TINY.split()]
    assert training.main([*options, "--memory_dim", "3"]) == 0
    evaluation.main([str(folder), "--samples", "2", "--device", "cpu", "--floor-samples", "2"])
    summary = json.loads((folder / "video_scores.json").read_text())
    physics, still = (summary[name]["all"]["wasserstein"] for name in ("true physics", "last frame"))
    assert physics < 3 < still
    assert set(summary["probe"]) == {f"r2_{axis}_{name}" for axis in "xy" for name in ("auxiliary", "state")}
    assert (folder / "switches.png").exists()


def test_physics_from_exact_states_is_the_truth(evaluation, monkeypatch):
    simulation = physics.simulate_sequences("box", 3, 30, 0)
    truths = {name: getattr(simulation, name) for name in ("position", "velocity", "paddles", "collision")}
    video = make_video(simulation.frames, truths=truths, metadata={"world": "box"})
    monkeypatch.setattr(evaluation, "POSITION_ERROR", 0.0)
    monkeypatch.setattr(evaluation, "VELOCITY_ERROR", 0.0)
    found = evaluation.floors(video, 1, 1)["true physics"]
    assert found.wasserstein.shape == (3, 10)
    assert np.median(found.wasserstein) == 0
    assert found.wasserstein.max() < 0.2  # a ball that overlaps a wall by a rounding is moved out of it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a model"),
        (["arsgls"], "expected either --dataset or --data"),
        (["arsgls", "--dataset", "moon"], "one of box, box-gravity, polygon, pong, got 'moon'"),
        (["arsgls", "--data", "nowhere.npz"], "there is no file nowhere.npz"),
        (["--resume", "nowhere"], "there is no run folder nowhere"),
    ],
)
def test_bad_arguments_of_training(training, arguments, message):
    with pytest.raises(SystemExit, match=message):
        training.main(arguments)


def test_bad_arguments_of_evaluation(evaluation, trained, tmp_path, data, capsys):
    _, folder = trained
    with pytest.raises(SystemExit, match="there is no run folder"):
        evaluation.main([str(tmp_path / "nowhere")])
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "checkpoints" / "last.ckpt").write_bytes(b"no checkpoint")
    with pytest.raises(SystemExit, match="is not a readable checkpoint"):
        evaluation.main([str(damaged)])
    with pytest.raises(SystemExit):
        evaluation.main([str(folder), "--missing", "1"])
    assert "--missing to be at least 0 and below 1" in capsys.readouterr().err


def test_what_fails_at_once_leaves_no_folder(training, data, tmp_path):
    with pytest.raises(SystemExit, match="state_dim to be at least 1"):
        train(training, data, tmp_path / "run", "arsgls", "--state_dim", "0")
    assert not (tmp_path / "run").exists()


def test_frames_that_changed_since_a_run_began_are_noticed(training, tmp_path):
    path, folder = tmp_path / "my.npz", tmp_path / "run"
    np.savez_compressed(path, frames=make_frames())
    assert train(training, path, folder, epochs=1) == 0
    record = json.loads((folder / "run.json").read_text())
    del record["finished"]
    (folder / "run.json").write_text(json.dumps(record))
    np.savez_compressed(path, frames=make_frames()[::-1])
    assert load_video(path).checksum != record["checksum"]
    with pytest.raises(SystemExit, match="frames have changed"):
        training.main(["--resume", str(folder)])
