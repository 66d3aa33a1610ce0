"""Whether intervals that are made to fit the windows before the test part fit the test part: results/widths.csv.

    python experiments/zeroshot/widths.py

The model is trained without the last windows of the training part, and scored on them. Normal scores of the levels are
then stretched, so that the interval of 80 % holds 80 % there. The model that is trained on the whole training part is
scored on the test part, as it is and so stretched. Nothing has an option.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from gluonts.model import Forecast, Predictor, QuantileForecast
from scipy.stats import norm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.table1.run import DATASETS
from experiments.tables import ROOT, fill, has_row
from experiments.zeroshot.before import before
from tsforecast import StateSpaceEstimator, load_task
from tsforecast.data import ForecastTask
from tsforecast.evaluation import Scores, score
from tsforecast.evaluation.metrics import LEVELS, flat

MODEL = "issm"
WINDOWS = {"exchange": 5, "wiki": 5}  # before the test part, as many as in it; elsewhere a week of days
NAMES = ("crps", "coverage_50", "coverage_80", "coverage_95")
KINDS = ("before", "test", "stretched")
COLUMNS = [
    "dataset", "model", "seed", "windows", "factor",
    *(f"{kind}_{name}" for kind in KINDS for name in NAMES), "commit", "command",
]  # fmt: skip
Job = tuple[str, int]  # data set, seed


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "zeroshot" / "results" / "widths.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [
        (dataset, seed)
        for seed in options.seeds
        for dataset in options.datasets
        if not has_row(options.output, {"dataset": dataset, "model": MODEL, "seed": seed})
    ]
    fill(options.output, COLUMNS, jobs, run, lambda table: table.read_text())


def run(job: Job) -> list[dict[str, Any]]:
    """Trains twice and scores."""
    name, seed = job
    task = load_task(name)
    earlier = before(task, WINDOWS.get(name, 7))
    held_out = scored(trained(earlier, seed), earlier)
    factor = stretch(held_out)
    predictor = trained(task, seed)
    found = {
        "before": held_out,
        "test": scored(predictor, task),
        "stretched": scored(predictor, task, factor),
    }
    row: dict[str, Any] = {
        "dataset": name, "model": MODEL, "seed": seed, "windows": earlier.windows, "factor": factor,
    }  # fmt: skip
    for kind, scores in found.items():
        values = flat(scores.overall)
        row |= {f"{kind}_{column}": values[column] for column in NAMES}
    return [row]


def trained(task: ForecastTask, seed: int) -> Predictor:
    """Train on the training part."""
    trainer = {"enable_progress_bar": False}
    return StateSpaceEstimator(MODEL, task.freq, task.prediction_length, seed=seed, trainer_kwargs=trainer).train(
        task.train
    )


def scored(predictor: Predictor, task: ForecastTask, factor: float = 1.0) -> Scores:
    """Score rolling forecasts whose normal scores are stretched."""
    test = task.test()
    return score(stretched(predictor.predict(test.input), factor), test, season=task.season)


def stretched(forecasts: Iterator[Forecast], factor: float) -> Iterator[Forecast]:
    """Yield forecasts whose level p is that of another, at the probability of `factor` times the normal score of p."""
    levels = norm.cdf(factor * norm.ppf(LEVELS))
    for forecast in forecasts:
        array = np.stack([forecast.quantile(float(level)) for level in levels])
        yield QuantileForecast(array, forecast.start_date, [str(p) for p in LEVELS], item_id=forecast.item_id)


def stretch(scores: Scores, share: float = 0.8) -> float:
    """Return by how much the normal scores of the interval that holds a share lie apart, beside what it should be."""
    coverage = scores.calibration["coverage"].dropna()
    width = np.interp(share, np.maximum.accumulate(coverage), coverage.index)
    # At most the widest interval that is scored.
    return float(norm.ppf(0.5 + min(width, 0.98) / 2) / norm.ppf(0.5 + share / 2))


if __name__ == "__main__":
    main()
