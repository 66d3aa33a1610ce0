"""Models of rewards against what they must equal: other forms of the same formula, and each other."""

import math

import pytest
import torch

from tests.decisions.cases import linear_network, numbers, rounds
from tsforecast.core import Gaussian
from tsforecast.decisions import (
    UCB,
    ArmOutput,
    BlockFeatures,
    Concatenated,
    Descent,
    Greedy,
    History,
    Interactions,
    LearntRewards,
    LinearRewards,
    LogisticRewards,
    OutputPerArm,
    SteinRewards,
    Thompson,
    WindowRewards,
)
from tsforecast.decisions.linear import fit_heads, regression, with_one
from tsforecast.decisions.matching import match
from tsforecast.decisions.neural_linear import NeuralLinearRewards
from tsforecast.decisions.rules import Round
from tsforecast.learners import (
    ADF,
    EP,
    BayesianForgetting,
    GaussianLikelihood,
    Laplace,
    LayerChain,
    OrnsteinUhlenbeck,
    ekf,
)
from tsforecast.learners.particles.svgd import s2vgd


def test_recursive_regressions_are_the_batch_formula():
    """S^-1 = S0^-1 + X'X, m = S X'y, a = a0 + n/2, b = b0 + (y'y - m' S^-1 m) / 2, for each arm."""
    seen = rounds(40, 3, 2, numbers())
    model = LinearRewards(2, 3)
    heads = model.warm_up(model.init(numbers()), seen, numbers())
    batch = fit_heads(model.init(numbers()), with_one(seen.contexts), seen)
    for arm, (head, other) in enumerate(zip(heads, batch, strict=True)):
        x = torch.cat([seen.contexts, torch.ones(40, 1, dtype=torch.float64)], -1)[seen.arms == arm]
        y = seen.rewards[seen.arms == arm]
        precision = torch.eye(4, dtype=torch.float64) / 4 + x.T @ x
        mean = torch.linalg.solve(precision, x.T @ y)
        rate = 6 + 0.5 * (y @ y - mean @ precision @ mean)
        for found in (head, other):
            torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-8)
            torch.testing.assert_close(found.cov, torch.linalg.inv(precision), rtol=0, atol=1e-8)
            torch.testing.assert_close(found.shape, 6 + 0.5 * torch.tensor(float(len(y))).double())
            torch.testing.assert_close(found.rate, rate, rtol=0, atol=1e-8)


def test_a_whole_window_is_the_regression_and_an_old_round_has_no_influence():
    seen = rounds(30, 3, 2, numbers())
    x = torch.randn(3, dtype=torch.float64, generator=numbers(1))
    window, exact = WindowRewards(2, 3, window=30), LinearRewards(2, 3)
    states = [model.warm_up(model.init(numbers()), seen, numbers()) for model in (window, exact)]
    for name in ("mean", "sd"):
        found, expected = (getattr(m.expect(s, x), name) for m, s in zip((window, exact), states, strict=True))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    short = WindowRewards(2, 3, window=10)
    late = Interactions(seen.contexts[20:], seen.arms[20:], seen.rewards[20:])
    both = [short.warm_up(short.init(numbers()), part, numbers()) for part in (seen, late)]
    torch.testing.assert_close(short.expect(both[0], x).mean, short.expect(both[1], x).mean, rtol=0, atol=1e-12)


def test_importance_is_the_number_of_copies():
    seen = rounds(12, 2, 2, numbers())
    counts = torch.arange(12) % 3
    rows = torch.repeat_interleave(torch.arange(12), counts)
    copies = Interactions(seen.contexts[rows], seen.arms[rows], seen.rewards[rows])
    prior = (regression(3, 4.0, 6.0, 6.0).init(),) * 2
    for a, b in zip(
        fit_heads(prior, with_one(seen.contexts), seen, counts.double()),
        fit_heads(prior, with_one(copies.contexts), copies),
        strict=True,
    ):
        for name in ("mean", "cov", "shape", "rate"):
            torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=0, atol=1e-10)


def test_draws_of_linear_rewards_are_student_t():
    """Location x'm and scale sqrt(b / a x'Sx): mean and variance of many draws, within 4 standard errors."""
    model = LinearRewards(2, 3)
    heads = model.warm_up(model.init(numbers()), rounds(30, 3, 2, numbers()), numbers())
    x = torch.randn(3, dtype=torch.float64, generator=numbers(1))
    generator = numbers(2)
    draws = torch.stack([model.draw(heads, x, generator) for _ in range(4000)])
    expected = model.expect(heads, x)
    degrees = 2 * torch.stack([head.shape for head in heads])
    variance = expected.sd.square() * degrees / (degrees - 2)
    error = (variance / len(draws)).sqrt()
    assert ((draws.mean(0) - expected.mean).abs() < 4 * error).all()
    squares = (draws - expected.mean).square()
    assert ((squares.mean(0) - variance).abs() < 4 * squares.std(0) / math.sqrt(len(draws))).all()


@pytest.mark.parametrize("drift", [BayesianForgetting(0.5), OrnsteinUhlenbeck(0.7)])
def test_a_drift_brings_all_arms_back_to_the_prior(drift):
    still, moved = LinearRewards(2, 2), LinearRewards(2, 2, weight_drift=drift)
    seen = rounds(20, 2, 2, numbers())
    state = still.warm_up(still.init(numbers()), seen, numbers())
    for _ in range(60):
        state = moved.learn(state, torch.zeros(2), 0, torch.tensor(0.0), numbers())
    prior = moved.init(numbers())[1]
    torch.testing.assert_close(state[1].mean, prior.mean, rtol=0, atol=1e-8)
    torch.testing.assert_close(state[1].cov, prior.cov, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("batch", "every"), [(ADF(), 0), (EP(tolerance=1e-10), 5), (Laplace(), 5)])
def test_logistic_rewards_are_posteriors_of_each_arm(batch, every):
    seen = rounds(20, 3, 2, numbers())
    seen = Interactions(seen.contexts, torch.arange(20) % 2, (seen.rewards > 0).double())
    model = LogisticRewards(2, 3, variance=2.0, batch=batch, every=every)
    state = model.warm_up(model.init(numbers()), seen, numbers())
    prior = Gaussian(torch.zeros(4, dtype=torch.float64), 2 * torch.eye(4, dtype=torch.float64))
    x = torch.tensor([0.3, -1.0, 0.5, 1.0], dtype=torch.float64)
    expected, generator = model.expect(state, x[:3]), numbers(1)
    for arm in (0, 1):
        own = seen.arms == arm
        found = batch.fit(prior, with_one(seen.contexts[own]), seen.rewards[own, None]).belief
        torch.testing.assert_close(expected.mean[arm], x @ found.mean, rtol=0, atol=1e-8)
        torch.testing.assert_close(expected.sd[arm] ** 2, x @ found.cov @ x, rtol=0, atol=1e-8)
    draws = torch.stack([model.draw(state, x[:3], generator) for _ in range(2000)])
    assert ((draws.mean(0) - expected.mean).abs() < 4 * expected.sd / math.sqrt(2000)).all()
    assert ((draws.std(0) / expected.sd - 1).abs() < 4 / math.sqrt(4000)).all()


def test_features_that_stay_leave_the_matched_covariance():
    generator = numbers()
    root = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    features = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    cov = root @ root.T
    torch.testing.assert_close(match(cov, features, features, steps=5), cov, rtol=0, atol=1e-10)


def test_a_step_of_matching_is_its_gradient_by_the_length_that_does_not_overshoot():
    """A = S - 2 sum_j (phi' S phi - s^2) phi phi' / (2 sum_j |phi|^4), where nothing is clipped."""
    old, noise = (torch.randn(30, 3, generator=numbers(k), dtype=torch.float64) for k in range(2))
    new, cov = old + 0.1 * noise, 2 * torch.eye(3, dtype=torch.float64)
    expected = cov.clone()
    for before, phi in zip(old, new, strict=True):
        excess = phi @ cov @ phi - before @ cov @ before
        expected -= 2 * excess * torch.outer(phi, phi) / (2 * new.square().sum(-1).square().sum())
    assert (expected - cov).abs().max() > 1e-3
    torch.testing.assert_close(match(cov, old, new), expected, rtol=0, atol=1e-10)


def test_rotated_features_rotate_the_matched_covariance():
    generator = numbers()
    root, other = (torch.randn(3, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    features = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    rotation, cov = torch.linalg.qr(other)[0], root @ root.T + torch.eye(3, dtype=torch.float64)
    found = match(cov, features, features @ rotation.T, steps=3000)
    torch.testing.assert_close(found, rotation @ cov @ rotation.T, rtol=0, atol=1e-8)


def test_arms_with_the_same_features_share_an_update():
    arm_features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    encoding = BlockFeatures(arm_features)
    network = linear_network((6, 1))
    learner = ekf(network, GaussianLikelihood(0.1), 1.0, mean=torch.zeros(6))
    model = LearntRewards(3, 3, learner, encoding, Descent(steps=0))
    state = model.learn(model.init(numbers()), torch.ones(3), 0, torch.tensor(1.0), numbers())
    expected = model.expect(state, torch.ones(3))
    assert expected.mean[0] == expected.mean[1]
    assert expected.mean[0] > 0.5
    assert expected.mean[2] == 0


def test_one_output_an_arm_is_a_block_for_each_arm():
    """Of a linear network without biases: the outputs' weights are the blocks."""
    seen = rounds(10, 3, 2, numbers())
    x = torch.randn(3, dtype=torch.float64, generator=numbers(1))
    found = []
    for network, encoding in (
        (ArmOutput(linear_network((3, 2))), OutputPerArm(2)),
        (linear_network((6, 1)), BlockFeatures(torch.eye(2))),
    ):
        learner = ekf(network, GaussianLikelihood(0.1), 1.0, mean=torch.zeros(6, dtype=torch.float64))
        model = LearntRewards(2, 3, learner, encoding, Descent(steps=0))
        state = model.warm_up(model.init(numbers()), seen, numbers())
        expected = model.expect(state, x)
        found += [expected.mean, expected.sd]
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=1e-10)
    torch.testing.assert_close(found[1], found[3], rtol=0, atol=1e-10)


def test_concatenated_inputs_are_context_and_arm():
    encoding = Concatenated(torch.eye(2))
    rows = encoding.each(torch.tensor([5.0, 7.0]))
    assert rows.tolist() == [[5, 7, 1, 0], [5, 7, 0, 1]]
    assert torch.equal(encoding.pulled(torch.tensor([[5.0, 7.0]]), torch.tensor([1])), rows[1:])
    assert encoding.width(2) == 4


@pytest.mark.usefixtures("unchecked_types")
def test_outputs_are_drawn_as_weights_are():
    """Of a linear network: moments of both kinds of draws, within 4 standard errors."""
    learner = ekf(ArmOutput(linear_network((2, 3))), GaussianLikelihood(0.1), 1.0, mean=torch.zeros(6))
    seen = rounds(6, 2, 3, numbers(), torch.float32)
    x, generator = torch.tensor([1.0, -0.5]), numbers(3)
    for draws_outputs in (True, False):
        model = LearntRewards(3, 2, learner, OutputPerArm(3), Descent(steps=0), draws_outputs)
        state = model.warm_up(model.init(numbers()), seen, numbers())
        draws = torch.stack([model.draw(state, x, generator) for _ in range(3000)])
        expected = model.expect(state, x)
        assert ((draws.mean(0) - expected.mean).abs() < 4 * expected.sd / math.sqrt(3000)).all()
        assert ((draws.std(0) / expected.sd - 1).abs() < 4 / math.sqrt(6000)).all()


def test_regret_stays_bounded_without_noise_and_ucb_of_nothing_is_greedy():
    generator = numbers()
    weights = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    model = LinearRewards(3, 4, shape=1.0, rate=1e-6)
    lost = {}
    for rule in (Thompson(), UCB(1.0), UCB(0.0), Greedy()):
        state, draws = model.init(numbers()), numbers(1)
        contexts = torch.randn(400, 4, generator=numbers(2), dtype=torch.float64)
        regret, arms = [], []
        for t, x in enumerate(contexts):
            arm = t % 3 if t < 30 else rule.choose(Round(model, state, x), draws)
            rewards = weights @ x
            state = model.learn(state, x, arm, rewards[arm], draws)
            regret.append(float(rewards.max() - rewards[arm]))
            arms.append(arm)
        lost[rule] = regret, arms
    for rule in (Thompson(), UCB(1.0)):
        assert sum(lost[rule][0][200:]) < 0.01
        assert sum(lost[rule][0][:30]) > 1
    assert lost[UCB(0.0)][1] == lost[Greedy()][1]


def test_particles_draw_one_of_the_networks_and_keep_all_rounds():
    network = ArmOutput(LayerChain((2, 4, 3), (torch.nn.Tanh, torch.nn.Identity), (True, True)))
    settings = {"num_particles": 4, "learns_noise": True, "generator": numbers(), "rate": 0.05, "steps": 2}
    model = SteinRewards(3, 2, s2vgd(network, GaussianLikelihood(0.1), **settings), OutputPerArm(3), 20)
    seen = rounds(6, 2, 3, numbers(), torch.float32)
    state = model.warm_up(model.init(numbers()), seen, numbers())
    state = model.learn(state, seen.contexts[0], 1, seen.rewards[0], numbers())
    assert len(state.target) == 7
    x, draws = torch.tensor([0.5, -1.0]), numbers(1)
    each = torch.stack([network(w, OutputPerArm(3).each(x))[:, 0] for w in model.learner.each(state)])
    drawn = {tuple(model.draw(state, x, draws).tolist()) for _ in range(60)}
    assert len(drawn) == 4
    for draw in drawn:
        assert (each - torch.tensor(draw)).abs().amax(-1).min() < 1e-5
    torch.testing.assert_close(model.expect(state, x).mean, each.mean(0))
    torch.testing.assert_close(model.expect(state, x).sd, each.std(0, correction=0))


def test_a_limited_memory_forgets_and_age_fades():
    network = LayerChain((2, 4, 2), (torch.nn.ReLU, torch.nn.Identity), (True, True))
    mean = torch.randn(network.size, generator=numbers())
    seen = rounds(30, 2, 2, numbers(), torch.float32)
    limited = NeuralLinearRewards(2, 2, network, mean, memory=8, every=5, descent=Descent(steps=0))
    state = limited.warm_up(limited.init(numbers()), seen, numbers())
    assert len(state.history.seen) == 8
    for k in range(5):
        state = limited.learn(state, seen.contexts[k], 0, seen.rewards[k], numbers())
    assert torch.equal(state.history.seen.rewards, torch.cat([seen.rewards[-3:], seen.rewards[:5]]))
    history = History(seen, torch.tensor([4, 1, 0]), state.history.recent)
    torch.testing.assert_close(history.fading(0.5), torch.tensor([0.0625, 0.5, 1.0]))
    assert history.fading(0.0) is None
