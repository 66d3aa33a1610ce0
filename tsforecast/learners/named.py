"""The named algorithms: compositions, a line each.

All take a module or network, a likelihood and the prior variance (one, or one for each layer), and start at the weights
of the module unless others are given.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.learners import drift as drifts
from tsforecast.learners.classes import BernoulliLikelihood, CategoricalLikelihood
from tsforecast.learners.descent import GradientDescent
from tsforecast.learners.diagonal import BlockDiagonal, Diagonal
from tsforecast.learners.evidence_estimators import EmpiricalFisher, Linearised, MonteCarloHessian
from tsforecast.learners.gaussian_learner import GaussianLearner
from tsforecast.learners.layer_chain import LayerChain, as_network
from tsforecast.learners.likelihood import AbstractLikelihood, GaussianLikelihood
from tsforecast.learners.low_rank_covariance import LRKF
from tsforecast.learners.low_rank_precision import LOFI
from tsforecast.learners.moment_matching import MomentMatched
from tsforecast.learners.network import AbstractNetwork, uniform_prior, weights_of
from tsforecast.learners.over_network import AbstractNetworkLearner
from tsforecast.learners.rule import BBB, BLR, BOG, BONG
from tsforecast.learners.subspace import Subspace, random_basis
from tsforecast.learners.weight import InverseMultiquadric

EVIDENCE = {
    "linearised": Linearised(),
    "empirical-fisher": EmpiricalFisher(),
    "linearised-fisher": EmpiricalFisher(num_samples=0),
    "hessian": MonteCarloHessian(),
}


def ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float | tuple[float, ...] = 0.1,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    **choices: Any,
) -> GaussianLearner:
    """Extended Kalman filter with all covariances.

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of the prior: one number, or one for each layer.
        mean: Weights to begin with; None for those of the module.
        choices: Family, pseudo-observation, drift, weight and rule, where they are not the algorithm's.

    Raises:
        ValueError: If a network is given without weights to begin with.
    """
    network, mean = _network(model, mean)
    prior = uniform_prior(network.sizes, variance).to(mean)
    if "drift" in choices:
        choices["weight_drift"] = choices.pop("drift")
    return GaussianLearner(network, likelihood, mean, prior, **choices)


def _network(model: nn.Module | AbstractNetwork, mean: Tensor | None) -> tuple[AbstractNetwork, Tensor]:
    """The network, and its weights to begin with."""
    if isinstance(model, nn.Module):
        return as_network(model), weights_of(model) if mean is None else mean
    if mean is None:
        raise ValueError("expected weights to begin with, as mean=..., for a network that is not a module")
    return model, mean


def iterated_ekf(*args: Any, passes: int = 3, **choices: Any) -> GaussianLearner:
    """EKF that linearises again where it arrives."""
    return ekf(*args, rule=BONG(passes), **choices)


def subspace_ekf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float = 0.1,
    *,
    dim: int = 100,
    basis: Float[Tensor, "weight coordinate"] | None = None,
    mean: Float[Tensor, " weight"] | None = None,
    generator: torch.Generator | None = None,
    **choices: Any,
) -> GaussianLearner:
    """EKF over coordinates in a subspace of the weights (Duran-Martin, Kara and Murphy 2022).

    Args:
        model: A module, or a network as a function of its weights.
        likelihood: Of a target given outputs.
        variance: Of each coordinate.
        dim: Number of random directions.
        basis: Directions, instead of random ones; see `basis_of_iterates`.
        mean: The origin; None for the weights of the module.
        generator: Of random directions.
        choices: As for `ekf`.
    """
    network, origin = _network(model, mean)
    if basis is None:
        basis = random_basis(len(origin), dim, generator, origin.dtype, origin.device)
    network = Subspace(network, origin, basis)
    return ekf(network, likelihood, variance, mean=origin.new_zeros(basis.shape[-1]), **choices)


def decoupled_ekf(
    model: nn.Module | AbstractNetwork, *args: Any, layers: bool = False, **choices: Any
) -> GaussianLearner:
    """EKF with independent weights, or independent layers, by their covariances (Puskorius and Feldkamp 1991)."""
    network = as_network(model) if isinstance(model, nn.Module) else model
    family = BlockDiagonal(network.sizes) if layers else Diagonal("covariance")
    return ekf(model, *args, family=family, **choices)


def vd_ekf(*args: Any, **choices: Any) -> GaussianLearner:
    """Variational diagonal EKF: independent weights by their precisions (Chang, Murphy and Jones 2022)."""
    return ekf(*args, family=Diagonal(), **choices)


def lofi(*args: Any, rank: int = 10, **choices: Any) -> GaussianLearner:
    """Low-rank EKF: precision diagonal plus low rank (Chang et al. 2023)."""
    return ekf(*args, family=LOFI(rank), **choices)


def lrkf(*args: Any, rank: int = 10, rate: float = 1e-3, **choices: Any) -> GaussianLearner:
    """Low-rank Kalman filter: covariance of low rank, with the noise that keeps its directions moving."""
    return ekf(*args, **{"family": LRKF(rank), "drift": drifts.Wiener(rate), **choices})


def bong(*args: Any, evidence: str = "linearised", **choices: Any) -> GaussianLearner:
    """Bayesian online natural gradient: one step of length one (Jones, Chang and Murphy 2024)."""
    choices = choices if evidence == "linearised" else _moved_by_new_variances(choices)
    return ekf(*args, evidence=EVIDENCE[evidence], rule=BONG(), **choices)


def blr(
    *args: Any, evidence: str = "linearised", iterations: int = 10, step: float = 0.3, **choices: Any
) -> GaussianLearner:
    """Bayesian learning rule, online: damped natural-gradient steps (Khan and Rue 2023)."""
    return ekf(*args, evidence=EVIDENCE[evidence], rule=BLR(iterations, step), **_moved_by_new_variances(choices))


def _moved_by_new_variances(choices: dict[str, Any]) -> dict[str, Any]:
    """With the gain that is published for natural-gradient steps of a diagonal belief, unless one is chosen."""
    family = choices.get("family")
    if isinstance(family, Diagonal) and family.gain is None:
        return choices | {"family": dataclasses.replace(family, gain="projected")}
    return choices


def bog(*args: Any, evidence: str = "linearised", step: float = 0.01, **choices: Any) -> GaussianLearner:
    """Bayesian online gradient: the gradients of BONG, a plain step."""
    return ekf(*args, evidence=EVIDENCE[evidence], rule=BOG(step), **choices)


def bbb(
    *args: Any, evidence: str = "linearised", iterations: int = 10, step: float = 0.01, **choices: Any
) -> GaussianLearner:
    """Bayes by backprop, online: plain steps on the whole objective (Blundell et al. 2015)."""
    return ekf(*args, evidence=EVIDENCE[evidence], rule=BBB(iterations, step), **choices)


def wolf_ekf(*args: Any, threshold: float = 3.0, power: int = 2, **choices: Any) -> GaussianLearner:
    """Weighted-observation likelihood filter: outliers count less (Duran-Martin et al. 2024)."""
    return ekf(*args, **{"weight": InverseMultiquadric(threshold, power), **choices})


def adf(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood | None = None,
    variance: float | tuple[float, ...] = 0.1,
    *,
    link: str = "logistic",
    **choices: Any,
) -> GaussianLearner:
    """Assumed density filtering: labels of 0 or 1 by matching the moments of their logit."""
    likelihood = BernoulliLikelihood(prediction="moderated") if likelihood is None else likelihood
    return ekf(model, likelihood, variance, evidence=MomentMatched(link), **choices)


def ogd(
    model: nn.Module | AbstractNetwork,
    likelihood: AbstractLikelihood,
    variance: float = 0.1,
    *,
    mean: Float[Tensor, " weight"] | None = None,
    rate: float = 0.01,
) -> GradientDescent:
    """Online gradient descent; a prior variance has no influence, and there is no drift."""
    network, mean = _network(model, mean)
    return GradientDescent(network, likelihood, mean, rate)


def rls(
    features: int, variance: float = 1.0, noise: float = 1.0, forgetting: float = 1.0, **choices: Any
) -> GaussianLearner:
    """Recursive least squares, with a forgetting factor."""
    drift = drifts.NoDrift() if forgetting == 1 else drifts.ExponentialForgetting(forgetting)
    network = LayerChain((features, 1), (nn.Identity,), (False,))
    return ekf(
        network, GaussianLikelihood(noise), variance, **{"mean": torch.zeros(features), "drift": drift, **choices}
    )


def ewma(
    rate: float = 0.1, threshold: float | None = 3.0, variance: float = 1.0, noise: float = 1.0
) -> GaussianLearner:
    """Exponentially weighted moving average, robust unless `threshold` is None: a level that drifts, seen with noise.

    In the steady state the gain k of a weight of one obeys k^2 noise / (1 - k) = rate variance.
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
    """A constructor, and what it takes.

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
        """Whether it tells two classes apart, and no more."""
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
}
