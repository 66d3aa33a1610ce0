"""Evidence of an observation about the weights, near a belief: curvature and gradient."""

import abc
import dataclasses
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.beliefs.family import AbstractFactorFamily, AbstractFamily
from tsforecast.learners.likelihoods.likelihood import AbstractLikelihood
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.shapes import Inputs, Observed, Residual, Rows, Scalar, Target, Weights
from tsforecast.learners.weight import AbstractWeight, Unweighted


@dataclasses.dataclass(frozen=True)
class Points:
    """Points that are learnt from together.

    Attributes:
        inputs: Of the network.
        target: Finite everywhere.
        observed: False where a component of the target is missing; None if all are there.
        counts: How often each point counts, 0 or more: the power of its likelihood; None for once.
    """

    inputs: Inputs
    target: Target
    observed: Observed | None
    counts: Float[Tensor, " point"] | None = None

    @staticmethod
    def of(inputs: Tensor, target: Tensor, observed: Tensor | None, counts: Tensor | None = None) -> "Points":
        """Return points as they came; values that are not observed, or do not count, are not read (NaN, perhaps)."""
        if counts is not None:
            counting = (counts > 0).unsqueeze(-1).expand_as(target)
            observed = counting if observed is None else observed & counting
        # A NaN would pass through products with 0.
        return Points(inputs, target if observed is None else torch.where(observed, target, 0.0), observed, counts)

    def only(self, place: int) -> "Points":
        """Return one of the points."""
        return self.part(slice(place, place + 1))

    def part(self, part: slice) -> "Points":
        """Return some of the points."""
        observed, counts = (None if x is None else x[part] for x in (self.observed, self.counts))
        return Points(self.inputs[part], self.target[part], observed, counts)


@dataclasses.dataclass(frozen=True)
class Model:
    """Network, likelihood and family of beliefs that evidence is computed from.

    Attributes:
        network: From weights to outputs.
        likelihood: Of targets given outputs.
        family: Of the belief.
    """

    network: AbstractNetwork
    likelihood: AbstractLikelihood
    family: AbstractFamily

    def log_prob(self, weights: Weights, points: Points) -> Float[Tensor, ""]:
        """Return the log-likelihood of all points together."""
        outputs = self.network(weights, points.inputs)
        log_prob = self.likelihood.log_prob(outputs, points.target, points.observed)
        return (log_prob if points.counts is None else log_prob * points.counts).sum()


@dataclasses.dataclass(frozen=True)
class Near:
    """Points, and the belief near which their evidence is asked for.

    Attributes:
        model: Network, likelihood and family.
        belief: Near which.
        points: Inputs and targets.
        weight: Of outliers, by distance from what the belief expects.
        linearised: Outputs and Jacobian at the belief's mean, if they are known already.
    """

    model: Model
    belief: Any
    points: Points
    weight: AbstractWeight = dataclasses.field(default_factory=Unweighted)
    linearised: tuple[Tensor, Tensor] | None = None

    def unweighted(self) -> "Near":
        """Return the same without a weight of outliers."""
        return dataclasses.replace(self, weight=Unweighted())

    def linearise(self) -> tuple[Tensor, Tensor]:
        """Return outputs and Jacobian at the belief's mean."""
        # A step that predicted has it already.
        return self.linearised or self.model.network.linearise(self.model.family.mean(self.belief), self.points.inputs)


class AbstractEvidence(abc.ABC):
    """Curvature Lambda_y and gradient g of a log-likelihood at a mean."""

    @abc.abstractmethod
    def seen_from(self, change: Weights) -> "AbstractEvidence":
        """Return the same quadratic where the mean is less by `change`."""

    def as_taken_by(self, family: AbstractFamily) -> "AbstractEvidence":
        """Return it in the form that moves the mean of the family: by default as it is."""
        return self

    @abc.abstractmethod
    def scaled(self, factor: Scalar) -> "AbstractEvidence":
        """Return the evidence of the log-likelihood times a factor."""

    @abc.abstractmethod
    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """Return the belief conditioned on it; its mean is the place of this evidence."""

    @abc.abstractmethod
    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """Return the belief after a plain gradient step."""


@dataclasses.dataclass(frozen=True)
class PseudoObservation(AbstractEvidence):
    """residual = matrix (theta - mean) + v, v ~ N(0, I): curvature H' H and gradient H' e.

    Attributes:
        matrix: Rows of zeros say nothing.
        residual: What is zero where the mean is right.
    """

    matrix: Rows
    residual: Residual

    def seen_from(self, change: Weights) -> "PseudoObservation":
        """Return evidence with the residual moved; the matrix stays."""
        return PseudoObservation(self.matrix, self.residual + self.matrix @ change)

    def as_taken_by(self, family: AbstractFamily) -> AbstractEvidence:
        """Return it as it is, or the family's part of H' H, where the mean moves by the new precision."""
        if not family.by_curvature:
            return self
        assert isinstance(family, AbstractFactorFamily)
        return Curvature(family.outer(self.matrix), self.matrix.T @ self.residual)

    def scaled(self, factor: Scalar) -> "PseudoObservation":
        """Return matrix and residual times the square root."""
        return PseudoObservation(self.matrix * factor**0.5, self.residual * factor**0.5)

    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """Return the belief after the family's Kalman update."""
        return family.condition(belief, self.matrix, self.residual)

    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """Take a plain step with gradient H' e and curvature H' H."""
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
    gradient: Weights

    def _times(self, vector: Tensor) -> Tensor:
        return self.increment @ vector if self.increment.ndim == 2 else self.increment * vector

    def seen_from(self, change: Weights) -> "Curvature":
        """Return evidence with the gradient moved; the curvature stays."""
        return Curvature(self.increment, self.gradient + self._times(change))

    def scaled(self, factor: Scalar) -> "Curvature":
        """Return gradient and curvature times the factor."""
        return Curvature(self.increment * factor, self.gradient * factor)

    def absorb(self, family: AbstractFamily, belief: Any) -> Any:
        """Return the belief with the curvature added to its precision."""
        assert isinstance(family, AbstractFactorFamily)
        return family.shift(belief, self.increment, self.gradient)

    def descend(self, family: AbstractFactorFamily, belief: Any, step: float, anchor: Any | None) -> Any:
        """Take a plain step by gradient and curvature."""
        return family.descend(belief, self.gradient, self.increment, step, anchor, None)
