"""Forecasters whose whole model is one linear-Gaussian system: exact likelihood, exact forecasts."""

import abc
import math
from collections.abc import Callable

import numpy as np
import torch
from gluonts.torch.distributions import AffineTransformed
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian, kalman
from tsforecast.core.linalg import is_transformed
from tsforecast.models.base import AbstractForecaster, Batch, Belief, TimeSlice, known_past, scaled


class AbstractLinearForecaster(AbstractForecaster):
    """Filtering, likelihood and forecasts of a model which is a linear system given its parameters."""

    @abc.abstractmethod
    def system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[AbstractLinearSystem, Gaussian]:
        """The system of a time slice of time in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time and covariates.
            batch: Which series they are.
        """

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """By `objective`: negative log-likelihood per observed value, or CRPS of the forecast; both in scaled units."""
        if self.objective == "crps":
            return crps_of_forecast(self, self.system, self.filter(batch)[0], batch)
        location, scale = self.location_and_scale(batch)
        time_slice = self.time_slice(batch, "both")
        system, prior = self.system(time_slice, batch)
        terms = system.log_likelihood(prior, *scaled(time_slice, location, scale))
        return -terms.sum(0) / time_slice.observed.sum((0, 2)).clamp_min(1)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Exact filtering of the batch's past."""
        time_slice = self.time_slice(batch, "past")
        location, scale = self.location_and_scale(batch) if belief is None else (belief.location, belief.scale)
        system, prior = self.system(time_slice, batch if belief is None else belief)
        prior = prior if belief is None else _gaussian(belief)
        state, terms = system.posterior(prior, *scaled(time_slice, location, scale))
        return self.belief_over(state, batch, location, scale), terms

    def predictive(self, belief: Belief, future: Batch) -> Gaussian:
        """Joint Gaussian of the horizon in closed form, given what is known of it.

        Returns:
            Dimension horizon * target, time outermost; in transformed units, not scaled.
        """
        time_slice = self.time_slice(future, "future")
        system, _ = self.system(time_slice, belief)
        joint = system.predictive(_gaussian(belief), len(time_slice.time_feat))
        location, scale = (x.repeat(1, len(time_slice.time_feat)) for x in (belief.location, belief.scale))
        joint = Gaussian(joint.mean * scale + location, joint.cov * scale.unsqueeze(-1) * scale.unsqueeze(-2))
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not is_transformed(observed) and not bool(observed.any()):
            return joint
        value = self.transform(torch.where(observed, known, 0.0).to(joint.mean.dtype))
        return joint.condition(value.flatten(1), observed.flatten(1))

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Exact joint samples of the horizon, given what is known of it."""
        samples = self.predictive(belief, future).sample((num_samples,), generator)
        samples = self.restore(samples.transpose(0, 1).unflatten(-1, (-1, self.num_targets)))
        known = future["known_future"].to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Exact: by the simulation smoother."""
        location, scale = self.location_and_scale(batch)
        time_slice = self.time_slice(batch, "past")
        system, prior = self.system(time_slice, batch)
        values, observed = scaled(time_slice, location, scale)
        states = kalman.sample_posterior(system, prior, values, observed, num_samples, generator)
        at = system.by_step()
        emitted = [at(time)[1].sample(state, generator) for time, state in enumerate(states)]
        return self.in_units(torch.stack(emitted), location, scale, known_past(batch))

    def marginals(self, belief: Belief, future: Batch) -> list[torch.distributions.Distribution]:
        """Exact marginal distributions of the horizon for every series, in the units of the data and not clipped.

        Univariate targets have shape (horizon,), others (horizon, target). What is known of the future has no variance.

        Raises:
            ValueError: Behind the transformation "asinh".
        """
        joint = self.predictive(belief, future)
        shape = (-1,) if self.num_targets == 1 else (-1, self.num_targets)
        mean, deviation = (x.unflatten(-1, shape).cpu() for x in (joint.mean, joint.variance.clamp_min(0).sqrt()))
        if self.transformation == "asinh":
            raise ValueError("marginal distributions are not available behind 'asinh': take samples")
        kind = torch.distributions.Normal if self.transformation == "none" else torch.distributions.LogNormal
        # Not validated: what is known of the future has the deviation 0.
        marginals = [kind(m, d, validate_args=False) for m, d in zip(mean, deviation, strict=True)]
        return (
            [AffineTransformed(m, loc=-1.0) for m in marginals] if self.transformation == "log1p" else list(marginals)
        )


def distribution_in_units(
    marginal: torch.distributions.Distribution, exponents: NDArray[np.int64]
) -> torch.distributions.Distribution:
    """A marginal distribution of targets that were divided by powers of two, in the units of the data."""
    if not exponents.any():
        return marginal
    unit = torch.as_tensor(np.ldexp(1.0, exponents))
    return torch.distributions.Normal(marginal.mean.double() * unit, marginal.stddev.double() * unit, False)


SystemOf = Callable[[TimeSlice, Batch | Belief], tuple[AbstractLinearSystem, Gaussian]]


def crps_of_forecast(
    model: AbstractForecaster, system_of: SystemOf, belief: Belief, batch: Batch
) -> Float[Tensor, " series"]:
    """Mean CRPS of the marginal Gaussian forecasts of the window's future (Gneiting and Raftery 2007, eq. 21).

    Args:
        model: Whose transformation and time slices of time count.
        system_of: The linear system of a time slice in scaled units, and the prior over the state before it.
        belief: A Gaussian, at the end of the past.
        batch: Its `future_*` fields are read.
    """
    future, location, scale = model.time_slice(batch, "future"), belief.location, belief.scale
    system, _ = system_of(future, belief)
    marginals = system.marginals(_gaussian(belief), len(future.values))
    mean, variance = (x.transpose(0, 1).flatten(1) for x in (marginals.mean, marginals.variance))
    deviation = variance.clamp_min(1e-12).sqrt()
    seen = future.observed
    if model.transformation == "none":
        values, mask = scaled(future, location, scale)
        seen = seen if mask is None else mask
        z = (values.transpose(0, 1).flatten(1) - mean) / deviation
        cdf, density = (0.5 * (1 + torch.erf(z / math.sqrt(2))), torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi))
        score = deviation * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))
    else:
        score = _quantile_loss(model, mean, deviation, belief, batch)
    observed = seen.transpose(0, 1).flatten(1)
    return torch.where(observed, score, 0.0).sum(-1) / observed.sum(-1).clamp_min(1)


def _quantile_loss(model: AbstractForecaster, mean: Tensor, deviation: Tensor, belief: Belief, batch: Batch) -> Tensor:
    """The weighted quantile loss over tenths in the units of the data, relative to the size of the series."""
    steps = mean.shape[-1] // model.num_targets
    location, scale = (x.repeat(1, steps) for x in (belief.location, belief.scale))
    levels = torch.arange(1, 10, device=mean.device, dtype=mean.dtype)[:, None, None] / 10
    normal = torch.special.ndtri(levels)
    size = model.mean_size(batch).to(mean.dtype).repeat(1, steps)
    quantiles = model.restore((mean + deviation * normal) * scale + location, size)
    values = torch.nan_to_num(batch["future_target"]).to(mean.dtype).flatten(1)
    error = values - quantiles
    loss = 2 * torch.maximum(levels * error, (levels - 1) * error).mean(0)
    return loss / (size + 1)


def _gaussian(belief: Belief) -> Gaussian:
    assert isinstance(belief.state, Gaussian)
    return belief.state
