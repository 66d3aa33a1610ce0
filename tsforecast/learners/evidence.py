"""What an observation says about the weights, near a belief: curvature and gradient, exact or approximate."""

import abc
import dataclasses
import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.learners.discrete import BernoulliLikelihood
from tsforecast.learners.family import AbstractFactorFamily, AbstractFamily
from tsforecast.learners.likelihood import AbstractLikelihood
from tsforecast.learners.network import AbstractNetwork
from tsforecast.learners.weight import AbstractWeight, Unweighted

LINKS = ("logistic", "probit", "mackay")
HESSIANS = ("exact", "hutchinson")


@dataclasses.dataclass(frozen=True)
class Points:
    """Points that are learnt from together.

    Attributes:
        inputs: Of the network.
        target: Finite everywhere.
        observed: False where a component of the target is missing; None if all are there.
        counts: How often each point counts, 0 or more: the power of its likelihood; None for once.
    """

    inputs: Float[Tensor, "point *feature"]
    target: Float[Tensor, "point target"]
    observed: Bool[Tensor, "point target"] | None
    counts: Float[Tensor, " point"] | None = None

    @staticmethod
    def of(inputs: Tensor, target: Tensor, observed: Tensor | None, counts: Tensor | None = None) -> "Points":
        """Points as they came: what stands where nothing is observed, or does not count, is not read (NaN, perhaps)."""
        if counts is not None:
            counting = (counts > 0).unsqueeze(-1).expand_as(target)
            observed = counting if observed is None else observed & counting
        return Points(inputs, target if observed is None else torch.where(observed, target, 0.0), observed, counts)

    def only(self, place: int) -> "Points":
        """Return the evidence of one of the points."""
        part = slice(place, place + 1)
        observed, counts = (None if x is None else x[part] for x in (self.observed, self.counts))
        return Points(self.inputs[part], self.target[part], observed, counts)


@dataclasses.dataclass(frozen=True)
class Model:
    """What evidence is computed from.

    Attributes:
        network: From weights to outputs.
        likelihood: Of targets given outputs.
        family: Of the belief.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood
    family: AbstractFamily

    def log_prob(self, weights: Float[Tensor, " weight"], points: Points) -> Float[Tensor, ""]:
        """Log-likelihood of all points together."""
        outputs = self.network(weights, points.inputs)
        log_prob = self.likelihood.log_prob(outputs, points.target, points.observed)
        return (log_prob if points.counts is None else log_prob * points.counts).sum()


class AbstractEvidence(abc.ABC):
    """Curvature Lambda_y and gradient g of a log-likelihood at a mean."""

    @abc.abstractmethod
    def seen_from(self, change: Float[Tensor, " weight"]) -> "AbstractEvidence":
        """The same quadratic where the mean is less by `change`."""

    @abc.abstractmethod
    def as_taken_by(self, family: AbstractFamily) -> "AbstractEvidence":
        """In the form by which the family moves its mean."""

    @abc.abstractmethod
    def scaled(self, factor: Float[Tensor, ""] | float) -> "AbstractEvidence":
        """The log-likelihood times a factor."""

    @abc.abstractmethod
    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """The belief at whose mean this is, conditioned on it."""

    @abc.abstractmethod
    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """A plain gradient step of the belief."""


@dataclasses.dataclass(frozen=True)
class PseudoObservation(AbstractEvidence):
    """residual = matrix (theta - mean) + v, v ~ N(0, I): curvature H' H and gradient H' e.

    Attributes:
        matrix: Rows of zeros say nothing.
        residual: What is zero where the mean is right.
    """

    matrix: Float[Tensor, "row weight"]
    residual: Float[Tensor, " row"]

    def seen_from(self, change: Float[Tensor, " weight"]) -> "PseudoObservation":
        """The residual moves, the matrix stays."""
        return PseudoObservation(self.matrix, self.residual + self.matrix @ change)

    def as_taken_by(self, family: AbstractFamily) -> AbstractEvidence:
        """As it is, or as curvature: of H' H what the family keeps, where the mean moves by the new precision."""
        if not family.by_curvature:
            return self
        assert isinstance(family, AbstractFactorFamily)
        return Curvature(family.outer(self.matrix), self.matrix.T @ self.residual)

    def scaled(self, factor: Float[Tensor, ""] | float) -> "PseudoObservation":
        """Both times the square root."""
        return PseudoObservation(self.matrix * factor**0.5, self.residual * factor**0.5)

    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """By the family's Kalman update."""
        return family.condition(belief, self.matrix, self.residual)

    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """With gradient H' e and curvature H' H."""
        gradient = self.matrix.T @ self.residual
        return family.descend(belief, gradient, family.outer(self.matrix), step, anchor, self.matrix)


@dataclasses.dataclass(frozen=True)
class Curvature(AbstractEvidence):
    """Curvature that is not a product, as families of `AbstractFactorFamily` take it.

    Attributes:
        increment: What the precision gains.
        gradient: Of the log-likelihood.
    """

    increment: Float[Tensor, "*hessian"]
    gradient: Float[Tensor, " weight"]

    def _times(self, vector: Tensor) -> Tensor:
        return self.increment @ vector if self.increment.ndim == 2 else self.increment * vector

    def seen_from(self, change: Float[Tensor, " weight"]) -> "Curvature":
        """The gradient moves, the curvature stays."""
        return Curvature(self.increment, self.gradient + self._times(change))

    def as_taken_by(self, family: AbstractFamily) -> AbstractEvidence:
        """Return the evidence as it is."""
        return self

    def scaled(self, factor: Float[Tensor, ""] | float) -> "Curvature":
        """Return gradient and curvature times the factor."""
        return Curvature(self.increment * factor, self.gradient * factor)

    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """By adding to the precision."""
        assert isinstance(family, AbstractFactorFamily)
        return family.shift(belief, self.increment, self.gradient)

    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """Take a plain step by gradient and curvature."""
        return family.descend(belief, self.gradient, self.increment, step, anchor, None)


class AbstractEvidenceEstimator(abc.ABC):
    """How evidence is found near a belief. Settings only: randomness comes from the generator."""

    @property
    def pointwise(self) -> bool:
        """Whether points have to be learnt from one after the other."""
        return False

    @abc.abstractmethod
    def __call__(
        self,
        model: Model,
        belief: Any,
        points: Points,
        weight: AbstractWeight,
        generator: torch.Generator | None,
        linearised: tuple[Tensor, Tensor] | None,
    ) -> AbstractEvidence:
        """The evidence of some points.

        Args:
            model: Network, likelihood and family.
            belief: Near which.
            points: Inputs and targets.
            weight: By distance from what the belief expects.
            generator: Of random numbers.
            linearised: Outputs and Jacobian at the belief's mean, if they are known already.
        """


@dataclasses.dataclass(frozen=True)
class Linearised(AbstractEvidenceEstimator):
    """The network linearised at the mean, the likelihood by its Gauss-Newton curvature: the extended Kalman filter."""

    def __call__(
        self,
        model: Model,
        belief: Any,
        points: Points,
        weight: AbstractWeight,
        generator: torch.Generator | None,
        linearised: tuple[Tensor, Tensor] | None,
    ) -> PseudoObservation:
        """One row for each output of each point."""
        matrix, residual = whitened(model, belief, points, weight, linearised)
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

    def __call__(
        self,
        model: Model,
        belief: Any,
        points: Points,
        weight: AbstractWeight,
        generator: torch.Generator | None,
        linearised: tuple[Tensor, Tensor] | None,
    ) -> PseudoObservation:
        """One row for each draw: g_k / sqrt(K), with residuals 1 / sqrt(K)."""
        if not self.num_samples:
            matrix, residual = whitened(model, belief, points, Unweighted(), linearised)
            gradient = matrix.flatten(0, 1).T @ residual.flatten()
            found = PseudoObservation(gradient.unsqueeze(0), gradient.new_ones(1))
            return _weighted(found, model, belief, points, weight, linearised)
        draws = draw(model.family, belief, self.num_samples, self.centred, generator)
        gradients = torch.func.vmap(torch.func.grad(model.log_prob), (0, None))(draws, points)
        count = math.sqrt(self.num_samples)
        found = PseudoObservation(gradients / count, gradients.new_full((self.num_samples,), 1 / count))
        return _weighted(found, model, belief, points, weight, linearised)


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

    def __call__(
        self,
        model: Model,
        belief: Any,
        points: Points,
        weight: AbstractWeight,
        generator: torch.Generator | None,
        linearised: tuple[Tensor, Tensor] | None,
    ) -> Curvature:
        """Return the means of gradient and Hessian over draws from the belief."""
        family = model.family
        if not isinstance(family, AbstractFactorFamily):
            raise TypeError(f"expected a full or diagonal family for Monte Carlo Hessians, got {type(family).__name__}")
        draws = draw(family, belief, self.num_samples, self.centred, generator)
        gradient_of = torch.func.grad(model.log_prob)
        gradient = torch.func.vmap(gradient_of, (0, None))(draws, points).mean(0)
        is_matrix = family.outer(draws[:1]).ndim == 2
        if is_matrix or self.hessian == "exact":
            hessian = torch.func.vmap(torch.func.hessian(model.log_prob), (0, None))(draws, points).mean(0)
            hessian = hessian if is_matrix else hessian.diagonal()
        else:
            signs = torch.randint(0, 2, draws.shape, generator=generator, device=draws.device).to(draws) * 2 - 1

            def product(theta: Tensor, sign: Tensor) -> Tensor:
                return torch.func.jvp(lambda t: gradient_of(t, points), (theta,), (sign,))[1] * sign

            hessian = torch.func.vmap(product)(draws, signs).mean(0)
        return _weighted(Curvature(family.curvature(hessian), gradient), model, belief, points, weight, linearised)


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

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"expected link to be one of {', '.join(LINKS)}, got {self.link!r}")

    @property
    def pointwise(self) -> bool:
        """Every point needs the belief after the one before."""
        return True

    def __call__(
        self,
        model: Model,
        belief: Any,
        points: Points,
        weight: AbstractWeight,
        generator: torch.Generator | None,
        linearised: tuple[Tensor, Tensor] | None,
    ) -> PseudoObservation:
        """A row sqrt(tau) h' with residual (nu - tau a) / sqrt(tau)."""
        if not isinstance(model.likelihood, BernoulliLikelihood):
            raise TypeError(
                f"expected a Bernoulli likelihood for matching moments, got {type(model.likelihood).__name__}"
            )
        mean = model.family.mean(belief)
        logit, jacobian = linearised or model.network.linearise(mean, points.inputs)
        if logit.numel() != 1:
            raise ValueError(f"expected one point with one logit for matching moments, got shape {tuple(logit.shape)}")
        row = jacobian[0]
        variance = model.family.covariance(belief, row)[0, 0]
        moments = {"logistic": logistic_moments, "probit": probit_moments, "mackay": mackay_moments}[self.link]
        matched, left = moments(logit[0, 0], variance, 2 * points.target[0, 0] - 1)
        # As a site N(logit; nu / tau, 1 / tau): tau = 1 / v1 - 1 / s2, nu - tau a = (m1 - a) / v1.
        precision = ((variance - left) / (variance * left)).clamp_min(0)
        known = precision > torch.finfo(precision.dtype).tiny
        if points.observed is not None:
            known = known & points.observed[0, 0]
        root = torch.where(known, precision, 1.0).sqrt()
        residual = torch.where(known, (matched - logit[0, 0]) / (left * root), 0.0)
        found = PseudoObservation(row * (root * known), residual.unsqueeze(0))
        once = dataclasses.replace(points, counts=None)
        found = _weighted(found, model, belief, once, weight, linearised)
        return found if points.counts is None else found.scaled(points.counts[0])


def whitened(
    model: Model, belief: Any, points: Points, weight: AbstractWeight, linearised: tuple[Tensor, Tensor] | None
) -> tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]:
    """The linearised pseudo-observation of each point, by its weight and how often it counts."""
    mean = model.family.mean(belief)
    outputs, jacobian = linearised or model.network.linearise(mean, points.inputs)
    matrix, residual = model.likelihood.whiten(outputs, jacobian, points.target, points.observed)
    power = points.counts
    if not isinstance(weight, Unweighted):
        weights = weight(_distance(model, belief, weight, matrix, residual))
        power = weights if power is None else weights * power
    if power is None:
        return matrix, residual
    root = power.sqrt().unsqueeze(-1)
    return matrix * root.unsqueeze(-1), residual * root


def _distance(model: Model, belief: Any, weight: AbstractWeight, matrix: Tensor, residual: Tensor) -> Tensor:
    """Return the squared distance of each point's residual."""
    if weight.norm == "noise":
        return residual.square().sum(-1)
    eye = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    among = model.family.covariance(belief, matrix) + eye
    return (residual * torch.linalg.solve(among, residual.unsqueeze(-1)).squeeze(-1)).sum(-1)


def _weighted(
    found: Any,
    model: Model,
    belief: Any,
    points: Points,
    weight: AbstractWeight,
    linearised: tuple[Tensor, Tensor] | None,
) -> Any:
    """All points together by the weight of their linearised distance."""
    if isinstance(weight, Unweighted):
        return found
    matrix, residual = whitened(model, belief, points, Unweighted(), linearised)
    matrix, residual = matrix.flatten(0, 1).unsqueeze(0), residual.flatten().unsqueeze(0)
    return found.scaled(weight(_distance(model, belief, weight, matrix, residual))[0])


def draw(
    family: AbstractFamily, belief: Any, num_samples: int, centred: bool, generator: torch.Generator | None
) -> Float[Tensor, "sample weight"]:
    """Weights from the belief, moved to its mean if they are to be centred."""
    draws = family.sample(belief, num_samples, generator)
    return draws - draws.mean(0) + family.mean(belief) if centred else draws


def logistic_moments(
    mean: Float[Tensor, "*batch"], variance: Float[Tensor, "*batch"], label: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean and variance of N(f; mean, variance) sigmoid(label f), label -1 or 1, by quadrature around its mode.

    Points are equidistant in asinh(f): the sigmoid bends within a few units of 0, however wide the Gaussian is.
    """
    low, high = (0, 1)  # the mode is mean + label variance u, with u = sigmoid(-label f) between 0 and 1
    lower, upper = torch.full_like(mean, low), torch.full_like(mean, high)
    for _ in range(40):
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


def probit_moments(
    mean: Float[Tensor, "*batch"], variance: Float[Tensor, "*batch"], label: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Mean and variance of N(f; mean, variance) Phi(label f), label -1 or 1, in closed form."""
    total = (1 + variance).sqrt()
    z = label * mean / total
    ratio = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
    matched = mean + label * variance * ratio / total
    return matched, variance - variance.square() / (1 + variance) * ratio * (z + ratio)


def mackay_moments(
    mean: Float[Tensor, "*batch"], variance: Float[Tensor, "*batch"], label: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Of N(f; mean, variance) sigmoid(label f), with Z = sigmoid(label k mean), k = (1 + pi variance / 8)^{-1/2}.

    The variance is that of -d^2 log Z / d mean^2 = k^2 sigmoid(k a) sigmoid(-k a), which never grows.
    """
    shrink = (1 + math.pi * variance / 8).rsqrt()
    slope = label * shrink * torch.sigmoid(-label * shrink * mean)
    bend = shrink.square() * torch.sigmoid(shrink * mean) * torch.sigmoid(-shrink * mean)
    return mean + variance * slope, variance - variance.square() * bend
