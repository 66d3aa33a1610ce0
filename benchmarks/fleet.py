"""Memory and time of the ISSM over many series: trained once and forecast, from a file that is read as it is needed.

    python benchmarks/fleet.py                          # 10^3, 10^4 and 10^5 daily series of 120 values; ten minutes

Each size runs in a process of its own. `survey` is the walk that checks the data, `train` one pass over them, `predict`
exact means of 14 days, one series after the other. The peak is that of the whole process; what it had before it saw the
data is beside it. Rows go to benchmarks/results/fleet.csv.
"""

import argparse
import json
import logging
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import rows
import torch
from gluonts.dataset.jsonl import JsonLinesFile
from measure import _resident, hardware
from tqdm import tqdm

from tsforecast import StateSpaceEstimator
from tsforecast.cli.provenance import provenance
from tsforecast.data.calendar.frequency import to_period

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, HORIZON = 120, 14
KEY = ("device", "hardware", "threads", "series", "phase")
COLUMNS = ("seconds", "ms_per_series", "peak_mib", "mib_before", "versions")


class Fleet:
    """Entries of a file of JSON lines, read anew in every walk; nothing is kept."""

    def __init__(self, path: pathlib.Path) -> None:
        self.lines = JsonLinesFile(path)

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Any:
        start = to_period("2024-01-01", "D")
        for line in self.lines:
            content: Any = line
            yield {"item_id": content["item_id"], "start": start, "target": np.asarray(content["target"], np.float32)}


def write_series(path: pathlib.Path, count: int) -> None:
    """Levels that wander and a week, series by series."""
    generator = np.random.default_rng(0)
    with path.open("w") as file:
        for number in range(count):
            week = generator.normal(size=7)
            level = 10 + 0.1 * generator.normal(size=STEPS).cumsum()
            values = level + np.resize(week, STEPS) + 0.3 * generator.normal(size=STEPS)
            line = {"item_id": str(number), "target": values.round(3).tolist()}
            file.write(json.dumps(line) + "\n")


def measure(count: int, threads: int) -> list[dict[str, Any]]:
    """One size, in this process."""
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "fleet.json"
        write_series(path, count)
        before = _resident("VmRSS")
        seconds, began = {}, time.perf_counter()
        options = {"max_epochs": 1, "enable_progress_bar": False, "enable_model_summary": False}
        estimator = StateSpaceEstimator("issm", "D", HORIZON, batch_size=256, seed=0, trainer_kwargs=options)
        data = Fleet(path)
        predictor = estimator.train(data)
        seconds["train"] = time.perf_counter() - began
        began, total = time.perf_counter(), 0
        for forecast in predictor.predict(data, num_samples=0):
            if not np.isfinite(forecast.mean).all():
                raise RuntimeError(f"the forecast of series {forecast.item_id} is not finite")
            total += 1
        seconds["predict"] = time.perf_counter() - began
    if total != count:
        raise RuntimeError(f"expected {count} forecasts, got {total}")
    peak = _resident("VmHWM")
    facts = {
        "device": str(predictor.device), "hardware": hardware("cpu"), "threads": threads, "series": count,
        "peak_mib": f"{peak:.0f}", "mib_before": f"{before:.0f}",
        "versions": f"torch {torch.__version__}; python {platform.python_version()}",
    }  # fmt: skip
    return [
        {**facts, "phase": phase, "seconds": f"{took:.1f}", "ms_per_series": f"{1000 * took / count:.2f}"}
        for phase, took in seconds.items()
    ]


def main() -> None:
    """Measures all sizes and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "fleet.csv")
    parser.add_argument("--one", action="store_true", help="measure a single size here and print JSON")
    options = parser.parse_args()
    if options.one:
        sys.stdout.write(json.dumps(measure(options.series[0], options.threads)) + "\n")
        return
    provenance(options.output)
    found = []
    for count in tqdm(options.series, unit="size", disable=None):
        job = [sys.executable, __file__, "--one", "--series", str(count), "--threads", str(options.threads)]
        result = subprocess.run(job, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"{count} series: {result.stderr[-2000:]}")
        found += json.loads(result.stdout.splitlines()[-1])
        rows.write(options.output, found, KEY, COLUMNS)
    shown = ["series", "phase", "seconds", "ms_per_series", "peak_mib", "mib_before"]
    lines = [shown, *([str(row[name]) for name in shown] for row in found)]
    sys.stdout.write(rows.aligned(lines, {0, 2, 3, 4, 5}) + "\n")


if __name__ == "__main__":
    main()
