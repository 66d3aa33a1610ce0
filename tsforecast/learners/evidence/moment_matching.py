"""Evidence of a label by matching the moments of its logit: assumed density filtering."""

import dataclasses
import math

import torch

from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator, weighted
from tsforecast.learners.evidence.pseudo_observation import Near, PseudoObservation
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood
from tsforecast.learners.shapes import Batch

LINKS = ("logistic", "probit", "mackay")


@dataclasses.dataclass(frozen=True)
class MomentMatched(AbstractEvidenceEstimator):
    """Mean and variance of the logit given a label: assumed density filtering where the network is linear.

    What matches them is a Gaussian factor of the logit. Where a point counts, or weighs, other than one, the factor is
    raised to that power: twice is not quite the same as the label seen twice, one after the other.

    Attributes:
        link: "logistic" by quadrature; "probit" in closed form; "mackay" for the logistic link by his approximation.

    Raises:
        ValueError: If the link is not known.
    """

    link: str = "logistic"

    pointwise = True  # every point needs the belief after the one before

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"expected link to be one of {', '.join(LINKS)}, got {self.link!r}")

    def __call__(self, near: Near, generator: torch.Generator | None = None) -> PseudoObservation:
        """Return a row sqrt(tau) h' with residual (nu - tau a) / sqrt(tau)."""
        model, points = near.model, near.points
        if not isinstance(model.likelihood, BernoulliLikelihood):
            raise TypeError(
                f"expected a Bernoulli likelihood for matching moments, got {type(model.likelihood).__name__}"
            )
        logit, jacobian = near.linearise()
        if logit.numel() != 1:
            raise ValueError(f"expected one point with one logit for matching moments, got shape {tuple(logit.shape)}")
        row = jacobian[0]
        variance = model.family.covariance(near.belief, row)[0, 0]
        moments = {"logistic": logistic_moments, "probit": probit_moments, "mackay": mackay_moments}[self.link]
        matched, left = moments(logit[0, 0], variance, 2 * points.target[0, 0] - 1)
        # As a site N(logit; nu / tau, 1 / tau): tau = 1 / v1 - 1 / s2, nu - tau a = (m1 - a) / v1.
        # Both factors are log-concave: only rounding makes a variance grow.
        precision = ((variance - left) / (variance * left)).clamp_min(0)
        known = precision > torch.finfo(precision.dtype).tiny
        if points.observed is not None:
            known = known & points.observed[0, 0]
        root = torch.where(known, precision, 1.0).sqrt()
        residual = torch.where(known, (matched - logit[0, 0]) / (left * root), 0.0)
        observation = PseudoObservation(row * (root * known), residual.unsqueeze(0))
        # Counts enter as a power of the factor below.
        once = dataclasses.replace(near, points=dataclasses.replace(points, counts=None))
        observation = weighted(observation, once)
        return observation if points.counts is None else observation.scaled(points.counts[0])


def logistic_moments(mean: Batch, variance: Batch, label: Batch) -> tuple[Batch, Batch]:
    """Mean and variance of N(f; mean, variance) sigmoid(label f), label -1 or 1, by quadrature around its mode.

    Points are equidistant in asinh(f): the sigmoid bends within a few units of 0, however wide the Gaussian is.
    """
    low, high = (0, 1)  # the mode is mean + label variance u, with u = sigmoid(-label f) between 0 and 1
    lower, upper = torch.full_like(mean, low), torch.full_like(mean, high)
    for _ in range(40):  # halvings, to 1e-12
        middle = 0.5 * (lower + upper)
        above = torch.sigmoid(-label * mean - variance * middle) > middle
        lower, upper = torch.where(above, middle, lower), torch.where(above, upper, middle)
    mode = mean + label * variance * 0.5 * (lower + upper)
    # log sigmoid(f) is at most min(f, 0): beyond these ends the density is below e^-40 of that at the mode.
    top = torch.nn.functional.logsigmoid(label * mode) - 0.5 * (mode - mean).square() / variance - 40
    centre = label * mean + variance
    reach = (variance * (2 * label * mean + variance - 2 * top)).sqrt()
    # centre - reach, which is a small difference of large numbers where the centre is positive
    behind = torch.where(centre > 0, (mean.square() + 2 * variance * top) / (centre + reach), centre - reach)
    ahead = label * mean + (-2 * variance * top).sqrt()
    behind, ahead = behind.asinh(), ahead.asinh()
    share = torch.linspace(0, 1, 1201, dtype=mean.dtype, device=mean.device)
    place = label.unsqueeze(-1) * (behind.unsqueeze(-1) + share * (ahead - behind).unsqueeze(-1))
    grid = place.sinh()
    log_density = torch.nn.functional.logsigmoid(label.unsqueeze(-1) * grid)
    log_density = log_density - 0.5 * (grid - mean.unsqueeze(-1)).square() / variance.unsqueeze(-1)
    mass = (log_density + place.cosh().log()).softmax(-1)  # d grid / d place
    matched = (mass * grid).sum(-1)
    return matched, (mass * (grid - matched.unsqueeze(-1)).square()).sum(-1)


def probit_moments(mean: Batch, variance: Batch, label: Batch) -> tuple[Batch, Batch]:
    """Mean and variance of N(f; mean, variance) Phi(label f), label -1 or 1, in closed form."""
    total = (1 + variance).sqrt()
    z = label * mean / total
    ratio = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
    matched = mean + label * variance * ratio / total
    return matched, variance - variance.square() / (1 + variance) * ratio * (z + ratio)


def mackay_moments(mean: Batch, variance: Batch, label: Batch) -> tuple[Batch, Batch]:
    """Mean and variance of N(f; mean, variance) sigmoid(label f), by the approximation of MacKay (1992).

    With k = (1 + pi variance / 8)^{-1/2}, Z = sigmoid(label k mean).
    The variance is that of -d^2 log Z / d mean^2 = k^2 sigmoid(k a) sigmoid(-k a), which never grows.
    """
    shrink = (1 + math.pi * variance / 8).rsqrt()
    slope = label * shrink * torch.sigmoid(-label * shrink * mean)
    bend = shrink.square() * torch.sigmoid(shrink * mean) * torch.sigmoid(-shrink * mean)
    return mean + variance * slope, variance - variance.square() * bend
