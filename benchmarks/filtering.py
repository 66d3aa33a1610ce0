"""How fast are Kalman log-likelihoods, alone and with their gradients, beside the naive torch loop and other libraries?

    pip install -e ".[bench]"
    python benchmarks/filtering.py                                   # everything; about an hour on one core
    python benchmarks/filtering.py --contenders tsforecast           # this library and the naive loop only
    python benchmarks/filtering.py --contenders tsforecast torch-kf --device cuda

Every contender runs in a process of its own, on the part of the work that it can do, with the naive loop beside it:
compare ratios, never times between contenders. It is checked first against the naive loop in float64 and not timed if
wrong. Then both take turns for a number of rounds; the table has the best round (ns for one series and step) and the
median over the rounds of "times faster than naive". With one thread on a CPU time is CPU time, else it is wall time.
Peak memory is the high-water mark of another process that does the work once (on a GPU: the most that torch allocated).

Problems (`problems.py`): issm50 and issm370 (50 and 370 series: level, hour of the day, day of the week; 32 states, 168
steps), dense10 and dense1 (500 filters of 16 states, 10 or 1 targets, 168 steps), small (992 series, 1000 steps, 4
states, 2 targets, one system); "-gaps" adds 10 % missing values and, for the ISSM, a phase of the seasons per series.
"""

import argparse
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from rows import aligned, write
from tqdm import tqdm
from worker import run_worker

from tsforecast.cli.provenance import provenance

HERE = pathlib.Path(__file__).resolve().parent
# Kept out of this process: importing torch here would take memory from what is measured.
PROBLEMS = ["issm50", "issm50-gaps", "issm370", "issm370-gaps", "dense10", "dense1", "small", "small-gaps"]
CONTENDERS = ["tsforecast", "naive", "statsmodels", "dynamax", "torch-kf", "torchcast", "pyro"]
DTYPES = ["float32", "float64"]
MODES = {"value": "value", "gradient": "value+gradient"}
# Times faster than naive that this library must be on one CPU thread: value, value + gradient in float32, in float64.
TARGETS = {"issm": (10.0, 12.0, 12.0), "dense10": (1.2, 1.7, 1.4), "dense1": (1.5, 1.8, 1.6), "small": (4.0, 2.5, 2.5)}
KEY = ("problem", "dtype", "device", "hardware", "threads", "contender", "mode")
RESULTS = (
    "status",
    "series",
    "rounds",
    "ns_per_series_step",
    "naive_ns_per_series_step",
    "times_faster_than_naive",
    "target",
    "peak_mib",
    "mib_before",
    "error",
    "remark",
    "versions",
)
TIMEOUT_SECONDS = 1800


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each mode that the contender has, or one that says why there is none."""
    timed = run_worker("measure.py", {**job, "what": "time"}, TIMEOUT_SECONDS)
    base = {name: job[name] for name in ("problem", "dtype", "device", "threads", "contender")}
    base |= {name: timed.get(name, "") for name in ("hardware", "status", "series", "remark", "versions")}
    if timed["status"] != "ok":
        worst = max((timed.get(f"error_{mode}") or 0.0 for mode in MODES), default=0.0)
        return [{**base, "mode": "", "error": f"{worst:.1e}" if worst else ""}]
    memory = run_worker("measure.py", {**job, "what": "memory"}, TIMEOUT_SECONDS)
    rows = []
    for mode, ns in timed["ns"]["contender"].items():
        naive = timed["ns"]["naive"][mode]
        ratio = statistics.median(n / own for n, own in zip(naive, ns, strict=True))
        rows.append(
            {
                **base,
                "mode": MODES[mode],
                "rounds": len(ns),
                "ns_per_series_step": f"{min(ns):.1f}",
                "naive_ns_per_series_step": f"{min(naive):.1f}",
                "times_faster_than_naive": f"{ratio:.2f}",
                "target": target(job, mode),
                "peak_mib": f"{memory[mode]:.0f}" if mode in memory else "",
                "mib_before": f"{memory['before']:.0f}" if "before" in memory else "",
                "error": f"{timed[f'error_{mode}']:.1e}",
            }
        )
    return rows


def target(job: dict[str, Any], mode: str) -> str:
    """How many times faster than naive this must be; empty where nothing was promised."""
    if job["contender"] != "tsforecast" or job["device"] != "cpu" or job["threads"] != 1:
        return ""
    kind = job["problem"].split("-")[0]
    value, *gradient = TARGETS["issm" if kind.startswith("issm") else kind]
    return f"{value if mode == 'value' else gradient[DTYPES.index(job['dtype'])]:g}"


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each problem, type and contender."""
    header = ["problem", "dtype", "contender", "value ns", "x naive", "v+g ns", "x naive"]
    header += ["target", "peak MiB", "remark"]
    lines: list[Sequence[str]] = [header]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["dtype"], row["contender"]), []).append(row)
    for name, group in groups.items():
        modes = {row["mode"]: row for row in group}
        first = group[0]
        if first["status"] != "ok":
            why = ": ".join(x for x in (first["status"], first.get("error", ""), first["remark"]) if x)
            lines.append((*name, *["-"] * 6, why))
            continue
        cells = []
        for mode in MODES.values():
            row = modes.get(mode, {})
            cells += [row.get("ns_per_series_step", "-"), row.get("times_faster_than_naive", "-")]
        both = [" / ".join(row[column] for row in group if row[column]) for column in ("target", "peak_mib")]
        lines.append((*name, *cells, *both, first["remark"]))
    return aligned(lines, numbers=set(range(3, 9)))


def main() -> None:
    """Measures what the options ask for; exits with 1 if this library is wrong or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of value and value + gradient (default 5)")
    parser.add_argument("--budget", type=float, default=120, help="seconds after which no round begins (default 120)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results" / "filtering.csv")
    options = parser.parse_args()
    provenance(options.out)
    cells = [(p, d, c) for p in options.problems for d in options.dtypes for c in options.contenders]
    rows: list[dict[str, Any]] = []
    progress = tqdm(cells, unit="run")
    for problem, dtype, contender in progress:
        progress.set_description(f"{problem} {dtype} {contender}")
        job = {"problem": problem, "dtype": dtype, "contender": contender}
        job |= {name: getattr(options, name) for name in ("rounds", "budget", "threads", "device")}
        rows += measure(job)
        write(options.out, rows, KEY, RESULTS)
    print(table(rows))
    print(f"\nwritten to {options.out}")
    sys.exit(any(row["contender"] == "tsforecast" and row["status"] in ("wrong", "failed") for row in rows))


if __name__ == "__main__":
    main()
