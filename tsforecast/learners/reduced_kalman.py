"""Kalman filters over weights that keep less than all covariances between them: low rank, or a subspace."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.beliefs.low_rank_covariance import LRKF
from tsforecast.learners.beliefs.low_rank_precision import LOFI
from tsforecast.learners.drift import AbstractDrift, Wiener
from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator
from tsforecast.learners.extended_kalman import ekf
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.networks.layer_chain import network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.networks.subspace import Subspace, random_basis
from tsforecast.learners.rule import AbstractRule
from tsforecast.learners.weight import AbstractWeight


def subspace_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float = 0.1,
    *,
    dim: int = 100,
    basis: Float[Tensor, "weight coordinate"] | None = None,
    generator: torch.Generator | None = None,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return an EKF over coordinates in a subspace of the weights (Duran-Martin, Kara and Murphy 2022).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of each coordinate.
        dim: Number of random directions.
        basis: Directions, instead of random ones; see `basis_of_iterates`.
        generator: Of random directions.
        mean: The origin of the subspace; None for the weights of the module.
        family: Of the belief; None for one with all covariances.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    network, origin = network_and_weights(model, mean)
    if basis is None:
        basis = random_basis(len(origin), dim, generator, origin.dtype, origin.device)
    network = Subspace(network, origin, basis)
    return ekf(
        network,
        likelihood,
        variance,
        family=family,
        evidence=evidence,
        drift=drift,
        weight=weight,
        rule=rule,
        mean=origin.new_zeros(basis.shape[-1]),
    )


def lofi(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    rank: int = 10,
    mean: Float[Tensor, " weight"] | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return a low-rank EKF: precision diagonal plus low rank (Chang et al. 2023).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        rank: Number of columns that are kept.
        mean: Weights to begin with; None for those of the module.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        evidence=evidence,
        drift=drift,
        weight=weight,
        rule=rule,
        family=LOFI(rank),
    )


def lrkf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    rank: int = 10,
    rate: float = 1e-3,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return a low-rank Kalman filter: covariance of low rank, with the noise that keeps its directions moving.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        rank: Number of directions; read where no family is given.
        rate: Of the Wiener drift that it has where no drift is given.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one of this rank, with random directions.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for a Wiener drift.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    family = LRKF(rank) if family is None else family
    drift = Wiener(rate) if drift is None else drift
    return ekf(
        model, likelihood, variance, mean=mean, family=family, evidence=evidence, drift=drift, weight=weight, rule=rule
    )
