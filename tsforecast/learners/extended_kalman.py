"""Extended Kalman filters over weights, by name: compositions of belief, evidence, drift, weight and rule.

All take a module or network, a likelihood and the prior variance (one, or one for each layer). They start at the
weights of the module unless others are given. An argument that is None is what the algorithm has.
"""

from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners.beliefs.diagonal import BlockDiagonal, Diagonal
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.drift import AbstractDrift
from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator
from tsforecast.learners.evidence.moment_matching import MomentMatched
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.networks.layer_chain import as_network, network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork, uniform_prior
from tsforecast.learners.rule import BONG, AbstractRule
from tsforecast.learners.weight import AbstractWeight, InverseMultiquadric


def ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return an extended Kalman filter with all covariances.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.

    Raises:
        ValueError: If a network is given without weights to begin with.
    """
    network, mean = network_and_weights(model, mean)
    prior = uniform_prior(network.sizes, variance).to(mean)
    chosen = {"family": family, "evidence": evidence, "weight_drift": drift, "weight": weight, "rule": rule}
    given = {name: value for name, value in chosen.items() if value is not None}
    return GaussianLearner(network, likelihood, mean, prior, **given)


def iterated_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    passes: int = 3,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
) -> GaussianLearner:
    """Return an EKF that linearises again where it arrives.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        passes: How often it linearises.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
    """
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        evidence=evidence,
        drift=drift,
        weight=weight,
        rule=BONG(passes),
    )


def decoupled_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    layers: bool = False,
    mean: Float[Tensor, " weight"] | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return an EKF with independent weights, or layers, by their covariances (Puskorius and Feldkamp 1991).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        layers: Whether weights of one layer depend on each other.
        mean: Weights to begin with; None for those of the module.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    network = as_network(model) if isinstance(model, nn.Module) else model
    family = BlockDiagonal(network.sizes) if layers else Diagonal("covariance")
    return ekf(
        model, likelihood, variance, mean=mean, evidence=evidence, drift=drift, weight=weight, rule=rule, family=family
    )


def vd_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return a variational diagonal EKF: independent weights by their precisions (Chang, Murphy and Jones 2022).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
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
        family=Diagonal(),
    )


def wolf_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    threshold: float = 3.0,
    power: int = 2,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return a weighted-observation likelihood filter: outliers count less (Duran-Martin et al. 2024).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        threshold: From which on an observation is an outlier, in standard deviations; read where no weight is given.
        power: Of the distance by which outliers lose weight; likewise.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for the inverse multiquadric of this threshold and power.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    weight = InverseMultiquadric(threshold, power) if weight is None else weight
    return ekf(
        model, likelihood, variance, mean=mean, family=family, evidence=evidence, drift=drift, weight=weight, rule=rule
    )


def adf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood | None = None,
    variance: float | tuple[float, ...] = 0.1,
    *,
    link: str = "logistic",
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    drift: AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return assumed density filtering: labels of 0 or 1 by matching the moments of their logit.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a label; None for one whose predictions are moderated.
        variance: Of the prior: one number, or one for each layer.
        link: "logistic", "probit" or "mackay", see `MomentMatched`.
        mean: Weights to begin with; None for those of the module.
        family: Of the belief; None for one with all covariances.
        drift: Of the weights between observations; None for none.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    likelihood = BernoulliLikelihood(prediction="moderated") if likelihood is None else likelihood
    return ekf(
        model,
        likelihood,
        variance,
        mean=mean,
        family=family,
        drift=drift,
        weight=weight,
        rule=rule,
        evidence=MomentMatched(link),
    )
