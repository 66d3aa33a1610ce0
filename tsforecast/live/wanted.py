"""Forecasts that are wanted of an owner, and those that it has found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gluonts.model.forecast import Forecast
from numpy.typing import NDArray

from tsforecast.data.quantiles import forecast_quantiles

TOGETHER = 256  # forecasts that are computed together
_NUMBERS = 100  # of an answer, that take as long as another forecast


@dataclass(frozen=True)
class Wanted:
    """Forecasts that are wanted."""

    items: Sequence[str]  # names of the series
    steps: int  # length of the forecasts
    levels: tuple[float, ...]  # of quantiles
    num_samples: int = 0  # sample paths; 0 for none, where quantiles are exact
    # Targets (series, step, target) that are taken as given, NaN where free; None for none.
    future: NDArray[np.float64] | None = None
    covariates: NDArray[np.float64] | None = None  # standardised (series, step, covariate); None in a model without

    @property
    def numbers(self) -> int:
        """Return the number of numbers in an answer for each target."""
        return len(self.items) * self.steps * (1 + len(self.levels) + self.num_samples)

    @property
    def size(self) -> int:
        """Return the cost of a request, in forecasts of one series without paths."""
        return max(len(self.items), self.numbers // _NUMBERS)

    @property
    def kind(self) -> tuple[Any, ...] | None:
        """Return the common settings of forecasts to make together; None for paths, since others would change them."""
        return None if self.num_samples else (self.steps, self.levels)

    def part(self, begin: int) -> "Wanted":
        """Return forecasts of as many series from a place on as are made together."""
        count = max(1, TOGETHER * len(self.items) // self.size)
        some = slice(begin, begin + count)
        future = None if self.future is None else self.future[some]
        covariates = None if self.covariates is None else self.covariates[some]
        return replace(self, items=self.items[some], future=future, covariates=covariates)


@dataclass(frozen=True)
class Found:
    """A forecast; arrays have no dimension of targets where there is one."""

    start: int  # ordinal of its first period
    mean: NDArray[np.floating[Any]]  # (step[, target])
    quantiles: NDArray[np.floating[Any]]  # (level, step[, target])
    paths: NDArray[np.floating[Any]] | None  # (sample, step[, target]); None if none were drawn


def found_of(forecast: Forecast, wanted: Wanted) -> Found:
    """Return what is wanted of a forecast."""
    quantiles = forecast_quantiles(forecast, wanted.levels)
    paths = forecast.samples if wanted.num_samples else None  # pyright: ignore[reportAttributeAccessIssue]
    return Found(forecast.start_date.ordinal, np.asarray(forecast.mean), quantiles, paths)


def futures_of(wanted: Sequence[Wanted], targets: int) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Return the future targets and covariates of forecasts that are made together; None for none."""
    future = covariates = None
    if any(one.future is not None for one in wanted):
        free = (wanted[0].steps, targets)
        parts = [np.full((len(one.items), *free), np.nan) if one.future is None else one.future for one in wanted]
        future = np.concatenate(parts)
    if wanted[0].covariates is not None:
        covariates = np.concatenate([one.covariates for one in wanted if one.covariates is not None])
    return future, covariates
