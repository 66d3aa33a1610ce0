"""Initial transitions of dense systems, and states that wait for their series to begin."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.records import TimeSlice


def begun(
    time_slice: TimeSlice, transition: Float[Tensor, "1 1 state state"], noise: Float[Tensor, "1 #series state state"]
) -> tuple[Float[Tensor, "#time #series state state"], Float[Tensor, "#time #series state state"]]:
    """Return the transition and its noise, with states that stand still before their series begins."""
    if time_slice.active is None:
        return transition, noise
    moving = time_slice.active.to(noise.dtype)[..., None, None]
    eye = torch.eye(noise.shape[-1], dtype=noise.dtype, device=noise.device)
    return moving * transition + (1 - moving) * eye, moving * noise  # without noise either, so that the prior waits


def seasonal_readout(size: int, season: int) -> Tensor:
    """Return the readout of the state of `rotations`: its level, and the seasonal components if there is a season."""
    readout = torch.zeros(size)
    readout[0] = 1.0
    readout[1::2] = 1.0 if season > 1 else 0.0
    return readout


def rotations(size: int, season: int, level: float = 1.0) -> Tensor:
    """Return a level and damped rotations by the harmonics of the season, or by small angles without a season.

    Args:
        size: Number of states.
        season: Steps in a season; at most 1 for none.
        level: Share of the level that stays from step to step.
    """
    matrix = torch.eye(size) * 0.97  # a state beyond the pairs has a memory of some thirty steps
    matrix[0, 0] = level
    for harmonic, first in enumerate(range(1, size - 1, 2), start=1):
        angle = 2 * math.pi * harmonic / season if season > 1 else 0.1 * harmonic
        cosine, sine = math.cos(angle), math.sin(angle)
        block = torch.tensor([[cosine, sine], [-sine, cosine]])
        matrix[first : first + 2, first : first + 2] = (0.995 if season > 1 else 0.9) * block
    return matrix


def short_memory(size: int) -> Tensor:
    """Return a transition with a short memory, for a state beside components that have the level and the seasons."""
    return rotations(size, 0, level=0.9)
