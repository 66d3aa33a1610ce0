"""Low counts: a bank of gamma-Poisson models, which each series conditions in closed form.

A Gaussian behind a transformation has the quantiles of such counts, but neither their mean nor their sums.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.effects.link import moved
from tsforecast.data.low_counts import are_low

Array = NDArray[np.float64]

NAME = "counts"  # in a mixture
_LATEST = 1000  # values that are conditioned on
_DISCOUNTS = np.array([1.0, 0.995, 0.98, 0.95, 0.88, 0.7])
_NOISES = np.array([0.2, 0.5, 1.0, 2.0, 5.0, np.inf])  # from lumps to a Poisson distribution
_RATE, _FACTOR = 0.5, 8.0  # shapes of priors: of a rate, about the mean of its series, and of a factor, about 1
_STARTED = 2  # first values, which say nothing of models: these have seen none before
_PATHS = 400
_ROUNDED = 1e-6  # by which counts may differ from whole numbers, once effects are given back
_EXPOSED = 100.0  # times as much or as little as without covariates, at most
_SMALL = 1e-3  # mean of nothing but zeros; the least shape of a beta distribution


def count_paths(values: Array, horizon: int, season: int, exposure: Array | None = None) -> Array:
    """Return joint paths of the steps ahead, (path, step).

    A count is Poisson given a rate, a factor f of season and exposure, and a noise u ~ Gamma(r, r). The rate is
    Gamma(a, b) given the past, which fades by a discount d (Harvey and Fernandes 1989), s steps before:

        a = a_0 + sum_s d^s y_s,    b = b_0 + sum_s d^s f_s.

    This belief takes the noise for 1. Each model has a d, an r, and a season or none. Its weight is the likelihood of
    each value given those before. Ahead, rates go on changing as they do now, by factors with a beta distribution and
    a mean of 1 (Smith and Miller 1986). Draws are fixed by the values: a series has the same paths in any company.

    Args:
        values: Of the past, (time,), NaN where missing; ten or more.
        horizon: Steps ahead.
        season: Steps of a season.
        exposure: What rates are multiplied by, such as a campaign, (time + horizon,), positive; None for ones.
    """
    exposure = np.ones(len(values) + horizon) if exposure is None else exposure
    values, exposure = values[-_LATEST:], exposure[-_LATEST - horizon :]
    seen = np.isfinite(values)
    counts = np.where(seen, values, 0.0)
    bank = _Bank.of(counts, seen, exposure, season)
    evidence = bank.log_likelihood(counts, np.flatnonzero(seen)[_STARTED:])
    weight = np.exp(evidence - evidence.max())
    even = (np.arange(_PATHS) + 0.5) / _PATHS
    chosen = np.divmod(np.searchsorted(weight.cumsum()[:-1] / weight.sum(), even), len(_NOISES))
    return bank.paths(*chosen, horizon, np.random.default_rng(zlib.crc32(values.tobytes())))


def of_window(values: Array, window: Mapping[str, Any], horizon: int, season: int) -> list[Array | None]:
    """Return the paths of each target of a window, (target, time); None where one is no low count.

    What effects of covariates, which were taken from targets, make of the mean of a series are exposures. Paths are
    without effects again.
    """
    if "past_effect" not in window:
        return _paths(values, horizon, season)
    bend, size, _ = window["link"]
    past, ahead = window["past_effect"], window["future_effect"][:horizon]
    given = moved(values, past, bend, size)
    counts = np.where(np.isclose(given, np.rint(given), atol=_ROUNDED), np.rint(given), given)
    seen = counts[np.isfinite(counts)]
    mean = np.array([max(seen.sum() / max(len(seen), 1), _SMALL)])
    exposure = np.clip(moved(mean, np.concatenate([past, ahead]), bend, size) / mean, 1 / _EXPOSED, _EXPOSED)
    found = _paths(counts, horizon, season, exposure)
    return [None if paths is None else moved(paths, -ahead, bend, size) for paths in found]


def _paths(values: Array, horizon: int, season: int, exposure: Array | None = None) -> list[Array | None]:
    """Return paths of each target, of twice the highest value and one at most; None where one is no low count."""
    if not all(are_low(one) for one in values):
        return [None] * len(values)
    return [np.minimum(count_paths(one, horizon, season, exposure), 2 * np.nanmax(one) + 1) for one in values]


@dataclass(frozen=True)
class _Bank:
    """The models of a series, and what they believe before each step and after the last.

    Attributes:
        discounts: Of each model, (model,).
        factors: Of the season, (model, time + horizon).
        shapes: Of the gamma distributions of rates, (model, time + 1).
        scales: Their inverse scales, (model, time + 1).
    """

    discounts: Array
    factors: Array
    shapes: Array
    scales: Array

    @classmethod
    def of(cls, counts: Array, seen: NDArray[np.bool_], exposure: Array, season: int) -> "_Bank":
        mean = max(counts.sum() / exposure[: len(seen)][seen].sum(), _SMALL)
        factors = np.stack(_factors(counts, seen, mean, exposure, season))
        known = np.concatenate([counts[None], np.where(seen, factors[:, : len(seen)], 0.0)])
        faded = _faded(known, _DISCOUNTS[:, None, None])
        shapes = _RATE + np.repeat(faded[:, 0], len(factors), 0)
        scales = _RATE / mean + np.concatenate(faded[:, 1:])
        return cls(np.repeat(_DISCOUNTS, len(factors)), np.tile(factors, (len(_DISCOUNTS), 1)), shapes, scales)

    def log_likelihood(self, counts: Array, at: NDArray[np.int64]) -> Array:
        """Return that of counts at some steps under each model with each noise, (model, noise): negative binomial."""
        shape, counts = self.shapes[:, None, at], counts[at]
        size = 1 / (1 / shape + 1 / _NOISES[:, None])
        odds = self.factors[:, None, at] * shape / self.scales[:, None, at] / size
        of_all = (counts + size) * np.log1p(odds)
        some, more = counts > 0, counts[counts > 0]  # of zeros the rest is zero
        size, odds = size[..., some], odds[..., some]
        rest = _log_gamma(more + size) - _log_gamma(size) - _log_gamma(more + 1) + more * np.log(odds)
        return rest.sum(-1) - of_all.sum(-1)

    def paths(
        self, model: NDArray[np.int64], noise: NDArray[np.int64], horizon: int, random: np.random.Generator
    ) -> Array:
        """Return a path of each pair of a model and a noise, (pair, step)."""
        shape, discount, noises = self.shapes[model, -1:], self.discounts[model, None], _NOISES[noise, None]
        changes, lumps = np.ones((2, len(model), horizon))
        moving, lumpy = discount[:, 0] < 1, np.isfinite(noises[:, 0])
        stay, go = (np.maximum((shape * x)[moving], _SMALL) for x in (discount, 1 - discount))
        changes[moving] = random.beta(stay, go, (moving.sum(), horizon)) / discount[moving]
        lumps[lumpy] = random.gamma(noises[lumpy], 1 / noises[lumpy], (lumpy.sum(), horizon))
        changes[:, :1] = random.gamma(shape) / self.scales[model, -1:]
        means = changes.cumprod(1) * lumps * self.factors[model, -horizon:]
        return random.poisson(np.minimum(means, 1e9)).astype(np.float64)


def _factors(counts: Array, seen: NDArray[np.bool_], mean: float, exposure: Array, season: int) -> list[Array]:
    """Return exposures without a season, and with one where the past is as long, (time + horizon,) each.

    Before each step the factor of a season has the mean of its gamma distribution: counts in its phase to what the
    mean of all values so far would have made of them.
    """
    steps = len(exposure)
    if not 1 < season <= len(counts):
        return [exposure]
    exposed = np.where(seen, exposure[: len(counts)], 0.0)
    so_far = (_RATE + _faded(counts, 1.0)) / (_RATE / mean + _faded(exposed, 1.0))
    pad = (0, steps - len(counts) + -steps % season)
    rows = (np.pad(x, pad).reshape(-1, season) for x in (counts, exposed * so_far[:-1]))
    actual, expected = ((x.cumsum(0) - x).ravel()[:steps] for x in rows)
    return [exposure, exposure * (_FACTOR + actual) / (_FACTOR + expected)]


def _log_gamma(values: Array) -> Array:
    return torch.lgamma(torch.from_numpy(values)).numpy()


def _faded(values: Array, discount: Array | float) -> Array:
    """Return the sums of discounted values before each step and after the last, (.., time + 1).

    Sums over twice as many steps are made of those over half of them.
    """
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), values], -1)
    sums, step = np.broadcast_to(sums, np.broadcast_shapes(sums.shape, np.shape(discount))).copy(), 1
    while step < sums.shape[-1]:
        sums[..., step:] = sums[..., step:] + discount**step * sums[..., :-step]
        step *= 2
    return discount * sums
