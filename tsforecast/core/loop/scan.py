"""The one loop over time."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.loop.compiled import compiled_scan

Carry = TypeVar("Carry")


def scan(
    step: Callable[[Carry, Any], tuple[Carry, Any]],
    carry: Carry,
    xs: Any,
    reverse: bool = False,
    first: int = 0,
    compiled: bool = False,
    unroll: int = 1,
) -> tuple[Carry, Any]:
    """Folds a pure function over time, eagerly or, on request, as one compiled program.

    Args:
        step: (carry, x) -> (carry, output). The output is a pytree of tensors and None, of one structure at every step.
        carry: What the first step begins with.
        xs: A number of steps, each of which is given its index; or a pytree whose tensors have a leading dimension of
            time and whose ranges have one entry a step. None stays None.
        reverse: Whether to begin with the last step. Outputs are in the order of time in any case.
        first: Index of the first step in error messages.
        compiled: Whether to compile the loop: for many steps of little work. Where the compiler cannot, the loop is
            eager, with one warning.
        unroll: Of the compiled loop: steps that are written out in each round, as `jax.lax.scan` has it. More take less
            time each, and longer to compile.

    Returns:
        The last carry; and the outputs, stacked over time. Where the shape of an output changes with time (a covariance
        is one for all series until the first missing value) it is broadcast.

    Raises:
        ValueError: If there is no step, `xs` disagree about their number, or `unroll` is below one.
        NotPositiveDefiniteError: As raised by a step, with its index in front.
    """
    leaves, spec = pytree.tree_flatten(range(xs) if isinstance(xs, int) else xs)
    lengths = {len(leaf) for leaf in leaves if leaf is not None}
    if len(lengths) != 1 or 0 in lengths:  # of no step the outputs have no shape
        raise ValueError(f"Expected one number of steps, at least 1; got {sorted(lengths)}.")
    if unroll < 1:
        raise ValueError(f"Expected at least one step in a round, got unroll={unroll}.")
    if compiled:
        try:
            return compiled_scan(step, carry, leaves, spec, reverse, unroll)
        except RuntimeError as error:  # the compiler's own errors are of many kinds, this is what they share
            reason = str(error).strip().split("\n")[0]
            warnings.warn(
                f"the loop could not be compiled and is eager ({type(error).__name__}: {reason})", stacklevel=2
            )
    times = range(lengths.pop())
    # Unbinding has one adjoint for all steps; indexing would fill a tensor of zeros for each of them.
    columns = [leaf.unbind(0) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    outputs: list[Any] = []
    for time in reversed(times) if reverse else times:
        x = pytree.tree_unflatten([None if column is None else column[time] for column in columns], spec)
        try:
            carry, output = step(carry, x)
        except NotPositiveDefiniteError as error:
            # A step does not know its number.
            raise NotPositiveDefiniteError(f"Step {first + time}: {error}") from error
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return carry, pytree.tree_map(_stack, outputs[0], *outputs[1:])


def _stack(*parts: Any) -> Tensor | None:
    if parts[0] is None:
        return None
    # A covariance may be shared at first and each series' own later.
    changes = any(part.shape != parts[0].shape for part in parts)
    return torch.stack(torch.broadcast_tensors(*parts) if changes else parts)
