"""Regression with shrinkage by evidence, and errors that are autoregressive and heavy in the tails."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DEGREES = 4.0  # of freedom of the errors' t distribution
_SHRINKAGES = 6
_LEAST = 1e-5  # deviation of coefficients, by that of the targets, below which a group is left out
_NORMAL = 0.6745  # median size of a standard normal number

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Coefficients and their fit.

    Attributes:
        coefficients: Of each column.
        covariance: Of these given the data, (column, column).
        deviations: Prior deviation of the coefficients of each group, by that of the targets.
        prior: The same of each column, in units of the targets; 0 where it is left out.
        log_density: Mean log-density of a value given those before it.
        rhythm: Autoregressive coefficients of the errors.
    """

    coefficients: Matrix
    covariance: Matrix
    deviations: Matrix
    prior: Matrix
    log_density: float
    rhythm: Matrix


def fit(
    columns: list[Matrix], targets: list[Matrix], groups: NDArray[np.int64], lags: tuple[int, ...], rounds: int
) -> Fit:
    """Return the posterior mean of coefficients that all series share, each of which has a level of its own.

    Errors are autoregressive at some lags, and have a t distribution (weights by iteration; Lange, Little and Taylor
    1989). The coefficients of a group have a normal prior whose variance has the highest evidence (MacKay 1992), so
    those of a group without use vanish.

    Args:
        columns: Of each series, (time, column), of deviation about 1.
        targets: Of each series, (time,), NaN where missing.
        groups: Number of the group of each column.
        lags: In steps, each shorter than half of the longest series.
        rounds: Of weights and autoregression.
    """
    size = np.sqrt(np.mean([np.nanvar(y) for y in targets if np.isfinite(y).any()])) or 1.0
    centred = [y - np.nanmean(y) if np.isfinite(y).any() else y for y in targets]
    count, longest = columns[0].shape[1], max(lags)
    rhythm, coefficients = np.zeros(len(lags)), np.zeros(count)
    deviations, variance = np.full(groups.max() + 1, 0.1), size**2
    weights, errors, scale, precision, prior = None, np.zeros(0), size, np.eye(count), np.ones(count)
    for step in range(rounds):
        rows, values = without_rhythm(columns, centred, rhythm, lags, longest)
        weights = np.ones(len(values)) if weights is None else weights
        scatter, moment = (rows * weights[:, None]).T @ rows, (rows * weights[:, None]).T @ values
        for _ in range(_SHRINKAGES if step else 1):
            prior = np.maximum(deviations[groups] * size, 1e-9)
            posterior = np.linalg.inv(scatter / variance + np.diag(prior**-2))
            coefficients = posterior @ moment / variance
            errors = values - rows @ coefficients
            variance = max(float(weights @ errors**2 / weights.sum()), 1e-12 * size**2)
            squares = coefficients**2 + np.diag(posterior)
            deviations = np.sqrt(np.bincount(groups, squares) / np.bincount(groups)) / size
        precision = scatter / weights.mean()
        rhythm, errors = _rhythm(columns, centred, coefficients, lags, longest, size)
        weights, scale = weights_of(errors, size)
    density = log_t(errors / scale) - np.log(scale)
    used = deviations[groups] > _LEAST
    covariance = np.where(used[:, None] & used, _covariance(precision, prior, errors, scale), 0.0)
    coefficients, prior = np.where(used, coefficients, 0.0), np.where(used, prior, 0.0)
    return Fit(coefficients, covariance, deviations, prior, float(density.mean()), rhythm)


def weights_of(errors: Matrix, size: float) -> tuple[Matrix, float]:
    """Return the weights of errors under a t distribution, and its scale, no less than a millionth of a size."""
    scale = max(float(np.median(np.abs(errors))) / _NORMAL, 1e-6 * size)
    return (_DEGREES + 1) / (_DEGREES + (errors / scale) ** 2), scale


def _covariance(scatter: Matrix, prior: Matrix, errors: Matrix, scale: float) -> Matrix:
    """Return the covariance of coefficients given the data.

    The variance of errors is that of an estimate by weights (Huber 1981), with degrees of freedom for coefficients:
    E psi^2 / (E psi')^2, where psi is the error times its weight.

    Args:
        scatter: Of the columns.
        prior: Deviation of each coefficient.
        errors: Given earlier ones.
        scale: Of their t distribution.
    """
    squares = (errors / scale) ** 2
    moved = (_DEGREES + 1) * errors / (_DEGREES + squares)
    slope = ((_DEGREES + 1) * (_DEGREES - squares) / (_DEGREES + squares) ** 2).mean()
    sizes = prior[:, None] * scatter * prior  # in units of the prior, in which no inverse is of a singular matrix
    least = 1e-12 * max(float(sizes.diagonal().max()), np.finfo(float).tiny)
    variance = max(float((moved**2).mean() / max(slope, 0.1) ** 2), least)
    fitted = float((sizes * np.linalg.inv(np.eye(len(prior)) + sizes / variance)).sum()) / variance
    variance *= len(errors) / max(len(errors) - fitted, 1.0)
    return prior[:, None] * np.linalg.inv(np.eye(len(prior)) + sizes / variance) * prior


def without_rhythm(
    columns: list[Matrix], targets: list[Matrix], rhythm: Matrix, lags: tuple[int, ...], longest: int
) -> tuple[Matrix, Matrix]:
    """Return columns and targets less what earlier steps say of them, centred in each series; missing ones left out."""
    rows, values = [], []
    for own, target in zip(columns, targets, strict=True):
        if len(target) <= longest:
            continue
        row, value = own[longest:].copy(), target[longest:].copy()
        for lag, share in zip(lags, rhythm, strict=True):
            row -= share * own[longest - lag : len(own) - lag]
            value -= share * target[longest - lag : len(target) - lag]
        seen = np.isfinite(value)
        row, value = row[seen], value[seen]
        rows.append(row - row.mean(0) if len(row) else row)
        values.append(value - value.mean() if len(value) else value)
    return np.concatenate(rows), np.concatenate(values)


def _rhythm(
    columns: list[Matrix], targets: list[Matrix], coefficients: Matrix, lags: tuple[int, ...], longest: int, size: float
) -> tuple[Matrix, Matrix]:
    """Return the autoregressive coefficients of the errors, and the errors given earlier ones."""
    rests = [y - own @ coefficients for own, y in zip(columns, targets, strict=True) if len(y) > longest]
    rests = [y - np.nanmean(y) for y in rests]
    before = np.concatenate([np.stack([y[longest - k : len(y) - k] for k in lags], 1) for y in rests])
    now = np.concatenate([y[longest:] for y in rests])
    seen = np.isfinite(now) & np.isfinite(before).all(1)
    x, y = before[seen], now[seen]
    scatter = x.T @ x + 1e-6 * len(x) * size**2 * np.eye(len(lags))
    share = np.asarray(np.linalg.solve(scatter, x.T @ y), np.float64)
    return share, y - x @ share


def log_t(errors: Matrix) -> Matrix:
    """Return the log-density of a t distribution."""
    half = (_DEGREES + 1) / 2
    constant = math.lgamma(half) - math.lgamma(_DEGREES / 2) - 0.5 * np.log(_DEGREES * np.pi)
    return constant - half * np.log1p(errors**2 / _DEGREES)
