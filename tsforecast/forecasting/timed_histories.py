"""Beliefs, forecasts and interpolations at any times, by a trained model in continuous time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.itertools import batcher
from numpy.typing import NDArray

from tsforecast.data.irregular import read_irregular
from tsforecast.data.quantiles import TENTHS, check_levels
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.timed_entries import check_timed
from tsforecast.forecasting.exact import BatchMarginals
from tsforecast.forecasting.live_beliefs import LiveBelief, join, split
from tsforecast.forecasting.timed_answers import (
    ahead,
    at_rows,
    between,
    component_frames,
    rows_of,
    seeded,
    smoothed_together,
)
from tsforecast.forecasting.timed_asked import NOTHING, Covariates, Times, asked_entry, asked_of, merged, with_times
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.forecasting.timed_forecast import TimedForecast
from tsforecast.models import AbstractForecaster, Belief
from tsforecast.models.parts.marginals import Marginals


@dataclass(frozen=True)
class TimedHistories:
    """Beliefs, forecasts and interpolations that a model in continuous time makes of series with clocks."""

    net: AbstractForecaster  # the model
    clock: Clock  # by which its batches are made
    horizon: int  # time of a forecast, in nanoseconds
    batch_size: int  # series that are filtered at once
    columns: Columns  # of the training table
    categories: dict[str, list[str]]  # names behind the codes of the static categories, by column

    # Tables.

    def read_named(
        self, source: Any, columns: Columns | Mapping[str, Any] | None = None
    ) -> tuple[Sequence[dict[str, Any]], Columns | None]:
        """Return entries of a table, file or entries, read as the training data were, and the columns of a table."""
        roles = self.columns if columns is None else columns_of(columns)
        task = read_irregular(source, self.horizon, 0, columns=roles, categories=self.categories or None)
        return task.entries, task.columns

    def asked_of(
        self, entries: Iterable[Mapping[str, Any]], at: Any = None, every: str | None = None, inside: bool = False
    ) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.float64]]]:
        """Return the times that an answer is wanted at, for each series in nanoseconds, and covariates at them.

        Args:
            entries: Of the series.
            at: A table or file of time stamps, perhaps by item, with the covariates of the model; time stamps for all
                series; or None for `every`.
            every: Distance of the times, such as "10min", whole multiples of it; None for the median gap. A model with
                covariates does not know them there: None is for the `asked_times` of the entries.
            inside: Whether the times by `every` are those from the first to the last observation, and not the horizon
                behind.
        """
        return asked_of(list(entries), at, every, inside, self.clock, self.horizon, self.columns)

    def frame(
        self,
        source: Any,
        at: Any = None,
        every: str | None = None,
        quantiles: Sequence[float] = TENTHS,
        columns: Columns | Mapping[str, Any] | None = None,
        inside: bool = False,
    ) -> pd.DataFrame:
        """Return forecasts in long format; or interpolations `inside`, from the first to the last observation.

        Arguments and result are those of `StateSpacePredictor.predict_frame`.
        """
        levels = check_levels(quantiles)
        entries, read = self.read_named(source, columns)
        times, covariates = self.asked_of(entries, at, every, inside)
        if inside:
            answers = self.interpolate(entries, times, covariates)
        else:
            answers = self.forecast(entries, times, covariates=covariates)
        frames = [answer.frame(levels, self.columns.targets) for answer in answers]
        return as_read(pd.concat(frames, ignore_index=True), read, cells_of(entries))

    interpolate_frame = partialmethod(frame, inside=True)

    # Data entries.

    def forecast(
        self,
        entries: Iterable[Mapping[str, Any]],
        times: Times,
        num_samples: int = 0,
        seed: int = 0,
        covariates: Covariates = NOTHING,
    ) -> Iterator[TimedForecast]:
        """Yield forecasts at times behind the last observation of each series.

        Args:
            entries: Data entries.
            times: Times by item, in nanoseconds, ascending; series without any are left out.
            num_samples: Joint sample paths beside the distributions.
            seed: Of the paths, and of the particles of models with a switch.
            covariates: At the times, by item, (covariate, time), of a model that has some.

        Raises:
            ValueError: If a time does not lie behind the last observation of its series, or covariates are missing.
        """
        pairs = [(entry, asked_entry(entry["item_id"], times, covariates)) for entry in with_times(entries, times)]
        return self.forecast_windows(pairs, num_samples, seed)

    def forecast_windows(
        self, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], num_samples: int = 0, seed: int = 0
    ) -> Iterator[TimedForecast]:
        """Yield forecasts of test windows, in their order: a series may have several.

        Args:
            pairs: Past and label of each window; times and covariates of labels are read, and not their values.
            num_samples: Joint sample paths beside the distributions.
            seed: Of the paths, and of the particles of models with a switch.
        """
        generator = torch.Generator().manual_seed(seed)
        for number, chunk in enumerate(batcher(pairs, self.batch_size)):
            with torch.no_grad(), seeded(seed, number):
                belief = self.net.filter(self.clock.past([past for past, _ in chunk]))[0]
            last = [int(past["times"][-1]) for past, _ in chunk]
            yield from self._from(belief, last, [label for _, label in chunk], num_samples, generator)

    def _from(
        self,
        belief: Belief,
        last: Sequence[int],
        asked: Sequence[Mapping[str, Any]],
        num_samples: int,
        generator: torch.Generator,
    ) -> Iterator[TimedForecast]:
        for one, end in zip(asked, last, strict=True):
            times = one["times"]
            if len(times) and (times[0] <= end or (np.diff(times) < 0).any()):
                raise ValueError(
                    f"series {one['item_id']!r}: expected times behind its last observation, {pd.Timestamp(end)}, in "
                    f"order, got {pd.Timestamp(int(times[0]))}; times before are interpolated (impute, "
                    "interpolate_frame)"
                )
        batch = self.clock.future(asked, last)
        with torch.no_grad():
            marginals = ahead(self.net, belief, batch, generator)
            paths = self.net.forecast(belief, batch, num_samples, generator).numpy() if num_samples else None
        if self.clock.cell:
            places = [self.clock.ticked(one, end)[1] for one, end in zip(asked, last, strict=True)]
            rows = np.zeros((len(asked), max(map(len, places))), np.int64)
            for row, place in enumerate(places):
                rows[row, : len(place)] = place
            marginals = at_rows(marginals, rows)
            paths = None if paths is None else np.take_along_axis(paths, rows[:, None, :, None], 2)
        yield from self._answers(marginals, asked, paths)

    def _answers(
        self, marginals: Marginals, asked: Sequence[Mapping[str, Any]], paths: NDArray[Any] | None = None
    ) -> Iterator[TimedForecast]:
        exact = BatchMarginals(marginals, np.zeros((len(asked), self.net.data.num_targets), np.int64))
        for row, one in enumerate(asked):
            own = None if paths is None else paths[row, :, : len(one["times"])]
            yield TimedForecast(one["item_id"], one["times"], exact, row, own)

    def interpolate(
        self, entries: Iterable[Mapping[str, Any]], times: Times, covariates: Covariates = NOTHING
    ) -> Iterator[TimedForecast]:
        """Yield what an observation would be at any times, given all observations of its series.

        Args:
            entries: Data entries.
            times: Times by item, in nanoseconds, ascending; series without any are left out.
            covariates: At the times, by item, (covariate, time), of a model that has some.
        """
        for chunk in batcher(with_times(entries, times), smoothed_together(self.net)):
            asked = [asked_entry(entry["item_id"], times, covariates) for entry in chunk]
            for one in asked:
                self.clock.standardised(one)  # or says what is missing
            ticked = [self.clock.ticked(entry)[0] for entry in chunk]  # by the data alone, whatever is asked
            joined, places = zip(*map(merged, ticked, asked), strict=True)
            batch = self.clock.past(joined)
            with torch.no_grad():
                units = self.net.inference.scale_of(self.clock.past(chunk))  # as of the data alone
                marginals = between(self.net, batch, units)
            yield from self._answers(
                at_rows(marginals, rows_of(self.clock, joined, places, batch["past_target"].shape[1])), asked
            )

    def components_frame(self, source: Any, columns: Columns | Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the smoothed components at every observation.

        Columns are `item_id` and `timestamp`, or those of a table for them; `component`, `mean` and `deviation`, in
        transformed units, which are those of the data if the transformation is "none". The mean of the series belongs
        to the first component.
        """
        entries, read = self.read_named(source, columns)
        parts = [
            frame
            for chunk in batcher(entries, smoothed_together(self.net))
            for frame in component_frames(self.net, self.clock, chunk)
        ]
        return as_read(pd.concat(parts, ignore_index=True), read, cells_of(entries))

    # Live.

    def updated(
        self, beliefs: Mapping[str, LiveBelief[int]], entries: Iterable[Mapping[str, Any]]
    ) -> dict[str, LiveBelief[int]]:
        """Return the beliefs after new observations, as if all had been filtered at once; series may be new.

        Raises:
            ValueError: If an observation comes before what a belief has seen.
        """
        checked, found = check_timed(entries), dict(beliefs)
        for entry in checked:
            known = found.get(entry["item_id"])
            if known is not None and entry["times"][0] < known.end:
                raise ValueError(
                    f"series {known.item_id!r}: expected observations from {pd.Timestamp(known.end)} on, got one of "
                    f"{pd.Timestamp(int(entry['times'][0]))}: time goes back; filter its history again"
                )
        for are_new in (True, False):
            group = [entry for entry in checked if (entry["item_id"] not in beliefs) == are_new]
            for chunk in batcher(group, self.batch_size):
                known = None if are_new else [found[entry["item_id"]] for entry in chunk]
                batch = self.clock.past(chunk, None if known is None else [one.end for one in known])
                ends = [int(entry["times"][-1]) for entry in chunk]
                with torch.no_grad(), seeded(ends[0], len(ends)):
                    after = self.net.filter(batch, None if known is None else join([b.belief for b in known]))[0]
                for entry, end, belief in zip(chunk, ends, split(after), strict=True):
                    found[entry["item_id"]] = LiveBelief(entry["item_id"], end, belief)
        return found

    def forecast_from(
        self,
        beliefs: Mapping[str, LiveBelief[int]],
        times: Times,
        num_samples: int = 0,
        seed: int = 0,
        covariates: Covariates = NOTHING,
    ) -> Iterator[TimedForecast]:
        """Yield forecasts from where beliefs end; see `forecast`."""
        generator = torch.Generator().manual_seed(seed)
        for chunk in batcher([known for item, known in beliefs.items() if item in times], self.batch_size):
            asked = [asked_entry(known.item_id, times, covariates) for known in chunk]
            belief, last = join([known.belief for known in chunk]), [known.end for known in chunk]
            yield from self._from(belief, last, asked, num_samples, generator)
