"""The figure of the returns of policies."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tsforecast.plots.style import COLOURS, OBSERVED, style_axis


def plot_returns(table: pd.DataFrame, *, title: str | None = None) -> Figure:
    """Draws the returns of policies against iterations: each of them, their mean, and the best of the last tenth.

    Args:
        table: Columns `iteration`, `policy` and `returned`, the mean return of a policy's episodes.
        title: Title.

    Raises:
        ValueError: If a column is missing.
    """
    if missing := {"iteration", "policy", "returned"} - set(table.columns):
        raise ValueError(
            f"expected columns iteration, policy and returned, but there is no {', '.join(sorted(missing))}"
        )
    every = table.pivot(index="iteration", columns="policy", values="returned")
    iterations, values = every.index.to_numpy() + 1, every.to_numpy()
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axis = figure.subplots()
    if values.shape[1] > 1:
        axis.plot(iterations, values, color=OBSERVED, linewidth=0.7, alpha=0.35)
        axis.lines[0].set_label("each policy")
        best = values[-max(len(values) // 10, 1) :].mean(0).argmax()
        axis.plot(iterations, values[:, best], color=COLOURS[1], linewidth=1.4, label="best in the last tenth")
    label = "mean of the policies" if values.shape[1] > 1 else "the policy"
    axis.plot(iterations, values.mean(1), color=COLOURS[0], linewidth=2.0, label=label)
    style_axis(axis)
    axis.set(xlabel="iteration", ylabel="return of an episode")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, fontsize=8, loc="best")
    if title:
        axis.set_title(title, loc="left", fontsize=11)
    return figure
