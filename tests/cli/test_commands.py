import functools
import json
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tsforecast.cli import main
from tsforecast.cli.memory import keep_freed_memory
from tsforecast.data.calendar import stamps
from tsforecast.models import DATA_DECIDED, MODELS, options_of
from tsforecast.plots import plot_regimes

ROOT = Path(__file__).parents[2]
# Of models with particles, whose steps are slow.
TINY = [
    "--switch_dim=2",
    "--num_bases=2",
    "--hidden=4",
    "--num_particles=2",
    "--context_length=6",
    "--history_length=8",
]
SHORT = ["--max_epochs=2", "--batch_size=4", "--num_batches_per_epoch=1", "--accelerator=cpu", "--threads=1"]


@pytest.fixture(autouse=True)
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def csv(tmp_path_factory) -> Path:
    """Three daily series of 90 days with a weekly season, gaps and a covariate."""
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=90, freq="D")
    frames = []
    for number in range(3):
        season = 10 * (days.dayofweek.to_numpy() >= 5)
        sales = 50 + 20 * number + season + rng.normal(size=len(days))
        frames.append(pd.DataFrame({"item_id": f"shop {number}", "timestamp": days, "sales": sales}))
    table = pd.concat(frames).reset_index(drop=True)
    table.loc[[5, 40, 41, 120], "sales"] = np.nan
    path = tmp_path_factory.mktemp("data") / "sales.csv"
    table.to_csv(path, index=False)
    return path


def data(csv: Path) -> list[str]:
    return ["--data", str(csv), "--target", "sales", "--prediction_length", "7", "--windows", "2"]


@pytest.fixture(scope="module")
def trained(csv, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "trained"
    assert main(["train", "issm", *data(csv), *SHORT, "--output", str(run)]) == 0
    return run


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy which a test may spoil."""
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    return copy


def refused(capsys, *arguments: object) -> str:
    """The one line that a command says when it refuses its arguments."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert err.splitlines()[-1] == line
    assert "Traceback" not in err
    return line


@pytest.mark.parametrize("model", MODELS)
def test_every_model_trains_two_steps_and_is_scored(model, csv, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    options = TINY if "num_particles" in options_of(MODELS[model]) else []
    options = ["--regimes=2", "--order=1"] if model == "markov" else options  # a search for both takes a while
    if model.startswith("kvae"):  # its switch is the memory of a network
        options = [option.replace("--switch_dim", "--memory_dim") for option in options]
    if model in ("sgls", "kvae-rb"):  # beside regimes that differ in more than their noise, or whose noise is the same
        options += ["--components", "level"]
    assert main(["train", model, *data(csv), *SHORT, *options, "--output", str(run), "--validation"]) == 0
    metrics = pd.read_csv(run / "metrics.csv")
    assert metrics["epoch"].tolist() == [0, 1]
    assert np.isfinite(metrics[["train_loss", "val_loss"]].to_numpy()).all()
    assert {path.name for path in run.iterdir()} >= {
        "config.yaml", "run.json", "train.log", "metrics.csv", "learning_curve.png", "checkpoints", "predictor",
    }  # fmt: skip
    record = json.loads((run / "run.json").read_text())
    assert record["model"] == model
    assert record["seed"] == 0
    assert record["split"] == {"freq": "D", "prediction_length": 7, "windows": 2}
    assert "`tsforecast evaluate" in capsys.readouterr().err
    drawn, ordered = model in ("rsgls-issm", "sgls", "kvae-rb"), []  # which have components and regimes
    draw = lambda *args, **options: ordered.append(options["ordered"]) or plot_regimes(*args, **options)  # noqa: E731
    monkeypatch.setattr("tsforecast.cli.drawn.plot_regimes", draw)
    evaluation = ["--baselines", "none", "--num_samples", "4", "--plot_series", str(int(drawn))]
    assert main(["evaluate", str(run), *evaluation]) == 0
    scores = json.loads((run / "scores.json").read_text())
    assert all(np.isfinite(scores[protocol]["crps"]) for protocol in ("rolling", "long_term"))
    if drawn:
        assert {path.name for path in (run / "plots").iterdir()} >= {"regimes.png", "decomposition.png"}
        assert ordered == [model == "rsgls-issm"]


def test_run_folder_is_below_outputs_by_default(csv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "issm", *data(csv), *SHORT]) == 0
    (run,) = (tmp_path / "outputs").iterdir()
    assert run.name.startswith("issm-sales-")
    assert (run / "predictor").is_dir()
    assert "will be deleted" not in (run / "train.log").read_text()  # what Lightning says of folders that are not empty


@pytest.mark.parametrize("model", MODELS)
def test_print_config_gives_a_config_that_is_read_back(model, tmp_path, capsys):
    name, value = ("weights", "0.25,0.75") if model == "pool" else ("learning_rate", 0.25)
    # To search for all of these takes a while.
    given = ["--regimes=2", "--order=1", "--seasonal=false"] if model == "markov" else []
    assert main(["train", model, "--dataset", "exchange", f"--{name}", str(value), *given, "--print_config"]) == 0
    text = capsys.readouterr().out
    config = yaml.safe_load(text)
    assert config["dataset"] == "exchange"
    assert config[name] == value
    assert not DATA_DECIDED - {"freq", "prediction_length", "seed"} & set(config)  # these three are options of a run
    (tmp_path / "config.yaml").write_text(text)
    assert main(["train", model, "--config", str(tmp_path / "config.yaml"), "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == config


def test_help_describes_every_hyperparameter(capsys):
    with pytest.raises(SystemExit):
        main(["train", "issm", "--help"])
    text = capsys.readouterr().out
    assert "--components" in text
    assert "damped_level" in text
    assert "--num_series" not in text


def test_config_of_a_run_trains_the_same_model(csv, trained, tmp_path):
    run = tmp_path / "again"
    assert main(["train", "issm", "--config", str(trained / "config.yaml"), "--output", str(run)]) == 0
    first, second = (weights(folder) for folder in (trained, run))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "predictor" / "prediction-net-state.pt", weights_only=True)


# Long enough that a signal sent when an epoch is over comes before the end, on a busy machine too.
LONG = ["--max_epochs=12", "--batch_size=8", "--num_batches_per_epoch=8", "--accelerator=cpu", "--threads=1"]


def stop(arguments: list[str], run: Path, epoch: int) -> tuple[int, str]:
    """Starts `train.py`, presses Ctrl-C when an epoch is over, and gives its exit status and what it said."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "train.py"), *arguments]
    # A shell's background jobs ignore Ctrl-C, and what they start inherits that: this process shall not.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if f"epoch {epoch} of" in ((run / "train.log").read_text() if (run / "train.log").exists() else ""):
                process.send_signal(signal.SIGINT)
                break
            time.sleep(0.02)
        _, err = process.communicate(timeout=60)
    return process.returncode, err


class Stop(logging.Handler):
    """Stops a training in this process when an epoch is over."""

    def __init__(self, epoch: int) -> None:
        super().__init__(logging.DEBUG)
        self.words = f"epoch {epoch} of"

    def emit(self, record: logging.LogRecord) -> None:
        if self.words in record.getMessage():
            raise KeyboardInterrupt


def test_a_run_that_was_stopped_twice_ends_as_if_it_had_not(csv, tmp_path, capsys):
    whole, run = tmp_path / "whole", tmp_path / "stopped"
    options = ["issm", *data(csv), *LONG, "--validation", "--learning_rate", "0.5"]
    assert main(["train", *options, "--output", str(whole)]) == 0

    status, said = stop([*options, "--output", str(run)], run, 2)
    assert status == 130, said
    assert f"--resume {run}" in said
    assert "Traceback" not in said
    assert not (run / "predictor").exists()
    assert "not finished" in refused(capsys, "evaluate", run)
    kept = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)  # at the latest when the next epoch ends
    assert kept["epoch"] >= 0
    assert kept["global_step"] == 8 * (kept["epoch"] + 1)

    log, handler = logging.getLogger("tsforecast.cli.epochs"), Stop(kept["epoch"] + 4)
    log.addHandler(handler)
    try:
        assert main(["train", "--resume", str(run)]) == 130
    finally:
        log.removeHandler(handler)
    said = capsys.readouterr().err
    assert f"--resume {run}" in said
    assert "epoch 1 of" not in said
    spent = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["callbacks"]["Timer"]["time_elapsed"]
    assert main(["train", "--resume", str(run)]) == 0
    assert json.loads((run / "run.json").read_text())["seconds"] > spent["train"] > 0

    first, second = weights(whole), weights(run)
    assert all(torch.equal(first[name], second[name]) for name in first)
    first, second = (
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for folder in (whole, run)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    pd.testing.assert_frame_equal(pd.read_csv(whole / "metrics.csv"), pd.read_csv(run / "metrics.csv"))
    for folder in (whole, run):  # Lightning's warnings about our own usage go there
        assert "WARNING py.warnings" not in (folder / "train.log").read_text()

    capsys.readouterr()
    assert main(["train", "--resume", str(run)]) == 0
    assert "finished already" in capsys.readouterr().err


def test_a_run_that_finished_no_epoch_begins_again(run, capsys):
    predictor, checkpoint = run / "predictor", run / "checkpoints"
    expected = weights(run)
    shutil.rmtree(predictor)
    shutil.rmtree(checkpoint)
    _settle(run)
    assert main(["train", "--resume", str(run)]) == 0
    assert all(torch.equal(expected[name], value) for name, value in weights(run).items())


def _settle(run: Path) -> None:
    """A copied run may go on where it is now."""
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"folder": str(run.resolve())}))


def test_resume_refuses_what_cannot_go_on(run, csv, tmp_path, capsys):
    shutil.rmtree(run / "predictor")
    assert "was moved" in refused(capsys, "train", "--resume", run)
    _settle(run)
    assert "--max_epochs" in refused(capsys, "train", "issm", "--max_epochs", 3, "--resume", run)
    assert "'issm'" in refused(capsys, "train", "gls", "--resume", run)
    last = run / "checkpoints" / "last.ckpt"
    good = last.read_bytes()
    last.write_bytes(good[: len(good) // 2])
    assert "last.ckpt" in refused(capsys, "train", "--resume", run)
    torch.save({"weight": torch.ones(2)}, last)
    assert "last.ckpt" in refused(capsys, "train", "--resume", run)
    last.write_bytes(good)
    rows = csv.read_text().splitlines()
    changed = tmp_path / "sales.csv"
    changed.write_text("\n".join([rows[0], f"{rows[1][:-15]}1", *rows[2:]]) + "\n")
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"data": str(changed)}))
    assert "data have changed" in refused(capsys, "train", "--resume", run)


def test_checkpoints_never_run_code(run, capsys):
    class Mischief:
        def __reduce__(self):
            return (os.mkdir, (str(run / "mischief"),))

    shutil.rmtree(run / "predictor")
    _settle(run)
    torch.save({"state_dict": Mischief()}, run / "checkpoints" / "last.ckpt")
    refused(capsys, "train", "--resume", run)
    assert not (run / "mischief").exists()


def test_evaluate_writes_scores_tables_and_pictures(run, capsys):
    assert (
        main(["evaluate", str(run), "--baselines", "seasonal_naive", "--num_samples", "20", "--plot_series", "2"]) == 0
    )
    out = capsys.readouterr().out
    scores = json.loads((run / "scores.json").read_text())
    for part in (scores, scores["baselines"]["seasonal_naive"]):
        for protocol in ("rolling", "long_term"):
            assert 0 < part[protocol]["crps"] < 1
    assert scores["rolling"]["num_samples"] == 20
    assert scores["rolling"]["num_forecasts"] == 6
    assert "issm" in out
    assert "seasonal_naive" in out
    pictures = [path.name for path in (run / "plots").iterdir()]
    assert {"forecasts_rolling.png", "calibration_rolling.png", "scores_by_horizon.png", "decomposition.png"} <= set(
        pictures
    )
    assert all((run / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)

    best = (run / "plots" / "decomposition.png").read_bytes()
    order = pd.read_csv(run / "per_series.csv").query("protocol == 'rolling' and model == 'issm'").sort_values("crps")
    draw = ["evaluate", str(run), "--baselines", "none", "--num_samples", "20", "--plot_series", "1", "--inspect"]
    for item, is_best in ((order["item_id"].iloc[0], True), (order["item_id"].iloc[-1], False)):
        assert main([*draw, str(item)]) == 0
        assert ((run / "plots" / "decomposition.png").read_bytes() == best) == is_best
    assert main([*draw, "nobody"]) == 2
    assert "--inspect: there is no series" in capsys.readouterr().err

    again = ["evaluate", str(run), "--baselines", "none", "--num_samples", "20", "--plot_series", "0"]
    assert main(again) == 0
    second = json.loads((run / "scores.json").read_text())
    assert second["rolling"] == scores["rolling"]
    assert second["long_term"] == scores["long_term"]
    assert second["baselines"] == {}
    assert main([*again, "--seed", "1"]) == 0
    third = json.loads((run / "scores.json").read_text())["rolling"]
    assert third["crps"] == scores["rolling"]["crps"]  # of exact quantiles
    assert third["crps_ensemble"] != scores["rolling"]["crps_ensemble"]  # of paths


def test_one_window_is_drawn_once_and_commands_take_threads(run, tmp_path, capsys, monkeypatch):
    """With one window the long-term forecast is the rolling one."""
    record = json.loads((run / "run.json").read_text())
    record["split"]["windows"] = 1
    (run / "run.json").write_text(json.dumps(record))
    options = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(options.replace("windows: 2", "windows: 1"))
    threads = []
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    options = ["--num_samples", "5", "--threads", "1"]
    assert main(["evaluate", str(run), "--baselines", "none", "--plot_series", "1", *options]) == 0
    pictures = {path.name for path in (run / "plots").iterdir()}
    assert {"forecasts_rolling.png", "calibration_rolling.png"} <= pictures
    assert not {name for name in pictures if "long_term" in name}
    assert "the long-term forecast is the rolling one" in capsys.readouterr().out
    assert main(["predict", str(run), "--output", str(tmp_path / "f.csv"), *options]) == 0
    assert "7 steps of 'D' each" in capsys.readouterr().err
    out = tmp_path / "f.csv"
    assert main(["predict", str(run), "--output", str(out), "--prediction_length", "1", *options]) == 0
    assert "1 step of 'D' each" in capsys.readouterr().err
    assert threads == [1, 1, 1]


def test_evaluate_scores_the_model_that_goes_on_learning(run, capsys):
    command = ["evaluate", str(run), "--baselines", "none", "--num_samples", "20", "--plot_series", "1"]
    assert main([*command, "--adapt", "lofi", "--drift", "ou"]) == 0
    assert "issm+lofi minus that of issm" in capsys.readouterr().out
    scores = json.loads((run / "scores.json").read_text())
    assert scores["adapted"]["model"] == "issm+lofi"
    assert 0 < scores["adapted"]["rolling"]["crps"] < 1
    assert "long_term" not in scores["adapted"]
    table = pd.read_csv(run / "adaptation.csv")
    assert list(table) == ["start", "evidence", "moved", "issm", "issm+lofi"]
    assert len(table) == 2  # windows
    assert table["moved"].iloc[0] == 0
    assert (run / "plots" / "adaptation.png").read_bytes().startswith(b"\x89PNG")
    memory = ["--adapt", "vb", "--memory", "grs", "--memory_size", "3", "--settings", '{"passes": 1}']
    assert main([*command, *memory]) == 0
    kept = pd.read_csv(run / "remembered.csv")
    assert list(kept) == ["item_id", "start", "age", "power"]
    assert set(kept["item_id"]) <= {"shop 0", "shop 1", "shop 2"}
    assert len(kept) == 3
    assert main(command) == 0
    assert "adapted" not in json.loads((run / "scores.json").read_text())
    assert not (run / "adaptation.csv").exists()  # of the evaluation before
    assert not (run / "remembered.csv").exists()
    message = refused(capsys, *command, "--adapt", "lofi", "--memory", "grs")
    assert "expected a memory beside the learner 'vb', got learner 'lofi'" in message
    assert "--adapt: there is no learner 'sgd'; did you mean 'ogd'?" in refused(capsys, *command, "--adapt", "sgd")


def test_pictures_have_the_target_its_unit_and_named_dates(csv, tmp_path, monkeypatch, capsys):
    run, figures = tmp_path / "run", {}
    options = [*data(csv), *SHORT, *TINY, "--unit", "pieces"]
    assert main(["train", "rsgls-issm", *options, "--output", str(run)]) == 0
    monkeypatch.setattr(
        "tsforecast.cli.drawn.save_figure", lambda figure, path: figures.update({path.stem: figure}) or path
    )
    command = ["evaluate", str(run), "--baselines", "none", "--num_samples", "4", "--plot_series", "1"]
    marks = ["--marks", "2024-02-01=sale", "2024-02-14T12:00+01:00", "1999-01-01=never"]
    assert main([*command, *marks, "--adapt", "lofi"]) == 0
    for name in ("forecasts_rolling", "forecasts_long_term", "decomposition", "regimes"):
        assert figures[name].axes[0].get_ylabel() == "sales (pieces)"
    assert [text.get_text() for text in figures["regimes"].axes[0].texts] == ["sale", "2024-02-14T12:00+01:00"]
    assert figures["regimes"].axes[2].get_ylabel() == "scale of the noise"
    assert "expected --marks to be dates with names" in refused(capsys, *command, "--marks", "blizzard")
    assert "expected --marks to be dates with names" in refused(capsys, *command, "--marks", "=blizzard")
    message = refused(capsys, "train", "issm", "--dataset", "exchange", "--unit", "MW")
    assert "--unit goes with --data FILE" in message


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_predict_goes_beyond_the_end_of_a_file(trained, csv, tmp_path, suffix):
    out = tmp_path / f"forecasts{suffix}"
    assert main(["predict", str(trained), "--data", str(csv), "--output", str(out), "--quantiles", "0.1,0.5,0.9"]) == 0
    table = pd.read_parquet(out) if suffix == ".parquet" else pd.read_csv(out, parse_dates=["timestamp"])
    assert list(table.columns) == ["item_id", "timestamp", "mean", "0.1", "0.5", "0.9"]
    assert table["item_id"].drop_duplicates().tolist() == ["shop 0", "shop 1", "shop 2"]
    days = pd.date_range("2024-03-31", periods=7)
    assert table["timestamp"].tolist() == [*days] * 3
    assert (table["0.1"] < table["0.5"]).all()
    assert (table["0.5"] < table["0.9"]).all()
    level = table.groupby("item_id")["0.5"].mean().to_numpy()
    assert np.abs(level - np.array([53, 73, 93])).max() < 10


def test_predict_paths_are_seeded_and_agree_with_quantiles(trained, tmp_path):
    tables = {}
    for name, options in {
        "paths": ["--paths"],
        "again": ["--paths"],
        "other": ["--paths", "--seed", "3"],
        "mean": [],
        "seed": ["--seed", "3"],
    }.items():
        out = tmp_path / f"{name}.parquet"
        assert main(["predict", str(trained), "--output", str(out), "--num_samples", "30", *options]) == 0
        tables[name] = pd.read_parquet(out)
    paths = tables["paths"]
    assert list(paths.columns) == ["item_id", "timestamp", "path", "value"]
    assert len(paths) == 3 * 30 * 7
    pd.testing.assert_frame_equal(paths, tables["again"])
    assert not paths["value"].equals(tables["other"]["value"])
    drawn = paths.groupby(["item_id", "timestamp"])["value"]
    away = np.abs(drawn.mean().to_numpy() - tables["mean"]["mean"].to_numpy())  # the table is exact
    assert (away < 5 * drawn.std().to_numpy() / 30**0.5).all()
    pd.testing.assert_frame_equal(tables["mean"], tables["seed"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_predict_writes_names_as_they_are(trained, tmp_path, suffix):
    """Beside plain ones, those that have to be quoted."""
    names = ["plain", "with, comma", 'with "quotes"', "with\nbreak", "naïve", ""]
    rows = [{"start": "2024-01-01", "item_id": name, "target": [1.0, 2.0, 4.0]} for name in names]
    for count in (1, len(names)):
        (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows[:count])) + "\n")
        out = tmp_path / f"out{suffix}"
        assert main(["predict", str(trained), "--data", str(tmp_path / "data.jsonl"), "--output", str(out)]) == 0
        table = pd.read_csv(out, keep_default_na=False)
        assert table["item_id"].unique().tolist() == names[:count]
        assert table["timestamp"].iloc[0] == "2024-01-04"


def test_predict_takes_known_values_as_given(trained, csv, tmp_path):
    known = tmp_path / "known.csv"
    known.write_text("item_id,timestamp,sales\nshop 1,2024-04-02,500\n")
    out = tmp_path / "out.csv"
    assert main(["predict", str(trained), "--data", str(csv), "--known", str(known), "--output", str(out)]) == 0
    table = pd.read_csv(out).set_index(["item_id", "timestamp"])
    row = table.loc[("shop 1", "2024-04-02")]
    np.testing.assert_allclose(row[["mean", "0.1", "0.9"]].to_numpy(float), 500, rtol=1e-5)
    assert table.loc[("shop 0", "2024-04-02"), "mean"] < 100


def test_predict_goes_on_where_a_series_has_no_value(trained, csv, tmp_path, capsys):
    table = pd.read_csv(csv)
    table.loc[table["item_id"] == "shop 1", "sales"] = np.nan
    dead, out = tmp_path / "dead.csv", tmp_path / "out.csv"
    table.to_csv(dead, index=False)
    options = [str(trained), "--data", str(dead), "--output", str(out), "--quantiles", "0.5"]
    capsys.readouterr()
    assert main(["predict", *options]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "no value" in line]
    assert "of 1 series ('shop 1')" in warning
    median = pd.read_csv(out).groupby("item_id")["0.5"].mean()
    assert abs(median["shop 0"] - 53) < 10
    assert abs(median["shop 2"] - 93) < 10
    assert np.isfinite(median["shop 1"])

    rows = ['{"start": "2024-01-01", "item_id": "new", "target": [null, null, null]}']
    (tmp_path / "dead.jsonl").write_text("\n".join(rows) + "\n")
    assert main(["predict", str(trained), "--data", str(tmp_path / "dead.jsonl"), "--output", str(out)]) == 0
    assert "of 1 series ('new')" in capsys.readouterr().err
    assert pd.read_csv(out)["timestamp"].tolist() == [f"2024-01-{day:02}" for day in range(4, 11)]


def test_a_series_that_has_just_begun_neither_shortens_forecasts_nor_lacks_one(csv, tmp_path, capsys):
    """Of five days it is in no score. Of thirty it is trained on whole, as it has no window to be held out."""
    table, run, out = pd.read_csv(csv), tmp_path / "run", tmp_path / "out.csv"
    later = table[table["item_id"] == "shop 0"]
    parts = [later.tail(n).assign(item_id=f"new {n}") for n in (5, 30)]
    pd.concat([table, *parts]).to_csv(tmp_path / "all.csv", index=False)
    options = ["--prediction_length", "14", "--windows", "2", "--target", "sales", *SHORT, "--validation"]
    assert main(["train", "issm", "--data", str(tmp_path / "all.csv"), *options, "--output", str(run)]) == 0
    assert (
        "1 series with no more than the 28 steps of the test windows are left out: 'new 5'" in capsys.readouterr().err
    )
    assert main(["evaluate", str(run), "--baselines", "none", "--plot_series", "0"]) == 0
    assert json.loads((run / "scores.json").read_text())["rolling"]
    assert main(["predict", str(run), "--output", str(out)]) == 0
    assert pd.read_csv(out).groupby("item_id").size().to_dict() == {
        name: 14 for name in ("shop 0", "shop 1", "shop 2", "new 5", "new 30")
    }
    long = ["--prediction_length", "46", "--windows", "1", *options[4:]]
    told = refused(capsys, "train", "issm", "--data", tmp_path / "all.csv", *long, "--output", tmp_path / "x")
    assert "the longest series has 44 steps before the test part" in told


def test_predict_other_horizon(trained, csv, tmp_path):
    out = tmp_path / "out.csv"
    assert main(["predict", str(trained), "--data", str(csv), "--prediction_length", "30", "--output", str(out)]) == 0
    assert len(pd.read_csv(out)) == 3 * 30


def test_wrong_arguments_get_one_line_of_advice(csv, tmp_path, capsys):
    assert "evaluate" in refused(capsys, "evalate", "x")
    assert "issm" in refused(capsys, "train", "isssm", "--dataset", "exchange")
    assert "--resume" in refused(capsys, "train")
    assert "exchange" in refused(capsys, "train", "issm", "--dataset", "exchnge")
    assert "--data FILE" in refused(capsys, "train", "issm")
    assert "--freq" in refused(capsys, "train", "issm", "--dataset", "exchange", "--freq", "D")
    assert "0 to 207 windows" in refused(capsys, "train", "issm", "--dataset", "exchange", "--windows", 5000)
    assert "--help" in refused(capsys, "train", "issm", "--dataset", "exchange", "--depth", 3)
    assert "max_epochs" in refused(capsys, "train", "issm", "--dataset", "exchange", "--max_epochs", "many")
    assert "--num_series" in refused(capsys, "train", "issm", "--dataset", "exchange", "--num_series", 3)
    assert "nowhere.csv" in refused(capsys, "train", "issm", "--data", tmp_path / "nowhere.csv")
    assert "nowhere.yaml" in refused(capsys, "train", "issm", "--config", tmp_path / "nowhere.yaml")
    assert "no column" in refused(capsys, "train", "issm", "--data", csv, "--target", "profit")


def test_unfit_hyperparameters_leave_no_folder(csv, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["train", "issm", *data(csv), *SHORT, "--output", run]
    assert "unknown component" in refused(capsys, *arguments, "--components", "levl")
    assert not run.exists()
    assert "gpu" in refused(capsys, *arguments, "--accelerator", "gpux")
    assert not run.exists()


def test_folders_of_others_are_left_alone(trained, csv, tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").write_text("years of work")
    assert "not empty" in refused(capsys, "train", "issm", *data(csv), *SHORT, "--output", taken)
    assert [path.name for path in taken.iterdir()] == ["thesis.tex"]
    assert "--resume" in refused(capsys, "train", "issm", *data(csv), *SHORT, "--output", trained)
    for command in (["evaluate"], ["predict", "--output", tmp_path / "o.csv"], ["train", "--resume"]):
        assert "no run folder" in refused(capsys, *command, taken)
        assert "missing" in refused(capsys, *command, tmp_path / "missing")


def test_damaged_runs_are_refused(run, capsys):
    record = (run / "run.json").read_text()
    (run / "run.json").write_text(record[:50])
    assert "damaged" in refused(capsys, "evaluate", run)
    (run / "run.json").write_text(json.dumps(json.loads(record) | {"format": 99}))
    assert "format" in refused(capsys, "evaluate", run)
    (run / "run.json").write_text(record)
    state = run / "predictor" / "prediction-net-state.pt"
    state.write_bytes(state.read_bytes()[:100])
    assert str(run / "predictor") in refused(capsys, "evaluate", run)


def test_predict_refuses(trained, csv, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert ".parquet" in refused(capsys, "predict", trained, "--output", tmp_path / "out.xls")
    assert "quantiles" in refused(capsys, "predict", trained, "--output", out, "--quantiles", "10,50")
    assert "--help" in refused(capsys, "predict", trained)
    assert "nowhere.csv" in refused(capsys, "predict", trained, "--output", out, "--data", tmp_path / "nowhere.csv")
    known = tmp_path / "known.csv"
    known.write_text("item_id,timestamp,sales\nshop 1,2023-04-02,500\n")
    assert "outside the forecast" in refused(capsys, "predict", trained, "--output", out, "--known", known)
    assert not out.exists()


def test_version_and_usage(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tsforecast ")
    assert main(["--help"]) == 0
    assert "train" in capsys.readouterr().out
    assert main([]) == 2


def test_freed_memory_is_kept_where_the_c_library_is_glibc():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


def test_forecasts_of_series_that_end_early_cover_the_dates_of_all(trained, csv, tmp_path, capsys):
    table = pd.read_csv(csv)
    last = table.index[table["item_id"] == "shop 1"][-10:]
    files = {
        "early": table.drop(index=last),
        "empty": table.assign(sales=table["sales"].where(~table.index.isin(last))),
    }
    found = {}
    for name, options in {"early": [], "empty": [], "each": ["--start", "each"]}.items():
        data_file, out = tmp_path / f"{name}.csv", tmp_path / f"{name}_out.csv"
        files.get(name, files["early"]).to_csv(data_file, index=False)
        capsys.readouterr()
        assert main(["predict", str(trained), "--data", str(data_file), "--output", str(out), *options]) == 0
        warned = [line for line in capsys.readouterr().err.splitlines() if "end before others ('shop 1')" in line]
        assert len(warned) == 1
        found[name] = pd.read_csv(out, parse_dates=["timestamp"])
    first = {name: frame.groupby("item_id")["timestamp"].min() for name, frame in found.items()}
    assert set(first["early"]) == {pd.Timestamp("2024-03-31")}
    assert first["each"].tolist() == [pd.Timestamp(day) for day in ("2024-03-31", "2024-03-21", "2024-03-31")]
    pd.testing.assert_frame_equal(found["early"], found["empty"])
    assert "invalid choice" in refused(capsys, "predict", trained, "--output", tmp_path / "o.csv", "--start", "never")


def test_holidays_belong_to_the_run(csv, tmp_path, capsys):
    """Their effects are those of the training, whatever a later file would tell, and reach over any forecast."""
    pytest.importorskip("holidays")
    run, late, out = tmp_path / "run", tmp_path / "late.csv", tmp_path / "out.csv"
    assert main(["train", "issm", *data(csv), *SHORT, "--holidays", "US", "--output", str(run)]) == 0
    effects = json.loads((run / "run.json").read_text())["columns"]["holidays"]
    assert effects[:4] == ["US", "public holiday", "day before", "day after"]
    assert main(["evaluate", str(run), "--baselines", "none", "--plot_series", "0", "--num_samples", "4"]) == 0
    assert "the data have changed" not in capsys.readouterr().err
    table = pd.read_csv(csv)
    table[table["timestamp"] >= "2024-03-01"].to_csv(late, index=False)  # no holiday before June
    command = ["predict", str(run), "--data", str(late), "--prediction_length", "70", "--output", str(out)]
    assert main(command) == 0
    assert len(pd.read_csv(out)) == 3 * 70


def test_predict_asks_for_the_dates_of_series_that_share_them_once(trained, csv, tmp_path):
    """Pandas takes a millisecond for each, which was half of the time."""
    stamps._stamps.cache_clear()
    assert main(["predict", str(trained), "--data", str(csv), "--output", str(tmp_path / "out.csv")]) == 0
    assert (stamps._stamps.cache_info().misses, stamps._stamps.cache_info().hits) == (1, 2)


@pytest.mark.parametrize("options", [["--prediction_length", "1000000"], ["--paths", "--num_samples", "100000000000"]])
def test_predict_refuses_what_the_memory_is_too_small_for(trained, csv, tmp_path, capsys, options):
    out = tmp_path / "out.csv"
    message = refused(capsys, "predict", trained, "--data", csv, "--output", out, *options)
    assert "a batch of 3 series" in message
    assert "GiB of memory, of which there are" in message
    assert not out.exists()
