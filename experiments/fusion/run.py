"""Learners of disjoint shards as one, beside one learner of all and beside averaged means: results/fusion.csv.

    python experiments/fusion/run.py  # covertype and mnist; minutes on a free core
    python experiments/fusion/run.py --data covertype --learners lofi --shards 1 8 --seeds 0

Sets are those that `datasets/bandits.py covertype` and `datasets/streams.py mnist --part test` prepared; images are
averaged to 14 x 14 pixels. A network with 20 hidden units learns from `--points` rows in blocks of four, by the
extended Kalman filter of each belief. All learners of a seed begin with the same weights and prior. The first rows may
be learnt by one learner (`--together`): its means and variances are then the prior of all, which learn the others.
"fused" is `fuse`, "average" has the averaged means alone, "experts" mixes predictions, "shard" is the mean of the
single learners; "all" is one learner of all rows. Scores are of `--test` other rows. Finished runs are not computed
again.
"""

import argparse
import dataclasses
import pathlib
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.decisions.tables import read_table
from tsforecast.learners import CategoricalLikelihood, expect_of_experts, fuse, lofi, vd_ekf
from tsforecast.learners.likelihoods.predictions import Expectation

LEARNERS: dict[str, Any] = {"vd-ekf": vd_ekf, "lofi": lofi}
HIDDEN, BLOCK = 20, 4
COLUMNS = [
    "data", "learner", "shards", "seed", "points", "together", "method", "weights", "error", "nll", "seconds", "commit",
    "command",
]  # fmt: skip


def read(name: str, points: int, test: int, seed: int) -> tuple[Tensor, Tensor, int]:
    """Return standardised inputs and labels of random rows, and the number of classes."""
    table = read_table(name)
    assert table.labels is not None
    rows = torch.randperm(len(table.labels), generator=torch.Generator().manual_seed(seed))[: points + test]
    x, y = table.contexts[rows].float(), table.labels[rows]
    if x.shape[-1] == 784:
        x = nn.functional.avg_pool2d(x.view(-1, 1, 28, 28), 2).flatten(1)
        x = (x - x[:points].mean()) / x[:points].std()
    else:
        deviation = x[:points].std(0)
        x = (x - x[:points].mean(0)) / torch.where(deviation > 0, deviation, 1.0)
    return x, y.float().unsqueeze(-1), len(table.names)


def learn(learner: Any, x: Tensor, y: Tensor) -> Any:
    """Return the belief after one pass, in blocks."""
    belief = learner.init()
    with torch.no_grad():
        for inputs, target in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
            belief = learner.update(belief, inputs, target)
    return belief


def scores(told: Expectation, y: Tensor) -> dict[str, str]:
    """Return the part of wrong classes, and the mean of -log p."""
    p = told.mean.gather(-1, y.long())[:, 0].clamp_min(1e-12)
    return {"error": f"{(told.mean.argmax(-1) != y[:, 0]).float().mean():.4f}", "nll": f"{-p.log().mean():.4f}"}


def run(name: str, kind: str, shards: int, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each way to make one of the learners."""
    x, y, classes = read(name, options.points, options.test, seed)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(x.shape[-1], HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, classes))
    learner = LEARNERS[kind](network, CategoricalLikelihood(), options.variance)
    test_x, test_y = x[options.points :], y[options.points :]
    began = time.process_time()
    if options.together:
        first = learn(learner, x[: options.together], y[: options.together])
        learner = dataclasses.replace(learner, mean=learner.weights(first), variance=learner.variances(first))
    x, y = x[options.together : options.points], y[options.together : options.points]
    beliefs = [learn(learner, x[k::shards], y[k::shards]) for k in range(shards)]
    seconds = time.process_time() - began
    with torch.no_grad():
        each = [scores(learner.expect(b, test_x, spread=False), test_y) for b in beliefs]
        if shards == 1:
            found = {"all": each[0]}
        else:
            prior = learner.init()
            fused = fuse(beliefs, prior)
            mean = torch.stack([learner.weights(b) for b in beliefs]).mean(0)
            found = {
                "fused": scores(learner.expect(fused, test_x, spread=False), test_y),
                "average": scores(learner.likelihood.expect(*_certain(learner.network(mean, test_x))), test_y),
                "experts": scores(expect_of_experts(learner, beliefs, test_x), test_y),
                "shard": {key: f"{sum(float(e[key]) for e in each) / shards:.4f}" for key in ("error", "nll")},
            }
    facts = {"weights": learner.network.size, "seconds": f"{seconds:.1f}"}
    return [{**facts, **found[method], "method": method} for method in found]


def _certain(outputs: Tensor) -> tuple[Tensor, Tensor]:
    return outputs, outputs.new_zeros(*outputs.shape, outputs.shape[-1])


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["covertype", "mnist"])
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 2, 8, 32])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--points", type=int, default=7936)
    parser.add_argument("--together", type=int, default=0, help="rows that one learner takes before all others")
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--variance", type=float, default=0.05)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "fusion" / "results" / "fusion.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    facts = provenance(options.output)
    jobs = [(s, d, k, n) for s in options.seeds for d in options.data for k in options.learners for n in options.shards]
    for seed, name, kind, shards in jobs:
        key = {"data": name, "learner": kind, "shards": shards, "seed": seed, "points": options.points}
        key["together"] = options.together
        if has_row(options.output, key):
            continue
        rows = [{**key, **row, **facts} for row in run(name, kind, shards, seed, options)]
        append_rows(options.output, COLUMNS, rows)
        for row in rows:
            print(name, kind, shards, seed, row["method"], row["error"], row["nll"], row["seconds"], flush=True)


if __name__ == "__main__":
    main()
