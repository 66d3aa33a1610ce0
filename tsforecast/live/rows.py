"""The state of all series in a service: stacked beliefs, and the end of each series."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NO_SEQUENCE = np.iinfo(np.int64).min  # of a series whose observations have had no numbers


@dataclass(frozen=True)
class News:
    """Steps that series move on by, one series behind the other: a long one does not lengthen the others."""

    # Values and standardised covariates (step, target + covariate), NaN where missing. Behind curves of covariates, see
    # `tsforecast.live.curves`, their effect stands in the place of covariates.
    steps: NDArray[np.float64]
    lengths: NDArray[np.int64]  # number of steps of each series
    stops: NDArray[np.int64]  # where those of each series end

    @classmethod
    def missing(cls, lengths: NDArray[np.int64], width: int) -> "News":
        """Return steps without any known value."""
        stops = np.cumsum(lengths)
        return cls(np.full((int(stops[-1]) if len(stops) else 0, width), np.nan), lengths, stops)

    def before_end(self, places: NDArray[np.int64], first: int, last: int = 0) -> NDArray[np.float64]:
        """Return steps (series, step, target + covariate) of some series, from `first` to `last` before their ends."""
        return self.steps[self.stops[places][:, None] - np.arange(first, last, -1)]

    def of(self, place: int) -> NDArray[np.float64]:
        """Return all steps of a series."""
        return self.steps[self.stops[place] - self.lengths[place] : self.stops[place]]


@dataclass
class Rows:
    """Series, a row for each; arrays have room for more rows than there are."""

    parts: list[Tensor]  # stacked beliefs, see `tsforecast.live.layout.Layout`
    exponents: NDArray[np.int64]  # exponents of the powers of two by which targets are divided, (row, target)
    end: NDArray[np.int64]  # ordinal of the first period that has not been seen
    sequence: NDArray[np.int64]  # last number of an observation, or `NO_SEQUENCE`
    # The last values and standardised covariates (row, time, target + covariate) up to `end`, NaN where missing. A
    # learner reads them; without one they have no steps.
    recent: NDArray[np.float64]
    seen: NDArray[np.int64]  # number of steps since a series began, up to those of `recent`
    # What curves of covariates know of the past, (row, number); without curves there are no numbers.
    memory: NDArray[np.float64]
    num_covariates: int  # numbers that come with an observation
    names: list[str] = field(default_factory=list)  # names of the series, in the order of rows
    index: dict[str, int] = field(default_factory=dict)  # row by name
    # Values and standardised covariates (time, target + covariate) that end at `end`, by row, of series that have seen
    # few values. Their beliefs are filtered anew from these.
    young: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls, parts: Sequence[Tensor], num_targets: int, num_covariates: int, recent: int = 0, memory: int = 0
    ) -> "Rows":
        """Return no rows."""
        none, kept = np.zeros(0, np.int64), np.zeros((0, memory))
        exponents = np.zeros((0, num_targets), np.int64)
        found = cls(
            [part.clone() for part in parts], exponents, none, none.copy(), kept, none.copy(), kept, num_covariates
        )
        found.recent = np.zeros((0, recent, found.width))
        return found

    @property
    def num_targets(self) -> int:
        """Return the number of targets."""
        return self.exponents.shape[1]

    @property
    def width(self) -> int:
        """Return the numbers of a step that is kept."""
        return self.num_targets + (1 if self.memory.shape[1] else self.num_covariates)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Add rows, filled with zeros, and return their numbers; a ValueError if a name comes twice."""
        first, count = len(self.names), len(self.names) + len(names)
        fresh = {name: first + k for k, name in enumerate(names)}
        if len(fresh) < len(names) or not self.index.keys().isdisjoint(fresh):
            twice = next(name for k, name in enumerate(names) if name in self.index or fresh[name] != first + k)
            raise ValueError(f"expected a name of its own for each series, got {twice!r:.80} twice")
        self._reserve(count)
        self.names += names
        self.index |= fresh
        self.sequence[first:count] = NO_SEQUENCE
        return np.arange(first, count)

    def gather(self, rows: NDArray[np.int64]) -> list[Tensor]:
        """Return parts of some rows."""
        places = torch.from_numpy(rows)
        return [part.index_select(0, places.to(part.device)) for part in self.parts]

    def scatter(self, rows: NDArray[np.int64], parts: Sequence[Tensor]) -> None:
        """Replace parts of some rows; each row is named once."""
        places = torch.from_numpy(rows)
        for mine, given in zip(self.parts, parts, strict=True):
            mine.index_copy_(0, places.to(mine.device), given.to(mine.dtype))

    def remember(self, rows: NDArray[np.int64], news: News) -> None:
        """Keep the steps that rows, each named once, have moved on by."""
        most = self.recent.shape[1]
        for length in np.unique(news.lengths).tolist() if most else ():
            places = np.flatnonzero(news.lengths == length)
            some, fresh = rows[places], news.before_end(places, min(length, most))
            kept = self.recent[some][:, fresh.shape[1] :]
            self.recent[some] = np.concatenate([kept, fresh], 1)
            self.seen[some] = np.minimum(self.seen[some] + length, most)

    def _reserve(self, count: int) -> None:
        """Makes room, half as much again as there was, so that adding rows one by one takes linear time."""
        room = len(self.end)
        if count <= room:
            return
        more = max(count, room + room // 2, 16) - room
        self.parts = [torch.cat([part, part.new_zeros(more, *part.shape[1:])]) for part in self.parts]
        for name in ("exponents", "end", "sequence", "recent", "seen", "memory"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros((more, *old.shape[1:]), old.dtype)]))
