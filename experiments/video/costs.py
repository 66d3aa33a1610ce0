"""What training and evaluation of models of video cost: seconds by part, memory; and training for a given time."""

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, LambdaCallback, Timer
from lightning.pytorch.profilers import PyTorchProfiler, SimpleProfiler

log = logging.getLogger(__name__)
_LINE_EVERY = 30.0  # seconds
Item = TypeVar("Item")
LAST_RATE = 0.01  # share of the learning rate that is left at the end, as in training by epochs
PROFILERS = {"parts": SimpleProfiler, "operators": partial(PyTorchProfiler, export_to_chrome=False)}


class Stopwatch:
    """Seconds by the name of what they were spent on; the innermost name counts."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._names: list[str] = []
        self._since = time.monotonic()

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Counts what happens inside."""
        self._switch()
        self._names.append(name)
        try:
            yield
        finally:
            self._switch()
            self._names.pop()

    def over(self, name: str, items: Iterable[Item]) -> Iterator[Item]:
        """Counts what making the items takes, and not what is done with them."""
        iterator = iter(items)
        while True:
            with self.on(name):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def _switch(self) -> None:
        now = time.monotonic()
        if self._names:
            self.seconds[self._names[-1]] += now - self._since
        self._since = now


def peak_memory(device: torch.device) -> float:
    """Most memory that this process has held at a time, in MiB: of a GPU what torch allocated there, else resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # getrusage's would include the parent's
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2 ** (20 if sys.platform == "darwin" else 10)


def limit(minutes: float | None) -> tuple[Timer, list[Callback]]:
    """Counts the time of training, over interruptions, and ends it where there is a limit.

    The learning rate then falls with the time that has passed as it else does with iterations: exponentially, to a
    hundredth at the end.

    Args:
        minutes: Of training; None without a limit.

    Returns:
        The timer, and the callbacks, it among them.
    """
    if minutes is None:
        timer = Timer(verbose=False)
        return timer, [timer]
    timer = Timer(timedelta(minutes=minutes), verbose=False)
    seconds, said = 60 * minutes, [0.0]

    def decay(trainer: pl.Trainer, *_: object) -> None:
        share = min(timer.time_elapsed() / seconds, 1.0)
        for group in trainer.optimizers[0].param_groups:
            first = group.setdefault("initial_lr", group["lr"])  # kept in checkpoints
            group["lr"] = first * LAST_RATE**share

    def say(trainer: pl.Trainer, *_: object) -> None:
        if timer.time_elapsed() - said[-1] >= _LINE_EVERY:
            said.append(timer.time_elapsed())
            loss = float(trainer.callback_metrics["train_loss"])
            log.info("epoch %d: train_loss %.4f; %.0f of %.0f s", trainer.current_epoch + 1, loss, said[-1], seconds)

    return timer, [timer, LambdaCallback(on_train_batch_start=decay, on_train_epoch_end=say)]
