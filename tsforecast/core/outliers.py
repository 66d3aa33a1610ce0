"""Outliers of a series, one step at a time: a filter takes them as missing, so that its state does not follow them.

The size of the errors is learnt beside the state, so the rule holds where the noise of a system is too small or too
large. A change that stays is no outlier. After a few outliers in a row the state becomes uncertain again, and the
filter follows the next values, like the monitoring of West and Harrison (1986).
"""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.loop.scan import scan
from tsforecast.core.system import AbstractLinearSystem

FAR = 6.0  # root mean squares of the errors so far, from which an error is an outlier
MOST = 3  # outliers in a row that count as missing
_FIRST = 20  # errors from which their size is learnt, before one can be an outlier
_GAIN = 0.03  # of the mean square, once it has more errors
_LARGEST = 9.0  # squared error that enters it, in mean squares: an outlier makes the next one no smaller
_WIDEST = 1e6  # number of times that a covariance is added, at most
_LEAST = 1e-4  # mean square, at least: errors without a size are rounding


@register_record
@dataclasses.dataclass(frozen=True)
class ErrorWatch:
    """Running statistics of the standardised errors of some series.

    Attributes:
        square: Mean square of the errors so far, of which recent ones count more.
        count: Number of errors so far.
        run: Number of outliers in a row until now.
    """

    square: Float[Tensor, "series target"]
    count: Int[Tensor, "series target"]
    run: Int[Tensor, "series target"]

    @classmethod
    def begin(cls, like: Float[Tensor, "series target"]) -> "ErrorWatch":
        """Return the statistics before the first error."""
        count = torch.zeros_like(like, dtype=torch.long)
        return cls(torch.zeros_like(like), count, count)

    def step(
        self, errors: Float[Tensor, "series target"], observed: Bool[Tensor, "series target"]
    ) -> tuple["ErrorWatch", Bool[Tensor, "series target"]]:
        """Return the statistics after a step, and a mask of its outliers; these count as missing.

        Args:
            errors: Standardised; without influence where not observed.
            observed: False where an observation is missing.
        """
        known, largest = self.count >= _FIRST, _LARGEST * self.square.clamp_min(_LEAST)
        outlier = observed & known & (errors.square() > FAR**2 * self.square.clamp_min(_LEAST))
        gain = (1 / (self.count + 1)).clamp_min(_GAIN)  # a plain mean of the first 33 errors
        # The first errors are taken in full: a size begun too small could hardly grow.
        squares = torch.where(self.count >= _FIRST // 2, torch.minimum(errors.square(), largest), errors.square())
        square = torch.where(observed, self.square + gain * (squares - self.square), self.square)
        # A missing value neither ends nor lengthens a run.
        run = torch.where(observed, torch.where(outlier, self.run + 1, 0), self.run)
        # One more is a change, which the state is to follow.
        return ErrorWatch(square, self.count + observed, run), outlier & (run <= MOST)

    @property
    def has_changed(self) -> Bool[Tensor, " series"]:
        """Return whether a target of a series has just had one more outlier in a row than can count as missing."""
        return (self.run == MOST + 1).any(-1)


def outliers(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None,
    again: Float[Tensor, "*#series state state"],
) -> tuple[Bool[Tensor, "time series target"], Float[Tensor, "time series"]]:
    """Return a mask of outliers given the observations before them, and the factors of `again` at every step.

    Where a series changes, the belief before the step gets `again` times its factor, 1 or more, so that the change
    becomes plausible. Factors are 0 elsewhere.

    Args:
        system: The system.
        prior: Over the state before the first step.
        values: Finite everywhere; without influence where not observed.
        observed: False where a component of an observation is missing; None if there is no such.
        again: Covariance that is added to the belief before a step where the series has changed, times a number.

    Raises:
        NotPositiveDefiniteError: Naming step and series.
    """
    seen, at = torch.ones_like(values, dtype=torch.bool) if observed is None else observed, system.by_step()

    def step(carry: tuple[Gaussian, ErrorWatch], x: tuple) -> tuple[tuple[Gaussian, ErrorWatch], tuple]:
        (belief, watch), (time, value, mask) = carry, x
        transition, emission = at(time)
        predicted = transition.marginal(belief)
        among = emission.marginal(predicted)
        # A target without noise has a variance of 0 once its state is known.
        errors = (value - among.mean) / among.variance.clamp_min(torch.finfo(value.dtype).tiny).sqrt()
        watch, outlier = watch.step(errors, mask)
        more = value.new_zeros(value.shape[0])
        if bool(watch.has_changed.any()):
            wide = emission.marginal(transition.marginal(widened(belief, more + 1, again))).variance - among.variance
            # The multiple of `again` that adds the square of the error to the predicted variance.
            wanted = errors.square() * among.variance / wide.clamp_min(torch.finfo(value.dtype).tiny)
            more = torch.where(watch.has_changed, torch.where(mask, wanted, 1.0).amax(-1).clamp(1.0, _WIDEST), 0.0)
            predicted = transition.marginal(widened(belief, more, again))
        return (emission.posterior(predicted, value, mask & ~outlier)[0], watch), (outlier, more)

    carry = prior, ErrorWatch.begin(values[0])
    return scan(step, carry, (range(len(values)), values, seen))[1]


def widened(belief: Gaussian, more: Float[Tensor, " series"], again: Float[Tensor, "*#series state state"]) -> Gaussian:
    """Return a belief with `more` times the covariance `again` added, for each series."""
    return Gaussian(belief.mean, belief.cov + more[:, None, None] * again)
