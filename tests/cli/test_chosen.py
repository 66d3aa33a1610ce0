"""What `train` lets the data choose for the preset of a switching model."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml

from tsforecast.cli import choices, main, train_parser
from tsforecast.data import Columns, read_task
from tsforecast.forecasting import resolution
from tsforecast.forecasting.candidates import Candidate
from tsforecast.forecasting.selection import Selection
from tsforecast.forecasting.trials import Trial

OF_DAYS = Candidate("issm", {"components": "damped_level+hour_of_day", "train_horizon": 6, "max_epochs": 20})
SHORT = ["--num_particles=2", "--forecast_particles=0", "--switch_dim=2", "--num_bases=2", "--num_batches_per_epoch=1"]


@pytest.fixture(scope="module")
def hours(tmp_path_factory):
    time = pd.date_range("2024-01-01", periods=600, freq="h")
    path = tmp_path_factory.mktemp("hours") / "hours.csv"
    pd.DataFrame({"item_id": "a", "timestamp": time, "target": np.sin(np.arange(600) / 4)}).to_csv(path, index=False)
    return path


@pytest.fixture
def compared(monkeypatch):
    """Candidates that were compared; the second is always better, and takes seven seconds."""
    seen = []

    def select(task, train, seed, budget, candidates, weights):
        seen.append([str(candidate) for candidate in candidates])
        trial = Trial(candidates[1], np.ones((len(task.entries), 1)), 7.0)
        return Selection(candidates[1], (trial,), "it is better")

    monkeypatch.setattr(resolution, "select", select)
    return seen


def settled(argv, task):
    return choices.settled(train_parser.parsed(argv), task)


def test_a_run_has_the_components_that_the_data_choose(hours, compared, tmp_path):
    run = tmp_path / "run"
    options = ["--data", str(hours), "--freq=h", "--prediction_length=2", "--windows=1", *SHORT]
    short = ["--max_epochs=2", "--particle_length=4", "--context_length=24", "--time_budget=100"]
    assert main(["train", "sgls", *options, *short, "--output", str(run)]) == 0
    assert compared == [["issm max_epochs=20", str(OF_DAYS)]]
    config, record = yaml.safe_load((run / "config.yaml").read_text()), json.loads((run / "run.json").read_text())
    assert {name: config[name] for name in OF_DAYS.options} == {**OF_DAYS.options, "max_epochs": 2}
    assert config["state_dim"] == 4
    assert 0 < config["time_budget"] < 100
    assert (record["selection"]["chosen"], record["selection"]["seconds"]) == (str(OF_DAYS), 7.0)


@pytest.mark.parametrize(
    ("model", "words", "count"),
    [
        ("rsgls-issm", (), 1),
        ("arsgls", ("--preset=best",), 1),
        ("arsgls", ("--preset=fast",), 0),
        ("sgls", ("--components", "level"), 0),
        ("sgls", ("--train_horizon=4",), 0),
        ("sgls", ("--preset=none",), 0),
    ],
)
def test_nothing_is_compared_where_the_components_are_said(hours, compared, model, words, count):
    argv = [model, "--data", str(hours), *words]
    *_, found = settled(argv, read_task(hours, freq="h", prediction_length=2, windows=1))
    assert (len(compared), found is not None) == (count, bool(count))


@pytest.mark.parametrize(("options", "expected"), [({}, 2), ({"train_horizon": 6}, 6)])
def test_auto_trains_on_the_windows_that_it_compared(hours, monkeypatch, tmp_path, options, expected):
    """A `gls` of the user's own is trained farther, and says so."""
    monkeypatch.setattr(resolution, "select", lambda *_: Selection(Candidate("gls", options), (), "it is better"))
    words = ["--data", str(hours), "--freq=h", "--prediction_length=2", "--windows=1", "--max_epochs=1"]
    assert main(["train", "auto", *words, "--output", str(tmp_path / "auto")]) == 0
    assert yaml.safe_load((tmp_path / "auto" / "config.yaml").read_text())["train_horizon"] == expected
    assert main(["train", "gls", *words, "--context_length=24", "--output", str(tmp_path / "gls")]) == 0
    found = json.loads((tmp_path / "gls" / "run.json").read_text())["chosen"]["train_horizon"]
    assert found == {"value": 6, "reason": "three forecasts, since the model has no calendar"}


def test_nothing_is_compared_where_there_is_one_structure(hours, compared):
    """Of short series, of days, and of several targets, whose models have no components."""
    frame = pd.read_csv(hours, parse_dates=["timestamp"])
    days = frame.assign(timestamp=pd.date_range("2020-01-01", periods=600))
    two = frame.assign(other=frame["target"] + 1)
    for table, model, columns in (
        (frame.head(100), "sgls", None),
        (days, "rsgls-issm", None),
        (two, "sgls", Columns(target=["target", "other"])),
    ):
        task = read_task(table, prediction_length=2, windows=1, columns=columns)
        assert settled([model, "--data", str(hours)], task)[-1] is None
    assert compared == []
