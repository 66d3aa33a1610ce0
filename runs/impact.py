"""Placebo interventions on real series, a line for each set: results/impact.csv.

    python runs/impact.py            # three minutes on one core

Nothing happened at dates that are drawn at random, so that 95 % intervals of what would have been without an
intervention must cover what was in 95 of 100 cases. Every date has series of its own, drawn anew. Series of one date
share what happened in the world: standard errors are those of the means of dates. Calibration knows the time before a
date alone.
"""

import argparse
import pathlib
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from tables import ROOT, fill, has_row

from tsforecast import load_task
from tsforecast.analysis.impact import Options, effects

# Steps before an intervention and with it, and series at each date.
SETS = {"eia-2020": (672, 24, 6), "electricity": (504, 24, 8), "wiki": (200, 14, 40)}
MEASURES = ("pointwise", "average", "cumulative")
COLUMNS = [
    "set", "transformation", "calibrated", "before", "horizon", "dates", "series", "seed",
    *[name + end for name in MEASURES for end in ("", "_se")], "cpu_s", "commit", "command",
]  # fmt: skip
Job = tuple[str, bool, int, int]  # set, whether calibrated, dates, seed


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*SETS], choices=[*SETS], metavar="SET")
    parser.add_argument("--dates", type=int, default=40, help="placebo dates of each set")
    parser.add_argument("--seed", type=int, default=1, help="of dates, series and paths")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "impact.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [
        (name, calibrated, options.dates, options.seed)
        for calibrated in (False, True)
        for name in options.sets
        if not has_row(
            options.output, {"set": name, "calibrated": calibrated, "dates": options.dates, "seed": options.seed}
        )
    ]
    fill(options.output, COLUMNS, jobs, run, lambda table: table.read_text())


def run(job: Job) -> list[dict[str, Any]]:
    """Estimates effects that are none."""
    name, calibrated, dates, seed = job
    before, horizon, series = SETS[name]
    task, rng = load_task(name), np.random.default_rng(seed)
    began, covered = time.process_time(), []
    options = Options(transformation="log1p", calibrated=calibrated, num_samples=500, seed=seed)
    for _ in range(dates):
        first = int(rng.integers(0, len(task.entries[0]["target"]) - before - horizon + 1))
        chosen = rng.choice(len(task.entries), series, replace=False)
        entries = [
            {
                "item_id": task.entries[k]["item_id"],
                "start": task.entries[k]["start"] + first,
                "target": task.entries[k]["target"][first : first + before + horizon],
            }
            for k in chosen
        ]
        # A series that stands still tells nothing.
        moving = [entry for entry in entries if np.ptp(entry["target"][:before]) > 0]
        last = (moving[0]["start"] + before - 1).to_timestamp()
        found = effects(moving, task.freq, [(last, None)], [], options)
        covered.append(_coverage(found.frame, found.summary))
    table = np.array(covered)
    rows = {}
    for column, values in zip(MEASURES, table.T, strict=True):
        rows |= {column: f"{values.mean():.4f}", f"{column}_se": f"{values.std(ddof=1) / dates**0.5:.4f}"}
    return [
        {
            "set": name,
            "transformation": "log1p",
            "calibrated": calibrated,
            "before": before,
            "horizon": horizon,
            "dates": dates,
            "series": series,
            "seed": seed,
            **rows,
            "cpu_s": f"{time.process_time() - began:.0f}",
        }
    ]


def _coverage(frame: pd.DataFrame, summary: pd.DataFrame) -> list[float]:
    """Return how often intervals of the steps, of the average and of the cumulative effect up to each step cover 0."""
    average = summary[summary["measure"] == "average"]
    held = [
        (frame["effect_lower"] <= 0) & (frame["effect_upper"] >= 0),
        (average["effect_lower"] <= 0) & (average["effect_upper"] >= 0),
        (frame["cumulative_lower"] <= 0) & (frame["cumulative_upper"] >= 0),
    ]
    return [float(np.mean(one)) for one in held]


if __name__ == "__main__":
    main()
