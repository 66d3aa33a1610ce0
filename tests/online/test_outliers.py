"""One wild value, a target or a feature, is forgotten after two hundred observations, and no number ends a stream."""

import functools
import json
import math
import random

import numpy as np
import pandas as pd
import pytest

from tsforecast.cli import main
from tsforecast.online.river import OnlineClassifier, OnlineRegressor
from tsforecast.online.sklearn import BayesianOnlineRegressor

PLACE, AFTER, COUNT = 120, 200, 500
LEARNERS = {
    "lofi": {"learner": "lofi", "drift": "wiener", "hidden": (8,)},
    "vd-ekf": {"learner": "vd-ekf", "hidden": (8,)},
    "lofi-imq": {"learner": "lofi", "drift": "wiener", "hidden": (8,), "weight": "imq"},
}


def observations(wild=None, seed=0):
    """Four features, of which three matter, and the target; `wild` replaces a value of one observation."""
    draws = random.Random(seed)
    for time in range(COUNT):
        x = {name: draws.gauss(0, 1) for name in "abcd"}
        y = 2 * x["a"] - x["b"] + 0.5 * x["c"] + draws.gauss(0, 0.5)
        if wild is not None and time == PLACE:
            y = wild.get("y", y)
            x |= {name: value for name, value in wild.items() if name != "y"}
        yield x, y


def error_of_numbers(settings, wild):
    """Mean absolute error of what comes two hundred observations later."""
    model, errors = OnlineRegressor(**settings), []
    for x, y in observations(wild):
        errors.append(abs(y - model.predict_one(x)))
        model.learn_one(x, y)
    return np.mean(errors[PLACE + AFTER :])


def log_loss_of_classes(settings, wild):
    model, losses = OnlineClassifier(**settings), []
    for x, y in observations(wild):
        losses.append(-math.log(model.predict_proba_one(x).get(y > 0, 0.5)))
        model.learn_one(x, y > 0)
    return np.mean(losses[PLACE + AFTER :])


@functools.cache
def undisturbed(score, name):
    return score(LEARNERS[name], None)


@pytest.mark.parametrize(
    ("name", "wild"),
    [
        *[("lofi", wild) for wild in ({"y": 1e12}, {"y": -60.0}, {"a": 1e3}, {"a": 1e300, "b": -1e5})],
        *[("vd-ekf", wild) for wild in ({"y": 1e12}, {"a": 1e3})],
        ("lofi-imq", {"y": 1e12}),
    ],
    ids=str,
)
def test_the_error_of_numbers_is_that_of_the_stream_without_the_outlier(name, wild):
    found = error_of_numbers(LEARNERS[name], wild)
    assert found < 1.05 * undisturbed(error_of_numbers, name)


def test_the_log_loss_of_classes_is_that_of_the_stream_without_the_outlier():
    found = log_loss_of_classes(LEARNERS["lofi"], {"a": -1e3, "d": 1e9})
    assert found < 1.05 * undisturbed(log_loss_of_classes, "lofi")


def test_rows_of_a_matrix():
    def score(wild):
        rows, numbers = zip(*observations(wild), strict=True)
        table = np.array([list(row.values()) for row in rows])
        model = BayesianOnlineRegressor(**LEARNERS["lofi"]).fit(table[: PLACE + AFTER], numbers[: PLACE + AFTER])
        return np.abs(model.predict(table[PLACE + AFTER :]) - numbers[PLACE + AFTER :]).mean()

    assert max(score({"y": 1e12}), score({"a": 1e3})) < 1.05 * score(None)


def test_a_target_that_is_too_large_to_be_squared_is_scored_and_does_not_end_a_stream(tmp_path, capsys):
    lines = [f"{x['a']},{y!r}" for x, y in observations({"y": 1e300})]
    (tmp_path / "t.csv").write_text("\n".join(["a,target", *lines]) + "\n")
    run = tmp_path / "run"
    assert main(["stream", "vd-ekf", "--hidden", "--data", str(tmp_path / "t.csv"), "--output", str(run)]) == 0
    assert "500 observations, log-loss" in capsys.readouterr().out
    found = json.loads((run / "scores.json").read_text(), parse_constant=pytest.fail)
    assert found["items"] == COUNT
    assert pd.read_csv(run / "items.csv")["sd"][PLACE:].max() < 5
