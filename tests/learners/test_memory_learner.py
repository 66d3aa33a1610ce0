"""Nothing is lost and nothing counted twice, whatever a memory keeps; what it keeps is what its rule says."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tsforecast.learners import (
    AdamFit,
    BayesianForgetting,
    BernoulliLikelihood,
    CategoricalLikelihood,
    Diagonal,
    ExponentialForgetting,
    GaussianLikelihood,
    LinearisedFit,
    ModuleNetwork,
    OrnsteinUhlenbeck,
    ResidualMemory,
    vb,
)
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.loop import run, run_many
from tsforecast.learners.memory.continual import MEMORIES, layer_variances
from tsforecast.learners.memory.coreset import Memory, at_random, k_centre
from tsforecast.learners.memory.variational_fit import Problem
from tsforecast.learners.networks.layer_chain import as_network

KINDS = [name for name in MEMORIES if name != "none"]


pytestmark = pytest.mark.usefixtures("float64")


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def one_hot(blocks=6, points=5, weights=3):
    """Inputs of which one is not 0: independent weights have an exact posterior."""
    places = torch.randint(weights, (blocks, points), generator=rng(1))
    inputs = nn.functional.one_hot(places, weights) * torch.randn(blocks, points, 1, generator=rng(2))
    return inputs, inputs.sum(-1, keepdim=True) + torch.randn(blocks, points, 1, generator=rng(3))


def linear(memory, size=4, **settings):
    layer = nn.Linear(3, 1, bias=False)
    nn.init.constant_(layer.weight, 0.3)
    return vb(layer, GaussianLikelihood(0.5), 2.0, memory=memory, memory_size=size, **settings)


def network(memory, size=4, outputs=1, likelihood=None, **settings):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs))
    likelihood = likelihood or GaussianLikelihood(0.1)
    return vb(module, likelihood, 1.0, memory=memory, memory_size=size, prior="layers", generator=rng(), **settings)


def curve(blocks=5, points=6, classes=0):
    inputs = torch.randn(blocks, points, 2, generator=rng(4))
    target = (2 * inputs[..., :1]).sin() + 0.1 * torch.randn(blocks, points, 1, generator=rng(5))
    return inputs, (target > 0).double() if classes else target


def exact(inputs, target, power):
    """The posterior of the one-hot model with powers of the likelihoods, conditioned directly."""
    power = power[:, None].expand(inputs.shape[:2])
    precision = 1 / 2.0 + (power[..., None] * inputs.square()).sum((0, 1)) / 0.5
    linear = 0.3 / 2.0 + (power[..., None] * inputs * target).sum((0, 1)) / 0.5
    return linear / precision, 1 / precision


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("points", [5, 3])  # more than places, where is subtracted, and fewer
def test_every_memory_gives_the_exact_posterior_where_there_is_one(memory, points):
    inputs, target = one_hot(points=points)
    learner = linear(memory)
    belief, _ = run(learner, learner.init(), inputs, target, generator=rng())
    mean, variance = exact(inputs, target, torch.ones(6))
    torch.testing.assert_close((belief.fitted.mean, belief.fitted.variance), (mean, variance), rtol=1e-8, atol=1e-8)
    assert belief.memory.valid.sum() == (0 if memory == "none" else 4)
    if memory == "none":
        return
    kept = belief.memory.points
    model = Model(learner.network, learner.likelihood, Diagonal())
    again = learner.fit(Problem(model, belief.gaussian, belief.fitted, kept, torch.tensor(False)))
    torch.testing.assert_close((again.mean, again.variance), (mean, variance), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("memory", MEMORIES)
def test_forgetting_tempers_what_is_kept_as_it_does_the_gaussian(memory):
    """Oracle: each likelihood to the power (1 - rate)^(age / typical), over unequal times (equation 10)."""
    inputs, target = one_hot()
    learner = linear(memory, drift=BayesianForgetting(0.3, typical=2.0))
    dt = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 3.0])
    belief, _ = run(learner, learner.init(), inputs, target, dt=dt, generator=rng())
    belief = learner.drift(belief, 1.5)
    age = 1.5 + dt.sum() - dt.cumsum(0)
    mean, variance = exact(inputs, target, 0.7 ** (age / 2))
    found = learner.update(belief, inputs[0, :1], target[0, :1], counts=torch.full((1,), 1e-12), generator=rng())
    for fitted in (belief.fitted, found.fitted):
        torch.testing.assert_close((fitted.mean, fitted.variance), (mean, variance), rtol=1e-8, atol=1e-8)
    kept = belief.memory
    torch.testing.assert_close(kept.power[kept.valid], 0.7 ** (kept.age[kept.valid] / 2))


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_forgetting_factor_tempers_what_is_kept_as_it_does_the_gaussian(memory):
    """Oracle: prior and likelihoods to the power factor^age, over unequal times."""
    inputs, target = one_hot()
    learner = linear(memory, drift=ExponentialForgetting(0.8, floor=0.0))
    dt = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.0, 3.0])
    belief, _ = run(learner, learner.init(), inputs, target, dt=dt, generator=rng())
    belief = learner.drift(belief, 1.5)
    age = 1.5 + dt.sum() - dt.cumsum(0)
    power, first = (0.8**age)[:, None, None], 0.8 ** (1.5 + dt.sum())
    precision = first / 2.0 + (power * inputs.square()).sum((0, 1)) / 0.5
    mean = (first * 0.3 / 2.0 + (power * inputs * target).sum((0, 1)) / 0.5) / precision
    torch.testing.assert_close(
        (belief.fitted.mean, belief.fitted.variance), (mean, 1 / precision), rtol=1e-8, atol=1e-8
    )
    kept = belief.memory
    torch.testing.assert_close(kept.power[kept.valid], 0.8 ** kept.age[kept.valid])
    found = learner.update(belief, inputs[0, :1], target[0, :1], counts=torch.full((1,), 1e-12), generator=rng())
    torch.testing.assert_close((found.fitted.mean, found.fitted.variance), (mean, 1 / precision), rtol=1e-8, atol=1e-8)


def test_other_drifts_leave_the_memory_as_it_is_but_older():
    learner = linear("grs", drift=OrnsteinUhlenbeck(0.5))
    inputs, target = one_hot()
    belief = learner.update(learner.init(), inputs[0], target[0], generator=rng())
    later = learner.drift(belief, 2.0)
    torch.testing.assert_close(later.memory.age, belief.memory.age + 2)
    assert torch.equal(later.memory.power, belief.memory.power)
    assert (later.gaussian.variance > belief.gaussian.variance - 1e-12).all()  # the prior's stays, up to rounding
    assert (later.fitted.variance > belief.fitted.variance).any()
    emptied = learner.forget(later, 1.0)
    assert not emptied.memory.valid.any()
    torch.testing.assert_close(emptied.fitted.mean, learner.mean)


@pytest.mark.parametrize("memory", MEMORIES)
def test_an_empty_block_changes_nothing_and_one_that_is_not_observed_takes_no_place(memory):
    learner = network(memory)
    inputs, target = curve()
    belief = learner.update(learner.init(), inputs[0], target[0], generator=rng())
    assert learner.update(belief, inputs[0, :0], target[0, :0]) is belief
    missing = learner.update(
        belief, inputs[1], torch.full_like(target[1], math.nan), torch.zeros(6, 1, dtype=torch.bool), rng()
    )
    assert all(bool(leaf.isfinite().all()) for leaf in pytree.tree_leaves(missing))
    assert missing.memory.valid.sum() == belief.memory.valid.sum()
    kept = {tuple(row.tolist()) for row in missing.memory.inputs[missing.memory.valid]}
    assert kept <= {tuple(row.tolist()) for row in inputs[0]}


def test_points_that_count_for_nothing_take_no_place():
    found = Memory.of(Points.of(torch.ones(3, 2), torch.ones(3, 1), None, torch.tensor([1.0, 0.0, 0.5])))
    assert found.valid.tolist() == [True, False, True]


@pytest.mark.parametrize("memory", KINDS)
def test_a_memory_larger_than_the_data_keeps_all_and_the_gaussian_stays_the_prior(memory):
    inputs, target = curve(2, 3)
    learner = network(memory, 40)
    belief, _ = run(learner, learner.init(), inputs, target, generator=rng())
    assert belief.memory.valid.tolist() == [True] * 6 + [False] * 34
    torch.testing.assert_close(belief.gaussian.mean, learner.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(belief.gaussian.variance, learner.variance, rtol=1e-8, atol=1e-8)


def test_a_second_fit_to_the_memory_finds_the_first_where_that_has_converged():
    learner = network("grs", fit=LinearisedFit(200, 0.0), likelihood=BernoulliLikelihood())
    inputs, target = curve(classes=1)
    belief = learner.init()
    for x, y in zip(inputs, target, strict=True):
        belief = learner.update(belief, x, y, generator=rng())
    model = Model(learner.network, learner.likelihood, Diagonal())
    again = learner.fit(Problem(model, belief.gaussian, belief.fitted, belief.memory.points, torch.tensor(False)))
    torch.testing.assert_close((again.mean, again.variance), tuple(vars(belief.fitted).values()), rtol=1e-6, atol=1e-6)


def test_the_places_of_highest_score_are_kept():
    learner = network("grs", score="grs")
    inputs, target = curve()
    belief = learner.update(learner.init(), inputs[0], target[0], generator=rng(7))
    model, points = Model(learner.network, learner.likelihood, Diagonal()), Points.of(inputs[0], target[0], None)
    found = learner.fit.with_terms(Problem(model, learner.init().gaussian, learner.start, points, torch.tensor(True)))
    fitted, parts = found.belief, found.gradient + found.precision * found.belief.mean
    torch.testing.assert_close(fitted.mean, belief.fitted.mean)
    draws = Diagonal().sample(fitted, 32, rng(7))
    change = 1 / fitted.variance - 1 / learner.variance
    shift = fitted.mean / fitted.variance - learner.mean / learner.variance
    rows = []
    for k in range(6):
        precision = found.precision[k] + (change - found.precision.sum(0)) / 6
        linear = parts[k] + (shift - parts.sum(0)) / 6
        log_prob = [model.log_prob(w, points.only(k)) for w in draws]
        described = [(linear * w - 0.5 * precision * w**2).sum() for w in draws]
        rows.append(torch.stack(log_prob).mean() - torch.stack(described).mean())
    chosen = sorted(torch.stack(rows).topk(4).indices.tolist())
    torch.testing.assert_close(belief.memory.inputs, inputs[0, chosen])


def test_k_centres_are_furthest_from_all_before_and_random_places_are_as_likely():
    points = torch.randn(9, 2, generator=rng(8))
    memory = Memory.of(Points.of(points, torch.ones(9, 1), None))
    memory = dataclasses.replace(memory, valid=torch.tensor([False] + [True] * 8))
    chosen = [1]
    while len(chosen) < 4:
        apart = np.linalg.norm(points.numpy()[:, None] - points.numpy()[chosen], axis=-1).min(1)
        chosen.append(int(np.argmax(np.where(memory.valid, apart, -1))))
    assert k_centre(memory, 4).nonzero().flatten().tolist() == sorted(chosen)
    assert k_centre(memory, 9).tolist() == memory.valid.tolist()
    generator = rng(9)
    counts = sum(at_random(memory, 4, generator).double() for _ in range(400))
    assert counts[0] == 0
    assert ((counts[1:] - 200).abs() < 5 * math.sqrt(400 * 0.25)).all()


def test_many_streams_are_learnt_as_one_program():
    learner = network("grs", score="centred")
    inputs, target = (torch.stack([x, x.flip(0)], 1) for x in curve())
    leaves, spec = pytree.tree_flatten(learner.init())
    beliefs = pytree.tree_unflatten([leaf.expand(2, *leaf.shape) for leaf in leaves], spec)
    together, _ = run_many(learner, beliefs, inputs, target, generator=rng())
    alone, _ = run(learner, learner.init(), inputs[:, 0], target[:, 0], generator=rng())
    assert together.memory.valid.all()
    error = (together.fitted.mean[0] - alone.fitted.mean).abs()
    assert error.max() < 1.0  # the draws of scores differ, and so may what is kept
    assert learner.predict(alone, inputs[0, 0]).mean.shape == (6, 1)


def test_adam_learns_a_curve_also_where_no_gradient_is_kept():
    learner = network("grs", fit=AdamFit(iterations=60, first=400, draws=8, term_draws=100, rate=0.05))
    inputs, target = curve(4, 12)
    with torch.no_grad():
        belief, predicted = run(learner, learner.init(), inputs, target, generator=rng())
    assert (predicted.mean[-1] - target[-1]).abs().median() < 0.5 * target[-1].std()
    assert (belief.gaussian.variance > 0).all()


def test_a_network_of_any_kind_draws_outputs_of_the_same_law():
    """Layer by layer, or weight by weight: means and variances agree within five standard errors."""
    module = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    chain, other = as_network(module), ModuleNetwork(module)
    mean, variance = (f(torch.randn(1, chain.size, generator=rng(k))) for k, f in ((1, torch.clone), (2, torch.exp)))
    rows = torch.randn(1, 2, generator=rng(3)).expand(1, 4000, 2)
    one, two = (net.draw(mean, variance, rows, rng(4))[0] for net in (chain, other))
    for power in (1, 2):
        a, b = one**power, two**power
        error = ((a.var(0) + b.var(0)) / 4000).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() < 5 * error).all()


def test_prior_variances_keep_the_size_of_what_enters_a_unit():
    """Oracle: draws of weights and inputs; biases add their own variance."""
    module = nn.Sequential(nn.Linear(3, 200, bias=False), nn.Tanh(), nn.Linear(200, 2, bias=False))
    variances = layer_variances(as_network(module))
    x = torch.randn(4000, 3, generator=rng())
    for layer, variance in zip((module[0], module[2]), variances, strict=True):
        weight = variance**0.5 * torch.randn(layer.weight.shape, generator=rng(int(1 / variance)))
        x = (x if layer is module[0] else x.tanh()) @ weight.T
        if layer is module[0]:
            assert x.var() == pytest.approx(1.0, abs=0.2)
            x = torch.randn(4000, 200, generator=rng(5))
    assert variances == pytest.approx((1 / 3, 1 / (200 * 0.394294)), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "all"}, "expected memory to be one of none, random, k-center, grs, got 'all'"),
        ({"memory": "grs", "memory_size": 0}, "expected a memory_size of at least 1, or memory 'none', got 0"),
        ({"memory": "random", "memory_size": True}, "expected memory_size to be a whole number, got True"),
        ({"memory": "grs", "score": "best"}, "expected score to be one of grs, .*, got 'best'"),
        ({"fit": "adam", "passes": 1}, "expected passes beside the linearised fit"),
        ({"passes": 0}, "expected passes to be at least 1, got 0"),
        ({"fit": "newton"}, "expected fit to be one of linearised, adam, got 'newton'"),
        ({"prior": "flat"}, "expected prior to be one of weights, layers, got 'flat'"),
    ],
)
def test_what_does_not_exist_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        vb(nn.Linear(2, 1), GaussianLikelihood(), **settings)


def test_a_fit_takes_as_many_steps_as_are_asked_for():
    assert network("none").fit == LinearisedFit()
    assert network("none", passes=1).fit == LinearisedFit(passes=1)
    assert network("none", fit=LinearisedFit(settled=0.1), passes=2).fit == LinearisedFit(2, 0.1)


def test_other_networks_need_to_say_what_an_observation_is():
    module = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 3))
    with pytest.raises(ValueError, match="expected features, the shape of an observation's inputs"):
        vb(module, CategoricalLikelihood(), memory="grs")
    with pytest.raises(ValueError, match="expected a chain of layers for prior 'layers', got ModuleNetwork"):
        vb(module, CategoricalLikelihood(), prior="layers")
    learner = vb(module, CategoricalLikelihood(), memory="grs", memory_size=3, features=(2,))
    inputs, target = curve(classes=1)
    belief, _ = run(learner, learner.init(), inputs, target, generator=rng())
    assert belief.memory.valid.all()
    for wrong in ({"draws": 1}, {"floor": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ResidualMemory(3, **wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_has_no_work_for_free_places(kind, monkeypatch):
    """One of a thousand places holds what one of thirty holds, and fits as many points."""
    inputs, target = one_hot()
    seen = []

    def counting(own):
        def counted(self, problem, generator=None):
            seen.append(len(problem.points.target))
            return own(self, problem, generator)

        return counted

    for name in ("__call__", "with_terms"):
        monkeypatch.setattr(LinearisedFit, name, counting(getattr(LinearisedFit, name)))
    beliefs = []
    for size in (30, 1000):
        learner = linear(kind, size)
        belief = learner.init()
        for block in range(len(inputs)):
            belief = learner.update(belief, inputs[block], target[block], generator=rng(block))
            assert len(belief.memory) == size
        beliefs.append(belief)
        assert belief.memory.valid.sum() == 30
    assert 0 < max(seen) <= 30
    one, other = beliefs
    torch.testing.assert_close(one.fitted.mean, other.fitted.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(one.gaussian.variance, other.gaussian.variance, rtol=1e-10, atol=1e-12)
    assert torch.equal(one.memory.inputs, other.memory.inputs[:30])
