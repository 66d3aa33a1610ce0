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

from tsforecast.core import kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.models import AbstractForecaster, Batch, Belief
from tsforecast.models.parts.inference import AbstractLinearMixture, LinearMember, emissions
from tsforecast.models.parts.joint_inference import JointInference
from tsforecast.models.parts.marginals import Marginals

REST, FIT = "rest", "fit"
_STEP = 1e-3  # of a deviation, for the slope of a mean
Parts = dict[str, tuple[Float[Tensor, " horizon"], Float[Tensor, " horizon"]]]


def mixture_parts(net: AbstractForecaster[Any], linear: AbstractLinearMixture[Any], batch: Batch) -> list[Parts]:
    """Return the parts of the forecast of each target of one series, and their sum "fit".

    They are means and standard deviations: those of the mixture, to the first order in transformations. What has no
    name is the part "rest".

    Args:
        net: The model: its forecasts stay within bounds.
        linear: Its mixture, of one target.
        batch: Its past is filtered, and its `future_*` fields are read.
    """
    belief = net.filter(batch)[0]
    mixture = net.marginals(belief, batch)
    assert mixture is not None
    inference = net.inference
    each = inference.each(batch, belief) if isinstance(inference, JointInference) else [(batch, belief)]
    return [_summed(linear, mixture.of_target(k), known, own) for k, (own, known) in enumerate(each)]


def _summed(linear: AbstractLinearMixture[Any], mixture: Marginals, belief: Belief, batch: Batch) -> Parts:
    """Return mean and standard deviation of each part of one target, and of their sum."""
    first: dict[str, Tensor] = {}
    second: dict[str, Tensor] = {}
    for weight, parts in _weighed(linear, mixture, belief, batch):
        for name, (mean, variance) in parts.items():
            first[name] = first.get(name, 0.0) + weight * mean
            second[name] = second.get(name, 0.0) + weight * (variance + mean.square())
    names = [*(name for name in first if name != FIT), FIT]
    return {name: (first[name], (second[name] - first[name].square()).clamp_min(0).sqrt()) for name in names}


def _weighed(
    linear: AbstractLinearMixture[Any], mixture: Marginals, belief: Belief, future: Batch
) -> Iterator[tuple[Tensor, Parts]]:
    """Yield the weight of each component of a mixture, with mean and variance of its parts in the units of the data."""
    component = 0
    for member in linear.members_of(future, "future", belief):
        parts = _parts(member)
        for row in range(len(member.transformations)):
            for _ in range(member.components):
                place = slice(component, component + 1)
                fields = ("log_weight", "mean", "deviation", "size")
                one = {name: getattr(mixture, name)[:, place].double() for name in fields}
                alone = dataclasses.replace(mixture, **one, transformations=mixture.transformations[place])
                both = alone.mean[0, 0, :, 0], alone.deviation[0, 0, :, 0]
                own = {name: (mean[row], deviation[row]) for name, (mean, deviation) in parts.items()}
                # Of one step or all, whatever the dimensions of weights.
                yield alone.log_weight.exp()[0, 0].flatten(), _in_units(alone, own or {REST: both, FIT: both})
                component += 1


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


def _parts(member: LinearMember) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the parts of every step, (series, time), see `Structure.parts_of`; the sum last; none without names."""
    if member.structure is None:
        return {}
    system, before, steps = member.model.system, member.model.prior, len(member.time_slice.values)
    states, _ = kalman.forecast(system, before, steps)
    emission = emissions(system.at(time)[1] for time in range(steps))
    effect = member.model.effect if member.time_slice.dynamic_real.shape[-1] else None
    several = map_tensors(lambda x: x.unsqueeze(1), states)
    return member.structure.parts_of(several, emission, effect, member.location, member.scale)
