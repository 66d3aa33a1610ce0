"""What trained models make of videos: sampled futures, filtered frames, frames filled in."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from experiments.video.data import Video, make_batch
from experiments.video.paths import decode, forecast_paths, smoothed_paths
from experiments.video.trained import AHEAD, SEEN, Model, use_particles
from tsforecast.core.particles.state import ParticleState
from tsforecast.models import Batch

_BATCH = 32
_AT_LEAST = 64  # particles for filling in, of which there is little choice otherwise

Frames = NDArray[Any]  # bool, or grey from 0 to 1


def pixels(frames: NDArray[Any]) -> Frames:
    """Black and white as they are, grey from 0 to 1."""
    return frames / np.float32(255) if frames.dtype == np.uint8 else frames


def batches(video: Video, past: int, device: torch.device) -> Iterator[Batch]:
    """The sequences in order, on the device."""
    for first in range(0, len(video.frames), _BATCH):
        part = slice(first, first + _BATCH)
        frames = video.frames[part, : SEEN + AHEAD]
        batch = make_batch(frames, video.observed[part, : SEEN + AHEAD], past)
        yield {name: value.to(device) for name, value in batch.items()}


@torch.no_grad()
def futures(
    model: Model, video: Video, samples: int, generator: torch.Generator
) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    """Sampled futures of one sequence after the other, (sample, time, height, width).

    Gives the frames drawn along the paths, and those expected along them; see `experiments.video.paths`.
    """
    with _bar(video, "forecasts") as bar:
        for batch in batches(video, SEEN, model.device):
            belief, _ = model.filter(batch)
            paths = forecast_paths(model, belief, batch, samples, generator)
            for pair in _decoded(model, paths, video, generator):
                bar.update()
                yield pair


@torch.no_grad()
def filled(
    model: Model, video: Video, samples: int, generator: torch.Generator
) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    """The same of the frames that are filtered, given all of them which are observed (smoothed)."""
    before = model.inference
    use_particles(model, max(before.particles.num_particles, _AT_LEAST))
    try:
        with _bar(video, "filling in") as bar:
            for batch in batches(video, SEEN, model.device):
                paths = smoothed_paths(model, batch, samples, generator)
                for pair in _decoded(model, paths, video, generator):
                    bar.update()
                    yield pair
    finally:
        model.inference = before


@torch.no_grad()
def filtered(model: Model, video: Video, generator: torch.Generator) -> NDArray[np.float32]:
    """The expected frame of every step seen, given those before it and itself, (sequence, time, height, width)."""
    found = []
    for history in _histories(model, video, generator):
        assert history.auxiliary is not None
        steps = zip(history.auxiliary, history.log_weight.exp().unsqueeze(-1), strict=True)
        frames = [(weight * decode(model, auxiliary, generator)[1]).sum(0) for auxiliary, weight in steps]
        found.append(torch.stack(frames, 1).clamp(0.0, 1.0).cpu().numpy())
    return np.concatenate(found).reshape(len(video.frames), SEEN, *video.frames.shape[2:])


@torch.no_grad()
def tracks(model: Model, video: Video, generator: torch.Generator) -> dict[str, NDArray[Any]]:
    """Filtered means of auxiliary and state at every step seen, (sequence, time, dimension)."""
    found: dict[str, list[NDArray[Any]]] = {"auxiliary": [], "state": []}
    for history in _histories(model, video, generator):
        assert history.auxiliary is not None
        weight = history.log_weight.exp().unsqueeze(-1)
        for name, values in (("auxiliary", history.auxiliary), ("state", history.state.mean)):
            found[name].append((weight * values).sum(1).transpose(0, 1).cpu().numpy())
    return {name: np.concatenate(values) for name, values in found.items()}


def _histories(model: Model, video: Video, generator: torch.Generator) -> Iterator[ParticleState]:
    for batch in batches(video, SEEN, model.device):
        yield model.inference.track(batch, generator)


def whiten(expected: NDArray[np.float32], video: Video) -> Frames:
    """Expected frames as forecasts: of black and white video white above 1/2."""
    return expected > 0.5 if video.is_binary else expected


def hide(video: Video, share: float, seed: int) -> Video:
    """Some of the frames that are filtered are taken away, never the first or the last."""
    observed = video.observed.copy()
    observed[:, 1 : SEEN - 1] &= np.random.default_rng(seed).random((len(observed), SEEN - 2)) >= share
    return dataclasses.replace(video, observed=observed)


def _decoded(
    model: Model, paths: torch.Tensor, video: Video, generator: torch.Generator
) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    """Drawn and expected frames of every sequence along its paths (time, sample, series, auxiliary)."""
    drawn, expected = [], []
    for auxiliary in paths:  # step by step: the network's layers take many times the memory of its frames
        for values, frames in zip(decode(model, auxiliary, generator), (drawn, expected), strict=True):
            frames.append(values.clamp(0.0, 1.0).cpu().numpy())
        if video.is_binary:
            drawn[-1] = drawn[-1] > 0.5
    shape = (*np.shape(drawn)[:3], *video.frames.shape[2:])
    by_series = [np.stack(frames).reshape(shape).transpose(2, 1, 0, 3, 4) for frames in (drawn, expected)]
    yield from zip(*by_series, strict=True)


def _bar(video: Video, name: str) -> tqdm:
    return tqdm(total=len(video.frames), desc=name, unit="sequence", disable=None, leave=False)
