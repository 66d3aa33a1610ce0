"""Figures of the reasons of changed forecasts, and of the parts of forecasts."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from tsforecast.analysis.explain import parts_of
from tsforecast.data.tables.naming import names_of, standard
from tsforecast.plots.style import COLOURS, DASHES, MARK, MODEL, OBSERVED, date_axis, draw_band, style_axis
from tsforecast.wording import shortened


def plot_news(frame: pd.DataFrame, *, targets: Sequence[str] = (), most: int = 4, title: str | None = None) -> Figure:
    """Draw both forecasts of each series, and beside them the observations that changed them.

    Args:
        frame: Rows that `tsforecast.analysis.news.news` has returned, of some series.
        targets: Names of the targets.
        most: Series that are drawn, the first ones.
        title: Title above all panels.
    """
    frame = standard(frame)
    if not len(frame):
        raise ValueError("expected the news of at least one series, got none")
    panels: list[tuple[str, int, pd.DataFrame]] = [
        (str(item), int(str(target)), rows)
        for item, own in [*frame.groupby("item_id", sort=False)][:most]
        for target, rows in own.groupby("target", sort=False)
    ]
    figure = Figure(figsize=(11.0, 0.8 + 2.7 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 2, squeeze=False)
    for (left, right), (item, target, rows) in zip(axes, panels, strict=True):
        name = targets[target] if len(targets) > 1 else ""
        _draw_forecasts(left, rows)
        left.set_title(f"{shortened(item)} {name}".strip(), loc="left", fontsize=9)
        _draw_bars(right, biggest(rows))
        right.set_title("impact on the mean of the forecast", loc="left", fontsize=9)
    axes[0, 0].legend(frameon=False, fontsize=8)
    figure.suptitle(title or "Why the forecast changed", fontsize=11)
    return figure


def _draw_forecasts(axis: Axes, rows: pd.DataFrame) -> None:
    """The forecast before and after, one behind the other."""
    steps = rows.drop_duplicates("timestamp")
    marker = "o" if len(steps) < 3 else None
    times = steps["timestamp"].to_numpy()
    axis.plot(times, steps["before"], color="#7F7F7F", linestyle=DASHES, marker=marker, label="forecast before")
    axis.plot(times, steps["after"], color=MODEL, marker=marker, label="forecast after")
    axis.fill_between(times, steps["before"], steps["after"], color=MODEL, alpha=0.15, linewidth=0)
    style_axis(axis)
    date_axis(axis)


def _draw_bars(axis: Axes, causes: pd.DataFrame) -> None:
    """A bar for each cause, the largest above."""
    places = np.arange(len(causes))[::-1]
    impacts = causes["impact"].to_numpy()
    axis.barh(places, impacts, color=[MODEL if impact >= 0 else COLOURS[1] for impact in impacts], height=0.7)
    axis.set_yticks(places, causes["cause"])
    axis.axvline(0.0, color=OBSERVED, linewidth=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))  # small impacts have long labels
    style_axis(axis)


def plot_parts(frame: pd.DataFrame, *, most: int = 4, title: str | None = None) -> Figure:
    """Draws the forecast of each series and its parts, in a row each.

    A dashed line is the part as it was forecast without the last steps.
    """
    frame = standard(frame)
    if not len(frame):
        raise ValueError("expected the parts of at least one forecast, got none")
    names = ["fit", *parts_of(frame)]
    series = [*frame.groupby(names_of(frame), sort=False)][:most]
    figure = Figure(figsize=(1.0 + 2.7 * len(names), 0.9 + 2.0 * len(series)), layout="constrained")
    axes = figure.subplots(len(series), len(names), squeeze=False, sharex="row")
    for row, (one, own) in zip(axes, series, strict=True):
        for number, (axis, name) in enumerate(zip(row, names, strict=True)):
            part = own[own["part"] == name]
            times, mean, std, recent = (np.asarray(part[name]) for name in ("timestamp", "mean", "std", "recent"))
            draw_band(axis, times, mean, std, colour=COLOURS[number % len(COLOURS)])
            axis.plot(times, mean - recent, color=MARK, linestyle=DASHES, linewidth=0.9, label="without the last steps")
            shown = "forecast" if name == "fit" else name.replace("_", " ")
            axis.set_title(f"{shortened(str(one), 18)}: {shown}" if name == "fit" else shown, loc="left", fontsize=9)
            style_axis(axis)
            date_axis(axis)
    axes[0, 0].legend(frameon=False, fontsize=7)
    figure.suptitle(title or "What the forecast is made of: mean ± 2 standard deviations", fontsize=11)
    return figure


def biggest(frame: pd.DataFrame, count: int = 8) -> pd.DataFrame:
    """Return causes (kind and time) with the largest `impact` on the mean of a forecast, a row each, "others" last."""
    steps = standard(frame)["timestamp"].nunique()
    keys = ["kind", "source", "source_target"]
    sums = frame.groupby(keys, dropna=False, sort=False)["impact"].sum().div(steps).reset_index()
    sums = sums.iloc[np.argsort(-sums["impact"].abs().to_numpy(), kind="stable")]
    times = sums["source"].dropna()
    form = "%Y-%m-%d" if (times == times.dt.normalize()).all() else "%Y-%m-%d %H:%M"
    names = [
        kind if pd.isna(source) else f"{kind} {source:{form}}"
        for kind, source in zip(sums["kind"], sums["source"], strict=True)
    ]
    impacts: NDArray[np.float64] = sums["impact"].to_numpy(np.float64)
    if len(names) > count + 1:
        names, impacts = [*names[:count], "others"], np.append(impacts[:count], impacts[count:].sum())
    return pd.DataFrame({"cause": names, "impact": impacts})
