"""Phases of a season in which a series always has the same value, as a shop that is closed on Sundays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import default_season, has_clock
from tsforecast.data.effects.link import restored
from tsforecast.data.effects.taken import Taken
from tsforecast.models.parts.marginals import Marginals

NAME = "constant"  # in a mixture
_LEAST, _LATEST = 4, 30  # seasons that show it, and that are looked at
_PRIOR = 1e-3  # odds that a phase is such a one
_LITTLE = 0.2  # probability that does not count
_SAME = 1e-9  # of the largest value: what effects that were taken and given back may have changed
_WEEK = 7  # days, which are the season of hours and minutes

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ClosedPhases:
    """What steps ahead are if their phase stays as it is.

    Attributes:
        values: Of each step, (series, horizon, target).
        chances: Probabilities of these values, (series, horizon, target).
    """

    values: Array
    chances: Array

    @classmethod
    def of(cls, windows: Sequence[dict[str, Any]], freq: str, horizon: int, targets: int) -> "ClosedPhases | None":
        """Return those of a batch; None where no series has one.

        Let a phase have had the same value all n times, in 30 seasons at most, and other phases in a share q of theirs.
        The odds that it always has it are .001 q^(1 - n), and then it has it again with probability (n + 1) / (n + 2)
        (Laplace).
        """
        season = default_season(freq)
        if season < 2:
            return None
        found = [_of_window(window, season, has_clock(freq), horizon, targets) for window in windows]
        values, chances = (np.stack(parts) for parts in zip(*found, strict=True))
        chances[chances < _LITTLE] = 0.0
        return cls(values, chances) if chances.any() else None

    def mixed(self, marginals: Marginals, exponents: NDArray[np.int64], taken: Taken | None) -> Marginals:
        """Return the mixtures of these values and others.

        Args:
            marginals: Distributions of the others, divided by powers of two.
            exponents: The exponents of these powers, (series, target).
            taken: Effects that will be added to what is returned; None for none.
        """
        unit, values = marginals.size[:, :1], self.values if taken is None else taken.without(self.values)
        size = np.ldexp(unit.double().cpu().numpy(), exponents[:, None])[:, 0, None]
        chances, mean = (torch.from_numpy(x).to(unit)[:, None] for x in (self.chances, values / size))
        weight = marginals.log_weight
        weight = weight.reshape(*weight.shape, *[1] * (4 - weight.ndim)) + torch.log1p(-chances)
        constant = Marginals(chances.log(), mean, torch.zeros_like(mean), unit, ("none",), marginals.clip)
        parts = [replace(marginals, log_weight=weight), constant]
        return replace(Marginals.pooled(parts, torch.zeros(2), ("", NAME)), bounds=marginals.bounds)

    def exchanged(self, every: Sequence[Any]) -> list[Any]:
        """Return paths (path, step[, target]) of each series that have these values as often as they are likely.

        A path has a phase closed always or never.
        """
        exchanged = []
        for paths, values, chances in zip(every, self.values, self.chances, strict=True):
            if chances.any():
                drawn = torch.rand(len(paths), dtype=torch.float64).numpy()[:, None, None] < chances
                paths = np.where(drawn.reshape(paths.shape), values.reshape(paths.shape[1:]), paths)
            exchanged.append(paths)
        return exchanged


def _of_window(window: dict[str, Any], season: int, has_days: bool, horizon: int, targets: int) -> tuple[Array, Array]:
    """Return values and their probabilities, (horizon, target)."""
    past = np.where(window["past_observed"], window["past_target"], np.nan)[:, :targets].astype(np.float64)
    if "past_effect" in window:
        past = restored(past, window["past_effect"][:, None], window["link"])
    values, chances = np.zeros((2, horizon, targets))
    steps = np.arange(horizon)
    for target, row in enumerate(past.T):
        for length, step in ((season, 1), (_WEEK * season, season)) if has_days else ((season, 1),):
            value, chance = _phases(row, length, step)
            value, chance = value[steps % length], chance[steps % length]
            better = chance > chances[:, target]
            values[better, target], chances[better, target] = value[better], chance[better]
    chances[np.isfinite(window["known_future"][:horizon, :targets])] = 0.0
    return values, chances


def _phases(row: Array, length: int, step: int) -> tuple[Array, Array]:
    """Return the latest value of each phase of a season, and the probability that the phase has it again.

    Args:
        row: A series, NaN where missing.
        length: Of the season.
        step: Phases so far apart are compared, as the same hour of other days.
    """
    count = min(len(row) // length, _LATEST)
    values, chances = np.zeros(length), np.zeros(length)
    if count < _LEAST:
        return values, chances
    blocks = row[-count * length :].reshape(count, length)
    near, seen = _SAME * np.nanmax(np.abs(blocks), initial=0.0), np.isfinite(blocks)
    latest = count - 1 - seen[::-1].argmax(0)  # row of the latest value; the last where there is none
    value, number = blocks[latest, np.arange(length)], seen.sum(0)
    is_same = np.abs(blocks - value) <= near
    closed = (number >= _LEAST) & (latest >= count - _LEAST) & (is_same.sum(0) == number)
    for group in np.unique(np.flatnonzero(closed) % step):
        places = np.arange(group, length, step)
        every = np.sort(blocks[:, places][seen[:, places]])
        own = places[closed[places]]
        low, high = every.searchsorted(value[own] - near), every.searchsorted(value[own] + near, side="right")
        alike, others = high - low - number[own], len(every) - number[own]
        odds = _PRIOR * ((alike + 0.5) / (others + 1)) ** (1.0 - number[own])
        values[own], chances[own] = value[own], odds / (1 + odds) * (number[own] + 1) / (number[own] + 2)
    return values, chances
