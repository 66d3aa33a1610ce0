import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tsforecast.adapters.features import Columns, Statistics, read_features, read_number, read_target
from tsforecast.adapters.recipe import Recipe
from tsforecast.core.learners import LEARNERS, Categorical, Gaussian

PLAIN = {
    "learner": "vd-ekf",
    "hidden": (4,),
    "activation": "tanh",
    "variance": 0.1,
    "drift": "none",
    "rate": 0.01,
    "weight": "none",
    "threshold": 3.0,
    "rank": 3,
    "seed": 0,
    "settings": None,
}


def recipe(**changes):
    return Recipe(**{**PLAIN, **changes})


def test_names_of_one_observation_get_columns_in_one_order():
    columns = Columns({}, 5).reserve(["b", "a", 3], "features", "max_features")
    assert columns == Columns({}, 5).reserve([3, "b", "a"], "features", "max_features")
    later = columns.reserve(["a", "0"], "features", "max_features")
    assert later.places["0"] == 3
    assert columns.reserve(["a"], "features", "max_features") is columns
    row = later.row({"0": 2.0, "unknown": 5.0})
    assert row[0, 3] == 2
    assert row.isnan().sum() == 4
    with pytest.raises(ValueError, match=r"at most 5 features, got 6, of which 'd' is new: raise max_features"):
        later.reserve(["a", "d", "e"], "features", "max_features")


def test_numbers():
    values = {
        "a": 1,
        "b": True,
        "c": 0.5,
        "d": np.float32(2),
        "e": np.int64(3),
        "f": np.bool_(True),
        "g": Fraction(1, 4),
    }
    assert read_features({**values, "h": None, "i": math.nan}) == {k: float(v) for k, v in values.items()}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("red", r"feature 'colour', got the text 'red': one-hot encode"),
        (math.inf, r"a finite number for feature 'colour', got inf"),
        (-np.float64(math.inf), r"a finite number for feature 'colour'"),
        (10**400, r"a finite number for feature 'colour'"),
        ([1.0], r"feature 'colour', got \[1.0\] of type list"),
        (1j, r"of type complex"),
    ],
)
def test_what_is_not_a_finite_number_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        read_features({"size": 1.0, "colour": value})


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "1.0"])
def test_targets_must_be_there(value):
    with pytest.raises(ValueError, match=r"number for the target, got"):
        read_target(value)
    assert read_target(np.int32(3)) == 3
    assert read_number("it", True) == 1


def test_statistics_are_those_of_the_values_that_are_there():
    data = np.random.default_rng(0).normal(3, 2, (50, 3))
    data[np.random.default_rng(1).random((50, 3)) < 0.3] = np.nan
    data[:, 2] = 0.1  # constant, and not exact in binary
    statistics = Statistics.empty(3)
    for row in torch.tensor(data):
        statistics = statistics.observe(row)
    torch.testing.assert_close(statistics.mean, torch.tensor(np.nanmean(data, 0)))
    torch.testing.assert_close(statistics.deviation[:2], torch.tensor(np.nanstd(data[:, :2], axis=0)))
    row = torch.tensor([[5.0, math.nan, 0.7]], dtype=torch.float64)
    expected = (5 - np.nanmean(data[:, 0])) / np.nanstd(data[:, 0])
    torch.testing.assert_close(statistics.scale(row), torch.tensor([[expected, 0, 0]]))


def test_huge_values_are_cut():
    stream = recipe().begin(2, 1, Gaussian(0.5))
    rows = [[1.0, 1.0], [2.0, -1.7e308], [1e300, 1.7e308], [3.0, 0.0], [1e308, 1e-320]]
    for row in torch.tensor(rows, dtype=torch.float64):
        stream = stream.learn(row.unsqueeze(0), row.new_ones(1, 1))
        assert all(bool(part.isfinite().all()) for part in (stream.statistics.squares, stream.belief.mean))
    two = (
        Statistics.empty(1)
        .observe(torch.zeros(1, dtype=torch.float64))
        .observe(torch.tensor([5e-324], dtype=torch.float64))
    )
    assert two.scale(torch.ones(1, 1, dtype=torch.float64)).item() == 0  # a variance too small to be a number


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": "sgd"}, r"learner to be one of ekf, .*, got 'sgd'"),
        ({"drift": "some"}, r"drift to be one of none, wiener, .*, got 'some'"),
        ({"weight": "heavy"}, r"weight to be one of none, imq, gate, got 'heavy'"),
        ({"activation": "gelu"}, r"activation to be one of tanh, relu, sigmoid, got 'gelu'"),
        ({"hidden": (3, 0)}, r"tuple of positive widths, or \(\), got \(3, 0\)"),
        ({"variance": 0.0}, r"variance to be positive and finite, got 0.0"),
        ({"drift": "forgetting", "rate": 2.0}, r"rate to be at least 0 and at most 1, got 2.0"),
        ({"settings": {"size": 3}}, r"what learner 'vd-ekf' takes, got size: .*unexpected keyword"),
        ({"learner": "ogd", "drift": "ou"}, r"what learner 'ogd' takes, got drift"),
        ({"learner": "lrkf", "drift": "forgetting"}, r"what learner 'lrkf' takes, .*take the drift Wiener"),
    ],
)
def test_wrong_choices(changes, message):
    with pytest.raises(ValueError, match=message):
        recipe(**changes).begin(3, 1, Gaussian(0.5))


def test_likelihoods_of_wrong_choices():
    for classes, message in ((3, "max_classes to be 2 for learner 'adf', got 3"), (1, "got 1")):
        with pytest.raises(ValueError, match=message):
            recipe(learner="adf").likelihood(classes, "max_classes", "plug-in")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        recipe().likelihood(0, "max_classes", "plug-in")
    with pytest.raises(ValueError, match="'adf', which learns classes alone"):
        recipe(learner="adf").numeric(0.5)
    with pytest.raises(ValueError, match=r"noise to be positive and finite, got -1\.0"):
        recipe().numeric(-1.0)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_every_learner_learns_and_leaves_the_global_generator_alone(learner, hidden):
    before = torch.get_rng_state()
    settings = {"bong": {"pseudo": "empirical-fisher"}, "blr": {"pseudo": "hessian"}}.get(learner)
    likelihood = recipe(learner=learner).likelihood(2, "classes", "plug-in")
    stream = recipe(learner=learner, hidden=hidden, settings=settings).begin(3, 2, likelihood)
    rows = torch.tensor(np.random.default_rng(0).normal(size=(12, 3)))
    target = (rows[:, :1] > 0).double()
    first = stream
    for k in range(6):
        stream = stream.learn(rows[2 * k : 2 * k + 2], target[2 * k : 2 * k + 2])
    probabilities = stream.probabilities(rows)
    assert probabilities.shape == (12, 2)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(12, dtype=torch.float64))
    assert not torch.equal(probabilities, first.probabilities(rows))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("drift", ["wiener", "ou", "forgetting", "exponential", "shrink"])
@pytest.mark.parametrize("weight", ["none", "imq", "gate"])
def test_drifts_and_weights(drift, weight):
    stream = recipe(learner="lofi", drift=drift, weight=weight).begin(2, 3, Categorical())
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    for row in rows:
        stream = stream.learn(row.unsqueeze(0), row.new_ones(1, 1))
    assert stream.probabilities(rows).isfinite().all()


def test_many_rows_are_predicted_in_parts():
    stream = recipe().begin(2, 1, Gaussian(0.5))
    rows = torch.tensor(np.random.default_rng(0).normal(size=(600, 2)))
    for row in rows[:20]:
        stream = stream.learn(row.unsqueeze(0), row[:1].unsqueeze(0))
    whole, part = stream.predict(rows, True), stream.predict(rows[300:310], True)
    torch.testing.assert_close(whole.mean[300:310], part.mean)
    torch.testing.assert_close(whole.variance[300:310], part.variance)
    assert (whole.variance > 0.5).all()


def test_all_is_forgotten_by_a_whole_burst():
    stream = recipe().begin(2, 1, Gaussian(0.5))
    rows = torch.tensor(np.random.default_rng(0).normal(size=(20, 2)))
    learnt = stream
    for row in rows:
        learnt = learnt.learn(row.unsqueeze(0), row[:1].unsqueeze(0))
    torch.testing.assert_close(learnt.forget(1.0).belief.mean, stream.belief.mean)
    half = learnt.forget(0.5).belief
    torch.testing.assert_close(1 / half.variance, 0.5 / learnt.belief.variance + 0.5 / stream.belief.variance)
    with pytest.raises(ValueError, match="a learner with a prior, to forget on drift, got GradientDescent"):
        recipe(learner="ogd").begin(2, 1, Gaussian(0.5)).forget(0.5)
