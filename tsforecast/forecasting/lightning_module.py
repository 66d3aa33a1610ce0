"""A forecaster in training, as a module of Lightning: losses of steps, gradients, rates, and what a checkpoint has."""

from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor

from tsforecast.models.base import FORMAT, AbstractForecaster
from tsforecast.models.parts.captured import CapturedLoss
from tsforecast.models.records import Batch


class ForecasterInTraining(pl.LightningModule):
    """A forecaster as Lightning trains it. Its weights, also in checkpoints, are those of the forecaster alone."""

    epochs_ahead = 0  # of the schedule that a training has skipped, see `tsforecast.forecasting.pace`

    def __init__(self, forecaster: AbstractForecaster) -> None:
        super().__init__()
        self.forecaster = forecaster
        self.captured: CapturedLoss | None = None  # of a training by CUDA graphs
        self.begun: dict[str, Tensor] | None = None  # weights where a model begins that begins at data

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights of the forecaster."""
        return self.forecaster.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Give the forecaster its weights."""
        return self.forecaster.load_state_dict(state_dict, strict, assign)

    def on_train_epoch_start(self) -> None:
        """Tell the forecaster which epoch of the schedule it is."""
        self.forecaster.epoch = self.current_epoch + self.epochs_ahead

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean loss of the batch.

        What it draws follows from the seed, the epoch, the number of the batch and the rank of the process, so a
        resumed run repeats it.
        """
        rank = self.global_rank
        return self._step(batch, "train_loss", 0, self.current_epoch, batch_idx, *([rank] if rank else []))

    def validation_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the mean loss of the batch.

        What it draws is the same in every epoch, so that epochs can be compared.
        """
        return self._step(batch, "val_loss", 1, batch_idx)

    def _step(self, batch: Batch, name: str, *stream: int) -> Tensor:
        devices = [self.device] if self.device.type == "cuda" else []
        seed = self.forecaster.training_options.seed
        entropy = None if seed is None else int(np.random.SeedSequence([seed % 2**63, *stream]).generate_state(1)[0])
        with torch.random.fork_rng(devices, enabled=seed is not None):
            captured = self.captured if self.training else None
            compute = self.forecaster.loss if captured is None else captured.prepare(batch, self.forecaster.is_linear)
            loss = self._drawn(compute, batch, entropy).mean()
            if captured is not None and not torch.isfinite(loss):  # graphs do not say what failed
                loss = self._drawn(self.forecaster.loss, batch, entropy).mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(
                f"the training loss became {loss.item()} at step {self.global_step}: lower learning_rate, clip the "
                "gradient, or look for extreme values in the data (a transformation helps with spikes)"
            )
        size, together = len(batch["past_target"]), self._trainer is not None and self._trainer.world_size > 1
        self.log(name, loss, on_epoch=True, on_step=False, prog_bar=True, batch_size=size, sync_dist=together)
        return loss

    def _drawn(self, loss: Callable[[Batch], Tensor], batch: Batch, entropy: int | None) -> Tensor:
        """Return the loss of a batch with the random numbers that follow from the entropy, if there is any."""
        if entropy is not None and self.device.type == "cpu":
            # `torch.manual_seed` also remembers the stack for each kind of device that is not there: 1 to 3 ms a step.
            torch.default_generator.manual_seed(entropy)
        elif entropy is not None:
            torch.manual_seed(entropy)
        return loss(batch)

    def on_train_start(self) -> None:
        """Call `begin` with the first batch, in models that have one; of several processes, that of the first."""
        begin = self.forecaster.begin
        if begin is not None and not self.global_step:
            assert self.trainer.train_dataloader is not None
            first = next(iter(self.trainer.train_dataloader))
            before = self._is_begun
            begin(self.forecaster.inference, self.trainer.strategy.batch_to_device(first))
            if self._is_begun and not before:
                self.begun = {name: x.detach().clone() for name, x in self.state_dict().items()}
            if self.trainer.world_size > 1:
                for tensor in self.state_dict().values():
                    torch.distributed.broadcast(tensor, 0)

    @property
    def _is_begun(self) -> bool:
        """Return whether the model has begun at the data; some begin otherwise."""
        return bool(getattr(self.forecaster.dynamics, "is_begun", False))

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise a FloatingPointError for a gradient that is not finite, before it changes the parameters."""
        norm = torch.nn.utils.get_total_norm(p.grad for p in self.parameters() if p.grad is not None)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of the training loss became {norm.item()} at step {self.global_step}: lower the "
                "learning rates, shorten gradient_length where the model has it, or look for extreme values in the data"
            )

    def configure_optimizers(self) -> Any:
        """Return Adam with its groups of parameters, and their learning rate schedules."""
        total = float(self.trainer.estimated_stepping_batches)
        parameters = self.forecaster.dynamics.named_parameters()
        return self.forecaster.groups.optimizer(parameters, total, self.trainer.max_epochs)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the format to the checkpoint, and all options as plain values."""
        checkpoint["tsforecast_format"] = FORMAT
        checkpoint["hyper_parameters"] = self.forecaster.hyperparameters
