"""The GluonTS estimator of all models."""

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.core import fqname_for
from gluonts.itertools import Cached, Cyclic
from gluonts.torch.model.estimator import PyTorchLightningEstimator, TrainOutput
from gluonts.torch.model.predictor import PyTorchPredictor
from gluonts.transform import Transformation

from tsforecast.data.buckets.streamed import StreamedEntries
from tsforecast.data.calendar.frequency import default_season, period_alias
from tsforecast.data.checks import check_entries
from tsforecast.data.epochs import EpochLoader
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import as_lists, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.task import ForecastTask
from tsforecast.data.transform import Prepare
from tsforecast.forecasting import presets
from tsforecast.forecasting.arguments import AUTO, recorded
from tsforecast.forecasting.candidates import Candidate, candidates, structures
from tsforecast.forecasting.data_summary import (
    DataSummary,
    adopt,
    largest_move,
    lengths_of,
    say_late,
    summarise,
    typical_change,
    varies_only_before,
)
from tsforecast.forecasting.lengths import (
    are_long,
    context_by_frequency,
    far_by_frequency,
    recent_by_frequency,
    windows_by_length,
)
from tsforecast.forecasting.memory import bytes_of_step, measured_on, windows_within
from tsforecast.forecasting.pace import Pace
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.selection import Selection, select
from tsforecast.forecasting.training import fit
from tsforecast.models import MODELS, AbstractForecaster, make_model, options_of
from tsforecast.models.parts.bounds import at_least
from tsforecast.models.parts.component_names import longest_cycle
from tsforecast.models.parts.units import largest_value
from tsforecast.models.transformations import transformation_of
from tsforecast.nn.decoders import DECODERS

log = logging.getLogger(__name__)

_BATCH = 64
_UNKNOWN = "D"  # the frequency by which options are checked while that of the data is not known
_LEAST_BATCHES = 4
_OF_TRAINER = frozenset({"max_epochs", "gradient_clip_val", "enable_progress_bar", "callbacks", "logger"})
_MEASURED_FROM = 8  # windows of a batch, whose memory is then measured before the training
_CHOSEN_BY = 10_000  # series, at least, that choose a model where one bucket at a time is in memory
# Batches in an epoch: a sample of the series is enough where all have the same parameters, and where there are so many.
_MOST_POOLED, _MOST = 25, 250
# Hyperparameters that the shell of GluonTS reads by itself.
_OF_THE_SHELL = frozenset(
    {"forecaster_name", "listify_dataset", "num_prefetch", "num_workers", "shuffle_buffer_length", "test_quantiles"}
)


class StateSpaceEstimator(PyTorchLightningEstimator):
    """Trains a model on a GluonTS data set.

    Examples:
        >>> estimator = StateSpaceEstimator(model="issm", freq="h", prediction_length=24)  # doctest: +SKIP
        >>> forecasts = estimator.train(dataset).predict(dataset)  # doctest: +SKIP

    Args:
        model: A name in `tsforecast.models.MODELS`; or "auto", by which the data choose a model and its options on
            windows before their end, see `tsforecast.forecasting.selection`. It takes no hyperparameters.
        freq: Frequency of the data, in any of its names; None for what the training data show.
        prediction_length: Steps of a forecast.
        preset: Settings of a switching model by frequency and data: best, fast, paper or none, see
            `tsforecast.forecasting.presets`. Options that are given and are not None win. Other models have none.
        context_length: Steps of the past in a training window, at most; 0 for all of the training part. None chooses by
            frequency: four weeks of hours or minutes, 120 days, 250 business days, otherwise ten seasons or 100 steps;
            or the cycle of a smooth season such as a year, up to 2000 steps, if that is longer.
        train_length: Steps at the end of each series that are trained on, at most, since noises of long ago may
            mislead; 0 for everything. None chooses by frequency: eight weeks of hours or minutes, otherwise everything;
            and everything if the cycle of a smooth season would not fit in twice, or a covariate varies only before.
        train_horizon: Steps of the future that a training window scores. More of them help where seasons are all there
            is to learn, and cost windows where series are short. None for `prediction_length`; and for three times as
            many in a `gls` of one target without seasonal components, where steps are hours or minutes and series long.
        history_length: Steps of the history that a prediction filters, at most; None for all.
        batch_size: Number of windows in a batch, at most; None for 64.
        num_batches_per_epoch: Batches in an epoch; None for one pass over the data, and at least four batches. At most
            25 where no parameter belongs to a series (`bank`).
        num_samples: Number of sample paths of a forecast. Quantiles of linear models are exact, and need none.
        seed: Seed of the initial weights, the order of the data and what is drawn in training; None for not
            reproducible.
        plateau: Relative fall of the loss, from an eighth of the training to the next, below which learning rates fall
            four times as fast; 0 or None for never. See `tsforecast.forecasting.pace`.
        time_budget: Seconds for the training: learning rates fall faster where it would take longer. "auto" begins no
            further comparison after half of them. None for no bound.
        models: Models that "auto" compares, joined by ",", with all their variants: bank, issm, gls, rsgls-issm. None
            for a short list of likely ones.
        use_feat_static_cat: Whether the model has parameters for the static categories of the training data. If so, a
            series without them is forecast as of an unknown category, with a warning; if not, the field is ignored.
        trainer_kwargs: Options of Lightning's `Trainer` (default: 8 epochs of a bank and 40 of others,
            gradient clipped at 10, no files written). With 0 epochs a bank learns nothing but the weights of its
            structures, by the past of each series.
        hyperparameters: Hyperparameters of the model.

    Raises:
        ValueError: If a model or hyperparameter is not known.
    """

    _columns: Columns | None = None  # roles of the columns of a training data frame
    _categories: dict[str, list[str]] | None = None  # values of its static categories
    __init_args__: dict[str, Any]  # set by `recorded`
    _summary: DataSummary | None = None  # of the training data, once a training has begun
    _change = 1.0  # of them, see `typical_change`
    _move = 0.0  # likewise, see `largest_move`
    selection: Selection | None = None  # of a model, once "auto" has made it

    @recorded
    def __init__(
        self,
        model: str = "issm",
        freq: str | None = None,
        prediction_length: int = 24,
        *,
        preset: str = "best",
        context_length: int | None = None,
        train_length: int | None = None,
        train_horizon: int | None = None,
        history_length: int | None = None,
        batch_size: int | None = None,
        num_batches_per_epoch: int | None = None,
        num_samples: int = 100,
        seed: int | None = None,
        plateau: float | None = None,
        time_budget: float | None = None,
        models: str | None = None,
        use_feat_static_cat: bool = True,
        trainer_kwargs: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(trainer_kwargs={} if trainer_kwargs is None else trainer_kwargs)
        at_least(1, train_horizon=train_horizon, history_length=history_length, batch_size=batch_size)
        at_least(1, num_batches_per_epoch=num_batches_per_epoch)
        at_least(0, context_length=context_length, train_length=train_length, plateau=plateau, time_budget=time_budget)
        presets.check(model, preset)
        self.model, self.preset = model, preset
        self.freq = period_alias(_UNKNOWN if freq is None else freq)
        self.prediction_length = prediction_length
        self.train_horizon = prediction_length if train_horizon is None else train_horizon
        self.history_length = history_length
        self.batch_size = _BATCH if batch_size is None else batch_size
        self.num_batches_per_epoch = num_batches_per_epoch
        self.seed = seed
        self.plateau, self.time_budget = plateau or 0.0, time_budget
        self.models = models
        self.use_feat_static_cat = use_feat_static_cat
        self.hyperparameters = {**hyperparameters, "num_samples": num_samples}
        with torch.device("meta"):  # refuses bad options before data are read, and allocates nothing
            options = {**self.hyperparameters, "freq": self.freq, "prediction_length": prediction_length}
            net = make_model(MODELS["bank" if model == AUTO else model], **options)
        cycle = longest_cycle(net.dynamics.season_names, self.freq)
        self.context_length = context_by_frequency(self.freq, cycle) if context_length is None else context_length
        self.train_length = recent_by_frequency(self.freq, cycle) if train_length is None else train_length
        self._recent = self.train_length if train_length is None else 0  # which covariates may want more of
        # No calendar tells a `gls` which day it is, so it is trained farther ahead where the data have room.
        farther = model == "gls" and not net.dynamics.season_names and train_horizon is None
        self._far = far_by_frequency(self.freq, prediction_length) if farther else 0

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.__init_args__.items())
        return f"{fqname_for(type(self))}({arguments})"

    def __getnewargs_ex__(self) -> tuple[tuple, dict[str, Any]]:
        return (), self.__init_args__

    @classmethod
    def from_hyperparameters(cls, **hyperparameters: Any) -> "StateSpaceEstimator":
        """Return an estimator from hyperparameters as text, as the shell of GluonTS (SageMaker) has them.

        Those that the shell reads by itself, and those that SageMaker adds, are left out.

        Raises:
            ValueError: If a model or hyperparameter is not known, or not as expected.
        """
        own = {name: value for name, value in hyperparameters.items() if name not in _OF_THE_SHELL}
        return cls(**{name: value for name, value in own.items() if not name.startswith("sagemaker_")})

    @classmethod
    def derive_auto_fields(
        cls, train_iter: Iterable[dict[str, Any]] | pd.DataFrame, columns: Columns | Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the frequency of the data.

        Raises:
            ValueError: If there are none, or a frame shows no frequency.
        """
        if isinstance(train_iter, pd.DataFrame):
            return {"freq": read_task(train_iter, windows=0, columns=columns_of(columns)).freq}
        _refuse_endless(train_iter)
        first = next(iter(train_iter), None)
        if first is None:
            raise ValueError("the data set is empty: expected at least one series")
        return {"freq": first["start"].freqstr}

    def _find_freq(self, data: Any, columns: Columns | Mapping[str, Any] | None = None) -> None:
        """Takes the frequency of the data where none was given, and what depends on it."""
        if self.__init_args__["freq"] is None:
            StateSpaceEstimator.__init__(self, **{**self.__init_args__, **self.derive_auto_fields(data, columns)})

    def train_model(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        training_data: Any,
        validation_data: Any = None,
        from_predictor: PyTorchPredictor | None = None,
        shuffle_buffer_length: int | None = None,
        cache_data: bool = False,
        ckpt_path: str | Path | None = None,
        num_workers: int | None = None,
        num_prefetch: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> TrainOutput:
        """Trains and returns the last weights, or with validation data those of the lowest validation loss.

        Unlike in GluonTS' own, a failure raises, callbacks survive a second call, and nothing is written unless asked
        for. A run with a seed that was stopped can go on from `ckpt_path` to the result of the uninterrupted run. It
        has to checkpoint every epoch, with `ModelCheckpoint(save_last=True)` among the callbacks.

        Args:
            training_data: GluonTS data entries; or a DataFrame in long format, a row for each series and time stamp,
                see `tsforecast.data.read_task`.
            validation_data: Likewise; the last `prediction_length` steps of each, and what comes before, are scored.
            from_predictor: Start from its weights.
            shuffle_buffer_length: Windows among which the order is shuffled.
            cache_data: Keep the prepared entries in memory.
            ckpt_path: Checkpoint of a run to go on with.
            num_workers: Passed on to `create_training_data_loader`, as is the next. Its own loader needs no workers:
                making windows is a small part of a training.
            num_prefetch: Likewise.
            columns: What the columns of a DataFrame are: `tsforecast.data.Columns`, or a mapping such as
                {"item": "shop", "timestamp": "day", "target": "sales", "covariates": ["price"]}. None for what is found
                by usual names (item_id, timestamp, target; unique_id, ds, y; ...).

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        self._find_freq(training_data, columns)
        training_data, validation_data = self._entries(training_data, validation_data, columns, from_predictor)
        if self.model == AUTO and from_predictor is not None:
            raise ValueError("'auto' chooses a model anew: to start from weights, give the model of the predictor")
        settled = self.settled(training_data)
        if settled is not self:
            found = settled.train_model(
                training_data, validation_data, from_predictor, shuffle_buffer_length, cache_data, ckpt_path
            )
            columns = None if self._columns is None else as_lists(self._columns)
            found.predictor.columns, found.predictor.categories = columns, self._categories  # pyright: ignore
            return found
        self._summary = self._look_at(training_data, from_predictor)
        if validation_data is not None:
            _refuse_endless(validation_data)
            self._check(validation_data, self.prediction_length)
        transformation = self.create_transformation()
        module = self._initial(from_predictor)

        def prepare(data: Any, least: int = 0) -> Any:
            prepared = transformation.for_windows(least).apply(data, is_train=True)
            return Cached(prepared) if cache_data else prepared  # pyright: ignore[reportArgumentType]

        prepared = prepare(training_data, self.train_horizon)
        workers = {"num_workers": num_workers, "num_prefetch": num_prefetch}
        loader = self.create_training_data_loader(prepared, module, shuffle_buffer_length, **workers)
        validation = None
        if validation_data is not None:
            validation = self.create_validation_data_loader(prepare(validation_data), module)
        epochs = presets.EPOCHS.get(self.model, presets.DEFAULT_EPOCHS)
        options = {"max_epochs": epochs, "gradient_clip_val": 10.0, "logger": False, **self.trainer_kwargs}
        if self.plateau or self.time_budget is not None:
            given = options.pop("callbacks", None) or []
            pace = Pace(self.plateau, self.time_budget)
            options["callbacks"] = [pace, *(given if isinstance(given, Iterable) else [given])]
        trainer = fit(module, loader, validation, options, ckpt_path)
        return TrainOutput(transformation, module, trainer, self.create_predictor(transformation, module))

    def settled(self, data: Iterable[dict[str, Any]]) -> "StateSpaceEstimator":
        """Return the estimator with all that data decide: the model of "auto", the preset of a switching model.

        It is the estimator itself where data decide nothing. `selection` has what was compared.

        Args:
            data: GluonTS data entries, all of whose values may be looked at.

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        self._find_freq(data)
        if self.model == AUTO:
            began = time.monotonic()
            return self._of(self.choose(data).chosen, self._left(began))
        if self.model not in presets.SWITCHING or self.preset == presets.NONE:
            return self
        _refuse_endless(data)
        self._check(data, self.train_horizon)
        began, options = time.monotonic(), self._preset(data)
        has_components = self.model == "rsgls-issm" or "components" in options
        if self.preset == presets.BEST and has_components and not {"components", "train_horizon"} & self._given:
            options |= self._structure(data)
        log.info("preset %s: %s", self.preset, ", ".join(f"{name}={value}" for name, value in options.items()))
        try:
            return self._with(options, time_budget=self._left(began))
        except ValueError as error:
            raise ValueError(f"{error}; with preset 'none' a {self.model} has its own defaults") from error

    @property
    def _given(self) -> set[str]:
        """Return the names of the options that presets leave alone."""
        return {*self.trainer_kwargs, *(name for name, value in self.__init_args__.items() if value is not None)}

    def _preset(self, data: Iterable[dict[str, Any]]) -> presets.Options:
        """Return the options of the preset, without those that were given."""
        target = np.asarray(next(iter(data))["target"])
        targets = len(target) if target.ndim > 1 else 1
        epochs = self.trainer_kwargs.get("max_epochs")
        found = presets.preset(self.model, self.freq, self.prediction_length, self.preset, epochs, targets)
        return {name: value for name, value in found.items() if name not in self._given}

    def _structure(self, data: Any) -> Mapping[str, Any]:
        """Return the components and windows of training that the `issm` inside has by the data."""
        task = self._compared(data)
        if len(compared := structures(task)) < 2:
            return {}
        names = ("accelerator", "devices", "gradient_clip_val")
        trainer = {name: self.trainer_kwargs[name] for name in names if name in self.trainer_kwargs}
        options = {"seed": self.seed, "time_budget": self.time_budget, "trainer_kwargs": trainer}
        inside = StateSpaceEstimator(AUTO, self.freq, self.prediction_length, **options)
        self.selection = inside.choose(data, compared)
        return self.selection.chosen.options

    def _left(self, began: float) -> float | None:
        """Return the seconds that are left of the time budget; None without one."""
        return None if self.time_budget is None else max(self.time_budget - (time.monotonic() - began), 0.0)

    def choose(self, data: Iterable[dict[str, Any]], compared: Sequence[Candidate] | None = None) -> Selection:
        """Return the model and options that the data choose, see `tsforecast.forecasting.selection`.

        Args:
            data: GluonTS data entries, all of whose values may be looked at.
            compared: Candidates, the most likely first; None for those of `models`.

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        self._find_freq(data)
        _refuse_endless(data)
        self._check(data, self.train_horizon)

        def train(candidate: Candidate, epochs: int, entries: Sequence[dict[str, Any]]) -> PyTorchPredictor:
            quiet = {"max_epochs": epochs, "enable_progress_bar": False, "callbacks": None, "logger": False}
            return self._of(candidate, None, **quiet).train(entries)

        task = self._compared(data)
        if compared is None:
            compared = candidates(task, None if self.models is None else self.models.replace(" ", "").split(","))
        budget = None if self.time_budget is None else 0.5 * self.time_budget
        self.selection = select(task, train, self.seed, budget, compared)
        return self.selection

    def _compared(self, data: Any) -> ForecastTask:
        """Return the series on which candidates are compared."""
        entries = data.sample(_CHOSEN_BY, self.seed) if isinstance(data, StreamedEntries) else list(data)
        return ForecastTask("data", self.freq, self.prediction_length, 0, entries)

    def _of(self, candidate: Candidate, time_budget: float | None, **trainer: Any) -> "StateSpaceEstimator":
        """Return the estimator of a candidate, with a time for its training and other options of the trainer."""
        options = {"train_horizon": self.train_horizon, **candidate.options, **trainer}
        return self._with(options, model=candidate.model, time_budget=time_budget)

    def _with(self, options: Mapping[str, Any], **arguments: Any) -> "StateSpaceEstimator":
        """Return an estimator with other options, those of the trainer among them, and without a preset."""
        own = {name: value for name, value in options.items() if name not in _OF_TRAINER}
        trainer = {name: value for name, value in options.items() if name in _OF_TRAINER}
        given = {**self.__init_args__, "freq": self.freq, "preset": presets.NONE, **arguments, **own}
        return StateSpaceEstimator(**{**given, "trainer_kwargs": {**self.trainer_kwargs, **trainer}})

    def _entries(
        self, training: Any, validation: Any, columns: Any, from_predictor: PyTorchPredictor | None
    ) -> tuple[Any, Any]:
        """Return data entries, made from data frames where these are given; their columns and categories are kept."""
        self._columns = self._categories = None
        if columns is not None and not isinstance(training, pd.DataFrame):
            raise ValueError(f"columns are those of a DataFrame, but the training data are a {type(training).__name__}")
        found = []
        for data in (training, validation):
            if isinstance(data, pd.DataFrame):
                if self._columns is None:
                    known = from_predictor if isinstance(from_predictor, StateSpacePredictor) else None
                    self._columns = columns_of(known.columns if columns is None and known is not None else columns)
                    self._categories = None if known is None else known.categories
                options = {"columns": self._columns, "categories": self._categories}
                task = read_task(data, self.freq, self.prediction_length, 0, **options)
                self._columns, self._categories = task.columns, task.categories
                data = task.train
            found.append(data)
        return found[0], found[1]

    def _initial(self, from_predictor: PyTorchPredictor | None) -> AbstractForecaster:
        """Return the module that training begins with."""
        with torch.random.fork_rng(devices=[], enabled=self.seed is not None):
            if self.seed is not None:
                torch.manual_seed(self.seed)
            module = self.create_lightning_module()
        if from_predictor is not None:
            try:
                module.load_state_dict(from_predictor.network.state_dict())
            except RuntimeError as error:
                raise ValueError(
                    f"expected a predictor of the same model, hyperparameters and fields as the estimator: {error}"
                ) from error
        return module

    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        training_data: Any,
        validation_data: Any = None,
        shuffle_buffer_length: int | None = None,
        cache_data: bool = False,
        ckpt_path: str | Path | None = None,
        num_workers: int | None = None,
        num_prefetch: int | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
    ) -> PyTorchPredictor:
        """Return the predictor of `train_model`."""
        return self.train_model(
            training_data,
            validation_data,
            shuffle_buffer_length=shuffle_buffer_length,
            cache_data=cache_data,
            ckpt_path=ckpt_path,
            num_workers=num_workers,
            num_prefetch=num_prefetch,
            columns=columns,
        ).predictor

    # GluonTS' hooks.

    @property
    def training_summary(self) -> DataSummary:
        """Return the summary of the training data.

        Raises:
            ValueError: If nothing has been trained.
        """
        if self._summary is None:
            raise ValueError(
                "expected training data first, which decide the sizes of the model: call train, or train_model, which "
                "also returns the module; or make one of given sizes by tsforecast.models.MODELS"
            )
        return self._summary

    @property
    def is_lengthened(self) -> bool:
        """Return whether all steps are trained on since a covariate varies in early ones alone."""
        return self._recent > 0 and self.train_length == 0

    def create_transformation(self) -> Prepare:
        """Return the transformation from entries to arrays."""
        found = self.training_summary
        with torch.random.fork_rng(devices=[]):  # the weights of this model are not used
            seasons = list(self.create_lightning_module().dynamics.season_names)
        return Prepare(
            self.prediction_length,
            seasons,
            found.items,
            found.cardinality,
            found.static_units,
            found.dynamic_units,
            found.num_targets,
        )

    def create_lightning_module(self) -> AbstractForecaster:
        """Return the untrained model."""
        found = self.training_summary
        options = {
            **found.sizes,
            "freq": self.freq,
            "prediction_length": self.prediction_length,
            "scaling_length": self.context_length,  # a long history is scaled like a training window
            "season": default_season(self.freq),
            "typical_change": self._change,
            "largest_move": self._move,
            **{
                name: value
                for name, value in found.auto.items()
                if name in options_of(MODELS[self.model]) and self.hyperparameters.get(name, "auto") == "auto"
            },
        }
        return make_model(MODELS[self.model], **{**self.hyperparameters, **options, "seed": self.seed})

    def create_training_data_loader(
        self, data: Any, module: Any, shuffle_buffer_length: int | None = None, **kwargs: Any
    ) -> Iterable:
        """Return a loader of random windows, made in this process: `num_workers` and `num_prefetch` change nothing."""
        for name in ("num_workers", "num_prefetch"):
            if kwargs.get(name):
                log.info("%s=%s changes nothing: windows are made in the process that trains", name, kwargs[name])

        def loader(windows: int) -> EpochLoader:
            return EpochLoader(
                data,
                self.context_length or None,
                self.train_horizon,
                windows,
                self.num_batches_per_epoch or self._num_batches(module),
                self.seed,
                recent=self.train_length or None,
                buffer=shuffle_buffer_length or 4096,
                scaling_length=_free_scaling(module),
                count=self.training_summary.count,
                growing=module.dynamics.is_growing,
            )

        windows = self._num_windows(module)
        if windows > _MEASURED_FROM and measured_on(self.trainer_kwargs):
            windows = windows_within(windows, bytes_of_step(module, loader(1)))
        return loader(windows)

    def _num_windows(self, module: AbstractForecaster) -> int:
        """Return the number of windows in a batch: fewer long ones, where all series have the same parameters."""
        length = (self.context_length or 1) + self.train_horizon
        return min(self.batch_size, windows_by_length(length)) if module.dynamics.is_pooled else self.batch_size

    def _num_batches(self, module: AbstractForecaster) -> int:
        """Return the number of batches in an epoch: a pass over the data, within bounds."""
        found = max(math.ceil(self.training_summary.count / self.batch_size), _LEAST_BATCHES)
        return min(found, _MOST_POOLED if module.dynamics.is_pooled else _MOST)

    def create_validation_data_loader(self, data: Any, module: Any, **kwargs: Any) -> Iterable:
        """Return a loader of the last window of each series that has one."""
        return EpochLoader(
            data,
            self.context_length or None,
            self.prediction_length,
            self.batch_size,
            None,
            0,
            at_end=True,
            scaling_length=_free_scaling(module),
        )

    def create_predictor(self, transformation: Transformation, module: Any) -> StateSpacePredictor:
        """Return the predictor of a trained model, with what prepares its input."""
        return StateSpacePredictor(
            module,
            transformation,
            self.prediction_length,
            self.freq,
            self.batch_size,
            self.history_length,
            columns=None if self._columns is None else as_lists(self._columns),
            categories=self._categories,
        )

    def _check(self, data: Any, future: int) -> None:
        """Refuses data with which the model could not be trained, or validated, on so many steps of the future.

        One series that is longer is enough.
        """
        likelihood = DECODERS.get(self.hyperparameters.get("likelihood", ""))
        support = "real" if likelihood is None else likelihood.support
        largest = largest_value(self.hyperparameters.get("transformation", "none"), support)
        check_entries(data, self.freq, min_longest=future + 1, support=support, largest=largest)

    def _look_at(self, data: Any, from_predictor: PyTorchPredictor | None) -> DataSummary:
        """Return the summary of the training data, which are checked; it fits the predictor to start from."""
        _refuse_endless(data)
        self._check(data, self.prediction_length if self._far else self.train_horizon)
        found = summarise(data, self.use_feat_static_cat)
        self._change = typical_change(data, default_season(self.freq))
        say_late(data)
        self._move = largest_move(data, self.prediction_length, self._change)
        if self._far > self.prediction_length:
            fits = found.num_targets == 1 and are_long(lengths_of(data), self.freq)
            self.train_horizon = self._far if fits else self.prediction_length
        if self._recent:
            self.train_length = 0 if varies_only_before(data, self._recent) else self._recent
        transformation_of(self.hyperparameters.get("transformation", "none")).check(found.lowest, found.highest)
        return found if from_predictor is None else adopt(found, from_predictor)


def _refuse_endless(data: Any) -> None:
    """Refuses data that never end, or end after one walk through them."""
    if isinstance(data, Cyclic):
        raise ValueError(
            "expected data that end, got GluonTS' Cyclic, which does not; give the data in it (`data.iterable`): the "
            "training passes over them as often as it needs"
        )
    if iter(data) is data:
        raise ValueError("expected data that can be walked through again and again, got an iterator; make a list of it")


def _free_scaling(module: AbstractForecaster) -> int | None:
    """Return the number of values that scaling is taken from; None where the unit of the data matters to the model."""
    return module.data.scaling_length if module.units.is_scale_free else None
