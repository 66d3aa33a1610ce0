"""The loop: an agent plays an environment and is paid for the arm it pulls alone."""

import math
from collections.abc import Iterator

from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.environments import Environment


def play(bandit: Bandit, environment: Environment, all_arms: bool = False) -> Iterator[tuple[int, float]]:
    """Yield arm and reward of each round; the reward is NaN where a log does not have it, and is not learnt.

    Args:
        bandit: The agent, which learns.
        environment: With as many arms and features.
        all_arms: Whether the agent is told the rewards of all arms while it warms up, in as many rounds as without.
            Published code does so: for comparison with its results alone. The agent's warm-up must then have as many
            rewards, `warm_up * arms` of each arm.

    Raises:
        ValueError: If agent and environment do not fit each other.
    """
    config = bandit.config
    if (config.arms, config.features) != (environment.arms, environment.features):
        raise ValueError(
            f"expected an environment with {config.arms} arms and {config.features} features, got "
            f"{environment.arms} and {environment.features}"
        )
    for context, rewards in zip(environment.contexts, environment.rewards.tolist(), strict=True):
        arm = bandit.choose(context)
        if all_arms and bandit.is_warming_up:
            for other, reward in enumerate(rewards):
                bandit.learn(context, other, reward)
        elif not math.isnan(rewards[arm]):
            bandit.learn(context, arm, rewards[arm])
        yield arm, rewards[arm]
