"""Charts of video: switches and collisions, scores by horizon."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from experiments.video.paint import check_seen
from tsforecast.plots import COLOURS, OBSERVED

_DASHES = (0, (4, 3))
_METRICS = {
    "wasserstein": "Wasserstein distance (pixels)",
    "accuracy": "pixels that agree",
    "iou": "intersection over union",
    "expected_wasserstein": "Wasserstein distance of expected frames (pixels)",
    "expected_accuracy": "pixels of expected frames that agree",
    "expected_iou": "intersection over union of expected frames",
}


def switch_plot(
    weights: ArrayLike, collision: ArrayLike, *, seen: int | None = None, title: str | None = None
) -> Figure:
    """Draws the inferred weights of the base matrices as stacked areas, and the steps with a collision as lines.

    A model that has found the physics changes its weights at the lines.

    Args:
        weights: (time, basis), nonnegative and summing to 1. The seven that change most are in colour, the others
            together in grey.
        collision: Whether the body hit something in the step, (time,).
        seen: Steps before a forecast, which is marked; by default there is none.
        title: Title above the panel.

    Raises:
        ValueError: If shapes do not fit or weights are no weights.
    """
    layers, hits = np.asarray(weights, np.float64), np.asarray(collision, np.bool_)
    if layers.ndim != 2 or layers.size == 0 or hits.shape != layers.shape[:1]:
        raise ValueError(f"expected weights (time, basis) and collisions (time,), got {layers.shape} and {hits.shape}")
    if not (layers >= 0).all() or not np.allclose(layers.sum(1), 1, atol=1e-4):
        raise ValueError("expected nonnegative weights that sum to 1 over the basis")
    steps = len(layers)
    check_seen(seen, steps)
    order = np.argsort(-layers.var(0), kind="stable")
    chosen, rest = np.sort(order[: len(COLOURS)]), order[len(COLOURS) :]
    labels, colours = [f"base {index + 1}" for index in chosen], list(COLOURS[: len(chosen)])
    areas = layers[:, chosen].T
    if len(rest):
        areas = np.vstack([areas, layers[:, rest].sum(1)])
        labels, colours = [*labels, f"other {len(rest)}"], [*colours, "0.85"]
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    axis = figure.subplots()
    # A step is as wide as a bar: weights belong to steps, and between two of them there is nothing to interpolate.
    edges = np.arange(steps + 1) + 0.5
    axis.stackplot(
        edges, np.hstack([areas, areas[:, -1:]]), labels=labels, colors=colours, step="post", edgecolor="white", lw=0.3
    )
    for number, step in enumerate((np.flatnonzero(hits) + 1).tolist()):
        label = "collision" if number == 0 else None
        axis.axvline(step, color=OBSERVED, linewidth=1.2, label=label)
        axis.plot(step, 1.03, marker="v", markersize=5, color=OBSERVED, clip_on=False)
    if seen is not None:
        axis.axvline(seen + 0.5, color=OBSERVED, linewidth=1.2, linestyle=_DASHES, label="forecast start")
    axis.set(xlabel="step", ylabel="weight", xlim=(edges[0], edges[-1]), ylim=(0, 1))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    if title:
        axis.set_title(title, loc="left", fontsize=11, pad=12)
    return figure


def horizon_plot(
    table: pd.DataFrame,
    *,
    metric: str = "wasserstein",
    floors: Collection[str] = (),
    panel: str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws a score of video forecasts by horizon, a line with a band of its standard error for every model.

    Args:
        table: `FrameScores.by_horizon()` of several models one under another: columns `model`, `horizon`, the metric
            and its error, such as `wasserstein_se` (NaN where unknown).
        metric: `wasserstein`, `accuracy` or `iou`, or the same of expected frames, such as `expected_iou`.
        floors: Those of the models that only bound the others, drawn broken and without colour.
        panel: Column to draw a panel for each value of, such as a data set's name.
        title: Title above all panels.

    Raises:
        ValueError: If a column or a floor is not in the table.
    """
    needed = ["model", "horizon", metric, f"{metric}_se", *([panel] if panel else [])]
    missing = [name for name in needed if name not in table]
    if missing or table.empty:
        raise ValueError(f"expected rows with columns {needed}, got {len(table)} rows of {list(table.columns)}")
    names = list(dict.fromkeys(table["model"]))
    unknown = [name for name in floors if name not in names]
    if unknown:
        raise ValueError(f"expected floors among the models {names}, got {unknown}")
    parts = [(None, table)] if panel is None else list(table.groupby(panel, sort=False))
    columns = min(len(parts), 2)
    rows = -(-len(parts) // columns)
    figure = Figure(figsize=(1.4 + 4.3 * columns, 0.9 + 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    styles = _line_styles(names, floors)
    for axis, (heading, part) in zip(axes, parts, strict=False):
        for name, line in part.groupby("model", sort=False):
            _draw_score(axis, line.sort_values("horizon"), metric, styles[name])
        _style_horizons(axis, part, metric)
        if heading is not None:
            axis.set_title(str(heading), loc="left", fontsize=9)
    for axis in axes[len(parts) :]:
        axis.remove()
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        [entries[name] for name in names], names, loc="outside lower center", ncols=min(len(names), 5), frameon=False,
        fontsize=8,
    )  # fmt: skip
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _style_horizons(axis: Axes, table: pd.DataFrame, metric: str) -> None:
    """Labels an axis of a score by horizon."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    horizons = np.asarray(table["horizon"])
    axis.set_xlim(horizons.min(), horizons.max())
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("steps ahead", fontsize=9)
    axis.set_ylabel(_METRICS.get(metric, metric), fontsize=9)
    if metric.endswith("wasserstein"):
        axis.set_ylim(bottom=0)


def _line_styles(names: Iterable[str], floors: Collection[str]) -> dict[Any, dict[str, Any]]:
    styles: dict[Any, dict[str, Any]] = {}
    colours, dashes = iter(COLOURS * 3), iter([_DASHES, ":", "-."] * 3)
    for name in names:
        if name in floors:
            styles[name] = {"color": OBSERVED, "linestyle": next(dashes), "linewidth": 1.2}
        else:
            styles[name] = {"color": next(colours), "linestyle": "-", "linewidth": 1.8}
    return styles


def _draw_score(axis: Axes, line: pd.DataFrame, metric: str, style: dict[str, Any]) -> None:
    horizon, mean = line["horizon"].to_numpy(), line[metric].to_numpy(np.float64)
    error = line[f"{metric}_se"].to_numpy(np.float64)
    axis.fill_between(horizon, mean - error, mean + error, color=style["color"], alpha=0.2, linewidth=0)
    axis.plot(horizon, mean, label=str(line["model"].iloc[0]), **style)
