"""Switching innovation state-space model: level, trend and seasons whose noises a switch sets."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, Regime
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.core.structural import ISSM
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.options import RECORDS
from tsforecast.models.parts.auxiliary import Auxiliary
from tsforecast.models.parts.bounds import at_least, one_of
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.issm_dynamics import ISSMDynamics
from tsforecast.models.parts.log_scales import diagonal, variance
from tsforecast.models.parts.monte_carlo import AbstractSwitchingDynamics, ParticleInference, Particles
from tsforecast.models.parts.optimisation import SwitchingTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.step_inputs import StepInputs
from tsforecast.models.parts.switching_bases import check_switch
from tsforecast.models.parts.units import Scaling, Units, scaled
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import ProposalNetwork
from tsforecast.nn.mlp import BaseMixture, SwitchDynamics

# Scales are multiplied by at most e to this power, and divided by as much.
_LARGEST_FACTOR = 4.0


class SwitchingISSMDynamics(AbstractSwitchingDynamics):
    """An ISSM, and base factors of its noises that a switch mixes; see `RSGLSISSMForecaster`.

    Args:
        data: What the model knows of its data.
        components: Names joined by "+", see `component_names`.
        num_bases: Number of base factors.
        switch_dim: Size of the switch.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" or "bootstrap".
        persistence: Initial share of the switch that stays.
        recurrence: How the next switch depends on the state.

    Raises:
        ValueError: If a name is not known, a number is out of its range, or there are several targets.
    """

    def __init__(
        self,
        data: DataSpec,
        *,
        components: str,
        num_bases: int,
        switch_dim: int,
        hidden: int,
        embedding_dim: int,
        proposal: str,
        persistence: float,
        recurrence: str,
    ) -> None:
        super().__init__()
        check_switch(switch_dim, hidden, embedding_dim, persistence, recurrence)
        at_least(1, num_bases=num_bases)
        issm = ISSMDynamics(data, components)
        assert issm.structure is not None
        self.structure, self.season_names = issm.structure, issm.season_names
        self.switch_dim, self.recurrence = switch_dim, recurrence
        self.sees = Auxiliary(data.num_targets)
        self.step_inputs = StepInputs(data, self.season_names)
        self.inputs = self.step_inputs.network(embedding_dim, hidden)
        self.issm = issm
        states = sum(component.size for component in issm.structure.components)
        # Log inverse scale of the noise with which a switch that persists has variance one.
        steady = -0.5 * math.log(max(1 - persistence**2, 1e-4))
        # Logarithms of factors. Mixed evenly they are zero, and the model is the ISSM.
        calm_to_wild = 4 * (torch.arange(num_bases) + 0.5) / num_bases - 2
        noises = len(issm.structure.noise_names)
        bases = {
            "factor": calm_to_wild.unsqueeze(-1) + 0.1 * torch.randn(num_bases, noises),
            "switch_noise": steady + 0.1 * torch.randn(num_bases, switch_dim),
        }
        if recurrence != "none":
            bases["recurrence"] = 0.1 * torch.randn(num_bases, switch_dim, states)
        self.mixture = BaseMixture(switch_dim, bases, hidden)
        self.dynamics = SwitchDynamics(switch_dim, hidden, persistence=persistence)
        self.proposal_network: ProposalNetwork | None = None
        if proposal != "bootstrap":
            self.proposal_network = ProposalNetwork(self.sees.encoder_input_dim + hidden, switch_dim, 0, hidden, False)

    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the ISSM without switches."""
        return self.issm.linear(time_slice, series)

    def regime_scales(self) -> Float[Tensor, " basis"] | None:
        """Return the factors by which the bases multiply the scales of the ISSM, as geometric means over its noises."""
        return self.mixture.bases["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).mean(-1).exp()

    def mixing_weights(
        self, switches: Float[Tensor, "time sample series switch"]
    ) -> Float[Tensor, "time sample series basis"]:
        """Return the weights of the base factors."""
        return self.mixture.mix(switches)

    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        features = self.inputs(self.step_inputs.read(time_slice, series), series.index)
        linear = self.issm.linear(time_slice, series)
        issm = linear.system
        assert isinstance(issm, ISSM)
        bases = self.mixture.joined()

        def parameters(switch: Tensor, time: int) -> Regime:
            mixed = self.mixture.split(self.mixture.mix(switch) @ bases)
            factor = (2 * mixed["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)).exp()
            noise = (issm.state_noise[0] * factor[..., :-1]).unsqueeze(0)
            emission_noise = (issm.emission_noise[0] * factor[..., -1]).unsqueeze(0)
            step = dataclasses.replace(issm, state_noise=noise, emission_noise=emission_noise)
            transition, emission = step.at(time)
            return Regime(transition, emission, mixed.get("recurrence"), variance(mixed["switch_noise"]))

        proposal = None
        if proposing and self.proposal_network is not None:
            values, _ = scaled(time_slice, location, scale)
            seen = self.sees.encoder_inputs(None, time_slice, values)
            proposal = diagonal(self.proposal_network(torch.cat([seen, features], -1))[0])
        first, drift = self.dynamics(features)
        system = GaussianSwitching(
            diagonal(first),
            drift,
            parameters,
            proposal,
            active=time_slice.active,
            recurrent=self.recurrence != "none",
            condition_on_switch=self.recurrence == "exact",
        )
        return system, linear.prior


class RSGLSISSMForecaster(AbstractForecaster[ParticleInference]):
    """RSGLS-ISSM: an ISSM whose transition and emission are fixed by its components, and whose noises switch.

    The switch s_t = F(s_{t-1}) x_{t-1} + f(s_{t-1}, u_t) + noise multiplies the scales of all noise sources by a
    mixture of base factors. Scales, dampings and prior of each series are those of an ISSM (see `ISSMForecaster`). The
    model equals this ISSM while the factors are one. It may be trained as such, in closed form, in its first epochs.

    Args:
        data: What the estimator finds out about the data.
        training: How the model is trained.
        scaling: The units in which the model sees the targets.
        particles: Options of the particle filter.
        components: Names joined by "+", see `ISSMForecaster`.
        num_bases: Number of base factors.
        switch_dim: Size of the switch.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" (a network) or "bootstrap" (the model itself, without looking at the observation).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.
        recurrence: How the next switch depends on the state: "exact", "paper" or "none". "paper" does not condition the
            state on the switch that depends on it. That biases the likelihood, and is there for comparison.

    Raises:
        ValueError: If an option is not known or out of its range.
    """

    def __init__(
        self,
        data: DataSpec,
        training: SwitchingTraining = SwitchingTraining(),
        scaling: Scaling = Scaling(),
        particles: Particles = Particles(),
        *,
        components: str = "auto",
        num_bases: int = 20,
        switch_dim: int = 10,
        hidden: int = 64,
        embedding_dim: int = 50,
        proposal: str = "encoder",
        persistence: float = 0.0,
        recurrence: str = "exact",
    ) -> None:
        one_of(("encoder", "bootstrap"), proposal=proposal)
        dynamics = SwitchingISSMDynamics(
            data,
            components=components,
            num_bases=num_bases,
            switch_dim=switch_dim,
            hidden=hidden,
            embedding_dim=embedding_dim,
            proposal=proposal,
            persistence=persistence,
            recurrence=recurrence,
        )
        units = Units(data, scaling)
        inference = ParticleInference(dynamics, units, particles, training.objective, training.gradient_length)
        groups = ParameterGroups(
            training.learning_rate,
            ("inputs.", "mixture.", "dynamics.", "proposal_network."),
            training.network_learning_rate,
            linear_epochs=training.linear_epochs,
        )
        super().__init__(data, (training, scaling, particles), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)
