"""Ridge regressions, linear and curved, and their errors where each origin is left out."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PENALTIES = (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
_MEMORY, _PRIOR = 5.0, 1.5  # half-life, in origins, of the recent size of errors; errors that its mean counts as
_RESTLESS = 2.0  # the most by which a recent size changes errors


def ridge(features: Array, ahead: Array, latest: Array) -> tuple[Array, Array]:
    """Return the forecast of the latest features by a linear function, and errors (origin, step), see `_penalised`.

    Args:
        features: Of the origins, (origin, feature).
        ahead: Values that are explained, (origin, step).
        latest: Features of the forecast.
    """
    middle = features.mean(0)
    left, size, right = np.linalg.svd(features - middle, full_matrices=False)
    return _penalised(left, size**2, (latest - middle) @ right.T * size, ahead)


def curved(features: Array, ahead: Array) -> tuple[Array, Array]:
    """Return the forecast of the last features by a curved function, and errors of those before, see `_penalised`.

    Its kernel is the linear one and a rational quadratic (Rasmussen and Williams 2006, section 4.2.1).

    Args:
        features: Of the origins and the forecast, (origin, feature).
        ahead: Values that are explained, (origin, step).
    """
    products = features @ features.T
    sizes = np.diag(products)
    kernel = products + features.shape[1] / (1 + (sizes + sizes[:, None] - 2 * products) / (2 * features.shape[1]))
    kernel -= kernel[:-1].mean(0)
    kernel -= kernel[:, :-1].mean(1, keepdims=True)
    strength, left = np.linalg.eigh(kernel[:-1, :-1])
    return _penalised(left, np.maximum(strength, 0.0), kernel[-1, :-1] @ left, ahead)


def _penalised(left: Array, strength: Array, latest: Array, ahead: Array) -> tuple[Array, Array]:
    """Return a forecast, and the errors (origin, step) of those with each origin left out.

    The intercept is free; the penalty of all else has the least absolute error among `_PENALTIES`.

    Args:
        left: Eigenvectors of the centred kernel of origins.
        strength: Its eigenvalues.
        latest: The centred kernel of the latest features and origins times eigenvectors.
        ahead: Values that are explained, (origin, step).
    """
    center = ahead.mean(0)
    seen, best, found = left.T @ (ahead - center), np.inf, (center, ahead - center)
    for penalty in _PENALTIES:
        shrunk = 1 / (strength + penalty)
        leverage = left**2 @ (strength * shrunk) + 1 / len(ahead)
        errors = (ahead - center - left @ ((strength * shrunk)[:, None] * seen)) / (1 - leverage)[:, None]
        if (loss := np.abs(errors).mean()) < best:
            best = loss
            found = center + (latest * shrunk) @ seen, errors
    return found


def as_recent(errors: Array, lag: int) -> Array:
    """Return errors times the root of how much larger they were of late than before their own origin.

    Args:
        errors: Of each origin and step.
        lag: Origins later, by which an error is known.
    """
    sizes, fading = np.abs(errors).mean(1), 0.5 ** (1 / _MEMORY)
    total, weight, recent = 0.0, 0.0, np.full(len(sizes) + 1, sizes.mean())
    for origin, size in enumerate(sizes[: max(len(sizes) + 1 - lag, 0)], lag):
        total, weight = fading * total + size, fading * weight + 1
        recent[origin] = (total + _PRIOR * sizes.mean()) / (weight + _PRIOR)
    ratio = np.sqrt(recent[-1] / np.maximum(recent[:-1], np.finfo(float).tiny))
    return errors * np.clip(ratio, 1 / _RESTLESS, _RESTLESS)[:, None]
