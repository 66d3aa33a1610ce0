"""Expectation propagation, and its first sweep: assumed density filtering."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import symmetrise
from tsforecast.learners.batch.batch_posterior import (
    AbstractBatchPosterior,
    BatchPosterior,
    Natural,
    Sites,
    change_between,
    log_volume_ratio,
    parts,
    started,
)
from tsforecast.learners.batch.sites import AbstractSite

SCHEDULES = ("sequential", "parallel")
# Share of the old site that a parallel sweep keeps, at least: all new sites together would overshoot.
_LEAST_KEPT = 0.5


@dataclasses.dataclass(frozen=True)
class EP(AbstractBatchPosterior):
    """Expectation propagation with scalar sites (Minka 2001; McKenzie et al. 2020, FAB-COST, algorithm 3).

    Each visit divides a site out, finds mean and variance of the exact factor times the rest, and sets the site to what
    gives these moments: O(D^2), by a rank-one update. The covariance is computed anew from the sites after each sweep.
    The log evidence is Minka's, too: at the fixed point it is stationary in all sites.

    Attributes:
        sweeps: Passes over the data at most.
        tolerance: Change of means and standard deviations, in standard deviations, at which it stops.
        damping: Part of the old site that is kept.
        schedule: "sequential" visits the points in order, so that a first sweep is `ADF`; "parallel" updates all sites
            of a sweep from the same belief, by few large products, with at least half of the old site kept.

    Raises:
        ValueError: If a setting is outside of its range.
    """

    sweeps: int = 50
    tolerance: float = 1e-6
    damping: float = 0.0
    schedule: str = "sequential"

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise ValueError(f"expected sweeps to be at least 1, got {self.sweeps}")
        if not 0 <= self.damping < 1:
            raise ValueError(f"expected damping to be at least 0 and below 1, got {self.damping}")
        if not 0 <= self.tolerance < math.inf:
            raise ValueError(f"expected tolerance to be at least 0 and finite, got {self.tolerance}")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"expected schedule to be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    def _fit(
        self, prior: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None, old: int
    ) -> BatchPosterior:
        """Sweep until nothing changes."""
        natural = Natural.of(prior)
        # Without sites two inversions would only round.
        belief = prior if not bool(sites.precision.any()) else natural.times(inputs, sites)
        sweep = self._sequential if self.schedule == "sequential" else self._parallel
        change, skipped, count = math.inf, 0, 0  # a sweep is made in any case
        while count < self.sweeps and change > self.tolerance:
            before = belief
            sites, skipped = sweep(belief, inputs, target, sites, counts)
            belief = natural.times(inputs, sites)
            change, count = change_between(before, belief), count + 1
        evidence = self._log_evidence(natural, prior, belief, inputs, target, sites, counts)
        return BatchPosterior(belief, sites, count, change, skipped, change <= self.tolerance, evidence)

    def _log_evidence(
        self,
        natural: Natural,
        prior: Gaussian,
        belief: Gaussian,
        inputs: Tensor,
        target: Tensor,
        sites: Sites,
        counts: Tensor | None,
    ) -> float:
        """Return the integral of the prior times all sites, scaled to the masses of their factors."""
        tau, nu = parts(sites)
        a, s2 = inputs @ belief.mean, ((inputs @ belief.cov) * inputs).sum(-1)
        rest = 1 - s2 * tau
        proper = (rest > 0) & (s2 > 0)  # else a zero row: the factor is a number, and its site is 1
        divisor = torch.where(proper, rest, 1.0)
        mean, variance = (a - s2 * nu) / divisor, torch.where(proper, s2, 1.0) / divisor
        grown = 1 + tau * variance
        site_mass = 0.5 * ((nu.square() * variance + 2 * nu * mean - tau * mean.square()) / grown - grown.log())
        number = self.site.log_prob(a, target) * (1.0 if counts is None else counts)
        factors = torch.where(proper, self.site.log_mass(mean, variance, target, counts) - site_mass, number)
        # By their linear terms: m' Lambda m of the posterior, less that of the prior.
        energy = (natural.linear + nu @ inputs) @ belief.mean - natural.linear @ prior.mean
        return (factors.sum() + 0.5 * energy).item() + log_volume_ratio(prior, belief)

    def _sequential(
        self, belief: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None
    ) -> tuple[Sites, int]:
        """One site after the other, each at the belief that the one before left."""
        _, sites, skipped = _visits(self.site, belief, inputs, target, sites, self.damping, counts)
        return sites, skipped

    def _parallel(
        self, belief: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None
    ) -> tuple[Sites, int]:
        """All sites at the same belief."""
        a, s2 = inputs @ belief.mean, ((inputs @ belief.cov) * inputs).sum(-1)
        rest = 1 - s2 * sites.precision
        proper = (rest > 0) & (s2 > 0)
        rest, width = torch.where(proper, rest, 1.0), torch.where(proper, s2, 1.0)
        updated = _site(self.site, (a - s2 * sites.linear) / rest, width / rest, target, counts)
        keep = max(self.damping, _LEAST_KEPT if bool(sites.precision.any()) else 0.0)
        pairs = zip(updated, parts(sites), strict=True)
        mixed = (torch.where(proper, (1 - keep) * new + keep * old, old) for new, old in pairs)
        return Sites(*mixed), int((~proper).sum())


@dataclasses.dataclass(frozen=True)
class ADF(AbstractBatchPosterior):
    """Assumed density filtering: one pass over the points, without a second visit (algorithm 4).

    It is the first sweep of `EP`, and what the learner `adf` does one observation after the other. Points that have a
    site to start from stay as they are.
    """

    def _fit(
        self, prior: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None, old: int
    ) -> BatchPosterior:
        """Take in the points that are new."""
        belief = Natural.of(prior).times(inputs, sites) if old else prior
        new_counts = None if counts is None else counts[old:]
        belief, new, skipped = visit_once(self.site, belief, inputs[old:], target[old:], new_counts)
        joined = (torch.cat([x[:old], y]) for x, y in zip(parts(sites), parts(new), strict=True))
        return BatchPosterior(belief, Sites(*joined), 1, math.nan, skipped, True, math.nan)


def _site(
    site: AbstractSite, mean: Tensor, variance: Tensor, target: Tensor, counts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The site that gives a cavity the moments of the exact factor, never with a negative precision."""
    if counts is None:
        matched, left = site.moments(mean, variance, target)
    else:
        matched, left = site.powered_moments(mean, variance, target, counts)
    precision = ((variance - left) / (variance * left)).clamp_min(0)
    # m1 / v1 - a / s2 = tau m1 + (m1 - a) / s2
    return precision, precision * matched + (matched - mean) / variance


def visit_once(
    site: AbstractSite,
    belief: Gaussian,
    inputs: Float[Tensor, "point weight"],
    target: Float[Tensor, " point"],
    counts: Float[Tensor, " point"] | None = None,
) -> tuple[Gaussian, Sites, int]:
    """Return the belief after new points, one after the other; their sites; and the number of skipped ones."""
    with torch.no_grad():
        return _visits(site, belief, inputs, target, started(inputs, None), 0.0, counts)


def _visits(
    site: AbstractSite,
    belief: Gaussian,
    inputs: Tensor,
    target: Tensor,
    sites: Sites,
    damping: float,
    counts: Tensor | None,
) -> tuple[Gaussian, Sites, int]:
    """Visit each site at the belief that the one before left: O(D^2) by S+ = S - S x x' S dtau / (1 + dtau s2)."""
    mean, cov = belief.mean.clone(), belief.cov.clone()
    precision, linear = sites.precision.clone(), sites.linear.clone()
    skipped = 0
    for k, (x, tau, nu) in enumerate(zip(inputs, precision.tolist(), linear.tolist(), strict=True)):
        cross = cov @ x
        a, s2 = (x @ mean).item(), (x @ cross).item()
        rest = 1 - s2 * tau
        if not (rest > 0 and s2 > 0):  # nothing proper is left without the site
            skipped += 1
            continue
        cavity = inputs.new_tensor([[(a - s2 * nu) / rest], [s2 / rest]])
        count = None if counts is None else counts[k : k + 1]
        new, push = (z.item() for z in _site(site, cavity[0], cavity[1], target[k : k + 1], count))
        new, push = (1 - damping) * new + damping * tau, (1 - damping) * push + damping * nu
        grown = 1 + (new - tau) * s2  # positive: so is the cavity's precision, and that of the site
        precision[k], linear[k] = new, push
        mean += cross * ((push - nu - (new - tau) * a) / grown)
        cov.addr_(cross, cross, alpha=(tau - new) / grown)
    return Gaussian(mean, symmetrise(cov)), Sites(precision, linear), skipped
