"""The parts of the forecast of a mixture of linear models: a bank's or a pool's, in the units of the data.

The mean of a mixture is a sum over components, each the weight times f(m), where f is the mean of a Gaussian behind a
transformation and m the sum of the parts of a state. The parts are added one after the other, as the model names them:
the share of a part is the rise of f when it is added, beginning at 0. So parts add up to the mean without a rest.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian, kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.models import Batch, Belief, ExactInference
from tsforecast.models.parts.bank_inference import BankInference
from tsforecast.models.parts.bank_members import stacked
from tsforecast.models.parts.inference import LinearModel, emissions
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.pool_inference import PoolInference
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.volatility import NODES

REST, FIT = "rest", "fit"
_STEP = 1e-3  # of a deviation, for the slope of a mean
Parts = dict[str, tuple[Float[Tensor, " horizon"], Float[Tensor, " horizon"]]]


def mixture_parts(inference: Any, belief: Belief, future: Batch) -> Parts:
    """Return mean and standard deviation of each part of the forecast of one series, and of their sum "fit".

    Deviations are those of the mixture, to the first order in transformations. What has no name is the part "rest".

    Args:
        inference: Of a model that `tsforecast.analysis.mixture_news.has_shares`, of one target.
        belief: The belief at the end of the past.
        future: Its `future_*` fields are read.
    """
    first: dict[str, Tensor] = {}
    second: dict[str, Tensor] = {}
    for weight, parts in _weighed(inference, belief, future):
        for name, (mean, variance) in parts.items():
            first[name] = first.get(name, 0.0) + weight * mean
            second[name] = second.get(name, 0.0) + weight * (variance + mean.square())
    names = [*(name for name in first if name != FIT), FIT]
    return {name: (first[name], (second[name] - first[name].square()).clamp_min(0).sqrt()) for name in names}


def _weighed(inference: Any, belief: Belief, future: Batch) -> Iterator[tuple[Tensor, Parts]]:
    """Yield the weight of each component of a mixture, with mean and variance of its parts in the units of the data."""
    if isinstance(inference, PoolInference):
        weights = inference.dynamics.log_weight.exp()
        for (member, own), known, weight in zip(inference.each(future), belief.pool.members, weights, strict=True):
            for share, parts in _weighed(member, known, own):
                yield weight.to(share) * share, parts
        return
    mixture = inference.marginals(belief, future)
    for number, parts in enumerate(_of_models(inference, belief, future)):
        count = NODES if isinstance(inference, BankInference) else 1
        for component in range(number * count, (number + 1) * count):
            fields = ("log_weight", "mean", "deviation", "size")
            one = {name: getattr(mixture, name)[:, component : component + 1].double() for name in fields}
            alone = dataclasses.replace(
                mixture, **one, transformations=mixture.transformations[component : component + 1]
            )
            yield alone.log_weight.exp()[0, 0], _in_units(alone, parts)


def _in_units(alone: Marginals, parts: Parts) -> Parts:
    """Return mean and variance of parts in the units of the data, of those in transformed units.

    Args:
        alone: The component of the mixture.
        parts: Mean and standard deviation of each part and of their sum.
    """
    means = lambda mean: dataclasses.replace(alone, mean=mean[None, None, :, None]).component_means()[0, 0, :, 0]  # noqa: E731
    whole, step = alone.mean[0, 0, :, 0], _STEP * alone.deviation[0, 0, :, 0].clamp_min(1e-9)
    slope = (means(whole + step) - means(whole - step)) / (2 * step)
    shares, before, reached = {}, torch.zeros_like(whole), torch.zeros_like(whole)
    names = [name for name in parts if name != FIT]
    for name in names:
        mean, deviation = (x.double() for x in parts[name])
        reached = whole if name == names[-1] else reached + mean  # the last digits are those of the forecast
        after = means(reached)
        shares[name] = after - before, (slope * deviation).square()
        before = after
    return {**shares, FIT: (means(whole), (slope * parts[FIT][1].double()).square())}


def _of_models(inference: ExactInference | BankInference, belief: Belief, future: Batch) -> Iterator[Parts]:
    """Yield the parts of each linear model over the horizon, in transformed units."""
    time_slice = inference.slice_of(future, "future")
    steps, has_covariates = len(time_slice.time_feat), time_slice.dynamic_real.shape[-1] > 0
    if isinstance(inference, BankInference):
        state = belief.bank
        location, scale = (stacked(x) for x in (state.location, state.scale))
        systems = inference.members.systems(state, belief.series, time_slice)
        for member, (before, system) in zip(inference.dynamics.structures, systems, strict=True):
            assert member.structure is not None
            parts = _parts(member.structure, before, system, location, scale, steps, has_covariates)
            for row in range(len(location)):
                yield {name: (mean[row], deviation[row]) for name, (mean, deviation) in parts.items()}
        return
    system = inference.dynamics.linear(time_slice, belief.series, belief.memory).system
    if inference.dynamics.structure is None:
        whole = inference.marginals(belief, future)
        both = whole.mean[0, 0, :, 0], whole.deviation[0, 0, :, 0]
        yield {REST: both, FIT: both}
        return
    own = inference.dynamics.structure
    parts = _parts(own, belief.gaussian, system, belief.location, belief.scale, steps, has_covariates)
    yield {name: (mean[0], deviation[0]) for name, (mean, deviation) in parts.items()}


def _parts(
    structure: Structure,
    before: Gaussian,
    system: AbstractLinearSystem,
    location: Float[Tensor, "series 1"],
    scale: Float[Tensor, "series 1"],
    steps: int,
    has_covariates: bool,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the parts of every step, (series, time), see `Structure.parts_of`; the sum last."""
    states, _ = kalman.forecast(system, before, steps)
    emission = emissions(system.at(time)[1] for time in range(steps))
    effect = LinearModel(system, before).effect if has_covariates else None
    several = map_tensors(lambda x: x.unsqueeze(1), states)
    return structure.parts_of(several, emission, effect, location, scale)
