"""The progress of a stream in one file, from which the stream goes on."""

import dataclasses
import itertools
import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.learners.statistics import Statistics
from tsforecast.online.config import Stream
from tsforecast.online.features import FeatureColumns
from tsforecast.online.noise import Noise
from tsforecast.online.progress import Progress, Setup, begin, start

FORMAT = 3  # of saved states; it is raised when older ones can no longer be read


def save(path: Path, progress: Progress, extra: dict[str, Any]) -> None:
    """Writes the state into one file; an older one is replaced when all is written."""
    stream, columns = progress.stream, progress.columns
    payload = {"format": FORMAT, "extra": extra}
    for name in ("items", "scored", "seconds", "time", "unit", "sums", "bins"):
        payload[name] = getattr(progress, name)
    payload["labels"], payload["classes"] = dict(progress.labels.places), progress.labels.capacity
    payload["targets"] = _tensors(progress.targets)
    payload["waiting"] = progress.waiting
    payload["pending"] = [list(pair) for pair in progress.pending]
    if stream is not None and columns is not None:
        payload["columns"] = (dict(columns.places), columns.capacity)
        payload["belief"] = pytree.tree_leaves(stream.belief)
        payload["statistics"] = _tensors(stream.statistics)
        payload["steps"] = stream.steps
        payload["noise"] = None if stream.noise is None else [stream.noise.variance, stream.noise.count]
        payload["sizes"] = [list(size) for size in stream.sizes]
    save_tensors(payload, path)


def _tensors(statistics: Statistics) -> list[Tensor]:
    return [getattr(statistics, field.name) for field in dataclasses.fields(statistics)]


def load(path: Path, setup: Setup) -> tuple[Progress, dict[str, Any]]:
    """Reads what `save` wrote, and the extra; no code of the file is run.

    Raises:
        ValueError: If the file is damaged, or of another program or format.
    """
    try:
        payload = load_tensors(path)
        if payload["format"] != FORMAT:
            raise ValueError(f"it has format {payload['format']}, this version of tsforecast reads {FORMAT}")
        begun = begin(setup)
        plain = {n: payload[n] for n in ("items", "scored", "seconds", "time", "unit", "sums", "bins")}
        if len(plain["sums"]) == len(begun.sums) - 1:  # of a state from before predictions without a spread
            plain["sums"] = torch.cat([plain["sums"], begun.sums[-1:]])
        expect_like(plain, {name: getattr(begun, name) for name in plain}, "its counts")
        expect_like(payload["classes"], 0, "number of classes")
        labels = FeatureColumns(_places(payload["labels"]), payload["classes"])
        expect_like(payload["targets"], _tensors(begun.targets), "statistics of targets")
        stream = columns = None
        if "belief" in payload:
            places, capacity = payload["columns"]
            columns = FeatureColumns(_places(places), capacity)
            expect_like(payload["statistics"], _tensors(Statistics.empty(len(payload["statistics"][0]))), "statistics")
            if capacity != len(payload["statistics"][0]):
                raise ValueError(f"expected statistics of {capacity} columns")
            # A belief says nothing of the network that it belongs to.
            stream = _grown(setup, columns, labels, payload["sizes"])
            leaves, spec = pytree.tree_flatten(stream.belief)
            # A file may hold anything: shapes and types are those of the learner.
            expect_like(payload["belief"], leaves, "belief")
            if setup.classes and labels.places:
                stream = stream.with_outputs(len(labels.places))
            stream = dataclasses.replace(
                stream,
                belief=pytree.tree_unflatten(payload["belief"], spec),
                statistics=Statistics(*payload["statistics"]),
                steps=payload["steps"],
                noise=_noise(payload.get("noise"), stream),
            )
        waiting = payload["waiting"]
        shapes = [] if stream is None else [(1, inputs) for inputs, _ in stream.sizes]
        for row, made in waiting.values():
            if row.shape not in shapes or made.dim() != 1:
                raise ValueError("expected a row of features, and what was predicted, of all that waits")
        pending = tuple((row, target) for row, target in payload.get("pending", ()))
        widths = {inputs for _, inputs in shapes}
        for row, target in pending:
            if row.dim() != 2 or row.shape[0] != 1 or row.shape[1] not in widths or target.shape != (1, 1):
                raise ValueError("expected a row of features, and a target, of all that a block waits with")
        if len(pending) >= setup.block:
            raise ValueError(f"expected fewer than {setup.block} observations that wait for their block")
        targets = Statistics(*payload["targets"])
        kept = {"targets": targets, "waiting": waiting, "pending": pending, **plain}
        return Progress(stream=stream, columns=columns, labels=labels, **kept), dict(payload["extra"])
    except (KeyError, TypeError, AttributeError, RuntimeError, ArithmeticError, IndexError, ValueError) as error:
        raise ValueError(f"{path} holds no readable state ({error}); start the stream anew") from error


def _grown(setup: Setup, columns: FeatureColumns, labels: FeatureColumns, sizes: Any) -> Stream:
    """Return the learner before any observation, with a network that has grown since.

    Raises:
        ValueError: If it cannot have grown so.
    """
    expect_like(sizes, [[0, 0]] * len(sizes), "sizes of the network")
    fits = sizes[0] == [setup.features or sizes[0][0], max(setup.classes, 1)]
    fits = fits and sizes[-1] == [columns.capacity, max(labels.capacity, 1)]
    for before, after in itertools.pairwise(sizes):
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        # Sizes only ever double, so a file cannot ask for a network without end.
        fits = fits and min(ratios) >= 1 and max(ratios) >= 2
    for (places, capacity), first in zip(map(dataclasses.astuple, (columns, labels)), sizes[0], strict=True):
        fits = fits and len(places) <= capacity <= max(first, 2 * len(places))
    if not fits:
        raise ValueError(f"expected sizes of a network that has grown, got {sizes!r:.80}")
    stream = start(setup, FeatureColumns({}, sizes[0][0]))
    for size in sizes[1:]:
        stream = stream.grow(*size)
    return stream


def _noise(saved: Any, begun: Stream) -> Noise | None:
    """Return the noise that was learnt; that of the beginning of a state from before it was.

    Raises:
        ValueError: If it is none.
    """
    if saved is None or begun.noise is None:
        return begun.noise
    expect_like(saved, [0.0, 0.0], "noise")
    if not all(0 < number < math.inf for number in saved):
        raise ValueError(f"expected a positive noise, got {saved!r:.80}")
    return Noise(*saved)


def _places(places: Any) -> Mapping[Hashable, int]:
    """Return columns of names, each of its own.

    Raises:
        ValueError: If they are not.
    """
    if not isinstance(places, dict) or sorted(places.values()) != [*range(len(places))]:
        raise ValueError(f"expected a column for each name, got {places!r:.80}")
    return places
