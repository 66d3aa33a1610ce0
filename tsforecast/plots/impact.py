"""Figures of the effects of interventions."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsforecast.analysis.impact import Impact
from tsforecast.data.tables.naming import standard
from tsforecast.plots.style import COLOURS, DASHES, MODEL, OBSERVED, date_axis, lone_marker, style_axis
from tsforecast.wording import shortened

_KINDS = (("predicted", "actual and without"), ("effect", "effect by step"), ("cumulative", "cumulative effect"))


def plot_impact(found: Impact, *, most: int = 4, title: str | None = None) -> Figure:
    """Draw each series beside its counterfactual, its effect by step and the cumulative effect, with intervals."""
    frame, past = standard(found.frame), standard(found.past)
    series = [*frame.groupby("item_id", sort=False)][:most]
    if not series:
        raise ValueError("expected the effects on at least one series, got none")
    figure = Figure(figsize=(12.5, 0.9 + 2.5 * len(series)), layout="constrained")
    axes = figure.subplots(len(series), 3, squeeze=False)
    for row, (item, own) in zip(axes, series, strict=True):
        for axis, (name, text) in zip(row, _KINDS, strict=True):
            if name == "predicted":
                first = past[(past["item_id"] == item) & (past["intervention"] == 1)]
                axis.plot(first["timestamp"], first["actual"], color=OBSERVED, linewidth=0.9)
            _draw(axis, own, name)
            axis.set_title(
                f"{shortened(str(item), 30)}: {text}" if name == "predicted" else text, loc="left", fontsize=9
            )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(title or "What was, and what would have been without the intervention", fontsize=11)
    return figure


def _draw(axis: Axes, rows: pd.DataFrame, name: str) -> None:
    for number, (_, own) in enumerate(rows.groupby("intervention")):
        times = own["timestamp"].to_numpy()
        colour = MODEL if name == "predicted" else COLOURS[1]
        said = "interval" if number == 0 else None
        axis.fill_between(times, own[f"{name}_lower"], own[f"{name}_upper"], color=colour, alpha=0.25, lw=0, label=said)
        said = "without the intervention" if number == 0 else None
        axis.plot(times, own[name], color=colour, linewidth=1.2, label=said)
        axis.axvline(times[0], color="#7F7F7F", linewidth=0.8, linestyle=DASHES)
        if name == "predicted":
            said = "actual" if number == 0 else None
            marker = lone_marker(own["actual"])
            axis.plot(times, own["actual"], color=OBSERVED, linewidth=0.9, marker=marker, markersize=2, label=said)
        else:
            axis.axhline(0.0, color=OBSERVED, linewidth=0.6)
    style_axis(axis)
    date_axis(axis)
