"""Off-policy evaluation: the reward of a policy, estimated from a log of another one's choices.

With weights w = pi(a | x) / p, where p is the logged propensity, and a model of rewards q(x, a):

- `ips`: mean of w r (Horvitz and Thompson 1952)
- `snips`: sum of w r / sum of w (Swaminathan and Joachims 2015)
- `dm`: mean of sum_a pi(a | x) q(x, a), the direct method
- `dr`: mean of sum_a pi(a | x) q(x, a) + w (r - q(x, a_logged)), doubly robust (Dudik et al. 2011)
- `switch-dr`: `dr` whose second term counts only where w is at most a threshold (Wang et al. 2017)
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from tsforecast.decisions.logged_rounds import LoggedRounds, cross_fitted, refuse_rounds

_FEW = 30  # effective rounds below which an interval by the normal law is doubtful
_FAR = 4.0  # standard errors by which the mean weight may differ from 1


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Mean reward of a round, and its interval.

    Attributes:
        name: Of the estimator.
        value: The estimate.
        error: Its standard error.
        low: Lower end of the interval.
        high: Upper end.
    """

    name: str
    value: float
    error: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class PolicyValue:
    """Estimates of the mean reward of a policy, and the evidence for them.

    Attributes:
        estimates: By each estimator.
        logged: Mean reward of the log itself.
        rounds: Number of rounds.
        effective: Effective number of rounds, (sum w)^2 / sum w^2.
        mean_weight: Near 1, where propensities are right and support is not missing.
        mean_weight_error: Its standard error.
        largest_weight: Of all rounds.
        unsupported: Share of the policy's choices that the log can not judge: arms that it never has.
        arms: Numbers of these arms.
    """

    estimates: tuple[Estimate, ...]
    logged: Estimate
    rounds: int
    effective: float
    mean_weight: float
    mean_weight_error: float
    largest_weight: float
    unsupported: float
    arms: tuple[int, ...]

    def warnings(self, names: tuple[str, ...] | None = None) -> list[str]:
        """Return sentences about all that makes the estimates doubtful.

        Args:
            names: Of the arms; None for their numbers.
        """
        said = []
        if self.unsupported > 0:
            arms = ", ".join(names[arm] if names else str(arm) for arm in self.arms[:5])
            said.append(
                f"support is missing: {self.unsupported:.1%} of the policy's choices are arms that the log never has "
                f"({arms}{', ..' if len(self.arms) > 5 else ''}); ips counts them as 0, snips leaves them out, and dm "
                "and dr take the word of the model of rewards"
            )
        far = abs(self.mean_weight + self.unsupported - 1) > _FAR * self.mean_weight_error
        if far and abs(self.mean_weight + self.unsupported - 1) > 1e-6:
            said.append(
                f"the weights have a mean of {self.mean_weight:.3f} (standard error {self.mean_weight_error:.3f}), "
                f"expected {1 - self.unsupported:.3f}: propensities are wrong, or the policy takes arms in contexts in "
                "which the log does not"
            )
        if self.effective < _FEW:
            said.append(
                f"{self.rounds} rounds count as {self.effective:.1f} with equal weights: the policy is far from the "
                "log, and intervals are too short; take dr, or more rounds"
            )
        return said


def evaluate_policy(
    log: LoggedRounds,
    chances: Float[Tensor, "round arm"],
    expected: Float[Tensor, "round arm"] | None = None,
    *,
    level: float = 0.95,
    bootstrap: int = 0,
    switch: float | None = None,
    seed: int = 0,
) -> PolicyValue:
    """Return the mean reward of a policy in a round, by several estimators.

    Intervals are those of the normal law with the standard error of the mean; that of `snips` is by the delta method.
    With `bootstrap` they are quantiles over rounds drawn anew. They do not know the bias of `dm`.

    Args:
        log: Choices of another policy, which must not have been used to train this one.
        chances: Probability with which the policy takes each arm.
        expected: Rewards of each arm by a model that has not seen the round; None for `cross_fitted`.
        level: Of the intervals.
        bootstrap: Draws of all rounds; 0 for the normal law.
        switch: Largest weight that counts in `switch-dr`; None to leave that out.
        seed: Of folds and draws.

    Raises:
        ValueError: If shapes differ, probabilities are none, or an arm is taken that was not allowed.
    """
    chances, expected = _checked(log, chances, expected, level, switch, seed)
    place = log.arms[:, None]
    rewards, weights = log.rewards.double(), chances.gather(1, place)[:, 0] / log.propensities.double()
    model, beside = (chances * expected).sum(1), expected.gather(1, place)[:, 0]
    correction = weights * (rewards - beside)  # of the model, where the log shows it wrong
    means = {"ips": weights * rewards, "dm": model, "dr": model + correction}
    if switch is not None:
        means["switch-dr"] = model + torch.where(weights <= switch, correction, 0.0)
    ones = torch.ones_like(weights)
    ratios = {name: (value, ones) for name, value in means.items()} | {"snips": (weights * rewards, weights)}
    order = [name for name in ("ips", "snips", "dm", "dr", "switch-dr") if name in ratios]
    interval = _intervals(level, bootstrap, len(log), seed)
    mean_weight = interval("weight", weights, ones)
    never = log.allowed.any(0) & (torch.bincount(log.arms, minlength=log.allowed.shape[1]) == 0)
    lost = never & (chances.sum(0) > 0)
    squares = weights.square().sum().item()  # for Kish's effective number of rounds
    return PolicyValue(
        tuple(interval(name, *ratios[name]) for name in order),
        interval("logged", rewards, ones),
        len(log),
        weights.sum().item() ** 2 / squares if squares > 0 else 0.0,
        mean_weight.value,
        mean_weight.error,
        weights.max().item(),
        chances[:, lost].sum(1).mean().item(),
        tuple(lost.nonzero()[:, 0].tolist()),
    )


def _checked(
    log: LoggedRounds, chances: Tensor, expected: Tensor | None, level: float, switch: float | None, seed: int
) -> tuple[Tensor, Tensor]:
    """Return probabilities and expected rewards in double precision.

    Raises:
        ValueError: If they do not fit the log.
    """
    if not 0 < level < 1:
        raise ValueError(f"expected a level between 0 and 1, got {level:g}")
    if switch is not None and not switch > 0:
        raise ValueError(f"expected a switch above 0, got {switch:g}")
    chances = chances.double()
    for name, values in (("probabilities", chances), ("expected rewards", expected)):
        if values is not None and values.shape != log.allowed.shape:
            raise ValueError(f"expected {name} of shape {tuple(log.allowed.shape)}, got {tuple(values.shape)}")
    wrong = ~((chances >= 0) & (chances <= 1 + 1e-9)).all(1) | ~((chances.sum(1) - 1).abs() < 1e-6)
    refuse_rounds(wrong, chances.sum(1), "probabilities of the policy with a sum of 1")
    outside = torch.where(log.allowed, 0.0, chances).sum(1)
    refuse_rounds(outside > 0, outside, "no probability for arms that were not allowed")
    expected = cross_fitted(log, seed=seed) if expected is None else expected.double()
    refuse_rounds(~expected.isfinite().all(1), expected.sum(1), "finite expected rewards")
    return chances, expected


def _intervals(level: float, bootstrap: int, rounds: int, seed: int) -> Callable[[str, Tensor, Tensor], Estimate]:
    """Return a function that makes an estimate with an interval of sum(a) / sum(b)."""
    tail = (1 - level) / 2

    def drawn() -> Iterator[Tensor]:
        """Yield the same draws for every estimate: kept, those of a long log would fill the memory."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(bootstrap):
            yield torch.randint(rounds, (rounds,), generator=generator)

    def interval(name: str, above: Tensor, below: Tensor) -> Estimate:
        total = below.sum()
        if not total > 0:
            return Estimate(name, math.nan, math.nan, math.nan, math.nan)
        value = (above.sum() / total).item()
        around = above - value * below
        # Delta method of a ratio; of a mean it is the usual one.
        error = (around.square().sum() / max(rounds - 1, 1) * rounds).sqrt().item() / total.item()
        if not bootstrap:
            half = float(stats.norm.isf(tail)) * error
            return Estimate(name, value, error, value - half, value + half)
        again = torch.stack([above[rows].sum() / below[rows].sum() for rows in drawn()]).nan_to_num(nan=value)
        low, high = again.quantile(torch.tensor([tail, 1 - tail], dtype=again.dtype)).tolist()
        return Estimate(name, value, again.std().item() if bootstrap > 1 else 0.0, low, high)

    return interval
