"""A step of structural filters as one operation with its adjoint: transition by blocks, one observed number or none."""

from typing import Any

import torch
from torch import Tensor

from tsforecast.core.kernels.calls import anew, call
from tsforecast.core.kernels.steps import batch_of, flat_all, keep, run, summed, whole
from tsforecast.core.linalg import LOG_2PI


def step(
    slopes: tuple[tuple[int, int], ...], *tensors: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Return mean and covariance after a step, log-density, predictive variance, and failures (not 0), if any.

    Args:
        slopes: (level, slope) positions of every trend.
        tensors: Predicted mean; covariance before the step; dampings of the first states, or None for ones; matrix of
            the others, or None where there are none; variances of the noises; whether slopes are added, or None if they
            are; row of the observation; its residual; the variance of its noise; and where it is seen.
    """
    return run(_Step, slopes, *tensors)


def move(slopes: tuple[tuple[int, int], ...], *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return mean and covariance after a transition without an observation.

    Args:
        slopes: (level, slope) positions of every trend.
        tensors: The first six of `step`.
    """
    mean = tensors[0]
    assert mean is not None
    nothing = mean.new_zeros(mean.shape[:-1])
    # A variance that is not positive would count as a failure.
    given = torch.zeros_like(mean), nothing, nothing + 1, torch.zeros_like(nothing, dtype=torch.bool)
    return run(_Step, slopes, *tensors, *given)[:2]


def by_torch(
    slopes: tuple[tuple[int, int], ...],
    mean: Tensor,
    cov: Tensor,
    diagonal: Tensor | None,
    matrix: Tensor | None,
    noise: Tensor,
    share: Tensor | None,
    row: Tensor,
    residual: Tensor,
    variance: Tensor,
    seen: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the result of `step` but for its failures, by torch's operations on dense matrices."""
    states, rest = noise.shape[-1], 0 if matrix is None else matrix.shape[-1]
    damping = torch.ones_like(noise[..., : states - rest]) if diagonal is None else diagonal
    transition = torch.diag_embed(damping)
    for level, slope in slopes:
        moved = torch.zeros(states - rest, states - rest, dtype=noise.dtype, device=noise.device)
        moved[level, slope] = 1
        transition = transition + (moved if share is None else share.unsqueeze(-1) * moved)
    transition = torch.nn.functional.pad(transition, (0, rest, 0, rest))
    if matrix is not None:
        first = states - rest
        transition = transition + torch.nn.functional.pad(matrix, (first, 0, first, 0))
    predicted = transition @ cov @ transition.mT + torch.diag_embed(noise)
    cross = (predicted @ row.unsqueeze(-1)).squeeze(-1)
    total = (row * cross).sum(-1) + variance
    weight = seen.to(total.dtype)
    scale = weight * total.rsqrt()
    white, error = cross * scale.unsqueeze(-1), torch.where(seen, residual, 0.0) * scale
    log_prob = -0.5 * (error.square() + weight * (total.log() + LOG_2PI))
    given = predicted - white.unsqueeze(-1) * white.unsqueeze(-2)
    return mean + white * error.unsqueeze(-1), given, log_prob, total


class _Step(torch.autograd.Function):
    """See `step`."""

    outputs = 5

    @staticmethod
    def forward(ctx: Any, slopes: tuple[tuple[int, int], ...], *tensors: Tensor | None) -> tuple:
        batch, inputs, sizes, pairs = _inputs(slopes, tensors)
        mean = inputs[0]
        assert mean is not None
        new = mean.new_empty
        outputs = new(*batch, sizes[0]), new(*batch, sizes[0], sizes[0]), new(batch), new(batch)
        failed = torch.empty(batch, dtype=torch.int32, device=mean.device)
        bad = call("structural_forward", batch.numel(), sizes, *inputs[:5], pairs, *inputs[5:], *outputs, failed)
        if ctx is not None:
            keep(ctx, tensors, (), slopes)
        return *outputs, failed if bad else None

    @staticmethod
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        (slopes,), tensors, needs = ctx.settings, ctx.saved_tensors, ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():
            # Gradients are on where this is differentiated again.
            return None, *anew(lambda *x: by_torch(slopes, *x), tensors, needs, bars)
        mean_bar, cov_bar, log_bar, variance_bar = whole(*bars[:4])
        batch, inputs, sizes, pairs = _inputs(slopes, tensors)
        states, rest = sizes[:2]
        new = tensors[0].new_empty
        cov = new(*batch, states, states) if needs[1] else None
        diagonal = new(*batch, states - rest) if needs[2] else None
        matrix = new(*batch, rest, rest) if needs[3] else None
        others = new(*batch, states), new(*batch, states), new(batch), new(batch)
        given = [*inputs[1:5], pairs, *inputs[5:], mean_bar, cov_bar, log_bar, variance_bar]
        call("structural_backward", batch.numel(), sizes, *given, cov, diagonal, matrix, *others)
        noise, row, residual, variance = others
        grads = [mean_bar, cov, diagonal, matrix, noise, None, row, residual, variance, None]
        return None, *summed(grads, tensors, needs)


def _inputs(
    slopes: tuple[tuple[int, int], ...], tensors: tuple[Tensor | None, ...]
) -> tuple[torch.Size, list[Tensor | None], tuple[int, int, int], Tensor | None]:
    """Return the batch, the tensors in one piece, the sizes, and the positions of trends as the program reads them."""
    mean, matrix = tensors[0], tensors[3]
    assert mean is not None
    states, rest = mean.shape[-1], 0 if matrix is None else matrix.shape[-1]
    # The program writes wherever they point.
    if not all(0 <= place < states - rest for pair in slopes for place in pair):
        raise IndexError(f"expected positions of levels and slopes among {states - rest} states, got {slopes}")
    n = (states,)
    events = n, (states, states), (states - rest,), (rest, rest), n, (1,), n, (), (), ()
    batch = batch_of(tensors, events)
    inputs = flat_all(tensors, batch, events)
    if inputs[3] is None:
        inputs[3] = mean.new_empty(1)  # of which nothing is read
    pairs = torch.tensor(slopes, dtype=torch.int64, device="cpu") if slopes else None
    return batch, inputs, (states, rest, len(slopes)), pairs
