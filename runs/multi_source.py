"""Variational auto-encoders of parts of digits, by four bounds: results/multi_source.csv.

    python runs/multi_source.py --mnist mnist.npz                                   # reduced: minutes on a free core
    python runs/multi_source.py --mnist mnist.npz --steps 250000 --device cuda      # the published length

mnist.npz is that of Keras. Images are drawn as 0 or 1 by their brightness, anew in each step. "tb" has the upper and
the lower half as sources, "qu" the four quarters. Each model is trained by one bound and scored by all four, in nats,
on the first `--test` test images drawn once; lower is better, as in table 1 of Kurle et al. (2018). "missing" is the
score by the product when one source, which one by chance, is missing: the mean of log p of what is there. Finished
runs are not computed again.
"""

import argparse
import pathlib
import shlex
import sys
import time
from typing import Any

import numpy as np
import torch
from tables import ROOT, has_row
from torch import Tensor

from tsforecast.cli.runs import commit
from tsforecast.data.files import append_rows
from tsforecast.nn import BOUNDS, MultiSourceVAE

COLUMNS = [
    "data", "trained", "seed", "steps", "batch", "samples", "latent", "hidden", "test", *(f"nats_{b}" for b in BOUNDS),
    "nats_missing", "seconds", "device", "commit", "command",
]  # fmt: skip


def parts(images: Tensor, name: str) -> list[Tensor]:
    """Return the sources of images (image, 28, 28)."""
    halves = images.chunk(2, -2)
    if name == "tb":
        return [half.flatten(1) for half in halves]
    return [quarter.flatten(1) for half in halves for quarter in half.chunk(2, -1)]


def run(name: str, kind: str, images: Tensor, test: Tensor, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return the scores of a model."""
    torch.manual_seed(seed)
    sources = parts(torch.bernoulli(test), name)
    model = MultiSourceVAE([x.shape[-1] for x in sources], options.latent, options.hidden).to(options.device)
    optimiser = torch.optim.Adam(model.parameters(), options.rate)
    began = time.process_time()
    for _ in range(options.steps):
        rows = torch.randint(len(images), (options.batch,), device=images.device)
        drawn = parts(torch.bernoulli(images[rows].float() / 255), name)
        loss = -model.bound(kind, drawn, None, options.samples).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = time.process_time() - began
    with torch.no_grad():
        observed = torch.ones(len(sources), len(test), dtype=torch.bool, device=test.device)
        observed[torch.randint(len(sources), (len(test),)), torch.arange(len(test))] = False
        found = {f"nats_{b}": -model.bound(b, sources, None, options.samples).mean() for b in BOUNDS}
        found["nats_missing"] = -model.bound("poe", sources, observed, options.samples).mean()
    return {**{key: f"{value:.2f}" for key, value in found.items()}, "seconds": f"{seconds:.0f}"}


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=pathlib.Path, required=True)
    parser.add_argument("--data", nargs="+", default=["tb", "qu"], choices=["tb", "qu"])
    parser.add_argument("--trained", nargs="+", default=list(BOUNDS), choices=BOUNDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--latent", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "multi_source.csv")
    options = parser.parse_args()
    with np.load(options.mnist) as held:
        images, test = (torch.from_numpy(held[key]).to(options.device) for key in ("x_train", "x_test"))
    test = test[: options.test].float() / 255
    facts = {"device": options.device, "commit": commit() or ""}
    facts["command"] = shlex.join(["python", "runs/multi_source.py", *sys.argv[1:]])
    for seed in options.seeds:
        for name in options.data:
            for kind in options.trained:
                chosen = ("steps", "batch", "samples", "latent", "hidden", "test")
                key = {"data": name, "trained": kind, "seed": seed, **{x: getattr(options, x) for x in chosen}}
                if has_row(options.output, key):
                    continue
                found = run(name, kind, images, test, options, seed)
                append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
                print(name, kind, found, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
