"""Windows of prepared entries, and batches of them."""

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.data.effects.effects import SIGNALS
from tsforecast.data.magnitude import in_range

_PER_STEP = ("target", "observed", "time_feat", "season_index", "dynamic_real")
_TARGETS = ("past_target", "future_target", "known_future")
_SMALL, _RECENT, _JUMP = 0.05, 5, 2.0  # share of the median of so many values; their rise where a shop opens
_PER_SERIES = ("series_index", "static_cat", "static_real", "known_future")
_AS_THEY_ARE = ("item_id", "info", "forecast_start", SIGNALS)
_OF_EFFECTS = "effect"  # of covariates, which were taken from the targets; only some entries have it


@lru_cache(maxsize=4096)
def _later(start: pd.Period, steps: int) -> pd.Period:
    with expected_alias_warnings():
        return start + steps


def cut(entry: dict[str, Any], split: int, past: int | None, future: int) -> dict[str, Any]:
    """The window of a prepared entry around `split`: at most `past` steps before it, `future` after it.

    Args:
        entry: As `Prepare` makes it.
        split: Number of steps of the past.
        past: None for the whole past.
        future: Steps of the future; arrays which end at the split, as the target does at prediction, have none.
    """
    first = 0 if past is None else max(split - past, 0)
    window = {name: entry[name] for name in (*_PER_SERIES, "link") if name in entry}
    if "doubt" in entry:
        window["doubt"] = entry["doubt"][:future]
    for name in (*_PER_STEP, _OF_EFFECTS) if _OF_EFFECTS in entry else _PER_STEP:
        window[f"past_{name}"] = entry[name][first:split]
        if split < len(entry[name]):
            window[f"future_{name}"] = entry[name][split : split + future]
    if SIGNALS in entry:
        window[SIGNALS] = entry[SIGNALS][first : split + future]
    window["forecast_start"] = _later(entry["start"], split)
    return window | {name: entry[name] for name in ("item_id", "info") if name in entry}


def since_first_value(window: dict[str, Any]) -> dict[str, Any]:
    """The window without the steps before the series begins, see `first_value`.

    Of a past without a value its last step is left.
    """
    begin = first_value(window["past_target"], window["past_observed"])
    names = [f"past_{name}" for name in (*_PER_STEP, _OF_EFFECTS) if f"past_{name}" in window]
    return window | {name: window[name][begin:] for name in names} if begin else window


def first_value(values: np.ndarray, observed: np.ndarray) -> int:
    """The first step of values (time, target): the first observed, or behind it the first not out of all proportion.

    A shop that has not opened sells nothing: early values below a twentieth of the recent ones do not count, where they
    are at least two, twice as many as any later ones of that size in a row, and values jump behind them. The last step
    where there is no value.
    """
    seen = np.flatnonzero(observed.any(-1))
    if not len(seen):
        return max(len(observed) - 1, 0)
    sizes = np.where(observed, values, 0.0)[seen]
    if (sizes < 0).any():
        return int(seen[0])
    latest = np.sort(sizes[-_RECENT:], axis=0)  # of so few, `np.median` takes ten times as long
    recent = (latest[(len(latest) - 1) // 2] + latest[len(latest) // 2]) / 2
    if not np.all((sizes[0] <= _SMALL * recent) & (recent > 0)):
        return int(seen[0])
    is_small = np.all((sizes <= _SMALL * recent) & (recent > 0), axis=-1)
    ends = np.flatnonzero(np.diff(np.concatenate([[False], is_small, [False]])))
    runs = np.diff(ends)[::2]
    early, later = int(runs[0]), int(runs[1:].max(initial=0))
    if early < 2 or early == len(seen) or early < 2 * later:
        return int(seen[0])
    # A ramp begins with small values, too, and they tell of it: it passes every size step by step.
    jumps = sizes[early : early + _RECENT].mean(0) > _JUMP * sizes[:early].max(0)
    return int(seen[early if jumps.any() else 0])


def collate(
    windows: list[dict[str, Any]],
    device: torch.device | str = "cpu",
    exponents: NDArray[np.int64] | None = None,
    past: int | None = None,
) -> dict[str, Any]:
    """A batch of windows as tensors (series, time, ...), their targets in float64.

    Shorter pasts are padded at their beginning. Padding is unobserved and marked in `past_is_pad`, (series, time).

    Args:
        windows: As `cut` makes them.
        device: Where the tensors are.
        exponents: Powers of two by which targets are divided, see `find_exponents`; None for none.
        past: Steps to which all pasts are padded; None for those of the longest.
    """
    length = past or max(len(window["past_target"]) for window in windows)
    batch: dict[str, Any] = {}
    for key in dict.fromkeys(name for window in windows for name in window):
        values = [window.get(key) for window in windows]
        if key in _AS_THEY_ARE:
            batch[key] = values
        else:
            if key.startswith("past_"):
                stacked = _padded(values, length)
            else:
                stacked = np.stack(values)  # pyright: ignore
            if key in _TARGETS:
                stacked = in_range(stacked, exponents)
            batch[key] = torch.as_tensor(stacked, device=device)
    pads = np.array([length - len(window["past_target"]) for window in windows])
    batch["past_is_pad"] = torch.as_tensor(np.arange(length) < pads[:, None], device=device)
    return batch


def _padded(values: list[Any], length: int) -> NDArray[Any]:
    """Arrays of any length one above the other, with zeros before the shorter ones."""
    if all(len(v) == length for v in values):
        return np.stack(values)
    found = np.zeros((len(values), length, *values[0].shape[1:]), np.result_type(*values))
    for row, v in zip(found, values, strict=True):
        row[length - len(v) :] = v
    return found
