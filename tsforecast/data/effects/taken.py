"""Effects that were taken from targets, on their way back into forecasts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.effects.effects import Effects
from tsforecast.data.effects.link import restored

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Taken:
    """Effects that were taken from the targets of a batch of series.

    Attributes:
        effect: At each step, (series, time).
        link: Bend, size and lowest value of each series, see `Effects.adjusted`.
    """

    effect: Array
    link: Array

    @classmethod
    def of_batch(cls, batch: dict[str, Any], part: str) -> "Taken | None":
        """Return those of the `past` or `future` of a batch; None where it has none."""
        name = f"{part}_effect"
        return cls(batch[name].cpu().numpy(), batch["link"].cpu().numpy()) if name in batch else None

    def of(self, rows: slice) -> "Taken":
        """Return those of some of the series."""
        return Taken(self.effect[rows], self.link[rows])

    def restored(self, values: Array) -> Array:
        """Return values (..., series, time, target) with the effects."""
        return restored(values, self.effect[..., None], self.link.T[..., None, None])


class Adjusted:
    """Entries without their effects, each made once: a training walks through them many times.

    Args:
        entries: GluonTS data entries.
        effects: Which are taken from their targets.
    """

    def __init__(self, entries: Iterable[dict[str, Any]], effects: Effects) -> None:
        self._entries, self._effects = entries, effects

    @cached_property
    def _adjusted(self) -> list[dict[str, Any]]:
        return [self._effects.adjusted(entry) for entry in self._entries]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._adjusted)

    def __len__(self) -> int:
        return len(self._adjusted)
