"""Switches in continuous time: Ornstein-Uhlenbeck processes that choose the noise of components."""

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.continuous import OrnsteinUhlenbeck
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.particles.proposals import DiagonalGaussian
from tsforecast.core.particles.switching import GaussianSwitching
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.continuous_dynamics import TimedISSMDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics
from tsforecast.models.records import Series, TimeSlice
from tsforecast.nn.mlp import BaseMixture

_LARGEST_FACTOR = 4.0  # of scales of noises, a logarithm; as where steps are regular
_RATES = (-12.0, 2.0)  # logarithms of the rates at which a switch returns, in one over the unit of time
# Within a cell a switch stands still. Its paths have a density nevertheless, by which they are drawn backwards.
_LEAST_SPREAD = 1e-12


class TimedSwitchingDynamics(AbstractSwitchingDynamics):
    """Components in continuous time with noises that a switch sets; see `tsforecast.models.continuous`.

    The switch is an Ornstein-Uhlenbeck process of variance one in each dimension, ds = -rate s dt + sqrt(2 rate) dw. It
    is read on a grid of cells of time. The last time feature of a batch is the time from cell to cell, in units. It is
    zero within a cell, so that all moments of a cell share one switch.

    Args:
        inside: The components.
        cell: Length of a cell, in nanoseconds.
        num_bases: Number of base factors.
        switch_dim: Size of the switch.
        hidden: Width of the network that reads the weights of the base factors from the switch.
        persistence: Initial share of the first dimension that stays over a unit of time, above 0 and below 1. The
            log-odds of the last dimension are higher by 3, so that there are regimes of several time scales.

    Raises:
        ValueError: If a number is out of its range.
    """

    def __init__(
        self, inside: TimedISSMDynamics, cell: int, num_bases: int, switch_dim: int, hidden: int, persistence: float
    ) -> None:
        super().__init__()
        self.decoder = None
        at_least(1, cell=cell, num_bases=num_bases, switch_dim=switch_dim, hidden=hidden)
        if not 0 < persistence < 1:
            raise ValueError(f"expected persistence to be above 0 and below 1, got {persistence}")
        self.inside, self.issm = inside, None
        self.timed, self.cycles, self.cell, self.switch_dim = inside.timed, inside.cycles, cell, switch_dim
        # Slow dimensions beside fast ones.
        stays = (torch.full((switch_dim,), persistence).logit() + torch.linspace(0, 3, switch_dim)).sigmoid()
        self.log_rate = torch.nn.Parameter((-stays.log()).log())  # exp(-rate) is what stays in a unit of time
        calm_to_wild = 4 * (torch.arange(num_bases) + 0.5) / num_bases - 2
        noises = len(self.timed.components) + 1  # that of each component, and that of an observation
        factor = calm_to_wild.unsqueeze(-1) + 0.1 * torch.randn(num_bases, noises)
        self.mixture = BaseMixture(switch_dim, {"factor": factor}, hidden)

    @property
    def num_states(self) -> int:
        """Return the number of states."""
        return self.timed.num_states

    def integrate_cycles(self, with_rhythm: bool) -> None:
        """Let cycles begin at zero with a variance that is learnt, see `TimedISSMDynamics`."""
        self.inside.integrate_cycles(with_rhythm)

    def begin_at(self, frequency: float) -> None:
        """Let oscillations begin at a frequency, in radians in a unit of time."""
        self.inside.begin_at(frequency)

    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the components with all factors one, and the prior over their state."""
        return self.inside.linear(time_slice, series)

    def mixing_weights(
        self, switches: Float[Tensor, "time sample series switch"]
    ) -> Float[Tensor, "time sample series basis"]:
        """Return the weights of the base factors."""
        return self.mixture.mix(switches)

    def regime_scales(self) -> Float[Tensor, " basis"]:
        """Return the scale of the noise under each base factor alone, a geometric mean over all noises."""
        return self.mixture.bases["factor"].clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).mean(-1).exp()

    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[GaussianSwitching, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        inside = self.linear(time_slice, series)
        assert isinstance(inside.system, LinearSystem)
        at, bases = inside.system.by_step(), self.mixture.joined()
        rate = self.log_rate.clamp(*_RATES).exp()
        moved = OrnsteinUhlenbeck(rate, 2 * rate).discretise(time_slice.time_feat[..., -1:])
        keeps = moved.matrix[..., 0, 0].unbind()
        sizes = [one.size for one in self.timed.components]
        source = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(rate.device)
        noise = torch.ones_like(rate)

        def parameters(switch: Tensor, time: int) -> Regime:
            factor = self.mixture.split(self.mixture.mix(switch) @ bases)["factor"]
            factor = factor.clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).exp()
            transition, emission = at(time)
            of_state, of_emission = factor[..., source], factor[..., -1, None, None]
            state_noise = transition.noise * of_state.unsqueeze(-1) * of_state.unsqueeze(-2)
            return Regime(
                LinearGaussian(transition.matrix, transition.offset, state_noise),
                LinearGaussian(emission.matrix, emission.offset, emission.noise * of_emission.square()),
                switch_noise=noise,
            )

        first = torch.zeros(1, len(series.index), self.switch_dim, dtype=rate.dtype, device=rate.device)
        return GaussianSwitching(
            DiagonalGaussian(first, torch.ones_like(first)),  # its stationary distribution
            lambda switch, time: keeps[time] * switch,
            parameters,
            active=time_slice.active,
            spread=moved.noise[..., 0, 0].clamp_min(_LEAST_SPREAD),
        ), inside.prior

    def parts_of(self, states: Gaussian, series: Series, time_slice: TimeSlice) -> dict[str, tuple[Tensor, Tensor]]:
        """Return mean and deviation of every component by name; see `TimedISSMDynamics.parts_of`."""
        return self.inside.parts_of(states, series, time_slice)
