"""Figures of series with clocks of their own: every observation a point, every answer a band."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsforecast.data.quantiles import INTERVALS
from tsforecast.data.tables.naming import standard
from tsforecast.plots.style import MODEL, OBSERVED, date_axis, style_axis, tint
from tsforecast.wording import shortened

_WHITE = (0.42, 0.65, 0.85)  # of the band of an interval, from the narrowest
TIMED_LEVELS = tuple(sorted({0.5, *(round(0.5 + side * width / 200, 3) for width in INTERVALS for side in (-1, 1))}))


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
        answers: By item the tables of `predict_frame` or `interpolate_frame` with the levels `TIMED_LEVELS`, one behind
            the other.
        since: By item the first time that is shown, in nanoseconds; None for all.
        held_out: By item what the model has not seen, drawn as circles.
        colour: Of the model.
        label: Of what was measured.
        title: Above all panels.

    Raises:
        ValueError: If there is no series.
    """
    if not entries:
        raise ValueError("expected a series at least")
    figure = Figure(figsize=(9.0, 1.0 + 2.2 * len(entries)), layout="constrained")
    axes = figure.subplots(len(entries), 1, squeeze=False).ravel()
    for axis, entry in zip(axes, entries, strict=True):
        item = str(entry["item_id"])
        first = None if since is None else since.get(item)
        for number, table in enumerate(answers.get(item, ())):
            _draw_answer(axis, table, colour, named=number == 0)
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


def _draw_answer(axis: Axes, table: pd.DataFrame, colour: str, *, named: bool) -> None:
    table = standard(table)
    times = table["timestamp"].to_numpy()
    for width, white in sorted(zip(INTERVALS, _WHITE, strict=True), reverse=True):
        low, high = (str(round(0.5 + side * width / 200, 3)) for side in (-1, 1))
        text = f"{width} %" if named else None
        axis.fill_between(times, table[low], table[high], color=tint(colour, white), linewidth=0, label=text)
    axis.plot(times, table["0.5"], color=colour, linewidth=1.0, label="median" if named else None)
