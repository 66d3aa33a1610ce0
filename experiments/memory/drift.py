"""Learners with a memory on streams that drift, a line for each run: results/memory_drift.csv, and a picture.

    python experiments/memory/drift.py                                   # all four; hours
    python experiments/memory/drift.py --data weather --seeds 0 --blocks 40   # the beginning of a stream
    python experiments/memory/drift.py --draw                            # docs/images/memory_drift.png of the table

The protocol of Kurle et al. (2020, section 6.2): each block is scored before it is learnt from, by the log marginal
likelihood of a target, of which the mean over the later half is `lml`; `error` is the part of wrong classes, likewise.

"toy" is a logistic regression in two dimensions whose boundary turns by five degrees with each of 720 blocks of 20
points: w = 10 (sin, cos) of the angle. The prior has variance 100. The others are prepared streams in the order of
time, or, of `covertype`, of the file, which goes from area to area:

    weather     `noaa` of datasets/streams.py: rain or not, first block 1000 days, then 100; network 8-16-16-1
    gas         `gas-drift` of datasets/streams.py: six gases, 500 and 50, 128-8-8-6
    covertype   `python datasets/bandits.py covertype FILE --balanced --name covertype-balanced`: seven kinds of wood,
                1000 and 100 (the paper: 1000), 54-32-32-7

Features are standardised by the first block, and the prior is the paper's. Adaptation is none (online variational
Bayes), Ornstein-Uhlenbeck ("ou"), Bayesian forgetting ("bf"), or that with a memory of `--size` observations. Blocks
are fitted by the linearised fit. Finished runs are not computed again, and seeds are the outer loop.
"""

import argparse
import dataclasses
import itertools
import math
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.memory.run import load, log_marginal
from experiments.tables import ROOT, append_rows, has_row, widen
from tsforecast import learners
from tsforecast.cli.provenance import provenance
from tsforecast.learners.memory.memory_learner import MemoryLearner
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.style import style_axis


@dataclasses.dataclass(frozen=True)
class Stream:
    """How a prepared stream is learnt (Kurle et al. 2020, table 2).

    Attributes:
        name: Of the stream.
        first: Observations of the first block.
        block: Of each later one.
        hidden: Widths of the layers.
    """

    name: str
    first: int
    block: int
    hidden: tuple[int, ...]


STREAMS = {
    "weather": Stream("noaa", 1000, 100, (16, 16)),
    "gas": Stream("gas-drift", 500, 50, (8, 8)),
    "covertype": Stream("covertype-balanced", 1000, 100, (32, 32)),
}
RATES = {"toy": (0.003, 0.01, 0.03, 0.1, 0.3, 0.6), **dict.fromkeys(STREAMS, (0.003, 0.01, 0.03, 0.1))}
ADAPTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "ou": {"drift": learners.OrnsteinUhlenbeck},
    "bf": {"drift": learners.BayesianForgetting},
    "bf-grs": {"drift": learners.BayesianForgetting, "memory": "grs", "score": "grs"},
}
STEPS, POINTS, TURN = 720, 20, 5.0
COLUMNS = [
    "data", "adaptation", "rate", "memory_size", "seed", "blocks", "lml", "error", "curve", "milliseconds_per_block",
    "device", "commit", "command",
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


def blocks_of(stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the blocks of a prepared stream, in its order; what is left in the end is a shorter one."""
    inputs, target = load(stream.name, numbers=False)
    sd = inputs[: stream.first].std(0)
    inputs = (inputs - inputs[: stream.first].mean(0)) / torch.where(sd > 0, sd, 1.0)
    starts = [0, *range(stream.first, len(inputs), stream.block), len(inputs)]
    for a, b in itertools.pairwise(starts):
        yield inputs[a:b], target[a:b]


def network_of(stream: Stream, features: int, classes: int) -> nn.Sequential:
    """Return the network; two classes have one logit."""
    pairs = itertools.pairwise((features, *stream.hidden, 1 if classes == 2 else classes))
    return nn.Sequential(*[layer for pair in pairs for layer in (nn.Linear(*pair), nn.Tanh())][:-1])


def make(key: dict[str, Any], features: int, classes: int, device: torch.device) -> MemoryLearner:
    """Return the learner of a run."""
    chosen = dict(ADAPTATIONS[key["adaptation"]])
    if drift := chosen.pop("drift", None):
        chosen["drift"] = drift(key["rate"])
    if "memory" in chosen:
        chosen["memory_size"] = key["memory_size"]
    torch.manual_seed(key["seed"])
    if key["data"] == "toy":
        layer = nn.Linear(features, 1, bias=False, device=device)
        nn.init.zeros_(layer.weight)
        return learners.vb(layer, learners.BernoulliLikelihood(), 100.0, **chosen)
    network = network_of(STREAMS[key["data"]], features, classes).to(device)
    likelihood = learners.BernoulliLikelihood() if classes == 2 else learners.CategoricalLikelihood()
    generator = torch.Generator().manual_seed(key["seed"])
    return learners.vb(network, likelihood, 1.0, prior="layers", generator=generator, **chosen)


def run(key: dict[str, Any], blocks: list[tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """Return the scores of one pass."""
    classes = int(max(target.max() for _, target in blocks)) + 1
    first = blocks[0][0]
    learner = make(key, first.shape[-1], classes, first.device)
    generator = torch.Generator().manual_seed(key["seed"])
    belief, found, began = learner.init(), [], time.process_time()
    for inputs, target in blocks:
        belief = learner.drift(belief, 1.0)
        found.append(log_marginal(learner, belief, inputs, target, generator))
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
                for rate in (options.rates or RATES[data]) if "drift" in chosen else (0.0,):
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
    parser.add_argument("--rates", nargs="+", type=float, help="of the adaptation; default: those of the table")
    parser.add_argument("--size", type=int, default=25, help="observations that a memory keeps")
    parser.add_argument("--blocks", type=int, help="of a stream at most; default: all")
    parser.add_argument("--device", default="cpu", help="of the learner")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "memory" / "results" / "memory_drift.csv"
    )
    parser.add_argument("--draw", action="store_true", help="draw the table, and run nothing")
    parser.add_argument("--image", type=pathlib.Path, default=ROOT / "docs" / "images" / "memory_drift.png")
    options = parser.parse_args()
    if options.draw:
        draw(options.output, options.image)
        return
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = {"device": options.device, **provenance(options.output)}
    read = {name: list(blocks_of(STREAMS[name]))[: options.blocks] for name in options.data if name != "toy"}
    counts = {"toy": min(STEPS, options.blocks or STEPS), **{name: len(blocks) for name, blocks in read.items()}}
    for key in tqdm(list(keys_of(options, counts)), mininterval=10, smoothing=0, disable=None):
        if has_row(options.output, key):
            continue
        blocks = list(toy(key["seed"], key["blocks"])) if key["data"] == "toy" else read[key["data"]]
        blocks = [(x.to(options.device), y.to(options.device)) for x, y in blocks]
        with torch.no_grad():
            found = run(key, blocks)
        widen(options.output, COLUMNS)
        append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
        tqdm.write(str(key | found))


if __name__ == "__main__":
    main()
