"""`tsforecast predict RUN`: forecasts beyond the end of the data, into a file."""

import logging
from dataclasses import replace
from pathlib import Path

import torch

from tsforecast.cli import bulk_options, forecast_tables, irregular, runs
from tsforecast.cli.commands import Predict
from tsforecast.cli.memory import check_forecast_memory
from tsforecast.cli.opened import Opened
from tsforecast.data import ForecastTask, attach_known
from tsforecast.data.buckets.survey import read_survey
from tsforecast.data.hierarchy import find_hierarchy, with_levels
from tsforecast.data.known import brings_covariates, with_room
from tsforecast.data.periods import find_periods
from tsforecast.forecasting.predictor import StateSpacePredictor, load_predictor
from tsforecast.forecasting.requests import Forecasts
from tsforecast.forecasting.sum_models import with_all_sums
from tsforecast.progress import follow
from tsforecast.wording import counted, listed

log = logging.getLogger(__name__)

_NAMED = 10  # series that a warning names, at most


def run(chosen: Predict) -> int:
    """Writes forecasts."""
    out = Path(chosen.output)
    levels = forecast_tables.levels(chosen.quantiles)
    opened = Opened.of(chosen, chosen.run, with_clocks=True)
    if opened.is_irregular:
        return irregular.answer("predict", chosen, opened.folder, opened.trained)
    irregular.refuse_times(chosen)
    length, columns = opened.length, opened.columns
    if sums := opened.sums:
        return _sums(chosen, opened, sums, levels, out)
    if not bulk_options.is_table(chosen):
        if chosen.known is not None:
            raise ValueError("--known goes with a file as --output")
        common, data = bulk_options.buckets_of(opened), opened.buckets
        assert data is not None
        predictor = load_predictor(opened.folder / runs.PREDICTOR, chosen.device)
        num_samples = _num_samples(chosen, predictor, length, predictor.batch_size)
        request = Forecasts(
            **common,
            num_samples=num_samples,
            seed=chosen.seed if num_samples else 0,  # exact quantiles are the same for all
            levels=None if chosen.paths else levels,
            prediction_length=length,
            last=read_survey(data).last if chosen.start == "common" else None,
        )
        bulk_options.process(opened, request)
        return 0
    brings = chosen.known is not None and brings_covariates(Path(chosen.known), columns)
    task = with_room(replace(opened.whole(), prediction_length=length)) if brings else opened.beyond(chosen.data)
    task = _from_start(task, chosen.start)
    entries = task.latest
    if chosen.known is not None:
        entries = attach_known(entries, chosen.known, length, columns)
    predictor = opened.predictor()
    num_samples = _num_samples(chosen, predictor, length, len(entries))
    torch.manual_seed(chosen.seed)
    forecasts = predictor.predict(entries, num_samples=num_samples)
    shown = follow(forecasts, "forecasts", len(entries), "series")
    kept = None if chosen.paths else levels
    weights: dict[str, float] = {}
    forecast_tables.write(forecast_tables.weighed(shown, weights), kept, columns.targets, task.columns, out)
    for name, weight in sorted(weights.items(), key=lambda item: -item[1])[:_NAMED]:
        if weight >= 0.005 * len(entries):
            log.info("%3.0f %%  %s", 100 * weight / len(entries), name)
    log.info("%s: forecasts of %d series, %s of %r each", out, len(entries), counted(length, "step"), predictor.freq)
    return 0


def _sums(chosen: Predict, opened: Opened, sums: dict[str, list[str]], levels: tuple[float, ...], out: Path) -> int:
    """Writes forecasts of a hierarchy or over periods that add up."""
    if chosen.known is not None or chosen.start != "common" or not bulk_options.is_table(chosen):
        names = " and ".join(f"--{name}" for name in sums)
        kept = [name for name in sums if getattr(chosen, name) is None]
        hint = f"; the run has it, and {' '.join(f'--{name} none' for name in kept)} leaves it out" if kept else ""
        raise ValueError(f"{names} goes with a file as --output, without --known, and with --start common{hint}")
    columns, tree, hierarchy = opened.columns, None, sums.get("hierarchy")
    task = opened.beyond(chosen.data, with_levels(columns, hierarchy)).ending_together()
    if hierarchy is not None:
        tree, task = find_hierarchy(hierarchy, task, columns.items)
    num_samples, aggregate = chosen.num_samples if chosen.paths else None, sums.get("aggregate")
    periods = find_periods(aggregate, task) if aggregate else []
    found = with_all_sums(opened.predictor(), task, tree, periods, num_samples, chosen.seed)
    forecast_tables.write(found, None if chosen.paths else levels, columns.targets, task.columns, out)
    log.info("%s: forecasts of %d series and sums", out, len(found))
    return 0


def _num_samples(chosen: Predict, predictor: StateSpacePredictor, length: int, series: int) -> int:
    """Sample paths of a forecast, once there is memory for them."""
    net = predictor.prediction_net
    num_samples = chosen.num_samples if chosen.paths or not predictor.has_marginals else 0
    batch = min(predictor.batch_size, series)
    check_forecast_memory(batch, length * net.data.num_targets, num_samples, predictor.has_marginals)
    return num_samples


def _from_start(task: ForecastTask, start: str) -> ForecastTask:
    """The task whose series end where their forecasts begin; a warning names series that end before others."""
    if start == "common":
        return task.ending_together()
    early = [str(entry["item_id"]) for entry, gap in zip(task.entries, task.gaps_at_end, strict=True) if gap]
    if early:
        names = listed(early, _NAMED)
        log.warning("%d series end before others (%s): their forecasts cover earlier dates", len(early), names)
    return task
