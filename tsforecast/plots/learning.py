"""Figures of learning: over epochs, trials, windows and streams."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tsforecast.plots.style import (
    COLOURS,
    DASHES,
    LEARNING,
    MODEL,
    OBSERVED,
    colour_of,
    date_axis,
    draw_marks,
    style_axis,
)

_MEAN_OVER = 7  # windows


def plot_learning_curve(curve: pd.DataFrame | str | Path, *, title: str | None = None) -> Figure:
    """Draws training and validation loss against epochs, and marks the epoch that is kept where losses are validated.

    Args:
        curve: Columns `epoch`, `train_loss` and, where there is one, `val_loss`; or a CSV file of them. Rows which lack
            a loss are left out of its line, as a logger writes the two in different rows.
        title: Title.

    Raises:
        ValueError: If a column is missing.
    """
    frame = curve if isinstance(curve, pd.DataFrame) else pd.read_csv(curve)
    missing = {"epoch", "train_loss"} - set(frame.columns)
    if missing:
        raise ValueError(f"expected columns epoch and train_loss, but there are only {list(frame.columns)}")
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axis = figure.subplots()
    best = None
    for column, label, colour in (("train_loss", "training", MODEL), ("val_loss", "validation", COLOURS[1])):
        line = frame.reindex(columns=["epoch", column]).dropna()
        if line.empty:
            continue
        epochs, losses = line["epoch"].to_numpy(), line[column].to_numpy(np.float64)
        axis.plot(epochs, losses, color=colour, linewidth=1.5, marker="o", markersize=3, label=label)
        best = (epochs[losses.argmin()], losses.min()) if column == "val_loss" else None
    if best:
        axis.axvline(best[0], color=OBSERVED, linewidth=0.8, linestyle=DASHES)
        late = best[0] > frame["epoch"].mean()
        axis.annotate(
            f"best: {best[1]:#.4g}",
            (best[0], 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if late else 4, -4),
            textcoords="offset points",
            ha="right" if late else "left",
            va="top",
            fontsize=8,
        )
    if axis.lines:
        axis.legend(frameon=False, fontsize=8)
    style_axis(axis)
    axis.set(xlabel="epoch", ylabel="loss")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure


def plot_study(trials: pd.DataFrame, *, title: str | None = None) -> Figure:
    """Draws the CRPS of every trial of a search with the best so far, and against every hyperparameter that was tried.

    Args:
        trials: Columns `trial`, `crps` (NaN where the training failed), `seconds` and the hyperparameters.
        title: Title above all panels.
    """
    names = [name for name in trials.columns if name not in ("trial", "crps", "seconds")]
    rows = -(-(len(names) + 1) // 3)
    figure = Figure(figsize=(10.0, 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).flatten()
    done = trials.dropna(subset=["crps"])
    axes[0].plot(done["trial"], done["crps"], "o", color=MODEL, markersize=4, label="trial")
    axes[0].step(done["trial"], done["crps"].cummin(), where="post", color=COLOURS[1], label="best so far")
    axes[0].set(xlabel="trial", ylabel="CRPS")
    axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].legend(frameon=False, fontsize=8)
    for axis, name in zip(axes[1:], names, strict=False):
        values = done[name]
        if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            axis.plot(values, done["crps"], "o", color=MODEL, markersize=4)
            if values.min() > 0 and values.max() > 20 * values.min():
                axis.set_xscale("log")
        else:
            axis.plot(values.astype(str), done["crps"], "o", color=MODEL, markersize=4)
        axis.set(xlabel=name, ylabel="CRPS")
    for axis in axes[: len(names) + 1]:
        style_axis(axis)
    for axis in axes[len(names) + 1 :]:
        axis.set_axis_off()
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_adaptation(
    windows: pd.DataFrame,
    models: tuple[str, str],
    *,
    marks: Mapping[str, pd.Timestamp] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the CRPS of a model and of the same model learning on, window by window, and the distance it moved.

    Thin lines and bars are single windows, thick lines means over the last seven of them.

    Args:
        windows: Indexed by `start`; `moved` and a column of CRPS for each model.
        models: Names of the frozen and of the learning model.
        marks: Dates to mark, by name.
        title: Title above all panels.
    """
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1.5))
    times = windows.index.to_numpy()
    colours = (colour_of(models[0]), LEARNING)
    for name, colour in zip(models, colours, strict=True):
        upper.plot(times, windows[name], color=colour, linewidth=0.7, alpha=0.5)
        mean = windows[name].rolling(_MEAN_OVER, min_periods=1).mean()
        upper.plot(times, mean, color=colour, linewidth=2.0)
    change = windows[models[1]] - windows[models[0]]
    middle.bar(times, change, width=0.8 * np.diff(times).min() if len(times) > 1 else 0.8, color=LEARNING, alpha=0.4)
    middle.plot(times, change.rolling(_MEAN_OVER, min_periods=1).mean(), color=LEARNING, linewidth=2.0)
    middle.axhline(0, color=OBSERVED, linewidth=0.8, linestyle=DASHES)
    lower.plot(times, windows["moved"], color=LEARNING, linewidth=1.5)
    upper.set(ylabel="CRPS")
    middle.set(ylabel="difference of CRPS\n(below 0: better)")
    lower.set(ylabel="parameters moved\n(prior sd)")
    upper.set_ylim(bottom=0)
    lower.set_ylim(bottom=0)
    for axis in (upper, middle, lower):
        style_axis(axis)
        draw_marks(axis, marks or {}, times, named=axis is upper)
    date_axis(lower)
    handles = [
        Line2D([], [], color=colour, linewidth=4, label=name) for name, colour in zip(models, colours, strict=True)
    ]
    handles += [
        Line2D([], [], color=OBSERVED, linewidth=0.7, alpha=0.7, label="thin, and bars: a single window"),
        Line2D([], [], color=OBSERVED, linewidth=2.0, label=f"thick: mean over the last {_MEAN_OVER} windows"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.align_ylabels()
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_stream(items: pd.DataFrame, scores: Mapping[str, Any], *, title: str | None = None) -> Figure:
    """Draw a learner on a stream: log-loss, error and weights against observations, and calibration.

    Lines are means over all observations so far, and over the last tenth of them at each point.

    Args:
        items: Table of `tsforecast stream`: `item`, `log_loss`, `error`, and where known `weights_moved`, `weights_sd`.
        scores: `accuracy` or `rmse`, `log_loss`, and `calibration` (rows of `expected` and `observed`).
        title: Title.
    """
    scored = items.dropna(subset=["log_loss"])
    classes = "accuracy" in scores
    error = scored["error"] if classes else scored["error"].abs()
    window = max(len(items) // 10, 20)
    figure = Figure(figsize=(8.0, 6.8), layout="constrained")
    grid = figure.add_gridspec(3, 3)
    top = figure.add_subplot(grid[0, :])
    middle = figure.add_subplot(grid[1, :], sharex=top)
    bottom, corner = figure.add_subplot(grid[2, :2]), figure.add_subplot(grid[2, 2])
    panels = ((top, scored["log_loss"], "log-loss (nats)"), (middle, error, "wrong" if classes else "absolute error"))
    for axis, values, label in panels:
        _draw_means(axis, scored["item"].to_numpy(), pd.Series(values), window, from_zero=axis is middle)
        axis.set_ylabel(label)
    if classes:
        middle.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top.legend(frameon=False, fontsize=8, ncols=2)
    _draw_weights(bottom, items.dropna(subset=["weights_moved"]))
    bottom.set_xlabel("observation")
    _draw_calibration(corner, scores["calibration"], classes)
    for axis in (top, middle, bottom, corner):
        style_axis(axis)
    top.tick_params(labelbottom=False)
    bottom.set_xlim(top.get_xlim())
    whole = "accuracy {accuracy:.1%}" if classes else "RMSE {rmse:.4g}"
    said = f"{whole}, log-loss {{log_loss:.4g}}".format(**scores)
    figure.suptitle(f"{title}: {said}" if title else said, fontsize=11, x=0.02, ha="left")
    return figure


def plot_optimisation(table: pd.DataFrame, initial: int, *, title: str | None = None) -> Figure:
    """Draw the simple regret of an optimisation, and the regret of each evaluation, against evaluations.

    Args:
        table: Columns `evaluation`, `value` and `regret`.
        initial: Evaluations that were no choice of the optimiser.
        title: Title.
    """
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axis = figure.subplots()
    steps, regret = table["evaluation"].to_numpy(), table["regret"].to_numpy(np.float64)
    # The least value of the function is what the best value so far exceeds by the regret.
    own = table["value"].to_numpy(np.float64) - (table["value"].cummin() - table["regret"]).to_numpy(np.float64)
    axis.plot(steps, own.clip(1e-12), "o", color=COLOURS[5], markersize=3, label="of each evaluation")
    axis.step(steps, regret.clip(1e-12), where="post", color=MODEL, linewidth=1.8, label="of the best so far")
    axis.axvline(initial + 0.5, color=OBSERVED, linewidth=0.8, linestyle=DASHES, label="end of the initial points")
    axis.set(yscale="log", xlabel="evaluation", ylabel="regret")
    axis.legend(frameon=False, fontsize=8)
    style_axis(axis)
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure


def _draw_means(axis: Axes, places: np.ndarray, values: pd.Series, window: int, from_zero: bool) -> None:
    """Draws the means of values over all so far, and over the last `window` of them."""
    least = min(window, max(len(values) // 4, 1))
    recent = np.asarray(values.rolling(window, min_periods=least).mean(), np.float64)
    so_far = np.asarray(values.expanding().mean(), np.float64)
    axis.plot(places, recent, color=COLOURS[5], linewidth=1.2, label=f"last {window}")
    axis.plot(places, so_far, color=MODEL, linewidth=1.8, label="all so far")
    # The first predictions are of a learner that knows nothing, and would hide the others.
    late = np.concatenate([recent[len(recent) // 20 :], so_far[len(recent) // 20 :]])
    late = late[np.isfinite(late)]
    if len(late):
        low, high = min(late.min(), 0.0) if from_zero else late.min(), late.max()
        axis.set_ylim(low - 0.05 * (high - low + 1e-9), high + 0.1 * (high - low + 1e-9))


def _draw_weights(axis: Axes, weights: pd.DataFrame) -> None:
    """Draw the distance that the weights have moved, and the standard deviation of the belief."""
    for column, label, colour in (
        ("weights_moved", "moved from where they began", MODEL),
        ("weights_sd", "standard deviation", COLOURS[1]),
    ):
        axis.plot(weights["item"], weights[column], color=colour, linewidth=1.5, label=label, marker="o", markersize=2)
    axis.set_ylabel("weights (prior sd)")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8, ncols=2)


def _draw_calibration(axis: Axes, rows: Sequence[Mapping[str, Any]], classes: bool) -> None:
    """Draw the share of predictions that came true, against their stated probability."""
    axis.plot([0, 1], [0, 1], color=OBSERVED, linewidth=0.8, linestyle=DASHES)
    axis.plot(
        [row["expected"] for row in rows],
        [row["observed"] for row in rows],
        color=MODEL,
        linewidth=1.5,
        marker="o",
        markersize=4,
    )
    axis.set(
        xlabel="probability of the likeliest class" if classes else "width of the interval",
        ylabel="share that was right" if classes else "share inside",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
