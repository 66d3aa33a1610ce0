"""Figures of decisions."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsforecast.plots.style import COLOURS, DASHES, OBSERVED, style_axis


def plot_regret(agents: Mapping[str, pd.DataFrame], *, title: str | None = None, change: int | None = None) -> Figure:
    """Draws cumulative regret against rounds: the mean over runs, and a band from the 10 % to the 90 % quantile.

    Args:
        agents: Name -> table with columns `run`, `round` and `regret`, which is cumulative.
        title: Title.
        change: Round in which the best arms change.

    Raises:
        ValueError: If a column is missing.
    """
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axis = figure.subplots()
    for number, (name, table) in enumerate(agents.items()):
        if missing := {"run", "round", "regret"} - set(table.columns):
            raise ValueError(f"expected columns run, round and regret, but {', '.join(sorted(missing))} are missing")
        runs = table.pivot(index="round", columns="run", values="regret")
        rounds, values = runs.index.to_numpy() + 1, runs.to_numpy()
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(rounds, values.mean(1), color=colour, linewidth=1.8, label=name)
        if values.shape[1] > 1:
            low, high = np.quantile(values, (0.1, 0.9), axis=1)
            axis.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
    if change is not None:
        axis.axvline(change, color=OBSERVED, linewidth=0.8, linestyle=DASHES, label="best arms change")
    style_axis(axis)
    axis.set(xlabel="round", ylabel="cumulative regret")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure
