"""What every forecaster shares: scaling, training step, the belief, and the bridge to GluonTS."""

import abc
import dataclasses
import math
from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.gaussian import register_record
from tsforecast.core.linalg import is_transformed
from tsforecast.core.particles.filtering import ParticleState
from tsforecast.models.bounds import at_least
from tsforecast.models.component_names import parse_component
from tsforecast.models.schedule import learning_rate_factor
from tsforecast.models.transformation import TRANSFORMATIONS, restored, transformed
from tsforecast.nn import InputNetwork

Batch = dict[str, Any]

# Constructor arguments which data decide: the estimator fills them in, the command line refuses them.
DATA_DECIDED = frozenset(
    {
        "freq", "prediction_length", "scaling_length", "season", "num_series", "num_targets", "cardinality",
        "num_static_real", "num_dynamic_real", "num_time_features", "image_shape", "seed",
    }
)  # fmt: skip

# An observation further from the centre than so many scales counts as missing: next to it float32 tells nothing of the
# scale apart, and its square is soon infinite.
FARTHEST = 1e7

# Of checkpoints and saved predictors; raised when older ones can no longer be read.
FORMAT = 3

INPUT_NAMES = [
    "past_target", "past_observed", "past_is_pad", "past_time_feat", "past_season_index", "past_dynamic_real",
    "future_time_feat", "future_season_index", "future_dynamic_real", "known_future",
    "series_index", "static_cat", "static_real",
]  # fmt: skip


@register_record
@dataclasses.dataclass(frozen=True)
class Belief:
    """All of the past that the future needs.

    Attributes:
        state: Belief over the last state, in scaled units: a Gaussian, or particles with switches.
        location: Centre of the scaling, frozen when filtering began.
        scale: Unit of the scaling, frozen likewise.
        series: Index of the series, 0 for unknown ones.
        static_cat: Codes of the static categories.
        static_real: Static numbers.
        memory: Of a recurrent network, for models that have one.
    """

    state: Gaussian | ParticleState
    location: Float[Tensor, "series target"]
    scale: Float[Tensor, "series target"]
    series: Int[Tensor, " series"]
    static_cat: Int[Tensor, "series category"]
    static_real: Float[Tensor, "series static"]
    memory: Float[Tensor, "series layer 2 hidden"] | None = None


@register_record
@dataclasses.dataclass(frozen=True)
class TimeSlice:
    """A time slice of time of a batch of series, time outermost; what is not observed is zero.

    Attributes:
        values: Targets in the units of the data, transformed but not scaled.
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


class AbstractForecaster(pl.LightningModule, abc.ABC):
    """A probabilistic forecaster of many series: Lightning module, and prediction network of GluonTS.

    A batch is a dict of tensors with the series first, as `tsforecast.data.transform.collate` makes it.

    Args:
        freq: Frequency of the data, as `pandas.Period` names it.
        prediction_length: Steps of a forecast.
        scaling_length: Steps at the end of the past from which the scaling is taken; 0 for all.
        season: Main season in steps, for the scaling.
        num_series: Series in the training data.
        num_targets: Components of the target.
        cardinality: Number of values of each static category.
        num_static_real: Number of static numbers.
        num_dynamic_real: Number of covariates known in advance.
        num_time_features: Number of time features.
        transformation: Of the target, before scaling: "none", "log1p" (counts) or "asinh" (spikes of both signs);
            "auto" takes log1p if the training data are whole numbers of which none is negative.
        scaling: "series" centres and scales every series by its own past, see `begin`; "none" leaves the values as they
            are: for series that share an origin and a unit which mean something (positions, angles), given in units
            of about a step's change, for which the initial noises are meant.
        clip: "nonnegative" cuts forecasts at zero, "none" does not, "auto" does if the training data have no negative
            value.
        objective: "crps" of the forecast of a window's future from its past: robust where the model is not true; or
            "likelihood", the exact one of past and future: efficient where it is.
        learning_rate: Of the parameters of the state-space model; falls to a hundredth over the training.
        network_learning_rate: Of networks, likewise.
        num_samples: Sample paths of a forecast if the caller does not say.
        seed: Of what is random in training; None for not reproducible.
    """

    def __init__(
        self,
        *,
        freq: str = "D",
        prediction_length: int = 1,
        scaling_length: int = 0,
        season: int = 1,
        num_series: int = 0,
        num_targets: int = 1,
        cardinality: list[int] | None = None,
        num_static_real: int = 0,
        num_dynamic_real: int = 0,
        num_time_features: int = 0,
        transformation: str = "auto",
        scaling: str = "series",
        clip: str = "auto",
        objective: str = "crps",
        learning_rate: float = 0.1,
        network_learning_rate: float = 0.01,
        num_samples: int = 100,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.linear_epochs = 0  # at the beginning, in which only a linear model inside is trained, where there is one
        self.network_rise = 0.2  # share of the training in which the learning rate of networks rises
        for name, value, choices in (
            ("transformation", transformation, ("auto", *TRANSFORMATIONS)),
            ("scaling", scaling, ("series", "none")),
            ("clip", clip, ("auto", "none", "nonnegative")),
            ("objective", objective, ("likelihood", "crps")),
        ):
            if value not in choices:
                raise ValueError(f"expected {name} to be one of {', '.join(choices)}, got {value!r}")
        at_least(1, prediction_length=prediction_length, num_samples=num_samples, season=season)
        at_least(1, num_targets=num_targets)
        at_least(0, scaling_length=scaling_length, num_series=num_series, num_static_real=num_static_real)
        at_least(0, num_dynamic_real=num_dynamic_real, num_time_features=num_time_features)
        at_least(0, learning_rate=learning_rate, network_learning_rate=network_learning_rate)
        self.freq = freq
        self.prediction_length = prediction_length
        self.scaling_length = scaling_length
        self.season = season
        self.num_targets = num_targets
        self.num_series = num_series
        self.cardinality = cardinality or []
        self.num_step_features = num_time_features + num_dynamic_real + num_static_real
        self.transformation = "none" if transformation == "auto" else transformation
        self.scaling = scaling
        self.clip = clip
        self.objective = objective
        self.learning_rate = learning_rate
        self.network_learning_rate = network_learning_rate
        self.matrix_learning_rate = learning_rate  # of models that have them
        self.num_samples = num_samples
        self.seed = seed

    # Prefixes of the parameters of networks, and names of those that are dense matrices of a linear system.
    network_names: tuple[str, ...] = ("network.",)
    matrix_names: tuple[str, ...] = ()
    # What the learning rates of a linear model inside begin with once more after its epochs, when networks join.
    linear_share = 0.0
    # What targets can be: "real" numbers, "counts", or from the "unit" interval.
    support = "real"

    # What a model is.

    @abc.abstractmethod
    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Negative log-likelihood per observed value of past and future, in scaled units."""

    @property
    @abc.abstractmethod
    def season_names(self) -> list[str]:
        """Names of the seasons whose indices the batch carries, in the order of `season_index`."""

    @abc.abstractmethod
    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """The belief after the batch's past, and the log-likelihood of each of its steps (scaled units).

        Args:
            batch: Its `past_*` fields are read.
            belief: From which to go on; None to begin.
        """

    @abc.abstractmethod
    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Sample paths of the batch's future, in the units of the data.

        Args:
            belief: At the end of the past.
            future: Its `future_*` fields are read, and `known_future` (NaN where free), on which paths are conditioned.
            num_samples: Number of paths.
            generator: Of random numbers.
        """

    @abc.abstractmethod
    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Joint samples of what is missing in the batch's past, given all of it, in the units of the data.

        Args:
            batch: Its `past_*` fields are read; observed values come back as they are.
            num_samples: Number of samples.
            generator: Of random numbers.
        """

    def log_likelihood(self, batch: Batch) -> Float[Tensor, " series"]:
        """Of the batch's future given its past, in scaled units (an estimate in models that have particles)."""
        belief, _ = self.filter(batch)
        names = ("target", "observed", "time_feat", "season_index", "dynamic_real")
        future = {f"past_{name}": batch[f"future_{name}"] for name in names}
        future["past_is_pad"] = torch.zeros_like(future["past_observed"][..., 0])
        return self.filter({**batch, **future}, belief)[1].sum(0)

    @property
    def is_scale_free(self) -> bool:
        """Whether data in another unit give the same forecast in that unit."""
        return self.transformation == "none" and self.scaling == "series" and self.support == "real"

    @property
    def largest_value(self) -> float:
        """The largest size of a value that the model can take."""
        return largest_value(self.transformation, self.support)

    def too_far(self, batch: Batch, belief: Belief, name: str = "past_target") -> Bool[Tensor, "series time target"]:
        """Which values of a batch are further than `FARTHEST` scales from the centre, see `scaled`.

        Args:
            batch: Of the series of the belief.
            belief: With their scaling.
            name: "past_target" or "known_future"; NaN is not far.
        """
        values = self.transform(batch[name].to(self.dtype))
        return (values - belief.location.unsqueeze(1)).abs() > FARTHEST * belief.scale.unsqueeze(1)

    # What GluonTS and Lightning call.

    def forward(
        self,
        past_target: Tensor,
        past_observed: Tensor,
        past_is_pad: Tensor,
        past_time_feat: Tensor,
        past_season_index: Tensor,
        past_dynamic_real: Tensor,
        future_time_feat: Tensor,
        future_season_index: Tensor,
        future_dynamic_real: Tensor,
        known_future: Tensor,
        series_index: Tensor,
        static_cat: Tensor,
        static_real: Tensor,
        num_samples: int | None = None,
    ) -> Tensor:
        """Sample paths (series, sample, horizon), with a last dimension of targets where there are several."""
        batch = {name: value for name, value in locals().items() if name in INPUT_NAMES}
        samples = self.forecast(self.filter(batch)[0], batch, num_samples or self.num_samples)
        return samples.squeeze(-1) if self.num_targets == 1 else samples

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch; what it draws follows from seed, epoch and number: a resumed run repeats it."""
        return self._step(batch, "train_loss", 0, self.current_epoch, batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch; what it draws is the same in every epoch, so that epochs can be compared."""
        return self._step(batch, "val_loss", 1, batch_idx)

    def _step(self, batch: Batch, name: str, *stream: int) -> Tensor:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices, enabled=self.seed is not None):
            if self.seed is not None:
                entropy = np.random.SeedSequence([self.seed % 2**63, *stream])
                torch.manual_seed(int(entropy.generate_state(1)[0]))
            loss = self.loss(batch).mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the training loss became {loss.item()} at step {self.global_step}: lower learning_rate, clip the "
                "gradient, or look for extreme values in the data (a transformation helps with spikes)"
            )
        self.log(name, loss, on_epoch=True, on_step=False, prog_bar=True, batch_size=len(batch["past_target"]))
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises a FloatingPointError where the gradient is not finite, before it makes the parameters so."""
        norm = torch.nn.utils.get_total_norm(p.grad for p in self.parameters() if p.grad is not None)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of the training loss became {norm.item()} at step {self.global_step}: lower the "
                "learning rates, shorten gradient_length where the model has it, or look for extreme values in the data"
            )

    def configure_optimizers(self) -> Any:
        """Adam with the paper's momenta; the learning rate falls exponentially by a factor of 100 over the run.

        That of networks rises first, so that they learn differences after the rest has learnt what is common: while
        noises are still wrong by orders of magnitude, they would run into corners from which no gradient leads back.
        Matrices have a rate of their own: every step of Adam moves all their entries, and what a transition keeps for
        hundreds of steps is soon lost.
        """
        networks = [p for name, p in self.named_parameters() if name.startswith(self.network_names)]
        matrices = [p for name, p in self.named_parameters() if name in self.matrix_names]
        apart = {id(p) for p in (*networks, *matrices)}
        total = float(self.trainer.estimated_stepping_batches)
        alone = self.linear_epochs / max(self.trainer.max_epochs or 1, self.linear_epochs, 1) * total
        of_networks = partial(learning_rate_factor, first=alone, last=total, rise=self.network_rise)
        of_rest = partial(learning_rate_factor, first=0.0, last=alone or total, again=total, share=self.linear_share)
        groups = [
            ([p for p in self.parameters() if id(p) not in apart], self.learning_rate, of_rest),
            (matrices, self.matrix_learning_rate, of_rest),
            (networks, self.network_learning_rate, of_networks),
        ]
        groups = [group for group in groups if group[0]]
        optimizer = torch.optim.Adam([{"params": group[0], "lr": group[1]} for group in groups], betas=(0.9, 0.95))
        if not math.isfinite(total) or total <= 0:
            return optimizer
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [of_group for _, _, of_group in groups])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Marks the checkpoint as ours."""
        checkpoint["tsforecast_format"] = FORMAT

    # GluonTS serialises a network by its constructor's arguments, and compares by them.
    def __getnewargs_ex__(self) -> tuple[tuple, dict[str, Any]]:
        return (), dict(self.hparams)

    @property
    def __init_args__(self) -> dict[str, Any]:
        return dict(self.hparams)

    # What models share.

    def location_and_scale(self, batch: Batch) -> tuple[Float[Tensor, "series target"], Float[Tensor, "series target"]]:
        """Location and scale of every series, from its past.

        Of the last `scaling_length` values observed (of all if that is 0), the centre is the mean of the first season;
        the scale the mean absolute difference from the season before, where a whole season of differences is observed,
        else from the value before; without any, the mean absolute distance from the centre. A constant series is
        scaled by its mean absolute value; one without any observation by 1. With `scaling="none"` 0 and 1.
        """
        if self.scaling == "none":
            location = batch["past_target"].new_zeros(len(batch["past_target"]), self.num_targets, dtype=self.dtype)
            return location, torch.ones_like(location)
        time_slice = self.time_slice(batch, "past")
        values, seen = time_slice.values, time_slice.observed
        if self.scaling_length:
            seen = seen & (seen.flip(0).cumsum(0).flip(0) <= self.scaling_length)
        first = seen & (seen.cumsum(0) <= max(self.season, 1))
        location = _mean(values, first)
        spread = _mean((values - location).abs(), seen)
        change = spread
        for lag in (1, self.season):
            both = seen[lag:] & seen[:-lag]
            difference = _mean((values[lag:] - values[:-lag]).abs(), both)
            change = torch.where(both.sum(0) >= lag, difference, change)
        size = _mean(values.abs(), seen)
        scale = torch.maximum(change, 1e-2 * spread)
        scale = torch.where(scale > 1e-6 * size, scale, size)
        return location, torch.where(scale > 0, scale, 1.0)

    def belief_over(self, state: Gaussian | ParticleState, batch: Batch, location: Tensor, scale: Tensor) -> Belief:
        """A belief with the batch's identities."""
        return Belief(state, location, scale, batch["series_index"], batch["static_cat"], batch["static_real"])

    def time_slice(self, batch: Batch, part: str) -> TimeSlice:
        """The `past` or the `future` of a batch, or `both` one after the other, time first."""
        if part == "both":
            past, future = self.time_slice(batch, "past"), self.time_slice(batch, "future")
            active = past.active
            if active is not None:
                active = torch.cat([active, active.new_ones(len(future.values), active.shape[1])])
            wide = max(past.season_index.shape[1], future.season_index.shape[1])
            index = [s.season_index.expand(-1, wide, -1) for s in (past, future)]
            names = ("values", "observed", "time_feat", "dynamic_real")
            joined = {name: torch.cat([getattr(past, name), getattr(future, name)]) for name in names}
            return TimeSlice(**joined, active=active, season_index=torch.cat(index))
        time_feat = batch[f"{part}_time_feat"].transpose(0, 1)
        index = batch[f"{part}_season_index"].transpose(0, 1)
        dtype = self.dtype
        shape = (*time_feat.shape[:2], self.num_targets)
        if f"{part}_target" in batch:
            observed = batch[f"{part}_observed"].transpose(0, 1)
            values = torch.where(observed, batch[f"{part}_target"].transpose(0, 1), 0.0)
        else:
            values, observed = time_feat.new_zeros(shape), torch.zeros(shape, dtype=torch.bool, device=time_feat.device)
        active = None
        padded = batch["past_is_pad"] if part == "past" else None
        if padded is not None and (is_transformed(padded) or bool(padded.any())):
            active = ~padded.T
            started = active.int().argmax(0)  # the calendar of the padding is that of the first step: it is not read
            steps = torch.arange(len(index), device=index.device).unsqueeze(-1)
            index = index.gather(0, torch.maximum(steps, started).unsqueeze(-1).expand(index.shape))
        if not is_transformed(index) and bool((index == index[:, :1]).all()):
            index = index[:, :1]
        return TimeSlice(
            values=torch.where(observed, self.transform(values.to(dtype)), 0.0),
            observed=observed,
            active=active,
            time_feat=time_feat.to(dtype),
            season_index=index,
            dynamic_real=batch[f"{part}_dynamic_real"].transpose(0, 1).to(dtype),
        )

    def input_network(self, embedding_dim: int, hidden: int) -> InputNetwork:
        """One layer over what `features` puts together."""
        size = self.num_step_features + sum(self.cardinality)
        size += sum(parse_component(name).size for name in self.season_names)
        return InputNetwork(size, self.num_series, embedding_dim, hidden)

    def features(
        self, network: InputNetwork, time_slice: TimeSlice, batch: Batch | Belief
    ) -> Float[Tensor, "time series hidden"]:
        """What networks know of every step beside the observation."""
        series, categories, numbers = identities(batch)
        like = time_slice.time_feat
        sizes = [parse_component(name).size for name in self.season_names]
        codes = [*zip(time_slice.season_index.unbind(-1), sizes, strict=True)]
        codes += [*zip(categories.unbind(-1), self.cardinality, strict=True)]
        parts = [like, time_slice.dynamic_real, numbers] + [_one_hot(*code) for code in codes]
        wide = [x.to(like.dtype).expand(*like.shape[:2], -1) for x in parts]
        return network(torch.cat(wide, -1), series)

    def in_units(
        self,
        paths: Float[Tensor, "time sample series target"],
        location: Float[Tensor, "series target"],
        scale: Float[Tensor, "series target"],
        known: Float[Tensor, "series time target"],
    ) -> Float[Tensor, "series sample time target"]:
        """Paths in the units of the data; what is known (not NaN) is put in their place."""
        samples = self.restore((paths * scale + location).permute(2, 1, 0, 3))
        known = known.to(samples.dtype).unsqueeze(1)
        return torch.where(torch.isnan(known), samples, known)

    def mean_size(self, batch: Batch) -> Float[Tensor, "series target"]:
        """Mean absolute value of the past, in the units of the data."""
        past = torch.where(batch["past_observed"], batch["past_target"].abs(), 0.0).to(self.dtype)
        size = past.sum(1) / batch["past_observed"].sum(1).clamp_min(1)
        return size.reshape(len(size), self.num_targets)

    def transform(self, values: Tensor) -> Tensor:
        """The chosen transformation."""
        return transformed(values, self.transformation)

    def restore(self, values: Tensor, size: Tensor | None = None) -> Tensor:
        """Back from transformed units to those of the data, clipped to the target's support; see `restored`."""
        values = restored(values, self.transformation, size)
        return values.clamp_min(0.0) if self.clip == "nonnegative" else values


def largest_value(transformation: str, support: str) -> float:
    """The largest size of a value that models of a transformation and a support can take."""
    if support == "counts":
        return 2.0**53  # whole numbers beyond have gaps
    return 1e36 if transformation in ("log1p", "asinh") else 1e300


def known_past(batch: Batch) -> Float[Tensor, "series time target"]:
    """The observed values of the batch's past, NaN elsewhere."""
    return torch.where(batch["past_observed"], batch["past_target"], torch.nan)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over time of what the mask keeps; 0 where it keeps nothing."""
    return torch.where(mask, values, 0.0).sum(0) / mask.sum(0).clamp_min(1)


def scaled(
    time_slice: TimeSlice, location: Tensor, scale: Tensor
) -> tuple[Float[Tensor, "time series target"], Bool[Tensor, "time series target"] | None]:
    """Values in scaled units and their mask, None if all are observed; those too far from the centre are not."""
    values = (time_slice.values - location) / scale
    observed = time_slice.observed & (values.abs() <= FARTHEST)
    values = torch.where(observed, values, 0.0)
    if not is_transformed(observed) and bool(observed.all()):
        return values, None
    return values, observed


def identities(batch: Batch | Belief) -> tuple[Tensor, Tensor, Tensor]:
    """Index of the series, static categories and static numbers."""
    if isinstance(batch, Belief):
        return batch.series, batch.static_cat, batch.static_real
    return batch["series_index"], batch["static_cat"], batch["static_real"]


def _one_hot(code: Tensor, size: int) -> Tensor:
    """As torch's, which does not work under `torch.func.vmap`."""
    return code.unsqueeze(-1) == torch.arange(size, device=code.device)
