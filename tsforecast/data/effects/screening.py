"""The choice of covariates: those that help to predict blocks of steps from the blocks before them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsforecast.data.effects.regression import Fit, Matrix, log_t, weights_of, without_rhythm

_BLOCKS = 10  # of steps, one behind the other
_NATS = 3.0  # that a covariate gains at least: odds of twenty to one (Kass and Raftery 1995)
_SURE = 1.25  # of the root of the sum of squares of the blocks' gains, which their sum is at least
_MOST = 0.4  # share of a covariate's variation in one block, from which on too few others say what it is worth

Columns = NDArray[np.bool_]


@dataclass(frozen=True)
class Block:
    """A block of steps, and the coefficients given the blocks before it.

    Attributes:
        rows: The columns less what earlier steps say of them, (time, column).
        values: The targets likewise, (time,).
        scale: Of the errors' t distribution.
        mean: Of the coefficients given the blocks before; 0 for columns that are dropped.
        cov: Of these; 0 likewise.
    """

    rows: Matrix
    values: Matrix
    scale: float
    mean: Matrix
    cov: Matrix

    def without(self, own: Columns) -> "Block":
        """Return the block with coefficients given that some are 0."""
        own = own & (self.cov.diagonal() > 0)
        gain = np.linalg.solve(self.cov[np.ix_(own, own)], self.cov[own]).T
        mean, cov = self.mean - gain @ self.mean[own], self.cov - gain @ self.cov[own]
        mean[own] = cov[own] = cov[:, own] = 0.0
        return replace(self, mean=mean, cov=cov)

    @property
    def loss(self) -> float:
        """Return the negative log-density of the block but for a constant."""
        return -float(log_t((self.values - self.rows @ self.mean) / self.scale).sum())


def useless(blocks: list[Block], groups: NDArray[np.int64], owners: Sequence[frozenset[int]]) -> set[int]:
    """Return the covariates that do not help to predict blocks of steps from the blocks before them.

    They are dropped one by one, the worst first, so that one of two that say the same stays. A covariate 40 % of whose
    variation is in one block, as of an event that came once, stays as well. Errors, weights and shrinkage are those of
    the fit, and coefficients are in closed form (prequential; Dawid 1984). Steps between others would tell less: what
    wanders without aim goes along with any slow change of the targets, but not on.

    Args:
        blocks: Those of one fit or several.
        groups: Number of the group of each column.
        owners: The covariates that the columns of each group are made of.
    """
    own = {k: np.isin(groups, [g for g, of in enumerate(owners) if k in of]) for k in frozenset().union(*owners)}
    shares = np.stack([np.square(block.rows).sum(0) for block in blocks])
    line = {k: shares[:, at][:, 0] for k, at in own.items()}  # of the covariate itself, which is first
    judged = {k: at for k, at in own.items() if line[k].max() < _MOST * line[k].sum()}
    dropped: set[int] = set()
    while judged:
        gains = {k: np.array([block.without(at).loss - block.loss for block in blocks]) for k, at in judged.items()}
        worst = min(gains, key=lambda k: _worth(gains[k]))
        if _worth(gains[worst]) >= 1:
            break
        blocks = [block.without(judged[worst]) for block in blocks]
        dropped.add(worst)
        del judged[worst]
    return dropped


def _worth(gains: Matrix) -> float:
    """Return the sum of the gains of blocks, by the least that counts and by its standard error if none is expected."""
    return min(float(gains.sum()) / _NATS, float(gains.sum() / max(np.sqrt(np.square(gains).sum()), 1e-12)) / _SURE)


def blocks_of(columns: list[Matrix], targets: list[Matrix], lags: tuple[int, ...], found: Fit) -> list[Block]:
    """Return the blocks of the steps that coefficients were fitted to, see `fit`."""
    centred = [y - np.nanmean(y) if np.isfinite(y).any() else y for y in targets]
    rows, values = without_rhythm(columns, centred, found.rhythm, lags, max(lags))
    errors = values - rows @ found.coefficients
    weights, scale = weights_of(errors, float(values.std()) or 1.0)
    weights /= max(float(weights @ errors**2 / weights.sum()), scale**2 * 1e-12)
    prior, blocks = found.prior, list[Block]()
    scatter, moment = np.zeros((len(prior), len(prior))), np.zeros(len(prior))
    for some in np.array_split(np.arange(len(rows)), _BLOCKS):
        before = prior[:, None] * scatter * prior  # in units of the prior, as in the fit
        cov = prior[:, None] * np.linalg.inv(np.eye(len(prior)) + before) * prior
        blocks.append(Block(rows[some], values[some], scale, cov @ moment, cov))
        weighted = (rows[some] * weights[some, None]).T
        scatter, moment = scatter + weighted @ rows[some], moment + weighted @ values[some]
    return blocks
