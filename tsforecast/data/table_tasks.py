"""From the series of a table to a task: frequency, horizon and test windows."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tsforecast.data.calendar.frequency import default_horizon, default_windows
from tsforecast.data.checks import check_entries
from tsforecast.data.tables.series import End, TableSeries
from tsforecast.data.task import ForecastTask, steps_of
from tsforecast.data.usable import tell, unusable, without
from tsforecast.wording import counted

log = logging.getLogger(__name__)

_SHORT = 0.1  # share of the series that may have less than five times the test windows


def task_of(
    series: TableSeries,
    horizon: int,
    windows: int,
    reasons: dict[str, str],
    beyond: bool,
    part: bool = False,
    step: int = 0,
) -> ForecastTask:
    """The task of the series that can be used; a warning names the others.

    Raises:
        ValueError: If more than half can not be used, unless they are a part; or none of them all.
    """
    path, test_length = series.path, steps_of(windows, horizon, step)
    left_out = unusable(series.entries, test_length, beyond)
    tell(path, left_out, None if part else len(series.entries))
    kept = without(series.entries, left_out)
    for end, entry in kept:
        if beyond and "feat_dynamic_real" in entry:
            _check_future(series, end, entry, horizon)
        known = entry["target"][~np.isnan(entry["target"])]
        if known.size and (known == known[0]).all():
            log.info("%s: series %r is constant", path, entry["item_id"])
    entries = [entry for _, entry in kept]
    if entries:
        check_entries(entries, series.freq, min_length=test_length + 1, all_missing=beyond)
    return ForecastTask(
        path.stem,
        series.freq,
        horizon,
        windows,
        entries,
        series.categories,
        tuple(series.columns.targets),
        reasons=reasons,
        columns=series.roles,
        step=step,
    )


def split_lengths(
    path: Path, freq: str, lengths: Sequence[int], horizon: int | None, windows: int | None
) -> tuple[int, int, dict[str, str]]:
    """Prediction length and windows, by the rule of `read_task` where they are None, and why."""
    reasons = {}
    if horizon is None:
        # A forecast of more steps than the longest series has cannot be trained.
        size, which, share = (max(lengths), "longest", 2) if windows == 0 else (int(np.median(lengths)), "median", 5)
        horizon = default_horizon(freq)
        reasons["prediction_length"] = f"the custom at frequency {freq}"
        if size // share < horizon:
            horizon = max(1, size // share)
            name = "series" if len(lengths) == 1 else f"{which} series"
            reasons["prediction_length"] = f"the {name} has {counted(size, 'value')}"
        log.info("%s: prediction length %d by default: %s", path, horizon, reasons["prediction_length"])
    if windows is None:
        # Those without room for one window are left out whatever the number of windows.
        most = [length for length in lengths if length > horizon] or [max(lengths)]
        short = int(np.quantile(most, _SHORT, method="lower"))
        windows = default_windows(freq)
        reasons["windows"] = f"the custom at frequency {freq}"
        if short // 5 // horizon < windows:
            windows = max(1, short // 5 // horizon)
            one = len(lengths) == 1
            found = f"the series has {counted(short, 'value')}" if one else f"nine in ten series have {short} or more"
            reasons["windows"] = found
        log.info("%s: %d test window%s by default: %s", path, windows, "" if windows == 1 else "s", reasons["windows"])
    return horizon, windows, reasons


def _check_future(series: TableSeries, end: End, entry: dict[str, Any], horizon: int) -> None:
    missing = entry["target"].shape[-1] + horizon - entry["feat_dynamic_real"].shape[-1]
    if missing > 0:
        raise ValueError(
            f"{end}: the covariates of series {entry['item_id']!r} end here, {missing} steps of "
            f"{series.freq!r} before its forecast does; add rows with covariates and an empty target"
        )
