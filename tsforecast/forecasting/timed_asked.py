"""What is asked of series with clocks of their own: times, and covariates at them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.irregular import in_words, nanoseconds, read_times
from tsforecast.data.tables.roles import Columns
from tsforecast.data.timed_entries import as_covariates, check_timed
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.wording import listed, option

Times = Mapping[str, NDArray[np.int64]]  # in nanoseconds, by item
Covariates = Mapping[str, NDArray[np.float64]]  # (covariate, time) by item
NOTHING: Covariates = MappingProxyType({})


def asked_of(
    entries: Sequence[Mapping[str, Any]],
    at: Any,
    every: str | None,
    inside: bool,
    clock: Clock,
    horizon: int,
    columns: Columns,
) -> tuple[dict[str, NDArray[np.int64]], dict[str, NDArray[np.float64]]]:
    """Return times and covariates, as `TimedHistories.asked_of` says."""
    is_table = isinstance(at, str | Path | pd.DataFrame)
    if at is not None and every is not None:
        raise ValueError(f"expected {option('at')} or {option('every')}, got both")
    if clock.dynamic_units and (every is not None or not (at is None or is_table)):
        raise ValueError(
            "the model has covariates, which are not known at these times: expected a table of times and covariates by "
            f"{option('at')}, or rows of the data with covariates and no value"
        )
    if at is None and clock.dynamic_units:
        return _rows_without_value(entries, inside)
    if at is None:
        return _every(entries, clock.unit if every is None else nanoseconds(every, "every"), horizon, inside), {}
    given: dict[str | None, NDArray[np.int64]] = {}
    covariates: dict[str | None, NDArray[np.float64]] = {}
    if is_table:
        given, covariates = read_times(at, columns)
    else:
        given[None] = np.sort(np.asarray(pd.DatetimeIndex(at).as_unit("ns").asi8))
    items = [str(entry["item_id"]) for entry in entries]
    if strange := [item for item in given if item is not None and item not in items]:
        raise ValueError(f"there is no series {listed(strange, 5)} in the data, at whose times to forecast")
    keys = {item: item if item in given else None for item in items}
    times = {item: given[key] for item, key in keys.items() if key in given and len(given[key])}
    return times, {item: covariates[keys[item]] for item in times} if covariates else {}


def _every(entries: Sequence[Mapping[str, Any]], step: int, horizon: int, inside: bool) -> dict[str, NDArray[np.int64]]:
    """The whole multiples of a step, between the observations of each series or in the horizon behind them."""
    found = {}
    for entry in entries:
        begin, last = int(entry["times"][0]), int(entry["times"][-1])
        first, stop = (-(-begin // step) * step, last) if inside else ((last // step + 1) * step, last + horizon)
        found[str(entry["item_id"])] = np.arange(first, stop + 1, step, dtype=np.int64)
    if not any(len(times) for times in found.values()):
        raise ValueError(
            f"there is no multiple of {in_words(step)} within the horizon of {in_words(horizon)}: "
            f"give a shorter {option('every')}, or times by {option('at')}"
        )
    return {item: times for item, times in found.items() if len(times)}


def _rows_without_value(entries: Sequence[Mapping[str, Any]], inside: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Times and covariates of the rows without a value, up to the last observation of each series or behind it."""
    times, covariates = {}, {}
    for entry in entries:
        known = entry.get("asked_times", np.zeros(0, np.int64))
        kept = (known <= entry["times"][-1]) == inside
        if kept.any():
            item = str(entry["item_id"])
            times[item], covariates[item] = known[kept], entry["asked_dynamic_real"][:, kept]
    if not times:
        raise ValueError(
            f"the model has covariates, and the data have none {'between' if inside else 'behind'} the observations: "
            f"add rows with covariates and no value, or give times and covariates by {option('at')}"
        )
    return times, covariates


def with_times(entries: Iterable[Mapping[str, Any]], times: Times) -> list[dict[str, Any]]:
    """Return the entries of which something is asked, after a check."""
    return [entry for entry in check_timed(entries) if entry["item_id"] in times]


def asked_entry(item: str, times: Times, covariates: Covariates) -> dict[str, Any]:
    """Return what is asked of a series, as a data entry without a target."""
    found: dict[str, Any] = {"item_id": item, "times": np.asarray(times[item])}
    if item in covariates:
        found["feat_dynamic_real"] = as_covariates(covariates[item], f"series {item!r}", len(found["times"]))
    return found


def merged(entry: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return the entry with moments without observations at some times; and the places of these, behind equal ones."""
    times = np.concatenate([entry["times"], asked["times"]])
    order = np.argsort(times, kind="stable")
    missing = np.full((*entry["target"].shape[:-1], len(asked["times"])), np.nan)
    joined = {"times": times, "target": np.concatenate([entry["target"], missing], axis=-1)}
    if "feat_dynamic_real" in entry:
        joined["feat_dynamic_real"] = np.concatenate([entry["feat_dynamic_real"], asked["feat_dynamic_real"]], axis=-1)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return {**entry, **{name: values[..., order] for name, values in joined.items()}}, place[len(entry["times"]) :]
