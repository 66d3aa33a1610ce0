"""How long do the effects of an intervention on many series take? results/impact_speed.csv.

    python benchmarks/impact.py            # under a minute of one core

Random walks under noise, 450 steps before the intervention and 50 with it, without seasons or controls, in one process.
Seconds are of the CPU, all threads together; the wall clock beside them depends on what else runs.
"""

import argparse
import csv
import pathlib
import platform
import time

import numpy as np
import pandas as pd
import torch

from tsforecast.analysis.impact import Options, effects
from tsforecast.cli.provenance import provenance
from tsforecast.data.files import replace_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["series", "steps", "horizon", "num_samples", "threads", "cpu_s", "wall_s", "hardware", "commit", "command"]


def main() -> None:
    """Measures, and writes a table of one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=500, help="of each series, the last tenth with the intervention")
    parser.add_argument("--num_samples", type=int, default=400, help="joint paths of each series")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "impact_speed.csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    facts = provenance(options.output)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, options.series, options.steps)).astype(np.float32)
    values = 0.3 * noise[0].cumsum(1) + noise[1]
    start, horizon = pd.Period("2020-01-01", "D"), options.steps // 10
    entries = [{"item_id": str(k), "start": start, "target": row} for k, row in enumerate(values)]
    last = (start + (options.steps - horizon - 1)).to_timestamp()
    cpu, wall = time.process_time(), time.monotonic()
    how = Options(seasons="none", num_samples=options.num_samples)
    found = effects(entries, "D", [(last, None)], [], how)
    assert len(found.summary) == 2 * options.series
    row = {
        "series": options.series,
        "steps": options.steps,
        "horizon": horizon,
        "num_samples": options.num_samples,
        "threads": options.threads,
        "cpu_s": f"{time.process_time() - cpu:.1f}",
        "wall_s": f"{time.monotonic() - wall:.1f}",
        "hardware": platform.machine(),
        **facts,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(options.output) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)
    print(row)


if __name__ == "__main__":
    main()
