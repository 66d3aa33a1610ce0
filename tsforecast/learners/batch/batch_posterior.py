"""Gaussian posteriors of all data at once, for likelihoods of x' theta: expectation propagation, ADF and Laplace.

All three are the prior times one Gaussian site exp(linear f - precision f^2 / 2) of f = x' theta for each point, and
give a belief of the family `Full`. A point that counts for less, as old ones do where evidence is forgotten, has its
likelihood to the power of its count.
"""

import abc
import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import cholesky, matvec, symmetrise
from tsforecast.learners.batch.sites import AbstractSite, LogisticSite


@dataclasses.dataclass(frozen=True)
class Sites:
    """Gaussian factors exp(linear f - precision f^2 / 2), one for each point.

    Attributes:
        precision: 0 where a point says nothing.
        linear: Precision times location.
    """

    precision: Float[Tensor, " point"]
    linear: Float[Tensor, " point"]

    def times(self, counts: Float[Tensor, " point"] | float) -> "Sites":
        """Return the sites to the powers of counts."""
        return Sites(self.precision * counts, self.linear * counts)


@dataclasses.dataclass(frozen=True)
class BatchPosterior:
    """Result of a fit to all data.

    Attributes:
        belief: Over the weights, as the family `Full` has it.
        sites: The factors that the data became.
        sweeps: Passes over the data, or Newton steps.
        change: Largest change by the last of them, in standard deviations of the belief; NaN of a single pass.
        skipped: Sites passed over in the last sweep, as no Gaussian was left without them.
        converged: Whether the change is within the tolerance.
        log_evidence: Approximate log-density of the targets, with the weights integrated out; NaN of a single pass.
            Differences between models or priors are log Bayes factors.
    """

    belief: Gaussian
    sites: Sites
    sweeps: int
    change: float
    skipped: int
    converged: bool
    log_evidence: float


@dataclasses.dataclass(frozen=True)
class AbstractBatchPosterior(abc.ABC):
    """A way from prior and data to a Gaussian posterior. Settings only.

    Attributes:
        site: Likelihood of x' theta, log-concave: there is one mode.
    """

    site: AbstractSite = dataclasses.field(default_factory=LogisticSite)

    def fit(
        self,
        prior: Gaussian,
        inputs: Float[Tensor, "point weight"],
        target: Float[Tensor, "label 1"],
        start: Sites | None = None,
        counts: Float[Tensor, " count"] | None = None,
    ) -> BatchPosterior:
        """Return the posterior.

        Args:
            prior: Over the weights.
            inputs: Finite; of a model with an intercept one of them is 1. There may be no point.
            target: As the site takes it.
            start: Sites of an earlier fit to the first of these points, from which to go on.
            counts: How much each point counts, from 0 to 1; None for once each.

        Raises:
            ValueError: If inputs or targets are not finite, do not fit each other, or cannot come from the likelihood;
                or if a count is outside of its range.
        """
        check(self.site, prior, inputs, target, counts)
        old = 0 if start is None else len(start.precision)
        with torch.no_grad():
            return self._fit(prior, inputs, target[:, 0], started(inputs, start), counts, old)

    @abc.abstractmethod
    def _fit(
        self, prior: Gaussian, inputs: Tensor, target: Tensor, sites: Sites, counts: Tensor | None, old: int
    ) -> BatchPosterior:
        """Return the posterior of data that are checked; `old` points have a site to start from."""


def check(site: AbstractSite, prior: Gaussian, inputs: Tensor, target: Tensor, counts: Tensor | None = None) -> None:
    """Refuses data that no posterior can be of.

    Raises:
        ValueError: Naming what was expected and what came.
    """
    if len(inputs) != len(target):
        raise ValueError(f"expected a target for each of {len(inputs)} points, got {len(target)}")
    if inputs.shape[-1] != prior.mean.shape[-1]:
        raise ValueError(f"expected {prior.mean.shape[-1]} inputs, one for each weight, got {inputs.shape[-1]}")
    for name, values in (("inputs", inputs), ("targets", target)):
        if not bool(values.isfinite().all()):
            where = (~values.isfinite()).nonzero()[0].tolist()
            raise ValueError(f"expected finite {name}, got {values[tuple(where)].item():g} at index {where}")
    site.check(target[:, 0])
    if counts is not None:
        if counts.shape != target[:, 0].shape:
            raise ValueError(f"expected a count for each of {len(inputs)} points, got {tuple(counts.shape)}")
        wrong = ~((counts >= 0) & (counts <= 1))  # a NaN is wrong, too
        if bool(wrong.any()):
            raise ValueError(f"expected counts from 0 to 1, got {counts[wrong][0].item():g}")


@dataclasses.dataclass(frozen=True)
class Natural:
    """A prior in natural parameters: Lambda, and Lambda m."""

    precision: Tensor
    linear: Tensor

    @staticmethod
    def of(prior: Gaussian) -> "Natural":
        """Return those of a prior."""
        factor = cholesky(prior.cov, "the prior's covariance")
        precision = symmetrise(torch.cholesky_inverse(factor))
        return Natural(precision, matvec(precision, prior.mean))

    def times(self, inputs: Tensor, sites: Sites) -> Gaussian:
        """The prior times all sites."""
        precision = self.precision + inputs.mT @ (sites.precision.unsqueeze(-1) * inputs)
        cov = symmetrise(torch.cholesky_inverse(cholesky(symmetrise(precision), "the precision of a posterior")))
        return Gaussian(matvec(cov, self.linear + sites.linear @ inputs), cov)


def log_volume_ratio(prior: Gaussian, belief: Gaussian) -> float:
    """Return half of log |S| - log |S0|."""
    return 0.5 * (torch.linalg.slogdet(belief.cov)[1] - torch.linalg.slogdet(prior.cov)[1]).item()


def started(inputs: Tensor, start: Sites | None) -> Sites:
    """Return the sites to go on from, with empty ones for points that are new."""
    if start is None:
        return Sites(inputs.new_zeros(len(inputs)), inputs.new_zeros(len(inputs)))  # a site of 0 is the factor 1
    if len(start.precision) > len(inputs):
        raise ValueError(f"expected at most {len(inputs)} sites, one for each point, got {len(start.precision)}")
    new = inputs.new_zeros(len(inputs) - len(start.precision))
    return Sites(*(torch.cat([x, new]) for x in parts(start)))


def parts(sites: Sites) -> tuple[Tensor, Tensor]:
    """Return precisions and linear terms."""
    return sites.precision, sites.linear


def change_between(before: Gaussian, after: Gaussian) -> float:
    """Largest change of a mean or standard deviation, in standard deviations."""
    sd = after.variance.sqrt()
    moved = (after.mean - before.mean).abs() / sd
    return torch.maximum(moved, (before.variance.sqrt() / sd - 1).abs()).max().item()
