"""The one loop over time."""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core.linalg import ADVICE, NotPositiveDefiniteError

Carry = TypeVar("Carry")


def scan(
    step: Callable[[Carry, Any], tuple[Carry, Any]],
    carry: Carry,
    xs: Any,
    reverse: bool = False,
    first: int = 0,
    compiled: bool = False,
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

    Returns:
        The last carry; and the outputs, stacked over time. Where the shape of an output changes with time (a covariance
        is one for all series until the first missing value) it is broadcast.

    Raises:
        ValueError: If there is no step, or `xs` disagree about their number.
        NotPositiveDefiniteError: As raised by a step, with its index in front.
    """
    leaves, spec = pytree.tree_flatten(range(xs) if isinstance(xs, int) else xs)
    lengths = {len(leaf) for leaf in leaves if leaf is not None}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"Expected one number of steps, at least 1; got {sorted(lengths)}.")
    if compiled:
        try:
            return _compiled_scan(step, carry, leaves, spec, reverse)
        except NotPositiveDefiniteError:
            raise
        except Exception as error:  # the compiler's own errors are of many kinds
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
            raise NotPositiveDefiniteError(f"Step {first + time}: {error}") from error
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return carry, pytree.tree_map(_stack, outputs[0], *outputs[1:])


def _stack(*parts: Tensor | None) -> Tensor | None:
    return None if parts[0] is None else torch.stack(torch.broadcast_tensors(*parts))


def _compiled_scan(
    step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, leaves: list[Any], spec: Any, reverse: bool
) -> tuple[Any, Any]:
    """By torch's prototype of the operator, which takes flat lists of tensors that do not alias each other.

    Raises:
        NotPositiveDefiniteError: If a result is not finite: compiled code does not look at each factorisation.
    """
    from torch._higher_order_ops import scan as operator

    carries, carry_spec = pytree.tree_flatten(carry)
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    output_specs: list[Any] = []

    def flat(state: list[Tensor], columns: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        x: list[Any] = [None] * len(leaves)
        for place, column in zip(places, columns, strict=True):
            x[place] = column
        new, output = step(pytree.tree_unflatten(state, carry_spec), pytree.tree_unflatten(x, spec))
        outputs, output_spec = pytree.tree_flatten(output)
        output_specs.append(output_spec)
        return [t.clone() for t in pytree.tree_leaves(new)], [t.clone() for t in outputs]

    @torch.compile(fullgraph=True)
    def whole(state: list[Tensor], columns: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        return operator(flat, state, columns, reverse=reverse)

    state, outputs = whole(carries, [leaves[place] for place in places])
    if not all(bool(t.isfinite().all()) for t in state if t.is_floating_point()):
        raise NotPositiveDefiniteError(f"A compiled loop ended in NaN or inf. {ADVICE}")
    return pytree.tree_unflatten(state, carry_spec), pytree.tree_unflatten(outputs, output_specs[-1])
