"""Inference in a bank of structural models: a posterior over structures and transformations for every series."""

import dataclasses
import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import Gaussian, kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.parts.bank_dynamics import BankDynamics
from tsforecast.models.parts.bank_members import Members, Terms, flat, stacked
from tsforecast.models.parts.bank_paths import apart, draw, picked
from tsforecast.models.parts.inference import AbstractLinearMixture, LinearMember, LinearModel
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.objectives import crps_of_mixture
from tsforecast.models.parts.units import Units, in_scale, known_past, last_values, near, scaled
from tsforecast.models.parts.volatility import NODES, discounted
from tsforecast.models.records import BankState, Batch, Belief, Series, TimeSlice
from tsforecast.models.transformations import transformation_of

_SCORED = 6  # steps of a window's future, at most, whose CRPS is computed: neighbours say nearly the same


@dataclasses.dataclass(frozen=True, eq=False)
class BankInference(AbstractLinearMixture[BankDynamics]):
    """Exact inference in each model of a bank, and a posterior over them.

    Attributes:
        dynamics: Dynamics of the models.
        units: Units of the targets: no transformation, since every model has its own.
        objective: "crps" of the mixture's forecast of a window's future from its past, or "likelihood" of that future.
    """

    dynamics: BankDynamics
    units: Units
    objective: str = "crps"

    @property
    def members(self) -> Members:
        """Return the models."""
        return Members(self.dynamics, self.units.data, tuple(range(len(self.dynamics.transformations))))

    @property
    def has_marginals(self) -> bool:
        """Return True."""
        return True

    @property
    def linear(self) -> "BankInference":
        """Return this inference."""
        return self

    @property
    def is_single(self) -> bool:
        """Return False."""
        return False

    def begin(self, batch: Batch, like: Batch) -> Belief:
        """Return the beliefs before the first step, see `AbstractLinearMixture`."""
        units = self.scale_of(like)
        own, begun = (
            self.members.beginning(near(self.slice_of(one, "past"), *units), Series.of(one)) for one in (like, batch)
        )
        state = dataclasses.replace(begun, location=own.location, scale=own.scale, size=own.size)
        return Belief(state, *units, Series.of(batch))

    def members_of(self, batch: Batch, part: str, belief: Belief, apart: bool = False) -> Iterator[LinearMember]:
        """Yield each structure, or each under each transformation, see `AbstractLinearMixture`."""
        state, time_slice = belief.bank, near(self.slice_of(batch, part), belief.location, belief.scale)
        every = self.members.codes
        groups = [(code,) for code in every] if apart else [every]
        several = [dataclasses.replace(self.members, codes=own) for own in groups]
        wides = [one.wide(time_slice, state.size) for one in several]
        models = [one.models(wide, belief.series) for one, wide in zip(several, wides, strict=True)]
        for number, member in enumerate(self.dynamics.structures):
            for one, wide, those in zip(several, wides, models, strict=True):
                before = flat(map_tensors(lambda x, own=[*one.codes]: x[:, own], state.states[number]))
                location, scale = (stacked(x[:, [*one.codes]]) for x in (state.location, state.scale))
                model = LinearModel(those[number].system, before)
                own = (member.structure, one.transformations, state.size, NODES)
                yield LinearMember(model, wide, location, scale, *own)

    def weights(self, belief: Belief) -> list[Float[Tensor, "series transformation"]]:
        """Return the posterior probabilities of each structure under each transformation."""
        return list(self.dynamics.log_weight(belief.bank.evidence).exp().unbind(1))

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the CRPS or the negative log-likelihood of a window's future, by `objective`."""
        location, scale = self.scale_of(batch)
        past, future = (near(self.slice_of(batch, part), location, scale) for part in ("past", "future"))
        state, mixture = self._onward(past, future, Series.of(batch))
        observed, own = future.observed.squeeze(-1).T, (scale / state.size).squeeze(1)
        count = observed.sum(1).clamp_min(1)
        if mixture is None:
            terms = self._after(future, Series.of(batch), state)[1].density.sum(0)
            joint = torch.logsumexp((self.dynamics.log_weight(state.evidence) + terms).flatten(1), 1)
            return -joint / count - own.log()  # densities per size become those per scale, as the CRPS is
        values = (future.values.squeeze(-1) / state.size.squeeze(1)).T
        steps = len(future.values)
        scored = torch.linspace(0, steps - 1, min(steps, _SCORED), device=values.device).round().long()
        mean, deviation = mixture.mean[:, :, scored], mixture.deviation[:, :, scored]
        mixture = dataclasses.replace(mixture, mean=mean, deviation=deviation)
        score = crps_of_mixture(mixture, values[:, scored], observed[:, scored])
        # A window in which a series wakes up would outweigh all others in the units of its past.
        last = last_values(past.values.squeeze(-1), past.observed.squeeze(-1)).unsqueeze(1) / state.size
        both = observed & torch.cat([torch.ones_like(observed[:, :1]), observed[:, :-1]], 1)
        changes = torch.where(both, (values - torch.cat([last, values[:, :-1]], 1)).abs(), 0.0)
        unit = torch.maximum(own, changes.sum(1) / both.sum(1).clamp_min(1))
        return score.sum(1) / (observed[:, scored].sum(1).clamp_min(1) * unit)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the exact beliefs of all models after the batch's past, and the log-likelihood of each of its steps.

        The log-likelihood of a step is that of the mixture, with the weights after the step before.
        """
        return self.filter_weighted(batch, belief)[:2]

    def filter_weighted(
        self, batch: Batch, belief: Belief | None = None
    ) -> tuple[Belief, Float[Tensor, "time series"], list[Float[Tensor, "time series transformation"]]]:
        """Return the result of `filter`, and the weights of all models before each step."""
        after, past, terms = self._filtered(batch, belief)
        state, seen = after.bank, past.observed.squeeze(-1)
        start = torch.zeros_like(state.evidence) if belief is None else belief.bank.evidence
        sums = discounted(terms.evidence.flatten(2), seen, start.flatten(1), self.dynamics.forgetting)
        before_step = sums[:-1].view_as(terms.evidence)
        log_weight = self.dynamics.log_weight(before_step)
        steps = torch.logsumexp((log_weight + terms.density).flatten(2), 2)
        log_likelihood = torch.where(seen, steps + (after.scale / state.size).squeeze(1).log(), 0.0)
        return after, log_likelihood, list(log_weight.exp().unbind(2))

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self._filtered(batch, belief)[0]

    def _filtered(self, batch: Batch, belief: Belief | None) -> tuple[Belief, TimeSlice, Terms]:
        """Return the belief after the batch's past, this past, and the evidence of its values."""
        location, scale = self.scale_of(batch, belief)
        past, series = near(self.slice_of(batch, "past"), location, scale), self.series_of(batch, belief)
        state, terms = self._after(past, series, None if belief is None else belief.bank)
        return Belief(state, location, scale, Series.of(batch)), past, terms

    def squared_errors(self, batch: Batch) -> Float[Tensor, "time series"]:
        """Return the squared errors of the batch's past in units of the noise of all series; NaN of missing values.

        They are means over the models, by the weights after the last step.
        """
        past, series = near(self.slice_of(batch, "past"), *self.scale_of(batch)), Series.of(batch)
        *_, squares = self.members.errors(past, series, self.members.beginning(past, series))
        weight = self.dynamics.log_weight(self._after(past, series, None)[0].evidence).exp()
        return torch.where(past.observed.squeeze(-1), (weight * squares).sum((-1, -2)), torch.nan)

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return joint samples of the horizon: every path has one model and one width, both drawn by weight.

        Every step alone is distributed as `marginals` says. Steps are correlated as with a width of 1.
        """
        state, joints = self._joints(belief, future)
        log_weight, widths = self._weighted(state)
        chosen = draw(log_weight, num_samples, generator)
        width = self._ahead(widths.flatten(1).gather(1, chosen), future["known_future"].shape[1]).unsqueeze(2)
        paths, names = None, self.dynamics.transformations
        for structure, joint in enumerate(joints):
            drawn = joint.sample((num_samples,), generator)
            samples, mean = (apart(x, len(names)) for x in (drawn, joint.mean[None]))
            paths = picked(paths, mean + width * (samples - mean), state, names, chosen // NODES, structure)
        assert paths is not None
        return self._in_units(paths, future["known_future"])

    def marginals(self, belief: Belief, future: Batch) -> Marginals:
        """Return the exact marginal distributions of the horizon, see `AbstractInference`: mixtures of all models."""
        known = future["known_future"].double()
        observed = ~torch.isnan(known)
        if bool(observed.any()):
            state, joints = self._joints(belief, future)
            location, scale = (stacked(x) for x in (state.location, state.scale))
            parts = [(j.mean * scale + location, j.variance.clamp_min(0).sqrt() * scale) for j in joints]
            mean, deviation = (
                torch.stack([x.unflatten(0, (self.members.num_transformations, -1)) for x in own])
                .flatten(0, 1)
                .transpose(0, 1)
                for own in zip(*parts, strict=True)
            )
            mixture = self._marginals(state, mean, deviation)
        else:
            mixture = self._mixture(belief.bank, belief.series, self.slice_of(future, "future"))
        mixture, size = map_tensors(torch.Tensor.double, mixture), belief.bank.size.double()
        sized = torch.nan_to_num(known / size.unsqueeze(1))
        given = torch.stack([transformation_of(name).apply(sized) for name in mixture.transformations], 1)
        mean = torch.where(observed.unsqueeze(1), given, mixture.mean)
        deviation = torch.where(observed.unsqueeze(1), 0.0, mixture.deviation)
        clip, names = self.units.clip, tuple(name for name in self.members.names for _ in range(NODES))
        size = size.unsqueeze(1).expand(-1, len(names), -1)
        return dataclasses.replace(mixture, mean=mean, deviation=deviation, size=size, clip=clip, names=names)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples of missing values, by the simulation smoother of models drawn by weight."""
        past, series = near(self.slice_of(batch, "past"), *self.scale_of(batch)), Series.of(batch)
        state = self._after(past, series, None)[0]
        chosen = draw(self._weighted(state)[0], num_samples, generator)
        width = self._widths_within(past, series).gather(1, chosen.unsqueeze(-1).expand(-1, -1, len(past.values)))
        wide = self.members.wide(past, state.size)
        location, scale = (stacked(x) for x in (state.location, state.scale))
        values, observed = scaled(wide, location, scale)
        paths, names = None, self.dynamics.transformations
        for structure, model in enumerate(self.members.models(wide, series)):
            states = kalman.sample_posterior(model.system, model.prior, values, observed, num_samples, generator)
            smoothed, at = kalman.smooth(model.system, model.prior, values, observed).states, model.system.by_step()
            steps = [Gaussian(mean, cov) for mean, cov in zip(smoothed.mean, smoothed.cov, strict=True)]
            mean = torch.cat([at(time)[1].marginal(at_step).mean for time, at_step in enumerate(steps)], -1)
            emitted = torch.cat([at(time)[1].sample(x, generator) for time, x in enumerate(states)], -1)
            samples, mean = (apart(x, self.members.num_transformations) for x in (emitted, mean.unsqueeze(0)))
            samples = mean + width.unsqueeze(2) * (samples - mean)
            paths = picked(paths, samples, state, names, chosen // NODES, structure)
        assert paths is not None
        return self._in_units(paths, known_past(batch))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Refuse: the models of a bank have different components.

        Raises:
            ValueError: Always.
        """
        raise ValueError("the models of a bank have different components: train an issm with those that are asked for")

    def _after(self, past: TimeSlice, series: Series, before: BankState | None) -> tuple[BankState, Terms]:
        """Return the state after a slice, and the evidence of its values, in units of the series' sizes."""
        before = self.members.beginning(past, series) if before is None else before
        states, scales, squares = self.members.errors(past, series, before)
        state, terms = self._weighed(past, before, scales, squares)
        return dataclasses.replace(state, states=states), terms

    def _onward(self, past: TimeSlice, future: TimeSlice, series: Series) -> tuple[BankState, Marginals | None]:
        """Return the state after a window's past and the distributions of its future, None where a density is wanted.

        By one pass the state keeps the beliefs of the beginning, which nothing reads behind a training step.
        """
        found = self.members.onward(past, future, series) if self.objective == "crps" else None
        if found is None:
            state = self._after(past, series, None)[0]
            return state, self._mixture(state, series, future) if self.objective == "crps" else None
        state = self._weighed(past, found.before, found.scales, found.squares)[0]
        location, scale = (x[:, None] for x in (state.location, state.scale))
        mean, deviation = found.mean * scale + location, found.deviation * scale
        return state, self._marginals(state, *(x.flatten(2).permute(1, 2, 0) for x in (mean, deviation)))

    def _weighed(self, past: TimeSlice, before: BankState, scales: Tensor, squares: Tensor) -> tuple[BankState, Terms]:
        """Return the state with the evidence of a slice, and its terms, given the result of `Members.errors`."""
        seen = past.observed.squeeze(-1)
        counts, sums = self._running_sums(seen, squares, before)
        before_step = counts[:-1]
        if not is_transformed(counts) and bool((before_step == before_step[:, :1]).all()):
            before_step = before_step[:, :1]  # what is the same of all series is computed once
        density = self.dynamics.volatility(before_step, sums[:-1]).log_density(scales, squares)
        by_step = self.dynamics.evidence(density, scales - 0.5 * squares)
        density, by_step = (torch.where(seen[..., None, None], x, 0.0) for x in (density, by_step))
        count = seen.sum(0)
        age = (count - seen.cumsum(0)).to(by_step.dtype)
        kept = self.dynamics.forgetting(count.to(by_step.dtype))[:, None, None] * before.evidence
        evidence = kept + (self.dynamics.forgetting(age)[..., None, None] * by_step).sum(0)
        known = {"evidence": evidence, "seen": counts[-1], "squares": sums[-1]}
        return dataclasses.replace(before, **known), Terms(density, by_step)

    def _running_sums(
        self, seen: Bool[Tensor, "time series"], squares: Tensor, before: BankState
    ) -> tuple[Float[Tensor, "times series"], Float[Tensor, "times series structure transformation"]]:
        """Return numbers of values and sums of squares before each step, and after the last."""
        terms = torch.cat([seen.to(squares.dtype).unsqueeze(-1), squares.flatten(2)], -1)
        start = torch.cat([before.seen.unsqueeze(-1), before.squares.flatten(1)], -1)
        sums = discounted(terms, seen, start, self.dynamics.volatility_discount)
        return sums[..., 0], sums[..., 1:].unflatten(2, squares.shape[2:])

    def _mixture(self, state: BankState, series: Series, future: TimeSlice) -> Marginals:
        """Return the marginal forecasts of all models, of series of size 1 that are not clipped."""
        means, deviations = [], []
        for before, system in self.members.systems(state, series, future):
            marginals = system.marginals(before, len(future.values))
            for moments, x in ((means, marginals.mean), (deviations, marginals.variance.clamp_min(1e-12).sqrt())):
                moments.append(x.squeeze(-1).unflatten(1, (self.members.num_transformations, -1)).permute(2, 1, 0))
        location, scale = state.location[:, None, :, None], state.scale[:, None, :, None]
        mean, deviation = torch.stack(means, 1) * scale + location, torch.stack(deviations, 1) * scale
        return self._marginals(state, mean.flatten(1, 2), deviation.flatten(1, 2))

    def _marginals(
        self,
        state: BankState,
        mean: Float[Tensor, "series model horizon"],
        deviation: Float[Tensor, "series model horizon"],
    ) -> Marginals:
        """Return moments in transformed units as the distributions of series of size 1."""
        names = tuple(self.dynamics.transformations) * len(self.dynamics.structures)
        log_weight, widths = self._weighted(state)
        widths = self._ahead(widths, mean.shape[-1])
        deviation = (deviation.unsqueeze(2) * widths).flatten(1, 2).unsqueeze(-1)
        mean = mean.repeat_interleave(NODES, 1).unsqueeze(-1)
        ones = torch.ones_like(log_weight).unsqueeze(-1)
        return Marginals(log_weight, mean, deviation, ones, tuple(name for name in names for _ in range(NODES)))

    def _weighted(
        self, state: BankState
    ) -> tuple[Float[Tensor, "series component"], Float[Tensor, "series model node"]]:
        """Return the weights of all models with each of their widths, and these widths."""
        weight = self.dynamics.log_weight(state.evidence).flatten(1) - math.log(NODES)
        widths = self.dynamics.volatility(state.seen, state.squares).widths().flatten(1, 2)
        return weight.repeat_interleave(NODES, 1), widths

    def _ahead(self, widths: Tensor, horizon: int) -> Tensor:
        """Return widths with a last dimension for the steps ahead, as their variances settle."""
        steps = torch.arange(1, horizon + 1, device=widths.device, dtype=widths.dtype)
        return (1 + (widths.square().unsqueeze(-1) - 1) * self.dynamics.volatility_persistence(steps)).sqrt()

    def _widths_within(self, past: TimeSlice, series: Series) -> Float[Tensor, "series component time"]:
        """Return the widths of all models at every step of a slice, given the values before and after it."""
        begin = self.members.beginning(past, series)
        seen, (_, _, squares) = past.observed.squeeze(-1), self.members.errors(past, series, begin)
        until = (x[1:] for x in self._running_sums(seen, squares, begin))
        after = (x[:-1].flip(0) for x in self._running_sums(seen.flip(0), squares.flip(0), begin))
        counts, sums = (x + y for x, y in zip(until, after, strict=True))
        return self.dynamics.volatility(counts, sums).widths().flatten(2).movedim(0, -1)

    def _joints(self, belief: Belief, future: Batch) -> tuple[BankState, list[Gaussian]]:
        """Return the state given the known values of the horizon, and each structure's joint Gaussian given these.

        The Gaussians are in scaled units; their batch has the transformations one after the other.
        """
        state, series, time_slice = belief.bank, belief.series, self.slice_of(future, "future")
        joints = [
            system.predictive(before, len(time_slice.values))
            for before, system in self.members.systems(state, series, time_slice)
        ]
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not is_transformed(observed) and not bool(observed.any()):
            return state, joints
        values = torch.where(observed, known, 0.0).double().transpose(0, 1)
        given = dataclasses.replace(time_slice, values=values, observed=observed.transpose(0, 1))
        after = self._after(given, series, state)[0]
        wide = self.members.wide(given, state.size)
        values, observed = in_scale(wide.values, stacked(state.location), stacked(state.scale)), wide.observed
        return after, [j.condition(values.squeeze(-1).T, observed.squeeze(-1).T) for j in joints]

    def _in_units(self, paths: Float[Tensor, "series sample time"], known: Tensor) -> Tensor:
        """Return paths, clipped if this was chosen, with known values (not NaN) in their place."""
        samples = self.units.restore(paths).unsqueeze(-1)
        known = known.unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)
