"""Forecasts of a hierarchy that add up, path by path: joint forecasts of all nodes, given that sums are sums.

Every node has a forecast of its own. Their joint distribution has these as marginals and a Gaussian copula: errors of
windows before the end say how nodes move together, and how steps of the horizon do. Conditioning then maps each joint
path to one that adds up. Quantiles of sums are no sums of quantiles; paths are sums of paths.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast, SampleForecast
from numpy.typing import NDArray
from scipy import special

from tsforecast.data.hierarchy import Hierarchy
from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.data.tables.naming import CELLS
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.reconciliation import Correlation, SumConditioning, shrunk

log = logging.getLogger(__name__)

_SCORES = np.array([-3.0, -2.5, -2.0, -1.5, -1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0])
_LEVELS = tuple(special.ndtr(_SCORES).tolist())
_BATCH = 256  # forecasts that are asked at once
_WINDOWS, _LEAST_WINDOWS = 12, 3
_FORECASTS = 20_000  # of windows, at most, but for the least number of windows
_VALUES = 30_000_000  # of all paths, at most
_PATHS = (100, 1000)
_ROUNDS = 5  # between paths that are not negative and those that add up

Array = NDArray[np.float64]
Predict = Callable[[list[dict[str, Any]]], Iterable[Forecast]]


@dataclass(frozen=True, eq=False)
class Marginals:
    """Forecasts of all nodes, each alone.

    Attributes:
        mean: Of shape (node, step).
        quantiles: At the standard normal scores `_SCORES`, (node, step, score).
    """

    mean: Array
    quantiles: Array

    @classmethod
    def of(cls, forecasts: Sequence[Forecast]) -> "Marginals":
        """Return those of forecasts of one target."""
        parts = [np.stack([forecast_quantiles(one, _LEVELS) for one in chunk]) for chunk in batcher(forecasts, _BATCH)]
        mean = np.stack([np.asarray(one.mean, np.float64) for one in forecasts])
        return cls(mean, np.maximum.accumulate(np.concatenate(parts).swapaxes(1, 2), axis=2))

    @property
    def deviations(self) -> Array:
        """Return half the distances between the quantiles one standard deviation below and above, (node, step)."""
        low, high = (int(np.searchsorted(_SCORES, score)) for score in (-1.0, 1.0))
        return 0.5 * (self.quantiles[..., high] - self.quantiles[..., low])

    def values(self, step: int, scores: Array) -> Array:
        """Return the values of a step at standard normal scores (node, sample), with straight tails."""
        known = self.quantiles[:, step]
        place = np.clip(np.searchsorted(_SCORES, scores) - 1, 0, len(_SCORES) - 2)
        share = (scores - _SCORES[place]) / np.diff(_SCORES)[place]
        low, high = (np.take_along_axis(known, k, axis=1) for k in (place, place + 1))
        return low + share * (high - low)

    def scores(self, actual: Array) -> Array:
        """Return the standard normal scores of values (node, step); NaN of missing ones."""
        found = np.full(actual.shape, np.nan)
        for place in zip(*np.nonzero(~np.isnan(actual)), strict=True):
            found[place] = _score(self.quantiles[place], actual[place])
        return found


def _score(known: Array, value: float) -> float:
    """Return the score of a value among rising quantiles; the middle one where several are equal."""
    ends = np.searchsorted(known, value, "left"), np.searchsorted(known, value, "right")
    if ends[0] < ends[1]:
        return float(0.5 * (_SCORES[ends[0]] + _SCORES[ends[1] - 1]))
    place = int(np.clip(ends[0] - 1, 0, len(known) - 2))
    width = known[place + 1] - known[place]
    if width <= 0:  # beyond a distribution that ends there
        return float(_SCORES[0] if ends[0] == 0 else _SCORES[-1])
    share = (value - known[place]) / width
    return float(np.clip(_SCORES[place] + share * (_SCORES[place + 1] - _SCORES[place]), -5.0, 5.0))


def window_scores(predict: Predict, task: ForecastTask) -> Array:
    """Return the standard normal scores of what came after windows before the end, (window, node, step).

    Args:
        predict: Returns a forecast for each entry.
        task: Nodes that end together.
    """
    horizon, lengths = task.prediction_length, [entry["target"].shape[-1] for entry in task.entries]
    room = int(np.median(lengths)) - 2 * horizon  # windows begin with a horizon of history at least
    count = min(max(_FORECASTS // len(lengths), _LEAST_WINDOWS), _WINDOWS, max(room + 1, 0))
    stride = max(min(room // max(count - 1, 1), -(-horizon // 2)), 1)
    found = []
    for number in range(count):
        back = horizon + number * stride
        past = [
            {**entry, "target": entry["target"][..., : max(entry["target"].shape[-1] - back, 0)]}
            for entry in task.entries
        ]
        long = [k for k, entry in enumerate(past) if (~np.isnan(entry["target"])).sum() > 1]
        ahead = replace(task, entries=[past[k] for k in long]).latest
        marginals = Marginals.of(list(predict(ahead)))
        actual = np.stack([task.entries[k]["target"][len(past[k]["target"]) :][:horizon] for k in long])
        scores = np.full((len(lengths), horizon), np.nan)
        scores[long] = marginals.scores(np.asarray(actual, np.float64))
        found.append(scores)
    return np.stack(found) if found else np.full((0, len(lengths), horizon), np.nan)


def coherent_forecasts(
    predict: Predict,
    task: ForecastTask,
    tree: Hierarchy,
    num_samples: int | None = None,
    seed: int = 0,
) -> list[Forecast]:
    """Return forecasts of all sums and series of a hierarchy, with joint sample paths that add up.

    Args:
        predict: Returns a forecast for each entry.
        task: Of the nodes, as `find_hierarchy` gives it.
        tree: The hierarchy.
        num_samples: Number of paths; None for as many as there is room for, up to 1000.
        seed: Of the paths.
    """
    forecasts = list(predict(task.latest))
    marginals = Marginals.of(forecasts)
    scores = window_scores(predict, task)
    across = shrunk(scores.swapaxes(0, 1).reshape(len(forecasts), -1))[1]
    room = _VALUES // marginals.mean.size
    count = int(np.clip(room, *_PATHS)) if num_samples is None else num_samples
    positive = np.array([not (entry["target"] < 0).any() for entry in task.entries[-len(tree.bottoms) :]])
    paths = joint_paths(marginals, tree, across, _over_time(scores), count, positive, np.random.default_rng(seed))
    return _forecasts(forecasts, paths, tree)


def _over_time(scores: Array) -> Array:
    """Return the correlation of the steps of the horizon, the same for all nodes."""
    steps = scores.shape[2]
    rows = scores.reshape(-1, steps)
    rows = rows[~np.isnan(rows).any(1)]
    if len(rows) < 2:
        return np.eye(steps)
    found = shrunk(rows.T)[1]
    return np.diag(found.own) + found.common @ found.common.T


def joint_paths(
    marginals: Marginals,
    tree: Hierarchy,
    across: Correlation,
    over_time: Array,
    count: int,
    positive: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Array:
    """Return paths (sample, step, node) of sums that differ and of series, which add up.

    Args:
        marginals: Forecasts of the nodes.
        tree: The hierarchy.
        across: Correlation of the nodes.
        over_time: Correlation of the steps.
        count: Number of paths.
        positive: Series that must not become negative.
        rng: Draws the paths.
    """
    sums, deviations = tree.distinct, marginals.deviations
    steps = marginals.mean.shape[1]
    draws = np.einsum("hk,nks->nhs", np.linalg.cholesky(over_time), across.sample(count, steps, rng), optimize=True)
    middles = special.ndtri((np.arange(count) + 0.5) / count)
    paths = np.empty((count, steps, len(deviations)))
    below = 0
    for step in range(steps):
        # Ranks keep the dependence; evenly spaced scores have the marginals without the noise of draws.
        scores = middles[np.argsort(np.argsort(draws[:, step], axis=1), axis=1)]
        values = marginals.values(step, scores)
        values += marginals.mean[:, step, None] - values.mean(1, keepdims=True)
        given = SumConditioning(sums, deviations[:, step], across)
        series = given.series(values)
        low = (series < 0) & positive[:, None]
        below += int(low.sum())
        if low.any():
            series = _positive(given, sums, series, positive)
        paths[:, step] = np.concatenate([sums @ series, series]).T
    if below:
        log.info(
            "%.2f %% of the values of paths of series that were never negative would be below 0: they are 0, and "
            "others and the sums follow",
            100 * below / max(count * steps * int(positive.sum()), 1),
        )
    return paths


def _positive(given: SumConditioning, sums: Any, series: Array, positive: NDArray[np.bool_]) -> Array:
    """Return series (series, sample) without negative values, near those given and with nearly their sums."""
    totals, found = sums @ series, series.copy()
    for _ in range(_ROUNDS):
        own = np.flatnonzero(((found < 0) & positive[:, None]).any(0))
        if not len(own):
            return found
        part = np.where(positive[:, None], np.maximum(found[:, own], 0.0), found[:, own])
        found[:, own] = given.series(np.concatenate([totals[:, own], part]))
    return np.where(positive[:, None], np.maximum(found, 0.0), found)


def _forecasts(forecasts: Sequence[Forecast], paths: Array, tree: Hierarchy) -> list[Forecast]:
    """Return a forecast for each sum and series."""
    names = (*tree.aggregates, *tree.bottoms)
    parts = zip(names, tree.expanded(forecasts), tree.expanded([*paths.transpose(2, 0, 1)]), strict=True)
    found: list[Forecast] = []
    for name, like, own in parts:
        info = dict(like.info or {})
        if cells := tree.cells.get(name, info.get(CELLS)):  # as text, beside the word for all
            info[CELLS] = tuple(map(str, cells))
        found.append(SampleForecast(own, like.start_date, name, info or None))
    return found
