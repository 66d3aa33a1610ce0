"""Rounds of a log whose choices had known probabilities, and the expected reward of each arm in them."""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.decisions.linear import expect_heads, fit_heads, regression, with_one
from tsforecast.decisions.rewards import Interactions

_PRIOR = {"variance": 4.0, "shape": 6.0, "rate": 6.0}  # of the regressions: that of `LinearRewards`


@dataclasses.dataclass(frozen=True)
class LoggedRounds:
    """Choices of a policy and their rewards.

    Attributes:
        contexts: Features of each round.
        arms: That were pulled.
        rewards: That they paid.
        propensities: Probabilities with which they were chosen.
        allowed: Arms that could be chosen.

    Raises:
        ValueError: If lengths differ, an arm is unknown or was not allowed, a reward is not finite, or a propensity is
            not in (0, 1].
    """

    contexts: Float[Tensor, "round feature"]
    arms: Int[Tensor, " round"]
    rewards: Float[Tensor, " round"]
    propensities: Float[Tensor, " round"]
    allowed: Bool[Tensor, "round arm"]

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, field.name)) for field in dataclasses.fields(self)}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(f"expected rounds with a context, arm, reward, propensity each, got {sorted(lengths)}")
        count = self.allowed.shape[1]
        known = (self.arms >= 0) & (self.arms < count)
        refuse_rounds(~known, self.arms, f"an arm from 0 to {count - 1}")
        refuse_rounds(~self.allowed.gather(1, self.arms[:, None])[:, 0], self.arms, "an arm that was allowed")
        refuse_rounds(~self.rewards.isfinite(), self.rewards, "a finite reward")
        fine = (self.propensities > 0) & (self.propensities <= 1)
        refuse_rounds(~fine, self.propensities, "a propensity above 0 and at most 1")

    def __len__(self) -> int:
        return len(self.arms)

    def __getitem__(self, rows: Tensor | slice) -> "LoggedRounds":
        """Return some of the rounds."""
        return LoggedRounds(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})

    @property
    def had_a_choice(self) -> Bool[Tensor, " round"]:
        """Return whether chance had a part in each round.

        With a propensity of 1 beside other arms a round says nothing about these, as in a warm-up in turn.
        """
        return (self.propensities < 1) | (self.allowed.sum(1) == 1)


def cross_fitted(log: LoggedRounds, folds: int = 5, seed: int = 0) -> Float[Tensor, "round arm"]:
    """Return the expected reward of each arm by linear regressions that have not seen the round.

    Each arm has a ridge regression of its own on standardised contexts. An arm without rewards has the mean of all.

    Args:
        log: Whose rounds are divided into folds by chance.
        folds: How many; as many as rounds at most.
        seed: Of the folds.
    """
    arms, size = log.allowed.shape[1], log.contexts.shape[1] + 1
    prior = (regression(size, **_PRIOR).init(),) * arms
    found = torch.zeros(len(log), arms, dtype=torch.float64)
    order = torch.randperm(len(log), generator=torch.Generator().manual_seed(seed))
    for part in order.chunk(min(folds, len(log))):
        rest = torch.ones(len(log), dtype=torch.bool)
        rest[part] = len(part) == len(log)  # of a single round there is no rest
        x, y = log.contexts.double(), log.rewards.double()
        centre, spread = _moments(x[rest])  # of the rest alone: a round must not have seen itself
        shift, scale = _moments(y[rest, None])
        x = with_one(((x - centre) / spread).nan_to_num())  # a missing feature counts as its mean
        heads = fit_heads(
            prior, x[rest], Interactions(x[rest], log.arms[rest], ((y[rest, None] - shift) / scale)[:, 0])
        )
        means = torch.stack([expect_heads(heads, row, spread=False).mean for row in x[part]])
        found[part] = means * scale + shift
    return found


def _moments(values: Float[Tensor, "round column"]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of columns without their missing values; 1 for a constant."""
    seen = ~values.isnan()
    count = seen.sum(0).clamp_min(1)
    mean = values.nan_to_num().sum(0) / count
    spread = (torch.where(seen, values - mean, 0.0).square().sum(0) / count).sqrt()
    return mean, torch.where(spread > 0, spread, 1.0)


def refuse_rounds(wrong: Bool[Tensor, " round"], values: Tensor, expected: str) -> None:
    """Refuse the first round with something wrong.

    Raises:
        ValueError: With the number of the round, from 1.
    """
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        raise ValueError(f"expected {expected} in round {row + 1}, got {values[row].item():g}")
