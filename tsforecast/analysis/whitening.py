"""Filters of every structure over series, controls and time at once; a regression is left."""

import dataclasses

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tsforecast.analysis.regression import Whitened
from tsforecast.analysis.structures import UNKNOWN, Grid, StructuralModel, System

_NEAR = 500_000  # numbers of covariances that are moved together: these stay in the memory of a core
BLOCK = 32  # steps whose inner products are taken together


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
    controls: Float[Tensor, "steps series control"]
    index: Int[Tensor, "steps season"]

    def is_alike(self, moves: bool) -> bool:
        """Return whether all series have the same gaps and, if coefficients of these move, the same controls."""
        same = bool((self.observed == self.observed[:, :1]).all())
        return same and not (moves and bool((self.controls != self.controls[:, :1]).any()))

    def part(self, series: Tensor) -> "Past":
        """Return the same of some series."""
        return Past(self.values[:, series], self.observed[:, series], self.controls[:, series], self.index)


@dataclasses.dataclass(frozen=True)
class Ends:
    """The beliefs of the filters at the end of the past; covariances in units of the variance of the noise.

    Attributes:
        mean: Of the states, from controls, time and the series.
        cov: Of the states; one for all series if these have the same gaps.
    """

    mean: Float[Tensor, "point series state column"]
    cov: Float[Tensor, "point group state state"]


def columns_of(past: Past) -> Float[Tensor, "steps series column"]:
    """Return controls and time, counted from the middle of the past in units of it."""
    steps, before = len(past.index), len(past.values)
    time = (torch.arange(steps, dtype=past.values.dtype) - before / 2) / before
    return torch.cat([past.controls, time[:, None, None].expand(-1, past.values.shape[1], 1)], -1)


def whiten(model: StructuralModel, grid: Grid, system: System, past: Past) -> tuple[Whitened, Ends]:
    """Return controls, time and series after the filters of all points, and beliefs over the state.

    The filter is linear: it treats a control as a series, whose missing values are those of the series. Covariances do
    not depend on values: those of series with the same rows and gaps are computed once.
    """
    if past.is_alike(model.moves):
        return _whitened(model, grid, system, past, 1)
    states = system.rows.shape[1] + (past.controls.shape[-1] if model.moves else 0)
    together = max(1, _NEAR // (len(grid.level) * states**2))
    parts = [
        _whitened(model, grid, system, past.part(series), len(series))
        for series in torch.arange(past.values.shape[1]).split(together)
    ]
    found, ends = zip(*parts, strict=True)
    gram, log_det = (torch.cat([getattr(one, name) for one in found], 1) for name in ("gram", "log_det"))
    mean, cov = (torch.cat([getattr(one, name) for one in ends], 1) for name in ("mean", "cov"))
    return Whitened(gram, log_det, torch.cat([one.count for one in found])), Ends(mean, cov)


def _whitened(model: StructuralModel, grid: Grid, system: System, past: Past, groups: int) -> tuple[Whitened, Ends]:
    """Return the same of series in so many groups: all of them, or each.

    The dimensions are those of states, columns, groups of series with a covariance of their own, and points. All but a
    few states stay where they are, and few are observed at a step, so no step has a product of matrices.
    """
    steps, series = past.values.shape
    number, points = past.controls.shape[-1] + 2, len(grid.level)
    columns = torch.cat([columns_of(past)[:steps], past.values.unsqueeze(-1)], -1).reshape(steps, groups, -1).mT
    columns, seen = columns.unsqueeze(-1), past.observed[:, :groups].unsqueeze(-1)
    # Coefficients that move begin where the regression says.
    moving = past.controls[:, :groups].movedim(-1, 1).unsqueeze(-1)[:, : None if model.moves else 0]
    states = system.rows.shape[1] + moving.shape[1]
    start = torch.nn.functional.pad(system.start, (0, moving.shape[1]))
    cov = torch.diag_embed(start).movedim(0, -1).unsqueeze(-2).repeat(1, 1, groups, 1)
    mean = cov.new_zeros(states, columns.shape[1], groups, points)
    gram = cov.new_zeros(points, series, number, number)
    log_det, known = cov.new_zeros(groups, points), cov.new_zeros(groups)
    white = cov.new_empty(BLOCK, *mean.shape[1:])
    diagonal = cov.diagonal().movedim(-1, 0)  # a view
    for time, row in enumerate(system.rows[:steps].tolist()):
        weights = [*((k, weight) for k, weight in enumerate(row) if weight), *enumerate(moving[time], len(row))]
        spread = torch.cat([system.noise.mT, system.active[time].unsqueeze(-1) * system.season])
        _advance(mean, grid)
        _advance(cov, grid)
        _advance(cov.transpose(0, 1), grid)
        diagonal[: len(row)] += spread.unsqueeze(1)
        diagonal[len(row) :] += grid.coefficient
        cross = _read(cov, weights)
        variance = _read(cross, weights) + 1.0
        gain = torch.where(seen[time], cross / variance, 0.0)
        cov.addcmul_(gain.unsqueeze(1), cross.unsqueeze(0), value=-1)
        error = columns[time] - _read(mean, weights)
        mean.addcmul_(gain.unsqueeze(1), error.unsqueeze(0))
        # A first value of a level or a factor says where it is, and nothing of how it moves.
        tells = seen[time] & (variance < UNKNOWN**0.5)
        log_det += torch.where(tells, variance.log(), 0.0)
        known += tells[:, 0]
        torch.mul(error, torch.where(tells, variance.rsqrt(), 0.0), out=white[time % BLOCK])
        if time % BLOCK == BLOCK - 1 or time == steps - 1:
            part = _by_series(white[: time % BLOCK + 1], number)  # (point, series, step, column)
            gram += part.mT @ part
    ends = Ends(_by_series(mean, number), cov.movedim((-1, -2), (0, 1)).contiguous())
    return Whitened(gram, log_det.mT.expand(-1, series), known.expand(series)), ends


def _advance(x: Float[Tensor, "state *rest point"], grid: Grid) -> None:
    """Moves level, slope and what wanders to the next step, in place; other states stay where they are."""
    x[0] += x[1]
    x[1] *= grid.growth
    x[2] *= grid.damping


def _read(x: Float[Tensor, "state *rest point"], weights: list[tuple[int, float | Tensor]]) -> Tensor:
    """Return the sum of some states by their weights."""
    (first, weight), *others = weights
    total = x[first] * weight
    for k, weight in others:
        if isinstance(weight, Tensor):
            total.addcmul_(x[k], weight)
        else:
            total.add_(x[k], alpha=weight)
    return total


def _by_series(x: Float[Tensor, "row column group point"], number: int) -> Float[Tensor, "point series row column"]:
    """Return rows of every point and series; a group has all series, or there is one for each."""
    return x.movedim((-1, -2), (0, 1)).unflatten(-1, (-1, number)).movedim(3, 2).flatten(1, 2)
