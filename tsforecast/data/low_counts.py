"""Low counts: whole numbers that are often 0, 1 or 2."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LOW = 10.0  # mean, below which whole numbers are low counts
_LEAST = 10  # values; fewer do not show whether counts are low


def are_low(values: NDArray[Any]) -> bool:
    """Return whether values, (..., time) with NaN where missing, are whole numbers from 0 on with a mean below 10."""
    seen = values[np.isfinite(values)]
    return len(seen) >= _LEAST and bool((seen >= 0).all() and (seen % 1 == 0).all() and seen.mean() < _LOW)


def are_mostly_low(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether most series are low counts."""
    return 2 * sum(are_low(entry["target"]) for entry in entries) > len(entries)
