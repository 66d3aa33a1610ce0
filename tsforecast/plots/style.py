"""What figures look like: colours, axes, dates; and how they are written."""

from pathlib import Path
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from tsforecast.data.files import replace_file

OBSERVED = "#000000"
MODEL = "#0072B2"
COLOURS = (MODEL, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
MARKERS = "osD^vPX"
DASHES = (0, (4, 3))


def save_figure(figure: Figure, path: str | Path, *, dpi: int = 150) -> Path:
    """Writes a figure in the format of the file's suffix (png, svg, pdf), whole or not at all."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, facecolor="white")
    return path


def draw_band(axis: Axes, times: Any, mean: NDArray[np.float64], std: NDArray[np.float64], *, colour: str) -> None:
    """A mean, and two standard deviations around it."""
    axis.fill_between(times, mean - 2 * std, mean + 2 * std, color=colour, alpha=0.25, linewidth=0)
    axis.plot(times, mean, color=colour, linewidth=1.0)


def timestamps(index: pd.Index) -> NDArray[Any]:
    """As matplotlib takes them, of periods their starts."""
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
