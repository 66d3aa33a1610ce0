"""GluonTS estimator and predictor for every model."""

import inspect
import json
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from gluonts.core.component import validated
from gluonts.itertools import Cached, batcher
from gluonts.model.forecast import Forecast, SampleForecast
from gluonts.torch.model.estimator import PyTorchLightningEstimator, TrainOutput
from gluonts.torch.model.forecast import DistributionForecast
from gluonts.torch.model.predictor import PyTorchPredictor
from gluonts.transform import Transformation
from lightning.pytorch.callbacks import ModelCheckpoint

from tsforecast.data.checks import check_entries
from tsforecast.data.frequency import calendar_unit, default_season, expected_alias_warnings, period_alias
from tsforecast.data.transform import EpochLoader, Prepare, collate, cut
from tsforecast.models import DATA_DECIDED, INPUT_NAMES, MODELS, AbstractForecaster
from tsforecast.models.base import FORMAT

FORECASTS = ("samples", "distribution")
DEFAULT_EPOCHS = 50


class StateSpacePredictor(PyTorchPredictor):
    """Filters the history of each series and forecasts from its end.

    Histories of different length are padded to the longest of their batch only, and entries are checked as they pass, so
    memory does not grow with the number of series. A batch does not mix series of different fields.

    Args:
        prediction_net: A trained forecaster.
        input_transform: `Prepare`, with the horizon.
        prediction_length: Steps of a forecast.
        freq: Frequency which the data must have.
        batch_size: Series at a time.
        history_length: Steps of the history used at most; None for all.
        forecast: "samples" for sample paths, "distribution" for the exact marginal distributions (small; for fleets).
        device: "auto" for a GPU where there is one.
    """

    @validated()
    def __init__(
        self,
        prediction_net: torch.nn.Module,
        input_transform: Transformation,
        prediction_length: int,
        freq: str,
        batch_size: int = 64,
        history_length: int | None = None,
        forecast: str = "samples",
        device: str | torch.device = "auto",
    ) -> None:
        super().__init__(
            input_names=INPUT_NAMES,
            prediction_net=prediction_net,
            batch_size=batch_size,
            prediction_length=prediction_length,
            input_transform=input_transform,
            device=device,
        )
        self.freq = freq
        self.history_length = history_length
        self.forecast = forecast

    def predict(self, dataset: Iterable[dict[str, Any]], num_samples: int | None = None) -> Iterator[Forecast]:
        """A forecast for every entry, in order.

        Args:
            dataset: GluonTS data entries. `feat_dynamic_real` must reach over the horizon; an entry may carry
                `known_future`, the known part of the horizon's targets with NaN where free.
            num_samples: Sample paths; None for the model's own number.

        Raises:
            ValueError: If an entry is not as expected; the message names the series.
        """
        net = self.prediction_net.eval()
        assert isinstance(net, AbstractForecaster)
        for entries in batcher(self._checked(dataset), self.batch_size):
            prepared = self.input_transform(iter(entries), is_train=False)
            windows = [cut(e, len(e["target"]), self.history_length, self.prediction_length) for e in prepared]
            batch = collate(windows, self.device)
            with torch.no_grad():
                belief, _ = net.filter(batch)
                yield from self._forecasts(net, belief, batch, num_samples)

    def _checked(self, dataset: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for entry in dataset:
            check_entries([entry], self.freq, future=self.prediction_length)
            yield entry

    def _forecasts(self, net: Any, belief: Any, batch: dict[str, Any], num_samples: int | None) -> Iterator[Forecast]:
        common = [
            {"start_date": start, "item_id": item, "info": info}
            for start, item, info in zip(
                batch["forecast_start"],
                batch.get("item_id", [None] * len(batch["forecast_start"])),
                batch.get("info", [None] * len(batch["forecast_start"])),
                strict=True,
            )
        ]
        with expected_alias_warnings():
            if self.forecast == "distribution":
                yield from (
                    DistributionForecast(distribution=d, **c)
                    for d, c in zip(net.marginals(belief, batch), common, strict=True)
                )
                return
            samples = net.forecast(belief, batch, num_samples or net.num_samples)
            if net.num_targets == 1:
                samples = samples.squeeze(-1)
            for path, fields in zip(samples.cpu().numpy(), common, strict=True):
                yield SampleForecast(samples=path, **fields)


class StateSpaceEstimator(PyTorchLightningEstimator):
    """Trains a model on a GluonTS data set.

    Example:
        >>> estimator = StateSpaceEstimator(model="issm", freq="h", prediction_length=24)  # doctest: +SKIP
        >>> forecasts = estimator.train(dataset).predict(dataset)  # doctest: +SKIP

    Args:
        model: A name in `tsforecast.models.MODELS`.
        freq: Frequency of the data, in any of its names.
        prediction_length: Steps of a forecast.
        context_length: Steps of the past in a training window, at most; None for all of the training part.
        train_length: Steps at the end of each series that are trained on, at most: noises of long ago may mislead.
            None for by frequency (eight weeks of hours or minutes, otherwise everything), 0 for everything.
        history_length: Steps of the history which a prediction filters, at most; None for all.
        batch_size: Windows in a batch.
        num_batches_per_epoch: None for one pass over the data.
        num_samples: Sample paths of a forecast.
        seed: The order of the data, what is drawn in training, and the initial weights follow from it; None for not
            reproducible.
        forecast: "samples", or "distribution" for exact marginal distributions.
        trainer_kwargs: For Lightning's `Trainer` (default: 50 epochs, gradient clipped at 10, no files written).
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
        for name, value in (("prediction_length", prediction_length), ("batch_size", batch_size), ("num_samples", num_samples)):
            if value < 1:
                raise ValueError(f"expected {name} to be positive, got {value}")
        self.model = model
        self.freq = period_alias(freq)
        self.prediction_length = prediction_length
        self.context_length = context_length
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
        whoever sets a seed and checkpoints every epoch (`ModelCheckpoint(save_last=True)` among the callbacks) can go on
        from `ckpt_path` to the result of the uninterrupted run.

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
        self._look_at(training_data)
        if validation_data is not None:
            check_entries(validation_data, self.freq, min_length=self.prediction_length + 1)
        transformation = self.create_transformation()
        if self.seed is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                module = self.create_lightning_module()
        else:
            module = self.create_lightning_module()
        if from_predictor is not None:
            module.load_state_dict(from_predictor.network.state_dict())
        prepare = lambda data: transformation.apply(data, is_train=True)  # noqa: E731
        if cache_data:
            prepare = lambda data: Cached(transformation.apply(data, is_train=True))  # noqa: E731
        loader = self.create_training_data_loader(prepare(training_data), module, shuffle_buffer_length)
        validation = None
        if validation_data is not None:
            validation = self.create_validation_data_loader(prepare(validation_data), module)

        options = {"max_epochs": DEFAULT_EPOCHS, "gradient_clip_val": 10.0, "logger": False, **self.trainer_kwargs}
        callbacks = list(options.pop("callbacks", None) or [])
        scratch = tempfile.mkdtemp() if validation and "default_root_dir" not in options else None
        best = None
        if validation:
            folder = Path(options.get("default_root_dir") or scratch or ".") / "checkpoints"
            best = ModelCheckpoint(folder, "best", monitor="val_loss", save_weights_only=True, enable_version_counter=False)
            callbacks.append(best)
        options.setdefault("enable_checkpointing", any(isinstance(c, ModelCheckpoint) for c in callbacks))
        options.setdefault("num_sanity_val_steps", 0)
        try:
            trainer = pl.Trainer(callbacks=callbacks, **{"accelerator": "auto", "enable_model_summary": False, **options})
            if ckpt_path is not None:
                check_checkpoint(ckpt_path, module)
            trainer.fit(module, loader, validation, ckpt_path=ckpt_path, weights_only=True)
            if trainer.interrupted:
                raise KeyboardInterrupt
            if best is not None and best.best_model_path:
                weights = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
                module.load_state_dict(weights["state_dict"])
        finally:
            if scratch:
                shutil.rmtree(scratch, ignore_errors=True)
        return TrainOutput(transformation, module, trainer, self.create_predictor(transformation, module))

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
        seasons = self.create_lightning_module().season_names
        return Prepare(
            self.prediction_length, seasons, data["items"], data["cardinality"], data["num_static_real"], data["num_dynamic_real"]
        )

    def create_lightning_module(self) -> AbstractForecaster:
        """The model, untrained."""
        decided = {name: value for name, value in self._data.items() if name in DATA_DECIDED}
        options = {**decided, "freq": self.freq, "prediction_length": self.prediction_length, "season": default_season(self.freq)}
        if self.hyperparameters.get("clip", "auto") == "auto":
            options["clip"] = "nonnegative" if self._data["lowest"] >= 0 else "none"
        return MODELS[self.model](**{**self.hyperparameters, **options, "seed": self.seed})

    def create_training_data_loader(
        self, data: Any, module: Any, shuffle_buffer_length: int | None = None, **kwargs: Any
    ) -> Iterable:
        """Random windows."""
        return EpochLoader(
            data,
            self.context_length,
            self.prediction_length,
            self.batch_size,
            self.num_batches_per_epoch,
            self.seed,
            recent=self.train_length or None,
            buffer=shuffle_buffer_length or 4096,
        )

    def create_validation_data_loader(self, data: Any, module: Any, **kwargs: Any) -> Iterable:
        """The last window of each series."""
        return EpochLoader(data, self.context_length, self.prediction_length, self.batch_size, None, 0, at_end=True)

    def create_predictor(self, transformation: Transformation, module: Any) -> StateSpacePredictor:
        """The trained model with what prepares its input."""
        return StateSpacePredictor(
            module, transformation, self.prediction_length, self.freq, self.batch_size, self.history_length, self.forecast
        )

    def _look_at(self, data: Any) -> None:
        """Checks the training data and takes from them what the model must know."""
        check_entries(data, self.freq, min_length=self.prediction_length + 1)
        items: dict[str, None] = {}
        lowest, codes, form = np.inf, np.zeros(0), {}
        for entry in data:
            if entry.get("item_id") is not None:
                items[str(entry["item_id"])] = None
            target = np.asarray(entry["target"])
            lowest = min(lowest, np.nanmin(target))
            if "feat_static_cat" in entry:
                codes = np.maximum(codes if codes.size else 0, np.asarray(entry["feat_static_cat"], float).reshape(-1))
            form = {
                "num_targets": len(np.atleast_2d(target)),
                "num_static_real": np.size(entry.get("feat_static_real", ())),
                "num_dynamic_real": len(entry.get("feat_dynamic_real", ())),
                "start": entry["start"],
            }
        if self.hyperparameters.get("transformation") == "log1p" and lowest <= -1:
            raise ValueError(f"log1p needs values above -1, the lowest is {lowest:g}; take the transformation 'asinh'")
        features = Prepare(1, [], [], []).map_transform({"start": form.pop("start"), "target": np.zeros(1)}, True)
        self._data = {
            **form,
            "items": list(items),
            "num_series": len(items),
            "cardinality": [int(code) + 1 for code in codes],
            "num_time_features": features["time_feat"].shape[-1],
            "lowest": float(lowest),
        }


def _recent(freq: str) -> int:
    """Steps of eight weeks where a day is the main season, else 0."""
    per_day = default_season(freq) if calendar_unit(freq)[1] in ("h", "min") else 0
    return 56 * per_day


def _hyperparameters(model: type) -> set[str]:
    """Names of a model's own arguments and those of all forecasters, without what data decide."""
    names = {*inspect.signature(model.__init__).parameters, *inspect.signature(AbstractForecaster.__init__).parameters}
    return names - DATA_DECIDED - {"self", "kwargs", "num_samples"}


def with_prediction_length(predictor: StateSpacePredictor, prediction_length: int) -> StateSpacePredictor:
    """A predictor of the same weights for another horizon."""
    old = predictor.input_transform
    assert isinstance(old, Prepare)
    transform = Prepare(
        prediction_length, list(old.seasons), list(old.index), old.cardinality.tolist(), old.num_static_real, old.num_dynamic_real
    )
    return StateSpacePredictor(
        predictor.prediction_net,
        transform,
        prediction_length,
        predictor.freq,
        predictor.batch_size,
        predictor.history_length,
        predictor.forecast,
        predictor.device,
    )


def save_predictor(predictor: StateSpacePredictor, folder: str | Path) -> None:
    """Writes a predictor by GluonTS' `serialize`, with a format version; an existing folder is replaced at the end."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        predictor.serialize(scratch)
        (scratch / "format.json").write_text(json.dumps({"tsforecast_format": FORMAT}))
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load_predictor(folder: str | Path, device: str = "auto") -> StateSpacePredictor:
    """Reads what `save_predictor` wrote, onto any device; no code of the files is run.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If it is damaged, of another program or of another format.
    """
    folder = Path(folder)
    mark = folder / "format.json"
    if not mark.is_file():
        raise FileNotFoundError(f"expected a saved predictor in {folder}: there is no {mark}")
    try:
        version = json.loads(mark.read_text())["tsforecast_format"]
        if version != FORMAT:
            raise ValueError(f"{folder} has format {version}, this version of tsforecast reads format {FORMAT}")
        target = torch.device("cuda" if device == "auto" and torch.cuda.is_available() else "cpu" if device == "auto" else device)
        predictor = StateSpacePredictor.deserialize(folder, target)
    except (OSError, KeyError, TypeError, RuntimeError, EOFError, AssertionError, pickle.UnpicklingError, ValueError) as error:
        if isinstance(error, ValueError) and "has format" in str(error):
            raise
        raise ValueError(f"{folder} holds no readable predictor ({error}); it is damaged or not of tsforecast: train again") from error
    assert isinstance(predictor, StateSpacePredictor)
    return predictor


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
        raise ValueError(f"{path} is not a readable checkpoint ({error}): it is damaged or not of tsforecast") from error
    if version != FORMAT:
        raise ValueError(f"{path} has format {version}, expected {FORMAT}: it is not of tsforecast, or of another version")
    if shapes != {name: tuple(value.shape) for name, value in module.state_dict().items()}:
        raise ValueError(f"{path} is of another model: its weights do not fit; give the same model, data and hyperparameters")
    if "optimizer_states" not in checkpoint:
        raise ValueError(f"{path} holds weights only: training cannot go on from it; take last.ckpt")
