"""GluonTS estimator for every model."""

import inspect
import math
import signal
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from gluonts.itertools import Cached
from gluonts.torch.model.estimator import PyTorchLightningEstimator, TrainOutput
from gluonts.torch.model.predictor import PyTorchPredictor
from gluonts.transform import Transformation
from lightning.pytorch.callbacks import ModelCheckpoint

from tsforecast.data.checks import check_entries
from tsforecast.data.frequency import calendar_unit, default_season, period_alias
from tsforecast.data.transform import EpochLoader, Prepare
from tsforecast.models import DATA_DECIDED, MODELS, AbstractForecaster
from tsforecast.models.base import FORMAT
from tsforecast.predictor import StateSpacePredictor

FORECASTS = ("samples", "distribution")
DEFAULT_EPOCHS = 40
_LEAST_BATCHES = 4


class StateSpaceEstimator(PyTorchLightningEstimator):
    """Trains a model on a GluonTS data set.

    Example:
        >>> estimator = StateSpaceEstimator(model="issm", freq="h", prediction_length=24)  # doctest: +SKIP
        >>> forecasts = estimator.train(dataset).predict(dataset)  # doctest: +SKIP

    Args:
        model: A name in `tsforecast.models.MODELS`.
        freq: Frequency of the data, in any of its names.
        prediction_length: Steps of a forecast.
        context_length: Steps of the past in a training window, at most; None for by frequency (four weeks of hours or
            minutes, 120 days, 500 business days, otherwise ten seasons or 100 steps), 0 for all of the training part.
        train_length: Steps at the end of each series that are trained on, at most: noises of long ago may mislead.
            None for by frequency (eight weeks of hours or minutes, otherwise everything), 0 for everything.
        history_length: Steps of the history which a prediction filters, at most; None for all.
        batch_size: Windows in a batch.
        num_batches_per_epoch: None for one pass over the data, and at least four batches.
        num_samples: Sample paths of a forecast.
        seed: The order of the data, what is drawn in training, and the initial weights follow from it; None for not
            reproducible.
        forecast: "samples", or "distribution" for exact marginal distributions.
        trainer_kwargs: For Lightning's `Trainer` (default: 40 epochs, gradient clipped at 10, no files written).
        hyperparameters: Of the model.

    Raises:
        ValueError: If a model, forecast or hyperparameter is not known.
    """

    def __init__(
        self,
        model: str = "issm",
        freq: str = "h",
        prediction_length: int = 24,
        *,
        context_length: int | None = None,
        train_length: int | None = None,
        history_length: int | None = None,
        batch_size: int = 64,
        num_batches_per_epoch: int | None = None,
        num_samples: int = 100,
        seed: int | None = None,
        forecast: str = "samples",
        trainer_kwargs: dict[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        super().__init__(trainer_kwargs={} if trainer_kwargs is None else trainer_kwargs)
        if model not in MODELS:
            raise ValueError(f"expected model to be one of {', '.join(MODELS)}, got {model!r}")
        if forecast not in FORECASTS:
            raise ValueError(f"expected forecast to be one of {', '.join(FORECASTS)}, got {forecast!r}")
        known = _hyperparameters(MODELS[model])
        for name in hyperparameters:
            if name not in known:
                raise ValueError(f"model {model!r} has no hyperparameter {name!r}; it has {', '.join(sorted(known))}")
        if forecast == "distribution" and hyperparameters.get("transformation") == "asinh":
            raise ValueError("marginal distributions are not available behind 'asinh': take forecast='samples'")
        for name, value in (
            ("prediction_length", prediction_length),
            ("batch_size", batch_size),
            ("num_samples", num_samples),
        ):
            if value < 1:
                raise ValueError(f"expected {name} to be positive, got {value}")
        self.model = model
        self.freq = period_alias(freq)
        self.prediction_length = prediction_length
        self.context_length = _context(self.freq) if context_length is None else context_length
        self.train_length = _recent(self.freq) if train_length is None else train_length
        self.history_length = history_length
        self.batch_size = batch_size
        self.num_batches_per_epoch = num_batches_per_epoch
        self.seed = seed
        self.forecast = forecast
        self.hyperparameters = {**hyperparameters, "num_samples": num_samples}
        self._data: dict[str, Any] = {}

    @classmethod
    def from_hyperparameters(cls, **hyperparameters: Any) -> "StateSpaceEstimator":
        """As GluonTS' shell builds estimators."""
        return cls(**hyperparameters)

    @classmethod
    def derive_auto_fields(cls, train_iter: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """The frequency, from the data."""
        return {"freq": next(iter(train_iter))["start"].freqstr}

    def train_model(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        training_data: Any,
        validation_data: Any = None,
        from_predictor: PyTorchPredictor | None = None,
        shuffle_buffer_length: int | None = None,
        cache_data: bool = False,
        ckpt_path: str | Path | None = None,
    ) -> TrainOutput:
        """Trains and returns the last weights, or with validation data those of the lowest validation loss.

        Unlike GluonTS' own, a failure raises, callbacks survive a second call, nothing is written unless asked for, and
        whoever sets a seed and checkpoints every epoch (`ModelCheckpoint(save_last=True)` among the callbacks) can go
        on from `ckpt_path` to the result of the uninterrupted run.

        Args:
            training_data: GluonTS data entries.
            validation_data: Likewise; the last `prediction_length` steps of each, and what comes before, are scored.
            from_predictor: Start from its weights.
            shuffle_buffer_length: Windows among which the order is shuffled.
            cache_data: Keep the prepared entries in memory.
            ckpt_path: Checkpoint of a run to go on with.

        Raises:
            ValueError: If the data cannot be trained on; the message names the series.
        """
        self._look_at(training_data, from_predictor)
        if validation_data is not None:
            check_entries(validation_data, self.freq, min_length=self.prediction_length + 1)
        transformation = self.create_transformation()
        module = self._initial(from_predictor)

        def prepare(data: Any) -> Any:
            prepared = transformation.apply(data, is_train=True)
            return Cached(prepared) if cache_data else prepared  # pyright: ignore[reportArgumentType]

        loader = self.create_training_data_loader(prepare(training_data), module, shuffle_buffer_length)
        validation = None
        if validation_data is not None:
            validation = self.create_validation_data_loader(prepare(validation_data), module)
        if ckpt_path is not None:
            check_checkpoint(ckpt_path, module)
        with tempfile.TemporaryDirectory() as scratch:
            trainer = self._trainer(scratch if validation_data is not None else None)
            _fit(trainer, module, loader, validation, ckpt_path)
            best = next((c for c in trainer.checkpoint_callbacks if getattr(c, "monitor", None) == "val_loss"), None)
            if isinstance(best, ModelCheckpoint) and best.best_model_path:
                weights = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
                module.load_state_dict(weights["state_dict"])
        return TrainOutput(transformation, module, trainer, self.create_predictor(transformation, module))

    def _initial(self, from_predictor: PyTorchPredictor | None) -> AbstractForecaster:
        """The module that training begins with."""
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

    def _trainer(self, scratch: str | None) -> pl.Trainer:
        """By the caller's options; with validation data the best weights are kept.

        Args:
            scratch: Folder for them unless the caller names one; None without validation data.
        """
        options = {"max_epochs": DEFAULT_EPOCHS, "gradient_clip_val": 10.0, "logger": False, **self.trainer_kwargs}
        callbacks = options.pop("callbacks", None) or []
        callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
        checkpoints = [c for c in callbacks if isinstance(c, ModelCheckpoint)]
        watched = any(c.monitor == "val_loss" for c in checkpoints)
        if scratch is not None and not watched and options.get("enable_checkpointing", True):
            root = options.get("default_root_dir")
            folders = [Path(root) / "checkpoints"] if root else [c.dirpath for c in checkpoints if c.dirpath]
            folder = [*folders, scratch][0]  # beside the caller's checkpoints a resumed run finds it again
            best = ModelCheckpoint(
                folder, "best", monitor="val_loss", save_weights_only=True, enable_version_counter=False
            )
            callbacks.append(best)
            checkpoints.append(best)
        defaults = {
            "accelerator": "auto",
            "enable_model_summary": False,
            "enable_checkpointing": bool(checkpoints),
            "num_sanity_val_steps": 0,
        }
        return pl.Trainer(callbacks=callbacks, **{**defaults, **options})

    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        training_data: Any,
        validation_data: Any = None,
        shuffle_buffer_length: int | None = None,
        cache_data: bool = False,
        ckpt_path: str | Path | None = None,
    ) -> PyTorchPredictor:
        """The predictor of `train_model`."""
        return self.train_model(
            training_data, validation_data, None, shuffle_buffer_length, cache_data, ckpt_path
        ).predictor

    # GluonTS' hooks.

    def create_transformation(self) -> Transformation:
        """Entries to arrays."""
        data = self._data
        with torch.random.fork_rng(devices=[]):  # a model by whose weights nothing is done
            seasons = self.create_lightning_module().season_names
        return Prepare(
            self.prediction_length,
            seasons,
            data["items"],
            data["cardinality"],
            data["static_units"],
            data["dynamic_units"],
            data["num_targets"],
        )

    def create_lightning_module(self) -> AbstractForecaster:
        """The model, untrained."""
        decided = {name: value for name, value in self._data.items() if name in DATA_DECIDED}
        options = {
            **decided,
            "freq": self.freq,
            "prediction_length": self.prediction_length,
            # A long history is scaled like a training window; volatility of business days is best known from all of it.
            "scaling_length": 0 if calendar_unit(self.freq)[1] == "B" else self.context_length,
            "season": default_season(self.freq),
        }
        if self.hyperparameters.get("clip", "auto") == "auto":
            options["clip"] = "nonnegative" if self._data["lowest"] >= 0 else "none"
        if self.hyperparameters.get("transformation", "auto") == "auto":
            options["transformation"] = "log1p" if self._data["counts"] else "none"
        options |= {
            k: v for k, v in self._data.get("adopted", {}).items() if self.hyperparameters.get(k, "auto") == "auto"
        }
        return MODELS[self.model](**{**self.hyperparameters, **options, "seed": self.seed})

    def create_training_data_loader(
        self, data: Any, module: Any, shuffle_buffer_length: int | None = None, **kwargs: Any
    ) -> Iterable:
        """Random windows."""
        return EpochLoader(
            data,
            self.context_length or None,
            self.prediction_length,
            self.batch_size,
            self.num_batches_per_epoch or max(math.ceil(self._data["count"] / self.batch_size), _LEAST_BATCHES),
            self.seed,
            recent=self.train_length or None,
            buffer=shuffle_buffer_length or 4096,
        )

    def create_validation_data_loader(self, data: Any, module: Any, **kwargs: Any) -> Iterable:
        """The last window of each series."""
        return EpochLoader(
            data, self.context_length or None, self.prediction_length, self.batch_size, None, 0, at_end=True
        )

    def create_predictor(self, transformation: Transformation, module: Any) -> StateSpacePredictor:
        """The trained model with what prepares its input."""
        return StateSpacePredictor(
            module,
            transformation,
            self.prediction_length,
            self.freq,
            self.batch_size,
            self.history_length,
            self.forecast,
        )

    def _look_at(self, data: Any, from_predictor: PyTorchPredictor | None) -> None:
        """Checks the training data; takes from them, or from the predictor to start from, what the model must know."""
        if iter(data) is data:
            raise ValueError(
                "expected data that can be walked through again and again, got an iterator; make a list of it"
            )
        check_entries(data, self.freq, min_length=self.prediction_length + 1)
        items: dict[str, None] = {}
        lowest, whole, codes, form = np.inf, True, np.zeros(0), {}
        count = 0
        static, dynamic = _Moments(), _Moments()
        for entry in data:
            count += 1
            static.add(np.asarray(entry.get("feat_static_real", ())).reshape(-1, 1))
            dynamic.add(np.asarray(entry.get("feat_dynamic_real", np.zeros((0, 1)))))
            if entry.get("item_id") is not None:
                items[str(entry["item_id"])] = None
            target = np.asarray(entry["target"])
            lowest = min(lowest, np.nanmin(target))
            whole = whole and bool((np.nan_to_num(target) % 1 == 0).all())
            if "feat_static_cat" in entry:
                codes = np.maximum(codes if codes.size else 0, np.asarray(entry["feat_static_cat"], float).reshape(-1))
            form = {"num_targets": len(np.atleast_2d(target)), "start": entry["start"]}
        if self.hyperparameters.get("transformation") == "log1p" and lowest <= -1:
            raise ValueError(f"log1p needs values above -1, the lowest is {lowest:g}; take the transformation 'asinh'")
        features = Prepare(1, [], [], []).map_transform({"start": form.pop("start"), "target": np.zeros(1)}, True)
        self._data = {
            **form,
            "items": list(items),
            "cardinality": [int(code) + 1 for code in codes],
            "static_units": static.units(),
            "dynamic_units": dynamic.units(),
            "num_time_features": features["time_feat"].shape[-1],
            "lowest": float(lowest),
            "count": count,
            "counts": whole and lowest >= 0,
        }
        if from_predictor is not None:  # its series and categories keep their places; new series have the population's
            known, net = from_predictor.input_transform, from_predictor.network
            if not (isinstance(known, Prepare) and isinstance(net, AbstractForecaster)):
                raise ValueError(
                    f"expected a predictor of tsforecast to start from, got {type(from_predictor).__name__}"
                )
            self._data |= {
                "items": list(known.index),
                "cardinality": known.cardinality.tolist(),
                "static_units": known.static_units.tolist(),
                "dynamic_units": known.dynamic_units.tolist(),
                "adopted": {name: net.hparams.get(name) for name in ("clip", "transformation")},
            }
        self._data |= {
            "num_series": len(self._data["items"]),
            "num_static_real": len(self._data["static_units"]),
            "num_dynamic_real": len(self._data["dynamic_units"]),
        }


class _Moments:
    """Mean and standard deviation of each row of arrays that come one by one."""

    def __init__(self) -> None:
        self.count, self.sums = 0, np.zeros((0, 2))

    def add(self, rows: np.ndarray) -> None:
        rows = rows.astype(np.float64)
        sums = np.stack([rows.sum(1), np.square(rows).sum(1)], 1)
        self.sums = sums if self.count == 0 else self.sums + sums
        self.count += rows.shape[1]

    def units(self) -> list[list[float]]:
        mean, square = self.sums.T / max(self.count, 1)
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
        constant = deviation <= 1e-6 * np.abs(mean)
        return np.stack([mean, np.where(constant, 1.0, deviation)], 1).tolist()


def _context(freq: str) -> int:
    """Steps of the past in a training window, by frequency."""
    unit, season = calendar_unit(freq)[1], default_season(freq)
    if unit in ("h", "min") and season > 1:
        return 28 * season
    return {"D": 120, "B": 500}.get(unit, max(10 * season, 100))


def _recent(freq: str) -> int:
    """Steps of eight weeks where a day is the main season, else 0."""
    per_day = default_season(freq) if calendar_unit(freq)[1] in ("h", "min") else 0
    return 56 * per_day


def _fit(trainer: pl.Trainer, module: AbstractForecaster, loader: Any, validation: Any, checkpoint: Any) -> None:
    """Trains; what fails, fails, and Ctrl-C is a KeyboardInterrupt."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with warnings.catch_warnings():  # Lightning's about itself, and about validation data that nobody gave
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", r".*have no `val_dataloader`", UserWarning)
            trainer.fit(module, loader, validation, ckpt_path=checkpoint, weights_only=True)
    except SystemExit:
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, interrupt)  # from here on Lightning would have it ignored
        raise KeyboardInterrupt from None


def _hyperparameters(model: type) -> set[str]:
    """Names of a model's own arguments and those of all forecasters, without what data decide."""
    names = {*inspect.signature(model.__init__).parameters, *inspect.signature(AbstractForecaster.__init__).parameters}
    return names - DATA_DECIDED - {"self", "kwargs", "num_samples"}


def check_checkpoint(path: str | Path, module: AbstractForecaster) -> None:
    """Refuses a training checkpoint from which `module` cannot go on.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If it is damaged, foreign, of another format or of another model.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        version = checkpoint.get("tsforecast_format")
        shapes = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    except Exception as error:
        raise ValueError(
            f"{path} is not a readable checkpoint ({error}): it is damaged or not of tsforecast"
        ) from error
    if version != FORMAT:
        raise ValueError(
            f"{path} has format {version}, expected {FORMAT}: it is not of tsforecast, or of another version"
        )
    if shapes != {name: tuple(value.shape) for name, value in module.state_dict().items()}:
        raise ValueError(
            f"{path} is of another model: its weights do not fit; give the same model, data and hyperparameters"
        )
    if "optimizer_states" not in checkpoint:
        raise ValueError(f"{path} holds weights only: training cannot go on from it; take last.ckpt")
