"""Times of changes of regime, and the certainty of these times."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

_LEAST = 1e-30  # probability


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of the most likely path, and the posterior distribution of its time.

    Attributes:
        time: Index of the step at which the path first has the new regime.
        before: The regime before, from 0 on.
        after: The regime from this step on.
        lower: First step of the shortest posterior interval of the time.
        upper: Last step of it.
        expected: Posterior expectation of the number of changes from `before` to `after` between the middles of the two
            segments that it separates; near 1 where the change is certain.
    """

    time: int
    before: int
    after: int
    lower: int
    upper: int
    expected: float


def check_level(level: float) -> None:
    """Refuse a probability of intervals outside of 0 to 1.

    Raises:
        ValueError: If it is not.
    """
    if not 0 < level < 1:
        raise ValueError(f"expected the level of an interval between 0 and 1, got {level}")


def find_changes(
    path: Int[Tensor, " time"], pairs: Float[Tensor, "time before regime"], level: float = 0.9
) -> list[Change]:
    """Return the changes of a path of regimes, each with an interval for its time.

    The time t of a change from i to j has the distribution

        p(s_{a-1} = ... = s_{t-1} = i, s_t = ... = s_b = j | y_1, ..., y_T), normalised,

    with steps a and b in the middles of the segments of the path before and after it. It is the distribution of this
    change if there is no other between a and b. Regimes given all observations are taken as a Markov chain.

    Args:
        path: The most likely path.
        pairs: Posterior probabilities of pairs of regimes, see `RegimeSmoothed`.
        level: Probability of the interval.

    Raises:
        ValueError: If the level is not between 0 and 1.
    """
    check_level(level)
    times = (torch.nonzero(path[1:] != path[:-1]).squeeze(-1) + 1).tolist()
    ends, changes = [0, *times, len(path)], []
    for number, time in enumerate(times):
        first = (ends[number] + time) // 2 + 1 if number else 1
        last = (time + ends[number + 2]) // 2 if number + 1 < len(times) else len(path) - 1
        first, last = min(first, time), max(last, time)  # segments of one step have no middle
        before, after = int(path[time - 1]), int(path[time])
        mass = pairs[first : last + 1, before, after].double()  # sums over long segments
        low, high = _shortest(_time_of_one(pairs[first : last + 1].double(), before, after), level)
        changes.append(Change(time, before, after, first + low, first + high, float(mass.sum())))
    return changes


def _time_of_one(pairs: Float[Tensor, "time before regime"], before: int, after: int) -> Float[Tensor, " time"]:
    """Return the distribution of the time of a change if it is the only one; see `find_changes`."""
    # A pair that never occurs has no logarithm.
    ahead = (pairs / pairs.sum(-1, keepdim=True).clamp_min(_LEAST)).clamp_min(_LEAST).log()
    stays = ahead[:, before, before].cumsum(0) - ahead[:, before, before]  # steps before the change alone
    stays_on = ahead[:, after, after].flip(0).cumsum(0).flip(0) - ahead[:, after, after]
    return torch.softmax(stays + ahead[:, before, after] + stays_on, 0)


def _shortest(mass: Float[Tensor, " time"], level: float) -> tuple[int, int]:
    """Return first and last place of the shortest interval that has a share of the mass; of several, the heaviest."""
    below = torch.cat([mass.new_zeros(1), mass.cumsum(0)])  # masses of all intervals of a length are one difference
    wanted = level * float(below[-1])  # the sum, which rounds, not 1
    for length in range(1, len(mass)):
        within = below[length:] - below[:-length]
        if float(within.max()) >= wanted:
            low = int(within.argmax())
            return low, low + length - 1
    return 0, len(mass) - 1
