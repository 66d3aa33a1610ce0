"""Agents that act: every named one, bad input, rewards that come later, files."""

import dataclasses
import math

import pytest
import torch

from tsforecast.decisions import AGENTS, AgentConfig, Bandit, load_bandit, play, save_bandit
from tsforecast.decisions.environments import clicks, linear, of_labels, of_log

QUICK = {"steps": 5}
# Settings that make a run of a few rounds meet a training.
FAST = {
    "subspace-svd": {"steps": 12, "dim": 6},
    "subspace-random": {"steps": 12, "dim": 6},
    "subspace-svd-diagonal": {"steps": 12, "dim": 6},
    **{name: {**QUICK, "every": 4} for name in ("neural-linear", "neural-linear-limited", "neural-greedy", "lim2")},
    **{name: {**QUICK, "every": 4} for name in ("neural-ts", "neural-ucb", "dropout")},
    "bootstrap": {**QUICK, "every": 4, "members": 2},
    "stein": {"steps": 1, "warm_up_steps": 3, "num_particles": 3},
    **{name: None for name in ("linear", "linucb", "linear-window", "adf", "fab-cost")},
    **{name: {"every": 4, "memory": 3} for name in ("ep", "laplace")},
}


def config(agent="lofi", **settings):
    given = {"arms": 3, "features": 2, "hidden": (4,), "warm_up": 2, "settings": FAST.get(agent, QUICK), **settings}
    return AgentConfig(agent, **given)


def environment(steps=20, seed=0, agent="lofi"):
    generator = torch.Generator().manual_seed(seed)
    if Bandit(config(agent)).model.binary:
        return clicks(steps, generator, arms=3, features=2, rate=0.4)
    return linear(steps, generator, arms=3, features=2)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_plays_goes_on_from_a_file_and_repeats_itself(agent, tmp_path):
    first, again = Bandit(config(agent)), Bandit(config(agent))
    played = list(play(first, environment(agent=agent)))
    assert list(play(again, environment(agent=agent))) == played
    assert all(math.isfinite(reward) for _, reward in played)
    assert [arm for arm, _ in played[:6]] == [0, 1, 2, 0, 1, 2]
    save_bandit(first, tmp_path / "agent.pt")
    loaded = load_bandit(tmp_path / "agent.pt")
    late = environment(8, seed=1, agent=agent)
    assert list(play(loaded, late)) == list(play(first, late))


def test_devices_are_those_of_the_machine_and_only_weights_go_there():
    assert config("ekf", device="auto").build()[0].init(torch.Generator()).origin.isfinite().all()
    with pytest.raises(ValueError, match="no device 'nowhere' here"):
        config("ekf", device="nowhere").build()
    with pytest.raises(ValueError, match="expected device cpu for agent 'linear', got 'cuda'"):
        config("linear", device="cuda")


@pytest.mark.parametrize(
    "agent",
    ["linear", "adf", "lofi", "subspace-random", "neural-linear", "lim2", "neural-ts", "bootstrap", "dropout", "stein"],
)
def test_agents_take_forgetting_and_beliefs_all_drifts(agent):
    drifts = ["forgetting"]
    if agent in ("linear", "adf", "lofi", "subspace-random"):
        drifts += ["ou", "wiener", "exponential", "shrink"]
    for drift in drifts:
        rounds = environment(agent=agent)
        played = [list(play(Bandit(config(agent, drift=name, rate=0.3)), rounds)) for name in (drift, "none")]
        assert played[0][:6] == played[1][:6]


@pytest.mark.parametrize("encoding", ["output", "concatenated", "block"])
@pytest.mark.parametrize("rule", ["thompson", "ucb", "greedy", "epsilon"])
def test_encodings_and_rules(encoding, rule):
    played = list(play(Bandit(config("vd-ekf", encoding=encoding, rule=rule, amount=0.5)), environment()))
    assert {arm for arm, _ in played} <= {0, 1, 2}


def test_rules_have_amounts_of_their_own():
    found = [config("linear", rule=rule).build()[1] for rule in ("ucb", "epsilon")]
    assert [found[0].alpha, found[1].epsilon] == [1.0, 0.05]


def test_a_greedy_agent_learns_which_arm_is_best():
    bandit = Bandit(AgentConfig("lofi", 3, 2, rule="ucb", settings={"steps": 50}))
    rounds = linear(300, torch.Generator().manual_seed(3), arms=3, features=2)
    arms = torch.tensor([arm for arm, _ in play(bandit, rounds)])
    regret = rounds.regret(arms)
    assert regret[200:].mean() < 0.2 * regret[:60].mean()


BAD = {
    "another length": ([1.0], 0, 1.0, "context of 2 numbers"),
    "infinite context": ([1.0, math.inf], 0, 1.0, "finite numbers in a context"),
    "text as context": ("young", 0, 1.0, "expected a context of numbers, got 'young'"),
    "no such arm": ([1.0, 2.0], 3, 1.0, "arm from 0 to 2"),
    "negative arm": ([1.0, 2.0], -1, 1.0, "arm from 0 to 2"),
    "NaN reward": ([1.0, 2.0], 0, math.nan, "finite reward"),
    "infinite reward": ([1.0, 2.0], 0, math.inf, "finite reward"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_changes_nothing(case):
    context, arm, reward, message = BAD[case]
    bandit = Bandit(config("linear"))
    list(play(bandit, environment()))
    before, numbers = bandit.standing, bandit.generator_state()
    with pytest.raises(ValueError, match=message):
        bandit.learn(context, arm, reward)
    assert bandit.standing is before
    assert torch.equal(bandit.generator_state(), numbers)


def test_agents_of_zero_and_one_refuse_other_rewards():
    bandit = Bandit(config("ep"))
    list(play(bandit, environment(agent="ep")))
    assert bandit.standing.units.tolist() == [0, 1]
    before = bandit.standing
    with pytest.raises(ValueError, match="a reward of 0 or 1, as agent 'ep' learns these"):
        bandit.learn([1.0, 2.0], 0, 0.5)
    assert bandit.standing is before


def test_a_failure_of_the_model_changes_nothing(monkeypatch):
    bandit = Bandit(config("linear"))
    list(play(bandit, environment()))
    before, numbers = bandit.standing, bandit.generator_state()

    def fail(self, state, context, arm, reward, generator):
        torch.rand(3, generator=generator)
        raise RuntimeError("of the model")

    monkeypatch.setattr(type(bandit.model), "learn", fail)
    with pytest.raises(RuntimeError, match="of the model"):
        bandit.learn([1.0, 2.0], 0, 1.0)
    assert bandit.standing is before
    assert torch.equal(bandit.generator_state(), numbers)


def test_a_model_that_diverged_is_no_choice():
    bandit = Bandit(config("ogd", noise=1e-3))
    with pytest.raises(ValueError, match="expected finite rewards of the model"):
        list(play(bandit, environment(200)))


def test_missing_and_constant_features_count_for_nothing():
    bandit = Bandit(config("linear"))
    list(play(bandit, environment()))
    assert bandit.choose([math.nan, math.nan]) in range(3)
    constant = Bandit(config("lofi"))
    for t in range(30):
        arm = constant.choose([5.0, 5.0])
        constant.learn([5.0, 5.0], arm, float(arm == t % 2))
    assert constant.standing.learnt == 30


def test_an_arm_that_never_pays_is_left():
    bandit = Bandit(config("linear"))
    arms = []
    for context in torch.randn(200, 2, generator=torch.Generator().manual_seed(0)):
        arms.append(bandit.choose(context))
        bandit.learn(context, arms[-1], float(arms[-1] != 1) + 0.1 * float(context[0]))
    assert arms[-100:].count(1) < 10


def test_rewards_that_come_later_are_those_that_come_at_once(tmp_path):
    at_once, later = Bandit(config("lofi")), Bandit(config("lofi"))
    rounds = environment(10)
    for t, (context, rewards) in enumerate(zip(rounds.contexts, rounds.rewards, strict=True)):
        arm = at_once.choose(context)
        assert later.choose(context, id=f"round {t}") == arm
        at_once.learn(context, arm, float(rewards[arm]))
        later.learn_later(f"round {t}", float(rewards[arm]))
    later.choose([0.0, 1.0], id=7)
    with pytest.raises(ValueError, match="id of its own"):
        later.choose([0.0, 1.0], id=7)
    save_bandit(later, tmp_path / "agent.pt")
    loaded = load_bandit(tmp_path / "agent.pt")
    loaded.learn_later(7, 1.0)
    for bandit, id in ((loaded, 7), (loaded, "nobody")):
        with pytest.raises(ValueError, match="whose reward is awaited"):
            bandit.learn_later(id, 1.0)


def test_a_reward_of_another_size_changes_the_units():
    bandit = Bandit(config("linear"))
    for t in range(6):
        bandit.learn([float(t), 1.0], t % 3, 1.0 + 0.01 * t)
    before = bandit.standing.units
    bandit.learn([1.0, 1.0], 0, 1.02)
    assert torch.equal(bandit.standing.units, before)
    bandit.learn([1.0, 1.0], 0, 50.0)
    assert bandit.standing.units[1] > 10


def test_published_warm_up_is_told_all_arms():
    labels = torch.arange(60) % 3
    rounds = of_labels(torch.nn.functional.one_hot(labels, 3).double(), labels, 3, 60, torch.Generator().manual_seed(0))
    told = Bandit(AgentConfig("linear", 3, 3, warm_up=6))
    played = list(play(told, rounds, all_arms=True))
    assert [arm for arm, _ in played[:6]] == [0, 1, 2, 0, 1, 2]
    assert told.standing.learnt == 18 + 54
    assert sum(reward for _, reward in played[6:]) > 0.8 * 54


def test_a_context_counts_once_whether_it_was_chosen_for_or_taught():
    bandit = Bandit(config("linear"))
    for t in range(4):
        bandit.learn([float(t), math.nan], bandit.choose([float(t), math.nan]), 1.0)
    assert bandit.standing.statistics.count.tolist() == [4, 0]
    assert bandit.standing.statistics.mean[0] == 1.5
    bandit.learn([9.0, 1.0], 0, 1.0)
    bandit.learn([9.0, 1.0], 0, 1.0)
    assert bandit.standing.statistics.count.tolist() == [6, 2]


def test_epsilon_greedy_explores_as_often_as_it_says():
    """Within four standard errors of epsilon (1 - 1 / arms) of the choices."""
    bandit = Bandit(config("linear", rule="epsilon", amount=0.3))
    for t in range(12):
        bandit.learn([0.0, 0.0], t % 3, float(t % 3 == 1))
    chosen = [bandit.choose([0.0, 0.0]) for _ in range(600)]
    share = sum(arm != 1 for arm in chosen) / 600
    assert abs(share - 0.2) < 4 * math.sqrt(0.2 * 0.8 / 600)


def test_a_log_teaches_what_it_knows_alone():
    rounds = of_log(torch.randn(8, 2).double(), torch.arange(8) % 3, torch.ones(8).double(), 3, 8)
    bandit = Bandit(config("linear"))
    played = list(play(bandit, rounds))
    assert bandit.standing.learnt == sum(not math.isnan(reward) for _, reward in played)


def test_what_is_expected_after_a_log_is_the_regression_on_it():
    """Oracle: ridge regression on standardised contexts and rewards, back in units of the rewards."""
    contexts = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)).double()
    rewards = 100 + 30 * contexts[:, 0] - 7 * contexts[:, 1].cos()
    bandit, rows = Bandit(config("linear", arms=2, warm_up=20)), []
    for t, context in enumerate(contexts):
        rows.append(bandit.standing.statistics.standardise(context)[1].float().double())
        bandit.learn(context, t % 2, float(rewards[t]))
    before = bandit.standing
    found = bandit.expect([0.5, -1.0])
    assert bandit.standing is before
    x = torch.cat([torch.stack(rows), torch.ones(40, 1)], -1)
    y = (rewards - rewards.mean()) / rewards.std(correction=0)
    new = before.statistics.standardise(torch.tensor([0.5, -1.0]).double())[1]
    new = torch.cat([new, torch.ones(1).double()])
    for arm in range(2):
        own, mine = x[arm::2], y[arm::2]
        precision = own.T @ own + torch.eye(3).double() / 4
        mean = torch.linalg.solve(precision, own.T @ mine)
        rate = 6 + 0.5 * (mine @ mine - mean @ precision @ mean)
        sd = (rate / 16 * (new @ torch.linalg.solve(precision, new))).sqrt()
        scale = rewards.std(correction=0)
        torch.testing.assert_close(found.mean[arm], new @ mean * scale + rewards.mean(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.sd[arm], sd * scale, rtol=1e-5, atol=1e-5)


def test_agent_and_environment_must_fit():
    with pytest.raises(ValueError, match="4 arms and 2 features, got 3 and 2"):
        list(play(Bandit(config("linear", arms=4)), environment()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": "lofo"}, "agent to be one of"),
        ({"arms": 1}, "arms to be a whole number from 2 on"),
        ({"features": 0}, "features to be a whole number"),
        ({"variance": 0.0}, "variance to be positive"),
        ({"noise": math.inf}, "noise to be positive and finite"),
        ({"hidden": (0,)}, "at least one unit"),
        ({"agent": "neural-linear", "drift": "ou"}, "none or forgetting"),
        ({"agent": "lrkf", "drift": "forgetting"}, "a drift that agent 'lrkf' takes"),
        ({"agent": "linear-window", "drift": "ou"}, "none for a window"),
        ({"agent": "fab-cost", "drift": "ou"}, "Bayesian forgetting or no drift"),
        ({"agent": "ep", "settings": {"variance": 0.0}}, "variance to be positive"),
        ({"agent": "neural-linear", "hidden": ()}, "hidden layer"),
        ({"settings": {"colour": 1}}, "settings and a drift that agent 'lofi' takes|what learner 'lofi' takes"),
        ({"agent": "linear", "settings": {"colour": 1}}, "settings and a drift that agent 'linear' takes"),
        ({"rule": "ucb", "amount": -1.0}, "alpha to be at least 0"),
        ({"rule": "epsilon", "amount": 2.0}, "epsilon to be"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Bandit(config(**{"settings": None, **settings}))


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "agent.pt"
    bandit = Bandit(config("linear"))
    save_bandit(bandit, path)
    payload = torch.load(path, weights_only=True)
    for change in (
        {"format": 0},
        {"leaves": payload["leaves"][:-1]},
        {"leaves": [leaf.float() for leaf in payload["leaves"]]},
        {"config": {**payload["config"], "agent": "lofo"}},
        {"config": {"agent": "lofi"}},
        {"chosen": "one"},
        {"waiting": {1: (torch.zeros(5), 0)}},
        {"waiting": {1: (torch.zeros(2), 9)}},
        {"generator": torch.zeros(3)},
    ):
        torch.save({**payload, **change}, path)
        with pytest.raises(ValueError, match="holds no readable agent"):
            load_bandit(path)
    torch.save(dataclasses.replace, path)
    with pytest.raises(ValueError, match="damaged or not of tsforecast"):
        load_bandit(path)


def test_two_arms_and_one_feature_are_enough():
    bandit = Bandit(AgentConfig("linear", 2, 1, warm_up=1))
    list(play(bandit, linear(8, torch.Generator().manual_seed(0), arms=2, features=1)))
    assert bandit.standing.learnt == 8
