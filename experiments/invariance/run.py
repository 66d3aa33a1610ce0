"""What independent weights lose by invariances: the figures of Kurle et al. (2022), and the gap of learners on digits.

    python experiments/invariance/run.py              # pictures in docs/images, and results/invariance.csv
    python experiments/invariance/run.py --seeds 0    # the second picture with one seed

The first picture has the paper's over-parametrised mean of K weights (its section 4): K equal weights stand for one, so
that shifts among them change nothing. Closed forms, noise variance 1 / (2 pi e), all observations 1.

The second has a network of 64 inputs, one hidden layer and ten outputs on scikit-learn's digits, learnt in blocks of
25. A row of the table has the gap by the order of the hidden units: log q - log q_mix, a mean over draws of the weights
from the belief q, with its standard error; log n! for n units, which it can not exceed; the divergence of q from the
prior; and the part of held-out digits that are mistaken, at the mean of the weights. `vb` has the prior N(0, v) of its
paper, which no order of the units changes; `vd-ekf` has its prior around random weights, which tells the units apart:
there the gap is no loss of its bound.
"""

import argparse
import csv
import itertools
import math
import pathlib
import sys
from typing import Any

import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.invariance.gap import (
    OverParametrised,
    abiding,
    by_unit,
    dense,
    equal_gap,
    mean_field,
    permutation_gaps,
)
from experiments.streams.toys_shared import style
from experiments.tables import ROOT
from tsforecast import learners
from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file
from tsforecast.learners.loop import AbstractLearner
from tsforecast.plots import COLOURS, save_figure

NOISE = 1 / (2 * math.pi * math.e)
WEIGHTS = (1, 2, 3, 5, 8, 13, 20, 32, 50, 80, 128, 200)
OPTIMA = {"abiding": "optimum of the mixture", "mean_field": "optimum of independent weights"}
BLOCK, TRAIN, DRAWS = 25, 1500, 200
CHECKED = (25, 50, 100, 400, 1500)  # observations after which the gap is taken
COLUMNS = [
    "learner", "units", "observations", "seed", "gap", "standard_error", "most", "divergence", "error", "commit",
    "command",
]  # fmt: skip


def draw_gaps(axis: Axes, observations: int) -> None:
    """The gap at both optima against the number of weights, and what the data allow (figure 1)."""
    models = [OverParametrised(k, observations, noise=NOISE) for k in WEIGHTS]
    for name, colour in (("abiding", COLOURS[0]), ("mean_field", COLOURS[1])):
        variances = [getattr(model, f"{name}_optimum")().variance[0].item() for model in models]
        gaps = [equal_gap(k, float(k), variance) for k, variance in zip(WEIGHTS, variances, strict=True)]
        label = OPTIMA[name]
        axis.plot(WEIGHTS, gaps, "o-", color=colour, markersize=3, label=label)
    axis.axhline(models[0].most_divergence(), color="#888888", linestyle="--", label="most that data allow")
    axis.set(xlabel="weights K", ylabel="gap, nats")
    style(axis, f"Gap, {observations} observations")


def draw_terms(axes: list[Axes]) -> None:
    """Divergence, fit and predictive variance of both beliefs at both optima (figure 2)."""
    for kind, optimum in itertools.product(("abiding", "mean_field"), repeat=2):
        rows = []
        for k in WEIGHTS:
            model = OverParametrised(k, noise=NOISE)
            g, prior = getattr(model, f"{optimum}_optimum")(), model.prior()
            belief = abiding(g, prior) if kind == "abiding" else dense(mean_field(g, prior))
            ones = torch.ones(k, dtype=torch.float64) / k
            variance = ones @ belief.cov @ ones
            rows.append((belief.kl(dense(prior)).item(), model.fit(belief).item(), variance.item()))
        look: Any = {"color": COLOURS[0 if optimum == "abiding" else 1], "linestyle": "-" if kind == "abiding" else ":"}
        name = f"{'mixture' if kind == 'abiding' else 'independent'}, {OPTIMA[optimum]}"
        for axis, values in zip(axes, zip(*rows, strict=True), strict=True):
            axis.plot(WEIGHTS, values, marker="o", markersize=3, label=name, **look)
    for axis, title in zip(axes, ("KL from the prior, nats", "Expected log-likelihood", "Variance of f"), strict=True):
        axis.set(xlabel="weights K")
        style(axis, title)
    axes[2].set_yscale("log")


def draw_plane(axis: Axes) -> None:
    """Two weights: prior, mixture and independent weights at the optimum of the mixture (figure 3)."""
    model = OverParametrised(2, noise=NOISE)
    places = torch.linspace(-1.5, 3.5, 120, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(places, places, indexing="xy"), -1)
    g, prior = model.abiding_optimum(), model.prior()
    beliefs = (dense(prior), abiding(g, prior), dense(mean_field(g, prior)))
    for belief, colour in zip(beliefs, ("#888888", COLOURS[0], COLOURS[1]), strict=True):
        height = torch.distributions.MultivariateNormal(belief.mean, belief.cov).log_prob(grid)
        look = {"colors": colour, "linewidths": 1, "linestyles": "-"}
        axis.contour(places, places, height - height.max(), levels=[-4.5, -2.0, -0.5], **look)
    style(axis, "Two weights")
    axis.set(xlabel="first", ylabel="second")


def draw_model(path: pathlib.Path) -> None:
    """The figures of the paper."""
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.2))
    draw_gaps(axes[0, 0], 10)
    draw_gaps(axes[0, 1], 100)
    draw_plane(axes[0, 2])
    draw_terms(list(axes[1]))
    axes[0, 0].legend(fontsize=7, frameon=False, loc="upper left")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.legend(*axes[1, 1].get_legend_handles_labels(), fontsize=7, frameon=False, loc="lower center", ncol=4)
    save_figure(figure, path)


def learner_of(name: str, units: int, seed: int) -> AbstractLearner[Any]:
    """A learner of digits."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(64, units), nn.Tanh(), nn.Linear(units, 10)).double()
    if name == "vd-ekf":
        return learners.vd_ekf(module, learners.CategoricalLikelihood(), 0.1)
    generator = torch.Generator().manual_seed(seed)
    return learners.vb(module, learners.CategoricalLikelihood(), 1.0, prior="layers", generator=generator)


def measure(name: str, units: int, seed: int) -> list[dict[str, Any]]:
    """Rows of a learner on one order of the digits."""
    data: Any = load_digits()
    order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(seed))
    inputs, target = torch.tensor(data.data)[order] / 8 - 1, torch.tensor(data.target)[order].double().unsqueeze(-1)
    learner, widths, rows = learner_of(name, units, seed), (64, units, 10), []
    belief, prior = learner.init(), learner.init()
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, TRAIN, BLOCK):
        part = slice(start, start + BLOCK)
        belief = learner.update(belief, inputs[part], target[part], generator=generator)
        if start + BLOCK not in CHECKED:
            continue
        both = [learners.Independent(learner.weights(b), learner.variances(b)) for b in (belief, prior)]
        hidden, before = (learners.Independent(by_unit(b.mean, widths), by_unit(b.variance, widths)) for b in both)
        draws = by_unit(learner.sample(belief, DRAWS, generator), widths)
        gaps = permutation_gaps(hidden, units, draws)
        ratio = hidden.variance / before.variance
        moved = (hidden.mean - before.mean).square() / before.variance
        wrong = learner.expect(belief, inputs[TRAIN:], spread=False).mean.argmax(-1) != target[TRAIN:, 0]
        rows.append({
            "learner": name, "units": units, "observations": start + BLOCK, "seed": seed,
            "gap": f"{gaps.mean():.4f}", "standard_error": f"{gaps.std() / math.sqrt(DRAWS):.2g}",
            "most": f"{math.lgamma(units + 1):.4f}",
            "divergence": f"{0.5 * (ratio + moved - 1 - ratio.log()).sum():.2f}",
            "error": f"{wrong.double().mean():.4f}",
        })  # fmt: skip
    return rows


def draw_digits(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Gap as a part of log n!, and divergence from the prior, against observations."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    groups = sorted({(row["learner"], row["units"]) for row in rows})
    for colour, (name, units) in zip(itertools.cycle(COLOURS), groups, strict=False):
        own = [row for row in rows if (row["learner"], row["units"]) == (name, units)]
        look = {"linestyle": "-" if name == "vb" else ":", "color": colour, "marker": "o", "markersize": 3}
        parts = [[float(r["gap"]) / float(r["most"]) for r in own if r["observations"] == n] for n in CHECKED]
        away = [[float(r["divergence"]) for r in own if r["observations"] == n] for n in CHECKED]
        for axis, values in zip(axes, (parts, away), strict=True):
            axis.plot(CHECKED, [sum(x) / len(x) for x in values], label=f"{name}, {units} units", **look)
    titles = ("Gap by the order of units, part of log n!", "Divergence from the prior, nats")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", xlabel="digits learnt from")
        style(axis, title)
    axes[0].legend(fontsize=7, frameon=False)
    axes[1].set_yscale("log")
    figure.tight_layout()
    save_figure(figure, path)


def main() -> None:
    """Draws both pictures, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--units", nargs="+", type=int, default=[2, 5, 10])
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "invariance" / "results" / "invariance.csv"
    )
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    torch.set_num_threads(1)
    facts = provenance(options.output)
    draw_model(options.images / "invariance.png")
    rows = []
    jobs = [(name, *job) for name in ("vb", "vd-ekf") for job in itertools.product(options.units, options.seeds)]
    with torch.no_grad():
        for name, units, seed in tqdm(jobs, disable=None):
            rows += [row | facts for row in measure(name, units, seed)]
    with replace_file(options.output) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw_digits(rows, options.images / "invariance-digits.png")


if __name__ == "__main__":
    main()
