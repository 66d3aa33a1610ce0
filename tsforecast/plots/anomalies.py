"""Figures of anomalies."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsforecast.data.tables.naming import standard
from tsforecast.plots.style import COLOURS, DASHES, MARK, MODEL, OBSERVED, date_axis, lone_marker, style_axis, tint

_MARKERS = {"spike": "o", "level shift": "s", "slope change": "^", "season change": "D", "variance": "P"}


def plot_anomalies(frame: pd.DataFrame, *, rate: float, label: str = "", title: str | None = None) -> Figure:
    """Draw a series with its intervals and anomalies, and below it the rarity of every step.

    Args:
        frame: Rows of one series, and one target, of `tsforecast.analysis.anomalies`.
        rate: False-alarm rate, at which a line stands.
        label: What is observed, see `measured`.
        title: Title above both panels.

    Raises:
        ValueError: If there is no row.
    """
    frame = standard(frame)
    if frame.empty:
        raise ValueError("expected the rows of a series, got none")
    times = frame["timestamp"].to_numpy()
    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    band = [frame[name].to_numpy(np.float64) for name in ("lower", "upper")]
    above.fill_between(times, *band, color=tint(MODEL, 0.75), linewidth=0, label=f"{100 * (1 - rate):g} % interval")
    above.plot(times, frame["expected"], color=MODEL, linewidth=0.8, label="expected")
    marker = lone_marker(frame["value"])
    above.plot(times, frame["value"], color=OBSERVED, linewidth=0.7, marker=marker, markersize=2, label="observed")
    seen = frame["value"].dropna()
    room = 0.1 * (seen.max() - seen.min()) if len(seen) else 0
    if room > 0:  # the interval of the first steps may be wide
        above.set_ylim(seen.min() - room, seen.max() + room)
    flagged = frame[frame["flagged"]]
    for number, (kind, rows) in enumerate(flagged.groupby("kind", sort=False)):
        colour = COLOURS[1 + number % (len(COLOURS) - 1)]
        stamps, score, value, expected = (np.asarray(rows[n]) for n in ("timestamp", "score", "value", "expected"))
        above.plot(
            stamps, np.where(np.isnan(value), expected, value), linestyle="none", markersize=5,
            marker=_MARKERS.get(str(kind), "X"), color=colour, label=str(kind), zorder=4,
        )  # fmt: skip
        below.vlines(stamps, 0, score, color=colour, linewidth=1.2)
    below.plot(times, frame["score"], color=OBSERVED, linewidth=0.6)
    below.axhline(-np.log10(rate), color=MARK, linewidth=1.0, linestyle=DASHES)  # pyright: ignore[reportArgumentType]
    judged = frame["tail"].notna().to_numpy()
    if judged.any() and not judged[0]:
        for axis in (above, below):
            axis.axvspan(times[0], times[judged.argmax()], color="#F2F2F2", zorder=0)
        below.annotate("learnt from", (times[0], 1), xycoords=("data", "axes fraction"), xytext=(3, -10),  # pyright: ignore[reportArgumentType]
                       textcoords="offset points", fontsize=8)  # fmt: skip
    above.set_ylabel(label)
    below.set_ylabel("-log10 tail")
    below.set_ylim(bottom=0)
    for axis in (above, below):
        style_axis(axis)
    date_axis(below)
    below.set_xlim(times[0], times[-1])
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    figure.suptitle(title or f"{frame['item_id'].iloc[0] or 'series'}: anomalies", fontsize=11)
    return figure
