"""SVGD and S2VGD on the regression sets of the S2VGD paper, a line for each split: results/stein.csv.

    python experiments/stein/run.py --folder FOLDER                       # five splits of all sets
    python experiments/stein/run.py --folder FOLDER --splits 5 6 7 8 9 --data boston yacht --methods svgd
    python experiments/stein/run.py --folder FOLDER --validate --rate 3e-3        # to choose settings; prints

FOLDER has the sets as `datasets/uci_splits.py` writes them. The protocol is that of Zhang et al. (2018): one hidden
layer of 50 units (100 of protein), 20 particles, batches of 100 (1000), 90 % of the rows for training, inputs and
targets standardised by these. Of the training rows a tenth is held out, and the particles are those of the step at
which these were likeliest: precisions and weights would otherwise run to the mode of their joint density, where all
weights are zero. One setting serves all sets: it was chosen by `--validate`, which scores further training rows in
place of the test, of which it reads none. Scores are in units of the target, of the mixture of particles. Splits that
are named together move as one program. Finished ones are not computed again.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.core.gaussian import map_tensors
from tsforecast.data.folder import data_home
from tsforecast.learners import GaussianLikelihood, SteinLearner, s2vgd, svgd
from tsforecast.learners.evidence.pseudo_observation import Points
from tsforecast.learners.particles.stein import Moments

SETS = ("boston", "concrete", "energy", "yacht", "wine_red", "power", "kin8nm", "naval", "protein")
METHODS: dict[str, Any] = {
    "svgd": (svgd, {}),
    "s2vgd": (s2vgd, {}),
    "s2vgd-k1": (s2vgd, {"scales": False}),
    "s2vgd-k0": (s2vgd, {"reflections": 0}),
}
# Hidden units and batch of the large set; those of all others.
LARGE = {"protein": (100, 1000)}
STEPS, RATE = 2000, 0.01
CHECK = 50  # steps between two looks at held-out rows
COLUMNS = [
    "data", "method", "split", "steps", "rate", "variance", "hidden", "particles", "best_step", "rmse",
    "log_likelihood", "seconds", "commit", "command",
]  # fmt: skip


class Split:
    """Standardised rows of some splits of a set, all of the same sizes; a tenth of the training rows is held out."""

    def __init__(self, path: pathlib.Path, splits: Sequence[int], validate: bool) -> None:
        with np.load(path) as held:
            x, y, tests = held["X"], held["y"][:, None], held["test_index"]
        parts = []
        for k in splits:
            rows = np.random.default_rng(k).permutation(np.setdiff1d(np.arange(len(x)), tests[k]))
            held_out, train, test = rows[: len(rows) // 10], rows[len(rows) // 10 :], tests[k]
            if validate:  # further training rows take the place of the test
                test, train = train[: len(held_out)], train[len(held_out) :]
            parts.append(self._scaled(x, y, train, held_out, test))
        self.train, self.held_out, self.test, self.scale = map(_stacked, zip(*parts, strict=True))

    @staticmethod
    def _scaled(x: np.ndarray, y: np.ndarray, train: np.ndarray, *others: np.ndarray) -> tuple[Any, ...]:
        deviation = x[train].std(0)
        deviation[deviation < 1e-9] = 1
        x, scale = (x - x[train].mean(0)) / deviation, y[train].std()
        y = (y - y[train].mean()) / scale
        pairs = [(torch.tensor(x[rows]).float(), torch.tensor(y[rows]).float()) for rows in (train, *others)]
        return (*pairs, torch.tensor(scale))

    def __len__(self) -> int:
        return len(self.scale)


def _stacked(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Tensor):
        return torch.stack(list(parts))
    return tuple(torch.stack(each) for each in zip(*parts, strict=True))


def learn(
    data: Split, learners: list[SteinLearner], steps: int, generators: Sequence[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """Return the particles of all splits where held-out rows were likeliest, and after how many steps that was.

    The rate falls to zero by half a cosine. Each split has a generator of its batches, so that it does not matter which
    splits run together.
    """
    learner, (inputs, target) = learners[0], data.train
    values = torch.stack([each.start for each in learners])
    moments = torch.func.vmap(Moments.none)(values)
    every = torch.arange(len(data)).unsqueeze(-1)
    count, batch = target.shape[1], learner.batch

    def step(values: Tensor, moments: Moments, x: Tensor, y: Tensor, rate: Tensor) -> tuple[Tensor, Moments]:
        return learner.descend(values, moments, Points(x, y, None), max(count / batch, 1.0), rate)

    together = torch.func.vmap(step, (0, 0, 0, 0, None))
    fits = torch.func.vmap(lambda v, x, y: _log_prob(learner, v, x, y).mean())
    best, when, highest = values, torch.zeros(len(data)), torch.full((len(data),), -math.inf)
    for k in tqdm(range(steps), mininterval=30, disable=None):
        rate = torch.tensor(learner.rate * (0.5 + 0.5 * math.cos(math.pi * k / steps)))
        x, y = inputs, target
        if count > batch:
            rows = torch.stack([torch.randint(count, (batch,), generator=each) for each in generators])
            x, y = x[every, rows], y[every, rows]
        values, moments = map_tensors(torch.detach, together(values, moments, x, y, rate))
        if k % CHECK == CHECK - 1 or k == steps - 1:
            found = fits(values, *data.held_out)
            better = found > highest
            highest, when = torch.where(better, found, highest), torch.where(better, k + 1.0, when)
            best = torch.where(better[:, None, None], values, best)
    return best, when


def _log_prob(learner: SteinLearner, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    each = torch.func.vmap(lambda v: learner.posterior.log_likelihood(v, Points(x, y, None)))(values)
    return each.logsumexp(0) - math.log(len(values))


def scores(data: Split, learner: SteinLearner, values: Tensor) -> list[tuple[float, float]]:
    """Return root mean squared error and mean log-density of the test rows of each split."""
    found = []
    for k, (x, y) in enumerate(zip(*data.test, strict=True)):
        belief = dataclasses.replace(learner.init(), values=values[k])
        error = learner.expect(belief, x).mean - y
        fit = _log_prob(learner, values[k], x, y).mean() - data.scale[k].log()
        found.append((float(error.square().mean().sqrt() * data.scale[k]), float(fit)))
    return found


def run(
    name: str, method: str, options: argparse.Namespace
) -> tuple[int, list[tuple[float, float]], list[float], float]:
    """Return hidden units, scores of all splits, after how many steps, and seconds of each."""
    hidden, batch = LARGE.get(name, (50, 100))
    data = Split(options.folder / f"{name}.npz", options.splits, options.validate)
    make, settings = METHODS[method]
    network = nn.Sequential(nn.Linear(data.train[0].shape[-1], hidden), nn.ReLU(), nn.Linear(hidden, 1))
    settings = {**settings, "num_particles": options.particles, "rate": options.rate, "step": options.step}
    learners = [
        make(
            network, GaussianLikelihood(1.0), options.variance, learns_noise=True, batch=batch,
            generator=torch.Generator().manual_seed(k), **settings,
        )
        for k in options.splits
    ]  # fmt: skip
    began = time.process_time()
    generators = [torch.Generator().manual_seed(k) for k in options.splits]
    values, when = learn(data, learners, options.steps, generators)
    seconds = (time.process_time() - began) / len(data)
    return hidden, scores(data, learners[0], values), when.tolist(), seconds


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=data_home() / "uci-splits")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="move together, as one program")
    parser.add_argument("--methods", nargs="+", default=["svgd", "s2vgd"], choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--step", default="adam")
    parser.add_argument("--variance", type=float, help="of the prior; learnt if not given")
    parser.add_argument("--particles", type=int, default=20)
    parser.add_argument("--validate", action="store_true", help="score training rows in place of the test; print")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments" / "stein" / "results" / "stein.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    origin = {} if options.validate else provenance(options.output)
    for name in options.data:
        for method in options.methods:
            key = {
                "data": name, "method": method, "steps": options.steps, "rate": options.rate,
                "variance": options.variance or "learnt", "particles": options.particles,
            }  # fmt: skip
            if not options.validate and has_row(options.output, {**key, "split": options.splits[-1]}):
                continue
            hidden, found, when, seconds = run(name, method, options)
            means = " ".join(f"{sum(column) / len(column):.4f}" for column in zip(*found, strict=True))
            print(f"{name} {method} {options.steps} {options.rate}: {means}, {seconds:.1f} s, {when}", flush=True)
            if options.validate:
                continue
            facts = {"hidden": hidden, "seconds": f"{seconds:.1f}"} | origin
            rows = [
                {
                    **key,
                    **facts,
                    "split": k,
                    "best_step": int(at),
                    "rmse": f"{rmse:.5f}",
                    "log_likelihood": f"{fit:.5f}",
                }
                for k, at, (rmse, fit) in zip(options.splits, when, found, strict=True)
            ]
            append_rows(options.output, COLUMNS, rows)


if __name__ == "__main__":
    main()
