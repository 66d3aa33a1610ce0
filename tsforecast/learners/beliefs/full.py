"""A belief with a full covariance: the Gaussian of the core, conditioned by the core."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian
from tsforecast.core.linalg import cholesky, matvec, symmetrise
from tsforecast.core.linear import LinearGaussian
from tsforecast.learners.beliefs.family import AbstractFactorFamily
from tsforecast.learners.shapes import Decay, Noise, Places, Residual, Rows, Samples, Scalar, Weights


@dataclasses.dataclass(frozen=True)
class Full(AbstractFactorFamily[Gaussian]):
    """All covariances: O(P^2 C) a step and O(P^2) memory, up to some 2 000 weights."""

    def init(self, mean: Weights, variance: Weights) -> Gaussian:
        """Return the belief with a diagonal covariance."""
        return Gaussian(mean, torch.diag_embed(variance))

    def condition(self, belief: Gaussian, matrix: Rows, residual: Residual) -> Gaussian:
        """Condition by `LinearGaussian.posterior`, as for a state."""
        noise = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        emission = LinearGaussian(matrix, -matvec(matrix, belief.mean), noise)  # the residual is what is observed
        return emission.posterior(belief, residual)[0]

    def covariance(
        self, belief: Gaussian, matrix: Float[Tensor, "*batch row weight"]
    ) -> Float[Tensor, "*batch row row"]:
        """Return H S H' for the rows H of the matrix."""
        return symmetrise(matrix @ belief.cov @ matrix.mT)

    def push(self, belief: Gaussian, decay: Decay, offset: Weights | float, noise: Noise) -> Gaussian:
        """Move the belief; decay and noise may be matrices, too."""
        if isinstance(decay, Tensor) and decay.ndim == 2:
            moved = Gaussian(matvec(decay, belief.mean) + offset, symmetrise(decay @ belief.cov @ decay.mT))
        else:
            by = torch.as_tensor(decay, dtype=belief.mean.dtype, device=belief.mean.device).expand_as(belief.mean)
            moved = Gaussian(by * belief.mean + offset, by.unsqueeze(-1) * by * belief.cov)
        if not (isinstance(noise, Tensor) and noise.ndim == 2):
            noise = torch.diag_embed(
                torch.as_tensor(noise, dtype=belief.mean.dtype, device=belief.mean.device).expand_as(belief.mean)
            )
        return Gaussian(moved.mean, moved.cov + noise)

    def temper(self, belief: Gaussian, keep: Scalar, prior: Gaussian) -> Gaussian:
        """Mix by one inversion of each covariance, and of the mixed precision."""
        mine, its = _inverse(belief.cov), _inverse(prior.cov)
        cov = _inverse(keep * mine + (1 - keep) * its)
        natural = keep * matvec(mine, belief.mean) + (1 - keep) * matvec(its, prior.mean)
        return Gaussian(matvec(cov, natural), cov)

    def inflate(self, belief: Gaussian, factor: Scalar) -> Gaussian:
        """Return the belief with its covariance times a factor.

        It multiplies what rounding has made unsymmetric, too, and conditioning takes none of that away.
        """
        return Gaussian(belief.mean, symmetrise(belief.cov) * factor)

    def bound(self, belief: Gaussian, most: Weights) -> Gaussian:
        """Return the belief with rows and columns scaled: all correlations stay."""
        scale = (most / belief.variance).clamp_max(1).sqrt()
        return Gaussian(belief.mean, scale.unsqueeze(-1) * scale * belief.cov)

    def spread(self, belief: Gaussian) -> Float[Tensor, "weight weight"]:
        """Return the covariance."""
        return belief.cov

    def variance(self, belief: Gaussian) -> Weights:
        """Return the diagonal of the covariance."""
        return belief.variance

    def sample(self, belief: Gaussian, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw the weights by a Cholesky factor of the covariance."""
        return belief.sample((num_samples,), generator)

    def embed(self, belief: Gaussian, prior: Gaussian, places: Places) -> Gaussian:
        """Put the covariance into these rows and columns."""
        return Gaussian(prior.mean.index_copy(0, places, belief.mean), embed(belief.cov, prior.cov, places))

    def curvature(self, hessian: Float[Tensor, "weight weight"]) -> Float[Tensor, "weight weight"]:
        """Return the added precision with negative eigenvalues set to zero."""
        values, vectors = torch.linalg.eigh(symmetrise(-hessian))
        return (vectors * values.clamp_min(0)) @ vectors.mT  # the nearest positive semidefinite matrix

    def shift(self, belief: Gaussian, increment: Float[Tensor, "weight weight"], gradient: Weights) -> Gaussian:
        """Add to the precision, and move the mean."""
        cov = _inverse(_inverse(belief.cov) + increment)  # not by Woodbury: an increment may have full rank
        return Gaussian(belief.mean + matvec(cov, gradient), cov)

    def descend(
        self,
        belief: Gaussian,
        gradient: Weights,
        increment: Float[Tensor, "weight weight"],
        step: float,
        anchor: Gaussian | None,
        matrix: Rows | None,
    ) -> Gaussian:
        """S+ = A^{-1} (S + 2 a I + a^2 S^{-1}) A^{-1}, or A^{-1} S A^{-1} without an anchor: for every root B of S."""
        eye = torch.eye(len(belief.mean), dtype=belief.mean.dtype, device=belief.mean.device)
        curvature, cov = increment, belief.cov
        if anchor is not None:
            pull = _inverse(anchor.cov, jitter=True)
            gradient = gradient - matvec(pull, belief.mean - anchor.mean)
            curvature = curvature + pull
            cov = cov + 2 * step * eye + step**2 * (pull if belief is anchor else _inverse(belief.cov, jitter=True))
        damping = _inverse(eye + step * curvature, jitter=True)
        return Gaussian(belief.mean + step * matvec(damping, gradient), symmetrise(damping @ cov @ damping))

    def outer(self, matrix: Rows) -> Float[Tensor, "weight weight"]:
        """Return H' H for the rows H of the matrix."""
        return matrix.mT @ matrix


def embed(
    block: Float[Tensor, "weight weight"], matrix: Float[Tensor, "all all"], places: Places
) -> Float[Tensor, "all all"]:
    """The matrix with the block in these rows and columns."""
    return matrix.index_put((places.unsqueeze(-1), places), block)


def _inverse(matrix: Tensor, jitter: bool = False) -> Tensor:
    factor = cholesky(matrix, "a covariance or precision of weights", jitter=jitter)
    return symmetrise(torch.cholesky_inverse(factor))
