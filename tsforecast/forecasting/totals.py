"""Running totals: series that hardly ever fall, whose increments are forecast and summed.

A model of the levels must see a trend in what is a sum. Increments show what they are made of: seasons, zeros, weeks.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gluonts.dataset.field_names import FieldName
from gluonts.model.forecast import Forecast, SampleForecast
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.data.task import ForecastTask

Array = NDArray[np.float64]

SUMMED = "series hardly ever fall, as running totals: their increments are forecast, and summed"

_CHANGES = 24  # that a series must have to be known as a total
_FALLS, _RISES = 0.02, 3  # a share of its changes, at most: corrections; and how many rise, at least
_OTHERS = 9  # totals for each series that falls
_RESET = 0.5  # of a value, by more than which the next one has fallen: a meter was changed
_RECENT = 28  # increments, of which those that no one has seen are drawn
_PATHS = 200  # where no number is given


def are_totals(entries: Iterable[dict[str, Any]]) -> bool:
    """Return whether series are running totals: at least half, and nine for each that falls."""
    found = [_is_total(as_numbers(entry[FieldName.TARGET])) for entry in entries]
    totals = found.count(True)
    return 2 * totals >= max(len(found), 1) and totals >= _OTHERS * found.count(False)


def _is_total(target: NDArray[Any]) -> bool | None:
    """Return whether all targets of a series are totals; None where too few changes can say."""
    found = []
    for row in np.atleast_2d(target):
        changes = np.diff(row[np.isfinite(row)])
        found.append((np.mean(changes < 0), np.sum(changes > 0)) if len(changes) >= _CHANGES else (0.0, 0))
    falls, rises = np.transpose(found)
    return False if (falls > _FALLS).any() else True if (rises >= _RISES).all() else None


def of_increments(task: ForecastTask) -> ForecastTask:
    """Return a task whose series are the increments of running totals, without those that have none."""
    every = [increments(entry) for entry in task.entries]
    return replace(task, entries=[one for one in every if np.isfinite(one[FieldName.TARGET]).any()])


def increments(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a series of the increments of a running total.

    The first is missing, as are those to a value that has fallen by more than half of the one before. Where totals are
    missing, each step between has the same share of what was added: no reading may come on a weekend, but use goes on.
    """
    target = as_numbers(entry[FieldName.TARGET]).astype(np.float64)
    rows = np.stack([_shared(row) for row in np.atleast_2d(target)])
    found = {**entry, FieldName.TARGET: rows.reshape(target.shape)}
    if entry.get("known_future") is not None:
        last = target[..., -1:] if target.shape[-1] else np.full((*target.shape[:-1], 1), np.nan)
        whole = np.concatenate([last, as_numbers(entry["known_future"]).astype(np.float64)], -1)
        found["known_future"] = np.where(_is_reset(whole[..., :-1], whole[..., 1:]), np.nan, np.diff(whole))
    return found


def _is_reset(before: Array, after: Array) -> NDArray[np.bool_]:
    return before - after > _RESET * np.abs(before)


def _shared(row: Array) -> Array:
    """Return what each step adds to a total, (time,): an equal share where steps are missing."""
    found, seen = np.full(len(row), np.nan), np.flatnonzero(np.isfinite(row))
    if len(seen) > 1:
        steps, totals = np.diff(seen), row[seen]
        changes = np.where(_is_reset(totals[:-1], totals[1:]), np.nan, np.diff(totals))
        found[seen[0] + 1 : seen[-1] + 1] = np.repeat(changes / steps, steps)
    return found


def totals_of(
    predict: Callable[[Iterable[dict[str, Any]], int], Iterable[Forecast]],
    entries: Iterable[dict[str, Any]],
    num_samples: int | None,
) -> Iterator[SampleForecast]:
    """Yield forecasts of running totals: paths of increments (200 for None), summed from the last total on.

    Increments between the last total and the forecast, which no one has seen, are drawn from the latest ones. Paths
    pass through totals of the future that are known: increments before them are multiplied until they do.
    """
    own, others = itertools.tee(entries)
    forecasts = predict((increments(entry) for entry in others), num_samples or _PATHS)
    for entry, forecast in zip(own, forecasts, strict=True):
        assert isinstance(forecast, SampleForecast)
        samples = np.asarray(forecast.samples, np.float64)
        target = np.atleast_2d(as_numbers(entry[FieldName.TARGET]).astype(np.float64))
        added = samples.reshape(*samples.shape[:2], -1)
        known = entry.get("known_future")
        known = np.full_like(added[0].T, np.nan) if known is None else np.atleast_2d(as_numbers(known))
        parts = zip(target, added.transpose(2, 0, 1), known, strict=True)
        paths = np.stack([_summed(_begun(row, len(samples)), *others) for row, *others in parts], -1)
        yield SampleForecast(paths.reshape(samples.shape), forecast.start_date, forecast.item_id, forecast.info)


def _summed(begun: Array, added: Array, known: Array) -> Array:
    """Return paths of a total (path, step) from increments, through what is known of it."""
    paths, total, first = np.empty_like(added), begun[:, None], 0
    for step in np.flatnonzero(np.isfinite(known)):
        part = added[:, first : step + 1]
        whole, goal = part.sum(1, keepdims=True), known[step] - total
        share = np.divide(goal, whole, out=np.zeros_like(goal), where=whole * goal > 0)
        paths[:, first : step + 1] = total + np.where(share > 0, part * share, goal / part.shape[1]).cumsum(1)
        total, first = np.full_like(total, known[step]), step + 1
    paths[:, first:] = total + added[:, first:].cumsum(1)
    return paths


def _begun(row: Array, count: int) -> Array:
    """Return the total at the end of a series, (path,)."""
    seen = np.flatnonzero(np.isfinite(row))
    if not len(seen):
        return np.zeros(count)
    added, unseen = _shared(row), len(row) - 1 - seen[-1]
    latest = added[np.isfinite(added)][-_RECENT:]
    if not unseen or not len(latest):
        return np.full(count, row[seen[-1]])
    drawn = torch.randint(len(latest), (count, unseen)).numpy()
    return row[seen[-1]] + np.maximum(latest, 0.0)[drawn].sum(1)
