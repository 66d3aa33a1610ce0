"""SVGD and S2VGD on handwritten digits, a line for each run: results/stein_digits.csv.

    python experiments/stein/digits.py --mnist mnist.npz  # 600 steps of five particles: minutes on one core
    python experiments/stein/digits.py --mnist mnist.npz --particles 20 --steps 50000 --device cuda  # the published

The experiment of Zhang et al. (2018, table 2): 784-400-400-10 with ReLU, the first 50 000 images to learn from, and the
error on the 10 000 for testing. mnist.npz is that of Keras. Pixels are from 0 to 1. "map" is one particle: the mode of
the posterior, by the same steps. "s2vgd-k10" has ten reflections on each side of a matrix. The paper takes 100 passes;
a pass has 500 steps of 100 images. Adam's rate falls to zero by half a cosine. No setting was tuned. `error` is that of
the mean of the particles' probabilities, and `error_each` the mean error of single ones. Finished runs are not computed
again.
"""

import argparse
import pathlib
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.learners import CategoricalLikelihood, s2vgd, svgd

METHODS: dict[str, Any] = {
    "map": (svgd, {"num_particles": 1}),
    "svgd": (svgd, {}),
    "s2vgd": (s2vgd, {}),
    "s2vgd-k10": (s2vgd, {"reflections": 10}),
}
TRAINED = 50_000
COLUMNS = [
    "method", "seed", "steps", "particles", "batch", "rate", "hidden", "train", "test", "error", "error_each", "nll",
    "seconds", "device", "commit", "command",
]  # fmt: skip
Rows = tuple[Tensor, Tensor]


def read(path: pathlib.Path, device: str) -> tuple[Rows, Rows]:
    """Return images and labels to learn from, and those for testing."""
    with np.load(path) as held:
        parts = [(held[f"x_{part}"], held[f"y_{part}"]) for part in ("train", "test")]
    rows = [
        (
            torch.from_numpy(x).to(device).flatten(1).float() / 255,
            torch.from_numpy(y).to(device).float().unsqueeze(-1),
        )
        for x, y in parts
    ]
    (images, labels), test = rows
    return (images[:TRAINED], labels[:TRAINED]), test


def scores(logits: Tensor, labels: Tensor) -> dict[str, str]:
    """Return the errors and -log p of the mixture, given logits (particle, image, class)."""
    log_p = logits.log_softmax(-1)
    mixed = log_p.logsumexp(0) - torch.tensor(float(len(log_p))).log()
    places = labels.long()
    nll = -mixed.gather(-1, places).mean()
    error = (mixed.argmax(-1, keepdim=True) != places).double().mean()
    each = (log_p.argmax(-1, keepdim=True) != places).double().mean()
    return {"error": f"{error:.4f}", "error_each": f"{each:.4f}", "nll": f"{nll:.4f}"}


def run(method: str, seed: int, train: Rows, test: Rows, options: argparse.Namespace) -> dict[str, str]:
    """Return the scores of a run, and its seconds."""
    make, settings = METHODS[method]
    hidden = options.hidden
    network = nn.Sequential(
        nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    ).to(options.device)
    settings = {"num_particles": options.particles, "rate": options.rate, "batch": options.batch, **settings}
    learner = make(network, CategoricalLikelihood(), generator=torch.Generator().manual_seed(seed), **settings)
    began = time.process_time()
    belief = learner.keep(learner.init(), *train)
    belief = learner.fit(belief, options.steps, torch.Generator().manual_seed(seed), anneal=True)
    seconds = time.process_time() - began
    with torch.no_grad():
        logits = torch.cat([learner.outputs(belief, part) for part in test[0].split(1000)], 1)
    return {**scores(logits, test[1]), "seconds": f"{seconds:.0f}"}


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=pathlib.Path, required=True, help="mnist.npz")
    parser.add_argument("--methods", nargs="+", default=["map", "svgd", "s2vgd"], choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "stein" / "results" / "stein_digits.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    train, test = read(options.mnist, options.device)
    facts = {"device": options.device, **provenance(options.output)}
    for seed in options.seeds:
        for method in options.methods:
            key: dict[str, Any] = {"method": method, "seed": seed, "train": len(train[0]), "test": len(test[0])}
            key |= {name: getattr(options, name) for name in ("steps", "particles", "batch", "rate", "hidden")}
            key["particles"] = METHODS[method][1].get("num_particles", options.particles)
            if has_row(options.output, key):
                continue
            found = run(method, seed, train, test, options)
            append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
            print(method, seed, found, flush=True)


if __name__ == "__main__":
    main()
