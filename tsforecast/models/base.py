"""The base of all forecasters: a module of torch and GluonTS around dynamics and inference in them."""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.models.options import make_model
from tsforecast.models.parts.inference import AbstractInference
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.parameter_groups import ParameterGroups, PoolGroups
from tsforecast.models.parts.reach import bounds, widened
from tsforecast.models.records import INPUT_NAMES, Batch, Belief, DataSpec

# Format of checkpoints and beliefs. It is raised when older ones can no longer be read.
FORMAT = 4


SomeInference = TypeVar("SomeInference", bound=AbstractInference[Any])


class AbstractForecaster(torch.nn.Module, Generic[SomeInference]):
    """A probabilistic forecaster of many series, as a prediction network of GluonTS.

    A batch is a dict of tensors with the series first, as `tsforecast.data.windows.collate` makes it. A model is a
    final class. Its constructor spells its options, and gives this class the parts that the model is made of. Then it
    calls `save_hyperparameters(ignore=RECORDS)`.

    Args:
        data: What the estimator finds out about the data.
        records: Options of the model that are records: first those of training, then of scaling, and of particles where
            it has them.
        inference: Inference in the model's dynamics.
        groups: Which of the dynamics' parameters learn at which rate.
        begin: What is done with the first batch before the training; None for nothing.
    """

    epoch = 0  # of the schedule of a training, which `tsforecast.forecasting.lightning_module` sets
    hparams: dict[str, Any]  # set by `save_hyperparameters`

    def __init__(
        self,
        data: DataSpec,
        records: tuple[Any, ...],
        inference: SomeInference,
        groups: ParameterGroups | PoolGroups,
        begin: Callable[[SomeInference, Batch], None] | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.training_options, *_ = records
        self.records = records
        self.inference = inference
        self.dynamics = inference.dynamics
        self.units = inference.units
        self.groups = groups
        self.begin = begin

    def save_hyperparameters(self, ignore: Collection[str]) -> None:
        """Keep the arguments of the constructor that calls this, by name.

        Args:
            ignore: Names of arguments to leave out.
        """
        caller = inspect.currentframe()
        while caller is not None and caller.f_code is not inspect.unwrap(type(self).__init__).__code__:
            caller = caller.f_back  # a check of types may stand between
        assert caller is not None
        names = [name for name in inspect.signature(type(self)).parameters if name not in ignore]
        self.hparams = {name: caller.f_locals[name] for name in names}

    @property
    def device(self) -> torch.device:
        """Return the device of the parameters."""
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the parameters."""
        return next(self.parameters()).dtype

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Return all arguments by name, those in records among them, as `make_model` takes them."""
        settings: dict[str, Any] = {}
        for record in (self.data, *self.records):
            settings |= dataclasses.asdict(record)
        return {**settings, **self.hparams}

    # What a forecaster is asked.

    def loss(self, batch: Batch) -> Float[Tensor, " series"]:
        """Return the training loss per observed value: a negative log-likelihood in scaled units, or a CRPS."""
        return self.inference.loss(batch, self.is_linear)

    @property
    def is_linear(self) -> bool:
        """Whether the loss is that of the linear model that a switching model begins as."""
        return self.training and self.epoch < self.groups.linear_epochs  # a score is always that of the whole model

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the belief after the batch's past, and the log-likelihood of each of its steps in scaled units.

        Args:
            batch: Its `past_*` fields are read.
            belief: The belief from which to go on; None to begin.
        """
        after, log_likelihood = self.inference.filter(batch, belief)
        return self._with_range(after, batch, belief), log_likelihood

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self._with_range(self.inference.after(batch, belief), batch, belief)

    def _with_range(self, after: Belief, batch: Batch, belief: Belief | None) -> Belief:
        """Return a belief with the range of values seen, for bounds of forecasts."""
        if not self.data.largest_move:  # forecasts without bounds ask for no range
            return after
        observed = batch["past_observed"] & ~self.units.too_far(batch, after)  # else the range has no end
        return dataclasses.replace(after, seen=widened(batch, observed, belief))

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return sample paths of the batch's future, in the units of the data, within `bounds`.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read. Paths are conditioned on `known_future`, which is NaN where they are
                free.
            num_samples: Number of paths.
            generator: Source of random numbers.
        """
        paths = self.inference.forecast(belief, future, num_samples, generator)
        ends = bounds(belief, self.data, future)
        if ends is None:
            return paths
        low, high = ends.to(paths.dtype)[:, :, None, None].unbind(1)
        if self.units.support == "counts":
            low, high = low.floor(), high.ceil()  # the bounds are counts, too
        return paths.clamp(low, high)

    def marginals(self, belief: Belief, future: Batch) -> Marginals | None:
        """Return the distribution of each value of the batch's future alone, within `bounds`; None if not known.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields and `known_future` are read.
        """
        marginals = self.inference.marginals(belief, future)
        return None if marginals is None else dataclasses.replace(marginals, bounds=bounds(belief, self.data, future))

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return joint samples of missing values in the batch's past, given all of it, in the units of the data.

        Args:
            batch: Its `past_*` fields are read; observed values come back as they are.
            num_samples: Number of samples.
            generator: Source of random numbers.
        """
        return self.inference.impute(batch, num_samples, generator)

    def log_likelihood(self, batch: Batch) -> Float[Tensor, " series"]:
        """Return the log-likelihood of the batch's future given its past, in scaled units.

        In models that have particles it is an estimate.
        """
        belief, _ = self.filter(batch)
        names = ("target", "observed", "time_feat", "season_index", "dynamic_real")
        future = {f"past_{name}": batch[f"future_{name}"] for name in names}
        future["past_is_pad"] = torch.zeros_like(future["past_observed"][..., 0])  # a future has no padding
        return self.filter({**batch, **future}, belief)[1].sum(0)

    # What GluonTS calls.

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
        """Return sample paths (series, sample, horizon), with a last dimension of targets where there are several."""
        past = past_target, past_observed, past_is_pad, past_time_feat, past_season_index, past_dynamic_real
        future = future_time_feat, future_season_index, future_dynamic_real, known_future
        batch = dict(zip(INPUT_NAMES, (*past, *future, series_index, static_cat, static_real), strict=True))
        samples = self.forecast(self.filter(batch)[0], batch, num_samples or self.data.num_samples)
        return samples.squeeze(-1) if self.data.num_targets == 1 else samples

    @classmethod
    def load_from_checkpoint(
        cls, checkpoint_path: str | Path, map_location: Any = None, **options: Any
    ) -> "AbstractForecaster":
        """Return the model of a checkpoint of Lightning; no code in the file is run.

        Args:
            checkpoint_path: A checkpoint of a training of this class.
            map_location: The device that its tensors go to, as `torch.load` takes it.
            options: Values that take the place of those in the file.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the checkpoint is of another format, or of another model.
        """
        if not Path(checkpoint_path).is_file():  # nor a device, which may never end
            raise FileNotFoundError(f"there is no file {checkpoint_path}")
        checkpoint = torch.load(checkpoint_path, map_location=map_location, weights_only=True)
        if checkpoint.get("tsforecast_format") != FORMAT:
            version = checkpoint.get("tsforecast_format")
            raise ValueError(
                f"{checkpoint_path} has format {version}, this version of tsforecast reads format {FORMAT}"
            )
        model = make_model(cls, **{**checkpoint["hyper_parameters"], **options})
        model.load_state_dict(checkpoint["state_dict"])
        return model

    # GluonTS serialises a network by its constructor's arguments, and compares by them.
    def __getnewargs_ex__(self) -> tuple[tuple, dict[str, Any]]:
        return (), self.hyperparameters

    @property
    def __init_args__(self) -> dict[str, Any]:
        return self.hyperparameters
