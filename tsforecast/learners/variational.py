"""Variational learners, by name: natural-gradient and plain-gradient steps on the variational objective.

All take what the extended Kalman filters take, but evidence by its name.
"""

import dataclasses

from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.beliefs.diagonal import Diagonal
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.drift import AbstractDrift
from tsforecast.learners.evidence.estimators import (
    AbstractEvidenceEstimator,
    EmpiricalFisher,
    Linearised,
    MonteCarloHessian,
)
from tsforecast.learners.extended_kalman import ekf
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.rule import BBB, BLR, BOG, BONG
from tsforecast.learners.weight import AbstractWeight

EVIDENCE = {
    "linearised": Linearised(),
    "empirical-fisher": EmpiricalFisher(),
    "linearised-fisher": EmpiricalFisher(num_samples=0),
    "hessian": MonteCarloHessian(),
}


def _evidence(name: str) -> AbstractEvidenceEstimator:
    if name not in EVIDENCE:
        raise ValueError(f"expected evidence to be one of {', '.join(EVIDENCE)}, got {name!r}")
    return EVIDENCE[name]


def _moved_by_new_variances(family: AbstractFamily | None) -> AbstractFamily | None:
    """Give a diagonal belief the gain that is published for natural-gradient steps, unless one is chosen."""
    if isinstance(family, Diagonal) and family.gain is None:
        return dataclasses.replace(family, gain="projected")
    return family


def bong(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    evidence: str = "linearised",
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
) -> GaussianLearner:
    """Return the Bayesian online natural gradient: one step of length one (Jones, Chang and Murphy 2024).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        evidence: How it is found: "linearised", "empirical-fisher", "linearised-fisher" or "hessian".
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
    """
    family = family if evidence == "linearised" else _moved_by_new_variances(family)
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        drift=drift,
        weight=weight,
        evidence=_evidence(evidence),
        rule=BONG(),
    )


def blr(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    evidence: str = "linearised",
    iterations: int = 10,
    step: float = 0.3,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
) -> GaussianLearner:
    """Return the Bayesian learning rule, online: damped natural-gradient steps (Khan and Rue 2023).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        evidence: How it is found: "linearised", "empirical-fisher", "linearised-fisher" or "hessian".
        iterations: Steps for each observation.
        step: Length of a step.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
    """
    family = _moved_by_new_variances(family)
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        drift=drift,
        weight=weight,
        evidence=_evidence(evidence),
        rule=BLR(iterations, step),
    )


def bog(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    evidence: str = "linearised",
    step: float = 0.01,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
) -> GaussianLearner:
    """Return the Bayesian online gradient: the gradients of BONG, a plain step.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        evidence: How it is found: "linearised", "empirical-fisher", "linearised-fisher" or "hessian".
        step: Length of the step.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
    """
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        drift=drift,
        weight=weight,
        evidence=_evidence(evidence),
        rule=BOG(step),
    )


def bbb(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    evidence: str = "linearised",
    iterations: int = 10,
    step: float = 0.01,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
) -> GaussianLearner:
    """Return Bayes by backprop, online: plain steps on the whole objective (Blundell et al. 2015).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        evidence: How it is found: "linearised", "empirical-fisher", "linearised-fisher" or "hessian".
        iterations: Steps for each observation.
        step: Length of a step.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
    """
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        drift=drift,
        weight=weight,
        evidence=_evidence(evidence),
        rule=BBB(iterations, step),
    )
