"""Scores banks that begin with a prior which has not seen the source, on tasks of the Chronos zero-shot benchmark.

    python datasets/zeroshot.py --raw FOLDER
    python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors/m3  # for each source
    python experiments/priors/scores.py

A line of results/priors.csv for each task and model; what is there is not run again. Tasks whose prior was not trained
are left out, and named.
"""

import argparse
import pathlib
import sys
import time
from typing import Any

import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, fill, has_row
from tsforecast.data import load_task
from tsforecast.evaluation import score
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.quick_bank import conditioned
from tsforecast.models.parts import bank_prior

TABLE = ROOT / "experiments" / "priors" / "results" / "priors.csv"
# Task -> the source that its prior has not seen.
TASKS = {
    "monash_m1_yearly": "m1", "monash_m3_yearly": "m3", "monash_m1_quarterly": "m1", "monash_m3_quarterly": "m3",
    "monash_hospital": "hospital", "monash_cif_2016": "cif", "monash_m1_monthly": "m1", "monash_m3_monthly": "m3",
    "monash_car_parts": "car_parts", "monash_covid_deaths": "covid", "ETTh": "ett", "ETTm": "ett",
}  # fmt: skip
MODELS = ("conditioned", "forecast")  # a bank that stays as its prior, and what `tsforecast.forecast` does
COLUMNS = ["task", "without", "model", "wql", "coverage_80", "fit_cpu_s", "forecast_cpu_s", "commit", "command"]


def main() -> None:
    """Scores what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--priors", type=pathlib.Path, default=ROOT / "outputs" / "priors")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs: list[tuple[str, str]] = []
    absent = []
    for task in options.tasks:
        unit = load_task(f"zeroshot-{task}").freq.split("-")[0].lstrip("0123456789")
        if not (options.priors / TASKS[task] / f"{unit}.pt").is_file():
            absent.append(task)
            continue
        jobs += [(task, name) for name in MODELS if not has_row(TABLE, {"task": task, "model": name})]
    if absent:
        print(f"without a prior, and left out: {', '.join(absent)}")
    fill(TABLE, COLUMNS, jobs, lambda job: run(*job, options.priors), lambda path: pd.read_csv(path).to_string())


def run(name: str, model: str, priors: pathlib.Path) -> list[dict[str, Any]]:
    """Fit one of `MODELS` to the training part of a task, and score its forecasts of the rest."""
    bank_prior.FOLDER = priors / TASKS[name]
    task = load_task(f"zeroshot-{name}")
    began = time.process_time()
    predictor = fitted(task) if model == "forecast" else conditioned(task, list(task.train), 0, "auto")
    trained = time.process_time()
    pasts = [past for past, _ in task.test()]
    found = score(predictor.predict(pasts, num_samples=0), task.test()).overall
    return [
        {
            "task": name,
            "without": TASKS[name],
            "model": model,
            "wql": found["crps"],
            "coverage_80": found["coverage"]["80"],
            "fit_cpu_s": round(trained - began, 1),
            "forecast_cpu_s": round(time.process_time() - trained, 1),
        }
    ]


if __name__ == "__main__":
    main()
