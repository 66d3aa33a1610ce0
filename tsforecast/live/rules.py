"""The outcome of an observation: it is applied, was seen before, comes late, or is refused.

| observation | what happens |
| --- | --- |
| of the next period of its series | applied |
| of a later period, up to `max_gap` steps between | applied; the steps between are missing values |
| of a later one still, or where its request has left out as many steps of its series | refused, `gap` |
| with a sequence number not above the last of its series | `repeated`: counted, not applied |
| of the period that its series has seen last | likewise |
| of an earlier period | `late`: counted, not applied |
| between two periods of its series (as of a quarter past, in a series of half hours) | refused, `grid` |
| of an item that is not known | begins from the prior; refused, `full`, if there are `max_items` |
| the same, so far ahead that a learner would skip more than `max_gap` steps | refused, `gap` |
| the same, in a model with static numbers | refused, `unknown` |
| behind a gap, in a model with covariates | refused, `covariates`: the steps between must come with theirs |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.steps import Steps

APPLIED, REPEATED, LATE = "applied", "repeated", "late"
REFUSED = {
    "gap": "it lies too many steps ahead of its series, or those before it in the request do",
    "grid": "it lies between two periods of its series",
    "full": "the store has as many series as it may",
    "unknown": "the model has static numbers, which a series has from the history that the store began with",
    "covariates": "steps before it were left out; give them with their covariates and a value of null",
}
NEVER = ("full", "unknown")  # of items that have no series
OUTCOMES = (APPLIED, REPEATED, LATE, *REFUSED)


@dataclass(frozen=True)
class Observations:
    """Observations of a request, in their order of arrival."""

    items: Sequence[str]  # names of their series
    ordinals: NDArray[np.int64]  # of their periods
    sequences: NDArray[np.int64]  # their numbers, or `NO_SEQUENCE`
    values: NDArray[np.float64]  # targets (observation, target), NaN where missing
    covariates: NDArray[np.float64]  # standardised (observation, covariate)

    def __len__(self) -> int:
        return len(self.items)


def joined(parts: Sequence[Observations]) -> Observations:
    """Return observations of several parts in their order."""
    columns = ("ordinals", "sequences", "values", "covariates")
    arrays = [np.concatenate([getattr(part, name) for part in parts]) for name in columns]
    return Observations([item for part in parts for item in part.items], *arrays)


@dataclass
class Pending:
    """A request and its progress."""

    observations: Observations  # of the request
    outcomes: list[str] = field(default_factory=list)  # of the first of them
    left_out: dict[str, int] = field(default_factory=dict)  # missing steps before its observations, by series

    @property
    def size(self) -> int:
        """Return the number of its observations."""
        return len(self.observations)

    @property
    def is_done(self) -> bool:
        """Return whether all observations have their outcomes."""
        return len(self.outcomes) == len(self.observations)


@dataclass(frozen=True)
class Rules:
    """Rules of a store."""

    multiple: int  # ordinals between two periods
    max_items: int  # most series
    max_gap: int  # most missing steps before an observation
    has_static_numbers: bool = False  # whether the model has static numbers
    has_covariates: bool = False  # whether it has covariates

    def sift(
        self,
        known: Rows,
        requests: Sequence[Pending],
        number: int,
        room: int | None = None,
        latest: int | None = None,
    ) -> Steps:
        """Return the micro-batch of observations to apply, and note the outcome of each observation that had room.

        Args:
            known: All series; it is not changed.
            requests: Those that came first first.
            number: Of the micro-batch.
            room: Observations and missing steps between them after which it ends; None for all observations.
            latest: Ordinal behind which no series begins; None for any.
        """
        walk = _Walk(known)
        chosen, within = [], None
        for request in requests:
            given = request.observations
            begin = len(request.outcomes)
            columns = (given.items[begin:], given.ordinals[begin:].tolist(), given.sequences[begin:].tolist())
            applied: list[tuple[int, int]] = []
            for place, (item, ordinal, sequence) in enumerate(zip(*columns, strict=True), begin):
                if room is not None and walk.used >= room:
                    break
                walk.used += 1
                row = walk.row_of(item)
                if row < 0:
                    outcome = self._begins(walk.count, ordinal, latest)
                    if outcome == APPLIED:
                        row = walk.begin(item)
                else:
                    ahead = ordinal - walk.ends[row]
                    left_out = request.left_out.get(item, 0) + max(ahead, 0) // self.multiple
                    outcome = self._follows(ahead, left_out, sequence, walk.last[row])
                    if outcome == APPLIED and room is not None and ahead // self.multiple > max(room - walk.used, 1):
                        missing = max(room - walk.used, 1)  # the others wait their turn, as the observation does
                        request.left_out[item] = request.left_out.get(item, 0) + missing
                        within = row, walk.ends[row] + (missing - 1) * self.multiple
                        walk.used = room
                        break
                    if outcome == APPLIED and ahead:
                        request.left_out[item] = left_out
                        walk.used += ahead // self.multiple
                request.outcomes.append(outcome)
                if outcome == APPLIED:
                    walk.ends[row] = ordinal + self.multiple
                    walk.last[row] = max(walk.last.get(row, NO_SEQUENCE), sequence)
                    applied.append((place, row))
            chosen.append(np.array(applied, np.int64).reshape(-1, 2))
        pick = lambda name: np.concatenate(  # noqa: E731
            [getattr(one.observations, name)[places[:, 0]] for one, places in zip(requests, chosen, strict=True)]
        )
        columns = {name: pick(name) for name in ("ordinals", "sequences", "values", "covariates")}
        steps = Steps(number, list(walk.new), np.concatenate([places[:, 1] for places in chosen]), **columns)
        return steps if within is None else _with_missing(steps, *within)

    def _begins(self, count: int, ordinal: int, latest: int | None) -> str:
        if self.has_static_numbers:
            return "unknown"
        if latest is not None and ordinal > latest:
            return "gap"
        return APPLIED if count < self.max_items else "full"

    def _follows(self, ahead: int, left_out: int, sequence: int, last: int) -> str:
        if sequence != NO_SEQUENCE and sequence <= last:
            return REPEATED
        if ahead % self.multiple:
            return "grid"
        if ahead < 0:
            return REPEATED if ahead == -self.multiple else LATE
        if ahead and left_out > self.max_gap:
            return "gap"
        return "covariates" if ahead and self.has_covariates else APPLIED


def _with_missing(steps: Steps, row: int, ordinal: int) -> Steps:
    """Return a micro-batch that ends within a gap of a series, at a step that is missing."""
    return replace(
        steps,
        rows=np.append(steps.rows, row),
        ordinals=np.append(steps.ordinals, ordinal),
        sequences=np.append(steps.sequences, NO_SEQUENCE),
        values=np.concatenate([steps.values, np.full((1, steps.values.shape[1]), np.nan)]),
        covariates=np.concatenate([steps.covariates, np.zeros((1, steps.covariates.shape[1]))]),
    )


class _Walk:
    """Where series stand while a micro-batch is sifted."""

    def __init__(self, known: Rows) -> None:
        self.known = known
        self.new: dict[str, int] = {}
        self.ends: dict[int, int] = {}  # of series that it names
        self.last: dict[int, int] = {}  # their sequence numbers
        self.used = 0

    @property
    def count(self) -> int:
        """Return the number of series."""
        return len(self.known) + len(self.new)

    def row_of(self, item: str) -> int:
        """Return the row of a series, -1 where it is not known."""
        row = self.known.index.get(item)
        if row is None:
            return self.new.get(item, -1)
        if row not in self.ends:
            self.ends[row], self.last[row] = int(self.known.end[row]), int(self.known.sequence[row])
        return row

    def begin(self, item: str) -> int:
        """Return the row of a series that begins."""
        row = self.new[item] = self.count
        return row
