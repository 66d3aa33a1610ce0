"""Covariates without a known future: further targets, forecast beside the others and not shown."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from gluonts.dataset.field_names import FieldName

from tsforecast.data.checks import as_numbers

PAST = FieldName.PAST_FEAT_DYNAMIC_REAL


def count_past(data: Iterable[dict[str, Any]]) -> int:
    """Return the number of past-only covariates, by the first entry."""
    first = next(iter(data), {})
    return len(np.atleast_2d(as_numbers(first[PAST]))) if first.get(PAST) is not None else 0


def with_past(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its past-only covariates, as long as the target, as further targets; others as they are."""
    if entry.get(PAST) is None:
        return entry
    target, past = (np.atleast_2d(as_numbers(entry[name]).astype(np.float64)) for name in (FieldName.TARGET, PAST))
    if past.shape[1] != target.shape[1]:
        raise ValueError(
            f"series {entry.get('item_id')!r}: expected {PAST} over the {target.shape[1]} steps of the target, got "
            f"{past.shape[1]}; a covariate that is known ahead goes into {FieldName.FEAT_DYNAMIC_REAL}"
        )
    found = {name: value for name, value in entry.items() if name != PAST}
    return {**found, FieldName.TARGET: np.concatenate([target, past])}
