"""Variances from bounded logarithms, and diagonal Gaussians from outputs of networks."""

from jaxtyping import Float
from torch import Tensor

from tsforecast.core.particles.proposals import DiagonalGaussian

# Logarithms of inverse scales stay in a range in which float32 filters safely whatever an optimiser does.
LARGEST_LOG_SCALE = 5.0


def diagonal(raw: Float[Tensor, "*batch double"]) -> DiagonalGaussian:
    """Return the Gaussian of means and log inverse scales that stand side by side."""
    mean, log_inverse = raw.chunk(2, -1)
    return DiagonalGaussian(mean, variance(log_inverse))


def variance(log_inverse_scale: Tensor) -> Tensor:
    """Return the variance of a log inverse scale; this is bounded here."""
    return (-2 * log_inverse_scale.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)).exp()
