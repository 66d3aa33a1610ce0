"""Scores of video forecasts: exact transport between frames, agreement of pixels, what a latent state knows.

A frame is taken as a distribution over its pixels. The 1-Wasserstein distance between frames `a` and `b`, each divided
by its sum, is the least work that carries one into the other,

    W(a, b) = min_{T >= 0} sum_{ij} T_ij |x_i - x_j|,    sum_j T_ij = a_i,    sum_i T_ij = b_j,

with `|x_i - x_j|` the Euclidean distance between pixels. It is a distance in pixels: a body drawn five pixels off, in
whatever direction, costs 5, where pixel accuracy only sees that the two pictures differ. A forecast of several samples
scores the mean of the samples' distances from the true frame.

How bright a frame is as a whole does not count. An empty frame has no distribution: two empty frames are 0 apart, and
an empty one is a diagonal of the grid, the most that two frames can differ by, from any other.
"""

import multiprocessing
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.context import BaseContext
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from tqdm import tqdm

from tsforecast.evaluation.scores import Array

_ROUNDING = 1e-14  # differences of shares up to here are rounding: the smallest of 8-bit frames are far larger
_MAX_ITERATIONS = 10_000_000  # of the network simplex; its own default stops short on large grey frames
_AHEAD = 4  # sequences for each worker that wait for it


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
        samples: Frames between 0 and 1: an array (sequence, sample, time, height, width), or anything that gives
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
        for frames, target in _pairs(samples, truth):
            accuracy.append(pixel_accuracy(frames[None], target[None])[0])
            iou.append(intersection_over_union(frames[None], target[None])[0])
            yield frames

    wasserstein = wasserstein_table(pixels_counted(), truth, workers=workers, progress=progress)
    return FrameScores(wasserstein, np.stack(accuracy), np.stack(iou))


def wasserstein(a: ArrayLike, b: ArrayLike) -> float:
    """The exact 1-Wasserstein distance between two frames, in pixels.

    Args:
        a: Nonnegative numbers (height, width), of any scale.
        b: The same of the other frame.

    Raises:
        ValueError: If the frames differ in shape, hold a negative or non-finite number, or POT is not installed.
    """
    first, second = np.asarray(a), np.asarray(b)
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"expected two frames (height, width) of one shape, got {first.shape} and {second.shape}")
    _check_mass(first)
    _check_mass(second)
    return _distance(first.ravel(), second.ravel(), *first.shape)


def wasserstein_table(
    samples: Iterable[NDArray[Any]], truth: NDArray[Any], *, workers: int = 1, progress: str | None = None
) -> Array:
    """Wasserstein distances between forecasts and truth (sequence, time), means over samples.

    Samples of a step which are equal are computed once. Black-and-white frames go to the processes as bits; sequences
    are taken from `samples` only some way ahead of the work.

    The work grows fast with the number of pixels in which frames differ: against small white bodies, those grey
    or noisy over much of their area take up to a hundred times as long.

    Args:
        samples: Nonnegative numbers: an array (sequence, sample, time, height, width), or anything that gives
            (sample, time, height, width) for one sequence after the other.
        truth: (sequence, time, height, width).
        workers: Processes; 1 computes in this one. The table does not depend on it.
        progress: Label of a progress bar, shown where there is a terminal; without it there is none.

    Raises:
        ValueError: If shapes differ, a number is negative or not finite, or POT is not installed.
    """
    if workers < 1:
        raise ValueError(f"expected at least 1 worker, got {workers}")
    truth = np.asarray(truth)
    _transport_library()  # before the first forecast, which may take long
    tasks = ((_pack(frames), _pack(target)) for frames, target in _pairs(samples, truth))
    rows = tqdm(
        _map(tasks, min(workers, len(truth))),
        desc=progress,
        total=len(truth),
        unit="sequence",
        disable=None if progress else True,
        leave=False,
    )
    return np.stack(list(rows))


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


@dataclass(frozen=True)
class _Packed:
    """Frames on their way to another process.

    Attributes:
        values: Numbers (.., pixel), or eight pixels in a byte (.., byte).
        height: Of a frame.
        width: Of a frame.
        bits: Whether there are eight pixels in a byte.
    """

    values: NDArray[Any]
    height: int
    width: int
    bits: bool

    def frame(self, row: NDArray[Any]) -> NDArray[Any]:
        """The pixels of one row of `values`."""
        return np.unpackbits(row, count=self.height * self.width) if self.bits else row


def _pack(frames: NDArray[Any]) -> _Packed:
    _check_mass(frames)
    height, width = frames.shape[-2:]
    flat = frames.reshape(*frames.shape[:-2], height * width)
    white = flat != 0
    if (flat == white * flat.max(initial=0)).all():  # one value besides black: frames are scaled anyway
        return _Packed(np.packbits(white, axis=-1), height, width, bits=True)
    return _Packed(flat, height, width, bits=False)


def _map(tasks: Iterable[tuple[_Packed, _Packed]], workers: int) -> Iterator[Array]:
    """`_mean_distances` of every task in order, without taking all tasks at once as an executor's `map` does."""
    if workers < 2:
        yield from map(_mean_distances, tasks)
        return
    waiting = deque()
    with ProcessPoolExecutor(workers, mp_context=_processes()) as pool:
        for task in tasks:
            waiting.append(pool.submit(_mean_distances, task))
            if len(waiting) > _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _processes() -> BaseContext:
    # Not "fork": a process which has run torch's threads cannot be forked safely. A server forks from one import of
    # the libraries, which takes seconds, where spawned processes would each import them.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, "ot"])
    return context


def _mean_distances(task: tuple[_Packed, _Packed]) -> Array:
    """Distances (time,) of one sequence's samples (sample, time, ..) from its truth (time, ..)."""
    samples, truth = task
    means = np.empty(len(truth.values))
    for step, row in enumerate(truth.values):
        target = truth.frame(row)
        known: dict[bytes, float] = {}
        total = 0.0
        for sample in samples.values[:, step]:
            key = sample.tobytes()
            if key not in known:
                known[key] = _distance(samples.frame(sample), target, truth.height, truth.width)
            total += known[key]
        means[step] = total / len(samples.values)
    return means


def _distance(a: NDArray[Any], b: NDArray[Any], height: int, width: int) -> float:
    total_a, total_b = a.sum(dtype=np.float64), b.sum(dtype=np.float64)
    if total_a == 0 or total_b == 0:
        return 0.0 if total_a == total_b else float(np.hypot(height - 1, width - 1))
    # Mass that both frames have stays where it is in some best plan, because the cost is a metric: leaving it out
    # shrinks the problem and changes nothing. The solver crashes on the nothing that equal frames leave.
    surplus = a / total_a - b / total_b
    sources, sinks = np.flatnonzero(surplus > _ROUNDING), np.flatnonzero(surplus < -_ROUNDING)
    if not len(sources) or not len(sinks):
        return 0.0
    pixels = _pixels(height, width)
    cost, log = _transport_library().emd2(
        surplus[sources],
        -surplus[sinks],
        cdist(pixels[sources], pixels[sinks]),
        numItermax=_MAX_ITERATIONS,
        log=True,
        center_dual=False,
        check_marginals=False,
    )
    if log["warning"] is not None:
        raise RuntimeError(f"the transport between two frames has not been solved: {log['warning']}")
    return float(cost)


@lru_cache
def _pixels(height: int, width: int) -> Array:
    """Coordinates (pixel, 2)."""
    return np.stack(np.divmod(np.arange(height * width), width), axis=1).astype(np.float64)


@lru_cache
def _transport_library() -> Any:
    # Imported where needed: it comes with an extra, and takes seconds.
    try:
        import ot
    except ImportError as error:
        raise ValueError("Wasserstein distances need POT: `pip install tsforecast[video]`") from error
    return ot


def _pairs(samples: Iterable[NDArray[Any]], truth: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    if truth.ndim != 4 or 0 in truth.shape:
        raise ValueError(f"expected true frames (sequence, time, height, width), got shape {truth.shape}")
    count = 0
    for frames in samples:
        if count == len(truth):
            raise ValueError(f"expected forecasts of {count} sequences, as in the truth, but there are more")
        frames = np.asarray(frames)
        shape = truth.shape[1:]
        if frames.ndim != 4 or len(frames) == 0 or frames.shape[1:] != shape:
            sizes = ", ".join(map(str, shape))
            raise ValueError(f"expected forecasts (sample, {sizes}) of every sequence, got {frames.shape}")
        yield frames, truth[count]
        count += 1
    if count < len(truth):
        raise ValueError(f"expected forecasts of {len(truth)} sequences, as in the truth, but there are {count}")


def _check_mass(frames: NDArray[Any]) -> None:
    if frames.dtype.kind not in "bui" and not np.isfinite(frames).all():
        raise ValueError("expected frames of finite numbers, got NaN or infinity")
    if frames.size and frames.dtype.kind != "b" and frames.min() < 0:
        raise ValueError(f"expected frames of nonnegative numbers, got {frames.min()}")


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
    """White pixels (.., pixel)."""
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
