"""Scores banks that begin with a prior which has not seen the source, on tasks of the Chronos zero-shot benchmark.

    python datasets/zeroshot.py --raw FOLDER
    python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors/m3  # for each source
    python experiments/priors/scores.py

A line of results/priors.csv for each task and length of training; what is there is not run again. Tasks whose prior
was not trained are left out, and named.
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
from tsforecast.forecasting.estimator import StateSpaceEstimator
from tsforecast.forecasting.presets import EPOCHS
from tsforecast.models.parts import bank_prior

TABLE = ROOT / "experiments" / "priors" / "results" / "priors.csv"
# Task -> the source that its prior has not seen.
TASKS = {
    "monash_m1_yearly": "m1", "monash_m3_yearly": "m3", "monash_m1_quarterly": "m1", "monash_m3_quarterly": "m3",
    "monash_hospital": "hospital", "monash_cif_2016": "cif", "monash_m1_monthly": "m1", "monash_m3_monthly": "m3",
    "monash_car_parts": "car_parts", "monash_covid_deaths": "covid", "ETTh": "ett",
}  # fmt: skip
COLUMNS = ["task", "without", "epochs", "wql", "coverage_80", "fit_cpu_s", "forecast_cpu_s", "commit", "command"]


def main() -> None:
    """Scores what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--priors", type=pathlib.Path, default=ROOT / "outputs" / "priors")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs: list[tuple[str, int]] = []
    absent = []
    for task in options.tasks:
        unit = load_task(f"zeroshot-{task}").freq.split("-")[0]
        if not (options.priors / TASKS[task] / f"{unit}.pt").is_file():
            absent.append(task)
            continue
        jobs += [(task, n) for n in (0, EPOCHS["bank"]) if not has_row(TABLE, {"task": task, "epochs": n})]
    if absent:
        print(f"without a prior, and left out: {', '.join(absent)}")
    fill(TABLE, COLUMNS, jobs, lambda job: run(*job, options.priors), lambda path: pd.read_csv(path).to_string())


def run(name: str, epochs: int, priors: pathlib.Path) -> list[dict[str, Any]]:
    """Fit a bank to the training part of a task, and score its forecasts of the rest."""
    bank_prior.FOLDER = priors / TASKS[name]
    task = load_task(f"zeroshot-{name}")
    trainer = {"max_epochs": epochs, "enable_progress_bar": False, "logger": False}
    began = time.process_time()
    estimator = StateSpaceEstimator("bank", task.freq, task.prediction_length, seed=0, trainer_kwargs=trainer)
    predictor = estimator.train(list(task.train))
    fitted = time.process_time()
    pasts = [past for past, _ in task.test()]
    found = score(predictor.predict(pasts, num_samples=0), task.test()).overall
    return [
        {
            "task": name,
            "without": TASKS[name],
            "epochs": epochs,
            "wql": found["crps"],
            "coverage_80": found["coverage"]["80"],
            "fit_cpu_s": round(fitted - began, 1),
            "forecast_cpu_s": round(time.process_time() - fitted, 1),
        }
    ]


if __name__ == "__main__":
    main()
