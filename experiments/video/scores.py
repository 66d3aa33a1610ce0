"""Scores of video forecasts: transport between frames, agreement of pixels, what a latent state knows.

A forecast of several samples scores the mean of the samples' distances from the true frame.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from experiments.video.transport import pairs, wasserstein_table
from tsforecast.evaluation.metrics import Array


@dataclass(frozen=True)
class FrameScores:
    """Scores of forecasts of video, each (sequence, time) and a mean over samples.

    Attributes:
        wasserstein: Distance between frames in pixels; 0 is best.
        accuracy: Share of pixels that agree; 1 is best.
        iou: White pixels in both frames / white pixels in either; 1 is best.
    """

    wasserstein: Array
    accuracy: Array
    iou: Array

    def part(self, sequences: slice) -> "FrameScores":
        """Return the scores of some of the sequences."""
        return FrameScores(self.wasserstein[sequences], self.accuracy[sequences], self.iou[sequences])

    def over(self, chosen: NDArray[np.bool_]) -> dict[str, float]:
        """Means over chosen steps of every sequence, then over the sequences that have some; errors as in `by_horizon`.

        Args:
            chosen: (sequence, time).

        Raises:
            ValueError: If no step is chosen.
        """
        count = chosen.sum(1)
        if not count.any():
            raise ValueError("expected at least one step to take the mean over, got none")
        row: dict[str, float] = {}
        for name in ("wasserstein", "accuracy", "iou"):
            sums = np.where(chosen, getattr(self, name), 0.0).sum(1)
            scores = (sums[count > 0] / count[count > 0])[:, None]
            row |= {key: float(value[0]) for key, value in _mean_and_error(name, scores).items()}
        return row

    def by_horizon(self) -> pd.DataFrame:
        """Means over sequences and their standard errors.

        Columns `horizon` (from 1), and `wasserstein`, `accuracy` and `iou`, each followed by its error, `.._se`: the
        standard deviation over sequences / sqrt(number of sequences); NaN where there is only one.
        """
        columns: dict[str, Any] = {"horizon": np.arange(1, self.wasserstein.shape[1] + 1)}
        for name in ("wasserstein", "accuracy", "iou"):
            columns |= _mean_and_error(name, getattr(self, name))
        return pd.DataFrame(columns)

    def overall(self, first: int = 1, last: int | None = None) -> dict[str, float]:
        """Means over sequences and the horizons `first` to `last` (both included), with errors as in `by_horizon`."""
        steps = self.wasserstein.shape[1]
        end = steps if last is None else last
        if not 1 <= first <= end <= steps:
            raise ValueError(f"expected horizons 1 <= first <= last <= {steps}, got {first} and {last}")
        row: dict[str, float] = {}
        for name in ("wasserstein", "accuracy", "iou"):
            # Steps of one sequence depend on each other: the error is taken over sequences alone.
            scores = getattr(self, name)[:, first - 1 : end].mean(1, keepdims=True)
            row |= {key: float(value[0]) for key, value in _mean_and_error(name, scores).items()}
        return row


def score_frames(
    samples: Iterable[NDArray[Any]], truth: NDArray[Any], *, workers: int = 1, progress: str | None = None
) -> FrameScores:
    """Scores forecasts of video by all measures, in one pass over the sequences.

    Args:
        samples: Frames between 0 and 1: an array (sequence, sample, time, height, width). Or anything that gives
            (sample, time, height, width) for one sequence after the other, such as a generator that forecasts.
        truth: What came, (sequence, time, height, width).
        workers: Processes for the transport; 1 computes in this one. Scores do not depend on it.
        progress: Label of a progress bar, shown where there is a terminal; without it there is none.

    Raises:
        ValueError: If shapes or values are not as described, or POT is not installed.
    """
    truth = np.asarray(truth)
    accuracy, iou = [], []

    def pixels_counted() -> Iterator[NDArray[Any]]:
        for frames, target in pairs(samples, truth):
            accuracy.append(pixel_accuracy(frames[None], target[None])[0])
            iou.append(intersection_over_union(frames[None], target[None])[0])
            yield frames

    wasserstein = wasserstein_table(pixels_counted(), truth, workers=workers, progress=progress)
    return FrameScores(wasserstein, np.stack(accuracy), np.stack(iou))


def pixel_accuracy(samples: NDArray[Any], truth: NDArray[Any]) -> Array:
    """Share of pixels that are white in both frames or in neither (sequence, time), a mean over samples.

    A pixel is white above 1/2. Where bodies are small this is near 1 for any forecast, an empty one included.

    Args:
        samples: Frames between 0 and 1, (sequence, sample, time, height, width).
        truth: (sequence, time, height, width).
    """
    both, either = _overlap(samples, truth)
    return 1 - (either - both).mean(1) / np.prod(truth.shape[2:])


def intersection_over_union(samples: NDArray[Any], truth: NDArray[Any]) -> Array:
    """White pixels in both frames / white pixels in either (sequence, time), a mean over samples; 1 if there are none.

    Args:
        samples: Frames between 0 and 1, (sequence, sample, time, height, width). A pixel is white above 1/2.
        truth: (sequence, time, height, width).
    """
    both, either = _overlap(samples, truth)
    return np.where(either > 0, both / np.maximum(either, 1), 1.0).mean(1)


def repeat_last_frame(seen: NDArray[Any], horizon: int, *, observed: ArrayLike | None = None) -> NDArray[Any]:
    """The forecast that nothing moves: the last frame seen, as one sample (sequence, 1, horizon, height, width).

    Args:
        seen: Frames (sequence, time, height, width) before the forecast.
        horizon: Steps to forecast.
        observed: Which frames were observed, (sequence, time); by default all.

    Raises:
        ValueError: If shapes differ, or a sequence has no observed frame.
    """
    seen = np.asarray(seen)
    if seen.ndim != 4 or 0 in seen.shape or horizon < 1:
        raise ValueError(
            f"expected frames (sequence, time, height, width) and a horizon of at least 1, got {seen.shape}, {horizon}"
        )
    sequences, steps, height, width = seen.shape
    mask = np.ones((sequences, steps), np.bool_) if observed is None else np.asarray(observed, np.bool_)
    if mask.shape != (sequences, steps):
        raise ValueError(f"expected an observation mask of shape {(sequences, steps)}, got {mask.shape}")
    if not mask.any(1).all():
        raise ValueError(f"expected an observed frame in every sequence, but {np.argmin(mask.any(1))} has none")
    last = steps - 1 - mask[:, ::-1].argmax(1)
    frames = seen[np.arange(sequences), last][:, None, None]
    return np.broadcast_to(frames, (sequences, 1, horizon, height, width))


def carry_forward(frames: NDArray[Any], observed: ArrayLike) -> NDArray[Any]:
    """The imputation that nothing moves: every missing frame is the last one seen before it, or the first seen at all.

    Args:
        frames: (sequence, time, height, width).
        observed: Which of them were observed, (sequence, time).

    Raises:
        ValueError: If shapes differ, or a sequence has no observed frame.
    """
    frames, mask = np.asarray(frames), np.asarray(observed, np.bool_)
    if frames.ndim != 4 or mask.shape != frames.shape[:2]:
        raise ValueError(
            f"expected frames (sequence, time, height, width) and an observation mask, got {frames.shape}, {mask.shape}"
        )
    if not mask.any(1).all():
        raise ValueError(f"expected an observed frame in every sequence, but {np.argmin(mask.any(1))} has none")
    last = np.maximum.accumulate(np.where(mask, np.arange(mask.shape[1]), -1), axis=1)
    last = np.where(last < 0, mask.argmax(1)[:, None], last)
    return frames[np.arange(len(frames))[:, None], last]


def linear_probe(
    features_train: ArrayLike,
    targets_train: ArrayLike,
    features_test: ArrayLike,
    targets_test: ArrayLike,
    *,
    penalty: float = 0.0,
) -> Array:
    """How much of the truth can be read linearly from latent states: held-out R^2, one for every target coordinate.

    With features `x` scaled to mean 0 and standard deviation 1 in training, `w` and `c` minimise

        sum_n (y_n - c - w' x_n)^2 + penalty n |w|^2

    over the training points, and `R^2 = 1 - sum (y - c - w' x)^2 / sum (y - mean y)^2` over the test points: 1 if the
    map is exact, 0 if it is no better than the mean of what is tested, negative if it is worse.

    Args:
        features_train: Latent states (.., feature), such as (sequence, time, state).
        targets_train: Ground truth (.., coordinate), such as positions, of the same leading dimensions.
        features_test: The same of sequences that were held out.
        targets_test: The same of sequences that were held out.
        penalty: Of the ridge; 0 is least squares (of least norm where features depend on each other).

    Returns:
        R^2 (coordinate,); NaN for a coordinate that never changes in the test, as there is nothing to explain.

    Raises:
        ValueError: If shapes do not fit or a number is not finite.
    """
    if not penalty >= 0:
        raise ValueError(f"expected a penalty of at least 0, got {penalty}")
    train, known = _points(features_train, targets_train, "training")
    test, asked = _points(features_test, targets_test, "test")
    if train.shape[1] != test.shape[1] or known.shape[1] != asked.shape[1]:
        raise ValueError(
            f"expected as many features and coordinates in training as in test, got {train.shape[1]} and "
            f"{known.shape[1]} against {test.shape[1]} and {asked.shape[1]}"
        )
    centre, scale = train.mean(0), train.std(0)
    scale = np.where(np.ptp(train, axis=0) > 0, scale, 1.0)
    inputs = (train - centre) / scale
    ridge = np.sqrt(penalty * len(inputs)) * np.eye(inputs.shape[1])
    rows = np.concatenate([inputs, ridge])
    wanted = np.concatenate([known - known.mean(0), np.zeros((len(ridge), known.shape[1]))])
    weights = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    errors = asked - known.mean(0) - (test - centre) / scale @ weights
    spread = ((asked - asked.mean(0)) ** 2).sum(0)
    varies = np.ptp(asked, axis=0) > 0
    return np.where(varies, 1 - (errors**2).sum(0) / np.where(varies, spread, 1.0), np.nan)


def _overlap(samples: NDArray[Any], truth: NDArray[Any]) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Numbers of pixels that are white in both frames, and in either, (sequence, sample, time)."""
    samples, truth = np.asarray(samples), np.asarray(truth)
    if truth.ndim != 4 or samples.ndim != 5 or samples.shape[:1] + samples.shape[2:] != truth.shape:
        raise ValueError(
            "expected samples (sequence, sample, time, height, width) and truth (sequence, time, height, width), got "
            f"{samples.shape} and {truth.shape}"
        )
    found, true = _white(samples), _white(truth)[:, None]
    both = np.count_nonzero(found & true, axis=-1)
    return both, np.count_nonzero(found, axis=-1) + np.count_nonzero(true, axis=-1) - both


def _white(frames: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels are white, shape (..., pixel)."""
    if frames.dtype != np.bool_ and not (frames.min() >= 0 and frames.max() <= 1):  # false of NaN
        raise ValueError(f"expected frames between 0 and 1, got {frames.min()} to {frames.max()}: divide by 255?")
    return (frames if frames.dtype == np.bool_ else frames > 0.5).reshape(*frames.shape[:-2], -1)


def _points(features: ArrayLike, targets: ArrayLike, part: str) -> tuple[Array, Array]:
    inputs, outputs = np.asarray(features, np.float64), np.asarray(targets, np.float64)
    if inputs.ndim < 2 or inputs.shape[:-1] != outputs.shape[:-1] or inputs.size == 0:
        raise ValueError(
            f"expected {part} features (.., feature) and targets (.., coordinate) of the same points, got "
            f"{inputs.shape} and {outputs.shape}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(outputs).all()):
        raise ValueError(f"expected finite {part} features and targets, got NaN or infinity: leave such points out")
    return inputs.reshape(-1, inputs.shape[-1]), outputs.reshape(-1, outputs.shape[-1])


def _mean_and_error(name: str, scores: Array) -> dict[str, Array]:
    count = len(scores)
    spread = scores.std(0, ddof=1) if count > 1 else np.full(scores.shape[1:], np.nan)
    return {name: scores.mean(0), f"{name}_se": spread / np.sqrt(count)}
