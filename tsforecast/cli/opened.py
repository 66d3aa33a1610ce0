"""A trained run that a command asks: where most commands begin."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli import options, run_records, runs
from tsforecast.cli.option_groups import DeviceOptions
from tsforecast.data import Columns, ForecastTask, read_task
from tsforecast.data.buckets.survey import is_buckets
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, with_prediction_length


@dataclass(frozen=True)
class Opened:
    """A run with finished training."""

    chosen: Any
    folder: Path
    record: dict[str, Any]
    trained: Namespace

    @classmethod
    def of(cls, chosen: DeviceOptions, run: str, with_clocks: bool = False) -> "Opened":
        """Return the run that a command names, beside its options; see `options.trained_run`."""
        folder = Path(run)
        record = options.trained_run(folder, with_clocks)
        return cls(chosen, folder, record, options.settings(folder, record))

    @property
    def is_irregular(self) -> bool:
        """Return whether it is one of series with clocks of their own."""
        return run_records.is_irregular(self.record)

    @property
    def columns(self) -> Columns:
        """Return the columns of the data: those that the command names, else those of the run."""
        return options.columns(
            vars(self.chosen), run_records.columns_of_run(self.record) or options.columns(self.trained)
        )

    @property
    def length(self) -> int:
        """Return the steps of a forecast: those of the command, else of the run."""
        return getattr(self.chosen, "prediction_length", None) or self.record["split"]["prediction_length"]

    @property
    def sums(self) -> dict[str, list[str]]:
        """Return hierarchy and periods: those of the command, else of the run; "none" is none."""
        found = self.record.get("sums", {}) | run_records.sums_of(self.chosen).get("sums", {})
        return {name: given for name, given in found.items() if given != ["none"]}

    @property
    def buckets(self) -> Path | None:
        """Return the data of the command, else of the run, where they are a folder of buckets."""
        data = getattr(self.chosen, "data", None) or self.trained.data
        return Path(data) if data is not None and is_buckets(Path(data)) else None

    def predictor(self) -> StateSpacePredictor:
        """Return the predictor of the run, for forecasts of `length` steps."""
        found = load_predictor(self.folder / runs.PREDICTOR, self.chosen.device)
        return found if self.length == found.prediction_length else with_prediction_length(found, self.length)

    def beyond(self, data: str | None, columns: Columns | None = None) -> ForecastTask:
        """Return the data before the forecasts: of a file with its columns, or None for those of the run."""
        if data is None and self.trained.dataset and self.length != self.record["split"]["prediction_length"]:
            raise ValueError(f"--prediction_length goes with a file; the data set {self.trained.dataset!r} has its own")
        return self._read(data, self.length, None, columns or self.columns, beyond=True)

    def whole(self) -> ForecastTask:
        """Return all of the series, without test windows; of a file, and not of buckets."""
        length = self.record["split"]["prediction_length"]
        return self._read(getattr(self.chosen, "data", None), length, 0, self.columns)

    def _read(
        self, data: str | None, length: int, windows: int | None, columns: Columns, beyond: bool = False
    ) -> ForecastTask:
        """Return the data of a file, or those of the run, with the frequency and categories of the run."""
        if data is None and self.trained.dataset is not None:
            return options.task_of(self.trained, found=columns)
        if data is not None and columns.covariates and Path(data).is_file():
            columns = self.predictor().roles_in(Path(data), columns)
        known = {"beyond": beyond, "categories": self.record["categories"] or None, "columns": columns}
        return read_task(data or self.trained.data, self.record["split"]["freq"], length, windows, **known)
