"""Records that pass between data, models and inference."""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.correlation import Correlation
from tsforecast.core.gaussian import register_record
from tsforecast.core.particles.state import ParticleState
from tsforecast.models.bounds import above_zero, at_least

Batch = dict[str, Any]

INPUT_NAMES = [
    "past_target", "past_observed", "past_is_pad", "past_time_feat", "past_season_index", "past_dynamic_real",
    "future_time_feat", "future_season_index", "future_dynamic_real", "known_future",
    "series_index", "static_cat", "static_real",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """Facts about data and forecasts that a model is built from; the estimator finds them.

    Attributes:
        freq: Frequency of the data, as `pandas.Period` names it.
        prediction_length: Steps of a forecast.
        num_samples: Sample paths of a forecast if the caller does not say.
        scaling_length: Steps at the end of the past from which the scaling is taken; 0 for all.
        season: Main season in steps, for the scaling.
        typical_change: Typical change of a series from value to value, divided by its size, in the training data. It is
            the scale of a series without changes.
        typical_horizons: Number of horizons in the median series of the training data; 0 where it is not known.
        largest_move: Farthest that a forecast may leave the range of its values, in widths of this range; 0 for no
            bound.
        common_centre: Centre of all training data, transformed, where all series have one.
        common_scale: Unit of all training data, likewise.
        num_series: Series in the training data.
        num_targets: Components of the target.
        cardinality: Number of values of each static category.
        num_static_real: Number of static numbers.
        num_dynamic_real: Number of covariates known in advance.
        num_time_features: Number of time features.

    Raises:
        ValueError: If a number is out of its range.
    """

    freq: str = "D"
    prediction_length: int = 1
    num_samples: int = 100
    scaling_length: int = 0
    season: int = 1
    typical_change: float = 1.0
    typical_horizons: float = 0.0
    largest_move: float = 0.0
    common_centre: float = 0.0
    common_scale: float = 1.0
    num_series: int = 0
    num_targets: int = 1
    cardinality: list[int] = dataclasses.field(default_factory=list)
    num_static_real: int = 0
    num_dynamic_real: int = 0
    num_time_features: int = 0

    def __post_init__(self) -> None:
        at_least(1, prediction_length=self.prediction_length, num_samples=self.num_samples, season=self.season)
        at_least(1, num_targets=self.num_targets)
        at_least(0, scaling_length=self.scaling_length, num_series=self.num_series)
        at_least(0, num_static_real=self.num_static_real, num_dynamic_real=self.num_dynamic_real)
        at_least(0, num_time_features=self.num_time_features, typical_change=self.typical_change)
        at_least(0, typical_horizons=self.typical_horizons, largest_move=self.largest_move)
        above_zero(common_scale=self.common_scale)


@register_record
@dataclasses.dataclass(frozen=True)
class Series:
    """Who the series of a batch are.

    Attributes:
        index: Number of each series in the training data, 0 for unknown ones.
        static_cat: Codes of the static categories, -1 for unknown ones.
        static_real: Static numbers.
    """

    index: Int[Tensor, " series"]
    static_cat: Int[Tensor, "series category"]
    static_real: Float[Tensor, "series static"]

    @classmethod
    def of(cls, batch: Batch) -> "Series":
        """Return the series of a batch."""
        return cls(batch["series_index"], batch["static_cat"], batch["static_real"])


@register_record
@dataclasses.dataclass(frozen=True)
class BankState:
    """The belief of the models of a bank at the end of the past.

    Attributes:
        states: Belief over the last state of each structure, of shape (series, transformation).
        location: Centre of the scaling, of values divided by the size and transformed, in float64.
        scale: Unit of the scaling, likewise.
        size: Size of the series.
        evidence: Log-likelihood of each model, in which the past is forgotten.
        seen: Number of values that tell of the variances, in which the past is forgotten.
        squares: Sum of their squared errors, standardised by each model, likewise.
    """

    states: tuple[Gaussian, ...]
    location: Float[Tensor, "series transformation"]
    scale: Float[Tensor, "series transformation"]
    size: Float[Tensor, "series 1"]
    evidence: Float[Tensor, "series structure transformation"]
    seen: Float[Tensor, " series"]
    squares: Float[Tensor, "series structure transformation"]


@register_record
@dataclasses.dataclass(frozen=True)
class PoolState:
    """The beliefs of the members of a pool at the end of the past.

    Attributes:
        members: The belief of each.
    """

    members: tuple["Belief", ...]


@register_record
@dataclasses.dataclass(frozen=True)
class JointState:
    """The beliefs of several targets at the end of the past.

    Attributes:
        members: The belief of each.
        correlation: Of their errors.
    """

    members: tuple["Belief", ...]
    correlation: Correlation


@register_record
@dataclasses.dataclass(frozen=True)
class Belief:
    """All of the past that the future needs.

    Attributes:
        state: Belief over the last state, in scaled units: a Gaussian, particles with switches, those of a bank, the
            beliefs of a pool, or those of several targets.
        location: Centre of the scaling, frozen when filtering began, in float64.
        scale: Unit of the scaling, frozen likewise.
        series: Who the series are.
        memory: Memory of a recurrent network, in models that have one.
        seen: Lowest and highest value that has been seen, in the units of the data, where forecasts are bounded by
            them; infinite where there was none.
    """

    state: Gaussian | ParticleState | BankState | PoolState | JointState
    location: Float[Tensor, "series target"]
    scale: Float[Tensor, "series target"]
    series: Series
    memory: Float[Tensor, "series layer 2 hidden"] | None = None
    seen: Float[Tensor, "series 2 target"] | None = None

    @property
    def gaussian(self) -> Gaussian:
        """Return the state of a model without particles."""
        assert isinstance(self.state, Gaussian)
        return self.state

    @property
    def bank(self) -> BankState:
        """Return the states of a bank of models."""
        assert isinstance(self.state, BankState)
        return self.state

    @property
    def pool(self) -> PoolState:
        """Return the beliefs of a pool of models."""
        assert isinstance(self.state, PoolState)
        return self.state

    @property
    def joint(self) -> JointState:
        """Return the beliefs of several targets."""
        assert isinstance(self.state, JointState)
        return self.state

    @property
    def particles(self) -> ParticleState:
        """Return the state of a model with particles."""
        assert isinstance(self.state, ParticleState)
        return self.state


@register_record
@dataclasses.dataclass(frozen=True)
class TimeSlice:
    """A slice of the time of a batch of series, time outermost; values that are not observed are zero.

    Attributes:
        values: Targets in the units of the data, transformed but not scaled, in float64.
        observed: False where missing.
        active: False before the series begins; None where all have begun.
        time_feat: Time features.
        season_index: Active factor of each season; one series wide where all agree.
        dynamic_real: Covariates.
    """

    values: Float[Tensor, "time series target"]
    observed: Bool[Tensor, "time series target"]
    active: Bool[Tensor, "time series"] | None
    time_feat: Float[Tensor, "time series feature"]
    season_index: Int[Tensor, "time #series season"]
    dynamic_real: Float[Tensor, "time series covariate"]

    def followed_by(self, later: "TimeSlice") -> "TimeSlice":
        """Return one slice of this time and the later one."""
        active = self.active
        if active is not None:
            # By then a series has begun.
            active = torch.cat([active, active.new_ones(len(later.values), active.shape[1])])
        wide = max(self.season_index.shape[1], later.season_index.shape[1])
        index = [x.season_index.expand(-1, wide, -1) for x in (self, later)]  # one column may be that of all series
        names = ("values", "observed", "time_feat", "dynamic_real")
        joined = {name: torch.cat([getattr(self, name), getattr(later, name)]) for name in names}
        return TimeSlice(**joined, active=active, season_index=torch.cat(index))
