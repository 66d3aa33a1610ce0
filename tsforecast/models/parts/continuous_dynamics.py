"""Parameters of components in continuous time, and the system that they make of the gaps of some series."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.continuous import AbstractSDE, over_gaps
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
        """Return how large what is not regular is at each time, by the phases of the cycles; 1 in the middle."""
        assert self.rhythm is not None
        order = torch.arange(1, _RHYTHM + 1, dtype=self.rhythm.dtype, device=self.rhythm.device)
        angle = 2 * math.pi * order * self._phases(time_slice).unsqueeze(-1)
        waves = torch.stack([angle.cos(), angle.sin()], -1)  # (time, series, cycle, harmonic, 2)
        return (waves * self.rhythm).sum((-3, -2, -1)).clamp(-_LOUDEST, _LOUDEST).exp()

    def _reading(self, sde: AbstractSDE, size: Float[Tensor, "time series"]) -> Float[Tensor, "time series state"]:
        """Return with which weights an observation reads the states: those of what fades by the size of the noise."""
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
        found = self.timed.parts_of(states, reading)
        if effects.shape[-1]:
            explained = (time_slice.dynamic_real * effects).sum(-1)
            found["covariates"] = explained, torch.zeros_like(explained)
        return found
