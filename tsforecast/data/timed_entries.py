"""Data entries with clocks of their own.

Such an entry has GluonTS' `item_id`, `target` and `feat_static_cat`, and in the place of `start` the field `times`:
nanoseconds since 1970 as int64, ascending, one for each value of the target. Equal times are several observations of
one moment. Covariates at these times are `feat_dynamic_real`, (covariate, time). Where they are known at further times,
at which there may be a forecast or an interpolation, these are `asked_times` and `asked_dynamic_real`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.wording import listed

_PER_TIME = ("times", "target", "feat_dynamic_real")
_MOST_TICKS = 64  # between two times
_NAT = np.iinfo(np.int64).min  # what NumPy takes for no time


def before(entry: Mapping[str, Any], time: int) -> dict[str, Any]:
    """Return the entry up to a time, with that time."""
    return cut(entry, stop=int(np.searchsorted(entry["times"], time, side="right")))


def after(entry: Mapping[str, Any], time: int) -> dict[str, Any]:
    """Return the entry behind a time, without that time."""
    return cut(entry, first=int(np.searchsorted(entry["times"], time, side="right")))


def cut(entry: Mapping[str, Any], first: int = 0, stop: int | None = None) -> dict[str, Any]:
    """Return the entry with some of its observations: from the number `first` to before the number `stop`."""
    return {**entry, **{name: entry[name][..., first:stop] for name in _PER_TIME if name in entry}}


def with_ticks(
    entry: Mapping[str, Any], cell: int, last: int | None, covariates: Sequence[float]
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Return the entry with moments without observation at whole multiples of a time; and the places of its own times.

    Of a long gap only the multiples of twice, four times, .. the time are taken, so that there are at most 64 of them.
    Where there is a moment already there is none in addition.
    """
    times = entry["times"]
    since = np.concatenate([times[:1] if last is None else np.array([last]), times[:-1]])
    count = (times - 1) // cell - since // cell
    doublings = np.ceil(np.log2(np.maximum(count / _MOST_TICKS, 1))).astype(np.int64)
    width = cell * 2**doublings
    count = np.maximum((times - 1) // width - since // width, 0)  # none of a gap of zero at a multiple
    before = np.cumsum(count)
    number = np.arange(count.sum()) - np.repeat(before - count, count)
    ticks = np.repeat((since // width + 1) * width, count) + np.repeat(width, count) * number
    places = np.arange(len(times)) + before
    moments = np.empty(len(times) + len(ticks), np.int64)
    is_tick = np.ones(len(moments), bool)
    is_tick[places] = False
    moments[places], moments[is_tick] = times, ticks
    found = {**entry, "times": moments}
    for name, filler in (("target", np.nan), ("feat_dynamic_real", np.reshape(covariates, (-1, 1)))):
        if name in entry:
            wide = np.empty((*entry[name].shape[:-1], len(moments)))
            wide[..., places], wide[..., is_tick] = entry[name], filler
            found[name] = wide
    return found, places


def median_gap(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return the median time between neighbouring observations of a series, in nanoseconds; equal times do not count.

    It is 1 where no series has observations at two times.
    """
    gaps = np.concatenate([np.diff(entry["times"]) for entry in entries])
    gaps = gaps[gaps > 0]
    return int(np.median(gaps)) if len(gaps) else 1


def check_timed(entries: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return data entries with clocks of their own, after a check; times become int64, targets float64.

    Raises:
        ValueError: If there is none, or one is not as expected; the message names the series.
    """
    found: list[dict[str, Any]] = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or "times" not in entry or "target" not in entry:
            got = f"a {type(entry).__name__}" if not isinstance(entry, Mapping) else listed(entry)
            raise ValueError(f"expected data entries with 'times' and 'target', got {got}")
        item = str(entry.get("item_id", index))
        target = as_numbers(entry["target"], f"series {item!r}: the target").astype(np.float64)
        times = as_times(entry["times"], f"series {item!r}")
        if target.ndim not in (1, 2) or target.shape[-1] != len(times):
            raise ValueError(
                f"series {item!r}: expected as many times as values, got {len(times)} times and a target of shape "
                f"{target.shape}"
            )
        if np.isinf(target).any():
            raise ValueError(f"series {item!r}: a value is infinite; write NaN where it is missing")
        back = np.flatnonzero(np.diff(times) < 0)
        if len(back):
            one, two = (pd.Timestamp(int(times[back[0] + k])) for k in (0, 1))
            raise ValueError(f"series {item!r}: its times go back from {one} to {two}; sort them")
        if found and found[0]["target"].shape[:-1] != target.shape[:-1]:
            raise ValueError(f"series {item!r}: expected a target of shape {found[0]['target'].shape[:-1]} by time")
        if not len(times) or np.isnan(target).all():
            raise ValueError(f"series {item!r} has no value; leave it out")
        covariates = _covariates(entry, f"series {item!r}", len(times))
        if found and len(found[0].get("feat_dynamic_real", ())) != len(covariates.get("feat_dynamic_real", ())):
            raise ValueError(f"series {item!r}: expected as many covariates as the first series has")
        found.append({**entry, "item_id": item, "times": times, "target": target, **covariates})
    if not found:
        raise ValueError("expected a series at least, got none")
    names = [entry["item_id"] for entry in found]
    if twice := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        raise ValueError(f"expected an item_id of its own for each series, got {listed(twice, 5)} more than once")
    return found


def _covariates(entry: Mapping[str, Any], place: str, count: int) -> dict[str, NDArray[Any]]:
    """The covariates of an entry after a check; nothing if it has none."""
    if "feat_dynamic_real" not in entry:
        return {}
    found: dict[str, NDArray[Any]] = {"feat_dynamic_real": as_covariates(entry["feat_dynamic_real"], place, count)}
    if "asked_times" in entry:
        times = as_times(entry["asked_times"], place)
        if (np.diff(times) < 0).any():
            raise ValueError(f"{place}: its asked_times go back; sort them")
        values = as_covariates(entry.get("asked_dynamic_real", ()), place, len(times), "asked_dynamic_real")
        if len(values) != len(found["feat_dynamic_real"]):
            raise ValueError(f"{place}: expected asked_dynamic_real of as many covariates as feat_dynamic_real")
        found |= {"asked_times": times, "asked_dynamic_real": values}
    return found


def as_covariates(given: Any, place: str, count: int, name: str = "feat_dynamic_real") -> NDArray[np.float64]:
    """Return covariates (covariate, time) as float64; a ValueError if one is missing, or times differ."""
    values = as_numbers(given, f"{place}: {name}").astype(np.float64)
    if values.ndim != 2 or values.shape[1] != count:
        raise ValueError(f"{place}: expected {name} of shape (covariate, {count}), got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{place}: {name} has a value that is missing or infinite; covariates are known at every time")
    return values


def as_times(given: Any, place: str) -> NDArray[np.int64]:
    """Return times as nanoseconds since 1970: from whole numbers of these, or from time stamps for pandas."""
    values = np.asarray(given)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    try:
        if values.dtype.kind == "f":
            raise ValueError("numbers with a fraction")
        stamps = pd.DatetimeIndex(pd.to_datetime(pd.Index(given), utc=True, format="ISO8601"))
        found = stamps.as_unit("ns").asi8
    except (ValueError, TypeError, OverflowError) as error:
        first = str(error).split("\n")[0]
        raise ValueError(f"{place}: expected times as nanoseconds or as time stamps ({first:.200})") from error
    if (found == _NAT).any():
        raise ValueError(f"{place}: a time is missing; leave its value out")
    return np.asarray(found)
