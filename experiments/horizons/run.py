"""Scores how sure models are an hour, a day and a week ahead: rows of results/horizons.csv for each data set and model.

    python experiments/horizons/run.py
    python experiments/horizons/run.py --raw FOLDER --data ETT_1H epf_np --models issm gls --part test

Models have no option but data, seed and a horizon of a week of hours. Each is trained once, before the first window,
on at most fifty series, and draws joint paths of each window from all that lies before it. By these paths the interval
of 80 % is scored for each step of a day, and for sum and maximum of a day and of a week. Windows lie before the part
of the data that is for tests; with `--part test` they are those of the test.
"""

import argparse
import os
import pathlib
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.dataset.split import split
from gluonts.model import SampleForecast

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.fev.tasks import SOURCES, load
from experiments.tables import ROOT, fill, has_row
from tsforecast import StateSpaceEstimator, load_task
from tsforecast.data import ForecastTask
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.task import ended
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.predictor import StateSpacePredictor

TABLE = ROOT / "experiments" / "horizons" / "results" / "horizons.csv"
COLUMNS = ["data", "model", "part", "seed", "scope", "coverage_80", "sql", "windows", "cpu_s", "commit", "command"]
BUNDLED = ("electricity-2012-2014", "traffic", "solar", "eia-2020")
RAW = ("ETT_1H", "epf_np", "epf_de", "proenfo_gfc14")
MODELS = ("forecast", "bank", "issm", "gls")
DAY, WEEK = 24, 168
_SERIES, _WINDOWS, _PATHS = 50, 10, 200
_TRAINED = 504  # steps that are for training at least


@dataclass(frozen=True)
class Job:
    """A run.

    Attributes:
        data: One of `BUNDLED` and `RAW`.
        model: One of `MODELS`.
        part: "before" or "test".
    """

    data: str
    model: str
    part: str

    @property
    def command(self) -> str:
        """Return the command that makes the rows again."""
        raw = " --raw FOLDER" if self.data in RAW else ""
        return f"python experiments/horizons/run.py{raw} --data {self.data} --models {self.model} --part {self.part}"


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=pathlib.Path, help="folder of raw files, searched with subfolders")
    parser.add_argument("--data", nargs="+", choices=(*BUNDLED, *RAW), metavar="DATA", help="default: all that is here")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS, metavar="MODEL")
    parser.add_argument("--part", default="before", choices=("before", "test"))
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.data or [*BUNDLED, *(RAW if options.raw else ())]
    jobs = [Job(data, model, options.part) for data in names for model in options.models]
    jobs = [job for job in jobs if not has_row(options.output, {"command": job.command})]
    fill(options.output, COLUMNS, jobs, partial(run, raw=options.raw), summary)


def summary(table: pathlib.Path) -> str:
    """Return the share of values in the interval of 80 %, and the losses of all steps."""
    rows = pd.read_csv(table)
    held = rows.pivot_table("coverage_80", ["part", "data", "model"], "scope", sort=False, aggfunc="last").round(2)
    return held.assign(sql=rows[rows["scope"] == "all"].groupby(["part", "data", "model"])["sql"].last()).to_string()


def run(job: Job, raw: pathlib.Path | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a run.

    Args:
        job: The run.
        raw: Folder of raw files, for data that do not come with the package.
        seed: Of training and paths.
    """
    data, distance = windows_of(job, raw)
    torch.manual_seed(seed)
    began = sum(os.times()[:4])
    if job.model == "forecast":
        predictor = fitted(data, seed)
    else:
        trainer = {"enable_progress_bar": False}
        predictor = StateSpaceEstimator(job.model, data.freq, WEEK, seed=seed, trainer_kwargs=trainer).train(
            list(data.train)
        )
    assert isinstance(predictor, StateSpacePredictor)
    pairs = instances(data, distance)
    made = predictor.predict([past for past, _ in pairs], num_samples=_PATHS)
    cells = []
    for (past, label), forecast in zip(pairs, made, strict=True):
        assert isinstance(forecast, SampleForecast)
        cells.append(scored(past, label, forecast))
    facts = {"data": job.data, "model": job.model, "part": job.part, "seed": seed, "command": job.command}
    facts |= {"windows": len(cells), "cpu_s": round(sum(os.times()[:4]) - began, 1)}
    return [
        facts | {"scope": scope, **{name: float(np.nanmean([one[scope][name] for one in cells])) for name in _NAMES}}
        for scope in cells[0]
    ]


_NAMES = ("coverage_80", "sql")


def windows_of(job: Job, raw: pathlib.Path | None) -> tuple[ForecastTask, int]:
    """Return series with windows of a week at their end, and the steps from window to window."""
    task = load_task(job.data) if job.data in BUNDLED else load(job.data, _folder(raw)).data
    entries = ended(task.entries, task.windows * task.prediction_length if job.part == "before" else 0)
    entries = list(entries)[:: max(len(entries) // _SERIES, 1)][:_SERIES]
    room = min(entry["target"].shape[-1] for entry in entries) - _TRAINED
    weeks = max(room // WEEK, 1)
    if job.data in SOURCES and job.part == "test":
        weeks = -(-SOURCES[job.data].windows * SOURCES[job.data].horizon // WEEK)
    distance = WEEK * max(min(weeks, 2 * _WINDOWS) // _WINDOWS, 1)
    used = min(weeks * WEEK // distance, _WINDOWS) * distance // WEEK
    return replace(task, entries=entries, prediction_length=WEEK, windows=used), distance


def _folder(raw: pathlib.Path | None) -> pathlib.Path:
    if raw is None:
        raise RuntimeError("expected --raw, the folder of raw files, since these data do not come with the package")
    return raw


def instances(data: ForecastTask, distance: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return pairs of a past and the week behind it, series by series."""
    template = split(data.entries, offset=-data.windows * WEEK)[1]
    return list(template.generate_instances(WEEK, windows=data.windows * WEEK // distance, distance=distance))


def scored(past: dict[str, Any], label: dict[str, Any], forecast: SampleForecast) -> dict[str, dict[str, float]]:
    """Return coverage and scaled quantile loss of a window by scope, by its paths; the unit is that of fev-bench."""
    values, paths = np.asarray(label["target"], np.float64), np.asarray(forecast.samples, np.float64)
    before = np.asarray(past["target"], np.float64)
    unit = float(np.nanmean(np.abs(before[DAY:] - before[:-DAY]))) or np.nan
    quantiles = forecast_quantiles(forecast, TENTHS)
    scopes = {"1": slice(0, 1), "day 1": slice(0, DAY), "day 2": slice(DAY, 2 * DAY)}
    scopes |= {"day 7": slice(WEEK - DAY, WEEK), "all": slice(0, WEEK)}
    found = {name: _of(quantiles[:, place], values[place], unit) for name, place in scopes.items()}
    for name, last in (("day", DAY), ("week", WEEK)):
        for kind, function in (("sum", np.sum), ("max", np.max)):
            of_paths = np.quantile(function(paths[:, :last], axis=1), TENTHS)[:, None]
            found[f"{kind} of {name}"] = _of(of_paths, np.atleast_1d(function(values[:last])), unit)
    return found


def _of(quantiles: np.ndarray, values: np.ndarray, unit: float) -> dict[str, float]:
    levels = np.array(TENTHS)[:, None]
    error = values - quantiles
    loss = 2 * np.maximum(levels * error, (levels - 1) * error).mean(0)
    inside = np.where(np.isnan(values), np.nan, (quantiles[0] <= values) & (values <= quantiles[-1]))
    if np.isnan(values).all():
        return dict.fromkeys(_NAMES, np.nan)
    return {"coverage_80": float(np.nanmean(inside)), "sql": float(np.nanmean(loss) / unit)}


if __name__ == "__main__":
    main()
