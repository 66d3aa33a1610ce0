"""Metrics of forecasts: a metric is a function of a window's cells and its aggregation, listed once in `METRICS`.

Every metric is a ratio of two sums over all cells (series, window, step, target). The same sums so give the score of a
forecast, of a series, of a step ahead and of everything. A listed metric appears in the scores, in their files, in
tables and on pages.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.quantiles import INTERVALS, TENTHS

HUNDREDTHS = tuple(k / 100 for k in range(1, 100))
LEVELS = tuple(sorted({*HUNDREDTHS, 0.025, 0.975}))  # every level that a forecast is read at
NOMINAL = (*range(2, 100, 2), 95)  # central intervals whose coverage is counted, in percent

_LOWER = np.array([LEVELS.index(round(0.5 - width / 200, 3)) for width in NOMINAL])
_UPPER = np.array([LEVELS.index(round(0.5 + width / 200, 3)) for width in NOMINAL])
_MEDIAN = LEVELS.index(0.5)

_JOINT = {"sum": np.sum, "max": np.max}  # questions about the whole horizon
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """The labels of a test window, and the forecast of them.

    Attributes:
        label: Labels (horizon,) or (target, horizon), 0 where missing.
        observed: False where a label is missing.
        quantiles: Of the forecast at `LEVELS`, (level, ...).
        samples: Sample paths of the forecast, (sample, ...); None if it has none.
        is_exact: Whether quantiles are those of a distribution, and not of the samples.
        seasonal_error: Mean absolute change over a season before the forecast, () or (target, 1); NaN where unknown.
    """

    label: Array
    observed: NDArray[np.bool_]
    quantiles: Array
    samples: Array | None
    is_exact: bool
    seasonal_error: Array

    @cached_property
    def loss(self) -> Array:
        """Return twice the quantile loss at every level, 0 where a label is missing."""
        level = np.reshape(LEVELS, (-1,) + (1,) * self.label.ndim)
        error = self.label - self.quantiles
        with np.errstate(invalid="ignore"):  # an infinite quantile times 0: the cell is missing, or its loss infinite
            return np.where(self.observed, 2 * np.maximum(level * error, (level - 1) * error), 0.0)

    @cached_property
    def covered(self) -> NDArray[np.bool_]:
        """Return whether a label is there and inside the closed central interval, for every width of `NOMINAL`."""
        return (self.quantiles[_LOWER] <= self.label) & (self.label <= self.quantiles[_UPPER]) & self.observed

    @property
    def has_paths(self) -> NDArray[np.bool_]:
        """Return whether questions about the whole horizon can be scored, () or (target,): no label is missing."""
        return np.asarray(self.observed.all(-1) & (self.samples is not None))

    @cached_property
    def joint_covered(self) -> dict[str, NDArray[np.bool_]]:
        """Return whether sum and maximum over the horizon are inside central intervals, for each of `INTERVALS`."""
        if self.samples is None:
            return dict.fromkeys(_JOINT, np.zeros((len(INTERVALS), *self.observed.shape[:-1]), bool))
        levels = [0.5 + side * width / 200 for side in (-1, 1) for width in INTERVALS]
        found = {}
        for name, aggregate in _JOINT.items():
            # The k-th of n values lies at the level k / (n + 1): so a label that is exchangeable with the paths is
            # inside as often as the interval says, however few they are.
            with np.errstate(invalid="ignore"):  # between infinite paths there is no end: the label is outside
                bounds = np.quantile(aggregate(self.samples, axis=-1), levels, axis=0, method="weibull")
            value = aggregate(self.label, axis=-1)
            inside = (bounds[: len(INTERVALS)] <= value) & (value <= bounds[len(INTERVALS) :])
            found[name] = np.asarray(inside & self.has_paths)
        return found


Term = Callable[[Window], NDArray[Any]]


@dataclass(frozen=True)
class Metric:
    """A ratio of two sums over cells.

    Attributes:
        name: Column of tables and files.
        title: Heading in printed tables and on pages.
        term: What is summed, by cell; 0 where the label is missing.
        weight: By whose sum it is divided.
        nominal: The value to aim at; None where less is better, down to 0.
        is_printed: Whether it is in tables to read and on pages; files have all.
    """

    name: str
    title: str
    term: Term
    weight: Term
    nominal: float | None = None
    is_printed: bool = True

    def text(self, value: float) -> str:
        """Return a value as it is printed: a share in percent, else four digits; "-" where it is unknown."""
        if math.isnan(value):
            return "-"
        return f"{value:#.4g}" if self.nominal is None else f"{100 * value:.1f} %"

    def distance(self, value: float) -> float:
        """Return the distance of a value from the best possible one."""
        return value if self.nominal is None else abs(value - self.nominal)


def count(window: Window) -> NDArray[np.bool_]:
    """Return 1 for each label."""
    return window.observed


def size(window: Window) -> Array:
    """Return the absolute label."""
    return np.abs(window.label)


def has_seasonal_error(window: Window) -> NDArray[np.bool_]:
    """Return 1 for each label of a series with a seasonal error."""
    return window.observed & (window.seasonal_error > 0)


def absolute_error(window: Window) -> Array:
    """Return the absolute error of the median."""
    return np.where(window.observed, np.abs(window.label - window.quantiles[_MEDIAN]), 0.0)


def squared_error(window: Window) -> Array:
    """Return the squared error of the median."""
    return np.where(window.observed, np.square(window.label - window.quantiles[_MEDIAN]), 0.0)


def scaled_error(window: Window) -> Array:
    """Return the absolute error of the median in units of the seasonal error."""
    with np.errstate(invalid="ignore"):
        scaled = np.abs(window.label - window.quantiles[_MEDIAN]) / window.seasonal_error
        return np.where(has_seasonal_error(window), scaled, 0.0)


def quantile_loss(levels: tuple[float, ...]) -> Term:
    """Return a term: twice the quantile loss, averaged over some of `LEVELS`."""
    rows = np.array([LEVELS.index(level) for level in levels])
    return lambda window: window.loss[rows].mean(0)


def ensemble_crps(window: Window) -> Array:
    """Return the CRPS of the samples, E|X - y| - E|X - X'| / 2 with X and X' drawn from them.

    Of n sorted samples x_1 <= .. <= x_n, E|X - X'| / 2 = sum_i (2 i - n - 1) x_i / n^2: no pairs have to be formed. The
    score is infinite where a sample is, and NaN where there are no samples. See Gneiting and Raftery, "Strictly Proper
    Scoring Rules, Prediction, and Estimation", 2007.
    """
    if window.samples is None:
        return np.where(window.observed, np.nan, 0.0)
    finite = np.isfinite(window.samples).all(0)
    away = np.sort(np.where(finite, window.samples - window.label, 0.0), axis=0)  # the label moved to 0: same spread
    n = len(away)
    spread = np.tensordot(2.0 * np.arange(1, n + 1) - n - 1, away, axes=1) / n**2
    return np.where(window.observed, np.where(finite, np.abs(away).mean(0) - spread, np.inf), 0.0)


def coverage(width: int) -> Term:
    """Return a term: whether the label is inside the central interval of a width in percent, one of `NOMINAL`."""
    row = NOMINAL.index(width)
    return lambda window: window.covered[row]


def has_paths(window: Window) -> Array:
    """Return 1, at its last step, for each window and target with a horizon that can be scored as a whole."""
    return _at_last_step(window, window.has_paths)


def joint_coverage(name: str, width: int) -> Term:
    """Return a term: whether the "sum" or "max" over the horizon is inside one of `INTERVALS`, at the last step."""
    row = INTERVALS.index(width)
    return lambda window: _at_last_step(window, window.joint_covered[name][row])


def _at_last_step(window: Window, values: Any) -> Array:
    cells = np.zeros(window.label.shape)
    cells[..., -1] = values
    return cells


METRICS = (
    Metric("crps", "CRPS", quantile_loss(TENTHS), size),
    Metric("crps_99", "CRPS-99", quantile_loss(HUNDREDTHS), size),
    Metric("crps_ensemble", "CRPS-ens", ensemble_crps, size),
    Metric("nd", "ND", absolute_error, size),
    Metric("mase", "MASE", scaled_error, has_seasonal_error),
    *(Metric(f"coverage_{width}", f"in {width} %", coverage(width), count, width / 100) for width in INTERVALS),
    *(
        Metric(
            f"{of}_{width}", f"{of} in {width} %", joint_coverage(of, width), has_paths, width / 100, is_printed=False
        )
        for of in _JOINT
        for width in INTERVALS
    ),
    Metric("mse", "MSE", squared_error, count, is_printed=False),
)


def printed() -> list[Metric]:
    """Return the metrics of tables to read."""
    return [metric for metric in METRICS if metric.is_printed]


def _terms() -> list[Term]:
    """Return the terms to be summed for all metrics, each once."""
    return list(dict.fromkeys(term for metric in METRICS for term in (metric.term, metric.weight)))


def sums_of(window: Window) -> Array:
    """Return the sums over targets that all metrics need, (term, horizon)."""
    rows = [np.broadcast_to(term(window), window.label.shape) for term in _terms()]
    cells = np.stack(rows).astype(np.float64)
    return cells.sum(1) if window.label.ndim == 2 else cells


def total(sums: Array, term: Term) -> Array:
    """Return the row of a term in the sums, (term, ...), of `sums_of`."""
    return sums[_terms().index(term)]


def table(sums: Array, index: pd.Index) -> pd.DataFrame:
    """Return a column for each metric from `sums_of`, added up (term, row); NaN where nothing was observed."""
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {metric.name: total(sums, metric.term) / total(sums, metric.weight) for metric in METRICS}
    return pd.DataFrame(columns, index=index)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics by name as scores.json has them: shares inside intervals by percent, below `coverage`."""
    plain = dict(values)
    shares = {str(width): plain.pop(f"coverage_{width}") for width in INTERVALS}
    return plain | {"coverage": shares}


def flat(overall: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics by name, from the result of `nested`."""
    plain = dict(overall)
    shares = plain.pop("coverage")
    return plain | {f"coverage_{width}": value for width, value in shares.items()}
