"""Inference in a bank of structural models: a posterior over structures and transformations for every series."""

import abc
import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian, kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.parts.exact import AbstractLinearDynamics
from tsforecast.models.parts.inference import AbstractDynamics, AbstractInference
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.objectives import crps_of_mixture
from tsforecast.models.parts.transformation import log_slope, restored, transformed
from tsforecast.models.parts.units import (
    Units,
    known_past,
    last_values,
    location_and_scale,
    masked_mean,
    near,
    recent,
    scaled,
)
from tsforecast.models.records import BankState, Batch, Belief, Series, TimeSlice

_STEPS = 64  # whose evidence is summed up at once


class AbstractBankDynamics(AbstractDynamics):
    """Parameters of several structures, each under several transformations, and of the posterior over them.

    Attributes:
        transformations: Names of the transformations.
    """

    transformations: list[str]

    @property
    @abc.abstractmethod
    def structures(self) -> list[AbstractLinearDynamics]:
        """Return the parameters of each structure; the transformation is the last category of its series."""

    @abc.abstractmethod
    def log_weight(
        self, evidence: Float[Tensor, "*batch structure transformation"]
    ) -> Float[Tensor, "*batch structure transformation"]:
        """Return the logarithms of the posterior probabilities."""

    @abc.abstractmethod
    def forgetting(self, age: Tensor) -> Tensor:
        """Return the weight of the evidence of an observation that so many others have followed."""


@dataclasses.dataclass(frozen=True, eq=False)
class BankInference(AbstractInference[AbstractBankDynamics]):
    """Exact inference in each model of a bank, and a posterior over them.

    Every series is divided by its mean absolute value first, so that transformations mean the same for all.

    Attributes:
        dynamics: Dynamics of the models.
        units: Units of the targets: no transformation, since every model has its own.
        objective: "crps" of the mixture's forecast of a window's future from its past, or "likelihood" of that future.
    """

    dynamics: AbstractBankDynamics
    units: Units
    objective: str = "crps"

    @property
    def has_marginals(self) -> bool:
        """Return True."""
        return True

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the CRPS or the negative log-likelihood of a window's future, by `objective`."""
        location, scale = self.scale_of(batch)
        past, future = (near(self.slice_of(batch, part), location, scale) for part in ("past", "future"))
        state = self._after(past, Series.of(batch), None)[0]
        observed, own = future.observed.squeeze(-1).T, (scale / state.size).squeeze(1)
        count = observed.sum(1).clamp_min(1)
        if self.objective == "likelihood":
            terms = self._terms(future, Series.of(batch), state)[1].sum(0)
            joint = torch.logsumexp((self.dynamics.log_weight(state.evidence) + terms).flatten(1), 1)
            return -joint / count - own.log()
        values = (future.values.squeeze(-1) / state.size.squeeze(1)).T
        score = crps_of_mixture(self._mixture(state, Series.of(batch), future), values, observed)
        # A window in which a series wakes up would outweigh all others in the units of its past.
        last = last_values(past.values.squeeze(-1), past.observed.squeeze(-1)).unsqueeze(1) / state.size
        both = observed & torch.cat([torch.ones_like(observed[:, :1]), observed[:, :-1]], 1)
        changes = torch.where(both, (values - torch.cat([last, values[:, :-1]], 1)).abs(), 0.0)
        unit = torch.maximum(own, changes.sum(1) / both.sum(1).clamp_min(1))
        return score.sum(1) / (count * unit)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the exact beliefs of all models after the batch's past, and the log-likelihood of each of its steps.

        The log-likelihood of a step is that of the mixture, whose weights are those after the steps before.
        """
        location, scale = self.scale_of(batch, belief)
        past, series = near(self.slice_of(batch, "past"), location, scale), self.series_of(batch, belief)
        before = None if belief is None else belief.bank
        state, terms = self._after(past, series, before)
        seen = past.observed.squeeze(-1)
        evidence = torch.zeros_like(state.evidence) if before is None else before.evidence
        steps = []
        for part, observed in zip(terms.split(_STEPS), seen.split(_STEPS), strict=True):
            known = self._evidence_before(part, observed, evidence)
            steps.append(torch.logsumexp((self.dynamics.log_weight(known[:-1]) + part).flatten(2), 2))
            evidence = known[-1]
        log_likelihood = torch.where(seen, torch.cat(steps) + (scale / state.size).squeeze(1).log(), 0.0)
        return Belief(state, location, scale, Series.of(batch)), log_likelihood

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return exact joint samples of the horizon: every path is of one model, which is drawn by its weight."""
        state = belief.bank
        log_weight, joints = self._joints(belief, future)
        chosen = _draw(log_weight, num_samples, generator)
        paths = None
        for structure, joint in enumerate(joints):
            samples = joint.sample((num_samples,), generator).unflatten(1, (self.num_transformations, -1))
            paths = self._picked(paths, samples.permute(2, 0, 1, 3), state, chosen, structure)
        assert paths is not None
        return self._in_units(paths, future["known_future"])

    def marginals(self, belief: Belief, future: Batch) -> Marginals:
        """Return the exact marginal distributions of the horizon, see `AbstractInference`: mixtures of all models."""
        known = future["known_future"].double()
        observed = ~torch.isnan(known)
        if bool(observed.any()):
            log_weight, joints = self._joints(belief, future)
            parts = [(joint.mean, joint.variance.clamp_min(0).sqrt()) for joint in joints]
            mean, deviation = (
                torch.stack([x.unflatten(0, (self.num_transformations, -1)) for x in own]).flatten(0, 1).transpose(0, 1)
                for own in zip(*parts, strict=True)
            )
            found = self._marginals(log_weight, mean, deviation)
        else:
            found = self._mixture(belief.bank, belief.series, self.slice_of(future, "future"))
        found, size = map_tensors(torch.Tensor.double, found), belief.bank.size.double()
        sized = torch.nan_to_num(known / size.unsqueeze(1))
        given = torch.stack([transformed(sized, name) for name in found.transformations], 1)
        mean = torch.where(observed.unsqueeze(1), given, found.mean)
        deviation = torch.where(observed.unsqueeze(1), 0.0, found.deviation)
        clip, names = self.units.clip, self.model_names
        size = size.unsqueeze(1).expand(-1, len(names), -1)
        return dataclasses.replace(found, mean=mean, deviation=deviation, size=size, clip=clip, names=names)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples of what is missing, by the simulation smoother of models that are drawn by weight."""
        past, series = near(self.slice_of(batch, "past"), *self.scale_of(batch)), Series.of(batch)
        state = self._after(past, series, None)[0]
        log_weight = self.dynamics.log_weight(state.evidence)
        chosen = _draw(log_weight.flatten(1), num_samples, generator)
        wide = self._wide(past, state.size)
        location, scale = (_stacked(x) for x in (state.location, state.scale))
        values, observed = scaled(wide, location, scale)
        paths = None
        for structure, member in enumerate(self.dynamics.structures):
            model = member.linear(self._own(wide, member), self._of_models(series))
            states = kalman.sample_posterior(model.system, model.prior, values, observed, num_samples, generator)
            at = model.system.by_step()
            emitted = torch.cat([at(time)[1].sample(x, generator) for time, x in enumerate(states)], -1)
            samples = emitted.unflatten(1, (self.num_transformations, -1))
            samples = samples * state.scale.T[..., None] + state.location.T[..., None]
            paths = self._picked(paths, samples.permute(2, 0, 1, 3), state, chosen, structure)
        assert paths is not None
        return self._in_units(paths, known_past(batch))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Refuse: the models of a bank have different components.

        Raises:
            ValueError: Always.
        """
        raise ValueError("the models of a bank have different components: train an issm with those that are asked for")

    @property
    def model_names(self) -> tuple[str, ...]:
        """Return the names of all models, "trend+month_of_year on symlog"."""
        sums = ["+".join(one.structure.names) for one in self.dynamics.structures if one.structure is not None]
        ends = ["" if name == "none" else f" on {name}" for name in self.dynamics.transformations]
        return tuple(components + end for components in sums for end in ends)

    @property
    def num_transformations(self) -> int:
        """Return the number of transformations."""
        return len(self.dynamics.transformations)

    # All models of a structure are one system, whose batch has the transformations one after the other.

    def _wide(self, time_slice: TimeSlice, size: Float[Tensor, "series 1"]) -> TimeSlice:
        """Return a slice in units of the series' sizes, under each transformation, transformations outermost."""
        count = self.num_transformations
        values = time_slice.values / size
        wide = torch.cat([transformed(values, name) for name in self.dynamics.transformations], 1)
        index = time_slice.season_index
        return TimeSlice(
            values=torch.where(time_slice.observed.repeat(1, count, 1), wide, 0.0),
            observed=time_slice.observed.repeat(1, count, 1),
            active=None if time_slice.active is None else time_slice.active.repeat(1, count),
            time_feat=time_slice.time_feat.repeat(1, count, 1),
            season_index=index if index.shape[1] == 1 else index.repeat(1, count, 1),
            dynamic_real=time_slice.dynamic_real.repeat(1, count, 1),
        )

    def _own(self, time_slice: TimeSlice, member: AbstractLinearDynamics) -> TimeSlice:
        """Return a slice with the seasons of one structure."""
        columns = [self.dynamics.season_names.index(name) for name in member.season_names]
        return dataclasses.replace(time_slice, season_index=time_slice.season_index[..., columns])

    def _of_models(self, series: Series) -> Series:
        """Return the series once for each transformation, which is their last category."""
        count = self.num_transformations
        codes = torch.arange(count, device=series.index.device).repeat_interleave(len(series.index))
        known = torch.cat([series.static_cat.repeat(count, 1), codes.unsqueeze(1)], 1)
        return Series(series.index.repeat(count), known, series.static_real.repeat(count, 1))

    def _after(
        self, past: TimeSlice, series: Series, before: BankState | None
    ) -> tuple[BankState, Float[Tensor, "time series structure transformation"]]:
        """Return the state after a slice, and the log-densities of its values in units of the series' sizes."""
        before = self.beginning(past, series) if before is None else before
        states, terms = self._terms(past, series, before)
        seen = past.observed.squeeze(-1)
        count = seen.sum(0)
        age = (count - seen.cumsum(0)).to(terms.dtype)
        kept = self.dynamics.forgetting(count.to(terms.dtype))[:, None, None] * before.evidence
        evidence = kept + (self.dynamics.forgetting(age)[..., None, None] * terms).sum(0)
        return dataclasses.replace(before, states=states, evidence=evidence), terms

    def _evidence_before(
        self,
        terms: Float[Tensor, "time series structure transformation"],
        observed: Bool[Tensor, "time series"],
        evidence: Float[Tensor, "series structure transformation"],
    ) -> Float[Tensor, "times series structure transformation"]:
        """Return the evidence before each of a few steps, and that after the last."""
        count = torch.nn.functional.pad(observed.cumsum(0), (0, 0, 1, 0))  # seen before each step
        age = count.unsqueeze(1) - count[1:]  # of the value of one step, before another
        later = torch.ones_like(age[..., 0], dtype=torch.bool).tril(-1).unsqueeze(-1)
        share = torch.where(later, self.dynamics.forgetting(age.clamp_min(0).to(terms.dtype)), 0.0)
        kept = self.dynamics.forgetting(count.to(terms.dtype))[..., None, None] * evidence
        return kept + torch.einsum("tus,uskm->tskm", share, terms)

    def beginning(self, past: TimeSlice, series: Series) -> BankState:
        """Return the state before the first step of series that begin with a slice, which gives their scaling."""
        values, seen = past.values, recent(past.observed, self.units.data.scaling_length)
        size = masked_mean(values.abs(), seen)
        size = torch.where(size > 0, size, 1.0)
        wide = self._wide(past, size)
        location, scale = location_and_scale(wide.values, seen.repeat(1, self.num_transformations, 1), self.units.data)
        location, scale = (x.reshape(self.num_transformations, -1).T for x in (location, scale))
        known = self._of_models(series)
        priors = [member.linear(self._own(wide, member), known).prior for member in self.dynamics.structures]
        states = tuple(_by_series(prior, self.num_transformations) for prior in priors)
        shape = (len(size), len(self.dynamics.structures), self.num_transformations)
        return BankState(states, location, scale, size, size.new_zeros(shape))

    def _terms(
        self, time_slice: TimeSlice, series: Series, before: BankState
    ) -> tuple[tuple[Gaussian, ...], Float[Tensor, "time series structure transformation"]]:
        """Return the states after a slice, and the log-densities of its values in units of the series' sizes."""
        count, members = self.num_transformations, self.dynamics.structures
        wide, known = self._wide(time_slice, before.size), self._of_models(series)
        location, scale = (_stacked(x) for x in (before.location, before.scale))
        values, observed = scaled(wide, location, scale)
        slope = torch.cat(
            [log_slope(time_slice.values / before.size, name) for name in self.dynamics.transformations], 1
        )
        slope = torch.where(wide.observed, slope - scale.log(), 0.0).squeeze(-1)
        states, terms = [], []
        for number, member in enumerate(members):
            model = member.linear(self._own(wide, member), known)
            state, term = model.system.posterior(_flat(before.states[number]), values, observed)
            states.append(_by_series(state, count))
            terms.append((term + slope).unflatten(1, (count, -1)).transpose(1, 2))
        return tuple(states), torch.stack(terms, 2)

    def _systems(
        self, state: BankState, series: Series, future: TimeSlice
    ) -> list[tuple[Gaussian, AbstractLinearSystem]]:
        """Return the states and the systems of the future of each structure."""
        wide, known = self._wide(future, state.size), self._of_models(series)
        return [
            (_flat(before), member.linear(self._own(wide, member), known).system)
            for before, member in zip(state.states, self.dynamics.structures, strict=True)
        ]

    def _mixture(self, state: BankState, series: Series, future: TimeSlice) -> Marginals:
        """Return the marginal forecasts of all models, of series of size 1 that are not clipped."""
        means, deviations = [], []
        for before, system in self._systems(state, series, future):
            marginals = system.marginals(before, len(future.values))
            for found, x in ((means, marginals.mean), (deviations, marginals.variance.clamp_min(1e-12).sqrt())):
                found.append(x.squeeze(-1).unflatten(1, (self.num_transformations, -1)).permute(2, 1, 0))
        location, scale = state.location[:, None, :, None], state.scale[:, None, :, None]
        mean, deviation = torch.stack(means, 1) * scale + location, torch.stack(deviations, 1) * scale
        log_weight = self.dynamics.log_weight(state.evidence).flatten(1)
        return self._marginals(log_weight, mean.flatten(1, 2), deviation.flatten(1, 2))

    def _marginals(
        self,
        log_weight: Float[Tensor, "series model"],
        mean: Float[Tensor, "series model horizon"],
        deviation: Float[Tensor, "series model horizon"],
    ) -> Marginals:
        """Return moments in transformed units as the distributions of series of size 1."""
        names = tuple(self.dynamics.transformations) * len(self.dynamics.structures)
        ones = torch.ones_like(log_weight).unsqueeze(-1)
        return Marginals(log_weight, mean.unsqueeze(-1), deviation.unsqueeze(-1), ones, names)

    def _joints(self, belief: Belief, future: Batch) -> tuple[Float[Tensor, "series model"], list[Gaussian]]:
        """Return the weights and the joint Gaussians of the horizon of each structure, given what is known of it.

        The Gaussians are in transformed units; their batch has the transformations one after the other.
        """
        state, series, time_slice = belief.bank, belief.series, self.slice_of(future, "future")
        log_weight = self.dynamics.log_weight(state.evidence)
        location, scale = (_stacked(x) for x in (state.location, state.scale))
        joints = [
            system.predictive(before, len(time_slice.values))
            for before, system in self._systems(state, series, time_slice)
        ]
        joints = [Gaussian(j.mean * scale + location, j.cov * scale.square().unsqueeze(-1)) for j in joints]
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not is_transformed(observed) and not bool(observed.any()):
            return log_weight.flatten(1), joints
        values = torch.where(observed, known, 0.0).to(state.size.dtype).transpose(0, 1)
        given = dataclasses.replace(time_slice, values=values, observed=observed.transpose(0, 1))
        evidence = state.evidence + self._terms(given, series, state)[1].sum(0)
        wide = self._wide(given, state.size)
        values, observed = (x.squeeze(-1).T for x in (wide.values, wide.observed))
        return self.dynamics.log_weight(evidence).flatten(1), [j.condition(values, observed) for j in joints]

    def _picked(
        self,
        paths: Tensor | None,
        samples: Float[Tensor, "series sample transformation time"],
        state: BankState,
        chosen: Int[Tensor, "series sample"],
        structure: int,
    ) -> Float[Tensor, "series sample time"]:
        """Return paths in the units of the data, with those of the chosen models of a structure in their places."""
        for number, name in enumerate(self.dynamics.transformations):
            own = restored(samples[:, :, number], name) * state.size.unsqueeze(-1)
            model = structure * self.num_transformations + number
            paths = own if paths is None else torch.where((chosen == model).unsqueeze(-1), own, paths)
        assert paths is not None
        return paths

    def _in_units(self, paths: Float[Tensor, "series sample time"], known: Tensor) -> Tensor:
        """Return paths clipped where that was chosen, with what is known (not NaN) in their place."""
        samples = self.units.restore(paths).unsqueeze(-1)
        known = known.to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)


def _stacked(values: Float[Tensor, "series transformation"]) -> Float[Tensor, "stacked 1"]:
    """Return numbers of each transformation one after the other."""
    return values.T.reshape(-1, 1)


def _flat(state: Gaussian) -> Gaussian:
    """Return states (series, transformation) as one batch, transformations outermost."""
    return Gaussian(state.mean.transpose(0, 1).flatten(0, 1), state.cov.transpose(0, 1).flatten(0, 1))


def _by_series(state: Gaussian, count: int) -> Gaussian:
    """Return one batch of states, transformations outermost, as states (series, transformation)."""
    cov = state.cov.expand(*state.batch_shape, -1, -1)
    mean, cov = (x.unflatten(0, (count, -1)).transpose(0, 1) for x in (state.mean, cov))
    return Gaussian(mean, cov)


def _draw(
    log_weight: Float[Tensor, "series model"], num_samples: int, generator: torch.Generator | None
) -> Int[Tensor, "series sample"]:
    """Return the numbers of models drawn by weight, systematically: each about as often as its weight says."""
    weight = log_weight.detach().exp()
    start = torch.rand(len(weight), 1, generator=generator, dtype=weight.dtype, device=weight.device)
    places = (torch.arange(num_samples, dtype=weight.dtype, device=weight.device) + start) / num_samples
    return torch.searchsorted(weight.cumsum(1), places).clamp_max(weight.shape[1] - 1)
