"""Epochs of a training: where its checkpoints and losses go, and what is said of them."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from jsonargparse import Namespace
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from tsforecast.cli import runs
from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.progress import LINE_EVERY

log = logging.getLogger(__name__)


def trainer_options(folder: Path, chosen: Namespace, callbacks: Sequence[pl.Callback] = ()) -> dict[str, Any]:
    """Return the options of Lightning's `Trainer` by which a run writes its folder."""
    # One file, replaced after every epoch; with save_last=True Lightning would write it when the training ends only.
    last = (folder / runs.LAST).resolve()
    checkpoint = ModelCheckpoint(dirpath=last.parent, filename=last.stem, enable_version_counter=False)
    return {
        "default_root_dir": folder.resolve(),
        "logger": CSVLogger(folder.resolve(), name=runs.EPOCHS, version="", flush_logs_every_n_steps=1),
        "callbacks": [checkpoint, *callbacks],
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }


def progress(epochs: int) -> pl.Callback:
    """Says now and then how far the training is."""
    state = {"first": 0, "begin": 0.0, "said": 0.0}

    def start(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        state.update(first=_done(trainer, module), begin=time.monotonic())

    def epoch_end(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if "train_loss" in trainer.callback_metrics:  # else written after the checkpoint, and lost by a stop between
            row = {"train_loss": float(trainer.callback_metrics["train_loss"]), "epoch": float(trainer.current_epoch)}
            for logger in trainer.loggers:
                logger.log_metrics(row, step=trainer.global_step - 1)
        now, done = time.monotonic(), _done(trainer, module) + 1
        left = (now - state["begin"]) / (done - state["first"]) * (epochs - done)
        losses = ", ".join(f"{name} {trainer.callback_metrics[name]:.4f}" for name in _losses(trainer))
        due = now - state["said"] >= LINE_EVERY or done == epochs
        state["said"] = now if due else state["said"]
        level = logging.INFO if due else logging.DEBUG
        if trainer.progress_bar_callback is not None:  # it shows the current epoch only; lines go to the log file
            level = logging.DEBUG
            module.log("seconds_left", round(left), prog_bar=True, logger=False)
        log.log(level, "epoch %d of %d: %s; %.0f s left", done, epochs, losses, left)

    return LambdaCallback(on_train_start=start, on_train_epoch_end=epoch_end)


def _done(trainer: pl.Trainer, module: pl.LightningModule) -> int:
    """Return the epochs of the schedule that are done or skipped."""
    assert isinstance(module, ForecasterInTraining)
    return trainer.current_epoch + module.epochs_ahead


def _losses(trainer: pl.Trainer) -> list[str]:
    return [name for name in ("train_loss", "val_loss") if name in trainer.callback_metrics]
