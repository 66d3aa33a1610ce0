"""Bandits of which the answers are known: what arms pay, how often, and what changes half-way."""

import math

import pytest
import torch

from tests.decisions.cases import numbers
from tsforecast.decisions.environments import clicks, linear, of_labels, of_log, of_mushrooms, of_rewards, wheel

COUNT = 40_000


def within_four_standard_errors(values, expected):
    values = values.double()
    return abs(values.mean() - expected) < 4 * values.std() / math.sqrt(len(values))


def test_each_label_is_an_arm_and_half_way_the_one_after_its_own():
    rows = torch.arange(7.0).double()[:, None]
    labels = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    found = of_labels(rows, labels, 4, 20, numbers(), changes=True)
    own = labels[found.contexts[:, 0].long()]
    right = torch.where(torch.arange(20) < 10, own, (own + 1) % 4)
    assert torch.equal(found.rewards.argmax(-1), right)
    assert torch.equal(found.rewards.sum(-1), torch.ones(20).double())
    assert found.regret(right).sum() == 0
    assert found.regret((right + 1) % 4).sum() == 20
    # Each row comes once before any comes again.
    assert sorted(found.contexts[:7, 0].tolist()) == [*range(7)]
    assert sorted(found.contexts[7:14, 0].tolist()) == [*range(7)]
    with pytest.raises(ValueError, match="labels from 0 to 1, got 0 to 3"):
        of_labels(rows, labels, 2, 20, numbers())


def test_rewards_of_rows_move_to_the_next_arm_half_way():
    rows = torch.arange(6.0).double()[:, None]
    paid = rows * 10 + torch.arange(3.0).double()
    found = of_rewards(rows, paid, 12, numbers(), changes=True)
    own = paid[found.contexts[:, 0].long()]
    assert torch.equal(found.rewards[:6], own[:6])
    assert torch.equal(found.rewards[6:, 1], own[6:, 0])
    assert torch.equal(found.rewards[6:, 0], own[6:, 2])


def test_a_log_knows_the_reward_of_its_choice_alone():
    found = of_log(torch.zeros(4, 1).double(), torch.tensor([1, 0, 2, 1]), torch.tensor([5.0, 6, 7, 8]).double(), 3, 3)
    assert found.rewards.nan_to_num(nan=-1).tolist() == [[-1, 5, -1], [6, -1, -1], [-1, -1, 7]]
    assert found.expected.isnan().all()


def test_mushrooms_pay_nothing_five_or_minus_thirty_five():
    edible = torch.tensor([True, False]).repeat(COUNT // 2)
    found = of_mushrooms(edible[:, None].double(), edible, COUNT, numbers(), changes=True)
    good = found.contexts[:, 0].bool() ^ (torch.arange(COUNT) >= COUNT // 2)
    assert (found.rewards[:, 0] == 0).all()
    assert (found.rewards[good, 1] == 5).all()
    assert set(found.rewards[~good, 1].tolist()) == {5.0, -35.0}
    assert within_four_standard_errors(found.rewards[~good, 1] == 5, 0.5)
    assert found.expected[good, 1].unique().tolist() == [5]
    assert found.expected[~good, 1].unique().tolist() == [-15]


def test_the_wheel_pays_fifty_beyond_its_radius_in_one_quadrant_each():
    found = wheel(COUNT, numbers(), delta=0.8, noise=0.01, changes=True)
    radius = found.contexts.norm(dim=-1)
    assert within_four_standard_errors(radius.square(), 0.5)  # uniform in the disc
    assert (radius <= 1).all()
    far = radius > 0.8
    assert (found.expected[~far] == torch.tensor([1.2, 1, 1, 1, 1], dtype=torch.float64)).all()
    assert within_four_standard_errors(far, 1 - 0.64)
    x, y = found.contexts[far].unbind(-1)
    quadrant = torch.where(y > 0, torch.where(x > 0, 0, 1), torch.where(x < 0, 2, 3))
    late = torch.arange(COUNT)[far] >= COUNT // 2
    assert torch.equal(found.expected[far].argmax(-1), 1 + (quadrant + late) % 4)
    assert (found.expected[far].amax(-1) == 50).all()
    noise = (found.rewards - found.expected).flatten()
    assert within_four_standard_errors(noise.square(), 1e-4)


def test_linear_rewards_are_linear_with_weights_of_length_one_and_others_half_way():
    found = linear(200, numbers(), arms=3, features=4, noise=0.5, changes=True)
    weights = []
    for part in (slice(0, 100), slice(100, 200)):
        solved = torch.linalg.lstsq(found.contexts[part], found.expected[part]).solution
        torch.testing.assert_close(found.contexts[part] @ solved, found.expected[part])
        torch.testing.assert_close(solved.norm(dim=0), torch.ones(3).double())
        weights.append(solved)
    assert (weights[0] - weights[1]).abs().max() > 0.1
    noise = (linear(COUNT, numbers(), noise=0.5).rewards - linear(COUNT, numbers(), noise=0.5).expected).flatten()
    assert within_four_standard_errors(noise.square(), 0.25)
    still = linear(200, numbers(), arms=3, features=4)
    solved = torch.linalg.lstsq(still.contexts, still.expected).solution
    torch.testing.assert_close(still.contexts @ solved, still.expected)


def test_clicks_come_as_often_as_they_are_expected():
    found = clicks(COUNT, numbers(), arms=2, features=3, rate=0.05)
    assert set(found.rewards.unique().tolist()) == {0.0, 1.0}
    errors = found.rewards - found.expected
    assert within_four_standard_errors(errors.flatten(), 0.0)
    logits = torch.logit(found.expected) - math.log(0.05 / 0.95)
    solved = torch.linalg.lstsq(found.contexts, logits).solution
    torch.testing.assert_close(found.contexts @ solved, logits)
    torch.testing.assert_close(solved.norm(dim=0), torch.ones(2).double())
