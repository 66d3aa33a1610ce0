"""Figures of forecasts, and of the components that a model sees in a series."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from gluonts.dataset.split import periods_between
from gluonts.model import Forecast
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.calendar.stamps import stamps_of
from tsforecast.data.quantiles import INTERVALS, forecast_quantiles
from tsforecast.data.tables.naming import standard
from tsforecast.plots.style import (
    COLOURS,
    DASHES,
    MODEL,
    OBSERVED,
    date_axis,
    draw_band,
    draw_observed,
    lone_marker,
    measured,
    style_axis,
    timestamps,
    tint,
)
from tsforecast.wording import shortened

_WHITE = (0.42, 0.65, 0.85)  # of the band of an interval, from the narrowest; opaque, so that the legend shows them
_LABEL = 26  # characters as high as a panel
_MODELS = 2  # of a bank that a panel names
_LETTERS = 70  # of their names, beside that of a series
BAND_LEVELS = tuple(sorted({0.5, *(round(0.5 + side * width / 200, 3) for width in INTERVALS for side in (-1, 1))}))


@expected_alias_warnings()
def plot_forecasts(
    entries: Iterable[Mapping[str, Any]],
    forecasts: Iterable[Forecast],
    *,
    history: int | None = None,
    columns: int = 2,
    targets: Sequence[str] = (),
    unit: str = "",
    colour: str = MODEL,
    title: str | None = None,
) -> Figure:
    """Draw series with their forecasts: recent past, outcome, the median and the 50, 80 and 95 % intervals.

    One panel per series and target. Several forecasts of a series, as of the rolling protocol, follow each other in its
    panel; a line marks where each begins. Missing values are gaps.

    Args:
        entries: GluonTS entries with `item_id` over past and future; the future may be missing.
        forecasts: Forecasts of these series, in any order; those of other series are left out.
        history: Steps to show before the first forecast; by default as many as the forecasts cover.
        columns: Panels beside each other.
        targets: What was measured, a name for each target; nothing where it is not known.
        unit: In which it was measured; nothing where it is not known.
        colour: Of the model, see `colour_of`.
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
        _draw_forecasts(axis, entry, values, row, by_item[item], history, colour)
        _name_panel(axis, entry, row, targets, unit)
        _name_models(axis, by_item[item][-1])
    for axis in axes[len(panels) :]:
        axis.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3 if columns == 1 else 6, frameon=False, fontsize=8
    )
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _name_panel(axis: Axes, entry: Mapping[str, Any], row: int, targets: Sequence[str], unit: str) -> None:
    """Write the quantity beside a panel; write the series, and the target if there are several, above it."""
    name = targets[row] if row < len(targets) else ""
    axis.set_ylabel(textwrap.fill(measured(name, unit), _LABEL))
    several = f", {name or f'target {row}'}" if np.ndim(entry["target"]) > 1 else ""
    axis.set_title(shortened(str(entry["item_id"])) + several, loc="left", fontsize=9)


def _name_models(axis: Axes, forecast: Forecast) -> None:
    """Write above a panel the models of a bank with the largest weights in its last forecast."""
    weights = getattr(forecast, "weights", {})
    largest = [(name, weight) for name, weight in list(weights.items())[:_MODELS] if weight >= 0.005]
    named = [f"{100 * weight:.0f} % {name}".replace("_", " ") for name, weight in largest]
    fits = len(", ".join(named)) <= _LETTERS
    named = ", ".join(named if fits else [*named[:1], ".."])
    axis.set_title(named, loc="right", fontsize=6, color="#595959")


@expected_alias_warnings()
def plot_decomposition(
    observed: pd.Series,
    components: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    label: str = "",
    colour: str = MODEL,
    title: str | None = None,
) -> Figure:
    """Draws a series and the components that a model sees in it, one panel each, with their uncertainty.

    Args:
        observed: The series, indexed by periods or timestamps; missing values are gaps.
        components: By name ("level", "hour of day", ..) mean and standard deviation (time,) over the same times. A
            component named "fit" is drawn over the observations instead of in a panel of its own.
        label: What is observed, see `measured`.
        colour: Of the model, in which its fit is drawn.
        title: Title above all panels.

    Raises:
        ValueError: If a component is not as long as the series.
    """
    times = timestamps(observed.index)
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
        draw_band(axes[0], times, *fit, colour=colour)
    draw_observed(axes[0], times, observed, label)
    axes[0].set_title("observed" if fit is None else "observed (black) and fit", loc="left", fontsize=9)
    for index, (axis, (name, (mean, std))) in enumerate(zip(axes[1:], parts.items(), strict=True)):
        draw_band(axis, times, mean, std, colour=COLOURS[index % len(COLOURS)])
        axis.set_title(name, loc="left", fontsize=9)
    for axis in axes:
        style_axis(axis)
    date_axis(axes[-1])
    axes[-1].set_xlim(times[0], times[-1])
    figure.align_ylabels()
    figure.suptitle(title or f"{observed.name or 'series'}: components, mean ± 2 standard deviations", fontsize=11)
    return figure


def _draw_forecasts(
    axis: Axes,
    entry: Mapping[str, Any],
    values: NDArray[np.float64],
    row: int,
    forecasts: Sequence[Forecast],
    history: int | None,
    colour: str,
) -> None:
    start: pd.Period = entry["start"]
    origins = [periods_between(start, forecast.start_date) - 1 for forecast in forecasts]
    end = origins[-1] + forecasts[-1].prediction_length
    first = max(0, origins[0] - (end - origins[0] if history is None else history))
    times = stamps_of(start, max(end, len(values)), entry.get("info"))
    shown = values[first:end]
    for position, (forecast, origin) in enumerate(zip(forecasts, origins, strict=True)):
        quantiles = forecast_quantiles(forecast, BAND_LEVELS)
        quantiles = quantiles[..., row] if quantiles.ndim == 3 else quantiles
        ahead = times[origin : origin + forecast.prediction_length]
        if 0 < origin <= len(values) and np.isfinite(values[origin - 1]):
            # Bands open at the last observation: so forecasts of a single step are seen, too.
            quantiles = np.concatenate([np.full((len(quantiles), 1), values[origin - 1]), quantiles], axis=1)
            ahead = times[origin - 1 : origin + forecast.prediction_length]
        labelled = position == 0
        _draw_bands(axis, ahead, quantiles, colour, labelled)
        label = "forecast start" if labelled else None
        axis.axvline(ahead[0], color="#7F7F7F", linewidth=0.8, linestyle=DASHES, zorder=1, label=label)
    marker = lone_marker(shown)
    past = times[first : first + len(shown)]
    axis.plot(past, shown, color=OBSERVED, linewidth=0.9, marker=marker, markersize=2, label="observed", zorder=3)
    style_axis(axis)
    date_axis(axis)
    axis.set_xlim(times[first], times[end - 1])


def _draw_bands(axis: Axes, times: Any, quantiles: NDArray[np.float64], colour: str, labelled: bool) -> None:
    """Draws the intervals and the median of a forecast, from its quantiles (level, time) at `BAND_LEVELS`."""
    for width, white in sorted(zip(INTERVALS, _WHITE, strict=True), reverse=True):
        low, high = (quantiles[BAND_LEVELS.index(round(0.5 + side * width / 200, 3))] for side in (-1, 1))
        label = f"{width} % interval" if labelled else None
        axis.fill_between(times, low, high, color=tint(colour, white), linewidth=0, label=label, zorder=2)
    median = quantiles[BAND_LEVELS.index(0.5)]
    axis.plot(times, median, color=colour, linewidth=1.3, label="median" if labelled else None, zorder=4)


def plot_timed(
    entries: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Sequence[pd.DataFrame]],
    *,
    since: Mapping[str, int] | None = None,
    held_out: Mapping[str, Mapping[str, Any]] | None = None,
    colour: str = MODEL,
    label: str = "",
    title: str | None = None,
) -> Figure:
    """Draw observations as points, and the median and the 50, 80 and 95 % intervals at any times.

    Args:
        entries: Data entries with `times`; one panel for each, of its first target.
        answers: By item the tables of `predict_frame` or `interpolate_frame` with the levels `BAND_LEVELS`, one behind
            the other.
        since: By item the first time that is shown, in nanoseconds; None for all.
        held_out: By item what the model has not seen, drawn as circles.
        colour: Of the model.
        label: Of what was measured.
        title: Above all panels.
    """
    if not entries:
        raise ValueError("expected a series at least")
    figure = Figure(figsize=(9.0, 1.0 + 2.2 * len(entries)), layout="constrained")
    axes = figure.subplots(len(entries), 1, squeeze=False).ravel()
    for axis, entry in zip(axes, entries, strict=True):
        item = str(entry["item_id"])
        first = None if since is None else since.get(item)
        for number, table in enumerate(map(standard, answers.get(item, ()))):
            quantiles = table[[str(level) for level in BAND_LEVELS]].to_numpy().T
            _draw_bands(axis, table["timestamp"].to_numpy(), quantiles, colour, labelled=number == 0)
        _draw_points(axis, entry, first, "observed", {"color": OBSERVED, "marker": ".", "markersize": 3})
        if held_out is not None and item in held_out:
            circles = {"color": OBSERVED, "marker": "o", "markersize": 3.5, "markerfacecolor": "none"}
            _draw_points(axis, held_out[item], first, "held out", circles)
        axis.set_title(shortened(item), loc="left", fontsize=9)
        axis.set_ylabel(label)
        style_axis(axis)
        date_axis(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def _draw_points(axis: Axes, entry: Mapping[str, Any], first: int | None, label: str, style: dict[str, Any]) -> None:
    shown = np.ones(len(entry["times"]), bool) if first is None else entry["times"] >= first
    values = np.atleast_2d(entry["target"])[0]
    axis.plot(
        entry["times"][shown].astype("datetime64[ns]"), values[shown], linestyle="none", label=label, zorder=3, **style
    )
