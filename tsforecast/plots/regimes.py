"""Figures of the regimes that a switching model infers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike, NDArray

from tsforecast.plots.style import COLOURS, date_axis, draw_marks, draw_observed, style_axis, timestamps

_REST = "#D9D9D9"


def plot_regimes(
    observed: pd.Series,
    weights: ArrayLike,
    *,
    scales: ArrayLike | None = None,
    names: Sequence[str] = (),
    ordered: bool = False,
    marks: Mapping[str, pd.Timestamp] | None = None,
    spans: Sequence[tuple[pd.Timestamp, pd.Timestamp]] = (),
    label: str = "",
    title: str | None = None,
) -> Figure:
    """Draws a series, and below it the weights of the regimes that a switching model infers from all of it.

    Args:
        observed: The series, indexed by periods or timestamps; missing values are gaps.
        weights: Of every regime or base matrix, (time, regime), summing to one. The seven that vary most are shown in
            colour and named in a legend with their scales, the others together in grey.
        scales: Of the noise in every regime, as a multiple of what it usually is; None where it does not differ.
        names: Of the regimes, for the legend.
        ordered: Whether regimes differ in the scale of their noise alone: all are shown, from calm to wild, and a
            colour bar has the scales.
        marks: Dates to mark in both panels, by name (see `draw_marks`).
        spans: Intervals of the times of changes, which are grey in the upper panel; dates that are equal are a line.
        label: What is observed, see `measured`.
        title: Title above both panels.

    Raises:
        ValueError: If there are not as many weights as steps, or not as many scales as regimes.
    """
    times = timestamps(observed.index)
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or len(weights) != len(times):
        raise ValueError(f"expected weights of {len(times)} steps, got an array of shape {weights.shape}")
    factors = None if scales is None else np.asarray(scales, np.float64)
    if (ordered and factors is None) or (factors is not None and factors.shape != weights.shape[1:]):
        raise ValueError(f"expected the scales of {weights.shape[1]} regimes, got {scales}")
    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    draw_observed(above, times, observed, label)
    above.set_title("observed", loc="left", fontsize=9)
    if ordered and factors is not None:
        _draw_ordered(figure, below, times, weights, factors)
    else:
        _draw_largest(figure, below, times, weights, factors, names)
    below.set_ylim(0, 1)
    below.set_title("weights of the regimes given the whole series", loc="left", fontsize=9)
    for axis in (above, below):
        style_axis(axis)
    date_axis(below)
    below.set_xlim(times[0], times[-1])
    for low, high in spans:
        above.axvspan(low.to_datetime64(), high.to_datetime64(), color=_REST, linewidth=1.0, zorder=0)  # pyright: ignore[reportArgumentType]
    for axis, named in ((above, True), (below, False)):
        draw_marks(axis, marks or {}, times, named=named)
    figure.align_ylabels()
    figure.suptitle(title or f"{observed.name or 'series'}: inferred regimes", fontsize=11)
    return figure


def _draw_ordered(
    figure: Figure, axis: Axes, times: NDArray[Any], weights: NDArray[np.float64], scales: NDArray[np.float64]
) -> None:
    """All regimes from calm to wild, and a colour bar with the scales of their noise."""
    order = np.argsort(scales, kind="stable")
    colours = colormaps["viridis"](np.linspace(0, 1, len(order)))
    axis.stackplot(times, weights[:, order].T, colors=list(colours), linewidth=0)
    norm = BoundaryNorm(np.arange(len(order) + 1) - 0.5, len(order))
    bar = figure.colorbar(ScalarMappable(norm, ListedColormap(colours)), ax=axis, pad=0.01, aspect=12)
    shown = np.unique(np.linspace(0, len(order) - 1, min(len(order), 7)).round().astype(int))
    bar.set_ticks(shown.tolist(), labels=[_times(scales, order[place]) for place in shown])
    bar.ax.minorticks_off()
    bar.ax.tick_params(labelsize=8, length=2)
    bar.set_label("scale of the noise", fontsize=8)


def _draw_largest(
    figure: Figure,
    axis: Axes,
    times: NDArray[Any],
    weights: NDArray[np.float64],
    scales: NDArray[np.float64] | None,
    named: Sequence[str],
) -> None:
    """Draw the most variable regimes in colour, the others in grey, and a legend: most change tells most."""
    order = np.argsort(-weights.var(0), kind="stable")
    shown, rest = order[: len(COLOURS)], order[len(COLOURS) :]
    layers, colours = weights[:, shown].T, list(COLOURS[: len(shown)])
    names = [f"{place + 1} {named[place]}" if named else f"{place + 1}" for place in shown]
    if scales is not None:
        names = [f"{name}: noise {_times(scales, place)}" for name, place in zip(names, shown, strict=True)]
    if len(rest):
        layers = np.vstack([layers, weights[:, rest].sum(1)])
        colours, names = [*colours, _REST], [*names, f"{len(rest)} others"]
    axis.stackplot(times, layers, colors=colours, linewidth=0)
    patches = [Patch(color=colour, label=name) for colour, name in zip(colours, names, strict=True)]
    figure.legend(
        handles=patches, loc="outside lower center", ncols=4, frameon=False, fontsize=8, title="regime",
        title_fontsize=8,
    )  # fmt: skip


def _times(scales: NDArray[np.float64], place: Any) -> str:
    return f"× {scales[place]:.2g}"
