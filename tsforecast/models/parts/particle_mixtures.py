"""Marginal distributions of the past by particles: mixtures of Gaussians, one along each smoothed path of switches."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import particles
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.smoothing import ParticleSmoothed, emitted_along
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Batch, Series

# Of a filter with paths drawn backwards: each path weighs all particles at every step, by integrals over the state.
_SMOOTHING_PARTICLES = 20


def smoothed_given(
    inference: ParticleInference,
    batch: Batch,
    units: tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]],
    num_paths: int,
    generator: torch.Generator | None = None,
) -> tuple[AbstractSwitchingSystem, ParticleSmoothed]:
    """Return the system of the batch's past, and paths given all of it, in scaled units.

    Args:
        inference: Of a model without an auxiliary variable.
        batch: Its `past_*` fields are read.
        units: Location and scale.
        num_paths: Number of paths.
        generator: Source of random numbers.
    """
    time_slice = inference.slice_of(batch, "past")
    count = max(inference.particles.num_particles, _SMOOTHING_PARTICLES)
    filtered, system, start = inference.filtering.run(
        time_slice, Series.of(batch), *units, whole=True, keep_history=True, generator=generator, num_particles=count
    )
    assert filtered.history is not None
    data = scaled(time_slice, *units)
    return system, particles.smooth(system, start, filtered.history, *data, num_samples=num_paths, generator=generator)


def between(
    inference: ParticleInference,
    batch: Batch,
    units: tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]],
    num_paths: int,
    generator: torch.Generator | None = None,
) -> Marginals:
    """Return the marginal distributions of an observation at every step of the batch's past, given all of it.

    Arguments are those of `smoothed_given`.
    """
    system, smoothed = smoothed_given(inference, batch, units, num_paths, generator)
    moments = emitted_along(system, smoothed.switches, smoothed.states.states)
    return Marginals.over_paths(moments, *units, inference.units.transformation, inference.units.clip)
