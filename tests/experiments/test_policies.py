"""Policies by Stein gradients: against gradients written out, a small problem that can be enumerated, and gymnasium."""

import dataclasses
import sys

import pytest
import torch
from torch import nn

from experiments.policies.config import PolicyConfig
from experiments.policies.control import Control, Episodes, control_of, environment, roll_out
from experiments.policies.policy_gradient import PolicyGradient, above_others
from tsforecast.learners.likelihoods.classes import CategoricalLikelihood
from tsforecast.learners.likelihoods.likelihood import GaussianLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain
from tsforecast.learners.particles.matrix_structure import Structure
from tsforecast.learners.particles.stein import direction
from tsforecast.learners.particles.weight_posterior import WeightPosterior

EXACT = {"rtol": 1e-9, "atol": 1e-9}
FIRST, SECOND = torch.tensor([0.3, -0.8]), torch.tensor([[1.0, -2.0], [0.5, 2.5]])
DISCOUNT = 0.9


class TwoSteps:
    """The second observation is the first action, and both actions are paid for."""

    def reset(self, seed):
        self.first = None
        return (1.0, 0.0), {}

    def step(self, action):
        if self.first is None:
            self.first = action
            return (0.0, 2.0 * action - 1.0), FIRST[action].item(), False, False, {}
        return (0.0, 0.0), SECOND[self.first, action].item(), True, False, {}


TOY = Control("toy", 2, (), (), (0.0, 0.0), (1.0, 1.0), 2)


def learner(particles: int, control: Control = TOY, **options) -> PolicyGradient:
    widths = (control.features, 3, control.outputs)
    network = LayerChain(widths, (nn.Tanh, nn.Identity), (True, True))
    numbers = not control.choices
    likelihood = GaussianLikelihood(1.0) if numbers else CategoricalLikelihood()
    structure = Structure(network.shapes, 0, False)
    posterior = WeightPosterior(network, likelihood, structure, 2.0, learns_noise=numbers)
    start = structure.start(particles, torch.Generator().manual_seed(1)).double()
    start = torch.cat([start, 0.3 + start.new_zeros(particles, posterior.num_precisions)], -1)
    return PolicyGradient(control, posterior, start, **{"discount": DISCOUNT, **options})


def some_episodes(control: Control, particles: int) -> Episodes:
    rng = torch.Generator().manual_seed(2)
    shape = (particles, 3, 4)
    lasts = torch.tensor([4, 2, 3])[:, None] > torch.arange(4)
    lasts = lasts.expand(shape)
    inputs = torch.randn(*shape, control.features, generator=rng, dtype=torch.double) * lasts.unsqueeze(-1)
    if control.choices:
        actions = torch.randint(control.choices, (*shape, 1), generator=rng).double() * lasts.unsqueeze(-1)
    else:
        actions = torch.randn(*shape, len(control.low), generator=rng, dtype=torch.double) * lasts.unsqueeze(-1)
    return Episodes(inputs, actions, torch.randn(shape, generator=rng, dtype=torch.double) * lasts, lasts)


@pytest.mark.parametrize("control", [TOY, Control("numbers", 0, (-1.0,), (1.0,), (0.0, 0.0), (1.0, 1.0), 4)])
def test_scores_are_the_gradient_written_out(control):
    """Of sum_t A_t log pi(a_t | s_t) over episodes and temperature, with the prior."""
    found = learner(2, control, temperature=0.7)
    policies, episodes = found.init(), some_episodes(control, 2)
    advantages = found.advantages(policies, episodes)
    for k, scores in enumerate(found.scores(policies, episodes)):
        values = found.start[k].clone().requires_grad_()
        total = -0.25 * values[: found.posterior.structure.lengths[0]].square().sum()  # a prior of variance 2
        if not control.choices:  # Gamma(1, 0.1) of the precision, in its logarithm
            total = total + values[-1] - 0.1 * values[-1].exp()
        for episode in range(3):
            for step in range(int(episodes.lasts[k, episode].sum())):
                weights = found.posterior.weights(values)
                outputs = found.posterior.network(weights, episodes.inputs[k, episode, step : step + 1])[0]
                action = episodes.actions[k, episode, step]
                if control.choices:
                    log_prob = torch.log_softmax(outputs, -1)[int(action)]
                else:
                    log_prob = 0.5 * values[-1] - 0.5 * values[-1].exp() * (action - outputs).square().sum()
                total = total + advantages[k, episode, step] * log_prob / (0.7 * 3)
        (expected,) = torch.autograd.grad(total, values)
        torch.testing.assert_close(scores, expected, **EXACT)


def expected_return(found: PolicyGradient, values):
    """J, by all four paths."""
    weights = found.posterior.weights(values)

    def chances(observation):
        return torch.softmax(found.posterior.network(weights, torch.tensor([observation], dtype=values.dtype))[0], -1)

    first = chances((1.0, 0.0))
    second = torch.stack([chances((0.0, -1.0)), chances((0.0, 1.0))])
    return (first * (FIRST + DISCOUNT * (second * SECOND).sum(1))).sum()


@pytest.mark.parametrize("trace", [None, 1.0])
def test_estimates_are_those_of_the_return_on_average(trace):
    """Within four standard errors of every coordinate; a critic that is wrong adds no bias with lambda = 1."""
    count = 600
    found = learner(count, trace=trace, discounts_steps=True)
    found = dataclasses.replace(found, start=found.start[:1].expand(count, -1).contiguous())
    policies = found.init()
    policies = dataclasses.replace(policies, critic=0.3 + torch.zeros_like(policies.critic))
    episodes = found.explore(policies, [[TwoSteps() for _ in range(4)] for _ in range(count)], seed=3)
    scores = found.scores(policies, episodes)
    values = found.start[0].clone().requires_grad_()
    (expected,) = torch.autograd.grad(expected_return(found, values) - 0.25 * values.square().sum(), values)
    error = scores.std(0) / count**0.5
    assert ((scores.mean(0) - expected.detach()).abs() <= 4.5 * error + 1e-12).all()
    assert (error > 0).any()


def test_an_episode_is_compared_with_the_others_of_its_policy():
    still = torch.tensor([[[3.0], [5.0], [10.0]]])
    assert above_others(still).flatten().tolist() == [-4.5, -1.5, 6.0]
    assert torch.equal(above_others(still[:, :1]), still[:, :1])


def test_observations_are_in_units_of_their_bounds():
    control = Control("numbers", 0, (-1.0,), (1.0,), (1.0, 0.0), (2.0, 1.0), 4)
    assert control.scaled([(5.0, 3.0), (1.0, -1.0)], FIRST).tolist() == [[2.0, 3.0], [0.0, -1.0]]


def test_particles_move_as_stein_says_and_one_as_without_a_kernel():
    found = learner(3)
    policies, episodes = found.init(), some_episodes(TOY, 3)
    uphill = direction(policies.values, found.scores(policies, episodes))
    moved, _ = found.adaptive(policies.values, uphill, policies.moments, found.rate)
    torch.testing.assert_close(found.update(policies, episodes).values, moved, **EXACT)
    alone = learner(1)
    others = dataclasses.replace(alone, repels=False)
    one = some_episodes(TOY, 1)
    torch.testing.assert_close(
        alone.update(alone.init(), one).values, others.update(others.init(), one).values, **EXACT
    )


def test_a_critic_is_a_ridge_regression_of_what_is_still_paid():
    found = learner(2, trace=0.5)
    policies = found.update(found.init(), some_episodes(TOY, 2))
    assert policies.critic.shape == (2, 8)
    assert policies.critic.abs().sum() > 0
    assert not found.advantages(policies, some_episodes(TOY, 2))[~some_episodes(TOY, 2).lasts].any()


@pytest.mark.parametrize("agent", ["svgd", "s2vgd", "independent", "joint"])
@pytest.mark.parametrize("gradient", ["reinforce", "a2c"])
def test_agents_act_and_learn_in_numbers(agent, gradient):
    config = PolicyConfig(agent, "Pendulum-v1", gradient, particles=2, episodes=2, horizon=5, hidden=(3,))
    found, environments = config.build(), config.environments()
    policies = found.init()
    again = found.explore(policies, environments, seed=1)
    episodes = found.explore(policies, environments, seed=1)
    assert torch.equal(again.rewards, episodes.rewards)
    assert episodes.rewards.shape == ((1, 4, 5) if agent == "joint" else (2, 2, 5))
    after = found.update(policies, episodes)
    assert after.values.isfinite().all()
    assert not torch.equal(after.values, policies.values)


def test_policies_learn_to_balance():
    config = PolicyConfig(particles=8, episodes=2, horizon=60, hidden=(8,), rate=0.03)
    found, environments = config.build(), config.environments()
    policies, returns = found.init(), []
    for iteration in range(25):
        episodes = found.explore(policies, environments, seed=1000 * iteration)
        policies = found.update(policies, episodes)
        returns.append(episodes.returns.mean().item())
    assert returns[0] < 30
    assert sum(returns[-3:]) / 3 > 45


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": "dqn"}, "expected agent to be one of svgd, s2vgd, independent, joint, got 'dqn'"),
        ({"gradient": "ppo"}, "expected gradient to be one of reinforce, a2c"),
        ({"particles": 0}, "expected particles to be a whole number from 1 on, got 0"),
        ({"episodes": 1}, "expected 2 episodes or more for reinforce"),
        ({"variance": 0.0}, "expected variance to be positive and finite"),
        ({"horizon": 0}, "expected horizon to be at least 1"),
        ({"hidden": (0,)}, "expected hidden layers of at least one unit"),
    ],
)
def test_settings_that_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PolicyConfig(**change)


def test_what_is_no_control_problem_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="expected an environment of gymnasium, such as CartPole-v1, got 'Cart'"):
        environment("Cart")
    with pytest.raises(ValueError, match="expected the name of an environment"):
        environment("os:CartPole-v1")
    made = environment("CartPole-v1")
    from gymnasium import spaces

    made.unwrapped.observation_space = spaces.Discrete(4)
    with pytest.raises(ValueError, match="expected observations in a Box of one dimension, got Discrete"):
        control_of(made.unwrapped)
    for name, value in (("temperature", 0.0), ("rate", -1.0), ("discount", 1.5), ("trace", -0.1)):
        with pytest.raises(ValueError, match=f"expected {name} to be"):
            learner(1, **{name: value})
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ValueError, match=r"policies need gymnasium: `pip install 'tsforecast\[rl\]'`"):
        environment("CartPole-v1")


def test_a_reward_that_is_no_number_is_refused():
    class Broken(TwoSteps):
        def step(self, action):
            return (0.0, 0.0), float("nan"), True, False, {}

    found = learner(1)
    with pytest.raises(ValueError, match="toy: expected finite rewards and observations, got others"):
        roll_out(TOY, [[Broken()]], lambda x: torch.zeros(1, 1, 1), 0, found.start)
