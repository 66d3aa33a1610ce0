"""Parameters of components and dense systems in continuous time, and their linear systems over gaps."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.continuous import AbstractSDE, DenseSDE, over_gaps, stable_drift
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.continuous_structure import TimedStructure
from tsforecast.models.parts.exact import AbstractLinearDynamics
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import SeriesParameters

LOWEST, HIGHEST = -7.0, 4.0  # logarithm of the scale of an observation's noise
_RHYTHM, _LOUDEST = 3, 3.0  # harmonics of the size of the noise over a cycle; largest logarithm of it


class TimedISSMDynamics(AbstractLinearDynamics):
    """Scales, rates and priors of every series in continuous time; see `tsforecast.models.continuous`.

    Time features of a batch are the gap before each step, in units, and the share of each cycle that has passed.

    Args:
        data: What the model knows of its data.
        components: Names joined by "+", see `TimedStructure`.
        unit: Of time, in nanoseconds.

    Raises:
        ValueError: If a name is not known, or there are several targets.
    """

    def __init__(self, data: DataSpec, components: str, unit: int) -> None:
        super().__init__()
        if data.num_targets != 1:
            raise ValueError(
                f"a sum of components is one target, got {data.num_targets}: forecast them as series, or take gls"
            )
        self.timed = TimedStructure.of(components, unit)
        self.cycles = self.timed.cycles
        self.sizes = [len(self.timed.initial), 1, data.num_dynamic_real]
        # Beside those of the components: the scale of the observation's noise, and effects of the covariates.
        initial = torch.cat([self.timed.initial, torch.tensor([-0.5]), torch.zeros(data.num_dynamic_real)])
        self.parameters_of_series = SeriesParameters(initial, data.num_series, data.cardinality)
        self.cycle_means = torch.nn.Parameter(torch.zeros(self.timed.num_means))
        shape = (len(self.cycles), _RHYTHM, 2)
        self.rhythm = torch.nn.Parameter(torch.zeros(shape)) if self.cycles else None

    def integrate_cycles(self, with_rhythm: bool) -> None:
        """Let cycles begin at zero with a variance that is learnt.

        A mean that few observations fit takes the place of the variance, and then is taken for known. Integrated out,
        the cycles of a series are as uncertain as its observations leave them.

        Args:
            with_rhythm: Whether the noise has a rhythm.
        """
        self.cycle_means.requires_grad_(False)
        if self.rhythm is not None:
            self.rhythm.requires_grad_(with_rhythm)

    def begin_at(self, frequency: float) -> None:
        """Let oscillations begin at a frequency, in radians in a unit of time."""
        names = [(one.kind, name) for one in self.timed.components for name in one.initial]
        for place, name in enumerate(names):
            if name == ("oscillation", "frequency"):
                self.parameters_of_series.population.data[place] = math.log(frequency)

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        own, log_noise, effects = self.parameters_of_series(series.index, series.static_cat).split(self.sizes, -1)
        sde, cov = self.timed.equations(own)
        noise = (2 * log_noise.clamp(LOWEST, HIGHEST)).exp().unsqueeze(-1)
        reading = None
        if self.rhythm is not None:
            size = self._sizes_of_noise(time_slice)
            noise, reading = noise * size.square()[..., None, None], self._reading(sde, size).unsqueeze(-2)
        offset = (time_slice.dynamic_real * effects).sum(-1, keepdim=True) if effects.shape[-1] else None
        system = over_gaps(sde, time_slice.time_feat[..., 0], noise, reading, offset)
        return LinearModel(system, self.timed.prior(cov, self.cycle_means, self._phases(time_slice)[0]))

    def _phases(self, time_slice: TimeSlice) -> Float[Tensor, "time series cycle"]:
        """Return the share of each cycle that has passed."""
        return time_slice.time_feat[..., 1 : 1 + len(self.cycles)]

    def _sizes_of_noise(self, time_slice: TimeSlice) -> Float[Tensor, "time series"]:
        """Return the size of the irregular part at each time, by the phases of the cycles; 1 in the middle."""
        assert self.rhythm is not None
        order = torch.arange(1, _RHYTHM + 1, dtype=self.rhythm.dtype, device=self.rhythm.device)
        angle = 2 * math.pi * order * self._phases(time_slice).unsqueeze(-1)
        waves = torch.stack([angle.cos(), angle.sin()], -1)  # (time, series, cycle, harmonic, 2)
        return (waves * self.rhythm).sum((-3, -2, -1)).clamp(-_LOUDEST, _LOUDEST).exp()

    def _reading(self, sde: AbstractSDE, size: Float[Tensor, "time series"]) -> Float[Tensor, "time series state"]:
        """Return the weights of the states in an observation: those of fading states times the size of the noise."""
        fades = self.timed.fades.to(sde.readout.device)
        return torch.where(fades, sde.readout * size.unsqueeze(-1), sde.readout)

    def parts_of(self, states: Gaussian, series: Series, time_slice: TimeSlice) -> dict[str, tuple[Tensor, Tensor]]:
        """Return mean and deviation of every component and of the covariates by name, (time, series), in scaled units.

        Args:
            states: Beliefs over the states.
            series: Who the series are.
            time_slice: Times and covariates.
        """
        own, _, effects = self.parameters_of_series(series.index, series.static_cat).split(self.sizes, -1)
        sde = self.timed.equations(own)[0]
        reading = sde.readout if self.rhythm is None else self._reading(sde, self._sizes_of_noise(time_slice))
        parts = self.timed.parts_of(states, reading)
        if effects.shape[-1]:
            explained = (time_slice.dynamic_real * effects).sum(-1)
            parts["covariates"] = explained, torch.zeros_like(explained)
        return parts


class TimedGLSDynamics(AbstractLinearDynamics):
    """Drift, diffusion and emission that all series share; see `tsforecast.models.continuous`.

    Args:
        data: What the model knows of its data.
        state_dim: Size of the state.

    Raises:
        ValueError: If the size is below 1.
    """

    cycles: tuple[int, ...] = ()

    def __init__(self, data: DataSpec, state_dim: int) -> None:
        super().__init__()
        at_least(1, state_dim=state_dim)
        turn, damping = torch.zeros(state_dim, state_dim), torch.full((state_dim,), 0.3)
        damping[0] = 0.03  # the first state is a level, pairs behind it turn ever more slowly
        for pair, first in enumerate(range(1, state_dim - 1, 2)):
            turn[first, first + 1] = 0.5 * 2.0**-pair
        reading = torch.zeros(state_dim)
        reading[0] = 1.0
        reading[1::2] = 1.0
        self.turn = torch.nn.Parameter(turn)
        self.damping = torch.nn.Parameter(torch.diag(damping))
        # A Cholesky factor: any number in it gives a covariance.
        self.noise_factor = torch.nn.Parameter(0.2 * torch.eye(state_dim))
        self.emission = torch.nn.Parameter(reading + 0.1 * torch.randn(data.num_targets, state_dim))
        self.prior_mean = torch.nn.Parameter(torch.zeros(state_dim))
        self.log_prior_scale = torch.nn.Parameter(torch.zeros(state_dim))
        inputs = data.num_dynamic_real
        self.target_inputs = torch.nn.Parameter(torch.zeros(data.num_targets, inputs)) if inputs else None
        initial = torch.full((data.num_targets,), -0.5)
        self.log_scales = SeriesParameters(initial, data.num_series, data.cardinality)

    def equation(
        self, turn: Tensor | float = 0.0, damping: Tensor | float = 0.0, log_factor: Tensor | float = 0.0
    ) -> DenseSDE:
        """Return the equation of the state, or that of a regime.

        Args:
            turn: What the regime adds to the matrix that turns the state.
            damping: What the regime adds to the matrix that damps it.
            log_factor: Logarithms of the factors by which it multiplies scales of noises, of each state.
        """
        # The lower triangle determines a covariance.
        factor = torch.as_tensor(log_factor).exp().unsqueeze(-1) * self.noise_factor.tril()
        drift = stable_drift(self.turn + turn, self.damping + damping)
        return DenseSDE(drift, factor @ factor.mT, self.emission[0])

    def given(
        self, sde: DenseSDE, time_slice: TimeSlice, series: Series, log_factor: Tensor | float = 0.0
    ) -> LinearModel:
        """Return the system of a time slice in scaled units by an equation, and the prior over the state before it.

        Args:
            sde: The equation of the state.
            time_slice: Time and covariates.
            series: Who the series are.
            log_factor: Logarithm of the factor of the scales of the observation's noise.
        """
        scales = self.log_scales(series.index, series.static_cat).clamp(LOWEST, HIGHEST) + log_factor
        noise = torch.diag_embed((2 * scales).exp())
        offset = None if self.target_inputs is None else time_slice.dynamic_real @ self.target_inputs.mT
        system = over_gaps(sde, time_slice.time_feat[..., 0], noise, self.emission, offset)
        variance = (2 * self.log_prior_scale.clamp(-4.0, 3.0)).exp()
        mean = self.prior_mean.expand(len(series.index), -1)
        return LinearModel(system, Gaussian(mean, torch.diag_embed(variance)))

    def linear(self, time_slice: TimeSlice, series: Series, memory: Tensor | None = None) -> LinearModel:
        """Return the system of a time slice in scaled units, and the prior over the state before it."""
        return self.given(self.equation(), time_slice, series)
