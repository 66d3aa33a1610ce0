"""The toy of a point that moves over a plane, seen with noise that is not Gaussian."""

import dataclasses
import math
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from tqdm import tqdm

from experiments.streams.toys_shared import (
    TUNING,
    WEIGHTS,
    Result,
    Row,
    Weights,
    choose,
    rows_of,
    style,
    trace,
    with_default,
)
from tsforecast import learners
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman
from tsforecast.core.torch_internals import standard_gamma
from tsforecast.plots import COLOURS, OBSERVED

STEP, JOLT, BLUR = 0.1, 0.1, 10.0  # seconds; variances of what moves the state in a step, and of an observation
NOISES = ("student", "doubled")
INFLATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True)
class Paths:
    """Points that move, (time, run, ...).

    Attributes:
        state: Position and velocity.
        seen: Position with noise.
        factor: Of the variance of each observation, infinite for one that is wrong.
    """

    state: Tensor
    seen: Tensor
    factor: Tensor


def make_start() -> Gaussian:
    """Where the points begin."""
    return Gaussian(torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.eye(4))


def make_system(factor: Tensor) -> LinearSystem:
    """Nearly constant velocity, with the variance of observations times a factor (time, *run)."""
    transition = torch.eye(4) + STEP * torch.diag(torch.ones(2), 2)
    noise = BLUR * factor[..., None, None] * torch.eye(2)
    return LinearSystem(
        LinearGaussian(transition.unsqueeze(0), torch.zeros(1, 4), JOLT * torch.eye(4).unsqueeze(0)),
        LinearGaussian(torch.eye(2, 4).unsqueeze(0), torch.zeros(1, 2), noise),
    )


def make_paths(noise: str, runs: int, steps: int, seed: int) -> Paths:
    """Seen with Student's noise of 2.01 degrees of freedom, or doubled with a probability of .05."""
    generator = torch.Generator().manual_seed(seed)
    state, seen = kalman.simulate(make_system(torch.ones(1)), make_start(), steps, runs, generator)
    position = state[..., :2]
    if noise == "student":
        shape = torch.full((steps, runs), 2.01 / 2)
        gamma = standard_gamma(shape, generator)
        factor = shape / gamma
        return Paths(state, position + factor.sqrt().unsqueeze(-1) * (seen - position), factor)
    wrong = torch.rand(steps, runs, generator=generator) < 0.05
    factor = torch.where(wrong, math.inf, 1.0)
    return Paths(state, torch.where(wrong.unsqueeze(-1), seen + position, seen), factor)


def make_tracker(weight: learners.AbstractWeight) -> learners.GaussianLearner:
    """The same filter as a learner: the state takes the place of weights, and the emission that of a network."""
    start, (transition, emission) = make_start(), make_system(torch.ones(1)).at(0)
    twin = learners.LayerChain((1, 2), (nn.Identity,), (False,))
    network = learners.Subspace(twin, torch.zeros(2), emission.matrix)
    motion = learners.Linear(transition.matrix, noise=transition.noise)
    likelihood = learners.GaussianLikelihood(BLUR)
    return learners.GaussianLearner(network, likelihood, start.mean, start.variance, weight_drift=motion, weight=weight)


def track(weight: learners.AbstractWeight, seen: Tensor) -> Tensor:
    """Means of the state given all that was seen until then, (time, run, state)."""
    target = seen.transpose(0, 1).unsqueeze(2)
    return trace(make_tracker(weight), torch.ones_like(target[..., :1]), target).mean.transpose(0, 1)


def compare_trackers(paths: Paths, tuning: int, kinds: Weights = WEIGHTS) -> list[Result]:
    """Kalman filters with the plain noise, with one that is larger, and with that of each observation; and weights."""

    def score(name: str, settings: str, mean: Tensor) -> Result:
        error = (mean - paths.state).square().mean(0)
        scores = {"position_rmse": error[:, :2].mean(1).sqrt(), "velocity_rmse": error[:, 2:].mean(1).sqrt()}
        return Result(name, settings, scores, mean[..., :2].transpose(0, 1))

    def kalman_mean(factor: Tensor, observed: Tensor | None = None) -> Tensor:
        return kalman.filter(make_system(factor), make_start(), paths.seen, observed).filtered.mean

    right = paths.factor.isfinite()
    told = kalman_mean(torch.where(right, paths.factor, 1.0), right.unsqueeze(-1).expand_as(paths.seen))
    larger = [score("kf, larger noise", f"noise * {k}", kalman_mean(torch.full((1,), float(k)))) for k in INFLATIONS]
    place, kept = choose(larger, "position_rmse", tuning)
    results = [kept[0], kept[place], score("kf, told the noise", "", told).without(tuning)]
    results[0] = dataclasses.replace(results[0], learner="kf", settings="")
    for name, grid in kinds.items():
        if name != "ekf":
            found = [
                score(name, repr(weight), track(weight, paths.seen)) for weight in tqdm(grid, desc=name, disable=None)
            ]
            results += with_default(*choose(found, "position_rmse", tuning))
    return results


def tracking_toy(streams: int) -> tuple[list[Row], Figure]:
    """Rows, and the picture."""
    rows, scores, example = [], {}, None
    for seed, noise in enumerate(NOISES):
        paths = make_paths(noise, TUNING + streams, 500, seed)
        results = compare_trackers(paths, TUNING)
        rows += rows_of(f"tracking-{noise}", results, "kf", medians=True)
        scores[noise] = {result.learner: result.scores["position_rmse"] for result in results}
        if example is None:
            estimates = {result.learner: result.steps[0] for result in results}
            example = paths.state[:, TUNING, :2], paths.seen[:, TUNING], estimates
    assert example is not None
    return rows, draw_tracking(*example, scores)


LABELS = {
    "kf": "Kalman filter",
    "kf, larger noise": "Kalman, larger noise",
    "wolf, power 1": "WoLF, power 1",
    "wolf, power 2": "WoLF, power 2",
    "gate": "gate by noise",
    "gate, predictive": "gate by prediction",
    "kf, told the noise": "Kalman, told the noise",
}
HUES = dict(zip(LABELS, (*(COLOURS[k] for k in (1, 4, 5, 0, 3, 2)), "#7F7F7F"), strict=True))
TITLES = {"student": "Student's noise", "doubled": "5 % of the positions doubled"}


def draw_tracking(
    state: Tensor, seen: Tensor, estimates: dict[str, Tensor], scores: dict[str, dict[str, Tensor]]
) -> Figure:
    """A piece of one path, and the errors on all.

    Args:
        state: True positions, (time, 2).
        seen: Noisy ones.
        estimates: Positions (time, 2) by learner.
        scores: Errors (run,) by noise and learner.
    """
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    axes = figure.subplots(1, 1 + len(scores), width_ratios=(1.2, *[1] * len(scores)))
    _draw_piece(axes[0], state, seen, estimates)
    for axis, (noise, found) in zip(axes[1:], scores.items(), strict=True):
        names = [name for name in LABELS if name in found]
        look: dict[str, Any] = {"patch_artist": True, "showfliers": False, "medianprops": {"color": OBSERVED}}
        values = [found[name].numpy() for name in names]
        boxes = axis.boxplot(values, orientation="horizontal", widths=0.6, whis=(5, 95), **look)
        for name, box in zip(names, boxes["boxes"], strict=True):
            box.set(facecolor=HUES[name], alpha=0.75, linewidth=0.8)
        axis.set_xscale("log")
        ticks = [tick for tick in (1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30) if _within(tick, axis.get_xlim())]
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_yticks(range(1, len(names) + 1), [LABELS[name] for name in names] if axis is axes[1] else [])
        axis.invert_yaxis()
        axis.set_xlabel("RMSE of the position", fontsize=9)
        style(axis, TITLES[noise])
    return figure


def _within(tick: float | int, limits: tuple[float, float]) -> bool:
    return limits[0] <= tick <= limits[1]


def _draw_piece(axis: Axes, state: Tensor, seen: Tensor, estimates: dict[str, Tensor], length: int = 60) -> None:
    """The steps around the largest error of the Kalman filter."""
    worst = int((estimates["kf"] - state).norm(dim=1).argmax())
    first = min(max(worst - length // 2, 0), len(state) - length)
    piece = slice(first, first + length)
    axis.plot(*state[piece].T, color=OBSERVED, linewidth=1.2, linestyle=(0, (4, 3)), label="path", zorder=4)
    drawn = torch.cat([state[piece], estimates["kf"][piece]])
    low, high = drawn.min(0).values, drawn.max(0).values
    centre, reach = 0.5 * (low + high), 0.75 * (high - low).max()
    inside = ((seen[piece] - centre).abs() < reach).all(1)
    at_edge = centre + (seen[piece][~inside] - centre).clamp(-0.98 * reach, 0.98 * reach)
    axis.plot(*seen[piece][inside].T, "o", color="#BFBFBF", markersize=3, label="seen", zorder=1)
    axis.plot(*at_edge.T, "x", color="#7F7F7F", markersize=5, label="seen beyond the edge", zorder=1)
    for name in ("kf", "wolf, power 2"):
        axis.plot(*estimates[name][piece].T, color=HUES[name], linewidth=1.5, label=LABELS[name], zorder=3)
    axis.set_xlim(*(centre[0] + reach * torch.tensor([-1, 1])).tolist())
    axis.set_ylim(*(centre[1] + reach * torch.tensor([-1, 1])).tolist())
    axis.set_aspect("equal")
    axis.legend(frameon=False, fontsize=8)
    style(axis, "Six seconds of a path, Student's noise")
