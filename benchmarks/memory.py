"""What does Gaussian residual scoring cost beside the fit that it needs? benchmarks/results/memory_speed.csv.

    python benchmarks/memory.py            # two minutes on one core

Both learn the same block and memory, of random numbers, from the same belief, and take turns in one process: compare
ratios. "grs" is the fit, the factors, the scores, the choice and what is left of the Gaussian; "fit" is the fit alone.
Seconds are of the CPU, medians over the rounds. The more passes a fit makes, the smaller is the ratio: 30 are the
default, and all made for these numbers; five are few.
"""

import argparse
import csv
import itertools
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tsforecast import learners
from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.memory.variational_fit import Problem

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Widths of the network, observations of a block, of the memory.
PROBLEMS = {"concrete": ((8, 16, 16, 1), 10, 15), "spambase": ((57, 32, 32, 1), 25, 25)}
PASSES = (5, 30)
COLUMNS = [
    "problem", "weights", "block", "memory", "score", "passes", "rounds", "fit_s", "grs_s", "ratio", "hardware",
    "commit",
    "command",
]  # fmt: skip


def seconds_of(function: Callable[[], Any]) -> float:
    """Return seconds of the CPU for one call."""
    began = time.process_time()
    function()
    return time.process_time() - began


def measure(name: str, score: str, passes: int, rounds: int) -> dict[str, Any]:
    """Return the row of a problem."""
    widths, count, size = PROBLEMS[name]
    generator = torch.Generator().manual_seed(0)
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.Tanh())][:-1]
    fit = learners.LinearisedFit(passes, 0.0)
    learner = learners.vb(
        nn.Sequential(*layers), learners.GaussianLikelihood(0.1), 1.0, memory="grs", memory_size=size, score=score,
        fit=fit, prior="layers", generator=generator,
    )  # fmt: skip
    inputs = torch.randn(3, count, widths[0], generator=generator)
    target = inputs[..., :1].sin() + 0.3 * torch.randn(3, count, 1, generator=generator)
    belief = learner.init()
    for x, y in zip(inputs[:2], target[:2], strict=True):
        belief = learner.update(belief, x, y, generator=generator)
    new = learners.Memory.of(Points.of(inputs[2], target[2], None))
    points = belief.memory.joined(new).points
    model = Model(learner.network, learner.likelihood, learners.Diagonal())
    problem = Problem(model, belief.gaussian, belief.fitted, points, torch.tensor(False))
    times: dict[str, list[float]] = {"fit": [], "grs": []}
    for _ in range(rounds):
        times["fit"].append(seconds_of(lambda: fit(problem)))
        times["grs"].append(seconds_of(lambda: learner.update(belief, inputs[2], target[2], generator=generator)))
    fitted, scored = (statistics.median(times[key]) for key in ("fit", "grs"))
    return {
        "problem": name, "weights": learner.network.size, "block": count, "memory": size, "score": score,
        "passes": passes, "rounds": rounds, "fit_s": f"{fitted:.5f}", "grs_s": f"{scored:.5f}",
        "ratio": f"{scored / fitted:.2f}", "hardware": f"{platform.machine()}, one thread",
    }  # fmt: skip


def main() -> None:
    """Measures all problems."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "memory_speed.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = provenance(options.output)
    with torch.no_grad():
        rows = [
            measure(name, score, passes, options.rounds)
            for name in PROBLEMS for score in ("grs", "residual_variance") for passes in PASSES
        ]  # fmt: skip
    with replace_file(options.output) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([row | facts for row in rows])
    for row in rows:
        sys.stdout.write(", ".join(f"{key} {value}" for key, value in row.items()) + "\n")


if __name__ == "__main__":
    main()
