"""Gaussian errors of forecasts given that sums add up: exact conditioning on observations without noise.

Let y = (sums, series) have errors with the covariance W. That sums add up is A y = 0 with A = (I, -S). Given this, the
mean is y - W A' (A W A')^-1 A y. It is that of MinT (Wickramasuriya, Athanasopoulos and Hyndman 2019), and the same map
takes samples of y to samples given the sums (Panagiotelis et al. 2023; Corani et al. 2021).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DENSE = 0.2  # share of entries above which a matrix is no longer taken as sparse
_LEAST = 1e-3  # deviations at least, in units of their median: where nothing varies there is nothing to divide by

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Correlation:
    """A correlation matrix: a diagonal and a product of few columns, diag(own) + common common'."""

    own: Array  # share of the variance of each node that is its own, (node,)
    common: Array  # of shape (node, column)

    def sample(self, count: int, steps: int, rng: np.random.Generator) -> Array:
        """Return standard normal draws (node, step, sample) with this correlation across nodes at each step."""
        nodes, columns = self.common.shape
        drawn = rng.standard_normal((nodes, steps, count)) * np.sqrt(self.own)[:, None, None]
        shared = rng.standard_normal((columns, steps * count))
        return drawn + (self.common @ shared).reshape(nodes, steps, count)

    def without(self, share: float) -> "Correlation":
        """Return the matrix without a share of the correlations between nodes."""
        common = np.sqrt(1 - share) * self.common
        return Correlation(self.own + share * np.square(self.common).sum(1), common)


def unshrunk(residuals: Array) -> Correlation:
    """Return the correlation of residuals (node, time), NaN where missing, as it is; 0 with a node without."""
    deviations, scores = _standardised(residuals)
    return Correlation((deviations == 0).astype(float), scores / np.sqrt(residuals.shape[1]))


def shrunk(residuals: Array) -> tuple[Array, Correlation]:
    """Return standard deviations of residuals, as `unshrunk` takes them, and their correlation, shrunk towards none."""
    deviations, scores = _standardised(residuals)
    share, times = shrinkage(residuals), residuals.shape[1]
    common = np.sqrt((1 - share) / times) * scores
    return deviations, Correlation(1 - np.square(common).sum(1), common)


def shrinkage(residuals: Array) -> float:
    """Return the share of correlations to leave out: it minimises the squared error (Schaefer and Strimmer 2005)."""
    deviations, scores = _standardised(residuals)
    times = residuals.shape[1]
    # Products of rows and of columns have one sum of squares; those of the longer side would fill the memory.
    products = scores @ scores.T if len(scores) < times else scores.T @ scores
    among = np.square(products).sum() / times**2 - (deviations > 0).sum()
    fourth = (np.square(np.square(scores).sum(0)) - np.square(np.square(scores)).sum(0)).sum()
    variance = (fourth - times * among) / (times * (times - 1))
    return float(np.clip(variance / among, 0.0, 1.0)) if among > 0 else 1.0


def _standardised(residuals: Array) -> tuple[Array, Array]:
    """Return standard deviations, and residuals with a mean square of 1 in each row and missing ones as 0."""
    seen = ~np.isnan(residuals)
    count = seen.sum(1)
    centre = np.where(seen, residuals, 0).sum(1) / np.maximum(count, 1)
    centred = np.where(seen, residuals - centre[:, None], 0.0)
    squares = np.square(centred).sum(1)
    scores = centred * np.sqrt(residuals.shape[1] / np.where(squares > 0, squares, np.inf))[:, None]
    return np.sqrt(squares / np.maximum(count - 1, 1)), scores


class SumConditioning:
    """The linear map from forecasts of all nodes to those given that sums add up.

    It solves one system in the number of sums: sparse where the hierarchy is, with the common columns of the
    correlation by Woodbury's formula.
    """

    def __init__(self, sums: Any, deviations: Array, correlation: Correlation) -> None:
        from scipy import linalg, sparse  # take half a second to import, and few data have sums
        from scipy.sparse.linalg import splu

        self.sums, self._aggregates = sums, len(sums.indptr) - 1
        sizes = np.maximum(deviations, _LEAST * float(np.median(deviations[deviations > 0])))
        self._own, self._common = np.square(sizes) * correlation.own, sizes[:, None] * correlation.common
        lower = sums @ sparse.diags_array(self._own[self._aggregates :]) @ sums.T
        among = sparse.csc_array(lower + sparse.diags_array(self._own[: self._aggregates]))
        if among.nnz > _DENSE * self._aggregates**2:
            factor = linalg.cho_factor(among.toarray())
            self._solve_own = lambda x: linalg.cho_solve(factor, x)
        else:
            self._solve_own = splu(among).solve
        self._gain = self._gap(self._common)  # A times the common columns
        self._solved = self._solve_own(self._gain)
        inner = linalg.cho_factor(np.eye(self._gain.shape[1]) + self._gain.T @ self._solved)
        self._solve_inner = lambda x: linalg.cho_solve(inner, x)

    def series(self, values: Array) -> Array:
        """Return the series at the bottom given the sums, of forecasts (node, column); sums of these add up."""
        gap = self._gap(values)
        first = self._solve_own(gap)
        weight = first - self._solved @ self._solve_inner(self._gain.T @ first)
        back = -(self.sums.T @ weight)
        lower = slice(self._aggregates, None)
        shared = self._common[lower] @ (self._gain.T @ weight)
        return values[lower] - self._own[lower, None] * back - shared

    def nodes(self, values: Array) -> Array:
        """Return all nodes given the sums, of forecasts (node, column)."""
        series = self.series(values)
        return np.concatenate([self.sums @ series, series])

    def _gap(self, values: Array) -> Array:
        """Return the differences of sums from the sums of the series."""
        return values[: self._aggregates] - self.sums @ values[self._aggregates :]
