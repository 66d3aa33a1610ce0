"""Agents that options of `tsforecast bandit` name."""

from collections.abc import Sequence

from tsforecast.cli import learning_commands
from tsforecast.decisions.config import AgentConfig
from tsforecast.decisions.table_columns import read_arms
from tsforecast.settings import AgentSettings


def configured(chosen: learning_commands.Bandit, names: Sequence[str], features: int) -> AgentConfig:
    """Return the agent that the options name."""
    warm_up = chosen.warm_up * (len(names) if chosen.all_arms else 1)
    settings = AgentSettings.values_of(chosen, warm_up=warm_up, hidden=tuple(chosen.hidden), seed=chosen.seed)
    settings["scales_rewards"] = not chosen.raw_rewards
    settings["arm_features"] = read_arms(chosen.arms, names) if chosen.arms else None
    config = AgentConfig(chosen.agent, len(names), features, **settings)
    config.build()
    return config
