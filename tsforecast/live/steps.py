"""A micro-batch: observations that are applied together, their form in the log, and what they change."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.live.rows import News, Rows

_HEAD = struct.Struct("<QIIII")


@dataclass(frozen=True)
class Steps:
    """Observations that have passed the rules, in their order of arrival; none where a period of `Learning` ends.

    Those of a series are in the order of time, behind its end and on its grid of periods.
    """

    number: int  # of the micro-batch, from 0 on
    names: list[str]  # of the series that begin with it; their rows follow the last
    rows: NDArray[np.int64]  # of the series of each observation
    ordinals: NDArray[np.int64]  # of the period of each observation
    sequences: NDArray[np.int64]  # its number, or `NO_SEQUENCE`
    values: NDArray[np.float64]  # targets (observation, target), NaN where missing
    covariates: NDArray[np.float64]  # standardised (observation, covariate)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return what there is of each observation."""
        return self.rows, self.ordinals, self.sequences, self.values, self.covariates

    def some(self, places: Any, names: Sequence[str] = ()) -> "Steps":
        """Return the observations at some places, with names of series that begin with them."""
        return Steps(self.number, list(names), *(array[places] for array in self.arrays))

    def fits(self, known: Rows) -> bool:
        """Return whether series and numbers are such as the rows have, and no observation lies before its series."""
        count = len(known) + len(self.names)
        if (self.values.shape[1], self.covariates.shape[1]) != (known.num_targets, known.num_covariates):
            return False
        if not ((self.rows >= 0) & (self.rows < count)).all():
            return False
        old = self.rows < len(known)
        return bool((self.ordinals[old] >= known.end[self.rows[old]]).all())

    def split(self, parts: NDArray[np.int64], known: int) -> "list[Steps]":
        """Return micro-batches by the number of the part that each observation belongs to, in their order.

        Args:
            parts: From 0 on; they do not fall within a series. A number that no observation has gives one without any.
            known: Series before this micro-batch. Those that begin have their rows in the order of the parts.
        """
        new = self.rows - known
        begin = np.full(len(self.names), np.iinfo(np.int64).max)
        np.minimum.at(begin, new[new >= 0], parts[new >= 0])
        order = np.argsort(begin, kind="stable")
        moved = np.empty_like(order)
        moved[order] = np.arange(len(order))
        rows = self.rows.copy()
        rows[new >= 0] = known + moved[new[new >= 0]]
        renumbered = replace(self, rows=rows)
        return [
            renumbered.some(parts == part, [self.names[place] for place in order if begin[place] == part])
            for part in range(int(parts.max()) + 1)
        ]

    def to_bytes(self) -> bytes:
        """Return the form in the log."""
        count, targets = self.values.shape
        names = orjson.dumps(self.names)
        head = _HEAD.pack(self.number, count, targets, self.covariates.shape[1], len(names))
        return b"".join([head, names, *(array.tobytes() for array in self.arrays)])

    @classmethod
    def from_bytes(cls, contents: bytes) -> "Steps":
        """Return the micro-batch that `to_bytes` wrote; a ValueError if it is something else."""
        try:
            number, count, targets, covariates, length = _HEAD.unpack_from(contents)
            names = orjson.loads(contents[_HEAD.size : _HEAD.size + length])
            numbers = np.frombuffer(contents[_HEAD.size + length :], np.int64).copy()
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise ValueError("names that are no text")
            if len(numbers) != count * (3 + targets + covariates):
                raise ValueError(f"{len(numbers)} numbers")
        except (struct.error, ValueError) as error:
            raise ValueError(f"expected a micro-batch, got {len(contents)} other bytes ({error})") from error
        rows, ordinals, sequences = numbers[: 3 * count].reshape(3, count)
        floats = numbers[3 * count :].view(np.float64)
        values = floats[: count * targets].reshape(count, targets)
        return cls(
            number, names, rows, ordinals, sequences, values, floats[count * targets :].reshape(count, covariates)
        )


@dataclass
class Moved:
    """The changes by a micro-batch; nothing has changed yet."""

    steps: Steps  # the micro-batch
    rows: NDArray[np.int64]  # of the series that it moves, each once
    end: NDArray[np.int64]  # their ends after it
    news: News  # steps by which it moves them
    memory: NDArray[np.float64]  # of them behind these, see `tsforecast.live.curves`
    old: tuple[NDArray[np.int64], list[Tensor]]  # rows of those that go on from their beliefs, and their new parts
    young: tuple[NDArray[np.int64], list[Tensor]]  # likewise of those whose histories were filtered anew
    exponents: NDArray[np.int64]  # of the latter
    histories: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # of the latter, while they stay young
    far: int = 0  # number of values that were too far from the others, and count as missing


@dataclass
class Begun:
    """Series with filtered histories."""

    parts: list[Tensor]  # of their beliefs
    exponents: NDArray[np.int64]  # of the powers of two by which their targets are divided
    sizes: NDArray[np.float64]  # of the series behind curves of covariates; none without
    histories: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # by row, of those which stay young
    far: int = 0  # number of values that were too far from the others
