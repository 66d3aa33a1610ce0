"""The loop: an agent plays an environment and is paid for the arm it pulls alone."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from tsforecast.decisions.bandit import Bandit
from tsforecast.decisions.environments import Environment


class Decision(NamedTuple):
    """A round that was played.

    Attributes:
        arm: That was pulled.
        reward: That it paid; NaN where a log does not have it.
        propensity: Probability of the choice; NaN where it was not asked for.
        error: Its standard error, 0 where it is exact.
    """

    arm: int
    reward: float
    propensity: float
    error: float


def play(
    bandit: Bandit, environment: Environment, all_arms: bool = False, delay: int = 0
) -> Iterator[tuple[int, float]]:
    """Yield arm and reward of each round; the reward is NaN where a log does not have it, and is not learnt.

    Args:
        bandit: The agent, which learns.
        environment: With as many arms and features.
        all_arms: Whether the agent is told the rewards of all arms while it warms up, in as many rounds as without.
            Published code does so: for comparison with its results alone. The agent's warm-up must then have as many
            rewards, `warm_up * arms` of each arm.
        delay: Further rounds before a reward comes.

    Raises:
        ValueError: If agent and environment do not fit each other.
    """
    for decision in decide(bandit, environment, all_arms, delay):
        yield decision.arm, decision.reward


def decide(
    bandit: Bandit, environment: Environment, all_arms: bool = False, delay: int = 0, draws: int = 0
) -> Iterator[Decision]:
    """Yield the decision of each round, as `play` does, with its propensity.

    Args:
        bandit: As for `play`.
        environment: As for `play`.
        all_arms: As for `play`.
        delay: As for `play`.
        draws: Draws by which propensities without a closed form are estimated; 0 for no propensities.

    Raises:
        ValueError: As by `play`.
    """
    config = bandit.config
    if (config.arms, config.features) != (environment.arms, environment.features):
        raise ValueError(
            f"expected an environment with {config.arms} arms and {config.features} features, got "
            f"{environment.arms} and {environment.features}"
        )
    if delay < 0 or (all_arms and delay):
        raise ValueError(f"expected a delay of at least 0, and none where rewards of all arms are told, got {delay}")
    late: dict[str, float] = {}
    for number, (context, rewards) in enumerate(zip(environment.contexts, environment.rewards.tolist(), strict=True)):
        allowed = None if environment.allowed is None else environment.allowed[number]
        chances = bandit.chances(context, allowed, draws) if draws else None
        id = f"round {number}" if delay else None
        arm = bandit.choose(context, id, allowed)
        if all_arms and bandit.is_warming_up:
            for other, reward in enumerate(rewards):
                bandit.learn(context, other, reward)
        elif id is not None:
            late[id] = rewards[arm]
            if len(late) > delay:
                _learn_first(bandit, late)
        elif not math.isnan(rewards[arm]):
            bandit.learn(context, arm, rewards[arm])
        propensity, error = chances.propensity(arm) if chances else (math.nan, math.nan)
        yield Decision(arm, rewards[arm], propensity, error)
    while late:
        _learn_first(bandit, late)


def _learn_first(bandit: Bandit, late: dict[str, float]) -> None:
    """Give an agent the reward that has waited longest, or the word that there is none."""
    id = next(iter(late))
    reward = late.pop(id)
    bandit.learn_later(id, None if math.isnan(reward) else reward)
