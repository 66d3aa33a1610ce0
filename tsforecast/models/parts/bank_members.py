"""The models of a bank: several structures, each under several transformations, side by side."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian
from tsforecast.core.components import Trend
from tsforecast.core.linalg import LOG_2PI
from tsforecast.core.torch_internals import constant
from tsforecast.models.parts.bank_dynamics import BankDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import location_and_scale, masked_mean, recent, scaled
from tsforecast.models.records import BankState, DataSpec, Series, TimeSlice
from tsforecast.models.transformations import transformation_of

_SLOPE = 0.01  # prior deviation of slopes of series that stand still, as a share of what it is for others


@dataclasses.dataclass(frozen=True)
class Terms:
    """The evidence of each value of a series about each model, 0 where it is missing.

    Attributes:
        density: Its log-density, under variances that the series has had before.
        evidence: Its evidence for the weight of the model, see `BankDynamics.evidence`.
    """

    density: Float[Tensor, "time series structure transformation"]
    evidence: Float[Tensor, "time series structure transformation"]


@dataclasses.dataclass(frozen=True)
class Onward:
    """The results of one pass over a past and its future.

    Attributes:
        before: The state before the past.
        scales: Of the past, as `Members.errors` gives them.
        squares: Likewise.
        mean: Of the future, in scaled units.
        deviation: Likewise.
    """

    before: BankState
    scales: Float[Tensor, "time series structure transformation"]
    squares: Float[Tensor, "time series structure transformation"]
    mean: Float[Tensor, "horizon series structure transformation"]
    deviation: Float[Tensor, "horizon series structure transformation"]


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """All models of a bank. Those of a structure are one system; its batch has the transformations one by one.

    Every series is divided by its mean absolute value first, so that transformations mean the same for all.

    Attributes:
        dynamics: Dynamics of the models.
        data: What is known of the data.
        codes: Numbers of the transformations to take.
    """

    dynamics: BankDynamics
    data: DataSpec
    codes: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models, "trend+month_of_year on symlog"."""
        sums = ["+".join(one.structure.names) for one in self.dynamics.structures if one.structure is not None]
        ends = ["" if name == "none" else f" on {name}" for name in self.transformations]
        return tuple(components + end for components in sums for end in ends)

    @property
    def transformations(self) -> tuple[str, ...]:
        """Return the names of the transformations."""
        return tuple(self.dynamics.transformations[code] for code in self.codes)

    @property
    def num_transformations(self) -> int:
        """Return the number of transformations."""
        return len(self.codes)

    def beginning(self, past: TimeSlice, series: Series) -> BankState:
        """Return the state before the first step of series that begin with a slice; the slice gives their scaling."""
        return self._begun(past, series, past)[0]

    def _begun(self, past: TimeSlice, series: Series, whole: TimeSlice) -> tuple[BankState, list[LinearModel]]:
        """Return the result of `beginning`, and the systems of a slice that begins with this past."""
        values, seen = past.values, recent(past.observed, self.data.scaling_length)
        size = masked_mean(values.abs(), seen).to(next(self.dynamics.parameters()))
        # What is missing is neither the least nor the most.
        low, high = (torch.where(seen, values, end).squeeze(-1) for end in (torch.inf, -torch.inf))
        still = (high.amax(0) <= low.amin(0)) & (seen.sum((0, 2)) <= self.data.season)  # a few equal values, or none
        nothing_but_zeros = still.unsqueeze(-1) & (size == 0)
        size = torch.where(size > 0, size, 1.0)  # a series of zeros has no size to divide by
        wide = self.wide(past, size)
        apart = zip(wide.values.chunk(self.num_transformations, 1), self.transformations, strict=True)
        changes = [transformation_of(name).own_change(values) for values, name in apart]
        own = self.data.typical_change * torch.cat(changes, 1)
        location, scale = location_and_scale(wide.values, own, seen.repeat(1, self.num_transformations, 1), self.data)
        location, scale = (x.reshape(self.num_transformations, -1).T for x in (location, scale.to(size)))
        scale = torch.where(nothing_but_zeros, self.data.typical_change, scale)  # zeros have no changes of their own
        models = self.models(wide if whole is past else self.wide(whole, size), series)
        states = tuple(
            _without_slopes(_by_series(model.prior, self.num_transformations), still, member.structure)
            for model, member in zip(models, self.dynamics.structures, strict=True)
        )
        shape = (len(size), len(self.dynamics.structures), self.num_transformations)
        nothing = size.new_zeros(shape)
        return BankState(states, location, scale, size, nothing, size.new_zeros(len(size)), nothing), models

    def onward(self, past: TimeSlice, future: TimeSlice, series: Series) -> Onward | None:
        """Return the errors of a past and the moments of its future, by one pass of the compiled program.

        None where it does not serve.
        """
        unknown = dataclasses.replace(
            future, values=torch.zeros_like(future.values), observed=torch.zeros_like(future.observed)
        )
        whole, steps, count = past.followed_by(unknown), len(past.values), self.num_transformations
        before, models = self._begun(past, series, whole)
        wide = self.wide(whole, before.size)
        values, observed = scaled(wide, *(stacked(x) for x in (before.location, before.scale)))
        terms = []
        for model, belief in zip(models, before.states, strict=True):
            found = model.system.errors(flat(belief), values, observed)
            if found is None:
                return None
            terms.append([x.unflatten(1, (count, -1)).transpose(1, 2) for x in found[1:]])
        variance, error = (torch.stack(parts, 2) for parts in zip(*terms, strict=True))
        seen = wide.observed if observed is None else observed
        seen = seen[:steps, :, 0].unflatten(1, (count, -1)).transpose(1, 2).unsqueeze(2)
        slope = self._log_slope(past, before).unflatten(1, (count, -1)).transpose(1, 2).unsqueeze(2)
        own, own_error = variance[:steps], error[:steps]
        scales = torch.where(seen, -0.5 * (own.log() + LOG_2PI), 0.0) + slope
        squares = torch.where(seen, own_error.square() / own, 0.0)
        # The unknown are zeros, so their errors are minus the forecasts.
        return Onward(before, scales, squares, -error[steps:], variance[steps:].sqrt())

    def _log_slope(self, time_slice: TimeSlice, before: BankState) -> Float[Tensor, "time stacked"]:
        """Return the logarithms of the slopes of each transformation, in units of its scale; 0 where none is seen."""
        sized, scale = time_slice.values / before.size, stacked(before.scale)
        slope = torch.cat([transformation_of(name).log_slope(sized) for name in self.transformations], 1)
        seen = time_slice.observed.repeat(1, self.num_transformations, 1)
        return torch.where(seen, slope - scale.log(), 0.0).squeeze(-1).to(scale)

    def errors(
        self, time_slice: TimeSlice, series: Series, before: BankState
    ) -> tuple[
        tuple[Gaussian, ...],
        Float[Tensor, "time series structure transformation"],
        Float[Tensor, "time series structure transformation"],
    ]:
        """Return the states after a slice; the log-density of no error, in units of the series' sizes, and squares."""
        count, wide = self.num_transformations, self.wide(time_slice, before.size)
        location, scale = (stacked(x) for x in (before.location, before.scale))
        values, observed = scaled(wide, location, scale)
        slope = self._log_slope(time_slice, before)
        terms: list[tuple[Tensor, Tensor]] = []
        states = []
        for model, belief in zip(self.models(wide, series), before.states, strict=True):
            state, scales, squares = model.system.innovations(flat(belief), values, observed)
            states.append(_by_series(state, count))
            apart = lambda x: x.unflatten(1, (count, -1)).transpose(1, 2)  # noqa: E731
            terms.append((apart(scales + slope), apart(squares)))
        scales, squares = (torch.stack(parts, 2) for parts in zip(*terms, strict=True))
        return tuple(states), scales, squares

    def systems(
        self, state: BankState, series: Series, future: TimeSlice
    ) -> list[tuple[Gaussian, AbstractLinearSystem]]:
        """Return the states and the systems of the future of each structure."""
        models = self.models(self.wide(future, state.size), series)
        return [(flat(before), model.system) for before, model in zip(state.states, models, strict=True)]

    def wide(self, time_slice: TimeSlice, size: Float[Tensor, "series 1"]) -> TimeSlice:
        """Return a slice in units of the series' sizes, under each transformation, transformations outermost."""
        count = self.num_transformations
        values = time_slice.values / size
        wide = torch.cat([transformation_of(name).apply(values) for name in self.transformations], 1)
        index = time_slice.season_index
        return TimeSlice(
            # A transformation of 0 need not be 0.
            values=torch.where(time_slice.observed.repeat(1, count, 1), wide, 0.0),
            observed=time_slice.observed.repeat(1, count, 1),
            active=None if time_slice.active is None else time_slice.active.repeat(1, count),
            time_feat=time_slice.time_feat.repeat(1, count, 1),
            season_index=index if index.shape[1] == 1 else index.repeat(1, count, 1),
            dynamic_real=time_slice.dynamic_real.repeat(1, count, 1),
        )

    def models(self, wide: TimeSlice, series: Series) -> list[LinearModel]:
        """Return the system and prior of each structure for a slice of `wide`."""
        count = self.num_transformations
        codes = constant(self.codes, series.index).repeat_interleave(len(series.index))
        categories = torch.cat([series.static_cat.repeat(count, 1), codes.unsqueeze(1)], 1)
        every = Series(series.index.repeat(count), categories, series.static_real.repeat(count, 1))
        models = []
        for member in self.dynamics.structures:
            names = [self.dynamics.season_names.index(name) for name in member.season_names]
            columns = constant(names, wide.season_index)
            own = dataclasses.replace(wide, season_index=wide.season_index.index_select(-1, columns))
            models.append(member.linear(own, every))
        return models


def stacked(values: Float[Tensor, "series transformation"]) -> Float[Tensor, "stacked 1"]:
    """Return numbers of each transformation one after the other."""
    return values.T.reshape(-1, 1)


def flat(state: Gaussian) -> Gaussian:
    """Return states (series, transformation) as one batch, transformations outermost."""
    return Gaussian(state.mean.transpose(0, 1).flatten(0, 1), state.cov.transpose(0, 1).flatten(0, 1))


def _without_slopes(state: Gaussian, still: Bool[Tensor, " series"], structure: Structure | None) -> Gaussian:
    """Return states (series, transformation) with slopes of nearly 0 for series that stand still.

    The prior of a slope is as wide as that of its level, since a series soon narrows it. A few equal values do not.
    Under a logarithm such a prior then gives astronomic means some steps ahead.
    """
    if structure is None:
        return state
    slopes = [isinstance(one, Trend) and place == 1 for one in structure.components for place in range(one.size)]
    share = torch.where(still.unsqueeze(-1) & constant(slopes, still, torch.bool), _SLOPE, 1.0).to(state.mean)
    share = share.unsqueeze(1)
    return Gaussian(state.mean, state.cov * share.unsqueeze(-1) * share.unsqueeze(-2))


def _by_series(state: Gaussian, count: int) -> Gaussian:
    """Return one batch of states, transformations outermost, as states (series, transformation)."""
    cov = state.cov.expand(*state.batch_shape, -1, -1)
    mean, cov = (x.unflatten(0, (count, -1)).transpose(0, 1) for x in (state.mean, cov))
    return Gaussian(mean, cov)
