"""Planted anomalies, and false alarms where nothing is planted, by sets, methods and kinds: results/anomalies.csv.

    python experiments/anomalies/run.py  # ten minutes on one core
    python experiments/pages.py          # writes docs/benchmarks/anomalies-results.md

Each series has 300 steps that teach and 400 that are judged, as it is and with a spike, a stretch of more variance and
a shift of the level. Sizes are in robust standard deviations of a change from step to step, over the root of two.
Beside `anomalies`, with an issm that is trained on the first 300 steps of each set, are the distance from the mean of
the 48 steps before, in their standard deviations, and the residual of STL (robust, of the whole series), in its robust
standard deviations. Recall is that at the threshold at which each method flags one of 1000 steps of the series as they
are: within the step of a spike, or the 24 steps from the beginning of a stretch. `share` is the share of flagged steps
at a rate that is set; for the others it assumes Gaussian scores. Standard errors are over series.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from statsmodels.tsa.seasonal import STL

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.anomalies.page import KINDS, METHODS, RATES, TABLE
from experiments.tables import fill, has_row
from tsforecast import load_task
from tsforecast.analysis.anomalies import anomalies, trained
from tsforecast.forecasting.predictor import StateSpacePredictor

STEPS, LEARN, WINDOW, STRETCH = 700, 300, 48, 24
SPIKE, SHIFT, MORE = 8.0, 6.0, 4.0  # sizes of what is planted
REAL = {"exchange": ("B", 5), "wiki": ("D", 7), "electricity": ("h", 24)}
COLUMNS = ["set", "method", "measure", "value", "se", "series", "seed", "commit", "command"]
Numbers = NDArray[np.float64]


def _autoregression(rng: np.random.Generator, share: float) -> Numbers:
    found = rng.normal(size=STEPS + 50)
    for time in range(1, len(found)):
        found[time] += share * found[time - 1]
    return found[50:]


def _volatile(rng: np.random.Generator) -> Numbers:
    found, square = np.empty(STEPS + 200), 1.0
    for time in range(len(found)):
        found[time] = square**0.5 * rng.normal()
        square = 0.02 + 0.1 * found[time] ** 2 + 0.88 * square
    return found[200:]


def _week(rng: np.random.Generator) -> Numbers:
    return np.tile(rng.normal(size=7), STEPS)[:STEPS]


SIMULATED: dict[str, Callable[[np.random.Generator], Numbers]] = {
    "noise": lambda rng: rng.normal(size=STEPS),
    "AR(.8)": lambda rng: _autoregression(rng, 0.8),
    "random walk": lambda rng: rng.normal(size=STEPS).cumsum(),
    "season": lambda rng: 3 * _week(rng) + rng.normal(size=STEPS),
    "GARCH": _volatile,
    "counts": lambda rng: rng.poisson(np.exp(1.5 + 0.5 * _week(rng))).astype(float),
}


def series_of(name: str, count: int, seed: int) -> tuple[list[Numbers], str, int]:
    """Return the series of a set, their frequency and its season."""
    rng = np.random.default_rng(seed)
    if name in SIMULATED:
        return [SIMULATED[name](rng) for _ in range(count)], "D", 7
    entries, found = load_task(name).entries, []
    while len(found) < count:
        values = np.asarray(entries[int(rng.integers(len(entries)))]["target"], np.float64)
        first = int(rng.integers(0, len(values) - STEPS + 1))
        part = values[first : first + STEPS]
        if np.isfinite(part).all() and np.ptp(part[:LEARN]) > 0:
            found.append(part)
    return found, *REAL[name]


def planted(values: Numbers, rng: np.random.Generator) -> tuple[Numbers, dict[str, int]]:
    """Return a series with an event of each kind, and where these begin."""
    changes = np.diff(values[:LEARN])
    size = float(np.median(np.abs(changes))) / 0.6745 / 2**0.5 or float(changes.std()) / 2**0.5
    at = {name: int(rng.integers(first, first + 80)) for name, first in zip(KINDS, (310, 420, 560), strict=True)}
    found = values.copy()
    found[at["spike"]] += SPIKE * size * rng.choice([-1, 1])
    where = slice(at["variance"], at["variance"] + STRETCH)
    found[where] += MORE * size * rng.normal(size=STRETCH)
    found[at["shift"] :] += SHIFT * size * rng.choice([-1, 1])
    return (found.round().clip(0) if (values == values.round()).all() else found), at


def entries_of(series: list[Numbers], freq: str) -> list[dict[str, Any]]:
    """Return series as data entries."""
    start = pd.Period("2020-01-06", freq)
    return [{"item_id": str(k), "start": start, "target": x.astype(np.float32)} for k, x in enumerate(series)]


def scores(predictor: StateSpacePredictor, series: list[Numbers], season: int) -> dict[str, Numbers]:
    """Return -log10 of the tail probability of each judged step, by method; (series, step)."""
    entries = entries_of(series, predictor.freq)
    ours = anomalies(entries, predictor, since=entries[0]["start"] + LEARN)["score"].to_numpy().reshape(-1, STEPS)
    rolling, residual = [], []
    for values in series:
        before = np.lib.stride_tricks.sliding_window_view(values, WINDOW)[:-1]
        spread = np.maximum(before.std(1, ddof=1), 1e-9 * (1 + np.abs(values).max()))
        rolling.append(np.append(np.full(WINDOW, np.nan), (values[WINDOW:] - before.mean(1)) / spread))
        rest = np.asarray(STL(values, period=season, robust=True).fit().resid)
        residual.append(rest / max(float(np.median(np.abs(rest[:LEARN]))) / 0.6745, 1e-9))
    others = [-(np.log(2) + stats.norm.logsf(np.abs(np.array(one)))) / np.log(10) for one in (rolling, residual)]
    return {name: one[:, LEARN:] for name, one in zip(METHODS, (ours, *others), strict=True)}


def run(job: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Scores a set."""
    name, count, seed = job
    torch.manual_seed(seed)
    clean, freq, season = series_of(name, count, seed)
    rng = np.random.default_rng(seed + 1)
    both = [planted(values, rng) for values in clean]
    predictor = trained(entries_of(clean, freq), [LEARN] * count, freq, seed)
    as_they_are = scores(predictor, clean, season)
    changed = scores(predictor, [values for values, _ in both], season)
    rows = []
    for method in METHODS:
        threshold = float(np.quantile(as_they_are[method], 1 - RATES[0]))
        for kind in KINDS:
            length = 1 if kind == "spike" else STRETCH
            begins = [at[kind] - LEARN for _, at in both]
            parts = zip(changed[method], begins, strict=True)
            hit = np.array([one[at : at + length].max() > threshold for one, at in parts], float)
            rows.append((method, f"recall {kind}", hit))
        for rate in RATES:
            rows.append((method, f"share {rate}", (as_they_are[method] >= -np.log10(rate)).mean(1)))
    return [
        {
            "set": name,
            "method": method,
            "measure": measure,
            "value": f"{values.mean():.5f}",
            "se": f"{values.std(ddof=1) / len(values) ** 0.5:.5f}",
            "series": count,
            "seed": seed,
        }
        for method, measure, values in rows
    ]


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*SIMULATED, *REAL], choices=[*SIMULATED, *REAL], metavar="SET")
    parser.add_argument("--series", type=int, default=40, help="series of each set")
    parser.add_argument("--seed", type=int, default=0, help="of series and of what is planted")
    parser.add_argument("--output", type=pathlib.Path, default=TABLE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [(name, options.series, options.seed) for name in options.sets]
    jobs = [job for job in jobs if not has_row(options.output, {"set": job[0], "seed": job[2]})]
    fill(options.output, COLUMNS, jobs, run, lambda table: table.read_text())


if __name__ == "__main__":
    main()
