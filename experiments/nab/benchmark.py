"""The score of the Numenta Anomaly Benchmark: early alarms inside labelled windows pay, alarms outside cost.

After Lavin and Ahmad 2015, "Evaluating real-time anomaly detection algorithms: the Numenta Anomaly Benchmark", section
II. A detector gives every record a score in [0, 1]; records at or above a threshold are alarms. One threshold is chosen
for the whole corpus and each profile, the one with the best score: so are the scores that the benchmark publishes.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import NDArray

LABELS, PUBLISHED = "labels/combined_windows.json", "results/final_results.json"  # in the repository
PROBATION, LONGEST_PROBATION = 0.15, 750  # share of the records of a file that are not scored, and their number at most
_STEEPNESS, _FAR = 5.0, 3.0  # of the sigmoid; in widths of a window


@dataclasses.dataclass(frozen=True)
class Profile:
    """What an application gains and loses by an alarm.

    Attributes:
        hit: Weight of a window in which there is an alarm; its first one counts.
        miss: Weight of a window without an alarm.
        false_alarm: Weight of an alarm outside of all windows.
    """

    hit: float = 1.0
    miss: float = 1.0
    false_alarm: float = 0.11


PROFILES = {
    "standard": Profile(),
    "reward_low_FP_rate": Profile(false_alarm=0.22),
    "reward_low_FN_rate": Profile(miss=2.0),
}


@dataclasses.dataclass(frozen=True)
class Labelled:
    """A file of the benchmark.

    Attributes:
        timestamps: Of the records; a few of the benchmark's repeat, or step back.
        values: Of the records.
        windows: First and last time stamp of every window in which an alarm is right, in order and apart.
    """

    timestamps: NDArray[Any]
    values: Float[np.ndarray, " record"]
    windows: tuple[tuple[np.datetime64, np.datetime64], ...]

    @property
    def probation(self) -> int:
        """Return the number of records at the beginning from which a detector may learn, and which are not scored."""
        return probation_of(len(self.values))

    def places(self) -> list[tuple[int, int]]:
        """Return the first and the last record of each window.

        Raises:
            ValueError: If a window begins or ends at a time without a record, or overlaps with the one before.
        """
        found, before = [], -1
        for ends in self.windows:
            at = [np.flatnonzero(self.timestamps == end) for end in ends]
            if not all(len(records) for records in at):
                raise ValueError(f"expected records at {ends[0]} and {ends[1]}, the ends of a window; there are none")
            first, last = (int(records[0]) for records in at)
            if first <= before:
                raise ValueError(
                    f"expected windows that follow each other, got one from {ends[0]} on after a later end"
                )
            found.append((first, last))
            before = last
        return found


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a detector scores under a profile.

    Attributes:
        score: 100 for the first record of every window alone, 0 for no alarm.
        raw: The same before it is normalised.
        threshold: Scores of records from which on they are alarms; infinite for none.
        hits: Windows with an alarm.
        windows: All windows.
        false_alarms: Alarms outside of windows.
    """

    score: float
    raw: float
    threshold: float
    hits: int
    windows: int
    false_alarms: int


def probation_of(length: int) -> int:
    """Return how many of so many records are for learning alone: 15 %, and 750 at most."""
    return min(int(PROBATION * length), LONGEST_PROBATION)


def sigmoid(position: Float[np.ndarray, " record"]) -> Float[np.ndarray, " record"]:
    """Return the value of an alarm at a position relative to a window, whose ends are -1 and 0: from about 1 to -1."""
    with np.errstate(over="ignore"):
        return np.where(position > _FAR, -1.0, 2.0 / (1.0 + np.exp(_STEEPNESS * position)) - 1.0)


def weights(file: Labelled, profile: Profile) -> tuple[Float[np.ndarray, " record"], Int[np.ndarray, " record"]]:
    """Return what an alarm at each record would count, and the window that it lies in (-1: none).

    Args:
        file: A file of the benchmark.
        profile: Weights of hits and false alarms.
    """
    count = len(file.values)
    value, window, places = np.full(count, -profile.false_alarm), np.full(count, -1), file.places()
    ends = [*(first for first, _ in places[1:]), count][: len(places)]
    for number, ((first, last), end) in enumerate(zip(places, ends, strict=True)):
        width = last - first + 1
        inside = -(last - np.arange(first, last + 1) + 1) / width
        value[first : last + 1] = profile.hit * sigmoid(inside) / sigmoid(np.array([-1.0]))
        window[first : last + 1] = number
        behind = np.arange(last + 1, end) - last
        value[last + 1 : end] = profile.false_alarm * sigmoid(behind / max(width - 1, 1))
    return value, window


def evaluate(
    files: Sequence[Labelled],
    scores: Sequence[Float[np.ndarray, " record"]],
    profile: Profile,
    threshold: float | None = None,
) -> Outcome:
    """Return what a detector scores on all files together.

    Args:
        files: The files.
        scores: What it gives the records of each file; those of the probationary part are not read.
        profile: What alarms count.
        threshold: From which on a record is an alarm; None for the one with the best score, infinity among them.

    Raises:
        ValueError: If there are not as many scores as records, or some are not finite.
    """
    values, windows, given, total = [], [], [], 0
    for number, (file, score) in enumerate(zip(files, scores, strict=True)):
        score = np.asarray(score, np.float64)
        if score.shape != file.values.shape or not np.isfinite(score).all():
            raise ValueError(
                f"expected {len(file.values)} finite scores of file {number}, got an array of shape {score.shape}"
                + (" with others" if score.shape == file.values.shape else "")
            )
        value, window = (x[file.probation :] for x in weights(file, profile))
        known, window = np.unique(window, return_inverse=True)
        places = np.where(known < 0, -1, total + np.arange(len(known)) - (known[0] < 0))
        values.append(value)
        windows.append(places[window])
        given.append(score[file.probation :])
        total += int((known >= 0).sum())
    return _swept(np.concatenate(values), np.concatenate(windows), np.concatenate(given), total, profile, threshold)


def _swept(
    value: NDArray[Any],
    window: NDArray[Any],
    score: NDArray[Any],
    total: int,
    profile: Profile,
    threshold: float | None,
) -> Outcome:
    """Return the outcome at a threshold, or at the best one: what each record adds, the highest scores first."""
    order = np.argsort(-score, kind="stable")
    value, window, score = value[order], window[order], score[order]
    # The best alarm of a window counts, which is its first: what a record adds is by how much it is better.
    adds = np.where(window < 0, value, 0.0)
    for number in range(total):
        own = np.flatnonzero(window == number)
        best = np.maximum.accumulate(value[own])
        adds[own] = np.diff(best, prepend=-profile.miss)
    raw = -profile.miss * total + np.concatenate([[0.0], np.cumsum(adds)])
    levels = np.concatenate([[np.inf], score])
    last = np.append(levels[1:] != levels[:-1], True)  # of records with one score all are alarms, or none
    if threshold is None:
        kept = np.flatnonzero(last)
        place = int(kept[np.argmax(raw[kept])])
    else:
        place = int((score >= threshold).sum())
    alarms = window[:place]
    null, perfect = -profile.miss * total, profile.hit * total
    normalised = 100 * (raw[place] - null) / (perfect - null) if total else 0.0
    hits = len(np.unique(alarms[alarms >= 0]))
    level = float(levels[place]) if threshold is None else threshold
    return Outcome(normalised, float(raw[place]), level, hits, total, int((alarms < 0).sum()))


def evaluate_all(
    files: Sequence[Labelled],
    scores: Sequence[Float[np.ndarray, " record"]],
    profiles: Mapping[str, Profile] = PROFILES,
) -> dict[str, Outcome]:
    """Return the outcome under every profile, each with a threshold of its own."""
    return {name: evaluate(files, scores, profile) for name, profile in profiles.items()}


def read_benchmark(folder: Path) -> dict[str, Labelled]:
    """Return the series of a folder in the layout of the benchmark, by names such as "realTweets/a.csv".

    Raises:
        FileNotFoundError: If the folder lacks a file.
        ValueError: If a series is not as expected.
    """
    labels = json.loads((folder / LABELS).read_text())
    return {name: _labelled(folder / "data" / name, windows) for name, windows in sorted(labels.items())}


def _labelled(path: Path, windows: list[list[str]]) -> Labelled:
    """Return a series with its windows, checked.

    Raises:
        ValueError: If a time stamp or value is missing, or a window does not begin and end at records.
    """
    frame = pd.read_csv(path, parse_dates=["timestamp"])
    stamps = np.asarray(frame["timestamp"]).astype("datetime64[us]")
    values = np.asarray(frame["value"], np.float64)
    if np.isnat(stamps).any() or not np.isfinite(values).all():
        raise ValueError(f"{path}: expected time stamps and finite values in all records")
    ends: Any = [tuple(np.datetime64(end, "us") for end in window) for window in windows]
    found = Labelled(stamps, values, tuple(ends))
    try:
        found.places()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return found
