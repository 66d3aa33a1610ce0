"""Series in parts that are read again in every walk, so that no more than one part is in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from gluonts.dataset.field_names import FieldName

Entry = dict[str, Any]


@dataclass(frozen=True)
class StreamedEntries(Sequence[Entry]):
    """Data entries in parts, one part at a time in memory.

    `tsforecast bucket` spreads series over its files by a hash of their names: each part is a random sample of all, and
    a walk through some parts in an order that is drawn (`drawn`) is one through such a sample.
    """

    read: Callable[[int], list[Entry]]  # returns the entries of a part, by its number
    counts: tuple[int, ...]  # number of entries of each part
    identity: str  # what tells these data from others, such as a checksum of all parts
    # Steps at the end of each target that are left out, and covariates behind them; None for whole entries.
    without: int | None = None

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[Entry]:
        for number in range(len(self.counts)):
            yield from self.part(number)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        """Return an entry, or several; the parts that they are in are read for each."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"expected an index below {len(self)}, got {index}")
        ends = np.cumsum(self.counts)
        number = int(np.searchsorted(ends, place, side="right"))
        return self.part(number)[place - int(ends[number] - self.counts[number])]

    def part(self, number: int) -> list[Entry]:
        """Return the entries of a part; a ValueError if there are not as many as there were."""
        found = self.read(number)
        if len(found) != self.counts[number]:
            raise ValueError(
                f"part {number} had {self.counts[number]} series, and has {len(found)} now: the data have changed"
            )
        return found if self.without is None else [shortened(entry, self.without) for entry in found]

    def until(self, steps: int) -> "StreamedEntries":
        """Return the entries without so many steps more at the end, and without covariates behind them."""
        return replace(self, without=(self.without or 0) + steps)

    def drawn(self, rng: np.random.Generator, rank: int = 0, processes: int = 1) -> Iterator[Entry]:
        """Yield the entries of a process in an order that is drawn.

        Args:
            rng: Draws the order.
            rank: Of the process.
            processes: Their number. Each has parts of its own; of fewer parts than processes, series of its own.
        """
        own = np.arange(len(self.counts))
        if len(own) >= processes:
            own, rank, processes = own[rank::processes], 0, 1
        for number in rng.permutation(own):
            entries = self.part(int(number))[rank::processes]
            for place in rng.permutation(len(entries)):
                yield entries[place]

    def sample(self, least: int, seed: int | None) -> list[Entry]:
        """Return all entries of some parts: at least so many, where there are as many."""
        found: list[Entry] = []
        for number in np.random.default_rng(seed).permutation(len(self.counts)):
            if len(found) >= least:
                break
            found += self.part(int(number))
        return found


def shortened(entry: Entry, steps: int) -> Entry:
    """Return an entry without the last steps of its target; its covariates end with the target."""
    length = entry[FieldName.TARGET].shape[-1] - steps
    fields = (FieldName.TARGET, FieldName.FEAT_DYNAMIC_REAL, FieldName.PAST_FEAT_DYNAMIC_REAL)
    names = [name for name in fields if name in entry]
    return {**entry, **{name: np.asarray(entry[name])[..., :length] for name in names}}
