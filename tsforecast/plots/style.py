"""The look of figures: colours, axes, dates and marks; and their writing to files."""

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from tsforecast.io.files import replace_file

OBSERVED = "#000000"
MODEL = "#0072B2"
COLOURS = (MODEL, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = "osD^vPX"
DASHES = (0, (4, 3))
MARK = "#A50026"
LEARNING = "#D55E00"  # of models that go on learning
# Every model has one colour in all figures, whatever stands beside it. Baselines have muted ones.
MODEL_COLOURS = {
    "bank": "#004D40", "issm": MODEL, "gls": "#009E73", "deepstate": "#E69F00", "sgls": "#CC79A7", "rsgls": "#56B4E9",
    "rsgls-issm": "#882255", "arsgls": "#999933", "kvae-rb": "#332288", "kvae-mc": "#117733", "pool": "#AA4499",
    "markov": "#44AA99",
    "seasonal_naive": "#7F7F7F", "random_walk": "#B8B8B8", "empirical_seasonal": "#A6761D",
    "empirical_random_walk": "#6B4C3B", "auto_ets": "#C49A6C", "auto_theta": "#9DB17C", "mstl": "#8FA3BF",
    "auto_arima": "#B38CB4", "deepar": "#D98880",
}  # fmt: skip
_OTHERS = tuple(colour for colour in COLOURS if colour != LEARNING)
_LINES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))  # of several runs of one model


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> Path:
    """Writes a figure in the format of the file's suffix (png, svg, pdf), whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, facecolor="white")
    return path


def colour_of(model: str) -> str:
    """The colour of a model or baseline in every figure.

    Args:
        model: Its name. With a season or number of epochs (`auto_ets-168`) it has the colour of the baseline; with a
            learner (`issm+lofi`), the colour of all models that go on learning. Other names have a colour that depends
            on them alone.
    """
    if "+" in model:
        return LEARNING
    for name in (model, model.rpartition("-")[0]):
        if name in MODEL_COLOURS:
            return MODEL_COLOURS[name]
    return _OTHERS[zlib.crc32(model.encode()) % len(_OTHERS)]


def line_styles(labels: Iterable[str], models: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Colours and dashes of the lines of models, as keywords of matplotlib; lines of one colour differ in dashes."""
    styles, used = {}, dict[str, int]()
    for label in labels:
        colour = colour_of((models or {}).get(label, label))
        count = used.get(colour, 0)
        used[colour] = count + 1
        styles[label] = {"color": colour, "linestyle": _LINES[count % len(_LINES)]}
    return styles


def tint(colour: str, white: float) -> str:
    """A colour mixed with white, opaque."""
    red, green, blue = (white + (1 - white) * part for part in to_rgb(colour))
    return to_hex((red, green, blue))


def measured(name: str, unit: str) -> str:
    """The name and unit of a quantity, as the label of an axis; empty where neither is known."""
    return f"{name} ({unit})" if name and unit else name or unit


def draw_band(axis: Axes, times: Any, mean: NDArray[np.float64], std: NDArray[np.float64], *, colour: str) -> None:
    """A mean, and two standard deviations around it."""
    axis.fill_between(times, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.25, linewidth=0)
    axis.plot(times, mean, color=colour, linewidth=1.0)


def draw_observed(axis: Axes, times: Any, observed: pd.Series, label: str) -> None:
    """Draw a series of observations, with a label beside the axis."""
    marker = lone_marker(observed)
    axis.plot(times, observed.to_numpy(np.float64), color=OBSERVED, linewidth=0.7, marker=marker, markersize=2)
    axis.set_ylabel(label)


def draw_marks(axis: Axes, marks: Mapping[str, pd.Timestamp], times: Any, *, named: bool = True) -> None:
    """Marks dates by vertical lines; those outside the times shown are left out."""
    limits = axis.get_xlim()
    for name, date in marks.items():
        at = date.to_datetime64()
        if not times[0] <= at <= times[-1]:
            continue
        axis.axvline(at, color=MARK, linewidth=1.0, linestyle=DASHES, zorder=5)  # pyright: ignore[reportArgumentType]
        if named:
            late = at > times[0] + (times[-1] - times[0]) * 0.85
            axis.annotate(
                name, (at, 1), xycoords=("data", "axes fraction"), xytext=(-3 if late else 3, -2),  # pyright: ignore[reportArgumentType]
                textcoords="offset points", ha="right" if late else "left", va="top", fontsize=8, color=MARK,
                bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.8}, zorder=6,
            )  # fmt: skip
    axis.set_xlim(limits)


def timestamps(index: pd.Index) -> NDArray[Any]:
    """Return timestamps for matplotlib; periods become their starts."""
    return (index.to_timestamp() if isinstance(index, pd.PeriodIndex) else pd.DatetimeIndex(index)).to_numpy()


def lone_marker(values: ArrayLike) -> str | None:
    """A marker if observations have gaps: a line alone does not show a value between two missing ones."""
    return "." if np.isnan(np.asarray(values, np.float64)).any() else None


def date_axis(axis: Axes) -> None:
    """Few dates, as short as they are clear."""
    locator = mdates.AutoDateLocator(minticks=3, maxticks=7)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    axis.xaxis.get_offset_text().set_fontsize(8)


def style_axis(axis: Axes) -> None:
    """Light lines behind, none above and at the right."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    axis.xaxis.label.set_fontsize(9)
    axis.yaxis.label.set_fontsize(9)
