"""Networks that grow while they learn: more features and more classes than were expected."""

import math
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.learners.particles import make_particles
from tests.online.test_features import config
from tests.online.test_stream import follow
from tsforecast.learners import LEARNERS, CategoricalLikelihood, GaussianLikelihood, ModuleNetwork, NamedLearner
from tsforecast.learners.networks.layer_chain import as_network
from tsforecast.online.prequential import advance
from tsforecast.online.progress import Setup
from tsforecast.online.river import OnlineClassifier, OnlineRegressor
from tsforecast.online.saved_progress import load, save
from tsforecast.online.stream import Observation

# Of low rank is what both beliefs share, and not what each would have.
EXACT = sorted({*LEARNERS, "particles"} - {"lrkf"})


def rows_and_targets(count, inputs):
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(count, inputs, generator=generator, dtype=torch.float64)
    return rows, (rows[:, :1] > 0.3).double() + (rows[:, 1:2] > 0).double()


def wider(rows, inputs):
    return torch.nn.functional.pad(rows, (0, inputs - rows.shape[1]), value=math.nan)


@pytest.fixture(autouse=True)
def particles(monkeypatch):
    monkeypatch.setitem(LEARNERS, "particles", NamedLearner(make_particles))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [(name, numbers) for name in EXACT for numbers in (False, True) if name != "adf" or not numbers],
)
def test_a_network_that_grows_has_learnt_what_a_large_one_would_have(name, numbers):
    """Oracle: the larger network from the beginning, which has seen zeros where features had not come yet."""
    chosen = config(learner=name, settings={"layers": True} if name == "decoupled-ekf" else None)
    likelihood = GaussianLikelihood(0.5) if numbers else chosen.likelihood("plug-in")
    outputs = (1, 1) if numbers else (2, 5)
    rows, targets = rows_and_targets(12, 3)
    targets = targets.clamp(max=1)
    small = chosen.begin(3, outputs[0], likelihood)
    small = small if numbers else small.with_outputs(2)
    large = small.grow(7, outputs[1])
    for row, target in zip(rows, targets, strict=True):
        small = small.learn(row.unsqueeze(0), target.unsqueeze(0))
        large = large.learn(wider(row.unsqueeze(0), 7), target.unsqueeze(0))
    grown = small.grow(7, outputs[1])
    pairs = zip(pytree.tree_leaves(grown.belief), pytree.tree_leaves(large.belief), strict=True)
    for mine, its in pairs:
        assert mine.shape == its.shape
    weights, variances = grown.learner.weights(grown.belief), grown.learner.variances(grown.belief)
    torch.testing.assert_close(weights, large.learner.weights(large.belief), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(variances, large.learner.variances(large.belief), rtol=1e-8, atol=1e-9)
    before, after = small.predict(rows, spread=True), grown.predict(wider(rows, 7), spread=True)
    torch.testing.assert_close(after.mean, before.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after.variance, before.variance, rtol=1e-12, atol=1e-12)
    assert grown.learner.network.size > small.learner.network.size or name == "subspace-ekf"


def test_new_weights_of_a_covariance_of_low_rank_are_learnt_from_the_observation_that_brings_them():
    rows, targets = rows_and_targets(12, 3)
    stream = config(learner="lrkf", rank=4, drift="wiener").begin(3, 3, CategoricalLikelihood())
    for row, target in zip(rows, targets, strict=True):
        stream = stream.learn(row.unsqueeze(0), target.unsqueeze(0))
    grown = stream.grow(7, 3)
    old = torch.tensor([1.0] * 3 + [0.0] * 4).bool().repeat(4)
    variances, prior = (grown.learner.variances(b)[: 4 * 7] for b in (grown.belief, grown.learner.init()))
    torch.testing.assert_close(variances[old].view(4, 3), stream.learner.variances(stream.belief)[:12].view(4, 3))
    torch.testing.assert_close(variances[~old], prior[~old])
    before, after = stream.predict(rows, spread=True), grown.predict(wider(rows, 7), spread=True)
    torch.testing.assert_close(after.mean, before.mean, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after.variance, before.variance, rtol=1e-12, atol=1e-12)
    row = torch.nn.functional.pad(wider(rows[:1], 6), (0, 1), value=2.0)
    mean = grown.learner.weights(grown.belief)
    for number in (2.0, 3.0):  # a column counts from where it varies
        grown = grown.learn(row * number, targets[:1])
    changed = (grown.learner.weights(grown.belief) - mean)[: 4 * 7].view(4, 7)
    assert (changed[:, -1] != 0).all()


def test_any_module_finds_the_weights_of_a_smaller_one():
    small, large = (torch.nn.Sequential(torch.nn.LayerNorm(n), torch.nn.Linear(n, m)) for n, m in ((3, 2), (5, 4)))
    network, places = ModuleNetwork(large).adopt(ModuleNetwork(small))
    assert places.tolist() == [0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17, 30, 31]
    for other, message in (
        (as_network(torch.nn.Linear(3, 2)), "a module with parameters 0.weight, 0.bias, 1.weight, 1.bias, got Layer"),
        (ModuleNetwork(torch.nn.Linear(3, 2)), "a module with parameters .*, got weight, bias"),
        (ModuleNetwork(torch.nn.Sequential(torch.nn.LayerNorm(6), torch.nn.Linear(6, 4))), "layers that have grown"),
    ):
        with pytest.raises(ValueError, match=message):
            network.adopt(other)
    with pytest.raises(ValueError, match="a chain of 1 layers"):
        as_network(torch.nn.Linear(3, 2)).adopt(network)


def letters(count: int = 520) -> list[tuple[Any, str]]:
    """Each letter is a feature of its own, and a class; all have come once after 26."""
    names = [chr(ord("a") + k) for k in range(26)]
    return [
        ({f"is_{names[k % 26]}": 1.0, **({} if k % 5 else {"noise": 0.1 * k})}, names[k % 26]) for k in range(count)
    ]


def test_more_classes_and_features_than_expected_are_learnt():
    model, right = OnlineClassifier(hidden=(8,)), []
    for x, y in letters():
        x = {f"is_{chr(ord('a') + k)}": 0.0 for k in range(26)} | x if len(right) > 100 else x
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert model._stream is not None
    assert (model._stream.sizes[0], model._stream.sizes[-1]) == ((8, 10), (32, 40))
    assert sum(right[-104:]) > 95
    numbers = OnlineRegressor(expected_features=1, hidden=())
    for x, y in letters(78):
        numbers.learn_one(x, float(ord(y)))
    assert numbers._stream is not None
    assert numbers._stream.sizes[-1] == (32, 1)


@pytest.mark.parametrize("learner", ["lrkf", "lofi", "subspace-ekf"])
@pytest.mark.parametrize("classes", [2, 0])
def test_a_stream_goes_on_over_growth_as_if_it_had_not_been_stopped(tmp_path, learner, classes):
    setup = Setup(config(learner=learner, rank=6), classes, features=2)
    items = []
    for k, (x, y) in enumerate(letters(40)):
        target = y if classes else float(ord(y))
        if k % 4:
            items.append(Observation(x, target, None))
        else:  # its target comes after the next growth
            items.append(Observation(x, None, None, key=k))
            if k >= 16:
                items.append(Observation({}, target, None, key=k - 16))
    whole, table = follow(setup, items)
    assert whole.stream is not None
    assert whole.stream.sizes[0] == (2, max(classes, 1))
    assert len(whole.stream.sizes) > 4
    for at in (1, 11, len(items) - 1):
        half, _ = follow(setup, items[:at])
        save(tmp_path / "state.pt", half, {})
        progress, _ = load(tmp_path / "state.pt", setup)
        row = {}
        for item in items[at:]:
            progress, row = advance(setup, progress, item)
        assert progress.stream is not None
        pairs = zip(pytree.tree_leaves(progress.stream.belief), pytree.tree_leaves(whole.stream.belief), strict=True)
        assert all(torch.equal(mine, its) for mine, its in pairs)
        assert row["prediction"] == table["prediction"].iloc[-1] or classes == 0


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [[2, 2], [4, 2]],
        [[2, 2], [4, 2], [4, 4], [8, 4], [9, 4], [16, 4]],
        [[2, 2], [10**12, 10**12], [8, 4]],
        [[0, 2], [8, 4]],
        [[3, 2], [8, 4]],
        [[2.0, 2], [8, 4]],
        [[2, 2, 2], [8, 4]],
        "text",
        7,
    ],
)
def test_a_damaged_history_of_growth_is_refused(tmp_path, sizes):
    setup = Setup(config(), 2, features=2)
    progress, _ = follow(setup, [Observation(x, y, None) for x, y in letters(4)])
    assert progress.stream is not None
    assert progress.stream.sizes[-1] == (8, 4)
    save(tmp_path / "state.pt", progress, {})
    load(tmp_path / "state.pt", setup)
    payload = torch.load(tmp_path / "state.pt", weights_only=True)
    torch.save({**payload, "sizes": sizes}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match=r"state\.pt holds no readable state .*; start the stream anew"):
        load(tmp_path / "state.pt", setup)
