"""Checks of GluonTS data entries, made before training and prediction: GluonTS itself fails late and tersely."""

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from gluonts.itertools import Cyclic

from tsforecast.data.calendar.frequency import period_alias
from tsforecast.wording import counted, option


def check_entries(
    entries: Iterable[dict[str, Any]],
    freq: str,
    *,
    min_length: int = 1,
    min_longest: int = 1,
    future: int = 0,
    all_missing: bool = False,
    support: str = "real",
    largest: float = 1e300,
) -> None:
    """Refuses data entries that a model could not digest, in one walk through the data.

    Checked are: there is an entry at all; the start is a period of the given frequency; the target is numeric, of one
    kind of shape throughout, long enough and, unless allowed, not missing altogether; its values are NaN or finite, and
    such as the model can take; covariates are finite and reach far enough; every entry has the same static features and
    covariates. A constant series is fine, so are series of different lengths and starts, and missing values anywhere.

    Args:
        entries: GluonTS data entries.
        freq: Frequency which they should have, in any of its names.
        min_length: Least number of steps of every target.
        min_longest: Least number of steps of the longest target.
        future: Steps beyond the target that `feat_dynamic_real` must cover: 0 for training, the prediction length for
            prediction. Longer covariates are not refused.
        all_missing: Whether a target may be missing altogether: there is nothing to learn from it, but a trained model
            can still answer with its prior.
        support: What targets must be: "real" numbers, "counts", or numbers of the "unit" interval from 0 to 1.
        largest: The largest size of a target.

    Raises:
        ValueError: At the first entry which is not as expected; the message names the item and the remedy.
    """
    alias = period_alias(freq)
    refuse_frame(entries)
    first: dict[str, tuple[int, ...]] | None = None
    longest = 0
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ValueError(f"expected dicts with 'start' and 'target', got a {type(entry).__name__}: {entry!r:.60}")
        place = f"series {entry['item_id']!r}" if "item_id" in entry else f"series number {index}"
        _check_start(entry, alias, place)
        target = _check_target(entry, min_length, all_missing, place)
        parts = {"the target": target}
        if entry.get("known_future") is not None:
            parts["known_future"] = as_numbers(entry["known_future"], f"{place}, known_future")
        for name, values in parts.items():
            check_values(values, support, largest, f"{place}: {name}")
        form = {"target": target.shape[:-1], **_check_features(entry, target.shape[-1], future, place)}
        first, longest = first or form, max(longest, target.shape[-1])
        if form != first:
            both = f"{_describe(first)}, got {_describe(form)}"
            raise ValueError(f"{place}: expected the same fields as in the first series, {both}")
    if first is None:
        raise ValueError("the data set is empty: expected at least one series")
    if longest < min_longest:
        raise ValueError(
            f"all series are too short: the longest has {counted(longest, 'step')}, at least {min_longest} are needed; "
            f"take a shorter {option('prediction_length')}, or fewer test windows"
        )


def refuse_frame(data: Any) -> None:
    """Raises a ValueError for a data frame where GluonTS data entries are expected."""
    if isinstance(data, pd.DataFrame | pd.Series):
        raise ValueError(
            f"expected GluonTS data entries, got a {type(data).__name__}: `tsforecast.data.read_task(frame, freq, "
            "prediction_length, windows=0).entries` has those of a frame; train, predict, predict_frame and evaluate "
            "take a DataFrame as it is"
        )


def _describe(form: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape)) or 'univariate'}" for name, shape in form.items())


def _check_start(entry: dict[str, Any], alias: str, place: str) -> None:
    start = entry.get("start")
    if not isinstance(start, pd.Period):
        raise ValueError(
            f"{place}: expected a start of type pandas.Period, got {type(start).__name__}; "
            f"write start=pd.Period({str(start)!r}, freq={alias!r})"
        )
    if period_alias(start.freqstr) != alias:
        raise ValueError(
            f"{place}: expected data of frequency {alias!r}, got {start.freqstr!r}; give the data's own frequency "
            "to the model, or resample the data"
        )


def _check_target(entry: dict[str, Any], min_length: int, all_missing: bool, place: str) -> np.ndarray:
    if "target" not in entry:
        raise ValueError(f"{place}: there is no field 'target'")
    target = as_numbers(entry["target"], f"{place}, target")
    if target.ndim not in (1, 2):
        raise ValueError(f"{place}: expected a target of shape (time,) or (target, time), got {target.shape}")
    if target.shape[-1] == 0:
        raise ValueError(f"{place}: the target is empty; leave this series out")
    if target.shape[-1] < min_length:
        raise ValueError(
            f"{place}: {target.shape[-1]} steps are too short, at least {min_length} are needed; take a shorter "
            "prediction length, fewer test windows, or leave this series out"
        )
    if not all_missing and np.isnan(target).all():
        raise ValueError(f"{place}: all values of the target are missing; leave this series out")
    return target


def check_values(values: np.ndarray, support: str, largest: float, name: str) -> None:
    """Refuses values (.., step), NaN where missing, that a model could not take, and names the first of them."""
    sizes = np.abs(values)
    if np.isinf(sizes).any():
        step = int(np.argwhere(np.isinf(sizes))[0][-1])
        raise ValueError(f"{name} is infinite at step {step}; write NaN where the value is missing")
    wrong, expected = (
        sizes > np.float64(largest),
        f"at most {largest:g} in size; correct it, or give the data in a larger unit",
    )
    if support == "counts":
        wrong = wrong | (values < 0) | ((values % 1 != 0) & ~np.isnan(values))
        expected = f"a count: a whole number from 0 to {largest:g}; correct it, or train with another likelihood"
    elif support == "unit":
        wrong = (values < 0) | (values > 1)
        expected = "a number from 0 to 1; correct it, or train with another likelihood"
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise ValueError(f"{name} is {values[place]:g} at step {place[-1]}, expected {expected}")


def _check_features(entry: dict[str, Any], length: int, future: int, place: str) -> dict[str, tuple[int, ...]]:
    """Shapes of the features without the axis of time."""
    form = {}
    for name in ("feat_static_cat", "feat_static_real"):
        if name in entry:
            values = as_numbers(entry[name], f"{place}, {name}")
            if values.ndim != 1 or not np.isfinite(values).all():
                raise ValueError(f"{place}: expected {name} to be a list of finite numbers, got {entry[name]!r}")
            if name == "feat_static_cat" and (values != np.floor(values)).any():
                raise ValueError(f"{place}: expected whole numbers in feat_static_cat, got {entry[name]!r}")
            form[name] = values.shape
    if "feat_dynamic_real" in entry:
        values = as_numbers(entry["feat_dynamic_real"], f"{place}, feat_dynamic_real")
        if values.ndim != 2:
            raise ValueError(f"{place}: expected feat_dynamic_real of shape (covariate, time), got {values.shape}")
        if values.shape[1] < length + future:
            beyond = f" and the {future} steps of the forecast" if future else ""
            raise ValueError(
                f"{place}: the covariates end too early, after {values.shape[1]} steps; expected {length + future}: "
                f"the {length} steps of the target{beyond}. Add their future values to the data"
            )
        if not np.isfinite(values).all():
            step = int(np.argwhere(~np.isfinite(values))[0][-1])
            raise ValueError(f"{place}: a covariate is missing or infinite at step {step}; fill it before")
        form["feat_dynamic_real"] = values.shape[:1]
    return form


def as_numbers(values: Any, place: str = "the values") -> np.ndarray:
    """Numbers of a data entry as an array, with NaN for None and for masked values of NumPy."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan) if np.ma.is_masked(values) else np.asarray(values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{place}: expected numbers in a regular array, got ragged rows") from error
    if array.dtype.kind == "O" and all(cell is None or cell is pd.NA or isinstance(cell, Real) for cell in array.flat):
        array = np.where(np.asarray(pd.isna(array)), np.nan, array).astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{place}: expected numbers, got values of type {array.dtype}")
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def refuse_endless(data: Any) -> None:
    """Raise a ValueError for data that never end, or that end after one walk through them."""
    if isinstance(data, Cyclic):
        raise ValueError(
            "expected data that end, got GluonTS' Cyclic, which does not; give the data in it (`data.iterable`): the "
            "training passes over them as often as it needs"
        )
    if iter(data) is data:
        raise ValueError("expected data that can be walked through again and again, got an iterator; make a list of it")
