"""Rewards by a network that is trained on all rounds, now and then."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from tsforecast.decisions.buffer import History
from tsforecast.decisions.encoding import ArmOutput, OutputPerArm
from tsforecast.decisions.fitting import Fit
from tsforecast.decisions.rewards import AbstractRewards, Context, Interactions, Reward
from tsforecast.learners.networks.layer_chain import LayerChain


class AbstractTrained(abc.ABC):
    """A record of a training.

    Attributes:
        history: Rounds of the training, and those since.
    """

    history: History


State = TypeVar("State", bound=AbstractTrained)


class AbstractRetrainedRewards(AbstractRewards[State]):
    """Rewards by a network that is trained on its history, whenever this says that it is time."""

    @abc.abstractmethod
    def train(self, state: State, generator: torch.Generator) -> State:
        """Return the state after a training on all rounds."""

    def count(self, state: State, context: Context, arm: int, reward: Reward) -> State:
        """Return the state after a round; there is nothing to do between trainings."""
        return state

    def warm_up(self, state: State, seen: Interactions, generator: torch.Generator) -> State:
        """Train on the rewards of the arms that were pulled."""
        return self.train(_with(state, state.history.of(seen)), generator)

    def learn(self, state: State, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> State:
        """Count the round, and train when it is time."""
        state = self.count(state, context, arm, reward)
        state = _with(state, state.history.add(context, arm, reward))
        return self.train(state, generator) if state.history.is_due else state


def _with(state: State, history: History) -> State:
    settings: Any = state  # a dataclass, which only its subclasses are
    return dataclasses.replace(settings, history=history)


def fit_to(
    network: LayerChain,
    seen: Interactions,
    importance: Tensor | None = None,
    perturb: Callable[[Tensor], Tensor] | None = None,
) -> Fit:
    """Return the loss of a network with an output for each arm over some rounds, as `Fit` has it."""
    inputs = OutputPerArm(network.widths[-1]).pulled(seen.contexts, seen.arms)
    return Fit(ArmOutput(network), inputs, seen.rewards, importance, perturb=perturb)
