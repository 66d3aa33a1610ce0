"""Systems of a horizon for particles, without and with known values."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.smoothing import given_marginals, sample_given
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics
from tsforecast.models.parts.units import Units
from tsforecast.models.records import Belief, TimeSlice

# Paths of switches of which a forecast is a mixture, at least; they are as many as particles are.
MIXED_PATHS = 50
# Paths of values, where what is known of the future bears on what is decoded.
_DECODED_PATHS = 200


def system_ahead(dynamics: AbstractSwitchingDynamics, belief: Belief, time_slice: TimeSlice) -> AbstractSwitchingSystem:
    """Return the system of a horizon without a known value."""
    return dynamics.switching(time_slice, belief.series, belief.location, belief.scale, proposing=False)[0]


def system_given(
    dynamics: AbstractSwitchingDynamics,
    units: Units,
    belief: Belief,
    time_slice: TimeSlice,
    known: Float[Tensor, "series horizon target"],
) -> tuple[AbstractSwitchingSystem, TimeSlice]:
    """Return the system of a horizon, and its slice with the known values in scaled units."""
    observed = ~torch.isnan(known)
    known = torch.where(observed, known, 0.0)
    values, observed = units.transform(known.double()).transpose(0, 1), observed.transpose(0, 1)
    given = dataclasses.replace(time_slice, values=values, observed=observed)
    system, _ = dynamics.switching(given, belief.series, belief.location, belief.scale, proposing=True)
    values = torch.where(observed, units.scaled(known, belief), 0.0)
    return system, dataclasses.replace(given, values=values)


def emitted_given(system: AbstractSwitchingSystem, belief: Belief, given: TimeSlice, emits_targets: bool) -> Gaussian:
    """Return the targets along paths given their known values; decoded targets are drawn."""
    known = (system, belief.particles, given.values, given.observed)
    if emits_targets:
        return given_marginals(*known, MIXED_PATHS)
    paths = sample_given(*known, _DECODED_PATHS)
    return Gaussian(paths, paths.new_zeros(()).expand(*paths.shape, paths.shape[-1]))  # drawn values have no variance
