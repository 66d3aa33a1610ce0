"""Training by Lightning: the best weights, checkpoints to go on from, interrupts that are interrupts."""

import logging
import os
import re
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tsforecast.data.epochs import EpochLoader
from tsforecast.forecasting.checkpoint import CheckOptimizers, check_callbacks
from tsforecast.forecasting.grid_training import build_kernels
from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.forecasting.serialization import differing
from tsforecast.io.tensors import load_tensors, save_tensors
from tsforecast.models import FORMAT, AbstractForecaster
from tsforecast.models.markov import MarkovForecaster
from tsforecast.models.parts.captured import SWITCH, CapturedLoss
from tsforecast.progress import is_watched, warnings_only
from tsforecast.wording import option

log = logging.getLogger(__name__)


def fit(
    module: AbstractForecaster,
    loader: Iterable,
    validation: Iterable | None,
    options: dict[str, Any],
    checkpoint: str | Path | None = None,
) -> pl.Trainer:
    """Trains a module to the last weights, or with validation data to those of the lowest validation loss.

    Returns:
        The trainer, when it has ended.

    Raises:
        FileNotFoundError: If there is no such checkpoint.
        ValueError: If training cannot go on from it.
    """
    if checkpoint is not None:
        check_checkpoint(checkpoint, module)
    with tempfile.TemporaryDirectory() as scratch, warnings_only("lightning.pytorch"):
        trainer = _trainer(options, scratch if validation is not None else None, checkpoint)
        if isinstance(loader, EpochLoader):
            loader.place = _Place(trainer)
        if not isinstance(module, MarkovForecaster) and trainer.strategy.root_device.type == "cpu":
            build_kernels()
        trained = ForecasterInTraining(module)
        trained.captured = CapturedLoss(module, module.loss) if _has_graphs(trainer) else None
        try:
            _run(trainer, trained, loader, validation, checkpoint)
        except ArithmeticError as error:
            _fall_back(trainer, trained, error)
        finally:
            trained.captured = None  # releases the memory of the graphs
        best = next((c for c in trainer.checkpoint_callbacks if getattr(c, "monitor", None) == "val_loss"), None)
        if isinstance(best, ModelCheckpoint) and best.best_model_path:
            weights = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
            module.load_state_dict(weights["state_dict"])
        if trainer.world_size > 1:
            trainer.strategy.barrier()  # others still read what is in the folder
    return trainer


def _fall_back(trainer: pl.Trainer, trained: ForecasterInTraining, error: ArithmeticError) -> None:
    """Gives a model back the regimes that EM has found, where a later step fails; of others the error is raised."""
    if trained.begun is None or trainer.world_size > 1:
        raise error
    if not trainer.global_step:
        raise type(error)(f"{error}; the training began where EM ended: {option('starts', 0)} leaves it out") from error
    trained.load_state_dict(trained.begun)
    log.warning(
        "the training failed at step %d (%s): the model is the one that EM has found, where it began",
        trainer.global_step,
        error,
    )


def _has_graphs(trainer: pl.Trainer) -> bool:
    """Whether training steps are CUDA graphs: if asked for, on one GPU, with own gradients of each step, in full."""
    if os.environ.get(SWITCH) != "1":
        return False
    alone = trainer.strategy.root_device.type == "cuda" and trainer.world_size == 1
    whole = trainer.accumulate_grad_batches == 1 and trainer.precision in ("32-true", "64-true")
    if not (alone and whole):
        log.info("training without CUDA graphs: they need one GPU, full precision and a step for each batch")
    return alone and whole


@dataclass(frozen=True)
class _Place:
    """The rank of this process among those of a trainer, and their number."""

    trainer: pl.Trainer

    def __call__(self) -> tuple[int, int]:
        return self.trainer.global_rank, self.trainer.world_size


def _trainer(options: dict[str, Any], scratch: str | None, checkpoint: str | Path | None) -> pl.Trainer:
    """Return a trainer with the caller's options, which keeps the best weights if there are validation data."""
    options = dict(options)
    callbacks = options.pop("callbacks", None) or []
    callbacks = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    checkpoints = [c for c in callbacks if isinstance(c, ModelCheckpoint)]
    watched = any(c.monitor == "val_loss" for c in checkpoints)
    if scratch is not None and not watched and options.get("enable_checkpointing", True):
        root = options.get("default_root_dir")
        folders = [Path(root) / "checkpoints"] if root else [c.dirpath for c in checkpoints if c.dirpath]
        folder = [*folders, scratch][0]  # beside the caller's checkpoints a resumed run finds it again
        best = ModelCheckpoint(folder, "best", monitor="val_loss", save_weights_only=True, enable_version_counter=False)
        # It comes before the caller's own, so that their checkpoints hold its state of the same epoch for a resumed
        # run.
        callbacks.insert(callbacks.index(checkpoints[0]) if checkpoints else len(callbacks), best)
        checkpoints.append(best)
    if checkpoint is not None:
        callbacks.append(CheckOptimizers(checkpoint))
    defaults = {
        "accelerator": "auto",
        "devices": 1,
        "log_every_n_steps": 1,  # losses are logged by epoch: Lightning warns of epochs shorter than its 50 steps
        "enable_progress_bar": is_watched(),
        "enable_model_summary": False,
        "enable_checkpointing": bool(checkpoints),
        "num_sanity_val_steps": 0,
    }
    plugins = options.pop("plugins", None) or []
    plugins = list(plugins) if isinstance(plugins, list | tuple) else [plugins]
    if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
        plugins.append(_WholeCheckpoints())
    options = {**defaults, **options, "use_distributed_sampler": False}  # loaders give each process its own windows
    try:
        trainer = pl.Trainer(callbacks=callbacks, plugins=plugins, **options)
    except ImportError as error:  # of a package that an accelerator needs
        raise ValueError(f"there is no accelerator {options['accelerator']!r} here ({error})") from error
    if trainer.world_size > 1 and options.get("strategy", "auto") in ("auto", "ddp"):
        # Seasons that a window lacks, inputs that are not there: some parameters have no gradient.
        options["strategy"] = "ddp_find_unused_parameters_true"
        trainer = pl.Trainer(callbacks=callbacks, plugins=plugins, **options)
    return trainer


class _WholeCheckpoints(TorchCheckpointIO):
    """Writes a checkpoint beside its place, as every file here; Lightning takes the system's temporary folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Writes a checkpoint whole or not at all; Lightning does it where the path is a URL."""
        if storage_options is not None or "://" in str(path):
            return super().save_checkpoint(checkpoint, path, storage_options)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_tensors(checkpoint, path)


class _EndAtOnce(pl.Callback):
    """Ends a training of one process where SIGTERM meets it; Lightning would end the step first, however long it is."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Takes the place of Lightning's handler, which the trainer takes away again at its end."""
        if trainer.world_size == 1 and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._end)

    @staticmethod
    def _end(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one waits for nothing
        raise SIGTERMException


def _run(trainer: pl.Trainer, module: ForecasterInTraining, loader: Any, validation: Any, checkpoint: Any) -> None:
    """Runs the trainer, so that what fails raises, and Ctrl-C raises a KeyboardInterrupt."""
    interrupt = signal.getsignal(signal.SIGINT)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and not SLURMEnvironment.detect():
        trainer.callbacks.append(_EndAtOnce())  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with warnings.catch_warnings():  # of Lightning about itself, and about missing validation data
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", r".*have no `val_dataloader`", UserWarning)
            if checkpoint is not None:  # a resumed run writes where its checkpoints are: the callback has no option
                warnings.filterwarnings("ignore", r"Checkpoint directory .* exists and is not empty", UserWarning)
            trainer.fit(module, loader, validation, ckpt_path=checkpoint, weights_only=True)
    except SystemExit:
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, interrupt)  # Lightning would ignore the signal from here on
        raise KeyboardInterrupt from None


def check_checkpoint(path: str | Path, module: AbstractForecaster) -> None:
    """Refuses a training checkpoint from which `module` cannot go on: damaged, foreign, or of another model."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        checkpoint = load_tensors(path)
        version = checkpoint.get("tsforecast_format")
        weights = checkpoint["state_dict"]
        found, expected = ({name: tuple(x.shape) for name, x in w.items()} for w in (weights, module.state_dict()))
        check_callbacks(checkpoint)
        if not re.match(r"2\.\d+\.\d+", checkpoint["pytorch-lightning_version"]):  # Lightning converts older ones
            raise ValueError("expected one of Lightning 2")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{path} is not a readable checkpoint ({error}): it is damaged or not of tsforecast"
        ) from error
    if version != FORMAT:
        raise ValueError(
            f"{path} has format {version}, expected {FORMAT}: it is not of tsforecast, or of another version"
        )
    if found != expected:
        raise ValueError(
            f"{path} is of another model: its weights do not fit{differing(found, expected)}; give the same model, "
            "data and hyperparameters"
        )
    if [*found] != [*expected]:  # the optimizer tells weights apart by their order
        raise ValueError(
            f"{path} is of another version of tsforecast: its weights come in another order; start a new run"
        )
    if "optimizer_states" not in checkpoint:
        raise ValueError(f"{path} holds weights only: training cannot go on from it; take last.ckpt")
