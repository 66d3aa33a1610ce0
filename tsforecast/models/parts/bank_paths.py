"""Sample paths of a bank of models: each path is of one model, drawn by weight."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.particles.resampling import systematic_ancestors
from tsforecast.models.records import BankState
from tsforecast.models.transformations import transformation_of


def draw(
    log_weight: Float[Tensor, "series model"], num_samples: int, generator: torch.Generator | None
) -> Int[Tensor, "series sample"]:
    """Return the numbers of models drawn by weight, systematically: each about as often as its weight says."""
    known = log_weight.detach()
    # One number a series: systematic.
    start = torch.rand(len(known), generator=generator, dtype=known.dtype, device=known.device)
    return systematic_ancestors(known.T, start, num_samples).T


def apart(values: Float[Tensor, "sample stacked time"], count: int) -> Tensor:
    """Return values as (series, sample, transformation, time), of a number of transformations."""
    return values.unflatten(1, (count, -1)).permute(2, 0, 1, 3)


def picked(
    paths: Tensor | None,
    samples: Float[Tensor, "series sample transformation time"],
    state: BankState,
    transformations: Sequence[str],
    chosen: Int[Tensor, "series sample"],
    structure: int,
) -> Float[Tensor, "series sample time"]:
    """Return paths in the units of the data, with those of the chosen models of a structure in their places.

    Args:
        paths: Those of the structures before; None for none.
        samples: Of the structure, in scaled units.
        state: Of the bank.
        transformations: Their names.
        chosen: The model of each path.
        structure: Number of the structure.
    """
    samples = samples * state.scale[:, None, :, None] + state.location[:, None, :, None]
    for number, name in enumerate(transformations):
        own = transformation_of(name).restore(samples[:, :, number]) * state.size.unsqueeze(-1)
        model = structure * len(transformations) + number
        paths = own if paths is None else torch.where((chosen == model).unsqueeze(-1), own, paths)
    assert paths is not None
    return paths
