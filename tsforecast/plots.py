"""Figures of forecasts, decompositions and scores.

Every function takes data and returns a matplotlib `Figure` which belongs to no window and to no global state;
`save_figure` writes it. Colours are from the palette of Okabe and Ito, which colour-blind readers can tell apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from gluonts.model import Forecast
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from tsforecast.evaluation import INTERVALS, forecast_quantiles, replace_file

OBSERVED = "#000000"
MODEL = "#0072B2"
COLOURS = (MODEL, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
_MARKERS = "osD^vPX"
_GRID = {"color": "#E5E5E5", "linewidth": 0.6}
_PIT_BINS = 20


def plot_forecasts(
    entries: Iterable[Mapping[str, Any]],
    forecasts: Iterable[Forecast],
    *,
    history: int | None = None,
    columns: int = 2,
    title: str | None = None,
) -> Figure:
    """Draws series with their forecasts: recent past, what came, the median and the 50, 80 and 95 % intervals.

    One panel per series and target. Several forecasts of a series, as of the rolling protocol, follow each other in its
    panel; a line marks where each begins. Missing values are gaps.

    Args:
        entries: GluonTS entries with `item_id` over past and future; the future may be missing.
        forecasts: Forecasts of these series, in any order; those of other series are left out.
        history: Steps to show before the first forecast; by default twice the steps forecast.
        columns: Panels beside each other.
        title: Title above all panels.

    Raises:
        ValueError: If no series has a forecast.
    """
    by_item: dict[str, list[Forecast]] = {}
    for forecast in forecasts:
        by_item.setdefault(str(forecast.item_id), []).append(forecast)
    panels = [
        (f"{item}, target {row + 1}" if np.ndim(entry["target"]) == 2 else item, entry["start"], values, row)
        for entry in entries
        if (item := str(entry["item_id"])) in by_item
        for row, values in enumerate(np.atleast_2d(np.asarray(entry["target"], np.float64)))
    ]
    if not panels:
        raise ValueError(f"expected entries for some of the series {sorted(by_item)[:5]}, but none has a forecast")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1.0 + 5.0 * columns, 1.1 + 2.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (name, start, values, row) in zip(axes, panels, strict=False):
        item_forecasts = sorted(by_item[name.split(", target ")[0]], key=lambda forecast: forecast.start_date)
        _draw_forecasts(axis, start, values, row, item_forecasts, history)
        axis.set_title(name, loc="left", fontsize=9)
    for axis in axes[len(panels) :]:
        axis.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_decomposition(
    observed: pd.Series, components: Mapping[str, tuple[ArrayLike, ArrayLike]], *, title: str | None = None
) -> Figure:
    """Draws a series and the components that a model sees in it, one panel each, with their uncertainty.

    Args:
        observed: The series, indexed by periods or timestamps; missing values are gaps.
        components: By name ("level", "hour of day", ..) mean and standard deviation (time,) over the same times. A
            component named "fit" is drawn over the observations instead of in a panel of its own.
        title: Title above all panels.

    Raises:
        ValueError: If a component is not as long as the series.
    """
    times = _timestamps(observed.index)
    parts = {
        name: (np.asarray(mean, np.float64), np.asarray(std, np.float64)) for name, (mean, std) in components.items()
    }
    for name, (mean, std) in parts.items():
        if not mean.shape == std.shape == times.shape:
            raise ValueError(f"expected {len(times)} steps of component {name!r}, got {mean.shape} and {std.shape}")
    fit = parts.pop("fit", None)
    figure = Figure(figsize=(9.0, 1.2 + 1.5 * (1 + len(parts))), layout="constrained")
    axes = figure.subplots(1 + len(parts), 1, sharex=True, squeeze=False)[:, 0]
    if fit is not None:
        _draw_band(axes[0], times, *fit, colour=MODEL)
    marker = _lone_marker(observed)
    axes[0].plot(times, observed.to_numpy(np.float64), color=OBSERVED, linewidth=0.7, marker=marker, markersize=2)
    axes[0].set_title("observed" if fit is None else "observed (black) and fit", loc="left", fontsize=9)
    for index, (axis, (name, (mean, std))) in enumerate(zip(axes[1:], parts.items(), strict=True)):
        _draw_band(axis, times, mean, std, colour=COLOURS[index % len(COLOURS)])
        axis.set_title(name, loc="left", fontsize=9)
    for axis in axes:
        _style(axis)
    _date_axis(axes[-1])
    axes[-1].set_xlim(times[0], times[-1])
    figure.align_ylabels()
    figure.suptitle(title or f"{observed.name or 'series'}: components, mean ± 2 standard deviations", fontsize=11)
    return figure


def plot_calibration(calibration: Mapping[str, pd.DataFrame], *, title: str | None = None) -> Figure:
    """Draws how far forecasts can be trusted: the PIT histogram and the coverage of central intervals.

    Calibrated forecasts have a flat histogram and coverage on the diagonal. A histogram like a U, or coverage below the
    diagonal, shows intervals that are too narrow; a hump, or coverage above it, intervals that are too wide.

    Args:
        calibration: `Scores.calibration` by model name; the first model is emphasised.
        title: Title above both panels.
    """
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    edges = np.linspace(0, 1, _PIT_BINS + 1)
    for index, (name, frame) in enumerate(calibration.items()):
        colour = COLOURS[index % len(COLOURS)]
        density = np.diff(np.interp(edges, frame.index, frame["pit"])) * _PIT_BINS
        left.stairs(density, edges, color=colour, linewidth=1.8 if index == 0 else 1.0, zorder=3 if index == 0 else 2)
        if index == 0:
            left.stairs(density, edges, fill=True, color=colour, alpha=0.25)
        cover = frame["coverage"].dropna()
        right.plot(
            cover.index,
            cover,
            color=colour,
            linewidth=2.0 if index == 0 else 1.0,
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            markevery=[cover.index.get_loc(width / 100) for width in (20, 50, 80, 96)],
            label=name,
            zorder=3 if index == 0 else 2,
        )
    left.axhline(1, color=OBSERVED, linewidth=0.8, linestyle=(0, (4, 3)))
    right.plot([0, 1], [0, 1], color=OBSERVED, linewidth=0.8, linestyle=(0, (4, 3)), label="calibrated")
    left.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    left.set_ylim(bottom=0)
    right.set(xlabel="nominal", ylabel="observed", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis, heading in ((left, "PIT histogram"), (right, "Coverage of central intervals")):
        _style(axis)
        axis.set_title(heading, loc="left", fontsize=9)
    for axis in (right.xaxis, right.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_scores_by_horizon(per_horizon: pd.DataFrame, *, metric: str = "crps", title: str | None = None) -> Figure:
    """Draws a score against the steps ahead, one panel per protocol and one line per model.

    Args:
        per_horizon: `Evaluation.per_horizon()`: columns `protocol`, `model`, `step` and the metrics.
        metric: Column to draw.
        title: Title above all panels.

    Raises:
        ValueError: If there is no such column.
    """
    if metric not in per_horizon:
        raise ValueError(f"expected one of the columns {list(per_horizon.columns)}, got {metric!r}")
    protocols = list(dict.fromkeys(per_horizon["protocol"]))
    models = list(dict.fromkeys(per_horizon["model"]))
    figure = Figure(figsize=(1.0 + 4.2 * len(protocols), 3.8), layout="constrained")
    axes = figure.subplots(1, len(protocols), squeeze=False)[0]
    for axis, protocol in zip(axes, protocols, strict=True):
        part = per_horizon[per_horizon["protocol"] == protocol]
        for index, name in enumerate(models):
            line = part[part["model"] == name]
            axis.plot(
                line["step"].to_numpy(),
                line[metric].to_numpy(np.float64),
                color=COLOURS[index % len(COLOURS)],
                linewidth=2.0 if index == 0 else 1.0,
                zorder=3 if index == 0 else 2,
                label=name if axis is axes[0] else None,
            )
        _style(axis)
        axis.set_title(str(protocol).replace("_", "-"), loc="left", fontsize=9)
        axis.set(xlabel="steps ahead", ylabel=metric.replace("_", " ").upper())
        axis.set_xlim(part["step"].min(), part["step"].max())
        axis.set_ylim(bottom=0)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=min(len(models), 4), frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_learning_curve(curve: pd.DataFrame | str | Path, *, title: str | None = None) -> Figure:
    """Draws training and validation loss against epochs.

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
    for column, label, colour in (("train_loss", "training", MODEL), ("val_loss", "validation", COLOURS[1])):
        if column not in frame or frame[column].isna().all():
            continue
        line = frame[["epoch", column]].dropna()
        axis.plot(line["epoch"], line[column], color=colour, linewidth=1.5, marker="o", markersize=3, label=label)
    best = "val_loss" if "val_loss" in frame and frame["val_loss"].notna().any() else "train_loss"
    if frame[best].notna().any():
        row = frame.loc[frame[best].idxmin()]
        axis.axvline(row["epoch"], color=OBSERVED, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.annotate(
            f"best: {row[best]:.4g}",
            (row["epoch"], 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8,
        )
    _style(axis)
    axis.set(xlabel="epoch", ylabel="loss")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, fontsize=8)
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> Path:
    """Writes a figure in the format of the file's suffix (png, svg, pdf), whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, facecolor="white")
    return path


def _draw_forecasts(
    axis: Axes,
    start: pd.Period,
    values: NDArray[np.float64],
    row: int,
    forecasts: Sequence[Forecast],
    history: int | None,
) -> None:
    origin = (forecasts[0].start_date - start).n // start.freq.n
    total = (forecasts[-1].start_date - forecasts[0].start_date).n // start.freq.n + forecasts[-1].prediction_length
    first = max(0, origin - (2 * total if history is None else history))
    shown = values[first : origin + total]
    times = _timestamps(pd.period_range(start + first, periods=len(shown), freq=start.freq))
    for position, forecast in enumerate(forecasts):
        # The last observation joins the bands to the past, so that a forecast is seen to start there.
        levels = tuple(sorted({0.5, *(round(0.5 + side * width / 200, 3) for width in INTERVALS for side in (-1, 1))}))
        quantiles = dict(zip(levels, _of_target(forecast_quantiles(forecast, levels), row), strict=True))
        ahead = _timestamps(forecast.index)
        for width, alpha in zip(sorted(INTERVALS, reverse=True), (0.18, 0.25, 0.35), strict=True):
            low, high = quantiles[round(0.5 - width / 200, 3)], quantiles[round(0.5 + width / 200, 3)]
            label = f"{width} % interval" if position == 0 else None
            axis.fill_between(ahead, low, high, color=MODEL, alpha=alpha, linewidth=0, label=label)
        axis.plot(ahead, quantiles[0.5], color=MODEL, linewidth=1.4, label="median" if position == 0 else None)
        axis.axvline(ahead[0], color="#7F7F7F", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axis.plot(
        times,
        shown,
        color=OBSERVED,
        linewidth=0.8,
        marker=_lone_marker(shown),
        markersize=2,
        label="observed",
        zorder=3,
    )
    _style(axis)
    _date_axis(axis)
    last = _timestamps(forecasts[-1].index)[-1]
    axis.set_xlim(times[0] if len(times) else _timestamps(forecasts[0].index)[0], last)


def _of_target(quantiles: NDArray[np.float64], row: int) -> NDArray[np.float64]:
    return quantiles[..., row] if quantiles.ndim == 3 else quantiles


def _draw_band(axis: Axes, times: Any, mean: NDArray[np.float64], std: NDArray[np.float64], *, colour: str) -> None:
    axis.fill_between(times, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.25, linewidth=0)
    axis.plot(times, mean, color=colour, linewidth=1.0)


def _timestamps(index: pd.Index) -> NDArray[Any]:
    return (index.to_timestamp() if isinstance(index, pd.PeriodIndex) else pd.DatetimeIndex(index)).to_numpy()


def _lone_marker(values: ArrayLike) -> str | None:
    """A marker if observations have gaps: a line alone does not show a value between two missing ones."""
    return "." if np.isnan(np.asarray(values, np.float64)).any() else None


def _date_axis(axis: Axes) -> None:
    locator = mdates.AutoDateLocator(minticks=3, maxticks=7)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))


def _style(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, **_GRID)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    axis.xaxis.label.set_size(9)
    axis.yaxis.label.set_size(9)
