"""Buckets and bulk prediction: series a second, CPU time and memory of the commands, by size, engine and workers.

    python benchmarks/bulk.py                            # 10^4 and 10^5 daily series of 100 values
    python benchmarks/bulk.py --series 1000000           # in the background: half an hour

A table in Parquet is made into buckets, an ISSM is trained on them for an epoch, and 14 days with 9 quantiles are
forecast for each bucket. Every command runs as users type it. CPU seconds are of all its processes, those of Ray
included; the peak is the largest sum of their memory, where what they share counts once. `load` is the mean number of
processes that computed on the machine, other work included: above its cores, the wall clock tells little. `ray` is left
out where it is not installed. Rows go to benchmarks/results/bulk.csv.
"""

import argparse
import importlib.util
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import rows
import torch
from measure import hardware
from pyarrow import parquet
from tqdm import tqdm

from tsforecast.cli.provenance import provenance

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, HORIZON, PIECE = 100, 14, 5000
KEY = ("hardware", "series", "phase", "engine", "workers", "bucket_series")
COLUMNS = ("seconds", "cpu_seconds", "series_per_cpu_second", "peak_mib", "load", "versions")
COMMAND = "import sys; from tsforecast.cli import main; sys.exit(main(sys.argv[1:]))"


def write_series(path: pathlib.Path, count: int, seed: int) -> None:
    """Levels that wander and a week, in order of time stamps within pieces of 5000 series."""
    generator = np.random.default_rng(seed)
    days = pd.date_range("2024-01-01", periods=STEPS, freq="D").to_numpy()
    writer = None
    for first in range(0, count, PIECE):
        size = min(PIECE, count - first)
        level = 10 + 0.1 * generator.normal(size=(STEPS, size)).cumsum(0)
        week = np.resize(generator.normal(size=(7, size)), (STEPS, size))
        values = (level + week + 0.3 * generator.normal(size=(STEPS, size))).round(3)
        items = np.tile(np.arange(first, first + size), STEPS).astype(str)
        table = pa.table({"item_id": items, "timestamp": np.repeat(days, size), "sales": values.ravel()})
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def descendants(root: int) -> Iterator[tuple[int, float, float]]:
    """Yields a process and all that descend from it: number, CPU seconds, and MiB of memory with its share of pages."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            found[int(entry.name)] = (int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks)
    family = [root]
    for process in family:
        family += [child for child, (parent, _) in found.items() if parent == process]
    yield from ((process, found[process][1], memory(process)) for process in family if process in found)


def memory(process: int) -> float:
    """MiB that a process takes, of pages that several share its share; 0 of one that has ended."""
    try:
        lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def run(*arguments: object) -> dict[str, Any]:
    """Runs a command and measures it."""
    began, peak, loads = time.perf_counter(), 0.0, []
    used: dict[int, float] = {}  # CPU seconds, as last seen: processes of Ray are waited for by nobody
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while process.poll() is None:
            seen = list(descendants(process.pid))
            peak = max(peak, sum(mib for *_, mib in seen))
            used |= {number: cpu for number, cpu, _ in seen}
            loads.append(int(pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1)
            time.sleep(0.5)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{shlex.join(command[3:])}: {said.read()[-2000:]}")
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "cpu_seconds": sum(used.values()), "peak_mib": peak, "load": float(np.mean(loads))}


def measure(folder: pathlib.Path, count: int, buckets: int, engines: list[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """Yields a row for each phase of one size, as soon as it is measured."""
    facts = {"hardware": hardware("cpu"), "series": count, "bucket_series": round(count / buckets)}
    facts |= {"versions": f"torch {torch.__version__}; python {platform.python_version()}"}
    write_series(folder / "table.parquet", count, seed=2)
    measured = run("bucket", folder / "table.parquet", folder / "buckets", "--buckets", buckets)
    yield facts | {"phase": "bucket", "engine": "local", "workers": 1} | _shown(count, measured)
    few = ["--windows=0", f"--prediction_length={HORIZON}", "--max_epochs=1", "--accelerator=cpu"]
    measured = run("train", "issm", "--data", folder / "buckets", *few, "--output", folder / "run")
    yield facts | {"phase": "train", "engine": "local", "workers": 1} | _shown(count, measured)
    digests = set()
    for engine, workers in engines:
        out = folder / f"{engine}{workers}"
        options = ["--output", out, "--engine", engine, "--workers", workers, "--device", "cpu"]
        measured = run("predict", folder / "run", "--data", folder / "buckets", *options)
        yield facts | {"phase": "predict", "engine": engine, "workers": workers} | _shown(count, measured)
        digests.add((out / "manifest.json").read_bytes())
    if len(digests) > 1:
        raise SystemExit("expected the same bytes of all engines and workers")


def _shown(count: int, measured: dict[str, float]) -> dict[str, str]:
    """What was measured, as the table shows it."""
    shown = {name: f"{value:.1f}" if name == "load" else f"{value:.0f}" for name, value in measured.items()}
    return shown | {"series_per_cpu_second": f"{count / measured['cpu_seconds']:.0f}"}


def main() -> None:
    """Measures all sizes and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--size", type=int, default=4000, help="series of a bucket, about")
    parser.add_argument("--engines", nargs="+", default=["local-1", "local-2", "ray-2"], help="engine-workers")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "bulk.csv")
    options = parser.parse_args()
    engines = [(name, int(workers)) for name, _, workers in (text.partition("-") for text in options.engines)]
    if importlib.util.find_spec("ray") is None:
        engines = [(name, workers) for name, workers in engines if name != "ray"]
    provenance(options.output)
    for count in tqdm(options.series, unit="size", disable=None):
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for row in measure(pathlib.Path(folder), count, max(4, count // options.size), engines):
                found.append(row)
                rows.write(options.output, found[-1:], KEY, COLUMNS)
        shown = [
            "series",
            "phase",
            "engine",
            "workers",
            "seconds",
            "cpu_seconds",
            "series_per_cpu_second",
            "peak_mib",
            "load",
        ]
        lines = [shown, *([str(row[name]) for name in shown] for row in found)]
        sys.stdout.write(rows.aligned(lines, {0, 3, 4, 5, 6, 7, 8}) + "\n")


if __name__ == "__main__":
    main()
