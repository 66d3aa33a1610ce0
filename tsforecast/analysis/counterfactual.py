"""Counterfactual series: Bayesian structural models of the time before an intervention, and their joint paths.

    y_t = level_t + wandering_t + season_t + growth t + x_t' coefficients + noise_t

The structures of `tsforecast.analysis.structures` define the motion of level, slope and seasons; some stand still.
Given the ratios of variances to that of the noise the model is conjugate: the Kalman filter whitens series, time and
controls alike, and a regression is left (Harvey 1989, section 3.4; see `tsforecast.analysis.regression`). Structures,
ratios and the sizes of coefficients lie on a grid and are weighed by evidence. Level and seasons begin anywhere
(diffuse), so their first values are no evidence. Draws are exact up to the grid, and no chain has to converge. With
`level_sd` the prior is that of Brodersen et al. (2015, "Inferring causal impact using Bayesian structural time-series
models").
"""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.analysis.regression import Draws, RegressionPrior, draw, sizes_of_controls, sizes_of_growth
from tsforecast.analysis.structures import Grid, StructuralModel, System
from tsforecast.analysis.whitening import BLOCK, Ends, Past, columns_of, whiten
from tsforecast.core.linalg import cholesky

_CELLS = 30_000_000  # numbers at a time
# Of Brodersen's priors: degrees of freedom, expected share of the variance that controls explain, and observations that
# the prior of their coefficients is worth.
_DF_LEVEL, _DF_NOISE, _R2, _SLAB = 32.0, 50.0, 0.8, 0.01
_DF_NOTHING = 0.01


def paths(
    model: StructuralModel, past: Past, horizon: int, num_samples: int, generator: torch.Generator | None = None
) -> Float[Tensor, "series sample horizon"]:
    """Return joint paths of the steps behind the past, as they would have been.

    Args:
        model: Structures and priors.
        past: What is known.
        horizon: Steps behind the past.
        num_samples: Paths of each series.
        generator: Source of random numbers.
    """
    grid = model.grid()
    system = System.of(model, grid, past.index)
    columns = past.controls.shape[-1] + 2
    moving = past.controls.shape[-1] if model.moves else 0
    states = system.rows.shape[1] + moving
    each = len(grid.level) * (states * (columns if past.is_alike(model.moves) else states) + columns * BLOCK)
    each = max(each, num_samples * max(horizon * (1 + moving), states * columns))
    chunks = [
        _paths(model, grid, system, past.part(part), horizon, num_samples, generator)
        for part in torch.arange(past.values.shape[1]).split(max(1, _CELLS // each))
    ]
    return torch.cat(chunks)


def _paths(
    model: StructuralModel,
    grid: Grid,
    system: System,
    past: Past,
    horizon: int,
    num_samples: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "series sample horizon"]:
    """Return paths of series that fit into memory together."""
    whitened, ends = whiten(model, grid, system, past)
    draws = draw(whitened, prior_of(model, grid, past), num_samples, generator)
    simulated = _simulate(model, grid, system, past, ends, draws, horizon, generator)
    later = columns_of(past)[len(past.values) :]
    return simulated + torch.einsum("hsk,snk->snh", later, draws.coefficients)


def prior_of(model: StructuralModel, grid: Grid, past: Past) -> RegressionPrior:
    """Return the prior of coefficients and noise, for standardised series."""
    number = past.controls.shape[-1]
    sizes, growths = sizes_of_growth()
    nothing = torch.full_like(grid.level, _DF_NOTHING / 2)
    if model.level_sd is None:
        growths = growths.repeat(len(grid.level), 1)
        growths[grid.local_trend, 0] = -torch.inf  # a slope that moves began somewhere
        return RegressionPrior(grid.log_weight, nothing, nothing, sizes_of_controls(number), growths, sizes)
    # Given the ratio of both variances, their inverse-gamma priors make one prior of the noise's variance.
    half, noise = _DF_LEVEL / 2, _DF_NOISE / 2 if number else _DF_NOTHING / 2
    return RegressionPrior(
        grid.log_weight - half * grid.level.log(),
        torch.full_like(grid.level, half + noise),
        half * model.level_sd**2 / grid.level + noise * ((1 - _R2) if number else 1.0),
        torch.tensor([1 / _SLAB if number else 0.0], dtype=sizes.dtype),
        torch.zeros(len(grid.level), 1, dtype=sizes.dtype),
        sizes[:1],
    )


def _simulate(
    model: StructuralModel,
    grid: Grid,
    system: System,
    past: Past,
    ends: Ends,
    draws: Draws,
    horizon: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "series sample horizon"]:
    """Return paths behind the past, but for the regression, of the states that each draw implies."""
    series, samples = draws.point.shape
    number = torch.arange(series).unsqueeze(-1).expand(-1, samples)
    loads = torch.cat([-draws.coefficients, torch.ones_like(draws.coefficients[..., :1])], -1)
    state = (ends.mean[draws.point, number] @ loads.unsqueeze(-1)).squeeze(-1)
    # One point after the other: all of its draws have the same matrices.
    groups = ends.cov.shape[1]
    keys, where, counts = torch.unique(
        draws.point * groups + (number if groups > 1 else 0), return_inverse=True, return_counts=True
    )
    points, which = torch.unique(keys // groups, return_inverse=True)
    factor = cholesky(ends.cov[keys // groups, keys % groups], "the covariance of the last state", jitter=True)
    ahead, noise = _ahead(system, points, len(past.values), horizon)
    own = ahead.shape[-1]
    order = torch.argsort(where.flatten(), stable=True).split(counts.tolist())
    flat, scale = state.flatten(0, 1), draws.variance.sqrt().flatten().unsqueeze(-1)
    drawn = torch.randn(flat.shape, generator=generator, dtype=flat.dtype) * scale
    fresh = torch.randn(len(flat), horizon, generator=generator, dtype=torch.float32)
    simulated = flat.new_empty(len(flat), horizon)
    for key, rows in enumerate(order):
        point = int(which[key])
        flat[rows] += drawn[rows] @ factor[key].mT
        moved = (fresh[rows] @ noise[point].float().mT) * scale[rows]
        simulated[rows] = flat[rows, :own] @ ahead[point].mT + moved
    simulated = simulated.unflatten(0, (series, samples))
    if not model.moves:
        return simulated
    steps = torch.randn(series, samples, horizon, past.controls.shape[-1], generator=generator, dtype=torch.float32)
    size = (grid.coefficient[draws.point] * draws.variance).sqrt()
    coefficients = flat.unflatten(0, (series, samples))[..., None, own:] + (steps * size[..., None, None]).cumsum(2)
    later = past.controls[len(past.values) : len(past.values) + horizon]
    return simulated + torch.einsum("hsk,snhk->snh", later, coefficients)


def _ahead(
    system: System, points: Int[Tensor, " chosen"], first: int, horizon: int
) -> tuple[Float[Tensor, "chosen horizon state"], Float[Tensor, "chosen horizon horizon"]]:
    """Return the weights of the state in the steps ahead, and a factor of the covariance of all later noise.

    Args:
        system: Of all points.
        points: Those wanted.
        first: The first step ahead.
        horizon: How many there are.
    """
    chosen = dataclasses.replace(
        system, transition=system.transition[points], noise=system.noise[points], season=system.season[points]
    )
    matrix, states = chosen.transition, system.transition.shape[-1]
    power = torch.eye(states, dtype=matrix.dtype).expand_as(matrix)
    cov, past = torch.zeros_like(matrix), matrix.new_zeros(len(points), states, horizon)
    ahead, joint = matrix.new_zeros(len(points), horizon, states), matrix.new_zeros(len(points), horizon, horizon)
    for step in range(horizon):
        row = system.rows[first + step]
        power, cov, past = matrix @ power, chosen.moved(cov, first + step), matrix @ past
        ahead[:, step] = row @ power
        joint[:, step] = row @ past  # covariances with the steps before
        past[:, :, step] = cov @ row
        joint[:, step, step] = past[:, :, step] @ row + 1.0
    return ahead, cholesky(joint, "the covariance of the steps ahead")
