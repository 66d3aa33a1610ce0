"""`tsforecast impute RUN`: missing values of a table, filled in given all that is there."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsforecast.cli import bulk_options, forecast_tables, irregular
from tsforecast.cli.commands import Impute
from tsforecast.cli.opened import Opened
from tsforecast.forecasting.requests import Imputations
from tsforecast.progress import follow
from tsforecast.wording import counted

log = logging.getLogger(__name__)


def run(chosen: Impute) -> int:
    """Writes every step of all series: values as they are, and what stands in for those that are missing."""
    levels, out = forecast_tables.levels(chosen.quantiles), Path(chosen.output)
    opened = Opened.of(chosen, chosen.run, with_clocks=True)
    if opened.is_irregular:
        return irregular.answer("impute", chosen, opened.folder, opened.trained)
    irregular.refuse_times(chosen)
    if not bulk_options.is_table(chosen):
        drawn: dict[str, Any] = {"num_samples": chosen.num_samples, "seed": chosen.seed}
        request = Imputations(**bulk_options.buckets_of(opened), **drawn, levels=None if chosen.paths else levels)
        bulk_options.process(opened, request)
        return 0
    task, predictor = opened.whole(), opened.predictor()
    torch.manual_seed(chosen.seed)
    filled = predictor.impute(task.entries, chosen.num_samples)
    shown = follow(filled, "imputed", len(task.entries), "series")
    forecast_tables.write(shown, None if chosen.paths else levels, opened.columns.targets, task.columns, out)
    missing = sum(int(np.isnan(entry["target"]).sum()) for entry in task.entries)
    log.info(
        "%s: every step of %d series, with %s filled in", out, len(task.entries), counted(missing, "missing value")
    )
    return 0
