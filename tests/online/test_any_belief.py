"""A belief that is no Gaussian goes through streams, adapters and saved states as any other."""

import numpy as np
import pytest
import torch

from tests.learners.particles import make_particles
from tests.online.test_stream import follow
from tsforecast.learners import LEARNERS, GaussianLikelihood, LearnerConfig, NamedLearner
from tsforecast.online.config import OnlineConfig
from tsforecast.online.prequential import advance, movement, scores
from tsforecast.online.progress import Setup
from tsforecast.online.river import OnlineClassifier, OnlineRegressor
from tsforecast.online.saved_progress import load, save
from tsforecast.online.sklearn import BayesianOnlineClassifier, BayesianOnlineRegressor
from tsforecast.online.stream import Observation


@pytest.fixture(autouse=True)
def particles(monkeypatch):
    monkeypatch.setitem(LEARNERS, "particles", NamedLearner(make_particles))


def config(**settings):
    learner = LearnerConfig("particles", variance=1.0, drift="none", rank=2, settings=settings)
    return OnlineConfig(learner, (), "tanh")


def rows_and_numbers(count=60):
    rows = np.random.default_rng(0).normal(size=(count, 2))
    return rows, rows @ [1.0, -0.5]


def test_a_stream_weighs_every_point_by_what_it_makes_of_the_data():
    """Oracle: one product of likelihoods, each discounted by what came after it."""
    stream = config(forgetting=0.1).begin(2, 1, GaussianLikelihood(0.5))
    rows, numbers = (torch.tensor(x) for x in rows_and_numbers(10))
    points = stream.belief.points
    seen, expected = [], torch.zeros(len(points), dtype=torch.float64)
    for row, number in zip(rows, numbers, strict=True):
        seen.append(row)
        so_far = torch.stack(seen)
        deviation = so_far.std(0, correction=0)
        scaled = torch.where(deviation > 0, (row - so_far.mean(0)) / deviation, 0.0)
        outputs = points[:, :2] @ scaled + points[:, 2]
        log_prob = torch.distributions.Normal(outputs, 0.5**0.5).log_prob(number)
        expected = 0.9 * (expected + log_prob)
        stream = stream.learn(row.unsqueeze(0), number.view(1, 1))
    torch.testing.assert_close(stream.belief.log_weights, expected)
    torch.testing.assert_close(stream.forget(0.5).belief.log_weights, 0.5 * expected)
    once, thrice = (stream.learn(rows[:1], numbers[:1, None], 0.0, c) for c in (None, 3 * torch.ones(1).double()))
    gained = once.belief.log_weights - stream.belief.log_weights
    torch.testing.assert_close(thrice.belief.log_weights - stream.belief.log_weights, 3 * gained)
    wide, narrow = stream.predict(rows, spread=True), stream.predict(rows)
    torch.testing.assert_close(wide.mean, narrow.mean)
    assert (wide.variance > 0.5).all()


def test_estimators():
    rows, numbers = rows_and_numbers(150)
    labels = np.where(numbers > 0, "high", "low")
    made = {"learner": "particles", "hidden": (), "variance": 1.0}
    assert BayesianOnlineRegressor(**made).fit(rows[:100], numbers[:100]).score(rows[100:], numbers[100:]) > 0.8
    assert BayesianOnlineClassifier(**made).fit(rows[:100], labels[:100]).score(rows[100:], labels[100:]) > 0.8
    regressor, classifier = OnlineRegressor(**made), OnlineClassifier(**made, expected_classes=2)
    errors, wrong = [], []
    for row, number, label in zip(rows, numbers, labels, strict=True):
        x = dict(zip("ab", row.tolist(), strict=True))
        errors.append(regressor.predict_one(x) - number)
        wrong.append(classifier.predict_one(x) != label)
        regressor.learn_one(x, number)
        classifier.learn_one(x, label)
    assert np.square(errors[50:]).mean() < 0.2 * np.var(numbers)
    assert np.mean(wrong[50:]) < 0.2


@pytest.mark.parametrize("classes", [0, 3])
def test_a_stream_with_this_belief_is_scored_saved_and_goes_on(tmp_path, classes):
    rows, numbers = rows_and_numbers()
    targets = [f"class {int(n > -0.5) + int(n > 0.5)}" for n in numbers] if classes else numbers.tolist()
    items = [Observation({"a": a, "b": b}, y, None) for (a, b), y in zip(rows.tolist(), targets, strict=True)]
    setup = Setup(config(), classes)
    whole, table = follow(setup, items)
    assert scores(setup, whole)["scored"] > 50
    error = table["error"][30:]
    assert (error.mean() < 0.5) if classes else (error.pow(2).mean() < 0.5 * np.var(numbers))
    moved = movement(whole)
    assert moved["weights_moved"] > 0
    assert 0 < moved["weights_sd"] < 1
    half, _ = follow(setup, items[:30])
    save(tmp_path / "state.pt", half, {"bytes": 7})
    progress, extra = load(tmp_path / "state.pt", setup)
    assert extra == {"bytes": 7}
    for item in items[30:]:
        progress, row = advance(setup, progress, item)
    assert row["prediction"] == table["prediction"].iloc[-1]
    assert torch.equal(progress.stream.belief.log_weights, whole.stream.belief.log_weights)
