"""Summaries of training data: what a model must know of sizes, identities and units, and what "auto" stands for."""

import logging
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from gluonts.dataset.field_names import FieldName

from tsforecast.data.buckets.tally import Tally
from tsforecast.data.checks import as_numbers
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import first_value
from tsforecast.models import AbstractForecaster
from tsforecast.models.transformations import transformation_of
from tsforecast.wording import listed

log = logging.getLogger(__name__)

MOST_ITEMS = 100_000  # series that have parameters of their own
_LEAST_MOVE = 10.0
_NAMED = 10  # series that a line of the log names, at most
_TELLING = 1000  # series that tell what changes are like
_CATEGORIES = 10_000  # values of a static category, at most, unless there are more series


@dataclass(frozen=True)
class DataSummary:
    """A summary of training data, which decides what a model is made for."""

    count: int  # number of series
    lowest: float  # lowest value of all targets
    highest: float  # highest value of all targets
    num_targets: int  # components of the target
    num_time_features: int  # number of time features
    items: list[str]  # identifiers of the series that have parameters of their own, each once
    cardinality: list[int]  # number of values of each static category
    static_units: list[list[float]]  # (mean, standard deviation) of each static number
    dynamic_units: list[list[float]]  # the same for each covariate known in advance
    auto: dict[str, str]  # what "auto" stands for, by hyperparameter

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the sizes that a model's constructor takes, by name."""
        return {
            "num_series": len(self.items),
            "num_targets": self.num_targets,
            "cardinality": self.cardinality,
            "num_static_real": len(self.static_units),
            "num_dynamic_real": len(self.dynamic_units),
            "num_time_features": self.num_time_features,
        }


def summarise(data: Iterable[dict[str, Any]], use_categories: bool = True) -> DataSummary:
    """Return the summary of data entries that `check_entries` has found sound, by one walk through them.

    Fields of GluonTS which no model reads are named in a warning.
    """
    tally, items, start = Tally(), {}, None
    for entry in data:
        tally.add(entry, use_categories)
        if entry.get("item_id") is not None:
            items[str(entry["item_id"])] = None
        start = entry["start"]
    if tally.unread:
        log.warning(
            "the data have %s, which no model reads: these fields are ignored; what is known of the future, too, goes "
            "into feat_dynamic_real",
            ", ".join(tally.unread),
        )
    _check_codes(tally.codes, tally.count)
    features = Prepare(1, [], [], []).map_transform({"start": start, "target": np.zeros(1)}, True)
    return DataSummary(
        count=tally.count,
        lowest=float(tally.lowest),
        highest=float(tally.highest),
        num_targets=tally.num_targets,
        num_time_features=features["time_feat"].shape[-1],
        items=_own(list(items)),
        cardinality=[int(code) + 1 for code in tally.codes],
        static_units=tally.static.units(),
        dynamic_units=tally.dynamic.units(),
        auto=tally.auto,
    )


def _own(items: list[str]) -> list[str]:
    """Return the series that have parameters of their own: none of very many, which a training hardly visits."""
    if len(items) <= MOST_ITEMS:
        return items
    log.info("%d series have the parameters of all in common: more than %d are too many", len(items), MOST_ITEMS)
    return []


def lengths_of(data: Iterable[dict[str, Any]]) -> list[int]:
    """Return the number of steps of each series."""
    return [np.shape(entry[FieldName.TARGET])[-1] for entry in data]


def check_order(order: int, data: Iterable[dict[str, Any]]) -> None:
    """Raise a ValueError for more lags than the data bear, with the longest order that they bear."""
    lengths = np.asarray(lengths_of(data))

    def is_too_long(lags: int) -> bool:
        return lags > 1 and (lengths - lags).clip(0).sum() <= lags

    if is_too_long(order):
        most = bisect_left(range(order), True, key=is_too_long) - 1
        raise ValueError(
            f"expected an order of at most {most}, got {order}: a fit needs more values behind all its lags than it "
            "has lags; take fewer, or longer series"
        )


def typical_change(data: Iterable[dict[str, Any]], season: int) -> float:
    """Return the median over series of the mean absolute change, by the mean absolute value; at most 1.

    Changes are those since the season before, where there is a whole season of them, else since the value before. The
    first thousand series tell, as if none of their values were missing.
    """
    found = []
    for entry in islice(data, _TELLING):
        for row in np.atleast_2d(as_numbers(entry[FieldName.TARGET]).astype(np.float64)):
            values = row[np.isfinite(row)] / max(np.abs(row[np.isfinite(row)]).max(initial=0.0), 1e-300)
            lag = season if len(values) >= 2 * season else 1
            change = np.abs(values[lag:] - values[:-lag])
            if change.any():
                found.append(change.mean() / np.abs(values).mean())
    return min(float(np.median(found)), 1.0) if found else 1.0


def typical_length(data: Iterable[dict[str, Any]]) -> float:
    """Return the median number of steps of the first thousand series."""
    return float(np.median(lengths_of(islice(data, _TELLING))))


def common_units(data: Iterable[dict[str, Any]], transformation: str) -> dict[str, float]:
    """Return one centre and one unit for all series, of their transformed values: means of their means and changes.

    The first thousand series count. Changes are those from value to value; where nothing changes the unit is the size.
    """
    apply, found = transformation_of(transformation).apply, []
    for entry in islice(data, _TELLING):
        target = torch.as_tensor(as_numbers(entry[FieldName.TARGET]).astype(np.float64)).reshape(-1)
        values = apply(target[target.isfinite()])
        if len(values):
            found.append((float(values.mean()), float(values.diff().abs().mean()) if len(values) > 1 else 0.0))
    if not found:
        return {"common_centre": 0.0, "common_scale": 1.0}
    centre, unit = np.mean(found, axis=0)
    return {"common_centre": float(centre), "common_scale": float(unit) or float(abs(centre)) or 1.0}


def largest_move(data: Iterable[dict[str, Any]], horizon: int, typical: float) -> float:
    """Return how many widths of their range the last values of series have left the range before; at least 10.

    Forecasts go no further. The width is at least the typical change. The first thousand series count, as if none of
    their values were missing.
    """
    found = [_LEAST_MOVE]
    for entry in islice(data, _TELLING):
        for row in np.atleast_2d(as_numbers(entry[FieldName.TARGET]).astype(np.float64)):
            values = row[np.isfinite(row)]
            values = values[first_value(values[:, None], np.ones((len(values), 1), bool)) :] if len(values) else values
            past, future = values[:-horizon], values[-horizon:]
            if len(past):
                width = max(np.ptp(past), typical * np.abs(past).max())
                move = max(future.max() - past.max(), past.min() - future.min())
                found.append(move / width if width else 0.0)
    return float(max(found))


def say_late(data: Iterable[dict[str, Any]]) -> None:
    """Logs which of the first thousand series are read from a later step than their first value, see `first_value`."""
    late = []
    for number, entry in enumerate(islice(data, _TELLING)):
        target = np.atleast_2d(as_numbers(entry[FieldName.TARGET]).astype(np.float64)).T
        observed = np.isfinite(target)
        if first_value(target, observed) > first_value(np.zeros_like(target), observed):
            late.append(str(entry.get("item_id", f"number {number}")))
    if late:
        log.info(
            "%d series begin with values that are nothing beside later ones, as before a shop has opened; these steps "
            "are not read: %s",
            len(late),
            listed(late, _NAMED),
        )


def varies_only_before(data: Iterable[dict[str, Any]], recent: int) -> bool:
    """Return whether a covariate is constant in the last steps of every series, but not before.

    A model that is trained on these steps alone does not learn what it does, and may forecast anything where it varies.
    """
    whole, late = np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
    for entry in data:
        if FieldName.FEAT_DYNAMIC_REAL in entry:
            rows = as_numbers(entry[FieldName.FEAT_DYNAMIC_REAL])[:, : np.shape(entry[FieldName.TARGET])[-1]]
            found = np.ptp(rows, axis=1) > 0, np.ptp(rows[:, -recent:], axis=1) > 0
            whole, late = found if whole.size == 0 else (whole | found[0], late | found[1])
    return bool((whole & ~late).any())


def _check_codes(highest: np.ndarray, count: int) -> None:
    """Refuses codes of static categories that are larger than there can be categories."""
    most = max(_CATEGORIES, count)
    if (highest >= most).any():
        raise ValueError(
            f"expected feat_static_cat to number categories from 0 on, below {most}, got {highest.max():.0f}: number "
            "them one by one (pandas.factorize does), or leave them out (use_feat_static_cat=False); series are told "
            "apart by item_id anyway"
        )


def adopt(found: DataSummary, predictor: Any) -> DataSummary:
    """Return the summary of new data for a model that starts from the weights of a predictor.

    The predictor's series and categories keep their places, and its units stay. Series that it does not know have the
    parameters of the population.
    """
    known, net = predictor.input_transform, predictor.network
    if not (isinstance(known, Prepare) and isinstance(net, AbstractForecaster)):
        raise ValueError(f"expected a predictor of tsforecast to start from, got {type(predictor).__name__}")
    return replace(
        found,
        items=list(known.index),
        cardinality=known.cardinality.tolist(),
        static_units=known.static_units.tolist(),
        dynamic_units=known.dynamic_units.tolist(),
        auto={name: net.hyperparameters.get(name, value) for name, value in found.auto.items()},
    )
