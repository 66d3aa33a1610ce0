"""Batches of the windows of an epoch, for one process or several."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress, count
from typing import Any

import numpy as np
from gluonts.transform import TransformedDataset

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.magnitude import find_exponents
from tsforecast.data.windows import collate, cut, first_value, since_first_value

_LATENESS = 3  # power of a uniform number by which splits of growing windows are drawn: half of them in the last eighth


def alone() -> tuple[int, int]:
    """Return the rank of a process that trains alone, and the number of processes."""
    return 0, 1


@dataclass(eq=False, repr=False)
class EpochLoader:
    """Batches of training windows; the order and the windows of an epoch follow from (seed, epoch) alone.

    A series begins at its first value, and so does a window.

    Lightning tells the epoch through `set_epoch`, so a resumed run sees what the uninterrupted one would have seen.

    Where several processes train together, `place` tells the rank of this one and their number. All draw the same
    windows, of as many batches as there are processes, and each takes its own. So all have as many steps, and together
    they see what one process with batches as large as all of theirs would have seen. Of `StreamedEntries` each reads
    parts of its own, as often as its steps need. Windows to validate on are the same for all.

    A checkpoint within an epoch holds how many batches have been made (`state_dict`): a resumed run goes on behind
    them.
    """

    data: Iterable[dict[str, Any]]  # prepared entries, walked through again for every pass
    past: int | None  # steps of a window, at most two thirds of what there is: windows differ; None for whole series
    future: int  # steps of it
    batch_size: int  # windows in a batch
    num_batches: int | None  # in an epoch, passing over the data as often as needed; None for one pass
    seed: int | None = None  # None for an order that is not reproducible
    recent: int | None = None  # steps at the end of each series from which windows are taken; None for all
    # Take the last window of every series, in order (validation); none of series that are no longer than the future.
    at_end: bool = False
    buffer: int = 4096  # windows among which the order is shuffled
    scaling_length: int | None = None  # of a model that the unit of the data does not matter to, see `find_exponents`
    # Number of entries. Where an epoch has fewer windows, a sample of them is drawn; None for a walk from the first on.
    count: int | None = None
    # Whether a window has all of the past before its split, up to `past` steps, as a prediction has it. Late splits are
    # then drawn more often, since it is the end that a forecast begins at.
    growing: bool = False

    def __post_init__(self) -> None:
        self._seed = (int(np.random.SeedSequence().generate_state(1)[0]) if self.seed is None else self.seed) % 2**63
        self.epoch = 0
        self.made = 0  # batches of this epoch
        self.begin = 0  # batches of this epoch that a resumed run has seen
        self.place: Callable[[], tuple[int, int]] = alone
        self.sampler = self  # where Lightning looks for `set_epoch`
        self.batch_sampler = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next iteration."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.num_batches is None:  # then Lightning takes it as endless, and knows no schedule
            raise TypeError("the number of batches is not known before a pass over the data")
        return self.num_batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rank, processes = (0, 1) if self.at_end else self.place()
        seed = [self._seed, self.epoch]
        if self._streamed is not None and processes > 1:  # each process has entries, and draws windows, of its own
            seed, rank, processes = [*seed, rank], 0, 1
        rng = np.random.default_rng(seed)
        batch: list[dict[str, Any]] = []
        begin, self.begin, self.made = self.begin, 0, 0
        for window in self._windows(rng, processes) if self.at_end else self._shuffled(rng, processes):
            batch.append(window)
            if len(batch) == self.batch_size * processes:
                self.made += 1
                if self.made > begin:
                    yield self._collated(batch[rank::processes])
                batch = []
                if self.made == self.num_batches:
                    return
        if batch[rank::processes]:
            self.made += 1
            yield self._collated(batch[rank::processes])

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches already made in the epoch."""
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Leaves out the batches that have been made, in the next iteration; none after a whole epoch."""
        made, most = state["made"], self.num_batches
        if most is not None and made > most:
            raise ValueError(f"expected a checkpoint of an epoch of {most} batches, got one after {made}")
        self.begin = 0 if made == most else made

    @property
    def _streamed(self) -> StreamedEntries | None:
        """The entries behind the data, where they are read part by part."""
        base = self.data.base_dataset if isinstance(self.data, TransformedDataset) else self.data
        return base if isinstance(base, StreamedEntries) else None

    def _collated(self, windows: list[dict[str, Any]]) -> dict[str, Any]:
        exponents = None if self.scaling_length is None else find_exponents(windows, self.scaling_length)
        return collate(windows, exponents=exponents)

    def _shuffled(self, rng: np.random.Generator, processes: int) -> Iterator[dict[str, Any]]:
        pool: list[dict[str, Any]] = []
        for window in self._windows(rng, processes):
            if len(pool) < self.buffer:
                pool.append(window)
                continue
            position = int(rng.integers(self.buffer))
            yield pool[position]
            pool[position] = window
        for position in rng.permutation(len(pool)):
            yield pool[position]

    def _windows(self, rng: np.random.Generator, processes: int) -> Iterator[dict[str, Any]]:
        remaining = None if self.num_batches is None else self.num_batches * self.batch_size * processes
        data = self.data
        if remaining is not None and self._streamed is None:
            data = _sampled(data, self.count, remaining, rng)
        for walk in count():
            if self._streamed is not None and remaining is not None:
                data = self._drawn(self._streamed, walk)
            walked = remaining
            for entry in data:
                length = len(entry["target"])
                last = length - self.future
                if last < 1 and self.at_end:
                    continue
                begin = min(first_value(entry["target"], entry["observed"]), last - 1)
                if self.recent is not None:
                    begin = max(begin, length - max(self.recent, self.future + 1))
                past = last - begin
                if self.past is not None:  # a third of a short series is left to choose the split from
                    past = min(self.past, past if self.at_end else max(2 * past // 3, 1))
                first = last if self.at_end else begin + past
                if self.growing and self.past is not None:
                    split = last - int((last + 1 - first) * rng.random() ** _LATENESS)
                    past = min(self.past, split - begin)
                else:
                    split = int(rng.integers(first, last + 1))
                yield since_first_value(cut(entry, split, past, self.future))
                if remaining is not None:
                    remaining -= 1
                    if remaining == 0:
                        return
            if remaining is None:
                return
            if walked == remaining:
                raise ValueError(f"process {self.place()[0]} has no series: take fewer processes than series")

    def _drawn(self, entries: StreamedEntries, walk: int) -> Iterable[dict[str, Any]]:
        """Prepared entries of this process, in the order of a walk of an epoch."""
        rank, processes = self.place()
        rng = np.random.default_rng([self._seed, self.epoch, walk, rank])
        drawn = entries.drawn(rng, rank, processes)
        return self.data.transformation(drawn, True) if isinstance(self.data, TransformedDataset) else drawn


def _sampled(
    data: Iterable[dict[str, Any]], count: int | None, wanted: int, rng: np.random.Generator
) -> Iterable[dict[str, Any]]:
    """Return so many entries, drawn at random, or all if there are no more; entries that are not drawn stay raw."""
    if count is None or wanted >= count:
        return data
    drawn = np.zeros(count, dtype=bool)
    drawn[rng.choice(count, wanted, replace=False)] = True
    if isinstance(data, TransformedDataset):
        return data.transformation.apply(list(compress(data.base_dataset, drawn)), data.is_train)  # pyright: ignore
    return list(compress(data, drawn))
