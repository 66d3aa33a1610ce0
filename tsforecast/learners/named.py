"""The named learners, what each takes, and those that need no network of their own."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners import drift as drifts
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.descent import GradientDescent
from tsforecast.learners.evidence.estimators import AbstractEvidenceEstimator
from tsforecast.learners.extended_kalman import (
    adf,
    decoupled_ekf,
    ekf,
    iterated_ekf,
    vd_ekf,
    wolf_ekf,
)
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.likelihoods.classes import BernoulliLikelihood, CategoricalLikelihood
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood, GaussianLikelihood
from tsforecast.learners.memory.continual import vb
from tsforecast.learners.networks.layer_chain import LayerChain, network_and_weights
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.reduced_kalman import lofi, lrkf, subspace_ekf
from tsforecast.learners.rule import AbstractRule
from tsforecast.learners.variational import bbb, blr, bog, bong
from tsforecast.learners.weight import AbstractWeight, InverseMultiquadric


def ogd(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float = 0.1,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    rate: float = 0.01,
) -> GradientDescent:
    """Return online gradient descent, which has no prior and no drift.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Has no influence: it is there because all learners take one.
        mean: Weights to begin with; None for those of the module.
        rate: Length of a step.
    """
    network, mean = network_and_weights(model, mean)
    return GradientDescent(network, likelihood, mean, rate)


def rls(
    features: int,
    variance: float = 1.0,
    noise: float = 1.0,
    forgetting: float = 1.0,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    family: AbstractFamily | None = None,
    evidence: AbstractEvidenceEstimator | None = None,
    drift: drifts.AbstractDrift | None = None,
    weight: AbstractWeight | None = None,
    rule: AbstractRule | None = None,
) -> GaussianLearner:
    """Return recursive least squares, with a forgetting factor.

    Args:
        features: Number of inputs.
        variance: Of each weight in the prior.
        noise: Variance of the target around the output.
        forgetting: Part of the evidence that a step leaves; read where no drift is given.
        mean: Weights to begin with; None for zeros.
        family: Of the belief; None for one with all covariances.
        evidence: How the evidence of an observation is found; None for the linearised network.
        drift: Of the weights between observations; None for the forgetting.
        weight: How much an outlier counts; None for as much as any other.
        rule: How the evidence is taken in; None for the Kalman update.
    """
    if drift is None and forgetting != 1:
        drift = drifts.ExponentialForgetting(forgetting)
    network = LayerChain((features, 1), (nn.Identity,), (False,))
    mean = torch.zeros(features) if mean is None else mean
    return ekf(
        network,
        GaussianLikelihood(noise),
        variance,
        mean=mean,
        family=family,
        evidence=evidence,
        drift=drift,
        weight=weight,
        rule=rule,
    )


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
    learner = rls(1, variance, noise, drift=drifts.Wiener(rate))
    return learner if threshold is None else dataclasses.replace(learner, weight=InverseMultiquadric(threshold))


# Drifts that take a rate in a unit of time; "none" for the learner's own.
DRIFTS: dict[str, Callable[[float], drifts.AbstractDrift] | None] = {
    "none": None,
    "wiener": drifts.Wiener,
    "ou": drifts.OrnsteinUhlenbeck,
    "forgetting": drifts.BayesianForgetting,
    "exponential": lambda rate: drifts.ExponentialForgetting(1 - rate),
    "shrink": lambda rate: drifts.ShrinkAndPerturb(1 - rate),
}


@dataclasses.dataclass(frozen=True)
class NamedLearner:
    """A constructor of learners, and what it takes.

    Attributes:
        make: From a module or network, a likelihood and a prior variance, with settings by keyword; a network comes
            with `mean`.
        takes: What it can be given of "drift", "weight", "threshold", "rank" and "generator".
        classes: The likelihood that it learns classes by.
        numbers: Whether it learns numbers, too.
    """

    make: Callable[..., AbstractNetworkLearner[Any]]
    takes: frozenset[str] = frozenset({"drift", "weight"})
    classes: type[BernoulliLikelihood] | type[CategoricalLikelihood] = CategoricalLikelihood
    numbers: bool = True

    def __call__(self, *args: Any, **settings: Any) -> AbstractNetworkLearner[Any]:
        """Return the learner."""
        return self.make(*args, **settings)

    @property
    def binary(self) -> bool:
        """Say whether it tells two classes apart, and no more."""
        return self.classes is BernoulliLikelihood


def _with(*more: str) -> frozenset[str]:
    return frozenset({"drift", "weight", *more})


LEARNERS: dict[str, NamedLearner] = {
    "ekf": NamedLearner(ekf),
    "iterated-ekf": NamedLearner(iterated_ekf),
    "subspace-ekf": NamedLearner(subspace_ekf, _with("generator")),
    "decoupled-ekf": NamedLearner(decoupled_ekf),
    "vd-ekf": NamedLearner(vd_ekf),
    "lofi": NamedLearner(lofi, _with("rank")),
    "lrkf": NamedLearner(lrkf, _with("rank")),
    "bong": NamedLearner(bong),
    "blr": NamedLearner(blr),
    "bog": NamedLearner(bog),
    "bbb": NamedLearner(bbb),
    "wolf-ekf": NamedLearner(wolf_ekf, _with("threshold")),
    "adf": NamedLearner(adf, classes=BernoulliLikelihood, numbers=False),
    "ogd": NamedLearner(ogd, frozenset()),
    "vb": NamedLearner(vb, frozenset({"drift", "generator"})),
}
