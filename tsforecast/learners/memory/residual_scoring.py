"""Gaussian residual scoring: factors of a Gaussian fit for each observation, and scores of their errors.

At an optimum of the variational objective a fit q is the prior times one Gaussian function r_n(w) = exp(eta_n w -
Lambda_n w^2 / 2) for each likelihood p_n, and the objective is log Z_q + sum_n E_q[log p_n - log r_n] (Kurle et al.,
*Continual Learning with Bayesian Neural Networks for Non-stationary Data*, 2020, section 3). Here weights are
independent: sums over the weights are left out of the formulas.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.learners.beliefs.diagonal import Independent
from tsforecast.learners.shapes import Weights

SCORES = ("grs", "centred", "residual_variance")


@register_record
@dataclasses.dataclass(frozen=True)
class Factors:
    """Gaussian functions r_n that a fit puts in the place of likelihoods.

    Attributes:
        linear: eta_n.
        precision: Lambda_n; an entry may be negative.
    """

    linear: Float[Tensor, "point weight"]
    precision: Float[Tensor, "point weight"]


def factors_of(
    gradient: Float[Tensor, "point weight"], precision: Float[Tensor, "point weight"], mean: Weights
) -> Factors:
    """Return Lambda_n and eta_n = g_n + Lambda_n mean (equation 5).

    Args:
        gradient: Of E_q[log p_n] by the mean of q: g_n.
        precision: Minus twice its gradient by the variance of q, which is minus the diagonal of the expected Hessian:
            Lambda_n.
        mean: Of q.
    """
    return Factors(torch.addcmul(gradient, precision, mean), precision)


def corrected(
    factors: Factors, before: Independent, fitted: Independent, counting: Bool[Tensor, " point"] | None = None
) -> Factors:
    """Return factors with a product that takes `before` to `fitted`: all lose their mean error (appendix C).

    Args:
        factors: As estimated.
        before: Prior of the fit.
        fitted: What came of it.
        counting: Points that share the error; None for all. The others keep their factors.
    """
    if counting is None:
        counting = torch.ones_like(factors.linear[:, 0], dtype=torch.bool)
    share = counting.to(factors.linear) / counting.sum().clamp_min(1)  # free places take no part in the correction

    def spread(parts: Tensor, whole: Tensor) -> Tensor:
        return torch.addcmul(parts, share.unsqueeze(-1), whole - parts.sum(0))

    precision = 1 / fitted.variance - 1 / before.variance
    linear = fitted.mean / fitted.variance - before.mean / before.variance
    return Factors(spread(factors.linear, linear), spread(factors.precision, precision))


def residuals(
    factors: Factors, draws: Float[Tensor, "draw weight"], log_prob: Float[Tensor, "draw point"]
) -> Float[Tensor, "draw point"]:
    """Return log p_n(w) - log r_n(w) at weights w."""
    return log_prob - draws @ factors.linear.T + 0.5 * draws.square() @ factors.precision.T


def scores(
    kind: str,
    factors: Factors,
    mean: Weights,
    draws: Float[Tensor, "draw weight"],
    log_prob: Float[Tensor, "draw point"],
    at_mean: Float[Tensor, " point"],
    share: Float[Tensor, " draw"] | None = None,
) -> Float[Tensor, " point"]:
    """Return the error of each factor in the place of its likelihood, under q.

    - `grs`: E[log p_n - log r_n], as published (equation 8). r_n has no normaliser, so that the score of a Gaussian
      likelihood is not 0, and depends on where the origin of the weights is.
    - `centred`: the same, less its value at the mean of q. It is 0 for likelihoods that are Gaussian in the weights.
    - `residual_variance`: Var[log p_n - log r_n], which depends neither on the origin nor on a constant.

    Args:
        kind: One of these.
        factors: Of the fit q.
        mean: Of q.
        draws: Weights from q, or nodes of a quadrature.
        log_prob: log p_n there.
        at_mean: log p_n at the mean.
        share: Of each draw in the expectation; None for equal ones.

    Raises:
        ValueError: If the kind is not known.
    """
    if kind not in SCORES:
        raise ValueError(f"expected score to be one of {', '.join(SCORES)}, got {kind!r}")
    errors = residuals(factors, draws, log_prob)
    share = draws.new_full((len(draws),), 1 / len(draws)) if share is None else share
    expected = share @ errors
    if kind == "grs":
        return expected
    if kind == "centred":
        return expected - residuals(factors, mean.unsqueeze(0), at_mean.unsqueeze(0))[0]
    return share @ (errors - expected).square()


def without(
    kept: Bool[Tensor, " point"],
    factors: Factors,
    before: Independent,
    fitted: Independent,
    adding: bool,
    floor: Weights,
) -> Independent:
    """Return the Gaussian part of a belief without the points that its memory keeps.

    Weights whose precision would fall below the floor get the floor, and the mean of the fit: without the memory
    nothing is known of them but where they are.

    Args:
        kept: Points that the memory keeps.
        factors: Of all points, corrected.
        before: Prior of the fit.
        fitted: Its result.
        adding: Whether the others are multiplied to `before`, or those that are kept divided out of `fitted`. The
            results are the same, but for rounding.
        floor: Smallest precisions, positive.
    """
    chosen = (~kept if adding else kept).to(factors.linear)
    start, sign = (before, 1.0) if adding else (fitted, -1.0)
    precision = 1 / start.variance + sign * (chosen @ factors.precision)
    linear = start.mean / start.variance + sign * (chosen @ factors.linear)
    proper = precision > floor
    precision = torch.where(proper, precision, floor)
    return Independent(torch.where(proper, linear / precision, fitted.mean), 1 / precision)
