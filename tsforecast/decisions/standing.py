"""All that a bandit knows, and the units in which it counts rewards."""

import dataclasses
import logging
import math
from collections.abc import Hashable
from typing import Any

from torch import Tensor

from tsforecast.decisions.buffer import Buffer
from tsforecast.decisions.rewards import AbstractRewards
from tsforecast.learners.statistics import Statistics

log = logging.getLogger(__name__)

Waiting = dict[Hashable, tuple[Tensor, int, int]]  # standardised context, arm and number of choices, by id

# The units of rewards are changed where the standard deviation of all rewards is so many of them.
_OUTGROWN = 2.0


@dataclasses.dataclass(frozen=True)
class Standing:
    """All that a bandit knows; a new one takes its place when a call has ended well.

    Attributes:
        state: Of the model of rewards.
        statistics: Of contexts.
        rewards: Number, mean and sum of squared deviations of all rewards.
        paid: Number of rewards of each arm.
        units: What rewards are shifted and divided by.
        first: The first rounds, to which the model is fitted.
        chosen: Number of choices.
        learnt: Number of rewards.
        waiting: Standardised context, arm and number of choices whose reward has not come yet, by id.
    """

    state: Any
    statistics: Statistics
    rewards: Tensor
    paid: Tensor
    units: Tensor
    first: Buffer
    chosen: int
    learnt: int
    waiting: Waiting

    def in_units(self, model: AbstractRewards[Any], rewards: Tensor, scales: bool) -> tuple[Any, Tensor]:
        """Return state and units; new ones where rewards have outgrown the old ones.

        Args:
            model: Of rewards.
            rewards: Number, mean and squared deviations of all rewards, with the one that is learnt next.
            scales: Whether rewards get units of their own.
        """
        old, new = self.units.tolist(), units_of(rewards, scales).tolist()
        was_constant = self.rewards[2] == 0  # so that the unit has been arbitrary
        is_outgrown = new[1] > _OUTGROWN * old[1] or (was_constant and rewards[2] > 0)
        if not scales or not is_outgrown:
            return self.state, self.units
        log.info(
            "rewards are counted in units of %.3g from %.3g now, instead of %.3g from %.3g: after %d of them these are "
            "their standard deviation and mean; what was learnt goes on in the new units",
            new[1], new[0], old[1], old[0], int(rewards[0]),
        )  # fmt: skip
        # From the old units to the new, not from raw rewards.
        state = model.rescale(self.state, (new[0] - old[0]) / old[1], new[1] / old[1])
        return state, rewards.new_tensor(new)


def units_of(rewards: Tensor, scales: bool) -> Tensor:
    """Return what rewards are to be shifted and divided by, given number, mean and squared deviations of them."""
    count, mean, squares = rewards.tolist()
    # Equal rewards have no unit.
    return rewards.new_tensor([mean, math.sqrt(squares / count) or 1.0] if scales else [0.0, 1.0])


def counted(rewards: Tensor, reward: float) -> Tensor:
    """Return number, mean and squared deviations with one more reward (Welford 1962)."""
    count, mean, squares = rewards.tolist()
    after = mean + (reward - mean) / (count + 1)
    return rewards.new_tensor([count + 1, after, squares + (reward - mean) * (reward - after)])
