"""Exact transport between frames.

A frame is taken as a distribution over its pixels. The 1-Wasserstein distance between frames `a` and `b`, each divided
by its sum, is the least work that carries one into the other,

    W(a, b) = min_{T >= 0} sum_{ij} T_ij |x_i - x_j|,    sum_j T_ij = a_i,    sum_i T_ij = b_j,

with `|x_i - x_j|` the Euclidean distance between pixels. It is a distance in pixels: a body drawn five pixels off, in
whatever direction, costs 5, where pixel accuracy only sees that the two pictures differ.

How bright a frame is as a whole does not count. An empty frame has no distribution: two empty frames are 0 apart. From
any other frame it is a diagonal of the grid, the most that two frames can differ by.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from tqdm import tqdm

from tsforecast.evaluation.metrics import Array
from tsforecast.processes import imported_once
from tsforecast.progress import is_watched

_ROUNDING = 1e-14  # differences of shares up to here are rounding: the smallest of 8-bit frames are far larger
_MAX_ITERATIONS = 10_000_000  # of the network simplex; its own default stops short on large grey frames
_AHEAD = 4  # sequences for each worker that wait for it


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
    tasks = ((_pack(frames), _pack(target)) for frames, target in pairs(samples, truth))
    rows = tqdm(
        _map(tasks, min(workers, len(truth))),
        desc=progress,
        total=len(truth),
        unit="sequence",
        disable=not (progress and is_watched()),
        leave=False,
    )
    return np.stack(list(rows))


def pairs(samples: Iterable[NDArray[Any]], truth: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Forecast (sample, time, height, width) and truth of one sequence after the other, checked."""
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
    with ProcessPoolExecutor(workers, mp_context=imported_once(__name__, "ot")) as pool:
        for task in tasks:
            waiting.append(pool.submit(_mean_distances, task))
            if len(waiting) > _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
    """Return the coordinates of the pixels, shape (pixel, 2)."""
    return np.stack(np.divmod(np.arange(height * width), width), axis=1).astype(np.float64)


@lru_cache
def _transport_library() -> Any:
    # Imported where needed: it comes with an extra, and takes seconds.
    try:
        import ot
    except ImportError as error:
        raise ValueError("Wasserstein distances need POT: `pip install tsforecast[video]`") from error
    return ot


def _check_mass(frames: NDArray[Any]) -> None:
    if frames.dtype.kind not in "bui" and not np.isfinite(frames).all():
        raise ValueError("expected frames of finite numbers, got NaN or infinity")
    if frames.size and frames.dtype.kind != "b" and frames.min() < 0:
        raise ValueError(f"expected frames of nonnegative numbers, got {frames.min()}")
