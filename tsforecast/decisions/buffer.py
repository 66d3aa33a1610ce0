"""A buffer of the last rounds, of fixed capacity."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.rewards import Context, Interactions


@register_record
@dataclasses.dataclass(frozen=True)
class Buffer:
    """The last rounds, in a ring: its tensors never change their shapes, so that a loop can carry it.

    Attributes:
        contexts: Of each place.
        arms: Of each place.
        rewards: Of each place.
        count: Rounds so far, those that are gone among them.
    """

    contexts: Float[Tensor, "place feature"]
    arms: Int[Tensor, " place"]
    rewards: Float[Tensor, " place"]
    count: Int[Tensor, ""]

    @staticmethod
    def empty(capacity: int, features: int, dtype: torch.dtype = torch.float32) -> "Buffer":
        """Return a buffer of no rounds.

        Raises:
            ValueError: If the capacity is below one.
        """
        if capacity < 1:
            raise ValueError(f"expected a capacity of at least 1, got {capacity}")
        zeros = torch.zeros(capacity, dtype=dtype)
        whole = torch.zeros(capacity, dtype=torch.int64)
        return Buffer(zeros.unsqueeze(-1).repeat(1, features), whole, zeros, torch.zeros((), dtype=torch.int64))

    @property
    def capacity(self) -> int:
        """Return the number of places."""
        return len(self.arms)

    def __len__(self) -> int:
        return min(int(self.count), self.capacity)

    def add(self, context: Context, arm: int, reward: Float[Tensor, ""]) -> "Buffer":
        """Return the buffer with one more round, in place of the oldest where it is full."""
        place = int(self.count) % self.capacity
        # A belief is a value: whoever holds the one before must not see it change.
        contexts, arms, rewards = self.contexts.clone(), self.arms.clone(), self.rewards.clone()
        contexts[place], arms[place], rewards[place] = context, arm, reward
        return Buffer(contexts, arms, rewards, self.count + 1)

    def rescale(self, shift: float, scale: float) -> "Buffer":
        """Return the buffer with rewards in other units: y becomes (y - shift) / scale."""
        return dataclasses.replace(self, rewards=(self.rewards - shift) / scale)

    def interactions(self) -> Interactions:
        """Return the rounds that are kept, the oldest first."""
        count = len(self)
        # A full ring begins behind the newest.
        order = (torch.arange(count) + (int(self.count) if count == self.capacity else 0)) % self.capacity
        return Interactions(self.contexts[order], self.arms[order], self.rewards[order])


@register_record
@dataclasses.dataclass(frozen=True)
class History:
    """Rounds that a model was trained on, and those since then: no round is copied more often than it is trained on.

    Attributes:
        seen: Of trainings.
        ages: How many rounds ago each of these was, at the last training.
        recent: Since the last training.
    """

    seen: Interactions
    ages: Int[Tensor, " step"]
    recent: Buffer

    @staticmethod
    def empty(every: int, features: int, dtype: torch.dtype = torch.float32) -> "History":
        """Return a history of no rounds, with trainings every so many rounds."""
        recent = Buffer.empty(every, features, dtype)
        return History(recent.interactions(), torch.zeros(0, dtype=torch.int64), recent)

    def of(self, seen: Interactions) -> "History":
        """Return the history of these rounds alone, with none left out."""
        return History(seen, _ages(len(seen)), self.recent)

    @property
    def is_due(self) -> bool:
        """Return whether it is time for a training."""
        return int(self.recent.count) == self.recent.capacity

    def add(self, context: Context, arm: int, reward: Float[Tensor, ""]) -> "History":
        """Return the history with one more round."""
        return dataclasses.replace(self, recent=self.recent.add(context, arm, reward))

    def rescale(self, shift: float, scale: float) -> "History":
        """Return the history with rewards in other units: y becomes (y - shift) / scale."""
        seen = dataclasses.replace(self.seen, rewards=(self.seen.rewards - shift) / scale)
        return History(seen, self.ages, self.recent.rescale(shift, scale))

    def fading(self, forgetting: float) -> Float[Tensor, " step"] | None:
        """Return (1 - forgetting)^age of each round at the last training; None where nothing is forgotten."""
        return (1 - forgetting) ** self.ages.float() if forgetting else None

    def merged(self, memory: int = 0, each_arm: bool = False) -> "History":
        """Return the history with nothing recent.

        Args:
            memory: Rounds that are remembered; 0 for all.
            each_arm: Whether so many are remembered of each arm, instead of all arms together.
        """
        new = self.recent.interactions()
        parts = [torch.cat(pair) for pair in zip(_parts(self.seen), _parts(new), strict=True)]
        parts.append(torch.cat([self.ages + len(new), _ages(len(new))]))
        if memory and each_arm:
            kept = _rank_from_the_end(parts[1]) < memory  # an arm that is seldom pulled keeps its rounds
            *seen, ages = (part[kept] for part in parts)
        else:
            *seen, ages = (part[-memory:] for part in parts)  # -0 is the beginning
        recent = dataclasses.replace(self.recent, count=torch.zeros_like(self.recent.count))
        return History(Interactions(*seen), ages, recent)


def _parts(seen: Interactions) -> tuple[Tensor, Tensor, Tensor]:
    return seen.contexts, seen.arms, seen.rewards


def _ages(rounds: int) -> Tensor:
    """Return the age of each round in rounds, the oldest first."""
    return torch.arange(rounds - 1, -1, -1)


def _rank_from_the_end(arms: Tensor) -> Tensor:
    """Return the number of later rounds with the same arm, of each round."""
    later = torch.nn.functional.one_hot(arms).flip(0).cumsum(0).flip(0)
    return later.gather(-1, arms.unsqueeze(-1))[:, 0] - 1
