"""Systematic resampling of particles, by a threshold on their effective sample size."""

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.particles.state import ParticleState, take
from tsforecast.core.torch_internals import is_transformed

GRADIENTS = ("fivo", "stop-gradient")


def resample(
    particles: ParticleState, threshold: float = 2.0, gradient: str = "fivo", generator: torch.Generator | None = None
) -> ParticleState:
    """Systematic resampling of series with an effective sample size below `threshold` times the particles.

    See `filter` for `gradient`.
    """
    count, num_series = particles.log_weight.shape
    detached = particles.log_weight.detach()
    # Drawn in any case: later numbers do not depend on whether a series resamples.
    uniform = torch.rand(num_series, generator=generator, dtype=detached.dtype, device=detached.device)
    chosen = particles.effective_sample_size < threshold * count
    if not is_transformed(chosen) and not bool(chosen.any()):
        return particles
    stay = torch.arange(count, device=detached.device).unsqueeze(-1)  # series that do not resample keep their particles
    ancestors = torch.where(chosen, systematic_ancestors(detached, uniform, count), stay)
    moved = take(particles, ancestors)
    log_weight = torch.full_like(detached, -math.log(count))  # FIVO drops the gradient of the choice, which varies much
    if gradient == "stop-gradient":
        log_weight = log_weight + (moved.log_weight - moved.log_weight.detach())
    return dataclasses.replace(moved, log_weight=torch.where(chosen, log_weight, particles.log_weight))


def systematic_ancestors(
    log_weight: Float[Tensor, "particle series"], uniform: Float[Tensor, " series"], count: int
) -> Int[Tensor, "sample series"]:
    """Indices drawn with one uniform number a series: particle i is taken `count` w_i times, rounded up or down.

    Args:
        log_weight: Of any scale.
        uniform: In [0, 1).
        count: Number of samples.
    """
    cumulative = torch.softmax(log_weight, 0).cumsum(0)
    # The last is exactly 1; `searchsorted` wants rows in one piece.
    cumulative = (cumulative / cumulative[-1]).mT.contiguous()
    points = (torch.arange(count, device=uniform.device) + uniform.unsqueeze(-1)) / count
    points = points.clamp_max(1 - torch.finfo(points.dtype).eps / 2)  # 1 by rounding lies beyond the last weight
    # Where vmap has batched weights alone, this copies the points once.
    points = points + torch.zeros_like(cumulative[..., :1])
    return torch.searchsorted(cumulative, points, right=True).clamp_max(log_weight.shape[0] - 1).mT


def draw_index(mass: Float[Tensor, "*shape"], dim: int, generator: torch.Generator | None = None) -> Int[Tensor, "..."]:
    """Return indices of a dimension, by the inverse of the distribution function; each is independent of the others.

    Args:
        mass: Not negative; sums over the dimension are nearly 1.
        dim: The dimension, which the result lacks.
        generator: Of random numbers.
    """
    cumulative = mass.cumsum(dim)
    last = cumulative.narrow(dim, mass.shape[dim] - 1, 1)
    uniform = torch.rand(last.shape, generator=generator, dtype=mass.dtype, device=mass.device)
    # Scaled by the last sum, which rounds; a product may round up to it.
    return (uniform * last >= cumulative).sum(dim).clamp_max(mass.shape[dim] - 1)
