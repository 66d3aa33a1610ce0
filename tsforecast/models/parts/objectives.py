"""Losses of training: functions of a system, a belief and a window."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian
from tsforecast.core.torch_internals import constant
from tsforecast.models.parts.crps import crps_of_gaussians, crps_of_points, crps_of_samples, weighted_crps
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.units import Units, scaled
from tsforecast.models.records import Batch, Belief, TimeSlice
from tsforecast.models.transformations import transformation_of

_POINTS = 20  # quantiles that stand for a particle of a mixture
_POINTS_OF_BANK = 5  # and for a component of a bank, which has three widths for each model


def negative_log_likelihood(
    terms: Float[Tensor, "time series"], observed: Bool[Tensor, "time series target"]
) -> Float[Tensor, " series"]:
    """Return the negative log-likelihood of all steps, per observed value."""
    return -terms.sum(0) / observed.sum((0, 2)).clamp_min(1)  # a window without a value has a loss of 0


def crps_of_marginals(
    system: AbstractLinearSystem, belief: Belief, future: TimeSlice, batch: Batch, units: Units
) -> Float[Tensor, " series"]:
    """Return the mean CRPS of marginal Gaussian forecasts of a window's future (Gneiting and Raftery 2007, eq. 21).

    With a transformation it is the weighted quantile loss over tenths in the units of the data.

    Args:
        system: System of the future, in scaled units.
        belief: The belief at the end of the past, a Gaussian.
        future: Future of the window.
        batch: Its future and the size of its past are read.
        units: Units of the targets.
    """
    location, scale = belief.location, belief.scale
    marginals = system.marginals(belief.gaussian, len(future.values))
    mean, variance = (x.transpose(0, 1).flatten(1) for x in (marginals.mean, marginals.variance))
    deviation = variance.clamp_min(1e-12).sqrt()  # the derivative of a root at 0 is infinite
    seen = future.observed
    if units.transformation == "none":
        values, mask = scaled(future, location, scale)
        seen = seen if mask is None else mask
        z = (values.transpose(0, 1).flatten(1) - mean) / deviation
        cdf, density = (0.5 * (1 + torch.erf(z / math.sqrt(2))), torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi))
        score = deviation * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))
    else:
        score = _quantile_loss(units, mean, deviation, belief, batch)
    observed = seen.transpose(0, 1).flatten(1)
    return torch.where(observed, score, 0.0).sum(-1) / observed.sum(-1).clamp_min(1)


def _quantile_loss(units: Units, mean: Tensor, deviation: Tensor, belief: Belief, batch: Batch) -> Tensor:
    """Return the weighted quantile loss over tenths in the units of the data, relative to the size of the series."""
    steps = mean.shape[-1] // units.data.num_targets
    location, scale = (x.repeat(1, steps) for x in (belief.location, belief.scale))
    levels = torch.arange(1, 10, device=mean.device, dtype=mean.dtype)[:, None, None] / 10
    normal = torch.special.ndtri(levels)
    size = units.mean_size(batch).repeat(1, steps)
    quantiles = units.restore((mean + deviation * normal) * scale + location, size)
    values = torch.nan_to_num(batch["future_target"].double()).flatten(1)
    error = values - quantiles
    # The CRPS is twice the mean loss over all levels.
    loss = 2 * torch.maximum(levels * error, (levels - 1) * error).mean(0)
    return loss / (size + 1)  # a series of zeros has no size


def crps_of_mixture(
    mixture: Marginals, values: Float[Tensor, "series horizon"], observed: Bool[Tensor, "series horizon"]
) -> Float[Tensor, "series horizon"]:
    """Return the CRPS of mixtures behind transformations, E|X - y| - E|X - X'| / 2; 0 where not observed.

    Each component is a sample of quantiles in the middle of equal shares. So the score is as good where one component
    is a thousand times as wide as another.

    Args:
        mixture: Distributions of one target, of series of size 1.
        values: Values in units of the series' size.
        observed: False where a value is missing.
    """
    count = _POINTS_OF_BANK
    levels = (torch.arange(count, device=values.device, dtype=values.dtype) + 0.5) / count
    mean, deviation = (x.squeeze(-1).transpose(1, 2).unsqueeze(-1) for x in (mixture.mean, mixture.deviation))
    places = mean + deviation * torch.special.ndtri(levels)  # series, horizon, component, point
    points, weights = [], []
    for name in dict.fromkeys(mixture.transformations):
        own = constant([k for k, other in enumerate(mixture.transformations) if other == name], places)
        part = places.index_select(2, own)
        points.append(transformation_of(name).restore(part, torch.ones_like(part)).flatten(2))
        weights.append((mixture.log_weight.index_select(1, own).exp() / count).repeat_interleave(count, 1))
    points = torch.cat(points, -1)
    weight = torch.cat(weights, -1).unsqueeze(1).expand_as(points)
    score = crps_of_points(points, weight, torch.where(observed, values, 0.0))
    return torch.where(observed, score, 0.0)


def crps_of_particles(
    emitted: Gaussian,
    ratio: Float[Tensor, "sample series"],
    belief: Belief,
    future: TimeSlice,
    batch: Batch,
    units: Units,
) -> Float[Tensor, " series"]:
    """Return the mean over a window's future of the fair CRPS of mixtures, E|X - y| - E|X - X'| / 2.

    X and X' are of two different components. Where all are alike it is the CRPS of one. With a transformation it is in
    the units of the data, relative to the size of the series, and components are quantiles in the middle of equal
    shares.

    Args:
        emitted: What particles emit, in scaled units, (time, sample, series, target).
        ratio: Weights of the particles, which are one but for their gradients.
        belief: The belief at the end of the past.
        future: Future of the window.
        batch: Its future and the size of its past are read.
        units: Units of the targets.
    """
    location, scale, observed = belief.location, belief.scale, future.observed
    mean, deviation = emitted.mean, emitted.variance.clamp_min(1e-12).sqrt()
    if units.transformation == "none":
        values, seen = scaled(future, location, scale)
        score = crps_of_gaussians(mean, deviation, values.unsqueeze(1), ratio.unsqueeze(-1))
        observed = observed if seen is None else seen
    else:
        size = units.mean_size(batch)
        normal = torch.special.ndtri((torch.arange(_POINTS, device=mean.device, dtype=mean.dtype) + 0.5) / _POINTS)
        places = (mean + normal[:, None, None, None, None] * deviation) * scale + location
        values = torch.nan_to_num(batch["future_target"].double()).reshape(observed.transpose(0, 1).shape)
        points = units.restore(places, size).movedim(0, -1).movedim(1, -2)  # time, series, target, sample, point
        score = crps_of_samples(points, values.transpose(0, 1), ratio.T.unsqueeze(1)) / (size + 1)
    return torch.where(observed, score, 0.0).sum((0, 2)) / observed.sum((0, 2)).clamp_min(1)


def crps_of_paths(
    paths: Float[Tensor, "time sample series target"],
    ratio: Float[Tensor, "sample series"],
    belief: Belief,
    future: TimeSlice,
    batch: Batch,
    units: Units,
) -> Float[Tensor, " series"]:
    """Return the mean over a window's future of the fair CRPS of paths, E|X - y| - E|X - X'| / 2.

    With a transformation it is in the units of the data, relative to the size of the series.

    Args:
        paths: Paths of the future, in scaled units.
        ratio: Weights of the paths, which are one but for their gradients.
        belief: The belief at the end of the past.
        future: Future of the window.
        batch: Its future and the size of its past are read.
        units: Units of the targets.
    """
    observed = future.observed
    if units.transformation == "none":
        values, seen = scaled(future, belief.location, belief.scale)
        observed = observed if seen is None else seen
        unit = 1.0
    else:
        size = units.mean_size(batch)
        paths = units.restore(paths * belief.scale + belief.location, size)
        values = torch.nan_to_num(batch["future_target"].double()).reshape(observed.transpose(0, 1).shape)
        values = values.transpose(0, 1)
        unit = size + 1
    score = weighted_crps(paths, values.unsqueeze(1), ratio.unsqueeze(-1)) / unit
    return torch.where(observed, score, 0.0).sum((0, 2)) / observed.sum((0, 2)).clamp_min(1)
