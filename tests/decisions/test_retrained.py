"""Networks that are trained again: how old rounds count, and the priors of LiM2."""

import torch

from tests.decisions.cases import numbers, rounds
from tsforecast.decisions import Descent, Interactions, MatchedRewards, NeuralLinearRewards
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
