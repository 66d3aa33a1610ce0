"""Negative binomial distributions of counts around a model's expectations.

A model of linear systems has Gaussian errors, of values or of their logarithms. Counts have neither: small ones
are skewed, and vary more where more is expected.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from scipy import optimize, stats

_LEAST = 0.05  # count that is expected, at least
_RAREST = -12.0  # log probability, at least, of a value that teaches: an outlier is no dispersion
_SIZES = (-2.0, 8.0)  # logarithms between which the size lies: from more than geometric to Poisson
_SMALLEST = 1e-290

Numbers = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """Distributions of the steps of a series of counts; the variance of a mean m is m + m^2 / size.

    Attributes:
        mean: What is expected of each step, NaN where nothing is.
        size: Of all of them.
    """

    mean: Float[np.ndarray, " time"]
    size: float

    @classmethod
    def likelier(
        cls,
        values: Float[np.ndarray, " time"],
        expected: Float[np.ndarray, " time"],
        probability: Float[np.ndarray, " time"],
        learn: Bool[np.ndarray, " time"],
    ) -> "Counts | None":
        """Return the distributions that make the first part of a series likeliest.

        None if its values are no counts, or are likelier under the model.

        Args:
            values: NaN where missing.
            expected: Medians of a model. All are multiplied by one factor, so that their sum is that of the values.
            probability: Of each count under the model.
            learn: Steps of the first part that teach.
        """
        known = learn & ~np.isnan(values) & ~np.isnan(expected)
        counts, median = values[known], np.maximum(expected[known], _LEAST)
        if not len(counts) or counts.min() < 0 or (counts != counts.round()).any() or not counts.any():
            return None
        share = counts.sum() / median.sum()

        def loss(log_size: float) -> float:
            log_mass = cls(share * median, float(np.exp(log_size)))._law().logpmf(counts)
            return -float(np.maximum(log_mass, _RAREST).sum())

        best: Any = optimize.minimize_scalar(loss, bounds=_SIZES, method="bounded")
        with np.errstate(divide="ignore"):
            theirs = np.maximum(np.log(probability[known]), _RAREST).sum()
        return cls(share * np.maximum(expected, _LEAST), float(np.exp(best.x))) if -best.fun > theirs else None

    def scores(self, values: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
        """Return normal scores: of the probability below a value and half of its own; NaN where it is missing."""
        law, known = self._law(), np.nan_to_num(values)
        half = law.pmf(known) / 2
        above, below = np.maximum(law.sf(known) + half, _SMALLEST), np.maximum(law.cdf(known) - half, _SMALLEST)
        scores = np.where(above < 0.5, -stats.norm.ppf(above), stats.norm.ppf(below))
        return np.where(np.isnan(values), np.nan, scores)

    def quantiles(self, scores: Float[np.ndarray, "*row time"]) -> Float[np.ndarray, "*row time"]:
        """Return the counts with some normal scores."""
        law = self._law()
        return np.where(scores > 0, law.isf(stats.norm.sf(scores)), law.ppf(stats.norm.cdf(scores)))

    def _law(self) -> Any:  # types of scipy know no frozen discrete distribution
        return stats.nbinom(self.size, self.size / (self.size + self.mean))
