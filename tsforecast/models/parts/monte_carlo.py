"""Inference by Rao-Blackwellised particles in models with a linear system that a switch chooses at every step."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, particles
from tsforecast.core.particles.backward import draw_switches
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.smoothing import ParticleSmoothed, sample_given, smooth
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.regimes import chain
from tsforecast.models.parts.auxiliary import decoded, has_moments
from tsforecast.models.parts.inference import emissions
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.objectives import (
    crps_of_marginals,
    crps_of_particles,
    crps_of_paths,
    negative_log_likelihood,
)
from tsforecast.models.parts.particle_filter import ParticleFilter
from tsforecast.models.parts.particles_ahead import MIXED_PATHS, emitted_given, system_ahead, system_given
from tsforecast.models.parts.regimes import AbstractRegimeInference, Regimes
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics, Particles
from tsforecast.models.parts.units import Units, known_past, scaled
from tsforecast.models.records import Batch, Belief, Series, TimeSlice

# Paths of a training step with the objective "crps": of values, and of switches, which have less noise.
_TRAINING_PATHS, _TRAINING_MIXTURE = 20, 10
# Paths that smoothed components are means of.
_SMOOTHED_PATHS = 20


@dataclasses.dataclass(frozen=True, eq=False)
class ParticleInference(AbstractRegimeInference[AbstractSwitchingDynamics]):
    """Inference by particle filters, with mixtures or sample paths, and regimes by backward simulation.

    Attributes:
        dynamics: Dynamics of the model.
        units: Units of its targets.
        particles: Options of the particle filter.
        objective: "likelihood", or "crps" of a window's future: of paths of switches, or of values that are decoded.
        gradient_length: With "crps", steps at the end of the past through which gradients go back; 0 for all.
        likelihood: The loss for the objective "likelihood"; None for that of the filter.
        advice: What a user may do where filtering fails.
        linear_objective: That of the linear model inside while it is trained alone: "crps" or "likelihood".
        threshold: A series is resampled where its effective sample size is below this share of its particles, as in the
            papers. With 0 it never is, which is importance weighting of whole paths (IWAE).
        is_collapsed: Whether Kim's filter of categories, a Gaussian for each, takes the place of particles.
    """

    dynamics: AbstractSwitchingDynamics
    units: Units
    particles: Particles
    objective: str = "likelihood"
    gradient_length: int = 0
    likelihood: Callable[["ParticleInference", Batch], Float[Tensor, " series"]] | None = None
    advice: str = ""
    linear_objective: str = "crps"
    threshold: float = 0.5
    is_collapsed: bool = False

    @property
    def has_marginals(self) -> bool:
        """Return whether the distribution of a horizon is a mixture of Gaussians, given the sampled variables."""
        return has_moments(self.dynamics.decoder)

    @property
    def linear(self) -> None:
        """Return None: a switch chooses the system."""

    @property
    def _emits_targets(self) -> bool:
        """Return whether no network stands between the emission and the targets."""
        return self.dynamics.decoder is None

    @property
    def filtering(self) -> ParticleFilter:
        """Return the filter of its slices of time."""
        return ParticleFilter(self.dynamics, self.particles, self.threshold, self.advice)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return particles at the end of the batch's past, and estimates of the log-likelihood of each step."""
        location, scale = self.scale_of(batch, belief)
        known = (self.slice_of(batch, "past"), self.series_of(batch, belief), location, scale)
        start = None if belief is None else belief.particles
        if self.is_collapsed:
            filtered, _ = self.filtering.collapsed(*known, start)
        else:
            count = self.particles.forecast_particles or None  # None: as many as in training
            filtered, _, _ = self.filtering.run(*known, start, num_particles=count)
        return Belief(filtered.particles, location, scale, Series.of(batch)), filtered.log_likelihood

    # Losses.

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the Monte Carlo objective per observed value, or the CRPS of paths, by `objective`."""
        if linear:
            return self._linear_loss(batch)
        if self.objective == "crps":
            return self._forecast_loss(batch)
        if self.likelihood is not None:
            return self.likelihood(self, batch)
        time_slice = self.slice_of(batch, "both")
        run = self.filtering.collapsed if self.is_collapsed else self.filtering.run
        filtered, *_ = run(time_slice, Series.of(batch), *self.scale_of(batch))
        return negative_log_likelihood(filtered.log_likelihood, time_slice.observed)

    def _linear_loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Return the CRPS of the forecasts of the linear model inside, or its negative log-likelihood."""
        series, (location, scale) = Series.of(batch), self.scale_of(batch)
        if self.linear_objective == "likelihood":
            whole = self.slice_of(batch, "both")
            model = self.dynamics.linear(whole, series)
            terms = model.system.log_likelihood(model.prior, *scaled(whole, location, scale))
            return negative_log_likelihood(terms, whole.observed)
        state, _ = self.filtering.run_linear(self.slice_of(batch, "past"), series, location, scale)
        future = self.slice_of(batch, "future")
        system = self.dynamics.linear(future, series).system
        return crps_of_marginals(system, Belief(state, location, scale, series), future, batch, self.units)

    def _forecast_loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Return the mean over the future of the fair CRPS, of paths of switches where they give all; else of values.

        A path begins with a particle drawn by weight, and has the weight r = w / (w without its gradient) = 1. So the
        score also has gradients by the weights of the particles (Scibior and Wood 2021). Where weights never differ, r
        is used without its gradient. That gradient cancels but for rounding errors, and these are larger than the
        gradient of the paths.
        """
        location, scale = self.scale_of(batch)
        past, series = self.slice_of(batch, "past"), Series.of(batch)
        cut = max(len(past.values) - self.gradient_length, 0) if self.gradient_length else 0
        filtered, filtering, _ = self.filtering.run(past, series, location, scale, cut=cut)
        count = _TRAINING_MIXTURE if self._emits_targets else _TRAINING_PATHS
        chosen = particles.draw(filtered.particles, count)
        weight = chosen.log_weight if filtering.weighs else chosen.log_weight.detach()
        ratio = (weight - weight.detach()).exp()
        even = dataclasses.replace(chosen, log_weight=torch.zeros_like(chosen.log_weight))  # weights are in `ratio`
        belief = Belief(even, location, scale, series)
        future = self.slice_of(batch, "future")
        if self._emits_targets:
            system = system_ahead(self.dynamics, belief, future)
            emitted = particles.marginals(system, belief.particles, len(future.time_feat))
            return crps_of_particles(emitted, ratio, belief, future, batch, self.units)
        paths = self.paths(belief, future, _TRAINING_PATHS)
        return crps_of_paths(paths, ratio, belief, future, batch, self.units)

    # Forecasts.

    def paths(
        self,
        belief: Belief,
        time_slice: TimeSlice,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold: bool = False,
    ) -> Float[Tensor, "time sample series target"]:
        """Return sample paths in scaled units."""
        steps, system = len(time_slice.time_feat), system_ahead(self.dynamics, belief, time_slice)
        return particles.forecast(system, belief.particles, steps, num_samples, generator, hold=hold)[0]

    def marginals(self, belief: Belief, future: Batch) -> Marginals | None:
        """Return the marginal distributions of the horizon in float64, each a mixture over paths of switches.

        The paths are drawn, and given them all is exact; an auxiliary is drawn for each step anew. None where targets
        are not Gaussian given it.
        """
        if not self.has_marginals:
            return None
        time_slice, known = self.slice_of(future, "future"), future["known_future"]
        observed = ~torch.isnan(known)
        if not bool(observed.any()):
            return self.mixture_ahead(belief, time_slice, max(MIXED_PATHS, len(belief.particles.log_weight)))
        system, given = system_given(self.dynamics, self.units, belief, time_slice, known)
        emitted = emitted_given(system, belief, given, self._emits_targets)
        mixture = self._over_paths(emitted, belief)
        value, free = self.units.transform(torch.nan_to_num(known.double())).unsqueeze(1), ~observed.unsqueeze(1)
        mean, deviation = torch.where(free, mixture.mean, value), torch.where(free, mixture.deviation, 0.0)
        return dataclasses.replace(mixture, mean=mean, deviation=deviation)

    def mixture_ahead(
        self, belief: Belief, time_slice: TimeSlice, num_paths: int, generator: torch.Generator | None = None
    ) -> Marginals:
        """Return the marginal distributions of steps without a known value, as mixtures over paths of switches.

        Args:
            belief: The belief before them.
            time_slice: Time and covariates.
            num_paths: Components of the mixtures.
            generator: Source of random numbers.
        """
        drawn, system = (
            particles.draw(belief.particles, num_paths, generator),
            system_ahead(self.dynamics, belief, time_slice),
        )
        emitted = particles.marginals(system, drawn, len(time_slice.time_feat), generator)
        return self._over_paths(decoded(self.dynamics.decoder, emitted, generator), belief)

    def _over_paths(self, emitted: Gaussian, belief: Belief) -> Marginals:
        return Marginals.over_paths(emitted, belief.location, belief.scale, self.units.transformation, self.units.clip)

    def forecast(
        self,
        belief: Belief,
        future: Batch,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold_switch: bool = False,
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return sample paths; given known values they are exact as the number of particles grows.

        Args:
            belief: See `AbstractForecaster.forecast`.
            future: Likewise.
            num_samples: Likewise.
            generator: Likewise.
            hold_switch: Whether every path keeps the switch that it begins with ("what if the regime stays?").

        Raises:
            ValueError: If values are known and the switch is held.
        """
        time_slice = self.slice_of(future, "future")
        known = future["known_future"]
        if bool(torch.isnan(known).all()):
            paths = self.paths(belief, time_slice, num_samples, generator, hold_switch)
        elif hold_switch:
            raise ValueError("expected known values or a held switch, got both")
        else:
            system, given = system_given(self.dynamics, self.units, belief, time_slice, known)
            paths = sample_given(system, belief.particles, given.values, given.observed, num_samples, generator)
        return self.units.in_units(paths, belief.location, belief.scale, known)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples by backward simulation through particles, exact as their number grows."""
        location, scale = self.scale_of(batch)
        time_slice = self.slice_of(batch, "past")
        system, prior = self.dynamics.switching(time_slice, Series.of(batch), location, scale, proposing=True)
        values, _ = scaled(time_slice, location, scale)
        start = system.begin(self.particles.num_particles, prior)
        paths = sample_given(system, start, values, time_slice.observed, num_samples, generator)
        return self.units.in_units(paths, location, scale, known_past(batch))

    # What is inferred of the past.

    def track(self, batch: Batch, generator: torch.Generator | None = None) -> ParticleState:
        """Return the particles after every step of the batch's past, in scaled units, time outermost."""
        return self._tracked(batch, generator)[2]

    def _tracked(
        self, batch: Batch, generator: torch.Generator | None
    ) -> tuple[AbstractSwitchingSystem, ParticleState, ParticleState, Tensor, Tensor | None]:
        """Return the system of the past, the particles before it and after each step, and its scaled values."""
        time_slice, units = self.slice_of(batch, "past"), self.scale_of(batch)
        known = (time_slice, Series.of(batch), *units)
        filtered, system, start = self.filtering.run(*known, whole=True, keep_history=True, generator=generator)
        assert filtered.history is not None
        return system, start, filtered.history, *scaled(time_slice, *units)

    def smoothed(
        self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> ParticleSmoothed:
        """Return paths of switches and states of the batch's past, given all of it, in scaled units."""
        return smooth(*self._tracked(batch, generator), num_samples=num_samples, generator=generator)

    def regimes(self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None) -> Regimes:
        """Return the expected mixing weights of the base parameters over smoothed paths, or category probabilities.

        Those of categories are by Kim's smoother, and their path is the most likely one.
        """
        if self.is_collapsed:
            time_slice = self.slice_of(batch, "past")
            run, start = self.filtering.collapsed(time_slice, Series.of(batch), *self.scale_of(batch))
            known = (run.log_transition, run.log_density, start.log_weight.T, time_slice.active)
            smoothed = chain.smooth(*known)
            return Regimes(smoothed.probabilities, smoothed.pairs, chain.most_likely(*known)[0])
        drawn = draw_switches(*self._tracked(batch, generator), num_samples=num_samples, generator=generator)
        weights = self.dynamics.mixing_weights(drawn)
        mean = weights.mean(1)
        pairs = torch.einsum("tnsi,tnsj->tsij", weights[:-1], weights[1:]) / weights.shape[1]
        return Regimes(mean, torch.cat([torch.diag_embed(mean[:1]), pairs]), mean.argmax(-1))

    def regimes_ahead(
        self, belief: Belief, future: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> Float[Tensor, "time series regime"]:
        """Return the expected mixing weights at every step of the horizon, by sample paths."""
        time_slice = self.slice_of(future, "future")
        steps, system = len(time_slice.time_feat), system_ahead(self.dynamics, belief, time_slice)
        switches = particles.forecast(system, belief.particles, steps, num_samples, generator)[1]
        return self.dynamics.mixing_weights(switches).mean(1)

    def regime_scales(self) -> Float[Tensor, " regime"] | None:
        """Return the scale of the noise under each of the base parameters; None where the noise does not switch."""
        return self.dynamics.regime_scales()

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the smoothed components of the batch's past, averaged over regimes; see `Structure.parts_of`."""
        structure, tracked = self.named_structure(), self._tracked(batch, None)
        smoothed = smooth(*tracked, num_samples=_SMOOTHED_PATHS)
        regimes = (tracked[0].regime(switch, time) for time, switch in enumerate(smoothed.switches))
        emission = emissions(regime.emission for regime in regimes)
        assert self.dynamics.issm is not None
        time_slice = self.slice_of(batch, "past")
        has_effect = time_slice.dynamic_real.shape[-1] > 0
        effect = self.dynamics.issm.linear(time_slice, Series.of(batch)).effect if has_effect else None
        return structure.parts_of(smoothed.states.states, emission, effect, *self.scale_of(batch))
