"""The choice of covariates: those that help to predict blocks of steps from the blocks before them."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.effects.count_response import working
from tsforecast.data.effects.errors import Matrix, Part, divided, log_t, scales_of, weights_of, without_rhythm
from tsforecast.data.effects.regression import Fit, given

_BLOCKS = 10  # of steps, one behind the other
_NATS = 3.0  # that a covariate gains at least: odds of twenty to one (Kass and Raftery 1995)
_SURE = 1.25  # of the root of the sum of squares of the blocks' gains, which their sum is at least
_NEW, _RECENT = 2, 0.6  # last blocks, and the share of a covariate's variation there that says it has begun late
_MOST = 0.4  # share of a covariate's variation in one block, from which on too few others say what it is worth

Columns = NDArray[np.bool_]


@dataclass(frozen=True)
class Block:
    """A block of steps, and the coefficients given the blocks before it."""

    rows: Matrix  # the columns less what earlier steps say of them, (time, column)
    values: Matrix  # the targets likewise, (time,)
    scale: float  # of the errors' distribution
    is_normal: bool  # whether it is normal, else t
    mean: Matrix  # of the coefficients given the blocks before; 0 for columns that are dropped
    cov: Matrix  # of these; 0 likewise

    def without(self, own: Columns) -> "Block":
        """Return the block with coefficients given that some are 0."""
        own = own & (self.cov.diagonal() > 0)
        inner = self.cov[np.ix_(own, own)]
        try:
            gain = np.linalg.solve(inner, self.cov[own]).T
        except np.linalg.LinAlgError:  # of errors that lie below the last digits
            gain = (np.linalg.pinv(inner, hermitian=True) @ self.cov[own]).T
        mean, cov = self.mean - gain @ self.mean[own], self.cov - gain @ self.cov[own]
        mean[own] = cov[own] = cov[:, own] = 0.0
        return replace(self, mean=mean, cov=cov)

    @property
    def loss(self) -> float:
        """Return the negative log-density of the block but for a constant."""
        errors = (self.values - self.rows @ self.mean) / self.scale
        return float(0.5 * errors @ errors if self.is_normal else -log_t(errors).sum())


@dataclass(frozen=True)
class Evidence:
    """The values that coefficients were fitted to, of all series in the order of time."""

    rows: Matrix  # the columns less what earlier steps say of them, (row, column), in units of each series' scale
    values: Matrix  # the targets likewise, (row,)
    steps: NDArray[np.int64]  # the time of each
    weights: Matrix  # of each, by the inverse of the errors' variance
    scale: float  # of the errors' distribution
    is_normal: bool  # whether it is normal, else t
    prior: Matrix  # deviation of the coefficients

    @classmethod
    def of(
        cls, columns: list[Matrix], targets: list[Matrix], lags: tuple[int, ...], found: Fit, starts: Sequence[int]
    ) -> "Evidence":
        """Return that of series, each of which begins with a step."""
        centred = [y - np.nanmean(y) if np.isfinite(y).any() else y for y in targets]
        parts = without_rhythm(columns, centred, found.rhythm, lags)
        errors = [part.values - part.rows @ found.coefficients for part in parts]
        scales, scale = scales_of(errors, found.scale)
        rows, values, steps = _in_time(divided(parts, scales), starts)
        errors = values - rows @ found.coefficients
        weights = weights_of(errors / scale)
        weights /= max(float(weights @ errors**2 / weights.sum()), scale**2 * 1e-12)
        return cls(rows, values, steps, weights, scale, False, found.prior)

    @classmethod
    def of_counts(cls, columns: list[Matrix], counts: list[Matrix], found: Fit, starts: Sequence[int]) -> "Evidence":
        """Return that of counts, near the coefficients that were found for all series."""
        each = np.broadcast_to(found.coefficients, (len(columns), len(found.coefficients)))
        rows, values, steps = _in_time(working(columns, counts, each), starts)
        weights = np.full(len(values), 1 / found.variance)
        return cls(rows, values, steps, weights, found.variance**0.5, True, found.prior)

    def blocks(self, edges: NDArray[np.int64]) -> list[Block]:
        """Return the blocks between rows."""
        prior, blocks = self.prior, list[Block]()
        scatter, moment = np.zeros((len(prior), len(prior))), np.zeros(len(prior))
        for some in np.split(np.arange(len(self.rows)), edges):
            cov = given(prior, scatter, 1.0)
            blocks.append(Block(self.rows[some], self.values[some], self.scale, self.is_normal, cov @ moment, cov))
            weighted = (self.rows[some] * self.weights[some, None]).T
            scatter, moment = scatter + weighted @ self.rows[some], moment + weighted @ self.values[some]
        return blocks

    @property
    def edges(self) -> NDArray[np.int64]:
        """Return where blocks of as many rows begin, none within a step."""
        return self._whole(np.linspace(0, len(self.rows), _BLOCKS + 1)[1:-1])

    def edges_of(self, column: int) -> NDArray[np.int64]:
        """Return where blocks with as much of a column's variation begin, none within a step."""
        total = np.cumsum(np.square(self.rows[:, column]))
        return self._whole(np.searchsorted(total, np.linspace(0, total[-1], _BLOCKS + 1)[1:-1]) + 1)

    def variation(self, column: int, edges: NDArray[np.int64]) -> Matrix:
        """Return the share of a column's variation in each block."""
        squares = np.square(self.rows[:, column])
        sums = np.array([part.sum() for part in np.split(squares, edges)])
        return np.pad(sums / max(sums.sum(), 1e-300), (_BLOCKS - len(sums), 0))

    def _whole(self, places: Matrix | NDArray[np.int64]) -> NDArray[np.int64]:
        begins = np.flatnonzero(np.diff(self.steps, prepend=self.steps[:1] - 1))
        return np.unique(begins[np.minimum(np.searchsorted(begins, places), len(begins) - 1)])


def _in_time(parts: list[Part], starts: Sequence[int]) -> tuple[Matrix, Matrix, NDArray[np.int64]]:
    """Return rows, values and steps of series, each of which begins with a step, in the order of time."""
    steps = np.concatenate([part.steps + start for part, start in zip(parts, starts, strict=True)])
    order = np.argsort(steps, kind="stable")
    rows, values = (np.concatenate(x)[order] for x in ([x.rows for x in parts], [x.values for x in parts]))
    return rows, values, steps[order]


def useless(
    evidence: list[Evidence],
    groups: NDArray[np.int64],
    owners: Sequence[frozenset[int]],
    events: Set[int] = frozenset(),
) -> set[int]:
    """Return the covariates that do not help to predict blocks of steps from the blocks before them.

    They are dropped one by one, the worst first, so that one of two that say the same stays. One that has begun late is
    dropped at once: the season may have done what it seems to do. A covariate 40 % of whose variation is in one block
    is judged last, by blocks with as much of its variation; an event of one step stays. Errors, weights and shrinkage
    are those of the fit, and coefficients are in closed form (prequential; Dawid 1984). Steps between others would tell
    less: what wanders without aim goes along with any slow change of the targets, but not on.

    Args:
        evidence: That of one fit or several.
        groups: Number of the group of each column.
        owners: The covariates that the columns of each group are made of.
        events: Covariates of two values, which may come late.
    """
    own = {k: np.isin(groups, [g for g, of in enumerate(owners) if k in of]) for k in frozenset().union(*owners)}
    blocks = [one.blocks(one.edges) for one in evidence]
    line = {k: int(at.argmax()) for k, at in own.items()}  # the column of the covariate itself, which is first
    shares = {k: np.array([one.variation(at, one.edges) for one in evidence]) for k, at in line.items()}
    dropped = {k for k, x in shares.items() if k not in events and x[:, -_NEW:].sum(1).max() >= _RECENT}
    late = {k for k, x in shares.items() if x.max() >= _MOST} - dropped
    blocks = _without(blocks, np.isin(groups, [g for g, of in enumerate(owners) if of & dropped]))
    judged = {k: at for k, at in own.items() if k not in late | dropped}
    while judged:
        gains = {k: _gains(blocks, at) for k, at in judged.items()}
        worst = min(gains, key=lambda k: _worth(gains[k]))
        if _worth(gains[worst]) >= 1:
            break
        blocks = _without(blocks, judged[worst])
        dropped.add(worst)
        del judged[worst]
    for k in sorted(late):
        edges = [one.edges_of(line[k]) for one in evidence]
        if max(one.variation(line[k], at).max() for one, at in zip(evidence, edges, strict=True)) >= _MOST:
            continue
        gone = np.isin(groups, [g for g, of in enumerate(owners) if of & dropped])
        blocks = _without([one.blocks(at) for one, at in zip(evidence, edges, strict=True)], gone)
        if _worth(_gains(blocks, own[k])) < 1:
            dropped.add(k)
    return dropped


def _without(blocks: list[list[Block]], own: Columns) -> list[list[Block]]:
    return [[block.without(own) for block in one] for one in blocks]


def _gains(blocks: list[list[Block]], own: Columns) -> Matrix:
    """Return what columns gain in each block, in all fits together, since the same may move all series."""
    found = np.zeros(_BLOCKS)
    for one in blocks:
        found[_BLOCKS - len(one) :] += [block.without(own).loss - block.loss for block in one]
    return found


def _worth(gains: Matrix) -> float:
    """Return the sum of the gains of blocks, by the least that counts and by its standard error if none is expected."""
    return min(float(gains.sum()) / _NATS, float(gains.sum() / max(np.sqrt(np.square(gains).sum()), 1e-12)) / _SURE)
