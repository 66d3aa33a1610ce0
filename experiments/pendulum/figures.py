"""The pictures of `run.py`."""

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from experiments.pendulum.forecasts import FILTERED, MODELS, Model, sample_futures, track
from tsforecast.plots import COLOURS, OBSERVED

_DASHES = (0, (4, 3))


def draw_forecasts(models: dict[str, Model], truth: Tensor, observed: Tensor, seed: int = 0, paths: int = 5) -> Figure:
    """One sequence: truth, what was observed, filter and forecast distribution, and some sampled futures.

    Args:
        models: Trained, by name; a column each.
        truth: True positions, (time, 2).
        observed: Noisy ones.
        seed: Of random numbers.
        paths: Sampled futures to draw.
    """
    figure = Figure(figsize=(1.0 + 5.2 * len(models), 5.4), layout="constrained")
    axes = figure.subplots(2, len(models), sharex=True, sharey="row", squeeze=False)
    seconds = 0.1 * np.arange(len(truth))
    past, ahead = observed[None, :FILTERED], len(truth) - FILTERED
    for column, (name, model) in enumerate(models.items()):
        generator = torch.Generator().manual_seed(seed)
        mixture = track(model, past, ahead, generator)
        mean, deviation = (x[:, 0].numpy() for x in (mixture.mean, mixture.variance.sqrt()))
        samples = sample_futures(model, past, ahead, paths, generator)[0]
        for row, axis in enumerate(axes[:, column]):
            low, high = mean[:, row] - 2 * deviation[:, row], mean[:, row] + 2 * deviation[:, row]
            axis.fill_between(seconds, low, high, color="#D8E8F3", linewidth=0, label="mean ± 2 sd")
            lines = axis.plot(seconds[FILTERED:], samples[..., row].T, color=COLOURS[1], linewidth=0.5, alpha=0.7)
            lines[0].set_label("sampled futures")
            axis.plot(seconds, mean[:, row], color=COLOURS[0], linewidth=1.5, label="filter and forecast mean")
            axis.plot(seconds, truth[:, row], color=OBSERVED, linewidth=0.9, linestyle=_DASHES, label="truth")
            axis.plot(seconds[:FILTERED], past[0, :, row], ".", color=OBSERVED, markersize=3, label="observed")
            axis.axvline(0.1 * (FILTERED - 0.5), color="#7F7F7F", linewidth=0.8)
            axis.set_ylim(-1.6, 1.6 if row == 0 else 1.4)
            _style(axis)
        axes[0, column].set_title(name.upper(), loc="left", fontsize=10)
        axes[1, column].set_xlabel("seconds")
        axes[1, column].set_xlim(seconds[0], seconds[-1])
    axes[0, 0].set_ylabel("x in m")
    axes[1, 0].set_ylabel("y in m")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    figure.suptitle("A damped pendulum: 50 steps filtered, 100 forecast", fontsize=11)
    return figure


def draw_scores(steps: pd.DataFrame, spread: NDArray[np.float64]) -> Figure:
    """RMSE, CRPS and log-likelihood by forecast step: every seed thin, their mean thick.

    Args:
        steps: Columns `model`, `seed`, `step` and the scores.
        spread: RMSE by step of the mean of all sequences.
    """
    figure = Figure(figsize=(12.0, 3.8), layout="constrained")
    panels = {"rmse": "RMSE of the mean in m", "crps": "CRPS in m", "log_likelihood": "log-density"}
    axes = figure.subplots(1, len(panels))
    for axis, (metric, label) in zip(axes, panels.items(), strict=True):
        for index, name in enumerate(MODELS):
            part = steps.loc[steps["model"] == name].pivot(index="step", columns="seed", values=metric)
            if part.empty:
                continue
            axis.plot(part.index, part, color=COLOURS[index], linewidth=0.7, alpha=0.6)
            axis.plot(part.index, part.mean(axis=1), color=COLOURS[index], linewidth=2.0, label=name.upper())
        axis.set(xlabel="steps ahead", ylabel=label, xlim=(1, len(spread)))
        _style(axis)
    number = np.arange(1, len(spread) + 1)
    axes[0].plot(number, spread, color="#7F7F7F", linestyle=_DASHES, linewidth=1.0, label="mean of all sequences")
    for axis in axes[:2]:
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _style(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
