"""Weighted particles, each with a switch and a Gaussian belief over the state."""

import dataclasses
import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, Record, map_tensors, register_record
from tsforecast.core.mixture import GaussianMixture


@register_record
@dataclasses.dataclass(frozen=True)
class ParticleState:
    """Weighted particles, each with a switch and a Gaussian belief over the state.

    Attributes:
        switch: s_t; a categorical one is one-hot.
        state: Belief over x_t given the particle's switches (and auxiliaries) and the data.
        log_weight: Logarithms of the weights, which sum to one for every series.
        recurrence: F(s_t), by which the next switch depends on x_t; None where it does not.
        switch_noise: Variances S(s_t) of the next switch; None for categorical ones.
        auxiliary: z_t, for systems that have one.
        begun: False where no step was taken yet: the next switch is the series' first.
    """

    switch: Float[Tensor, "particle series switch"]
    state: Gaussian
    log_weight: Float[Tensor, "particle series"]
    recurrence: Float[Tensor, "particle series switch state"] | None
    switch_noise: Float[Tensor, "particle series switch"] | None
    auxiliary: Float[Tensor, "particle series auxiliary"] | None
    begun: Bool[Tensor, " series"]

    @property
    def effective_sample_size(self) -> Float[Tensor, " series"]:
        """1 / sum of the squared weights, without a gradient: from 1 to the number of particles."""
        return (-torch.logsumexp(2 * self.log_weight.detach(), 0)).exp()

    @property
    def marginal(self) -> GaussianMixture:
        """The filter's marginal over the state, sum_i w_i N(m_i, V_i)."""
        return GaussianMixture(self.log_weight, self.state)


def initial_particles(
    num_particles: int, prior: Gaussian, switch_dim: int, auxiliary_dim: int = 0, recurrent: bool = False
) -> ParticleState:
    """Particles before the first step, all alike, with zeros for everything before it.

    Args:
        num_particles: At least 1.
        prior: Over x_0, of batch shape (series,).
        switch_dim: Of s.
        auxiliary_dim: Of z; 0 without.
        recurrent: Whether the switch depends on the state.

    Raises:
        ValueError: If there is no particle.
    """
    if num_particles < 1:
        raise ValueError(f"expected at least one particle, got num_particles={num_particles}")
    shape = (num_particles, *prior.batch_shape)
    zeros = prior.mean.new_zeros
    return ParticleState(
        switch=zeros(*shape, switch_dim),
        state=Gaussian(prior.mean.expand(*shape, -1), prior.cov.expand(*shape, -1, -1)),
        log_weight=prior.mean.new_full(shape, -math.log(num_particles)),
        recurrence=zeros(*shape, switch_dim, prior.mean.shape[-1]) if recurrent else None,
        switch_noise=None,
        auxiliary=zeros(*shape, auxiliary_dim) if auxiliary_dim else None,
        # One for each series: all its particles begin together.
        begun=torch.zeros(shape[1], dtype=torch.bool, device=prior.mean.device),
    )


def take(record: Record, index: Int[Tensor, "sample series"]) -> Record:
    """Particles, or another record of tensors (particle, series, ...), at an index of each series' own."""
    num_series = index.shape[1]
    flat = (index * num_series + torch.arange(num_series, device=index.device)).flatten()

    def pick(x: Tensor) -> Tensor:
        if x.ndim == 1:  # of the series, not of its particles
            return x
        return x.flatten(0, 1).index_select(0, flat).unflatten(0, index.shape)

    return map_tensors(pick, record)
