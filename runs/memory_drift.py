"""Learners with a memory on streams that drift, a line for each run: results/memory_drift.csv, and a picture.

    python runs/memory_drift.py                                   # the rotating toy and weather
    python runs/memory_drift.py --data weather --seeds 0 --blocks 40   # the beginning of a stream
    python runs/memory_drift.py --draw                            # docs/images/memory_drift.png of the table

The protocol of Kurle et al. (2020, section 6.2): each block is scored before it is learnt from, by the log marginal
likelihood of a target, of which the mean over the later half is `lml`; `error` is the part of wrong classes, likewise.

"toy" is a logistic regression in two dimensions whose boundary turns by five degrees with each of 720 blocks of 20
points: w = 10 (sin, cos) of the angle. The prior has variance 100. "weather" is `noaa` (`python datasets/streams.py
noaa ..`), with a first block of 1000 days and then blocks of 100, a network of two layers of 16, and the paper's prior;
features are standardised by the first block. Adaptation is none (online variational Bayes), Ornstein-Uhlenbeck ("ou"),
Bayesian forgetting ("bf"), or that with a memory of `--size` observations. Blocks are fitted by the linearised fit.
Finished runs are not computed again, and seeds are the outer loop.
"""

import argparse
import math
import pathlib
import shlex
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from tables import ROOT, has_row
from torch import Tensor, nn
from tqdm import tqdm

from tsforecast import learners
from tsforecast.cli.runs import commit
from tsforecast.data.files import append_rows
from tsforecast.learners.memory_learner import MemoryLearner, Remembered
from tsforecast.online.stream import read_stream
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.style import style_axis

RATES = {"toy": (0.003, 0.01, 0.03, 0.1, 0.3, 0.6), "weather": (0.003, 0.01, 0.03, 0.1)}
ADAPTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "ou": {"drift": learners.OrnsteinUhlenbeck},
    "bf": {"drift": learners.BayesianForgetting},
    "bf-grs": {"drift": learners.BayesianForgetting, "memory": "grs"},
}
STEPS, POINTS, TURN = 720, 20, 5.0
FIRST, BLOCK = 1000, 100
DRAWS = 200  # of the logits
COLUMNS = [
    "data", "adaptation", "rate", "memory_size", "seed", "blocks", "lml", "error", "curve", "milliseconds_per_block",
    "commit", "command",
]  # fmt: skip
KEY = ("data", "adaptation", "rate", "memory_size", "seed", "blocks")


def toy(seed: int, steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of the rotating toy."""
    generator = torch.Generator().manual_seed(seed)
    for t in range(steps):
        angle = math.radians(TURN * t)
        inputs = 6 * torch.rand(POINTS, 2, generator=generator) - 3
        logits = inputs @ torch.tensor([10 * math.sin(angle), 10 * math.cos(angle)], dtype=inputs.dtype)
        yield inputs, torch.bernoulli(logits.sigmoid(), generator=generator).unsqueeze(-1)


def weather() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of the weather, whose order is that of time."""
    items = list(read_stream("noaa", "target"))
    inputs = torch.tensor([[float(x) for x in item.features.values()] for item in items])
    target = torch.tensor([[float(item.target == "rain")] for item in items])
    inputs = (inputs - inputs[:FIRST].mean(0)) / inputs[:FIRST].std(0)
    yield inputs[:FIRST], target[:FIRST]
    yield from zip(inputs[FIRST:].split(BLOCK), target[FIRST:].split(BLOCK), strict=True)


def make(key: dict[str, Any], features: int) -> MemoryLearner:
    """Return the learner of a run."""
    chosen = dict(ADAPTATIONS[key["adaptation"]])
    if drift := chosen.pop("drift", None):
        chosen["drift"] = drift(key["rate"])
    if "memory" in chosen:
        chosen["memory_size"] = key["memory_size"]
    torch.manual_seed(key["seed"])
    if key["data"] == "toy":
        layer = nn.Linear(features, 1, bias=False)
        nn.init.zeros_(layer.weight)
        return learners.vb(layer, learners.BernoulliLikelihood(), 100.0, **chosen)
    network = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    generator = torch.Generator().manual_seed(key["seed"])
    return learners.vb(network, learners.BernoulliLikelihood(), 1.0, prior="layers", generator=generator, **chosen)


def score(
    learner: MemoryLearner, belief: Remembered, inputs: Tensor, target: Tensor, generator: torch.Generator
) -> tuple[float, float]:
    """Return the mean log marginal likelihood of a block, by the network linearised at the fit, and its error."""
    logits, jacobian = learner.network.linearise(belief.fitted.mean, inputs)
    sd = learners.Diagonal().covariance(belief.fitted, jacobian)[:, 0, 0].sqrt()
    noise = torch.randn(DRAWS, len(inputs), generator=generator)
    draws = logits[:, 0] + sd * noise
    signed = torch.where(target[:, 0] > 0.5, draws, -draws)
    log_marginal = nn.functional.logsigmoid(signed).logsumexp(0) - math.log(DRAWS)
    wrong = (draws.sigmoid().mean(0) > 0.5) != (target[:, 0] > 0.5)
    return log_marginal.mean().item(), wrong.double().mean().item()


def run(key: dict[str, Any], blocks: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return the scores of one pass."""
    learner, generator = make(key, blocks[0][0].shape[-1]), torch.Generator().manual_seed(key["seed"])
    belief, found, began = learner.init(), [], time.process_time()
    for inputs, target in blocks:
        belief = learner.drift(belief, 1.0)
        found.append(score(learner, belief, inputs, target, generator))
        belief = learner.update(belief, inputs, target, generator=generator)
    seconds = time.process_time() - began
    table = torch.tensor(found)
    later = table[len(table) // 2 :].mean(0)
    curve = [f"{part[:, 0].mean():.4g}" for part in table.tensor_split(20) if len(part)]
    return {
        "lml": f"{later[0]:.5f}", "error": f"{later[1]:.5f}", "curve": " ".join(curve),
        "milliseconds_per_block": f"{1e3 * seconds / len(blocks):.2f}",
    }  # fmt: skip


def keys_of(options: argparse.Namespace, blocks: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield what tells the runs apart, seed by seed.

    Args:
        options: Of the command line.
        blocks: How many each stream has.
    """
    for seed in options.seeds:
        for data in options.data:
            for name, chosen in ADAPTATIONS.items():
                size = options.size if "memory" in chosen else 0
                for rate in RATES[data] if "drift" in chosen else (0.0,):
                    yield dict(zip(KEY, (data, name, rate, size, seed, blocks[data]), strict=True))


def draw(table: pathlib.Path, target: pathlib.Path) -> None:
    """Draws the score against the rate, and over time at the best rate: means over the seeds."""
    frame = pd.read_csv(table)
    names = list(dict.fromkeys(frame["data"]))
    figure = Figure(figsize=(8.4, 3.2 * len(names)), layout="constrained")
    for (left, right), data in zip(figure.subplots(len(names), 2, squeeze=False), names, strict=True):
        own = frame.loc[frame["data"] == data]
        for colour, name in zip(COLOURS, ADAPTATIONS, strict=False):
            rows = own.loc[own["adaptation"] == name]
            if rows.empty:
                continue
            by_rate = rows.groupby("rate")["lml"].mean()
            if name == "none":
                left.axhline(by_rate.iloc[0], color=colour, linewidth=1.5, label=name)
            else:
                left.plot(by_rate.index, by_rate, color=colour, marker="o", markersize=3, label=name)
            curves = rows.loc[rows["rate"] == by_rate.idxmax(), "curve"].str.split(" ", expand=True).astype(float)
            right.plot(range(1, curves.shape[1] + 1), curves.mean(), color=colour, linewidth=1.5, label=name)
        left.set(xscale="log", xlabel="rate of the adaptation", ylabel="log marginal likelihood")
        left.set_title(f"{data}: the later half", loc="left", fontsize=10)
        right.set(xlabel="twentieths of the stream")
        right.set_title("over time, each at its best rate", loc="left", fontsize=10)
        for axis in (left, right):
            style_axis(axis)
        left.legend(fontsize=8, frameon=False)
    save_figure(figure, target)


def main() -> None:
    """Runs what is not in the table yet, or draws it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(RATES), choices=list(RATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(8)))
    parser.add_argument("--size", type=int, default=25, help="observations that a memory keeps")
    parser.add_argument("--blocks", type=int, help="of a stream at most; default: all")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "memory_drift.csv")
    parser.add_argument("--draw", action="store_true", help="draw the table, and run nothing")
    parser.add_argument("--image", type=pathlib.Path, default=ROOT / "docs" / "images" / "memory_drift.png")
    options = parser.parse_args()
    if options.draw:
        draw(options.output, options.image)
        return
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = {"commit": commit() or "", "command": shlex.join(["python", "runs/memory_drift.py", *sys.argv[1:]])}
    read = list(weather())[: options.blocks] if "weather" in options.data else []
    counts = {"toy": min(STEPS, options.blocks or STEPS), "weather": len(read)}
    for key in tqdm(list(keys_of(options, counts)), mininterval=10, smoothing=0, disable=None):
        if has_row(options.output, key):
            continue
        blocks = list(toy(key["seed"], key["blocks"])) if key["data"] == "toy" else read
        with torch.no_grad():
            found = run(key, blocks)
        append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
        tqdm.write(str(key | found))


if __name__ == "__main__":
    main()
