"""Interventions that did nothing: do intervals cover no effect? A line for each kind of series: results/impact.csv.

    python experiments/impact/run.py            # simulated and real series, seven minutes on one core
    python experiments/pages.py                 # writes docs/benchmarks/impact-results.md

Simulated series are drawn anew in each cell. Real ones are cut at dates drawn at random, so that 95 % intervals of what
would have been must cover what was in 95 of 100 cases. Series of one date share what happened in the world: standard
errors are those of the means of dates.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.impact.page import MEASURES, TABLE
from experiments.tables import fill, has_row
from tsforecast import load_task
from tsforecast.analysis.impact import Options, effects

# What series do, by kind: sum of what is named.
KINDS = {
    "noise": "independent noise",
    "AR(.8)": "autoregression of .8",
    "random walk": "random walk",
    "trend": "growth of .2 a step, and an autoregression of .5",
    "season": "a pattern of the week, twice as wide as the noise",
}
# Steps before an intervention and with it, and series at each date.
SETS = {"wiki": (200, 14, 40), "eia-2020": (672, 24, 6), "electricity": (504, 24, 8)}
LENGTHS = [(before, horizon) for before in (100, 600) for horizon in (20, 50)]
COLUMNS = [
    "set", "transformation", "seasons", "before", "horizon", "controls", "series", "dates", "seed",
    *[name + end for name in MEASURES for end in ("", "_se")], "cpu_s", "commit", "command",
]  # fmt: skip
Job = dict[str, Any]


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*KINDS, *SETS], choices=[*KINDS, *SETS], metavar="SET")
    parser.add_argument("--series", type=int, default=500, help="simulated series of a cell")
    parser.add_argument("--dates", type=int, default=20, help="dates in each real set")
    parser.add_argument("--seed", type=int, default=1, help="of series, dates and paths")
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [job for job in jobs_of(options) if not has_row(options.output, job)]
    fill(options.output, COLUMNS, jobs, run, pathlib.Path.read_text)


def jobs_of(options: argparse.Namespace) -> Iterator[Job]:
    """Yields the columns of a row that say what is run."""
    for name in (name for name in options.sets if name in KINDS):
        seasons = "auto" if name == "season" else "none"
        for (before, horizon), controls in ((size, controls) for size in LENGTHS for controls in (0, 3)):
            sizes = {"before": before, "horizon": horizon, "controls": controls, "series": options.series, "dates": 1}
            yield {"set": name, "transformation": "none", "seasons": seasons, **sizes, "seed": options.seed}
    for name in (name for name in options.sets if name in SETS):
        before, horizon, series = SETS[name]
        sizes = {"before": before, "horizon": horizon, "controls": 0, "series": series, "dates": options.dates}
        yield {"set": name, "transformation": "log1p", "seasons": "auto", **sizes, "seed": options.seed}


def run(job: Job) -> list[dict[str, Any]]:
    """Estimates effects that are none, and returns how often intervals cover that."""
    began, covered, simulated = time.process_time(), [], job["set"] in KINDS
    names = [f"x{k}" for k in range(job["controls"])]
    options = Options(seasons=job["seasons"], transformation=job["transformation"], num_samples=500, seed=job["seed"])
    for entries, freq in simulated_entries(job) if simulated else real_entries(job):
        last = (entries[0]["start"] + job["before"] - 1).to_timestamp()
        found = effects(entries, freq, [(last, None)], names, options)
        by_series = _coverage(found.frame, found.summary)
        covered += [*by_series] if simulated else [by_series.mean(0)]
    table, rows = np.array(covered), {}
    for column, values in zip(MEASURES, table.T, strict=True):
        rows |= {column: f"{values.mean():.4f}", f"{column}_se": f"{values.std(ddof=1) / len(values) ** 0.5:.4f}"}
    seconds = f"{time.process_time() - began:.1f}"
    return [job | rows | {"cpu_s": seconds}]


def simulated_entries(job: Job) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yields series of a kind. Of three controls, which wander, one counts as much as the rest and one half as much."""
    before, horizon, series, controls = (job[name] for name in ("before", "horizon", "series", "controls"))
    rng = np.random.default_rng([job["seed"], [*KINDS].index(job["set"]), before, horizon, controls])
    steps = before + horizon
    noise = rng.normal(size=(series, steps + 200))  # 200 steps, after which an autoregression has forgotten its start
    values = autoregression(noise, {"AR(.8)": 0.8, "random walk": 1.0, "trend": 0.5}.get(job["set"], 0.0))[:, 200:]
    if job["set"] == "trend":
        values = values + 0.2 * np.arange(steps)
    if job["set"] == "season":
        values = values + 2.0 * rng.normal(size=(series, 7))[:, np.arange(steps) % 7]
    others = rng.normal(size=(2, series, controls, steps))
    others = others[0] + 0.3 * others[1].cumsum(-1)
    values = values + np.einsum("sct,c->st", others, np.array([1.0, 0.5, 0.0])[:controls])
    start = pd.Period("2024-01-01", "D")
    yield (
        [
            {"item_id": str(k), "start": start, "target": row} | ({"feat_dynamic_real": own} if controls else {})
            for k, (row, own) in enumerate(zip(values, others, strict=True))
        ],
        "D",
    )


def autoregression(noise: np.ndarray, factor: float) -> np.ndarray:
    """Return x_t = factor x_{t-1} + noise_t along the last dimension."""
    found = noise.copy()
    for time_step in range(1, noise.shape[-1]):
        found[..., time_step] += factor * found[..., time_step - 1]
    return found


def real_entries(job: Job) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yields series of a set around each date."""
    task, rng, steps = load_task(job["set"]), np.random.default_rng(job["seed"]), job["before"] + job["horizon"]
    for _ in range(job["dates"]):
        first = int(rng.integers(0, len(task.entries[0]["target"]) - steps + 1))
        chosen = [task.entries[k] for k in rng.choice(len(task.entries), job["series"], replace=False)]
        entries = [
            {"item_id": e["item_id"], "start": e["start"] + first, "target": e["target"][first : first + steps]}
            for e in chosen
        ]
        # A series that stands still tells nothing.
        yield [entry for entry in entries if np.ptp(entry["target"][: job["before"]]) > 0], task.freq


def _coverage(frame: pd.DataFrame, summary: pd.DataFrame) -> np.ndarray:
    """Return for each series whether intervals of steps, of the average, and of the effect up to each step cover 0."""
    average: Any = summary[summary["measure"] == "average"]
    held: Any = [
        ((table[f"{name}_lower"] <= 0) & (table[f"{name}_upper"] >= 0)).groupby(table["item_id"], sort=False).mean()
        for table, name in ((frame, "effect"), (average, "effect"), (frame, "cumulative"))
    ]
    return np.stack(held, 1)


if __name__ == "__main__":
    main()
