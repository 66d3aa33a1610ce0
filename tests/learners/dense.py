"""What learners compute, by dense matrices, inverses and automatic differentiation; and beliefs to compare on."""

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian as Normal
from tsforecast.learners import (
    LOFI,
    LRKF,
    BlockDiagonal,
    Blocked,
    Diagonal,
    Full,
    Independent,
    LowRankCovariance,
    LowRankPrecision,
)

EXACT = {"rtol": 1e-8, "atol": 1e-8}
SIZE = 6
BLOCKS = (1, 3, 2)
FAMILIES = {
    "full": Full(),
    "precision": Diagonal("precision"),
    "covariance": Diagonal("covariance"),
    "blocks": BlockDiagonal(BLOCKS),
    "lofi": LOFI(3),
    "lofi-0": LOFI(0),
    "lrkf": LRKF(3),
}


def _tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else torch.tensor(np.asarray(x))


def assert_same(actual: Any, expected: Any, **tolerance: float) -> None:
    torch.testing.assert_close(_tensor(actual), _tensor(expected), **{**EXACT, **tolerance})


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def random_belief(name: str, seed: int = 0) -> Any:
    """A belief over SIZE weights of the family of that name, with nothing special about it."""
    rng = generator(seed)
    mean = torch.randn(SIZE, generator=rng, dtype=torch.float64)
    positive = 0.5 + torch.rand(SIZE, generator=rng, dtype=torch.float64)
    columns = torch.randn(SIZE, 3, generator=rng, dtype=torch.float64)
    if name == "full":
        return Normal(mean, random_covariance((), SIZE, rng))
    if name in ("precision", "covariance"):
        return Independent(mean, positive)
    if name == "blocks":
        return Blocked(mean, tuple(random_covariance((), size, rng) for size in BLOCKS))
    if name == "lrkf":
        return LowRankCovariance(mean, columns.T, positive)
    return LowRankPrecision(mean, positive, columns if name == "lofi" else columns[:, :0])


def moments(belief: Any) -> tuple[Tensor, Tensor]:
    """Mean and dense covariance."""
    if isinstance(belief, Normal):
        return belief.mean, belief.cov
    if isinstance(belief, Independent):
        return belief.mean, torch.diag(belief.variance)
    if isinstance(belief, Blocked):
        return belief.mean, torch.block_diag(*belief.covs)
    if isinstance(belief, LowRankCovariance):
        return belief.mean, belief.factor.T @ belief.factor + torch.diag(belief.noise)
    return belief.mean, torch.linalg.inv(torch.diag(belief.diagonal) + belief.factor @ belief.factor.T)


def assert_belief(belief: Any, mean: Tensor, cov: Tensor, **tolerance: float) -> None:
    assert_same(moments(belief)[0], mean, **tolerance)
    assert_same(moments(belief)[1], cov, **tolerance)


def off_blocks(matrix: Tensor, sizes: tuple[int, ...] = BLOCKS) -> Tensor:
    """With zeros outside of the blocks."""
    return matrix * torch.block_diag(*(torch.ones(size, size) for size in sizes))


def leading(matrix: Tensor, rank: int) -> Tensor:
    """The best approximation of a lower rank."""
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values[len(values) - rank :], vectors[:, len(values) - rank :]
    return (vectors * values) @ vectors.T


def kalman(mean: Tensor, cov: Tensor, matrix: Tensor, noise: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Textbook's update with Joseph's form; the covariance may be singular."""
    gain = cov @ matrix.T @ torch.linalg.inv(matrix @ cov @ matrix.T + noise)
    keep = torch.eye(len(mean), dtype=mean.dtype) - gain @ matrix
    return mean + gain @ residual, keep @ cov @ keep.T + gain @ noise @ gain.T


def bayes(mean: Tensor, cov: Tensor, matrix: Tensor, noise: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """By precisions."""
    weighted = matrix.T @ torch.linalg.inv(noise)
    after = torch.linalg.inv(torch.linalg.inv(cov) + weighted @ matrix)
    return mean + after @ weighted @ residual, after


def outputs_of(module: nn.Module, weights: Tensor, inputs: Tensor) -> Tensor:
    names = {name: p.shape for name, p in module.named_parameters()}
    parts = weights.split([shape.numel() for shape in names.values()])
    values = {name: part.view(shape) for (name, shape), part in zip(names.items(), parts, strict=True)}
    outputs = torch.func.functional_call(module, values, (inputs,))
    return outputs if outputs.ndim > 1 else outputs.unsqueeze(-1)


def jacobian_of(module: nn.Module, weights: Tensor, inputs: Tensor) -> Tensor:
    """Shape (point, output, weight)."""
    return torch.func.jacrev(lambda w: outputs_of(module, w, inputs))(weights)


def vector_of(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def mlp(*widths: int, seed: int = 0) -> nn.Sequential:
    """With tanh between the layers."""
    torch.manual_seed(seed)
    layers = [m for i, o in itertools.pairwise(widths) for m in (nn.Linear(i, o), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def drifted(
    name: str, mean: Tensor, cov: Tensor, prior_mean: Tensor, prior_cov: Tensor, dt: float, **settings: float
) -> tuple[Tensor, Tensor]:
    """The moments after a time, as section 5 of the specification has them."""
    eye = torch.eye(len(mean), dtype=mean.dtype)
    if name == "wiener":
        return mean, cov + settings["rate"] * dt * prior_cov
    if name == "ornstein-uhlenbeck":
        keep = math.exp(-settings["rate"] * dt / settings["typical"])
        return keep * mean + (1 - keep) * prior_mean, keep**2 * cov + (1 - keep**2) * prior_cov
    if name == "bayesian":
        keep = (1 - settings["rate"]) ** (dt / settings["typical"])
        mine, its = torch.linalg.inv(cov), torch.linalg.inv(prior_cov)
        after = torch.linalg.inv(keep * mine + (1 - keep) * its)
        return after @ (keep * mine @ mean + (1 - keep) * its @ prior_mean), after
    if name == "exponential":
        return mean, cov / settings["factor"] ** dt
    assert name == "shrink"
    assert dt == round(dt)
    for _ in range(round(dt)):
        mean, cov = settings["decay"] * mean, settings["decay"] ** 2 * cov + settings["sd"] ** 2 * eye
    return mean, cov


def assert_moments(samples: Tensor, mean: Tensor, cov: Tensor, errors: float = 5.0) -> None:
    """Gaussian samples have mean and covariance within some standard errors.

    Var(sample mean_i) = V_ii / n, and Var(sample cov_ij) = (V_ij^2 + V_ii V_jj) / n.
    """
    count, variance = len(samples), cov.diagonal()
    assert ((samples.mean(0) - mean).abs() <= errors * (variance / count).sqrt() + 1e-9).all()
    spread = (samples - mean).T @ (samples - mean) / count - cov
    assert (spread.abs() <= errors * ((cov.square() + torch.outer(variance, variance)) / count).sqrt() + 1e-9).all()
