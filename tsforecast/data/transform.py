"""From GluonTS data entries to arrays with calendar, masks and covariates, and to the batches of an epoch."""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import compress, count
from typing import Any

import numpy as np
import pandas as pd
from gluonts.core.component import validated
from gluonts.dataset.field_names import FieldName
from gluonts.time_feature import time_features_from_frequency_str
from gluonts.transform import MapTransformation, TransformedDataset
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.data.frequency import calendar_unit, expected_alias_warnings, offset_alias
from tsforecast.data.magnitude import find_exponents
from tsforecast.data.streamed import StreamedEntries
from tsforecast.data.windows import collate, cut, first_value, since_first_value
from tsforecast.seasons import season_index

log = logging.getLogger(__name__)

_LATENESS = 3  # power of a uniform number by which splits of growing windows are drawn: half of them in the last eighth


@lru_cache(maxsize=256)
def _calendar(start: pd.Period, length: int, seasons: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Time features (time, feature) in [-0.5, 0.5], season indices (time, season); cached: series share starts."""
    return calendar_of(start.ordinal + start.freq.n * np.arange(length), start.freqstr, seasons)


def calendar_of(ordinals: NDArray[np.int64], freq: str, seasons: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Time features (time, feature) in [-0.5, 0.5], and season indices (time, season).

    Args:
        ordinals: Of periods, in any order.
        freq: Their frequency, as `pandas.Period` names it.
        seasons: Names of seasons, see `tsforecast.seasons`.
    """
    with expected_alias_warnings():
        times = pd.PeriodIndex.from_ordinals(ordinals, freq=freq)
        functions = time_features_from_frequency_str(_with_features(freq))
        features = [np.asarray(function(times), dtype=np.float32) for function in functions]
        steps = ordinals // calendar_unit(freq)[0]
        indices = [np.asarray(season_index(name, times, steps), dtype=np.int64) for name in seasons]
    stack = lambda parts, dtype: np.stack(parts, -1).astype(dtype) if parts else np.zeros((len(ordinals), 0), dtype)  # noqa: E731
    return stack(features, np.float32), stack(indices, np.int64)


def _with_features(freq: str) -> str:
    """The frequency whose time features are taken; GluonTS has none below a second."""
    return "s" if calendar_unit(freq)[1] in ("ms", "us", "ns") else offset_alias(freq)


class Prepare(MapTransformation):
    """Turns a data entry into arrays with time first: target, observed, calendar, covariates, identity.

    Args:
        prediction_length: Steps by which calendar and covariates reach beyond the target, at prediction.
        seasons: Names of seasons, see `tsforecast.seasons`.
        items: Identifiers of the series seen in training; others get index 0, "unknown".
        cardinality: Number of values of each static category used.
        static_units: (location, scale) of each static number used: they are standardised.
        dynamic_units: Likewise of each covariate known in advance.
        num_targets: Components of the target.

    Raises:
        ValueError: From its call, if an entry does not have what the model was trained with; the message names the
            series.
    """

    @validated()
    def __init__(
        self,
        prediction_length: int,
        seasons: list[str],
        items: list[str],
        cardinality: list[int],
        static_units: list[list[float]] | None = None,
        dynamic_units: list[list[float]] | None = None,
        num_targets: int = 1,
    ) -> None:
        self.prediction_length = prediction_length
        self.seasons = tuple(seasons)
        self.index = {item: position + 1 for position, item in enumerate(items)}
        self.cardinality = np.asarray(cardinality, dtype=np.int64)
        self.static_units = np.asarray(static_units or [], dtype=np.float64).reshape(-1, 2)
        self.dynamic_units = np.asarray(dynamic_units or [], dtype=np.float64).reshape(-1, 2)
        self.num_targets = num_targets
        self._said_unknown = False

    def map_transform(self, data: dict[str, Any], is_train: bool) -> dict[str, Any]:
        """The prepared entry, its targets in float64; identity fields of the original are kept."""
        target = np.atleast_2d(as_numbers(data[FieldName.TARGET]).astype(np.float64)).T
        self._expect(data, "the target", target.shape[1], self.num_targets)
        length = len(target) + (0 if is_train else self.prediction_length)
        features, seasons = _calendar(data[FieldName.START], length, self.seasons)
        entry: dict[str, Any] = {
            "start": data[FieldName.START],
            "target": np.nan_to_num(target, posinf=0.0, neginf=0.0),
            "observed": np.isfinite(target),
            "time_feat": features,
            "season_index": seasons,
            "series_index": np.int64(self.index.get(str(data.get("item_id")), 0)),
            "static_cat": self._categories(data),
            "static_real": self._static(data, FieldName.FEAT_STATIC_REAL, self.static_units).astype(np.float32),
            "dynamic_real": np.zeros((length, 0), np.float32),
        }
        if len(self.dynamic_units):
            covariates = as_numbers(data.get(FieldName.FEAT_DYNAMIC_REAL, np.zeros((0, length)))).astype(np.float64)
            self._expect(data, FieldName.FEAT_DYNAMIC_REAL, len(covariates), len(self.dynamic_units))
            entry["dynamic_real"] = standardised(covariates.T[:length], self.dynamic_units).astype(np.float32)
        known = np.full((self.prediction_length, target.shape[1]), np.nan)
        if not is_train and data.get("known_future") is not None:
            given = np.atleast_2d(as_numbers(data["known_future"]).astype(np.float64)).T[: self.prediction_length]
            self._expect(data, "known_future", given.shape[1], self.num_targets)
            if np.isinf(given).any():
                raise ValueError(
                    f"series {data.get('item_id')!r}: known_future is infinite; write NaN where it is free"
                )
            known[: len(given)] = given
        entry["known_future"] = known
        return entry | {name: data[name] for name in ("item_id", "info") if name in data}

    def _expect(self, data: dict[str, Any], name: str, size: int, expected: int) -> None:
        if size != expected:
            raise ValueError(
                f"series {data.get('item_id')!r}: expected {name} of {expected} rows, as in the training data, "
                f"got {size}"
            )

    def _static(self, data: dict[str, Any], name: str, units: np.ndarray) -> np.ndarray:
        """Standardised numbers, none if the model uses none."""
        if not len(units):
            return np.zeros(0)
        values = as_numbers(data.get(name, ())).astype(np.float64).reshape(-1)
        self._expect(data, name, len(values), len(units))
        return standardised(values, units)

    def _categories(self, data: dict[str, Any]) -> np.ndarray:
        """Codes of the static categories; -1, which no category has, where the entry has none."""
        if len(self.cardinality) and FieldName.FEAT_STATIC_CAT not in data:
            if not self._said_unknown:
                self._said_unknown = True
                log.warning(
                    "series %r has no feat_static_cat, with which the model was trained: it counts as of an unknown "
                    "category, as do all others without; train with use_feat_static_cat=False to do without",
                    data.get("item_id"),
                )
            return np.full(len(self.cardinality), -1)
        units = np.broadcast_to([0.0, 1.0], (len(self.cardinality), 2))
        codes = self._static(data, FieldName.FEAT_STATIC_CAT, units)
        if not ((codes >= 0) & (codes < self.cardinality)).all():
            got = ", ".join(f"{code:.0f}" for code in codes)
            raise ValueError(
                f"series {data.get('item_id')!r}: expected static categories below {self.cardinality.tolist()}, the "
                f"values seen in training, got [{got}]; map what is new to a known category, leave the field out (an "
                "unknown category), or train again"
            )
        return codes.astype(np.int64)


def standardised(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Numbers (time, column) with their location taken away, divided by their scale; units (column, 2) have both."""
    return (values - units[:, 0]) / units[:, 1]


def alone() -> tuple[int, int]:
    """Return the rank of a process that trains alone, and the number of processes."""
    return 0, 1


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

    Args:
        data: Prepared entries, walked through again for every pass.
        past: Steps of the past of a window, at most two thirds of what there is, so that windows differ. None for
            whole series.
        future: Steps of the future.
        batch_size: Windows in a batch.
        num_batches: Batches in an epoch, passing over the data as often as needed; None for one pass.
        seed: None for an order that is not reproducible.
        recent: Steps at the end of each series from which windows are taken; None for all.
        at_end: Take the last window of every series, in order, instead of random ones (validation).
        buffer: Windows among which the order is shuffled.
        scaling_length: Of a model to which the unit of the data does not matter, see `find_exponents`; None for others.
        count: Number of entries. Where an epoch has fewer windows, a sample of them is drawn for it; None for a walk
            from the first on.
        growing: Whether a window has all of the past before its split, up to `past` steps, as a prediction has it. Late
            splits are then drawn more often, since it is the end that a forecast begins at.
    """

    def __init__(
        self,
        data: Iterable[dict[str, Any]],
        past: int | None,
        future: int,
        batch_size: int,
        num_batches: int | None,
        seed: int | None = None,
        recent: int | None = None,
        at_end: bool = False,
        buffer: int = 4096,
        scaling_length: int | None = None,
        count: int | None = None,
        growing: bool = False,
    ) -> None:
        self.count, self.growing = count, growing
        self.data, self.past, self.future = data, past, future
        self.batch_size, self.num_batches, self.at_end, self.buffer = batch_size, num_batches, at_end, buffer
        self.recent, self.scaling_length = recent, scaling_length
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self.epoch = 0
        self.made = 0  # batches of this epoch
        self.begin = 0  # of which a resumed run has seen so many
        self.place: Callable[[], tuple[int, int]] = alone
        self.sampler = self  # where Lightning looks for `set_epoch`
        self.batch_sampler = None

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch which the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.num_batches is None:  # then Lightning takes it as endless, and knows no schedule
            raise TypeError("the number of batches is not known before a pass over the data")
        return self.num_batches

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rank, processes = (0, 1) if self.at_end else self.place()
        seed = [self.seed % 2**63, self.epoch]
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
        """Return how many batches of the epoch have been made."""
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Leaves out the batches that have been made, in the next iteration; none after a whole epoch.

        Raises:
            ValueError: If an epoch has fewer batches.
        """
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
                begin = min(first_value(entry["observed"]), last - 1)
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
        rng = np.random.default_rng([self.seed % 2**63, self.epoch, walk, rank])
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
