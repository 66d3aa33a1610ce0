"""Agents that options of `tsforecast bandit` name."""

from tsforecast.cli import commands
from tsforecast.decisions.config import AgentConfig
from tsforecast.settings import AgentSettings


def configured(chosen: commands.Bandit, arms: int, features: int) -> AgentConfig:
    """Return the agent that the options name.

    Raises:
        ValueError: If they do not go together.
    """
    warm_up = chosen.warm_up * (arms if chosen.all_arms else 1)
    settings = AgentSettings.values_of(chosen, warm_up=warm_up, hidden=tuple(chosen.hidden), seed=chosen.seed)
    settings["scales_rewards"] = not chosen.raw_rewards
    config = AgentConfig(chosen.agent, arms, features, **settings)
    config.build()
    return config
