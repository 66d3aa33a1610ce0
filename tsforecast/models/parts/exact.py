"""Exact inference in models that are one linear-Gaussian system, given their parameters."""

import abc
import dataclasses
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.parts.inference import (
    AbstractDynamics,
    AbstractLinearMixture,
    LinearMember,
    LinearModel,
    emissions,
)
from tsforecast.models.parts.marginals import Marginals
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
class ExactInference(AbstractLinearMixture[AbstractLinearDynamics]):
    """Inference by the Kalman filter and its smoother, with forecasts in closed form.

    Attributes:
        dynamics: Dynamics of the model.
        units: Units of its targets.
        objective: "crps" of the forecast of a window's future from its past, or "likelihood" of past and future.
        surprise: Of the parameters of series, see `ISSMDynamics.surprise`; with the CRPS it is added to its
            logarithm, in training alone.
    """

    dynamics: AbstractLinearDynamics
    units: Units
    objective: str = "crps"
    surprise: Callable[[Series], Tensor] | None = None

    @property
    def has_marginals(self) -> bool:
        """Return True."""
        return True

    @property
    def linear(self) -> "ExactInference":
        """Return this inference."""
        return self

    @property
    def is_single(self) -> bool:
        """Return True."""
        return True

    def begin(self, batch: Batch, like: Batch) -> Belief:
        """Return the belief before the first step, see `AbstractLinearMixture`."""
        model = self.dynamics.linear(self.slice_of(batch, "past"), Series.of(batch))
        return Belief(model.prior, *self.scale_of(like), Series.of(batch))

    def members_of(self, batch: Batch, part: str, belief: Belief, apart: bool = False) -> Iterator[LinearMember]:
        """Yield the linear model, see `AbstractLinearMixture`."""
        time_slice = self.slice_of(batch, part)
        model = self.dynamics.linear(time_slice, belief.series, belief.memory)
        # Values are not divided by a size.
        units, size = (belief.location, belief.scale), torch.ones_like(belief.scale[:, :1])
        model = dataclasses.replace(model, prior=belief.gaussian)
        yield LinearMember(model, time_slice, *units, self.dynamics.structure, (self.units.transformation,), size)

    def weights(self, belief: Belief) -> list[Float[Tensor, "series 1"]]:
        """Return a weight of 1."""
        return [torch.ones_like(belief.scale[:, :1])]

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the CRPS or the negative log-likelihood, by `objective`; the model is linear in any case."""
        if self.objective == "crps":
            belief, future = self.filter(batch)[0], self.slice_of(batch, "future")
            system = self.dynamics.linear(future, belief.series, belief.memory).system
            score = crps_of_marginals(system, belief, future, batch, self.units)
            if self.surprise is None or not self.dynamics.training:  # evaluation has no prior in it
                return score
            # The same gradient as that of the logarithm, times the score: no unit matters to a prior.
            return score + score.detach() * self.surprise(belief.series)
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

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self.filter(batch, belief)[0]

    def filter_weighted(
        self, batch: Batch, belief: Belief | None = None
    ) -> tuple[Belief, Float[Tensor, "time series"], list[Float[Tensor, "1 series 1"]]]:
        """Return the result of `filter`, and a weight of 1."""
        after, terms = self.filter(batch, belief)
        return after, terms, [x.unsqueeze(0) for x in self.weights(after)]

    def predictive(self, belief: Belief, future: Batch) -> Gaussian:
        """Return the joint Gaussian of the horizon in closed form, given its known values.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read, and `known_future`, which is NaN where it is free.

        Returns:
            A Gaussian of dimension horizon * target, time outermost, in transformed units that are not scaled.
        """
        joint = self._joint(belief, future)
        steps = joint.mean.shape[-1] // self.units.data.num_targets
        location, scale = (x.double().repeat(1, steps) for x in (belief.location, belief.scale))
        return Gaussian(joint.mean * scale + location, joint.cov * scale.unsqueeze(-1) * scale.unsqueeze(-2))

    def _joint(self, belief: Belief, future: Batch) -> Gaussian:
        """Return the result of `predictive`, in scaled units."""
        time_slice = self.slice_of(future, "future")
        system = self.dynamics.linear(time_slice, belief.series, belief.memory).system
        joint = system.predictive(belief.gaussian, len(time_slice.time_feat))
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not is_transformed(observed) and not bool(observed.any()):
            return joint
        value = self.units.scaled(torch.where(observed, known, 0.0), belief).transpose(0, 1)
        # Times and targets are one dimension of the joint.
        return joint.condition(value.flatten(1), observed.flatten(1))

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return exact joint samples of the horizon, given its known values."""
        samples = self._joint(belief, future).sample((num_samples,), generator)
        samples = samples.unflatten(-1, (-1, self.units.data.num_targets)).permute(2, 0, 1, 3)
        return self.units.in_units(samples, belief.location, belief.scale, future["known_future"])

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return exact joint samples of missing values, by the simulation smoother."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "past")
        model = self.dynamics.linear(time_slice, Series.of(batch))
        values, observed = scaled(time_slice, location, scale)
        states = kalman.sample_posterior(model.system, model.prior, values, observed, num_samples, generator)
        at = model.system.by_step()
        emitted = [at(time)[1].sample(state, generator) for time, state in enumerate(states)]
        return self.units.in_units(torch.stack(emitted), location, scale, known_past(batch))

    def smoothed(
        self,
        batch: Batch,
        units: tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]] | None = None,
    ) -> tuple[Gaussian, Gaussian]:
        """Return beliefs about every step of the batch's past, given all of it.

        Args:
            batch: Its `past_*` fields are read.
            units: Location and scale; None for those of this past. Steps that are only asked for would change them.

        Returns:
            Beliefs over the states (time, series, state), and over an observation at each step, noise included, (time,
            series, target). Both are in scaled units.
        """
        time_slice = self.slice_of(batch, "past")
        model = self.dynamics.linear(time_slice, Series.of(batch))
        location, scale = self.scale_of(batch) if units is None else units
        states = kalman.smooth(model.system, model.prior, *scaled(time_slice, location, scale)).states
        at = model.system.by_step()
        steps = [at(time)[1].marginal(map_tensors(lambda x, t=time: x[t], states)) for time in range(len(states.mean))]
        return states, Gaussian(torch.stack([y.mean for y in steps]), torch.stack([y.cov for y in steps]))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the smoothed components of the batch's past, see `Structure.parts_of`."""
        structure = self.named_structure()
        time_slice = self.slice_of(batch, "past")
        location, scale = self.scale_of(batch)
        model = self.dynamics.linear(time_slice, Series.of(batch))
        smoothed = kalman.smooth(model.system, model.prior, *scaled(time_slice, location, scale)).states
        states = map_tensors(lambda x: x.unsqueeze(1), smoothed)
        emission = emissions(model.system.at(time)[1] for time in range(len(time_slice.values)))
        effect = model.effect if time_slice.dynamic_real.shape[-1] else None
        return structure.parts_of(states, emission, effect, location, scale)

    def marginals(self, belief: Belief, future: Batch) -> Marginals:
        """Return the exact marginal distributions of the horizon, given its known values; see `AbstractInference`.

        Known values have no variance. The joint Gaussian of all steps is computed only if there are known values.
        """
        known = future["known_future"].double()
        observed = ~torch.isnan(known)
        if bool(observed.any()):
            joint = self.predictive(belief, future)
            mean, variance = (x.double().reshape(known.shape) for x in (joint.mean, joint.variance))
        else:
            time_slice = self.slice_of(future, "future")
            system = self.dynamics.linear(time_slice, belief.series, belief.memory).system
            steps = system.marginals(belief.gaussian, len(time_slice.time_feat))
            location, scale = (x.double().unsqueeze(1) for x in (belief.location, belief.scale))
            mean, variance = (x.double().transpose(0, 1) for x in (steps.mean, steps.variance))
            mean, variance = mean * scale + location, variance * scale.square()
        deviation = torch.where(observed, 0.0, variance.clamp_min(0).sqrt())  # rounding may leave a variance below 0
        mean = torch.where(observed, self.units.transform(torch.nan_to_num(known)), mean)
        return Marginals.single(mean, deviation, self.units.transformation, self.units.clip)
