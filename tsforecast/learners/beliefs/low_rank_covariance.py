"""LRKF: a belief with a covariance of low rank, beside the noise of the last drift."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import cholesky, matvec
from tsforecast.core.torch_internals import normal
from tsforecast.learners.beliefs.family import AbstractFamily
from tsforecast.learners.shapes import Decay, Noise, Places, Residual, Rows, Samples, Scalar, Weights


@register_record
@dataclasses.dataclass(frozen=True)
class LowRankCovariance:
    """N(mean, factor' factor + diag(noise)).

    Attributes:
        mean: Of the weights.
        factor: Rows that span the covariance.
        noise: What drifts have added since the last observation.
    """

    mean: Weights
    factor: Float[Tensor, "rank weight"]
    noise: Weights


@dataclasses.dataclass(frozen=True)
class LRKF(AbstractFamily[LowRankCovariance]):
    """Low-rank covariance: O(P (L + C)^2) a step and O(P L) memory.

    Without noise from a drift the rows' space never changes, and a belief that begins with a few random directions
    learns almost nothing beyond them: give it a drift with noise, or the directions of a warm-up.

    Attributes:
        rank: Number L of rows.
        directions: Rows to begin with, orthonormal; None for random ones.
        seed: Of random directions.
        restore: Whether singular values are raised by the noise that was dropped, as sqrt(lambda + q).

    Raises:
        ValueError: If the rank is not positive.
    """

    rank: int = 10
    directions: Float[Tensor, "rank weight"] | None = None
    seed: int = 0
    restore: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"expected rank to be at least 1, got {self.rank}")

    def init(self, mean: Weights, variance: Weights) -> LowRankCovariance:
        """The prior's variance along the directions alone, and none elsewhere."""
        directions = self.directions
        if directions is None:
            if self.rank > len(mean):
                raise ValueError(f"expected rank to be at most the number of weights {len(mean)}, got {self.rank}")
            # A family is settings only: its directions are the same each time.
            generator = torch.Generator().manual_seed(self.seed)
            # On the CPU in float64: the same directions on every device.
            random = torch.randn(len(mean), self.rank, generator=generator, dtype=torch.float64)
            directions = torch.linalg.qr(random)[0].T.to(mean)
        return LowRankCovariance(mean, directions * variance.sqrt(), torch.zeros_like(mean))

    def prior(self, mean: Weights, variance: Weights) -> LowRankCovariance:
        """Without rows: all of the variance is on the diagonal."""
        return LowRankCovariance(mean, mean.new_zeros(0, len(mean)), variance)

    def condition(self, belief: LowRankCovariance, matrix: Rows, residual: Residual) -> LowRankCovariance:
        """The gain has the noise; of the covariance the `rank` leading directions are kept."""
        cross = belief.factor @ matrix.T
        pushed = matrix * belief.noise
        eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        factor = cholesky(cross.T @ cross + pushed @ matrix.T + eye, "the predictive covariance of an observation")
        gain = torch.cholesky_solve(cross.T @ belief.factor + pushed, factor)
        rows = torch.cat([belief.factor - cross @ gain, gain])
        # Of the small Gram matrix, not of rows as long as the weights.
        values, vectors = torch.linalg.eigh(rows @ rows.T)
        kept = vectors[:, -self.rank :].T @ rows  # eigenvalues rise, so the leading directions are the last
        dropped = torch.where((matrix == 0).all(), 0.0, belief.noise)  # where nothing is seen it waits
        if self.restore:
            lengths = values[-self.rank :]
            known = lengths > torch.finfo(values.dtype).eps * len(values) * lengths[-1:]  # others are rounding
            ratio = torch.where(known, (lengths + dropped.mean()) / torch.where(known, lengths, 1.0), 1.0)
            kept = kept * ratio.sqrt().unsqueeze(-1)
        return LowRankCovariance(belief.mean + matvec(gain.T, residual), kept, belief.noise - dropped)

    def covariance(
        self, belief: LowRankCovariance, matrix: Float[Tensor, "*batch row weight"]
    ) -> Float[Tensor, "*batch row row"]:
        """Return matrix (W' W + diag(q)) matrix'."""
        cross = matrix @ belief.factor.T
        return cross @ cross.mT + (matrix * belief.noise) @ matrix.mT

    def push(self, belief: LowRankCovariance, decay: Decay, offset: Weights | float, noise: Noise) -> LowRankCovariance:
        """Keep the noise until the next observation."""
        kept = decay * decay * belief.noise + noise
        return LowRankCovariance(decay * belief.mean + offset, decay * belief.factor, kept)

    def temper(self, belief: LowRankCovariance, keep: Scalar, prior: LowRankCovariance) -> LowRankCovariance:
        """Refuse: beliefs of low rank are not closed under mixing.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a belief of low-rank covariance cannot mix precisions: take the drift Wiener or another family"
        )

    def inflate(self, belief: LowRankCovariance, factor: Scalar) -> LowRankCovariance:
        """Multiply rows and noise, so that the covariance has the factor."""
        return LowRankCovariance(belief.mean, belief.factor * factor**0.5, belief.noise * factor)

    def bound(self, belief: LowRankCovariance, most: Weights) -> LowRankCovariance:
        """Scale the columns of weights with too large a variance."""
        variance = self.variance(belief)
        ratio = torch.where(variance > most, most / variance, 1.0)  # some may be zero
        return LowRankCovariance(belief.mean, belief.factor * ratio.sqrt(), belief.noise * ratio)

    def variance(self, belief: LowRankCovariance) -> Weights:
        """Return the marginal variances: squares of the rows plus the noise."""
        return belief.factor.square().sum(0) + belief.noise

    def sample(self, belief: LowRankCovariance, num_samples: int, generator: torch.Generator | None = None) -> Samples:
        """Draw along the rows, and add independent noise."""
        along = normal((num_samples, len(belief.factor)), belief.mean, generator) @ belief.factor
        noise = normal((num_samples, len(belief.mean)), belief.mean, generator) * belief.noise.sqrt()
        return belief.mean + along + noise

    def embed(self, belief: LowRankCovariance, prior: LowRankCovariance, places: Places) -> LowRankCovariance:
        """The variance of new weights waits as noise: what brings them is the next observation."""
        mean = prior.mean.index_copy(0, places, belief.mean)
        rows = torch.nn.functional.pad(belief.factor, (0, 0, 0, self.rank - len(belief.factor)))
        factor = torch.zeros_like(prior.factor).index_copy(1, places, rows)
        return LowRankCovariance(mean, factor, self.variance(prior).index_copy(0, places, belief.noise))
