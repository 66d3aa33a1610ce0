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
from gluonts.dataset.split import periods_between
from gluonts.model import Forecast
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from tsforecast.data.files import replace_file
from tsforecast.data.frequency import expected_alias_warnings
from tsforecast.evaluation import INTERVALS, Difference, forecast_quantiles

OBSERVED = "#000000"
MODEL = "#0072B2"
COLOURS = (MODEL, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
_MARKERS = "osD^vPX"
_DASHES = (0, (4, 3))
_SHADES = (
    "#6AAAD4",
    "#A6CBE5",
    "#D8E8F3",
)  # one per interval, from the narrowest; opaque, so that the legend shows them
_BAND_LEVELS = tuple(sorted({0.5, *(round(0.5 + side * width / 200, 3) for width in INTERVALS for side in (-1, 1))}))
_PIT_BINS = 10


@expected_alias_warnings()
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
        history: Steps to show before the first forecast; by default as many as the forecasts cover.
        columns: Panels beside each other.
        title: Title above all panels.

    Raises:
        ValueError: If no series has a forecast.
    """
    by_item: dict[str, list[Forecast]] = {}
    for forecast in sorted(forecasts, key=lambda forecast: forecast.start_date.ordinal):
        by_item.setdefault(str(forecast.item_id), []).append(forecast)
    panels = [
        (entry, row)
        for entry in entries
        if str(entry["item_id"]) in by_item
        for row in range(np.atleast_2d(entry["target"]).shape[0])
    ]
    if not panels:
        raise ValueError(f"expected entries for some of the series {sorted(by_item)[:5]}, but none has a forecast")
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1.0 + 5.0 * columns, 1.1 + 2.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (entry, row) in zip(axes, panels, strict=False):
        item = str(entry["item_id"])
        values = np.atleast_2d(np.asarray(entry["target"], np.float64))[row]
        _draw_forecasts(axis, entry["start"], values, row, by_item[item], history)
        axis.set_title(item if np.ndim(entry["target"]) == 1 else f"{item}, target {row}", loc="left", fontsize=9)
    for axis in axes[len(panels) :]:
        axis.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3 if columns == 1 else 6, frameon=False, fontsize=8
    )
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


@expected_alias_warnings()
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


def plot_regimes(observed: pd.Series, weights: ArrayLike, *, ordered: bool = False, title: str | None = None) -> Figure:
    """Draws a series, and below it the weights of the regimes that a switching model infers from all of it.

    Args:
        observed: The series, indexed by periods or timestamps; missing values are gaps.
        weights: Of every regime or base matrix, (time, regime), summing to one. The largest are shown in colour, those
            which never matter together in grey.
        ordered: Whether the regimes are in an order that means something, such as from calm to wild: all are shown in
            it, from dark to bright.
        title: Title above both panels.

    Raises:
        ValueError: If there are not as many weights as steps.
    """
    times = _timestamps(observed.index)
    weights = np.asarray(weights, np.float64)
    if weights.ndim != 2 or len(weights) != len(times):
        raise ValueError(f"expected weights of {len(times)} steps, got an array of shape {weights.shape}")
    if ordered:
        shown, rest = np.arange(weights.shape[1]), np.arange(0)
        colours = list(colormaps["viridis"](np.linspace(0, 1, len(shown))))
    else:
        order = np.argsort(-weights.var(0), kind="stable")  # what changes most tells most
        shown, rest = order[: len(COLOURS)], order[len(COLOURS) :]
        colours = list(COLOURS[: len(shown)])
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(
        times, observed.to_numpy(np.float64), color=OBSERVED, linewidth=0.7, marker=_lone_marker(observed), markersize=2
    )
    above.set_title("observed", loc="left", fontsize=9)
    layers = weights[:, shown].T
    if len(rest):
        layers, colours = np.vstack([layers, weights[:, rest].sum(1)]), [*colours, "0.85"]
    below.stackplot(times, layers, colors=colours, linewidth=0)
    below.set_ylim(0, 1)
    below.set_title("weights of the regimes given the whole series", loc="left", fontsize=9)
    for axis in (above, below):
        _style(axis)
    _date_axis(below)
    below.set_xlim(times[0], times[-1])
    figure.align_ylabels()
    figure.suptitle(title or f"{observed.name or 'series'}: inferred regimes", fontsize=11)
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
    left.axhline(1, color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
    right.plot([0, 1], [0, 1], color=OBSERVED, linewidth=0.8, linestyle=_DASHES, label="calibrated")
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
        part = per_horizon.loc[per_horizon["protocol"] == protocol]
        for index, name in enumerate(models):
            line = part.loc[part["model"] == name]
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


def plot_differences(differences: Mapping[str, Difference], *, title: str | None = None) -> Figure:
    """Draws differences from a reference, which is zero, with their intervals.

    Args:
        differences: By name, from top to bottom; those which are sure of their sign are filled.
        title: Title above the panel.
    """
    figure = Figure(figsize=(7.5, 1.0 + 0.32 * len(differences)), layout="constrained")
    axis = figure.subplots()
    for place, found in enumerate(differences.values()):
        sure = found.low > 0 or found.high < 0
        colour = MODEL if found.estimate < 0 else COLOURS[1]
        axis.plot([found.low, found.high], [place, place], color=colour, linewidth=1.5)
        axis.plot(
            found.estimate, place, marker="o", markersize=6, color=colour, markerfacecolor=colour if sure else "white"
        )
    axis.axvline(0, color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
    axis.set_yticks(range(len(differences)), list(differences))
    axis.set_ylim(len(differences) - 0.5, -0.5)
    axis.set_xlabel("difference of CRPS (left of zero is better than the reference)")
    _style(axis)
    if title:
        figure.suptitle(title, fontsize=11)
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
        _style(axis)
    for axis in axes[len(names) + 1 :]:
        axis.set_axis_off()
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
    best = (0, np.nan)
    for column, label, colour in (("train_loss", "training", MODEL), ("val_loss", "validation", COLOURS[1])):
        line = frame.reindex(columns=["epoch", column]).dropna()
        if line.empty:
            continue
        epochs, losses = line["epoch"].to_numpy(), line[column].to_numpy(np.float64)
        axis.plot(epochs, losses, color=colour, linewidth=1.5, marker="o", markersize=3, label=label)
        best = epochs[losses.argmin()], losses.min()  # of the validation loss where there is one
    if axis.lines:
        axis.axvline(best[0], color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
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
        axis.legend(frameon=False, fontsize=8)
    _style(axis)
    axis.set(xlabel="epoch", ylabel="loss")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure


def plot_adaptation(windows: pd.DataFrame, models: tuple[str, str], *, title: str | None = None) -> Figure:
    """Draws the CRPS of a model and of the same model learning on, window by window, and how far it moved.

    Thin lines are single windows, thick ones means over seven of them.

    Args:
        windows: Indexed by `start`; `moved` and a column of CRPS for each model.
        models: Names of the frozen and of the learning model.
        title: Title above all panels.
    """
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    upper, middle, lower = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1.5))
    times = windows.index.to_numpy()
    for index, name in enumerate(models):
        upper.plot(times, windows[name], color=COLOURS[index], linewidth=0.7, alpha=0.5)
        mean = windows[name].rolling(7, min_periods=1).mean()
        upper.plot(times, mean, color=COLOURS[index], linewidth=2.0, label=name)
    change = windows[models[1]] - windows[models[0]]
    middle.bar(times, change, width=0.8 * np.diff(times).min() if len(times) > 1 else 0.8, color=COLOURS[1], alpha=0.4)
    middle.plot(times, change.rolling(7, min_periods=1).mean(), color=COLOURS[1], linewidth=2.0)
    middle.axhline(0, color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
    lower.plot(times, windows["moved"], color=COLOURS[1], linewidth=1.5)
    upper.set(ylabel="CRPS")
    middle.set(ylabel="difference")
    lower.set(ylabel="parameters moved\n(prior sd)")
    upper.set_ylim(bottom=0)
    lower.set_ylim(bottom=0)
    for axis in (upper, middle, lower):
        _style(axis)
    _date_axis(lower)
    upper.legend(frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def plot_stream(items: pd.DataFrame, scores: Mapping[str, Any], *, title: str | None = None) -> Figure:
    """Draws how a learner does on a stream: log-loss, error and weights against observations, and calibration.

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
        least = min(window, max(len(values) // 4, 1))
        recent = np.asarray(values.rolling(window, min_periods=least).mean(), np.float64)
        so_far = np.asarray(values.expanding().mean(), np.float64)
        axis.plot(scored["item"], recent, color=COLOURS[5], linewidth=1.2, label=f"last {window}")
        axis.plot(scored["item"], so_far, color=MODEL, linewidth=1.8, label="all so far")
        # The first predictions are of a learner that knows nothing, and would hide the others.
        late = np.concatenate([recent[len(recent) // 20 :], so_far[len(recent) // 20 :]])
        late = late[np.isfinite(late)]
        if len(late):
            low, high = min(late.min(), 0.0) if axis is middle else late.min(), late.max()
            axis.set_ylim(low - 0.05 * (high - low + 1e-9), high + 0.1 * (high - low + 1e-9))
        axis.set_ylabel(label)
        if axis is middle and classes:
            axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    top.legend(frameon=False, fontsize=8, ncols=2)
    weights = items.dropna(subset=["weights_moved"])
    for column, label, colour in (
        ("weights_moved", "moved from where they began", MODEL),
        ("weights_sd", "standard deviation", COLOURS[1]),
    ):
        bottom.plot(
            weights["item"], weights[column], color=colour, linewidth=1.5, label=label, marker="o", markersize=2
        )
    bottom.set_ylabel("weights (prior sd)")
    bottom.set_ylim(bottom=0)
    bottom.legend(frameon=False, fontsize=8, ncols=2)
    bottom.set_xlabel("observation")
    rows = scores["calibration"]
    corner.plot([0, 1], [0, 1], color=OBSERVED, linewidth=0.8, linestyle=_DASHES)
    corner.plot(
        [row["expected"] for row in rows],
        [row["observed"] for row in rows],
        color=MODEL,
        linewidth=1.5,
        marker="o",
        markersize=4,
    )
    corner.set(
        xlabel="probability of the likeliest class" if classes else "width of the interval",
        ylabel="share that was right" if classes else "share inside",
        xlim=(0, 1),
        ylim=(0, 1.02),
    )
    for axis in (top, middle, bottom, corner):
        _style(axis)
    top.tick_params(labelbottom=False)
    bottom.set_xlim(top.get_xlim())
    whole = "accuracy {accuracy:.1%}" if classes else "RMSE {rmse:.4g}"
    said = f"{whole}, log-loss {{log_loss:.4g}}".format(**scores)
    figure.suptitle(f"{title}: {said}" if title else said, fontsize=11, x=0.02, ha="left")
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
    origins = [periods_between(start, forecast.start_date) - 1 for forecast in forecasts]
    end = origins[-1] + forecasts[-1].prediction_length
    first = max(0, origins[0] - (end - origins[0] if history is None else history))
    times = _timestamps(pd.period_range(start, periods=max(end, len(values)), freq=start.freq))
    shown = values[first:end]
    for position, (forecast, origin) in enumerate(zip(forecasts, origins, strict=True)):
        quantiles = forecast_quantiles(forecast, _BAND_LEVELS)
        quantiles = quantiles[..., row] if quantiles.ndim == 3 else quantiles
        ahead = times[origin : origin + forecast.prediction_length]
        if 0 < origin <= len(values) and np.isfinite(values[origin - 1]):
            # Bands open at the last observation: so forecasts of a single step are seen, too.
            quantiles = np.concatenate([np.full((len(quantiles), 1), values[origin - 1]), quantiles], axis=1)
            ahead = times[origin - 1 : origin + forecast.prediction_length]
        labelled = position == 0
        bands = sorted(zip(INTERVALS, _SHADES, strict=True), reverse=True)
        for width, colour in bands:
            low, high = (quantiles[_BAND_LEVELS.index(round(0.5 + side * width / 200, 3))] for side in (-1, 1))
            label = f"{width} % interval" if labelled else None
            axis.fill_between(ahead, low, high, color=colour, linewidth=0, label=label, zorder=2)
        median = quantiles[_BAND_LEVELS.index(0.5)]
        axis.plot(ahead, median, color=MODEL, linewidth=1.3, label="median" if labelled else None, zorder=4)
        label = "forecast start" if labelled else None
        axis.axvline(ahead[0], color="#7F7F7F", linewidth=0.8, linestyle=_DASHES, zorder=1, label=label)
    marker = _lone_marker(shown)
    past = times[first : first + len(shown)]
    axis.plot(past, shown, color=OBSERVED, linewidth=0.9, marker=marker, markersize=2, label="observed", zorder=3)
    _style(axis)
    _date_axis(axis)
    axis.set_xlim(times[first], times[end - 1])


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
    axis.xaxis.get_offset_text().set_fontsize(8)


def _style(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    axis.xaxis.label.set_fontsize(9)
    axis.yaxis.label.set_fontsize(9)
