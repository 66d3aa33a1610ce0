import dataclasses
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tsforecast.learners import LEARNERS, CategoricalLikelihood, GaussianLikelihood
from tsforecast.learners.statistics import Statistics
from tsforecast.online.config import OnlineConfig
from tsforecast.online.features import FeatureColumns, read_features, read_number, read_target

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


def config(**changes):
    return OnlineConfig.of(SimpleNamespace(**{**PLAIN, **changes}))


def test_names_of_one_observation_get_columns_in_one_order():
    columns = FeatureColumns({}, 5).reserve(["b", "a", 3])
    assert columns == FeatureColumns({}, 5).reserve([3, "b", "a"])
    later = columns.reserve(["a", "0"])
    assert later.places["0"] == 3
    assert columns.reserve(["a"]) is columns
    row = later.row({"0": 2.0, "unknown": 5.0})
    assert row[0, 3] == 2
    assert row.isnan().sum() == 4
    assert later.reserve(["a", "d"]).capacity == 5
    assert later.reserve(["a", "d", "e"]).capacity == 10
    assert FeatureColumns({}, 2).reserve("abcdef").capacity == 6


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
        ("12.5", r"feature 'colour', got the text '12.5'"),
        (b"red", r"feature 'colour', got the text b'red'"),
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


def test_a_text_has_a_column_in_which_others_are_zero():
    red, blue, none = (read_features({"colour": text, "size": 2}) for text in ("red", "blue", None))
    columns = FeatureColumns({}, 4).reserve(red).reserve(blue)
    rows = [columns.row(one)[0, : len(columns.places)].tolist() for one in (red, blue, none)]
    order = {name: place for place, name in enumerate(columns.places)}
    places = [order[next(name for name in one if name != "size")] for one in (red, blue)]
    assert [rows[0][k] for k in places] == [1, 0]
    assert [rows[1][k] for k in places] == [0, 1]
    assert all(math.isnan(rows[2][k]) for k in places)
    unknown = columns.row(read_features({"colour": "green"}))[0]
    assert [unknown[k].item() for k in places] == [0, 0]


def test_a_feature_is_a_number_or_a_text_of_few_kinds():
    columns = FeatureColumns({}, 4).reserve(read_features({"colour": "red", "size": 2}))
    with pytest.raises(ValueError, match="a number for feature 'size', as before, got the text 'large'"):
        columns.reserve(read_features({"size": "large"}))
    with pytest.raises(ValueError, match="a text for feature 'colour', as before, got a number"):
        columns.reserve(read_features({"colour": 3}))
    for number in range(99):
        columns = columns.reserve(read_features({"colour": f"shade {number}"}))
    with pytest.raises(ValueError, match="feature 'colour' has more than 100 different texts"):
        columns.reserve(read_features({"colour": "white"}))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "1.0"])
def test_targets_must_be_there(value):
    with pytest.raises(ValueError, match=r"number for the target, got"):
        read_target(value)
    assert read_target(np.int32(3)) == 3
    assert read_number("it", True) == 1


def after(rows, statistics=None):
    statistics = Statistics.empty(len(rows[0])) if statistics is None else statistics
    for row in torch.tensor(rows, dtype=torch.float64):
        statistics, scaled = statistics.standardise(row)
    return statistics, scaled


def test_statistics_are_those_of_the_values_that_are_there():
    data = np.random.default_rng(0).normal(3, 2, (400, 4))
    data[np.random.default_rng(1).random((400, 4)) < 0.3] = np.nan
    data[:, 2] = 0.1  # constant, and not exact in binary
    data[:, 3] = np.where(np.arange(400) % 12 == 7, 1.0, 0.0)  # one of a dozen categories
    for count in (2, 9, 16, 17, 400):
        statistics, _ = after(data[:count])
        torch.testing.assert_close(statistics.mean, torch.tensor(np.nanmean(data[:count], 0)))
        torch.testing.assert_close(statistics.deviation, torch.tensor(np.nanstd(data[:count], axis=0)))
        assert statistics.deviation[2] == 0
    _, scaled = statistics.standardise(torch.tensor([[5.0, math.nan, 0.7, 1.0], [3.0, 0.0, 0.1, 0.0]]).double())
    data = np.append(data, [[5.0, np.nan, 0.7, 1.0]], 0)
    expected = (data[-1] - np.nanmean(data, 0)) / np.nanstd(data, 0)
    expected[2] = 4  # the first that differs is taken as one of 17: sqrt(16)
    torch.testing.assert_close(scaled[0], torch.tensor(expected), equal_nan=True)


@pytest.mark.parametrize(("count", "share"), [(3, 0.02), (8, 0.001), (16, 0.001), (60, 0.001)])
def test_nearly_all_columns_of_gaussian_values_have_the_ordinary_moments_from_the_first_value_on(count, share):
    data = np.random.default_rng(2).normal(size=(count, 4000))
    differs = ~np.isclose(after(data)[0].deviation, data.std(0), rtol=1e-9)
    assert differs.mean() < share + 3 * math.sqrt(share / 4000)


@pytest.mark.parametrize("place", [0, 1, 3, 30, 200])
@pytest.mark.parametrize("size", [-40.0, 1e3, 1e12, -1e300])
def test_one_outlier_of_any_size_at_any_place_hardly_moves_location_and_scale(place, size):
    data = np.random.default_rng(3).normal(size=(place + 200, 20))
    clean, _ = after(data)
    data[place] = size
    found, _ = after(data)
    assert (found.mean - clean.mean).abs().max() < 0.1
    np.testing.assert_allclose(found.deviation, clean.deviation, rtol=0.15)
    assert abs((found.deviation / clean.deviation).mean() - 1) < 0.05


@pytest.mark.parametrize("count", [4, 15, 16])
def test_an_outlier_among_the_first_values_is_left_out_of_all_their_moments(count):
    data = np.random.default_rng(3).normal(size=(count, 1))
    data[2] = 1e6
    found, _ = after(data)
    others = np.delete(data, 2)
    np.testing.assert_allclose([found.mean.item(), found.deviation.item()], [others.mean(), others.std()])


def test_a_value_without_precedent_counts_as_missing_and_a_few_of_them_are_believed():
    statistics, _ = after(np.random.default_rng(4).normal(size=(100, 1)))
    missing, scaled = [], None
    for _ in range(8):
        statistics, scaled = statistics.standardise(torch.tensor([200.0]).double())
        missing.append(bool(scaled.isnan()))
    assert missing == sorted(missing, reverse=True)
    assert missing[:3] == [True] * 3
    assert not missing[-1]
    assert scaled == 10


@pytest.mark.parametrize(("shift", "times"), [(50.0, 20.0), (0.0, 100.0), (-300.0, 1.0), (0.0, 0.05)])
def test_real_changes_of_location_and_scale_are_followed(shift, times):
    draws = np.random.default_rng(5)
    data = np.concatenate([draws.normal(size=(200, 20)), shift + times * draws.normal(size=(200, 20))])
    statistics, _ = after(data)
    plain = data.std(0)
    assert (statistics.deviation > 0.4 * torch.tensor(plain)).all()
    assert (statistics.deviation < 1.6 * torch.tensor(plain)).all()
    assert ((statistics.mean - torch.tensor(data.mean(0))).abs() < 0.7 * torch.tensor(plain)).all()


def test_values_of_long_ago_fade_away():
    statistics, _ = after(np.random.default_rng(6).normal(size=(50, 1)))
    old = dataclasses.replace(statistics, count=statistics.count + 1e6)
    later, _ = old.standardise(torch.tensor([2.0]).double())
    torch.testing.assert_close(later.mean - old.mean, (2 - old.mean) / 100_000)


def test_huge_values_are_cut():
    stream = config().begin(2, 1, GaussianLikelihood(0.5))
    rows = [[1.0, 1.0], [2.0, -1.7e308], [1e300, 1.7e308], [3.0, 0.0], [1e308, 1e-320]]
    for row in torch.tensor(rows, dtype=torch.float64):
        stream = stream.learn(row.unsqueeze(0), row.new_ones(1, 1))
        assert all(bool(part.isfinite().all()) for part in (stream.statistics.variance, stream.belief.mean))
    _, scaled = after([[0.0], [5e-324]])
    assert scaled == 0  # a variance too small to be a number


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": "sgd"}, r"learner to be one of ekf, .*, got 'sgd'"),
        ({"drift": "some"}, r"drift to be one of auto, none, wiener, .*, got 'some'"),
        ({"weight": "heavy"}, r"weight to be one of none, imq, gate, got 'heavy'"),
        ({"activation": "gelu"}, r"activation to be one of tanh, relu, sigmoid, got 'gelu'"),
        ({"hidden": (3, 0)}, r"tuple of positive widths, or \(\), got \(3, 0\)"),
        ({"variance": 0.0}, r"variance to be positive and finite, got 0.0"),
        ({"drift": "forgetting", "rate": 2.0}, r"rate to be at least 0 and at most 1, got 2.0"),
        ({"settings": {"size": 3}}, r"what learner 'vd-ekf' takes, got size: .*unexpected keyword"),
        ({"learner": "ogd", "drift": "ou"}, r"what learner 'ogd' takes, got drift"),
        (
            {"learner": "lrkf", "drift": "forgetting"},
            r"a drift that learner 'lrkf' takes, got 'forgetting': .*take the drift Wiener",
        ),
    ],
)
def test_wrong_choices(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**changes).begin(3, 1, GaussianLikelihood(0.5))


def test_likelihoods_of_wrong_choices():
    with pytest.raises(ValueError, match="prediction to be one of plug-in, moderated, got 'best'"):
        config().likelihood("best")
    with pytest.raises(ValueError, match="'adf', which learns classes alone"):
        config(learner="adf").numeric(0.5)
    with pytest.raises(ValueError, match=r"noise to be positive and finite, got -1\.0"):
        config().numeric(-1.0)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_every_learner_learns_and_leaves_the_global_generator_alone(learner, hidden):
    before = torch.get_rng_state()
    settings = {"bong": {"evidence": "empirical-fisher"}, "blr": {"evidence": "hessian"}}.get(learner)
    likelihood = config(learner=learner).likelihood("plug-in")
    stream = config(learner=learner, hidden=hidden, settings=settings).begin(3, 2, likelihood)
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
    stream = config(learner="lofi", drift=drift, weight=weight).begin(2, 3, CategoricalLikelihood())
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    for row in rows:
        stream = stream.learn(row.unsqueeze(0), row.new_ones(1, 1))
    assert stream.probabilities(rows).isfinite().all()


def test_many_rows_are_predicted_in_parts():
    stream = config().begin(2, 1, GaussianLikelihood(0.5))
    rows = torch.tensor(np.random.default_rng(0).normal(size=(600, 2)))
    for row in rows[:20]:
        stream = stream.learn(row.unsqueeze(0), row[:1].unsqueeze(0))
    whole, part = stream.predict(rows, True), stream.predict(rows[300:310], True)
    torch.testing.assert_close(whole.mean[300:310], part.mean)
    torch.testing.assert_close(whole.variance[300:310], part.variance)
    assert (whole.variance > 0.5).all()


def test_all_is_forgotten_by_a_whole_burst():
    stream = config().begin(2, 1, GaussianLikelihood(0.5))
    rows = torch.tensor(np.random.default_rng(0).normal(size=(20, 2)))
    learnt = stream
    for row in rows:
        learnt = learnt.learn(row.unsqueeze(0), row[:1].unsqueeze(0))
    torch.testing.assert_close(learnt.forget(1.0).belief.mean, stream.belief.mean)
    half = learnt.forget(0.5).belief
    torch.testing.assert_close(1 / half.variance, 0.5 / learnt.belief.variance + 0.5 / stream.belief.variance)
    with pytest.raises(ValueError, match="a learner with a prior, to forget on drift, got GradientDescent"):
        config(learner="ogd").begin(2, 1, GaussianLikelihood(0.5)).forget(0.5)
