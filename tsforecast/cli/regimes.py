"""`tsforecast regimes RUN`: which regime series were in, when that changed, and which regimes come next."""

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.analysis.regime_names import describe, named
from tsforecast.analysis.regimes import RegimeReport, RegimeTables, regime_report
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
    """
    opened = Opened.of(chosen, chosen.run, with_clocks=True)
    out = Path(chosen.output) if chosen.output else opened.folder / FOLDER
    if opened.buckets is not None:
        opened, common = replace(opened, chosen=replace(chosen, output=str(out))), bulk_options.buckets_of(opened)
        drawn: dict[str, Any] = {"num_samples": chosen.num_samples, "seed": chosen.seed}
        request = RegimeTables(**common, **drawn, level=chosen.level, last=chosen.last)
        bulk_options.process(opened, request)
        return 0
    if opened.is_irregular:
        if chosen.last is not None:
            raise ValueError("--last does not go with a run of `train --irregular`")
        timed = load_predictor(opened.folder / runs.PREDICTOR).on_clock
        roles = options.columns(vars(chosen), timed.columns)
        entries, read = timed.read_named(chosen.data or opened.trained.data, roles)
        report = timed_regimes(timed, entries, level=chosen.level, num_samples=chosen.num_samples)
        net, label = timed.net, next(iter(timed.columns.targets), "")
    else:
        task, predictor = opened.whole(), opened.predictor()
        entries, read = task.entries, task.columns
        torch.manual_seed(chosen.seed)
        paths = {"num_samples": chosen.num_samples, "seed": chosen.seed}
        report = regime_report(predictor, entries, level=chosen.level, last=chosen.last, **paths)
        net, label = predictor.prediction_net, measured(next(iter(task.targets), ""), task.unit)
    names = describe(report.regimes, entries)
    report = named(report, names)
    tables = {"regimes": report.regimes, "changes": report.changes, "ahead": report.ahead, "names": names}
    if opened.is_irregular:
        del tables["ahead"]
    write_tables(out, read, entries, **tables)
    for number, entry in enumerate(entries[: chosen.plot_series], 1):
        save_figure(_figure(net, report, names, entry, label), out / f"regimes-{number}.png")
    _say(report, names)
    log.info("%s: %s and pictures", out, ", ".join(f"{name}.csv" for name in tables))
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


def _say(report: RegimeReport, table: pd.DataFrame) -> None:
    """Prints the share of time of each regime, and the latest changes."""
    shares = zip(table["share"], table["regime"], table["name"], strict=True)
    said = "; ".join(f"{share:.0%} in {number} ({name})" for share, number, name in shares)
    sys.stdout.write(f"share of time by regime: {said}\n")
    latest = report.changes.sort_values("timestamp", kind="stable").tail(10)
    if len(latest):
        sys.stdout.write(f"{counted(len(report.changes), 'change')}; the latest:\n{latest.to_string(index=False)}\n")
