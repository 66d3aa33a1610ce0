"""Frames in and out of the estimators of river, and how often an observation counts."""

import math
import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from river import base, preprocessing

from tsforecast.online.river import OnlineClassifier, OnlineRegressor
from tsforecast.online.sklearn import BayesianOnlineClassifier, BayesianOnlineRegressor

MODELS = [OnlineClassifier(hidden=(3,)), OnlineRegressor("ekf", hidden=())]


def table(rows=24, seed=0):
    """Features, some missing; the index is none of positions."""
    draws = np.random.default_rng(seed)
    values = draws.normal(size=(rows, 3)) * [1, 10, 100]
    values[draws.random(values.shape) < 0.1] = np.nan
    return pd.DataFrame(values, columns=list("abc"), index=[f"row {k}" for k in range(rows)])


def answers(model, X):
    """Numbers, or labels: all three in every eight rows, in their order first."""
    if isinstance(model, OnlineRegressor):
        return X.fillna(0) @ [1.0, 0.1, 0.01]
    return pd.Series(np.resize(["high", "low", "mid", "low"], len(X)), X.index)


def observations(X):
    return X.to_dict("records")


@pytest.mark.parametrize("drift", ["wiener", "forgetting"])
def test_a_frame_is_a_block_of_the_estimator_for_matrices(drift):
    X = table()
    regressor, classifier = (
        OnlineRegressor("vd-ekf", hidden=(4,), expected_features=3, drift=drift, rate=0.02),
        OnlineClassifier("vd-ekf", hidden=(4,), expected_features=3, expected_classes=3, drift=drift, rate=0.02),
    )
    for model, same in (
        (regressor, BayesianOnlineRegressor("vd-ekf", hidden=(4,), block=8, drift=drift, rate=0.02)),
        (classifier, BayesianOnlineClassifier("vd-ekf", hidden=(4,), block=8, drift=drift, rate=0.02)),
    ):
        y = answers(model, X)
        for part in np.split(np.arange(24), 3):
            model.learn_many(X.iloc[part], y.iloc[part])
        same.fit(X.to_numpy(), y.to_numpy())
        if model is classifier:
            found, expected = classifier.predict_proba_many(X), same.predict_proba(X.to_numpy())
            assert list(found.columns) == list(same.classes_)
        else:
            found, expected = model.predict_many(X), same.predict(X.to_numpy())
        np.testing.assert_allclose(found.to_numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_predictions_of_many_rows_are_those_of_each(model):
    model, X = model.clone(), table()
    model.learn_many(X, answers(model, X))
    X = table(7, seed=1).assign(unknown=1.0).drop(columns="b").astype(object)
    X.iloc[2, 0], X.iloc[3, 0] = None, pd.NA
    each = [{k: None if v is pd.NA else v for k, v in x.items()} for x in observations(X)]
    found = model.predict_many(X)
    assert list(found.index) == list(X.index)
    if isinstance(model, OnlineClassifier):
        assert found.tolist() == [model.predict_one(x) for x in each]
        for name, x in zip(X.index, each, strict=True):
            assert model.predict_proba_many(X).loc[name].to_dict() == pytest.approx(
                model.predict_proba_one(x), rel=1e-12
            )
    else:
        np.testing.assert_allclose(found, [model.predict_one(x) for x in each], rtol=1e-12)
    assert model.predict_many(X[:0]).empty


def test_before_any_row():
    X = table(3)
    assert OnlineRegressor().predict_many(X).tolist() == [0.0, 0.0, 0.0]
    assert OnlineClassifier().predict_many(X).tolist() == [None, None, None]
    assert OnlineClassifier().predict_proba_many(X).shape == (3, 0)
    model = OnlineRegressor()
    model.learn_many(X[:0], pd.Series(dtype=float))
    assert model._stream is None


def test_names_that_are_new_within_a_frame_have_the_places_that_they_get_one_by_one():
    X = pd.DataFrame({"c": [1.0, 2.0, 0.5], "a": [None, 1, 2], "b": pd.array([None, None, 3], "Int64")})
    y = pd.Series(["z", ("x", 1), "y"], dtype=object)
    many, one = OnlineClassifier(hidden=(2,)), OnlineClassifier(hidden=(2,))
    many.learn_many(X, y)
    for x, label in zip([{"c": 1.0}, {"c": 2.0, "a": 1}, {"c": 0.5, "a": 2, "b": 3}], y, strict=True):
        one.learn_one(x, label)
    assert many._columns.places == one._columns.places == {"c": 0, "a": 1, "b": 2}
    assert many._labels.places == one._labels.places
    assert list(many.predict_proba_many(X).columns) == list(y)
    for of_many, of_one in zip(*(vars(m._stream.statistics).values() for m in (many, one)), strict=True):
        assert torch.allclose(of_many, of_one, equal_nan=True)


class Recorder(base.DriftDetector):
    """Says after the fifteenth error that something has changed."""

    seen: ClassVar[list[float]] = []

    def update(self, x):
        self.seen.append(x)
        self._drift_detected = len(self.seen) == 15


@pytest.mark.parametrize("model", MODELS)
def test_a_detector_sees_the_errors_of_all_rows_in_their_order(model):
    X = table()
    y = answers(model, X)
    model = model.clone({"detector": Recorder()})
    plain = model.clone({"detector": None})
    Recorder.seen.clear()
    for each in (model, plain):
        each.learn_many(X[:12], y[:12])
    if isinstance(model, OnlineClassifier):  # which had nothing to expect before the first labels
        assert not Recorder.seen
        Recorder.seen.extend([0.0] * 12)
    guesses = plain.predict_many(X[12:16])
    targets = getattr(plain, "_targets", None)
    plain._stream = plain._stream.forget(0.5)
    for each in (model, plain):
        each.learn_many(X[12:16], y[12:16])
    if isinstance(model, OnlineClassifier):
        assert Recorder.seen[12:] == (guesses != y[12:16]).tolist()
        assert model.predict_proba_many(X).equals(plain.predict_proba_many(X))
    else:
        expected = []
        for guess, number in zip((guesses - targets.mean.item()) / targets.deviation.item(), y[12:16], strict=True):
            targets, scaled = targets.standardise(torch.tensor([number], dtype=torch.float64))
            expected.append(abs(guess - scaled.item()))
        np.testing.assert_allclose(Recorder.seen[12:], expected, rtol=1e-9)
        assert model.predict_many(X).equals(plain.predict_many(X))


@pytest.mark.parametrize("model", MODELS)
def test_what_does_not_count_is_left_out(model):
    X = table()
    y, counts = answers(model, X), pd.Series(np.arange(24) % 3 != 1, X.index).astype(float)
    kept = counts.to_numpy() > 0
    found, expected, by_row, rest = (model.clone() for _ in range(4))
    more = X.assign(late=np.where(kept, np.nan, 1.0))  # a feature that comes with what does not count alone
    found.learn_many(more, y, w=counts)
    expected.learn_many(X[kept], y[kept])
    for x, target, count in zip(observations(more), y, counts, strict=True):
        by_row.learn_one(x, target, w=count)
        if count:
            rest.learn_one({name: x[name] for name in "abc"}, target)
    for one, other in ((found, expected), (by_row, rest)):
        assert one.predict_many(X).equals(other.predict_many(X))
        assert one._columns.places == other._columns.places
        assert one._stream.steps == other._stream.steps


@pytest.mark.parametrize("model", MODELS)
def test_what_counts_more_is_told_to_the_learner(model):
    X = table()
    y, counts = answers(model, X), np.linspace(0.5, 3, 8)
    model = model.clone()
    model.learn_many(X[:16], y[:16])
    before = model._stream
    plain = pickle.loads(pickle.dumps(model))
    plain.learn_many(X[16:], y[16:])
    heard = []
    learner = type(before.learner)
    update = learner.update

    def listen(self, *args):
        heard.append(args[-1])
        return update(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "update", listen)
        model.learn_many(X[16:], y[16:], w=pd.Series(counts))
        model.learn_one(observations(X)[0], y.iloc[0], w=2.5)
    assert [x.tolist() for x in heard] == [counts.tolist(), [2.5]]
    assert not torch.allclose(model._stream.belief.mean, plain._stream.belief.mean)


@pytest.mark.parametrize("model", MODELS)
def test_bad_frames_are_refused_and_change_nothing(model):
    X = table()
    y = answers(model, X)
    model = model.clone()
    model.learn_many(X, y)
    before = pickle.dumps(model)
    wrong = y.astype(object)
    wrong.iloc[3] = None
    for data, targets, w, message in [
        (X.to_numpy(), y, 1.0, "X to be a pandas DataFrame, got ndarray"),
        (X.rename(columns={"b": "a"}), y, 1.0, "each feature to have one column, got 'a' twice"),
        (X, y[:5], 1.0, "a target for each of 24 rows, got 5"),
        (X, wrong, 1.0, "expected a .*, got None: leave observations without a .* out"),
        (X.assign(a=math.inf), y, 1.0, "finite number for feature 'a', got inf"),
        (X.assign(a="1.5"), y, 1.0, "feature 'a', got the text '1.5'"),
        (X, y, -1.0, "w to be finite and not negative, got -1"),
        (X, y, pd.Series([math.nan] * 24), "w to be finite and not negative, got nan"),
        (X, y, [1.0, 2.0], r"w to be a number, or one for each of 24 rows, got shape \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.learn_many(data, targets, w)
    with pytest.raises(ValueError, match="w to be finite and not negative, got -2"):
        model.learn_one({"a": 1.0}, y.iloc[0], w=-2)
    assert pickle.dumps(model) == before


def test_frames_in_a_pipeline():
    X = pd.DataFrame({"colour": np.resize(["red", "blue", "red", "green"], 60), "on": np.resize(["0", "1", "1"], 60)})
    y = X["colour"] == "red"
    model = preprocessing.OneHotEncoder() | OnlineClassifier(hidden=(4,))
    for start in range(0, 60, 5):
        model.learn_many(X[start : start + 5], y[start : start + 5])
    assert (model.predict_many(X) == y).mean() > 0.9
