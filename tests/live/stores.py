"""Stores of small models, and what tests ask of them."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tests.forecasting.test_estimator import make_entries, make_estimator
from tsforecast.forecasting.predictor import StateSpacePredictor, save_predictor
from tsforecast.live.beginning import Source, begin_store
from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.rules import Observations

FIRST = 30  # steps of a history with which a store begins


@cache
def trained(model: str) -> StateSpacePredictor:
    options = {} if model in ("bank", "pool") else {"scaling": "series"}
    return make_estimator(model, epochs=1, **options).train(make_entries())


def begun(entries, length=FIRST):
    return [{**entry, "target": entry["target"][:length]} for entry in entries]


def make_store(folder: Path, model="issm", entries=None, parts=1, **options) -> Path:
    predictor = folder / f"predictor-{model}"
    if not predictor.exists():
        save_predictor(trained(model), predictor)
    entries = begun(make_entries()) if entries is None else entries
    chunks = [list(part) for part in np.array_split(np.array(entries, dtype=object), parts)]
    sources = [Source(f"part {k}", lambda chunk=chunk: chunk) for k, chunk in enumerate(chunks)]
    path = folder / "store"
    begin_store(path, predictor, sources, device="cpu", **options)
    return path


def observations(items, ordinals, values, sequences=None, covariates=None) -> Observations:
    return Observations(
        list(items),
        np.array(ordinals, np.int64),
        np.full(len(items), NO_SEQUENCE) if sequences is None else np.array(sequences, np.int64),
        np.array(values, np.float64).reshape(len(items), -1),
        np.zeros((len(items), 0)) if covariates is None else np.array(covariates, np.float64),
    )


def steps_of(entries, first, last) -> Observations:
    """Observations of a span of entries, period by period as they would arrive."""
    found = [
        (entry["item_id"], entry["start"].ordinal + k, entry["target"][k])
        for k in range(first, last)
        for entry in entries
        if k < len(entry["target"])
    ]
    return observations(*zip(*found, strict=True))


def same_rows(some: Rows, others: Rows) -> None:
    """Asserts that all is the same, to the bit."""
    assert some.names == others.names
    assert some.index == others.index
    count = len(some)
    for a, b in zip(some.parts, others.parts, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a[:count], b[:count])
    for name in ("end", "sequence", "exponents", "recent", "seen", "memory"):
        np.testing.assert_array_equal(getattr(some, name)[:count], getattr(others, name)[:count])
    assert some.young.keys() == others.young.keys()
    for row, history in some.young.items():
        np.testing.assert_array_equal(history, others.young[row])


def day(text: str) -> int:
    return pd.Period(text, "D").ordinal
