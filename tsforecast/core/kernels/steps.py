"""Verbs of one step as single operations with their adjoints, for many filters with a covariance each.

Each is a torch function around two calls of the program. A second derivative goes through torch's own operations: the
reference, a function of the same tensors that the caller hands over.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tsforecast.core.kernels.calls import anew, call, flat
from tsforecast.core.linalg import broadcast_shapes

Reference = Callable[..., tuple[Tensor, ...]]
Events = tuple[tuple[int, ...], ...]  # sizes of the last dimensions of every tensor


def push(
    reference: Reference,
    matrix: Tensor,
    cov: Tensor,
    mean: Tensor,
    offset: Tensor,
    noise: Tensor,
    *,
    with_cross: bool,
    diagonal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `matrix m + offset`, Cov(b, a) = `matrix V`, and the symmetric part of `matrix V matrix' + noise`.

    Args:
        reference: See the head of this file.
        matrix: (*batch, out, state).
        cov: Of the state.
        mean: Of the state.
        offset: Added to the mean.
        noise: Covariance, or variances.
        with_cross: Whether the covariance with the state is wanted; else it is empty.
        diagonal: Whether the noise is given by its variances.
    """
    return run(_Push, reference, with_cross, diagonal, matrix, cov, mean, offset, noise)


def condition(
    reference: Reference, mean: Tensor, cov: Tensor, residual: Tensor, cross: Tensor, among: Tensor, seen: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return mean and covariance of the state given an observation, its log-density, and failures (not 0), if any.

    Args:
        reference: See the head of this file.
        mean: Of the state.
        cov: Of the state.
        residual: Observation less expectation.
        cross: Cov(b, a).
        among: The covariance of b.
        seen: False where missing.
    """
    return run(_Condition, reference, mean, cov, residual, cross, among, seen)


def propose(reference: Reference, *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return sample, log-ratio, moments given the sample, and the failed factorisation (1, 2 or 0), if any failed.

    Args:
        reference: See the head of this file.
        tensors: Mean and covariance of the state; mean of b, Cov(b, a), covariance of b; standard noise; then mean and
            variance of the proposal, standard noise, and where the proposal is used: None without.
    """
    return run(_Propose, reference, *tensors)


def run(function: Any, *args: Any) -> Any:
    """Call past autograd where nobody asks for a gradient: it costs as much as the step of a few filters."""
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in args):
        return function.apply(*args)[: function.outputs]
    return function.forward(None, *args)[: function.outputs]


def batch_of(tensors: tuple[Tensor | None, ...], events: Events) -> torch.Size:
    """Return the broadcast batch of all tensors; the last dimensions of each, its event, are no batch."""
    return broadcast_shapes(
        *(x.shape[: x.ndim - len(event)] for x, event in zip(tensors, events, strict=True) if x is not None)
    )


def flat_all(tensors: Sequence[Tensor | None], batch: torch.Size, events: Events) -> list[Tensor | None]:
    """Return all tensors with one of each for every filter, in one piece; see `flat`."""
    return [flat(x, batch, *event) for x, event in zip(tensors, events, strict=True)]


def keep(ctx: Any, inputs: tuple[Tensor | None, ...], kept: tuple[Tensor, ...], *settings: Any) -> None:
    """Keep tensors and settings for the adjoint."""
    ctx.set_materialize_grads(False)  # an unused output has None for its cotangent, not zeros to multiply by
    ctx.save_for_backward(*inputs, *kept)
    ctx.settings = settings


def summed(grads: list[Tensor | None], inputs: tuple[Tensor | None, ...], needs: tuple[bool, ...]) -> list[Any]:
    """Return the wanted cotangents, summed over broadcast dimensions."""
    triples = zip(grads, inputs, needs, strict=True)
    return [None if g is None or x is None or not need else g.sum_to_size(x.shape) for g, x, need in triples]


def whole(*bars: Tensor | None) -> list[Tensor | None]:
    """Return cotangents in one piece."""
    return [None if x is None else x.contiguous() for x in bars]


class _Push(torch.autograd.Function):
    """See `push`."""

    outputs = 3

    @staticmethod
    def forward(ctx: Any, reference: Reference, with_cross: bool, diagonal: bool, *tensors: Tensor) -> tuple:
        out, state = tensors[0].shape[-2:]
        events = (out, state), (state, state), (state,), (out,), (out,) if diagonal else (out, out)
        batch = batch_of(tensors, events)
        inputs = flat_all(tensors, batch, events)
        new = tensors[0].new_empty
        moved, among = new(*batch, out), new(*batch, out, out)
        cross = new(*batch, out, state) if with_cross else None
        call("push_forward", batch.numel(), (out, state, not diagonal), *inputs, moved, cross, among)
        if ctx is not None:
            keep(ctx, tensors, (), reference, batch, events)
        return moved, new(0) if cross is None else cross, among

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        (reference, batch, events), tensors, needs = ctx.settings, ctx.saved_tensors, ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            return None, None, None, *anew(reference, tensors, needs, bars)
        mean_bar, cross_bar, among_bar = whole(*bars)
        (out, state), new = events[0], tensors[0].new_empty
        shapes = (*events[:3], events[4])
        grads = [
            new(*batch, *shape) if need else None for shape, need in zip(shapes, (*needs[:3], needs[4]), strict=True)
        ]
        inputs = flat_all(tensors[:3], batch, events[:3])
        sizes = (out, state, len(events[4]) == 2)
        call("push_backward", batch.numel(), sizes, *inputs, mean_bar, cross_bar, among_bar, *grads)
        return None, None, None, *summed([*grads[:3], mean_bar, grads[3]], tensors, needs)


class _Condition(torch.autograd.Function):
    """See `condition`."""

    outputs = 4

    @staticmethod
    def forward(ctx: Any, reference: Reference, *tensors: Tensor | None) -> tuple:
        cross = tensors[3]
        assert cross is not None
        out, state = cross.shape[-2:]
        events = (state,), (state, state), (out,), (out, state), (out, out), (out,)
        batch = batch_of(tensors, events)
        inputs, count = flat_all(tensors, batch, events), batch.numel()
        new = cross.new_empty
        given = new(*batch, state), new(*batch, state, state), new(batch)
        failed = torch.empty(batch, dtype=torch.int32, device=cross.device)
        bad = call("condition_forward", count, (out, state), *inputs, *given, failed)
        if ctx is not None:
            keep(ctx, tensors, (), reference, batch, events)
        return *given, failed if bad else None

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        (reference, batch, events), needs = ctx.settings, ctx.needs_input_grad[1:]
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, *anew(reference, tensors, needs, bars)
        mean_bar, cov_bar, log_bar, _ = whole(*bars)
        new = tensors[0].new_empty
        grads = [new(*batch, *event) for event in events[2:5]]
        inputs = flat_all(tensors[2:], batch, events[2:])
        call("condition_backward", batch.numel(), events[3], *inputs, mean_bar, cov_bar, log_bar, *grads)
        return None, *summed([mean_bar, cov_bar, *grads, None], tensors, needs)


class _Propose(torch.autograd.Function):
    """See `propose`."""

    outputs = 5

    @staticmethod
    def forward(ctx: Any, reference: Reference, *tensors: Tensor | None) -> tuple:
        cross = tensors[3]
        assert cross is not None
        out, state = cross.shape[-2:]
        events = (state,), (state, state), (out,), (out, state), (out, out), (out,), (out,), (out,), (out,), ()
        batch = batch_of(tensors, events)
        inputs, count = flat_all(tensors, batch, events), batch.numel()
        new = cross.new_empty
        outputs = new(*batch, out), new(batch), new(*batch, state), new(*batch, state, state)
        failed = torch.empty(batch, dtype=torch.int32, device=cross.device)
        bad = call("propose_forward", count, (out, state), *inputs, *outputs, failed)
        if ctx is not None:
            keep(ctx, tensors, (outputs[0],), reference, batch, events)
        return *outputs, failed if bad else None

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        (reference, batch, events), needs = ctx.settings, ctx.needs_input_grad[1:]
        *tensors, sample = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, *anew(reference, tuple(tensors), needs, bars)
        sample_bar, ratio_bar, mean_bar, cov_bar, _ = whole(*bars)
        new = sample.new_empty
        grads = [new(*batch, *event) for event in events[2:5]]
        guess = [torch.empty_like(sample) if need else None for need in needs[6:8]]
        inputs = flat_all(tensors[2:], batch, events[2:])
        bars = sample_bar, ratio_bar, mean_bar, cov_bar
        call("propose_backward", batch.numel(), events[3], *inputs, sample, *bars, *grads, *guess)
        cotangents = [mean_bar, cov_bar, *grads, None, *guess, None, None]
        return None, *summed(cotangents, tuple(tensors), needs)
