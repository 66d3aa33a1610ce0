"""The picture of `page.py`: what each agent earned, and how long a round took."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from tsforecast.plots.style import COLOURS, OBSERVED, style_axis

PANELS = ("adult", "covertype", "shuttle", "mushroom")
LABELLED = ["adult", "covertype", "shuttle"]  # with published rewards; by these agents are ordered
FAMILIES = {
    "linear or logistic": ("linear", "linucb", "linear-greedy", "adf", "laplace", "fab-cost", "ep"),
    "belief over a network": ("vd-ekf", "lofi", "lofi-ucb", "lofi-greedy", "ekf", "iterated-ekf", "wolf-ekf",
                              "decoupled-ekf", "subspace-svd", "subspace-random", "subspace-svd-diagonal"),
    "network trained again": ("neural-greedy", "neural-linear", "neural-linear-limited", "neural-ts", "neural-ucb",
                              "lim2"),
    "several networks": ("bootstrap", "dropout", "stein", "stein-svgd"),
    "others": ("ogd", "vw --epsilon 0.05", "vw --bag 5", "vw --squarecb"),
}  # fmt: skip
_PUBLISHED = "published"
_FACTS = ["reward", "sd", "milliseconds"]


def _rows(frame: pd.DataFrame, published: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return mean, standard deviation and milliseconds by agent and set; published ones beside them."""
    families = {row: family for family, rows in FAMILIES.items() for row in rows}
    own = frame.loc[frame["data"].isin(PANELS) & frame["row"].isin(list(families))]
    groups = own.groupby(["row", "data"])
    found = groups.agg(reward=("reward", "mean"), sd=("reward", "std"), milliseconds=("milliseconds", "mean"))
    found = found.reset_index()
    found["family"] = found["row"].map(families)
    others = []
    for who, cells in published.items():
        for name, cell in cells.items():
            mean, _, sd = cell.replace(")", "").partition(" (")
            others.append({"row": f"{who}, published" if sd else who, "data": name, "reward": float(mean)})
            others[-1] |= {"sd": float(sd) if sd else np.nan, "family": _PUBLISHED}
    return pd.concat([found, pd.DataFrame(others)])


def draw(frame: pd.DataFrame, published: Mapping[str, Mapping[str, str]]) -> Figure:
    """Return dots for the mean reward of each agent, bars of a standard deviation, and milliseconds of a round.

    Args:
        frame: Rows of the table, of as many rounds and with an honest warm-up.
        published: Reward by who has published it and by set, as `mean (sd)`.
    """
    rows = _rows(frame, published)
    means = rows.loc[rows["data"].isin(LABELLED)].pivot(index="row", columns="data", values="reward").dropna()
    order = [str(name) for name in (means / means.max()).mean(axis=1).sort_values().index]
    colours = dict(zip([*FAMILIES, _PUBLISHED], [*COLOURS[:5], OBSERVED], strict=True))
    figure = Figure(figsize=(10.5, 0.22 * len(order) + 1.4), layout="constrained")
    axes = figure.subplots(1, len(PANELS) + 1, sharey=True)
    for place, name in enumerate(order):
        own = rows.loc[rows["row"] == name].set_index("data")
        colour = colours[own["family"].iloc[0]]
        style = {"color": colour, "marker": "D" if colour == OBSERVED else "o", "markersize": 4}
        for axis, data in zip(axes, PANELS, strict=False):
            mean, sd = (own[fact].get(data, np.nan) for fact in _FACTS[:2])
            axis.plot([mean - sd, mean + sd], [place, place], color=colour, linewidth=1.2, alpha=0.6)
            axis.plot(mean, place, **style)
        axes[-1].plot(own["milliseconds"].mean(), place, **style)
    axes[-1].set_xscale("log")
    axes[-1].set_xticks(ticks := [0.3, 1.0, 3.0, 10.0, 30.0], [f"{tick:g}" for tick in ticks])
    axes[-1].xaxis.set(minor_locator=NullLocator(), minor_formatter=NullFormatter())
    axes[0].set_yticks(range(len(order)), order)
    for axis, title in zip(axes, (*(f"{name}: reward" for name in PANELS), "milliseconds a round"), strict=True):
        axis.set_title(title, loc="left", fontsize=9)
        axis.margins(y=0.02)
        style_axis(axis)
    handles = [Line2D([], [], color=colour, marker="o", linestyle="", label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    return figure
