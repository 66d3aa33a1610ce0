"""Beliefs about the reward of each arm of a contextual bandit."""

import abc
import dataclasses
import math
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.torch_internals import standard_gamma

_NODES = 200  # of the integral of a duel

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
    """Expected rewards, and their standard deviations: a law for each arm.

    Attributes:
        mean: Of the reward of each arm.
        sd: Standard deviation of that mean, without the noise of a single reward; the scale of a Student law.
        shape: Half of the degrees of freedom of Student laws; None for Gaussians.
    """

    mean: Float[Tensor, " arm"]
    sd: Float[Tensor, " arm"]
    shape: Float[Tensor, " arm"] | None = None

    @staticmethod
    def certain(mean: Float[Tensor, " arm"]) -> "ArmRewards":
        """Return expected rewards without a spread."""
        return ArmRewards(mean, torch.zeros_like(mean))

    def sample(self, number: int, generator: torch.Generator) -> Float[Tensor, "draw arm"]:
        """Return draws, independent for each arm."""
        sd = self.sd.expand(number, -1)
        if self.shape is not None:  # a Student law is a Gaussian whose variance is drawn first
            sd = sd * (self.shape / standard_gamma(self.shape.expand(number, -1), generator)).sqrt()
        return self.mean + sd * torch.randn(sd.shape, generator=generator, dtype=self.mean.dtype)

    def duel(self, first: int, second: int) -> float:
        """Return the probability that a draw of one arm is above an independent draw of another."""
        (mean, other_mean), (scale, other_scale) = (x[[first, second]].tolist() for x in (self.mean, self.sd))
        if self.shape is None:
            return above_zero(mean - other_mean, math.hypot(scale, other_scale))
        if min(scale, other_scale) == 0:  # a law without a scale is a step: no integral over it
            return above_zero(mean - other_mean, 0.0)
        dof, other_dof = (2 * self.shape[[first, second]]).tolist()
        nodes, weight = np.polynomial.legendre.leggauss(_NODES)
        level = (nodes + 1) / 2  # nodes from -1 to 1, as probabilities
        # Over levels of the narrower law, along which the other distribution function is smooth.
        if scale <= other_scale:
            seen = mean + scale * stats.t.ppf(level, dof)
            return float(weight / 2 @ stats.t.cdf((seen - other_mean) / other_scale, other_dof))
        seen = other_mean + other_scale * stats.t.ppf(level, other_dof)
        return float(weight / 2 @ stats.t.sf((seen - mean) / scale, dof))


@dataclasses.dataclass(frozen=True)
class AbstractRewards(abc.ABC, Generic[State]):
    """A model of the rewards of all arms: settings are fields, these two first; the state goes in and comes out.

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

    def warm_up(self, state: State, seen: Interactions, generator: torch.Generator) -> State:
        """Return the state after a warm-up with arms pulled in turn; by default each reward is learnt from.

        Args:
            state: That of `init`.
            seen: All that was paid.
            generator: Of random numbers, where the model draws some.
        """
        for context, arm, reward in zip(seen.contexts, seen.arms.tolist(), seen.rewards, strict=True):
            state = self.learn(state, context, arm, reward, generator)
        return state

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

    def draw(self, state: State, context: Context, generator: torch.Generator) -> Float[Tensor, " arm"]:
        """Return expected rewards for one draw of all that is uncertain (Thompson 1933).

        A model has this method or `sample` of its own: each is made of the other.

        Args:
            state: After what was learnt.
            context: Of the round.
            generator: Of the draw.
        """
        return self.sample(state, context, 1, generator)[0]

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


class AbstractIndependentRewards(AbstractRewards[State]):
    """Rewards with the laws that `expect` returns, independent for each arm: as good to draw from as all weights."""

    def sample(
        self, state: State, context: Context, number: int, generator: torch.Generator
    ) -> Float[Tensor, "draw arm"]:
        """Draw several times at once."""
        return self.expect(state, context).sample(number, generator)

    def duel(self, state: State, context: Context, first: int, second: int) -> float | None:
        """Return the probability that follows from the laws of both arms."""
        return self.expect(state, context).duel(first, second)


def above_zero(mean: float, sd: float) -> float:
    """Return the probability that a Gaussian is at least 0."""
    return 0.5 * math.erfc(-mean / (sd * math.sqrt(2))) if sd > 0 else float(mean >= 0)
