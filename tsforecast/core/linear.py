"""Linear-Gaussian conditionals."""

import abc
import dataclasses
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.kernels import steps as kernels
from tsforecast.core.kernels.calls import serves
from tsforecast.core.linalg import (
    LOG_2PI,
    add_diagonal,
    broadcast_shapes,
    check_factor,
    cholesky,
    mask_rows,
    matvec,
    solve_lower,
    symmetrise,
    whiten,
)
from tsforecast.core.shapes import Drawn, Given, JointMoments, Observed, Posterior, Value
from tsforecast.core.torch_internals import normal

_PREDICTED = "the predictive covariance of an observation"
PREDICTED_VARIANCE = "the predictive variance of an observation"


class AbstractLinearGaussian(abc.ABC):
    """A conditional p(b | a) = N(b; matrix a + offset, noise), with the two verbs that filtering is made of."""

    def marginal(self, prior: Gaussian) -> Gaussian:
        """Return p(b), the prior over `a` pushed through."""
        mean, _, cov = self.joint(prior)
        return Gaussian(mean, cov)

    @abc.abstractmethod
    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """p(a | b = value) and log p(value), of the observed components only.

        Args:
            prior: Over `a`.
            value: Finite everywhere. Values that are not observed have no influence, not even on gradients.
            observed: False where a component of `value` is missing; None if all are observed.

        Raises:
            NotPositiveDefiniteError: If the predictive covariance of `value` is singular.
        """

    @abc.abstractmethod
    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of b, Cov(b, a), and the covariance of b.

        Args:
            prior: Over `a`.
        """

    @abc.abstractmethod
    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Draws b given a = value, reparametrised; the noise may be singular."""

    @abc.abstractmethod
    def dense(self) -> "LinearGaussian":
        """Return the same conditional by its matrices."""


class AbstractByMoments(AbstractLinearGaussian, abc.ABC):
    """A conditional with a posterior by its joint moments, and with these by the dense form unless it has others."""

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of b, Cov(b, a), and the covariance of b."""
        return self.dense().joint(prior)

    def posterior(self, prior: Gaussian, value: Value, observed: Observed = None) -> Posterior:
        """Return p(a | b = value) and log p(value); see `condition`."""
        mean, cross, among = self.joint(prior)
        return condition(prior, value - mean, cross, among, observed)


@register_record
@dataclasses.dataclass(frozen=True)
class LinearGaussian(AbstractByMoments):
    """p(b | a) = N(b; matrix a + offset, noise). The offset includes the terms of inputs u (B u or D u).

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
        mean, _, cov = _push(self.matrix, prior, self.offset, self.noise, with_cross=False)
        return Gaussian(mean, cov)

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the mean of b, Cov(b, a), and the covariance of b."""
        return _push(self.matrix, prior, self.offset, self.noise)

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return a sample of b: the matrix times the value, plus offset and noise."""
        mean = matvec(self.matrix, value) + self.offset
        factor = cholesky(self.noise, "the noise of a conditional to sample from", jitter=True)
        # Noise is drawn for each, also where they share a mean.
        mean = mean.expand(broadcast_shapes(mean.shape, factor.shape[:-1]))
        return mean + matvec(factor, normal(mean.shape, mean, generator))

    def dense(self) -> "LinearGaussian":
        """Return the system itself, since it is dense already."""
        return self


@register_record
@dataclasses.dataclass(frozen=True)
class DiagonalLinearGaussian(AbstractByMoments):
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
        mean, _, cov = _push(self.matrix, prior, self.offset, self.variance, with_cross=False, diagonal=True)
        return Gaussian(mean, cov)

    def joint(self, prior: Gaussian) -> JointMoments:
        """Return the joint moments, like `LinearGaussian.joint`."""
        return _push(self.matrix, prior, self.offset, self.variance, diagonal=True)

    def sample(self, value: Given, generator: torch.Generator | None = None) -> Drawn:
        """Return a sample of b: the matrix times the value, plus offset and noise."""
        mean = matvec(self.matrix, value) + self.offset
        return with_noise(mean, self.variance, generator)

    def dense(self) -> LinearGaussian:
        """Return the conditional with its noise as a matrix."""
        return LinearGaussian(self.matrix, self.offset, torch.diag_embed(self.variance))


def with_noise(
    mean: Float[Tensor, "*#batch dim"], variance: Float[Tensor, "*#batch dim"], generator: torch.Generator | None
) -> Float[Tensor, "*batch dim"]:
    """Return a mean plus independent noises; variances may be zero."""
    # Noise is drawn for each, also where they share a mean.
    mean = mean.expand(broadcast_shapes(mean.shape, variance.shape))
    positive = variance > 0  # the derivative of a root at zero is infinite
    deviation = torch.where(positive, variance, 1.0).sqrt() * positive
    return mean + deviation * normal(mean.shape, mean, generator)


def _push(
    matrix: Tensor, prior: Gaussian, offset: Tensor, noise: Tensor, with_cross: bool = True, diagonal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, Cov(b, a) and covariance of b = matrix a + offset + noise.

    Args:
        matrix: Of the conditional.
        prior: Over `a`.
        offset: Of the conditional.
        noise: Covariance or variances.
        with_cross: Whether Cov(b, a) is used; if not, the covariance of b is symmetric to the last bit.
        diagonal: Whether the noise is given by its variances.
    """
    tensors = matrix, prior.cov, prior.mean, offset, noise
    count = matrix.shape[:-2].numel()
    # A matrix that many filters share is one large product, for which torch is faster.
    if count == prior.cov.shape[:-2].numel() and serves(count, matrix.shape[-2:], *tensors):
        reference = partial(_push_by_torch, with_cross=with_cross, diagonal=diagonal)
        return kernels.push(reference, *tensors, with_cross=with_cross, diagonal=diagonal)
    return _push_by_torch(*tensors, with_cross=with_cross, diagonal=diagonal)


def _push_by_torch(
    matrix: Tensor, cov: Tensor, mean: Tensor, offset: Tensor, noise: Tensor, with_cross: bool, diagonal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result of `_push`, by torch's operations."""
    cross = matrix @ cov
    among = cross @ matrix.mT
    if with_cross:
        among = among + (torch.diag_embed(noise) if diagonal else noise)
    else:
        # `symmetrise` made it, so it may be written into.
        among = add_diagonal(symmetrise(among), noise, in_place=True) if diagonal else symmetrise(among + noise)
    return matvec(matrix, mean) + offset, cross, among


def condition(
    prior: Gaussian,
    residual: Value,
    cross: Float[Tensor, "*#batch out in"],
    among: Float[Tensor, "*#batch out out"],
    observed: Observed,
) -> Posterior:
    """Return p(a | b) and log p(b), the covariance as V - w'w with w = L^{-1} Cov(b, a), symmetric by construction.

    Args:
        prior: Over `a`.
        residual: b less its mean; without influence where not observed.
        cross: Cov(b, a).
        among: The covariance L L' of b.
        observed: False where a component of b is missing; None if all are observed.

    Raises:
        NotPositiveDefiniteError: If the covariance of b is singular.
    """
    tensors = prior.mean, prior.cov, residual, cross, among, observed
    count = among.shape[:-2].numel()
    if count == prior.cov.shape[:-2].numel() and serves(count, cross.shape[-2:], *tensors[:-1], masks=(observed,)):
        mean, cov, log_prob, failed = kernels.condition(_condition, *tensors)
        check_factor(failed, ("series",), _PREDICTED)
        return Gaussian(mean, cov), log_prob
    mean, cov, log_prob = _condition(*tensors)
    return Gaussian(mean, cov), log_prob


def _condition(
    mean: Tensor, cov: Tensor, residual: Tensor, cross: Tensor, among: Tensor, observed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result of `condition`, by torch's operations."""
    count: Tensor | int = residual.shape[-1]
    if observed is not None:
        residual = torch.where(observed, residual, 0.0)
        cross, among = mask_rows(cross, among, observed)
        count = observed.to(residual.dtype).sum(-1)  # only what is seen has a density
    factor = cholesky(among, _PREDICTED)
    gain = whiten(factor, cross)
    white = solve_lower(factor, residual)
    log_diag = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)  # half of the logarithm of the determinant
    log_prob = -0.5 * (white.square().sum(-1) + count * LOG_2PI) - log_diag
    if gain.ndim == cov.ndim == 2:  # of large covariances no further matrix of their size is made
        one = len(gain) == 1  # elementwise they are read and written once, and a product would copy them first
        cov = torch.addcmul(cov, gain.mT, gain, value=-1) if one else torch.addmm(cov, gain.mT, gain, alpha=-1)
    else:
        cov = cov - gain.mT @ gain
    return mean + matvec(gain.mT, white), cov, log_prob


def condition_scalar(
    prior: Gaussian,
    residual: Float[Tensor, "*#batch"],
    cross: Float[Tensor, "*#batch in"],
    variance: Float[Tensor, "*#batch"],
    observed: Bool[Tensor, "*#batch"] | None,
) -> Posterior:
    """Return the result of `condition` for a single number b, by a scalar division and an outer product.

    Raises:
        NotPositiveDefiniteError: If the variance of b is not positive.
    """
    check_factor((~(variance > 0)).int(), ("series",), PREDICTED_VARIANCE)  # a NaN fails too
    weight = torch.ones_like(residual)
    if observed is not None:
        weight = observed.to(residual.dtype)
        residual = torch.where(observed, residual, 0.0)
    scale = weight * variance.rsqrt()
    white = cross * scale.unsqueeze(-1)  # its outer product is symmetric to the last bit
    log_prob = -0.5 * weight * (residual.square() / variance + variance.log() + LOG_2PI)
    cov = torch.addcmul(prior.cov, white.unsqueeze(-1), white.unsqueeze(-2), value=-1)
    return Gaussian(prior.mean + white * (scale * residual).unsqueeze(-1), cov), log_prob
