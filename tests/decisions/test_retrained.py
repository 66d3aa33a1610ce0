"""Networks that are trained again: how old rounds count, the priors of LiM2, and what ensembles drop and repeat."""

import math

import pytest
import torch

from tests.decisions.cases import numbers, rounds
from tsforecast.decisions import (
    BootstrapRewards,
    Descent,
    DropoutRewards,
    Interactions,
    MatchedRewards,
    NeuralLinearRewards,
)
from tsforecast.decisions.linear import fit_heads, regression
from tsforecast.decisions.matching import match
from tsforecast.decisions.neural_linear import hidden
from tsforecast.learners import LayerChain

NETWORK = LayerChain((2, 4, 2), (torch.nn.Tanh, torch.nn.Identity), (True, True))
FORGETTING = 0.2


def weights():
    return torch.randn(NETWORK.size, generator=numbers())


def uneven(count=24):
    """Rounds of two arms, of which the second is pulled at the beginning and never again."""
    seen = rounds(count, 2, 2, numbers(1), torch.float32)
    return Interactions(seen.contexts, (torch.arange(count) < 4).long(), seen.rewards)


def learn_all(model, state, seen, generator):
    for context, arm, reward in zip(seen.contexts, seen.arms.tolist(), seen.rewards, strict=True):
        state = model.learn(state, context, arm, reward, generator)
    return state


def part(seen, where):
    return Interactions(seen.contexts[where], seen.arms[where], seen.rewards[where])


def assert_heads(found, expected):
    for head, other in zip(found, expected, strict=True):
        for name in ("mean", "cov", "shape", "rate"):
            torch.testing.assert_close(getattr(head, name), getattr(other, name), rtol=1e-5, atol=1e-5)


def test_lim2_forgets_by_the_rounds_since_and_not_by_places_in_a_memory():
    """Oracle: the regression on what a memory of three rounds an arm keeps, with powers of true ages."""
    seen = uneven()
    model = MatchedRewards(2, 2, NETWORK, weights(), memory=3, descent=Descent(steps=0), forgetting=FORGETTING)
    state = model.warm_up(model.init(numbers()), part(seen, slice(0, 6)), numbers())
    state = learn_all(model, state, part(seen, slice(6, 24)), numbers())
    kept = torch.tensor([1, 2, 3, 21, 22, 23])
    history = state.model.history
    assert torch.equal(history.seen.rewards, seen.rewards[kept])
    assert history.ages.tolist() == [22, 21, 20, 2, 1, 0]
    features = hidden(NETWORK, state.model.weights, seen.contexts[kept])
    importance = (1 - FORGETTING) ** torch.tensor([22.0, 21, 20, 2, 1, 0])
    assert_heads(state.model.heads, fit_heads(state.priors, features, part(seen, kept), importance))


def test_priors_of_lim2_are_around_the_network_with_a_matched_covariance_that_is_not_singular():
    seen = uneven()
    model = MatchedRewards(2, 2, NETWORK, weights(), descent=Descent(steps=0), step_rate=1.0)
    before = model.warm_up(model.init(numbers()), part(seen, slice(0, 20)), numbers())
    after = model.learn(before, seen.contexts[20], 0, seen.rewards[20], numbers(2))
    contexts = torch.randn(5, 2, generator=numbers(3))
    outputs = NETWORK(after.model.weights, contexts)
    for arm, prior in enumerate(after.priors):
        expected = hidden(NETWORK, after.model.weights, contexts) @ prior.mean
        torch.testing.assert_close(expected.float(), outputs[:, arm], rtol=1e-5, atol=1e-5)
    # The rows of the match are the second draw of the generator, behind those of the gradient step.
    generator = numbers(2)
    torch.randint(21, (model.rows * 2,), generator=generator)
    rows = torch.randint(21, (model.matched,), generator=generator)
    old, new = (hidden(NETWORK, x.model.weights, seen.contexts[rows]) for x in (before, after))
    assert (new - old).abs().max() > 0.05
    for prior, previous in zip(after.priors, before.priors, strict=True):
        diagonal = prior.cov - match(previous.cov, old, new)
        torch.testing.assert_close(diagonal, 1e-5 * torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-10)


def test_heads_forget_between_trainings():
    """Oracle: the regression on all rounds, with powers of their ages."""
    seen = uneven()
    model = NeuralLinearRewards(2, 2, NETWORK, weights(), every=50, descent=Descent(steps=0), forgetting=FORGETTING)
    state = model.warm_up(model.init(numbers()), part(seen, slice(0, 6)), numbers())
    state = learn_all(model, state, part(seen, slice(6, 24)), numbers())
    assert len(state.history.seen) == 6  # no training since the warm-up
    features = hidden(NETWORK, state.weights, seen.contexts)
    prior = (regression(5, model.variance, model.shape, model.rate).init(),) * 2
    importance = (1 - FORGETTING) ** torch.arange(23.0, -1, -1)
    assert_heads(state.heads, fit_heads(prior, features, seen, importance))


@pytest.mark.parametrize("kind", [NeuralLinearRewards, BootstrapRewards, DropoutRewards])
def test_a_training_that_forgets_fits_the_last_rounds(kind):
    """Of halves that pay -1 and 1 it comes nearer to the later one than to their mean."""
    contexts = torch.randn(40, 2, generator=numbers(1))
    seen = Interactions(contexts, torch.zeros(40, dtype=torch.int64), torch.tensor([-1.0, 1.0]).repeat_interleave(20))
    found = []
    for forgetting in (0.0, 0.5):
        own = {"descent": Descent(steps=80, rate=0.05), "forgetting": forgetting}
        own |= {"head": "network"} if kind is NeuralLinearRewards else {}
        own |= {"probability": 0.0} if kind is DropoutRewards else {}
        model = kind(2, 2, NETWORK, weights(), **own)
        state = model.warm_up(model.init(numbers()), seen, numbers())
        found.append(float(torch.stack([model.expect(state, x).mean[0] for x in contexts[:10]]).mean()))
    assert abs(found[0]) < 0.5 < found[1]


def test_heads_that_are_fitted_again_forget_as_well():
    seen = uneven()
    model = NeuralLinearRewards(2, 2, NETWORK, weights(), descent=Descent(steps=0), forgetting=FORGETTING)
    state = model.warm_up(model.init(numbers()), seen, numbers())
    features = hidden(NETWORK, state.weights, seen.contexts)
    prior = (regression(5, model.variance, model.shape, model.rate).init(),) * 2
    assert_heads(state.heads, fit_heads(prior, features, seen, (1 - FORGETTING) ** torch.arange(23.0, -1, -1)))


def test_rounds_of_a_bootstrap_count_as_often_as_a_poisson_number_says():
    """Mean and variance of the counts are 1, within four standard errors."""
    model = BootstrapRewards(2, 2, NETWORK, weights(), members=50, descent=Descent(steps=0))
    counts = model.warm_up(model.init(numbers()), uneven(200), numbers()).counts.flatten()
    assert abs(counts.mean() - 1) < 4 / math.sqrt(len(counts))
    squares = (counts - 1).square()
    assert abs(squares.mean() - 1) < 4 * squares.std() / math.sqrt(len(counts))


def test_dropped_units_leave_the_mean_of_what_others_give():
    """Of a network that is linear in its hidden units: draws have its outputs as mean, within four standard errors."""
    model = DropoutRewards(2, 2, NETWORK, weights(), probability=0.4, descent=Descent(steps=0))
    state, generator = model.init(numbers()), numbers(1)
    x = torch.tensor([0.5, -1.0])
    draws = torch.stack([model.draw(state, x, generator) for _ in range(4000)])
    expected = NETWORK(state.weights, x[None])[0]
    assert ((draws.mean(0) - expected).abs() < 4 * draws.std(0) / math.sqrt(4000)).all()
    units = torch.tanh(x @ weights()[:8].view(4, 2).T + weights()[8:12])
    spread = (units * weights()[12:20].view(2, 4)).square().sum(-1) * 0.4 / 0.6
    errors = (draws - expected).square()
    assert ((errors.mean(0) - spread).abs() < 4 * errors.std(0) / math.sqrt(4000)).all()
