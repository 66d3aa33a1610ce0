"""Joint samples of the missing values of series, by a trained model."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from gluonts.itertools import batcher
from gluonts.model.forecast import SampleForecast
from numpy.typing import NDArray

from tsforecast.data.checks import as_numbers
from tsforecast.data.effects.link import restored
from tsforecast.data.magnitude import compact, in_units
from tsforecast.data.windows import cut
from tsforecast.forecasting.histories import BATCHES_HELD, Histories

_VALUES = 2_000_000  # of all samples of a batch


def imputed(
    histories: Histories, dataset: Iterable[dict[str, Any]], num_samples: int | None
) -> Iterator[SampleForecast]:
    """Return joint samples of the missing values of every entry, given all that it has, in order."""
    count = num_samples or histories.net.data.num_samples
    for held in batcher(dataset, BATCHES_HELD * histories.batch_size):
        for entry in held:
            histories.check(entry)
        lengths = [np.shape(entry["target"])[-1] for entry in held]
        # A smoother keeps every step of every sample.
        together = max(min(histories.batch_size, _VALUES // (count * max(lengths))), 1)
        found: dict[int, SampleForecast] = {}
        for places in batcher(sorted(range(len(held)), key=lengths.__getitem__), together):
            found.update(zip(places, _of_batch(histories, [held[k] for k in places], count), strict=True))
        yield from (found[k] for k in range(len(held)))


def _of_batch(histories: Histories, entries: list[dict[str, Any]], count: int) -> list[SampleForecast]:
    prepared = list(histories.transform(iter(entries), is_train=True))
    windows = [cut(one, len(one["target"]), None, 0) for one in prepared]
    exponents = histories.exponents(windows)
    with torch.no_grad():
        impute = lambda own: own.net.impute(own.collated(windows, exponents), count)  # noqa: E731
        drawn = histories.exactly(impute, len(entries), "series").cpu().numpy()
    shown = histories.num_shown
    return [_filled(*one, shown) for one in zip(entries, prepared, drawn, exponents, strict=True)]


def _filled(
    entry: dict[str, Any], prepared: dict[str, Any], drawn: NDArray[Any], exponents: NDArray[np.int64], shown: int
) -> SampleForecast:
    """Return the samples (sample, time, target) of an entry, padding before them left out, in units of the data."""
    samples, exponents = drawn[:, -len(prepared["target"]) :, :shown], exponents[:shown]
    paths = in_units(samples[..., 0] if shown == 1 else samples, exponents)
    values = compact(prepared["target"][:, :shown])
    if "effect" in prepared:
        paths = restored(paths, prepared["effect"], prepared["link"])
        values = np.atleast_2d(as_numbers(entry["target"]).astype(np.float64)).T
    if values.dtype == np.float64:  # the model saw them rounded to float32
        seen = prepared["observed"][:, :shown]
        paths = np.where(seen, values, paths) if paths.ndim == 3 else np.where(seen[:, 0], values[:, 0], paths)
    named = {name: entry.get(name) for name in ("item_id", "info")}
    return SampleForecast(samples=paths, start_date=entry["start"], **named)
