"""From data entries with clocks of their own to the batches of models in continuous time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.timed_entries import cut, with_ticks
from tsforecast.data.transform import standardised
from tsforecast.models import AbstractForecaster, Batch
from tsforecast.wording import listed

_LATEST = 2.0**40  # units of time that may pass between two observations


@dataclass(frozen=True)
class Clock:
    """What turns times into gaps and phases, and series into their places in a model."""

    unit: int  # of time, in nanoseconds
    cycles: tuple[int, ...] = ()  # lengths of the cycles whose phases a batch carries, in nanoseconds
    # Length of a cell of time, in nanoseconds; 0 for none. Where there are cells, a batch has moments without
    # observation at their ends, and says how many cells have passed before each moment.
    cell: int = 0
    num_targets: int = 1  # components of the target
    cardinality: tuple[int, ...] = ()  # number of values of each static category
    items: tuple[str, ...] = ()  # identifiers of the series seen in training; others have the number 0
    dynamic_units: tuple[tuple[float, float], ...] = ()  # (mean, standard deviation) of each covariate in training
    index: dict[str, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {item: place + 1 for place, item in enumerate(self.items)})

    @classmethod
    def of(
        cls, net: AbstractForecaster, items: Sequence[str], dynamic_units: Sequence[Sequence[float]] = ()
    ) -> "Clock":
        """Return the clock of a model that was made for these series and covariates of these units."""
        data, unit = net.data, net.hyperparameters.get("unit", 1)
        cycles = tuple(getattr(net.dynamics, "cycles", ()))
        units = tuple((float(mean), float(deviation)) for mean, deviation in dynamic_units)
        cell = int(getattr(net.dynamics, "cell", 0))
        return cls(unit, cycles, cell, data.num_targets, tuple(data.cardinality), tuple(items), units)

    def features(self, times: NDArray[np.int64], last: int | None) -> NDArray[np.float64]:
        """Return the gap before each time, None before the first, in units, and shares of cycles passed."""
        since = times[:1] if last is None else last
        gaps = np.diff(times, prepend=since) / self.unit
        if len(gaps) and gaps.max() > _LATEST:
            raise ValueError(
                f"expected at most {_LATEST:.0f} times the median gap between observations, got {gaps.max():.3g}"
            )
        features = [gaps, *[(times % cycle) / cycle for cycle in self.cycles]]
        if self.cell:  # a moment at the end of a cell belongs to it
            passed = np.diff((times - 1) // self.cell, prepend=(np.asarray(since) - 1) // self.cell)
            features.append(passed * (self.cell / self.unit))
        return np.stack(features, axis=-1)

    @property
    def num_features(self) -> int:
        """Return the number of features of a moment."""
        return 1 + len(self.cycles) + bool(self.cell)

    def ticked(self, entry: Mapping[str, Any], last: int | None = None) -> tuple[Mapping[str, Any], NDArray[np.int64]]:
        """Return an entry with a moment at the end of each cell, where there are cells; and the places of its own."""
        if not self.cell or not len(entry["times"]):
            return entry, np.arange(len(entry["times"]))
        return with_ticks(entry, self.cell, last, [mean for mean, _ in self.dynamic_units])

    def past(self, windows: Sequence[Mapping[str, Any]], last: Sequence[int] | None = None) -> Batch:
        """Return the past of a batch, padded at its beginning by moments without observations."""
        begins = [None] * len(windows) if last is None else last
        ticked, places = zip(*map(self.ticked, windows, begins), strict=True)
        length = max(len(window["times"]) for window in ticked)
        count, size = len(windows), self.num_targets
        target = np.zeros((count, length, size))
        observed = np.zeros((count, length, size), bool)
        features = np.zeros((count, length, self.num_features))
        inputs = np.zeros((count, length, len(self.dynamic_units)))
        ticks = np.ones((count, length), bool)
        for row, window in enumerate(ticked):
            values = np.atleast_2d(window["target"]).T
            self._check(window, values)
            first, known = length - len(values), np.isfinite(values)
            target[row, first:], observed[row, first:] = np.where(known, values, 0.0), known
            own = self.features(window["times"], begins[row])
            features[row, first:] = own
            stop = 1 + len(self.cycles)
            features[row, :first, 1:stop] = own[:1, 1:stop]  # the state waits where it begins
            inputs[row, first:] = self.standardised(window)
            ticks[row, first + places[row]] = False
        if last is not None:  # waiting comes before the gap; then the first observation
            assert all(len(window["times"]) for window in windows)
        tensors = {"past_target": target, "past_observed": observed, "past_time_feat": features}
        tensors["past_dynamic_real"] = inputs
        batch: Batch = {name: torch.as_tensor(values) for name, values in tensors.items()}
        if self.cell:
            batch["past_is_tick"] = torch.as_tensor(ticks)
        batch["past_is_pad"] = torch.zeros(count, length, dtype=torch.bool)
        batch["past_season_index"] = torch.zeros(count, length, 0, dtype=torch.long)
        batch["series_index"] = torch.tensor([self.index.get(str(w.get("item_id")), 0) for w in windows])
        codes = [w.get("feat_static_cat", np.full(len(self.cardinality), -1)) for w in windows]
        batch["static_cat"] = torch.as_tensor(np.stack(codes).astype(np.int64)[:, : len(self.cardinality)])
        batch["static_real"] = torch.zeros(count, 0, dtype=torch.float64)
        return batch

    def future(self, windows: Sequence[Mapping[str, Any]], last: Sequence[int], with_targets: bool = False) -> Batch:
        """Return the future of a batch; shorter ones are padded at their end by the last moment."""
        windows = [self.ticked(window, end)[0] for window, end in zip(windows, last, strict=True)]
        length, count = max(len(window["times"]) for window in windows), len(windows)
        features = np.zeros((count, length, self.num_features))
        inputs = np.zeros((count, length, len(self.dynamic_units)))
        values = np.full((count, length, self.num_targets), np.nan)
        for row, window in enumerate(windows):
            stop = len(window["times"])
            features[row, :stop] = self.features(window["times"], last[row])
            inputs[row, :stop] = self.standardised(window)
            if with_targets:
                values[row, :stop] = np.atleast_2d(window["target"]).T
        batch: Batch = {"future_time_feat": torch.as_tensor(features), "future_dynamic_real": torch.as_tensor(inputs)}
        batch["future_season_index"] = torch.zeros(count, length, 0, dtype=torch.long)
        batch["known_future"] = torch.full((count, length, self.num_targets), torch.nan, dtype=torch.float64)
        if with_targets:
            batch["future_target"] = torch.as_tensor(np.nan_to_num(values))
            batch["future_observed"] = torch.as_tensor(np.isfinite(values))
        return batch

    def standardised(self, window: Mapping[str, Any]) -> NDArray[np.float64]:
        """Return covariates of an entry in units of training, (time, covariate); a ValueError for others."""
        count = len(window["times"])
        values = window.get("feat_dynamic_real", np.zeros((0, count)))
        if np.shape(values) != (len(self.dynamic_units), count):
            raise ValueError(
                f"series {window.get('item_id')!r}: expected {len(self.dynamic_units)} covariates at each of {count} "
                f"times, as in training, got feat_dynamic_real of shape {np.shape(values)}"
            )
        return standardised(values.T, np.reshape(self.dynamic_units, (-1, 2)))

    def _check(self, entry: Mapping[str, Any], values: NDArray[np.float64]) -> None:
        item = entry.get("item_id")
        if values.shape[1] != self.num_targets:
            raise ValueError(f"series {item!r}: expected {self.num_targets} targets, got {values.shape[1]}")
        codes = np.atleast_1d(entry.get("feat_static_cat", np.full(len(self.cardinality), -1)))
        if self.cardinality and (len(codes) != len(self.cardinality) or (codes >= self.cardinality).any()):
            raise ValueError(
                f"series {item!r}: expected static categories below {listed(self.cardinality)}, got {codes.tolist()}"
            )


@dataclass(eq=False, repr=False)
class WindowLoader:
    """Batches of training windows; those of an epoch follow from (seed, epoch) alone."""

    entries: Sequence[Mapping[str, Any]]  # of two observations at least
    clock: Clock
    past: int  # observations of a window, at most
    future: int  # observations, at most; at most a quarter of a series
    batch_size: int  # windows in a batch
    num_batches: int  # in an epoch
    seed: int

    def __post_init__(self) -> None:
        self.epoch = 0
        self.sampler = self  # where Lightning looks for `set_epoch`
        self.batch_sampler = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch which the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Batch]:
        rng = np.random.default_rng([self.seed % 2**63, self.epoch])
        order: list[int] = []
        for _ in range(self.num_batches):
            while len(order) < self.batch_size:
                order += rng.permutation(len(self.entries)).tolist()
            chosen, order = order[: self.batch_size], order[self.batch_size :]
            yield self._batch([self._cut(self.entries[k], rng) for k in chosen])

    def _cut(self, entry: Mapping[str, Any], rng: np.random.Generator) -> tuple[Mapping[str, Any], int]:
        """A window of an entry, and how many of its observations are its past."""
        length = len(entry["times"])
        future = max(min(self.future, length // 4), 1)
        least = max(min(self.past, 2 * (length - future) // 3), 1)
        split = int(rng.integers(least, length - future + 1))
        first = max(split - self.past, 0)
        return cut(entry, first, split + future), split - first

    def _batch(self, cuts: Sequence[tuple[Mapping[str, Any], int]]) -> Batch:
        pasts = [cut(window, stop=split) for window, split in cuts]
        later = [cut(window, split) for window, split in cuts]
        last = [int(window["times"][-1]) for window in pasts]
        return self.clock.past(pasts) | self.clock.future(later, last, with_targets=True)
