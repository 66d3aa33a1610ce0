"""What series would have been: a Bayesian structural model of the time before an intervention, and its joint paths.

    y_t = level_t + wandering_t + season_t + x_t' coefficients + noise_t

The level is a random walk, what wanders returns to it, seasons move slowly. Controls come with a spike and a slab, or
with coefficients that move. Given the ratios of the other variances to that of the noise the model is conjugate: the
Kalman filter whitens series and controls alike, and what is left is a regression (Harvey 1989, section 3.4; see
`tsforecast.analysis.controls`). Ratios lie on a grid. So draws are exact up to the grid, and no chain of variances has
to converge. Priors are those of Brodersen et al. (2015, "Inferring causal impact using Bayesian structural time-series
models") where `level_sd` is given, and weak where it is not.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.analysis.controls import Draws, RegressionPrior, Whitened, draw
from tsforecast.analysis.placebos import Placebos, Window, calibrated
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.components import Component, Level
from tsforecast.core.composed import ComposedSystem, compose
from tsforecast.core.linalg import cholesky
from tsforecast.core.structural import ISSM

_DIFFUSE = 1e4  # variance of states before the first step, in units of that of the noise: nothing is known of them
_SLAB = 0.01  # observations that the prior of the coefficients is worth, half of it on the diagonal
_DF_LEVEL, _DF_NOISE, _R2 = 32.0, 50.0, 0.8  # of Brodersen's priors
_DF_NOTHING = 0.01
# The likelihood counts in the weights of the grid as that of so many values at most: models are wrong, and errors one
# step ahead say little of averages far ahead (generalised Bayes; Bissiri, Holmes and Walker 2016).
_TELLING = 40.0
# Steps of a damped level, its dampings, and steps of the level in units of its; steps of seasons.
_WANDERING = ((0.3, 3.0, 30.0, 300.0), (0.6, 0.9, 0.98), (1e-5, 1e-3, 1e-1))
_SEASONS = (1e-9, 1e-3, 1e-1, 1.0)
_PLACEBO_PATHS = 100  # of a window, whose mean and deviations they tell
_CELLS = 50_000_000  # numbers of paths at a time


@dataclasses.dataclass(frozen=True)
class StructuralModel:
    """Structure and priors.

    Attributes:
        seasons: Components of seasons.
        wanders: Whether there is a damped level beside the level.
        level_sd: Guess of the standard deviation of the level's steps, in units of that of the series, with 32 degrees
            of freedom. None: any size, the grid has equal weights.
        model_size: Number of controls expected to matter; None for all.
        moves: Whether coefficients move; all controls then count.
    """

    seasons: tuple[Component, ...] = ()
    wanders: bool = True
    level_sd: float | None = None
    model_size: float | None = 3.0
    moves: bool = False

    def grid(self) -> "Grid":
        """Return the ratios of variances."""
        moves = [10.0**k for k in range(-7, -1)] if self.moves else [0.0]
        if self.level_sd is not None:
            plain = [(10.0 ** (k / 5), 1e-9, 0.5) for k in range(-35, 11)]
        else:
            plain = [(10.0**k, 1e-9, 0.5) for k in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 1, 2, 3)]
        # A slow level beside a damped one that moves faster.
        both = [(slow * step, step, damping) for step, damping, slow in itertools.product(*_WANDERING)]
        parts = (plain, both) if self.wanders else (plain,)
        seasons = _SEASONS if self.seasons else (0.0,)
        rows = [
            (*row, season * max(1.0, *row[:2]), move)
            for part in parts
            for row, season, move in itertools.product(part, seasons, moves)
        ]
        # A level alone is as likely as one with a damped level beside it.
        shares = [-math.log(len(part)) for part in parts for _ in range(len(part) * len(seasons) * len(moves))]
        level, wandering, damping, season, move = torch.tensor(rows, dtype=torch.float64).T
        return Grid(level, wandering, damping, season, move, torch.tensor(shares, dtype=torch.float64))

    def prior(self, grid: "Grid", controls: Float[Tensor, "time #series control"], count: Tensor) -> RegressionPrior:
        """Return the prior of coefficients and noise, for standardised series.

        Args:
            grid: Ratios of variances.
            controls: Standardised, 0 where the series is missing.
            count: Observed steps of each series.
        """
        number = controls.shape[-1]
        inner = torch.einsum("tsi,tsj->sij", controls, controls) / count[:, None, None]
        diagonal = torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1) + 1e-8)
        precision = _SLAB * 0.5 * (inner + diagonal)
        several = number and (self.model_size is not None) and self.model_size < number
        log_odds = math.log(self.model_size / (number - self.model_size)) if several else math.inf  # pyright: ignore
        shape, weight = torch.full_like(grid.level, _DF_NOTHING / 2), grid.log_weight
        scale = shape
        # Given their ratio, the inverse-gamma priors of both variances are one of that of the noise.
        if self.level_sd is not None:
            half, noise = _DF_LEVEL / 2, _DF_NOISE / 2 if number else _DF_NOTHING / 2
            shape = torch.full_like(grid.level, half + noise)
            scale = half * self.level_sd**2 / grid.level + noise * ((1 - _R2) if number else 1.0)
            weight = weight - half * grid.level.log()
        power = (_TELLING / count).clamp_max(1.0) if self.level_sd is None else None
        return RegressionPrior(shape, scale, weight, precision, log_odds, power)


@dataclasses.dataclass(frozen=True)
class Grid:
    """Variances in units of that of the noise, and a damping, at every point.

    Attributes:
        level: Of a step of the level.
        wandering: Of a step of the damped level.
        damping: Factor of the damped level in a step.
        season: Of a step of the active factor of a season.
        coefficient: Of a step of the coefficients of controls that move.
        log_weight: Logarithm of the weight in the prior.
    """

    level: Float[Tensor, " point"]
    wandering: Float[Tensor, " point"]
    damping: Float[Tensor, " point"]
    season: Float[Tensor, " point"]
    coefficient: Float[Tensor, " point"]
    log_weight: Float[Tensor, " point"]


@dataclasses.dataclass(frozen=True)
class Past:
    """Standardised series with their calendar and controls, before and after an intervention.

    Attributes:
        values: Before it; finite everywhere.
        observed: False where missing.
        controls: Over all steps.
        index: Positions in the cycles of the seasons, over all steps.
    """

    values: Float[Tensor, "time series"]
    observed: Bool[Tensor, "time series"]
    controls: Float[Tensor, "steps #series control"]
    index: Int[Tensor, "steps season"]


def paths(
    model: StructuralModel,
    past: Past,
    horizon: int,
    num_samples: int,
    generator: torch.Generator | None = None,
    placebos: Placebos | None = None,
) -> Float[Tensor, "series sample horizon"]:
    """Return joint paths of the steps behind the past, as they would have been.

    Args:
        model: Structure and priors.
        past: What is known.
        horizon: Steps behind the past.
        num_samples: Paths of each series.
        generator: Source of random numbers.
        placebos: Windows of the past whose errors say how wide the paths are; None for what the model says.
    """
    grid = model.grid()
    series, states = past.values.shape[1], _num_states(model, past)
    together = max(1, _CELLS // max(len(grid.level) * (1 + past.controls.shape[-1]) * states, num_samples * horizon))
    found = []
    for part in torch.arange(series).split(together):
        wide = past.controls.shape[1] > 1
        own = dataclasses.replace(
            past,
            values=past.values[:, part],
            observed=past.observed[:, part],
            controls=past.controls[:, part] if wide else past.controls,
        )
        chosen = placebos and Placebos(placebos.starts, placebos.used[:, part])
        found.append(_paths(model, grid, own, horizon, num_samples, generator, chosen))
    return torch.cat(found)


def _paths(
    model: StructuralModel,
    grid: Grid,
    past: Past,
    horizon: int,
    num_samples: int,
    generator: torch.Generator | None,
    placebos: Placebos | None,
) -> Float[Tensor, "series sample horizon"]:
    """Return paths of series that fit into memory together."""
    steps, windows = len(past.values), []
    static = past.controls[..., :0] if model.moves else past.controls
    for end, whitened, ends in _whiten(model, grid, past, [*(placebos.starts if placebos else ()), steps]):
        prior = model.prior(grid, static[:end] * past.observed[:end].unsqueeze(-1), whitened.count)
        count = num_samples if end == steps else min(num_samples, _PLACEBO_PATHS)
        draws = draw(whitened, prior, count, generator)
        ahead = _simulate(model, grid, past, end, ends, draws, horizon, generator)
        if end == steps:
            return ahead if placebos is None else calibrated(ahead, windows, placebos.used, generator)
        came = slice(end, end + horizon)
        windows.append(Window.of(ahead, past.values[came].T, past.observed[came].T))
    raise AssertionError("the last end is that of the past")


def _num_states(model: StructuralModel, past: Past) -> int:
    moving = past.controls.shape[-1] if model.moves else 0
    return 1 + model.wanders + sum(one.size for one in model.seasons) + moving


def _system(
    model: StructuralModel,
    grid: Grid,
    index: Tensor,
    controls: Float[Tensor, "time #series control"],
    variance: Tensor | None = None,
) -> ISSM | ComposedSystem:
    """Return the linear system of every point (point, series, column) or, with variances, of every draw.

    Args:
        model: Structure.
        grid: Ratios; of draws, of shape (series, sample).
        index: Positions in cycles, (time, season).
        controls: Of the same steps.
        variance: Of the noise of each draw; None for ones.
    """
    drawn = variance is not None
    size = variance if drawn else torch.ones_like(grid.level)
    lead = (lambda x: x) if drawn else (lambda x: x[:, None, None])
    sources = [grid.level, *([grid.wandering] if model.wanders else []), *[grid.season] * len(model.seasons)]
    noise = torch.stack([lead(source * size) for source in sources], -1).unsqueeze(0)
    components = (Level(), *((Level(damped=True),) if model.wanders else ()), *model.seasons)
    wide = [1] * (2 if drawn else 3)
    damping = lead(grid.damping).unsqueeze(-1) if model.wanders else noise.new_zeros(*wide, 0)
    emitted = lead(size).unsqueeze(0)
    structure = ISSM(
        components, index.reshape(len(index), *wide, -1), noise, emitted, damping, noise.new_zeros(1, *wide)
    )
    if not model.moves:
        return compose(structure, None)
    count = controls.shape[-1]
    eye = torch.eye(count, dtype=noise.dtype)
    moves = (lead(grid.coefficient * size)[..., None, None] * eye).unsqueeze(0)
    rows = controls.unsqueeze(2).unsqueeze(-2) if drawn else controls[:, None, :, None, None]
    still = noise.new_zeros(1, *wide, count)
    rest = LinearSystem(
        LinearGaussian(eye.reshape(1, *wide, count, count), still, moves),
        LinearGaussian(rows, noise.new_zeros(1, *wide, 1), noise.new_zeros(1, *wide, 1, 1)),
    )
    return compose(structure, rest)


def _whiten(
    model: StructuralModel, grid: Grid, past: Past, ends: Sequence[int]
) -> Iterator[tuple[int, Whitened, Gaussian]]:
    """Yields, at each of some ends, series and controls after the filters of all points, and beliefs over the state.

    The filter is linear: it treats a control as a series, whose missing values are those of the series.
    """
    steps = len(past.values)
    system = _system(model, grid, past.index, past.controls)
    static = past.controls[:steps, :, :0] if model.moves else past.controls[:steps]
    columns = torch.cat([past.values.unsqueeze(-1), static.expand(-1, past.values.shape[1], -1)], -1)
    seen = past.observed
    if bool((seen == seen[:, :1]).all()):
        seen = seen[:, :1]  # covariances are those of all series
    states = _num_states(model, past)
    cov = torch.diag_embed(_start(model, grid, states, past))[:, None, None]
    belief = Gaussian(columns.new_zeros(len(grid.level), *columns.shape[1:], states), cov)
    size = columns.shape[-1]
    gram = columns.new_zeros(len(grid.level), columns.shape[1], size, size)
    log_det = columns.new_zeros(len(grid.level), columns.shape[1])
    at = system.by_step()
    for time in range(steps):
        transition, emission = at(time)
        belief = transition.marginal(belief)
        mean, cross, variance = emission.joint(belief)
        mean, cross, variance = mean[..., 0], cross[..., 0, :], variance[..., 0, 0]
        mask = seen[time].reshape(1, -1, 1)
        root = torch.where(mask, variance.rsqrt(), 0.0)
        white = (columns[time] - mean) * root
        gain = cross * root.unsqueeze(-1)
        cov = torch.addcmul(belief.cov, gain.unsqueeze(-1), gain.unsqueeze(-2), value=-1)
        belief = Gaussian(belief.mean + gain * white.unsqueeze(-1), cov)
        gram = torch.addcmul(gram, white.unsqueeze(-1), white.unsqueeze(-2))
        log_det = log_det + torch.where(mask, variance.log(), 0.0)[..., 0]
        if time + 1 in ends:
            yield time + 1, Whitened(gram, log_det, past.observed[: time + 1].sum(0).to(gram.dtype)), belief


def _start(model: StructuralModel, grid: Grid, states: int, past: Past) -> Float[Tensor, "point state"]:
    """Return the variances of the states before the first step: of a damped level as if it had begun long ago."""
    moving = past.controls.shape[-1] if model.moves else 0
    found = torch.full((len(grid.level), states), _DIFFUSE, dtype=grid.level.dtype)
    if model.wanders:
        found[:, 1] = grid.wandering / (1 - grid.damping.square())
    found[:, states - moving :] = 1.0 / _SLAB
    return found


def _simulate(
    model: StructuralModel,
    grid: Grid,
    past: Past,
    steps: int,
    ends: Gaussian,
    draws: Draws,
    horizon: int,
    generator: torch.Generator | None,
) -> Float[Tensor, "series sample horizon"]:
    """Return paths from the states after some steps, one for each draw."""
    series = torch.arange(len(draws.point)).unsqueeze(-1)
    means = ends.mean[draws.point, series]  # (series, sample, column, state)
    mean = means[..., 0, :] - (draws.coefficients.unsqueeze(-1) * means[..., 1:, :]).sum(-2)
    factor = cholesky(ends.cov[:, :, 0], "the covariance of the last state", jitter=True)
    own = factor[draws.point, series if factor.shape[1] > 1 else 0]
    drawn = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
    state = mean + draws.variance.sqrt().unsqueeze(-1) * (own @ drawn.unsqueeze(-1)).squeeze(-1)
    chosen = Grid(*(getattr(grid, field.name)[draws.point].float() for field in dataclasses.fields(Grid)))
    later = past.controls[steps : steps + horizon]
    system = _system(model, chosen, past.index[steps : steps + horizon], later.float(), draws.variance.float())
    at, emitted, state = system.by_step(), [], state.float()
    for time in range(horizon):
        transition, emission = at(time)
        state = transition.sample(state, generator)
        emitted.append(emission.sample(state, generator)[..., 0])
    found = torch.stack(emitted, -1)
    if model.moves:
        return found
    return found + torch.einsum("hsk,snk->snh", later.float().expand(-1, len(series), -1), draws.coefficients.float())
