"""Names of regimes by their noise, level and persistence."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.analysis.regimes import RegimeReport

_NUMBERS = ("share", "level", "noise", "persistence")
_UNVISITED = 1e-3  # share of time
# Differences from the mean over regimes that are worth a word: of log noises, of levels, of persistences.
_WORDS = {
    "noise": (0.2, "calm", "wild"),
    "level": (0.5, "low", "high"),
    "persistence": (0.1, "reverting", "persistent"),
}


def describe(regimes: pd.DataFrame, entries: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return noise, level and persistence of each regime, with its name.

    `share` is that of the time. The others are of values in standard deviations of their series, weighed by the
    probabilities of the regime. `level` is their mean, `persistence` the coefficient of the value before in a
    regression, and `noise` the deviation of its residuals. A name has a word for what sets a regime apart from the mean
    over regimes, such as "calm, high, persistent".

    Args:
        regimes: Table of `RegimeReport`.
        entries: The same series; of several targets the first is read.
    """
    weights = regimes.filter(regex=r"^p_\d+$").to_numpy()
    values, before = np.full(len(regimes), np.nan), np.full(len(regimes), np.nan)
    first = 0
    for entry in entries:
        target = np.atleast_2d(np.asarray(entry["target"], np.float64))[0]
        steps = len(target)
        if "times" not in entry:  # a table has the last steps of a series on a grid
            steps = int((regimes["item_id"] == entry.get("item_id")).sum())
        own = _standard(target[len(target) - steps :])
        values[first : first + steps], before[first + 1 : first + steps] = own, own[:-1]
        first += steps
    seen = np.isfinite(values) & np.isfinite(before)
    rows = [_row(values[seen], before[seen], weight) for weight in weights[seen].T]
    table = pd.DataFrame(rows).assign(share=weights.mean(0))
    regime = np.arange(1, len(table) + 1)
    return pd.DataFrame({"regime": regime, "name": _names(table), **{name: table[name] for name in _NUMBERS}})


def named(report: RegimeReport, table: pd.DataFrame) -> RegimeReport:
    """Return a report with the names of regimes beside their numbers.

    Args:
        report: Gets the columns `name`, and of changes `before_name` and `after_name`.
        table: From `describe`.
    """
    names = dict(zip(table["regime"], table["name"], strict=True))

    def add(frame: pd.DataFrame, **columns: str) -> pd.DataFrame:
        return frame.assign(**{new: frame[old].map(lambda number: names[number]) for new, old in columns.items()})

    return replace(
        report,
        regimes=add(report.regimes, name="most_likely"),
        changes=add(report.changes, before_name="before", after_name="after"),
        ahead=add(report.ahead, name="most_likely"),
    )


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return values from their mean, in standard deviations; a constant series has zeros."""
    seen = values[np.isfinite(values)]
    if not len(seen):
        return values
    return (values - seen.mean()) / (seen.std() or 1.0)


def _row(values: NDArray[np.float64], before: NDArray[np.float64], weight: NDArray[np.float64]) -> dict[str, float]:
    """Return level, noise and persistence of the steps of a regime, each with its probability."""
    total = weight.sum()
    if total <= _UNVISITED * max(len(values), 1):
        return {"level": np.nan, "noise": np.nan, "persistence": np.nan}
    level, earlier = (float(weight @ x / total) for x in (values, before))
    moved = float(weight @ (before - earlier) ** 2)
    slope = float(weight @ ((before - earlier) * (values - level))) / moved if moved > 0 else 0.0
    residual = values - level - slope * (before - earlier)
    return {"level": level, "noise": float(np.sqrt(weight @ residual**2 / total)), "persistence": slope}


def _names(table: pd.DataFrame) -> list[str]:
    """Return a name for each regime; those that are alike have their number behind it."""
    sizes = table.assign(noise=np.log(table["noise"].clip(lower=1e-12)))
    words: list[list[str]] = [[] for _ in range(len(table))]
    for column, (least, low, high) in _WORDS.items():
        apart = sizes[column] - sizes[column].mean()
        for own, value in zip(words, apart, strict=True):
            own += [low] if value < -least else [high] if value > least else []
    unvisited = table["share"] < _UNVISITED
    names = ["unvisited" if never else ", ".join(own) or "usual" for own, never in zip(words, unvisited, strict=True)]
    return [f"{name} ({k})" if names.count(name) > 1 else name for k, name in enumerate(names, 1)]
