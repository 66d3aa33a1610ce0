"""The toys of outliers: a network that learns a curve, and moving averages that follow a level."""

import dataclasses
import itertools
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
    band,
    choose,
    learn,
    rows_of,
    style,
    with_default,
)
from tsforecast import learners
from tsforecast.learners.loop import AbstractLearner
from tsforecast.plots import COLOURS, OBSERVED

NOISE = 0.1  # standard deviation of a target
NETWORK = learners.LayerChain((1, 20, 1), (nn.Tanh, nn.Identity), (True, True))
RATES = (1e-7, 3e-7, 1e-6, 3e-6, 1e-5)  # of gradient descent
CLEAN = ", no outliers"


def wave(inputs: Tensor) -> Tensor:
    """What the network learns."""
    return torch.sin(3 * inputs) + 0.5 * inputs


def make_wave(streams: int, steps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs over [-2, 2], targets without and with outliers, (stream, time, 1, 1)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (streams, steps, 1, 1)
    inputs = 4 * torch.rand(shape, generator=generator) - 2
    clean = wave(inputs) + NOISE * torch.randn(shape, generator=generator)
    return inputs, clean, _spoilt(clean, 0.15, 50, generator)


def make_level(streams: int, steps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A random walk with steps of .1; what is seen of it with noise of 1, without and with outliers."""
    generator = torch.Generator().manual_seed(seed)
    level = torch.randn(streams, 1, 1, 1, generator=generator)
    level = level + (0.1 * torch.randn(streams, steps, 1, 1, generator=generator)).cumsum(1)
    clean = level + torch.randn(level.shape, generator=generator)
    return level, clean, _spoilt(clean, 0.1, 20, generator)


def _spoilt(clean: Tensor, share: float, size: float | int, generator: torch.Generator) -> Tensor:
    """A share of the values uniform over [-size, size]."""
    wild = size * (2 * torch.rand(clean.shape, generator=generator) - 1)
    return torch.where(torch.rand(clean.shape, generator=generator) < share, wild, clean)


def first_weights(streams: int, seed: int) -> Tensor:
    """Of the network: N(0, 1 / fan-in), biases zero."""
    generator = torch.Generator().manual_seed(seed)
    hidden, last = torch.randn(2, streams, 20, generator=generator)
    return torch.cat([hidden, torch.zeros(streams, 20), last / math.sqrt(20), torch.zeros(streams, 1)], 1)


def fit_wave(
    name: str, settings: str, learner: AbstractLearner[Any], inputs: Tensor, target: Tensor, means: Tensor
) -> tuple[Result, Tensor]:
    """Errors to the wave, over a grid at the end and of the prediction at every step; and the last weights."""
    belief, predicted = learn(learner, inputs, target, means)
    grid = torch.linspace(-2, 2, 201).unsqueeze(-1)
    fitted = torch.func.vmap(NETWORK, (0, None))(belief.mean, grid)
    rmse = (fitted - wave(grid)).square().mean((1, 2)).sqrt()
    return Result(name, settings, {"rmse": rmse}, (predicted.mean - wave(inputs)).flatten(1)), belief.mean


def compare_fits(
    data: tuple[Tensor, Tensor, Tensor],
    tuning: int,
    seed: int,
    kinds: Weights = WEIGHTS,
    rates: tuple[float, ...] = RATES,
) -> tuple[list[Result], dict[str, Tensor]]:
    """Weights on data with outliers, two of them without; and what the first stream that counts has learnt.

    Args:
        data: Inputs, targets without and with outliers.
        tuning: Streams that choose settings, the first.
        seed: Of the weights to begin with.
        kinds: Grids of weights, by name.
        rates: Of gradient descent.
    """
    inputs, clean, dirty = data
    means = first_weights(len(inputs), seed)
    likelihood, mean = learners.GaussianLikelihood(NOISE**2), torch.zeros(NETWORK.size)

    def fit(name: str, weight: learners.AbstractWeight, target: Tensor) -> tuple[Result, Tensor]:
        learner = learners.ekf(NETWORK, likelihood, 1.0, mean=mean, weight=weight)
        return fit_wave(name, repr(weight), learner, inputs, target, means)

    results, last = [], {}
    for name, grid in kinds.items():
        pairs = [fit(name, weight, dirty) for weight in tqdm(grid, desc=name, disable=None)]
        place, kept = choose([result for result, _ in pairs], "rmse", tuning)
        results += with_default(place, kept)
        last[name] = pairs[place][1][tuning]
        if name in ("ekf", "wolf, power 2"):
            results.append(fit(name + CLEAN, grid[place], clean)[0].without(tuning))
    found = []
    for rate in tqdm(rates, desc="gradient descent", disable=None):
        learner = learners.ogd(NETWORK, likelihood, mean=mean, rate=rate)
        found.append(fit_wave("ogd", f"rate={rate:g}", learner, inputs, dirty, means)[0])
    place, kept = choose(found, "rmse", tuning)
    return [*results, kept[place]], last


def make_averages() -> dict[str, learners.GaussianLearner]:
    """With the noise and steps of the level."""
    robust = learners.ewma(0.01)
    gated = dataclasses.replace(robust, weight=learners.Gate())
    return {"ewma": learners.ewma(0.01, None), "robust ewma": robust, "gated ewma": gated}


def compare_averages(data: tuple[Tensor, Tensor, Tensor]) -> list[Result]:
    """Root mean squared error of the predicted level, after the first 50 steps; and the level predicted."""
    level, clean, dirty = data
    results = []
    for name, learner in make_averages().items():
        for which, target in (("", dirty), (CLEAN, clean)):
            _, predicted = learn(learner, torch.ones_like(target), target)
            rmse = (predicted.mean - level)[:, 50:].square().mean((1, 2, 3)).sqrt()
            results.append(Result(name + which, repr(learner.weight), {"rmse": rmse}, predicted.mean.flatten(1)))
    return results


def outliers_toy(streams: int) -> tuple[list[Row], Figure]:
    """Rows, and the picture."""
    data, levels = make_wave(TUNING + streams, 1500, 0), make_level(streams, 1000, 2)
    fits, last = compare_fits(data, TUNING, 1)
    averages = compare_averages(levels)
    rows = rows_of("outliers-network", fits, "ekf") + rows_of("outliers-level", averages, "ewma")
    points = torch.stack([data[0][TUNING].flatten(), data[2][TUNING].flatten()])
    errors = {result.learner: result.steps for result in fits}
    line = torch.stack([levels[0][0].flatten(), levels[2][0].flatten()])
    return rows, draw_outliers(points, last, errors, line, {result.learner: result.steps[0] for result in averages})


HUES = {"ekf": COLOURS[1], "wolf, power 1": COLOURS[5], "wolf, power 2": COLOURS[0], "gate": COLOURS[3]}
HUES |= {"gate, predictive": COLOURS[2], "ogd": COLOURS[6], "ekf, no outliers": OBSERVED}
LABELS = {"ekf": "EKF", "wolf, power 1": "WoLF, power 1", "wolf, power 2": "WoLF, power 2", "ogd": "gradient descent"}
LABELS |= {"gate": "gate by noise", "gate, predictive": "gate by prediction"}
LABELS |= {"ekf, no outliers": "EKF without outliers"}
_DASHES = (0, (4, 3))


def draw_outliers(
    points: Tensor, weights: dict[str, Tensor], errors: dict[str, Tensor], line: Tensor, averages: dict[str, Tensor]
) -> Figure:
    """Curves learnt from one stream, errors over all streams, and a level.

    Args:
        points: Inputs and targets of one stream, (2, time).
        weights: What was learnt from it, by learner.
        errors: To the wave at every step, (stream, time) by learner.
        line: A level and what is seen of it, (2, time).
        averages: The level as predicted, (time,) by learner.
    """
    figure = Figure(figsize=(11.0, 6.6), layout="constrained")
    grid = figure.add_gridspec(2, 2)
    left, right, lower = (figure.add_subplot(grid[place]) for place in ((0, 0), (0, 1), (1, slice(None))))
    _draw_fits(left, points, weights)
    edges = torch.logspace(math.log10(10), math.log10(errors["ekf"].shape[1]), 16).round().long()
    for name, colour in HUES.items():
        values = [errors[name][:, a:b].square().mean(1).sqrt() for a, b in itertools.pairwise(edges.tolist())]
        middle = (edges[1:] * edges[:-1]).sqrt()
        look = {"linestyle": _DASHES} if name == "ekf, no outliers" else {}
        band(right, middle, torch.stack(values, 1), log=True, color=colour, label=LABELS[name], **look)
    right.set(xscale="log", yscale="log")
    right.set_xlabel("observations", fontsize=9)
    right.set_ylabel("RMSE of predictions to the curve", fontsize=9)
    right.set_ylim(0.02, 200)
    right.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    style(right, "How fast it is learnt")
    _draw_level(lower, line, averages)
    return figure


def _draw_points(axis: Axes, x: Tensor, y: Tensor, edge: float) -> None:
    """What is seen; triangles for what is beyond the edges."""
    inside = y.abs() < edge
    axis.plot(x[inside], y[inside], ".", color="#BFBFBF", markersize=3, label="seen", zorder=1)
    for sign, marker in ((1, "^"), (-1, "v")):
        beyond = x[~inside & (sign * y > 0)]
        label = "seen beyond the edge" if sign > 0 else None
        at_edge = torch.full_like(beyond, sign * edge)
        axis.plot(beyond, at_edge, marker, color="#9F9F9F", markersize=3, label=label, zorder=1)
    axis.set_ylim(-1.05 * edge, 1.05 * edge)


def _draw_fits(axis: Axes, points: Tensor, weights: dict[str, Tensor]) -> None:
    """The curve, and what was learnt of it."""
    grid = torch.linspace(-2, 2, 201).unsqueeze(-1)
    _draw_points(axis, *points, edge=5.0)
    axis.plot(grid, wave(grid), color=OBSERVED, linewidth=1.2, linestyle=_DASHES, label="curve", zorder=4)
    for name in ("ekf", "wolf, power 2"):
        axis.plot(grid, NETWORK(weights[name], grid), color=HUES[name], linewidth=1.8, label=LABELS[name], zorder=3)
    axis.set_xlim(-2, 2)
    axis.legend(fontsize=8, ncols=3, loc="lower right", framealpha=0.9, edgecolor="none", bbox_to_anchor=(1, 0.03))
    style(axis, "A network after 1500 targets, 15 % of them outliers")


def _draw_level(axis: Axes, line: Tensor, averages: dict[str, Tensor], shown: int = 300) -> None:
    """The first steps."""
    steps = torch.arange(shown)
    _draw_points(axis, steps, line[1, :shown], edge=8.0)
    axis.plot(steps, line[0, :shown], color=OBSERVED, linewidth=1.2, linestyle=_DASHES, label="level", zorder=4)
    for name, colour, label in (("ewma", COLOURS[1], "moving average"), ("robust ewma", COLOURS[0], "robust")):
        axis.plot(steps, averages[name][:shown], color=colour, linewidth=1.5, label=label, zorder=3)
    axis.set_xlim(0, shown)
    axis.set_xlabel("step", fontsize=9)
    axis.legend(frameon=False, fontsize=8, ncols=5, loc="lower right", bbox_to_anchor=(1, 0.97), markerscale=1.5)
    style(axis, "A level, 10 % of the values outliers")
