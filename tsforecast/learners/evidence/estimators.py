"""Estimators of evidence near a belief: by linearising, or from weights drawn from the belief."""

import abc
import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from tsforecast.core.torch_internals import device_of
from tsforecast.learners.beliefs.family import AbstractFactorFamily, AbstractFamily
from tsforecast.learners.evidence.pseudo_observation import AbstractEvidence, Curvature, Near, PseudoObservation
from tsforecast.learners.shapes import Samples, Whitened
from tsforecast.learners.weight import Unweighted

HESSIANS = ("exact", "hutchinson")


class AbstractEvidenceEstimator(abc.ABC):
    """An estimator of evidence near a belief. Settings only: randomness comes from the generator.

    Attributes:
        pointwise: Whether points have to be learnt from one after the other.
    """

    pointwise = False

    @abc.abstractmethod
    def __call__(self, near: Near, generator: torch.Generator | None = None) -> AbstractEvidence:
        """Return the evidence of some points.

        Args:
            near: The points and the belief.
            generator: Of random numbers.
        """


@dataclasses.dataclass(frozen=True)
class Linearised(AbstractEvidenceEstimator):
    """The network linearised at the mean, the likelihood by its Gauss-Newton curvature: the extended Kalman filter."""

    def __call__(self, near: Near, generator: torch.Generator | None = None) -> PseudoObservation:
        """Return one row for each output of each point."""
        matrix, residual = whitened(near)
        return PseudoObservation(matrix.flatten(0, 1), residual.flatten())


@dataclasses.dataclass(frozen=True)
class EmpiricalFisher(AbstractEvidenceEstimator):
    """The curvature E[g g'] of gradients g of the log-likelihood at weights drawn from the belief.

    The gradients are those of all points together: of one that counts c they are c times, the curvature c^2 times as
    large.

    Attributes:
        num_samples: Draws; 0 takes the gradient of the linearised network at the mean.
        centred: Whether draws are moved so that their mean is the belief's.
    """

    num_samples: int = 10
    centred: bool = True

    def __post_init__(self) -> None:
        if self.num_samples < 0:
            raise ValueError(f"expected num_samples to be at least 0, got {self.num_samples}")

    def __call__(self, near: Near, generator: torch.Generator | None = None) -> PseudoObservation:
        """Return one row for each draw: g_k / sqrt(K), with residuals 1 / sqrt(K)."""
        if not self.num_samples:
            matrix, residual = whitened(near.unweighted())
            gradient = matrix.flatten(0, 1).T @ residual.flatten()
            observation = PseudoObservation(gradient.unsqueeze(0), gradient.new_ones(1))  # curvature g g', gradient g
            return weighted(observation, near)
        draws = draw(near.model.family, near.belief, self.num_samples, self.centred, generator)
        gradients = torch.func.vmap(torch.func.grad(near.model.log_prob), (0, None))(draws, near.points)
        count = math.sqrt(self.num_samples)
        observation = PseudoObservation(gradients / count, gradients.new_full((self.num_samples,), 1 / count))
        return weighted(observation, near)


@dataclasses.dataclass(frozen=True)
class MonteCarloHessian(AbstractEvidenceEstimator):
    """The expected Hessian and gradient of the log-likelihood, over weights drawn from the belief.

    Where the log-likelihood is not concave, curvature that would make the precision indefinite is left out. With
    centred draws the result is exact for a linear network and a Gaussian likelihood.

    Attributes:
        num_samples: Draws.
        centred: Whether draws are moved so that their mean is the belief's.
        hessian: Of a diagonal family: "exact", by P products; or "hutchinson", by one random product for each draw.
    """

    num_samples: int = 10
    centred: bool = True
    hessian: str = "exact"

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise ValueError(f"expected num_samples to be positive, got {self.num_samples}")
        if self.hessian not in HESSIANS:
            raise ValueError(f"expected hessian to be one of {', '.join(HESSIANS)}, got {self.hessian!r}")

    def __call__(self, near: Near, generator: torch.Generator | None = None) -> Curvature:
        """Return the means of gradient and Hessian over draws from the belief."""
        model, points, family = near.model, near.points, near.model.family
        if not isinstance(family, AbstractFactorFamily):
            raise TypeError(f"expected a full or diagonal family for Monte Carlo Hessians, got {type(family).__name__}")
        draws = draw(family, near.belief, self.num_samples, self.centred, generator)
        gradient_of = torch.func.grad(model.log_prob)
        gradient = torch.func.vmap(gradient_of, (0, None))(draws, points).mean(0)
        is_matrix = family.outer(draws[:1]).ndim == 2
        if is_matrix or self.hessian == "exact":
            hessian = torch.func.vmap(torch.func.hessian(model.log_prob), (0, None))(draws, points).mean(0)
            hessian = hessian if is_matrix else hessian.diagonal()
        else:
            coins = torch.randint(0, 2, draws.shape, generator=generator, device=device_of(generator, draws))
            signs = 2 * coins.to(draws) - 1  # Hutchinson's estimator varies least with signs

            def product(theta: Tensor, sign: Tensor) -> Tensor:
                return torch.func.jvp(lambda t: gradient_of(t, points), (theta,), (sign,))[1] * sign

            hessian = torch.func.vmap(product)(draws, signs).mean(0)
        return weighted(Curvature(family.curvature(hessian), gradient), near)


def whitened(near: Near) -> Whitened:
    """Return the linearised pseudo-observation of each point, by its weight and its count."""
    points = near.points
    matrix, residual = near.model.likelihood.whiten(*near.linearise(), points.target, points.observed)
    power = points.counts
    if not isinstance(near.weight, Unweighted):
        weights = near.weight(_distance(near, matrix, residual))
        power = weights if power is None else weights * power
    if power is None:
        return matrix, residual
    root = power.sqrt().unsqueeze(-1)
    return matrix * root.unsqueeze(-1), residual * root  # a row that counts c enters as one times sqrt(c)


def _distance(near: Near, matrix: Tensor, residual: Tensor) -> Tensor:
    """Return the squared distance of each point's residual."""
    if near.weight.norm == "noise":
        return residual.square().sum(-1)
    eye = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    among = near.model.family.covariance(near.belief, matrix) + eye
    return (residual * torch.linalg.solve(among, residual.unsqueeze(-1)).squeeze(-1)).sum(-1)


def weighted(evidence: Any, near: Near) -> Any:
    """All points together by the weight of their linearised distance."""
    if isinstance(near.weight, Unweighted):
        return evidence
    matrix, residual = whitened(near.unweighted())
    matrix, residual = matrix.flatten(0, 1).unsqueeze(0), residual.flatten().unsqueeze(0)
    return evidence.scaled(near.weight(_distance(near, matrix, residual))[0])


def draw(
    family: AbstractFamily, belief: Any, num_samples: int, centred: bool, generator: torch.Generator | None
) -> Samples:
    """Weights from the belief, moved to its mean if they are to be centred."""
    draws = family.sample(belief, num_samples, generator)
    # What is linear in the weights then has no sampling error.
    return draws - draws.mean(0) + family.mean(belief) if centred else draws


ESTIMATORS: dict[str, AbstractEvidenceEstimator] = {
    "linearised": Linearised(),
    "empirical-fisher": EmpiricalFisher(),
    "linearised-fisher": EmpiricalFisher(num_samples=0),
    "hessian": MonteCarloHessian(),
}


def estimator_of(evidence: AbstractEvidenceEstimator | str) -> AbstractEvidenceEstimator:
    """Return an estimator as it is, or by its name in `ESTIMATORS`.

    Raises:
        ValueError: If the name is unknown.
    """
    if not isinstance(evidence, str):
        return evidence
    if evidence not in ESTIMATORS:
        raise ValueError(f"expected evidence to be one of {', '.join(ESTIMATORS)}, got {evidence!r}")
    return ESTIMATORS[evidence]
