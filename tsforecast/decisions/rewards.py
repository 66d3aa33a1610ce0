"""Beliefs about the reward of each arm of a contextual bandit."""

import abc
import dataclasses
from typing import ClassVar, Generic, TypeAlias, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.gaussian import register_record

State = TypeVar("State")
Context: TypeAlias = Float[Tensor, " feature"]
Reward: TypeAlias = Float[Tensor, ""]


@register_record
@dataclasses.dataclass(frozen=True)
class Interactions:
    """Arms that were pulled and their rewards, in order.

    Attributes:
        contexts: What was known before the arm was chosen.
        arms: Which was pulled.
        rewards: Of the pulled arm; of others nothing is known.
    """

    contexts: Float[Tensor, "step feature"]
    arms: Int[Tensor, " step"]
    rewards: Float[Tensor, " step"]

    def __len__(self) -> int:
        return len(self.arms)


@register_record
@dataclasses.dataclass(frozen=True)
class ArmRewards:
    """Expected rewards, and their standard deviations.

    Attributes:
        mean: Of the reward of each arm.
        sd: Standard deviation of that mean, without the noise of a single reward.
    """

    mean: Float[Tensor, " arm"]
    sd: Float[Tensor, " arm"]

    @staticmethod
    def certain(mean: Float[Tensor, " arm"]) -> "ArmRewards":
        """Return expected rewards without a spread."""
        return ArmRewards(mean, torch.zeros_like(mean))

    def draw(self, generator: torch.Generator) -> Float[Tensor, " arm"]:
        """Return a Gaussian draw, independent for each arm."""
        return self.mean + self.sd * torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype)


class AbstractRewards(abc.ABC, Generic[State]):
    """A model of the rewards of all arms: settings are fields, the state goes in and comes out.

    States are pytrees of tensors, and numbers of steps are among them as tensors, too.

    Attributes:
        binary: Whether rewards must be 0 or 1; they are in no other units then.
        arms: How many there are.
        features: Of a context.
    """

    binary: ClassVar[bool] = False

    arms: int
    features: int

    @abc.abstractmethod
    def init(self, generator: torch.Generator) -> State:
        """Return the state before any reward.

        Args:
            generator: Of random weights, where the model has some.
        """

    @abc.abstractmethod
    def warm_up(self, state: State, seen: Interactions, generator: torch.Generator) -> State:
        """Return the state after a warm-up with arms pulled in turn.

        Args:
            state: That of `init`.
            seen: All that was paid.
            generator: Of random numbers, where the model draws some.
        """

    @abc.abstractmethod
    def learn(self, state: State, context: Context, arm: int, reward: Reward, generator: torch.Generator) -> State:
        """Return the state after one more round: the drift of a unit of time, then the reward.

        Args:
            state: Before.
            context: Of the round.
            arm: Which was pulled.
            reward: That it paid.
            generator: Of random numbers, where the model draws some.
        """

    @abc.abstractmethod
    def rescale(self, state: State, shift: float, scale: float) -> State:
        """Return the state for rewards in other units: a reward y becomes (y - shift) / scale. Nothing is forgotten.

        Expected rewards change as rewards do. Their standard deviations stay what they are in units of the noise, as
        if all rewards had come in the new units.

        Args:
            state: In the old units.
            shift: Of the new units, in the old ones.
            scale: The new unit, in old ones.
        """

    @abc.abstractmethod
    def expect(self, state: State, context: Context, spread: bool = True) -> ArmRewards:
        """Return the expected rewards of the arms.

        Args:
            state: After what was learnt.
            context: Of the round.
            spread: Whether standard deviations are wanted; without, they may be zeros, which is faster.
        """

    @abc.abstractmethod
    def draw(self, state: State, context: Context, generator: torch.Generator) -> Float[Tensor, " arm"]:
        """Return expected rewards for one draw of all that is uncertain (Thompson 1933).

        Args:
            state: After what was learnt.
            context: Of the round.
            generator: Of the draw.
        """


def learn_in_turn(model: AbstractRewards[State], state: State, seen: Interactions, generator: torch.Generator) -> State:
    """Return the state after all rounds, one after the other: the warm-up of models that learn by the step."""
    for context, arm, reward in zip(seen.contexts, seen.arms.tolist(), seen.rewards, strict=True):
        state = model.learn(state, context, arm, reward, generator)
    return state
