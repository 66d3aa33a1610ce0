"""Whole series of structural filters as one operation with its adjoint; `core.series` takes them by blocks."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.core.kernels.calls import ONCE, call

LEVEL, TREND, SEASON, HARMONICS = range(4)  # kinds of components


class Structure(NamedTuple):
    """The inputs that are no parameters; dimensions of time and series of size 1 are shared.

    Attributes:
        table: A row for each component: its kind; its first state, and their number; its first noise; its season, its
            damping (-1: none), and where its columns of the basis begin.
        seen: False where an observation is missing; None if none is.
        active: False where a series has not begun: its state stands still; None if all have.
        position: In the cycle of every season.
        basis: Coefficients of all harmonics.
    """

    table: Int[Tensor, "component number"]
    seen: Bool[Tensor, "time series"] | None
    active: Bool[Tensor, "time series"] | None
    position: Int[Tensor, "time series season"]
    basis: Float[Tensor, "time series column"]


def filter_series(
    structure: Structure,
    values: Float[Tensor, "time series"],
    noise: Float[Tensor, "time_or_1 series_or_1 source"],
    variance: Float[Tensor, "time_or_1_ series_or_1_"],
    damping: Float[Tensor, "1 series_or_1__ damped"],
    mean: Float[Tensor, "1 series_or_1___ state"],
    cov: Float[Tensor, "1 series_or_1____ state state"],
) -> tuple[
    Float[Tensor, "time series"],
    Float[Tensor, "time series"],
    Float[Tensor, "series state"],
    Float[Tensor, "series state state"],
]:
    """Return the variance of every step's prediction and the value less its mean, and the moments after all steps.

    It is differentiable. A missing value counts as it is given. From a step on whose variance is not positive and
    finite, the numbers of a series are NaN.

    Args:
        structure: What is no parameter.
        values: Less their offsets.
        noise: Variances of the components' noises.
        variance: Of the observation's noise.
        damping: Of every damped component.
        mean: Of the state before.
        cov: Of the state before.

    Raises:
        IndexError: If a position is none of its season's cycle.
    """
    inputs = values, noise, variance, damping, mean, cov
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        own, error, *moments = _Series.apply(structure, True, *inputs)[:4]  # pyright: ignore
    else:
        own, error, *moments = _Series.forward(None, structure, False, *inputs)
    return own, error, moments[0], moments[1]


class _Series(torch.autograd.Function):
    """See `filter_series`; the fifth output is the tape."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, with_tape: bool, *inputs: Tensor) -> tuple[Tensor, ...]:
        values, damped, states = inputs[0], inputs[3].shape[-1], inputs[4].shape[-1]
        (steps, count), new = values.shape, values.new_empty
        own, error, mean, cov = new(steps, count), new(steps, count), new(count, states), new(count, states, states)
        tape = new(count, steps, (1 + damped) * states + damped + 2) if with_tape else None
        astray = call("innovation_forward", count, *_arguments(structure, inputs), own, error, mean, cov, tape)
        if astray < 0:  # it has read nothing at such a position
            raise IndexError("expected every index of a season to be a position in its cycle, 0, 1, ..")
        if ctx is not None:
            ctx.set_materialize_grads(False)  # an unused output has None for its cotangent, not zeros to multiply by
            ctx.save_for_backward(*inputs, *structure, tape)
            ctx.mark_non_differentiable(tape)  # it is an output only to be kept for the adjoint
        return own, error, mean, cov, *(() if tape is None else (tape,))

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple[Tensor | None, ...]:
        *saved, tape = ctx.saved_tensors
        whole = [None if x is None else x.contiguous() for x in bars[:4]]
        needs = tuple(ctx.needs_input_grad[2:])
        grads = _Cotangents.apply(Structure(*saved[6:]), needs, tape, *saved[:6], *whole)
        return None, None, *grads  # pyright: ignore


class _Cotangents(torch.autograd.Function):
    """The adjoint, a function of its own: to say that it is not differentiated again."""

    @staticmethod
    def forward(ctx: Any, structure: Structure, needs: tuple[bool, ...], tape: Tensor, *tensors: Tensor | None) -> Any:
        inputs, bars = tensors[:6], tensors[6:]
        values, noise, variance, damping, mean, cov = (x for x in inputs if x is not None)
        count = values.shape[1]
        shapes = [(values.shape[0], count), *((len(x), count, *x.shape[2:]) for x in (noise, variance))]
        shapes += [(1, count, *x.shape[2:]) for x in (damping, mean, cov)]
        # The program always writes the cotangent of the values.
        grads = [values.new_zeros(s) if need else None for s, need in zip(shapes, (True, *needs[1:]), strict=True)]
        call("innovation_backward", count, *_arguments(structure, inputs), tape, *bars, *grads)
        pairs = zip(grads, inputs, needs, strict=True)
        # The program writes a cotangent for each series, also where they share a parameter.
        return tuple(None if g is None or x is None or not n else g.sum_to_size(x.shape) for g, x, n in pairs)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(ONCE)


def _arguments(structure: Structure, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """Return sizes and strides, then the tensors, as the program wants them."""
    values, noise, variance, damping, mean, cov = (x for x in inputs if x is not None)
    parameters = *structure[1:], noise, variance, damping, mean, cov
    strides: list[int] = []
    for x in parameters:
        each = 1 if x is None else x.shape[2:].numel()
        shared = (True, True) if x is None else (x.shape[0] == 1, x.shape[1] == 1)
        strides += [0 if shared[0] or x is None else x.shape[1] * each, 0 if shared[1] else each]
    sizes = values.shape[0], mean.shape[-1], len(structure.table), damping.shape[-1], *strides, noise.shape[-1]
    position = structure.position.to(torch.int64)
    tensors = structure.table, values, *structure[1:3], position, structure.basis, noise, variance, damping, mean, cov
    return sizes, *(x if x is None else x.contiguous() for x in tensors)
