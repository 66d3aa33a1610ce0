"""Units of rewards: beliefs go on in new ones, nothing is forgotten, and each change is said."""

import dataclasses
import logging
import math

import pytest
import torch

from tests.decisions.cases import numbers, rounds
from tests.decisions.test_bandit import config
from tsforecast.decisions import AGENTS, AgentConfig, Bandit, LinearRewards, standing
from tsforecast.learners import BayesianForgetting, OrnsteinUhlenbeck

SHIFT, SCALE = 1.7, 0.3
# With a wide prior, regressions change exactly as rewards do; with another, as its zero mean says of the new units.
WIDE = ("linear", "linucb", "linear-window", "neural-linear", "neural-linear-limited")
NUMBERS = [name for name in AGENTS if name not in ("adf", "ep", "laplace", "fab-cost")]


def in_new_units(seen):
    return dataclasses.replace(seen, rewards=(seen.rewards - SHIFT) / SCALE)


@pytest.mark.parametrize("drift", [None, BayesianForgetting(0.05)])
def test_a_regression_goes_on_as_if_all_rewards_had_come_in_the_new_units(drift):
    seen, late = rounds(40, 3, 2, numbers()), rounds(10, 3, 2, numbers(1))
    model = LinearRewards(2, 3) if drift is None else LinearRewards(2, 3, weight_drift=drift)
    known = model.rescale(model.warm_up(model.init(numbers()), seen, numbers()), SHIFT, SCALE)
    anew = model.warm_up(model.init(numbers()), in_new_units(seen), numbers())
    for state in ((known, anew), [model.warm_up(x, in_new_units(late), numbers()) for x in (known, anew)]):
        for head, other in zip(*state, strict=True):
            for name in ("mean", "cov", "shape", "rate"):
                torch.testing.assert_close(getattr(head, name), getattr(other, name), rtol=1e-8, atol=1e-8)


def test_a_drift_beyond_the_prior_leaves_a_positive_noise():
    model = LinearRewards(2, 3, weight_drift=OrnsteinUhlenbeck(0.2))
    state = model.rescale(model.init(numbers()), 1e6, 1.0)
    torch.testing.assert_close(state[0].rate, torch.tensor(6.0, dtype=torch.float64))
    wide = dataclasses.replace(state[0], cov=2 * state[0].cov)
    assert model.rescale((wide, wide), 1e6, 1.0)[0].rate == 6


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("agent", NUMBERS)
def test_what_every_model_expects_changes_as_rewards_do(agent):
    given = config(agent)
    if agent in WIDE:
        given = dataclasses.replace(given, settings={**(given.settings or {}), "variance": 1e7})
    model, generator = given.build()[0], numbers()
    seen = rounds(12, 2, 3, numbers(1), torch.float32)
    seen = dataclasses.replace(seen, arms=torch.arange(12) % 3)
    state = model.warm_up(model.init(generator), seen, generator)
    for k in range(6):
        state = model.learn(state, seen.contexts[k], int(seen.arms[k]), seen.rewards[k], generator)
    after = model.rescale(state, SHIFT, SCALE)
    for x in torch.randn(3, 2, generator=numbers(2)):
        expected, found = (model.expect(x_state, x) for x_state in (state, after))
        torch.testing.assert_close(found.mean, (expected.mean - SHIFT) / SCALE, rtol=1e-3, atol=1e-3)
        assert found.sd.isfinite().all()


@pytest.mark.parametrize("agent", ["linear-window", "neural-linear", "lim2", "bootstrap", "dropout", "neural-ts"])
def test_rounds_that_are_kept_are_in_the_new_units(agent):
    model, generator = config(agent).build()[0], numbers()
    seen = rounds(12, 2, 3, numbers(1), torch.float32)
    state = model.warm_up(model.init(generator), seen, generator)
    state = model.learn(state, seen.contexts[0], 0, torch.tensor(5.0), generator)
    after = model.rescale(state, SHIFT, SCALE)

    def rewards(state):
        if agent == "linear-window":
            return state.interactions().rewards
        history = (state.model if agent == "lim2" else state).history
        return torch.cat([history.seen.rewards, history.recent.interactions().rewards])

    assert 5 in rewards(state)
    torch.testing.assert_close(rewards(after), (rewards(state) - SHIFT) / SCALE)


def test_particles_and_memories_keep_data_and_noise_in_the_new_units():
    for agent, settings in (("stein", None), ("vb", {"memory": "grs", "memory_size": 4, "features": (3,)})):
        chosen = config(agent) if settings is None else config(agent, settings=settings)
        model, generator = chosen.build()[0], numbers()
        state = model.warm_up(model.init(generator), rounds(6, 2, 3, numbers(1), torch.float32), generator)
        after = model.rescale(state, SHIFT, SCALE)
        if agent == "vb":
            state, after = state.belief.memory, after.belief.memory
        else:
            assert model.learner.posterior.learns_noise
            ratio = (after.values[:, -1] - state.values[:, -1]).exp()  # of precisions
            torch.testing.assert_close(ratio, torch.full_like(ratio, SCALE**2))
        torch.testing.assert_close(after.target, (state.target - SHIFT) / SCALE)


def test_models_of_labels_have_no_units():
    model = config("adf").build()[0]
    with pytest.raises(ValueError, match="rewards of 0 and 1, which have no other units"):
        model.rescale(model.init(numbers()), SHIFT, SCALE)


# The agent.


def told(bandit, rewards, arms=3):
    """Teach an agent what arms paid in turn."""
    for t, reward in enumerate(rewards):
        bandit.learn([math.sin(t), math.cos(2 * t)], t % arms, reward)
    return bandit


def test_rare_clicks_change_nothing_that_is_known(caplog):
    """Of 600 rewards three pay: each is more than ten standard deviations from the mean."""
    clicks = [float(t in (20, 250, 590)) for t in range(600)]
    with caplog.at_level(logging.INFO, "tsforecast"):
        bandit = told(Bandit(config("linear", warm_up=100)), clicks)
    assert 1 > 10 * bandit.standing.units[1] > 0
    assert caplog.text == ""
    counted = sum(2 * (head.shape - 6) for head in bandit.standing.state)
    assert counted == 600


def test_rewards_that_outgrow_their_units_take_all_that_is_known_with_them(caplog, monkeypatch):
    """Oracle: an agent that has known the last units from the beginning; both get rewards in single precision."""
    noise = torch.randn(120, generator=numbers(3)).tolist()
    rewards = [0.01 * x if t < 60 else 40 + 10 * x for t, x in enumerate(noise)]
    with caplog.at_level(logging.INFO, "tsforecast"):
        bandit = told(Bandit(config("linear")), rewards)
    assert 1 <= len(caplog.records) <= 5
    assert all("what was learnt goes on in the new units" in record.message for record in caplog.records)
    assert bandit.standing.units[1] > 10
    monkeypatch.setattr(standing, "units_of", lambda rewards, scales: bandit.standing.units)
    knowing = told(Bandit(config("linear")), rewards)
    for head, other in zip(bandit.standing.state, knowing.standing.state, strict=True):
        for name in ("mean", "cov", "shape", "rate"):
            torch.testing.assert_close(getattr(head, name), getattr(other, name), rtol=1e-5, atol=1e-5)


def test_the_first_difference_between_constant_rewards_sets_the_units(caplog):
    with caplog.at_level(logging.INFO, "tsforecast"):
        bandit = told(Bandit(config("linear")), [1e6] * 30)
        assert bandit.standing.units.tolist() == [1e6, 1]
        told(bandit, [1e6 + 1e-3, 1e6, 1e6])
    assert len(caplog.records) == 1
    assert 0 < bandit.standing.units[1] < 1e-3
    told(bandit, [1e6 + 1e-3, 1e6] * 10)
    assert len(caplog.records) == 1


def test_rewards_as_they_come_have_no_units():
    bandit = told(Bandit(config("linear", scales_rewards=False)), [0.0] * 20 + [1e4] * 20)
    assert bandit.standing.units.tolist() == [0, 1]


# Shares of the warm-up.


def test_the_warm_up_ends_when_each_arm_has_had_its_share():
    bandit = Bandit(AgentConfig("linear", arms=3, features=2, warm_up=2))
    for _ in range(10):
        bandit.learn([0.5, -1.0], 0, 1.0)
    assert bandit.is_warming_up
    assert {bandit.choose([0.5, -1.0]) for _ in range(6)} == {1, 2}
    for arm in (1, 2, 2):
        bandit.learn([0.5, -1.0], arm, 0.0)
    assert bandit.choose([0.5, -1.0]) == 1
    bandit.learn([0.5, -1.0], 1, 0.0)
    assert not bandit.is_warming_up
    assert bandit.standing.paid.tolist() == [10, 2, 2]
    assert sum(2 * (head.shape - 6) for head in bandit.standing.state) == 14
