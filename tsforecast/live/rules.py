"""What becomes of an observation: it is applied, was seen before, comes late, or is refused.

| observation | what happens |
| --- | --- |
| of the next period of its series | applied |
| of a later period, up to `max_gap` steps between | applied; the steps between are missing values |
| of a later one still | refused, `gap` |
| with a sequence number not above the last of its series | `repeated`: counted, not applied |
| of the period that its series has seen last | likewise |
| of an earlier period | `late`: counted, not applied |
| between two periods of its series (as of a quarter past, in a series of half hours) | refused, `grid` |
| of an item that is not known | begins from the prior; refused, `full`, if there are `max_items` |
| the same, in a model with static numbers | refused, `unknown` |
| behind a gap, in a model with covariates | refused, `covariates`: the steps between must come with theirs |
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.steps import Steps

APPLIED, REPEATED, LATE = "applied", "repeated", "late"
REFUSED = {
    "gap": "it lies too many steps ahead of its series",
    "grid": "it lies between two periods of its series",
    "full": "the store has as many series as it may",
    "unknown": "the model has static numbers, which a series has from the history that the store began with",
    "covariates": "steps before it were left out; give them with their covariates and a value of null",
}
NEVER = ("full", "unknown")  # of items that have no series
OUTCOMES = (APPLIED, REPEATED, LATE, *REFUSED)


@dataclass(frozen=True)
class Observations:
    """Observations of a request, in the order in which they came.

    Attributes:
        items: Names of their series.
        ordinals: Of their periods.
        sequences: Their numbers, or `NO_SEQUENCE`.
        values: Targets (observation, target), NaN where missing.
        covariates: Standardised (observation, covariate).
    """

    items: Sequence[str]
    ordinals: NDArray[np.int64]
    sequences: NDArray[np.int64]
    values: NDArray[np.float64]
    covariates: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class Rules:
    """Rules of a store.

    Attributes:
        multiple: Ordinals between two periods.
        max_items: Most series.
        max_gap: Most missing steps before an observation.
        has_static_numbers: Whether the model has static numbers.
        has_covariates: Whether it has covariates.
    """

    multiple: int
    max_items: int
    max_gap: int
    has_static_numbers: bool = False
    has_covariates: bool = False

    def sift(self, known: Rows, requests: Sequence[Observations], number: int) -> tuple[Steps, list[list[str]]]:
        """Return the micro-batch of what is applied, and the outcome of each observation of each request.

        Args:
            known: All series; it is not changed.
            requests: Observations, those that came first first.
            number: Of the micro-batch.
        """
        index, begun = known.index, len(known)
        new: dict[str, int] = {}
        ends: dict[int, int] = {}  # of series that this micro-batch moves
        last: dict[int, int] = {}  # their sequence numbers
        outcomes, chosen = [], []
        for request in requests:
            found: list[str] = []
            applied: list[tuple[int, int]] = []
            pairs = zip(request.items, request.ordinals.tolist(), request.sequences.tolist(), strict=True)
            for place, (item, ordinal, sequence) in enumerate(pairs):
                row = index.get(item)
                if row is None:
                    row = new.get(item, -1)
                if row < 0:
                    outcome = self._begins(begun + len(new))
                    if outcome == APPLIED:
                        row = new[item] = begun + len(new)
                else:
                    if row not in ends:
                        ends[row], last[row] = int(known.end[row]), int(known.sequence[row])
                    outcome = self._follows(ordinal, ends[row], sequence, last[row])
                found.append(outcome)
                if outcome == APPLIED:
                    ends[row] = ordinal + self.multiple
                    last[row] = max(last.get(row, NO_SEQUENCE), sequence)
                    applied.append((place, row))
            outcomes.append(found)
            chosen.append(np.array(applied, np.int64).reshape(-1, 2))
        pick = lambda name: np.concatenate(  # noqa: E731
            [getattr(one, name)[places[:, 0]] for one, places in zip(requests, chosen, strict=True)]
        )
        columns = {name: pick(name) for name in ("ordinals", "sequences", "values", "covariates")}
        return Steps(number, list(new), np.concatenate([places[:, 1] for places in chosen]), **columns), outcomes

    def _begins(self, count: int) -> str:
        if self.has_static_numbers:
            return "unknown"
        return APPLIED if count < self.max_items else "full"

    def _follows(self, ordinal: int, end: int, sequence: int, last: int) -> str:
        if sequence != NO_SEQUENCE and sequence <= last:
            return REPEATED
        ahead = ordinal - end
        if ahead % self.multiple:
            return "grid"
        if ahead < 0:
            return REPEATED if ahead == -self.multiple else LATE
        if ahead // self.multiple > self.max_gap:
            return "gap"
        return "covariates" if ahead and self.has_covariates else APPLIED
