"""A trained run that a command asks: where most commands begin."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser, Namespace

from tsforecast.cli import irregular, options, parsing, runs
from tsforecast.cli.train import settings
from tsforecast.data import Columns, ForecastTask
from tsforecast.data.buckets.survey import is_buckets
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor, with_prediction_length


def parsed(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Return the options of a command, within their ranges; the number of its threads is set.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If a number is out of its range.
    """
    chosen = parser.parse_args(list(argv))
    parsing.check_ranges(chosen)
    if chosen.get("threads"):
        torch.set_num_threads(chosen.threads)
    return chosen


@dataclass(frozen=True)
class Opened:
    """A run whose training is finished.

    Attributes:
        chosen: Options of the command.
        folder: Of the run.
        record: Contents of its run.json.
        trained: Options of its training.
    """

    chosen: Namespace
    folder: Path
    record: dict[str, Any]
    trained: Namespace

    @classmethod
    def of(cls, chosen: Namespace) -> "Opened":
        """Return the run that the options of a command name.

        Raises:
            ValueError: If the folder is no run whose training is finished.
            FileNotFoundError: If there is no such folder.
        """
        folder, record = options.trained_run(chosen)
        return cls(chosen, folder, record, settings(folder, record))

    @property
    def is_irregular(self) -> bool:
        """Return whether it is one of series with clocks of their own."""
        return irregular.is_irregular(self.record)

    @property
    def columns(self) -> Columns:
        """Return the columns of the data: those that the command names, else those of the run."""
        return options.columns(self.chosen, runs.columns_of_run(self.record) or options.columns(self.trained))

    @property
    def length(self) -> int:
        """Return the steps of a forecast: those of the command, else of the run."""
        return self.chosen.get("prediction_length") or self.record["split"]["prediction_length"]

    @property
    def buckets(self) -> Path | None:
        """Return the data of the command, else of the run, where they are a folder of buckets."""
        data = self.chosen.data or self.trained.data
        return Path(data) if data is not None and is_buckets(Path(data)) else None

    def predictor(self) -> StateSpacePredictor:
        """Return the predictor of the run, for forecasts of `length` steps."""
        found = load_predictor(self.folder / runs.PREDICTOR, self.chosen.device)
        return found if self.length == found.prediction_length else with_prediction_length(found, self.length)

    def beyond(self, data: str | None) -> ForecastTask:
        """Return the data whose future is wanted, see `options.task_beyond`; None for those of the run."""
        return options.task_beyond(data, self.chosen, self.trained, self.record, self.length, self.columns)

    def whole(self) -> ForecastTask:
        """Return all of the series, see `options.whole_series`."""
        return options.whole_series(self.chosen, self.record, self.trained, self.columns)
