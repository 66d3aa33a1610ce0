"""Prequential evaluation: every observation is predicted, scored, and then learnt from."""

import dataclasses
import math
import time
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from tsforecast.data.quantiles import INTERVALS
from tsforecast.learners.loop import in_prior_units
from tsforecast.learners.statistics import LARGEST
from tsforecast.online.config import Stream
from tsforecast.online.features import FeatureColumns, read_features, read_number
from tsforecast.online.progress import BINS, NUM_SUMS, Progress, Setup, start
from tsforecast.online.stream import Observation


def advance(setup: Setup, progress: Progress, item: Observation) -> tuple[Progress, dict[str, Any]]:
    """Predicts, scores and learns from one observation.

    Args:
        setup: Options of the evaluation.
        progress: Progress before the observation.
        item: The observation. A target that is missing is predicted all the same. If the observation has a key it then
            waits for its target. When that comes under the same key, it is scored by what was predicted, and learnt
            from. Without a key nothing is learnt from it.

    Returns:
        Progress after it, and a row of the table: `item`, `time`, `id`, `target`, `prediction`, `probability` of the
        predicted class or standard deviation `sd`, `log_loss` in nats, `error`, `milliseconds`.

    Raises:
        ValueError: If features or target are not as expected, or time falls; the message names the item.
    """
    began = time.perf_counter()  # reading the stream is not the learner's time
    try:
        after, row = _advance(setup, progress, item)
    except ValueError as error:
        place = f" ({item.place})" if item.place else ""
        raise ValueError(f"observation {progress.items}{place}: {error}") from error
    passed = time.perf_counter() - began
    after = dataclasses.replace(after, items=progress.items + 1, seconds=progress.seconds + passed)
    row = {"item": progress.items, "time": item.time, "id": item.key, **row}
    return after, {**row, "milliseconds": round(1e3 * passed, 3)}


def _advance(setup: Setup, progress: Progress, item: Observation) -> tuple[Progress, dict[str, Any]]:
    if item.key is not None and item.key in progress.waiting:
        return _settle(setup, progress, item)
    values = read_features(item.features)
    if item.key is not None and not values and item.target is not None:
        raise ValueError(f"expected the features of {item.key!r} before, or with, its target")
    columns = progress.columns
    if columns is None:
        # In reserve: to grow, a learner is made anew.
        columns = FeatureColumns({}, setup.features or max(8, 2 * len(values)))
    columns = columns.reserve(values)
    row = columns.row(values)
    stream = _pass_time(progress.stream or start(setup, columns), progress, item, 1.0 if progress.items else 0.0)
    stream = stream.grow(columns.capacity, stream.sizes[-1][1])
    progress = dataclasses.replace(_clock(progress, item), columns=columns, stream=stream)
    made = (_classes if setup.classes else _number)(progress, stream, row)
    if item.target is None and item.key is not None:
        progress = dataclasses.replace(progress, waiting={**progress.waiting, item.key: (row, made)})
    return (_classify if setup.classes else _regress)(setup, progress, stream, row, made, item)


def _settle(setup: Setup, progress: Progress, item: Observation) -> tuple[Progress, dict[str, Any]]:
    """Scores and learns from a target whose observation was predicted before; features are not read again."""
    if item.target is None or item.target != item.target:
        raise ValueError(f"expected a target of {item.key!r}, which was predicted before, got none")
    waiting = dict(progress.waiting)
    row, made = waiting.pop(item.key)
    assert progress.stream is not None
    assert progress.columns is not None
    # Columns may have come since.
    row = torch.nn.functional.pad(row, (0, progress.columns.capacity - row.shape[-1]), value=math.nan)
    stream = _pass_time(progress.stream, progress, item, 0.0)
    progress = dataclasses.replace(_clock(progress, item), stream=stream, waiting=waiting)
    return (_classify if setup.classes else _regress)(setup, progress, stream, row, made, item)


def _pass_time(stream: Stream, progress: Progress, item: Observation, step: float) -> Stream:
    """Return the stream after the drift since the observation before; `step` is the time where there is none."""
    if item.time is None:
        return stream.later(step)
    gap = item.time.timestamp() - progress.time
    if gap < 0:
        raise ValueError(f"expected time stamps that do not fall, got {item.time} after a later one")
    unit = progress.unit or gap  # the first gap is one step
    return stream.later(gap / unit) if gap > 0 else stream


def _clock(progress: Progress, item: Observation) -> Progress:
    """Return the progress with the time of the observation; the first gap is the unit where none is given."""
    if item.time is None:
        return progress
    now = item.time.timestamp()
    gap = now - progress.time
    return dataclasses.replace(progress, time=now, unit=progress.unit or (gap if gap > 0 else 0.0))


def _classes(progress: Progress, stream: Stream, row: Tensor) -> Tensor:
    """Return the probabilities of the classes that are known."""
    known = len(progress.labels.places)
    if not known:
        return torch.zeros(0)
    p = stream.probabilities(row)[0, :known]
    return p / p.sum()  # classes in reserve have outputs, too


def _number(progress: Progress, stream: Stream, row: Tensor) -> Tensor:
    """Return mean and standard deviation, in units of the target: two targets or more that are equal, and no spread.

    Nothing before the second target.
    """
    scale = progress.targets.deviation.item()
    if scale <= 0:
        mean = torch.stack([progress.targets.mean[0], progress.targets.variance[0]]).double()
        return mean if progress.targets.count.item() > 1 else torch.zeros(0)
    predicted = stream.predict(row, spread=True)
    mean = progress.targets.mean.item() + scale * predicted.mean.item()
    return torch.tensor([mean, scale * math.sqrt(predicted.variance.item())], dtype=torch.float64)


def _learn(
    setup: Setup, progress: Progress, stream: Stream, row: Tensor, target: Tensor
) -> tuple[Stream, tuple[tuple[Tensor, Tensor], ...]]:
    """Return the stream, which learns where a block is full, and what waits for the rest of its block."""
    pending = (*progress.pending, (row, target))  # a tuple: the progress before must not change
    if len(pending) < setup.block:
        return stream, pending
    width = stream.sizes[-1][0]  # columns may have come since
    rows = [torch.nn.functional.pad(x, (0, width - x.shape[-1]), value=math.nan) for x, _ in pending]
    return stream.learn(torch.cat(rows), torch.cat([y for _, y in pending]), 0.0), ()


def _classify(
    setup: Setup, progress: Progress, stream: Stream, row: Tensor, made: Tensor, item: Observation
) -> tuple[Progress, dict[str, Any]]:
    """Scores what was predicted of a class, and learns from it."""
    labels, sums, bins, scored = progress.labels, progress.sums, progress.bins, progress.scored
    found: dict[str, Any] = {"target": item.target}
    best = int(made.argmax()) if len(made) else 0
    if len(made):
        found |= {"prediction": list(labels.places)[best], "probability": made[best].item()}
    if item.target is None:
        return progress, found
    if not isinstance(item.target, Hashable):
        raise ValueError(f"expected a class, got {item.target!r} of type {type(item.target).__name__}")
    place = labels.places.get(item.target, len(made))
    if place < len(made):  # a class that nobody has seen cannot be predicted
        wrong = float(best != place)
        loss = abs(math.log(max(made[place].item(), 1e-12)))  # one sure error must not make the mean infinite
        found |= {"log_loss": loss, "error": wrong}
        sums = sums + sums.new_tensor([loss, wrong] + [0.0] * (NUM_SUMS - 2))
        bins = bins.clone()
        # A probability of 1 is in the last bin.
        bins[min(int(made[best] * BINS), BINS - 1)] += bins.new_tensor([1.0, made[best].item(), 1 - wrong])
        scored += 1
    after = labels.reserve([item.target])
    if after is not labels:
        stream = stream.grow(stream.sizes[-1][0], after.capacity).with_outputs(len(after.places))
    target = row.new_tensor([[after.places[item.target]]])
    stream, pending = _learn(setup, progress, stream, row, target)
    progress = dataclasses.replace(progress, stream=stream, labels=after, pending=pending)
    return dataclasses.replace(progress, sums=sums, bins=bins, scored=scored), found


def _regress(
    setup: Setup, progress: Progress, stream: Stream, row: Tensor, made: Tensor, item: Observation
) -> tuple[Progress, dict[str, Any]]:
    """Scores what was predicted of a number, and learns from it."""
    targets, sums, scored = progress.targets, progress.sums, progress.scored
    found: dict[str, Any] = {"target": item.target}
    if isinstance(item.target, str):
        raise ValueError(f"expected a number for the target, got the text {item.target!r}; labels need --task classes")
    value = math.nan if item.target is None else read_number("the target", item.target)
    value = min(max(value, -LARGEST), LARGEST) if value == value else value
    if len(made):
        mean, sd = made.tolist()
        found |= {"prediction": mean, "sd": sd}
        if value == value:
            loss, within = 0.0, [0.0] * len(INTERVALS)
            if sd > 0:
                z = (value - mean) / sd
                # One wild value must not make the mean infinite.
                loss = min(0.5 * z * z, LARGEST) + math.log(sd) + 0.5 * math.log(2 * math.pi)
                share = 100 * math.erf(abs(z) / math.sqrt(2))
                within = [float(share <= w) for w in INTERVALS]
                found["log_loss"] = loss
            found["error"] = value - mean
            # Predictions without a spread have no log-loss.
            sums = sums + sums.new_tensor([loss, (value - mean) ** 2, *within, float(sd <= 0)])
            scored += 1
    if value == value:
        targets, scaled = targets.standardise(row.new_tensor([value]))
        stream, pending = _learn(setup, progress, stream, row, scaled.unsqueeze(0))
        progress = dataclasses.replace(progress, pending=pending)
    return dataclasses.replace(progress, stream=stream, targets=targets, sums=sums, scored=scored), found


def scores(setup: Setup, progress: Progress) -> dict[str, Any]:
    """Return the means over what was scored; None where nothing was."""
    count = progress.scored
    spread = count - int(progress.sums[-1])  # those with a distribution
    mean = (progress.sums / max(spread, 1)).tolist()
    found: dict[str, Any] = {"items": progress.items, "scored": count, "waiting": len(progress.waiting)}
    found["log_loss"] = mean[0] if spread else None
    if setup.classes:
        found["accuracy"] = 1 - mean[1] if count else None
        total, confidence, right = progress.bins.unbind(-1)
        gap = (confidence - right).abs().sum() / total.sum().clamp_min(1)
        found["calibration_error"] = gap.item() if count else None
        rows = [(n, c / n, r / n) for n, c, r in progress.bins.tolist() if n]
        found["calibration"] = [{"expected": c, "observed": r, "count": int(n)} for n, c, r in rows]
        found["classes"] = [str(label) for label in progress.labels.places]
    else:
        found["rmse"] = math.sqrt(progress.sums[1].item() / count) if count else None
        found["coverage"] = {str(w): mean[2 + k] if spread else None for k, w in enumerate(INTERVALS)}
        rows = zip(INTERVALS, mean[2:-1], strict=True) if spread else ()
        found["calibration"] = [{"expected": w / 100, "observed": share, "count": spread} for w, share in rows]
    found["milliseconds_per_item"] = 1e3 * progress.seconds / max(progress.items, 1)
    return found


def movement(progress: Progress) -> dict[str, float]:
    """Return how far the weights have moved, and how sure the belief is, in prior standard deviations."""
    if progress.stream is None:
        return {}
    change, spread = in_prior_units(progress.stream.learner, progress.stream.belief)
    return {"weights_moved": change.square().mean().sqrt().item(), "weights_sd": spread.mean().item()}
