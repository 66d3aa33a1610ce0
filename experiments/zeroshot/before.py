"""Coverage of `bank` on windows before those of the zero-shot benchmark, a line for each task: results/calibration.csv.

    python experiments/zeroshot/before.py

A task of the benchmark has one window, in which all series share their luck. Here the model is trained without the last
windows of the training part, with no option, and scored on these. Series too short for that are left out. The test part
is not looked at.
"""

import argparse
import pathlib
import sys
import time
from typing import Any

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, fill, has_row
from experiments.zeroshot.run import COVERAGES, JOINT, TASKS
from tsforecast import StateSpaceEstimator, load_task
from tsforecast.data import ForecastTask
from tsforecast.evaluation import score
from tsforecast.evaluation.metrics import flat

MODEL = "bank"
# As many as leave enough to train on.
WINDOWS = {"exchange_rate": 5, "monash_hospital": 3, "monash_m1_yearly": 1, "ETTh": 3, "ETTm": 3}
COLUMNS = ["task", "model", "windows", "num_series", "seed", "wql", *COVERAGES, *JOINT, "train_s", "commit", "command"]
Job = tuple[str, int]  # task, seed


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="TASK")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "zeroshot" / "results" / "calibration.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [
        (task, seed)
        for seed in options.seeds
        for task in options.tasks
        if not has_row(options.output, {"task": task, "model": MODEL, "seed": seed})
    ]
    fill(options.output, COLUMNS, jobs, run, lambda table: table.read_text())


def run(job: Job) -> list[dict[str, Any]]:
    """Trains and scores."""
    name, seed = job
    task = before(load_task(f"zeroshot-{name}"), WINDOWS.get(name, 2))
    estimator = StateSpaceEstimator(
        MODEL, task.freq, task.prediction_length, seed=seed, trainer_kwargs={"enable_progress_bar": False}
    )
    began = time.monotonic()
    predictor = estimator.train(task.train)
    seconds = time.monotonic() - began
    test = task.test()
    torch.manual_seed(seed)
    scores = flat(score(predictor.predict(test.input, num_samples=100), test, season=task.season).overall)
    return [
        {
            "task": name, "model": MODEL, "windows": task.windows, "num_series": len(task.entries), "seed": seed,
            "wql": scores["crps"], **{column: scores[column] for column in [*COVERAGES, *JOINT]},
            "train_s": round(seconds),
        }
    ]  # fmt: skip


def before(task: ForecastTask, windows: int) -> ForecastTask:
    """Return a task whose windows are the last of the training part of another, without series too short for them."""
    least = (windows + 1) * task.prediction_length + 3
    entries = [entry for entry in task.train if entry["target"].shape[-1] >= least]
    return ForecastTask(task.name, task.freq, task.prediction_length, windows, entries)


if __name__ == "__main__":
    main()
