"""Auxiliary residuals of mixtures of linear models: shocks to observations and to kinds of states.

The gain in likelihood of a model with a shock is half the square of an auxiliary residual. In a mixture the gain is the
mean of those of its models, by their posterior probabilities given the whole series.
"""

import itertools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.components import Component, Level, Trend
from tsforecast.core.disturbances import Disturbances, disturbances
from tsforecast.models import Batch
from tsforecast.models.parts.inference import AbstractLinearMixture
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import in_scale

LEVEL, SLOPE, SEASON, REST, ERROR = "level", "slope", "season", "rest", "error"  # parts of a state, and the observation
Squares = dict[str, Float[Tensor, "time series"]]


def mean_squares(linear: AbstractLinearMixture[Any], batch: Batch, first: int) -> Squares:
    """Return the mean squares of the auxiliary residuals of the models of a mixture, by part.

    Args:
        linear: Of one target.
        batch: Its past is read.
        first: Steps at the beginning, from which scales are taken.

    Returns:
        Under `ERROR` those of observations given all others. A model without a part has no shocks to it.
    """
    early = {name: x[:, :first] if name.startswith("past_") else x for name, x in batch.items()}
    begun, weights = linear.begin(batch, early), linear.weights(linear.filter(batch)[0])
    total: Squares = {}
    for member, weight in zip(linear.members_of(batch, "past", begun), weights, strict=True):
        residuals = disturbances(member.model.system, member.model.prior, *member.data)
        values = in_scale(member.time_slice.values, member.location, member.scale)
        for name, x in _squares(residuals, values, member.structure).items():
            mean = (weight.T * x.unflatten(1, (len(member.transformations), -1))).sum(1)
            total[name] = total.get(name, torch.zeros_like(mean)) + mean
    return total


def num_states(linear: AbstractLinearMixture[Any], batch: Batch) -> int:
    """Return the size of the largest state of a linear model, all transformations together."""
    members = linear.members_of(batch, "past", linear.begin(batch, batch))
    return max(one.model.prior.mean.shape[-1] * len(one.transformations) for one in members)


def _squares(residuals: Disturbances, values: Tensor, structure: Structure | None) -> Squares:
    mean, variance = residuals.others
    squares = {ERROR: ((values - mean).square() / variance.clamp_min(1e-30)).squeeze(-1)}
    for name, places in parts_of_state(structure, residuals.shocks.shape[-1]).items():
        squares[name] = residuals.shocks[..., places].square().amax(-1)
    return squares


def parts_of_state(structure: Structure | None, size: int) -> dict[str, list[int]]:
    """Return the places in the state of levels, slopes, seasons and all others.

    Args:
        structure: Components of the first states; None for none.
        size: Number of states.
    """
    parts: dict[str, list[int]] = {}
    components: tuple[Component, ...] = () if structure is None else structure.components
    ends = list(itertools.accumulate((one.size for one in components), initial=0))
    for one, (first, end) in zip(components, itertools.pairwise(ends), strict=True):
        if isinstance(one, Trend):
            parts.setdefault(LEVEL, []).append(first)
            parts.setdefault(SLOPE, []).append(first + 1)
        else:
            parts.setdefault(SEASON if one.is_seasonal else LEVEL, []).extend(range(first, end))
    if ends[-1] < size:
        parts[REST] = list(range(ends[-1], size))
    return parts


def shift_of(structure: Structure | None, prior: Float[Tensor, "*series state state"]) -> Tensor:
    """Return the covariance of a shift that stays: of levels and slopes, as they begin, and of no season.

    Where levels are damped, all factors of the first season shift together.

    Args:
        structure: As for `parts_of_state`.
        prior: Covariance of the state before the first step.
    """
    parts = parts_of_state(structure, prior.shape[-1])
    components: tuple[Component, ...] = () if structure is None else structure.components
    moving = prior.new_zeros(prior.shape[-1])
    if SEASON in parts and all(one.is_seasonal or (isinstance(one, Level) and one.damped) for one in components):
        first = next(one for one in components if one.is_seasonal)
        moving[parts[SEASON][: first.size]] = 1.0
        return moving * moving.unsqueeze(-1) * prior.diagonal(dim1=-2, dim2=-1).amax(-1)[..., None, None]
    moving[[place for name, places in parts.items() if name != SEASON for place in places]] = 1.0
    return prior * moving * moving.unsqueeze(-1)
