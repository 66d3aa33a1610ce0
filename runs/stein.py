"""SVGD and S2VGD on the regression sets of the S2VGD paper, a line for each split: results/stein.csv.

    python runs/stein.py --folder FOLDER                       # all sets; an hour or two on one core
    python runs/stein.py --folder FOLDER --data boston yacht --methods svgd
    python runs/stein.py --folder FOLDER --validate --rate 3e-3 --steps 10000     # to choose settings; prints

FOLDER has the sets as `datasets/uci_splits.py` writes them. The protocol is that of Zhang et al. (2018): one hidden
layer of 50 units (100 of protein), 20 particles, batches of 100 (1000), 90 % of the rows for training, inputs and
targets standardised by these. All splits of a set move together, as one program. One setting serves all sets: it was
chosen by `--validate`, which holds out a tenth of the *training* rows of three splits and never reads test rows.
Scores are in units of the target, of the mixture of particles. Finished sets are not computed again.
"""

import argparse
import dataclasses
import math
import pathlib
import shlex
import sys
import time
from typing import Any

import numpy as np
import torch
from tables import ROOT, has_row
from torch import Tensor, nn
from tqdm import tqdm

from tsforecast.cli.runs import commit
from tsforecast.core.gaussian import map_tensors
from tsforecast.data.files import append_rows
from tsforecast.data.folder import data_home
from tsforecast.learners import GaussianLikelihood, SteinLearner, s2vgd, svgd
from tsforecast.learners.evidence import Points
from tsforecast.learners.stein import Moments

SETS = ("boston", "concrete", "energy", "yacht", "wine_red", "power", "kin8nm", "naval", "protein")
METHODS: dict[str, Any] = {
    "svgd": (svgd, {}),
    "s2vgd": (s2vgd, {}),
    "s2vgd-k1": (s2vgd, {"scales": False}),
    "s2vgd-k0": (s2vgd, {"reflections": 0}),
}
# Hidden units and batch of the large set; those of all others.
LARGE = {"protein": (100, 1000)}
COLUMNS = [
    "data", "method", "split", "splits", "steps", "rate", "hidden", "particles", "rmse", "log_likelihood", "seconds",
    "commit", "command",
]  # fmt: skip


class Split:
    """Standardised rows of some splits of a set, all of the same sizes."""

    def __init__(self, path: pathlib.Path, validate: bool) -> None:
        with np.load(path) as held:
            x, y, tests = held["X"], held["y"][:, None], held["test_index"]
        trains = [np.setdiff1d(np.arange(len(x)), test) for test in tests]
        if validate:
            orders = [np.random.default_rng(k).permutation(train) for k, train in enumerate(trains[:3])]
            tests = [order[: len(order) // 10] for order in orders]
            trains = [order[len(order) // 10 :] for order in orders]
        parts = [self._scaled(x, y, train, test) for train, test in zip(trains, tests, strict=True)]
        self.train_x, self.train_y, self.test_x, self.test_y, self.scale = map(torch.stack, zip(*parts, strict=True))

    @staticmethod
    def _scaled(x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> tuple[Tensor, ...]:
        deviation = x[train].std(0)
        deviation[deviation < 1e-9] = 1
        x = (x - x[train].mean(0)) / deviation
        scale = y[train].std()
        y = (y - y[train].mean()) / scale
        return *(torch.tensor(a).float() for a in (x[train], y[train], x[test], y[test])), torch.tensor(scale)

    def __len__(self) -> int:
        return len(self.scale)


def learn(data: Split, learners: list[SteinLearner], steps: int, seed: int) -> Tensor:
    """Return the particles of all splits after all steps; the rate falls to zero by half a cosine."""
    learner = learners[0]
    values = torch.stack([each.start for each in learners])
    moments = torch.func.vmap(Moments.none)(values)
    count, batch = data.train_y.shape[1], learner.batch
    generator, every = torch.Generator().manual_seed(seed), torch.arange(len(data)).unsqueeze(-1)
    scale = max(count / batch, 1.0)

    def step(values: Tensor, moments: Moments, x: Tensor, y: Tensor, rate: Tensor) -> tuple[Tensor, Moments]:
        return learner.descend(values, moments, Points(x, y, None), scale, rate)

    together = torch.func.vmap(step, (0, 0, 0, 0, None))
    for k in tqdm(range(steps), mininterval=30, disable=None):
        rate = torch.tensor(learner.rate * (0.5 + 0.5 * math.cos(math.pi * k / steps)))
        x, y = data.train_x, data.train_y
        if count > batch:
            rows = torch.randint(count, (len(data), batch), generator=generator)
            x, y = x[every, rows], y[every, rows]
        values, moments = map_tensors(torch.detach, together(values, moments, x, y, rate))
    return values


def scores(data: Split, learner: SteinLearner, values: Tensor) -> list[tuple[float, float]]:
    """Return root mean squared error and mean log-density of the test rows of each split."""
    found = []
    for k in range(len(data)):
        belief = dataclasses.replace(learner.init(), values=values[k])
        error = learner.expect(belief, data.test_x[k]).mean - data.test_y[k]
        fit = learner.log_prob(belief, data.test_x[k], data.test_y[k]).mean() - data.scale[k].log()
        found.append((float(error.square().mean().sqrt() * data.scale[k]), float(fit)))
    return found


def run(name: str, method: str, options: argparse.Namespace) -> tuple[int, list[tuple[float, float]], float]:
    """Return hidden units, scores of all splits, and seconds of each."""
    hidden, batch = LARGE.get(name, (50, 100))
    data = Split(options.folder / f"{name}.npz", options.validate)
    make, settings = METHODS[method]
    network = nn.Sequential(nn.Linear(data.train_x.shape[-1], hidden), nn.ReLU(), nn.Linear(hidden, 1))
    learners = [
        make(
            network, GaussianLikelihood(1.0), options.variance, num_particles=options.particles, learns_noise=True, rate=options.rate,
            batch=batch, step=options.step, generator=torch.Generator().manual_seed(k), **settings,
        )
        for k in range(len(data))
    ]  # fmt: skip
    began = time.process_time()
    values = learn(data, learners, options.steps, seed=0)
    return hidden, scores(data, learners[0], values), (time.process_time() - began) / len(data)


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=data_home() / "uci-splits")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=["svgd", "s2vgd"], choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--step", default="adam")
    parser.add_argument("--variance", type=float, help="of the prior; learnt if not given")
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--validate", action="store_true", help="score held-out training rows of three splits; print")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "stein.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = shlex.join(["python", "runs/stein.py", *sys.argv[1:]])
    for name in options.data:
        for method in options.methods:
            key = {
                "data": name, "method": method, "steps": options.steps, "rate": options.rate,
                "particles": options.particles,
            }  # fmt: skip
            if not options.validate and has_row(options.output, key):
                continue
            hidden, found, seconds = run(name, method, options)
            means = " ".join(f"{sum(column) / len(column):.4f}" for column in zip(*found, strict=True))
            tqdm.write(f"{name} {method} {options.steps} {options.rate}: {means}, {seconds:.1f} s a split")
            if options.validate:
                continue
            facts = {"splits": len(found), "hidden": hidden, "seconds": f"{seconds:.1f}"}
            facts |= {"commit": commit() or "", "command": command}
            rows = [
                {**key, **facts, "split": k, "rmse": f"{rmse:.5f}", "log_likelihood": f"{fit:.5f}"}
                for k, (rmse, fit) in enumerate(found)
            ]
            append_rows(options.output, COLUMNS, rows)


if __name__ == "__main__":
    main()
