"""Linear-Gaussian conditionals."""

import abc
import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import (
    LOG_2PI,
    add_diagonal,
    broadcast_shapes,
    cholesky,
    mask_rows,
    matvec,
    solve_lower,
    symmetrise,
    whiten,
)


class AbstractLinearGaussian(abc.ABC):
    """A conditional p(b | a) = N(b; matrix a + offset, noise), with the two verbs that filtering is made of."""

    @abc.abstractmethod
    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return p(b), the prior over `a` pushed through."""

    @abc.abstractmethod
    def posterior(
        self, prior: Gaussian, value: Float[Tensor, "*#batch out"], observed: Bool[Tensor, "*#batch out"] | None = None
    ) -> tuple[Gaussian, Float[Tensor, "*batch"]]:
        """p(a | b = value) and log p(value), of the observed components only.

        Args:
            prior: Over `a`.
            value: Finite everywhere, also where not observed (what stands there has no influence, on gradients
                neither).
            observed: False where a component of `value` is missing; None if all are observed.

        Raises:
            NotPositiveDefiniteError: If the predictive covariance of `value` is singular.
        """

    @abc.abstractmethod
    def sample(
        self, value: Float[Tensor, "*#batch in"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch out"]:
        """Draws b given a = value, reparametrised; the noise may be singular."""

    @abc.abstractmethod
    def dense(self) -> "LinearGaussian":
        """Return the same conditional by its matrices."""


@register_record
@dataclasses.dataclass(frozen=True)
class LinearGaussian(AbstractLinearGaussian):
    """p(b | a) = N(b; matrix a + offset, noise). What inputs u add (B u or D u) is part of the offset.

    Attributes:
        matrix: Shape (*batch, out, in).
        offset: Shape (*batch, out).
        noise: Covariance, shape (*batch, out, out).
    """

    matrix: Float[Tensor, "*#batch out in"]
    offset: Float[Tensor, "*#batch out"]
    noise: Float[Tensor, "*#batch out out"]

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return p(b) = N(matrix m + offset, matrix V matrix' + noise)."""
        cov = self.matrix @ prior.cov @ self.matrix.mT + self.noise
        return Gaussian(matvec(self.matrix, prior.mean) + self.offset, symmetrise(cov))

    def posterior(
        self, prior: Gaussian, value: Float[Tensor, "*#batch out"], observed: Bool[Tensor, "*#batch out"] | None = None
    ) -> tuple[Gaussian, Float[Tensor, "*batch"]]:
        """p(a | b = value), log p(value): the covariance as V - w'w with w = L^{-1} C V, symmetric by construction."""
        residual = value - matvec(self.matrix, prior.mean) - self.offset
        cross = self.matrix @ prior.cov
        among = cross @ self.matrix.mT + self.noise
        count: Tensor | int = value.shape[-1]
        if observed is not None:
            residual = torch.where(observed, residual, 0.0)
            cross, among = mask_rows(cross, among, observed)
            count = observed.to(residual.dtype).sum(-1)
        factor = cholesky(among, "the predictive covariance of an observation")
        gain = whiten(factor, cross)
        white = solve_lower(factor, residual)
        log_diag = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_prob = -0.5 * (white.square().sum(-1) + count * LOG_2PI) - log_diag
        if gain.ndim == prior.cov.ndim == 2:  # large covariances are read and written once
            cov = torch.addmm(prior.cov, gain.mT, gain, alpha=-1)
        else:
            cov = prior.cov - gain.mT @ gain
        return Gaussian(prior.mean + matvec(gain.mT, white), cov), log_prob

    def sample(
        self, value: Float[Tensor, "*#batch in"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch out"]:
        """Return what the matrix makes of the value, plus offset and noise."""
        mean = matvec(self.matrix, value) + self.offset
        factor = cholesky(self.noise, "the noise of a conditional to sample from", jitter=True)
        mean = mean.expand(broadcast_shapes(mean.shape, factor.shape[:-1]))
        return mean + matvec(factor, torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device))

    def dense(self) -> "LinearGaussian":
        """Return the system itself, which is dense already."""
        return self


@register_record
@dataclasses.dataclass(frozen=True)
class DiagonalLinearGaussian(AbstractLinearGaussian):
    """p(b | a) = N(b; matrix a + offset, diag(variance)): sampling it needs no factorisation.

    Attributes:
        matrix: Shape (*batch, out, in).
        offset: Shape (*batch, out).
        variance: Of the noise, shape (*batch, out); may be zero.
    """

    matrix: Float[Tensor, "*#batch out in"]
    offset: Float[Tensor, "*#batch out"]
    variance: Float[Tensor, "*#batch out"]

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return p(b) = N(matrix m + offset, matrix V matrix' + diag(variance))."""
        cov = add_diagonal(symmetrise(self.matrix @ prior.cov @ self.matrix.mT), self.variance, in_place=True)
        return Gaussian(matvec(self.matrix, prior.mean) + self.offset, cov)

    def posterior(
        self, prior: Gaussian, value: Float[Tensor, "*#batch out"], observed: Bool[Tensor, "*#batch out"] | None = None
    ) -> tuple[Gaussian, Float[Tensor, "*batch"]]:
        """Return the posterior of the same conditional by its matrices."""
        return self.dense().posterior(prior, value, observed)

    def sample(
        self, value: Float[Tensor, "*#batch in"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "*batch out"]:
        """Return what the matrix makes of the value, plus offset and noise."""
        mean = matvec(self.matrix, value) + self.offset
        mean = mean.expand(broadcast_shapes(mean.shape, self.variance.shape))
        positive = self.variance > 0  # the derivative of a root at zero is infinite
        deviation = torch.where(positive, self.variance, 1.0).sqrt() * positive
        return mean + deviation * torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)

    def dense(self) -> LinearGaussian:
        """Return the conditional with its noise as a matrix."""
        return LinearGaussian(self.matrix, self.offset, torch.diag_embed(self.variance))
