"""Scores models on ten tasks of fev-bench: a row of results/fev_bench.csv for each task and model.

    python experiments/priors/run.py --raw FOLDER --units W --without ett --output outputs/priors/ett  # for each source
    python experiments/fev/run.py --raw FOLDER
    python experiments/fev/run.py --raw FOLDER --tasks ETT_1D epf_np --models auto issm --refit

A model is trained once, before the first window, and forecasts each window from all that lies before it; with `--refit`
it is trained before every window. `forecast` is what `tsforecast.forecast` does. Baselines of statsforecast have the
season of the benchmark. Banks begin with a prior that has not seen the task: the sources of ETT, hospital and
australian_tourism are left out; without such a prior a run is left out, and named. What is in the table is not run
again while the package and these scripts are as they were. A task whose seasonal naive is not the published one is
refused. Each run has a process of its own.
"""

import argparse
import logging
import math
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.model import Forecast, Predictor, QuantileForecast

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.fev.tasks import SOURCES, Task, load, score
from experiments.tables import ROOT, fill
from tsforecast import StateSpaceEstimator
from tsforecast.data import ForecastTask
from tsforecast.data.calendar.frequency import period_alias
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.task import ended
from tsforecast.evaluation.baselines import BASELINES, fit_baseline
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.models import MODELS
from tsforecast.models.parts import bank_prior
from tsforecast.processes import imported_once
from tsforecast.progress import follow

RESULTS = ROOT / "experiments" / "fev" / "results"
TABLE, PUBLISHED = RESULTS / "fev_bench.csv", RESULTS / "published.csv"
MAKES_ROWS = ("tsforecast", "experiments/fev/run.py", "experiments/fev/tasks.py")
CLASSICS = tuple(name for name in BASELINES if name != "deepar")
NAMES = ("forecast", "auto", *MODELS, *CLASSICS)
DEFAULT = ["forecast", "bank", "issm", "gls"]
BEGUN = ("forecast", "auto", "bank", "pool")  # with what other series have taught
COLUMNS = [
    "task", "model", "refit", "seed", "without", "sql", "mase", "wape", "coverage_80", "cpu_s", "peak_mib",
    "naive_mase", "naive_wape", "commit", "command",
]  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A run.

    Attributes:
        task: One of `SOURCES`.
        model: One of `NAMES`.
        refit: Whether the model is trained before every window.
    """

    task: str
    model: str
    refit: bool

    @property
    def command(self) -> str:
        """Return the command that makes the row again."""
        words = f"python experiments/fev/run.py --raw FOLDER --tasks {self.task} --models {self.model}"
        return words + " --refit" * self.refit

    @property
    def without(self) -> str:
        """Return the source without which the prior must be learnt; nothing where that does not matter."""
        return SOURCES[self.task].without if self.model in BEGUN else ""

    def has_prior(self, priors: pathlib.Path) -> bool:
        """Return whether its prior is there, where it needs one of its own."""
        unit = period_alias(SOURCES[self.task].freq).lstrip("0123456789").split("-")[0]
        return not self.without or (priors / self.without / f"{unit}.pt").is_file()


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raw", type=pathlib.Path, required=True, help="folder of raw files, searched with subfolders")
    parser.add_argument("--tasks", nargs="+", default=list(SOURCES), choices=list(SOURCES), metavar="TASK")
    parser.add_argument("--models", nargs="+", default=DEFAULT, choices=NAMES, metavar="MODEL", help=", ".join(NAMES))
    parser.add_argument("--refit", action="store_true", help="train before every window")
    parser.add_argument("--priors", type=pathlib.Path, default=ROOT / "outputs" / "priors", help="a folder each source")
    parser.add_argument("--limit", type=int, help="CPU seconds of a run, after which it is ended without a row")
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    jobs = [Job(task, model, options.refit) for task in options.tasks for model in options.models]
    there = current(options.output)
    jobs = [job for job in jobs if job not in there]
    if absent := [job for job in jobs if not job.has_prior(options.priors)]:
        names = ", ".join(f"{job.task} {job.model}" for job in absent)
        print(f"without a prior that has not seen the task, and left out: {names}")
    jobs = [job for job in jobs if job not in absent]
    print(f"{len(jobs)} runs; {len(there)} rows of this state of the package are there", flush=True)
    made = partial(apart, raw=options.raw, priors=options.priors, limit=options.limit)
    fill(options.output, COLUMNS, jobs, made, summary)


def current(table: pathlib.Path) -> set[Job]:
    """Return the runs with a row of the package and scripts as they are now."""
    if not table.exists():
        return set()
    rows = pd.read_csv(table).to_dict("records")
    same = {commit: _is_same(commit) for commit in {row["commit"] for row in rows}}
    return {Job(row["task"], row["model"], row["refit"]) for row in rows if same[row["commit"]]}


def _is_same(commit: str) -> bool:
    """Return whether nothing that makes rows has changed since a commit."""
    command = ["git", "-C", str(ROOT), "diff", "--quiet", commit, "--", *MAKES_ROWS]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def summary(table: pathlib.Path) -> str:
    """Return the latest scaled quantile losses, a line for each task."""
    rows = latest(pd.read_csv(table))
    return rows.pivot(index="task", columns="name", values="sql").round(4).to_string()


def latest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each task and model, whose `name` says whether it was trained before every window."""
    names = rows["model"] + np.where(rows["refit"], ", refitted", "")
    return rows.assign(name=names).drop_duplicates(["task", "name"], keep="last")


def apart(job: Job, raw: pathlib.Path, priors: pathlib.Path, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the row of a run that is made in a process of its own.

    Args:
        job: The run.
        raw: Folder of raw files.
        priors: Folder of priors, one below it for each source that has been left out.
        limit: CPU seconds after which it is ended; None for none.

    Raises:
        RuntimeError: If it fails or is ended.
    """
    print(f"{job.task}, {job.model}: begins", flush=True)
    with ProcessPoolExecutor(1, imported_once("experiments.fev.run"), _begin, (limit,)) as pool:
        try:
            row = pool.submit(run, job, raw, priors).result()
        except BrokenProcessPool:
            why = "for want of memory" if limit is None else f"for want of memory, or after {limit} CPU seconds"
            raise RuntimeError(f"{job.task}, {job.model}: the process was ended, {why}") from None
        except Exception as error:
            raise RuntimeError(f"{job.task}, {job.model}: {type(error).__name__}: {error}") from error
    print(", ".join(f"{name} {row[name]:.4g}" for name in ("sql", "mase", "coverage_80", "cpu_s")), flush=True)
    return [row]


def _begin(limit: int | None) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))


def run(job: Job, raw: pathlib.Path, priors: pathlib.Path, seed: int = 0) -> dict[str, Any]:
    """Return the row of a run.

    Args:
        job: The run.
        raw: Folder of raw files.
        priors: As `apart` takes it.
        seed: Of training and paths.

    Raises:
        RuntimeError: If the data are not those of the benchmark.
    """
    task = load(job.task, raw)
    naive = score(task, trained("seasonal_naive", task.data, task.season, seed).predict(task.data.test().input))
    check(job.task, naive, pd.read_csv(PUBLISHED).set_index(["task", "model"]).loc[(job.task, "Seasonal Naive")])
    if job.without:
        bank_prior.FOLDER = priors / job.without
    torch.manual_seed(seed)
    began = _cpu()
    made = list(refitted(job.model, task, seed) if job.refit else once(job.model, task, seed))
    seconds = _cpu() - began
    return {
        "task": job.task, "model": job.model, "refit": job.refit, "seed": seed, "without": job.without,
        **score(task, made), "cpu_s": round(seconds, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "naive_mase": naive["mase"], "naive_wape": naive["wape"], "command": job.command,
    }  # fmt: skip


def _cpu() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def check(name: str, found: dict[str, float], known: Any) -> None:
    """Refuses a task whose seasonal naive is not the published one.

    Raises:
        RuntimeError: If a score differs.
    """
    source = SOURCES[name]
    for metric in ("mase", "wape"):
        if metric not in source.unlike and not math.isclose(found[metric], known[metric], rel_tol=source.tolerance):
            raise RuntimeError(
                f"{name}: the seasonal naive has a {metric} of {found[metric]:.8g}, published is {known[metric]:.8g}: "
                "the data are not those of the benchmark"
            )


def once(model: str, task: Task, seed: int) -> Iterator[Forecast]:
    """Return forecasts of all windows by a model that is trained before the first."""
    predictor = trained(model, task.data, task.season, seed)
    count = len(task.data.entries) * task.data.windows
    return follow(predicted(predictor, task.data), f"{task.name}, {model}", count, "forecasts")


def refitted(model: str, task: Task, seed: int) -> Iterator[Forecast]:
    """Return forecasts of all windows, series by series, by a model that is trained before each."""
    data, by_window = task.data, []
    for number in follow(range(data.windows), f"{task.name}, {model}", data.windows, "windows"):
        entries = ended(data.entries, (data.windows - 1 - number) * data.prediction_length)
        part = replace(data, entries=entries, windows=1)
        by_window.append(list(predicted(trained(model, part, task.season, seed), part)))
    return (forecast for of_series in zip(*by_window, strict=True) for forecast in of_series)


def trained(model: str, data: ForecastTask, season: int, seed: int) -> Predictor:
    """Return the predictor that a model is on the training part of a task."""
    if model == "forecast":
        return fitted(data, seed)
    if model in CLASSICS:
        own = f"{model}-{season}" if model == "seasonal_naive" else model
        return fit_baseline(own, data.train, season, horizon=data.prediction_length).predictor(data.prediction_length)
    trainer = {"enable_progress_bar": False}
    estimator = StateSpaceEstimator(model, data.freq, data.prediction_length, seed=seed, trainer_kwargs=trainer)
    return estimator.train(list(data.train))


def predicted(predictor: Predictor, data: ForecastTask) -> Iterator[Forecast]:
    """Return the forecasts of all windows as no more than their tenths."""
    options: dict[str, Any] = {}
    if isinstance(predictor, StateSpacePredictor) and predictor.has_marginals:
        options["num_samples"] = 0
    keys = [str(level) for level in TENTHS]
    for one in predictor.predict(data.test().input, **options):
        yield QuantileForecast(forecast_quantiles(one, TENTHS), one.start_date, keys, one.item_id)


if __name__ == "__main__":
    main()
