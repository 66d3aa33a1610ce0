"""Forecasts of a hierarchy that add up, path by path: joint forecasts of all nodes, given that sums are sums.

Every node has a forecast of its own. Their joint distribution has these as marginals and a Gaussian copula: errors of
windows before the end say how nodes move together, and how steps of the horizon do. Conditioning then maps each joint
path to one that adds up. Quantiles of sums are no sums of quantiles; paths are sums of paths.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from gluonts.itertools import batcher
from gluonts.model.forecast import Forecast, SampleForecast
from numpy.typing import NDArray

from tsforecast.data.hierarchy import Hierarchy
from tsforecast.data.quantiles import forecast_quantiles
from tsforecast.data.tables.naming import CELLS
from tsforecast.data.task import ForecastTask
from tsforecast.forecasting.exact import ExactForecast, normal_scores
from tsforecast.forecasting.reconciliation import Correlation, SumConditioning, shrinkage, shrunk, unshrunk
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

_SCORES = np.array([-3.0, -2.5, -2.0, -1.5, -1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0])
_LEVELS = tuple(NormalDist().cdf(score) for score in _SCORES)
_BATCH = 256  # forecasts that are asked at once
_WINDOWS, _LEAST_WINDOWS = 12, 3
_FORECASTS = 20_000  # of windows, at most
_VALUES = 30_000_000  # of all paths, at most
_PATHS = (100, 1000)
_FARTHEST = 5.0  # score of a value that was not expected at all
_CHANGES = 500  # steps at the end whose changes are looked at

Array = NDArray[np.float64]
Predict = Callable[[list[dict[str, Any]]], Iterable[Forecast]]


@dataclass(frozen=True, eq=False)
class Marginals:
    """Forecasts of all nodes, each alone."""

    mean: Array  # of shape (node, step)
    quantiles: Array  # at the standard normal scores `_SCORES`, (node, step, score)

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
        """Return the values of a step at standard normal scores (node, sample), with straight tails and the mean.

        Values from 0 up are brought to the mean by a factor: what is 0 stays 0.
        """
        known = self.quantiles[:, step]
        place = np.clip(np.searchsorted(_SCORES, scores) - 1, 0, len(_SCORES) - 2)
        share = (scores - _SCORES[place]) / np.diff(_SCORES)[place]
        low, high = (np.take_along_axis(known, k, axis=1) for k in (place, place + 1))
        found = low + share * (high - low)
        mean, goal = found.mean(1, keepdims=True), self.mean[:, step, None]
        is_positive = (known[:, :1] >= 0) & (mean > 0)
        return np.where(is_positive, found * (goal / np.where(mean > 0, mean, 1.0)), found + goal - mean)


def _scores(forecasts: Sequence[Forecast], actual: Array) -> Array:
    """Return the standard normal scores of values (node, step) under forecasts; NaN of missing ones."""
    exact = [one for one in forecasts if isinstance(one, ExactForecast)]
    if len(exact) == len(forecasts):
        return np.clip(normal_scores(exact, actual), -_FARTHEST, _FARTHEST)
    known = Marginals.of(forecasts).quantiles
    below, upto = ((compared(known, actual[..., None])).sum(-1) for compared in (np.less, np.less_equal))
    # The middle one of equal quantiles, as where a distribution ends.
    middle = 0.5 * (_SCORES[np.minimum(below, len(_SCORES) - 1)] + _SCORES[np.maximum(upto - 1, 0)])
    place = np.clip(below - 1, 0, len(_SCORES) - 2)
    low, high = (np.take_along_axis(known, (place + k)[..., None], -1)[..., 0] for k in (0, 1))
    share = (actual - low) / np.where(high > low, high - low, np.inf)
    between = _SCORES[place] + share * np.diff(_SCORES)[place]
    found = np.clip(np.where(below < upto, middle, between), -_FARTHEST, _FARTHEST)
    return np.where(np.isnan(actual), np.nan, found)


def window_scores(predict: Predict, task: ForecastTask) -> Array:
    """Return the standard normal scores of the values after windows before the end, (window, node, step)."""
    horizon, lengths = task.prediction_length, [entry["target"].shape[-1] for entry in task.entries]
    room = int(np.median(lengths)) - 2 * horizon  # windows begin with a horizon of history at least
    count = min(_FORECASTS // len(lengths), _WINDOWS, max(room + 1, 0))
    if count < _LEAST_WINDOWS:
        return np.empty((0, len(lengths), horizon))
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
        # Of these series, the forecasts of the end say it.
        with warnings_only("tsforecast.forecasting.histories", logging.ERROR):
            forecasts = list(predict(ahead))
        actual = np.stack([task.entries[k]["target"][len(past[k]["target"]) :][:horizon] for k in long])
        scores = np.full((len(lengths), horizon), np.nan)
        scores[long] = _scores(forecasts, np.asarray(actual, np.float64))
        found.append(scores)
    return np.stack(found)


def _changes(task: ForecastTask) -> Array:
    """Return the changes of nodes from step to step up to the end, (node, step), NaN where missing."""
    length = min(max(entry["target"].shape[-1] for entry in task.entries), _CHANGES + 1)
    values = np.full((len(task.entries), length), np.nan)
    for row, entry in zip(values, task.entries, strict=True):
        target = entry["target"][-length:]
        row[length - len(target) :] = target
    return np.diff(values, axis=1)


@dataclass(frozen=True, eq=False)
class Joint:
    """The dependence of the errors of nodes and steps.

    Attributes:
        drawn: Correlation of nodes in joint paths: that of all errors as it is, whose sums have the right spread.
        weighed: Correlation by which conditioning weighs nodes: the same, shrunk by as much as that of one error a
            window is, since errors of a window are not independent.
        over_time: Correlation of the steps of the horizon, the same for all nodes.
    """

    drawn: Correlation
    weighed: Correlation
    over_time: Array

    @classmethod
    def of(cls, predict: Predict, task: ForecastTask) -> "Joint":
        """Return the dependence of errors in windows before the end; without room for windows, that of changes."""
        scores = window_scores(predict, task)
        windows, nodes, steps = scores.shape
        if windows < _LEAST_WINDOWS:
            log.info("nodes move together as their changes from step to step did: too many or too short for windows")
            changes = _changes(task)
            none = Correlation(np.ones(nodes), np.zeros((nodes, 1)))
            return cls(unshrunk(changes), none, np.eye(steps)) if changes.size else cls(none, none, np.eye(steps))
        log.info("nodes move together as their errors did in %d windows before the end", windows)
        rows = scores.reshape(-1, steps)
        rows = rows[~np.isnan(rows).any(1)]
        across = shrunk(rows.T)[1]
        over_time = np.diag(across.own) + across.common @ across.common.T
        drawn = unshrunk(scores.swapaxes(0, 1).reshape(nodes, -1))
        return cls(drawn, drawn.without(shrinkage(scores[:, :, 0].T)), over_time)


def coherent_forecasts(
    predict: Predict,
    task: ForecastTask,
    tree: Hierarchy,
    num_samples: int | None = None,
    seed: int = 0,
) -> list[SampleForecast]:
    """Return forecasts of all sums and series of a hierarchy, with joint sample paths that add up.

    Args:
        predict: Returns a forecast for each entry.
        task: Of the nodes, as `find_hierarchy` gives it.
        tree: The hierarchy.
        num_samples: Number of paths; None for as many as there is room for, up to 1000.
        seed: Of the paths.
    """
    forecasts = list(predict(task.latest))
    marginals, joint = Marginals.of(forecasts), Joint.of(predict, task)
    count = path_count(marginals.mean.size) if num_samples is None else num_samples
    positive = np.array([not (entry["target"] < 0).any() for entry in task.entries[-len(tree.bottoms) :]])
    paths = joint_paths(marginals, tree, joint, count, positive, np.random.default_rng(seed))
    return _forecasts(forecasts, paths, tree)


def path_count(values: int) -> int:
    """Return the number of paths of so many values that there is room for, up to 1000."""
    return int(np.clip(_VALUES // values, *_PATHS))


def joint_paths(
    marginals: Marginals,
    tree: Hierarchy,
    joint: Joint,
    count: int,
    positive: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Array:
    """Return paths (sample, step, node) that add up, of sums that differ and of series.

    Series that must not become negative, and whose forecasts reach down to 0, move by factors: what is 0 stays 0.
    """
    sums, deviations, below = tree.distinct, marginals.deviations, 0
    steps, first = marginals.mean.shape[1], len(tree.places[0])
    drawn = joint.drawn.sample(count, steps, rng)
    drawn = np.einsum("hk,nks->nhs", np.linalg.cholesky(joint.over_time), drawn, optimize=True)
    paths = np.empty((count, steps, len(deviations)))
    for step in range(steps):
        scores = even_scores(drawn[:, step])
        values = marginals.values(step, scores)
        series = SumConditioning(sums, deviations[:, step], joint.weighed).series(values)
        by_factor = positive & (marginals.quantiles[first:, step, 0] <= 0)
        if by_factor.any():
            before = np.maximum(values[first:][by_factor], 0.0)
            mean = np.maximum(before.mean(1, keepdims=True), np.finfo(float).tiny)
            change = series[by_factor] - values[first:][by_factor]
            series[by_factor] = before * np.maximum(1 + change / mean, 0.0)
        low = (series < 0) & positive[:, None]
        below += int(low.sum())
        series[low] = 0.0
        paths[:, step] = np.concatenate([sums @ series, series]).T
    if below:
        share = 100 * below / (count * steps * int(positive.sum()))
        log.info("%.2g %% of the values of paths of series that were never negative were below 0, and are 0", share)
    return paths


def even_scores(drawn: Array) -> Array:
    """Return evenly spaced standard normal scores in the order of draws (row, sample).

    Ranks keep the dependence of rows; the scores have the marginals without the noise of draws.
    """
    count = drawn.shape[1]
    middles = np.array([NormalDist().inv_cdf(level) for level in (np.arange(count) + 0.5) / count])
    return middles[np.argsort(np.argsort(drawn, axis=1), axis=1)]


def _forecasts(forecasts: Sequence[Forecast], paths: Array, tree: Hierarchy) -> list[SampleForecast]:
    """Return a forecast for each sum and series."""
    names = (*tree.aggregates, *tree.bottoms)
    parts = zip(names, tree.expanded(forecasts), tree.expanded([*paths.transpose(2, 0, 1)]), strict=True)
    found = []
    for name, like, own in parts:
        info = dict(like.info or {})
        if cells := tree.cells.get(name, info.get(CELLS)):  # as text, beside the word for all
            info[CELLS] = tuple(map(str, cells))
        found.append(SampleForecast(own, like.start_date, name, info or None))
    return found
