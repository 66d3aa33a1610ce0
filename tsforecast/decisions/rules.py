"""Rules that choose an arm, given beliefs about rewards."""

import abc
import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.decisions.rewards import AbstractRewards, Context


class AbstractRule(abc.ABC):
    """A choice; of equally good arms the first is taken."""

    @abc.abstractmethod
    def choose(self, model: AbstractRewards[Any], state: Any, context: Context, generator: torch.Generator) -> int:
        """Return the number of an arm.

        Args:
            model: Of the rewards.
            state: Of the model.
            context: Of the round.
            generator: Of random numbers; the same state of it gives the same arm.
        """


@dataclasses.dataclass(frozen=True)
class Thompson(AbstractRule):
    """The best arm for one draw of the weights: each arm as often as it is believed to be best (Thompson 1933)."""

    def choose(self, model: AbstractRewards[Any], state: Any, context: Context, generator: torch.Generator) -> int:
        """Return the best arm of a draw."""
        return best(model.draw(state, context, generator))


@dataclasses.dataclass(frozen=True)
class UCB(AbstractRule):
    """The arm with the largest mean + alpha sd (Auer 2002; LinUCB of Li et al. 2010 where the model is linear).

    Attributes:
        alpha: Standard deviations; 0 is greedy.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"expected alpha to be at least 0 and finite, got {self.alpha}")

    def choose(self, model: AbstractRewards[Any], state: Any, context: Context, generator: torch.Generator) -> int:
        """Return the arm with the largest upper bound."""
        expected = model.expect(state, context)
        return best(expected.mean + self.alpha * expected.sd)


@dataclasses.dataclass(frozen=True)
class Greedy(AbstractRule):
    """The arm with the largest expected reward."""

    def choose(self, model: AbstractRewards[Any], state: Any, context: Context, generator: torch.Generator) -> int:
        """Return the arm with the largest mean."""
        return best(model.expect(state, context, spread=False).mean)


@dataclasses.dataclass(frozen=True)
class EpsilonGreedy(AbstractRule):
    """Any arm with probability epsilon, else the one with the largest expected reward.

    Attributes:
        epsilon: Probability of a random arm.
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"expected epsilon to be at least 0 and at most 1, got {self.epsilon}")

    def choose(self, model: AbstractRewards[Any], state: Any, context: Context, generator: torch.Generator) -> int:
        """Return a random arm, or the best."""
        if torch.rand((), generator=generator).item() < self.epsilon:
            return int(torch.randint(model.arms, (), generator=generator))
        return best(model.expect(state, context, spread=False).mean)


def best(values: Float[Tensor, " arm"]) -> int:
    """Return the arm with the largest value.

    Raises:
        ValueError: If values are not finite, as where a descent has diverged.
    """
    if not math.isfinite(values.sum()):
        raise ValueError(
            f"expected finite rewards of the model, got {values.tolist()}: it has diverged; take a smaller learning "
            "rate, or a larger noise"
        )
    return int(values.argmax())
