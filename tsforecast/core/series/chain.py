"""The sequential part of conditioning on blocks, with its adjoint in closed form.

Series are the dimension `group`, and means and observations are single columns; series that share one covariance are
the columns of a single group. Parameters of size 1 in the dimensions `block` and `group` are shared.
"""

from typing import Any

import torch
from torch import Tensor

from tsforecast.core.linalg import LOG_2PI, symmetrise
from tsforecast.core.series import elementwise


class Chain(torch.autograd.Function):
    """Filters through a chain of blocks. Works under `torch.func.vmap` and `grad`; once differentiable.

    Arguments of `apply` are those of `_forward`: whether to keep a tape; whether to keep also the moments that the
    observations saw, which cotangents of matrix and transition need; then the data. Of what it returns the first four
    are for the caller.
    """

    @staticmethod
    def forward(keep: bool, keep_moments: bool, *args: Any) -> tuple[Tensor, ...]:
        """See `_forward`; without a tape, plain steps of small systems go the faster way."""
        rows, mask, mean, cov, matrix, noise, cross, transition, drift, state_noise = args
        if not keep and cross is None and transition is not None and drift is not None:
            dense = transition.shape[-1] == state_noise.shape[-1] == cov.shape[-1]
            if dense and elementwise.suits(len(cov), cov.shape[-1], rows.shape[-2], cov.device):
                steps = (matrix, noise, transition, drift, state_noise)
                terms, mean, cov = elementwise.filter_steps(rows, mask, mean, cov, *steps)
                return terms, mean, cov, terms.new_zeros(terms.shape[:2], dtype=torch.int32)
        return _forward(keep, keep_moments, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        """Keeps parameters and tape."""
        _, ctx.keep_moments, _, *saved = inputs
        terms, _, _, info, *tape = output
        ctx.set_materialize_grads(False)  # else a zero would be made for every tensor of the tape
        ctx.mark_non_differentiable(info, *tape)
        ctx.shape = terms.shape
        ctx.save_for_backward(*saved, *tape)

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        """Cotangents of the arguments, summed over the dimensions in which these are shared."""
        _, mean, cov, *parameters = ctx.saved_tensors[:9]
        shapes = (ctx.shape, mean.shape, cov.shape)
        given = [mean.new_zeros(s) if bar is None else bar for bar, s in zip(bars, shapes, strict=False)]
        needs = (ctx.needs_input_grad[2], *ctx.needs_input_grad[6:12])
        rows, mean, cov, *others = _ChainBackward.apply(ctx.keep_moments, needs, *given, *ctx.saved_tensors)  # pyright: ignore
        reduced = [None if g is None else g.sum_to_size(x.shape) for g, x in zip(others, parameters, strict=True)]
        return None, None, rows, None, mean, cov, *reduced

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the new dimension as more groups of series."""
        groups = (None, None, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1)
        out: Any = Chain.apply(*_fold(info.batch_size, in_dims, args, groups, range(6, 12)))
        dims = (1, 0, 0, 1) + (0,) * (len(out) - 4)
        return tuple(x.unflatten(d, (info.batch_size, -1)) for x, d in zip(out, dims, strict=True)), dims


class _ChainBackward(torch.autograd.Function):
    """The adjoint as a function of its own, so that `vmap` of a gradient folds its dimension too."""

    @staticmethod
    def forward(keep_moments: bool, needs: tuple[bool, ...], *args: Any) -> tuple[Tensor | None, ...]:
        return _backward(keep_moments, needs, *args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "The whole-series likelihood is once differentiable. For second derivatives, sum the log-likelihoods of "
            "tsforecast.core.kalman.filter, which is ordinary autograd."
        )

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


def _forward(
    keep: bool,
    keep_moments: bool,
    rows: Tensor,  # (block, group, obs, column), offsets subtracted
    mask: Tensor | None,  # (block, group, obs, 1)
    mean: Tensor,  # (group, state, column)
    cov: Tensor,  # (group, state, state)
    matrix: Tensor,  # (block or 1, group or 1, obs, state); so are the next, see `Blocks`
    noise: Tensor,
    cross: Tensor | None,
    transition: Tensor | None,
    drift: Tensor | None,  # (block or 1, group or 1, state, column or 1)
    state_noise: Tensor,
) -> tuple[Tensor, ...]:
    """Log-likelihood of every row (block, group, obs, column), last mean and covariance, failures, then the tape.

    With moments M = [P, -m], R = [Cov(y, x'), y - E y] = [cross + matrix P transition', y - matrix m] and Z = L^{-1} R
    for the factor L of the observations' covariance, the update takes Z[:, :state]' Z off the moments of the state
    moved on: one product for covariance and mean.
    """
    count, (group, state) = len(rows), mean.shape[:2]
    parameters = (matrix, noise, cross, transition, drift, state_noise)
    chain = zip(*(_each(x, count, group) for x in parameters), strict=True)
    moments = torch.cat([cov, -mean], -1)
    eye = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    white, scale = torch.empty_like(rows), torch.empty_like(rows[..., 0])
    infos, tape = [], []
    for k, (h, e, f, phi, shift, q) in enumerate(chain):
        if f is None:
            moved = source = _move(moments, phi, q, shift)
            rhs = torch.bmm(h, source)
        else:
            source = moments
            rhs = torch.bmm(h, source)
            moved = _move(moments, phi, q, shift, in_place=not keep_moments)
        gain = rhs[..., :state]
        among = torch.baddbmm(e, gain, h.mT)
        if f is not None:
            torch.add(_right(gain, phi), f, out=gain)
        rhs[..., state:].add_(rows[k])
        if mask is not None:
            among = torch.where(mask[k] & mask[k].mT, among, eye)
            rhs.mul_(mask[k])
        factor, info = torch.linalg.cholesky_ex(among)
        z = torch.linalg.solve_triangular(factor.mT, rhs.mT, upper=True, left=False).mT  # without copies
        white[k], scale[k] = z[..., state:], factor.diagonal(dim1=-2, dim2=-1)
        infos.append(info)
        if keep:
            tape += [factor, z, source] if keep_moments else [factor, z]
        moments = moved.clone() if keep_moments and source is moved else moved
        moments.baddbmm_(z[..., :state].mT, z, alpha=-1)
        if k % 8 == 7 or k == count - 1:  # what rounding adds beside the symmetric part grows over many steps
            moments[..., :state] = symmetrise(moments[..., :state])
    terms = white.square_().mul_(-0.5).sub_(scale.log_().unsqueeze(-1))
    terms.sub_(0.5 * LOG_2PI * (1.0 if mask is None else mask.to(terms.dtype)))
    return terms, -moments[..., state:], moments[..., :state].contiguous(), torch.stack(infos), *tape


def _backward(
    keep_moments: bool,
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
    """Cotangents of rows, mean, cov, matrix, noise, cross, transition, drift, state_noise (groups not yet summed)."""
    count, (group, state) = len(weights), mean.shape[:2]
    likes = {"rows": weights, "matrix": matrix, "noise": noise, "cross": cross, "transition": transition}
    likes |= {"drift": drift, "state_noise": state_noise}
    grads = {
        name: like.new_zeros(like.shape[0], group, *like.shape[2:])
        for (name, like), need in zip(likes.items(), needs, strict=True)
        if need and like is not None
    }
    targets = {name: _each(grad, count, group) for name, grad in grads.items()}
    matrices, transitions = _each(matrix, count, group), _each(transition, count, group)
    half = 0.5 * weights.sum(-1)
    bar = torch.cat([symmetrise(cov_bar), -mean_bar], -1)  # of the moments [P, -m]
    size = 3 if keep_moments else 2
    for k in range(count - 1, -1, -1):
        factor, z, *source = tape[size * k : size * (k + 1)]
        h, phi = matrices[k], transitions[k]
        into = {name: each[k] for name, each in targets.items()}
        rhs_bar, noise_bar = _adjoint_update(bar, weights[k], half[k], factor, z, None if mask is None else mask[k])
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
            into["drift"].sub_(bar[..., state:].sum_to_size(into["drift"].shape))
        if "state_noise" in into:
            diagonal = state_noise.shape[-1] == 1
            cov_bar = bar[..., :state]
            into["state_noise"].add_(cov_bar.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) if diagonal else cov_bar)
        if "transition" in into:
            left = pushed[..., :state].mT * 2
            if cross is not None:
                before = source[0]
                left.baddbmm_(gain_bar.mT, h)
            elif k > 0:  # the update of the block before is repeated
                _, earlier, seen = tape[size * (k - 1) : size * k]
                before = torch.baddbmm(seen, earlier[..., :state].mT, earlier, alpha=-1)
            else:
                before = torch.cat([cov, -mean], -1)
            _add_transition(into["transition"], left, bar[..., state:], before)
        if phi is not None:
            bar = torch.cat([_right(pushed[..., :state], phi, adjoint=True), pushed[..., state:]], -1)
        if cross is not None:
            torch.add(_right(gain_bar, phi, adjoint=True), through, out=gain_bar)
            _add_symmetric(bar, torch.bmm(h.mT, rhs_bar))
        if "matrix" in into:
            gain_bar.add_(through)
            into["matrix"].baddbmm_(rhs_bar, source[0].mT)
    rows_bar, *others = (grads.get(name) for name in likes)
    return rows_bar, -bar[..., state:], bar[..., :state].contiguous(), *others


def _adjoint_update(
    bar: Tensor, weights: Tensor, half: Tensor, factor: Tensor, z: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cotangents of R and of the observations' covariance S = L L', given those of the moments and of the likelihoods.

    The cotangent of Z = L^{-1} R gives that of R by one solve, and that of S as L^{-T} K L^{-1} / 2 with
    K = -sym(Z_bar Z') - diag(weights), where sym mirrors the lower triangle (the derivative of a Cholesky factor,
    collapsed because it appears in Z and in the log-determinant only).
    """
    state = bar.shape[-2]
    white = z[..., state:]
    z_bar = torch.bmm(z[..., :state], bar)  # to be -Z_bar / 2
    _add_outer(z_bar[..., :state], white, bar[..., state:], 0.5)
    z_bar[..., state:].addcmul_(weights, white).mul_(0.5)
    inner = torch.bmm(z_bar, z.mT)
    inner.diagonal(dim1=-2, dim2=-1).sub_(half)
    eye = torch.eye(z.shape[-2], dtype=z.dtype, device=z.device)
    inner = torch.where(eye.cumsum(-2) > 0, inner, inner.mT)
    inverse = torch.linalg.solve_triangular(factor.mT, eye, upper=True, left=False)
    noise_bar = torch.bmm(torch.bmm(inverse, inner), inverse.mT)
    rhs_bar = torch.bmm(inverse, z_bar).mul_(-2)
    if mask is not None:
        rhs_bar.mul_(mask)
        noise_bar.mul_(mask).mul_(mask.mT)
    return rhs_bar, noise_bar


def _each(x: Tensor | None, count: int, group: int) -> tuple[Any, ...]:
    """A parameter block by block, as views with one of it for every group."""
    if x is None:
        return (None,) * count
    x = x.expand(-1, group, -1, -1)
    return x.unbind() if x.shape[0] > 1 else (x[0],) * count


def _left(phi: Tensor | None, x: Tensor, adjoint: bool = False) -> Tensor:
    """`phi x`, or `phi' x`, for a transition that is a matrix, a diagonal (as a column) or the identity (None)."""
    if phi is None:
        return x
    return phi * x if phi.shape[-1] == 1 else (phi.mT if adjoint else phi) @ x


def _right(x: Tensor, phi: Tensor | None, adjoint: bool = False) -> Tensor:
    """Return `x phi'`, or `x phi` for the adjoint."""
    if phi is None:
        return x
    return x * phi.mT if phi.shape[-1] == 1 else x @ (phi if adjoint else phi.mT)


def _move(
    moments: Tensor, phi: Tensor | None, state_noise: Tensor, drift: Tensor | None, in_place: bool = False
) -> Tensor:
    """The moments [P, -m] of the state moved on: [phi P phi' + state_noise, -(phi m + drift)], never a view.

    A transition that is the identity may leave them where they are.
    """
    state = moments.shape[-2]
    if phi is None or phi.shape[-1] == 1:
        moved = phi * moments if phi is not None else moments if in_place else moments.clone()
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


def _add_outer(target: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
    """Adds scale a b' in place; with a single column elementwise, which is far faster than a product."""
    if a.shape[-1] == 1:
        target.addcmul_(a, b.mT, value=scale)
    else:
        target.add_(torch.bmm(a, b.mT), alpha=scale)


def _add_symmetric(bar: Tensor, x: Tensor) -> None:
    """Adds x in place, for cotangents of moments, where only the symmetric part of the covariance's counts."""
    state = bar.shape[-2]
    bar[..., state:].add_(x[..., state:])
    bar[..., :state].add_(x[..., :state], alpha=0.5).add_(x[..., :state].mT, alpha=0.5)


def _add_transition(target: Tensor, left: Tensor, mean_bar: Tensor, before: Tensor) -> None:
    """Adds left P - mean_bar m' in place, for the moments [P, -m] before the step, or the diagonal of that."""
    state = before.shape[-2]
    if target.shape[-1] == 1:
        target.add_((left * before[..., :state]).sum(-1, keepdim=True))
        target.add_((mean_bar * before[..., state:]).sum(-1, keepdim=True))
    else:
        target.baddbmm_(left, before[..., :state])
        _add_outer(target, mean_bar, before[..., state:])
