"""Probabilities of choices: exact ones against shares of choices, sets of arms, rewards that come late or never."""

import math

import pytest
import torch

from tests.decisions.test_bandit import config, environment
from tsforecast.decisions import AGENTS, Bandit, Environment, Softmax, decide, load_bandit, play, save_bandit
from tsforecast.decisions.environments import linear

COUNT = 600


def trained(agent="linear", **settings):
    bandit = Bandit(config(agent, **settings))
    rounds = environment(30, agent=agent)
    for _ in play(bandit, Environment(rounds.contexts, rounds.rewards[:, : bandit.config.arms], rounds.expected)):
        pass
    return bandit


def shares(bandit, context, allowed=None):
    """Return how often each arm is chosen, from the agent's own numbers."""
    state = bandit._standardised(bandit._read(context))[1]
    arms = [bandit.rule.choose(bandit._round(state, allowed), bandit._generator)
            for _ in range(COUNT)]  # fmt: skip
    return torch.bincount(torch.tensor(arms), minlength=bandit.config.arms) / COUNT


def near(share, chances):
    """Return whether shares are within 4.5 standard errors, of which there are a few dozen."""
    spread = (chances.value * (1 - chances.value) / COUNT + chances.error**2).sqrt()
    return bool(((share - chances.value).abs() <= 4.5 * spread + 1e-12).all())


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("agent", ["linear", "linear-window", "adf", "neural-linear", "lim2", "neural-ts", "ekf"])
def test_between_two_arms_thompson_is_exact(agent):
    bandit = trained(agent, arms=3)
    context, allowed = [0.2, -0.1], torch.tensor([True, False, True])
    found = bandit.chances(context, allowed)
    assert found.draws == 0
    assert found.value.sum().item() == pytest.approx(1, abs=1e-12)
    assert 0 < found.value[0] < 1
    assert found.value[1] == 0
    assert near(shares(bandit, context, allowed), found)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("agent", ["linear", "lofi", "vd-ekf", "subspace-random", "bootstrap", "dropout", "stein"])
def test_else_it_is_a_share_of_draws_with_an_error(agent):
    bandit = trained(agent)
    context = [0.2, -0.1]
    found = bandit.chances(context, draws=1000)
    assert found.draws == 1000
    smooth = (1000 * found.value + 1) / 1002  # an arm that no draw has taken has an error, too
    torch.testing.assert_close(found.error, (smooth * (1 - smooth) / 1000).sqrt())
    assert near(shares(bandit, context), found)
    assert bandit.chances(context, draws=1000).value.tolist() == found.value.tolist()


@pytest.mark.parametrize(("rule", "amount"), [("epsilon", 0.3), ("softmax", 0.5), ("greedy", None), ("ucb", 1.0)])
def test_other_rules_are_exact(rule, amount):
    bandit = trained("linear", rule=rule, amount=amount)
    for allowed in (None, torch.tensor([False, True, True])):
        found = bandit.chances([0.2, -0.1], allowed)
        assert found.draws == 0
        assert near(shares(bandit, [0.2, -0.1], allowed), found)
    means = bandit.model.expect(bandit.standing.state, bandit._standardised(bandit._read([0.2, -0.1]))[1]).mean
    best = int(means.argmax())
    found = bandit.chances([0.2, -0.1]).value
    if rule == "epsilon":
        assert found[best] == pytest.approx(0.8)
        assert found.min() == pytest.approx(0.1)
    elif rule == "softmax":
        torch.testing.assert_close(found, (means / 0.5).exp() / (means / 0.5).exp().sum())
    else:
        assert sorted(found.tolist()) == [0, 0, 1]
    with pytest.raises(ValueError, match="temperature to be positive"):
        Softmax(0.0)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("agent", AGENTS)
def test_asking_changes_no_choice(agent):
    rounds = environment(14, agent=agent)
    asked = list(decide(Bandit(config(agent)), rounds, draws=5))
    assert [(each.arm, each.reward) for each in asked] == list(play(Bandit(config(agent)), rounds))
    assert all(each.propensity == 1 and each.error == 0 for each in asked[:6])  # the warm-up has no choice
    assert all(0 < each.propensity <= 1 for each in asked)


def test_arms_that_are_closed_are_not_pulled_and_no_regret():
    rounds = linear(60, torch.Generator().manual_seed(0), arms=3, features=2)
    allowed = torch.rand(60, 3, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed[~allowed.any(1), 0] = True
    allowed[:20, 2] = False  # an arm that comes later
    allowed[:20, 0] = True
    some = Environment(rounds.contexts, rounds.rewards, rounds.expected, allowed)
    for rule in ("thompson", "ucb", "greedy", "epsilon", "softmax"):
        arms = torch.tensor([each.arm for each in decide(Bandit(config("linear", rule=rule)), some, draws=20)])
        assert allowed.gather(1, arms[:, None]).all(), rule
        assert (arms == 2).any()
        highest = torch.stack([row[mask].max() for row, mask in zip(rounds.expected, allowed, strict=True)])
        torch.testing.assert_close(some.regret(arms), highest - rounds.expected.gather(1, arms[:, None])[:, 0])
    bandit = Bandit(config("linear"))
    assert bandit.choose([0.0, 1.0], allowed=[2]) == 2
    for wrong, message in (([], "at least one arm of 3"), ([3], "an arm from 0 to 2, got 3"),
                           (torch.tensor([True]), "at least one arm of 3")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            bandit.choose([0.0, 1.0], allowed=wrong)
    with pytest.raises(ValueError, match="at least one draw"):
        bandit.chances([0.0, 1.0], draws=0)


def test_rewards_that_come_late_are_learnt_late():
    """With a delay of two the agent knows in round t what those up to t - 3 have paid: as if told then."""
    rounds = environment(30)
    late = Bandit(config("linear"))
    played = list(play(late, rounds, delay=2))
    other, waiting = Bandit(config("linear")), []
    for t, context in enumerate(rounds.contexts):
        assert other.choose(context, id=t) == played[t][0]
        waiting.append(t)
        if len(waiting) > 2:
            first = waiting.pop(0)
            other.learn_later(first, played[first][1])
    assert late.standing.learnt == 30
    assert not late.standing.waiting
    with pytest.raises(ValueError, match="a delay of at least 0"):
        next(play(late, rounds, delay=-1))


def test_rewards_that_never_come_are_settled_by_a_rule(tmp_path):
    bandit, knowing = Bandit(config("adf", arms=2)), Bandit(config("adf", arms=2))
    for t in range(12):
        context = [math.sin(t), math.cos(t)]
        assert bandit.choose(context, id=t) == knowing.choose(context, id=t)
        if t % 3:
            bandit.learn_later(t, 1.0)
            knowing.learn_later(t, 1.0)
    save_bandit(bandit, tmp_path / "agent.pt")
    bandit = load_bandit(tmp_path / "agent.pt")
    assert bandit.settle(after=4, reward=0.0) == [0, 3, 6]
    for t in (0, 3, 6):
        knowing.learn_later(t, 0.0)
    assert bandit.settle(after=0, reward=None) == [9]
    assert bandit.standing.learnt == knowing.standing.learnt == 11
    torch.testing.assert_close(bandit.expect([0.3, 0.1]).mean, knowing.expect([0.3, 0.1]).mean, rtol=0, atol=0)
    assert bandit.settle(after=0, reward=0.0) == []
    with pytest.raises(ValueError, match="the id of a choice whose reward is awaited, got 9"):
        bandit.learn_later(9, 1.0)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        bandit.settle(after=-1, reward=0.0)


def test_features_of_arms_teach_of_arms_that_were_never_pulled(tmp_path):
    """Four arms pay by their one feature: what three have paid tells the fourth, by features alone."""
    rows = ((-1.0,), (0.0,), (1.0,), (2.0,))
    found = {}
    for features in (rows, None):
        agent = config("ekf", arms=4, hidden=(), encoding="concatenated", arm_features=features, warm_up=10,
                       variance=1.0)  # fmt: skip
        bandit = Bandit(agent)
        for t in range(60):
            bandit.learn([math.sin(t), math.cos(t)], t % 3, [-1.0, 0.0, 1.0][t % 3] + 0.5 * math.sin(t))
        found[features] = bandit.expect([0.0, 1.0]).mean[3].item()
    assert found[rows] == pytest.approx(2, abs=0.3)
    assert abs(found[None] - 2) > 1
    save_bandit(bandit := Bandit(config("ekf", arms=4, encoding="block", arm_features=rows)), tmp_path / "agent.pt")
    assert load_bandit(tmp_path / "agent.pt").config == bandit.config
    for wrong, message in (
        ({"agent": "linear"}, "expected a learner such as lofi or ekf"),
        ({"agent": "ekf"}, "got agent 'ekf' and encoding 'output'"),
        ({"agent": "ekf", "encoding": "block", "arm_features": rows[:3]}, "of 4 rows of the same length, got 3"),
        ({"agent": "ekf", "encoding": "block", "arm_features": ((math.nan,),) * 4}, "finite numbers as features"),
    ):
        with pytest.raises(ValueError, match=message):
            config(**{"arms": 4, "arm_features": rows, **wrong})
