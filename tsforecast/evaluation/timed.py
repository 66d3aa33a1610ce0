"""Scores of forecasts of series with clocks of their own, and baselines of such forecasts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.task import ForecastTask
from tsforecast.evaluation import metrics
from tsforecast.evaluation.metrics import LEVELS, Window

# A past and times behind its end -> quantiles (level, time, target) at `LEVELS`.
Quantiles = Callable[[Mapping[str, Any], NDArray[np.int64]], NDArray[np.float64]]
_NEIGHBOURS = 200  # changes over about the same gap, from which persistence takes its distribution


@dataclass(frozen=True)
class TimedScores:
    """Scores of one model.

    Attributes:
        overall: Every metric of `METRICS` that needs no paths and no season, and the mean squared error of the median.
        per_series: The same by series.
    """

    overall: dict[str, float]
    per_series: pd.DataFrame


def score_timed(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], answers: Iterable[NDArray[np.float64]]
) -> TimedScores:
    """Score quantiles at `LEVELS` of the labels of test windows.

    Args:
        pairs: Past and label of each window, as `ForecastTask.timed_test` gives them.
        answers: Quantiles (level, time, target) of each.
    """
    rows: dict[str, NDArray[np.float64]] = {}
    squares: dict[str, NDArray[np.float64]] = {}
    for (_, label), quantiles in zip(pairs, answers, strict=True):
        values = np.atleast_2d(label["target"])
        seen = np.isfinite(values)
        time_last = np.swapaxes(quantiles, 1, 2)
        window = Window(np.where(seen, values, 0.0), seen, time_last, None, True, np.full((len(values), 1), np.nan))
        error = np.where(seen, time_last[LEVELS.index(0.5)] - values, 0.0)
        item = str(label["item_id"])
        sums = metrics.sums_of(window).sum(-1)
        rows[item] = rows.get(item, 0.0) + sums
        squares[item] = squares.get(item, 0.0) + np.array([(error**2).sum(), seen.sum()])
    stacked, squared = np.stack(list(rows.values()), axis=-1), np.stack(list(squares.values()))
    per_series = _kept(metrics.table(stacked, pd.Index(list(rows), name="item_id")))
    per_series["mse"] = squared[:, 0] / squared[:, 1]
    whole = _kept(metrics.table(stacked.sum(-1, keepdims=True), pd.Index(["all"]))).iloc[0].to_dict()
    return TimedScores({**whole, "mse": float(squared[:, 0].sum() / squared[:, 1].sum())}, per_series)


def _kept(table: pd.DataFrame) -> pd.DataFrame:
    kept = [m.name for m in metrics.METRICS if m.name not in ("mase", "crps_ensemble") and m.is_printed]
    return table.filter(items=kept)


def last_value(task: ForecastTask) -> Quantiles:
    """Return persistence: the last value, plus changes of the training part over about the same time.

    Args:
        task: Its training part is read.
    """
    changes: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    width = 1 if task.train[0]["target"].ndim == 1 else len(task.train[0]["target"])
    for target in range(width):
        gaps, moves = [], []
        for entry in task.train:
            times, values = entry["times"], np.atleast_2d(entry["target"])[target]
            for lag in {int(2**power) for power in range(int(np.log2(max(len(times), 2))))}:
                moves.append(values[lag:] - values[:-lag])
                gaps.append(times[lag:] - times[:-lag])
        gap, move = np.concatenate(gaps).astype(np.float64), np.concatenate(moves)
        known = np.isfinite(move)
        order = np.argsort(gap[known], kind="stable")
        changes[target] = gap[known][order], move[known][order]

    def answer(past: Mapping[str, Any], times: NDArray[np.int64]) -> NDArray[np.float64]:
        quantiles = np.empty((len(LEVELS), len(times), width))
        for target, values in enumerate(np.atleast_2d(past["target"])):
            gap, move = changes[target]
            last = int(np.flatnonzero(np.isfinite(values))[-1]) if np.isfinite(values).any() else None
            for k, time in enumerate(times):
                since = 0 if last is None else float(time - past["times"][last])
                middle = int(np.searchsorted(gap, since))
                first = min(max(middle - _NEIGHBOURS // 2, 0), max(len(gap) - _NEIGHBOURS, 0))
                near = move[first : first + _NEIGHBOURS]
                quantiles[:, k, target] = (0.0 if last is None else values[last]) + np.quantile(near, LEVELS)
        return quantiles

    return answer


def whole_past(past: Mapping[str, Any], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the quantiles of all values of the past, at every time."""
    values = np.atleast_2d(past["target"])
    rows = np.stack([np.quantile(row[np.isfinite(row)], LEVELS) for row in values], axis=-1)
    return np.repeat(rows[:, None], len(times), axis=1)


def timed_baselines(task: ForecastTask) -> dict[str, Quantiles]:
    """Return the baselines that every model should beat, by name."""
    return {"last_value": last_value(task), "whole_past": whole_past}
