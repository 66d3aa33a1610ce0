"""The noise of a stream of numbers, learnt from how far its predictions were off."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from tsforecast.learners import LRKF, AbstractNetworkLearner, GaussianLearner, GaussianLikelihood, Unweighted
from tsforecast.learners.likelihoods.predictions import Expectation

BEGIN = 0.5  # variance of standardised targets that a learner has not explained yet
_COUNT = 10.0  # to begin with
_GROWTH = 1 / 3  # of the count with an observation: slower than 1, so that the first variance is soon forgotten
_MEMORY = 300.0  # where the count ends, and older observations fade
_LARGEST = 36.0  # a squared error counts at most as many expected ones
_LEAST, _MOST = 1e-8, 1e8  # beyond which it is rounding


@dataclasses.dataclass(frozen=True)
class Noise:
    """Variance of the noise by which squared errors are as large as they were expected to be.

    An error e is expected to have the variance S + R of weights and noise. So R is multiplied by
    1 + (e^2 / (S + R) - 1) / n: a stochastic approximation (Robbins and Monro 1951) whose fixed point is a calibrated
    prediction.

    Attributes:
        variance: R, of standardised targets.
        count: n, which grows by a third of an observation, and ends where older ones fade.
    """

    variance: float = BEGIN
    count: float = _COUNT

    @staticmethod
    def suits(learner: AbstractNetworkLearner[Any]) -> bool:
        """Return whether a learner can have a noise that changes.

        The unit of a weight is the noise, which outliers must not move. Steps of gradient descent are a length over it.
        A covariance of low rank would take what lies beside its directions for noise, and learn even less.
        """
        return (
            isinstance(learner, GaussianLearner)
            and isinstance(learner.likelihood, GaussianLikelihood)
            and isinstance(learner.weight, Unweighted)
            and not isinstance(learner.family, LRKF)
        )

    def of(self, learner: AbstractNetworkLearner[Any]) -> AbstractNetworkLearner[Any]:
        """Return the learner with this noise."""
        settings: Any = learner  # a dataclass, which only its subclasses are
        return dataclasses.replace(settings, likelihood=GaussianLikelihood(self.variance))

    def after(self, expected: Expectation, target: Tensor, counts: Tensor | None) -> "Noise":
        """Return the noise after some targets, which were predicted before any of them was learnt from.

        Args:
            expected: Their means and variances.
            target: They themselves, shape (point, 1); NaN is missing. Where a stream has not varied yet they are
                exactly 0, and say nothing of its noise.
            counts: How often each counts; None for once.
        """
        surprise = ((target - expected.mean).square() / expected.variance)[:, 0].clamp(max=_LARGEST)
        seen = ~surprise.isnan() & (target[:, 0] != 0)
        if not bool(seen.any()):
            return self
        times = torch.ones_like(surprise) if counts is None else counts.to(surprise)
        # Rows of a block know nothing of each other: their average moves the variance once.
        rows, average = int(seen.sum()), float((surprise * times)[seen].sum() / times[seen].sum())
        variance = self.variance * (1 + rows * (average - 1) / (self.count + rows))
        return Noise(min(max(variance, _LEAST), _MOST), min(self.count + _GROWTH * rows, _MEMORY))
