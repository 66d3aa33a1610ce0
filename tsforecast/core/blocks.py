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
from tsforecast.core.linalg import LOG_2PI, check_factor


@register_record
@dataclasses.dataclass(frozen=True)
class Blocks:
    """A chain of conditionals p(observations, state after | state before).

    The leading dimension counts blocks (size 1: all alike); batch dimensions broadcast.

    Attributes:
        matrix: (block, *batch, obs, state).
        offset: (block, *batch, obs).
        noise: Covariance of the observations given the state before, (block, *batch, obs, obs).
        cross: Covariance of observations and state after, given the state before, (block, *batch, obs, state).
        transition: (block, *batch, state, state), or its diagonal (block, *batch, state), or None for the identity.
        state_offset: (block, *batch, state), or None for zero.
        state_noise: (block, *batch, state, state), or its diagonal (block, *batch, state).
        diagonal: Whether `transition` and `state_noise` are given by their diagonals: (bool, bool).
    """

    matrix: Float[Tensor, "*#block obs state"]
    offset: Float[Tensor, "*#block obs"]
    noise: Float[Tensor, "*#block obs obs"]
    cross: Float[Tensor, "*#block obs state"]
    transition: Tensor | None
    state_offset: Tensor | None
    state_noise: Tensor
    diagonal: tuple[bool, bool] = (False, False)


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
    diagonal = parts.pop("diagonal")
    events = {"offset": 1, "state_offset": 1, "transition": 2 - diagonal[0], "state_noise": 2 - diagonal[1]}
    batch = torch.broadcast_shapes(
        prior.batch_shape,
        values.shape[1:-1],
        *(x.shape[1 : x.ndim - events.get(name, 2)] for name, x in parts.items() if x is not None),
        *([] if observed is None else [observed.shape[1:-1]]),
    )
    flat = {n: None if x is None else _flatten(x, batch, events.get(n, 2), 1) for n, x in parts.items()}
    size = batch.numel()
    num_steps, num_targets = values.shape[0], values.shape[-1]
    length = blocks.matrix.shape[-2] // num_targets
    count = num_steps // length

    cov = _flatten(prior.cov, batch, 2, 0)
    mean = prior.mean.expand(*batch, prior.mean.shape[-1]).reshape(size, -1)
    rows = _spread(values, batch).reshape(count, length, size, num_targets)
    rows = rows.transpose(1, 2).reshape(count, size, length * num_targets)
    rows = rows - flat["offset"]  # pyright: ignore[reportOperatorIssue]
    mask = None
    if observed is not None:
        mask = _spread(observed, batch).reshape(count, length, size, num_targets)
        mask = mask.transpose(1, 2).reshape(count, size, length * num_targets).to(values.dtype)
        rows = rows * mask
    deciding = [flat[n] for n in ("matrix", "noise", "cross", "transition", "state_noise")]
    shared = mask is None and cov.shape[0] == 1 and all(x is None or x.shape[1] == 1 for x in deciding)
    drift = flat["state_offset"]
    if shared:  # the series are columns beside one covariance
        mean, rows = mean.mT.unsqueeze(0), rows.mT.unsqueeze(1)
        drift = None if drift is None else drift.mT.unsqueeze(1)
    else:
        cov = cov.expand(size, *cov.shape[1:])
        mean, rows = mean.unsqueeze(-1), rows.unsqueeze(-1)
        drift = None if drift is None else drift.unsqueeze(-1)

    arguments = (rows, mask, mean, cov, *(flat[n] for n in ("matrix", "noise", "cross", "transition")), drift)
    arguments = (*arguments, flat["state_noise"])
    if torch.is_grad_enabled():
        moments = any(x is not None and x.requires_grad for x in (flat["matrix"], flat["transition"]))
        terms, mean, cov, info, *_ = _Chain.apply(diagonal, moments, *arguments)  # pyright: ignore
    else:
        terms, mean, cov, info, *_ = _forward(diagonal, None, *arguments)
    _check(info, terms, length, num_targets, first_step)
    if shared:
        terms, mean = terms.squeeze(1).mT, mean.squeeze(0).mT
        cov = cov.reshape(*([1] * len(batch)), *cov.shape[1:]) if len(prior.cov.shape) > 2 else cov.squeeze(0)
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


def _spread(x: Tensor, batch: torch.Size) -> Tensor:
    """(time, *some of the batch, target) to (time, *batch, target)."""
    x = x.reshape(x.shape[0], *[1] * (len(batch) + 2 - x.ndim), *x.shape[1:])
    return x.expand(x.shape[0], *batch, x.shape[-1])


def _check(info: Tensor, terms: Tensor, length: int, num_targets: int, first_step: int) -> None:
    """Names step and series of the first failure; `info` (block, series) holds the row at which a factorisation broke."""
    if torch._C._functorch.is_functorch_wrapped_tensor(info):
        return
    failed = (info != 0) | ~terms.isfinite().flatten(2).all(-1)  # not every backend reports a NaN
    if not bool(failed.any()):
        return
    block, series = failed.nonzero()[0].tolist()
    row = max(int(info[block, series]) - 1, 0)
    step = first_step + block * length + row // num_targets
    where = torch.zeros(step + 1, series + 1, dtype=info.dtype)
    where[step, series] = 1
    check_factor(where, ("step", "series"), "the predictive covariance of the observations")


def _pick(x: Tensor, block: int) -> Tensor:
    return x[block if x.shape[0] > 1 else 0]


def _push(transition: Tensor | None, diagonal: bool, x: Tensor) -> Tensor:
    """`transition x` for a matrix x of columns."""
    if transition is None:
        return x
    return transition.unsqueeze(-1) * x if diagonal else transition @ x


def _pull(transition: Tensor | None, diagonal: bool, x: Tensor) -> Tensor:
    """`x transition'` for a matrix x of rows."""
    if transition is None:
        return x
    return x * transition.unsqueeze(-2) if diagonal else x @ transition.mT


def _adjoint_push(transition: Tensor | None, diagonal: bool, x: Tensor) -> Tensor:
    """`transition' x`."""
    if transition is None:
        return x
    return transition.unsqueeze(-1) * x if diagonal else transition.mT @ x


def _adjoint_pull(transition: Tensor | None, diagonal: bool, x: Tensor) -> Tensor:
    """`x transition`."""
    if transition is None:
        return x
    return x * transition.unsqueeze(-2) if diagonal else x @ transition


def _forward(
    diagonal: tuple[bool, bool],
    moments: bool | None,  # whether to keep the moments between blocks on the tape; None: no tape
    rows: Tensor,  # (block, group, obs, column), offsets subtracted, zero where missing
    mask: Tensor | None,  # (block, group, obs)
    mean: Tensor,  # (group, state, column)
    cov: Tensor,  # (group, state, state)
    matrix: Tensor,  # (block or 1, group or 1, obs, state); so are the next
    noise: Tensor,
    cross: Tensor,
    transition: Tensor | None,
    drift: Tensor | None,  # (block or 1, group or 1, state, column or 1)
    state_noise: Tensor,
) -> tuple[Tensor, ...]:
    """Log-likelihood of every row (block, group, obs, column), last mean and covariance, failures, then the tape."""
    terms, infos, tape = [], [], []
    state = mean.shape[-2]
    for k in range(rows.shape[0]):
        h, e, f = _pick(matrix, k), _pick(noise, k), _pick(cross, k)
        phi = None if transition is None else _pick(transition, k)
        if mask is not None:
            seen = mask[k].unsqueeze(-1)
            h, f, e = h * seen, f * seen, e * (seen * seen.mT) + torch.diag_embed(1 - mask[k])
        u = h @ cov
        factor, info = torch.linalg.cholesky_ex(e + u @ h.mT)
        gain = f + _pull(phi, diagonal[0], u)
        residual = rows[k] - h @ mean
        z = torch.linalg.solve_triangular(factor, torch.cat([gain, residual], -1), upper=False)
        gain, white = z[..., :state], z[..., state:]
        log_diag = factor.diagonal(dim1=-2, dim2=-1).log().unsqueeze(-1)
        terms.append(-0.5 * white.square() - log_diag)
        infos.append(info)
        if moments is not None:
            tape += [factor, z]
            if moments and k > 0:
                tape += [mean, cov]
        mean = _push(phi, diagonal[0], mean) + gain.mT @ white
        if drift is not None:
            mean = mean + _pick(drift, k)
        moved = _pull(phi, diagonal[0], _push(phi, diagonal[0], cov))
        if diagonal[1]:
            cov = torch.baddbmm(moved, gain.mT, gain, alpha=-1)
            cov.diagonal(dim1=-2, dim2=-1).add_(_pick(state_noise, k))
        else:
            cov = torch.baddbmm(moved + _pick(state_noise, k), gain.mT, gain, alpha=-1)
        if phi is not None and not diagonal[0]:
            cov = 0.5 * (cov + cov.mT)
    likelihood = torch.stack(terms)
    likelihood = likelihood - 0.5 * LOG_2PI * (1.0 if mask is None else mask.unsqueeze(-1))
    return likelihood, mean, cov, torch.stack(infos), *tape


def _backward(
    diagonal: tuple[bool, bool],
    moments: bool,
    needs: tuple[bool, ...],
    weights: Tensor,  # cotangent of the likelihood of every row
    mean_bar: Tensor,
    cov_bar: Tensor,
    mask: Tensor | None,
    first_mean: Tensor,
    first_cov: Tensor,
    matrix: Tensor,
    cross_like: Tensor,
    noise_like: Tensor,
    transition: Tensor | None,
    drift: Tensor | None,
    state_noise: Tensor,
    *tape: Tensor,
) -> tuple[Tensor | None, ...]:
    """Cotangents of rows, mean, cov, matrix, noise, cross, transition, drift, state_noise.

    With Z = [gain, white] = L^{-1} [G, e], the cotangents of Z give those of [G, e] by one solve, and that of the
    covariance S = L L' as L^{-T} K L^{-1} / 2 with K = -sym(Z_bar Z') - diag(weights), where sym mirrors the lower triangle
    (the derivative of a Cholesky factor, collapsed because it appears in Z and in the log-determinant only).
    """
    state = mean_bar.shape[-2]
    cov_bar = 0.5 * (cov_bar + cov_bar.mT)
    like = {"rows": weights, "matrix": matrix, "noise": noise_like, "cross": cross_like}
    like |= {"transition": transition, "drift": drift, "state_noise": state_noise}
    order = ("rows", "matrix", "noise", "cross", "transition", "drift", "state_noise")
    grads: dict[str, list[Tensor]] = {name: [] for name, need in zip(order, needs, strict=True) if need}

    def put(name: str, value: Tensor) -> None:
        target = like[name]
        if name == "rows" or (target is not None and target.shape[0] > 1) or not grads[name]:
            grads[name].append(value)
        else:
            grads[name][0] = grads[name][0] + value

    eye = torch.eye(weights.shape[-2], dtype=weights.dtype, device=weights.device)
    for k in range(weights.shape[0] - 1, -1, -1):
        factor, z = tape[4 * k - 2 : 4 * k] if moments and k > 0 else tape[2 * k : 2 * k + 2]
        mean, cov = tape[4 * k : 4 * k + 2] if moments and k > 0 else (first_mean, first_cov)
        w, h = weights[k], _pick(matrix, k)
        phi = None if transition is None else _pick(transition, k)
        if mask is not None:
            seen = mask[k].unsqueeze(-1)
            h = h * seen
        gain, white = z[..., :state], z[..., state:]
        z_bar = torch.cat([white @ mean_bar.mT - 2 * (gain @ cov_bar), gain @ mean_bar - w * white], -1)
        inverse = torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False)
        rhs_bar = inverse.mT @ z_bar
        among = (z_bar @ z.mT).tril()
        among = among + among.tril(-1).mT + torch.diag_embed(w.sum(-1))
        s_bar = -0.5 * (inverse.mT @ among @ inverse)
        gain_bar, rows_bar = rhs_bar[..., :state], rhs_bar[..., state:]
        if mask is not None:
            gain_bar, s_bar, rows_bar = gain_bar * seen, s_bar * (seen * seen.mT), rows_bar * seen  # pyright: ignore
        pulled = _adjoint_pull(phi, diagonal[0], gain_bar)
        u_bar = s_bar @ h + pulled
        if "rows" in grads:
            put("rows", rows_bar)
        if "noise" in grads:
            put("noise", s_bar)
        if "cross" in grads:
            put("cross", gain_bar)
        if "state_noise" in grads:
            put("state_noise", cov_bar.diagonal(dim1=-2, dim2=-1) if diagonal[1] else cov_bar)
        if "drift" in grads:
            put("drift", mean_bar)
        if "matrix" in grads or "transition" in grads:
            u = h @ cov
            if "matrix" in grads:
                matrix_bar = pulled @ cov + 2 * (s_bar @ u) - rows_bar @ mean.mT
                put("matrix", matrix_bar if mask is None else matrix_bar * seen)  # pyright: ignore
            if "transition" in grads and phi is not None:
                if diagonal[0]:
                    moved = _pull(phi, True, cov)
                    value = (gain_bar * u).sum(-2) + 2 * (cov_bar * moved).sum(-1) + (mean_bar * mean).sum(-1)
                else:
                    value = gain_bar.mT @ u + 2 * (cov_bar @ (phi @ cov)) + mean_bar @ mean.mT
                put("transition", value)
        half = h.mT @ u_bar
        cov_bar = _adjoint_pull(phi, diagonal[0], _adjoint_push(phi, diagonal[0], cov_bar)) + 0.5 * (half + half.mT)
        mean_bar = _adjoint_push(phi, diagonal[0], mean_bar) - h.mT @ rows_bar
    out = {name: torch.stack(list(reversed(values))) for name, values in grads.items()}
    return out.get("rows"), mean_bar, cov_bar, *(out.get(name) for name in order[1:])


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
    def forward(diagonal: tuple[bool, bool], moments: bool, *args: Any) -> tuple[Tensor, ...]:
        return _forward(diagonal, moments, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        diagonal, moments, _, mask, mean, cov, matrix, noise, cross, transition, drift, state_noise = inputs
        _, _, _, info, *tape = output
        ctx.mark_non_differentiable(info, *tape)
        ctx.diagonal, ctx.moments = diagonal, moments
        ctx.save_for_backward(mask, mean, cov, matrix, cross, noise, transition, drift, state_noise, *tape)

    @staticmethod
    def backward(ctx: Any, weights: Tensor, mean_bar: Tensor, cov_bar: Tensor, *_: Any) -> tuple:  # pyright: ignore
        matrix, cross, noise, transition, drift, state_noise = ctx.saved_tensors[3:9]
        need = ctx.needs_input_grad
        needs = (need[2], *need[6:12])
        out = _ChainBackward.apply(
            ctx.diagonal, ctx.moments, needs, weights, mean_bar, cov_bar, *ctx.saved_tensors
        )
        rows, mean, cov, *others = out  # pyright: ignore
        likes = (matrix, noise, cross, transition, drift, state_noise)
        return None, None, rows, None, mean, cov, *(_reduce(g, x) for g, x in zip(others, likes, strict=True))

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
    def forward(
        diagonal: tuple[bool, bool], moments: bool, needs: tuple[bool, ...], *args: Any
    ) -> tuple[Tensor | None, ...]:
        return _backward(diagonal, moments, needs, *args)

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
        groups = (None, None, None, 1, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1) + (0,) * (len(args) - 15)
        folded = _fold(info, in_dims, args, groups, range(9, 15))
        out = _ChainBackward.apply(*folded)
        dims = tuple(None if x is None else d for x, d in zip(out, (1, 0, 0, *(1,) * 6), strict=True))  # pyright: ignore
        unfolded = tuple(None if x is None else x.unflatten(d, (info.batch_size, -1)) for x, d in zip(out, dims, strict=True))  # pyright: ignore
        return unfolded, dims
