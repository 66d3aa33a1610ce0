"""Figures of the effects of covariates."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsforecast.plots.style import COLOURS, DASHES, MODEL, OBSERVED, style_axis
from tsforecast.wording import shortened

_HOURS, _ACROSS = 4, 3  # lines of a panel; panels of a row


def plot_curves(frame: pd.DataFrame, *, lost: pd.DataFrame | None = None, most: int = 12) -> Figure:
    """Draw the curve of each covariate with its interval, and some hours of the day.

    Args:
        frame: Rows that `tsforecast.analysis.drivers.effect_curves` has returned; those of all series are drawn.
        lost: What `tsforecast.analysis.drivers.importance` has returned, whose order and shares are told.
        most: Covariates that are drawn, the first ones.
    """
    shared = frame[frame["item_id"] == ""]
    if not len(shared):
        raise ValueError("expected the curve of at least one covariate, got none")
    assert isinstance(shared, pd.DataFrame)
    names = [*dict.fromkeys(shared["covariate"] if lost is None else lost["covariate"])]
    names = [name for name in names if (shared["covariate"] == name).any()][:most]
    across = min(len(names), _ACROSS)
    down = -(-len(names) // across)
    figure = Figure(figsize=(max(3.6 * across, 5.0), 0.8 + 2.7 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes, names, strict=False):
        own = shared[shared["covariate"] == name]
        hour = np.asarray(own["hour"], np.float64)
        mean = own[np.isnan(hour)]
        axis.fill_between(mean["value"], 100 * mean["lower"], 100 * mean["upper"], color=MODEL, alpha=0.2, linewidth=0)
        axis.plot(mean["value"], 100 * mean["effect"], color=MODEL, label="mean")
        hours = np.unique(hour[~np.isnan(hour)])
        for number, one in enumerate(hours[:: max(len(hours) // _HOURS, 1)][:_HOURS]):
            at = own[hour == one]
            colour = COLOURS[(number + 1) % len(COLOURS)]
            axis.plot(
                at["value"], 100 * at["effect"], color=colour, linestyle=DASHES, linewidth=0.9, label=f"{one:g} h"
            )
        axis.axhline(0.0, color=OBSERVED, linewidth=0.8)
        axis.set_title(_title(name, lost), loc="left", fontsize=9)
        style_axis(axis)
    axes[0].legend(frameon=False, fontsize=7)
    figure.supylabel("change of a value of mean size, %", fontsize=9)
    figure.suptitle("What covariates do: mean and interval of 80 %", fontsize=11)
    return figure


def _title(name: str, lost: pd.DataFrame | None) -> str:
    """Return a covariate with what a forecast loses without it."""
    if lost is None:
        return shortened(name, 30)
    share = dict(zip(lost["covariate"], lost["lost"], strict=True))[name]
    return f"{shortened(name, 24)}: without it the loss changes by {100 * share:+.1f} %"
