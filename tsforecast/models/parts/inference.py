"""The dynamics of a model, and inference in them; a forecaster passes its calls on to these."""

import abc
import dataclasses
from collections.abc import Iterable
from typing import Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import (
    ISSM,
    AbstractLinearGaussian,
    AbstractLinearSystem,
    ComposedSystem,
    Gaussian,
    LinearGaussian,
)
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.structure import Structure
from tsforecast.models.parts.units import Units
from tsforecast.models.records import Batch, Belief, Series, TimeSlice


class AbstractDynamics(torch.nn.Module, abc.ABC):
    """The parameters of a model, and the state-space system that they make of a slice of time.

    Attributes:
        season_names: Seasons whose indices a batch carries, in the order of `season_index`.
        structure: Components of the state; None where it has none with names.
        is_pooled: Whether no parameter belongs to a series.
        is_growing: Whether a training window has all of the past before its split, as a forecast has it.
    """

    season_names: tuple[str, ...] = ()
    structure: Structure | None = None
    is_pooled: bool = False
    is_growing: bool = False


@dataclasses.dataclass(frozen=True)
class LinearModel:
    """A linear system of a slice of time.

    Attributes:
        system: The system, in scaled units.
        prior: Prior over the state before the slice, for series that begin with it.
        memory: Memory of a recurrent network behind the slice, in models that have one.
    """

    system: AbstractLinearSystem
    prior: Gaussian
    memory: Float[Tensor, "series layer 2 hidden"] | None = None

    @property
    def effect(self) -> Float[Tensor, "time series"]:
        """Return the effect of covariates on the components of the system, in scaled units."""
        structure = self.system.structure if isinstance(self.system, ComposedSystem) else self.system
        assert isinstance(structure, ISSM)
        return structure.offset


def emissions(steps: Iterable[AbstractLinearGaussian]) -> LinearGaussian:
    """Return the emissions of some steps by their matrices, with dimensions of time and (where missing) sample."""
    dense = [emission.dense() for emission in steps]
    events = {"matrix": 2, "offset": 1, "noise": 2}
    stacks = {name: torch.stack([getattr(one, name) for one in dense]) for name in events}
    lead = max(3, *(stack.ndim - events[name] for name, stack in stacks.items()))
    return LinearGaussian(
        **{name: x.reshape(len(x), *[1] * (lead + events[name] - x.ndim), *x.shape[1:]) for name, x in stacks.items()}
    )


SomeDynamics = TypeVar("SomeDynamics", bound=AbstractDynamics)


class AbstractInference(abc.ABC, Generic[SomeDynamics]):
    """Losses, beliefs and forecasts of a model.

    Attributes:
        dynamics: Dynamics of the model.
        units: Units of its targets.
    """

    dynamics: SomeDynamics
    units: Units

    @property
    @abc.abstractmethod
    def has_marginals(self) -> bool:
        """Return whether `marginals` are known in closed form."""

    @abc.abstractmethod
    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the training loss per observed value in scaled units.

        Args:
            batch: Its past and future are read.
            linear: Whether only the linear model inside is trained, in models that have one.
        """

    @abc.abstractmethod
    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return a belief and log-likelihoods, see `AbstractForecaster.filter`."""

    @abc.abstractmethod
    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return sample paths, see `AbstractForecaster.forecast`."""

    @abc.abstractmethod
    def marginals(self, belief: Belief, future: Batch) -> Marginals | None:
        """Return the marginal distributions of the horizon in float64; None if they have no closed form.

        They are exact, or exact given paths of switches that are drawn.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read, and `known_future`, which is NaN where it is free.
        """

    @abc.abstractmethod
    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples of missing values, see `AbstractForecaster.impute`."""

    @abc.abstractmethod
    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the smoothed components of the batch's past, see `Structure.parts_of`.

        Raises:
            ValueError: If the state has no components with names.
        """

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the parameters; the model computes in it."""
        return next(self.dynamics.parameters()).dtype

    def slice_of(self, batch: Batch, part: str) -> TimeSlice:
        """Return the `past` or the `future` of a batch, or `both` one after the other."""
        return self.units.time_slice(batch, part, self.dtype)

    def scale_of(
        self, batch: Batch, belief: Belief | None = None
    ) -> tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]]:
        """Return location and scale: those of a belief, else of the batch's past."""
        return self.units.of_past(batch, self.dtype) if belief is None else (belief.location, belief.scale)

    def series_of(self, batch: Batch, belief: Belief | None = None) -> Series:
        """Return who the series are: those of a belief, else of the batch."""
        return Series.of(batch) if belief is None else belief.series

    def named_structure(self) -> Structure:
        """Return the components of the state.

        Raises:
            ValueError: If they have no names.
        """
        if self.dynamics.structure is None:
            raise ValueError(f"the state of {type(self.dynamics).__name__} has no components with names")
        return self.dynamics.structure
