"""What everything around a learner asks it, whatever its belief is."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.learners.particles import make_particles
from tsforecast.learners import (
    LEARNERS,
    BlockDiagonal,
    CategoricalLikelihood,
    ConjugateRegression,
    GaussianLikelihood,
    PoissonLikelihood,
    decoupled_ekf,
    ekf,
    ogd,
    s2vgd,
    svgd,
    weights_of,
)
from tsforecast.learners.loop import in_prior_units, run

NAMES = [*LEARNERS, "particles", "svgd", "s2vgd", "layers", "conjugate"]


def data(steps=30, features=3, classes=False):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(steps, 1, features, generator=generator, dtype=torch.float64)
    target = inputs.sum(-1, keepdim=True) + 0.3 * torch.randn(steps, 1, 1, generator=generator, dtype=torch.float64)
    return inputs, (target > 0).double() if classes else target


def make(name):
    if name == "conjugate":
        return ConjugateRegression(torch.zeros(3).double(), torch.ones(3).double())
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    if name == "adf":
        return LEARNERS[name](network)
    others = {"particles": make_particles, "layers": lambda *a: decoupled_ekf(*a, layers=True)}
    stein = {
        "mean": weights_of(network),
        "generator": torch.Generator().manual_seed(4),
        "learns_noise": True,
        "steps": 2,
    }
    others |= {name: partial(make, **stein) for name, make in (("svgd", svgd), ("s2vgd", s2vgd))}
    settings: dict = {"rank": 3} if name in ("lofi", "lrkf") else {"dim": 5} if name == "subspace-ekf" else {}
    noise = 20.0 if name == "particles" else 0.3  # so that more than one of the points counts
    return (LEARNERS | others)[name](network, GaussianLikelihood(noise), 0.2, **settings)


def learnt(learner, classes=False):
    inputs, target = data(classes=classes)
    return run(learner, learner.init(), inputs, target, generator=torch.Generator().manual_seed(2))[0]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_is_what_the_predictive_distribution_and_a_step_say(name):
    learner = make(name)
    belief = learnt(learner, name == "adf")
    inputs, target = data(classes=name == "adf")
    expected = learner.expect(belief, inputs[0])
    distribution = learner.predict(belief, inputs[0])
    torch.testing.assert_close(expected.mean, distribution.mean)
    torch.testing.assert_close(expected.variance, distribution.variance)
    _, stepped = learner.step(belief, inputs[0], target[0], dt=0.0)
    torch.testing.assert_close(expected.mean, stepped.mean)
    torch.testing.assert_close(expected.variance, stepped.variance)
    torch.testing.assert_close(learner.expect(belief, inputs[0], spread=False).mean, expected.mean)


@pytest.mark.parametrize(
    "likelihood",
    [CategoricalLikelihood(), CategoricalLikelihood(prediction="moderated"), PoissonLikelihood("moderated")],
)
def test_moderated_means_need_no_spread_to_be_asked_for(likelihood):
    network = nn.Linear(3, 2).double()
    learner = ekf(network, likelihood, 0.5)
    inputs = data()[0][0]
    expected = learner.expect(learner.init(), inputs)
    quick = learner.expect(learner.init(), inputs, spread=False)
    torch.testing.assert_close((quick.mean, quick.variance), (expected.mean, expected.variance))
    step = learner.step(
        learner.init(), inputs, torch.zeros(1, 1 if isinstance(likelihood, CategoricalLikelihood) else 2).double()
    )
    torch.testing.assert_close(step[1].mean, expected.mean)
    torch.testing.assert_close(step[1].variance, expected.variance)


@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_mean_and_the_variances_that_are_told(name):
    learner = make(name)
    belief = learnt(learner, name == "adf")
    weights, variances = learner.weights(belief), learner.variances(belief)
    assert weights.shape == variances.shape
    draws = learner.sample(belief, 4000, torch.Generator().manual_seed(3))
    error = (draws.var(0) / len(draws)).sqrt()
    assert ((draws.mean(0) - weights).abs() <= 5 * error + 1e-12).all()
    square = (draws - weights).square()
    assert ((square.mean(0) - variances).abs() <= 5 * (square.var(0) / len(draws)).sqrt() + 1e-12).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("ogd", "lrkf")])
def test_all_evidence_may_be_forgotten_none_or_half(name):
    learner = make(name)
    belief, prior = learnt(learner, name == "adf"), learner.init()
    for rate, same in ((0.0, belief), (1.0, prior)):
        found = learner.forget(belief, rate)
        torch.testing.assert_close(learner.weights(found), learner.weights(same))
        torch.testing.assert_close(learner.variances(found), learner.variances(same))
    half = learner.forget(belief, 0.5)
    assert not torch.allclose(learner.weights(half), learner.weights(belief))
    assert not torch.allclose(learner.weights(half), learner.weights(prior))


def test_conjugate_regression_forgets_at_once_as_it_does_over_time():
    learner = make("conjugate")
    belief = learnt(learner)
    drifting = ConjugateRegression(learner.mean, learner.variance, forgetting=0.3)
    for one, other in zip(
        *map(pytree.tree_leaves, (learner.forget(belief, 0.3), drifting.drift(belief, 1.0))), strict=True
    ):
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match=r"rate to be at least 0 and at most 1, got 2\.0"):
        learner.forget(belief, 2.0)


def test_what_cannot_forget_says_so():
    with pytest.raises(ValueError, match=r"expected a learner with a prior, .* got GradientDescent"):
        make("ogd").forget(make("ogd").init(), 0.5)
    with pytest.raises(TypeError, match="cannot mix precisions"):
        make("lrkf").forget(make("lrkf").init(), 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_moves_are_told_in_standard_deviations_of_the_prior(name):
    learner = make(name)
    change, spread = in_prior_units(learner, learner.init())
    assert (change == 0).all()
    assert torch.allclose(spread, torch.ones_like(spread)) or (name == "ogd" and (spread == 0).all())
    belief = learnt(learner, name == "adf")
    change, spread = in_prior_units(learner, belief)
    assert change.abs().max() > 0
    if name == "vd-ekf":
        torch.testing.assert_close(change, (belief.mean - learner.mean) / math.sqrt(0.2))
        torch.testing.assert_close(spread, (belief.variance / 0.2).sqrt())


def test_a_learner_moves_to_another_network_of_the_same_weights():
    learner = ogd(nn.Linear(3, 2), GaussianLikelihood(1.0), rate=0.2)
    other = ogd(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), GaussianLikelihood(1.0), rate=0.2).network
    moved = learner.with_network(other)
    assert moved.network is other
    assert (moved.rate, moved.likelihood) == (learner.rate, learner.likelihood)
    assert isinstance(make("layers").family, BlockDiagonal)
