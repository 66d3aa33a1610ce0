"""One tail probability of several statistics of a step, calibrated by the past of their combination."""

import dataclasses

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from tsforecast.analysis.tails import Tail

LEAST = 20  # steps that are learnt from, at least
_FOLDS = 4
_GROWTH = 0.05  # share by which the past grows until it is learnt from again

Statistics = Float[np.ndarray, "time statistic"]


@dataclasses.dataclass(frozen=True, eq=False)
class Judge:
    """The ordinary range of several statistics, and of Fisher's combination of their tail probabilities.

    The combination is the sum of -log10 p (Fisher 1932). The statistics of a step depend on each other, so its
    distribution is learnt, and is not the chi-squared of Fisher. It is learnt from tail probabilities of each quarter
    of the past by the other three. A past that includes the judged step would give too regular probabilities, and then
    too many alarms.

    Attributes:
        tails: Of each statistic.
        combined: Of the combination.
    """

    tails: tuple[Tail, ...]
    combined: Tail

    @classmethod
    def of(cls, past: Statistics) -> "Judge":
        """Return the judge that the statistics of a past teach; steps without them (NaN) are left out.

        Raises:
            ValueError: If there are fewer than `LEAST` steps.
        """
        past = past[~np.isnan(past).any(1)]
        if len(past) < LEAST:
            raise ValueError(f"expected at least {LEAST} steps to learn what is ordinary, got {len(past)}")
        fold = np.arange(len(past)) * _FOLDS // len(past)
        crossed = np.empty(len(past))
        for number in range(_FOLDS):
            crossed[fold == number] = _combined(_tails(past[fold != number]), past[fold == number])
        return cls(_tails(past), Tail.of(crossed))

    def scores(self, statistics: Statistics) -> Float[np.ndarray, " time"]:
        """Return the combination of the tail probabilities of each step: 0 and more, the larger the rarer."""
        return _combined(self.tails, statistics)

    def probabilities(self, statistics: Statistics) -> Float[np.ndarray, " time"]:
        """Return the tail probability of each step; NaN where a statistic is missing."""
        return self.combined.probabilities(self.scores(statistics))


def grown(count: int) -> int:
    """Return the next number of steps to learn from, after learning from `count`."""
    return count + max(int(_GROWTH * count), 1)


def _tails(past: Statistics) -> tuple[Tail, ...]:
    return tuple(Tail.of(column) for column in past.T)


def _combined(tails: tuple[Tail, ...], statistics: Statistics) -> NDArray[np.float64]:
    probabilities = [tail.probabilities(column) for tail, column in zip(tails, statistics.T, strict=True)]
    return -np.log10(np.stack(probabilities)).sum(0)
