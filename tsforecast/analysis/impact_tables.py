"""Tables of effects: by step, on average and in total."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.analysis.interventions import Case


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
    cases: Sequence[Case],
    actual: NDArray[np.float64],
    would: NDArray[np.float64],
    level: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return effects by step, and their summary.

    Args:
        cases: Some, with the same steps.
        actual: What came, (series, step), NaN where missing.
        would: Paths of what would have been, (series, sample, step).
        level: Of intervals.
    """
    seen = ~np.isnan(actual)
    ends = ((1 - level) / 2, (1 + level) / 2)
    rows = labelled(cases, cases[0].before, cases[0].horizon) | {"actual": actual.ravel()}
    low, high = np.quantile(would, ends, axis=1)
    mean = would.mean(1)
    for name, draws in (("predicted", (mean, low, high)), ("effect", (actual - mean, actual - high, actual - low))):
        rows |= dict(zip((name, f"{name}_lower", f"{name}_upper"), (x.ravel() for x in draws), strict=True))
    held = would if seen.all() else np.where(seen[:, None], would, 0.0)
    sums, came = held.cumsum(2), np.nan_to_num(actual).cumsum(1)
    low, high = np.quantile(sums, ends, axis=1)
    for end, x in (("", sums.mean(1)), ("_lower", high), ("_upper", low)):
        rows[f"cumulative{end}"] = (came - x).ravel()
    return pd.DataFrame(rows), _summary(cases, actual, sums[:, :, -1], seen.sum(1), ends)


def _summary(
    cases: Sequence[Case],
    actual: NDArray[np.float64],
    without: NDArray[np.float64],
    count: NDArray[np.int64],
    ends: tuple[float, float],
) -> pd.DataFrame:
    """Return averages and totals over the steps of each intervention that have a value.

    Args:
        cases: Some, with the same steps.
        actual: What came, (series, step), NaN where missing.
        without: Paths of its sum as it would have been, (series, sample).
        count: Steps that have a value.
        ends: Levels of intervals.
    """
    total = np.nansum(actual, axis=1)
    difference = total[:, None] - without
    with np.errstate(divide="ignore", invalid="ignore"):
        share = difference / np.abs(without)
    above = (1 + (without >= total[:, None]).sum(1)) / (1 + without.shape[1])
    below = (1 + (without <= total[:, None]).sum(1)) / (1 + without.shape[1])
    tables = []
    for measure, unit in (("average", count), ("cumulative", np.ones_like(count))):
        rows: dict[str, Any] = {
            "item_id": [case.item for case in cases],
            "intervention": [case.number for case in cases],
            "measure": measure,
            "actual": total / unit,
        }
        parts = {"predicted": without / unit[:, None], "effect": difference / unit[:, None], "relative": share}
        for name, draws in parts.items():
            low, high = np.quantile(draws, ends, axis=1)
            rows |= {name: draws.mean(1), f"{name}_sd": draws.std(1), f"{name}_lower": low, f"{name}_upper": high}
        tables.append(pd.DataFrame(rows | {"tail": np.minimum(above, below)}))
    both = pd.concat(tables, keys=range(2))
    return both.swaplevel().sort_index(kind="stable").reset_index(drop=True)
