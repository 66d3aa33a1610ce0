"""Trains with no option but data and seed on thirteen tasks of the Chronos zero-shot benchmark, and scores as it does.

    python datasets/zeroshot.py --raw FOLDER
    python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors/m3  # for each source
    python experiments/zeroshot/run.py
    python experiments/pages.py

A line of results/zeroshot.csv for each finished run; what is there is not run again, and a training that was stopped
goes on. results/zeroshot_published.csv has horizon, seasonality and the scores of 21 models (autogluon/fev,
`benchmarks/chronos_zeroshot/results`, commit 1bc95fd, Apache-2.0). Every run scores a seasonal naive as well, and stops
where that is not the published one: then data, windows or scores are others than the benchmark's. Banks begin with a
prior that has not seen the task's source; without such a prior a task is left out, and named.
"""

import argparse
import json
import math
import pathlib
import sys
import time
from typing import Any

import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.priors import scores as priors_of
from experiments.tables import ROOT, call, fill, has_row
from tsforecast.cli import runs
from tsforecast.data import ForecastTask, load_task
from tsforecast.data.folder import data_home
from tsforecast.evaluation import fit_baseline, score
from tsforecast.evaluation.metrics import flat
from tsforecast.forecasting.predictor import load_predictor

MODEL = "auto"
PUBLISHED = ROOT / "experiments" / "zeroshot" / "results" / "zeroshot_published.csv"
# By what a training costs, the cheapest first.
TASKS = [
    "monash_m1_yearly", "monash_cif_2016", "monash_m1_quarterly", "monash_m3_yearly", "exchange_rate",
    "monash_covid_deaths", "monash_hospital", "monash_m1_monthly", "monash_m3_quarterly", "monash_m3_monthly",
    "monash_car_parts", "ETTh", "ETTm",
]  # fmt: skip
# Task -> the source that its prior has not seen; of business days there is no other source, so no prior.
WITHOUT = {"exchange_rate": "exchange", **priors_of.TASKS}
COVERAGES = ["coverage_50", "coverage_80", "coverage_95"]
# Of the sum over the horizon and of its maximum, by joint paths.
JOINT = ["sum_50", "sum_80", "sum_95", "max_50", "max_80", "max_95"]
COLUMNS = [
    "task", "model", "horizon", "seasonality", "num_series", "seed", "wql", "mase", *COVERAGES, *JOINT,
    "chosen", "select_s", "train_s", "forecast_s", "naive_wql", "naive_mase", "num_samples", "commit", "command",
    "without",
]  # fmt: skip
# Relative difference of the seasonal naive from the published one. Data are float32 here; the MASE of the quarterly
# and monthly M1 series differs by 5e-5 and 2e-5, which has no known cause.
AGREEMENT = 1e-4
Job = tuple[str, int]  # task, seed
# Trains by another folder of priors.
_TRAINED = """
import pathlib, sys
from tsforecast.cli import main
from tsforecast.models.parts import bank_prior
bank_prior.FOLDER = pathlib.Path(sys.argv[1])
sys.exit(main(["train", *sys.argv[2:]]))
"""


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "zeroshot" / "results" / "zeroshot.csv"
    )
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "zeroshot", help="folder of the runs")
    parser.add_argument("--priors", type=pathlib.Path, default=ROOT / "outputs" / "priors", help="a folder each source")
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [
        (task, seed)
        for seed in options.seeds
        for task in options.tasks
        if not has_row(options.output, {"task": task, "model": MODEL, "seed": seed})
    ]
    if absent := [task for task in options.tasks if not (data_home() / f"zeroshot-{task}").is_dir()]:
        raise SystemExit(
            f"{', '.join(absent)} not prepared in {data_home()}: run `python datasets/zeroshot.py --raw FOLDER`, or "
            "name others by --tasks"
        )
    if unlearnt := [job for job in jobs if not has_prior(job[0], options.priors)]:
        print(f"without a prior that has not seen the task, and left out: {', '.join(task for task, _ in unlearnt)}")
    left = [job for job in jobs if job not in unlearnt]
    fill(options.output, COLUMNS, left, lambda job: run(job, options.runs, options.priors), summary)


def has_prior(task: str, priors: pathlib.Path) -> bool:
    """Return whether the prior of a task is there, where it needs one."""
    try:
        unit = load_task(f"zeroshot-{task}").freq.split("-")[0].lstrip("0123456789")
    except (OSError, ValueError):
        return True  # its run says what is damaged
    return unit == "B" or (priors / WITHOUT[task] / f"{unit}.pt").is_file()


def published() -> pd.DataFrame:
    """Published scores: a row for each task and model."""
    exact: Any = {"float_precision": "round_trip"}  # which the stubs of pandas do not know
    return pd.read_csv(PUBLISHED, **exact)


def summary(table: pathlib.Path) -> str:
    """Scores by task, mean over seeds."""
    rows = pd.read_csv(table)
    return rows.groupby("task", sort=False)[["wql", "mase", *COVERAGES, "train_s"]].mean().round(4).to_string()


def run(job: Job, folder: pathlib.Path, priors: pathlib.Path) -> list[dict[str, Any]]:
    """Trains and scores.

    Raises:
        RuntimeError: If a command fails, or what was prepared is damaged or not the benchmark's task.
    """
    name, seed = job
    try:
        task = load_task(f"zeroshot-{name}")
    except (OSError, ValueError) as error:
        raise RuntimeError(str(error)) from error
    lines = published().set_index(["task", "model"])
    known = lines.loc[name, "seasonal_naive"]
    season = int(known["seasonality"])
    expected, found = (
        (int(known["horizon"]), int(known["num_series"]), 1),
        (task.prediction_length, len(task.entries), task.windows),
    )
    if found != expected:
        raise RuntimeError(
            f"{task.name}: expected horizon, series and windows {expected}, got {found}; prepare it again by "
            "datasets/zeroshot.py"
        )
    naive = seasonal_naive(task, season)
    check_naive(name, naive, {"wql": float(known["wql"]), "mase": float(known["mase"])})
    record, command = train(task.name, seed, folder / f"{name}-{MODEL}-{seed}", priors / WITHOUT[name])
    began = time.monotonic()
    scores = score_run(task, folder / f"{name}-{MODEL}-{seed}", season, seed)
    return [
        {
            "task": name, "model": MODEL, "horizon": task.prediction_length, "seasonality": season,
            "num_series": len(task.entries), "seed": seed, "wql": scores["crps"], "mase": scores["mase"],
            **{column: scores[column] for column in [*COVERAGES, *JOINT]},
            "chosen": record["selection"]["chosen"], "select_s": round(record["selection"]["seconds"]),
            "train_s": round(record["seconds"]),
            "forecast_s": round(time.monotonic() - began), "naive_wql": naive["wql"], "naive_mase": naive["mase"],
            "num_samples": scores["num_samples"], "commit": record["commit"], "command": command,
            "without": WITHOUT[name],
        }
    ]  # fmt: skip


def train(dataset: str, seed: int, folder: pathlib.Path, priors: pathlib.Path) -> tuple[dict[str, Any], str]:
    """Trains, going on with what an earlier call began.

    Returns:
        The record of the run, and its command.
    """
    begun = ["-c", _TRAINED, str(priors.resolve())]
    command = ["train.py", MODEL, "--dataset", dataset, "--seed", str(seed)]
    if (folder / "run.json").exists():
        call([*begun, "--resume", str(folder)])
    else:
        call([*begun, *command[1:], "--output", str(folder)])
    return json.loads((folder / "run.json").read_text()), "python " + " ".join(command)


def score_run(task: ForecastTask, folder: pathlib.Path, season: int, seed: int) -> dict[str, Any]:
    """The scores of a trained model on the window of a task: of exact quantiles where it has them, and of 100 paths."""
    predictor = load_predictor(folder / runs.PREDICTOR)
    torch.manual_seed(seed)
    test = task.test()
    return flat(score(predictor.predict(test.input, num_samples=100), test, season=season).overall)


def seasonal_naive(task: ForecastTask, season: int) -> dict[str, float]:
    """The scores of the last season repeated, all of whose quantiles are the benchmark's point forecast.

    Its weighted quantile loss so is the absolute error over the absolute labels (`nd`).
    """
    test = task.test()
    forecasts = (
        fit_baseline(f"seasonal_naive-{season}", task.train, season)
        .predictor(task.prediction_length)
        .predict(test.input)
    )
    overall = score(forecasts, test, season=season).overall
    return {"wql": overall["nd"], "mase": overall["mase"]}


def check_naive(name: str, found: dict[str, float], known: dict[str, float]) -> None:
    """Refuses a task whose seasonal naive is not the published one.

    Raises:
        RuntimeError: If a score differs by more than `AGREEMENT`.
    """
    for metric, value in known.items():
        if not math.isclose(found[metric], value, rel_tol=AGREEMENT):
            raise RuntimeError(
                f"{name}: the seasonal naive has a {metric} of {found[metric]:.8g}, published is {value:.8g}: its data "
                "are not those of the benchmark; prepare it again by datasets/zeroshot.py"
            )


if __name__ == "__main__":
    main()
