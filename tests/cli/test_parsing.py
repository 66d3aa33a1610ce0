"""Command lines: what is wrong with one is said in its own terms, in one line."""

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import termios
import textwrap
import threading
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tsforecast.cli import main
from tsforecast.cli.command_lines import NAMES
from tsforecast.cli.parsing import typed, underscored

ROOT = Path(__file__).parents[2]


def refused(capsys, *arguments):
    assert main(list(arguments)) == 2
    lines = capsys.readouterr().err.strip().split("\n")
    assert len(lines) == 1, lines
    return lines[0].removeprefix("error: ")


ISSM = ("train", "issm", "--dataset", "exchange")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ISSM, "--learning_rate", "fast"), "--learning_rate: expected a number, got 'fast';"),
        ((*ISSM, "--learning-rate", "fast"), "--learning_rate: expected a number, got 'fast';"),
        ((*ISSM, "--max_epochs", "1.5"), "--max_epochs: expected a whole number, got '1.5';"),
        ((*ISSM, "--context-length=long"), "--context_length: expected a whole number, got 'long';"),
        ((*ISSM, "--max_epochs"), "--max_epochs: expected a value;"),
        ((*ISSM, "--learning_rat", "1"), "there is no option --learning_rat; did you mean '--learning_rate'?;"),
        ((*ISSM, "--learning-rat=1"), "there is no option --learning_rat; did you mean '--learning_rate'?;"),
        ((*ISSM, "extra"), "unexpected argument 'extra';"),
        (("train", "isms"), "there is no model 'isms'; did you mean 'issm'? There are auto, bank, issm,"),
        (("auto",), "'auto' is a model: `tsforecast train auto --data FILE` trains it"),
        (("train", "--data", "no-file.csv"), "there is no file no-file.csv"),
        (("train", "--data=no-file.csv", "--seed=1"), "there is no file no-file.csv"),
        (("trian",), "there is no command 'trian'; did you mean 'train'? There are forecast, bucket,"),
        (("train", "issm", "--dataset", "exchnge"), "there is no data set 'exchnge'; did you mean 'exchange'?"),
        (("evaluate",), "expected RUN;"),
        (("evaluate", "x", "--adapt", "loffi"), "--adapt: there is no learner 'loffi'; did you mean 'lofi'? There"),
        (("predict", "x"), "expected --output;"),
        (("compare", "--outpt", "x"), "there is no option --outpt; did you mean '--output'?;"),
        (("stream", "lofi", "--hidden", "a"), "--hidden: expected a whole number, got 'a';"),
        (("stream", "lofi", "--settings", "3"), "--settings: expected a JSON object such as '{\"name\": 1}', got '3'"),
        (("tune", "issm"), "expected --study;"),
        (("tune", "issm", "--trials", "x", "--study", "s"), "--trials: expected a whole number, got 'x';"),
        (("tune", "issm", "--study", "s", "--trails", "3"), "there is no option --trails; did you mean '--trials'?;"),
        (("tune", "nothing", "--study", "s"), "there is no model 'nothing'. There are bank, issm,"),
    ],
)
def test_what_is_wrong_with_an_option(capsys, arguments, message):
    assert refused(capsys, *arguments).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ISSM, "--threads", "-1"), "--threads: expected at least 1, got -1"),
        ((*ISSM, "--threads", "0"), "--threads: expected at least 1, got 0"),
        ((*ISSM, "--seed", "-1"), "--seed: expected at least 0, got -1"),
        ((*ISSM, "--seed", str(2**32)), "--seed: expected at most 4294967295, got 4294967296"),
        ((*ISSM, "--windows", "-1"), "--windows: expected at least 0, got -1"),
        ((*ISSM, "--prediction_length", "0"), "--prediction_length: expected at least 1, got 0"),
        ((*ISSM, "--max_epochs", "-1"), "--max_epochs: expected at least 1, got -1"),
        ((*ISSM, "--gradient_clip_val", "-1"), "--gradient_clip_val: expected at least 0, got -1"),
        ((*ISSM, "--learning_rate", "nan"), "--learning_rate: expected a number, got 'nan'"),
        (("evaluate", "x", "--num_samples", "0"), "--num_samples: expected at least 1, got 0"),
        (("evaluate", "x", "--workers", "0"), "--workers: expected at least 1, got 0"),
        (("evaluate", "x", "--plot_series", "-1"), "--plot_series: expected at least 0, got -1"),
        (("predict", "x", "--output", "y.csv", "--prediction_length", "0"), "--prediction_length: expected at least 1"),
        (("stream", "lofi", "--data", "digits", "--limit", "-1"), "--limit: expected at least 1, got -1"),
        (("stream", "lofi", "--data", "digits", "--seed", "-1"), "--seed: expected at least 0, got -1"),
        (("tune", "issm", "--study", "s", "--dataset", "exchange", "--trials", "0"), "--trials: expected at least 1"),
        (("tune", "issm", "--study", "s", "--dataset", "exchange", "--threads", "-1"), "--threads: expected at least"),
    ],
)
def test_numbers_out_of_range(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, *arguments).startswith(message)
    assert not list(tmp_path.iterdir())


def test_options_of_a_configuration(capsys, tmp_path):
    path = tmp_path / "c.yaml"
    for text, message in [
        ("learning_rate: fast", "--learning_rate: expected a number, got 'fast';"),
        (
            "learning_rat: .1",
            "the configuration has an option 'learning_rat', which 'issm' does not have; did you mean",
        ),
    ]:
        path.write_text(text)
        assert refused(capsys, "train", "issm", "--config", str(path)).startswith(message)


def test_a_recipe_is_found_by_model_and_data_and_other_options_count_instead(capsys):
    asked = ("train", "rsgls-issm", "--recipe", "best", "--max-epochs=3", "--dataset", "exchange")
    assert main([*asked, "--print_config"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["max_epochs"], found["num_particles"], found["gradient_length"]) == (3, 20, 100)


def test_a_switching_model_has_the_options_of_its_preset_and_others_count_instead(capsys):
    def printed(*arguments):
        assert main(["train", *arguments, "--dataset", "exchange", "--print_config"]) == 0
        return yaml.safe_load(capsys.readouterr().out)

    best = printed("arsgls", "--learning_rate=0.3")
    assert (best["skip"], best["linear_epochs"], best["learning_rate"]) == (True, 30, 0.3)
    short = printed("arsgls", "--max_epochs=10", "--preset", "fast")
    assert (short["max_epochs"], short["linear_epochs"], short["num_particles"]) == (10, 8, 5)
    none = printed("arsgls", "--preset=none")
    assert (none["skip"], none["linear_epochs"]) == (False, 0)
    recipe = printed("arsgls", "--recipe", "paper")
    assert (recipe["batch_size"], recipe["linear_epochs"]) == (50, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("rsgls-issm", "--recipe", "papr", "--dataset", "exchange"),
            "there is no recipe of 'rsgls-issm' on 'exchange' called 'papr'; did you mean 'paper'? There are best, "
            "paper, bootstrap-32, encoder-32, fivo",
        ),
        (("issm", "--recipe", "best"), "--recipe best needs --dataset NAME, one of electricity-18dec, exchange, "),
        (("issm", "--recipe", "best", "--data", "x.csv"), "--recipe best needs --dataset NAME, one of "),
        (
            ("issm", "--recipe", "best", "--dataset", "eia-2020"),
            "--recipe: there are no recipes of 'issm' on 'eia-2020', only on electricity-18dec, exchange, ",
        ),
        (("rsgls", "--recipe", "best", "--dataset", "wiki"), "--recipe: there are no recipes of 'rsgls', only of "),
        (("issm", "--recipe"), "--recipe: expected a value"),
    ],
)
def test_an_unknown_recipe_is_refused_with_those_that_there_are(capsys, arguments, message):
    assert refused(capsys, "train", *arguments).startswith(message)


def test_dashes_are_underscores():
    arguments = ["a-b", "--num-samples", "3", "--data=a-b.csv", "-1", "--settings", '{"a-b": 1}', "--", "--x-y=--z-w"]
    expected = ["a-b", "--num_samples", "3", "--data=a-b.csv", "-1", "--settings", '{"a-b": 1}', "--", "--x_y=--z-w"]
    assert underscored(arguments) == expected


def test_messages_name_what_was_typed(monkeypatch, capsys):
    assert typed("train") == "tsforecast train"
    monkeypatch.setattr(sys, "argv", ["../train.py"])
    assert [typed(name) for name in ("train", "evaluate", "compare", "predict")] == [
        "python ../train.py",
        "python ../evaluate.py",
        "python ../evaluate.py --compare",
        "tsforecast predict",
    ]
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert "`python train.py issm --help` lists the options" in refused(capsys, *ISSM, "--nothing")
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "usage: python train.py" in capsys.readouterr().out


def daily(path):
    stamps = pd.date_range("2024-01-01", periods=40, freq="D")
    pd.DataFrame({"date": stamps, "Sales": range(40), "note": "x"}).to_csv(path, index=False)
    return path


def test_quiet_and_verbose(tmp_path, capsys):
    path = daily(tmp_path / "mine.csv")
    fast = ["--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu"]
    said = {}
    for level in ("--quiet", "", "--verbose"):
        run = tmp_path / f"run{level}"
        assert main(["train", "issm", "--data", str(path), "--output", str(run), *fast, *filter(None, [level])]) == 0
        said[level] = capsys.readouterr().err
        assert "finished after" in (run / "train.log").read_text()
    assert said["--quiet"] == ""
    assert "columns not used: 'note'" in said[""]
    assert main(["train", "issm", "--data", str(path), "--freq", "W", "--verbose"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert logging.getLogger("tsforecast").handlers == []


def test_messages_in_lines_of_json(tmp_path, capsys):
    path, run = daily(tmp_path / "mine.csv"), tmp_path / "run"
    fast = ["--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu"]
    assert main(["train", "issm", "--log-json", "--data", str(path), "--output", str(run), *fast]) == 0
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {"time", "level", "logger", "message"} == set().union(*said)
    assert {line["level"] for line in said} >= {"info"}
    assert f"{run}: finished after" in said[-1]["message"]
    assert main(["train", "issm", "--data", str(path), "--freq", "W", "--log_json"]) == 2
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert last["level"] == "error"
    assert "--freq" in last["message"]


def on_a_terminal(monkeypatch, run):
    """What is said while `run` runs, where standard output and error are a terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))  # where there is no room tqdm draws nothing
    said = []

    def read():
        with contextlib.suppress(OSError):  # at the end, when the other side is closed
            while chunk := os.read(master, 4096):
                said.append(chunk)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    with monkeypatch.context() as patch, os.fdopen(slave, "w") as file:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, file)
        run()
    thread.join(10)
    os.close(master)
    return b"".join(said).decode()


@pytest.mark.parametrize("quiet", [True, False])
def test_no_bars_where_the_user_wants_none(tmp_path, monkeypatch, quiet):
    path, run = daily(tmp_path / "mine.csv"), tmp_path / "run"
    (tmp_path / "stream.csv").write_text("a,target\n" + "".join(f"{k},{k % 7}\n" for k in range(30)))
    fast = ["--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu"]
    sizes = ["--prediction_length", "3", "--windows", "2"]
    commands = {
        "train": ["issm", "--data", path, *sizes, "--output", run, *fast],
        "evaluate": [run, "--num_samples", "5", "--plot_series", "0", "--baselines", "seasonal_naive"],
        "predict": [run, "--data", path, "--output", tmp_path / "out.csv"],
        "impute": [run, "--data", path, "--output", tmp_path / "filled.csv"],
        "stream": ["ogd", "--data", tmp_path / "stream.csv", "--output", tmp_path / "stream"],
        "optimise": ["branin", "--evaluations", "12", "--output", tmp_path / "optimise"],
        "bandit": ["linear", "--data", "wheel", "--steps", "30", "--runs", "1", "--output", tmp_path / "bandit"],
        "tune": ["issm", "--data", path, *sizes, "--study", tmp_path / "study", "--trials", "1", *fast],
    }

    def work():
        for name, options in commands.items():
            assert main([name, *map(str, options), *(["--quiet"] if quiet else [])]) == 0

    lines = re.split("[\r\n]+", on_a_terminal(monkeypatch, work))
    bars = [line for line in lines if any(sign in line for sign in ("it/s", "%|", "Epoch", "items [", "evaluations/s"))]
    if quiet:
        assert not bars
    else:
        for unit in ("Epoch 0", "seasonal_naive, rolling", "series/s", "items [", "evaluations/s", "trial/s"):
            assert any(unit in bar for bar in bars), unit


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(capsys, shell):
    pytest.importorskip("shtab")
    assert main(["--print_completion", shell]) == 0
    script = capsys.readouterr().out
    for name in NAMES:
        assert name in script
    if shell == "bash":
        asked = textwrap.dedent(
            """
            COMP_WORDS=(tsforecast train issm --lear) COMP_CWORD=3
            _shtab_tsforecast
            echo "${COMPREPLY[@]}"
            """
        )
        done = subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["--learning_rate"]
    assert "expected one of bash" in refused(capsys, "--print_completion", "command.com")
