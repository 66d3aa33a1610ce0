"""`tsforecast forecast FILE`: from a file to forecasts and a picture, without a run folder."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gluonts.model import Forecast
from jsonargparse import Namespace

from tsforecast.cli import forecast_tables, run_records, runs
from tsforecast.cli.answers import heading
from tsforecast.cli.commands import Forecast as Chosen
from tsforecast.cli.given_files import columns
from tsforecast.cli.option_groups import COLUMNS
from tsforecast.cli.train_parser import options_of
from tsforecast.data import ForecastTask, read_task
from tsforecast.data.calendar.frequency import expected_alias_warnings, steps_in_words
from tsforecast.data.hierarchy import find_hierarchy, with_levels
from tsforecast.data.periods import find_periods
from tsforecast.data.task import with_windows
from tsforecast.evaluation.baselines import fit_baseline
from tsforecast.evaluation.scores import score
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.predictor import StateSpacePredictor, save_predictor
from tsforecast.forecasting.sum_models import with_all_sums
from tsforecast.models.words import in_words, name_of
from tsforecast.plots import plot_forecasts, save_figure
from tsforecast.wording import counted, options_called

log = logging.getLogger(__name__)

_SCORED = 100  # series of the comparison, at most
_NAMED = 3  # structures that a line names


@options_called(prediction_length="horizon")
def run(chosen: Chosen) -> int:
    """Writes forecasts and a picture."""
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    levels = forecast_tables.levels(chosen.quantiles)
    path = Path(chosen.data)
    stem = path.name.split(".")[0]
    out = Path(chosen.output or f"{stem}-forecasts.csv")
    if not out.name.lower().endswith(forecast_tables.SUFFIXES):
        raise ValueError(f"expected --output to end with {', '.join(forecast_tables.SUFFIXES)}, got {out.name!r}")
    if chosen.start == "each" and (chosen.hierarchy is not None or chosen.aggregate):
        raise ValueError("expected --start common with --hierarchy or --aggregate, got 'each'")
    roles = columns(vars(chosen))
    tree, given = None, chosen.hierarchy
    read = replace(with_levels(roles, given), ahead=True)
    task = read_task(path, chosen.freq, chosen.horizon, columns=read, beyond=True)
    if given is not None:
        tree, task = find_hierarchy(given, task.ending_together(), roles.items)
    ahead = task if chosen.start == "each" else task.ending_together()
    periods = find_periods(chosen.aggregate, ahead) if chosen.aggregate else []
    held_out = _held_out(task)
    if chosen.keep and Path(chosen.keep).exists():
        raise ValueError(f"--keep: expected a new folder, got {chosen.keep!r}, which exists")
    predictor = fitted(held_out or task, chosen.seed)
    _compare(predictor, held_out)
    drawn: list[Forecast] = []
    weights: dict[str, float] = {}
    torch.manual_seed(chosen.seed)
    if tree is None and not chosen.aggregate:
        num_samples = 0 if predictor.has_marginals else None
        found = forecast_tables.weighed(predictor.predict(ahead.latest, num_samples=num_samples), weights)
    else:
        found = with_all_sums(predictor, ahead, tree, periods, seed=chosen.seed)
    forecasts = _kept(found, drawn, chosen.plot_series, ahead.freq)
    forecast_tables.write(forecasts, levels, ahead.targets, task.columns, out)
    _tell(predictor, weights, len(ahead.entries))
    log.info(
        "%s: forecasts of %d series, %s of %r each",
        out,
        len(ahead.entries),
        counted(task.prediction_length, "step"),
        task.freq,
    )
    if drawn:
        picture = out.with_name(out.name.split(".")[0] + ".png")
        horizon = steps_in_words(task.prediction_length, task.freq)
        title = heading(task, f"forecasts of {horizon} by {in_words(predictor.prediction_net)}")
        steps = 4 * task.prediction_length
        figure = plot_forecasts(ahead.entries, drawn, targets=ahead.targets, history=steps, title=title)
        shown = f"the first {len(drawn)} of them" if len(drawn) < len(ahead.entries) else "their picture"
        log.info("%s: %s", save_figure(figure, picture), shown)
    if chosen.keep:
        kept = held_out or with_windows(task, 0)
        if tree is not None:  # sums are made again from their series
            kept = replace(kept, entries=[one for one in kept.entries if one["item_id"] in {*tree.bottoms}])
        _keep(Path(chosen.keep), chosen, predictor, kept)
    return 0


def _keep(folder: Path, chosen: Chosen, predictor: StateSpacePredictor, task: ForecastTask) -> None:
    """Writes a run folder, as `train` does: what it kept back for the comparison is its test part."""
    from tsforecast.cli import train  # imports Lightning, which takes seconds

    model = name_of(predictor.prediction_net)
    found = {} if task.columns is None else {name: getattr(task.columns, name) for name in COLUMNS}
    options = options_of(model)
    options.update(Namespace(data=chosen.data, freq=task.freq, prediction_length=task.prediction_length))
    options.update(Namespace(windows=task.windows, seed=chosen.seed, threads=chosen.threads, **found))
    with runs.hold(folder):
        record = train.new_record(model, folder, options, task, "forecast", chosen.argv) | run_records.sums_of(chosen)
        runs.create(folder, train.config(model, options), record)
        save_predictor(predictor, folder / runs.PREDICTOR)
    said = ": `predict` forecasts its sums, too" if "sums" in record else ""
    # Parts, anomalies and gaps of increments are not those of totals.
    takers = " and `evaluate`" if predictor.totals else ", `evaluate` and `explain`"
    log.info("%s: a run, which `tsforecast predict`%s take%s", folder, takers, said)


def _held_out(task: ForecastTask) -> ForecastTask | None:
    """Return the task with its last steps for a comparison; None where most series are too short for one."""
    least = 3 * task.prediction_length
    lengths = [entry["target"].shape[-1] for entry in task.entries]
    if np.median(lengths) < least:
        log.info("no comparison: it takes %d steps, and the median series has %d", least, np.median(lengths))
        return None
    long = [entry for entry, length in zip(task.entries, lengths, strict=True) if length >= least]
    if task.categories and len(long) < len(lengths):
        log.info(
            "no comparison: %d series are too short for one, and may have categories alone", len(lengths) - len(long)
        )
        return None
    return with_windows(replace(task, entries=long), 1)


def _compare(predictor: StateSpacePredictor, task: ForecastTask | None) -> None:
    """Says how forecasts of the last steps, which the training has not seen, compare to seasonal naive ones."""
    if task is None:
        return
    entries = list(task.entries)
    part = replace(task, entries=entries[:: -(-len(entries) // _SCORED)])
    num_samples = 0 if predictor.has_marginals else None
    with expected_alias_warnings():
        pasts = [past for past, _ in part.test()]
        own = score(predictor.predict(pasts, num_samples=num_samples), part.test()).overall
        naive = fit_baseline("seasonal_naive", part.train, part.season, horizon=part.prediction_length)
        other = score(naive.predictor(part.prediction_length).predict(pasts), part.test()).overall
    log.info(
        "the last %s of %s, held out: CRPS %.3f of the mean size, seasonal naive %.3f; the 80 %% interval held %.0f %%",
        counted(task.prediction_length, "step"), f"{len(part.entries)} series",
        own["crps"], other["crps"], 100 * own["coverage"]["80"],
    )  # fmt: skip
    if own["crps"] > other["crps"]:
        log.warning("seasonal naive forecasts were better there: `tsforecast train --data FILE` compares more models")


def _kept(forecasts: Iterable[Forecast], drawn: list[Forecast], count: int, freq: str) -> Iterator[Forecast]:
    """Return forecasts as they come, and keep the first of steps to be drawn."""
    for forecast in forecasts:
        if len(drawn) < count and forecast.start_date.freqstr == freq:
            drawn.append(forecast)
        yield forecast


def _tell(predictor: StateSpacePredictor, weights: dict[str, Any], count: int) -> None:
    """Names the parts of the forecasts."""
    largest = sorted(weights.items(), key=lambda item: -item[1])[:_NAMED]
    named = ", ".join(f"{100 * weight / count:.0f} % {name.replace('_', ' ')}" for name, weight in largest)
    kind = name_of(predictor.prediction_net)
    log.info("chosen: %s%s", kind, f", a mixture of {len(weights)} models: {named}, .." if named else "")
