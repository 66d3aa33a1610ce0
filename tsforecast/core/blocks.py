"""Conditioning on many observations at once: the whole-series likelihood of every linear system.

Given the state x before a block of steps, the block's observations y and the state x' after it are jointly Gaussian,

    [y ]   [matrix    ]     [offset      ]                 [noise    cross      ]
    [x'] = [transition] x + [state_offset] + N(0, [cross'   state_noise]),

so a series is a short chain of such conditionals: one Cholesky factor and one rank-k update replace k steps. The rows of the
factor are the one-step predictions, so the likelihood of every step is at hand. A dense system makes its blocks by recursion
(one step a block where its parameters vary), the ISSM by structure; everything that depends on time or on parameters only
is computed for all blocks at once by ordinary autograd, and the sequential part here has a closed-form adjoint.
"""

import dataclasses
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.linalg import ADVICE, LOG_2PI, NotPositiveDefiniteError, is_transformed, symmetrise


@register_record
@dataclasses.dataclass(frozen=True)
class Blocks:
    """A chain of conditionals p(observations, state after | state before).

    The leading dimension counts blocks (size 1: all alike); batch dimensions broadcast.

    Attributes:
        matrix: (block, *batch, obs, state).
        offset: (block, *batch, obs).
        noise: Covariance of the observations given the state before, (block, *batch, obs, obs).
        cross: Covariance of observations and state after, given the state before, (block, *batch, obs, state). None: the
            blocks are plain steps, and `matrix`, `offset` and `noise` those of their emissions, of y given x'.
        transition: (block, *batch, state, state), or its diagonal as a column (block, *batch, state, 1), or None for the
            identity.
        state_offset: (block, *batch, state), or None for zero.
        state_noise: (block, *batch, state, state), or its diagonal as a column.
    """

    matrix: Float[Tensor, "*#block obs state"]
    offset: Float[Tensor, "*#block obs"]
    noise: Float[Tensor, "*#block obs obs"]
    cross: Float[Tensor, "*#block obs state"] | None
    transition: Float[Tensor, "*#block state state_or_1"] | None
    state_offset: Float[Tensor, "*#block state"] | None
    state_noise: Float[Tensor, "*#block state state_or_1_"]


def condition_on_blocks(
    blocks: Blocks,
    prior: Gaussian,
    values: Float[Tensor, "time *#batch target"],
    observed: Bool[Tensor, "time *#batch target"] | None,
    first_step: int = 0,
) -> tuple[Gaussian, Float[Tensor, "time *batch"]]:
    """The belief after all blocks, and the log-likelihood of every step.

    Where neither parameters nor missing values differ between series, their covariance is one and is computed once.

    Args:
        blocks: As many as the values fill.
        prior: Over the state before the first block.
        values: Finite everywhere.
        observed: False where missing.
        first_step: For the error message.
    """
    parts = {field.name: getattr(blocks, field.name) for field in dataclasses.fields(blocks)}
    event = lambda name: 1 if name in ("offset", "state_offset") else 2  # noqa: E731
    batch = torch.broadcast_shapes(
        prior.batch_shape,
        values.shape[1:-1],
        *(x.shape[1 : x.ndim - event(name)] for name, x in parts.items() if x is not None),
        *([] if observed is None else [observed.shape[1:-1]]),
    )
    flat = {name: None if x is None else _flatten(x, batch, event(name), 1) for name, x in parts.items()}
    size = batch.numel()
    num_steps, num_targets = values.shape[0], values.shape[-1]
    length = blocks.matrix.shape[-2] // num_targets
    count = num_steps // length

    def in_blocks(x: Tensor) -> Tensor:
        """(time, *some of the batch, target) to (block, series, obs)."""
        x = x.reshape(num_steps, *[1] * (len(batch) + 2 - x.ndim), *x.shape[1:])
        x = x.expand(num_steps, *batch, num_targets).reshape(count, length, size, num_targets)
        return x.transpose(1, 2).reshape(count, size, length * num_targets)

    cov = _flatten(prior.cov, batch, 2, 0)
    mean = prior.mean.expand(*batch, prior.mean.shape[-1]).reshape(size, -1)
    rows = in_blocks(values) - flat.pop("offset")
    mask = None if observed is None else in_blocks(observed).unsqueeze(-1)
    drift = flat.pop("state_offset")
    shared = mask is None and cov.shape[0] == 1 and all(x is None or x.shape[1] == 1 for x in flat.values())
    if shared:  # the series are columns beside one covariance
        mean, rows = mean.mT.unsqueeze(0), rows.mT.unsqueeze(1)
        drift = None if drift is None else drift.mT.unsqueeze(1)
    else:
        cov = cov.expand(size, *cov.shape[1:])
        mean, rows = mean.unsqueeze(-1), rows.unsqueeze(-1)
        drift = None if drift is None else drift.unsqueeze(-1)

    keep = torch.is_grad_enabled()
    moments = keep and any(x is not None and x.requires_grad for x in (flat["matrix"], flat["transition"]))
    parameters = *(flat[name] for name in ("matrix", "noise", "cross", "transition")), drift, flat["state_noise"]
    terms, mean, cov, info, *_ = _Chain.apply(keep, moments, rows, mask, mean, cov, *parameters)  # pyright: ignore
    _check(info, terms, length, num_targets, first_step)
    if shared:
        terms, mean = terms.squeeze(1).mT, mean.squeeze(0).mT
        cov = cov.reshape(*([1] * len(batch)), *cov.shape[1:]) if prior.cov.ndim > 2 else cov.squeeze(0)
    else:
        terms, mean = terms.squeeze(-1), mean.squeeze(-1)
        cov = cov.reshape(*batch, *cov.shape[1:])
    terms = terms.reshape(count, size, length, num_targets).sum(-1)
    return Gaussian(mean.reshape(*batch, -1), cov), terms.transpose(1, 2).reshape(num_steps, *batch)


def _flatten(x: Tensor, batch: torch.Size, event_ndim: int, lead: int) -> Tensor:
    """(lead..., *batch, event...) with its batch as one dimension: of size 1 where the parameter is shared."""
    given, event = x.shape[lead : x.ndim - event_ndim], x.shape[x.ndim - event_ndim :]
    if given.numel() == 1:
        return x.reshape(*x.shape[:lead], 1, *event)
    missing = [1] * (len(batch) - len(given))
    x = x.reshape(*x.shape[:lead], *missing, *given, *event)
    return x.expand(*x.shape[:lead], *batch, *event).reshape(*x.shape[:lead], batch.numel(), *event)


def _check(info: Tensor, terms: Tensor, length: int, num_targets: int, first_step: int) -> None:
    """Names step and series of the first failure; `info` (block, group) is the row at which a factorisation broke."""
    if is_transformed(info):
        return
    failed = (info != 0).unsqueeze(-1) | ~terms.isfinite().all(2)  # not every backend reports a NaN
    if not bool(failed.any()):
        return
    block, group, column = failed.nonzero()[0].tolist()
    row = int(info[block, group]) - 1
    if row < 0:
        row = int((~terms[block, group, :, column].isfinite()).nonzero()[0])
    step = first_step + block * length + row // num_targets
    taken = f"; {length} steps are taken at once, and NaN parameters of any spoil all" if length > 1 else ""
    raise NotPositiveDefiniteError(
        f"The predictive covariance of the observations is not positive definite at step {step}, "
        f"series {group + column} ({int(failed.any(0).sum())} series failed{taken}). {ADVICE}"
    )


def _pick(x: Tensor | None, block: int) -> Any:
    return None if x is None else x[block if x.shape[0] > 1 else 0]


def _spread(x: Tensor | None, group: int) -> Tensor | None:
    """A parameter shared by all groups as a view with that many."""
    return None if x is None else x.expand(-1, group, -1, -1)


def _left(phi: Tensor | None, x: Tensor, adjoint: bool = False) -> Tensor:
    """`phi x`, or `phi' x`, for a transition that is a matrix, a diagonal (as a column) or the identity (None)."""
    if phi is None:
        return x
    return phi * x if phi.shape[-1] == 1 else (phi.mT if adjoint else phi) @ x


def _right(x: Tensor, phi: Tensor | None, adjoint: bool = False) -> Tensor:
    """`x phi'`, or `x phi`."""
    if phi is None:
        return x
    return x * phi.mT if phi.shape[-1] == 1 else x @ (phi if adjoint else phi.mT)


def _move(moments: Tensor, phi: Tensor | None, state_noise: Tensor, drift: Tensor | None) -> Tensor:
    """The moments [P, -m] of the state moved on: [phi P phi' + state_noise, -(phi m + drift)]."""
    state = moments.shape[-2]
    if phi is None or phi.shape[-1] == 1:
        moved = moments.clone() if phi is None else phi * moments
        cov = moved[..., :state]
        if phi is not None:
            cov.mul_(phi.mT)
        if state_noise.shape[-1] == 1:
            cov.diagonal(dim1=-2, dim2=-1).add_(state_noise.squeeze(-1))
        else:
            cov.add_(state_noise)
    else:
        pushed = phi @ moments
        moved = torch.cat([torch.baddbmm(state_noise, pushed[..., :state], phi.mT), pushed[..., state:]], -1)
    if drift is not None:
        moved[..., state:].sub_(drift)
    return moved


def _forward(
    keep: bool,  # whether to return the tape
    taped_moments: bool,  # with the moments that the observations saw: the cotangents of matrix and transition need them
    rows: Tensor,  # (block, group, obs, column), offsets subtracted
    mask: Tensor | None,  # (block, group, obs, 1)
    mean: Tensor,  # (group, state, column)
    cov: Tensor,  # (group, state, state)
    matrix: Tensor,  # (block or 1, group or 1, obs, state); so are the next
    noise: Tensor,
    cross: Tensor | None,
    transition: Tensor | None,
    drift: Tensor | None,  # (block or 1, group or 1, state, column or 1)
    state_noise: Tensor,
) -> tuple[Tensor, ...]:
    """Log-likelihood of every row (block, group, obs, column), last mean and covariance, failures, then the tape.

    With moments M = [P, -m], R = matrix M + [cross, y] (M moved on as it should) and Z = L^{-1} R for the factor L of the
    observations' covariance, conditioning takes Z[:, :state]' Z off the moments: one product for covariance and mean.
    """
    group, state = mean.shape[:2]
    matrix, noise, state_noise = (x.expand(-1, group, -1, -1) for x in (matrix, noise, state_noise))
    transition = _spread(transition, group)
    moments = torch.cat([cov, -mean], -1)
    eye = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    white, scale = torch.empty_like(rows), torch.empty_like(rows[..., 0])
    infos, tape = [], []
    for k in range(len(rows)):
        h, phi = _pick(matrix, k), _pick(transition, k)
        moved = _move(moments, phi, _pick(state_noise, k), _pick(drift, k))
        source = moved if cross is None else moments
        rhs = torch.bmm(h, source)
        among = torch.baddbmm(_pick(noise, k), rhs[..., :state], h.mT)
        if cross is not None:
            if phi is not None:
                rhs[..., :state] = _right(rhs[..., :state], phi)
            rhs[..., :state].add_(_pick(cross, k))
        rhs[..., state:].add_(rows[k])
        if mask is not None:
            among = torch.where(mask[k] & mask[k].mT, among, eye)
            rhs.mul_(mask[k])
        factor, info = torch.linalg.cholesky_ex(among)
        z = torch.linalg.solve_triangular(factor.mT, rhs.mT, upper=True, left=False).mT  # from this side without a copy
        white[k], scale[k] = z[..., state:], factor.diagonal(dim1=-2, dim2=-1)
        infos.append(info)
        if keep:
            tape += [factor, z, source] if taped_moments else [factor, z]
        moments = moved.clone() if taped_moments and source is moved else moved
        moments.baddbmm_(z[..., :state].mT, z, alpha=-1)
        if k % 8 == 7 or k == len(rows) - 1:  # what rounding adds beside the symmetric part grows over many steps
            moments[..., :state] = symmetrise(moments[..., :state])
    terms = white.square_().mul_(-0.5).sub_(scale.log_().unsqueeze(-1))
    terms.sub_(0.5 * LOG_2PI * (1.0 if mask is None else mask.to(terms.dtype)))
    return terms, -moments[..., state:], moments[..., :state].contiguous(), torch.stack(infos), *tape


def _backward(
    taped_moments: bool,
    needs: tuple[bool, ...],
    weights: Tensor,  # cotangent of the likelihood of every row
    mean_bar: Tensor,
    cov_bar: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    cov: Tensor,
    matrix: Tensor,
    noise: Tensor,
    cross: Tensor | None,
    transition: Tensor | None,
    drift: Tensor | None,
    state_noise: Tensor,
    *tape: Tensor,
) -> tuple[Tensor | None, ...]:
    """Cotangents of rows, mean, cov, matrix, noise, cross, transition, drift, state_noise.

    The cotangent of Z = L^{-1} R gives that of R by one solve, and that of the covariance S = L L' as L^{-T} K L^{-1} / 2
    with K = -sym(Z_bar Z') - diag(weights), where sym mirrors the lower triangle (the derivative of a Cholesky factor,
    collapsed because it appears in Z and in the log-determinant only).
    """
    group, state = mean.shape[:2]
    likes = {"rows": weights, "matrix": matrix, "noise": noise, "cross": cross, "transition": transition}
    likes |= {"drift": drift, "state_noise": state_noise}
    grads = {
        name: like.new_zeros(like.shape[0], group, *like.shape[2:])
        for (name, like), need in zip(likes.items(), needs, strict=True)
        if need and like is not None
    }
    matrix, transition = matrix.expand(-1, group, -1, -1), _spread(transition, group)
    eye = torch.eye(weights.shape[-2], dtype=weights.dtype, device=weights.device)
    lower, diagonals = torch.ones_like(eye, dtype=torch.bool).tril(), 0.5 * weights.sum(-1)
    bar = torch.cat([0.5 * (cov_bar + cov_bar.mT), -mean_bar], -1)  # of the moments [P, -m]
    size = 3 if taped_moments else 2
    for k in range(len(weights) - 1, -1, -1):
        factor, z, *source = tape[size * k : size * (k + 1)]
        h, phi = _pick(matrix, k), _pick(transition, k)
        into = {name: _pick(grad, k) for name, grad in grads.items()}
        gain, white = z[..., :state], z[..., state:]
        z_bar = torch.bmm(gain, bar)  # times -2 the cotangent of z
        _add_outer(z_bar[..., :state], white, bar[..., state:], 0.5)
        z_bar[..., state:].addcmul_(weights[k], white).mul_(0.5)
        inner = torch.bmm(z_bar, z.mT)
        inner.diagonal(dim1=-2, dim2=-1).sub_(diagonals[k])
        inner = torch.where(lower, inner, inner.mT)
        inverse = torch.linalg.solve_triangular(factor.mT, eye, upper=True, left=False)
        noise_bar = torch.bmm(torch.bmm(inverse, inner), inverse.mT)
        rhs_bar = torch.bmm(inverse, z_bar).mul_(-2)
        if mask is not None:
            rhs_bar.mul_(mask[k])
            noise_bar.mul_(mask[k]).mul_(mask[k].mT)
        gain_bar = rhs_bar[..., :state]
        through = torch.bmm(noise_bar, h)
        if cross is None:
            gain_bar.add_(through)
            _add_symmetric(bar, torch.bmm(h.mT, rhs_bar))
        pushed = _left(phi, bar, adjoint=True)
        if "rows" in into:
            into["rows"].copy_(rhs_bar[..., state:])
        if "noise" in into:
            into["noise"].add_(noise_bar)
        if "cross" in into:
            into["cross"].add_(gain_bar)
        if "drift" in into:
            into["drift"].sub_(_sum_to(bar[..., state:], into["drift"]))
        if "state_noise" in into:
            cov_bar = bar[..., :state]
            diagonal = state_noise.shape[-1] == 1
            into["state_noise"].add_(cov_bar.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) if diagonal else cov_bar)
        if "transition" in into:
            if cross is not None:
                before = source[0]
            elif k == 0:
                before = torch.cat([cov, -mean], -1)
            else:
                _, earlier, seen = tape[size * (k - 1) : size * k]
                before = torch.baddbmm(seen, earlier[..., :state].mT, earlier, alpha=-1)
            left = pushed[..., :state].mT * 2
            if cross is not None:
                left = torch.baddbmm(left, gain_bar.mT, h)
            _add_transition(into["transition"], left, bar[..., state:], before)
        if phi is not None:
            bar = torch.cat([_right(pushed[..., :state], phi, adjoint=True), pushed[..., state:]], -1)
        if cross is not None:
            if phi is not None:
                rhs_bar[..., :state] = _right(gain_bar, phi, adjoint=True)
            gain_bar.add_(through)
            _add_symmetric(bar, torch.bmm(h.mT, rhs_bar))
        if "matrix" in into:
            gain_bar.add_(through)
            into["matrix"].baddbmm_(rhs_bar, source[0].mT)
    out = [grads.get(name) for name in likes]
    return out[0], -bar[..., state:], bar[..., :state].contiguous(), *out[1:]


def _sum_to(x: Tensor, like: Tensor) -> Tensor:
    return x if x.shape == like.shape else x.sum_to_size(like.shape)


def _add_outer(target: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
    """target += scale a b', in place; with a single column elementwise, which is far faster than a product."""
    if a.shape[-1] == 1:
        target.addcmul_(a, b.mT, value=scale)
    else:
        target.add_(torch.bmm(a, b.mT), alpha=scale)


def _add_symmetric(bar: Tensor, x: Tensor) -> None:
    """bar += x, for cotangents of moments, where only the symmetric part of the covariance's counts."""
    state = bar.shape[-2]
    bar[..., state:].add_(x[..., state:])
    bar[..., :state].add_(x[..., :state], alpha=0.5).add_(x[..., :state].mT, alpha=0.5)


def _add_transition(target: Tensor, left: Tensor, mean_bar: Tensor, before: Tensor) -> None:
    """target += left P - mean_bar m' for the moments [P, -m] before the step, or the diagonal of that."""
    state = before.shape[-2]
    if target.shape[-1] == 1:
        target.add_((left * before[..., :state]).sum(-1, keepdim=True))
        target.add_((mean_bar * before[..., state:]).sum(-1, keepdim=True))
    else:
        target.baddbmm_(left, before[..., :state])
        _add_outer(target, mean_bar, before[..., state:])


def _reduce(grad: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Sums over the dimensions which `like` shares."""
    if grad is None or like is None:
        return None
    return grad.sum_to_size(like.shape)


def _fold(info: Any, in_dims: tuple, args: tuple, group_dims: tuple[int | None, ...], shareable: range) -> list[Any]:
    """The arguments with the dimension that `vmap` maps over folded into their group dimension.

    Those at `shareable` may stay shared by all groups.
    """
    moved = [
        arg if dim is None or not isinstance(arg, Tensor) else arg.movedim(dim, group)
        for arg, dim, group in zip(args, in_dims, group_dims, strict=True)
    ]
    mapped = [dim is not None for dim in in_dims]
    tensors = [(arg, group, at) for arg, group, at in zip(moved, group_dims, mapped, strict=True) if isinstance(arg, Tensor)]
    size = max(arg.shape[group + at] for arg, group, at in tensors if group is not None)
    folded = []
    for position, (arg, group, at) in enumerate(zip(moved, group_dims, mapped, strict=True)):
        shared = isinstance(arg, Tensor) and position in shareable and not at and arg.shape[group] == 1
        if not isinstance(arg, Tensor) or group is None or shared:
            folded.append(arg)
            continue
        arg = arg if at else arg.unsqueeze(group)
        arg = arg.expand(*arg.shape[:group], info.batch_size, size, *arg.shape[group + 2 :])
        folded.append(arg.flatten(group, group + 1))
    return folded


class _Chain(torch.autograd.Function):
    """The sequential part, with its adjoint. Works under `torch.func.vmap` and `grad`; once differentiable."""

    GROUP_DIMS = (None, None, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1)

    @staticmethod
    def forward(keep: bool, taped_moments: bool, *args: Any) -> tuple[Tensor, ...]:
        return _forward(keep, taped_moments, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        _, ctx.taped_moments, _, *saved = inputs
        terms, _, _, info, *tape = output
        ctx.set_materialize_grads(False)  # else a zero would be made for every tensor of the tape
        ctx.mark_non_differentiable(info, *tape)
        ctx.shape = terms.shape
        ctx.save_for_backward(*saved, *tape)

    @staticmethod
    def backward(ctx: Any, weights: Tensor | None, mean_bar: Tensor | None, cov_bar: Tensor | None, *_: Any) -> tuple:  # pyright: ignore
        _, mean, cov, *parameters = ctx.saved_tensors[:9]
        weights = mean.new_zeros(ctx.shape) if weights is None else weights
        mean_bar = torch.zeros_like(mean) if mean_bar is None else mean_bar
        cov_bar = torch.zeros_like(cov) if cov_bar is None else cov_bar
        needs = (ctx.needs_input_grad[2], *ctx.needs_input_grad[6:12])
        out = _ChainBackward.apply(ctx.taped_moments, needs, weights, mean_bar, cov_bar, *ctx.saved_tensors)
        rows, mean, cov, *others = out  # pyright: ignore
        return None, None, rows, None, mean, cov, *(_reduce(g, x) for g, x in zip(others, parameters, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        folded = _fold(info, in_dims, args, _Chain.GROUP_DIMS, range(6, 12))
        out = _Chain.apply(*folded)
        dims = (1, 0, 0, 1) + (0,) * (len(out) - 4)  # pyright: ignore
        unfolded = tuple(x.unflatten(d, (info.batch_size, -1)) for x, d in zip(out, dims, strict=True))  # pyright: ignore
        return unfolded, dims


class _ChainBackward(torch.autograd.Function):
    """The adjoint as a function of its own, so that `vmap` of a gradient folds its dimension too."""

    @staticmethod
    def forward(taped_moments: bool, needs: tuple[bool, ...], *args: Any) -> tuple[Tensor | None, ...]:
        return _backward(taped_moments, needs, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # pyright: ignore
        raise RuntimeError(
            "The whole-series likelihood is once differentiable. For second derivatives, sum the log-likelihoods of "
            "tsforecast.core.kalman.filter, which is ordinary autograd."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        groups = (None, None, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1) + (0,) * (len(args) - 14)
        folded = _fold(info, in_dims, args, groups, range(8, 14))
        out = _ChainBackward.apply(*folded)
        dims = tuple(None if x is None else d for x, d in zip(out, (1, 0, 0, *(1,) * 6), strict=True))  # pyright: ignore
        unfolded = tuple(None if x is None else x.unflatten(d, (info.batch_size, -1)) for x, d in zip(out, dims, strict=True))  # pyright: ignore
        return unfolded, dims
