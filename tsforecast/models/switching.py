"""Forecasters with switching dynamics, filtered with Rao-Blackwellised particles."""

import abc
import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, particles
from tsforecast.core.particle_smoother import ParticleSmoothed, sample_given, smooth
from tsforecast.core.particles import GRADIENTS, AbstractSwitchingSystem, ParticleState
from tsforecast.core.switching import Diagonal
from tsforecast.models.base import AbstractForecaster, Batch, Belief, Stretch, identities, scaled
from tsforecast.models.components import parse_component
from tsforecast.nn.mlp import BaseMixture, GuessNetwork, InputNetwork

# Logarithms of inverse scales stay in a range in which float32 filters safely whatever an optimiser does.
_LARGEST = 5.0
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
        persistence: Initial weight of the switch in its own drift, a linear term beside the network (0: none, as in the
            paper); regimes that last are found sooner with one near 1.
        num_particles: Particles of a series.
        resample_below: A series is resampled where its effective sample size is below this share of its particles; 0
            never, which is importance weighting of whole paths (IWAE).
        resampling_gradient: "fivo" (the paper's: that of the ancestors is dropped) or "stop-gradient" (kept).
        recurrence: "exact", or "paper": without conditioning the state on the switch that depends on it, which biases
            the likelihood; for comparison.
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
        resample_below: float = 0.5,
        resampling_gradient: str = "fivo",
        recurrence: str = "exact",
        objective: str = "likelihood",
        learning_rate: float = 5e-3,
        **kwargs,
    ) -> None:
        super().__init__(objective=objective, learning_rate=learning_rate, **kwargs)
        for name, value, choices in (
            ("proposal", proposal, self.proposals()),
            ("resampling_gradient", resampling_gradient, GRADIENTS),
            ("recurrence", recurrence, ("exact", "paper")),
        ):
            if value not in choices:
                raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
        for name, value in (("switch_dim", switch_dim), ("num_particles", num_particles), ("hidden", hidden)):
            if value < 1:
                raise ValueError(f"expected {name} to be at least 1, got {value}")
        if not resample_below >= 0:
            raise ValueError(f"expected resample_below to be at least 0, got {resample_below}")
        self.switch_dim = switch_dim
        self.persistence = persistence
        self.num_particles = num_particles
        self.resample_below = resample_below
        self.resampling_gradient = resampling_gradient
        self.proposal = proposal
        self.condition_on_switch = recurrence == "exact"
        # A linear model inside, trained alone at first, where the model has one.
        self.linear: AbstractForecaster | None = None
        self.cardinality = kwargs.get("cardinality") or []
        numbers = ("num_time_features", "num_dynamic_real", "num_static_real")
        inputs = sum(kwargs.get(name, 0) for name in numbers) + sum(self.cardinality)
        inputs += sum(parse_component(name).size for name in self.season_names)
        self.mixture: BaseMixture  # of the parameters that the switch chooses
        self.inputs = InputNetwork(inputs, kwargs.get("num_series", 0), embedding_dim, hidden)

    # What a model is.

    @classmethod
    def proposals(cls) -> tuple[str, ...]:
        """Names of the proposals that the model knows."""
        return ("encoder", "bootstrap")

    @abc.abstractmethod
    def system(
        self, stretch: Stretch, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a stretch of time in scaled units, and the prior over the state before it.

        Args:
            stretch: Time, covariates, and the values which proposals look at.
            batch: Which series they are.
            location: Of the scaling.
            scale: Of the scaling.
            proposing: Whether proposals are needed.
        """

    # What follows from it.

    def features(self, stretch: Stretch, batch: Batch | Belief) -> Float[Tensor, "time series hidden"]:
        """What the networks know of every step beside the observation."""
        series, categories, numbers = identities(batch)
        like = stretch.time_feat
        sizes = [parse_component(name).size for name in self.season_names]
        codes = [*zip(stretch.season_index.unbind(-1), sizes, strict=True)]
        codes += [*zip(categories.unbind(-1), self.cardinality, strict=True)]
        parts = [like, stretch.dynamic_real, numbers] + [torch.nn.functional.one_hot(*code) for code in codes]
        wide = [x.to(like.dtype).expand(*like.shape[:2], -1) for x in parts]
        return self.inputs(torch.cat(wide, -1), series)

    def guesses(
        self, network: GuessNetwork | None, stretch: Stretch, features: Tensor, location: Tensor, scale: Tensor
    ) -> tuple[Diagonal | None, Diagonal | None]:
        """q(s_t) and q(z_t) of every step, in one go."""
        if network is None:
            return None, None
        values, _ = scaled(stretch, location, scale)
        seen = [] if self.num_targets == 1 else [stretch.observed.to(values.dtype)]
        switch, auxiliary = network(torch.cat([values.clamp(-50.0, 50.0), *seen, features], -1))
        return diagonal(switch), None if auxiliary is None else diagonal(auxiliary)

    def guess_network(self, auxiliary_dim: int, hidden: int) -> GuessNetwork | None:
        """The network of the proposal, if it has one."""
        if self.proposal == "bootstrap":
            return None
        inputs = self.num_targets * (1 if self.num_targets == 1 else 2) + hidden
        return GuessNetwork(inputs, self.switch_dim, auxiliary_dim, hidden, self.proposal == "ladder")

    def _filter(self, stretch: Stretch, batch: Batch | Belief, location: Tensor, scale: Tensor, **options):
        """The particles after a stretch, and what they were before."""
        system, prior = self.system(stretch, batch, location, scale, proposing=True)
        start = batch.state if isinstance(batch, Belief) else system.begin(self.num_particles, prior)
        assert isinstance(start, ParticleState)
        values, observed = scaled(stretch, location, scale)
        options = {"threshold": self.resample_below, "gradient": self.resampling_gradient, **options}
        filtered = particles.filter(system, start, values, observed, **options)
        return filtered, system, start

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Particles at the end of the batch's past, and estimates of the log-likelihood of each step."""
        location, scale = self.begin(batch) if belief is None else (belief.location, belief.scale)
        filtered, _, _ = self._filter(self.stretch(batch, "past"), belief or batch, location, scale)
        return self.belief_over(filtered.particles, batch, location, scale), filtered.log_likelihood

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """By `objective`: the Monte Carlo objective per observed value, or the CRPS of sample paths."""
        if self.linear is not None and self.training and self.current_epoch < self.linear_epochs:
            return self.linear.loss(batch)
        if self.objective == "crps":
            return self._forecast_loss(batch)
        location, scale = self.begin(batch)
        stretch = self.stretch(batch, "both")
        filtered, _, _ = self._filter(stretch, batch, location, scale)
        return -filtered.log_likelihood.sum(0) / stretch.observed.sum((0, 2)).clamp_min(1)

    def _forecast_loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Mean over the future of the fair CRPS of paths, E|X - y| - E|X - X'| / 2; see `AbstractLinearForecaster`."""
        belief, _ = self.filter(batch)
        stretch = self.stretch(batch, "future")
        paths = self._paths(belief, stretch, _TRAINING_PATHS)
        observed = stretch.observed
        if self.transformation == "none":
            values, _ = scaled(stretch, belief.location, belief.scale)
        else:
            paths = self.restore(paths * belief.scale + belief.location)
            values = torch.nan_to_num(batch["future_target"]).to(paths.dtype).reshape(observed.transpose(0, 1).shape)
            values = values.transpose(0, 1)
        ordered = paths.sort(1).values
        count = paths.shape[1]
        rank = torch.arange(1, count + 1, device=paths.device, dtype=paths.dtype)[:, None, None]
        spread = ((2 * rank - count - 1) * ordered).sum(1) / (count * (count - 1))
        score = (paths - values.unsqueeze(1)).abs().mean(1) - spread
        if self.transformation != "none":
            score = score / (self.mean_size(batch) + 1)
        return torch.where(observed, score, 0.0).sum((0, 2)) / observed.sum((0, 2)).clamp_min(1)

    def _paths(
        self,
        belief: Belief,
        stretch: Stretch,
        num_samples: int,
        generator: torch.Generator | None = None,
        hold: bool = False,
    ) -> Float[Tensor, "time sample series target"]:
        """Sample paths in scaled units."""
        assert isinstance(belief.state, ParticleState)
        system, _ = self.system(stretch, belief, belief.location, belief.scale, proposing=False)
        steps = len(stretch.time_feat)
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
        stretch = self.stretch(future, "future")
        known = future["known_future"]
        observed = ~torch.isnan(known)
        if not bool(observed.any()):
            paths = self._paths(belief, stretch, num_samples, generator, hold_switch)
        elif hold_switch:
            raise ValueError("expected known values or a held switch, got both")
        else:
            values = self.transform(torch.where(observed, known, 0.0).to(belief.scale.dtype)).transpose(0, 1)
            stretch = dataclasses.replace(stretch, values=values, observed=observed.transpose(0, 1))
            system, _ = self.system(stretch, belief, belief.location, belief.scale, proposing=True)
            values = torch.where(stretch.observed, (values - belief.location) / belief.scale, 0.0)
            paths = sample_given(system, belief.state, values, stretch.observed, num_samples, generator)
        samples = self.restore((paths * belief.scale + belief.location).permute(2, 1, 0, 3))
        known = known.to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def regimes(
        self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> ParticleSmoothed:
        """Paths of switches and states of the batch's past, given all of it, in scaled units.

        Args:
            batch: Its `past_*` fields are read.
            num_samples: Paths.
            generator: Of random numbers.
        """
        location, scale = self.begin(batch)
        stretch = self.stretch(batch, "past")
        filtered, system, start = self._filter(stretch, batch, location, scale, keep_history=True, generator=generator)
        assert filtered.history is not None
        values, observed = scaled(stretch, location, scale)
        return smooth(
            system, start, filtered.history, values, observed, num_samples=num_samples, generator=generator
        )  # fmt: skip

    def regime_weights(self, smoothed: ParticleSmoothed) -> Float[Tensor, "time series basis"]:
        """Expected mixing weights of the base parameters, which for categories are their probabilities."""
        return self.mixture.mix(smoothed.switches).mean(1)


def diagonal(raw: Float[Tensor, "*batch double"]) -> Diagonal:
    """Of means, and log inverse scales, side by side."""
    mean, log_inverse = raw.chunk(2, -1)
    return Diagonal(mean, variance(log_inverse))


def variance(log_inverse_scale: Tensor) -> Tensor:
    """Of a log inverse scale, bounded."""
    return (-2 * log_inverse_scale.clamp(-_LARGEST, _LARGEST)).exp()
