"""Online learners on three small streams, one pass, beside each other: results/online.csv.

    python experiments/streams/online.py  # all learners and streams, three splits; about five minutes
    python experiments/streams/online.py --learners ekf lofi-10 --streams digits --seeds 0

Streams: digits (MLP 64-20-10), breast cancer (30-20-2) and diabetes (10-50-1), which scikit-learn ships. Of each, 80 %
in random order are the stream and the others are held out. Errors are those of the most probable class (diabetes: root
mean squared errors in standard deviations of the target); log-losses are in nats and at the mean of the weights.
Finished rows are not computed again.
"""

import argparse
import csv
import itertools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn import datasets
from torch import Tensor, nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import append_rows
from tsforecast import learners
from tsforecast.cli.provenance import provenance
from tsforecast.learners.loop import AbstractLearner, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Widths, prior variance, noise variance (None: classes), rate of gradient descent.
STREAMS: dict[str, tuple[tuple[int, ...], float, float | None, float]] = {
    "digits": ((64, 20, 10), 0.3, None, 0.1),
    "cancer": ((30, 20, 2), 0.1, None, 0.1),
    "diabetes": ((10, 50, 1), 0.03, 0.5, 0.003),
}
LOADERS = {
    "digits": datasets.load_digits,
    "cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
}
Make = Callable[..., AbstractLearner[Any]]


def _linear(make: Make) -> Make:
    """The same learner over a single layer."""

    def made(model: nn.Sequential, likelihood: Any, variance: float, rate: float) -> AbstractLearner[Any]:
        first, last = model[0], model[-1]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        single = nn.Linear(first.in_features, last.out_features)
        for parameter in single.parameters():
            nn.init.zeros_(parameter)
        return make(single, likelihood, variance, rate)

    return made


def _plain(name: str, **settings: Any) -> Make:
    return lambda model, likelihood, variance, rate: learners.LEARNERS[name](model, likelihood, variance, **settings)


LEARNERS: dict[str, Make] = {
    "ekf": _plain("ekf"),
    "iterated-ekf": _plain("iterated-ekf"),
    "lofi-20": _plain("lofi", rank=20),
    "lofi-10": _plain("lofi", rank=10),
    "lofi-1": _plain("lofi", rank=1),
    "iterated-lofi-10": _plain("lofi", rank=10, rule=learners.BONG(3)),
    "vd-ekf": _plain("vd-ekf"),
    "iterated-vd-ekf": _plain("vd-ekf", rule=learners.BONG(3)),
    "decoupled-ekf": _plain("decoupled-ekf"),
    "decoupled-ekf-layers": _plain("decoupled-ekf", layers=True),
    "bong-fisher-10": _plain("bong", family=learners.Diagonal(gain="unprojected"), evidence="empirical-fisher"),
    "vd-fisher": _plain("bong", family=learners.Diagonal(gain="unprojected"), evidence="linearised-fisher"),
    "bong-fisher-10-projected": _plain("bong", family=learners.Diagonal(gain="projected"), evidence="empirical-fisher"),
    "vd-fisher-projected": _plain("bong", family=learners.Diagonal(gain="projected"), evidence="linearised-fisher"),
    "blr-10-projected": _plain("blr", family=learners.Diagonal(gain="projected")),
    "blr-10": _plain("blr", family=learners.Diagonal(gain="unprojected")),
    "lrkf-20": _plain("lrkf", rank=20, rate=0.3),
    "lrkf-20-still": _plain("lrkf", rank=20, drift=learners.NoDrift()),
    "subspace-ekf-200": lambda model, likelihood, variance, rate: learners.subspace_ekf(
        model, likelihood, variance, dim=200, generator=torch.Generator().manual_seed(0)
    ),
    "ogd": lambda model, likelihood, variance, rate: learners.ogd(model, likelihood, rate=rate),
    "linear-ekf": _linear(_plain("ekf")),
    "linear-ogd": _linear(lambda model, likelihood, variance, rate: learners.ogd(model, likelihood, rate=rate)),
}
COLUMNS = [
    "stream", "learner", "smoothing", "jitter", "seed", "error", "log_loss", "held_out_error", "held_out_log_loss",
    "ms_per_step", "commit", "command",
]  # fmt: skip
KEY = COLUMNS[:5]


def load(stream: str, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs and targets of the stream, then of what is held out."""
    inputs, target = LOADERS[stream](return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(inputs))
    count = int(0.8 * len(inputs))
    train = order[:count]
    sd = inputs[train].std(0)
    inputs = (inputs - inputs[train].mean(0)) / np.where(sd == 0, 1, sd)
    if stream == "digits":  # many of its pixels are nearly constant
        inputs = inputs / 3
    if stream == "diabetes":
        target = (target - target[train].mean()) / target[train].std()
    x, y = (torch.as_tensor(a, dtype=torch.float32) for a in (inputs, target))
    y = y.unsqueeze(-1)
    return x[train], y[train], x[order[count:]], y[order[count:]]


def make_network(widths: tuple[int, ...], seed: int) -> nn.Sequential:
    """Rectified linear units; weights N(0, 1 / fan-in), biases zero."""
    generator = torch.Generator().manual_seed(1000 + seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layer = nn.Linear(fan_in, fan_out)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(fan_out, fan_in, generator=generator) / fan_in**0.5)
            layer.bias.zero_()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def scores(prediction: Tensor, target: Tensor, noise: float | None) -> tuple[float, float]:
    """Error and log-loss of means (or probabilities of classes)."""
    if noise is None:
        chosen = prediction.gather(-1, target.long())
        wrong = prediction.argmax(-1, keepdim=True) != target
        return wrong.double().mean().item(), -chosen.double().clamp_min(1e-12).log().mean().item()
    square = (prediction - target).double().square().mean()
    return square.sqrt().item(), (0.5 * np.log(2 * np.pi * noise) + 0.5 * square / noise).item()


def measure(stream: str, name: str, seed: int, smoothing: float, jitter: float) -> dict[str, Any]:
    """One pass of one learner."""
    widths, variance, noise, rate = STREAMS[stream]
    inputs, target, others, held_out = load(stream, seed)
    if noise is None:
        likelihood = learners.CategoricalLikelihood(smoothing=smoothing, jitter=jitter)
    else:
        likelihood = learners.GaussianLikelihood(noise)
    learner = LEARNERS[name](make_network(widths, seed), likelihood, variance, rate)
    generator = torch.Generator().manual_seed(seed) if "fisher-10" in name else None
    began = time.process_time()
    belief, predicted = run(learner, learner.init(), inputs.unsqueeze(1), target.unsqueeze(1), generator=generator)
    passed = time.process_time() - began
    assert isinstance(learner, learners.GaussianLearner | learners.GradientDescent)
    outputs = learner.network(belief.mean, others)
    means = outputs if noise is not None else outputs.softmax(-1)
    error, loss = scores(predicted.mean.squeeze(1), target, noise)
    held_out_error, held_out_loss = scores(means, held_out, noise)
    row = {"stream": stream, "learner": name, "smoothing": smoothing, "jitter": jitter, "seed": seed}
    row |= {"error": f"{error:.4f}", "log_loss": f"{loss:.4f}"}
    row |= {"held_out_error": f"{held_out_error:.4f}", "held_out_log_loss": f"{held_out_loss:.4f}"}
    return row | {"ms_per_step": f"{1e3 * passed / len(target):.3f}"}


def main() -> None:
    """Runs what is not in the table yet, and prints the means over splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--smoothing", type=float, default=0.01, help="of the curvature of classes (default 0.01)")
    parser.add_argument("--jitter", type=float, default=0.0, help="instead of smoothing: added to their covariance")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "streams" / "results" / "online.csv"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = set()
    if options.output.exists():
        with options.output.open(newline="") as stream:
            done = {tuple(row[name] for name in KEY) for row in csv.DictReader(stream)}
    settings = (options.smoothing, options.jitter)
    cells = [(s, n, seed) for s in options.streams for n in options.learners for seed in options.seeds]
    cells = [c for c in cells if tuple(map(str, (*c[:2], *settings, c[2]))) not in done]
    facts = provenance(options.output)
    for stream, name, seed in (bar := tqdm(cells, unit="run")):
        bar.set_description(f"{stream} {name} {seed}")
        row = measure(stream, name, seed, *settings) | facts
        append_rows(options.output, COLUMNS, [row])
    table = pd.read_csv(options.output).groupby(["stream", *KEY[2:4], "learner"], sort=False)
    tqdm.write(table[COLUMNS[5:10]].mean().round(3).to_string())


if __name__ == "__main__":
    main()
