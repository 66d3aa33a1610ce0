"""Sums of series: which series each has, and their values."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.calendar.stamps import stamp_of
from tsforecast.data.magnitude import compact
from tsforecast.data.tables.naming import CELLS
from tsforecast.wording import counted, listed

log = logging.getLogger(__name__)

_FILLED = 0.1  # share of a sum that may come from gaps of its series
_NEAR = 1e-4  # relative difference of a sum in the data and the sum of its series that is rounding

Node = TypeVar("Node")


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Sums of series."""

    bottoms: tuple[str, ...]  # names of the series at the bottom
    aggregates: tuple[str, ...]  # names of the sums
    sums: Any  # weights of the series in each sum, mostly 1: a sparse array
    # Cells that name each sum in the columns of the data, by its name; empty for a summing matrix.
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse sums of single series alone."""
        if not (np.diff(self.sums.indptr) > 1).any():
            raise ValueError(
                "expected a hierarchy in which one sum at least has two series, got "
                f"{len(self.bottoms)} series below {counted(len(self.aggregates), 'sum')}"
            )

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sums that differ from all before and from every series, and the node of each sum among these.

        Nodes are these sums, then the series.
        """
        known: dict[bytes, int] = {}
        kept, nodes = [], []
        for row in range(len(self.aggregates)):
            own = slice(self.sums.indptr[row], self.sums.indptr[row + 1])
            members, weights = self.sums.indices[own], self.sums.data[own]
            if len(members) == 1 and weights[0] == 1:
                nodes.append(-1 - int(members[0]))
                continue
            order = np.argsort(members)
            key = members[order].tobytes() + weights[order].tobytes()
            if key not in known:
                known[key] = len(kept)
                kept.append(row)
            nodes.append(known[key])
        places = np.array(nodes, np.int64)
        return np.array(kept, np.int64), np.where(places < 0, len(kept) - 1 - places, places)

    def expanded(self, nodes: Sequence[Node]) -> list[Node]:
        """Return a list by sums and series from a list by nodes."""
        kept, places = self.places
        return [*(nodes[place] for place in places), *nodes[len(kept) :]]

    @property
    def distinct(self) -> Any:
        """Return the weights of the sums that differ."""
        return self.sums[self.places[0]].tocsr()


def sums_of(tree: Hierarchy, entries: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries of the sums that differ."""
    bottoms = [entries[name] for name in tree.bottoms]
    starts = np.array([entry["start"].ordinal for entry in bottoms]) // bottoms[0]["start"].freq.n
    first = bottoms[int(np.argmin(starts))]
    before = starts - starts.min()
    values = _aligned(bottoms, before, "target")[0]
    totals = _totals(tree, values, [str(entry["item_id"]) for entry in bottoms])
    covariates = None
    if all("feat_dynamic_real" in entry for entry in bottoms):
        log.info("covariates of a sum are the means of those of its series")
        covariates = _aligned(bottoms, before, "feat_dynamic_real")
    for row, own in zip(tree.places[0], totals[tree.places[0]], strict=True):
        name = tree.aggregates[row]
        if name in entries:
            own = _agreed(name, own, entries[name], first)
        info = {key: value for key, value in (first.get("info") or {}).items() if key != CELLS}
        info |= {CELLS: tree.cells[name]} if len(tree.cells.get(name, ())) > 1 else {}
        entry = {"item_id": name, "start": first["start"], "target": compact(own[None])[0]}
        if covariates is not None:
            share = abs(tree.sums[[row]])
            seen = share @ (~np.isnan(covariates[0])).astype(float)
            means = [(share @ np.nan_to_num(one) / np.maximum(seen, 1e-300))[0] for one in covariates]
            entry["feat_dynamic_real"] = compact(np.stack(means))
        yield entry | ({"info": info} if info else {})


def _aligned(bottoms: Sequence[dict[str, Any]], before: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    """Return the values of all series from the first start on, (row, series, time), NaN before the start of each."""
    rows = [np.atleast_2d(np.asarray(entry[name], np.float64)) for entry in bottoms]
    length = max(skip + row.shape[1] for skip, row in zip(before, rows, strict=True))
    values = np.full((len(rows[0]), len(rows), length), np.nan)
    for place, (skip, row) in enumerate(zip(before, rows, strict=True)):
        values[:, place, skip : skip + row.shape[1]] = row
    return values


def _totals(tree: Hierarchy, values: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float64]:
    """Return the sums (aggregate, time); NaN before their series begin, and where gaps are too large a part.

    A series counts as 0 before its first value. Gaps behind it are filled along a line between their neighbours.
    """
    known, steps = ~np.isnan(values), np.arange(values.shape[1])
    begun = np.maximum.accumulate(known, axis=1)
    filled = np.zeros_like(values)
    for row, own in enumerate(known):
        if own.any():
            filled[row] = np.where(begun[row], np.interp(steps, steps[own], values[row, own]), 0.0)
    gaps = begun & ~known
    size = abs(tree.sums)
    total, part, whole = tree.sums @ filled, size @ (gaps * np.abs(filled)), size @ np.abs(filled)
    is_begun = size @ begun.astype(float) > 0
    is_open = (size @ gaps.astype(float) > 0) & ((part > _FILLED * whole) | (whole == 0))
    late = [name for name, row in zip(names, begun, strict=True) if row.any() and not row[0]]
    if late:
        log.info("%d series begin after others (%s): sums count them as 0 before", len(late), listed(late, 5))
    if gaps.any():
        log.info(
            "series have gaps: of %d steps of sums %d hold values along a line between neighbours, up to %d %% of the "
            "sum; %d have more of these and are missing",
            *(is_begun.sum(), ((part > 0) & ~is_open).sum(), 100 * _FILLED, (is_begun & is_open).sum()),
        )
    return np.where(is_begun & ~is_open, total, np.nan)


def _agreed(name: str, total: NDArray[np.float64], entry: dict[str, Any], first: dict[str, Any]) -> NDArray[np.float64]:
    """Return a sum with the values that the data give it, which must agree with it."""
    skip = (entry["start"].ordinal - first["start"].ordinal) // entry["start"].freq.n
    target = np.asarray(entry["target"], np.float64)
    given = np.full(len(total), np.nan)
    source = target[max(-skip, 0) : len(total) - skip]
    given[max(skip, 0) : max(skip, 0) + len(source)] = source
    both = ~np.isnan(given) & ~np.isnan(total)
    size = np.abs(total[both]).mean() if both.any() else 0.0
    far = both & (np.abs(given - total) > _NEAR * np.maximum(np.abs(np.nan_to_num(total)), size))
    if far.any():
        step = int(np.argmax(far))
        raise ValueError(
            f"{name!r} is {given[step]:g} at {stamp_of(first['start'] + step, first.get('info'))}, but the sum of its "
            f"series is {total[step]:g}, and differs at {counted(int(far.sum()), 'step')}: correct the data, or leave "
            "out the rows of sums, which are then made"
        )
    return np.where(np.isnan(total), given, total)
