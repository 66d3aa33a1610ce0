"""Series before and after, brought onto the same steps, and batches of them in float64."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.effects.effects import COVARIATES, MEMORY, Effects, name_of
from tsforecast.data.tables.roles import Columns
from tsforecast.data.windows import collate, cut, first_value, since_first_value
from tsforecast.forecasting.predictor import StateSpacePredictor

Entries = Iterable[dict[str, Any]] | pd.DataFrame
Entry = dict[str, Any]


def on_common_steps(predictor: StateSpacePredictor, before: Entry, after: Entry) -> tuple[Entry, Entry, Entry, int]:
    """Return a series before, with covariates after, and after, on the same steps; and the number of new steps.

    Missing steps stand at the end of the series before. Where curves of covariates are taken from targets, they are.

    Args:
        predictor: Whose forecasts are compared.
        before: The series before.
        after: The series after.

    Raises:
        ValueError: If the series after ends earlier, or so much later that forecasts have no step in common.
    """
    item, unit = after.get("item_id"), after["start"].freq.n
    old, new = (np.atleast_2d(np.asarray(x["target"], np.float64)) for x in (before, after))
    # Steps are counted from the start before; the window is that of the forecast before.
    shift = (after["start"].ordinal - before["start"].ordinal) // unit
    end, last = old.shape[1], shift + new.shape[1]
    horizon = predictor.prediction_length - (last - end)
    if last < end:
        raise ValueError(
            f"series {item!r}: expected the data after to end at {step_of(before, end - 1)} or later, as those "
            f"before, got {step_of(before, last - 1)}: are the files in the right order?"
        )
    if horizon < 1:
        raise ValueError(
            f"series {item!r}: the data after end {last - end} steps later, and forecasts of "
            f"{predictor.prediction_length} steps have none in common; give a longer prediction_length"
        )
    was, now = (np.full((len(old), last), np.nan) for _ in range(2))
    was[:, :end] = old
    begin = max(shift, 0)
    now[:, begin:] = new[:, begin - shift :]
    covariates, changed = {}, {}
    if COVARIATES in before and COVARIATES in after:
        known, later = (np.asarray(x[COVARIATES], np.float64) for x in (before, after))
        covariates = {COVARIATES: known[:, : last + horizon]}
        joined = np.concatenate([known[:, :begin], later[:, begin - shift : last - shift + horizon]], 1)
        changed = {COVARIATES: joined}
    one = {**before, **covariates, "target": was if np.ndim(before["target"]) > 1 else was[0]}
    two = {**one, **changed}
    three = {**two, "target": now if np.ndim(before["target"]) > 1 else now[0]}
    effects: Effects | None = getattr(predictor.input_transform, "effects", None)
    if effects is not None:  # in the size before
        size = effects.size(name_of(before), was[0])
        one, two, three = (
            effects.adjusted({**entry, MEMORY: np.append(size, effects.nothing[1:])}) for entry in (one, two, three)
        )
    first = max(end - predictor.history_length, 0) if predictor.history_length else 0
    seen = np.atleast_2d(one["target"])[:, first:end].T
    first += first_value(seen, ~np.isnan(seen))
    return _since(one, first), _since(two, first), _since(three, first), last - end


def _since(entry: Entry, first: int) -> Entry:
    """Return a series from a step on."""
    names = [name for name in ("target", COVARIATES, "effect") if name in entry]
    return {**entry, "start": step_of(entry, first), **{name: entry[name][..., first:] for name in names}}


def by_item(
    predictor: StateSpacePredictor, data: Entries, name: str, columns: Columns | Mapping[str, Any] | None
) -> tuple[dict[str, Entry], Columns | None]:
    """Return series by item, and the roles of the columns of a frame.

    Raises:
        ValueError: If a series comes twice.
    """
    found: dict[str, Entry] = {}
    entries, read = predictor.read(data, columns)
    for number, entry in enumerate(entries):
        item = str(entry.get("item_id", number))
        if item in found:
            raise ValueError(f"series {item!r} is twice in the data {name}: expected an item_id for each")
        found[item] = {"item_id": item, **entry}
    return found, read


def batch_of(predictor: StateSpacePredictor, entry: Entry) -> dict[str, Any]:
    """Return a batch of all steps of an entry."""
    prepared = next(iter(predictor.input_transform(iter([entry]), is_train=False)))
    return _exact(cut(prepared, len(prepared["target"]), None, predictor.prediction_length))


def batch_alone(predictor: StateSpacePredictor, entry: Entry) -> dict[str, Any]:
    """Return a batch of a series, as `predict` makes it."""
    prepared = next(iter(predictor.input_transform(iter([entry]), is_train=False)))
    window = cut(prepared, len(prepared["target"]), predictor.history_length, predictor.prediction_length)
    return _exact(since_first_value(window))


def step_of(entry: Entry, steps: int) -> pd.Period:
    """Return the period of a step of a series."""
    with expected_alias_warnings():
        return entry["start"] + steps


def _exact(window: dict[str, Any]) -> dict[str, Any]:
    """Return a batch of a window, with targets in float64."""
    batch = collate([window])
    return {**batch, "past_target": torch.from_numpy(np.asarray(window["past_target"], np.float64))[None]}
