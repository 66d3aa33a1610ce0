"""Expectation propagation beside assumed density filtering, Laplace and FAB-COST: results/ep.csv, docs/images/ep*.png.

    python experiments/streams/ep.py                             # all but the digits; half an hour on one core
    python experiments/streams/ep.py --parts digits              # which `datasets/streams.py mnist` has to prepare
    python experiments/streams/ep.py --parts clicks --pool 678446 --steps 31000 --seeds 0

Logistic regression with a standard normal prior and inputs; weights are drawn from the prior.

- `rates`: two weights and T points; errors of means and standard deviations against integration over a grid.
- `sampling`: ten weights; against importance sampling from the result of EP, whose own error stands beside it.
- `seconds`: fifteen weights; CPU seconds of each.
- `digits`: is it a nought? 785 weights and fewer digits of the test part, standardised. `margin`: by how much the mean
  logit of other noughts exceeds that of other digits, in the median standard deviation of a logit. `ranked`: share of
  such pairs that one draw of each logit puts in order.
- `clicks`: a pool of adverts with fifteen covariates (as in McKenzie et al. 2020, section IV-E), about 2 % of which are
  clicked on. The advert with the largest logit by one draw from the belief is shown, and leaves the pool. `fab-cost`
  filters, and fits by EP after 100 and 10 000 adverts. `ep` and `laplace` fit all data every 100 adverts, every 10 up
  to 1 000; between them `ep` filters. `laplace-twice` is the paper's baseline: its last posterior is its next prior.

Finished rows are not computed again.
"""

import argparse
import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, fill, has_row
from tsforecast.core import Gaussian
from tsforecast.decisions.linear import with_one
from tsforecast.decisions.tables import read_table
from tsforecast.learners import (
    ADF,
    EP,
    AbstractBatchPosterior,
    AbstractSite,
    BatchPosterior,
    Laplace,
    LogisticSite,
    Sites,
)
from tsforecast.learners.batch.expectation_propagation import visit_once
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.style import style_axis

FOUND = ["mean_error", "sd_error", "seconds", "margin", "ranked", "clicks"]
COLUMNS = ["part", "size", "method", "seed", *FOUND, "curve", "commit", "command"]
SIZES = {
    "rates": [16 * 2**k for k in range(10)],
    "sampling": [50, 500],
    "seconds": [1000, 10_000],
    "digits": [100, 400],
}
DIMS = {"rates": 2, "sampling": 10, "seconds": 15}
POLICIES = ("random", "laplace-twice", "laplace", "adf", "fab-cost", "ep")
SWITCHES = (100, 10_000)
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Switched(AbstractBatchPosterior):
    """FAB-COST: EP for the first points, then one pass of ADF over the others."""

    after: int = 100
    site: AbstractSite = dataclasses.field(default_factory=LogisticSite)

    def _fit(
        self, prior: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None, old: int
    ) -> BatchPosterior:
        """Return the posterior."""
        early = None if counts is None else counts[: self.after]
        start = Sites(sites.precision[:old], sites.linear[:old]) if old else None
        labels = target.unsqueeze(-1)
        first = EP().fit(prior, inputs[: self.after], labels[: self.after], start, early)
        return ADF().fit(prior, inputs, labels, first.sites, counts)


METHODS: dict[str, AbstractBatchPosterior] = {
    "laplace": Laplace(),
    "adf": ADF(),
    "fab-cost": Switched(),
    "ep": EP(schedule="parallel", tolerance=1e-9, sweeps=200),
    "ep, mackay": EP(LogisticSite("mackay"), schedule="parallel", tolerance=1e-9, sweeps=200),
}
TIMED: dict[str, AbstractBatchPosterior] = {
    "laplace": Laplace(),
    "adf": ADF(),
    "ep, sequential, 4 sweeps": EP(sweeps=4, tolerance=0.0),
    "ep, parallel, to 1e-4": EP(schedule="parallel", tolerance=1e-4),
}
DIGITS: dict[str, AbstractBatchPosterior] = {
    "laplace": METHODS["laplace"],
    "adf": METHODS["adf"],
    "ep": TIMED["ep, parallel, to 1e-4"],
}


def data(size: int, dim: int, seed: int) -> tuple[Gaussian, Tensor, Tensor]:
    """A prior, inputs and labels."""
    rng = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, dim, generator=rng)
    weights = torch.randn(dim, generator=rng)
    target = (torch.rand(size, generator=rng) < (inputs @ weights).sigmoid()).double()
    return Gaussian(torch.zeros(dim), torch.eye(dim)), inputs, target[:, None]


def log_joint(weights: Tensor, inputs: Tensor, target: Tensor) -> Tensor:
    """Of many weights, up to a constant."""
    total = -0.5 * weights.square().sum(-1)
    label = 2 * target[:, 0] - 1
    for x, y in zip(inputs.split(256), label.split(256), strict=True):
        total += torch.nn.functional.logsigmoid(y * (weights @ x.T)).sum(-1)
    return total


def moments(weights: Tensor, log_mass: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviations of weighted points."""
    mass = log_mass.softmax(0)
    mean = mass @ weights
    return mean, (mass @ (weights - mean).square()).sqrt()


def integrate(inputs: Tensor, target: Tensor, around: Gaussian) -> tuple[Tensor, Tensor]:
    """Exact moments of two weights: the trapezoidal rule, which converges exponentially for such densities."""
    axis = torch.linspace(-9, 9, 91)
    place = torch.cartesian_prod(axis, axis)
    weights = around.mean + place @ torch.linalg.cholesky(around.cov).T
    return moments(weights, log_joint(weights, inputs, target))


def sample(inputs: Tensor, target: Tensor, around: Gaussian, seed: int, count: int = 200_000) -> tuple[Tensor, ...]:
    """Moments by importance sampling from a Gaussian, and their standard errors from twenty parts."""
    rng = torch.Generator().manual_seed(seed + 1000)
    wide = Gaussian(around.mean, 1.2 * around.cov)
    root = torch.linalg.cholesky(wide.cov)
    noise = torch.randn(count, len(around.mean), generator=rng)
    noise = torch.cat([noise, -noise])  # antithetic, in pairs
    weights = wide.mean + noise @ root.T
    ratio = log_joint(weights, inputs, target) + 0.5 * noise.square().sum(-1)
    whole = moments(weights, ratio)
    parts = [moments(weights[k::20], ratio[k::20]) for k in range(20)]
    errors = (torch.stack(part).std(0) / math.sqrt(20) for part in zip(*parts, strict=True))
    return *whole, *errors


def compare(part: str, size: int, seed: int) -> list[Row]:
    """Errors of each method, in standard deviations of the posterior: root mean squares over the weights."""
    prior, inputs, target = data(size, DIMS[part], seed)
    around = METHODS["ep"].fit(prior, inputs, target).belief
    rows: list[Row] = []
    if part == "rates":
        mean, sd = integrate(inputs, target, around)
    else:
        mean, sd, mean_error, sd_error = sample(inputs, target, around, seed)
        own = ((mean_error / sd).square().mean().sqrt().item(), (sd_error / sd).square().mean().sqrt().item())
        rows.append({"method": "importance sampling", "mean_error": f"{own[0]:.3e}", "sd_error": f"{own[1]:.3e}"})
    for name, method in METHODS.items():
        found = method.fit(prior, inputs, target).belief
        errors = (((found.mean - mean) / sd), (found.variance.sqrt() / sd - 1))
        first, second = (x.square().mean().sqrt().item() for x in errors)
        rows.append({"method": name, "mean_error": f"{first:.3e}", "sd_error": f"{second:.3e}"})
    return rows


def clock(size: int, seed: int) -> list[Row]:
    """CPU seconds of each."""
    prior, inputs, target = data(size, DIMS["seconds"], seed)
    rows: list[Row] = []
    for name, method in TIMED.items():
        began = time.process_time()
        method.fit(prior, inputs, target)
        rows.append({"method": name, "seconds": f"{time.process_time() - began:.4f}"})
    return rows


def digits(size: int, seed: int) -> list[Row]:
    """Margin and order of logits of digits that were not learnt from."""
    table = read_table("mnist")
    assert table.labels is not None
    order = torch.randperm(len(table.contexts), generator=torch.Generator().manual_seed(seed))
    contexts, label = table.contexts[order].double(), (table.labels[order] == 0).double()
    scale, mean = torch.std_mean(contexts[:size], 0)
    inputs = with_one((contexts - mean) / torch.where(scale > 0, scale, 1.0))
    prior = Gaussian(torch.zeros(inputs.shape[1]), torch.eye(inputs.shape[1]))
    other, nought = inputs[size : size + 4000], label[size : size + 4000].bool()
    rows: list[Row] = []
    for name, method in DIGITS.items():
        belief = method.fit(prior, inputs[:size], label[:size, None]).belief
        logit, sd = other @ belief.mean, ((other @ belief.cov) * other).sum(-1).sqrt()
        drawn = logit + sd * torch.randn(len(sd), generator=torch.Generator().manual_seed(seed + 1))
        margin = (logit[nought].mean() - logit[~nought].mean()) / sd.median()
        ranked = (drawn[nought].unsqueeze(-1) > drawn[~nought]).double().mean()
        rows.append({"method": name, "margin": f"{margin:.3f}", "ranked": f"{ranked:.4f}"})
    return rows


def show(policy: str, pool: int, steps: int, seed: int) -> list[Row]:
    """Clicks of a policy, as a curve with a hundred places."""
    rng = torch.Generator().manual_seed(seed)
    adverts = torch.randn(pool, 15, generator=rng, dtype=torch.float32)
    adverts[:, 0] = 1
    weights = 0.3 * torch.randn(15, generator=rng)
    weights[0] = -4.5
    clicked = torch.rand(pool, generator=rng) < (adverts.double() @ weights).sigmoid()
    prior, left = Gaussian(torch.zeros(15), torch.eye(15)), pool
    belief, rows, labels = prior, torch.zeros(steps, 15), torch.zeros(steps, 1)
    began = time.process_time()
    draws = torch.Generator().manual_seed(seed + 1)
    learn = LEARN[policy]
    for k in range(steps):
        if policy == "random":
            place = int(torch.randint(left, (), generator=draws))
        else:
            place = int((adverts[:left] @ belief.sample((), draws).float()).argmax())
        rows[k], labels[k] = adverts[place].double(), clicked[place].double()
        left -= 1
        adverts[place], clicked[place] = adverts[left], clicked[left]  # what is behind `left` is gone
        belief = learn(prior, belief, rows[: k + 1], labels[: k + 1])
    total = labels[:, 0].cumsum(0)
    curve = total[torch.linspace(0, steps - 1, 101).long()[1:]]
    row = {"method": policy, "clicks": int(total[-1]), "curve": " ".join(f"{x:.0f}" for x in curve.tolist())}
    return [row | {"seconds": f"{time.process_time() - began:.1f}"}]


def _is_due(count: int) -> bool:
    return count % 100 == 0 or (count <= 1000 and count % 10 == 0)


def _filter(prior: Gaussian, belief: Gaussian, rows: Tensor, labels: Tensor) -> Gaussian:
    return visit_once(LogisticSite(), belief, rows[-1:], labels[-1])[0]


def _fab_cost(prior: Gaussian, belief: Gaussian, rows: Tensor, labels: Tensor) -> Gaussian:
    if len(rows) in SWITCHES:
        return EP(schedule="parallel", tolerance=1e-4).fit(prior, rows, labels).belief
    return _filter(prior, belief, rows, labels)


def _ep(prior: Gaussian, belief: Gaussian, rows: Tensor, labels: Tensor) -> Gaussian:
    if _is_due(len(rows)):
        return EP(schedule="parallel", tolerance=1e-2).fit(prior, rows, labels).belief
    return _filter(prior, belief, rows, labels)


def _laplace(prior: Gaussian, belief: Gaussian, rows: Tensor, labels: Tensor) -> Gaussian:
    return Laplace().fit(prior, rows, labels).belief if _is_due(len(rows)) else belief


def _laplace_twice(prior: Gaussian, belief: Gaussian, rows: Tensor, labels: Tensor) -> Gaussian:
    return Laplace().fit(belief, rows, labels).belief if _is_due(len(rows)) else belief


ALONE: dict[str, Callable[[int, int], list[Row]]] = {"seconds": clock, "digits": digits}
LEARN: dict[str, Callable[[Gaussian, Gaussian, Tensor, Tensor], Gaussian]] = {
    "random": lambda prior, belief, rows, labels: belief,
    "laplace-twice": _laplace_twice,
    "laplace": _laplace,
    "adf": _filter,
    "fab-cost": _fab_cost,
    "ep": _ep,
}


def slopes(table: pd.DataFrame) -> str:
    """Exponents of T that errors fall with, from 128 points on: mean and standard error of the seeds' fits."""
    lines = []
    part = table[(table["part"] == "rates") & (table["size"] >= 128)]
    for method, rows in part.groupby("method", sort=False):
        for column in ("mean_error", "sd_error"):
            found = [
                np.polyfit(np.log(one["size"]), np.log(one[column].astype(float)), 1)[0]
                for _, one in rows.groupby("seed")
                if len(one) > 2
            ]
            if found:
                error = np.std(found, ddof=1) / math.sqrt(len(found)) if len(found) > 1 else math.nan
                lines.append(f"{method}: {column} falls with T^{np.mean(found):.2f} (+- {error:.2f})")
    return "\n".join(lines)


def summarise(path: pathlib.Path) -> str:
    """Return means over seeds with standard errors, and the exponents."""
    table = pd.read_csv(path)
    groups = table.groupby(["part", "size", "method"], sort=False)[FOUND]
    found = groups.agg(["mean", "sem"]).dropna(axis=1, how="all")
    return f"{found.map('{:.3g}'.format).to_string()}\n\n{slopes(table)}"


def draw_errors(table: pd.DataFrame) -> Figure:
    """Draws medians of the errors of means and standard deviations against T."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    part = table.query("part == 'rates'")
    panels = zip(figure.subplots(1, 2), ("mean_error", "sd_error"), ("means", "standard deviations"), strict=True)
    for axis, column, what in panels:
        for method, colour in zip(METHODS, COLOURS, strict=False):
            line = part[part["method"] == method].groupby("size")[column].median()
            axis.plot(line.index, line.to_numpy(), color=colour, marker="o", markersize=3, label=method)
        sizes = np.array(sorted(part["size"].unique()), dtype=float)
        for power in (-0.5, -1.5):
            line = 0.3 * (sizes / sizes[0]) ** power
            axis.plot(sizes, line, color="#BBBBBB", linewidth=0.8)
            axis.annotate(f"$T^{{{power}}}$", (sizes[-1], line[-1]), fontsize=7, color="#888888")
        axis.set(xscale="log", yscale="log", xlabel="points T", ylabel="error (posterior sd)")
        axis.set_title(f"errors of {what}", loc="left", fontsize=10)
        style_axis(axis)
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def draw_clicks(table: pd.DataFrame, steps: int) -> Figure:
    """Draws clicks of all policies, means over seeds; and how many more than Laplace's, with two standard errors."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    part = table.query("part == 'clicks' and size == @steps")
    curves = {
        name: np.array([[float(x) for x in text.split()] for text in rows["curve"]])
        for name, rows in part.sort_values("seed").groupby("method")
    }
    places = np.linspace(0, steps, 101)[1:]
    for name, colour in zip(POLICIES, (*COLOURS[6:], *COLOURS), strict=False):
        if name not in curves:
            continue
        left.plot(places, curves[name].mean(0), color=colour, linewidth=1.5, label=name)
        if name in ("random", "laplace") or curves[name].shape != curves.get("laplace", curves[name]).shape:
            continue
        gain = curves[name] - curves.get("laplace", 0)
        mean = gain.mean(0)
        if len(gain) > 1:
            error = gain.std(0, ddof=1) / math.sqrt(len(gain))
            right.fill_between(places, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.12, linewidth=0)
        right.plot(places, mean, color=colour, linewidth=1.5, label=name)
    left.set_title("clicks", loc="left", fontsize=10)
    right.set_title("clicks beyond those of laplace", loc="left", fontsize=10)
    for axis in (left, right):
        axis.set(xlabel="adverts shown", ylabel="clicks")
        style_axis(axis)
    left.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Runs what is not in the table yet, and draws it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = (*SIZES, "clicks")
    parser.add_argument("--parts", nargs="+", default=[one for one in parts if one != "digits"], choices=parts)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--pool", type=int, default=60_000, help="adverts")
    parser.add_argument("--steps", type=int, default=12_000, help="adverts that are shown")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments" / "streams" / "results" / "ep.csv")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

    def run(job: tuple[str, int, str, int]) -> list[Row]:
        part, size, method, seed = job
        if part == "clicks":
            rows = show(method, options.pool, options.steps, seed)
        else:
            rows = ALONE[part](size, seed) if part in ALONE else compare(part, size, seed)
        facts = {"part": part, "size": size, "seed": seed}
        return [facts | row for row in rows]

    jobs: list[tuple[str, int, str, int]] = []
    for seed in options.seeds:
        for part in options.parts:
            if part == "clicks":
                jobs += [(part, options.steps, policy, seed) for policy in options.policies]
            else:
                jobs += [(part, size, "laplace", seed) for size in SIZES[part]]
    keys = ("part", "size", "method", "seed")
    rest = [job for job in jobs if not has_row(options.output, dict(zip(keys, job, strict=True)))]
    fill(options.output, COLUMNS, rest, run, summarise)
    table = pd.read_csv(options.output)
    options.images.mkdir(parents=True, exist_ok=True)
    save_figure(draw_errors(table), options.images / "ep-errors.png")
    if (table["part"] == "clicks").any():
        save_figure(draw_clicks(table, options.steps), options.images / "ep-clicks.png")


if __name__ == "__main__":
    main()
