"""`tsforecast regimes RUN`: which regime series were in, when that changed, and which regimes come next."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.analysis.regime_buckets import RegimeTables
from tsforecast.analysis.regime_names import describe, named
from tsforecast.analysis.regimes import RegimeReport, regime_report
from tsforecast.analysis.timed_regimes import timed_regimes
from tsforecast.cli import bulk_options, options, runs
from tsforecast.cli.answers import write_tables
from tsforecast.cli.commands import Regimes
from tsforecast.cli.opened import Opened
from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.regimes import AbstractRegimeInference
from tsforecast.plots import measured, plot_regimes, save_figure
from tsforecast.wording import counted, shortened

log = logging.getLogger(__name__)

FOLDER = "regimes"  # in the folder of the run
_SPANS = 30  # intervals of changes in a picture, at most: more of them hide the series


def run(chosen: Regimes) -> int:
    """Writes probabilities of regimes, their changes with intervals, probabilities ahead, and pictures.

    Of a folder of buckets it writes a table for each.

    Raises:
        ValueError: If the run, the data or an option is not as expected, or the model has no regimes.
        FileNotFoundError: If a file or folder is missing.
    """
    opened = Opened.of(chosen, chosen.run, with_clocks=True)
    if opened.is_irregular:
        return _irregular(chosen, opened)
    out = Path(chosen.output) if chosen.output else opened.folder / FOLDER
    if opened.buckets is not None:
        opened, common = replace(opened, chosen=replace(chosen, output=str(out))), bulk_options.buckets_of(opened)
        drawn: dict[str, Any] = {"num_samples": chosen.num_samples, "seed": chosen.seed}
        request = RegimeTables(**common, **drawn, level=chosen.level, last=chosen.last)
        bulk_options.process(opened, request)
        return 0
    task, predictor = opened.whole(), opened.predictor()
    torch.manual_seed(chosen.seed)
    report = regime_report(
        predictor,
        task.entries,
        level=chosen.level,
        last=chosen.last,
        num_samples=chosen.num_samples,
        seed=chosen.seed,
    )
    table = describe(report.regimes, task.entries)
    report = named(report, table)
    write_tables(
        out, task.columns, task.entries, regimes=report.regimes, changes=report.changes, ahead=report.ahead, names=table
    )
    for number, entry in enumerate(task.entries[: chosen.plot_series], 1):
        label = measured(next(iter(task.targets), ""), task.unit)
        save_figure(_figure(predictor.prediction_net, report, table, entry, label), out / f"regimes-{number}.png")
    _say(report, table, out, ("regimes.csv", "changes.csv", "ahead.csv", "names.csv"))
    return 0


def _irregular(chosen: Regimes, opened: Opened) -> int:
    """Writes the tables and pictures of series with clocks of their own."""
    if chosen.last is not None:
        raise ValueError("--last does not go with a run of `train --irregular`")
    predictor = load_predictor(opened.folder / runs.PREDICTOR).on_clock
    roles = options.columns(vars(chosen), predictor.columns)
    entries, read = predictor.read_named(chosen.data or opened.trained.data, roles)
    regimes, changes = timed_regimes(predictor, entries, level=chosen.level, num_samples=chosen.num_samples)
    out = Path(chosen.output) if chosen.output else opened.folder / FOLDER
    table = describe(regimes, entries)
    report = named(RegimeReport(regimes, changes, regimes.iloc[:0]), table)
    write_tables(out, read, entries, regimes=report.regimes, changes=report.changes, names=table)
    label = next(iter(predictor.columns.targets), "")
    for number, entry in enumerate(entries[: chosen.plot_series], 1):
        save_figure(_figure(predictor.net, report, table, entry, label), out / f"regimes-{number}.png")
    _say(report, table, out, ("regimes.csv", "changes.csv", "names.csv"))
    return 0


def _figure(
    net: AbstractForecaster, report: RegimeReport, table: pd.DataFrame, entry: dict[str, Any], label: str
) -> Any:
    """The picture of a series: its values, its regimes, and the intervals of their changes."""
    assert isinstance(net.inference, AbstractRegimeInference)
    item = entry["item_id"]
    own, changes = (table[table["item_id"] == item] for table in (report.regimes, report.changes))
    values = np.atleast_2d(np.asarray(entry["target"], np.float64))[0, -len(own) :]
    with expected_alias_warnings():
        observed = pd.Series(values, pd.DatetimeIndex(own["timestamp"]), name=shortened(item))
    with torch.no_grad():
        scales = net.inference.regime_scales()
    return plot_regimes(
        observed,
        own.filter(regex=r"^p_\d+$").to_numpy(),
        scales=None if scales is None else scales.cpu().numpy(),
        names=list(table["name"]),
        spans=list(zip(changes["lower"], changes["upper"], strict=True)) if len(changes) <= _SPANS else (),
        label=label,
    )


def _say(report: RegimeReport, table: pd.DataFrame, out: Path, files: Sequence[str]) -> None:
    """Prints the share of time of each regime, the latest changes, and where the tables are."""
    shares = zip(table["share"], table["regime"], table["name"], strict=True)
    said = "; ".join(f"{share:.0%} in {number} ({name})" for share, number, name in shares)
    sys.stdout.write(f"share of time by regime: {said}\n")
    latest = report.changes.sort_values("timestamp", kind="stable").tail(10)
    if len(latest):
        sys.stdout.write(f"{counted(len(report.changes), 'change')}; the latest:\n{latest.to_string(index=False)}\n")
    log.info("%s: %s and pictures", out, ", ".join(files))
