"""Tables of effects: by step, on average and in total."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.analysis.interventions import Case

ALL = "(all)"  # in place of the name of a series


@dataclasses.dataclass(frozen=True)
class Sums:
    """Sums over the steps of each intervention that have a value.

    Attributes:
        actual: What came, (case,).
        without: Paths of what would have been, (case, sample).
        count: Steps that have a value, (case,).
    """

    actual: NDArray[np.float64]
    without: NDArray[np.float64]
    count: NDArray[np.int64]


def labelled(cases: Sequence[Case], first: int, steps: int) -> dict[str, Any]:
    """Return the columns that name a series, an intervention and a step.

    Args:
        cases: A row for each of them and each step.
        first: The first of the steps.
        steps: Their number.
    """
    return {
        "item_id": np.repeat([case.item for case in cases], steps),
        "intervention": np.repeat([case.number for case in cases], steps),
        "timestamp": np.concatenate([case.stamps(first, steps) for case in cases]),
    }


def tables_of(
    cases: Sequence[Case], actual: NDArray[np.float64], without: NDArray[np.float64], level: float
) -> tuple[pd.DataFrame, Sums]:
    """Return effects by step, and the sums over the steps.

    Args:
        cases: Some, with the same steps.
        actual: What came, (series, step), NaN where missing.
        without: Paths of what would have been, (series, sample, step).
        level: Of intervals.
    """
    seen = ~np.isnan(actual)
    ends = ((1 - level) / 2, (1 + level) / 2)
    rows = labelled(cases, cases[0].before, cases[0].horizon) | {"actual": actual.ravel()}
    low, high = np.quantile(without, ends, axis=1)
    mean = without.mean(1)
    for name, draws in (("predicted", (mean, low, high)), ("effect", (actual - mean, actual - high, actual - low))):
        rows |= dict(zip((name, f"{name}_lower", f"{name}_upper"), (x.ravel() for x in draws), strict=True))
    held = without if seen.all() else np.where(seen[:, None], without, 0.0)
    sums, came = held.cumsum(2), np.nan_to_num(actual).cumsum(1)
    low, high = np.quantile(sums, ends, axis=1)
    for end, x in (("", sums.mean(1)), ("_lower", high), ("_upper", low)):
        rows[f"cumulative{end}"] = (came - x).ravel()
    return pd.DataFrame(rows), Sums(came[:, -1], sums[:, :, -1], seen.sum(1))


def summary_of(items: Sequence[str], numbers: Sequence[int], sums: Sums, level: float) -> pd.DataFrame:
    """Return averages and totals over the steps that have a value.

    Args:
        items: Name of each row.
        numbers: Its intervention.
        sums: A row for each.
        level: Of intervals.
    """
    ends = ((1 - level) / 2, (1 + level) / 2)
    difference = sums.actual[:, None] - sums.without
    above = (1 + (difference <= 0).sum(1)) / (1 + difference.shape[1])
    below = (1 + (difference >= 0).sum(1)) / (1 + difference.shape[1])
    tables = []
    for measure, unit in (("average", sums.count), ("cumulative", np.ones_like(sums.count))):
        rows: dict[str, Any] = {
            "item_id": items,
            "intervention": numbers,
            "measure": measure,
            "actual": sums.actual / unit,
        }
        for name, draws in (("predicted", sums.without), ("effect", difference)):
            low, high = np.quantile(draws, ends, axis=1)
            parts = {"": draws.mean(1), "_sd": draws.std(1), "_lower": low, "_upper": high}
            rows |= {name + end: value / unit for end, value in parts.items()}
        # Of the same row: so an effect and its share have the same sign.
        with np.errstate(divide="ignore", invalid="ignore"):
            rows |= {f"relative{end}": rows[f"effect{end}"] / np.abs(rows["predicted"]) for end in parts}
        tables.append(pd.DataFrame(rows | {"tail": np.minimum(above, below)}))
    both = pd.concat(tables, keys=range(2))
    return both.swaplevel().sort_index(kind="stable").reset_index(drop=True)


def together(items: Sequence[str], sums: Sums, level: float) -> pd.DataFrame:
    """Return the overall effects: of all interventions of each series, and of all series.

    Paths of different interventions are added draw by draw, as independent.

    Args:
        items: Name of each row.
        sums: A row for each intervention of each series.
        level: Of intervals.
    """
    names = [*dict.fromkeys(items)]
    groups = [np.flatnonzero(np.asarray(items) == name) for name in names]
    kept = [(name, rows) for name, rows in zip(names, groups, strict=True) if len(rows) > 1]
    if len(names) > 1:
        kept.append((ALL, np.arange(len(items))))
    if not kept:
        return pd.DataFrame()
    added = Sums(
        *(np.stack([part[rows].sum(0) for _, rows in kept]) for part in (sums.actual, sums.without, sums.count))
    )
    table = summary_of([name for name, _ in kept], [len(rows) for _, rows in kept], added, level)
    return table.rename(columns={"intervention": "interventions"})
