"""Mixtures of candidates, scored on windows before the end: the best, and one of equal parts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tsforecast.forecasting.candidates import Candidate
from tsforecast.forecasting.trials import LEVELS, Trial

_LEAST = 0.1  # weight of a member


def pooled(
    trials: Sequence[Trial], values: NDArray[np.float64], share: NDArray[np.float64], *, equal: bool = False
) -> Trial | None:
    """Return the mixture of candidates with the lowest score, its weights found on the same windows; None of one alone.

    With F = sum_k w_k F_k and X_k ~ F_k, the CRPS is sum_k w_k E|X_k - y| - sum_kl w_k w_l E|X_k - X_l| / 2 (Gneiting
    and Raftery 2007, eq. 21): it is quadratic in the weights.

    Args:
        trials: Of all candidates.
        values: By series and window, see `tsforecast.forecasting.trials.values_of`.
        share: Weights of series in the score.
        equal: Whether all have the same weight, which needs no windows to be found.
    """
    usable = [trial for trial in trials if trial.candidate.member is not None]
    samples = [trial.quantiles for trial in usable if trial.quantiles is not None]
    usable, count = [trial for trial in usable if trial.quantiles is not None], len(samples)
    if count < 2:
        return None
    seen = np.isfinite(values)
    by_window = lambda x: np.where(seen, x, 0.0).sum(2)  # noqa: E731
    away = np.stack([by_window(np.abs(x - values[..., None]).mean(-1)) for x in samples], -1)
    apart = np.zeros((*away.shape, count))
    for k in range(count):
        for other in range(k + 1):
            # Level by level: all pairs at once would be twenty times as many numbers as the forecasts.
            pairs = [np.abs(samples[k][..., level, None] - samples[other]).mean(-1) for level in range(len(LEVELS))]
            apart[..., k, other] = apart[..., other, k] = by_window(np.mean(pairs, 0))
    weights = np.full(count, 1 / count)
    if not equal:
        weights = _best_weights(np.einsum("s,swk->k", share, away), np.einsum("s,swkl->kl", share, apart))
    members = np.flatnonzero(weights)
    shares: dict[str, float] = {}
    for k in members:  # direct forecasts, which a bank may have a share of, are then of the whole
        own = usable[k].candidate
        shares[str(own.member)] = shares.get(str(own.member), 0.0) + weights[k] * (1 - own.options.get("direct", 0.0))
    if len(shares) < 2:
        return None
    losses = away @ weights - 0.5 * np.einsum("swkl,k,l->sw", apart, weights, weights)
    options = {
        "members": "; ".join(shares),
        "weights": ",".join(f"{share / sum(shares.values()):.2f}" for share in shares.values()),
        **({"direct": round(1 - float(sum(shares.values())), 2)} if sum(shares.values()) < 0.995 else {}),
        "max_epochs": max(usable[k].candidate.options.get("max_epochs", 0) for k in members),
    }
    return Trial(Candidate("pool", options), losses, sum(usable[k].seconds for k in members))


def _best_weights(away: NDArray[np.float64], apart: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights that minimise away . w - w' apart w / 2; small ones are 0."""
    away, apart = away / (unit := max(away.min(), 1e-300)), apart / unit
    weights = np.full(len(away), 1 / len(away), np.float64)
    for _ in range(2):
        left = np.flatnonzero(weights >= min(_LEAST, weights.max()))  # many that are alike have little each
        linear, square = away[left], apart[np.ix_(left, left)]
        found = minimize(
            lambda w, a=linear, b=square: (a @ w - 0.5 * w @ b @ w, a - b @ w),
            np.full(len(left), 1 / len(left)),
            jac=True,
            bounds=[(0, 1)] * len(left),
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        )
        weights = np.zeros(len(away))
        weights[left] = found.x
    weights = np.where(weights >= min(_LEAST, weights.max()), np.round(weights, 2), 0.0)
    return weights / weights.sum()
