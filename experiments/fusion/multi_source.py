r"""Variational auto-encoders of several sources, by four bounds: results/multi_source.csv and a picture.

    python experiments/fusion/multi_source.py --mnist mnist.npz  # reduced: ten minutes on a free core
    python experiments/fusion/multi_source.py --data mix  # the mixture alone, which is drawn
    python experiments/fusion/multi_source.py --mnist mnist.npz --data tb qu no --steps 250000 --batch 128 \
        --samples 16 --rate 5e-5 --test 10000 --device cuda  # the published length

The experiments of Kurle et al. (2018), section 5. mnist.npz is that of Keras. Images are drawn as 0 or 1 by their
brightness, anew in each step. "tb" has the upper and the lower half as sources, "qu" the four quarters. "no" has four
copies, in each of which a pixel is flipped with probability .05; the image without noise is modelled. "mix" is a
mixture of eight bi-variate Gaussians on the unit circle, of which each source sees one coordinate.

Each model is trained by one bound and scored by all four, in nats, on `--test` points; lower is better, as in the
paper's table 1. "missing" is the score by the product when one source, which one by chance, is missing: the mean of
log p of what is there; of "no" the image is modelled all the same. "exact" is the score of the true density of "mix".
Finished runs are not computed again.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
import time
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.fusion.vae import BOUNDS, MultiSourceVAE, product
from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.plots import save_figure
from tsforecast.plots.style import style_axis

COLUMNS = [
    "data", "trained", "seed", "steps", "batch", "samples", "latent", "hidden", "test", *(f"nats_{b}" for b in BOUNDS),
    "nats_missing", "nats_exact", "seconds", "device", "commit", "command",
]  # fmt: skip
FLIPPED = 0.05
SPREAD = 0.1  # standard deviation of a component of the mixture
NARROW = -3.0  # logarithm of the variance of the model's noise, to begin with
# Steps, size of z and width of the hidden layers, where no option says them.
SIZES = {"tb": (1000, 16, 200), "qu": (1000, 16, 200), "no": (1000, 16, 200), "mix": (5000, 2, 32)}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Points of an experiment.

    Attributes:
        sources: What each source sees of them.
        modelled: What is modelled in the place of the sources; None for these.
    """

    sources: list[Tensor]
    modelled: list[Tensor] | None = None


def angles() -> Tensor:
    """Where the components of the mixture lie on the unit circle."""
    return torch.arange(8) * math.tau / 8


def centres(turned: float = 0.0) -> Tensor:
    """The means of the mixture, turned by an angle."""
    return torch.stack([(angles() + turned).cos(), (angles() + turned).sin()], -1)


def draw_points(name: str, images: Tensor, count: int, device: str) -> Drawn:
    """Return random points of an experiment.

    Args:
        name: Of the experiment.
        images: Those of which some are drawn, from 0 to 255; not read by "mix".
        count: Number of points.
        device: Where they are.
    """
    if name == "mix":
        means = centres()[torch.randint(8, (count,))]
        return Drawn(list((means + SPREAD * torch.randn(count, 2)).to(device).unsqueeze(-1).unbind(1)))
    rows = torch.randint(len(images), (count,), device=images.device)
    return parts_of(name, torch.bernoulli(images[rows].float() / 255))


def parts_of(name: str, images: Tensor) -> Drawn:
    """Return what the sources see of images of zeros and ones (image, 28, 28)."""
    if name == "no":
        flat = images.flatten(1)
        flips = torch.rand(4, *flat.shape, device=flat.device) < FLIPPED
        return Drawn(list(torch.where(flips, 1 - flat, flat)), [flat])
    halves = images.chunk(2, -2)
    if name == "tb":
        return Drawn([half.flatten(1) for half in halves])
    return Drawn([quarter.flatten(1) for half in halves for quarter in half.chunk(2, -1)])


def log_density(x: Tensor) -> Tensor:
    """Return log p of points (point, 2) under the mixture itself."""
    squares = (x.unsqueeze(1) - centres().to(x)).square().sum(-1)
    return (-0.5 * squares / SPREAD**2).logsumexp(1) - math.log(8 * math.tau * SPREAD**2)


def train(
    name: str, kind: str, images: Tensor, sizes: tuple[int, int, int], seed: int, options: argparse.Namespace
) -> MultiSourceVAE:
    """Return a model after the training by a bound."""
    torch.manual_seed(seed)
    steps, latent, hidden = sizes
    first = draw_points(name, images, 1, options.device)
    modelled = None if first.modelled is None else [x.shape[-1] for x in first.modelled]
    mixture = name == "mix"
    model = MultiSourceVAE(
        [x.shape[-1] for x in first.sources], latent, hidden, not mixture, modelled, nn.Tanh if mixture else nn.ELU
    )
    if mixture:  # under noise as wide as the data no state is used, and training stays there
        nn.init.constant_(model.log_noise, NARROW)
    model = model.to(options.device)
    optimiser = torch.optim.Adam(model.parameters(), options.rate)
    for _ in tqdm(range(steps), f"{name}, {kind}", leave=False, disable=None):
        points = draw_points(name, images, options.batch, options.device)
        found = model.bound(kind, points.sources, None, options.samples, None, points.modelled)
        loss = -found.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model


def scores(model: MultiSourceVAE, points: Drawn, samples: int) -> dict[str, str]:
    """Return all bounds in nats, a thousand points at a time."""
    sources = points.sources
    observed = torch.ones(len(sources), len(sources[0]), dtype=torch.bool, device=sources[0].device)
    observed[torch.randint(len(sources), (len(sources[0]),)), torch.arange(len(sources[0]))] = False

    def nats(kind: str, seen: Tensor | None) -> str:
        total = 0.0
        for rows in torch.arange(len(sources[0])).split(1000):
            modelled = None if points.modelled is None else [x[rows] for x in points.modelled]
            part = None if seen is None else seen[:, rows]
            total -= model.bound(kind, [x[rows] for x in sources], part, samples, None, modelled).sum().item()
        return f"{total / len(sources[0]):.3f}"

    with torch.no_grad():
        return {**{f"nats_{kind}": nats(kind, None) for kind in BOUNDS}, "nats_missing": nats("poe", observed)}


def picture(model: MultiSourceVAE, path: pathlib.Path) -> None:
    """Draws what single sources and their product believe of eight points, and what follows for the data.

    The points are the means of the mixture, turned by two degrees: else two points would look alike to a source.
    """
    model = model.cpu()
    points = centres(math.radians(2))
    figure = Figure(figsize=(8.4, 8.0), layout="constrained")
    axes = figure.subplots(2, 2)
    with torch.no_grad():
        mean, variance = model.beliefs(list(points.unsqueeze(-1).unbind(1)))
        both = product(mean, variance, torch.ones(2, 8, dtype=torch.bool))
        beliefs = (list(zip(mean, variance, strict=True)), [both])
        titles = ("each source alone", "the product of both")
        for (left, right), each, title in zip(axes, beliefs, titles, strict=True):
            for centre in centres().tolist():
                for width in (1, 2):
                    left.add_patch(Ellipse((centre[0], centre[1]), 2 * width * SPREAD, 2 * width * SPREAD, fill=False))
            for marker, (m, v) in zip("ox", each, strict=False):
                for k in range(8):
                    colour = colormaps["hsv"](k / 8)
                    z = m[k] + v[k].sqrt() * torch.randn(20, 2)
                    data = torch.cat([decoder(z) for decoder in model.decoders], -1)
                    data = data + (0.5 * model.log_noise).exp() * torch.randn_like(data)
                    left.plot(*data.T.numpy(), marker, color=colour, markersize=4, alpha=0.6)
                    (x, y), (wide, high) = m[k].tolist(), (2 * v[k].sqrt()).tolist()
                    right.add_patch(Ellipse((x, y), wide, high, fill=False, color=colour, linewidth=1.6))
            left.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xlabel="first source", ylabel="second source")
            left.set_title(f"Data drawn from {title}", loc="left", fontsize=10)
            right.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
            right.set_title(f"Beliefs: {title}", loc="left", fontsize=10)
            style_axis(left)
            style_axis(right)
    save_figure(figure, path)


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=pathlib.Path, help="mnist.npz; not read by the mixture")
    parser.add_argument("--data", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--trained", nargs="+", default=list(BOUNDS), choices=BOUNDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, help="default: 1000, and 5000 of the mixture")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--latent", type=int, help="default: 16, and 2 of the mixture")
    parser.add_argument("--hidden", type=int, help="default: 200, and 32 of the mixture")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "fusion" / "results" / "multi_source.csv"
    )
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs" / "images" / "multi_source.png")
    options = parser.parse_args()
    images = test_images = torch.zeros(0, 28, 28)
    if set(options.data) - {"mix"}:
        if options.mnist is None:
            parser.error("expected --mnist FILE for digits; the mixture alone, --data mix, needs none")
        with np.load(options.mnist) as held:
            images, test_images = (torch.from_numpy(held[key]).to(options.device) for key in ("x_train", "x_test"))
        test_images = test_images[: options.test].float() / 255
    facts = {"device": options.device, **provenance(options.output)}
    for seed in options.seeds:
        for name in options.data:
            steps, latent, hidden = SIZES[name]
            sizes = (options.steps or steps, options.latent or latent, options.hidden or hidden)
            for kind in options.trained:
                key: dict[str, Any] = {"data": name, "trained": kind, "seed": seed}
                key |= dict(zip(("steps", "latent", "hidden"), sizes, strict=True))
                key |= {x: getattr(options, x) for x in ("batch", "samples", "test")}
                if has_row(options.output, key):
                    continue
                began = time.process_time()
                model = train(name, kind, images, sizes, seed, options)
                seconds = f"{time.process_time() - began:.0f}"
                torch.manual_seed(1)
                points = (
                    draw_points(name, images, options.test, options.device)
                    if name == "mix"
                    else parts_of(name, torch.bernoulli(test_images))
                )
                found: dict[str, Any] = {**scores(model, points, options.samples), "seconds": seconds}
                if name == "mix":
                    density = log_density(torch.cat(points.sources, -1).cpu().double())
                    found["nats_exact"] = f"{-density.mean().item():.3f}"
                append_rows(options.output, COLUMNS, [{**key, **found, **facts}])
                tqdm.write(f"{name} {kind} {found}")
                if (name, kind) == ("mix", "ind"):
                    picture(model, options.picture)


if __name__ == "__main__":
    main()
