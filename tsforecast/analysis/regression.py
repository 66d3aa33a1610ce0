"""Posterior of a constant growth and of the coefficients of controls, for every structure that has whitened them.

Given a point of the grid the model is y = X b + c t + noise, where b_k ~ N(0, s2 n u / X_k' X_k), c ~ N(0, s2 n v / i)
and s2 inverse-gamma, all after the filter of that point. There n counts steps and i is the information about c: priors
are in units of the information in one step (Zellner's g-prior; Liang et al. 2008, "Mixtures of g priors for Bayesian
variable selection"). The sizes u and v lie on grids and are weighed by evidence, and each may be 0: no control matters;
there is no constant growth. Everything is in closed form, by one Cholesky factor for each point and u.
"""

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_DF_NOTHING = 0.01
# Zellner and Siow (1980): v is inverse-gamma, so that c is Cauchy.
_GROWTHS = tuple(10.0**k for k in range(-1, 6))
_GROWS = 0.25  # probability of a constant growth, before the series is seen
_CONTROLS = (0.0, 0.1, 3.0, 100.0, 3e3)  # u, together
_CELLS = 20_000_000  # numbers at a time


@dataclasses.dataclass(frozen=True)
class Whitened:
    """Controls, time and series that the filters of a grid have whitened: sums over the time before an intervention.

    Attributes:
        gram: Inner products of controls, time and the series, in this order.
        log_det: Sum of the logarithms of the variances of prediction, in units of that of the noise.
        count: Steps of each series that tell something beside where it began.
    """

    gram: Float[Tensor, "point series column column"]
    log_det: Float[Tensor, "point series"]
    count: Float[Tensor, " series"]


@dataclasses.dataclass(frozen=True)
class RegressionPrior:
    """The prior given a point of the grid.

    Attributes:
        log_weight: Logarithm of the weight of each point.
        shape: Of the inverse-gamma prior of the variance of the noise, for each point.
        scale: Likewise.
        controls: Sizes u of the coefficients of controls.
        growths: Logarithms of the weights of no growth and of each size v, for each point.
        sizes: The sizes v.
    """

    log_weight: Float[Tensor, " point"]
    shape: Float[Tensor, " point"]
    scale: Float[Tensor, " point"]
    controls: Float[Tensor, " size"]
    growths: Float[Tensor, "point growth"]
    sizes: Float[Tensor, " growth"]


@dataclasses.dataclass(frozen=True)
class Draws:
    """Draws from the posterior.

    Attributes:
        point: Of the grid.
        coefficients: Of the controls and of time.
        variance: Of the noise.
    """

    point: Int[Tensor, "series sample"]
    coefficients: Float[Tensor, "series sample column"]
    variance: Float[Tensor, "series sample"]


def sizes_of_growth() -> tuple[Tensor, Tensor]:
    """Return the sizes v, beginning with 0, and the logarithms of their weights."""
    sizes = torch.tensor(_GROWTHS, dtype=torch.float64)
    weights = torch.log_softmax(-0.5 * sizes.log() - 0.5 / sizes, 0) + math.log(_GROWS)
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.cat([zero, sizes]), torch.cat([zero + math.log(1 - _GROWS), weights])


def sizes_of_controls(number: int) -> Tensor:
    """Return the sizes u of the coefficients of so many controls; one size of 0 where there are none."""
    return torch.tensor(_CONTROLS if number else (0.0,), dtype=torch.float64) / max(1, number)


@dataclasses.dataclass(frozen=True)
class _Fit:
    """A regression on controls and time.

    Attributes:
        factor: Of the precision of the coefficients, before any prior of time.
        right: Solution of factor right = X' y.
        left: Sum of squares that controls leave.
        log_det: What the priors of controls cost, the logarithm of a determinant.
    """

    factor: Tensor
    right: Tensor
    left: Tensor
    log_det: Tensor


def _fit(gram: Float[Tensor, "*batch column column"], count: Tensor, size: Tensor) -> _Fit:
    """Return the regression for a size of the coefficients of controls."""
    number = gram.shape[-1] - 2
    own = gram.diagonal(dim1=-2, dim2=-1)[..., :number]
    # A size of 0 is a precision beyond all data.
    before = (own + 1e-12) / (count * size.clamp_min(1e-12)).unsqueeze(-1)
    padded = torch.nn.functional.pad(before, (0, 1))
    factor = torch.linalg.cholesky(gram[..., :-1, :-1] + torch.diag_embed(padded))
    right = torch.linalg.solve_triangular(factor, gram[..., :-1, -1:], upper=False).squeeze(-1)
    square = gram[..., -1, -1]
    left = (square - right[..., :number].square().sum(-1)).clamp_min(1e-12 * square + 1e-24)
    diagonal = factor.diagonal(dim1=-2, dim2=-1)[..., :number]
    return _Fit(factor, right, left, 2 * diagonal.log().sum(-1) - before.log().sum(-1))


def log_evidence(whitened: Whitened, prior: RegressionPrior) -> Float[Tensor, "series point size growth"]:
    """Return the logarithm of prior times marginal likelihood of each point and size."""
    count, parts = whitened.count, []
    power = (prior.shape.unsqueeze(-1) + count / 2).unsqueeze(-1)
    worth = count.unsqueeze(-1) * prior.sizes  # (series, growth)
    for size in prior.controls:
        fit = _fit(whitened.gram, count, size)
        left = fit.left.unsqueeze(-1) - fit.right[..., -1:].square() * (worth / (1 + worth))
        left = left.clamp_min(1e-12 * fit.left.unsqueeze(-1))
        likelihood = -power * (prior.scale[:, None, None] + left / 2).log() - 0.5 * torch.log1p(worth)
        constant = prior.log_weight.unsqueeze(-1) - 0.5 * (whitened.log_det + fit.log_det)
        parts.append(likelihood + constant.unsqueeze(-1) + prior.growths.unsqueeze(1))
    return torch.stack(parts, 2).movedim(1, 0)


def draw(
    whitened: Whitened, prior: RegressionPrior, num_samples: int, generator: torch.Generator | None = None
) -> Draws:
    """Return draws of the points of the grid, the coefficients and the variance of the noise.

    Args:
        whitened: What was observed.
        prior: The prior.
        num_samples: Draws of each series.
        generator: Source of random numbers.
    """
    evidence = log_evidence(whitened, prior)
    weights = torch.softmax(evidence.flatten(1), -1)
    cell = torch.multinomial(weights, num_samples, replacement=True, generator=generator)
    growth = cell % evidence.shape[3]
    pair = cell // evidence.shape[3]  # a point and a size of controls
    point = pair // evidence.shape[2]
    series = torch.arange(len(cell)).unsqueeze(-1).expand_as(cell)
    # The same few cells are drawn again and again.
    flat, which = torch.unique(series * (evidence.shape[1] * evidence.shape[2]) + pair, return_inverse=True)
    own, rest = flat // (evidence.shape[1] * evidence.shape[2]), flat % (evidence.shape[1] * evidence.shape[2])
    fit = _fit(
        whitened.gram[rest // evidence.shape[2], own], whitened.count[own], prior.controls[rest % evidence.shape[2]]
    )
    count = whitened.count.unsqueeze(-1)
    worth = count * prior.sizes[growth]
    share = worth / (1 + worth)
    last = fit.right[..., -1][which]
    left = fit.left[which] - last.square() * share
    gamma = _gamma(prior.shape[point] + count / 2, generator)
    variance = (prior.scale[point] + left.clamp_min(1e-12 * fit.left[which]) / 2) / gamma
    noise = torch.randn(*cell.shape, fit.right.shape[-1], generator=generator, dtype=left.dtype)
    noise = noise * variance.sqrt().unsqueeze(-1)
    # Solve factor' b = right + noise, where the prior of time shrinks its part alone.
    scaled = torch.cat(
        [fit.right[which][..., :-1] + noise[..., :-1], (last * share + noise[..., -1] * share.sqrt()).unsqueeze(-1)], -1
    )
    draws = [
        torch.linalg.solve_triangular(fit.factor[of].mT, one.unsqueeze(-1), upper=True).squeeze(-1)
        for of, one in zip(which.split(_together(scaled)), scaled.split(_together(scaled)), strict=True)
    ]
    return Draws(point, torch.cat(draws), variance)


def _together(scaled: Tensor) -> int:
    """Return the number of series to solve for at a time."""
    return max(1, _CELLS // (scaled.shape[1] * scaled.shape[2] ** 2))


def _gamma(shape: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return draws of a gamma distribution; torch has these only with its global generator."""
    rng = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
    return torch.from_numpy(rng.standard_gamma(shape.numpy()))
