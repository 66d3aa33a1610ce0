"""Curves of covariates in a service: of each step their effect is kept, and targets are without it for the model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.effects.calendar import periods_of
from tsforecast.data.effects.effects import Effects
from tsforecast.data.effects.link import moved
from tsforecast.live.calendar import Calendar
from tsforecast.live.rows import News
from tsforecast.models import Batch

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """The effects of covariates on the series of a service, whose memory of them is a row each: size, and means."""

    effects: Effects
    calendar: Calendar

    def followed(self, names: Sequence[str], begin: NDArray[np.int64], news: News, memory: Array) -> tuple[News, Array]:
        """Return new steps with targets and effects in the place of covariates, and the memory behind them."""
        steps, after = np.empty((len(news.steps), 2)), memory.copy()
        steps[:, 0] = news.steps[:, 0]
        for length in np.unique(news.lengths).tolist():
            some = np.flatnonzero(news.lengths == length)
            given = (begin[some], news.before_end(some, length)[..., 1:], memory[some])
            effect, _, after[some, 1:] = self._along([names[k] for k in some.tolist()], *given)
            steps[news.stops[some][:, None] - np.arange(length, 0, -1), 1] = effect
        return replace(news, steps=steps), after

    def sizes(self, names: Sequence[str], histories: Sequence[Array]) -> Array:
        """Return the sizes (series, 1) of series with histories (time, target + effect)."""
        found = [self.effects.size(name, history[:, 0]) for name, history in zip(names, histories, strict=True)]
        return np.array(found).reshape(-1, 1)

    def taken(self, steps: Array, size: Array) -> Array:
        """Return targets (..., time, 1) without the effects that stand beside them, of series of some sizes (...)."""
        return moved(steps[..., :1], -steps[..., 1:], self.effects.bend, size[..., None, None])

    def ahead(
        self, names: Sequence[str], begin: NDArray[np.int64], memory: Array, covariates: Array, future: Array | None
    ) -> tuple[Batch, Array | None]:
        """Return effects and scales of future steps, for a batch, and given targets without the effects.

        Args:
            names: Of the series.
            begin: Ordinals of the first steps.
            memory: Before them.
            covariates: Of shape (series, step, covariate).
            future: Targets (series, step, target) that are taken as given, NaN where free; None for none.
        """
        effect, doubt, _ = self._along(names, begin, covariates, memory)
        link = self.effects.link_of(memory[:, 0])
        if future is not None:
            future = moved(future, -effect[..., None], self.effects.bend, memory[:, :1, None])
        found = {"future_effect": effect, "doubt": doubt, "link": link}
        return {name: torch.from_numpy(values) for name, values in found.items()}, future

    def _along(
        self, names: Sequence[str], begin: NDArray[np.int64], covariates: Array, memory: Array
    ) -> tuple[Array, Array, Array]:
        ordinals = begin[:, None] + self.calendar.multiple * np.arange(covariates.shape[1])
        times = periods_of(ordinals.ravel(), self.calendar.freq)
        return self.effects.along(names, times, covariates, memory[:, 1:])
