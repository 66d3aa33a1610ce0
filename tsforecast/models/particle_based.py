"""Forecasters with switching dynamics, filtered with Rao-Blackwellised particles."""

import abc
import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian, particles
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.particles.filtering import GRADIENTS, AbstractSwitchingSystem, ParticleFiltered, ParticleState
from tsforecast.core.particles.smoothing import ParticleSmoothed, sample_given, smooth
from tsforecast.core.particles.switching import DiagonalGaussian
from tsforecast.models.base import AbstractForecaster, Batch, Belief, TimeSlice, known_past, scaled
from tsforecast.models.bounds import at_least
from tsforecast.models.closed_form import crps_of_forecast
from tsforecast.nn.mlp import BaseMixture, ProposalNetwork

# Logarithms of inverse scales stay in a range in which float32 filters safely whatever an optimiser does.
LARGEST_LOG_SCALE = 5.0
# Paths of a training step with the objective "crps".
_TRAINING_PATHS = 20


class AbstractSwitchingForecaster(AbstractForecaster):
    """What models with switches share: the Monte Carlo objective, filtering, sample paths, inferred regimes.

    The objective "likelihood" is the Monte Carlo objective sum_t log p^(y_t | y_1, ..., y_{t-1}) of the particle filter
    (FIVO; Maddison et al. 2017, Naesseth et al. 2018, Le et al. 2018); "crps" scores reparametrised sample paths of the
    window's future.

    Args:
        switch_dim: Size of the switch, or number of categories.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "ladder" (one network for switch and auxiliary), "encoder" (one for each) or "bootstrap" (the model
            itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1), beside what the network says:
            of its first dimension, the others are slower (0: the network alone, as in the paper). Regimes that last,
            such as volatility, are found with one near 1.
        num_particles: Particles of a series.
        forecast_particles: Of a series when it is filtered to be forecast, which costs less than in training and is
            more precise with more of them; 0 for as many as in training.
        resample_below: A series is resampled where its effective sample size is below this share of its particles; 0
            never, which is importance weighting of whole paths (IWAE).
        resampling_gradient: "fivo" (the paper's: that of the ancestors is dropped) or "stop-gradient" (kept).
        gradient_length: With the objective "crps", steps at the end of a window's past through which gradients go back
            (truncated backpropagation through time: faster, less memory, and blind to what takes longer); 0 for all.
        recurrence: Of the state into the next switch, in models that have it: "exact"; "paper": without conditioning
            the state on the switch that depends on it, which biases the likelihood, for comparison; or "none".
        linear_epochs: Epochs at the beginning in which the linear model inside (`linear_system`) is trained alone, by
            the closed-form CRPS of its forecasts: far faster than with particles.
        kwargs: Arguments of every forecaster.
    """

    def __init__(
        self,
        *,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "encoder",
        persistence: float = 0.0,
        num_particles: int = 10,
        forecast_particles: int = 0,
        resample_below: float = 0.5,
        resampling_gradient: str = "fivo",
        gradient_length: int = 0,
        recurrence: str = "exact",
        linear_epochs: int = 0,
        particle_length: int = 0,
        objective: str = "likelihood",
        learning_rate: float = 5e-3,
        network_learning_rate: float = 5e-3,
        **kwargs,
    ) -> None:
        super().__init__(
            objective=objective, learning_rate=learning_rate, network_learning_rate=network_learning_rate, **kwargs
        )
        for name, value, choices in (
            ("proposal", proposal, self.proposals()),
            ("resampling_gradient", resampling_gradient, GRADIENTS),
            ("recurrence", recurrence, ("exact", "paper", "none")),
        ):
            if value not in choices:
                raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
        at_least(1, switch_dim=switch_dim, num_particles=num_particles, hidden=hidden, embedding_dim=embedding_dim)
        at_least(0, forecast_particles=forecast_particles, resample_below=resample_below)
        at_least(0, gradient_length=gradient_length, linear_epochs=linear_epochs, particle_length=particle_length)
        if not 0 <= persistence < 1:
            raise ValueError(f"expected persistence to be at least 0 and below 1, got {persistence}")
        self.linear_epochs = linear_epochs
        self.switch_dim = switch_dim
        self.hidden = hidden
        self.persistence = persistence
        self.num_particles = num_particles
        self.forecast_particles = forecast_particles
        self.resample_below = resample_below
        self.resampling_gradient = resampling_gradient
        self.gradient_length = gradient_length
        self.proposal = proposal
        self.has_recurrence = recurrence != "none"
        self.condition_on_switch = recurrence == "exact"
        self.particle_length = particle_length
        self.mixture: BaseMixture  # of the parameters that the switch chooses
        self.inputs = self.input_network(embedding_dim, hidden)

    # What a model is.

    @classmethod
    def proposals(cls) -> tuple[str, ...]:
        """Names of the proposals that the model knows."""
        return ("encoder", "bootstrap")

    @abc.abstractmethod
    def system(
        self, time_slice: TimeSlice, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a time slice of time in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time, covariates, and the values which proposals look at.
            batch: Which series they are.
            location: Of the scaling.
            scale: Of the scaling.
            proposing: Whether proposals are needed.
        """

    @abc.abstractmethod
    def linear_system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[AbstractLinearSystem, Gaussian]:
        """The linear model inside, in scaled units, and the prior over its state; see `linear_epochs`."""

    # What follows from it.

    @property
    def is_linear(self) -> bool:
        """Whether it is trained as a linear model now."""
        return self.training and self.current_epoch < self.linear_epochs

    @property
    def encoder_input_dim(self) -> int:
        """Size of what networks see of an observation."""
        return self.num_targets * (1 if self.num_targets == 1 else 2)

    def encoder_inputs(
        self, time_slice: TimeSlice, values: Float[Tensor, "time series target"]
    ) -> Float[Tensor, "time series shown"]:
        """What networks see: scaled values, and of several targets which are observed."""
        seen = [] if self.num_targets == 1 else [time_slice.observed.to(values.dtype)]
        return torch.cat([values.clamp(-50.0, 50.0), *seen], -1)

    def make_proposal_network(self, auxiliary_dim: int) -> ProposalNetwork | None:
        """The network of the proposal, if it has one."""
        if self.proposal == "bootstrap":
            return None
        ladder = self.proposal == "ladder"
        return ProposalNetwork(
            self.encoder_input_dim + self.hidden, self.switch_dim, auxiliary_dim, self.hidden, ladder
        )

    def read_proposal(
        self, raw: Float[Tensor, "time series double"], values: Float[Tensor, "time series target"]
    ) -> DiagonalGaussian:
        """q(z_t) from a network's output, of models with an auxiliary: mean and log inverse scale.

        Args:
            raw: What the network says.
            values: Scaled observations.
        """
        return diagonal(raw)

    def proposed(
        self, network: ProposalNetwork | None, time_slice: TimeSlice, features: Tensor, location: Tensor, scale: Tensor
    ) -> tuple[DiagonalGaussian | None, DiagonalGaussian | None]:
        """q(s_t) and q(z_t) of every step, in one go."""
        if network is None:
            return None, None
        values, _ = scaled(time_slice, location, scale)
        switch, auxiliary = network(torch.cat([self.encoder_inputs(time_slice, values), features], -1))
        return diagonal(switch), None if auxiliary is None else self.read_proposal(auxiliary, values)

    def _filter(
        self,
        time_slice: TimeSlice,
        batch: Batch | Belief,
        location: Tensor,
        scale: Tensor,
        cut: int = 0,
        whole: bool = False,
        num_particles: int | None = None,
        **options,
    ) -> tuple[ParticleFiltered, AbstractSwitchingSystem, ParticleState]:
        """The particles after a time slice, and what they were before it; the first `cut` steps without gradient.

        What is known of single steps is of those after the cut, as are the particles before them. Unless the `whole` is
        asked for, a history is filtered by the linear model inside up to its last `particle_length` steps.
        """
        lead = len(time_slice.values) - self.particle_length
        prior, terms = None, None
        if self.particle_length and lead > 0 and not whole and not isinstance(batch, Belief):
            head = map_tensors(lambda x: x[:lead], time_slice)
            time_slice = map_tensors(lambda x: x[lead:], time_slice)
            prior, terms = self._filter_alone(head, batch, location, scale, min(cut, lead))
            cut = max(cut - lead, 0)
        system, own = self.system(time_slice, batch, location, scale, proposing=True)
        if isinstance(batch, Belief):
            assert isinstance(batch.state, ParticleState)
            start = batch.state
        else:
            start = system.begin(num_particles or self.num_particles, prior or own)
        values, observed = scaled(time_slice, location, scale)
        options = {"threshold": self.resample_below, "gradient": self.resampling_gradient, **options}
        parts = (values[:cut], None if observed is None else observed[:cut])
        if cut:
            with torch.no_grad():
                start = particles.filter(system, start, *parts, **options).particles
        parts = (values[cut:], None if observed is None else observed[cut:])
        filtered = particles.filter(system, start, *parts, first=cut, **options)
        if terms is not None and not cut:
            sizes = torch.full_like(terms, start.log_weight.shape[0])  # before the particles all are alike
            filtered = dataclasses.replace(
                filtered,
                log_likelihood=torch.cat([terms, filtered.log_likelihood]),
                effective_sample_size=torch.cat([sizes, filtered.effective_sample_size]),
            )
        return filtered, system, start

    def _filter_alone(
        self, time_slice: TimeSlice, batch: Batch, location: Tensor, scale: Tensor, cut: int = 0
    ) -> tuple[Gaussian, Float[Tensor, "time series"]]:
        """The linear model's belief after a time slice, and the log-likelihood of its steps; `cut` as in `_filter`."""
        belief, terms = None, []
        for part, with_gradient in ((slice(0, cut), False), (slice(cut, None), True)):
            piece = map_tensors(lambda x, part=part: x[part], time_slice)
            if len(piece.values):
                with torch.set_grad_enabled(torch.is_grad_enabled() and with_gradient):
                    linear, prior = self.linear_system(piece, batch)
                    belief, found = linear.posterior(belief or prior, *scaled(piece, location, scale))
                terms.append(found)
        assert belief is not None
        return belief, torch.cat(terms)

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Particles at the end of the batch's past, and estimates of the log-likelihood of each step."""
        location, scale = self.location_and_scale(batch) if belief is None else (belief.location, belief.scale)
        count = self.forecast_particles or None
        filtered, _, _ = self._filter(
            self.time_slice(batch, "past"), belief or batch, location, scale, num_particles=count
        )
        return self.belief_over(filtered.particles, batch, location, scale), filtered.log_likelihood

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """By `objective`: the Monte Carlo objective per observed value, or the CRPS of sample paths."""
        if self.is_linear:
            past, (location, scale) = self.time_slice(batch, "past"), self.location_and_scale(batch)
            state, _ = self._filter_alone(past, batch, location, scale)
            belief = self.belief_over(state, batch, location, scale)
            return crps_of_forecast(self, self.linear_system, belief, batch)
        if self.objective == "crps":
            return self._forecast_loss(batch)
        location, scale = self.location_and_scale(batch)
        time_slice = self.time_slice(batch, "both")
        filtered, _, _ = self._filter(time_slice, batch, location, scale)
        return -filtered.log_likelihood.sum(0) / time_slice.observed.sum((0, 2)).clamp_min(1)

    def _forecast_loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Mean over the future of the fair CRPS of paths, E|X - y| - E|X - X'| / 2; see `AbstractLinearForecaster`.

        A path begins with a particle drawn by weight, and has the weight r = w / (w without its gradient) = 1: so the
        score teaches what weighs the particles, too (Scibior and Wood 2021). Not where weights never differ: the
        gradient of r would be nothing but the rounding of what cancels, and larger than that of the paths.
        """
        location, scale = self.location_and_scale(batch)
        past = self.time_slice(batch, "past")
        cut = max(len(past.values) - self.gradient_length, 0) if self.gradient_length else 0
        filtered, filtering, _ = self._filter(past, batch, location, scale, cut)
        chosen = particles.draw(filtered.particles, _TRAINING_PATHS)
        weight = chosen.log_weight if filtering.weighs else chosen.log_weight.detach()
        ratio = (weight - weight.detach()).exp()
        even = dataclasses.replace(chosen, log_weight=torch.zeros_like(chosen.log_weight))
        belief = self.belief_over(even, batch, location, scale)
        time_slice = self.time_slice(batch, "future")
        paths = self._paths(belief, time_slice, _TRAINING_PATHS)
        observed = time_slice.observed
        if self.transformation == "none":
            values, seen = scaled(time_slice, belief.location, belief.scale)
            observed = observed if seen is None else seen
            unit = 1.0
        else:
            size = self.mean_size(batch)
            paths = self.restore(paths * belief.scale + belief.location, size)
            values = torch.nan_to_num(batch["future_target"]).to(paths.dtype).reshape(observed.transpose(0, 1).shape)
            values = values.transpose(0, 1)
            unit = size + 1
        score = weighted_crps(paths, values.unsqueeze(1), ratio.unsqueeze(-1)) / unit
        return torch.where(observed, score, 0.0).sum((0, 2)) / observed.sum((0, 2)).clamp_min(1)

    def _paths(
        self,
        belief: Belief,
        time_slice: TimeSlice,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold: bool = False,
    ) -> Float[Tensor, "time sample series target"]:
        """Sample paths in scaled units."""
        assert isinstance(belief.state, ParticleState)
        system, _ = self.system(time_slice, belief, belief.location, belief.scale, proposing=False)
        steps = len(time_slice.time_feat)
        return particles.forecast(system, belief.state, steps, num_samples, generator, hold=hold)[0]

    def forecast(
        self,
        belief: Belief,
        future: Batch,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold_switch: bool = False,
    ) -> Float[Tensor, "series sample horizon target"]:
        """Sample paths of the model, given what is known of the future.

        Args:
            belief: At the end of the past.
            future: Its `future_*` fields are read, and `known_future` (NaN where free): what is known is filtered
                through, and the rest is drawn from the smoothed joint, exactly as the number of particles grows.
            num_samples: Number of paths.
            generator: Of random numbers.
            hold_switch: "What if the regime stays?": every path keeps the switch it begins with.
        """
        assert isinstance(belief.state, ParticleState)
        time_slice = self.time_slice(future, "future")
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not bool(observed.any()):
            paths = self._paths(belief, time_slice, num_samples, generator, hold_switch)
        elif hold_switch:
            raise ValueError("expected known values or a held switch, got both")
        else:
            values = self.transform(torch.where(observed, known, 0.0).to(belief.scale.dtype)).transpose(0, 1)
            time_slice = dataclasses.replace(time_slice, values=values, observed=observed.transpose(0, 1))
            system, _ = self.system(time_slice, belief, belief.location, belief.scale, proposing=True)
            values = torch.where(time_slice.observed, (values - belief.location) / belief.scale, 0.0)
            paths = sample_given(system, belief.state, values, time_slice.observed, num_samples, generator)
        return self.in_units(paths, belief.location, belief.scale, known)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """By backward simulation through particles, exact as their number grows."""
        location, scale = self.location_and_scale(batch)
        time_slice = self.time_slice(batch, "past")
        system, prior = self.system(time_slice, batch, location, scale, proposing=True)
        values, _ = scaled(time_slice, location, scale)
        start = system.begin(self.num_particles, prior)
        paths = sample_given(system, start, values, time_slice.observed, num_samples, generator)
        return self.in_units(paths, location, scale, known_past(batch))

    def track(self, batch: Batch, generator: torch.Generator | None = None) -> ParticleState:
        """The particles after every step of the batch's past, in scaled units, with a leading dimension of time.

        Args:
            batch: Its `past_*` fields are read.
            generator: Of random numbers.
        """
        return self._track(self.time_slice(batch, "past"), batch, *self.location_and_scale(batch), generator)[2]

    def regimes(
        self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> ParticleSmoothed:
        """Paths of switches and states of the batch's past, given all of it, in scaled units.

        Args:
            batch: Its `past_*` fields are read.
            num_samples: Paths.
            generator: Of random numbers.
        """
        time_slice, (location, scale) = self.time_slice(batch, "past"), self.location_and_scale(batch)
        tracked = self._track(time_slice, batch, location, scale, generator)
        return smooth(*tracked, *scaled(time_slice, location, scale), num_samples=num_samples, generator=generator)

    def _track(
        self, time_slice: TimeSlice, batch: Batch, location: Tensor, scale: Tensor, generator: torch.Generator | None
    ) -> tuple[AbstractSwitchingSystem, ParticleState, ParticleState]:
        """The system, the particles before a time slice, and those after each of its steps."""
        filtered, system, start = self._filter(
            time_slice, batch, location, scale, whole=True, keep_history=True, generator=generator
        )
        assert filtered.history is not None
        return system, start, filtered.history

    def regime_weights(self, smoothed: ParticleSmoothed) -> Float[Tensor, "time series basis"]:
        """Expected mixing weights of the base parameters, which for categories are their probabilities."""
        return self.mixture.mix(smoothed.switches).mean(1)

    def regime_scales(self) -> Float[Tensor, " basis"] | None:
        """Scale of the noise under each of the base parameters alone, as a multiple of what it usually is.

        A geometric mean over all sources of noise. None where the noise does not switch.
        """
        return None


def weighted_crps(
    paths: Float[Tensor, "time sample series target"],
    values: Float[Tensor, "time 1 series target"],
    ratio: Float[Tensor, "sample series 1"],
) -> Float[Tensor, "time series target"]:
    """Fair CRPS of samples, sum_i r_i |X_i - y| / n - sum_{i < j} r_i r_j |X_i - X_j| / (n (n - 1))."""
    count = paths.shape[1]
    ordered, order = paths.sort(1)
    weight = ratio.expand_as(paths).gather(1, order)
    below = weight.cumsum(1) - weight
    above = weight.sum(1, keepdim=True) - below - weight
    spread = (weight * ordered * (below - above)).sum(1) / (count * (count - 1))
    return (ratio * (paths - values).abs()).mean(1) - spread


def diagonal(raw: Float[Tensor, "*batch double"]) -> DiagonalGaussian:
    """Of means, and log inverse scales, side by side."""
    mean, log_inverse = raw.chunk(2, -1)
    return DiagonalGaussian(mean, variance(log_inverse))


def variance(log_inverse_scale: Tensor) -> Tensor:
    """Of a log inverse scale, bounded."""
    return (-2 * log_inverse_scale.clamp(-LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)).exp()
