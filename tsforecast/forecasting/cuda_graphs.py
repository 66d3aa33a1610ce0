"""Training steps of a GPU as CUDA graphs, on request."""

from typing import Any

import lightning.pytorch as pl

from tsforecast.models import AbstractForecaster
from tsforecast.models.parts.captured import CapturedLoss


class CudaGraphs(pl.Callback):
    """A callback of Lightning that makes the training steps of a model on one GPU CUDA graphs.

    An iteration of a switching model takes a tenth of the time. The steps draw other random numbers than those without
    graphs, and each shape of batch holds the memory of a step. Validation and forecasts are as before.

    Not every loss can be captured: that of an `issm` on hourly data was refused, which by their presets switching
    models begin as there. An error then ends the training.

    Raises:
        ValueError: When the training begins, if it is not on one GPU, or accumulates gradients of several batches.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the model its graphs, which are captured when batches of a shape have come twice."""
        device = trainer.strategy.root_device.type
        if device != "cuda" or trainer.world_size > 1:
            raise ValueError(f"expected a training on one GPU for CUDA graphs, got {trainer.world_size} x {device}")
        if trainer.accumulate_grad_batches > 1:
            raise ValueError(
                f"expected accumulate_grad_batches=1 with CUDA graphs, got {trainer.accumulate_grad_batches}"
            )
        assert isinstance(pl_module, AbstractForecaster)
        pl_module.captured = CapturedLoss(pl_module, pl_module.loss)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Release the graphs."""
        assert isinstance(pl_module, AbstractForecaster)
        pl_module.captured = None

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: Any) -> None:
        """Release the graphs."""
        self.on_train_end(trainer, pl_module)
