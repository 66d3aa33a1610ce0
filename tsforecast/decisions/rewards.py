"""Beliefs about the reward of each arm of a contextual bandit."""

import abc
import dataclasses
import math
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
        return self.sample(1, generator)[0]

    def sample(self, number: int, generator: torch.Generator) -> Float[Tensor, "draw arm"]:
        """Return Gaussian draws, independent for each arm."""
        shape = (number, *self.mean.shape)
        return self.mean + self.sd * torch.randn(shape, generator=generator, dtype=self.mean.dtype)

    def duel(self, first: int, second: int) -> float:
        """Return the probability that a draw of one arm is above an independent draw of another."""
        spread = math.hypot(self.sd[first].item(), self.sd[second].item())
        return above_zero((self.mean[first] - self.mean[second]).item(), spread)


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

    def sample(
        self, state: State, context: Context, number: int, generator: torch.Generator
    ) -> Float[Tensor, "draw arm"]:
        """Return several draws, each as by `draw`; models that can draw faster than one by one do so.

        Args:
            state: After what was learnt.
            context: Of the round.
            number: How many.
            generator: Of the draws.
        """
        return torch.stack([self.draw(state, context, generator) for _ in range(number)])

    def duel(self, state: State, context: Context, first: int, second: int) -> float | None:
        """Return the probability that one arm is better than another in a draw; None where it has no closed form.

        Args:
            state: After what was learnt.
            context: Of the round.
            first: An arm, which wins where both are equal.
            second: Another.
        """
        return None


def above_zero(mean: float, sd: float) -> float:
    """Return the probability that a Gaussian is at least 0."""
    return 0.5 * math.erfc(-mean / (sd * math.sqrt(2))) if sd > 0 else float(mean >= 0)


def learn_in_turn(model: AbstractRewards[State], state: State, seen: Interactions, generator: torch.Generator) -> State:
    """Return the state after all rounds, one after the other: the warm-up of models that learn by the step."""
    for context, arm, reward in zip(seen.contexts, seen.arms.tolist(), seen.rewards, strict=True):
        state = model.learn(state, context, arm, reward, generator)
    return state
