import copy
import datetime
import functools
import itertools
import math
import pickle
import random

import numpy as np
import pytest
import torch
from river import checks, compose, datasets, drift, evaluate, linear_model, metrics, preprocessing

from tsforecast.learners import LEARNERS as LEARNER_NAMES
from tsforecast.learners import GaussianLikelihood, Wiener
from tsforecast.online.config import OnlineConfig
from tsforecast.online.river import OnlineClassifier, OnlineRegressor

LEARNERS = [
    {"learner": "vd-ekf"},
    {"learner": "lofi"},
    {"learner": "ekf", "hidden": ()},
]

# One learner of each kind of belief; those of classifiers are the same. What else grows is in the adapter, as is what
# becomes of features that go or come in another order.
BELIEFS = ("ekf", "vd-ekf", "lofi", "lrkf", "ogd")
LEARNING = ("learn_one", "pickling", "predict", "seeding", "emerging")
# Several steps for each observation: two are taken as ten are.
SETTINGS = {"blr": {"iterations": 2}, "bbb": {"iterations": 2}}


def all_checks(cls):
    """River's, of every learner: in full on the first data set of the first of the test parameters, else on a part."""
    known = {params.get("learner", "lofi") for params in cls._unit_test_params()}
    names = [name for name in LEARNER_NAMES if name not in {"adf", *known}]
    others = [{"learner": name, "hidden": (4,), "settings": SETTINGS.get(name)} for name in names]
    if cls is OnlineClassifier:  # "adf" learns two classes, and no numbers
        others.append({"learner": "adf", "hidden": (4,)})
    for place, params in enumerate([*cls._unit_test_params(), *others]):
        model = cls(**params)
        found = [check for check in checks.yield_checks(model) if check.__name__ not in model._unit_test_skips()]
        if place == 0:
            names = [check.__name__ for check in found]
            found = [check if k == names.index(check.__name__) else shortened(check) for k, check in enumerate(found)]
        else:
            found = [shortened(check) for check in {check.__name__: check for check in found}.values()]
        if place and (cls is OnlineClassifier or model.learner not in BELIEFS):  # the adapter is the same for all
            found = [check for check in found if any(part in check.__name__ for part in LEARNING)]
        for check in found:
            yield pytest.param(model, check, id=f"{cls.__name__}-{model.learner}-{model.hidden}-{check.__name__}")


def shortened(check):
    if not isinstance(check, functools.partial):
        return check
    data = list(itertools.islice(check.keywords["dataset"], 6))
    return functools.update_wrapper(functools.partial(check.func, dataset=data), check.func)


@pytest.mark.parametrize(("model", "check"), [*all_checks(OnlineClassifier), *all_checks(OnlineRegressor)])
def test_rivers_own_checks(model, check):
    check(model.clone())


def observations(count, seed=0, flip=None):
    """Features, whether a combination of them is positive, and the combination with noise; its sign may flip."""
    draws = random.Random(seed)
    for time in range(count):
        x = {name: draws.gauss(0, 1) for name in "abcd"}
        score = x["a"] + x["b"] - x["c"]
        score = -score if flip is not None and time >= flip else score
        yield x, score > 0, score + draws.gauss(0, 0.3)


def standardised(value, before):
    """By the values before, and itself."""
    seen = [*before, value]
    return np.clip((value - np.mean(seen)) / np.std(seen), -10, 10) if np.std(seen) > 0 else 0.0


@pytest.mark.parametrize("drift_name", ["none", "ou", "wiener"])
def test_a_late_feature_had_an_input_of_zero(drift_name):
    model = OnlineRegressor("vd-ekf", hidden=(3,), drift=drift_name, rate=0.02, noise=0.5)
    config = OnlineConfig.of(model)
    learner = config.begin(8, 1, GaussianLikelihood(0.5)).learner
    belief, seen, targets = learner.init(), {name: [] for name in "abc"}, []
    one = torch.ones((), dtype=torch.float64)
    prior = learner.init()
    for time, (x, _, y) in enumerate(observations(60)):
        x = {name: x[name] for name in ("ab" if time < 30 else "cab")}
        if time % 7 == 3:
            x["b"] = None if time % 2 else math.nan
        inputs = torch.zeros(1, 8, dtype=torch.float64)
        for place, name in enumerate("abc"):
            value = x.get(name)
            if value is not None and not math.isnan(value):
                inputs[0, place] = standardised(value, seen[name])
        if time:
            outputs = learner.network(learner.drift(belief, one).mean, inputs)
            expected = np.mean(targets) + np.std(targets) * outputs.item()
            assert model.predict_one(x) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        if drift_name == "none" and time == 30:  # two of the eight inputs have had a name until now
            layer = (model._stream.belief.mean[:24] - prior.mean[:24]).view(3, 8)
            assert (layer[:, 2:] == 0).all()
            assert (layer[:, :2] != 0).all()
            assert (model._stream.belief.variance[:24].view(3, 8)[:, 2:] == prior.variance[0]).all()
        targets.append(y)
        target = 0.0 if time == 0 else (y - np.mean(targets)) / np.std(targets)
        belief, _ = learner.step(belief, inputs, torch.tensor([[target]], dtype=torch.float64), dt=one)
        for name, value in x.items():
            if value is not None and not math.isnan(value):
                seen[name].append(value)
        model.learn_one(x, y)


def test_weights_of_a_class_that_is_new_have_their_prior():
    model = OnlineClassifier("vd-ekf", hidden=(3,), expected_classes=4)
    for x, y, _ in observations(40):
        model.learn_one(x, y)
    prior, learnt = model._stream.learner.init(), model._stream.belief
    matrix = slice(9 * 3, 9 * 3 + 4 * 3)
    changed = (learnt.mean[matrix] != prior.mean[matrix]).view(4, 3)
    assert changed[:2].all()
    assert not changed[2:].any()
    x = {"a": 0.1}
    assert set(model.predict_proba_one(x)) == {False, True}
    model.learn_one(x, "neither")
    assert set(model.predict_proba_one(x)) == {False, True, "neither"}
    assert sum(model.predict_proba_one(x).values()) == pytest.approx(1)


def test_before_any_label():
    assert OnlineClassifier().predict_proba_one({"a": 1.0}) == {}
    assert OnlineClassifier().predict_one({"a": 1.0}) is None
    assert OnlineRegressor().predict_one({"a": 1.0}) == 0
    model = OnlineClassifier()
    model.learn_one({"a": 1.0}, "yes")
    assert model.predict_proba_one({"b": 1.0}) == {"yes": 1.0}


@pytest.mark.parametrize("prediction", ["plug-in", "moderated"])
def test_two_classes_by_matching_moments(prediction):
    model, right = OnlineClassifier("adf", hidden=(), prediction=prediction), 0
    for x, y, _ in observations(150):
        right += model.predict_one(x) == y
        model.learn_one(x, y)
    assert right > 120
    with pytest.raises(ValueError, match="two classes for learner 'adf', got a third: take another, such as 'lofi'"):
        model.learn_one(x, "third")


@pytest.mark.parametrize("model", [OnlineClassifier(hidden=(2,)), OnlineRegressor(hidden=(2,))])
def test_bad_observations_are_refused_and_change_nothing(model):
    model = model.clone()
    model.learn_one({"a": 1.0, "b": 2.0}, 1)
    before = pickle.dumps(model)
    for x, y, message in [
        ({"a": math.inf}, 1, "finite number for feature 'a', got inf"),
        ({"a": 1.0, "b": "red"}, 1, "a number for feature 'b', as before, got the text 'red'"),
        ({"a": datetime.date(2020, 1, 1)}, 1, "feature 'a', got datetime.date.* of type date"),
        ({"a": 1.0}, None, "expected a .*, got None: leave observations without a .* out"),
        ({"a": 1.0}, math.nan, "expected a .*, got nan: leave observations without a .* out"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.learn_one(x, y)
        assert pickle.dumps(model) == before
    with pytest.raises(ValueError, match="feature 'b', got the text"):
        model.predict_one({"b": "3.0"})
    assert pickle.dumps(model) == before


def test_bad_parameters_are_refused_at_once():
    with pytest.raises(ValueError, match="learner to be one of"):
        OnlineClassifier("forest")
    with pytest.raises(ValueError, match="prediction to be one of plug-in, moderated, got 'sampled'"):
        OnlineClassifier(prediction="sampled")
    with pytest.raises(ValueError, match="which learns classes alone"):
        OnlineRegressor("adf")
    with pytest.raises(ValueError, match="expected_classes to be at least 1, got 0"):
        OnlineClassifier(expected_classes=0)


def test_what_cannot_forget_says_so_at_the_first_observation():
    with pytest.raises(TypeError, match="take the drift Wiener or another family"):
        OnlineRegressor("lrkf", rank=2, detector=drift.ADWIN()).learn_one({"a": 1}, 1.0)
    with pytest.raises(ValueError, match="a learner with a prior, to forget on drift"):
        OnlineRegressor("ogd", detector=drift.ADWIN()).learn_one({"a": 1}, 1.0)


@pytest.mark.parametrize(
    "model",
    [
        OnlineClassifier(hidden=(4,), detector=drift.ADWIN(clock=1)),
        OnlineRegressor("lofi", hidden=(4,), rank=2, drift="wiener", detector=drift.ADWIN()),
        OnlineRegressor("bong", hidden=(4,), settings={"evidence": "empirical-fisher"}),
    ],
    ids=["classifier", "lofi", "random"],
)
def test_pickles_and_copies_go_on_as_the_original_would(model):
    model, parameters = model.clone(), repr(model)
    index = 1 if isinstance(model, OnlineClassifier) else 2
    data = [(row[0], row[index]) for row in observations(80, flip=40)]
    for x, y in data[:45]:
        model.learn_one(x, y)
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.clone(include_attributes=True)]
    fresh = model.clone()
    for x, y in data[45:]:
        for each in (model, *twins):
            each.learn_one(x, y)
    for x, _ in data[:5]:
        expected = model.predict_one(x) if index == 2 else model.predict_proba_one(x)
        assert all((t.predict_one(x) if index == 2 else t.predict_proba_one(x)) == expected for t in twins)
    assert fresh.predict_one(data[0][0]) == (0 if index == 2 else None)
    assert repr(model) == repr(fresh) == parameters  # the detector that was given has seen nothing
    for x, y in data[:45]:
        fresh.learn_one(x, y)
    for x, y in data[45:]:
        fresh.learn_one(x, y)
    assert fresh.predict_one(data[0][0]) == model.predict_one(data[0][0])


def test_seeds_differ():
    models = [OnlineRegressor(hidden=(4,), seed=seed) for seed in (0, 0, 1)]
    for model in models:
        for x, _, y in observations(20):
            model.learn_one(x, y)
    first, same, other = (model.predict_one(x) for model in models)
    assert first == same != other


def test_late_labels():
    data = [(x, y) for x, y, _ in observations(400)]
    model, twin = OnlineClassifier(hidden=(4,), detector=drift.ADWIN()), OnlineClassifier(hidden=(4,))
    late = evaluate.progressive_val_score(data, model, metrics.Accuracy(), delay=50)
    right, total = 0, 0
    for time, (x, y) in enumerate(data):
        if time >= 50:
            twin.learn_one(*data[time - 50])
        guess = twin.predict_one(x)
        if guess is not None:
            right, total = right + (guess == y), total + 1
    assert late.get() == pytest.approx(right / total)
    assert right / total > 0.85

    first = datetime.datetime(2020, 1, 1)
    dated = [({**x, "hour": hour}, y) for hour, (x, y) in enumerate(data)]
    moved = evaluate.progressive_val_score(
        dated,
        compose.Discard("hour") | OnlineClassifier(hidden=(4,)),
        metrics.Accuracy(),
        moment=lambda x: first + datetime.timedelta(hours=x["hour"]),
        delay=datetime.timedelta(hours=50),
    )
    assert moved.get() == pytest.approx(late.get())


def test_a_burst_of_forgetting_helps_after_a_change_of_classes():
    wrong = []
    for detector in (None, drift.ADWIN(), drift.binary.DDM()):
        model, errors = (
            OnlineClassifier("ekf", hidden=(), expected_classes=2, drift="none", detector=detector, burst=0.9),
            [],
        )
        for x, y, _ in observations(500, flip=250):
            errors.append(model.predict_one(x) != y)
            model.learn_one(x, y)
        wrong.append((sum(errors[:250]), sum(errors[250:])))
    plain, *helped = wrong
    for before, after in helped:
        assert before == plain[0]
        assert after < 0.6 * plain[1]


def test_a_burst_of_forgetting_helps_after_a_change_of_numbers():
    distance = []
    for given in (None, drift.ADWIN()):
        model, errors = OnlineRegressor("vd-ekf", hidden=(8,), drift="none", detector=given, burst=0.9), []
        for x, _, y in observations(600, flip=300):
            errors.append(abs(model.predict_one(x) - y))
            model.learn_one(x, y)
        distance.append(sum(errors[300:]))
    assert distance[1] < 0.8 * distance[0]


def test_accuracy_on_phishing():
    data = list(datasets.Phishing().take(600))
    labels = [y for _, y in data]
    majority = max(labels.count(y) for y in set(labels)) / len(labels)
    logistic = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    baseline = evaluate.progressive_val_score(data, logistic, metrics.Accuracy()).get()
    for params in LEARNERS:
        found = evaluate.progressive_val_score(data, OnlineClassifier(**params), metrics.Accuracy()).get()
        assert found > majority + 0.2
        assert found > baseline - 0.02


@pytest.mark.parametrize("params", LEARNERS, ids=lambda params: params["learner"])
def test_error_of_regression(params):
    model, ours, means = OnlineRegressor(**params), metrics.MAE(), metrics.MAE()
    running = 0.0
    for count, (x, _, y) in enumerate(observations(300), 1):
        ours.update(y, model.predict_one(x))
        means.update(y, running)
        running += (y - running) / count
        model.learn_one(x, y)
    assert ours.get() < 0.5 * means.get()


def test_features_of_all_kinds_in_a_pipeline():
    model = preprocessing.OneHotEncoder() | OnlineClassifier(hidden=(4,), expected_features=40)
    data = [({"colour": "red" if k % 3 else "blue", "on": str(k % 2)}, k % 3 == 0) for k in range(100)]
    right = evaluate.progressive_val_score(data, model, metrics.Accuracy())
    assert right.get() > 0.9


def test_an_explicit_weight_takes_the_place_of_the_learners_own():
    model, same = (
        OnlineRegressor("wolf-ekf", hidden=(2,), weight="imq"),
        OnlineRegressor("ekf", hidden=(2,), weight="imq"),
    )
    for x, _, y in observations(30):
        model.learn_one(x, y)
        same.learn_one(x, y)
    assert model.predict_one(x) == same.predict_one(x)


@pytest.mark.parametrize("learner", LEARNER_NAMES)
def test_the_default_drift_is_a_wiener_process_where_the_learner_takes_one(learner):
    model = OnlineClassifier(learner, hidden=(2,), expected_classes=2)
    model.learn_one({"a": 1.0}, True)
    settings = model._stream.learner
    assert getattr(settings, "weight_drift", None) == (None if learner == "ogd" else Wiener(1e-3))
    assert OnlineClassifier().learner == OnlineRegressor().learner == "lofi"
