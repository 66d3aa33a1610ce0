"""What models in continuous time say of a batch of series: exact distributions, or mixtures over paths of a switch."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tsforecast.core import Gaussian
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.models import AbstractForecaster, Batch, Belief, ExactInference, ParticleInference
from tsforecast.models.parts import particle_mixtures
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.reach import bounds

_PATHS = 100  # of a forecast
_SMOOTHED_PATHS, _FEWEST_PATHS = 30, 10  # of what is given all observations
_NUMBERS = 30_000_000  # in the covariances of all paths of a series, about
_TOGETHER = 8  # series that are smoothed at once by an exact model: every step of each has a covariance


@contextlib.contextmanager
def seeded(*entropy: int) -> Iterator[None]:
    """Let what draws without a generator of its own draw the same numbers each time, and leave others alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([number % 2**63 for number in entropy]).generate_state(1)[0]))
        yield


def smoothed_together(net: AbstractForecaster) -> int:
    """Return how many series are smoothed at once."""
    return _TOGETHER if isinstance(net.inference, ExactInference) else 1


def ahead(net: AbstractForecaster, belief: Belief, future: Batch, generator: torch.Generator) -> Marginals:
    """Return the distributions of the horizon."""
    if isinstance(net.inference, ParticleInference):
        found = net.inference.mixture_ahead(belief, net.inference.slice_of(future, "future"), _PATHS, generator)
        return replace(found, bounds=bounds(belief, net.data, future))
    found = net.marginals(belief, future)
    assert found is not None
    return found


def between(net: AbstractForecaster, batch: Batch, units: tuple[torch.Tensor, torch.Tensor]) -> Marginals:
    """Return the distributions of an observation at every moment of a batch's past, given all of it."""
    inference = net.inference
    if isinstance(inference, ParticleInference):
        return particle_mixtures.between(inference, batch, units, _paths_for(net, batch), _generator(batch))
    assert isinstance(inference, ExactInference)
    _, emitted = inference.smoothed(batch, units)
    location, scale = units
    mean = (emitted.mean * scale + location).transpose(0, 1)
    deviation = (emitted.variance.clamp_min(0).sqrt() * scale).transpose(0, 1)
    return Marginals.single(mean, deviation, inference.units.transformation, inference.units.clip)


def smoothed_states(net: AbstractForecaster, batch: Batch) -> Gaussian:
    """Return beliefs over the states at every moment of a batch's past, given all of it, in scaled units."""
    inference = net.inference
    if isinstance(inference, ParticleInference):
        units, count = inference.scale_of(batch), _paths_for(net, batch)
        smoothed = particle_mixtures.smoothed_given(inference, batch, units, count, _generator(batch))[1]
        return Gaussian(smoothed.mean, smoothed.cov)
    assert isinstance(inference, ExactInference)
    return inference.smoothed(batch)[0]


def component_frames(
    net: AbstractForecaster, clock: Clock, entries: Sequence[Mapping[str, Any]]
) -> Iterator[pd.DataFrame]:
    """Yield the smoothed components of each series at its times, in transformed units, a frame each."""
    if getattr(net.dynamics, "timed", None) is None:
        raise ValueError("a dense state has no components with names: take the model issm")
    batch, inference = clock.past(entries), net.inference
    with torch.no_grad():
        states, series = smoothed_states(net, batch), inference.series_of(batch)
        time_slice = inference.slice_of(batch, "past")
        found = net.dynamics.parts_of(states, series, time_slice)  # pyright: ignore[reportCallIssue]
        location, scale = (x[:, 0] for x in inference.scale_of(batch))
    rows = rows_of(clock, entries, [np.arange(len(entry["times"])) for entry in entries], len(states.mean))
    for number, (name, (mean, deviation)) in enumerate(found.items()):
        moved = mean * scale + (location if number == 0 else 0.0)
        for row, entry in enumerate(entries):
            own = rows[row, : len(entry["times"])]
            columns = {
                "item_id": entry["item_id"],
                "timestamp": entry["times"].astype("datetime64[ns]"),
                "component": name,
                "mean": moved[own, row].numpy(),
                "deviation": (deviation * scale)[own, row].numpy(),
            }
            yield pd.DataFrame(columns)


def smoothed_regimes(net: AbstractForecaster, batch: Batch, most: int) -> torch.Tensor:
    """Return the weights of regimes at every moment of a batch's past along paths, (time, path, series, regime)."""
    inference = net.inference
    assert isinstance(inference, ParticleInference)
    count = _paths_for(net, batch, most)
    smoothed = particle_mixtures.smoothed_given(inference, batch, inference.scale_of(batch), count, _generator(batch))
    return inference.dynamics.mixing_weights(smoothed[1].switches)


def _paths_for(net: AbstractForecaster, batch: Batch, most: int = _SMOOTHED_PATHS) -> int:
    """Return how many paths are smoothed, so that their covariances go into memory."""
    size = batch["past_target"].shape[1] * net.dynamics.num_states**2  # pyright: ignore
    return int(np.clip(_NUMBERS // size, min(_FEWEST_PATHS, most), most))


def _generator(batch: Batch) -> torch.Generator:
    """Return a generator that is the same for the same moments."""
    return torch.Generator().manual_seed(batch["past_target"].shape[1])


def rows_of(
    clock: Clock, entries: Sequence[Mapping[str, Any]], places: Sequence[NDArray[np.int64]], length: int
) -> NDArray[np.int64]:
    """Return where some of the times of entries are in a batch of their pasts, (series, time)."""
    found = np.zeros((len(entries), max(map(len, places))), np.int64)
    for row, (entry, place) in enumerate(zip(entries, places, strict=True)):
        ticked, own = clock.ticked(entry)
        found[row, : len(place)] = own[place] + length - len(ticked["times"])
    return found


def at_rows(marginals: Marginals, rows: NDArray[np.int64]) -> Marginals:
    """Return the distributions at some moments of each series."""
    index = torch.as_tensor(rows)[:, None, :, None]
    index = index.expand(-1, marginals.mean.shape[1], -1, marginals.mean.shape[3])
    return replace(marginals, mean=marginals.mean.gather(2, index), deviation=marginals.deviation.gather(2, index))
