"""The Laplace approximation of a posterior."""

import dataclasses
import math

from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.learners.batch.batch_posterior import (
    AbstractBatchPosterior,
    BatchPosterior,
    Natural,
    Sites,
    change_between,
    log_volume_ratio,
)
from tsforecast.learners.batch.sites import AbstractSite


@dataclasses.dataclass(frozen=True)
class Laplace(AbstractBatchPosterior):
    """A Gaussian at the mode, with the curvature there: Lambda = S0^{-1} + X' diag(-l'') X, of counts times l.

    The log evidence is log p(y | m) + log N(m; m0, S0) + log((2 pi)^(D/2) |S|^(1/2)).

    Its prior is the prior: FAB-COST's published baseline gives the last posterior's precision to a fit of all data,
    which counts them twice.

    Attributes:
        steps: Newton steps at most.
        tolerance: Of a step, in standard deviations, at which it stops.
    """

    steps: int = 100
    tolerance: float = 1e-9

    def _fit(
        self, prior: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None, old: int
    ) -> BatchPosterior:
        """Newton's method, with steps halved until the density rises."""
        natural = Natural.of(prior)
        belief = prior if not bool(sites.precision.any()) else natural.times(inputs, sites)
        mean = belief.mean

        def log_density(weights: Tensor) -> float:
            gap = weights - prior.mean
            terms = self.site.log_prob(inputs @ weights, target)
            total = terms.sum() if counts is None else counts @ terms
            return (total - 0.5 * gap @ natural.precision @ gap).item()

        change, count = math.inf, 0  # a step is taken in any case
        height = log_density(mean)
        while count < self.steps and change > self.tolerance:
            sites = _expanded(self.site, inputs @ mean, target, counts)
            belief = natural.times(inputs, sites)
            step, length = belief.mean - mean, 1.0
            # "not >=": a NaN is no rise.
            while not (moved := log_density(mean + length * step)) >= height and length > 1e-10:
                length /= 2
            change = change_between(Gaussian(mean, belief.cov), belief)
            if length <= 1e-10:  # rounding: no step rises
                break
            mean, height, count = mean + length * step, moved, count + 1
        sites = _expanded(self.site, inputs @ mean, target, counts)
        # The curvature at the mode itself, not one step before.
        belief = Gaussian(mean, natural.times(inputs, sites).cov)
        evidence = height + log_volume_ratio(prior, belief)
        # Rounding may end the search before the tolerance.
        return BatchPosterior(belief, sites, count, change, 0, change <= max(self.tolerance, 1e-6), evidence)


def _expanded(site: AbstractSite, f: Tensor, target: Tensor, counts: Tensor | None) -> Sites:
    """Expand the log-likelihoods to second order at f."""
    slope, bend = site.derivatives(f, target)
    sites = Sites(bend, slope + bend * f)
    return sites if counts is None else sites.times(counts)
