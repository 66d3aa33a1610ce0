"""The parts of a model with switches: its dynamics, and the options of its particle filter."""

import abc
import dataclasses

from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.particles.filtering import AbstractSwitchingSystem
from tsforecast.core.particles.resampling import GRADIENTS
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.parts.inference import AbstractDynamics, LinearModel
from tsforecast.models.parts.issm_dynamics import ISSMDynamics
from tsforecast.models.records import Series, TimeSlice
from tsforecast.nn.decoders import AbstractDecoder


@dataclasses.dataclass(frozen=True)
class Particles:
    """Options of a particle filter.

    Attributes:
        num_particles: Number of particles of a series.
        forecast_particles: Number when a series is filtered to be forecast; 0 for as many as in training. This costs
            less than training, and more particles make it more precise.
        resampling_gradient: "fivo" drops the gradient of the ancestors, as the paper does; "stop-gradient" keeps it.
        particle_length: Steps at the end of a history that are filtered with particles; 0 for all. The linear model
            inside filters those before.

    Raises:
        ValueError: If a number is out of its range, or a name is not known.
    """

    num_particles: int = 10
    forecast_particles: int = 0
    resampling_gradient: str = "fivo"
    particle_length: int = 0

    def __post_init__(self) -> None:
        one_of(GRADIENTS, resampling_gradient=self.resampling_gradient)
        at_least(1, num_particles=self.num_particles)
        at_least(0, forecast_particles=self.forecast_particles, particle_length=self.particle_length)


class AbstractSwitchingDynamics(AbstractDynamics):
    """Parameters of a model with a linear system that a switch chooses at every step.

    Attributes:
        switch_dim: Size of the switch, or number of categories.
        issm: Parameters of the components of the state; None where it has none.
        decoder: Network of the targets given what is emitted; None where that is the targets.
    """

    switch_dim: int
    issm: ISSMDynamics | None
    decoder: AbstractDecoder | None

    @abc.abstractmethod
    def switching(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, proposing: bool
    ) -> tuple[AbstractSwitchingSystem, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time, covariates, and the values that proposals look at.
            series: Who the series are.
            location: Centre of the scaling.
            scale: Unit of the scaling.
            proposing: Whether proposals are needed.
        """

    @abc.abstractmethod
    def linear(self, time_slice: TimeSlice, series: Series) -> LinearModel:
        """Return the linear model inside, in scaled units, and the prior over its state.

        Args:
            time_slice: Time and covariates.
            series: Who the series are.
        """

    @abc.abstractmethod
    def mixing_weights(
        self, switches: Float[Tensor, "time sample series switch"]
    ) -> Float[Tensor, "time sample series basis"]:
        """Return the weights of the base parameters; for categories they are the probabilities."""

    @abc.abstractmethod
    def regime_scales(self) -> Float[Tensor, " basis"] | None:
        """Return the scale of the noise under each of the base parameters alone, as a multiple of its usual scale.

        It is a geometric mean over all sources of noise, and None where the noise does not switch.
        """
