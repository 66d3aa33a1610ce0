"""Motions of a series by itself: structures, each a grid of ratios of variances, as linear-Gaussian systems.

    y_t = level_t + wandering_t + season_t + (regression) + noise_t
    level_t = level_{t-1} + slope_{t-1} + w_t
    slope_t = growth slope_{t-1} + w'_t
    wandering_t = damping wandering_{t-1} + w''_t

A constant growth is left to the regression (`tsforecast.analysis.regression`), which weighs it for each structure.
"""

import dataclasses
import itertools
import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.components import Component

_SEASONS = (0.0, 1e-3, 1e-1)  # steps of seasons
_MOVES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2)  # steps of coefficients that may move
_OWN = 3  # level, slope, and what wanders
UNKNOWN = 1e8  # variance of level and seasons before the first step, in units of that of the noise


class Point(NamedTuple):
    """Variances of steps in units of that of the noise, and the factors of slope and wandering in a step."""

    level: float = 0.0
    slope: float = 0.0
    growth: float = 1.0
    wandering: float = 0.0
    damping: float = 0.0


# Weights in the prior; 1 for a level. What stays or returns is likelier than what wanders away.
_WEIGHTS = {
    "constant": 2.0,
    "autoregression": 2.0,
    "damped trend": 0.5,
    "level and autoregression": 0.2,
    "local trend": 0.2,
}
STRUCTURES = {
    "constant": [Point()],
    "level": [Point(10.0**k) for k in (-4, -3.5, -3, -2.5, -2, -1.5, -1, -0.5, 0, 1, 2, 3)],
    "autoregression": [
        Point(wandering=step, damping=damping)
        for step, damping in itertools.product((0.1, 1.0, 10.0, 1e3), (0.3, 0.6, 0.75, 0.87))
    ],
    "level and autoregression": [
        Point(slow * step, wandering=step, damping=damping)
        for slow, step, damping in itertools.product((1e-3, 1e-1), (0.3, 3.0, 300.0), (0.3, 0.6, 0.9))
    ],
    "damped trend": [
        Point(share * step, step, growth)
        for share, step, growth in itertools.product((0.0, 1.0), (0.01, 1.0, 100.0), (0.5, 0.8, 0.95))
    ],
    "local trend": [
        Point(level, slope)
        for level, slope in ((0, 1e-4), (0, 1e-2), (0, 1), (0.1, 1e-4), (0.1, 1e-2), (100, 0.1), (100, 10))
    ],
}


@dataclasses.dataclass(frozen=True)
class StructuralModel:
    """Structure and priors.

    Attributes:
        seasons: Components of seasons.
        level_sd: Guess of the standard deviation of the level's steps, in units of that of the series, with 32 degrees
            of freedom: the prior of CausalImpact, of a level alone. None: all structures, of any size.
        moves: Whether coefficients move.
    """

    seasons: tuple[Component, ...] = ()
    level_sd: float | None = None
    moves: bool = False

    def grid(self) -> "Grid":
        """Return the points of all structures."""
        if self.level_sd is not None:
            structures = {"level": [Point(10.0 ** (k / 5)) for k in range(-35, 11)]}
        else:
            structures = STRUCTURES
        seasons, moves = _SEASONS if self.seasons else (0.0,), _MOVES if self.moves else (0.0,)
        rows, weights = [], []
        for name, points in structures.items():
            own = [
                (*point, season * (1.0 + sum(point[:2]) + point.wandering), move)
                for point, season, move in itertools.product(points, seasons, moves)
            ]
            rows += own
            weights += [math.log(_WEIGHTS.get(name, 1.0) / len(own))] * len(own)
        columns = torch.tensor(rows, dtype=torch.float64).T
        return Grid(*columns.unbind(), log_weight=torch.tensor(weights, dtype=torch.float64))


@dataclasses.dataclass(frozen=True)
class Grid:
    """The fields of `Point` at every point of the grid, and further ones.

    Attributes:
        level: Variance of a step of the level, in units of that of the noise; the others likewise.
        slope: Of a step of the slope.
        growth: Factor of the slope in a step.
        wandering: Of a step of the wandering part.
        damping: Its factor in a step.
        season: Of a step of the active factor of a season.
        coefficient: Of a step of the coefficients of controls that move.
        log_weight: Logarithm of the weight in the prior.
    """

    level: Float[Tensor, " point"]
    slope: Float[Tensor, " point"]
    growth: Float[Tensor, " point"]
    wandering: Float[Tensor, " point"]
    damping: Float[Tensor, " point"]
    season: Float[Tensor, " point"]
    coefficient: Float[Tensor, " point"]
    log_weight: Float[Tensor, " point"]

    @property
    def local_trend(self) -> Tensor:
        """Return a mask of points with a random walk as slope; the regression estimates its beginning."""
        return (self.slope > 0) & (self.growth == 1)


@dataclasses.dataclass(frozen=True)
class System:
    """The dense linear-Gaussian system of every point of a grid, but for coefficients that move.

    Attributes:
        transition: Of the states.
        start: Variances of the states before the first step.
        noise: Variances of the steps of level, slope and what wanders.
        season: Variance of a step of the active factor of a season.
        rows: What is observed of the states at each step.
        active: Which factors of seasons move at each step.
    """

    transition: Float[Tensor, "point state state"]
    start: Float[Tensor, "point state"]
    noise: Float[Tensor, "point own"]
    season: Float[Tensor, " point"]
    rows: Float[Tensor, "steps state"]
    active: Float[Tensor, "steps factor"]

    @classmethod
    def of(cls, model: StructuralModel, grid: Grid, index: Int[Tensor, "steps season"]) -> "System":
        """Return the system over some steps.

        Args:
            model: Has the seasons.
            grid: Points.
            index: Positions in the cycles of the seasons.
        """
        steps, like = len(index), grid.level
        one, zero = like.new_ones(steps, 1), like.new_zeros(steps, 1)
        seasons = [season.row(index[:, k], like) for k, season in enumerate(model.seasons)]
        active = [season.spread(one, index[:, k]) for k, season in enumerate(model.seasons)]
        rows = torch.cat([one, zero, one, *seasons], 1)
        transition = torch.eye(rows.shape[1], dtype=like.dtype).repeat(len(like), 1, 1)
        transition[:, 0, 1] = 1.0
        transition[:, 1, 1], transition[:, 2, 2] = grid.growth, grid.damping
        start = like.new_full((len(like), rows.shape[1]), UNKNOWN)
        # What returns is as if it had begun long ago.
        start[:, 1] = torch.where(grid.growth < 1, grid.slope / (1 - grid.growth.square()), 0.0)
        start[:, 2] = grid.wandering / (1 - grid.damping.square())
        noise = torch.stack([grid.level, grid.slope, grid.wandering], -1)
        moving = torch.cat(active, 1) if active else zero[:, :0]
        return cls(transition, start, noise, grid.season, rows, moving)

    def moved(self, cov: Float[Tensor, "point *group state state"], time: int) -> Float[Tensor, "..."]:
        """Return the covariance of the states a step later.

        Args:
            cov: Covariance.
            time: The later step.
        """
        matrix = self.transition[:, :_OWN, :_OWN].reshape(len(cov), *[1] * (cov.ndim - 3), _OWN, _OWN)
        after = cov.clone()  # factors of seasons stay where they are
        after[..., :_OWN, :] = matrix @ cov[..., :_OWN, :]
        after[..., :_OWN] = after[..., :_OWN] @ matrix.mT
        spread = torch.cat([self.noise, self.season.unsqueeze(-1) * self.active[time]], -1)
        after.diagonal(dim1=-2, dim2=-1).add_(spread.reshape(len(cov), *[1] * (cov.ndim - 3), -1))
        return after
