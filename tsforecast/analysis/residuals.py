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
from tsforecast.models import Batch, ExactInference, Series
from tsforecast.models.parts.bank_inference import BankInference
from tsforecast.models.parts.bank_members import stacked
from tsforecast.models.parts.pool_inference import PoolInference
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import in_scale, near, scaled

LEVEL, SLOPE, SEASON, REST, ERROR = "level", "slope", "season", "rest", "error"  # parts of a state, and the observation
Squares = dict[str, Float[Tensor, "time series"]]


def mean_squares(inference: Any, batch: Batch, first: int) -> Squares | None:
    """Return the mean squares of the auxiliary residuals of the models of a mixture, by part.

    Args:
        inference: Of a bank, of a linear model of one target, or of a pool of such.
        batch: Its past is read.
        first: Steps at the beginning, from which scales are taken.

    Returns:
        Under `ERROR` those of observations given all others; None where a model is not linear, or has several targets.
    """
    if inference.units.data.num_targets > 1:
        return None
    if isinstance(inference, PoolInference):
        weights = inference.dynamics.log_weight.exp().tolist()
        parts = [mean_squares(member, own, first) for member, own in inference.each(batch)]
        known = [part for part in parts if part is not None]
        return None if len(known) < len(parts) else _sum(list(zip(weights, known, strict=True)))
    early = {name: x[:, :first] if name.startswith("past_") else x for name, x in batch.items()}
    time_slice, series = inference.slice_of(batch, "past"), Series.of(batch)
    if isinstance(inference, ExactInference):
        location, scale = inference.scale_of(early)
        model = inference.dynamics.linear(time_slice, series)
        residuals = disturbances(model.system, model.prior, *scaled(time_slice, location, scale))
        values = in_scale(time_slice.values, location, scale)
        return _squares(residuals, values, inference.dynamics.structure)
    if not isinstance(inference, BankInference):
        return None
    begun, members = inference.filter(early)[0], inference.members
    posterior = inference.dynamics.log_weight(inference.filter(batch)[0].bank.evidence).exp()
    wide = members.wide(near(time_slice, begun.location, begun.scale), begun.bank.size)
    location, scale = (stacked(x) for x in (begun.bank.location, begun.bank.scale))
    parts, count = [], members.num_transformations
    for number, (member, model) in enumerate(
        zip(inference.dynamics.structures, members.models(wide, series), strict=True)
    ):
        residuals = disturbances(model.system, model.prior, *scaled(wide, location, scale))
        own = _squares(residuals, in_scale(wide.values, location, scale), member.structure)
        for code, weight in enumerate(posterior[:, number].unbind(-1)):
            parts.append((weight, {name: x.unflatten(1, (count, -1))[:, code] for name, x in own.items()}))
    return _sum(parts)


def num_states(inference: Any, batch: Batch) -> int:
    """Return the size of the largest state that a linear model of a mixture has, all transformations together."""
    if isinstance(inference, PoolInference):
        return max(num_states(member, own) for member, own in inference.each(batch))
    if isinstance(inference, BankInference):
        sizes = [one.structure.num_states for one in inference.dynamics.structures if one.structure is not None]
        return max(sizes) * inference.members.num_transformations
    if not isinstance(inference, ExactInference):
        return 1
    return inference.dynamics.linear(inference.slice_of(batch, "past"), Series.of(batch)).prior.mean.shape[-1]


def _squares(residuals: Disturbances, values: Tensor, structure: Structure | None) -> Squares:
    mean, variance = residuals.others
    squares = {ERROR: ((values - mean).square() / variance.clamp_min(1e-30)).squeeze(-1)}
    for name, places in parts_of_state(structure, residuals.shocks.shape[-1]).items():
        squares[name] = residuals.shocks[..., places].square().amax(-1)
    return squares


def _sum(parts: list[tuple[Any, Squares]]) -> Squares:
    """Return sums by part, each times its weight; a model without a part has no shocks to it."""
    total: Squares = {}
    for weight, squares in parts:
        for name, x in squares.items():
            total[name] = total.get(name, torch.zeros_like(x)) + weight * x
    return total


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
