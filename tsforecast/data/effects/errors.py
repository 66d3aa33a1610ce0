"""Errors of a regression: autoregressive, heavy in the tails, with a scale of their own in each series."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEGREES = 4.0  # of freedom of the errors' t distribution
_NORMAL = 0.6745  # median size of a standard normal number
_TYPICAL = 10.0  # errors of a series that the scale of all counts as in that of the series

Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Values of a series and the columns beside them, less their predictions from earlier steps."""

    rows: Matrix  # of shape (time, column), with a mean of 0
    values: Matrix  # of shape (time,), likewise
    steps: Indices  # the places of these values in the series; missing ones are left out


def weights_of(errors: Matrix) -> Matrix:
    """Return the weights of errors under a t distribution, in units of its scale."""
    return (DEGREES + 1) / (DEGREES + errors**2)


def scales_of(errors: list[Matrix], size: float) -> tuple[Matrix, float]:
    """Return the scale of the errors of each series by that of all, and this, no less than a millionth of a size.

    Few errors say little, so that of a short series is nearer to 1.
    """
    scale = max(float(np.median(np.abs(np.concatenate(errors)))) / _NORMAL, 1e-6 * size)
    own = np.array([np.median(np.abs(one)) / _NORMAL if len(one) else scale for one in errors])
    numbers = np.array([len(one) for one in errors])
    return np.exp(np.log(np.maximum(own / scale, 1e-3)) * numbers / (numbers + _TYPICAL)), scale


def divided(parts: list[Part], scales: Matrix) -> list[Part]:
    """Return parts in units of the scale of their series."""
    return [Part(part.rows / by, part.values / by, part.steps) for part, by in zip(parts, scales, strict=True)]


def without_rhythm(columns: list[Matrix], targets: list[Matrix], rhythm: Matrix, lags: tuple[int, ...]) -> list[Part]:
    """Return columns and targets less their predictions from earlier steps, centred in each series."""
    longest, parts = max(lags), list[Part]()
    for own, target in zip(columns, targets, strict=True):
        row, value = own[longest:].copy(), target[longest:].copy()
        for lag, share in zip(lags, rhythm, strict=True):
            row -= share * own[longest - lag :][: len(row)]
            value -= share * target[longest - lag :][: len(value)]
        steps = np.flatnonzero(np.isfinite(value))
        row, value = row[steps], value[steps]
        parts.append(
            Part(row - row.sum(0) / max(len(row), 1), value - value.sum() / max(len(value), 1), steps + longest)
        )
    return parts


def autoregression(
    rests: list[Matrix], scales: Matrix, lags: tuple[int, ...], size: float
) -> tuple[Matrix, list[Matrix]]:
    """Return the autoregressive coefficients of residuals, and the errors given earlier ones."""
    longest, befores, nows = max(lags), list[Matrix](), list[Matrix]()
    for rest in rests:
        y = rest - np.nanmean(rest) if np.isfinite(rest).any() else rest
        length = max(len(y) - longest, 0)
        before = np.stack([y[longest - k :][:length] for k in lags], 1)
        seen = np.isfinite(y[longest:]) & np.isfinite(before).all(1)
        befores.append(before[seen])
        nows.append(y[longest:][seen])
    by = np.repeat(scales, [len(one) for one in nows])
    x, y = np.concatenate(befores) / by[:, None], np.concatenate(nows) / by
    scatter = x.T @ x + 1e-6 * len(x) * size**2 * np.eye(len(lags))
    share = np.asarray(np.linalg.solve(scatter, x.T @ y), np.float64)
    return share, [now - before @ share for before, now in zip(befores, nows, strict=True)]


def log_t(errors: Matrix) -> Matrix:
    """Return the log-density of a t distribution."""
    half = (DEGREES + 1) / 2
    constant = math.lgamma(half) - math.lgamma(DEGREES / 2) - 0.5 * np.log(DEGREES * np.pi)
    return constant - half * np.log1p(errors**2 / DEGREES)
