"""Families of Gaussian beliefs over weights: their contract."""

import abc
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.linalg import check_factor
from tsforecast.learners.networks.network import AbstractNetwork
from tsforecast.learners.shapes import (
    Decay,
    Inputs,
    Noise,
    OutputCov,
    Outputs,
    Places,
    Residual,
    Rows,
    Samples,
    Scalar,
    Weights,
)


@runtime_checkable
class HasMean(Protocol):
    """A belief with the means of the weights."""

    @property
    def mean(self) -> Weights:
        """Return the means."""
        ...


Belief = TypeVar("Belief", bound=HasMean)


class AbstractFamily(abc.ABC, Generic[Belief]):
    """Operations of a belief N(mean, S) over P weights, each exact and then projected to the family.

    The mean moves with the gain of the belief as it was, before the projection, unless `by_curvature` says otherwise.
    """

    @property
    def by_curvature(self) -> bool:
        """Say whether the mean moves by the new precision, after the projection: m+ = m + Lambda+^{-1} g."""
        return False

    @abc.abstractmethod
    def init(self, mean: Weights, variance: Weights) -> Belief:
        """Return the belief with independent weights."""

    @abc.abstractmethod
    def condition(self, belief: Belief, matrix: Rows, residual: Residual) -> Belief:
        """Given that `residual = matrix (theta - mean) + v` with v ~ N(0, I). Rows of zeros change nothing."""

    @abc.abstractmethod
    def covariance(self, belief: Belief, matrix: Float[Tensor, "*batch row weight"]) -> Float[Tensor, "*batch row row"]:
        """Return H S H' for the rows H of the matrix."""

    def outputs(self, belief: Belief, network: AbstractNetwork, inputs: Inputs) -> tuple[Outputs, OutputCov]:
        """Return the outputs of a network at the mean, and their covariance in the network linearised there."""
        outputs, jacobian = network.linearise(self.mean(belief), inputs)
        return outputs, self.covariance(belief, jacobian)

    @abc.abstractmethod
    def push(self, belief: Belief, decay: Decay, offset: Weights | float, noise: Noise) -> Belief:
        """The belief over `decay theta + offset + w` with w ~ N(0, noise).

        Args:
            belief: Over theta.
            decay: One number, or one for each weight.
            offset: Likewise.
            noise: Likewise, or what `spread` returns times a number.
        """

    @abc.abstractmethod
    def temper(self, belief: Belief, keep: Scalar, prior: Belief) -> Belief:
        """Natural parameters mixed: `keep` of the belief's and 1 - `keep` of the prior's."""

    @abc.abstractmethod
    def inflate(self, belief: Belief, factor: Scalar) -> Belief:
        """Return the belief with its covariance times a factor."""

    @abc.abstractmethod
    def bound(self, belief: Belief, most: Weights) -> Belief:
        """The belief with no weight's variance above `most`, by scaling what is; the mean stays."""

    def spread(self, belief: Belief) -> Float[Tensor, "*spread"]:
        """Return the covariance as `push` takes it: by default the marginal variances."""
        return self.variance(belief)

    def mean(self, belief: Belief) -> Weights:
        """Return the means of the weights."""
        return belief.mean

    @abc.abstractmethod
    def variance(self, belief: Belief) -> Weights:
        """Return the marginal variances of the weights."""

    @abc.abstractmethod
    def sample(self, belief: Belief, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Return reparametrised draws of the weights."""

    @abc.abstractmethod
    def embed(self, belief: Belief, prior: Belief, places: Places) -> Belief:
        """Return the belief as one over more weights.

        Args:
            belief: Over some of the weights.
            prior: As `init` returns it, over all.
            places: Of the weights of the belief; they rise, block by block.

        Returns:
            A belief of which these weights have the first, and all others, independent of them, means and variances of
            the second. Its tensors have the shapes of the prior's.
        """

    def prior(self, mean: Weights, variance: Weights) -> Belief:
        """The belief that drifts return to: that of `init`, in the least memory."""
        return self.init(mean, variance)


class AbstractFactorFamily(AbstractFamily[Belief]):
    """A family with a precision that any matrix of its own form may change, and a square root for plain steps."""

    @abc.abstractmethod
    def curvature(self, hessian: Float[Tensor, "*hessian"]) -> Float[Tensor, "*hessian"]:
        """Return the precision that the negative of a Hessian adds, floored at zero."""

    @abc.abstractmethod
    def shift(self, belief: Belief, increment: Float[Tensor, "*hessian"], gradient: Weights) -> Belief:
        """Lambda+ = Lambda + increment, m+ = m + Lambda+^{-1} gradient."""

    @abc.abstractmethod
    def descend(
        self,
        belief: Belief,
        gradient: Weights,
        increment: Float[Tensor, "*hessian"],
        step: float,
        anchor: Belief | None,
        matrix: Rows | None,
    ) -> Belief:
        """A plain gradient step of length a on the mean m and a square root B of the covariance S = B B'.

        What is quadratic in m and B, with A = I + a (Lambda_y + Lambda_0), is taken at the end of the step (implicit;
        Toulis and Airoldi 2017), the logarithm of the determinant, if there is an anchor, at its beginning:

            m+ = m + a A^{-1} (g - Lambda_0 (m - m_0)),   B+ = A^{-1} (B + a B^{-T})

        To first order in a that is the explicit step, and it rests where that does, at S^{-1} = Lambda_y + Lambda_0.
        But B + a B^{-T} is as regular as B, so that S stays positive however large the curvature is. The explicit step
        overshoots from a curvature of 2 / a on.

        Args:
            belief: N(m, S).
            gradient: Expected gradient g of the log-likelihood.
            increment: Negative Lambda_y of its expected Hessian.
            step: Its length.
            anchor: If given, N(m_0, Lambda_0^{-1}): the gradient is that of the expectation minus KL(belief || anchor).
            matrix: If given, Lambda_y = matrix' matrix, of which the increment may be a part.
        """

    @abc.abstractmethod
    def outer(self, matrix: Rows) -> Float[Tensor, "*hessian"]:
        """Return matrix' matrix, as far as the family keeps it."""


def plus_one(matrix: Float[Tensor, "row row"]) -> Float[Tensor, "row row"]:
    """Return the matrix plus the identity, the covariance of the noise of a pseudo-observation."""
    return matrix + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)


def damped_factor(matrix: Float[Tensor, "row row"], what: str) -> Float[Tensor, "row row"]:
    """Return the lower Cholesky factor of matrix + I.

    Only its success is checked: on a small matrix, looking for inf as well takes several times as long.
    """
    factor, info = torch.linalg.cholesky_ex(plus_one(matrix))
    check_factor(info, (), what)
    return factor


def damped_solve(matrix: Float[Tensor, "row row"], vector: Residual) -> Residual:
    """(matrix + I)^{-1} vector; one number needs no factorisation."""
    if len(vector) == 1:
        return vector / (matrix[0] + 1)
    factor = damped_factor(matrix, "the predictive covariance of an observation")
    return torch.cholesky_solve(vector.unsqueeze(-1), factor).squeeze(-1)
