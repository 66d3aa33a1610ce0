"""The filter through a chain of blocks, without its adjoint."""

from typing import Any

import torch
from torch import Tensor

from tsforecast.core.linalg import LOG_2PI, symmetrise


def filter_chain(
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

    The moments are M = [P, -m], and R = [Cov(y, x'), y - E y] = [cross + matrix P transition', y - matrix m]. Z is
    L^{-1} R for the factor L of the observations' covariance. The update takes Z[:, :state]' Z off the moments of the
    state moved on: one product for covariance and mean.
    """
    count, (group, state) = len(rows), mean.shape[:2]
    parameters = (matrix, noise, cross, transition, drift, state_noise)
    chain = zip(*(each_block(x, count, group) for x in parameters), strict=True)
    moments = torch.cat([cov, -mean], -1)
    eye = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
    # Written block by block: no list of parts to stack.
    white, scale = torch.empty_like(rows), torch.empty_like(rows[..., 0])
    infos, tape = [], []
    for k, (h, e, f, phi, shift, q) in enumerate(chain):
        if f is None:
            moved = source = _move(moments, phi, q, shift)
            rhs = torch.bmm(h, source)
        else:
            source = moments
            rhs = torch.bmm(h, source)
            moved = _move(moments, phi, q, shift, in_place=not keep_moments)  # the tape holds the moments before
        gain = rhs[..., :state]
        among = torch.baddbmm(e, gain, h.mT)
        if f is not None:
            torch.add(push_columns(gain, phi), f, out=gain)
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
        # The update would overwrite what the tape holds.
        moments = moved.clone() if keep_moments and source is moved else moved
        moments.baddbmm_(z[..., :state].mT, z, alpha=-1)
        if k % 8 == 7 or k == count - 1:  # what rounding adds beside the symmetric part grows over many steps
            moments[..., :state] = symmetrise(moments[..., :state])
    terms = white.square_().mul_(-0.5).sub_(scale.log_().unsqueeze(-1))  # logarithms of all blocks at once
    terms.sub_(0.5 * LOG_2PI * (1.0 if mask is None else mask.to(terms.dtype)))
    return terms, -moments[..., state:], moments[..., :state].contiguous(), torch.stack(infos), *tape


def each_block(x: Tensor | None, count: int, group: int) -> tuple[Any, ...]:
    """A parameter block by block, as views with one of it for every group."""
    if x is None:
        return (None,) * count
    x = x.expand(-1, group, -1, -1)
    return x.unbind() if x.shape[0] > 1 else (x[0],) * count


def push_rows(phi: Tensor | None, x: Tensor, adjoint: bool = False) -> Tensor:
    """`phi x`, or `phi' x`, for a transition that is a matrix, a diagonal (as a column) or the identity (None)."""
    if phi is None:
        return x
    return phi * x if phi.shape[-1] == 1 else (phi.mT if adjoint else phi) @ x


def push_columns(x: Tensor, phi: Tensor | None, adjoint: bool = False) -> Tensor:
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
        # A copy, which is written into below.
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
