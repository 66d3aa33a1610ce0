"""Scores models of video: 20 frames are filtered, 40 forecast.

    python scripts/video_evaluate.py outputs/video/box-arsgls
    python scripts/video_evaluate.py outputs/video/box-* --sequences 200 --workers 2
    python scripts/video_evaluate.py outputs/video/box-arsgls --missing 0.3     # of the frames seen, to be imputed

Scores are the Wasserstein distance between frames as distributions of white pixels (exact transport, Euclidean, in
pixels; mean over sampled futures), the share of pixels that agree, and intersection over union. Two floors make
them readable: the last frame seen repeated, and, for worlds by name, true physics from states known about as well as
frames can tell them. Written into the run folder: video_scores.json, video_horizon.csv, film.png and film.gif (truth,
filtered, sampled futures), switches.png (weights of base matrices, collisions); of several runs also a picture of all
by horizon.
"""

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from tqdm import tqdm
from video_runs import AHEAD, SEEN, Model, find_video, load_model, of_sequences

from tsforecast.core.particles import ParticleState
from tsforecast.data import physics
from tsforecast.data.files import replace_file
from tsforecast.data.video import Video, make_batch
from tsforecast.evaluation.video import FrameScores, linear_probe, repeat_last_frame, score_frames
from tsforecast.film import film_strip, gif, horizon_plot, switch_plot
from tsforecast.models.base import Batch
from tsforecast.plots import save_figure

log = logging.getLogger(__name__)
FLOORS = ("last frame", "true physics")
# How well a few frames tell the state of a disc: its centre to a quarter of a pixel, and so its velocity, by a line
# through ten frames, to 0.15 pixels per second.
POSITION_ERROR, VELOCITY_ERROR = 0.25, 0.15
_BATCH = 32


def floors(video: Video, samples: int, workers: int) -> dict[str, FrameScores]:
    """Scores of the last frame repeated and, where states are known, of true physics from perturbed states."""
    truth = pixels(video.frames[:, SEEN : SEEN + AHEAD])
    still = repeat_last_frame(pixels(video.frames[:, :SEEN]), truth.shape[1], observed=video.observed[:, :SEEN])
    found = {"last frame": score_frames(still, truth, workers=workers, progress="last frame")}
    if "world" in video.metadata:
        generator = np.random.default_rng(0)
        futures = []
        for _ in tqdm(range(samples), desc="true physics", unit="sample", disable=None, leave=False):
            states = perturbed(video, generator)
            futures.append(physics.simulate(video.metadata["world"], states, truth.shape[1] + 1).frames[:, 1:])
        found["true physics"] = score_frames(np.stack(futures, 1), truth, workers=workers, progress="true physics")
    return found


def perturbed(video: Video, generator: np.random.Generator) -> physics.States:
    """States of the last frame seen, known only about as well as frames can tell them."""
    exact, velocity = (video.truths[name][:, SEEN - 1] for name in ("position", "velocity"))
    position = exact + POSITION_ERROR * generator.normal(size=exact.shape)
    velocity = velocity + VELOCITY_ERROR * generator.normal(size=velocity.shape)
    world, inside = video.metadata["world"], np.ones(len(position), np.bool_)
    if video.truths["paddles"].shape[-1]:  # what has left the picture is not brought back
        inside = np.abs(exact[:, 0] - physics.SIZE / 2) < physics.SIZE / 2 - physics.RADIUS
    position = np.where(inside[:, None], physics.keep_inside(world, position, 0.0), exact)
    return physics.States(position, velocity, video.truths["paddles"][:, SEEN - 1])


def pixels(frames: NDArray[Any]) -> NDArray[Any]:
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
def futures(model: Model, video: Video, samples: int, generator: torch.Generator) -> Iterator[NDArray[Any]]:
    """Sampled futures (sample, time, height, width) of one sequence after the other."""
    shape = video.frames.shape[2:]
    bar = tqdm(total=len(video.frames), desc="forecasts", unit="sequence", disable=None, leave=False)
    with bar:
        for batch in batches(video, SEEN, model.device):
            belief, _ = model.filter(batch)
            paths = model.forecast(belief, batch, samples, generator).clamp(0.0, 1.0).cpu().numpy()
            paths = paths.reshape(*paths.shape[:3], *shape)
            for path in paths > 0.5 if video.is_binary else paths:
                bar.update()
                yield path


@torch.no_grad()
def tracks(model: Model, video: Video, steps: int, generator: torch.Generator) -> dict[str, NDArray[Any]]:
    """Of every frame, given those before it and itself: the expected frame, auxiliary and state, over particles."""
    found: dict[str, list[NDArray[Any]]] = {"frames": [], "auxiliary": [], "state": []}
    for batch in batches(video, steps, model.device):
        history: ParticleState = model.track(batch, generator)
        assert history.auxiliary is not None
        weight = history.log_weight.exp().unsqueeze(-1)
        location, scale = model.begin(batch)
        expected = (weight * model.decoder.mean(history.auxiliary, location, scale)).sum(1)
        parts = {"frames": expected, "auxiliary": (weight * history.auxiliary).sum(1)}
        parts["state"] = (weight * history.state.mean).sum(1)
        for name, values in parts.items():
            found[name].append(values.transpose(0, 1).cpu().numpy())
    return {name: np.concatenate(values) for name, values in found.items()}


def hide(video: Video, share: float, seed: int) -> Video:
    """Some of the frames that are filtered are taken away, never the first or the last."""
    observed = video.observed.copy()
    observed[:, 1 : SEEN - 1] &= np.random.default_rng(seed).random((len(observed), SEEN - 2)) >= share
    return dataclasses.replace(video, observed=observed)


def probe(model: Model, video: Video, generator: torch.Generator) -> dict[str, float]:
    """R^2 of linear maps from filtered means of auxiliary and state to the true position, on held-out sequences."""
    if "position" not in video.truths:
        return {}
    track = tracks(model, video, SEEN, generator)
    position, half = video.truths["position"][:, :SEEN], len(video.frames) // 2
    values = {}
    for name in ("auxiliary", "state"):
        r2 = linear_probe(track[name][:half], position[:half], track[name][half:], position[half:])
        values |= {f"r2_{axis}_{name}": float(value) for axis, value in zip("xy", r2, strict=True)}
    return values


def draw(model: Model, video: Video, folder: Path, name: str, samples: int, index: int, seed: int) -> None:
    """Film and switches of one sequence."""
    one = of_sequences(video, slice(index, index + 1))
    generator = torch.Generator(model.device).manual_seed(seed)
    sampled = next(futures(model, one, samples, generator))
    track = tracks(model, one, SEEN, generator)
    size = one.frames.shape[2:]
    filtered = track["frames"][0].reshape(-1, *size).clip(0, 1)
    truth, seen = pixels(one.frames[0, : SEEN + AHEAD]), one.observed[0, :SEEN]
    title = f"{name}, sequence {index}"
    save_figure(film_strip(truth, filtered, sampled, observed=seen, title=title), folder / "film.png")
    gif(truth, filtered, sampled, folder / "film.gif", observed=seen)
    if "collision" not in one.truths:
        return
    batch = next(batches(one, SEEN + AHEAD, model.device))
    with torch.no_grad():
        weights = model.regime_weights(model.regimes(batch, num_samples=20, generator=generator))[:, 0].cpu().numpy()
    figure = switch_plot(
        weights, one.truths["collision"][0, : len(weights)], title=f"{title}: smoothed, all frames seen"
    )
    save_figure(figure, folder / "switches.png")


def evaluate(folder: Path, options: argparse.Namespace, known: dict[str, dict[str, FrameScores]]) -> pd.DataFrame:
    """Scores a run and writes what is said above; the table by horizon.

    Args:
        folder: Of the run.
        options: Of the command line.
        known: Floors by checksum of the data, which are computed once.
    """
    model, record = load_model(folder)
    _, video = find_video(None if record["data"] else record["dataset"], record["data"], "test")
    if video.frames.shape[1] <= SEEN:
        raise ValueError(
            f"expected sequences longer than the {SEEN} frames that are filtered, got {video.frames.shape[1]}"
        )
    video = of_sequences(video, slice(0, options.sequences or len(video.frames)))
    if options.missing:
        video = hide(video, options.missing, options.seed)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model.to(device)
    if options.particles:
        model.num_particles = options.particles
    dataset = record["dataset"]
    if (data := record["checksum"]) not in known:
        known[data] = floors(video, options.floor_samples, options.workers)
    generator = torch.Generator(device).manual_seed(options.seed)
    begin = time.monotonic()
    truth = pixels(video.frames[:, SEEN : SEEN + AHEAD])
    scores = score_frames(futures(model, video, options.samples, generator), truth, workers=options.workers)
    seconds = time.monotonic() - begin
    table = by_horizon({record["model"]: scores, **known[data]})
    table.insert(0, "dataset", dataset)
    summary: dict[str, Any] = {"model": record["model"], "dataset": dataset, "sequences": len(video.frames)}
    summary |= {"samples": options.samples, "missing": options.missing, "seconds": round(seconds, 1)}
    summary |= {"frames_per_second": round(truth.shape[0] * truth.shape[1] * options.samples / seconds, 1)}
    last = truth.shape[1]
    parts = {"all": (1, last), "near": (1, min(10, last)), "far": (max(last - 9, 1), last)}
    for name, one in {"scores": scores, **known[data]}.items():
        summary[name] = {part: one.overall(*ends) for part, ends in parts.items()}
    summary["probe"] = probe(model, video, generator)
    with replace_file(folder / "video_horizon.csv") as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g")
    with replace_file(folder / "video_scores.json") as temporary:
        temporary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    name = f"{record['model']}: {dataset}"
    draw(model, video, folder, name, min(options.samples, 16), options.film, options.seed)
    log.info("%s", folder)
    for name in ("scores", *known[data]):
        whole, far = summary[name]["all"], summary[name]["far"]
        label = record["model"] if name == "scores" else name
        log.info(
            "  %-13s Wasserstein %.3f +- %.3f (last ten steps %.3f), pixels %.4f, overlap %.3f",
            label, whole["wasserstein"], whole["wasserstein_se"], far["wasserstein"], whole["accuracy"], whole["iou"],
        )  # fmt: skip
    if summary["probe"]:
        log.info("  R^2 of positions: %s", ", ".join(f"{key[3:]} {v:.3f}" for key, v in summary["probe"].items()))
    return table


def by_horizon(scores: dict[str, FrameScores]) -> pd.DataFrame:
    """All models one under another."""
    return pd.concat([one.by_horizon().assign(model=name) for name, one in scores.items()], ignore_index=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders of video_train.py")
    parser.add_argument("--sequences", type=int, default=0, help="of the test data (default: all)")
    parser.add_argument("--samples", type=int, default=32, help="sampled futures (default: %(default)s)")
    parser.add_argument("--floor-samples", type=int, default=4, help="of true physics (default: %(default)s)")
    parser.add_argument("--particles", type=int, default=0, help="to filter with (default: as in training)")
    parser.add_argument("--missing", type=float, default=0.0, help="share of the frames seen to hide (default: 0)")
    parser.add_argument("--film", type=int, default=0, help="sequence to draw (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes for the transport (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (default: %(default)s)")
    parser.add_argument("--device", type=str, help="cpu, cuda, .. (default: a GPU where there is one)")
    parser.add_argument("--output", type=Path, help="picture of several runs by horizon (default: beside the first)")
    options = parser.parse_args(arguments)
    for name, least in (("samples", 1), ("floor_samples", 1), ("workers", 1), ("sequences", 0), ("film", 0)):
        if getattr(options, name) < least:
            parser.error(f"expected --{name.replace('_', '-')} to be at least {least}, got {getattr(options, name)}")
    if not 0 <= options.missing < 1:
        parser.error(f"expected --missing to be at least 0 and below 1, got {options.missing}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    known: dict[str, dict[str, FrameScores]] = {}
    try:
        tables = [evaluate(folder, options, known) for folder in options.runs]
    except (OSError, ValueError, ArithmeticError, ImportError) as error:
        sys.exit(f"error: {error}")
    if len(tables) > 1:
        for folder, table in zip(options.runs, tables, strict=True):  # there may be several of one model
            table["model"] = table["model"].where(table["model"].isin(FLOORS), folder.name)
        table = pd.concat(tables, ignore_index=True).drop_duplicates(["dataset", "model", "horizon"])
        path = options.output or options.runs[0].parent / "video_horizon.png"
        present = [name for name in FLOORS if (table["model"] == name).any()]
        log.info("%s", save_figure(horizon_plot(table, floors=present, panel="dataset"), path))


if __name__ == "__main__":
    main()
