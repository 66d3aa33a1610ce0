"""Series that have not begun: their particles and their states stand still."""

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core.linear import LinearGaussian
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.torch_internals import is_transformed


def choose(mask: Tensor, new: ParticleState, old: ParticleState) -> ParticleState:
    """The new particles of the series in the mask, the old ones of others."""
    if not is_transformed(mask) and bool(mask.all()):
        return new

    def pick(a: Tensor, b: Tensor) -> Tensor:
        at = 0 if a.ndim == 1 else 1  # `begun` has no particles
        return torch.where(mask.reshape(*mask.shape, *[1] * (a.ndim - at - 1)), a, b)

    return pytree.tree_map(lambda a, b: None if a is None else pick(a, b), new, old, is_leaf=lambda x: x is None)


def stand_still(transition: LinearGaussian, begun: Bool[Tensor, " series"]) -> LinearGaussian:
    """The transition where a series has begun; before, its state stands still."""
    if not is_transformed(begun) and bool(begun.all()):
        return transition
    matrix = torch.eye(transition.matrix.shape[-1], dtype=transition.matrix.dtype, device=begun.device)
    return LinearGaussian(
        torch.where(begun[:, None, None], transition.matrix, matrix),
        torch.where(begun[:, None], transition.offset, 0.0),
        torch.where(begun[:, None, None], transition.noise, 0.0),  # without noise, so that it does not drift either
    )
