"""What a contender of `filtering.py` has to offer, and the reference that all are checked against and divided by."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from problems import ISSM_STATES, Problem
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


class UnsupportedError(Exception):
    """A library does not do this part of the work; the message says which part."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One library made ready for one problem.

    Attributes:
        problem: What it does: the problem, or a part of it.
        value: Computes the log-likelihood of each series.
        gradient: Computes the same and the gradients of its sum by name (those of `problem.wrt`; "diag Q" for the
            diagonal of Q alone); None if the library has no gradients.
        remark: What a reader of the table must know.
    """

    problem: Problem
    value: Callable[[], Any]
    gradient: Callable[[], tuple[Any, dict[str, Any]]] | None = None
    remark: str = ""


def to_tensors(problem: Problem, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """The problem's arrays, those to differentiate by as leaves; `observed` if there are missing values."""
    tensors = {}
    for name, x in problem.arrays.items():
        tensor = torch.as_tensor(np.ascontiguousarray(x), device=device)
        tensors[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
        tensors[name].requires_grad_(name in problem.wrt)
    if problem.observed is not None:
        tensors["observed"] = torch.as_tensor(problem.observed, device=device)
    return tensors


def from_torch(
    problem: Problem, function: Callable[[], Tensor], leaves: dict[str, Tensor], remark: str = ""
) -> Contender:
    """A contender whose gradients are autograd's.

    Args:
        problem: What it does.
        function: Log-likelihood of each series.
        leaves: What to differentiate by.
        remark: See `Contender`.
    """

    def value() -> Tensor:
        with torch.no_grad():
            return function()

    def gradient() -> tuple[Tensor, dict[str, Tensor]]:
        log_likelihood = function()
        gradients = torch.autograd.grad(log_likelihood.sum(), list(leaves.values()))
        return log_likelihood.detach(), dict(zip(leaves, gradients, strict=True))

    return Contender(problem, value, gradient, remark)


def make_naive(problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """The loop that one writes first: dense textbook steps, batched over the series, differentiated by autograd."""
    tensors = to_tensors(problem, dtype, device)
    if problem.kind == "issm":
        tensors["C"] = torch.as_tensor(problem.emission(), dtype=dtype, device=device)
    return from_torch(problem, lambda: _loop(problem, tensors), {name: tensors[name] for name in problem.wrt})


def truth(problem: Problem, series_at_once: int = 64) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Value and gradients of the naive loop in float64, a few series at a time since its tape is large."""
    values, gradients = [], []
    for start in range(0, problem.num_series, series_at_once):
        part = make_naive(problem.part(slice(start, start + series_at_once)), torch.float64, "cpu")
        assert part.gradient is not None
        value, gradient = part.gradient()
        values.append(value.numpy())
        gradients.append({name: x.numpy() for name, x in gradient.items()})
    merge = np.sum if problem.kind == "shared" else lambda parts, axis: np.concatenate(parts, axis)
    return np.concatenate(values), {name: merge([part[name] for part in gradients], axis=0) for name in problem.wrt}


def _loop(problem: Problem, tensors: dict[str, Tensor]) -> Tensor:
    y = tensors["y"]
    num_series, num_steps, num_targets = y.shape
    num_states = tensors["m0"].shape[0]
    mean = tensors["m0"].expand(num_series, num_states)
    cov = tensors["P0"].expand(num_series, num_states, num_states)
    mask = tensors["observed"].to(y.dtype) if "observed" in tensors else None
    parameters = _issm_parameters(problem, tensors) if problem.kind == "issm" else _constant_parameters(tensors)
    total = y.new_zeros(num_series)
    for t in range(num_steps):
        transition, emission, noise, variance = parameters(t)
        residual = y[:, t] - (emission @ mean.unsqueeze(-1)).squeeze(-1)
        cross = emission @ cov
        among = cross @ emission.mT + variance
        count = num_targets
        if mask is not None:  # a missing value: no residual, no covariance, unit variance
            seen = mask[:, t]
            residual, cross = residual * seen, cross * seen.unsqueeze(-1)
            among = among * seen.unsqueeze(-1) * seen.unsqueeze(-2) + torch.diag_embed(1 - seen)
            count = seen.sum(-1)
        factor = torch.linalg.cholesky_ex(among)[0]
        gain = torch.cholesky_solve(cross, factor).mT
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
        total = total - 0.5 * (white.square().sum(-1) + count * LOG_2PI)
        total = total - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        mean = mean + (gain @ residual.unsqueeze(-1)).squeeze(-1)
        cov = cov - gain @ cross
        mean = (transition @ mean.unsqueeze(-1)).squeeze(-1)
        cov = transition @ cov @ transition.mT + noise
        cov = 0.5 * (cov + cov.mT)
    return total


Parameters = Callable[[int], tuple[Tensor, Tensor, Tensor, Tensor]]  # step -> A, C, Q, R


def _constant_parameters(tensors: dict[str, Tensor]) -> Parameters:
    constant = (tensors["A"], tensors["C"], tensors["Q"], torch.diag_embed(tensors["R"]))
    return lambda t: constant


def _issm_parameters(problem: Problem, tensors: dict[str, Tensor]) -> Parameters:
    eye = torch.eye(ISSM_STATES, dtype=tensors["q"].dtype, device=tensors["q"].device)
    noise, variance, active = tensors["q"].unbind(1), tensors["r"].unbind(1), tensors["active"]
    emission = tensors["C"].unbind(-3)

    def at(t: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        diagonal = (noise[t].unsqueeze(-2) @ eye[active[..., t, :]]).squeeze(-2)
        return eye, emission[t], torch.diag_embed(diagonal + problem.jitter), variance[t][:, None, None]

    return at
