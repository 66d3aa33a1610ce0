"""Conditioning step by step with the series in the last dimension: values for very many small systems on a CPU.

Where a system has a few states, factorising a tiny matrix for each series costs more than the arithmetic in it. Here
every operation runs along the series, and the observations of a step are taken one after the other (elimination). There
is no adjoint: with gradients, blocks of steps are as fast and need far less memory.
"""

from typing import Any

import torch
from torch import Tensor

from tsforecast.core.linalg import LOG_2PI


def suits(num_series: int, num_states: int, num_targets: int, device: torch.device) -> bool:
    """Whether this form is the faster one: measured on a CPU; on a GPU its many small kernels would cost more."""
    small = max(num_states, num_targets) <= 4
    return small and num_series >= 512 and device.type == "cpu" and not torch.is_grad_enabled()


def filter_steps(
    rows: Tensor,  # (step, series, obs, 1), offsets subtracted
    mask: Tensor | None,  # (step, series, obs, 1)
    mean: Tensor,  # (series, state, 1)
    cov: Tensor,  # (series, state, state)
    matrix: Tensor,  # (step or 1, series or 1, obs, state); so are the next, see `Blocks` without `cross`
    noise: Tensor,
    transition: Tensor,
    drift: Tensor,  # (step or 1, series or 1, state, 1)
    state_noise: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-likelihood of every observation (step, series, obs, 1), NaN or inf after a failure, and the last moments."""
    count, obs, state = len(rows), rows.shape[-2], cov.shape[-1]
    chain = zip(*(_each(x, count) for x in (matrix, noise, transition, drift, state_noise)), strict=True)
    residuals = rows.squeeze(-1).mT.contiguous()  # less the expectation below
    pivots = torch.empty_like(residuals)
    eye = torch.eye(obs, dtype=rows.dtype, device=rows.device).unsqueeze(-1)
    seen = torch.ones_like(residuals, dtype=torch.bool) if mask is None else mask.squeeze(-1).mT.contiguous()
    weights = seen.to(rows.dtype)
    moments = torch.cat([cov, -mean], -1).movedim(0, -1).contiguous()  # [P, -m], as in chain_steps.py
    for k, (h, e, phi, shift, q) in enumerate(chain):
        pushed = _left(phi, moments)
        # Into the same memory: new memory costs more than the sums.
        torch.add(_right(pushed[:, :state], phi), q, out=moments[:, :state])
        torch.sub(pushed[:, state:], shift, out=moments[:, state:])
        gain = _left(h, moments)
        gain[:, state].add_(residuals[k])
        among = _right(gain[:, :state], h).add_(e)
        if mask is not None:
            gain.mul_(weights[k].unsqueeze(1))
            among = torch.where(seen[k] & seen[k].unsqueeze(1), among, eye)  # missing rows: variance 1, independent
        for i in range(obs):
            for j in range(i + 1, obs):
                ratio = among[j, i] / among[i, i]  # without pivoting: covariances are positive definite
                gain[j].addcmul_(ratio, gain[i], value=-1)
                among[j].addcmul_(ratio, among[i], value=-1)
            moments.addcmul_((gain[i, :state] / among[i, i]).unsqueeze(1), gain[i], value=-1)
        # Elimination leaves the one-step variances and errors.
        pivots[k], residuals[k] = among.diagonal().mT, gain[:, state]
        if k % 8 == 7 or k == count - 1:  # what rounding adds beside the symmetric part grows over many steps
            moments[:, :state] = 0.5 * (moments[:, :state] + moments[:, :state].transpose(0, 1))
    terms = residuals.square_().div_(pivots).add_(pivots.log_()).add_(weights, alpha=LOG_2PI).mul_(-0.5)
    mean, cov = -moments[:, state:].movedim(-1, 0), moments[:, :state].movedim(-1, 0)
    return terms.mT.unsqueeze(-1), mean, cov.contiguous()


def _each(x: Tensor, count: int) -> tuple[Any, ...]:
    """A parameter step by step, with the series last."""
    x = x.movedim(1, -1).contiguous()
    return x.unbind() if x.shape[0] > 1 else (x[0],) * count


def _left(a: Tensor, x: Tensor) -> Tensor:
    """`a x` for matrices with the series, or 1 for all of them, in the last dimension."""
    if a.shape[-1] == 1:
        return (a.squeeze(-1) @ x.flatten(1)).unflatten(1, x.shape[1:])
    return (a.unsqueeze(2) * x).sum(1)


def _right(x: Tensor, a: Tensor) -> Tensor:
    """Return the product `x a'`."""
    if a.shape[-1] == 1:
        return torch.bmm(a.squeeze(-1).expand(len(x), -1, -1), x)
    return (x.unsqueeze(1) * a).sum(2)
