"""Scores the forecasts of `experiments/zeroshot/run.py` by the benchmark's own package fev, beside our scores.

    pip install fev
    python experiments/zeroshot/fev_scores.py

Every run in the folder of `experiments/zeroshot/run.py` is scored both ways, in a line each. It stops where the
weighted quantile losses differ by more than 1e-5, relatively: labels are float32 on one side.
"""

import argparse
import math
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from gluonts.dataset.split import TestData

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT
from experiments.zeroshot.run import MODEL, TASKS, published
from tsforecast.cli import runs
from tsforecast.data import ForecastTask, load_task
from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.data.task import instances
from tsforecast.evaluation import score
from tsforecast.forecasting.predictor import load_predictor

LEVELS = tuple(k / 10 for k in range(1, 10))
AGREEMENT = 1e-5


def main() -> None:
    """Prints both scores of every run.

    Raises:
        SystemExit: If they differ.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="TASK")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "zeroshot")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.tasks:
        folder = options.runs / f"{name}-{MODEL}-{options.seed}"
        if not (folder / runs.PREDICTOR).exists():
            sys.stdout.write(f"{name}: no run in {folder}\n")
            continue
        task = load_task(f"zeroshot-{name}")
        test = task.test()
        forecasts = list(load_predictor(folder / runs.PREDICTOR).predict(test.input, num_samples=100))
        season = int(published().set_index(["task", "model"]).loc[(name, "seasonal_naive"), "seasonality"])
        ours = score(iter(forecasts), test, season=season).overall["crps"]
        theirs = by_fev(task, test, [forecast_quantiles(one, LEVELS) for one in forecasts], season)
        sys.stdout.write(f"{name}: {ours:.8f} here, {theirs['WQL']:.8f} by fev; MASE {theirs['MASE']:.6f} by fev\n")
        if not math.isclose(ours, theirs["WQL"], rel_tol=AGREEMENT):
            raise SystemExit(f"{name}: the scores differ by {abs(ours / theirs['WQL'] - 1):.1e}")


def by_fev(task: ForecastTask, test: TestData, quantiles: list[np.ndarray], season: int) -> dict[str, Any]:
    """Return fev's summary of forecasts.

    Args:
        task: The task, of one window.
        test: Its window.
        quantiles: Of each series, (level, step).
        season: Steps between the values whose differences scale the MASE.
    """
    import fev  # pyright: ignore[reportMissingImports]

    rows = []
    for past, label in zip(*instances(test), strict=True):
        target = np.concatenate([past["target"], label["target"]]).astype(np.float64)
        rows.append(
            {
                "id": str(past["item_id"]),
                # Only the order of time stamps is read: those of quarters and business days would not be understood.
                "timestamp": np.datetime64("2000-01-01", "s") + np.arange(len(target)) * np.timedelta64(1, "D"),
                "target": target,
            }
        )
    with tempfile.TemporaryDirectory() as scratch:
        path = str(pathlib.Path(scratch) / "task.parquet")
        pq.write_table(pa.Table.from_pylist(rows), path)
        own = fev.Task(  # pyright: ignore[reportAttributeAccessIssue] of the library, not of experiments/fev
            dataset_path=path,
            horizon=task.prediction_length,
            seasonality=season,
            eval_metric="WQL",
            extra_metrics=["MASE"],
            quantile_levels=list(LEVELS),
        )
        found = [{"predictions": q[4], **dict(zip(map(str, LEVELS), q, strict=True))} for q in quantiles]
        order = {row["id"]: number for number, row in enumerate(rows)}
        known = [order[name] for name in own.get_window(0).get_input_data()[0]["id"]]
        return own.evaluation_summary([[found[number] for number in known]], model_name=MODEL)


if __name__ == "__main__":
    main()
