"""Runs on series with clocks of their own: what `train --irregular` makes, and what other commands do with it."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jsonargparse import Namespace

from tsforecast.cli import bulk_options, forecast_tables, options, runs, train_parser
from tsforecast.cli.commands import Evaluate
from tsforecast.cli.option_groups import AnswerOptions
from tsforecast.cli.train_parser import Training
from tsforecast.data import ForecastTask
from tsforecast.data.irregular import in_words
from tsforecast.data.tables.naming import as_read, cells_of
from tsforecast.data.timed_entries import after, before
from tsforecast.evaluation import format_scores, save_scores
from tsforecast.evaluation.timed import evaluate_timed
from tsforecast.forecasting.clock_training import default_epochs, default_linear_epochs
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.forecasting.timed_forecast import TimedForecast
from tsforecast.forecasting.timed_histories import TimedHistories
from tsforecast.io.files import make_folder, replace_together
from tsforecast.io.frame_files import write_frames
from tsforecast.models import DATA_DECIDED, options_of
from tsforecast.models.continuous import TIMED
from tsforecast.plots import colour_of, save_figure
from tsforecast.plots.forecasts import BAND_LEVELS, plot_timed
from tsforecast.wording import counted, listed

log = logging.getLogger(__name__)

# Options of `train` that mean the same for series with clocks of their own, beside those of the model.
_TAKEN = (
    "config", "output", "seed", "max_epochs", "gradient_clip_val", "threads", "data", "irregular", "horizon", "windows",
    "unit", "context_length", "batch_size", "num_batches_per_epoch", "item", "timestamp", "target", "covariates",
    "static_categories", "timestamp_format", "decimal", "wide",
)  # fmt: skip
_DRAWN = 4  # series in a picture
_SHOWN = 2.0  # times of the test part before it, in a picture


def complete(call: Training) -> None:
    """Give the options of `train MODEL --irregular` the defaults of continuous time; refuse those that do not go."""
    model, chosen, defaults = call.model, call.chosen, train_parser.options_of(call.model)
    if model not in TIMED:
        raise ValueError(f"--irregular goes with {listed(TIMED)}, got {model!r}")
    if chosen.data is None:
        raise ValueError("--irregular goes with --data FILE")
    own = own_options(model)
    for name, value in vars(chosen).items():
        if name not in (*_TAKEN, *own) and value != defaults.get(name):
            raise ValueError(f"--{name} does not go with {model} --irregular")
    for name, parameter in own.items():  # some defaults are others than those of regular models
        if name in chosen and name not in call.given:
            chosen[name] = "auto" if name == "components" else parameter.default
    if "max_epochs" not in call.given:
        chosen.max_epochs = default_epochs(model)
    if "linear_epochs" not in call.given:
        chosen.update(Namespace(**default_linear_epochs(model, chosen.max_epochs)))


def own_options(model: str) -> dict[str, Any]:
    """The hyperparameters of a model that a user may choose, with their declarations."""
    return {name: each for name, each in options_of(TIMED[model]).items() if name not in {*DATA_DECIDED, "unit"}}


def refuse_times(chosen: AnswerOptions) -> None:
    """Raise a ValueError for options of times beside a run on a regular grid."""
    for name in ("at", "every"):
        if getattr(chosen, name) is not None:
            raise ValueError(f"--{name} goes with a run of `train --irregular`; this one forecasts steps of its grid")


def answer(command: str, chosen: AnswerOptions, folder: Path, trained: Namespace) -> int:
    """Writes forecasts (`predict`) or interpolation (`impute`) at any times into a file; refuses other options."""
    if not bulk_options.is_table(chosen):
        raise ValueError("a run of `train --irregular` answers into a file: expected --output FILE.csv or FILE.parquet")
    given = {"known": None, "prediction_length": None, "start": "common"}
    for name, default in given.items():
        if getattr(chosen, name, default) != default:
            raise ValueError(f"--{name} goes with regular series; give times by --at FILE or --every TIME")
    predictor = load_predictor(folder / runs.PREDICTOR).on_clock
    columns = options.columns(vars(chosen), predictor.columns)
    entries, read = predictor.read_named(chosen.data or trained.data, columns)
    times, covariates = predictor.asked_of(entries, chosen.at, chosen.every, inside=command == "impute")
    levels, out = forecast_tables.levels(chosen.quantiles), Path(chosen.output)
    if command == "impute":
        if chosen.paths:
            raise ValueError("--paths goes with predict: interpolation of a run of `train --irregular` has quantiles")
        answers = predictor.interpolate(entries, times, covariates)
    else:
        count = chosen.num_samples if chosen.paths else 0
        answers = predictor.forecast(entries, times, count, chosen.seed, covariates)
    make_folder(out.parent)
    targets = predictor.columns.targets
    frames = (a.path_frame(targets) if chosen.paths else a.frame(levels, targets) for a in answers)
    cells = cells_of(entries)
    write_frames((as_read(frame, read, cells) for frame in frames), out)
    log.info("%s: %d series, %s", out, len(times), counted(sum(map(len, times.values())), "time"))
    return 0


def evaluate(chosen: Evaluate, folder: Path, record: Mapping[str, Any], task: ForecastTask) -> int:
    """Scores a run on its test windows beside baselines, into its folder; refuses one without test windows."""
    for name in ("adapt", "inspect", "marks", "output", "refit"):
        if getattr(chosen, name):
            raise ValueError(f"--{name} does not go with a run of `train --irregular`")
    predictor = load_predictor(folder / runs.PREDICTOR)
    evaluation = evaluate_timed(predictor, task, record["model"], chosen.baselines != "none")
    with replace_together(folder, runs.REPORT) as report:
        save_scores(evaluation, report)
        if chosen.plot_series > 0:
            figure = _picture(predictor.on_clock, task, record["model"], chosen.plot_series)
            save_figure(figure, report / "plots/forecasts.png")
    sys.stdout.write(format_scores(evaluation) + "\n")
    return 0


def _picture(predictor: TimedHistories, task: ForecastTask, model: str, count: int) -> Any:
    """The test windows of some series, from each one's past alone."""
    entries = task.entries[: min(count, _DRAWN)]
    answers, since, held_out = {}, {}, {}
    horizon = task.prediction_length
    for entry in entries:
        item, origins = entry["item_id"], task.origins(entry)
        since[item] = int(origins[0] - _SHOWN * task.windows * horizon)
        held_out[item] = after(entry, origins[0])
        pairs = []
        for origin in origins:
            past, label = before(entry, origin), after(before(entry, origin + horizon), origin)
            if "feat_dynamic_real" not in entry:  # else covariates are known at observations alone
                label = {
                    "item_id": item,
                    "times": origin + np.linspace(0, horizon, 61, dtype=np.int64)[1:],
                }
            if len(label["times"]):
                pairs.append((past, label))
        answers[item] = [_frame(forecast) for forecast in predictor.forecast_windows(pairs)]
    pasts = [before(entry, task.origins(entry)[0]) for entry in entries]
    title = f"{model} on {task.name}: forecasts of {in_words(task.prediction_length)}, each from all before it"
    label = task.targets[0] if len(task.targets) == 1 else ""
    return plot_timed(pasts, answers, since=since, held_out=held_out, colour=colour_of(model), label=label, title=title)


def _frame(forecast: TimedForecast) -> pd.DataFrame:
    frame = forecast.frame(BAND_LEVELS)
    return frame.query("target == '0'") if "target" in frame else frame
