"""The dynamics of a model, and inference in them; a forecaster passes its calls on to these."""

import abc
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Generic, Optional, TypeVar

import torch
from jaxtyping import Bool, Float
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
from tsforecast.models.parts.units import Units, scaled
from tsforecast.models.records import Batch, Belief, Series, TimeSlice


class AbstractDynamics(torch.nn.Module, abc.ABC):
    """The parameters of a model, and the state-space system that they make of a slice of time.

    Attributes:
        season_names: Seasons whose indices a batch carries, in the order of `season_index`.
        structure: Components of the state; None where it has none with names.
        is_pooled: Whether no parameter belongs to a series.
        is_growing: Whether a training window has all of the past before its split, as a forecast has it.
        takes_all: Whether training takes all of a long history of hours, not its last weeks alone.
    """

    season_names: tuple[str, ...] = ()
    structure: Structure | None = None
    is_pooled: bool = False
    is_growing: bool = False
    takes_all: bool = False


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

    @property
    @abc.abstractmethod
    def linear(self) -> Optional["AbstractLinearMixture[Any]"]:
        """Return this inference if the model is linear, or a mixture of linear models; else None."""

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
    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone, which may cost less."""

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

        Several targets with a model each are series one after the other, targets outermost.

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


@dataclasses.dataclass(frozen=True)
class LinearMember:
    """A linear model over a slice of time; its batch has several transformations one after the other.

    Attributes:
        model: Its system, and the belief over the state before the slice.
        time_slice: The slice in transformed units.
        location: Centre of the scaling.
        scale: Unit of the scaling.
        structure: Components of the state; None where it has none with names.
        transformations: Names of the transformations.
        size: Divisor of the data before a transformation.
        components: Number of components of `AbstractInference.marginals` under each transformation.
    """

    model: LinearModel
    time_slice: TimeSlice
    location: Float[Tensor, "stacked target"]
    scale: Float[Tensor, "stacked target"]
    structure: Structure | None
    transformations: tuple[str, ...]
    size: Float[Tensor, "series 1"]
    components: int = 1

    @property
    def data(self) -> tuple[Float[Tensor, "time stacked target"], Bool[Tensor, "time stacked target"] | None]:
        """Return scaled values, and which of them are observed and near, see `scaled`."""
        return scaled(self.time_slice, self.location, self.scale)

    @property
    def seen(self) -> Float[Tensor, "time stacked target"]:
        """Return scaled values, NaN where they are missing or too far."""
        values, observed = self.data
        return values if observed is None else torch.where(observed, values, torch.nan)


class AbstractLinearMixture(AbstractInference[SomeDynamics], abc.ABC, Generic[SomeDynamics]):
    """Inference in a linear model, or in a mixture of linear models, each of which can be asked alone."""

    @property
    @abc.abstractmethod
    def is_single(self) -> bool:
        """Return whether the model is one linear system, whose answers are in transformed units."""

    @abc.abstractmethod
    def begin(self, batch: Batch, like: Batch) -> Belief:
        """Return the belief before the first step of a batch's past.

        Args:
            batch: Its `past_*` fields are read.
            like: Another batch of the same series, whose past gives location and scale.
        """

    @abc.abstractmethod
    def members_of(self, batch: Batch, part: str, belief: Belief, apart: bool = False) -> Iterator[LinearMember]:
        """Yield the linear models over a part of a batch, in the order of the components of `marginals`.

        Args:
            batch: The batch.
            part: "past", "future" or "both".
            belief: The belief before this part.
            apart: Whether each transformation is a member of its own.
        """

    @abc.abstractmethod
    def weights(self, belief: Belief) -> list[Float[Tensor, "series transformation"]]:
        """Return the weights of all models, in the order of `members_of`."""

    @abc.abstractmethod
    def filter_weighted(
        self, batch: Batch, belief: Belief | None = None
    ) -> tuple[Belief, Float[Tensor, "time series"], list[Float[Tensor, "#time series transformation"]]]:
        """Return the result of `filter`, and the weights of all models before each step, as `weights` orders them."""
