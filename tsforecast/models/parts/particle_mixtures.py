"""Marginal distributions by particles: mixtures of Gaussians, one along each path of switches."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import particles
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.smoothing import ParticleSmoothed
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.monte_carlo import ParticleInference
from tsforecast.models.parts.units import Units, scaled
from tsforecast.models.records import Batch, Belief, Series


def ahead(
    inference: ParticleInference,
    belief: Belief,
    future: Batch,
    num_paths: int,
    generator: torch.Generator | None = None,
) -> Marginals:
    """Return the marginal distributions of the horizon: paths of switches are drawn, and states integrated out.

    Args:
        inference: Of a model without an auxiliary variable.
        belief: The belief at the end of the past.
        future: Its `future_*` fields are read; `known_future` is not.
        num_paths: Components of the mixture.
        generator: Source of random numbers.
    """
    time_slice = inference.slice_of(future, "future")
    system, _ = inference.dynamics.switching(time_slice, belief.series, belief.location, belief.scale, proposing=False)
    steps = len(time_slice.time_feat)
    found = particles.forecast_mixture(system, belief.particles, steps, num_paths, generator)
    return _mixture(*found, belief.location, belief.scale, inference.units)


def smoothed_given(
    inference: ParticleInference,
    batch: Batch,
    units: tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]],
    num_paths: int,
    generator: torch.Generator | None = None,
) -> tuple[AbstractSwitchingSystem, ParticleSmoothed]:
    """Return the system of the batch's past, and paths given all of it, in scaled units.

    There are as many particles as where a history is forecast.

    Args:
        inference: Of a model without an auxiliary variable.
        batch: Its `past_*` fields are read.
        units: Location and scale.
        num_paths: Number of paths.
        generator: Source of random numbers.
    """
    time_slice = inference.slice_of(batch, "past")
    count = inference.particles.forecast_particles or None
    filtered, system, start = inference.run(
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
    emitted = []
    for time, switch in enumerate(smoothed.switches):
        state = map_tensors(lambda x, at=time: x[at], smoothed.states.states)
        emitted.append(system.regime(switch, time).emission.marginal(state))
    mean, variance = torch.stack([one.mean for one in emitted]), torch.stack([one.variance for one in emitted])
    return _mixture(mean, variance, *units, inference.units)


def _mixture(
    mean: Float[Tensor, "time path series target"],
    variance: Float[Tensor, "time path series target"],
    location: Float[Tensor, "series target"],
    scale: Float[Tensor, "series target"],
    units: Units,
) -> Marginals:
    """Return the mixture over paths, of equal weights, given moments in scaled units."""
    count = mean.shape[1]
    moved = (mean * scale + location).permute(2, 1, 0, 3).double()
    deviation = (variance.clamp_min(0).sqrt() * scale).permute(2, 1, 0, 3).double()
    weight = moved.new_full(moved.shape[:2], -math.log(count))
    size = moved.new_ones(*moved.shape[:2], moved.shape[-1])
    return Marginals(weight, moved, deviation, size, (units.transformation,) * count, units.clip)
