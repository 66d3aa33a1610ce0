"""An online detector of anomalies: records in, one or many at a time, with a state in and a state out.

A record has two statistics. One is its surprise under a switching model of the records before it, which knows times of
the day and of the week, and scales of noise (`SwitchingLevels`). The other is its novelty: the distance of its
value from the nearest value so far. `Judge` gives the rarity of each among those before: p and p'. Of the t records so
far about E = t p p' are as rare, if the two go their own ways.

An alarm is news: the alarm score of a record is 1 / (1 + E) if its E is below that of all records of a while before
it, and 0 otherwise.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from tsforecast.analysis.judging import LEAST, Judge, grown
from tsforecast.analysis.switching_levels import FollowedState, SwitchingLevels

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class DetectorState:
    """All of the past that a detector needs.

    Attributes:
        followed: What the switching model knows.
        values: Of the records so far that have one, at most as many as the detector's memory.
        past: Statistics of the records so far, likewise.
        judge: What is ordinary.
        renewed: Number of records when that was learnt.
        count: Number of records so far.
        recent: -log10 E of the last records, as many as an alarm is compared with.
    """

    followed: FollowedState
    values: Float[np.ndarray, " value"]
    past: Float[np.ndarray, "record statistic"]
    judge: Judge
    renewed: int
    count: int
    recent: Float[np.ndarray, " recent"]


@dataclasses.dataclass(frozen=True)
class Verdicts:
    """The verdicts of a detector on records.

    Attributes:
        expected: Mean of a record given those before it.
        tail: Tail probability; NaN where the value is missing.
        alarm: From 0 to 1: 0, or the larger the rarer, where the record is news.
        follows: Probability that the record follows the level of all records, that of its time of the day, and that of
            its time of the week, given the record and those before it.
    """

    expected: Float[np.ndarray, " record"]
    tail: Float[np.ndarray, " record"]
    alarm: Float[np.ndarray, " record"]
    follows: Float[np.ndarray, "record 3"]


@dataclasses.dataclass(frozen=True)
class Detector:
    """Settings of an online detector, the same for all series.

    Attributes:
        model: What is expected.
        silence: Length of the while in which an alarm must be the rarest record, as a share of the first part.
        memory: Records whose values and statistics are kept.
    """

    model: SwitchingLevels = dataclasses.field(default_factory=SwitchingLevels)
    silence: float = 0.3
    memory: int = 50_000

    def begin(self, timestamps: NDArray[Any], values: Numbers) -> DetectorState:
        """Return the state after the first part of a series: an example of ordinary records.

        Args:
            timestamps: Of its records.
            values: Their values, NaN where missing.

        Raises:
            ValueError: If there are too few values.
        """
        known = int((~np.isnan(values)).sum())
        if known < LEAST + 2:  # the first two have no surprise
            raise ValueError(f"expected at least {LEAST + 2} values to learn what is ordinary, got {known}")
        followed, predicted = self.model.step(self.model.begin(timestamps, values), timestamps, values)
        seen, novelty = self._novelty(np.empty(0), values)
        past = np.stack([predicted.surprise, novelty], 1)[-self.memory :]
        recent = np.full(max(int(self.silence * len(values)), 1), -np.inf)
        return DetectorState(followed, seen, past, Judge.of(past), len(values), len(values), recent)

    def step(self, state: DetectorState, timestamps: NDArray[Any], values: Numbers) -> tuple[DetectorState, Verdicts]:
        """Return the state after new records, and the verdict on each; one or many at a time give the same.

        Args:
            state: Before them.
            timestamps: Of the records.
            values: Their values, NaN where missing.
        """
        followed, predicted = self.model.step(state.followed, timestamps, values)
        seen, novelty = self._novelty(state.values, values)
        statistics = np.stack([predicted.surprise, novelty], 1)
        tails, scores = np.empty(len(values)), np.empty(len(values))
        past, judge, renewed, first = state.past, state.judge, state.renewed, 0
        while first < len(values):
            end = min(grown(renewed) - state.count, len(values))
            here = statistics[first:end]
            tails[first:end], scores[first:end] = judge.probabilities(here), judge.scores(here)
            past = np.concatenate([past, here])[-self.memory :]
            if state.count + end == grown(renewed):
                judge, renewed = Judge.of(past), state.count + end
            first = end
        rarity = np.where(np.isnan(scores), -np.inf, scores - np.log10(state.count + np.arange(len(values))))
        both = np.concatenate([state.recent, rarity])
        before = np.lib.stride_tricks.sliding_window_view(both[:-1], len(state.recent)).max(1)
        alarm = np.where(rarity > before, 1 / (1 + 10 ** -np.maximum(rarity, -300.0)), 0.0)
        after = DetectorState(followed, seen, past, judge, renewed, state.count + len(values), both[len(values) :])
        return after, Verdicts(predicted.expected, tails, alarm, predicted.regimes.sum(2))

    def _novelty(self, seen: Numbers, values: Numbers) -> tuple[Numbers, Numbers]:
        """Return the values so far after new ones, and the distance of each new one from those before it."""
        known = ~np.isnan(values)
        every, novelty = np.concatenate([seen, values[known]]), np.full(len(values), np.nan)
        for k, place in enumerate(np.flatnonzero(known), len(seen)):
            if k:
                novelty[place] = np.abs(every[max(k - self.memory, 0) : k] - every[k]).min()
        return every[-self.memory :], novelty
