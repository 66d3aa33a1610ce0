"""Regimes of all series of a folder of buckets, a table for each bucket."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tsforecast.analysis.regimes import regime_report
from tsforecast.data.buckets.survey import Bucket
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.requests import Request
from tsforecast.io.frame_files import write_frames


@dataclass(frozen=True, kw_only=True)
class RegimeTables(Request):
    """Regimes at every step, their changes with intervals, and regimes ahead, in one table.

    Rows have the columns of `RegimeReport.regimes`; `lower`, `upper` and `expected` of `RegimeReport.changes` at the
    first steps of new regimes; and `ahead`, true behind the end of the series.

    Attributes:
        level: Probability of the intervals of changes.
        last: Steps at the end of each series that are read; None for all.
    """

    level: float
    last: int | None

    def read(self, folder: Path, bucket: Bucket) -> ForecastTask:
        """Return the series as they are."""
        return self._read(folder, bucket, 0, 0, None)

    def write(self, predictor: StateSpacePredictor, task: ForecastTask, path: Path) -> dict[str, Any]:
        """Writes the regimes of all series."""
        seed = torch.initial_seed()  # that of the bucket
        options = {"level": self.level, "last": self.last, "num_samples": self.num_samples, "seed": seed}
        report = regime_report(predictor, task.entries, **options)
        keys = ["item_id", "timestamp"]
        changes = report.changes.reindex(columns=[*keys, "lower", "upper", "expected"])
        past = report.regimes.merge(changes, on=keys, how="left").assign(ahead=False)
        parts = [past, report.ahead.assign(ahead=True)] if len(report.ahead) else [past]
        write_frames(iter([pd.concat(parts, ignore_index=True)]), path)
        return {}
