"""How long a training takes: its schedule goes by faster where the loss falls no longer, or where time is short."""

import logging
import math
import statistics
import time
from typing import Any

import lightning.pytorch as pl
import numpy as np

from tsforecast.forecasting.lightning_module import ForecasterInTraining
from tsforecast.models import AbstractForecaster

log = logging.getLogger(__name__)

_PARTS = 8  # a stage of the training is compared eighth by eighth
_FASTER = 4  # epochs of the schedule that one epoch takes where the loss falls no longer
_OF_FIRST = 0.5  # share of the time that is left for the linear stage, before the cost of particles is known


class Pace(pl.Callback):
    """Takes several epochs of the schedule at once where the rest is not worth its time, or would not fit into it.

    Learning rates fall as far as ever, in fewer steps. The linear stage and the rest have their share each. What was
    taken is in checkpoints, so a training that is resumed goes on alike.

    Args:
        plateau: Relative fall of the loss over an eighth of a stage, beside its standard error, below which rates fall
            four times as fast; 0 for never. A negative log-likelihood is compared with 1 where it is smaller.
        time_budget: Seconds in which the training ends, but for the epoch that it is in; None for no bound. A budget
            makes what is learnt depend on the machine.
    """

    def __init__(self, plateau: float = 0.0, time_budget: float | None = None) -> None:
        self.plateau, self.time_budget = plateau, time_budget
        self.skipped = 0  # epochs of the schedule that had no epoch of their own
        self.spent = 0.0  # seconds
        self.losses: list[float] = []  # of each epoch of this stage
        self.seconds: list[float] = []  # likewise
        self._began, self._told = 0.0, False

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed training needs."""
        return {name: getattr(self, name) for name in ("skipped", "spent", "losses", "seconds")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` has returned; a ValueError if it is no such state."""
        skipped, spent = state_dict["skipped"], state_dict["spent"]
        losses, seconds = list(state_dict["losses"]), list(state_dict["seconds"])
        numbers = all(type(x) is float and math.isfinite(x) for x in (spent, *losses, *seconds))
        if not (type(skipped) is int and 0 <= skipped < 2**31 and numbers and len(losses) == len(seconds)):
            raise ValueError(f"expected counts, losses and seconds of epochs, got {state_dict!r:.100}")
        self.skipped, self.spent, self.losses, self.seconds = skipped, spent, losses, seconds

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell the module how many epochs it is ahead; a training that had ended does not go on."""
        assert isinstance(pl_module, ForecasterInTraining)
        pl_module.epochs_ahead = self.skipped
        if 0 < (trainer.max_epochs or 0) <= trainer.current_epoch + self.skipped:
            trainer.should_stop = True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to take the time."""
        self._began = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look at the loss and the time, and skip epochs of the schedule, or the rest of it."""
        assert isinstance(pl_module, ForecasterInTraining)
        last = trainer.max_epochs or 0
        if last <= 0:
            return
        self.seconds.append(time.monotonic() - self._began)
        self.spent += self.seconds[-1]
        self.losses.append(_loss(trainer))
        done, linear = trainer.current_epoch + 1 + self.skipped, min(pl_module.forecaster.groups.linear_epochs, last)
        first, end = (0, linear) if done <= linear else (linear, last)
        faster = _FASTER if self.plateau and self._flat(pl_module.forecaster, end - first) else 1
        if self.time_budget is not None:
            # What fits into the time; epochs of particles cost more, but not known yet.
            left = max((self.time_budget - self.spent) * (_OF_FIRST if end < last else 1), 1e-9)
            faster = max(faster, round((end - done) / (left / statistics.fmean(self.seconds[-3:]))))
        count = int(trainer.strategy.broadcast(max(0, min(faster, end - done) - 1)))
        if count:
            self._skip(trainer, count)
        if done == linear:  # what follows has another loss
            self.losses, self.seconds, self._told = [], [], False
        pl_module.epochs_ahead = self.skipped
        over = self.time_budget is not None and self.spent >= self.time_budget
        if over and done < last:
            log.warning("the time is over after %d of %d epochs of the schedule", done, last)
        trainer.should_stop = trainer.strategy.broadcast(over) or done >= last

    def _flat(self, module: AbstractForecaster, stage: int) -> bool:
        """Whether the loss hardly falls over an eighth, by the line through the last quarter of the stage."""
        count = max(2, round(stage / _PARTS))
        if len(self.losses) < 3 * count:
            return False
        recent = self.losses[-2 * count :]
        line, cov = np.polyfit(range(len(recent)), recent, 1, cov=True)
        size = abs(statistics.fmean(recent))
        if module.training_options.objective == "likelihood":
            size = max(size, 1.0)
        fall, error = -count * line[0], count * math.sqrt(cov[0, 0])
        flat = bool(fall < self.plateau * size + error)
        if flat and not self._told:
            self._told = True
            log.info("the loss falls no longer: the schedule goes on %d times as fast", _FASTER)
        return flat

    def _skip(self, trainer: pl.Trainer, count: int) -> None:
        """Move the schedules on by so many epochs."""
        assert trainer.max_epochs
        steps = round(trainer.estimated_stepping_batches / trainer.max_epochs * count)
        for config in trainer.lr_scheduler_configs:
            config.scheduler.last_epoch += steps - 1
            config.scheduler.step()  # pyright: ignore[reportCallIssue]
        self.skipped += count


def _loss(trainer: pl.Trainer) -> float:  # tests take its place
    return float(trainer.callback_metrics["train_loss"])
