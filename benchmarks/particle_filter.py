"""How fast is a training iteration of the switching models, beside the textbook's loop and DeepAR?

    python benchmarks/particle_filter.py                          # everything; about an hour on one core
    python benchmarks/particle_filter.py --growth                 # without the rows that show how the cost grows
    python benchmarks/particle_filter.py --contenders             # these rows alone
    python benchmarks/particle_filter.py --device cuda

Models: arsgls (state 16, auxiliary 10, switch 10, 20 bases, layers of 64, ladder), rsgls-issm (level, hour of the day,
day of the week: 32 states), and arsgls+components, whose state is both (48 states), with 10 particles, 50 series and
168 steps, in float32. Contenders: this library, with its compiled steps, on a GPU with CUDA graphs, and without either
(tsforecast-torch); the textbook's formulas in a plain loop over the same model's parameters (`textbook.py`); GluonTS'
DeepAR (2 layers of 40, a context of the same number of steps and 24 more). Modes: the loss ("value"), the loss and its
gradients, and a forecast of 100 paths of 24 steps from a belief that is there already.

Every contender runs in a process of its own with the textbook form beside it: compare ratios, never times between
contenders. The textbook form must agree with the library in float64, with the same random numbers: losses, gradients
and paths. Then both take turns for a number of rounds; the table has the best round, and the median over the rounds of
"times faster than the textbook form". With one thread on a CPU time is CPU time, else it is wall time. Peak memory is
the high-water mark of another process that does the work once (on a GPU: the most that torch allocated).
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
MODELS = ["arsgls", "rsgls-issm", "arsgls+components"]
CONTENDERS = ["tsforecast", "tsforecast-torch", "textbook", "deepar"]
MODES = ["value", "value+gradient", "forecast"]
SIZES = {"particles": 10, "series": 50, "steps": 168}
HORIZON = 24
GROWTH = {"particles": (5, 10, 20, 40), "series": (10, 25, 50, 100), "steps": (42, 84, 168, 336)}
# Times faster than the textbook form that this library must be on one CPU thread.
TARGETS = {("arsgls", "value"): 2.2, ("arsgls", "value+gradient"): 2.5}
KEY = ("model", *SIZES, "device", "hardware", "threads", "contender", "mode")
RESULTS = (
    "status",
    "rounds",
    "seconds",
    "textbook_seconds",
    "times_faster_than_textbook",
    "target",
    "peak_mib",
    "mib_before",
    "error",
    "remark",
    "versions",
)
TIMEOUT_SECONDS = 3600


def measure(job: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each mode, or one that says why there is none."""
    timed = run_worker("iteration.py", {**job, "what": "time"}, TIMEOUT_SECONDS)
    base = {name: job[name] for name in ("model", *SIZES, "device", "threads", "contender")}
    base |= {name: timed.get(name, "") for name in ("hardware", "status", "remark", "versions")}
    errors = {mode: f"{error:.1e}" for mode, error in timed.get("errors", {}).items()}
    if timed["status"] != "ok":
        return [{**base, "mode": "", "error": " / ".join(errors.values())}]
    memory = run_worker("iteration.py", {**job, "what": "memory"}, TIMEOUT_SECONDS)
    rows = []
    for mode in job["modes"]:
        own = timed["seconds"][job["contender"]][mode]
        row = {**base, "mode": mode, "rounds": len(own), "seconds": f"{min(own):.4f}", "error": errors.get(mode, "")}
        if memory["status"] == "ok":
            row |= {"peak_mib": f"{memory[mode]:.0f}", "mib_before": f"{memory['before']:.0f}"}
        if "textbook" in timed["seconds"]:
            textbook = timed["seconds"]["textbook"][mode]
            ratio = statistics.median(t / s for t, s in zip(textbook, own, strict=True))
            row |= {"textbook_seconds": f"{min(textbook):.4f}", "times_faster_than_textbook": f"{ratio:.2f}"}
            row["target"] = target(job, mode)
        rows.append(row)
    return rows


def target(job: dict[str, Any], mode: str) -> str:
    """How many times faster than the textbook form this must be; empty where nothing was promised."""
    case = {"contender": "tsforecast", "device": "cpu", "threads": 1, **SIZES}
    promised = all(job[name] == value for name, value in case.items()) and (job["model"], mode) in TARGETS
    return f"{TARGETS[job['model'], mode]:g}" if promised else ""


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each model, size and contender."""
    header = ["model", *SIZES, "contender"]
    labels = len(header)
    for mode in MODES:
        header += [f"{mode} s", "x textbook", "MiB"]
    header += ["targets", "remark"]
    lines: list[Sequence[str]] = [header]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[name]) for name in header[:labels]), []).append(row)
    for name, group in groups.items():
        modes = {row["mode"]: row for row in group}
        cells = []
        for mode in MODES:
            row = modes.get(mode, {})
            cells += [row.get(x, "-") for x in ("seconds", "times_faster_than_textbook", "peak_mib")]
        targets = " / ".join(row["target"] for row in group if row.get("target"))
        first = group[0]
        remark = [first["remark"]] if first["status"] == "ok" else [first["status"], first["error"], first["remark"]]
        lines.append((*name, *cells, targets, ": ".join(filter(None, remark))))
    return aligned(lines, numbers={*range(1, labels - 1), *range(labels, len(header) - 1)})


def beside_deepar(rows: list[dict[str, Any]]) -> list[str]:
    """How many times longer the library takes than DeepAR: both were timed with the textbook form beside them."""
    ratios = {
        (row["contender"], row["model"], row["mode"]): float(row["times_faster_than_textbook"])
        for row in rows
        if row.get("times_faster_than_textbook")
    }
    return [
        f"{model}, {mode}: {ratios['deepar', model, mode] / ratio:.1f} times DeepAR's time"
        for (contender, model, mode), ratio in ratios.items()
        if contender == "tsforecast" and ("deepar", model, mode) in ratios
    ]


def jobs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The contenders side by side at one size, then the library alone at others."""
    common = {name: getattr(options, name) for name in ("rounds", "budget", "threads", "device")}
    sizes = {name: getattr(options, name) for name in SIZES}
    made = [
        {**common, **sizes, "model": model, "contender": contender, "beside": ["textbook"], "modes": options.modes}
        for model in options.models
        for contender in options.contenders
    ]
    alone = {"contender": "tsforecast", "beside": [], "modes": [mode for mode in options.modes if mode != "forecast"]}
    for model in options.models:
        for name in options.growth:
            made += [
                {**common, **sizes, "model": model, name: size, **alone} for size in GROWTH[name] if size != sizes[name]
            ]
    return made


def main() -> None:
    """Measures what the options ask for; exits with 1 if this library is wrong or fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--contenders", nargs="*", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--growth", nargs="*", default=list(SIZES), choices=list(SIZES), help="of the library alone")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"default {size}")
    parser.add_argument("--rounds", type=int, default=5, help="of all modes (default 5)")
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no round begins (default 300)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parent / "results" / "particle_filter.csv")
    options = parser.parse_args()
    if options.steps <= HORIZON:
        parser.error(f"expected more than {HORIZON} steps, those of a forecast, got {options.steps}")
    provenance(options.out)
    rows: list[dict[str, Any]] = []
    progress = tqdm(jobs(options), unit="run")
    for job in progress:
        progress.set_description(" ".join(str(job[name]) for name in ("model", "contender", *SIZES)))
        rows += measure(job)
        write(options.out, rows, KEY, RESULTS)
    print("\n".join([table(rows), "", *beside_deepar(rows)]))
    print(f"\nwritten to {options.out}")
    sys.exit(any(row["contender"] == "tsforecast" and row["status"] in ("wrong", "failed") for row in rows))


if __name__ == "__main__":
    main()
