"""The continuous ranked probability score of weighted points, with its gradient in one sweep."""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from tsforecast.core.torch_internals import is_transformed

_AT_ONCE = 100_000  # points that are sorted at once, which stay in a processor's cache


def crps_of_points(
    points: Float[Tensor, "*batch point"], weight: Float[Tensor, "*batch point"], values: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return E|X - y| - E|X - X'| / 2 of a distribution on points (Gneiting and Raftery 2007, eq. 21).

    Args:
        points: Points, in any order.
        weight: Their probabilities.
        values: What was observed, without a gradient.
    """
    return _value(points, weight, values, 1.0)


def weighted_crps(
    paths: Float[Tensor, "time sample series target"],
    values: Float[Tensor, "time 1 series target"],
    ratio: Float[Tensor, "sample series 1"],
) -> Float[Tensor, "time series target"]:
    """Return the fair CRPS of samples with weights r.

    It is sum_i r_i |X_i - y| / n - sum_{i < j} r_i r_j |X_i - X_j| / (n (n - 1)).
    """
    count = paths.shape[1]
    # Fair: the paths stand for a distribution, not for themselves.
    points, weight = paths.movedim(1, -1), (ratio / count).expand_as(paths).movedim(1, -1)
    return _value(points, weight, values.squeeze(1), count / (count - 1))


def crps_of_gaussians(
    mean: Float[Tensor, "time sample series target"],
    deviation: Float[Tensor, "time sample series target"],
    values: Float[Tensor, "time 1 series target"],
    ratio: Float[Tensor, "sample series 1"],
) -> Float[Tensor, "time series target"]:
    """Return the fair CRPS of Gaussians that are drawn with weights r (Grimit et al. 2006, without equal pairs).

    It is sum_i r_i E|X_i - y| / n - sum_{i < j} r_i r_j E|X_i - X_j| / (n (n - 1)); of a single one its own CRPS.

    Args:
        mean: Of each Gaussian.
        deviation: Of each Gaussian, above 0.
        values: What was observed.
        ratio: Weights, whose mean is one.
    """
    count = mean.shape[1]
    error = (ratio * _mean_size(mean - values, deviation)).mean(1)
    if count == 1:
        return error - ratio[0].square() * deviation[:, 0] / math.sqrt(math.pi)
    # Pairs of a component with itself do not count.
    first, second = torch.triu_indices(count, count, 1, device=mean.device)
    both = (deviation[:, first].square() + deviation[:, second].square()).sqrt()
    spread = ratio[first] * ratio[second] * _mean_size(mean[:, first] - mean[:, second], both)
    return error - spread.sum(1) / (count * (count - 1))


def _mean_size(mean: Tensor, deviation: Tensor) -> Tensor:
    """Return E|X| of Gaussians."""
    z = mean / deviation
    return mean * torch.erf(z / math.sqrt(2)) + deviation * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z.square())


def crps_of_samples(
    points: Float[Tensor, "time series target sample point"],
    values: Float[Tensor, "time series target"],
    ratio: Float[Tensor, "series 1 sample"],
) -> Float[Tensor, "time series target"]:
    """Return the score of `crps_of_gaussians` for other distributions, each given by rising points of equal shares.

    Args:
        points: Of each distribution.
        values: What was observed.
        ratio: Weights of the distributions, whose mean is one.
    """
    count, number = points.shape[-2:]
    weight = (ratio / (count * number)).unsqueeze(-1).expand(points.shape)
    factor = count / (count - 1) if count > 1 else 1.0  # over pairs of different samples
    score = _value(points.flatten(-2), weight.flatten(-2), values, factor)
    if count == 1:
        return score
    # Pairs of points of one distribution are not meant.
    ranks = torch.arange(1 - number, number, 2, device=points.device, dtype=points.dtype)
    within = 2 * (points * ranks).sum(-1) / number**2
    return score + 0.5 * (ratio.square() * within).mean(-1) / (count - 1)


def _value(points: Tensor, weight: Tensor, values: Tensor, factor: float) -> Tensor:
    """Return the score; inside `vmap`, torch differentiates it step by step, since `vmap` can not pass NumPy."""
    if is_transformed(points) or is_transformed(weight):
        return _score(points, weight, values.unsqueeze(-1), factor)[0]
    return _Score.apply(points, weight, values, factor)[0]


class _Score(torch.autograd.Function):
    """The sum of w_i |x_i - y|, less a factor times the sum over pairs i < j of w_i w_j |x_i - x_j|.

    In rising order the pairs are sum_i w_i x_i (w below i - w above i). Their derivative by w_i, sum_j w_j |x_i - x_j|,
    is a difference of the same sums. So one order serves all, where gradients through a sort scatter several times.
    """

    @staticmethod
    def forward(points: Tensor, weight: Tensor, values: Tensor, factor: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the score, and its derivatives by points and weights."""
        rows, shape = max(1, _AT_ONCE // points.shape[-1]), points.shape
        parts = [x.reshape(-1, x.shape[-1]).split(rows) for x in (points, weight, values.unsqueeze(-1))]
        chunks = [_score(*part, factor=factor) for part in zip(*parts, strict=True)]
        score, by_points, by_weight = (torch.cat(x) for x in zip(*chunks, strict=True))
        return score.view(shape[:-1]), by_points.view(shape), by_weight.view(shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the derivatives."""
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*output[1:])

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *slopes: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        """Return the slope times the derivatives."""
        by_points, by_weight = ctx.saved_tensors
        slope = slopes[0].unsqueeze(-1)
        return slope * by_points, slope * by_weight, None, None


def _score(
    points: Float[Tensor, "*row point"],
    weight: Float[Tensor, "*row point"],
    values: Float[Tensor, "*row 1"],
    factor: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the score and its derivatives."""
    order = _order(points)
    ordered, share = points.gather(-1, order), weight.gather(-1, order)
    error, mass = ordered - values, share * ordered
    upto, moment = share.cumsum(-1), mass.cumsum(-1)  # all pairs by two running sums, not by a table of pairs
    balance = 2 * upto - share - upto[..., -1:]  # w below - w above
    moved = 2 * moment - mass - moment[..., -1:]
    score = (share * error.abs()).sum(-1) - factor * (mass * balance).sum(-1)
    by_points = share * (error.sign() - factor * balance)
    by_weight = error.abs() - factor * (ordered * balance - moved)
    back = torch.empty_like(ordered)
    return score, back.scatter(-1, order, by_points), back.scatter(-1, order, by_weight)


def _order(points: Float[Tensor, "*row point"]) -> Int[Tensor, "*row point"]:
    """Return the rising order; NumPy sorts several times faster than torch on a CPU."""
    if points.device.type == "cpu" and not is_transformed(points):
        return torch.from_numpy(np.argsort(points.detach().numpy(), -1))
    return points.argsort(-1)
