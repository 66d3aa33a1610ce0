"""Off-policy estimates: formulas, known truth, coverage, support, logs in tables."""

import dataclasses
import logging
import math
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tsforecast.decisions import AgentConfig, Bandit, LogColumns, LoggedRounds, cross_fitted, evaluate_policy, read_log

ARMS = 3


def expected_rewards(contexts):
    """Return the probability of a click on each of three arms: a curve, so that a line is wrong."""
    x = contexts[:, 0]
    return torch.sigmoid(torch.stack([2 * x, 1 - x.square(), 0.3 * x.abs()], 1))


def simulated(rounds, seed=0):
    """Return a log with clicks, the probabilities of another policy, and true expected rewards."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rounds, 2, generator=generator, dtype=torch.float64)
    truth = expected_rewards(x)
    logging_policy = (0.8 * x @ torch.tensor([[1.0, 0, -1], [0, 1, 0]]).double()).softmax(1)
    arms = torch.multinomial(logging_policy, 1, generator=generator)
    paid = torch.rand(rounds, generator=generator, dtype=torch.float64) < truth.gather(1, arms)[:, 0]
    taken = logging_policy.gather(1, arms)[:, 0]
    log = LoggedRounds(x, arms[:, 0], paid.double(), taken, torch.ones(rounds, ARMS, dtype=torch.bool))
    return log, (2 * x @ torch.tensor([[0, 1.0, 0.5], [1, 0, 0]]).double()).softmax(1), truth


def values(found):
    return {each.name: each.value for each in found.estimates}


def test_estimates_are_their_formulas():
    """Oracle: the definitions in numpy, on a handful of rounds and for any model of rewards."""
    log, chances, _ = simulated(50)
    q = torch.rand(50, ARMS, generator=torch.Generator().manual_seed(1)).double()
    found = evaluate_policy(log, chances, q, switch=1.2)
    a, r, p = log.arms.numpy(), log.rewards.numpy(), log.propensities.numpy()
    pi, q, rows = chances.numpy(), q.numpy(), np.arange(50)
    w = pi[rows, a] / p
    model = (pi * q).sum(1)
    parts = {
        "ips": w * r, "dm": model, "dr": model + w * (r - q[rows, a]),
        "switch-dr": model + w * (r - q[rows, a]) * (w <= 1.2),
    }  # fmt: skip
    assert {*values(found)} == {*parts, "snips"}
    for each in found.estimates:
        if each.name == "snips":
            value = (w * r).sum() / w.sum()
            error = math.sqrt(np.var(w * (r - value), ddof=1) / 50) / w.mean()
        else:
            value, error = parts[each.name].mean(), parts[each.name].std(ddof=1) / math.sqrt(50)
        half = stats.norm.ppf(0.975) * error
        assert (each.value, each.error) == pytest.approx((value, error), rel=1e-10)
        assert (each.low, each.high) == pytest.approx((value - half, value + half), rel=1e-10)
    assert found.effective == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert (found.mean_weight, found.largest_weight) == pytest.approx((w.mean(), w.max()))
    assert found.logged.value == pytest.approx(r.mean())


def test_the_policy_of_the_log_has_the_mean_reward_of_the_log():
    log, _, _ = simulated(400)
    own = torch.zeros(400, ARMS, dtype=torch.float64)
    own[:, :] = (1 - log.propensities[:, None]) / 2
    own.scatter_(1, log.arms[:, None], log.propensities[:, None])
    found = evaluate_policy(log, own)
    assert values(found)["ips"] == values(found)["snips"] == pytest.approx(found.logged.value)
    assert found.effective == pytest.approx(400)
    assert found.warnings() == []


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Over 400 logs of 400 rounds: unbiased within 4 standard errors, and coverage within its binomial error.

    The truth is known: the mean of expected rewards under the policy, over 500,000 contexts.
    """
    _, chances, truth = simulated(500_000, seed=10_000)
    value = (chances * truth).sum(1).mean().item()
    held = {name: [] for name in ("ips", "snips", "dr")}
    errors = {name: [] for name in held}
    for seed in range(400):
        log, chances, _ = simulated(400, seed)
        model = torch.full((400, ARMS), 0.6).double() + 0.1 * log.contexts[:, :1]  # wrong, and known before
        for each in evaluate_policy(log, chances, model).estimates:
            if each.name in held:
                held[each.name].append(each.low <= value <= each.high)
                errors[each.name].append(each.value - value)
    for name in held:
        coverage, found = np.mean(held[name]), np.array(errors[name])
        assert abs(coverage - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 400), (name, coverage)
        assert abs(found.mean()) < 4 * found.std() / 20, name


def test_cross_fitting_does_not_see_the_round_and_helps_where_lines_are_right():
    log, chances, truth = simulated(600)
    found = cross_fitted(log)
    torch.testing.assert_close(found, cross_fitted(log), rtol=0, atol=0)
    other = dataclasses.replace(log, rewards=log.rewards.clone())
    other.rewards[7] = 1e3
    assert torch.equal(cross_fitted(other)[7], found[7])
    assert not torch.equal(cross_fitted(other), found)
    line = log.contexts @ torch.tensor([[3.0, -2.0, 1.0], [0.5, 1.0, 0.0]]).double()
    exact = dataclasses.replace(log, rewards=line.gather(1, log.arms[:, None])[:, 0])
    torch.testing.assert_close(cross_fitted(exact), line, rtol=0.05, atol=0.2)
    estimates = {each.name: each for each in evaluate_policy(exact, chances).estimates}
    assert estimates["dr"].error < 0.7 * estimates["ips"].error
    assert abs(estimates["dr"].value - (chances * line).sum(1).mean()) < 0.05
    assert truth.shape == found.shape


def test_bootstrap_intervals_are_near_those_of_the_normal_law():
    log, chances, _ = simulated(1000)
    normal, drawn = (evaluate_policy(log, chances, bootstrap=count).estimates for count in (0, 1000))
    for one, other in zip(normal, drawn, strict=True):
        assert one.value == other.value
        # The standard deviation of a quantile of 1000 draws is about .08 standard errors.
        assert abs(one.low - other.low) < 4 * 0.08 * one.error
        assert abs(one.high - other.high) < 4 * 0.08 * one.error


def test_draws_of_a_bootstrap_are_not_kept(monkeypatch):
    log, chances, _ = simulated(50)
    alive, draw, most = weakref.WeakSet(), torch.randint, []

    def counted(*args, **kwargs):
        rows = draw(*args, **kwargs)
        alive.add(rows)
        most.append(len(alive))
        return rows

    monkeypatch.setattr(torch, "randint", counted)
    evaluate_policy(log, chances, bootstrap=100)
    assert max(most) <= 2


def test_missing_support_is_said():
    log, chances, _ = simulated(500)
    some = log[log.arms != 2]
    found = evaluate_policy(some, chances[log.arms != 2])
    lost = chances[log.arms != 2][:, 2].mean().item()
    assert found.unsupported == pytest.approx(lost)
    said = " ".join(found.warnings(("a", "b", "rare")))
    assert "support is missing" in said
    assert f"{lost:.1%} of the policy's choices are arms that the log never has (rare)" in said
    wrong = dataclasses.replace(log, propensities=log.propensities.sqrt())
    assert "the weights have a mean of" in evaluate_policy(wrong, chances).warnings()[0]
    rare = torch.zeros_like(chances)
    rare[:, 2] = 1
    few = dataclasses.replace(log[slice(0, 40)])
    assert any("count as" in line for line in evaluate_policy(few, rare[:40]).warnings())
    never = log[log.arms == 0]
    nothing = evaluate_policy(never, rare[: len(never)])
    assert values(nothing)["ips"] == 0
    assert math.isnan(values(nothing)["snips"])
    assert nothing.unsupported == 1


def test_rounds_and_policies_that_are_none():
    log, chances, _ = simulated(5)
    for change, message in (
        ({"propensities": torch.tensor([0.5, 0.5, 0, 0.5, 0.5]).double()}, "a propensity above 0 .* round 3, got 0"),
        ({"propensities": torch.tensor([0.5, 1.5, 1, 0.5, 0.5]).double()}, "at most 1 in round 2, got 1.5"),
        ({"propensities": torch.full((5,), math.nan).double()}, "at most 1 in round 1, got nan"),
        ({"rewards": torch.tensor([0, 1, 1, math.nan, 0]).double()}, "a finite reward in round 4, got nan"),
        ({"arms": torch.tensor([0, 1, 2, 3, 0])}, "an arm from 0 to 2 in round 4, got 3"),
        ({"allowed": torch.arange(ARMS).expand(5, -1) != log.arms[:, None]}, "an arm that was allowed in round 1"),
        ({"arms": torch.zeros(4, dtype=torch.int64)}, "a context, arm, reward, propensity each"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(log, **change)
    for wrong, message in (
        (chances[:4], "expected probabilities of shape"),
        (2 * chances, "probabilities of the policy with a sum of 1 in round 1, got 2"),
        (chances * torch.nan, "with a sum of 1 in round 1, got nan"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_policy(log, wrong)
    closed = dataclasses.replace(log, allowed=torch.arange(ARMS).expand(5, -1) == log.arms[:, None])
    with pytest.raises(ValueError, match="no probability for arms that were not allowed"):
        evaluate_policy(closed, chances)
    with pytest.raises(ValueError, match="a level between 0 and 1"):
        evaluate_policy(log, chances, level=1.5)


def test_digits_as_a_log_whose_truth_is_known():
    """A softmax agent learns from half of a log of 1797 digits; on the rest its reward is known from the labels."""
    images, labels = map(torch.from_numpy, pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True))
    rows = torch.arange(len(labels))
    chances = torch.full((len(labels), 10), 0.05).double()
    chances[rows, (labels + rows % 3) % 10] = 0.55
    arms = torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    log = LoggedRounds(images, arms, (arms == labels).double(), chances[rows, arms], chances > 0)
    agent = Bandit(AgentConfig("linear", arms=10, features=64, warm_up=10, rule="softmax"))
    for row in rows[:900].tolist():
        agent.learn(images[row], int(arms[row]), log.rewards[row].item())
    policy = torch.stack([agent.chances(images[row]).value for row in rows[900:]])
    truth = policy.gather(1, labels[900:, None]).mean().item()
    found = evaluate_policy(log[900:], policy)
    assert truth > 0.5 > 0.3 > found.logged.value
    for each in found.estimates:
        if each.name != "dm":  # whose line is not the truth
            assert abs(each.value - truth) < 4 * each.error, each
    assert found.warnings() == []


# Tables.


@pytest.fixture
def frame():
    return pd.DataFrame(
        {"age": [20.0, 30, 40, 50], "arm": ["b", "a", "b", "c"], "reward": [1.0, 0, None, 1],
         "propensity": [0.5, 0.25, 0.5, 1.0], "open": ["a|b", "a|b|c", "b | c", "c"]}
    )  # fmt: skip


def test_a_table_is_read_with_its_sets_of_arms_and_missing_rewards_by_rule(frame, tmp_path, caplog):
    path = tmp_path / "log.parquet"
    frame.to_parquet(path)
    columns = LogColumns(available="open")
    with pytest.raises(ValueError, match=r"finite rewards, got none in row 3 \(of 1\); --missing_rewards"):
        read_log(path, columns)
    with caplog.at_level(logging.INFO, "tsforecast"):
        zero, drop = (read_log(path, columns, rule).rounds for rule in ("zero", "drop"))
    assert "1 of 4 rows have no reward: they count as 0" in caplog.text
    assert "they are left out" in caplog.text
    assert zero.rewards.tolist() == [1, 0, 0, 1]
    assert drop.contexts[:, 0].tolist() == [20, 30, 50]
    assert zero.allowed.int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert zero.arms.tolist() == [1, 0, 1, 2]
    assert zero.had_a_choice.tolist() == [True] * 4  # the last had one arm alone
    assert dataclasses.replace(zero, allowed=torch.ones(4, 3, dtype=torch.bool)).had_a_choice.tolist() == [
        True, True, True, False,
    ]  # fmt: skip


def test_probabilities_of_a_policy_are_read_by_the_names_of_arms(frame, tmp_path):
    path = tmp_path / "log.csv"
    frame = frame.assign(**{"p a": [0.3333, 1, 0, 0], "p c": [0.3333, 0, 0, 1], "p b": [0.3334, 0, 1, 0]})
    frame.drop(columns="open").to_csv(path, index=False)
    found = read_log(path, LogColumns(policy="p "), "zero")
    assert found.names == ("a", "b", "c")
    assert found.rounds.contexts.shape == (4, 1)
    torch.testing.assert_close(found.chances.sum(1), torch.ones(4).double(), rtol=0, atol=1e-12)
    assert found.chances[0].tolist() == pytest.approx([0.3333, 0.3334, 0.3333])
    frame["p b"] = 0.9
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"a sum of 1, got 1\.5666 in row 1"):
        read_log(path, LogColumns(policy="p "), "zero")
    frame.drop(columns="p b").to_csv(path, index=False)
    with pytest.raises(ValueError, match="a probability of every arm, got no column p b"):
        read_log(path, LogColumns(policy="p "), "zero")
