"""Switching innovation state-space model: level, trend and seasons whose noises a switch sets."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import AbstractLinearSystem, Gaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.models.base import DATA_DECIDED, Batch, Belief, TimeSlice
from tsforecast.models.bounds import at_least
from tsforecast.models.issm import ISSMForecaster
from tsforecast.models.particle_based import AbstractSwitchingForecaster, diagonal, variance
from tsforecast.nn.mlp import BaseMixture, SwitchDynamics

# Scales are multiplied by at most e to this power, and divided by as much.
_LARGEST_FACTOR = 4.0
# Of the arguments of every forecaster those which the ISSM inside takes too.
_OF_THE_ISSM = DATA_DECIDED | {"transformation", "scaling", "clip", "num_samples"}


class RSGLSISSMForecaster(AbstractSwitchingForecaster):
    """RSGLS-ISSM: an ISSM whose transition and emission are fixed by its components, and whose noises switch.

    The switch s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise multiplies the scales of all noise sources by a
    mixture of base factors. Scales, dampings and prior of each series are those of an ISSM (see `ISSMForecaster`),
    which it equals while the factors are one; as such it may be trained, in closed form, for its first epochs.

    Args:
        components: Names joined by "+", see `ISSMForecaster`.
        num_bases: Number of base factors.
        learning_rate: Of the ISSM's parameters.
        network_learning_rate: Of everything else.
        kwargs: Arguments of every forecaster with switches.
    """

    network_names = ("inputs.", "mixture.", "dynamics.", "proposal_network.")

    def __init__(
        self,
        *,
        components: str = "auto",
        num_bases: int = 20,
        learning_rate: float = 0.1,
        network_learning_rate: float = 5e-3,
        **kwargs,
    ) -> None:
        shared = {name: value for name, value in kwargs.items() if name in _OF_THE_ISSM}
        issm = ISSMForecaster(components=components, **shared)
        self._season_names = issm.season_names
        super().__init__(learning_rate=learning_rate, network_learning_rate=network_learning_rate, **kwargs)
        self.save_hyperparameters()
        at_least(1, num_bases=num_bases)
        self.linear = issm
        states = sum(c.size for c in issm.components)
        # Noises with which a switch that persists has variance one.
        steady = -0.5 * math.log(max(1 - self.persistence**2, 1e-4))
        # Logarithms of factors; mixed evenly they are zero, and the model is the ISSM.
        calm_to_wild = 4 * (torch.arange(num_bases) + 0.5) / num_bases - 2
        bases = {
            "factor": calm_to_wild.unsqueeze(-1) + 0.1 * torch.randn(num_bases, len(issm.noise_names)),
            "switch_noise": steady + 0.1 * torch.randn(num_bases, self.switch_dim),
        }
        if self.has_recurrence:
            bases["recurrence"] = 0.1 * torch.randn(num_bases, self.switch_dim, states)
        self.mixture = BaseMixture(self.switch_dim, bases, self.hidden)
        self.dynamics = SwitchDynamics(self.switch_dim, self.hidden, persistence=self.persistence)
        self.proposal_network = self.make_proposal_network(0)

    @property
    def season_names(self) -> list[str]:
        """Names of the seasons, in the order of `season_index`."""
        return self._season_names

    def linear_system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[AbstractLinearSystem, Gaussian]:
        """Return the ISSM without switches."""
        return self.linear.system(time_slice, batch)

    def regime_scales(self) -> Float[Tensor, " basis"]:
        """Beside the scales of the ISSM of each series, which these factors multiply."""
        return self.mixture.bases["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).mean(-1).exp()

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Parts of the past, smoothed over the regimes too; see `ISSMForecaster.parts_of`."""
        time_slice = self.time_slice(batch, "past")
        location, scale = self.location_and_scale(batch)
        smoothed = self.regimes(batch, num_samples=20)
        system, _ = self.linear.system(time_slice, batch)
        return self.linear.parts_of(Gaussian(smoothed.mean, smoothed.cov), system, time_slice, location, scale)

    def system(
        self, time_slice: TimeSlice, batch: Batch | Belief, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """The system of a time slice of time in scaled units, and the prior over the state before it."""
        features = self.features(self.inputs, time_slice, batch)
        issm, prior = self.linear.system(time_slice, batch)
        bases = self.mixture.joined()

        def parameters(switch: Tensor, time: int) -> Regime:
            mixed = self.mixture.split(self.mixture.mix(switch) @ bases)
            factor = (2 * mixed["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)).exp()
            noise = (issm.state_noise[0] * factor[..., :-1]).unsqueeze(0)
            emission_noise = (issm.emission_noise[0] * factor[..., -1]).unsqueeze(0)
            step = dataclasses.replace(issm, state_noise=noise, emission_noise=emission_noise)
            transition, emission = step.at(time)
            return Regime(transition, emission, mixed.get("recurrence"), variance(mixed["switch_noise"]))

        proposal, _ = self.proposed(self.proposal_network if proposing else None, time_slice, features, location, scale)
        first, drift = self.dynamics(features)
        system = GaussianSwitching(
            diagonal(first),
            drift,
            parameters,
            proposal,
            active=time_slice.active,
            recurrent=self.has_recurrence,
            condition_on_switch=self.condition_on_switch,
        )
        return system, prior
