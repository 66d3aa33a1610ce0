"""An online detector of anomalies: records in, one or many at a time, with a state in and a state out.

Local levels follow a series: a fast and a slow one of all records, one for each time of the day, and one for each time
of the week. Each is a Kalman filter of a random walk in noise from a diffuse prior. The gain settles at a value that is
chosen, K, where the ratio of the variances of walk and noise is q = K^2 / (1 - K) (Harvey 1989, section 4.1.2).

A record has two statistics: its error under the level of its time of day or of week, whichever is nearer; and the
distance of the fast level from the slow one, which is that of a stretch. `Judge` makes one tail probability of them, by
the records before.

An alarm is news: the alarm score of a record is 0 unless it is rarer than all records of the while before it.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from tsforecast.analysis.judging import LEAST, Judge, grown

_DAY = 86_400.0  # seconds
Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Levels:
    """Beliefs over local levels, in units of the noise's variance.

    Attributes:
        mean: Of each level; NaN where it has seen nothing.
        variance: Of each.
    """

    mean: Float[NDArray[np.float64], " level"]
    variance: Float[NDArray[np.float64], " level"]


@dataclasses.dataclass(frozen=True, eq=False)
class DetectorState:
    """All of the past that a detector needs.

    Attributes:
        fast: Mean and variance of the fast level.
        slow: Likewise of the slow one.
        daily: Levels of the times of the day.
        weekly: Levels of the times of the week.
        seconds: Length of a time of the day.
        past: Statistics of the records so far, at most those of the detector's memory.
        judge: What is ordinary.
        renewed: Number of records when that was learnt.
        count: Number of records so far.
        recent: Scores of the last records, as many as an alarm is compared with.
    """

    fast: tuple[float, float]
    slow: tuple[float, float]
    daily: Levels
    weekly: Levels
    seconds: float
    past: Float[NDArray[np.float64], "record statistic"]
    judge: Judge
    renewed: int
    count: int
    recent: Float[NDArray[np.float64], " recent"]


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """What a detector says of records.

    Attributes:
        expected: Of the levels of its time of day and of week the one nearer to the fast level, which it is where both
            are new; before the record is seen.
        tail: Tail probability; NaN where the value is missing.
        alarm: In [0, 1): 0, or the larger the rarer, where the record is news.
    """

    expected: Float[NDArray[np.float64], " record"]
    tail: Float[NDArray[np.float64], " record"]
    alarm: Float[NDArray[np.float64], " record"]


@dataclasses.dataclass(frozen=True)
class Detector:
    """Settings of an online detector, the same for all series.

    Attributes:
        fast: Gain of the fast level.
        slow: Gain of the slow level.
        seasonal: Gain of the levels of the times of the day and of the week.
        silence: Length of the while in which an alarm must be the rarest record, as a share of the first part.
        memory: Records whose statistics are kept.
    """

    fast: float = 0.1
    slow: float = 0.01
    seasonal: float = 0.2
    silence: float = 0.4
    memory: int = 50_000

    def __post_init__(self) -> None:
        for name in ("fast", "slow", "seasonal"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"expected a gain between 0 and 1 as {name}, got {getattr(self, name)}")

    def begin(self, timestamps: NDArray[Any], values: Numbers) -> DetectorState:
        """Return the state after the first part of a series, which teaches what is ordinary.

        Args:
            timestamps: Of its records.
            values: Their values, NaN where missing.

        Raises:
            ValueError: If there are too few values.
        """
        known = int((~np.isnan(values)).sum())
        if known < LEAST:
            raise ValueError(f"expected at least {LEAST} values to learn what is ordinary, got {known}")
        steps = np.diff(timestamps).astype("timedelta64[us]").astype(np.float64) / 1e6
        seconds = float(np.clip(np.median(steps[steps > 0]), 60.0, _DAY)) if (steps > 0).any() else _DAY
        slots = int(np.ceil(_DAY / seconds))
        daily, weekly = (Levels(np.full(n, np.nan), np.full(n, np.inf)) for n in (slots, 7 * slots))
        start = (float("nan"), float("inf"))
        levels, statistics, _ = self._followed((start, start, daily, weekly), seconds, timestamps, values)
        recent = np.zeros(max(int(self.silence * len(values)), 1))
        return DetectorState(*levels, seconds, statistics, Judge.of(statistics), len(values), len(values), recent)

    def step(self, state: DetectorState, timestamps: NDArray[Any], values: Numbers) -> tuple[DetectorState, Verdicts]:
        """Return the state after new records, and what is said of each; one or many at a time give the same.

        Args:
            state: Before them.
            timestamps: Of the records.
            values: Their values, NaN where missing.
        """
        levels = (state.fast, state.slow, state.daily, state.weekly)
        levels, statistics, expected = self._followed(levels, state.seconds, timestamps, values)
        tails, scores = np.empty(len(values)), np.empty(len(values))
        past, judge, renewed, first = state.past, state.judge, state.renewed, 0
        while first < len(values):
            end = min(grown(renewed) - state.count, len(values))
            here = statistics[first:end]
            tails[first:end], scores[first:end] = judge.probabilities(here), np.nan_to_num(judge.scores(here))
            past = np.concatenate([past, here])[-self.memory :]
            if state.count + end == grown(renewed):
                judge, renewed = Judge.of(past), state.count + end
            first = end
        both = np.concatenate([state.recent, scores])
        size = len(state.recent)
        before = np.lib.stride_tricks.sliding_window_view(both[:-1], size).max(1)
        alarm = np.where(scores > before, scores / (1 + scores), 0.0)
        after = DetectorState(
            *levels, state.seconds, past, judge, renewed, state.count + len(values), both[len(values) :]
        )
        return after, Verdicts(expected, tails, alarm)

    def _followed(
        self, levels: "_Levels", seconds: float, timestamps: NDArray[Any], values: Numbers
    ) -> tuple["_Levels", Numbers, Numbers]:
        """Return levels after records, the statistics of each, and what was expected of it."""
        fast, slow, *seasonal = levels
        means, variances = ([getattr(x, name).tolist() for x in seasonal] for name in ("mean", "variance"))
        walks = [gain**2 / (1 - gain) for gain in (self.fast, self.slow, self.seasonal)]
        statistics, expected = np.full((len(values), 2), np.nan), np.full(len(values), np.nan)
        slots = _slots(timestamps, seconds)
        for k, (value, *at) in enumerate(zip(values.tolist(), *slots, strict=True)):
            known = [mean[slot] for mean, slot in zip(means, at, strict=True) if mean[slot] == mean[slot]]
            expected[k] = min(known, key=lambda level: abs(level - fast[0])) if known else fast[0]
            if value != value:
                continue
            error = min((abs(value - level) for level in known), default=0.0)
            fast, slow = _moved(*fast, walks[0], value), _moved(*slow, walks[1], value)
            for mean, variance, slot in zip(means, variances, at, strict=True):
                mean[slot], variance[slot] = _moved(mean[slot], variance[slot], walks[2], value)
            statistics[k] = error, abs(fast[0] - slow[0])
        daily, weekly = (Levels(np.array(m), np.array(v)) for m, v in zip(means, variances, strict=True))
        return (fast, slow, daily, weekly), statistics, expected


_Levels = tuple[tuple[float, float], tuple[float, float], Levels, Levels]


def _slots(timestamps: NDArray[Any], seconds: float) -> tuple[list[int], list[int]]:
    """Return the numbers of the times of the day and of the week of some records."""
    days = timestamps.astype("datetime64[D]")
    slot = ((timestamps - days).astype("timedelta64[us]").astype(np.float64) / 1e6 // seconds).astype(int)
    weekday = (days.astype(int) + 3) % 7  # the first day is a Thursday
    return slot.tolist(), (weekday * int(np.ceil(_DAY / seconds)) + slot).tolist()


def _moved(mean: float, variance: float, walk: float, value: float) -> tuple[float, float]:
    """Return mean and variance of a level after a value; the noise has the variance 1."""
    if mean != mean:
        return value, 1.0
    ahead = variance + walk
    gain = ahead / (ahead + 1)
    return mean + gain * (value - mean), gain
