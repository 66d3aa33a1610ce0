"""What can be wanted of every bucket of a folder: forecasts, or what is missing."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from gluonts.itertools import batcher
from gluonts.model import Forecast

from tsforecast.data.buckets.survey import Bucket
from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.quantiles import forecast_frame
from tsforecast.data.sources import bucket_task
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.predictor import StateSpacePredictor, with_prediction_length
from tsforecast.io.frame_files import write_frames

_CHUNK = 500  # series that are written at once


@dataclass(frozen=True, kw_only=True)
class Request(ABC):
    """What is wanted of every bucket."""

    freq: str  # frequency of the series
    columns: Columns  # of the buckets, as `tsforecast.data.buckets.rows.selected` gives them
    categories: dict[str, list[str]]  # values of the static categories that the model was trained with
    num_samples: int  # sample paths; 0 for none, where quantiles are exact
    seed: int  # of the sample paths. Each bucket has a seed of its own
    device: str  # where to compute

    @abstractmethod
    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series of a bucket; a ValueError if it is not that of the survey, or a series not as expected."""

    @abstractmethod
    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes what is wanted of series, of which there is one at least, into a Parquet file, whole or not at all.

        Returns:
            More of the note of the bucket, which `finish` reads.
        """

    def finish(self, out: Path, notes: list[dict[str, Any]]) -> None:
        """Writes what is made of all buckets, once all are done: nothing, unless a request says otherwise."""
        return

    def _read(self, folder: Path, bucket: Bucket, horizon: int, windows: int, end: pd.Period | None) -> ForecastTask:
        return bucket_task(
            folder,
            bucket,
            self.freq,
            horizon,
            self.columns,
            windows=windows,
            categories=self.categories,
            end=end,
        )


@dataclass(frozen=True, kw_only=True)
class _Table(Request):
    """Forecasts as a table, of quantiles at levels; of sample paths where these are None."""

    levels: tuple[float, ...] | None

    def _write(self, forecasts: Iterator[Forecast], path: Path) -> dict[str, Any]:
        chunks = batcher(forecasts, _CHUNK)
        write_frames((forecast_frame(chunk, self.levels, self.columns.targets) for chunk in chunks), path)
        return {}


@dataclass(frozen=True, kw_only=True)
class Forecasts(_Table):
    """Forecasts behind the end of the data.

    Attributes:
        prediction_length: Steps of a forecast.
        last: The last step of all series, behind which their forecasts begin; None for each behind its own end.
    """

    prediction_length: int
    last: str | None

    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series, for forecasts beyond their end."""
        end = None if self.last is None else to_period(self.last, self.freq)
        return self._read(folder, bucket, self.prediction_length, 0, end)

    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes forecasts."""
        if predictor.prediction_length != self.prediction_length:
            predictor = with_prediction_length(predictor, self.prediction_length)
        return self._write(predictor.predict(task.latest, num_samples=self.num_samples), path)


@dataclass(frozen=True, kw_only=True)
class Imputations(_Table):
    """Series with their missing values filled in."""

    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series as they are."""
        return self._read(folder, bucket, 0, 0, None)

    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes every step of all series."""
        return self._write(predictor.impute(task.entries, self.num_samples), path)
