"""The parts of an estimator that GluonTS asks for: copies, text, and its hooks; and a training by these."""

import abc
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch
from gluonts.core import fqname_for
from gluonts.itertools import Cached, Filter, Map
from gluonts.torch.model.estimator import PyTorchLightningEstimator, TrainOutput
from gluonts.transform import Transformation

from tsforecast.data.checks import refuse_endless
from tsforecast.data.effects.effects import Effects
from tsforecast.data.sources import read_task
from tsforecast.data.tables.dataframes import as_lists, as_pandas, columns_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.transform import Prepare
from tsforecast.forecasting.clock_training import ClockTraining
from tsforecast.forecasting.grid_training import GridTraining
from tsforecast.forecasting.grid_windows import training_loader, validation_loader
from tsforecast.forecasting.pace import Pace
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.totals import increments
from tsforecast.forecasting.training import fit
from tsforecast.models import AbstractForecaster

log = logging.getLogger(__name__)

# Hyperparameters that the shell of GluonTS reads by itself.
_OF_THE_SHELL = frozenset(
    {"forecaster_name", "listify_dataset", "num_prefetch", "num_workers", "shuffle_buffer_length", "test_quantiles"}
)


class AbstractEstimator(PyTorchLightningEstimator, abc.ABC):
    """An estimator of GluonTS whose arguments `recorded` has kept."""

    __init_args__: dict[str, Any]  # set by `recorded`
    on_grid: GridTraining  # what is trained, and on what windows
    freq: str
    prediction_length: int
    history_length: int | None
    effects: str
    direct: float
    totals: bool | None
    seed: int | None
    plateau: float
    time_budget: float | None
    max_epochs: int
    use_feat_static_cat: bool
    on_clock: ClockTraining | None  # in the place of `on_grid`
    columns_of_entries: Columns | None = None  # by which the log names covariates of entries
    earlier_effects: Effects | None = None  # in place of a fit to the training data
    _columns: Columns | None = None  # roles of the columns of a training data frame
    _categories: dict[str, list[str]] | None = None  # values of its static categories

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.__init_args__.items())
        return f"{fqname_for(type(self))}({arguments})"

    def __getnewargs_ex__(self) -> tuple[tuple, dict[str, Any]]:
        return (), self.__init_args__

    @classmethod
    def from_hyperparameters(cls, **hyperparameters: Any) -> Self:
        """Return an estimator from hyperparameters as text, as the shell of GluonTS (SageMaker) has them.

        Those that the shell reads by itself, and those that SageMaker adds, are left out.

        Raises:
            ValueError: If a model or hyperparameter is not known, or not as expected.
        """
        own = {name: value for name, value in hyperparameters.items() if name not in _OF_THE_SHELL}
        return cls(**{name: value for name, value in own.items() if not name.startswith("sagemaker_")})

    @classmethod
    def derive_auto_fields(cls, train_iter: Any, columns: Columns | Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the frequency of the data; a ValueError if they show none."""
        train_iter = as_pandas(train_iter)
        if isinstance(train_iter, pd.DataFrame):
            return {"freq": read_task(train_iter, windows=0, columns=columns_of(columns)).freq}
        refuse_endless(train_iter)
        first = next(iter(train_iter), None)
        if first is None:
            raise ValueError("the data set is empty: expected at least one series")
        return {"freq": first["start"].freqstr}

    def modelled(self, data: Any) -> Any:
        """Return entries as they are modelled: of running totals their increments, where there are some."""
        if not self.totals or data is None:
            return data
        own: Any = Map(increments, data)  # which has no length of its own, and needs none
        return Filter(lambda entry: np.isfinite(entry["target"]).any(), own)

    def _entries(
        self, training: Any, validation: Any, columns: Any, from_predictor: StateSpacePredictor | None
    ) -> tuple[Any, Any]:
        """Return data entries, made from data frames where these are given; their columns and categories are kept."""
        self._columns = self._categories = None
        training, validation = as_pandas(training), as_pandas(validation)
        if columns is not None and not isinstance(training, pd.DataFrame):
            raise ValueError(f"columns are those of a DataFrame, but the training data are a {type(training).__name__}")
        found = []
        for data in (training, validation):
            if isinstance(data, pd.DataFrame):
                if self._columns is None:
                    known = from_predictor
                    self._columns = columns_of(known.columns if columns is None and known is not None else columns)
                    self._categories = None if known is None else known.categories
                options = {"columns": self._columns, "categories": self._categories}
                task = read_task(data, self.freq, self.prediction_length, 0, **options)
                self._columns, self._categories = task.columns, task.categories
                data = task.train
            found.append(data)
        return found[0], found[1]

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
    ) -> StateSpacePredictor:
        """Return the predictor of `train_model`."""
        found = self.train_model(
            training_data,
            validation_data,
            shuffle_buffer_length=shuffle_buffer_length,
            cache_data=cache_data,
            ckpt_path=ckpt_path,  # pyright: ignore[reportArgumentType]
            num_workers=num_workers,
            num_prefetch=num_prefetch,
            columns=columns,
        ).predictor
        assert isinstance(found, StateSpacePredictor)
        return found

    def train_from(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, predictor: Any, training_data: Any, validation_data: Any = None, **others: Any
    ) -> StateSpacePredictor:
        """Return the predictor of `train_model` from the weights of a predictor on; it takes the other arguments."""
        found = self.train_model(training_data, validation_data, from_predictor=predictor, **others).predictor
        assert isinstance(found, StateSpacePredictor)
        return found

    def _trained_on_grid(
        self,
        training_data: Any,
        validation_data: Any,
        from_predictor: StateSpacePredictor | None,
        shuffle_buffer_length: int | None,
        cache_data: bool,
        ckpt_path: str | Path | None,
        workers: dict[str, int | None],
    ) -> TrainOutput:
        """Return what has been trained on entries of a grid, by an estimator that data decide no more of."""
        training_data, validation_data = self.modelled(training_data), self.modelled(validation_data)
        columns = self._columns or self.columns_of_entries
        effects = self.earlier_effects or self.effects
        with_effects = self.on_grid.with_effects(training_data, effects, from_predictor, columns)
        self.on_grid = with_effects.with_past(training_data)
        training_data, validation_data = (self.on_grid.adjusted(data) for data in (training_data, validation_data))
        self.on_grid = self.on_grid.for_data(training_data, self.use_feat_static_cat, from_predictor)
        if validation_data is not None:
            self.on_grid.check(validation_data, self.prediction_length, is_trained=False)
        transformation = self.create_transformation()
        module = self._initial(from_predictor)

        def prepare(data: Any, least: int = 0) -> Any:
            prepared = transformation.for_windows(least).apply(data, is_train=True)
            return Cached(prepared) if cache_data else prepared  # pyright: ignore[reportArgumentType]

        prepared = prepare(training_data, self.on_grid.train_horizon)
        loader = self.create_training_data_loader(prepared, module, shuffle_buffer_length, **workers)
        validation = None
        if validation_data is not None:
            validation = self.create_validation_data_loader(prepare(validation_data), module)
        trainer = self._fitted(module, loader, validation, ckpt_path)
        predictor = self.create_predictor(transformation, module)
        return TrainOutput(transformation, module, trainer, predictor)  # pyright: ignore[reportArgumentType]

    def _fitted(self, module: AbstractForecaster, loader: Any, validation: Any, checkpoint: Any) -> pl.Trainer:
        """Return the trainer that has trained a module."""
        options = {"max_epochs": self.max_epochs, "gradient_clip_val": 10.0, "logger": False, **self.trainer_kwargs}
        if self.on_clock is not None:
            options = {"accelerator": "cpu", **options}
        if self.plateau or self.time_budget is not None:
            given = options.pop("callbacks", None) or []
            pace = Pace(self.plateau, self.time_budget)
            options["callbacks"] = [pace, *(given if isinstance(given, Iterable) else [given])]
        return fit(module, loader, validation, options, checkpoint)

    def _initial(self, from_predictor: StateSpacePredictor | None) -> AbstractForecaster:
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

    # GluonTS' hooks, of a training on a grid.

    def create_transformation(self) -> Prepare:
        """Return the transformation from entries to arrays."""
        with torch.random.fork_rng(devices=[]):  # the weights of this model are not used
            return self.on_grid.preparation(self.create_lightning_module().dynamics.season_names)

    def create_lightning_module(self) -> AbstractForecaster:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the untrained model, which `training.fit` gives to Lightning."""
        return self.on_grid.module()

    def create_training_data_loader(
        self, data: Any, module: Any, shuffle_buffer_length: int | None = None, **kwargs: Any
    ) -> Iterable:
        """Return a loader of random windows, made in this process: `num_workers` and `num_prefetch` change nothing."""
        for name in ("num_workers", "num_prefetch"):
            if kwargs.get(name):
                log.info("%s=%s changes nothing: windows are made in the process that trains", name, kwargs[name])
        return training_loader(self.on_grid, data, module, shuffle_buffer_length, self.trainer_kwargs)

    def create_validation_data_loader(self, data: Any, module: Any, **kwargs: Any) -> Iterable:
        """Return a loader of the last window of each series that has one."""
        return validation_loader(self.on_grid, data, module)

    def create_predictor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, transformation: Transformation, module: Any
    ) -> StateSpacePredictor:
        """Return the predictor of a trained model, with what prepares its input."""
        return StateSpacePredictor(
            module,
            transformation,
            self.prediction_length,
            self.freq,
            self.on_grid.batch_size,
            self.history_length,
            columns=None if self._columns is None else as_lists(self._columns),
            categories=self._categories,
            direct=self.direct,
            totals=bool(self.totals),
        )
