"""Floors that make scores of video readable: nothing moves; true physics."""

import numpy as np
from tqdm import tqdm

from experiments.video import physics, worlds
from experiments.video.data import Video
from experiments.video.frames import pixels
from experiments.video.scores import FrameScores, repeat_last_frame, score_frames
from experiments.video.trained import AHEAD, SEEN

FLOORS = ("last frame", "true physics")
# How well a few frames tell the state of a disc: its centre to a quarter of a pixel, and so its velocity, by a line
# through ten frames, to 0.15 pixels per second.
POSITION_ERROR, VELOCITY_ERROR = 0.25, 0.15


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


def perturbed(video: Video, generator: np.random.Generator) -> worlds.States:
    """States of the last frame seen, known only about as well as frames can tell them."""
    exact, velocity = (video.truths[name][:, SEEN - 1] for name in ("position", "velocity"))
    position = exact + POSITION_ERROR * generator.normal(size=exact.shape)
    velocity = velocity + VELOCITY_ERROR * generator.normal(size=velocity.shape)
    world, inside = video.metadata["world"], np.ones(len(position), np.bool_)
    if video.truths["paddles"].shape[-1]:  # what has left the picture is not brought back
        inside = np.abs(exact[:, 0] - worlds.SIZE / 2) < worlds.SIZE / 2 - worlds.RADIUS
    position = np.where(inside[:, None], worlds.keep_inside(world, position, 0.0), exact)
    return worlds.States(position, velocity, video.truths["paddles"][:, SEEN - 1])
