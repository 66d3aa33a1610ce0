"""Forecasts of test windows by a model that is trained again before each."""

import json

import numpy as np
import pandas as pd
import pytest

from tsforecast import StateSpaceEstimator
from tsforecast.cli import main
from tsforecast.data import read_task
from tsforecast.data.task import instances
from tsforecast.forecasting.refit import refitted

OPTIONS = {"components": "level", "num_batches_per_epoch": 1, "trainer_kwargs": {"max_epochs": 1}}


@pytest.fixture(scope="module")
def table():
    """Two series whose level rises in the second of three test windows."""
    steps = np.arange(40)
    values = np.random.default_rng(0).normal(10, 1, 40) + np.where(steps > 33, 50, 0)
    frame = pd.DataFrame({"timestamp": pd.date_range("2020-01-01", periods=40), "target": values})
    return pd.concat([frame.assign(item_id=name) for name in ("a", "b")])


def test_each_window_is_forecast_by_a_model_that_saw_all_before_it(table):
    task = read_task(table, "D", 4, 3)
    estimator = StateSpaceEstimator("issm", "D", 4, seed=0, **OPTIONS)
    found = refitted(lambda part: estimator.train(part.train), task, num_samples=10)
    pasts, labels = instances(task.test())
    assert [(one.item_id, one.start_date) for one in found] == [(one["item_id"], one["start"]) for one in labels]
    for window in range(3):
        until = [{**e, "target": e["target"][: 40 - (3 - window) * 4]} for e in task.entries]
        predictor = StateSpaceEstimator("issm", "D", 4, seed=0, **OPTIONS).train(until)
        for place, direct in zip(
            (window, 3 + window), predictor.predict([pasts[window], pasts[3 + window]]), strict=True
        ):
            np.testing.assert_array_equal(found[place].quantile(0.9), direct.quantile(0.9))


def test_evaluate_scores_the_run_trained_again(table, tmp_path, capsys):
    table.to_csv(tmp_path / "table.csv", index=False)
    run = str(tmp_path / "run")
    words = ["--data", str(tmp_path / "table.csv"), "--prediction_length=4", "--windows=3", "--num_batches_per_epoch=1"]
    assert main(["train", "issm", *words, "--components=level", "--max_epochs=1", "--output", run]) == 0
    before = {path.name for path in (tmp_path / "run").iterdir()}
    options = ["--baselines=none", "--plot_series=0", "--num_samples=10"]
    assert main(["evaluate", run, *options, "--refit"]) == 0
    assert "CRPS of issm+refit minus that of issm: " in capsys.readouterr().out
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    assert scores["adapted"]["model"] == "issm+refit"
    assert scores["adapted"]["rolling"]["crps"] != scores["rolling"]["crps"]
    windows = pd.read_csv(tmp_path / "run" / "per_forecast.csv").query("protocol == 'rolling' and item_id == 'a'")
    first = windows.groupby("model", sort=False)["crps"].first()
    assert first["issm"] == pytest.approx(first["issm+refit"], rel=1e-6)  # nothing has come since
    assert {path.name for path in (tmp_path / "run").iterdir()} - before >= {"scores.json"}
    assert main(["evaluate", run, *options, "--refit", "--adapt", "lofi"]) == 2
    assert "--refit and --adapt each add a model: give one of them" in capsys.readouterr().err
