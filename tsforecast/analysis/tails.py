"""Tail probabilities of a statistic by its past values: ranks, and a fitted tail where ranks end.

Let v be a value and n earlier ones be given, of which k are at least as large. If all come in an order that tells
nothing (they are exchangeable), then (k + 1) / (n + 1) is at most p with a probability of at most p, whatever their
distribution: a conformal p-value (Vovk, Gammerman and Shafer 2005). It never falls below 1 / (n + 1). Beyond the
highest tenth excesses follow a generalised Pareto distribution (Pickands 1975), fitted by probability-weighted moments
(Hosking and Wallis 1987); its shape is kept at 0 or above, so that no value is impossible.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

LEAST = 15  # values that a tail is learnt from, at least
SMALLEST = 1e-60  # probability that is told from 0
_SHARE, _FEWEST = 0.1, 10  # of the values that the tail is fitted to
_HEAVIEST = 0.5  # shape, at most: of excesses without a variance less can be learnt


@dataclasses.dataclass(frozen=True, eq=False)
class Tail:
    """The upper tail of a statistic.

    Attributes:
        values: Earlier values, rising.
        start: Where the fitted tail begins.
        above: How many of the values lie above it.
        scale: Of the excesses over it.
        shape: Of their distribution.
    """

    values: Float[np.ndarray, " value"]
    start: float
    above: int
    scale: float
    shape: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " value"]) -> "Tail":
        """Return the tail of some values, in any order; missing ones (NaN) are left out.

        Raises:
            ValueError: If there are fewer than `LEAST`.
        """
        kept = np.sort(values[~np.isnan(values)])
        if len(kept) < LEAST:
            raise ValueError(f"expected at least {LEAST} values to learn what is ordinary, got {len(kept)}")
        return cls(kept, *_fitted(kept))

    def probabilities(self, values: Float[np.ndarray, " other"]) -> Float[np.ndarray, " other"]:
        """Return the probability of a value at least as large, for each of some values; NaN where it is missing."""
        size = len(self.values)
        ranked = (size - np.searchsorted(self.values, values) + 1) / (size + 1)
        with np.errstate(over="ignore"):  # of a statistic that has never changed
            beyond = np.maximum(values - self.start, 0.0) / self.scale
        log = -beyond if self.shape < 1e-9 else -np.log1p(self.shape * beyond) / self.shape
        fitted = (self.above + 1) / (size + 1) * np.exp(np.maximum(log, -700.0))
        tails = np.where(values <= self.start, ranked, np.maximum(fitted, SMALLEST))
        return np.where(np.isnan(values), np.nan, tails)

    def quantile(self, probability: float) -> float:
        """Return the value that is exceeded with a probability."""
        size = len(self.values)
        share = (self.above + 1) / (size + 1)
        if probability >= share:
            return float(self.values[max(size - int(probability * (size + 1)), 0)])
        ratio = probability / share
        beyond = -math.log(ratio) if self.shape < 1e-9 else (ratio**-self.shape - 1) / self.shape
        return self.start + self.scale * beyond


def _fitted(values: Float[np.ndarray, " value"]) -> tuple[float, int, float, float]:
    """Return start, number above, scale and shape of the fitted tail of rising values."""
    size = len(values)
    wanted = min(max(math.ceil(_SHARE * size), _FEWEST), size // 2)
    start = float(values[size - wanted - 1])
    excess = values[size - wanted :] - start
    above = int((excess > 0).sum())
    mean = float(excess.mean())
    least = 1e-9 * max(abs(start), abs(float(values[-1])), float(np.finfo(np.float64).tiny) * 1e12)
    if mean <= least:  # all are equal: the tail is as narrow as can be told
        return start, above, least, 0.0
    places = (np.arange(1, wanted + 1) - 0.35) / wanted
    weighted = float(((1 - places) * excess).mean())
    shape = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else 0.0
    shape = min(max(shape, 0.0), _HEAVIEST)
    return start, above, mean * (1 - shape), shape
