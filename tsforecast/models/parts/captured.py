"""Losses as CUDA graphs: a GPU gets a training step once and as a whole, not operation by operation.

The environment variable TSFORECAST_CUDA_GRAPHS set to 1 asks for them, in trainings on one GPU.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.torch_internals import branchless
from tsforecast.models.records import Batch

log = logging.getLogger(__name__)

SWITCH = "TSFORECAST_CUDA_GRAPHS"

_EAGER = 2  # batches of a shape before it is captured: a capture takes as long as four steps
_MOST_GRAPHS = 4  # each holds the memory of a step


class CapturedLoss:
    """The loss of a module on a GPU, with its gradients one CUDA graph for each shape of batch that comes repeatedly.

    A switching model's step is thousands of small operations, and launching one takes longer than to compute it. A
    graph is launched at once. It repeats the operations of its capture, so no value may steer the program (see
    `branchless`). Where a covariance is not positive definite, the loss is NaN, and the caller finds out why. A loss
    that waits for the GPU, as one that reads a value of a tensor, has no graphs and is computed as it is.

    Args:
        module: With its parameters, which may change but must stay where they are.
        loss: The loss of the module, of a batch.
    """

    def __init__(self, module: torch.nn.Module, loss: Callable[[Batch], Float[Tensor, " series"]]) -> None:
        self.module, self.loss = module, loss
        self._seen: Counter[Any] = Counter()
        self._graphs: dict[Any, Callable[..., Tensor]] = {}
        self._waits = False

    def prepare(self, batch: Batch, *phase: Any) -> Callable[[Batch], Float[Tensor, " series"]]:
        """Return the function for the loss of this batch; random numbers are drawn if a graph is captured for it.

        Args:
            batch: Only its tensors are read.
            phase: What the loss depends on beside the batch, such as a phase of the training.

        Raises:
            RuntimeError: If the step cannot be captured: an operation does not allow it, or memory is too small.
        """
        if self._waits:
            return self.loss
        names = sorted(name for name, x in batch.items() if isinstance(x, Tensor))
        # A phase, such as the linear one, runs other operations.
        key = (*phase, *((name, batch[name].shape, batch[name].dtype) for name in names))
        if key not in self._graphs and len(self._graphs) < _MOST_GRAPHS:
            self._seen[key] += 1
            if self._seen[key] > _EAGER:
                self._capture(key, {name: batch[name] for name in names})
        if key not in self._graphs:
            return self._eager
        graph = self._graphs[key]
        return lambda batch: graph(*(batch[name] for name in names))

    def _eager(self, batch: Batch) -> Float[Tensor, " series"]:
        with branchless():
            return self.loss(batch)

    def _capture(self, key: Any, batch: Batch) -> None:
        """Capture the loss and its gradients, unless they wait for the GPU."""
        step = _Step(self.module, self.loss, sorted(batch))
        inputs = tuple(batch[name].clone() for name in step.names)  # a graph reads and writes memory of its own
        with branchless(), torch.enable_grad():
            if reason := _reason_to_wait(step, inputs):
                log.info("training without CUDA graphs: %s", reason)
                self._waits = True  # one that waits once waits at every step
                return
            # Other tensors of the same numbers: what a step before has left, such as its loss, ties the gradients of
            # the weights to the stream that it ran on.
            weights = tuple(x.detach().requires_grad_(x.requires_grad) for x in step.parameters())
            try:
                # Seasons that no window has, inputs that are not there: some parameters have no gradient.
                graph = torch.cuda.make_graphed_callables(step.of, (*inputs, *weights), allow_unused_input=True)
            except RuntimeError as error:  # torch leaves its random numbers and its memory as they were in the capture
                reason = _first_line(error.__context__ or error)
                raise RuntimeError(
                    f"a training step could not be captured as a CUDA graph ({reason}); train without CUDA graphs, in "
                    f"a new process: without {SWITCH} in the environment"
                ) from error
        # Weights are where they were in the capture, so that they are not copied.
        self._graphs[key] = lambda *inputs: graph(*inputs, *step.parameters())  # pyright: ignore


class _Step(torch.nn.Module):
    """A loss of tensors in the order of names, as a module with the parameters that it depends on."""

    def __init__(
        self, module: torch.nn.Module, loss: Callable[[Batch], Float[Tensor, " series"]], names: list[str]
    ) -> None:
        super().__init__()
        self.module, self.loss, self.names = module, loss, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(dict(zip(self.names, inputs, strict=True)))

    def of(self, *inputs: Tensor) -> Tensor:
        """Return the loss of inputs, and of parameters that come after them."""
        count = len(self.names)
        weights = dict(zip((name for name, _ in self.named_parameters()), inputs[count:], strict=True))
        return torch.func.functional_call(self, weights, inputs[:count])


def _reason_to_wait(step: torch.nn.Module, inputs: tuple[Tensor, ...]) -> str:
    """Return why a step with its gradients makes the processor wait for the GPU; nothing if it does not."""
    weights = [weight for weight in step.parameters() if weight.requires_grad]
    step(*inputs)  # makes the constants
    before = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)  # not all is found, it says
            torch.cuda.set_sync_debug_mode("error")
        torch.autograd.grad(step(*inputs).mean(), weights, allow_unused=True)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return _first_line(error)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return ""


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
