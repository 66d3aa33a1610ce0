"""Scores of forecasts of series with clocks of their own, and baselines of such forecasts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.irregular import in_words
from tsforecast.data.task import ForecastTask
from tsforecast.evaluation.metrics import LEVELS, Window
from tsforecast.evaluation.report import Evaluation
from tsforecast.evaluation.scores import Scores, Totals, scores_of, totals_of
from tsforecast.forecasting.predictor import StateSpacePredictor

# A past and times behind its end -> quantiles (level, time, target) at `LEVELS`.
Quantiles = Callable[[Mapping[str, Any], NDArray[np.int64]], NDArray[np.float64]]
_NEIGHBOURS = 200  # changes over about the same gap, from which persistence takes its distribution


def evaluate_timed(
    predictor: StateSpacePredictor, task: ForecastTask, model: str, with_baselines: bool = True
) -> Evaluation:
    """Return scores of a model and of baselines on the test windows of series with clocks of their own."""
    pairs = task.timed_test()
    answers = (forecast.quantiles(LEVELS) for forecast in predictor.on_clock.forecast_windows(pairs))
    scores = {model: {"rolling": score_timed(pairs, answers)}}
    baselines: dict[str, Quantiles] = {"last_value": last_value(task), "whole_past": whole_past}
    for name, quantiles in baselines.items() if with_baselines else ():
        found = score_timed(pairs, (quantiles(past, label["times"]) for past, label in pairs))
        scores[name] = {"rolling": found}
    return Evaluation(task.name, model, scores, {}, horizon=in_words(task.prediction_length))


def score_timed(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], answers: Iterable[NDArray[np.float64]]
) -> Scores:
    """Score quantiles at `LEVELS`, (level, time, target), of the labels of test windows."""

    def windows() -> Iterator[tuple[str, pd.Timestamp, Totals]]:
        for (_, label), quantiles in zip(pairs, answers, strict=True):
            values = np.atleast_2d(label["target"])
            seen, unknown = np.isfinite(values), np.full((len(values), 1), np.nan)
            window = Window(np.where(seen, values, 0.0), seen, np.swapaxes(quantiles, 1, 2), None, True, unknown)
            own = totals_of(window)
            whole = replace(own, cells=own.cells.sum(-1, keepdims=True))  # windows have different numbers of times
            start = pd.Timestamp(int(label["times"][0]))
            assert isinstance(start, pd.Timestamp)
            yield str(label["item_id"]), start, whole

    return scores_of(windows())


def last_value(task: ForecastTask) -> Quantiles:
    """Return persistence: the last value, plus changes of the training part over about the same time."""
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
