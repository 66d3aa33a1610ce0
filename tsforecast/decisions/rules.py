"""Rules that choose an arm, given beliefs about rewards."""

import abc
import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.decisions.rewards import AbstractRewards, Context

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


@dataclasses.dataclass(frozen=True)
class Round:
    """A choice that is to be made.

    Attributes:
        model: Of the rewards.
        state: Of the model.
        context: What is known before the choice.
        allowed: Arms that may be pulled; None for all.
    """

    model: AbstractRewards[Any]
    state: Any
    context: Context
    allowed: Bool[Tensor, " arm"] | None = None

    @property
    def mask(self) -> Bool[Tensor, " arm"]:
        """Return the arms that may be pulled."""
        return torch.ones(self.model.arms, dtype=torch.bool) if self.allowed is None else self.allowed

    def means(self) -> Float[Tensor, " arm"]:
        """Return the expected rewards."""
        return self.model.expect(self.state, self.context, spread=False).mean

    def best(self, values: Float[Tensor, " arm"]) -> int:
        """Return the arm with the largest value.

        Raises:
            ValueError: If values are not finite, as where a descent has diverged.
        """
        return int(_finite(values).masked_fill(~self.mask.to(values.device), -math.inf).argmax())


class AbstractRule(abc.ABC):
    """A choice; of equally good arms the first is taken."""

    @abc.abstractmethod
    def choose(self, round: Round, generator: torch.Generator) -> int:
        """Return the number of an arm.

        Args:
            round: The choice that is to be made.
            generator: Of random numbers; the same state of it gives the same arm.
        """

    @abc.abstractmethod
    def chances(self, round: Round, generator: torch.Generator, draws: int = DRAWS) -> Chances:
        """Return the probability of each arm to be taken by `choose`.

        Args:
            round: The choice that could be made.
            generator: Of draws, where there is no closed form.
            draws: How many.
        """


@dataclasses.dataclass(frozen=True)
class Thompson(AbstractRule):
    """The best arm for one draw of the weights: each arm as often as it is believed to be best (Thompson 1933)."""

    def choose(self, round: Round, generator: torch.Generator) -> int:
        """Return the best arm of a draw."""
        return round.best(round.model.draw(round.state, round.context, generator))

    def chances(self, round: Round, generator: torch.Generator, draws: int = DRAWS) -> Chances:
        """Return the share of draws with each arm as the best; exact between two arms of a known law."""
        model, state, context, mask = round.model, round.state, round.context, round.mask
        arms = mask.nonzero()[:, 0].tolist()
        if len(arms) == 1:
            return Chances.certain(arms[0], model.arms)
        if len(arms) == 2 and (wins := model.duel(state, context, arms[0], arms[1])) is not None:
            value = torch.zeros(model.arms, dtype=torch.float64)
            value[arms[0]], value[arms[1]] = wins, 1 - wins
            return Chances.exact(value)
        drawn = _finite(model.sample(state, context, draws, generator)).cpu()  # where the mask is
        winners = drawn.masked_fill(~mask, -math.inf).argmax(-1)
        count = torch.bincount(winners, minlength=model.arms).double()
        smooth = (count + 1) / (draws + 2)  # an arm that no draw has taken has an error, too
        return Chances(count / draws, torch.where(mask, (smooth * (1 - smooth) / draws).sqrt(), 0.0), draws)


@dataclasses.dataclass(frozen=True)
class AbstractBestRule(AbstractRule):
    """A rule without chance: the arm with the largest score."""

    @abc.abstractmethod
    def scores(self, round: Round) -> Float[Tensor, " arm"]:
        """Return the score of each arm."""

    def choose(self, round: Round, generator: torch.Generator) -> int:
        """Return the arm with the largest score."""
        return round.best(self.scores(round))

    def chances(self, round: Round, generator: torch.Generator, draws: int = DRAWS) -> Chances:
        """Return 1 for the arm with the largest score."""
        return Chances.certain(round.best(self.scores(round)), round.model.arms)


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

    def scores(self, round: Round) -> Float[Tensor, " arm"]:
        """Return the upper bounds."""
        expected = round.model.expect(round.state, round.context)
        return expected.mean + self.alpha * expected.sd


@dataclasses.dataclass(frozen=True)
class Greedy(AbstractBestRule):
    """The arm with the largest expected reward."""

    def scores(self, round: Round) -> Float[Tensor, " arm"]:
        """Return the means."""
        return round.means()


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

    def choose(self, round: Round, generator: torch.Generator) -> int:
        """Return a random arm, or the best."""
        if torch.rand((), generator=generator).item() < self.epsilon:
            arms = round.mask.nonzero()[:, 0]
            return int(arms[int(torch.randint(len(arms), (), generator=generator))])
        return round.best(round.means())

    def chances(self, round: Round, generator: torch.Generator, draws: int = DRAWS) -> Chances:
        """Return epsilon over the number of arms, and 1 - epsilon more for the best."""
        mask = round.mask
        value = self.epsilon * mask.double() / mask.sum()  # the best arm may be drawn at random, too
        value[round.best(round.means())] += 1 - self.epsilon
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

    def choose(self, round: Round, generator: torch.Generator) -> int:
        """Return an arm by its probability."""
        return int(torch.multinomial(self.chances(round, generator).value, 1, generator=generator))

    def chances(self, round: Round, generator: torch.Generator, draws: int = DRAWS) -> Chances:
        """Return the softmax of the means."""
        means = _finite(round.means()).double().cpu()
        scores = (means / self.temperature).masked_fill(~round.mask, -math.inf)
        return Chances.exact(scores.softmax(-1))


def _finite(values: Tensor) -> Tensor:
    """Return rewards of a model.

    Raises:
        ValueError: If they are not finite.
    """
    if not math.isfinite(values.sum()):  # one sum tells of NaN and inf anywhere
        raise ValueError(
            f"expected finite rewards of the model, got {values.tolist()!s:.200}: it has diverged; take a smaller "
            "learning rate, or a larger noise"
        )
    return values
