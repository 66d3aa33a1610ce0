"""A trained run that a command asks: where most commands begin."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tsforecast.cli import options, run_records, runs
from tsforecast.cli.option_groups import DeviceOptions
from tsforecast.data import Columns, ForecastTask
from tsforecast.data.buckets.survey import is_buckets
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, with_prediction_length


@dataclass(frozen=True)
class Opened:
    """A run with finished training.

    Attributes:
        chosen: Options of the command.
        folder: Of the run.
        record: Contents of its run.json.
        trained: Options of its training.
    """

    chosen: Any
    folder: Path
    record: dict[str, Any]
    trained: Namespace

    @classmethod
    def of(cls, chosen: DeviceOptions, run: str, with_clocks: bool = False) -> "Opened":
        """Return the run that a command names, beside its options; see `options.trained_run`.

        Raises:
            ValueError: If the folder is no run whose training is finished, or none that the command takes.
            FileNotFoundError: If there is no such folder.
        """
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
        """Return the data whose future is wanted, see `options.task_beyond`; None for those of the run.

        Args:
            data: A file.
            columns: Of the data; None for `columns`.
        """
        return options.task_beyond(data, self.trained, self.record, self.length, columns or self.columns)

    def whole(self) -> ForecastTask:
        """Return all of the series, see `options.whole_series`."""
        return options.whole_series(getattr(self.chosen, "data", None), self.record, self.trained, self.columns)
