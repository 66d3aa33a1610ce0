"""The adjoint of the filter through a chain of blocks, in closed form, from the last block to the first."""

import torch
from torch import Tensor

from tsforecast.core.linalg import symmetrise
from tsforecast.core.series.chain_steps import each_block, push_columns, push_rows


def chain_cotangents(
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
    grads = _zeros_of_wanted(likes, needs, group)
    targets = {name: each_block(grad, count, group) for name, grad in grads.items()}
    matrices, transitions = each_block(matrix, count, group), each_block(transition, count, group)
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
        pushed = push_rows(phi, bar, adjoint=True)
        _add_offsets(into, bar, rhs_bar, noise_bar)
        if "transition" in into:
            left = pushed[..., :state].mT * 2
            if cross is not None:
                before = source[0]
                left.baddbmm_(gain_bar.mT, h)
            elif k > 0:  # made anew from the tape instead of kept
                before = _updated(*tape[size * (k - 1) + 1 : size * k])
            else:
                before = torch.cat([cov, -mean], -1)  # the first block moved the prior
            _add_transition(into["transition"], left, bar[..., state:], before)
        if phi is not None:
            bar = torch.cat([push_columns(pushed[..., :state], phi, adjoint=True), pushed[..., state:]], -1)
        if cross is not None:
            torch.add(push_columns(gain_bar, phi, adjoint=True), through, out=gain_bar)
            _add_symmetric(bar, torch.bmm(h.mT, rhs_bar))
        if "matrix" in into:
            gain_bar.add_(through)
            into["matrix"].baddbmm_(rhs_bar, source[0].mT)
    rows_bar, *others = (grads.get(name) for name in likes)
    return rows_bar, -bar[..., state:], bar[..., :state].contiguous(), *others


def _zeros_of_wanted(likes: dict[str, Tensor | None], needs: tuple[bool, ...], group: int) -> dict[str, Tensor]:
    """Return zeros for the sums of cotangents, one for every group."""
    return {
        name: like.new_zeros(like.shape[0], group, *like.shape[2:])
        for (name, like), need in zip(likes.items(), needs, strict=True)
        if need and like is not None
    }


def _add_offsets(into: dict[str, Tensor], bar: Tensor, rhs_bar: Tensor, noise_bar: Tensor) -> None:
    """Adds, in place, the cotangents of a block's rows, drift and covariances, of those that are wanted."""
    state = bar.shape[-2]
    if "rows" in into:
        into["rows"].copy_(rhs_bar[..., state:])
    if "noise" in into:
        into["noise"].add_(noise_bar)
    if "cross" in into:
        into["cross"].add_(rhs_bar[..., :state])
    if "drift" in into:
        into["drift"].sub_(bar[..., state:].sum_to_size(into["drift"].shape))
    if "state_noise" in into:
        diagonal = into["state_noise"].shape[-1] == 1
        cov_bar = bar[..., :state]
        into["state_noise"].add_(cov_bar.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) if diagonal else cov_bar)


def _updated(z: Tensor, moved: Tensor) -> Tensor:
    """The moments after a block, from Z on the tape and the moments before its observations."""
    return torch.baddbmm(moved, z[..., : moved.shape[-2]].mT, z, alpha=-1)


def _adjoint_update(
    bar: Tensor, weights: Tensor, half: Tensor, factor: Tensor, z: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Cotangents of R and of the observations' covariance S = L L', given those of the moments and of the likelihoods.

    The cotangent of Z = L^{-1} R gives that of R by one solve. That of S is L^{-T} K L^{-1} / 2 with
    K = -sym(Z_bar Z') - diag(weights), where sym mirrors the lower triangle. This is the derivative of a Cholesky
    factor, collapsed because L appears in Z and in the log-determinant only.
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


def _add_outer(target: Tensor, a: Tensor, b: Tensor, scale: float = 1.0) -> None:
    """Add scale a b' in place; a single column goes elementwise, far faster than by a product."""
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
