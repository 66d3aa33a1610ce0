"""Forecasts over ranges of covariates, between a low and a high value."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
from gluonts.model.forecast import Forecast, SampleForecast

from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.data.known import RANGE
from tsforecast.forecasting.histories import Histories

_PLACES = 20  # of a range, at which forecasts are made
_PATHS = 200  # of all of them, where no number is given


def predicted(histories: Histories, entries: Iterable[dict[str, Any]], num_samples: int | None) -> Iterator[Forecast]:
    """Return forecasts of entries in order; over ranges of covariates where an entry has some.

    In each path a covariate stands at one place between its low and high values throughout, uniformly drawn: at twenty
    places, equally far apart, as many paths each. Several covariates have places that are independent.

    Args:
        histories: Of a trained model.
        entries: Some with `covariate_range`, low and high values (2, covariate, step) of the horizon, NaN where the
            covariate is known.
        num_samples: Number of sample paths; over ranges at least twenty, and 200 for None or 0.
    """
    for ranges, some in groupby(entries, lambda entry: entry.get(RANGE) is not None):
        if ranges:
            yield from (_over_range(histories, entry, num_samples or _PATHS) for entry in some)
        else:
            yield from histories.predicted(some, num_samples)


def _over_range(histories: Histories, entry: dict[str, Any], num_samples: int) -> SampleForecast:
    """Return the paths of an entry over its ranges."""
    parts = list(histories.predicted(_placed(entry, histories.horizon), -(-num_samples // _PLACES)))
    paths = np.concatenate([one.samples for one in parts])  # pyright: ignore[reportAttributeAccessIssue]
    chosen = np.random.default_rng(0).permutation(len(paths))[: max(num_samples, _PLACES)]
    first = parts[0]
    return SampleForecast(paths[chosen], start_date=first.start_date, item_id=first.item_id, info=first.info)


def _placed(entry: dict[str, Any], horizon: int) -> Iterator[dict[str, Any]]:
    """Yield the entry with each covariate at a place of its range."""
    known, name = as_numbers(entry.get(COVARIATES, np.zeros((0, 0)))).astype(np.float64), entry.get("item_id")
    length, (low, high) = np.shape(entry["target"])[-1], np.asarray(entry[RANGE], np.float64)
    if low.shape != (len(known), horizon) or not np.array_equal(np.isnan(low), np.isnan(high)) or (low > high).any():
        raise ValueError(
            f"series {name!r}: expected {RANGE} of shape (2, {len(known)}, {horizon}), low values at or below high "
            f"ones and NaN at the same steps, got shape (2, {', '.join(map(str, low.shape))})"
        )
    rng = np.random.default_rng(0)
    places = (np.stack([rng.permutation(_PLACES) for _ in known]) + 0.5) / _PLACES
    less = {key: value for key, value in entry.items() if key != RANGE}
    for place in places.T[:, :, None]:
        ahead = known[:, length : length + horizon]
        ahead = np.where(np.isnan(low), ahead, low + place * (high - low))
        yield less | {COVARIATES: np.concatenate([known[:, :length], ahead, known[:, length + horizon :]], 1)}
