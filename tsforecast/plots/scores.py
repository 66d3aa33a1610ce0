"""Figures of scores: calibration, by horizon, differences."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tsforecast.evaluation import Difference
from tsforecast.plots.style import DASHES, MARKERS, OBSERVED, line_styles, style_axis

_PIT_BINS = 10


def plot_calibration(
    calibration: Mapping[str, pd.DataFrame],
    *,
    models: Mapping[str, str] | None = None,
    columns: int = 2,
    title: str | None = None,
) -> Figure:
    """Draw the calibration of forecasts: the PIT histogram and the coverage of central intervals.

    Calibrated forecasts have a flat histogram and coverage on the diagonal. A histogram like a U, or coverage below the
    diagonal, shows intervals that are too narrow; a hump, or coverage above it, intervals that are too wide.

    Args:
        calibration: `Scores.calibration` by model name; the first model is emphasised.
        models: By name the model which gives the colour, where the name is another.
        columns: 2 for panels beside each other, 1 for one above the other.
        title: Title above both panels.
    """
    figure = Figure(figsize=(9.0, 4.0) if columns == 2 else (4.6, 7.6), layout="constrained")
    left, right = figure.subplots(2 // columns, columns)
    styles = line_styles(calibration, models)
    edges = np.linspace(0, 1, _PIT_BINS + 1)
    for index, (name, frame) in enumerate(calibration.items()):
        style = styles[name]
        density = np.diff(np.interp(edges, frame.index, frame["pit"])) * _PIT_BINS
        left.stairs(density, edges, linewidth=1.8 if index == 0 else 1.2, zorder=3 if index == 0 else 2, **style)
        if index == 0:
            left.stairs(density, edges, fill=True, color=style["color"], alpha=0.25)
        cover = frame["coverage"].dropna()
        right.plot(
            cover.index,
            cover,
            linewidth=2.0 if index == 0 else 1.2,
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            markevery=[place for place, p in enumerate(cover.index) if round(100 * p) in (20, 50, 80, 96)],
            label=name,
            zorder=3 if index == 0 else 2,
            **style,
        )
    left.axhline(1, color=OBSERVED, linewidth=0.8, linestyle=DASHES)
    right.plot([0, 1], [0, 1], color=OBSERVED, linewidth=0.8, linestyle=DASHES, label="calibrated")
    left.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    left.set_ylim(bottom=0)
    right.set(xlabel="nominal", ylabel="observed", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis, heading in ((left, "PIT histogram"), (right, "Coverage of central intervals")):
        style_axis(axis)
        axis.set_title(heading, loc="left", fontsize=9)
    for axis in (right.xaxis, right.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(loc="outside lower center", ncols=2 * columns, frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_scores_by_horizon(
    per_horizon: pd.DataFrame,
    *,
    metric: str = "crps",
    models: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draws a score against the steps ahead, one panel per protocol and one line per model.

    Args:
        per_horizon: `Evaluation.per_horizon()`: columns `protocol`, `model`, `step` and the metrics.
        metric: Column to draw.
        models: By the column `model` the model which gives the colour, where the name is another.
        title: Title above all panels.

    Raises:
        ValueError: If there is no such column.
    """
    if metric not in per_horizon:
        raise ValueError(f"expected one of the columns {list(per_horizon.columns)}, got {metric!r}")
    protocols = list(dict.fromkeys(per_horizon["protocol"]))
    names = list(dict.fromkeys(per_horizon["model"]))
    styles = line_styles(names, models)
    figure = Figure(figsize=(1.0 + 4.2 * len(protocols), 3.8), layout="constrained")
    axes = figure.subplots(1, len(protocols), squeeze=False)[0]
    for axis, protocol in zip(axes, protocols, strict=True):
        part = per_horizon.loc[per_horizon["protocol"] == protocol]
        for index, name in enumerate(names):
            line = part.loc[part["model"] == name]
            axis.plot(
                line["step"].to_numpy(),
                line[metric].to_numpy(np.float64),
                linewidth=2.0 if index == 0 else 1.2,
                zorder=3 if index == 0 else 2,
                label=name if axis is axes[0] else None,
                **styles[name],
            )
        style_axis(axis)
        axis.set_title(str(protocol).replace("_", "-"), loc="left", fontsize=9)
        axis.set(xlabel="steps ahead", ylabel=metric.replace("_", " ").upper())
        axis.set_xlim(part["step"].min(), part["step"].max())
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=min(len(names), 2 * len(protocols)), frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_differences(
    differences: Mapping[str, Difference], *, models: Mapping[str, str] | None = None, title: str | None = None
) -> Figure:
    """Draw differences from a reference at zero, with their intervals.

    Args:
        differences: By name, from top to bottom; those which are sure of their sign are filled.
        models: By name the model which gives the colour, where the name is another.
        title: Title above the panel.
    """
    figure = Figure(figsize=(5.2, 1.0 + 0.32 * len(differences)), layout="constrained")
    axis = figure.subplots()
    styles = line_styles(differences, models)
    for place, (name, difference) in enumerate(differences.items()):
        sure = difference.low > 0 or difference.high < 0
        colour = styles[name]["color"]
        axis.plot([difference.low, difference.high], [place, place], color=colour, linewidth=1.5)
        axis.plot(
            difference.estimate,
            place,
            marker="o",
            markersize=6,
            color=colour,
            markerfacecolor=colour if sure else "white",
        )
    axis.axvline(0, color=OBSERVED, linewidth=0.8, linestyle=DASHES)
    axis.set_yticks(range(len(differences)), list(differences))
    axis.set_ylim(len(differences) - 0.5, -0.5)
    axis.set_xlabel("difference of CRPS (left of zero: better)")
    style_axis(axis)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure
