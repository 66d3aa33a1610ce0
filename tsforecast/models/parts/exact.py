"""Exact inference in models that are one linear-Gaussian system, given their parameters."""

import abc
import dataclasses

import numpy as np
import torch
from gluonts.torch.distributions import AffineTransformed
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.core import Gaussian, kalman
from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.parts.inference import AbstractDynamics, AbstractInference, LinearModel
from tsforecast.models.parts.objectives import crps_of_marginals, negative_log_likelihood
from tsforecast.models.parts.units import Units, known_past, scaled
from tsforecast.models.records import Batch, Belief, Series, TimeSlice


class AbstractLinearDynamics(AbstractDynamics):
    """Parameters of a model that is a linear system."""

    @abc.abstractmethod
    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time and covariates.
            series: Who the series are.
            memory: Memory of a recurrent network before the slice; None where the series begin.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class ExactInference(AbstractInference[AbstractLinearDynamics]):
    """Inference by the Kalman filter and its smoother, with forecasts in closed form.

    Attributes:
        dynamics: Dynamics of the model.
        units: Units of its targets.
        objective: "crps" of the forecast of a window's future from its past, or "likelihood" of past and future.
    """

    dynamics: AbstractLinearDynamics
    units: Units
    objective: str = "crps"

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the CRPS or the negative log-likelihood, by `objective`; the model is linear in any case."""
        if self.objective == "crps":
            belief, future = self.filter(batch)[0], self.slice_of(batch, "future")
            system = self.dynamics.linear(future, belief.series, belief.memory).system
            return crps_of_marginals(system, belief, future, batch, self.units)
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "both")
        model = self.dynamics.linear(time_slice, Series.of(batch))
        terms = model.system.log_likelihood(model.prior, *scaled(time_slice, location, scale))
        return negative_log_likelihood(terms, time_slice.observed)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the exact belief after the batch's past, and the log-likelihood of each of its steps."""
        time_slice = self.slice_of(batch, "past")
        location, scale = self.scale_of(batch, belief)
        known = self.series_of(batch, belief)
        model = self.dynamics.linear(time_slice, known, None if belief is None else belief.memory)
        prior = model.prior if belief is None else belief.gaussian
        state, terms = model.system.posterior(prior, *scaled(time_slice, location, scale))
        return Belief(state, location, scale, Series.of(batch), model.memory), terms

    def predictive(self, belief: Belief, future: Batch) -> Gaussian:
        """Return the joint Gaussian of the horizon in closed form, given what is known of it.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read, and `known_future`, which is NaN where it is free.

        Returns:
            A Gaussian of dimension horizon * target, time outermost, in transformed units that are not scaled.
        """
        time_slice = self.slice_of(future, "future")
        system = self.dynamics.linear(time_slice, belief.series, belief.memory).system
        joint = system.predictive(belief.gaussian, len(time_slice.time_feat))
        location, scale = (x.repeat(1, len(time_slice.time_feat)) for x in (belief.location, belief.scale))
        joint = Gaussian(joint.mean * scale + location, joint.cov * scale.unsqueeze(-1) * scale.unsqueeze(-2))
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not is_transformed(observed) and not bool(observed.any()):
            return joint
        value = self.units.transform(torch.where(observed, known, 0.0).to(joint.mean.dtype))
        return joint.condition(value.flatten(1), observed.flatten(1))

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return exact joint samples of the horizon, given what is known of it."""
        samples = self.predictive(belief, future).sample((num_samples,), generator)
        samples = self.units.restore(samples.transpose(0, 1).unflatten(-1, (-1, self.units.data.num_targets)))
        known = future["known_future"].to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return exact joint samples of what is missing, by the simulation smoother."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "past")
        model = self.dynamics.linear(time_slice, Series.of(batch))
        values, observed = scaled(time_slice, location, scale)
        states = kalman.sample_posterior(model.system, model.prior, values, observed, num_samples, generator)
        at = model.system.by_step()
        emitted = [at(time)[1].sample(state, generator) for time, state in enumerate(states)]
        return self.units.in_units(torch.stack(emitted), location, scale, known_past(batch))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the smoothed components of the batch's past, see `Structure.parts_of`."""
        structure = self.named_structure()
        time_slice = self.slice_of(batch, "past")
        location, scale = self.scale_of(batch)
        model = self.dynamics.linear(time_slice, Series.of(batch))
        smoothed = kalman.smooth(model.system, model.prior, *scaled(time_slice, location, scale)).states
        return structure.parts_of(smoothed, model.system, time_slice, location, scale)

    def marginals(self, belief: Belief, future: Batch) -> list[torch.distributions.Distribution]:
        """Return the exact marginal distributions of the horizon for every series, in the units of the data.

        They are not clipped. Univariate targets have shape (horizon,), others (horizon, target). What is known of the
        future has no variance.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read, and `known_future`, which is NaN where it is free.

        Raises:
            ValueError: If the transformation is "asinh".
        """
        transformation, targets = self.units.transformation, self.units.data.num_targets
        if transformation == "asinh":
            raise ValueError("marginal distributions are not available behind 'asinh': take samples")
        joint = self.predictive(belief, future)
        shape = (-1,) if targets == 1 else (-1, targets)
        mean, deviation = (x.unflatten(-1, shape).cpu() for x in (joint.mean, joint.variance.clamp_min(0).sqrt()))
        kind = torch.distributions.Normal if transformation == "none" else torch.distributions.LogNormal
        # Not validated: what is known of the future has the deviation 0.
        marginals = [kind(m, d, validate_args=False) for m, d in zip(mean, deviation, strict=True)]
        return [AffineTransformed(m, loc=-1.0) for m in marginals] if transformation == "log1p" else list(marginals)


def distribution_in_units(
    marginal: torch.distributions.Distribution, exponents: NDArray[np.int64]
) -> torch.distributions.Distribution:
    """Return a marginal distribution in the units of the data, for targets that were divided by powers of two.

    Args:
        marginal: Distribution of the targets as they were divided.
        exponents: Exponents of the powers of two, one for each target.
    """
    if not exponents.any():
        return marginal
    unit = torch.as_tensor(np.ldexp(1.0, exponents))
    return torch.distributions.Normal(marginal.mean.double() * unit, marginal.stddev.double() * unit, False)
