"""The sequential part of conditioning on blocks, with its adjoint in closed form.

Series are the dimension `group`, and means and observations are single columns; series that share one covariance are
the columns of a single group. Parameters of size 1 in the dimensions `block` and `group` are shared.
"""

from typing import Any

import torch
from torch import Tensor

from tsforecast.core.kernels import chain as compiled
from tsforecast.core.kernels.calls import ONCE
from tsforecast.core.series import elementwise
from tsforecast.core.series.chain_adjoint import chain_cotangents
from tsforecast.core.series.chain_steps import filter_chain


class Chain(torch.autograd.Function):
    """Filters through a chain of blocks. Works under `torch.func.vmap` and `grad`; once differentiable.

    `apply` takes the arguments of `filter_chain`: whether to keep a tape; whether to keep also the moments before the
    observations, for cotangents of matrix and transition; then the data. The first four results are for the caller.
    """

    @staticmethod
    def forward(keep: bool, keep_moments: bool, *args: Any) -> tuple[Tensor, ...]:
        """See `filter_chain`; without a tape, plain steps of small systems go the faster way."""
        rows, mask, mean, cov, matrix, noise, cross, transition, drift, state_noise = args
        # The faster way has no adjoint and no blocks.
        if not keep and cross is None and transition is not None and drift is not None:
            dense = transition.shape[-1] == state_noise.shape[-1] == cov.shape[-1]
            if dense and elementwise.suits(len(cov), cov.shape[-1], rows.shape[-2], cov.device):
                steps = (matrix, noise, transition, drift, state_noise)
                terms, mean, cov = elementwise.filter_steps(rows, mask, mean, cov, *steps)
                # Its failures are terms of NaN.
                return terms, mean, cov, terms.new_zeros(terms.shape[:2], dtype=torch.int32)
        if compiled.serves_chain(*args):
            return compiled.filter_chain(keep, keep_moments, *args)
        return filter_chain(keep, keep_moments, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        """Keep parameters and tape."""
        _, ctx.keep_moments, _, *saved = inputs
        terms, _, _, info, *tape = output
        ctx.set_materialize_grads(False)  # else a zero would be made for every tensor of the tape
        ctx.mark_non_differentiable(info, *tape)
        ctx.shape = terms.shape
        ctx.save_for_backward(*saved, *tape)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        """Cotangents of the arguments, summed over their shared dimensions."""
        _, mean, cov, *parameters = ctx.saved_tensors[:9]
        shapes = (ctx.shape, mean.shape, cov.shape)
        given = [mean.new_zeros(s) if bar is None else bar for bar, s in zip(bars, shapes, strict=False)]
        needs = (ctx.needs_input_grad[2], *ctx.needs_input_grad[6:12])
        rows, mean, cov, *others = _ChainBackward.apply(ctx.keep_moments, needs, *given, *ctx.saved_tensors)  # pyright: ignore
        # A shared parameter has one cotangent for all groups.
        reduced = [None if g is None else g.sum_to_size(x.shape) for g, x in zip(others, parameters, strict=True)]
        return None, None, rows, None, mean, cov, *reduced

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the new dimension as more groups of series."""
        groups = (None, None, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1)
        out: Any = Chain.apply(*_fold(info.batch_size, in_dims, args, groups, range(6, 12)))
        dims = (1, 0, 0, 1) + (0,) * (len(out) - 4)  # where the groups are in each result
        return tuple(x.unflatten(d, (info.batch_size, -1)) for x, d in zip(out, dims, strict=True)), dims


class _ChainBackward(torch.autograd.Function):
    """The adjoint as a function of its own, so that `vmap` of a gradient folds its dimension too."""

    @staticmethod
    def forward(keep_moments: bool, needs: tuple[bool, ...], *args: Any) -> tuple[Tensor | None, ...]:
        if len(args) == 13:  # the tape is that of the program
            return compiled.chain_cotangents(keep_moments, needs, *args)
        return chain_cotangents(keep_moments, needs, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(ONCE)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        groups = (None, None, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1) + (0,) * (len(args) - 14)
        out: Any = _ChainBackward.apply(*_fold(info.batch_size, in_dims, args, groups, range(8, 14)))
        dims = tuple(None if x is None else d for x, d in zip(out, (1, 0, 0, *(1,) * 6), strict=True))
        pairs = zip(out, dims, strict=True)
        return tuple(None if d is None else x.unflatten(d, (info.batch_size, -1)) for x, d in pairs), dims


def _fold(batch_size: int, in_dims: tuple, args: tuple, groups: tuple[Any, ...], shareable: range) -> list[Any]:
    """The arguments with the dimension that `vmap` maps over folded into their group dimension.

    Those at `shareable` may stay shared by all groups.
    """
    size = max(
        arg.shape[group + (dim is not None and dim <= group)]
        for arg, dim, group in zip(args, in_dims, groups, strict=True)
        if isinstance(arg, Tensor) and group is not None
    )
    folded = []
    for position, (arg, dim, group) in enumerate(zip(args, in_dims, groups, strict=True)):
        shared = dim is None and position in shareable and isinstance(arg, Tensor) and arg.shape[group] == 1
        if not isinstance(arg, Tensor) or group is None or shared:
            folded.append(arg)
            continue
        arg = arg.unsqueeze(group) if dim is None else arg.movedim(dim, group)
        arg = arg.expand(*arg.shape[:group], batch_size, size, *arg.shape[group + 2 :])
        folded.append(arg.flatten(group, group + 1))
    return folded
