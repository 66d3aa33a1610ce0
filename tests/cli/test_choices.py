"""What a run has chosen is said, kept in its log and in run.json, with the reason."""

import json

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main

FAST = ["--max_epochs", "1", "--num_batches_per_epoch", "1", "--accelerator", "cpu", "--seed", "1"]


def monthly(path, values):
    stamps = pd.date_range("2018-01-01", periods=len(values), freq="MS")
    pd.DataFrame({"Month": stamps.strftime("%Y-%m"), "Sales": values, "note": "x"}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("values", "transformation", "clip"),
    [
        (
            np.arange(30),
            ("log1p", "whole numbers but for one in a hundred"),
            ("nonnegative", "no training value is neg"),
        ),
        (np.arange(30) + 0.5, ("none", "no whole numbers"), ("nonnegative", "no training value is negative")),
        (np.arange(30) - 5, ("none", "the lowest training value is -5"), ("none", "the lowest training value is -5")),
    ],
)
def test_what_was_chosen(tmp_path, capsys, values, transformation, clip):
    data, run = monthly(tmp_path / "mine.csv", values), tmp_path / "run"
    assert main(["train", "issm", "--data", str(data), "--output", str(run), *FAST]) == 0
    said, log = capsys.readouterr().err, (run / "train.log").read_text()
    chosen = json.loads((run / "run.json").read_text())["chosen"]
    assert chosen["prediction_length"] == {"value": 6, "reason": "the series has 30 values"}
    assert chosen["windows"] == {"value": 1, "reason": "the series has 30 values"}
    assert chosen["freq"]["value"] == "M"
    assert chosen["components"] == {"value": "damped_trend+month_of_year", "reason": "by the frequency M"}
    for name, (value, reason) in (("transformation", transformation), ("clip", clip)):
        assert chosen[name]["value"] == value
        assert reason in chosen[name]["reason"]
    assert (chosen["context_length"]["value"], chosen["train_length"]["value"]) == (120, "all")
    for line in (
        "prediction length 6 by default: the series has 30 values",
        "1 test window by default",
        "frequency M, inferred",
        "columns not used: 'note'",
        "one series: time 'Month', target 'Sales'",
        "components damped_trend+month_of_year: by the frequency M",
    ):
        assert line in said
        assert line in log
    assert "WARNING" not in log


def test_what_is_given_is_not_chosen(tmp_path):
    data, run = monthly(tmp_path / "mine.csv", np.arange(40)), tmp_path / "run"
    given = ["--freq", "M", "--prediction_length", "3", "--windows", "2", "--components", "level", "--clip", "none"]
    given += ["--transformation", "none", "--context_length", "12", "--train_length", "0", "--train_horizon", "2"]
    assert main(["train", "issm", "--data", str(data), "--output", str(run), *given, *FAST]) == 0
    chosen = json.loads((run / "run.json").read_text())["chosen"]
    assert chosen == {"scaling_length": {"value": 12, "reason": "that of the context"}}


def test_one_window_is_shown_once(tmp_path, capsys):
    data, run = monthly(tmp_path / "mine.csv", np.arange(40)), tmp_path / "run"
    shown = {}
    for windows in ("1", "2"):
        command = ["train", "issm", "--data", str(data), "--prediction_length", "3", "--windows", windows, *FAST]
        assert main([*command, "--output", str(run / windows)]) == 0
        command = ["evaluate", str(run / windows), "--baselines", "seasonal_naive", "--plot_series", "0"]
        capsys.readouterr()
        assert main([*command, "--num_samples", "10"]) == 0
        shown[windows] = capsys.readouterr().out
    assert (shown["1"].count("seasonal_naive "), shown["2"].count("seasonal_naive ")) == (1, 2)
    assert "With one window, the long-term forecast is the rolling one." in shown["1"]
    assert "With one window" not in shown["2"]
