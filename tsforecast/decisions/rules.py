"""Rules that choose an arm, given beliefs about rewards."""

import abc
import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.decisions.rewards import AbstractRewards, Context

Allowed = Bool[Tensor, " arm"] | None  # arms that may be pulled in a round; None for all

DRAWS = 1000  # by which probabilities are estimated that have no closed form


@dataclasses.dataclass(frozen=True)
class Chances:
    """Probabilities of a rule for each arm of a round.

    Attributes:
        value: The probabilities.
        error: Their standard errors; zeros where they are exact.
        draws: Number of draws by which they were estimated; 0 where they are exact.
    """

    value: Float[Tensor, " arm"]
    error: Float[Tensor, " arm"]
    draws: int = 0

    @staticmethod
    def exact(value: Float[Tensor, " arm"]) -> "Chances":
        """Return probabilities without an error."""
        return Chances(value.double(), torch.zeros_like(value, dtype=torch.float64))

    @staticmethod
    def certain(arm: int, arms: int) -> "Chances":
        """Return the probabilities of a choice that could be no other."""
        return Chances.exact(torch.nn.functional.one_hot(torch.tensor(arm), arms).double())

    def propensity(self, arm: int) -> tuple[float, float]:
        """Return the probability of the arm that was chosen, and its standard error.

        Of an estimate the choice itself counts as one more draw, so that the probability is never 0.
        """
        value = (self.value[arm].item() * self.draws + 1) / (self.draws + 1) if self.draws else self.value[arm].item()
        return value, self.error[arm].item()


class AbstractRule(abc.ABC):
    """A choice; of equally good arms the first is taken."""

    @abc.abstractmethod
    def choose(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
    ) -> int:
        """Return the number of an arm.

        Args:
            model: Of the rewards.
            state: Of the model.
            context: Of the round.
            generator: Of random numbers; the same state of it gives the same arm.
            allowed: Arms that may be pulled.
        """

    @abc.abstractmethod
    def chances(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
        draws: int = DRAWS,
    ) -> Chances:
        """Return the probability of each arm to be taken by `choose`.

        Args:
            model: Of the rewards.
            state: Of the model.
            context: Of the round.
            generator: Of draws, where there is no closed form.
            allowed: Arms that may be pulled.
            draws: How many.
        """


@dataclasses.dataclass(frozen=True)
class Thompson(AbstractRule):
    """The best arm for one draw of the weights: each arm as often as it is believed to be best (Thompson 1933)."""

    def choose(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
    ) -> int:
        """Return the best arm of a draw."""
        return best(model.draw(state, context, generator), allowed)

    def chances(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
        draws: int = DRAWS,
    ) -> Chances:
        """Return the share of draws with each arm as the best; exact between two arms of a known law."""
        mask = _mask(model, allowed)
        arms = mask.nonzero()[:, 0].tolist()
        if len(arms) == 1:
            return Chances.certain(arms[0], model.arms)
        if len(arms) == 2 and (wins := model.duel(state, context, arms[0], arms[1])) is not None:
            value = torch.zeros(model.arms, dtype=torch.float64)
            value[arms[0]], value[arms[1]] = wins, 1 - wins
            return Chances.exact(value)
        drawn = _finite(model.sample(state, context, draws, generator))
        winners = drawn.masked_fill(~mask, -math.inf).argmax(-1)
        count = torch.bincount(winners.cpu(), minlength=model.arms).double()
        smooth = (count + 1) / (draws + 2)  # an arm that no draw has taken has an error, too
        return Chances(count / draws, torch.where(mask, (smooth * (1 - smooth) / draws).sqrt(), 0.0), draws)


@dataclasses.dataclass(frozen=True)
class AbstractBestRule(AbstractRule):
    """A rule without chance: the arm with the largest score."""

    @abc.abstractmethod
    def scores(self, model: AbstractRewards[Any], state: Any, context: Context) -> Float[Tensor, " arm"]:
        """Return the score of each arm."""

    def choose(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
    ) -> int:
        """Return the arm with the largest score."""
        return best(self.scores(model, state, context), allowed)

    def chances(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
        draws: int = DRAWS,
    ) -> Chances:
        """Return 1 for the arm with the largest score."""
        return Chances.certain(best(self.scores(model, state, context), allowed), model.arms)


@dataclasses.dataclass(frozen=True)
class UCB(AbstractBestRule):
    """The arm with the largest mean + alpha sd (Auer 2002; LinUCB of Li et al. 2010 where the model is linear).

    Attributes:
        alpha: Standard deviations; 0 is greedy.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"expected alpha to be at least 0 and finite, got {self.alpha}")

    def scores(self, model: AbstractRewards[Any], state: Any, context: Context) -> Float[Tensor, " arm"]:
        """Return the upper bounds."""
        expected = model.expect(state, context)
        return expected.mean + self.alpha * expected.sd


@dataclasses.dataclass(frozen=True)
class Greedy(AbstractBestRule):
    """The arm with the largest expected reward."""

    def scores(self, model: AbstractRewards[Any], state: Any, context: Context) -> Float[Tensor, " arm"]:
        """Return the means."""
        return model.expect(state, context, spread=False).mean


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

    def choose(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
    ) -> int:
        """Return a random arm, or the best."""
        if torch.rand((), generator=generator).item() < self.epsilon:
            arms = _mask(model, allowed).nonzero()[:, 0]
            return int(arms[int(torch.randint(len(arms), (), generator=generator))])
        return best(model.expect(state, context, spread=False).mean, allowed)

    def chances(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
        draws: int = DRAWS,
    ) -> Chances:
        """Return epsilon over the number of arms, and 1 - epsilon more for the best."""
        mask = _mask(model, allowed)
        value = self.epsilon * mask.double() / mask.sum()
        value[best(model.expect(state, context, spread=False).mean, allowed)] += 1 - self.epsilon
        return Chances.exact(value)


@dataclasses.dataclass(frozen=True)
class Softmax(AbstractRule):
    """An arm with a probability that is proportional to exp(mean / temperature): Boltzmann exploration.

    Attributes:
        temperature: In units of the rewards that the model sees: standard deviations, where these are scaled.
    """

    temperature: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"expected temperature to be positive and finite, got {self.temperature}")

    def choose(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
    ) -> int:
        """Return an arm by its probability."""
        chances = self.chances(model, state, context, generator, allowed)
        return int(torch.multinomial(chances.value, 1, generator=generator))

    def chances(
        self,
        model: AbstractRewards[Any],
        state: Any,
        context: Context,
        generator: torch.Generator,
        allowed: Allowed = None,
        draws: int = DRAWS,
    ) -> Chances:
        """Return the softmax of the means."""
        means = _finite(model.expect(state, context, spread=False).mean).double().cpu()
        scores = (means / self.temperature).masked_fill(~_mask(model, allowed), -math.inf)
        return Chances.exact(scores.softmax(-1))


def best(values: Float[Tensor, " arm"], allowed: Allowed = None) -> int:
    """Return the arm with the largest value.

    Raises:
        ValueError: If values are not finite, as where a descent has diverged.
    """
    values = _finite(values)
    return int((values if allowed is None else values.masked_fill(~allowed.to(values.device), -math.inf)).argmax())


def _mask(model: AbstractRewards[Any], allowed: Allowed) -> Bool[Tensor, " arm"]:
    return torch.ones(model.arms, dtype=torch.bool) if allowed is None else allowed


def _finite(values: Tensor) -> Tensor:
    """Return rewards of a model.

    Raises:
        ValueError: If they are not finite.
    """
    if not math.isfinite(values.sum()):
        raise ValueError(
            f"expected finite rewards of the model, got {values.tolist()!s:.200}: it has diverged; take a smaller "
            "learning rate, or a larger noise"
        )
    return values
