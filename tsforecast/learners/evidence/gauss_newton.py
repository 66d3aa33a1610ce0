"""Gauss-Newton steps without the Jacobian of a network in memory: conjugate gradients by products with it."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.learners.beliefs.diagonal import Independent
from tsforecast.learners.evidence.pseudo_observation import Model, Points
from tsforecast.learners.shapes import Outputs, Weights

_SMALL = 1e-3  # of the residual of conjugate gradients, relative to where they start: to the gradient there
_ITERATIONS = 200  # of conjugate gradients, at most


def step_by_products(model: Model, prior: Independent, points: Points, mean: Weights) -> Weights:
    """Return the mode of the linearised model: the least squares of `Diagonal.condition`, without a Jacobian.

    In units of the prior the precision is one and what the points add, so few products are enough where these say
    little that is new (truncated Newton; Nocedal and Wright 2006, section 7.1).

    Args:
        model: Network and likelihood.
        prior: Before the points.
        points: All that are learnt from.
        mean: Where the network is linearised.
    """
    scale, begun = prior.variance.sqrt(), mean - prior.mean

    def network(weights: Tensor) -> Tensor:
        return model.network(weights, points.inputs)

    outputs, back, *_ = torch.func.vjp(network, mean)
    root, residual = whitened_outputs(model, outputs, points)

    def seen(move: Tensor) -> Tensor:
        return torch.einsum("nro,no->nr", root, torch.func.jvp(network, (mean,), (move,))[1])

    def pulled(rows: Tensor) -> Tensor:
        return back(torch.einsum("nro,nr->no", root, rows))[0]

    solution = conjugate_gradients(
        lambda x: x + scale * pulled(seen(scale * x)), scale * pulled(residual + seen(begun)), begun / scale
    )
    return prior.mean + scale * solution


def whitened_outputs(
    model: Model, outputs: Outputs, points: Points
) -> tuple[Float[Tensor, "point row output"], Float[Tensor, "point row"]]:
    """Return R and e of each point: its evidence about outputs z near these is e = R (z - outputs) + v, v ~ N(0, I)."""
    each = torch.eye(outputs.shape[-1], dtype=outputs.dtype, device=outputs.device).expand(len(outputs), -1, -1)
    root, residual = model.likelihood.whiten(outputs, each, points.target, points.observed)
    if points.counts is None:
        return root, residual
    power = points.counts.sqrt().unsqueeze(-1)
    return root * power.unsqueeze(-1), residual * power


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], right: Float[Tensor, " size"], start: Float[Tensor, " size"]
) -> Float[Tensor, " size"]:
    """Return x with product(x) = right, nearly, for a positive definite product (Hestenes and Stiefel 1952).

    Args:
        product: Of a symmetric matrix with a vector.
        right: The other side.
        start: Where the search begins.
    """
    solution, residual = start, right - product(start)
    direction, square = residual, residual @ residual
    enough = _SMALL**2 * square  # of squared norms
    for _ in range(_ITERATIONS):
        if not bool(square > enough):
            break
        moved = product(direction)
        step = square / (direction @ moved)
        solution, residual = solution + step * direction, residual - step * moved
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return solution
