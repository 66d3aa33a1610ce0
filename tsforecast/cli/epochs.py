"""What is said of the epochs while a model is trained."""

import logging
import time

import lightning.pytorch as pl
from lightning.pytorch.callbacks import LambdaCallback

from tsforecast.progress import LINE_EVERY

log = logging.getLogger(__name__)


def progress(epochs: int) -> pl.Callback:
    """Says now and then how far the training is."""
    state = {"first": 0, "begin": 0.0, "said": 0.0}

    def start(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        state.update(first=trainer.current_epoch, begin=time.monotonic())

    def epoch_end(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if "train_loss" in trainer.callback_metrics:  # else written after the checkpoint, and lost by a stop between
            row = {"train_loss": float(trainer.callback_metrics["train_loss"]), "epoch": float(trainer.current_epoch)}
            for logger in trainer.loggers:
                logger.log_metrics(row, step=trainer.global_step - 1)
        now, done = time.monotonic(), trainer.current_epoch + 1
        left = (now - state["begin"]) / (done - state["first"]) * (epochs - done)
        losses = ", ".join(f"{name} {trainer.callback_metrics[name]:.4f}" for name in _losses(trainer))
        due = now - state["said"] >= LINE_EVERY or done == epochs
        state["said"] = now if due else state["said"]
        level = logging.INFO if due else logging.DEBUG
        if trainer.progress_bar_callback is not None:  # which knows the current epoch only; lines go to the log file
            level = logging.DEBUG
            module.log("seconds_left", round(left), prog_bar=True, logger=False)
        log.log(level, "epoch %d of %d: %s; %.0f s left", done, epochs, losses, left)

    return LambdaCallback(on_train_start=start, on_train_epoch_end=epoch_end)


def _losses(trainer: pl.Trainer) -> list[str]:
    return [name for name in ("train_loss", "val_loss") if name in trainer.callback_metrics]
