"""Exact inference in autoregressions and regressions with regimes from a Markov chain."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import particles
from tsforecast.core.gaussian import register_record
from tsforecast.core.particles.state import ParticleState, initial_particles
from tsforecast.core.regimes import chain, collapse
from tsforecast.core.regimes.autoregression import SwitchingAutoregression, known_lags
from tsforecast.core.regimes.counts import SwitchingCounts
from tsforecast.core.regimes.stages import of_regimes, pairs_of_regimes
from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.markov_dynamics import AbstractMarkovDynamics
from tsforecast.models.parts.markov_paths import counts_given, values_given
from tsforecast.models.parts.markov_system import Markov
from tsforecast.models.parts.objectives import negative_log_likelihood
from tsforecast.models.parts.regimes import AbstractRegimeInference, Regimes
from tsforecast.models.parts.units import Units, known_past, scaled
from tsforecast.models.records import Batch, Belief, Series, TimeSlice


@register_record
@dataclasses.dataclass(frozen=True)
class _Run:
    """A slice of time that was filtered.

    Attributes:
        before: Belief about the regimes before it.
        log_transition: Of every step.
        log_density: Of every history of regimes.
        log_likelihood: Of every step, in scaled units.
        after: Belief behind it.
    """

    before: Float[Tensor, "series memory"]
    log_transition: Float[Tensor, "time series regime regime"]
    log_density: Float[Tensor, "time series history"]
    log_likelihood: Float[Tensor, "time series"]
    after: ParticleState


@dataclasses.dataclass(frozen=True, eq=False)
class MarkovInference(AbstractRegimeInference[AbstractMarkovDynamics]):
    """Inference by Hamilton's filter and Kim's smoother.

    A belief has one particle for each memory of regimes, see `core.regimes.chain`: weights are exact, and nothing is
    drawn but sample paths. Where lags of a value are missing, the particles are Gaussian over them, and those that
    differ in the oldest regime alone are collapsed (see `core.regimes.collapse`); elsewhere they have no variance.

    Attributes:
        dynamics: Dynamics of the model.
        units: Units of its targets.
    """

    dynamics: AbstractMarkovDynamics
    units: Units

    @property
    def has_marginals(self) -> bool:
        """Return whether there is one target without lags: with them a mixture over paths has too many components."""
        return not self.dynamics.lags and self.dynamics.targets == 1 and self.units.support == "real"

    @property
    def linear(self) -> None:
        """Return None: a switch chooses the system."""

    # The filter.

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the exact negative log-likelihood of past and future, per observed value."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "both")
        run = self._run(time_slice, Series.of(batch), location, scale)[0]
        return negative_log_likelihood(run.log_likelihood, time_slice.observed)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the belief after the batch's past, and the log-likelihood of each of its steps."""
        location, scale = self.scale_of(batch, belief)
        series = self.series_of(batch, belief)
        start = None if belief is None else belief.particles
        run, _ = self._run(self.slice_of(batch, "past"), series, location, scale, start)
        return Belief(run.after, location, scale, Series.of(batch)), run.log_likelihood

    def beginning(self, model: Markov) -> ParticleState:
        """Return the belief before the first step of a slice."""
        states, memory = self.dynamics.states, model.system.memory
        if isinstance(model.system, SwitchingCounts):
            start = initial_particles(states, model.prior, states)
            eye = torch.eye(states, dtype=start.switch.dtype, device=start.switch.device)
            particles_ = dataclasses.replace(start, switch=eye.unsqueeze(1).expand(start.switch.shape))
        else:
            particles_ = collapse.begin(model.switching(), model.prior, memory)
        weight = chain.begin(model.initial, model.log_transition[0], memory)
        return dataclasses.replace(
            particles_, log_weight=weight.expand(len(model.centre), states**memory).T.contiguous()
        )

    def _run(
        self,
        time_slice: TimeSlice,
        series: Series,
        location: Tensor,
        scale: Tensor,
        start: ParticleState | None = None,
    ) -> tuple[_Run, Markov]:
        """Return the result of the filter, and the model of the slice.

        Steps up to the last at which something is missing are those of Kim's filter. All later ones have densities that
        are known at once, and take Hamilton's.
        """
        model = self.dynamics.markov(time_slice, series)
        values, seen = scaled(time_slice, location, scale)
        seen = time_slice.observed if seen is None else seen
        values = torch.where(seen, model.standard(values), 0.0)
        before = self.beginning(model) if start is None else start
        head = self._head(seen)  # behind it nothing is missing, and densities need no Gaussian beliefs
        parts, after = [], before
        if head:
            system = model.switching(time_slice.active)
            filtered = collapse.filter(system, before, values[:head], seen[:head])
            after = filtered.particles
            parts.append((filtered.log_transition, filtered.log_density, filtered.log_likelihood))
        if head < len(values):
            tail, after = self._tail(model, values, seen.any(-1), head, after, time_slice.active)
            parts.append(tail)
        log_transition, log_density, terms = (torch.cat(x) for x in zip(*parts, strict=True))
        # Densities are in the units of the series; those of scaled values are asked for.
        terms = terms - (seen * model.log_unit).sum(-1)
        return _Run(before.log_weight.T, log_transition, log_density, terms, after), model

    def _head(self, seen: Tensor) -> int:
        """Return the number of steps that have to go through Kim's filter: of one target without lags none."""
        if not self.dynamics.lags and self.dynamics.targets == 1:
            return 0
        whole = seen.all(-1)
        known = (whole & known_lags(whole, self.dynamics.num_lags)).all(1)
        if is_transformed(known):
            return len(seen)
        missing = torch.nonzero(~known)
        return int(missing[-1]) + 1 if len(missing) else 0  # behind the last gap all lags are known

    def _tail(
        self, model: Markov, values: Tensor, seen: Tensor, head: int, before: ParticleState, active: Tensor | None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], ParticleState]:
        """Return transitions, densities and terms of the steps from `head` on, and the belief behind them."""
        lags = model.system.lags
        log_density, state = model.of_steps(values[head - lags :], head - lags)
        if not lags:
            # A missing value has the density 1 in every regime.
            log_density = torch.where(seen[head:].unsqueeze(-1), log_density, 0.0)
        every = model.log_transition.expand(len(values), len(model.centre), -1, -1)[head:]
        filtered = chain.filter(every, log_density, before.log_weight.T, None if head else active)
        states = self.dynamics.states
        eye = torch.eye(states, dtype=values.dtype, device=values.device)
        newest = eye.repeat_interleave(states ** (model.system.memory - 1), 0).unsqueeze(1)
        after = dataclasses.replace(
            before,
            switch=newest.expand(before.switch.shape),
            state=state,
            log_weight=filtered.belief.T,
            begun=torch.ones_like(before.begun),
        )
        return (every, log_density, filtered.log_likelihood), after

    # Forecasts, and what is missing.

    def marginals(self, belief: Belief, future: Batch) -> Marginals | None:
        """Return the exact marginal distributions of the horizon without lags, see `AbstractInference`; else None.

        A step is a mixture over its regimes, whose probabilities are given all that is known of the horizon.
        """
        if not self.has_marginals:
            return None
        time_slice, known = self.slice_of(future, "future"), future["known_future"]
        model, observed = self.dynamics.markov(time_slice, belief.series), ~torch.isnan(known)
        series, steps = observed.shape[:2]
        known, seen = torch.where(observed, known, 0.0).double(), observed.squeeze(-1).T
        values = model.standard(self.units.scaled(known, belief))
        density = torch.where(seen.unsqueeze(-1), model.of_steps(values, 0)[0], 0.0)
        every = model.log_transition.expand(steps, series, -1, -1)
        weight = chain.smooth(every, density, belief.particles.log_weight.T).probabilities  # (time, series, regime)
        regimes, stages = self.dynamics.regimes, self.dynamics.stages
        weight = of_regimes(weight, stages)
        assert isinstance(model.system, SwitchingAutoregression)
        location = model.system.location[..., ::stages].expand(steps, series, regimes)
        unit = model.log_unit.exp() * belief.scale
        centre = model.centre * belief.scale + belief.location
        mean = (location * unit + centre).permute(1, 2, 0).unsqueeze(-1)  # series, regime, time, target
        deviation = (model.system.log_scale[:, ::stages].exp() * unit).double()[..., None, None].expand(mean.shape)
        free = ~observed.unsqueeze(1)
        return Marginals(
            # A regime that is ruled out has a finite logarithm.
            weight.double().clamp_min(1e-300).log().permute(1, 2, 0),
            torch.where(free, mean, self.units.transform(known).unsqueeze(1)),
            torch.where(free, deviation, 0.0),
            mean.new_ones(series, regimes, 1),
            (self.units.transformation,) * regimes,
            self.units.clip,
        )

    def forecast(
        self,
        belief: Belief,
        future: Batch,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold_switch: bool = False,
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return exact sample paths, given known values of the future.

        Given known values they are drawn by particles, exactly as the number of these grows.

        Args:
            belief: See `AbstractForecaster.forecast`.
            future: Likewise.
            num_samples: Likewise.
            generator: Likewise.
            hold_switch: Whether every path keeps the regime that it begins with ("what if the regime stays?").

        Raises:
            ValueError: If values are known and the regime is held.
        """
        time_slice, known = self.slice_of(future, "future"), future["known_future"]
        model, observed = self.dynamics.markov(time_slice, belief.series), ~torch.isnan(known)
        if isinstance(model.system, SwitchingCounts):
            counts = torch.where(observed, known, 0.0).transpose(0, 1)
            start = belief.particles
            if hold_switch:
                model = model.held()
            paths = counts_given(model, start, counts, observed.transpose(0, 1), None, num_samples, generator)
            return self.units.in_units(paths, belief.location, belief.scale, known)
        if not bool(observed.any()):
            steps = len(time_slice.time_feat)
            paths = particles.forecast(
                model.switching(), belief.particles, steps, num_samples, generator, hold=hold_switch
            )[0]
        elif hold_switch:
            raise ValueError("expected known values or a held regime, got both")
        else:
            values, observed = self.units.scaled(torch.where(observed, known, 0.0), belief), observed.transpose(0, 1)
            paths = values_given(model, belief.particles, values, observed, None, num_samples, generator)
        return self.units.in_units(model.scaled(paths), belief.location, belief.scale, known)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples by backward simulation through particles, exact as their number grows."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "past")
        model = self.dynamics.markov(time_slice, Series.of(batch))
        values, seen = scaled(time_slice, location, scale)
        seen = time_slice.observed if seen is None else seen
        start = self.beginning(model)
        if isinstance(model.system, SwitchingCounts):
            paths = counts_given(model, start, values, seen, time_slice.active, num_samples, generator)
            return self.units.in_units(paths, location, scale, known_past(batch))
        paths = values_given(model, start, values, seen, time_slice.active, num_samples, generator)
        return self.units.in_units(model.scaled(paths), location, scale, known_past(batch))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Refuse: there are no components.

        Raises:
            ValueError: Always.
        """
        self.named_structure()
        return {}

    # Regimes.

    def regimes(self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None) -> Regimes:
        """Return the regimes of the batch's past, given all of it: exact, and the most likely path of Viterbi."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "past")
        run, _ = self._run(time_slice, Series.of(batch), location, scale)
        known = (run.log_transition, run.log_density, run.before, time_slice.active)
        smoothed, stages = chain.smooth(*known), self.dynamics.stages
        path = chain.most_likely(*known)[0] // stages
        return Regimes(of_regimes(smoothed.probabilities, stages), pairs_of_regimes(smoothed.pairs, stages), path)

    def regimes_ahead(
        self, belief: Belief, future: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> Float[Tensor, "time series regime"]:
        """Return the exact probabilities of regimes at every step of the horizon; nothing is drawn."""
        time_slice = self.slice_of(future, "future")
        model = self.dynamics.markov(time_slice, belief.series)
        every = model.log_transition.expand(len(time_slice.time_feat), len(model.centre), -1, -1)
        return of_regimes(chain.ahead(every, belief.particles.log_weight.T), self.dynamics.stages)

    def regime_scales(self) -> Float[Tensor, " regime"] | None:
        """Return the scale of the noise in each regime, relative to their geometric mean; None if they share it."""
        log_scales = self.dynamics.log_scales()
        return (log_scales - log_scales.mean()).exp() if "scale" in self.dynamics.switching_parts else None
