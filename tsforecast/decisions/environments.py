"""Environments: contexts, and what each arm would pay; an agent sees the context and the reward of the arm it pulls."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Published payoffs of the mushrooms (Blundell et al. 2015): of passing, of eating a good one, of eating a bad one.
PASSED, EDIBLE, POISON = 0.0, 5.0, -35.0


@dataclasses.dataclass(frozen=True)
class Environment:
    """Rounds of a contextual bandit, made ahead: the same for every agent.

    Attributes:
        contexts: Of each round; NaN is missing.
        rewards: That each arm would pay, noise and all; NaN where nobody knows, as for arms that a log did not choose.
        expected: Expected rewards, by which regret is counted; NaN where nobody knows.
        allowed: Arms that may be pulled in each round; None for all.
    """

    contexts: Float[Tensor, "step feature"]
    rewards: Float[Tensor, "step arm"]
    expected: Float[Tensor, "step arm"]
    allowed: Bool[Tensor, "step arm"] | None = None

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def arms(self) -> int:
        """Return the number of arms."""
        return self.rewards.shape[-1]

    @property
    def features(self) -> int:
        """Return the number of features."""
        return self.contexts.shape[-1]

    def regret(self, arms: Int[Tensor, " step"]) -> Float[Tensor, " step"]:
        """Return the expected loss of each choice against the best arm that was allowed in its round.

        Args:
            arms: That were pulled, from the first round on.
        """
        expected = self.expected[: len(arms)]
        if self.allowed is None:
            highest = expected.amax(-1)
        else:
            highest = expected.masked_fill(~self.allowed[: len(arms)], -math.inf).amax(-1)
        return highest - expected.gather(-1, arms.unsqueeze(-1))[:, 0]


def of_labels(
    contexts: Float[Tensor, "row feature"],
    labels: Int[Tensor, " row"],
    arms: int,
    steps: int,
    generator: torch.Generator,
    changes: bool = False,
) -> Environment:
    """Return a set of labelled rows as a bandit: an arm for each label, which pays 1 where it is right.

    Args:
        contexts: Features of the rows.
        labels: From 0 on.
        arms: Number of labels.
        steps: Rounds: rows in random order, and again in another order where there are too few.
        generator: Of the order.
        changes: Whether labels mean other arms from the middle on: each label the arm after its own.

    Raises:
        ValueError: If there is no row, or a label that is no arm.
    """
    order = _order(len(labels), steps, generator)
    if labels.min() < 0 or labels.max() >= arms:
        raise ValueError(f"expected labels from 0 to {arms - 1}, got {int(labels.min())} to {int(labels.max())}")
    right = labels[order]
    if changes:
        # Each label moves on: nothing that was learnt holds.
        right = torch.where(torch.arange(steps) < steps // 2, right, (right + 1) % arms)
    rewards = torch.nn.functional.one_hot(right, arms).to(contexts.dtype)
    return Environment(contexts[order], rewards, rewards)


def of_rewards(
    contexts: Float[Tensor, "row feature"],
    rewards: Float[Tensor, "row arm"],
    steps: int,
    generator: torch.Generator,
    changes: bool = False,
) -> Environment:
    """Return rows of which the rewards of all arms are known.

    Args:
        contexts: Features of the rows.
        rewards: Of each arm.
        steps: Rounds.
        generator: Of the order.
        changes: Whether each arm pays what the one before it did from the middle on.
    """
    order = _order(len(rewards), steps, generator)
    paid = rewards[order]
    if changes:
        paid = torch.where((torch.arange(steps) < steps // 2).unsqueeze(-1), paid, paid.roll(1, -1))
    return Environment(contexts[order], paid, paid)


def of_log(
    contexts: Float[Tensor, "row feature"],
    chosen: Int[Tensor, " row"],
    rewards: Float[Tensor, " row"],
    arms: int,
    steps: int,
    allowed: Bool[Tensor, "row arm"] | None = None,
) -> Environment:
    """Return logged choices, in their order: an agent that chooses another arm learns nothing of that round.

    Rounds in which it agrees are as good as its own, where the log chose at random (Li et al. 2011).

    Args:
        contexts: Features of the rows.
        chosen: Arm of each row.
        rewards: That it paid.
        arms: How many there are.
        steps: Rounds at most.
        allowed: Arms that could be chosen in each row; None for all.
    """
    # A log says nothing of arms that were not chosen.
    known = torch.full((len(chosen), arms), math.nan, dtype=rewards.dtype)
    known.scatter_(-1, chosen.unsqueeze(-1), rewards.unsqueeze(-1))
    open_arms = None if allowed is None else allowed[:steps]
    return Environment(contexts[:steps], known[:steps], torch.full_like(known[:steps], math.nan), open_arms)


def of_mushrooms(
    contexts: Float[Tensor, "row feature"],
    edible: Bool[Tensor, " row"],
    steps: int,
    generator: torch.Generator,
    changes: bool = False,
) -> Environment:
    """Return the mushroom bandit (Blundell et al. 2015): arm 0 passes, arm 1 eats.

    To pass pays 0, to eat an edible one 5, and to eat a poisonous one 5 or -35, each with probability one half.

    Args:
        contexts: Features of the mushrooms.
        edible: Whether each is.
        steps: Rounds.
        generator: Of the order and of the luck.
        changes: Whether edible and poisonous ones change places from the middle on.
    """
    order = _order(len(edible), steps, generator)
    good = edible[order]
    if changes:
        good = good ^ (torch.arange(steps) >= steps // 2)
    lucky = torch.rand(steps, generator=generator) < 0.5
    paid = torch.where(good | lucky, EDIBLE, POISON).to(contexts.dtype)
    expected = torch.where(good, EDIBLE, (EDIBLE + POISON) / 2).to(contexts.dtype)
    passed = torch.full_like(paid, PASSED)
    return Environment(contexts[order], torch.stack([passed, paid], -1), torch.stack([passed, expected], -1))


def linear(
    steps: int, generator: torch.Generator, arms: int = 5, features: int = 10, noise: float = 0.1, changes: bool = False
) -> Environment:
    """Return Gaussian contexts and linear rewards with Gaussian weights of length one.

    Args:
        steps: Rounds.
        generator: Of all that is random.
        arms: How many.
        features: Of a context.
        noise: Standard deviation of a reward.
        changes: Whether all weights are drawn anew in the middle.
    """
    contexts, expected = _scores(steps, generator, arms, features, changes)
    drawn = torch.randn(steps, arms, generator=generator, dtype=torch.float64)
    return Environment(contexts, expected + noise * drawn, expected)


def wheel(
    steps: int, generator: torch.Generator, delta: float = 0.95, noise: float = 0.01, changes: bool = False
) -> Environment:
    """Return the wheel bandit (Riquelme et al. 2018): rare contexts, in which one arm of four pays much.

    Contexts are uniform in the unit disc. The first arm pays 1.2 everywhere and the others 1, but beyond the radius
    delta the arm of the quadrant pays 50.

    Args:
        steps: Rounds.
        generator: Of all that is random.
        delta: Radius within which the first arm is best; the share of other contexts is 1 - delta^2.
        noise: Standard deviation of a reward.
        changes: Whether each quadrant has the next arm from the middle on.

    Raises:
        ValueError: If the radius is outside of the disc.
    """
    if not 0 < delta < 1:
        raise ValueError(f"expected delta to be between 0 and 1, got {delta}")
    like = {"generator": generator, "dtype": torch.float64}
    # The root: areas grow with the square of the radius.
    radius, angle = torch.rand(steps, **like).sqrt(), 2 * math.pi * torch.rand(steps, **like)
    contexts = torch.stack([radius * angle.cos(), radius * angle.sin()], -1)
    quadrant = (angle / (math.pi / 2)).long().clamp_max(3)  # rounding may reach a fifth one
    if changes:
        quadrant = torch.where(torch.arange(steps) < steps // 2, quadrant, (quadrant + 1) % 4)
    expected = torch.ones(steps, 5, dtype=torch.float64)
    expected[:, 0] = 1.2
    far = radius > delta
    expected[far, 1 + quadrant[far]] = 50.0
    return Environment(contexts, expected + noise * torch.randn(steps, 5, **like), expected)


def clicks(
    steps: int,
    generator: torch.Generator,
    arms: int = 10,
    features: int = 20,
    rate: float = 0.05,
    changes: bool = False,
) -> Environment:
    """Return a stream of visitors who click or do not, by a logistic model of each arm.

    Args:
        steps: Rounds.
        generator: Of all that is random.
        arms: Items to show.
        features: Of a visitor.
        rate: Probability of a click on an average item by an average visitor.
        changes: Whether all weights are drawn anew in the middle.

    Raises:
        ValueError: If the rate is no probability.
    """
    if not 0 < rate < 1:
        raise ValueError(f"expected rate to be between 0 and 1, got {rate}")
    contexts, logits = _scores(steps, generator, arms, features, changes)
    expected = torch.sigmoid(logits + math.log(rate / (1 - rate)))  # around the rate for a context in the middle
    drawn = torch.rand(steps, arms, generator=generator, dtype=torch.float64)
    return Environment(contexts, (drawn < expected).double(), expected)


def _scores(steps: int, generator: torch.Generator, arms: int, features: int, changes: bool) -> tuple[Tensor, Tensor]:
    """Return Gaussian contexts, and their products with weights of length one, others of these in the second half."""
    like = {"generator": generator, "dtype": torch.float64}
    weights = torch.nn.functional.normalize(torch.randn(2, arms, features, **like), dim=-1)
    contexts = torch.randn(steps, features, **like)
    late = (torch.arange(steps) >= steps // 2) & changes
    return contexts, torch.where(late.unsqueeze(-1), contexts @ weights[1].T, contexts @ weights[0].T)


def _order(rows: int, steps: int, generator: torch.Generator) -> Tensor:
    """Return rows in random order, all of them before any comes again."""
    if not rows:
        raise ValueError("expected rows with contexts, got none")
    rounds = [torch.randperm(rows, generator=generator) for _ in range(-(-steps // rows))]
    return torch.cat(rounds)[:steps]
