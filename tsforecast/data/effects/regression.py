"""Regression with shrinkage by evidence, and errors that are autoregressive and heavy in the tails."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.effects.count_response import working
from tsforecast.data.effects.errors import (
    DEGREES,
    Indices,
    Matrix,
    Part,
    autoregression,
    divided,
    log_t,
    scales_of,
    weights_of,
    without_rhythm,
)

_SHRINKAGES = 6
_LEAST = 1e-5  # deviation of coefficients, by that of the targets, below which a group is left out


@dataclass(frozen=True)
class Fit:
    """Coefficients and their fit."""

    coefficients: Matrix  # of each column
    covariance: Matrix  # of those of a series given the data, on average over the series, (column, column)
    deviations: Matrix  # prior deviation of the coefficients of each group, by that of the targets
    prior: Matrix  # the same of each column, in units of the targets; 0 where it is left out
    own: Matrix  # prior deviation of what coefficients of a series differ by, likewise; 0 where they do not
    log_density: float  # mean log-density of a value given those before it
    rhythm: Matrix  # autoregressive coefficients of the errors
    scale: float  # of the errors' t distribution of a typical series
    variance: float  # mean square of errors by their weights, in squares of the scale


@dataclass(frozen=True)
class _Sums:
    """Sums over the weighted rows of all series."""

    scatter: Matrix  # of products of columns, (column, column)
    moment: Matrix  # of products with values, (column,)
    own: Indices  # the columns whose coefficients differ, (own,)
    cross: Matrix  # of products of these with all, of each series, (series, own, column)
    pulls: Matrix  # of their products with values, (series, own)
    weight: float  # of the weights

    @classmethod
    def of(cls, parts: list[Part], weights: list[Matrix], own: Indices) -> "_Sums":
        """Return the sums over parts."""
        scatter, moment, cross, pulls = 0.0, 0.0, [], []
        for part, weight in zip(parts, weights, strict=True):
            weighted = part.rows.T * weight
            scatter, moment = scatter + weighted @ part.rows, moment + weighted @ part.values
            cross.append(weighted[own] @ part.rows)
            pulls.append(weighted[own] @ part.values)
        total = float(sum(weight.sum() for weight in weights))
        return cls(np.asarray(scatter), np.asarray(moment), own, np.stack(cross), np.stack(pulls), total)

    def times(self, factor: float) -> "_Sums":
        """Return the sums as if all weights were multiplied."""
        scatter, moment, cross, pulls = (factor * x for x in (self.scatter, self.moment, self.cross, self.pulls))
        return _Sums(scatter, moment, self.own, cross, pulls, factor * self.weight)

    def inner(self, own: Matrix, variance: float) -> Matrix:
        """Return the covariance of the differences of each series given the coefficients, (series, own, own)."""
        return given(own, self.cross[:, :, self.own], variance)

    def marginal(self, inner: Matrix, variance: float) -> tuple[Matrix, Matrix]:
        """Return scatter and moment with the differences of series integrated out."""
        gain = inner @ self.cross / variance
        scatter = self.scatter - np.tensordot(self.cross, gain, ((0, 1), (0, 1)))
        return scatter, self.moment - np.tensordot(self.pulls, gain, ((0, 1), (0, 1)))

    def differences(self, coefficients: Matrix, inner: Matrix, variance: float) -> Matrix:
        """Return the differences of the coefficients of each series, (series, column)."""
        found = np.zeros((len(self.cross), len(coefficients)))
        pulls = self.pulls - self.cross @ coefficients
        found[:, self.own] = (inner @ pulls[:, :, None])[..., 0] / variance
        return found


def fit(
    columns: list[Matrix],
    targets: list[Matrix],
    groups: Indices,
    lags: tuple[int, ...],
    rounds: int,
    own: NDArray[np.bool_] | None = None,
) -> Fit:
    """Return the posterior mean of coefficients shared by all series, with a level of its own for each.

    Errors are autoregressive at some lags, and have a t distribution (weights by iteration; Lange, Little and Taylor
    1989) whose scale is that of the series. The coefficients of a group have a normal prior whose variance has the
    highest evidence (MacKay 1992), so those of a group without use vanish. What those of a series differ by has one as
    well (random effects; Laird and Ware 1982).

    Args:
        columns: Of each series, (time, column), of deviation about 1.
        targets: Of each series, (time,), NaN where missing.
        groups: Number of the group of each column.
        lags: In steps, each shorter than half of the longest series.
        rounds: Of weights and autoregression.
        own: Whether the coefficient of a column differs from series to series; None if none does.
    """
    size = np.sqrt(np.mean([np.nanvar(y) for y in targets if np.isfinite(y).any()])) or 1.0
    centred = [y - np.nanmean(y) if np.isfinite(y).any() else y for y in targets]
    search = _Search(size, groups, np.zeros(0, np.int64) if own is None else np.flatnonzero(own), len(columns))
    rhythm, scales, scale, errors = np.zeros(len(lags)), np.ones(len(columns)), size, list[Matrix]()
    for step in range(rounds):
        search.parts = divided(without_rhythm(columns, centred, rhythm, lags), scales)
        search.weights = [weights_of(one / scale) for one in errors] or [np.ones(len(x.values)) for x in search.parts]
        search.sums = _Sums.of(search.parts, search.weights, search.own)
        for _ in range(_SHRINKAGES if step else 1):
            search.improve()
        coefficients = search.coefficients + search.differences
        rests = [y - x @ each for x, y, each in zip(columns, centred, coefficients, strict=True)]
        rhythm, errors = autoregression(rests, scales, lags, size)
        scales, scale = scales_of(errors, size)
        errors = [one / by for one, by in zip(errors, scales, strict=True)]
    together = np.concatenate(errors)
    spread = np.log(scales).repeat([len(one) for one in errors])
    density = log_t(together / scale) - np.log(scale) - spread
    return search.fit(len(together), _variance(together, scale, size), scale, float(density.mean()), rhythm)


def fit_counts(
    columns: list[Matrix], counts: list[Matrix], groups: Indices, rounds: int, own: NDArray[np.bool_] | None = None
) -> Fit:
    """Return the posterior mean of coefficients of the logarithm of the mean of counts; see `working` and `fit`."""
    search = _Search(1.0, groups, np.zeros(0, np.int64) if own is None else np.flatnonzero(own), len(columns))
    for step in range(rounds):
        search.parts = working(columns, counts, search.coefficients + search.differences)
        search.weights = [np.ones(len(part.values)) for part in search.parts]
        search.sums = _Sums.of(search.parts, search.weights, search.own)
        for _ in range(_SHRINKAGES if step else 1):
            search.improve()
    return search.fit(round(search.sums.weight), search.variance, 1.0, np.nan, np.zeros(0))


class _Search:
    """The search for the coefficients with the highest evidence."""

    parts: list[Part]
    weights: list[Matrix]
    sums: _Sums

    def __init__(self, size: float, groups: Indices, own: Indices, series: int) -> None:
        self.size, self.groups, self.own = size, groups, own
        self.variance, self.coefficients = size**2, np.zeros(len(groups))
        self.prior, self.common = np.ones(len(groups)), np.full(len(groups), 0.1 * size)
        self.differ, self.spread = np.ones(len(own)), np.full(len(own), 0.1 * size)
        self.differences = np.zeros((series, len(groups)))

    def improve(self) -> None:
        """Updates coefficients, then variances given these (expectation and maximisation)."""
        self.prior, self.differ = np.maximum(self.common, 1e-9), self.spread
        inner = self.sums.inner(self.differ, self.variance)
        scatter, moment = self.sums.marginal(inner, self.variance)
        posterior = given(self.prior, scatter, self.variance)
        self.coefficients = posterior @ moment / self.variance
        self.differences = self.sums.differences(self.coefficients, inner, self.variance)
        each = self.coefficients + self.differences
        triples = zip(self.parts, self.weights, each, strict=True)
        squares = sum(weight @ (part.values - part.rows @ one) ** 2 for part, weight, one in triples)
        unsure = (inner * self.sums.cross[:, :, self.own]).sum()
        self.variance = max(float(squares + unsure) / self.sums.weight, 1e-12 * self.size**2)
        self.common = _deviations(self.coefficients**2 + posterior.diagonal(), self.groups)
        second = self.differences[:, self.own] ** 2 + np.diagonal(inner, axis1=1, axis2=2)
        self.spread = _deviations(second.mean(0), self.groups[self.own])

    def fit(self, count: int, variance: float, scale: float, log_density: float, rhythm: Matrix) -> Fit:
        """Return the fit, given number and variance of errors, the scale of all, and autoregression."""
        used, own = self.common > _LEAST * self.size, np.zeros(len(self.groups))
        own[self.own] = np.where(self.spread > _LEAST * self.size, self.differ, 0.0)
        kept = used | (own > 0)
        covariance = np.where(kept[:, None] & kept, self._covariance(count, variance), 0.0)
        coefficients, prior = np.where(used, self.coefficients, 0.0), np.where(used, self.prior, 0.0)
        deviations = np.zeros(self.groups.max() + 1)
        deviations[self.groups] = self.common / self.size
        ratio = self.variance / scale**2
        return Fit(coefficients, covariance, deviations, prior, own, log_density, rhythm, scale, ratio)

    def _covariance(self, count: int, variance: float) -> Matrix:
        """Return the covariance of the coefficients of a series given the data, on average.

        The variance of errors gets degrees of freedom for coefficients.
        """
        sums = self.sums.times(count / self.sums.weight)
        inner = sums.inner(self.differ, variance)
        scatter, _ = sums.marginal(inner, variance)
        common = given(self.prior, scatter, variance)
        fitted = ((common * scatter).sum() + (inner * sums.cross[:, :, self.own]).sum()) / variance
        variance *= count / max(count - fitted, 1.0)
        inner = sums.inner(self.differ, variance)
        scatter, _ = sums.marginal(inner, variance)
        common = given(self.prior, scatter, variance)
        if not len(self.own):
            return common
        found = np.zeros_like(common)
        found[np.ix_(self.own, self.own)] = inner.mean(0)
        for one, cross in zip(inner, sums.cross, strict=True):
            gain = np.eye(len(common))
            gain[self.own] -= one @ cross / variance
            found += gain @ common @ gain.T / len(inner)
        return found


def _variance(errors: Matrix, scale: float, size: float) -> float:
    """Return the variance of errors that an estimate by weights has (Huber 1981).

    It is E psi^2 / (E psi')^2, where psi is the error times its weight.
    """
    squares = (errors / scale) ** 2
    moved = (DEGREES + 1) * errors / (DEGREES + squares)
    slope = ((DEGREES + 1) * (DEGREES - squares) / (DEGREES + squares) ** 2).mean()
    return max(float((moved**2).mean() / max(slope, 0.1) ** 2), 1e-24 * size**2)


def given(prior: Matrix, scatter: Matrix, variance: float) -> Matrix:
    """Return the covariance (..., column, column) given data, by a prior deviation (column,)."""
    within = prior[:, None] * scatter * prior / variance  # in units of the prior
    try:
        found = np.linalg.inv(np.eye(len(prior)) + within)
    except np.linalg.LinAlgError:
        found = np.zeros_like(within)
    if np.diagonal(found, axis1=-2, axis2=-1).min(initial=1.0) <= 0:  # errors lie below the last digits of the sums
        values, vectors = np.linalg.eigh(within)
        found = vectors / (1 + np.maximum(values, 0.0))[..., None, :] @ np.swapaxes(vectors, -1, -2)
    return prior[:, None] * found * prior


def _deviations(squares: Matrix, groups: Indices) -> Matrix:
    """Return the root of the mean of squares (column,) over each group, for each of its columns."""
    numbers = np.bincount(groups)
    return np.sqrt(np.bincount(groups, squares) / np.maximum(numbers, 1))[groups]


def differences(columns: list[Matrix], targets: list[Matrix], lags: tuple[int, ...], found: Fit) -> Matrix:
    """Return the differences of series from the shared coefficients given a fit, (series, column).

    Args:
        columns: Of each series, (time, column), as those of the fit.
        targets: Of each series, (time,).
        lags: Of the errors.
        found: The fit, of these series or others.
    """
    centred = [y - np.nanmean(y) if np.isfinite(y).any() else y for y in targets]
    parts = without_rhythm(columns, centred, found.rhythm, lags)
    errors = [part.values - part.rows @ found.coefficients for part in parts]
    scales, _ = scales_of(errors, found.scale)
    parts = divided(parts, scales)
    return _differences(
        parts, [weights_of(one / by / found.scale) for one, by in zip(errors, scales, strict=True)], found
    )


def differences_of_counts(columns: list[Matrix], counts: list[Matrix], found: Fit, rounds: int) -> Matrix:
    """Return the differences of series from shared coefficients of counts; see `differences`."""
    each = np.zeros((len(columns), len(found.coefficients)))
    for _ in range(rounds):
        parts = working(columns, counts, found.coefficients + each)
        each = _differences(parts, [np.ones(len(part.values)) for part in parts], found)
    return each


def _differences(parts: list[Part], weights: list[Matrix], found: Fit) -> Matrix:
    own = np.flatnonzero(found.own)
    sums, variance = _Sums.of(parts, weights, own), found.variance * found.scale**2
    return sums.differences(found.coefficients, sums.inner(found.own[own], variance), variance)
