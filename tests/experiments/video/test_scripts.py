"""Training and evaluation of models of video by their scripts, on small frames."""

import csv
import functools
import importlib
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback, timer

from experiments.video import physics
from experiments.video.data import load_video, make_video, save_video
from experiments.video.scores import FrameScores

pytestmark = pytest.mark.usefixtures("unchecked_module")

FOLDER = Path(__file__).resolve().parents[3]
TINY = (
    "--filters 2 --state_dim 3 --hidden 4 --num_bases 2 --num_particles 2 --batch_size 4 --threads 1 --accelerator cpu"
)
MODELS = ["arsgls", "kvae-rb", "kvae-mc"]


@pytest.fixture(scope="module")
def training():
    """The module; its parser is made once."""
    module = importlib.import_module("experiments.video.train")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "parser", functools.cache(module.parser))
        yield module


@pytest.fixture(scope="module")
def evaluation():
    return importlib.import_module("experiments.video.evaluate")


@pytest.fixture(scope="module")
def costs():
    return importlib.import_module("experiments.video.costs")


@pytest.fixture(scope="module")
def forecasting():
    return importlib.import_module("experiments.video.frames")


@pytest.fixture(scope="module")
def runs_module():
    return importlib.import_module("experiments.video.trained")


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
    arguments = [model, "--data", str(data), "--output", str(folder), *TINY.split()]
    arguments += [] if epochs is None else ["--max_epochs", str(epochs)]
    arguments += ["--switch_dim", "2"] if model == "arsgls" else ["--memory_dim", "3"]
    return training.main([*arguments, *options])


@pytest.fixture(scope="module", params=MODELS)
def trained(request, training, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / f"my-{request.param}"
    assert train(training, data, folder, request.param) == 0
    return request.param, folder


def test_a_run_is_scored_and_drawn(trained, evaluation, capsys):
    model, folder = trained
    evaluation.main([str(folder), "--samples", "3", "--device", "cpu", "--workers", "1"])
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
    assert {"forecast", "transport", "drawing", "floors"} <= set(summary["seconds"])
    frames = 2 * 4 * 3
    # Seconds are rounded to hundredths.
    assert frames / summary["frames_per_second"] == pytest.approx(summary["seconds"]["forecast"], abs=0.0051)
    assert 100 < summary["peak_mib"] < 10_000
    evaluation.main([str(folder), "--samples", "3", "--device", "cpu", "--workers", "1"])
    again = json.loads((folder / "video_scores.json").read_text())
    assert all(again[name] == summary[name] for name in ("scores", "expected", "probe"))
    assert "imputation" not in summary
    assert not (folder / "imputation.png").exists()
    assert (folder / "film.gif").read_bytes()[:6] in (b"GIF87a", b"GIF89a")
    assert (folder / "film.png").read_bytes()[:4] == b"\x89PNG"
    assert not (folder / "switches.png").exists()  # no collisions are known


def test_a_run_tells_what_it_cost(trained):
    _, folder = trained
    record = json.loads((folder / "run.json").read_text())
    assert record["iterations"] == 2 * 3  # batches of 4, 4 and 2 sequences
    rate, seconds = record["frames_per_second"], record["seconds"]  # rounded to a tenth
    assert rate * seconds == pytest.approx(2 * 10 * 20, abs=0.051 * (rate + seconds))
    assert 100 < record["peak_mib"] < 10_000


class Clock:
    """A second for every batch of training."""

    def __init__(self, monkeypatch, training):
        self.now = 0.0
        fit = training.fit

        def pass_second(*_):
            self.now += 1

        def stop(trainer, module):
            if trainer.current_epoch == self.stop_at:
                self.now += 100  # while nothing runs
                raise KeyboardInterrupt

        def timed(model, loader, validation, options, checkpoint=None):
            extra = LambdaCallback(on_train_batch_end=pass_second, on_train_epoch_start=stop)
            return fit(model, loader, validation, {**options, "callbacks": [extra, *options["callbacks"]]}, checkpoint)

        self.stop_at = None
        monkeypatch.setattr(training, "fit", timed)
        monkeypatch.setattr(timer, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_training_for_a_time_ends_with_it_over_interruptions(training, data, tmp_path, monkeypatch):
    clock = Clock(monkeypatch, training)
    options = ("--max_minutes", str(10 / 60))
    assert train(training, data, tmp_path / "whole", "arsgls", *options, epochs=None) == 0
    clock.stop_at = 2
    assert train(training, data, tmp_path / "stopped", "arsgls", *options, epochs=None) == 130
    clock.stop_at = None
    assert training.main(["--resume", str(tmp_path / "stopped")]) == 0
    checkpoints = []
    for name in ("whole", "stopped"):
        record = json.loads((tmp_path / name / "run.json").read_text())
        assert record["iterations"] == 10  # of which three are an epoch
        assert record["seconds"] == 10
        assert record["frames_per_second"] == (3 * 10 + 4) * 20 / 10
        checkpoints.append(torch.load(tmp_path / name / "checkpoints" / "last.ckpt", weights_only=True))
        for group in checkpoints[-1]["optimizer_states"][0]["param_groups"]:
            assert group["initial_lr"] == 2e-3
            assert group["lr"] == pytest.approx(2e-3 * 0.01**0.9)  # in the last of ten batches nine seconds are gone
    for (name, a), b in zip(checkpoints[0]["state_dict"].items(), checkpoints[1]["state_dict"].values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


def test_seconds_are_those_of_the_innermost_name(costs, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(costs, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait(seconds):
        now[0] += seconds

    def items():
        for number in range(3):
            wait(1)
            yield number
        wait(5)

    watch = costs.Stopwatch()
    wait(50)
    with watch.on("outer"):
        wait(2)
        for number in watch.over("inner", items()):
            wait(10 * (number + 1))
    wait(50)
    with pytest.raises(TypeError), watch.on("outer"):
        wait("what cannot be waited")
    wait(50)
    assert watch.seconds == {"outer": 2 + 60, "inner": 3 + 5}


def test_peak_memory_grows_with_what_is_held(costs):
    cpu = torch.device("cpu")
    before = costs.peak_memory(cpu)
    held = np.ones((300, 2**17))  # a MiB each
    grown = costs.peak_memory(cpu)
    assert held.nbytes == 300 * 2**20
    assert 300 < grown < before + 310
    del held
    assert costs.peak_memory(cpu) > grown - 1  # the kernel counts roughly


def test_a_profile_is_written_where_asked_for(training, data, tmp_path):
    assert train(training, data, tmp_path / "run", "kvae-rb", "--profile", "parts", epochs=1) == 0
    (report,) = (tmp_path / "run").glob("*profile*.txt")
    assert "run_training_batch" in report.read_text()


@pytest.mark.parametrize(
    ("world", "options", "size"), [("pong", "", 6), ("box", "", 2), ("pong", "--auxiliary_dim 3", 3)]
)
def test_the_size_of_the_auxiliary_follows_from_the_data(training, runs_module, tmp_path, world, options, size):
    path, folder = tmp_path / "my.npz", tmp_path / "run"
    save_video(path, make_video(make_frames(sequences=4), metadata={"world": world}))
    assert train(training, path, folder, "kvae-rb", *options.split(), epochs=1) == 0
    assert f"auxiliary_dim: {size}\n" in (folder / "config.yaml").read_text()
    assert runs_module.load_model(folder)[0].dynamics.emits.size == size


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(training, data, tmp_path, runs_module, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert train(training, data, whole, "arsgls", epochs=3) == 0
    fit = training.fit

    def interrupt(trainer, module):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt

    def stop(model, loader, validation, options, checkpoint=None):
        callbacks = [*options["callbacks"], LambdaCallback(on_train_epoch_start=interrupt)]
        return fit(model, loader, validation, {**options, "callbacks": callbacks}, checkpoint)

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


def test_missing_frames_are_hidden_from_the_model(trained, forecasting, runs_module):
    _, folder = trained
    model, record = runs_module.load_model(folder)
    _, video = runs_module.find_video(None, record["data"], "test")
    hidden = forecasting.hide(video, 0.5, 0)
    assert hidden.observed[:, [0, 19]].all()
    assert 0.2 < 1 - hidden.observed[:, 1:19].mean() < 0.8
    frames = video.frames.copy()
    frames[~hidden.observed] = ~frames[~hidden.observed]  # what is hidden must not matter
    other = type(video)(frames, hidden.observed, {}, {})
    for made in (forecasting.futures, forecasting.filled):
        made_of = []
        for shown in (hidden, other):
            torch.manual_seed(0)  # of the filter
            made_of.append(list(made(model, shown, 2, torch.Generator().manual_seed(0))))
        one, two = made_of
        assert len(one) == 2
        for (drawn, expected), again in zip(one, two, strict=True):
            assert drawn.shape == expected.shape == (2, 4 if made is forecasting.futures else 20, 8, 16)
            assert drawn.dtype == np.bool_
            assert len(np.unique(expected)) > 2
            np.testing.assert_array_equal(drawn, again[0])
            np.testing.assert_array_equal(expected, again[1])
    assert model.inference.particles.num_particles == 2  # filling in takes more of them, and gives them back


def test_frames_belong_to_their_sequence_and_sample(trained, forecasting, runs_module, monkeypatch):
    """A decoder that paints the auxiliary itself: frames must lie where their path is."""
    _, folder = trained
    model, record = runs_module.load_model(folder)
    _, video = runs_module.find_video(None, record["data"], "test")
    paths = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))  # (time, sample, series, auxiliary)

    def paint(model, auxiliary, generator):
        frames = auxiliary[..., :1].expand(*auxiliary.shape[:-1], 128)
        return (frames > 0.5).float(), frames

    monkeypatch.setattr(forecasting, "decode", paint)
    monkeypatch.setattr(forecasting, "forecast_paths", lambda *_: paths)
    for index, (drawn, expected) in enumerate(forecasting.futures(model, video, 3, torch.Generator())):
        mine = paths[:, :, index, 0].T.numpy()
        np.testing.assert_array_equal(expected, np.broadcast_to(mine[..., None, None], (3, 4, 8, 16)))
        np.testing.assert_array_equal(drawn, expected > 0.5)


def test_drawn_and_expected_frames_are_scored_apart_and_expected_ones_drawn(
    trained, evaluation, runs_module, tmp_path, monkeypatch
):
    """Futures of which the drawn frames are the truth, and the expected ones dim: empty when white above a half."""
    _, folder = trained
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    _, record = runs_module.load_model(run)
    _, video = runs_module.find_video(None, record["data"], "test")
    shown = {}

    def futures(model, video, samples, generator):
        for truth in video.frames[:, 20:]:
            drawn = np.stack([truth] * samples)
            yield drawn, 0.4 * drawn.astype(np.float32)

    strip = evaluation.film_strip
    monkeypatch.setattr(evaluation, "futures", futures)
    monkeypatch.setattr(
        evaluation, "film_strip", lambda *frames, **options: shown.update(film=frames[2]) or strip(*frames, **options)
    )
    evaluation.main([str(run), "--samples", "3", "--device", "cpu", "--film", "1"])
    summary = json.loads((run / "video_scores.json").read_text())
    assert summary["scores"]["all"]["wasserstein"] == 0
    assert summary["expected"]["all"]["wasserstein"] == pytest.approx(np.hypot(7, 15))
    assert summary["expected"]["all"]["iou"] == 0
    np.testing.assert_allclose(shown["film"], np.stack([0.4 * video.frames[1, 20:]] * 3))
    with (run / "video_horizon.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        if row["model"] == "last frame":
            assert row["expected_wasserstein"] == row["wasserstein"]
        else:
            assert float(row["expected_wasserstein"]) == pytest.approx(np.hypot(7, 15), rel=1e-5)


def test_only_hidden_frames_are_scored_as_filled_in(trained, evaluation, runs_module, tmp_path, monkeypatch):
    """A model which fills in the truth where it was hidden, expected paths a pixel off, and nonsense elsewhere."""
    _, folder = trained
    run = tmp_path / "run"
    shutil.copytree(folder, run)
    _, record = runs_module.load_model(run)
    _, whole = runs_module.find_video(None, record["data"], "test")

    def filled(model, video, samples, generator):
        for truth, seen in zip(video.frames[:, :20], video.observed[:, :20], strict=True):
            guess = np.where(seen[:, None, None], ~truth, truth)
            yield np.stack([guess] * samples), np.roll(np.stack([guess] * samples), 1, axis=-2).astype(np.float32)

    monkeypatch.setattr(evaluation, "filled", filled)
    evaluation.main([str(run), "--samples", "2", "--device", "cpu", "--workers", "1", "--missing", "0.4"])
    found = json.loads((run / "video_scores.json").read_text())["imputation"]
    seen = importlib.import_module("experiments.video.frames").hide(whole, 0.4, 0).observed[:, :20]
    assert found["frames"] == (~seen).sum() > 0
    assert found["scores"]["wasserstein"] == 0
    assert found["scores"]["iou"] == 1
    assert found["expected"]["wasserstein"] == pytest.approx(1)  # the square is moved by a pixel
    assert found["expected"]["iou"] == pytest.approx(3 / 9)
    age = np.array([[step - np.flatnonzero(row[: step + 1])[-1] for step in range(20)] for row in seen])
    means = [ious[row].mean() for ious, row in zip(overlap_of_age(age), ~seen, strict=True)]
    assert found["last frame"]["iou"] == pytest.approx(np.mean(means))
    assert (run / "imputation.png").read_bytes()[:4] == b"\x89PNG"


def overlap_of_age(age):
    """Intersection over union of squares three wide which are some steps of a pixel apart; the world is round."""
    common = np.maximum(3 - np.minimum(age, 16 - age), 0)
    return common / (6 - common)


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
    options = ["--samples", "2", "--device", "cpu", "--workers", "1", "--output", str(picture)]
    evaluation.main([str(folder), str(other), str(folder), *options])
    assert set(drawn[0]["model"]) == {folder.name, "other", "last frame"}
    assert drawn[0].groupby(["model", "horizon"]).size().eq(1).all()
    assert picture.exists()
    # Of the same parameters and random numbers nothing is ahead, and the folder which comes twice counts once.
    found = pd.read_csv(tmp_path / "video_differences.csv")
    assert set(found["run"]) == {"other"}
    assert set(found["frames"] + found["part"]) == {
        a + b for a in ("drawn", "expected") for b in ("all", "near", "far")
    }
    assert (found[["difference", "low", "high"]] == 0).all(axis=None)


def test_runs_are_compared_with_the_best_on_the_same_data(evaluation):
    def evaluated(run, data, drawn):
        drawn = np.array(drawn, dtype=float)
        scores, expected = FrameScores(drawn, drawn, drawn), FrameScores(drawn / 2, drawn, drawn)
        return evaluation.Evaluated(run, "kvae-rb", f"name of {data}", data, pd.DataFrame(), scores, expected)

    one = evaluated("one", "a", [[1, 2], [3, 4], [5, 6]])
    two = evaluated("two", "a", [[2, 2], [3, 5], [8, 6]])
    found = evaluation.differences([two, evaluated("alone", "b", [[0, 0]]), one])
    assert set(found["dataset"]) == {"name of a"}
    assert set(found["run"]) == {"two"}
    assert set(found["best"]) == {"one"}
    whole = found.query("part == 'all'").set_index("frames")
    # Differences of the three sequences are .5, .5 and 1.5, of mean 5/6 and standard error 1/3; Student's t is 4.303.
    assert whole.loc["drawn", ["difference", "low", "high"]].tolist() == pytest.approx(
        [5 / 6, 5 / 6 - 4.3027 / 3, 5 / 6 + 4.3027 / 3], abs=1e-4
    )
    assert whole.loc["expected", "high"] == pytest.approx(whole.loc["drawn", "high"] / 2)
    single = evaluation.differences([evaluated("one", "a", [[1, 2]]), evaluated("two", "a", [[2, 2]])])
    assert single[["low", "high"]].isna().all(axis=None)


def test_grey_frames_have_a_gaussian_decoder(training, evaluation, tmp_path):
    path = tmp_path / "grey.npz"
    np.savez_compressed(path, frames=make_frames(grey=True))
    assert train(training, path, tmp_path / "run", "kvae-rb", "--likelihood", "gaussian", epochs=1) == 0
    evaluation.main([str(tmp_path / "run"), "--samples", "2", "--device", "cpu", "--workers", "1", "--missing", "0.3"])
    assert json.loads((tmp_path / "run" / "video_scores.json").read_text())["missing"] == 0.3


def test_worlds_have_true_physics_as_floor(training, evaluation, tmp_path, monkeypatch):
    monkeypatch.setenv("TSFORECAST_DATA", str(tmp_path))
    sys.path.insert(0, str(FOLDER / "datasets"))
    try:
        importlib.import_module("video").main(["box", "--sequences", "8", "--test-sequences", "4"])
    finally:
        sys.path.pop(0)
    folder = tmp_path / "run"
    options = ["kvae-rb", "--dataset", "box", "--output", str(folder), "--max_epochs", "1", *TINY.split()]
    assert training.main([*options, "--memory_dim", "3"]) == 0
    evaluation.main([str(folder), "--samples", "2", "--device", "cpu", "--workers", "1", "--floor-samples", "2"])
    summary = json.loads((folder / "video_scores.json").read_text())
    physics, still = (summary[name]["all"]["wasserstein"] for name in ("true physics", "last frame"))
    assert physics < 3 < still
    assert set(summary["probe"]) == {f"r2_{axis}_{name}" for axis in "xy" for name in ("auxiliary", "state")}
    assert (folder / "switches.png").exists()


def test_a_folder_has_a_file_for_each_part(training, evaluation, tmp_path):
    """What `datasets/video.py --output` writes: short sequences to train on, longer ones to test on."""
    folder = tmp_path / "mine"
    folder.mkdir()
    with pytest.raises(SystemExit, match=r"there is no .*train.npz; `python datasets/video.py WORLD --output"):
        train(training, folder, tmp_path / "run")
    sys.path.insert(0, str(FOLDER / "datasets"))
    try:
        importlib.import_module("video").main(
            ["pong", "--sequences", "6", "--test-sequences", "2", "--output", str(folder)]
        )
    finally:
        sys.path.pop(0)
    assert train(training, folder, tmp_path / "run", epochs=1) == 0
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["dataset"], record["size"]) == ("mine", [32, 32])
    assert record["settings"]["auxiliary_dim"] == 6  # paddles move, too
    options = ["--samples", "2", "--device", "cpu", "--workers", "1", "--floor-samples", "1"]
    evaluation.main([str(tmp_path / "run"), *options])
    summary = json.loads((tmp_path / "run" / "video_scores.json").read_text())
    assert summary["sequences"] == 2
    assert "true physics" in summary


def test_what_cannot_be_scored_is_refused_before_training(training, tmp_path):
    short = tmp_path / "short.npz"
    np.savez_compressed(short, frames=make_frames(steps=20))
    with pytest.raises(SystemExit, match="test sequences longer than the 20 frames that are filtered, got 20"):
        train(training, short, tmp_path / "run")
    folder = tmp_path / "folder"
    folder.mkdir()
    np.savez_compressed(folder / "train.npz", frames=make_frames(steps=20))
    np.savez_compressed(folder / "test.npz", frames=make_frames(grey=True))
    with pytest.raises(SystemExit, match="8 x 16, black and white; got 8 x 16, grey"):
        train(training, folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_warns_of_nothing(training, tmp_path, monkeypatch, recwarn):
    """On many cores, where Lightning looks for worker processes, and again when the run goes on."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    path, folder = tmp_path / "my.npz", tmp_path / "run"
    np.savez_compressed(path, frames=make_frames())
    assert train(training, path, folder, epochs=1) == 0
    record = json.loads((folder / "run.json").read_text())
    del record["finished"]
    (folder / "run.json").write_text(json.dumps(record))
    assert training.main(["--resume", str(folder)]) == 0
    assert "WARNING" not in (folder / "train.log").read_text()
    assert not [warning for warning in recwarn if "lightning" in warning.filename]


def test_physics_from_exact_states_is_the_truth(monkeypatch):
    video_floors = importlib.import_module("experiments.video.floors")
    simulation = physics.simulate_sequences("box", 3, 30, 0)
    truths = {name: getattr(simulation, name) for name in ("position", "velocity", "paddles", "collision")}
    video = make_video(simulation.frames, truths=truths, metadata={"world": "box"})
    monkeypatch.setattr(video_floors, "POSITION_ERROR", 0.0)
    monkeypatch.setattr(video_floors, "VELOCITY_ERROR", 0.0)
    found = video_floors.floors(video, 1, 1)["true physics"]
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
        (
            ["arsgls", "--data", "DATA", "--max_epochs", "2", "--max_minutes", "1"],
            "either --max_epochs or --max_minutes",
        ),
        (["arsgls", "--data", "DATA", "--max_minutes", "0"], "max_minutes to be above 0, got 0"),
    ],
)
def test_bad_arguments_of_training(training, data, arguments, message):
    arguments = [str(data) if argument == "DATA" else argument for argument in arguments]
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
    with pytest.raises(SystemExit, match="--film below the number of sequences, 2, got 2"):
        evaluation.main([str(folder), "--film", "2"])


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
