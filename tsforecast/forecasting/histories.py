"""The way from entries to batches, beliefs and forecasts, by a trained model."""

import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast, SampleForecast
from gluonts.transform import Transformation
from numpy.typing import NDArray

from tsforecast.core.gaussian import Record, map_tensors
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.data.checks import as_numbers, check_entries
from tsforecast.data.effects.taken import Taken
from tsforecast.data.magnitude import find_exponents, in_units
from tsforecast.data.windows import collate, cut, since_first_value
from tsforecast.forecasting.closed_phases import ClosedPhases
from tsforecast.forecasting.direct import ALONE, Directs
from tsforecast.forecasting.exact import BatchMarginals, ExactForecast, widened
from tsforecast.forecasting.far_values import NAMED, far_values, refuse_far_future
from tsforecast.forecasting.lengths import recent_by_frequency
from tsforecast.forecasting.ragged import without_ragged_end
from tsforecast.models import AbstractForecaster, Belief
from tsforecast.models.parts.component_names import longest_cycle
from tsforecast.models.parts.units import FARTHEST
from tsforecast.wording import counted, some

log = logging.getLogger(__name__)
Result = TypeVar("Result")

_SHORT_SERIES, _SHORT_STEPS = 256, 16_000  # series at a time, and steps of all of them, where no paths are drawn
_LONG_STEPS = 800_000  # of all series that are taken at a time: about 1 GiB of a bank
BATCHES_HELD = 8  # of entries at a time
_HISTORY = 20_000  # steps before a forecast, at least eight weeks


@dataclass(frozen=True)
class Histories:
    """Beliefs and forecasts that a trained model makes of the histories of series."""

    net: AbstractForecaster  # the model
    transform: Transformation  # `Prepare`, with the horizon
    horizon: int  # steps of a forecast
    freq: str  # frequency that the data must have
    batch_size: int  # number of series at a time
    history_length: int | None  # steps of the history used at most; None for all, but forecasts take `filtered_length`
    device: torch.device  # device of the model
    direct: float = 0.0  # share of direct forecasts in mixtures with those of the model, see `Directs`
    # Values that were too far from the others, which filtering adds; see `warn`.
    far: dict[str, None] = field(default_factory=dict)

    @property
    def num_shown(self) -> int:
        """Return the number of targets that are shown; past-only covariates come behind them."""
        return self.net.data.num_targets - getattr(self.transform, "num_past", 0)

    @property
    def filtered_length(self) -> int | None:
        """Return the steps of a history that a forecast filters, at most; None for all."""
        recent = recent_by_frequency(self.freq, longest_cycle(self.net.dynamics.season_names, self.freq))
        # Where a day is the main season, what lies farther back has been forgotten, and takes minutes to filter.
        return self.history_length or (max(_HISTORY, recent) if recent else None)

    def alone(self, what: str) -> None:
        """Log the absence of direct forecasts from an answer, if `predict` has some."""
        if self.direct:
            log.info(ALONE, what)

    def check(self, entry: dict[str, Any], future: int = 0) -> None:
        """Refuses an entry that is not as expected."""
        units = self.net.units
        limits = {"support": units.support, "largest": units.largest_value}
        check_entries([entry], self.freq, future=future, all_missing=True, **limits)

    def exponents(self, windows: list[dict[str, Any]]) -> NDArray[np.int64]:
        """Return the exponents of the powers of two that divide targets, (series, target).

        They are 0 where the unit of the data matters to the model.
        """
        if self.net.units.is_scale_free:
            return find_exponents(windows, self.net.data.scaling_length)
        return np.zeros((len(windows), self.net.data.num_targets), np.int64)

    def filtered(self, windows: list[dict[str, Any]], batch: dict[str, Any], belief: Belief | None = None) -> Belief:
        """Return the belief behind a batch, and note values that are too far from the others."""
        after = self.net.after(batch, belief)
        self.far.update(far_values(self.net, batch, after, windows))
        return after

    def predicted(self, dataset: Iterable[dict[str, Any]], num_samples: int | None) -> Iterator[Forecast]:
        """Return a forecast for every entry, in order; a few batches of entries are held at a time."""
        for held in batcher(self._checked(dataset), BATCHES_HELD * self.batch_size):
            # Rolling windows of a series differ in length. Taken in order, every batch would be padded.
            order = [*range(len(held))]
            if len(held) > (together := self._together(held, num_samples)):
                order.sort(key=lambda k: np.shape(held[k]["target"])[-1])
            found: dict[int, Forecast] = {}
            for places in batcher(order, together):
                forecasts = self._of_histories([held[k] for k in places], num_samples)
                found.update(zip(places, forecasts, strict=True))
            yield from (found[k] for k in range(len(held)))

    def _together(self, entries: list[dict[str, Any]], num_samples: int | None) -> int:
        """Return the number of series at a time: fewer where one is long, and more where all are short.

        More only where no paths of anything are drawn, so that these do not depend on the other series.
        """
        lengths = [np.shape(entry["target"])[-1] for entry in entries]
        longest = max(min(max(lengths), self.filtered_length or max(lengths)), 1)
        size = max(min(self.batch_size, _LONG_STEPS // longest), 1)
        if num_samples != 0 or "num_particles" in self.net.hyperparameters:
            return size
        return max(size, min(_SHORT_SERIES, _SHORT_STEPS // longest))

    def exactly(self, work: Callable[["Histories"], Result], number: int, things: str) -> Result:
        """Return the result of work on histories; in float64 where float32 does not do, as behind gaps of years."""
        try:
            return work(self)
        except NotPositiveDefiniteError:
            if self.net.dtype == torch.float64:
                raise
            log.info("%s in float64, as their covariances need it", counted(number, things))
            return work(replace(self, net=copy.deepcopy(self.net).double()))

    def collated(self, windows: list[dict[str, Any]], exponents: NDArray[np.int64]) -> dict[str, Any]:
        """Return the batch of windows, on the device and in the precision of the model."""
        return self.as_precise(collate(windows, self.device, exponents))

    def as_precise(self, record: Record) -> Record:
        """Return a batch or a belief with numbers as precise as those of the model."""
        if self.net.dtype != torch.float64:
            return record
        return map_tensors(lambda x: x.double() if x.is_floating_point() else x, record)

    def _of_histories(self, entries: list[dict[str, Any]], num_samples: int | None) -> list[Forecast]:
        """Return forecasts from the ends of entries."""
        return self.exactly(lambda own: own._forecast(*own.batch_of(entries), num_samples), len(entries), "forecast")

    def _forecast(
        self,
        whole: dict[str, Any],
        windows: list[dict[str, Any]],
        exponents: NDArray[np.int64],
        num_samples: int | None,
    ) -> list[Forecast]:
        """Return forecasts from the ends of a batch, see `batch_of`."""
        with torch.no_grad():
            batch, known = without_ragged_end(self.net, whole)
            belief = self.filtered(windows, batch)
            if known:
                far = self.net.units.too_far(batch, belief, "known_future")
                far[:, known:] = False  # what users say of the future is refused below
                batch["known_future"] = batch["known_future"].masked_fill(far, torch.nan)
            directs = Directs(windows, self.freq, self.horizon, self.direct, self.num_shown) if self.direct else None
            closed = ClosedPhases.of(windows, self.freq, self.horizon, self.num_shown)
            return self.forecasts(belief, batch, num_samples, exponents, known, directs, closed)

    def batch_of(self, entries: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]], NDArray[np.int64]]:
        """Return the batch of the histories of entries, the windows in it, and the exponents of their units."""
        prepared, steps = self.transform(iter(entries), is_train=False), self.filtered_length
        windows = [since_first_value(cut(e, len(e["target"]), steps, self.horizon)) for e in prepared]
        exponents = self.exponents(windows)
        return self.collated(windows, exponents), windows, exponents

    def forecasts(
        self,
        belief: Belief,
        batch: dict[str, Any],
        num_samples: int | None,
        exponents: NDArray[np.int64],
        known: int = 0,
        directs: Directs | None = None,
        closed: ClosedPhases | None = None,
    ) -> list[Forecast]:
        """Return forecasts in the units of the data, given targets divided by powers of two.

        Args:
            belief: The belief at the end of the past.
            batch: Its future is read.
            num_samples: Number of sample paths; None for the model's own number. With 0 none are drawn, where
                quantiles are exact.
            exponents: Exponents of the powers of two.
            known: Steps before the horizon that the future of the batch begins with.
            directs: Direct forecasts, which are mixed into those of the model; None for none.
            closed: Phases that always have the same value, mixed in likewise; None for none.
        """
        net, count = self.net, len(batch["forecast_start"])
        names, infos = (batch.get(name, [None] * count) for name in ("item_id", "info"))
        common = [
            {"start_date": start, "item_id": item, "info": info}
            for start, item, info in zip(batch["forecast_start"], names, infos, strict=True)
        ]
        refuse_far_future(net, batch, belief, names)
        marginals = net.marginals(belief, batch)
        paths = self._paths(belief, batch, num_samples, exponents, known, directs)
        paths = paths if closed is None or not len(paths) or paths[0] is None else closed.exchanged(paths)
        if marginals is None:
            return [SampleForecast(samples=one, **c) for one, c in zip(paths, common, strict=True)]
        shown = self.num_shown
        marginals, exponents = marginals.behind(known).of_targets(slice(shown)), exponents[:, :shown]
        taken = Taken.of_batch(batch, "future")
        marginals = marginals if directs is None else directs.mixed(marginals, exponents)
        marginals = marginals if closed is None else closed.mixed(marginals, exponents, taken)
        exact = BatchMarginals(widened(marginals, taken, exponents), exponents, taken)
        return [ExactForecast(exact, k, one, **c) for k, (one, c) in enumerate(zip(paths, common, strict=True))]

    def _paths(
        self,
        belief: Belief,
        batch: dict[str, Any],
        num_samples: int | None,
        exponents: NDArray[np.int64],
        known: int,
        directs: Directs | None,
    ) -> list[Any]:
        """Return sample paths of every series in the units of the data; None for each if there are to be 0."""
        net = self.net
        count = net.data.num_samples if num_samples is None else num_samples
        least = 0 if net.inference.has_marginals else 1
        if count < least:
            why = "" if least == 0 else f": forecasts of {type(net).__name__} are sample paths"
            raise ValueError(f"expected num_samples of at least {least}, got {count}{why}")
        if count == 0:
            return [None] * len(exponents)
        samples = net.forecast(belief, batch, count)[:, :, known:, : self.num_shown]
        exponents = exponents[:, : self.num_shown]
        taken = Taken.of_batch(batch, "future")
        if self.num_shown == 1:
            samples = samples.squeeze(-1)
        paths = [in_units(one, powers) for one, powers in zip(samples.cpu().numpy(), exponents, strict=True)]
        if directs is not None:
            paths = directs.exchanged(paths, net.units.clip == "nonnegative")
        return paths if taken is None else taken.drawn(paths)

    def _checked(self, dataset: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Return the entries, each checked when its turn comes, and warn at the end of those without a value."""
        names: dict[str, None] = {}
        steps, longer = self.filtered_length or 0, 0
        try:
            for number, entry in enumerate(dataset):
                self.check(entry, self.horizon)
                longer += self.history_length is None and 0 < steps < np.shape(entry["target"])[-1]
                if np.isnan(as_numbers(entry["target"])[..., -steps:]).all():
                    names[repr(entry["item_id"]) if "item_id" in entry else f"number {number}"] = None
                yield entry
        finally:  # also if the caller stops early
            if longer:
                said = "%s from the last %d steps alone; `history_length` sets more"
                log.info(said, counted(longer, "forecast"), steps)
            if names:
                log.warning(
                    "no value in the history of %d series (%s): the forecast is the model's prior, with location 0 and "
                    "scale 1, which may be far from what the series is like; give values, or leave it out",
                    len(names),
                    some(list(names), NAMED),
                )

    def warn(self) -> None:
        """Warns of the values that were too far from the others."""
        if self.far:
            log.warning(
                "values more than %g times the scale of their series away from its centre count as missing (%s): "
                "correct them, or filter the history anew if the series has grown so much",
                FARTHEST,
                some(list(self.far), NAMED),
            )
