"""Learners by name: compositions of a belief, evidence, a drift, a weight and a rule.

All take a module or network, a likelihood of a target given outputs, and the prior variance: one number, or one for
each layer. They start at the weights of the module unless a `mean` is given. Each sets some of `Parts`; a part that
the caller gives stands instead of the algorithm's own.
"""

import dataclasses
from typing import Any, TypeAlias, TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.beliefs.diagonal import BlockDiagonal, Diagonal
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.beliefs.low_rank_covariance import LRKF
from tsforecast.learners.beliefs.low_rank_precision import LOFI
from tsforecast.learners.descent import GradientDescent
from tsforecast.learners.drift import AbstractDrift, ExponentialForgetting, Wiener
from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator, Linearised, estimator_of
from tsforecast.learners.evidence.moment_matching import MomentMatched
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, GaussianLikelihood
from tsforecast.learners.networks.layer_chain import LayerChain, as_network, network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork, uniform_prior
from tsforecast.learners.networks.subspace import Subspace, random_basis
from tsforecast.learners.rule import BBB, BLR, BOG, BONG, AbstractRule
from tsforecast.learners.shapes import Weights
from tsforecast.learners.weight import AbstractWeight, InverseMultiquadric

Model: TypeAlias = nn.Module | AbstractNetwork
Variance: TypeAlias = float | tuple[float, ...]


class Parts(TypedDict, total=False):
    """Parts of a learner that a caller chooses; None, or absent, for those of the algorithm.

    Attributes:
        mean: Weights to begin with; those of the module.
        family: Of the belief; one with all covariances.
        evidence: Estimator of the evidence, or its name in `ESTIMATORS`; the linearised network.
        drift: Of the weights between observations; none.
        weight: Influence of an outlier; as much as any other observation.
        rule: Change of the belief by evidence; the Kalman update.
    """

    mean: Weights | None
    family: AbstractFamily | None
    evidence: AbstractEvidenceEstimator | str | None
    drift: AbstractDrift | None
    weight: AbstractWeight | None
    rule: AbstractRule | None


def _or(own: Parts, given: Parts) -> Parts:
    """Return the algorithm's own parts, and those of the caller instead of them."""
    chosen: Any = {**own, **{name: part for name, part in given.items() if part is not None}}
    return chosen


def ekf(
    model: Model, likelihood: AbstractLikelihood, variance: Variance = 0.1, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return an extended Kalman filter with all covariances.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        parts: See `Parts`.

    Raises:
        ValueError: If a network is given without weights to begin with, or a name of evidence is unknown.
    """
    chosen: Any = {name: part for name, part in parts.items() if part is not None}
    network, mean = network_and_weights(model, chosen.pop("mean", None))
    prior = uniform_prior(network.sizes, variance).to(mean)
    if "evidence" in chosen:
        chosen["evidence"] = estimator_of(chosen["evidence"])
    if "drift" in chosen:
        chosen["weight_drift"] = chosen.pop("drift")
    return GaussianLearner(network, likelihood, mean, prior, **chosen)


def iterated_ekf(
    model: Model, likelihood: AbstractLikelihood, variance: Variance = 0.1, *, passes: int = 3, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return an EKF that linearises again where it arrives, `passes` times in all."""
    return ekf(model, likelihood, variance, **_or({"rule": BONG(passes)}, parts))


def decoupled_ekf(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    layers: bool = False,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return an EKF with independent weights, or `layers`, by their covariances (Puskorius and Feldkamp 1991)."""
    network = as_network(model) if isinstance(model, nn.Module) else model
    family = BlockDiagonal(network.sizes) if layers else Diagonal("covariance")
    return ekf(model, likelihood, variance, **_or({"family": family}, parts))


def vd_ekf(
    model: Model, likelihood: AbstractLikelihood, variance: Variance = 0.1, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return a variational diagonal EKF: independent weights by their precisions (Chang, Murphy and Jones 2022)."""
    return ekf(model, likelihood, variance, **_or({"family": Diagonal()}, parts))


def wolf_ekf(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    threshold: float = 3.0,
    power: int = 2,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return a weighted-observation likelihood filter: outliers count less (Duran-Martin et al. 2024).

    An observation is an outlier from `threshold` standard deviations on, and loses weight by a `power` of the distance.
    """
    return ekf(model, likelihood, variance, **_or({"weight": InverseMultiquadric(threshold, power)}, parts))


def adf(
    model: Model,
    likelihood: AbstractLikelihood | None = None,
    variance: Variance = 0.1,
    *,
    link: str = "logistic",
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return assumed density filtering: labels of 0 or 1 by matching the moments of their logit.

    The `link` is "logistic", "probit" or "mackay", see `MomentMatched`. Without a likelihood predictions are moderated.
    """
    likelihood = BernoulliLikelihood(prediction="moderated") if likelihood is None else likelihood
    return ekf(model, likelihood, variance, **_or({"evidence": MomentMatched(link)}, parts))


def lofi(
    model: Model, likelihood: AbstractLikelihood, variance: Variance = 0.1, *, rank: int = 10, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return a low-rank EKF: precision diagonal plus `rank` columns (Chang et al. 2023)."""
    return ekf(model, likelihood, variance, **_or({"family": LOFI(rank)}, parts))


def lrkf(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    rank: int = 10,
    rate: float = 1e-3,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return a low-rank Kalman filter: covariance of `rank` random directions, moved by a Wiener drift of a `rate`."""
    return ekf(model, likelihood, variance, **_or({"family": LRKF(rank), "drift": Wiener(rate)}, parts))


def subspace_ekf(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: float = 0.1,
    *,
    dim: int = 100,
    basis: Float[Tensor, "weight coordinate"] | None = None,
    generator: torch.Generator | None = None,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return an EKF over coordinates in a subspace of the weights (Duran-Martin, Kara and Murphy 2022).

    The subspace has `dim` random directions, drawn by the `generator`, or those of a `basis` (see `basis_of_iterates`).
    Its origin is the `mean`; the `variance` is that of each coordinate.
    """
    network, origin = network_and_weights(model, parts.get("mean"))  # the mean is where the subspace lies
    if basis is None:
        basis = random_basis(len(origin), dim, generator, origin.dtype, origin.device)
    parts["mean"] = origin.new_zeros(basis.shape[-1])  # coordinates begin at the origin
    return ekf(Subspace(network, origin, basis), likelihood, variance, **parts)


def bong(
    model: Model, likelihood: AbstractLikelihood, variance: Variance = 0.1, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return the Bayesian online natural gradient: one step of length one (Jones, Chang and Murphy 2024)."""
    chosen = _or({"rule": BONG()}, parts)
    # A linearised step is a Kalman update; others move by the new precision.
    linearised = isinstance(estimator_of(parts.get("evidence") or "linearised"), Linearised)
    return ekf(model, likelihood, variance, **(chosen if linearised else _by_new_variances(chosen)))


def blr(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    iterations: int = 10,
    step: float = 0.3,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return the Bayesian learning rule, online (Khan and Rue 2023).

    Each observation is learnt by damped natural-gradient steps: `iterations` of length `step`.
    """
    return ekf(model, likelihood, variance, **_by_new_variances(_or({"rule": BLR(iterations, step)}, parts)))


def bog(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    step: float = 0.01,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return the Bayesian online gradient: the gradients of BONG, and a plain step of length `step`."""
    return ekf(model, likelihood, variance, **_or({"rule": BOG(step)}, parts))


def bbb(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    iterations: int = 10,
    step: float = 0.01,
    **parts: Unpack[Parts],
) -> GaussianLearner:
    """Return Bayes by backprop, online: plain steps on the whole objective (Blundell et al. 2015).

    Each observation is learnt by `iterations` of length `step`.
    """
    return ekf(model, likelihood, variance, **_or({"rule": BBB(iterations, step)}, parts))


def _by_new_variances(parts: Parts) -> Parts:
    """Give a diagonal belief the gain that is published for natural-gradient steps, unless one is chosen."""
    family = parts.get("family")
    if isinstance(family, Diagonal) and family.gain is None:
        return {**parts, "family": dataclasses.replace(family, gain="projected")}
    return parts


def ogd(
    model: Model,
    likelihood: AbstractLikelihood,
    variance: Variance = 0.1,
    *,
    mean: Weights | None = None,
    rate: float = 0.01,
) -> GradientDescent:
    """Return online gradient descent with steps of length `rate`; it has no drift, and reads no prior variance."""
    network, mean = network_and_weights(model, mean)
    return GradientDescent(network, likelihood, mean, rate)


def rls(
    features: int, variance: float = 1.0, noise: float = 1.0, forgetting: float = 1.0, **parts: Unpack[Parts]
) -> GaussianLearner:
    """Return recursive least squares, with a forgetting factor.

    Args:
        features: Number of inputs.
        variance: Of each weight in the prior.
        noise: Variance of the target around the output.
        forgetting: Part of the evidence that a step leaves; read where no drift is given.
        parts: Parts instead of those of `ekf`; the mean is zero.
    """
    network = LayerChain((features, 1), (nn.Identity,), (False,))
    own: Parts = {"mean": torch.zeros(features)}
    if forgetting != 1:
        own["drift"] = ExponentialForgetting(forgetting)
    return ekf(network, GaussianLikelihood(noise), variance, **_or(own, parts))


def ewma(
    rate: float = 0.1, threshold: float | None = 3.0, variance: float = 1.0, noise: float = 1.0
) -> GaussianLearner:
    """Return an exponentially weighted moving average: a level that drifts, seen with noise.

    In the steady state the gain k of a weight of one obeys k^2 noise / (1 - k) = rate variance.

    Args:
        rate: Of the drift.
        threshold: From which on an observation is an outlier, in standard deviations; None for an average that is not
            robust.
        variance: Of the level in the prior.
        noise: Variance of an observation around the level.
    """
    weight = None if threshold is None else InverseMultiquadric(threshold)
    return rls(1, variance, noise, drift=Wiener(rate), weight=weight)
