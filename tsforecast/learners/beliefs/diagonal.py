"""A belief with independent weights, or with independent blocks of weights."""

import dataclasses
import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import cholesky, matvec, solve_lower, symmetrise, whiten
from tsforecast.core.torch_internals import normal
from tsforecast.learners.beliefs.family import AbstractFactorFamily, AbstractFamily, damped_factor, damped_solve
from tsforecast.learners.beliefs.full import embed
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

PROJECTIONS = ("precision", "covariance")
GAINS = ("unprojected", "projected")


@register_record
@dataclasses.dataclass(frozen=True)
class Independent:
    """N(mean, diag(variance)).

    Attributes:
        mean: Of the weights.
        variance: Of the weights, positive.
    """

    mean: Weights
    variance: Weights


@dataclasses.dataclass(frozen=True)
class Diagonal(AbstractFactorFamily[Independent]):
    """Independent weights: O(P C^2) a step.

    Attributes:
        projection: What is kept of an update: the diagonal of the "precision" (variational: nearest in KL(q || p)), or
            of the "covariance" (the decoupled extended Kalman filter; never smaller).
        gain: Of the mean: "unprojected", v H' (H v H' + I)^{-1}; or "projected", by the new variances, m + v+ H' e, of
            precisions only. None for what the algorithm's paper has: `bong` with empirical Fisher or Monte Carlo
            evidence and `blr` the second (Jones et al. 2024), all others the first.

    Raises:
        ValueError: If the projection or the gain is not known, or they do not go together.
    """

    projection: str = "precision"
    gain: str | None = None

    def __post_init__(self) -> None:
        if self.projection not in PROJECTIONS:
            raise ValueError(f"expected projection to be one of {', '.join(PROJECTIONS)}, got {self.projection!r}")
        if self.gain not in (None, *GAINS):
            raise ValueError(f"expected gain to be one of {', '.join(GAINS)}, got {self.gain!r}")
        if self.gain == "projected" and self.projection != "precision":
            raise ValueError(f"the projected gain goes with the projection 'precision', got {self.projection!r}")

    @property
    def by_curvature(self) -> bool:
        """Say whether the gain is the projected one."""
        return self.gain == "projected"

    def init(self, mean: Weights, variance: Weights) -> Independent:
        """Return the belief with these means and variances."""
        return Independent(mean, variance)

    def condition(self, belief: Independent, matrix: Rows, residual: Residual) -> Independent:
        """The gain is v H' (H v H' + I)^{-1}; with one row it needs no factorisation."""
        if self.gain == "projected":
            return self.shift(belief, self.outer(matrix), matvec(matrix.mT, residual))
        cross = matrix * belief.variance
        among = cross @ matrix.mT
        if self.projection == "precision":
            # 1 / (1 / v + sum h^2), divided once
            variance = belief.variance / (1 + (cross * matrix).sum(0))
            return Independent(torch.addmv(belief.mean, cross.mT, damped_solve(among, residual)), variance)
        if len(matrix) == 1:
            root = (among[0] + 1).rsqrt()
            white, gain = residual * root, cross * root
        else:
            factor = damped_factor(among, "the predictive covariance of an observation")
            # V - sum of squares: no difference of products.
            white, gain = solve_lower(factor, residual), whiten(factor, cross)
        return Independent(torch.addmv(belief.mean, gain.mT, white), belief.variance - gain.square().sum(0))

    def covariance(
        self, belief: Independent, matrix: Float[Tensor, "*batch row weight"]
    ) -> Float[Tensor, "*batch row row"]:
        """Return H diag(v) H' for the rows H of the matrix."""
        return (matrix * belief.variance) @ matrix.mT

    def outputs(self, belief: Independent, network: AbstractNetwork, inputs: Inputs) -> tuple[Outputs, OutputCov]:
        """Ask the network; it may not need its Jacobian."""
        return network.spread(belief.mean, belief.variance, inputs)

    def push(self, belief: Independent, decay: Decay, offset: Weights | float, noise: Noise) -> Independent:
        """Move each weight on its own."""
        return Independent(decay * belief.mean + offset, decay * decay * belief.variance + noise)

    def temper(self, belief: Independent, keep: Scalar, prior: Independent) -> Independent:
        """Mix the natural parameters of each weight."""
        mine, its = keep / belief.variance, (1 - keep) / prior.variance
        variance = 1 / (mine + its)
        return Independent(variance * (mine * belief.mean + its * prior.mean), variance)

    def inflate(self, belief: Independent, factor: Scalar) -> Independent:
        """Return the belief with its variances times a factor."""
        return Independent(belief.mean, belief.variance * factor)

    def bound(self, belief: Independent, most: Weights) -> Independent:
        """Cut the variance of each weight."""
        return Independent(belief.mean, torch.minimum(belief.variance, most))

    def variance(self, belief: Independent) -> Weights:
        """Return the variances of the weights."""
        return belief.variance

    def sample(self, belief: Independent, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw each weight on its own."""
        noise = normal((num_samples, len(belief.mean)), belief.mean, generator)
        return torch.addcmul(belief.mean, belief.variance.sqrt(), noise)

    def embed(self, belief: Independent, prior: Independent, places: Places) -> Independent:
        """Put the mean and the variance of each weight in its place."""
        mean = prior.mean.index_copy(0, places, belief.mean)
        return Independent(mean, prior.variance.index_copy(0, places, belief.variance))

    def curvature(self, hessian: Weights) -> Weights:
        """The diagonal of the Hessian; entries that would take precision away become zero."""
        return (-hessian).clamp_min(0)

    def shift(self, belief: Independent, increment: Weights, gradient: Weights) -> Independent:
        """Add to the precision of each weight, and move its mean."""
        variance = 1 / (1 / belief.variance + increment)
        return Independent(belief.mean + variance * gradient, variance)

    def descend(
        self,
        belief: Independent,
        gradient: Weights,
        increment: Weights,
        step: float,
        anchor: Independent | None,
        matrix: Rows | None,
    ) -> Independent:
        """On the mean and the standard deviations; the mean by all of the curvature where its matrix is known."""
        deviation, pull = belief.variance.sqrt(), torch.zeros_like(belief.mean)
        if anchor is not None:
            pull = 1 / anchor.variance
            gradient = gradient - (belief.mean - anchor.mean) * pull
            deviation = deviation + step / deviation  # 1 / deviation is the derivative of the entropy
        damping = 1 + step * (increment + pull)
        # Squares of deviations that only shrink must not become zero.
        least = torch.finfo(deviation.dtype).tiny ** 0.5
        variance = (deviation / damping).square().clamp_min(least)
        if matrix is None:
            return Independent(belief.mean + step * gradient / damping, variance)
        change, scaled = step * gradient / (1 + step * pull), matrix / (1 + step * pull)
        # Woodbury: a system as large as the rows.
        seen = damped_solve(step * (scaled @ matrix.mT), matvec(matrix, change))
        return Independent(belief.mean + change - step * matvec(scaled.mT, seen), variance)

    def outer(self, matrix: Rows) -> Weights:
        """Return the diagonal of matrix' matrix."""
        return matrix.square().sum(0)


@register_record
@dataclasses.dataclass(frozen=True)
class Blocked:
    """N(mean, S) with a block-diagonal S.

    Attributes:
        mean: Of all weights.
        covs: Covariance of each block, in the order of the weights.
    """

    mean: Weights
    covs: tuple[Float[Tensor, "_ _"], ...]


@dataclasses.dataclass(frozen=True)
class BlockDiagonal(AbstractFamily[Blocked]):
    """Independent blocks, with all covariances inside each: the decoupled extended Kalman filter.

    Attributes:
        sizes: Number of weights in each block, for example `network.sizes` for the layers.
    """

    sizes: tuple[int, ...]

    def init(self, mean: Weights, variance: Weights) -> Blocked:
        """Return the belief with diagonal blocks."""
        return Blocked(mean, tuple(map(torch.diag_embed, variance.split(self.sizes))))

    def condition(self, belief: Blocked, matrix: Rows, residual: Residual) -> Blocked:
        """S_i+ = S_i - G_i H_i S_i; the gains share the predictive covariance I + sum_i H_i S_i H_i'."""
        parts = matrix.split(self.sizes, -1)
        crosses = [part @ cov for part, cov in zip(parts, belief.covs, strict=True)]
        among = sum(cross @ part.mT for cross, part in zip(crosses, parts, strict=True))
        factor = cholesky(among + torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device))
        gains = [whiten(factor, cross) for cross in crosses]
        white = solve_lower(factor, residual)
        mean = belief.mean + torch.cat([matvec(gain.mT, white) for gain in gains])
        return Blocked(
            mean, tuple(symmetrise(cov - gain.mT @ gain) for cov, gain in zip(belief.covs, gains, strict=True))
        )

    def covariance(
        self, belief: Blocked, matrix: Float[Tensor, "*batch row weight"]
    ) -> Float[Tensor, "*batch row row"]:
        """Return the sum of H_i S_i H_i' over the blocks."""
        parts = zip(matrix.split(self.sizes, -1), belief.covs, strict=True)
        return torch.stack([part @ cov @ part.mT for part, cov in parts]).sum(0)

    def push(self, belief: Blocked, decay: Decay, offset: Weights | float, noise: Noise) -> Blocked:
        """Move each block on its own."""
        ones = torch.ones_like(belief.mean)
        moved = []
        for cov, by, added in zip(
            belief.covs, (decay * ones).split(self.sizes), (noise * ones).split(self.sizes), strict=True
        ):
            moved.append(by.unsqueeze(-1) * by * cov + torch.diag_embed(added))
        return Blocked(decay * belief.mean + offset, tuple(moved))

    def temper(self, belief: Blocked, keep: Scalar, prior: Blocked) -> Blocked:
        """Mix the natural parameters of each block."""
        means, covs = [], []
        rows = zip(belief.mean.split(self.sizes), belief.covs, prior.mean.split(self.sizes), prior.covs, strict=True)
        for mean, cov, prior_mean, prior_cov in rows:
            mine, its = (torch.cholesky_inverse(cholesky(x, "a block of a covariance")) for x in (cov, prior_cov))
            mixed = keep * mine + (1 - keep) * its
            covs.append(symmetrise(torch.cholesky_inverse(cholesky(mixed, "a block of a precision"))))
            means.append(matvec(covs[-1], keep * matvec(mine, mean) + (1 - keep) * matvec(its, prior_mean)))
        return Blocked(torch.cat(means), tuple(covs))

    def inflate(self, belief: Blocked, factor: Scalar) -> Blocked:
        """Return the belief with each block times a factor."""
        return Blocked(belief.mean, tuple(cov * factor for cov in belief.covs))

    def bound(self, belief: Blocked, most: Weights) -> Blocked:
        """Return the belief with rows and columns scaled: all correlations stay."""
        scales = (most / self.variance(belief)).clamp_max(1).sqrt().split(self.sizes)
        return Blocked(
            belief.mean, tuple(s.unsqueeze(-1) * s * cov for s, cov in zip(scales, belief.covs, strict=True))
        )

    def variance(self, belief: Blocked) -> Weights:
        """Return the diagonals of the blocks."""
        return torch.cat([cov.diagonal() for cov in belief.covs])

    def sample(self, belief: Blocked, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw each block on its own, by its Cholesky factor."""
        noise = normal((num_samples, len(belief.mean)), belief.mean, generator).split(self.sizes, -1)
        factors = [cholesky(cov, "a block of a covariance", jitter=True) for cov in belief.covs]
        return belief.mean + torch.cat([x @ factor.mT for x, factor in zip(noise, factors, strict=True)], -1)

    def embed(self, belief: Blocked, prior: Blocked, places: Places) -> Blocked:
        """Put each block into the block of the same number."""
        starts = itertools.accumulate(self.sizes, initial=0)
        parts = zip(belief.covs, prior.covs, places.split([len(cov) for cov in belief.covs]), starts, strict=False)
        covs = tuple(embed(cov, its_prior, own - start) for cov, its_prior, own, start in parts)
        return Blocked(prior.mean.index_copy(0, places, belief.mean), covs)
