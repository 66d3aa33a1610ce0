"""Units of the targets: transformation, location and scale of every series, and the way back."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.torch_internals import is_transformed
from tsforecast.models.bounds import one_of
from tsforecast.models.records import Batch, Belief, DataSpec, TimeSlice
from tsforecast.models.transformations import TRANSFORMATIONS, transformation_of

# An observation further from the centre than so many scales counts as missing: its square is soon infinite in float32.
FARTHEST = 1e7
SCALINGS = ("series", "history", "training", "none")


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Options of the units of the targets inside a model.

    Attributes:
        transformation: Transformation of the target before scaling: "none", "log1p" (counts), "asinh" (spikes of both
            signs), "sqrt" (Box and Cox, for counts) or "logit" (shares, from 0 to 1). "auto" takes log1p if 99 % of the
            training data are whole numbers and none is negative.
        scaling: "series" centres and scales every series by its own past, see `Units.of_past`; "history" does so by the
            mean and the mean change of all of its past; and "training" takes one centre and one unit for all series,
            those of the training data. "none" leaves the values as they are. That is for series that share an origin
            and a unit which mean something (positions, angles). The unit should be about a step's change, for which the
            initial noises are meant.
        clip: "nonnegative" cuts forecasts at zero, and "none" does not. "auto" does if the training data have no
            negative value.

    Raises:
        ValueError: If a name is not known.
    """

    transformation: str = "auto"
    scaling: str = "series"
    clip: str = "auto"

    def __post_init__(self) -> None:
        one_of(("auto", *TRANSFORMATIONS), transformation=self.transformation)
        one_of(SCALINGS, scaling=self.scaling)
        one_of(("auto", "none", "nonnegative"), clip=self.clip)


@dataclasses.dataclass(frozen=True)
class Units:
    """The way from the values of a batch to those that a model computes with, and back.

    Values and locations are in float64: the digits of a meter reading are lost unless its centre is taken away before
    they are rounded to the type of the model. Scales, and what is scaled, have that type.

    Attributes:
        data: What the model knows of its data.
        options: What was chosen. Here "auto" is no transformation and no clipping, since the estimator resolves it
            before.
        support: What targets can be: "real" numbers, "counts", or from the "unit" interval.
    """

    data: DataSpec
    options: Scaling
    support: str = "real"

    @property
    def transformation(self) -> str:
        """Return the name of the transformation."""
        return "none" if self.options.transformation == "auto" else self.options.transformation

    @property
    def clip(self) -> str:
        """Return "nonnegative" if forecasts are cut at zero, else "none"."""
        return "none" if self.options.clip == "auto" else self.options.clip

    @property
    def is_scale_free(self) -> bool:
        """Return whether data in another unit give the same forecast in that unit."""
        return (
            self.transformation == "none" and self.options.scaling in ("series", "history") and self.support == "real"
        )

    @property
    def largest_value(self) -> float:
        """Return the largest size of a value that the model can take."""
        return largest_value(self.transformation, self.support)

    def transform(self, values: Tensor) -> Tensor:
        """Return values in transformed units."""
        return transformation_of(self.transformation).apply(values)

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        """Return values in the units of the data, clipped at zero if that was chosen; see `restored`."""
        values = transformation_of(self.transformation).restore(values, size)
        return values.clamp_min(0.0) if self.clip == "nonnegative" else values

    def in_units(
        self,
        paths: Float[Tensor, "time sample series target"],
        location: Float[Tensor, "series target"],
        scale: Float[Tensor, "series target"],
        known: Float[Tensor, "series time target"],
    ) -> Float[Tensor, "series sample time target"]:
        """Return paths in the units of the data, with known values (not NaN) in their place."""
        samples = self.restore((paths * scale + location).permute(2, 1, 0, 3))
        known = known.unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def too_far(self, batch: Batch, belief: Belief, name: str = "past_target") -> Bool[Tensor, "series time target"]:
        """Return a mask of the values of a batch further than `FARTHEST` scales from the centre, see `scaled`.

        Args:
            batch: A batch of the series of the belief.
            belief: A belief, whose scaling is read.
            name: "past_target" or "known_future"; NaN is not far.
        """
        values = self.transform(batch[name].double())
        return (values - belief.location.unsqueeze(1)).abs() > FARTHEST * belief.scale.unsqueeze(1)

    def scaled(self, values: Tensor, belief: Belief) -> Float[Tensor, "time series target"]:
        """Return values of a batch (series, time, target) in the scaled units of a belief, time first."""
        return in_scale(self.transform(values.double()).transpose(0, 1), belief.location, belief.scale)

    def mean_size(self, batch: Batch) -> Float[Tensor, "series target"]:
        """Return the mean absolute value of the past, in the units of the data."""
        past = torch.where(batch["past_observed"], batch["past_target"].double().abs(), 0.0)
        size = past.sum(1) / batch["past_observed"].sum(1).clamp_min(1)
        return size.reshape(len(size), self.data.num_targets)

    def of_past(
        self, batch: Batch, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]]:
        """Return location and scale of every series, from its past.

        Both come from the last `scaling_length` observed values, or from all if that is 0. The location is the mean of
        the first season. The scale is the mean absolute difference from the season before, where a whole season of
        differences is observed. Otherwise it is that from the value before, or without any difference the mean absolute
        distance from the location. A constant series, or one of a single value, is scaled by `typical_change` times
        `own_change`, divided by the number of its values. That is the scale if only one of its steps had been typical.
        One without any observation is scaled by 1. Steps in `past_is_tick` of a batch stand for no observation and do
        not count. For other kinds of scaling see `Scaling`.
        """
        if self.options.scaling in ("none", "training"):
            common = self.options.scaling == "training"
            centre, unit = (self.data.common_centre, self.data.common_scale) if common else (0.0, 1.0)
            shape = (len(batch["past_target"]), self.data.num_targets)
            location = batch["past_target"].new_full(shape, centre, dtype=torch.float64)
            return location, torch.full_like(location, unit, dtype=dtype)
        time_slice = self.time_slice(batch, "past", dtype)
        values, observed = time_slice.values, time_slice.observed
        if "past_is_tick" in batch:  # moments between observations would break the differences of these
            # To the front; all others stay in their order.
            order = batch["past_is_tick"].T.int().argsort(dim=0, descending=True, stable=True).unsqueeze(-1)
            values, observed = (x.gather(0, order.expand(x.shape)) for x in (values, observed))
        own = self.data.typical_change * transformation_of(self.transformation).own_change(values)
        if self.options.scaling == "history":
            _, scale = location_and_scale(values, own, observed, dataclasses.replace(self.data, season=1))
            return masked_mean(values, observed), scale.to(dtype)
        location, scale = location_and_scale(values, own, recent(observed, self.data.scaling_length), self.data)
        return location, scale.to(dtype)

    def time_slice(self, batch: Batch, part: str, dtype: torch.dtype) -> TimeSlice:
        """Return the `past` or the `future` of a batch, or `both` one after the other, time first."""
        if part == "both":
            return self.time_slice(batch, "past", dtype).followed_by(self.time_slice(batch, "future", dtype))
        time_feat = batch[f"{part}_time_feat"].transpose(0, 1)
        index = batch[f"{part}_season_index"].transpose(0, 1)
        shape = (*time_feat.shape[:2], self.data.num_targets)
        if f"{part}_target" in batch:
            observed = batch[f"{part}_observed"].transpose(0, 1)
            values = torch.where(observed, batch[f"{part}_target"].transpose(0, 1), 0.0)
        else:
            values, observed = time_feat.new_zeros(shape), torch.zeros(shape, dtype=torch.bool, device=time_feat.device)
        active = None
        padded = batch["past_is_pad"] if part == "past" else None
        if padded is not None and (is_transformed(padded) or bool(padded.any())):
            active = ~padded.T
            started = active.int().argmax(0)  # the padding takes the calendar of the first step; its own is not read
            steps = torch.arange(len(index), device=index.device).unsqueeze(-1)
            index = index.gather(0, torch.maximum(steps, started).unsqueeze(-1).expand(index.shape))
        if not is_transformed(index) and bool((index == index[:, :1]).all()):
            index = index[:, :1]  # one calendar for all: seasons are looked up once
        return TimeSlice(
            values=torch.where(observed, self.transform(values.double()), 0.0),
            observed=observed,
            active=active,
            time_feat=time_feat.to(dtype),
            season_index=index,
            dynamic_real=batch[f"{part}_dynamic_real"].transpose(0, 1).to(dtype),
        )


def largest_value(transformation: str, support: str) -> float:
    """Return the largest size of a value that models of a transformation and a support can take."""
    if support == "counts":
        return 2.0**53  # whole numbers beyond have gaps
    return transformation_of(transformation).largest


def known_past(batch: Batch) -> Float[Tensor, "series time target"]:
    """Return the observed values of the batch's past, and NaN elsewhere."""
    return torch.where(batch["past_observed"], batch["past_target"], torch.nan)


def in_scale(values: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """Return values in scaled units, of the type of the scale."""
    return ((values - location) / scale).to(scale.dtype)


def scaled(
    time_slice: TimeSlice, location: Tensor, scale: Tensor
) -> tuple[Float[Tensor, "time series target"], Bool[Tensor, "time series target"] | None]:
    """Return values in scaled units, and the mask of the observed ones; None if all are.

    Values too far from the centre count as missing.
    """
    values = in_scale(time_slice.values, location, scale)
    observed = time_slice.observed & (values.abs() <= FARTHEST)
    values = torch.where(observed, values, 0.0)
    if not is_transformed(observed) and bool(observed.all()):
        return values, None
    return values, observed


def near(time_slice: TimeSlice, location: Tensor, scale: Tensor) -> TimeSlice:
    """Return a slice with values too far from the centre as missing, for transformations that hide them."""
    close = (time_slice.values - location).abs() <= FARTHEST * scale
    observed = time_slice.observed & close
    return dataclasses.replace(time_slice, values=torch.where(observed, time_slice.values, 0.0), observed=observed)


def recent(observed: Bool[Tensor, "time series target"], length: int) -> Bool[Tensor, "time series target"]:
    """Return a mask of the last observed values, `length` of each series; all observed ones if 0."""
    return observed & (observed.flip(0).cumsum(0).flip(0) <= length) if length else observed


def location_and_scale(
    values: Float[Tensor, "time series target"],
    own: Float[Tensor, "time series target"],
    seen: Bool[Tensor, "time series target"],
    data: DataSpec,
) -> tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]]:
    """Return location and scale of every series from its values that count; see `Units.of_past`.

    Args:
        values: In transformed units.
        own: The scales of values of series that have not changed.
        seen: Which values count.
        data: What is known of the data.
    """
    first = seen & (seen.cumsum(0) <= max(data.season, 1))
    location = masked_mean(values, first)
    spread = masked_mean((values - location).abs(), seen)
    change = spread
    for lag in (1, data.season):
        both = seen[lag:] & seen[:-lag]
        difference = masked_mean((values[lag:] - values[:-lag]).abs(), both)
        change = torch.where(both.sum(0) >= lag, difference, change)  # a season of differences says more than steps
    size = masked_mean(values.abs(), seen)
    scale = torch.maximum(change, 1e-2 * spread)  # a staircase hardly moves from step to step
    # Less is the rounding of a constant.
    scale = torch.where(scale > 1e-12 * size, scale, masked_mean(own, seen) / seen.sum(0).clamp_min(1))
    return location, torch.where(scale > 0, scale, 1.0)  # a series without a value


def last_values(
    values: Float[Tensor, "time series"], observed: Bool[Tensor, "time series"]
) -> Float[Tensor, " series"]:
    """Return the last observed value of each series; 0 where there is none."""
    steps = torch.arange(1, len(values) + 1, device=values.device).unsqueeze(1)
    last = (observed * steps).amax(0)
    return torch.where(last > 0, values.gather(0, (last - 1).clamp_min(0).unsqueeze(0)).squeeze(0), 0.0)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over time of the values in a mask; 0 where it has none."""
    return torch.where(mask, values, 0.0).sum(0) / mask.sum(0).clamp_min(1)
