"""Regimes in continuous time: a Markov chain that jumps between dense systems."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.continuous import JumpChain
from tsforecast.core.gaussian import unbind
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import Regime
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.continuous_dynamics import TimedGLSDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics
from tsforecast.models.records import Series, TimeSlice

_LARGEST_FACTOR = 4.0  # of scales of noises, a logarithm
_RATES = (-12.0, 2.0)  # logarithms of rates of jumps, in one over the unit of time
_LEAST = 1e-30  # probability of another regime within a cell


class TimedRegimeDynamics(AbstractSwitchingDynamics):
    """Dense systems in continuous time; a Markov chain chooses one of them. See `tsforecast.models.continuous`.

    Each regime changes drift and noises of a system that all share. The chain is read on a grid of cells of time, as in
    `TimedSwitchingDynamics`.

    Args:
        inside: The system that all regimes share.
        cell: Length of a cell, in nanoseconds.
        regimes: Number of regimes.
        persistence: Initial probability that a regime lasts for a unit of time, above 0 and below 1.

    Raises:
        ValueError: If a number is out of its range.
    """

    def __init__(self, inside: TimedGLSDynamics, cell: int, regimes: int, persistence: float) -> None:
        super().__init__()
        self.decoder = None
        at_least(1, cell=cell, switch_dim=regimes)
        if not 0 < persistence < 1:
            raise ValueError(f"expected persistence to be above 0 and below 1, got {persistence}")
        self.inside, self.issm, self.cycles, self.cell, self.switch_dim = inside, None, (), cell, regimes
        states = len(inside.turn)
        self.turns = torch.nn.Parameter(0.02 * torch.randn(regimes, states, states))
        self.dampings = torch.nn.Parameter(0.02 * torch.randn(regimes, states, states))
        calm_to_wild = 2 * (torch.arange(regimes) + 0.5) / regimes - 1
        noises = states + 1  # of each state, and that of an observation
        self.factors = torch.nn.Parameter(calm_to_wild.unsqueeze(-1) + 0.1 * torch.randn(regimes, noises))
        # All rates out of a regime together keep the share `persistence` of it in a unit of time.
        rate = -math.log(persistence) / max(regimes - 1, 1)
        self.log_rates = torch.nn.Parameter(torch.full((regimes, regimes), math.log(rate)))

    @property
    def num_states(self) -> int:
        """Return the number of states."""
        return len(self.inside.turn)

    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the system that all regimes share, and the prior over its state."""
        return self.inside.linear(time_slice, series)

    def mixing_weights(
        self, switches: Float[Tensor, "time sample series switch"]
    ) -> Float[Tensor, "time sample series basis"]:
        """Return the switches, since they are one-hot."""
        return switches

    def regime_scales(self) -> Float[Tensor, " basis"]:
        """Return the scale of the noise in each regime, a geometric mean over all noises."""
        return self.factors.clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).mean(-1).exp()

    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[CategoricalSwitching, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        factors = self.factors.clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)
        each: list[LinearSystem] = []
        for turn, damping, factor in zip(self.turns, self.dampings, factors, strict=True):
            sde = self.inside.equation(turn, damping, factor[:-1])
            system = self.inside.given(sde, time_slice, series, factor[-1]).system
            assert isinstance(system, LinearSystem)
            each.append(system)
        shared = self.inside.linear(time_slice, series)
        assert isinstance(shared.system, LinearSystem)
        at = unbind(
            (
                torch.stack([one.transition.matrix for one in each], -3),
                torch.stack([one.transition.noise for one in each], -3),
                torch.stack([one.emission.noise for one in each], -3),
                shared.system.emission.matrix,
                shared.system.emission.offset,
            )
        )
        chain = JumpChain(self.log_rates.clamp(*_RATES))
        # A gap of 0 has no other regime.
        log_prob = chain.transition(time_slice.time_feat[..., -1]).clamp_min(_LEAST).log().unbind()
        zeros = shared.prior.mean.new_zeros(self.num_states)

        def parameters(switch: Tensor, time: int) -> Regime:
            matrices, noises, emission_noises, matrix, offset = at(time)
            chosen = (torch.einsum("...k,...kij->...ij", switch, x) for x in (matrices, noises, emission_noises))
            moved, noise, emission_noise = chosen
            return Regime(LinearGaussian(moved, zeros, noise), LinearGaussian(matrix, offset, emission_noise))

        return CategoricalSwitching(
            chain.stationary.log().expand(1, len(series.index), -1),
            lambda switch, time: torch.einsum("...k,...kj->...j", switch, log_prob[time]),
            parameters,
            active=time_slice.active,
        ), shared.prior
