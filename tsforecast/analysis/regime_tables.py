"""Tables of regimes and of their changes, of series on a grid and of those with clocks of their own."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.core.regimes.changes import Change
from tsforecast.wording import option


def regimes_table(
    item: Any, stamps: Any, probabilities: NDArray[np.float64], likely: NDArray[np.int64]
) -> pd.DataFrame:
    """Return the rows of a series, see `tsforecast.analysis.regimes.RegimeReport`.

    Args:
        item: Identifier of the series.
        stamps: Time stamps of the steps.
        probabilities: Of regimes, (step, regime).
        likely: The most likely regime of each step, from 1 on.

    Raises:
        ValueError: If there are no two regimes.
    """
    refuse_one_regime(probabilities.shape[1])
    columns = {f"p_{k + 1}": column for k, column in enumerate(probabilities.T)}
    return pd.DataFrame({"item_id": item, "timestamp": stamps, **columns, "most_likely": likely})


def changes_table(item: Any, stamps: Any, found: list[Change]) -> pd.DataFrame:
    """Return the rows of the changes of a series.

    Args:
        item: Identifier of the series.
        stamps: Time stamps of the steps.
        found: The changes.
    """
    stamps = pd.Series(stamps)
    rows = [
        {
            "item_id": item,
            "timestamp": stamps.iloc[one.time],
            "before": one.before + 1,
            "after": one.after + 1,
            "lower": stamps.iloc[one.lower],
            "upper": stamps.iloc[one.upper],
            "expected": one.expected,
        }
        for one in found
    ]
    names = ("item_id", "timestamp", "before", "after", "lower", "upper", "expected")
    return pd.DataFrame(rows, columns=pd.Index(names))


def joined(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return one table; those without a row have no types, and are left out unless all are such."""
    return pd.concat([one for one in tables if len(one)] or tables[:1], ignore_index=True)


def refuse_one_regime(regimes: int) -> None:
    """Raises a ValueError where a model has no two regimes that can be told apart."""
    if regimes < 2:
        raise ValueError(
            f"expected a model with at least two regimes, got {regimes}: there is nothing to tell apart. A markov has "
            f"as many as its data show; {option('regimes', 2)} asks for two"
        )
