"""Forecasts and interpolation at any times, by trained models in continuous time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.itertools import batcher
from numpy.typing import NDArray

from tsforecast.data.dataframes import columns_of
from tsforecast.data.irregular import nanoseconds, read_irregular, read_times
from tsforecast.data.quantiles import TENTHS, check_levels
from tsforecast.data.roles import Columns
from tsforecast.data.timed_entries import check_timed
from tsforecast.data.wording import listed, option
from tsforecast.forecasting.exact import BatchMarginals
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.forecasting.timed_beliefs import TimedBelief, rows_of
from tsforecast.forecasting.timed_files import read_timed, write_timed
from tsforecast.forecasting.timed_forecast import TimedForecast
from tsforecast.models import AbstractForecaster, Belief, ExactInference
from tsforecast.models.parts.marginals import Marginals

_TOGETHER = 8  # series that are smoothed at once: every step of each has a covariance

Times = Mapping[str, NDArray[np.int64]]


class IrregularPredictor:
    """A trained model in continuous time: forecasts, interpolation and live updates of series with clocks of their own.

    Args:
        net: The model.
        clock: By which its batches are made.
        horizon: Time of a forecast, in nanoseconds.
        batch_size: Series that are filtered at once.
        columns: What the columns of the training table were; None where there was none.
        categories: Names behind the codes of the static categories, by column.
        targets: Names of the targets.
    """

    def __init__(
        self,
        net: AbstractForecaster,
        clock: Clock,
        horizon: int,
        *,
        batch_size: int = 32,
        columns: dict[str, list[str]] | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        targets: Sequence[str] = (),
    ) -> None:
        self.net, self.clock, self.horizon, self.batch_size = net, clock, horizon, batch_size
        self.columns, self.categories, self.targets = columns, dict(categories or {}), tuple(targets)

    @property
    def inference(self) -> ExactInference:
        """Return the exact inference of the model."""
        assert isinstance(self.net.inference, ExactInference)
        return self.net.inference

    @property
    def roles(self) -> Columns | None:
        """Return what the columns of the training table were; None where there was none."""
        return None if self.columns is None else columns_of(self.columns)

    # Tables.

    def read(self, source: Any, columns: Columns | Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the data entries of a table or file, read as the training data were; entries come back checked.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: As `tsforecast.data.irregular.read_irregular` says.
        """
        roles = columns_of(self.columns if columns is None else columns)
        categories = self.categories or None
        return read_irregular(source, self.horizon, 0, columns=roles, categories=categories).entries

    def times_of(
        self, entries: Iterable[Mapping[str, Any]], at: Any = None, every: str | None = None, inside: bool = False
    ) -> dict[str, NDArray[np.int64]]:
        """Return the times that an answer is wanted at, for each series in nanoseconds.

        Args:
            entries: Of the series.
            at: A table or file of time stamps, perhaps by item; time stamps for all series; or None for `every`.
            every: Distance of the times, such as "10min", whole multiples of it; None for the median gap.
            inside: Whether the times by `every` are those from the first to the last observation, and not the horizon
                behind.

        Raises:
            ValueError: If times and a distance are given, or an item is not known.
        """
        if at is not None and every is not None:
            raise ValueError(f"expected {option('at')} or {option('every')}, got both")
        entries = list(entries)
        if at is not None:
            given: dict[str | None, NDArray[np.int64]] = {}
            if isinstance(at, str | Path | pd.DataFrame):
                given |= read_times(at, columns_of(self.columns))
            else:
                given[None] = np.sort(np.asarray(pd.DatetimeIndex(at).as_unit("ns").asi8))
            known = {str(entry["item_id"]) for entry in entries}
            if strange := [item for item in given if item is not None and item not in known]:
                raise ValueError(f"there is no series {listed(strange, 5)} in the data, at whose times to forecast")
            chosen = {str(entry["item_id"]): given.get(str(entry["item_id"]), given.get(None)) for entry in entries}
            return {item: times for item, times in chosen.items() if times is not None and len(times)}
        step = self.clock.unit if every is None else nanoseconds(every, "every")
        found = {}
        for entry in entries:
            begin, last = int(entry["times"][0]), int(entry["times"][-1])
            first, stop = (
                (-(-begin // step) * step, last) if inside else ((last // step + 1) * step, last + self.horizon)
            )
            found[str(entry["item_id"])] = np.arange(first, stop + 1, step, dtype=np.int64)
        if not any(len(times) for times in found.values()):
            raise ValueError(
                f"there is no multiple of {pd.Timedelta(step, 'ns')} within the horizon "
                f"{pd.Timedelta(self.horizon, 'ns')}: give a shorter {option('every')}, or times by {option('at')}"
            )
        return {item: times for item, times in found.items() if len(times)}

    def predict_frame(
        self,
        source: Any,
        at: Any = None,
        every: str | None = None,
        quantiles: Sequence[float] = TENTHS,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return forecasts behind the last observation of each series, in long format.

        Args:
            source: Table, file or data entries: the past.
            at: See `times_of`.
            every: See `times_of`.
            quantiles: Levels.
            columns: Of the table; None for those of the training data.

        Returns:
            `item_id`, `timestamp`, `target` where there are several, `mean`, and a column for each level.

        Raises:
            ValueError: If a time does not lie behind the last observation of its series, among others.
        """
        entries = self.read(source, columns)
        return frame_of(self.forecast(entries, self.times_of(entries, at, every)), quantiles, self.targets)

    def interpolate_frame(
        self,
        source: Any,
        at: Any = None,
        every: str | None = None,
        quantiles: Sequence[float] = TENTHS,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return what an observation would be at any times, given all that was observed before and after.

        Arguments and result are as those of `predict_frame`. Times by `every` reach from the first to the last
        observation.
        """
        entries = self.read(source, columns)
        times = self.times_of(entries, at, every, inside=True)
        return frame_of(self.interpolate(entries, times), quantiles, self.targets)

    # Data entries.

    def forecast(
        self, entries: Iterable[Mapping[str, Any]], times: Times, num_samples: int = 0, seed: int = 0
    ) -> Iterator[TimedForecast]:
        """Yield forecasts at times behind the last observation of each series.

        Args:
            entries: Data entries.
            times: Times by item, in nanoseconds, ascending; series without any are left out.
            num_samples: Joint sample paths beside the exact distributions.
            seed: Of the paths.

        Raises:
            ValueError: If a time does not lie behind the last observation of its series.
        """
        checked = [entry for entry in check_timed(entries) if entry["item_id"] in times]
        generator = torch.Generator().manual_seed(seed)
        for chunk in batcher(checked, self.batch_size):
            with torch.no_grad():
                belief = self.net.filter(self.clock.past(chunk))[0]
            asked = [np.asarray(times[entry["item_id"]]) for entry in chunk]
            last = [int(entry["times"][-1]) for entry in chunk]
            yield from self._from(belief, [e["item_id"] for e in chunk], last, asked, num_samples, generator)

    def forecast_windows(
        self, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], num_samples: int = 0, seed: int = 0
    ) -> Iterator[TimedForecast]:
        """Yield forecasts of test windows, in their order: a series may have several.

        Args:
            pairs: Past and label of each window; the times of labels are read, and not their values.
            num_samples: Joint sample paths beside the exact distributions.
            seed: Of the paths.
        """
        generator = torch.Generator().manual_seed(seed)
        for chunk in batcher(pairs, self.batch_size):
            with torch.no_grad():
                belief = self.net.filter(self.clock.past([past for past, _ in chunk]))[0]
            items, last = [p["item_id"] for p, _ in chunk], [int(p["times"][-1]) for p, _ in chunk]
            yield from self._from(belief, items, last, [label["times"] for _, label in chunk], num_samples, generator)

    def _from(
        self,
        belief: Belief,
        items: Sequence[str],
        last: Sequence[int],
        asked: Sequence[NDArray[np.int64]],
        num_samples: int,
        generator: torch.Generator,
    ) -> Iterator[TimedForecast]:
        for item, end, times in zip(items, last, asked, strict=True):
            if len(times) and (times[0] <= end or (np.diff(times) < 0).any()):
                raise ValueError(
                    f"series {item!r}: expected times behind its last observation, {pd.Timestamp(end)}, in order, "
                    f"got {pd.Timestamp(int(times[0]))}; times before are interpolated (impute, interpolate_frame)"
                )
        batch = self.clock.future(asked, last)
        with torch.no_grad():
            marginals = self.inference.marginals(belief, batch)
            paths = self.net.forecast(belief, batch, num_samples, generator).numpy() if num_samples else None
        yield from self._answers(marginals, items, asked, paths)

    def _answers(
        self,
        marginals: Marginals,
        items: Sequence[str],
        asked: Sequence[NDArray[np.int64]],
        paths: NDArray[Any] | None = None,
    ) -> Iterator[TimedForecast]:
        exact = BatchMarginals(marginals, np.zeros((len(items), self.net.data.num_targets), np.int64))
        for row, (item, times) in enumerate(zip(items, asked, strict=True)):
            own = None if paths is None else paths[row, :, : len(times)]
            yield TimedForecast(item, times, exact, row, own)

    def interpolate(self, entries: Iterable[Mapping[str, Any]], times: Times) -> Iterator[TimedForecast]:
        """Yield what an observation would be at any times, given all observations of its series.

        Args:
            entries: Data entries.
            times: Times by item, in nanoseconds, ascending; series without any are left out.
        """
        checked = [entry for entry in check_timed(entries) if entry["item_id"] in times]
        for chunk in batcher(checked, _TOGETHER):
            merged, places = zip(*(_merged(entry, np.asarray(times[entry["item_id"]])) for entry in chunk), strict=True)
            batch = self.clock.past(merged)
            length = batch["past_target"].shape[1]
            with torch.no_grad():
                location, scale = self.inference.scale_of(self.clock.past(chunk))  # as of the data alone
                _, emitted = self.inference.smoothed(batch, (location, scale))
            mean = (emitted.mean * scale + location).transpose(0, 1)
            deviation = (emitted.variance.clamp_min(0).sqrt() * scale).transpose(0, 1)
            asked = [np.asarray(times[entry["item_id"]]) for entry in chunk]
            wide = max(len(each) for each in asked)
            rows = np.zeros((len(chunk), wide), np.int64)
            for row, (entry, place) in enumerate(zip(merged, places, strict=True)):
                rows[row, : len(place)] = place + length - len(entry["times"])
            index = torch.as_tensor(rows).unsqueeze(-1).expand(-1, -1, mean.shape[-1])
            units = self.inference.units
            marginals = Marginals.single(
                mean.gather(1, index), deviation.gather(1, index), units.transformation, units.clip
            )
            yield from self._answers(marginals, [entry["item_id"] for entry in chunk], asked)

    def components_frame(self, source: Any, columns: Columns | Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the smoothed components at every observation.

        Columns are `item_id`, `timestamp`, `component`, `mean` and `deviation`, in transformed units, which are those
        of the data if the transformation is "none". The mean of the series belongs to the first component.

        Raises:
            ValueError: If the model has no components.
        """
        timed = getattr(self.net.dynamics, "timed", None)
        if timed is None:
            raise ValueError("a dense state has no components with names: take the model issm")
        parts = []
        for chunk in batcher(self.read(source, columns), _TOGETHER):
            batch = self.clock.past(chunk)
            with torch.no_grad():
                states, _ = self.inference.smoothed(batch)
                series = self.inference.series_of(batch)
                own = self.net.dynamics.parameters_of_series(series.index, series.static_cat)[:, :-1]  # pyright: ignore
                found = timed.parts_of(states, timed.equations(own)[0].readout)
                location, scale = (x[:, 0] for x in self.inference.scale_of(batch))
            for number, (name, (mean, deviation)) in enumerate(found.items()):
                moved = mean * scale + (location if number == 0 else 0.0)
                for row, entry in enumerate(chunk):
                    count = len(entry["times"])
                    columns_ = {
                        "item_id": entry["item_id"],
                        "timestamp": entry["times"].astype("datetime64[ns]"),
                        "component": name,
                        "mean": moved[-count:, row].numpy(),
                        "deviation": (deviation * scale)[-count:, row].numpy(),
                    }
                    parts.append(pd.DataFrame(columns_))
        return pd.concat(parts, ignore_index=True)

    # Live.

    def filter(self, entries: Iterable[Mapping[str, Any]]) -> dict[str, TimedBelief]:
        """Return the belief at the end of each series, by item."""
        return self.update({}, entries)

    def update(
        self, beliefs: Mapping[str, TimedBelief], entries: Iterable[Mapping[str, Any]]
    ) -> dict[str, TimedBelief]:
        """Return the beliefs after new observations, as if all had been filtered at once; series may be new.

        Raises:
            ValueError: If an observation comes before what a belief has seen.
        """
        checked, found = check_timed(entries), dict(beliefs)
        for entry in checked:
            known = found.get(entry["item_id"])
            if known is not None and entry["times"][0] < known.time:
                raise ValueError(
                    f"series {known.item_id!r}: expected observations from {pd.Timestamp(known.time)} on, got one of "
                    f"{pd.Timestamp(int(entry['times'][0]))}: time goes back; filter its history again"
                )
        for are_new in (True, False):
            group = [entry for entry in checked if (entry["item_id"] not in beliefs) == are_new]
            for chunk in batcher(group, self.batch_size):
                known = None if are_new else [found[entry["item_id"]] for entry in chunk]
                batch = self.clock.past(chunk, None if known is None else [one.time for one in known])
                with torch.no_grad():
                    after = self.net.filter(batch, None if known is None else rows_of([b.belief for b in known]))[0]
                for row, entry in enumerate(chunk):
                    item = entry["item_id"]
                    found[item] = TimedBelief.of(item, int(entry["times"][-1]), after, row)
        return found

    def forecast_from(
        self, beliefs: Mapping[str, TimedBelief], times: Times, num_samples: int = 0, seed: int = 0
    ) -> Iterator[TimedForecast]:
        """Yield forecasts from where beliefs end; see `forecast`."""
        generator = torch.Generator().manual_seed(seed)
        for chunk in batcher([known for item, known in beliefs.items() if item in times], self.batch_size):
            asked = [np.asarray(times[known.item_id]) for known in chunk]
            belief, last = rows_of([known.belief for known in chunk]), [known.time for known in chunk]
            yield from self._from(belief, [k.item_id for k in chunk], last, asked, num_samples, generator)

    # Files.

    def save(self, folder: str | Path) -> None:
        """Write the predictor; an existing folder is replaced whole."""
        about = {"columns": self.columns, "categories": self.categories, "targets": list(self.targets)}
        write_timed(Path(folder), self.net, self.clock, {"horizon": self.horizon, **about})

    @classmethod
    def load(cls, folder: str | Path) -> "IrregularPredictor":
        """Read what `save` wrote; no code of the files is run.

        Raises:
            FileNotFoundError: If there is no such folder or file.
            ValueError: If it is damaged, of another program or of another format.
        """
        net, clock, about = read_timed(Path(folder))
        return cls(net, clock, **about)


def frame_of(
    forecasts: Iterable[TimedForecast], levels: Sequence[float] = TENTHS, targets: Sequence[str] = ()
) -> pd.DataFrame:
    """Return answers in long format, see `IrregularPredictor.predict_frame`."""
    levels = check_levels(levels)
    return pd.concat([forecast.frame(levels, targets) for forecast in forecasts], ignore_index=True)


def _merged(entry: Mapping[str, Any], times: NDArray[np.int64]) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """The entry with moments without observations at some times; and the places of these, behind equal ones."""
    order = np.argsort(np.concatenate([entry["times"], times]), kind="stable")
    target = np.concatenate([entry["target"], np.full((*entry["target"].shape[:-1], len(times)), np.nan)], axis=-1)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    merged = np.concatenate([entry["times"], times])[order]
    return {**entry, "times": merged, "target": target[..., order]}, place[len(entry["times"]) :]
