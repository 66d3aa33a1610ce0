"""Shapes of tables: dates across the top, and columns that only together tell series apart."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from tsforecast.data.tables.contents import looks_like_dates
from tsforecast.data.tables.dates import readings
from tsforecast.data.tables.roles import Columns

_LEAST_DATES = 3  # names of columns that are dates, from which on they are taken for time stamps
_MOST_REPEATED = 0.05  # share of rows that repeat a time stamp of their series by mistake, at most


def dates_across(sample: pd.DataFrame, columns: Columns) -> list[str]:
    """Names of the columns that are time stamps of a table with a row for each series; [] where it is no such table."""
    if columns.timestamp is not None or columns.target is not None:
        return []
    names = [name for name in map(str, sample.columns) if not name.startswith("Unnamed: ")]
    text = pd.Series(names, dtype=object).str.strip()
    # Short names such as those of stores are numbers, too: years have four digits.
    counts = [reading.stamps.where(text.str.len() >= 4) for reading in readings(text)]
    fits = max(counts, key=lambda stamps: int(stamps.notna().sum())).notna().tolist()
    number = sum(fits)
    left = names[: len(names) - number]
    if number < max(_LEAST_DATES, len(left) + 1) or not all(fits[len(left) :]):
        return []
    if any(looks_like_dates(sample[name], years=True) for name in left):
        return []  # a column of dates, beside series whose names look like years
    return names[len(left) :]


def tell_apart(frame: pd.DataFrame, stamps: list[str], item: list[str], others: Sequence[str]) -> list[str]:
    """The columns that together name the series, beside that found by its name; others have cells like those of items.

    Returns:
        `item`, unless most time stamps occur several times in its series, and no longer do so with some of the others;
        or each row has an item of its own, and time stamps do not occur several times.
    """
    numbers = bool(item) and len(frame) > 1 and not frame[item[0]].duplicated().any()  # perhaps of rows
    if _repeated(frame, stamps, [] if numbers else item) <= 0.5:
        return [] if numbers else item
    if not others:
        return item
    found, item = item, [] if numbers else item
    whole = [name for name in others if not (frame[name].isna() | (frame[name].astype(str).str.strip() == "")).any()]
    order = {str(name): place for place, name in enumerate(frame.columns)}
    for more in [*([name] for name in whole), whole]:
        names = sorted({*item, *more}, key=order.__getitem__)
        series = int((~frame[names].astype(str).duplicated()).sum()) if names else 1
        if 2 * series <= len(frame) and _repeated(frame, stamps, names) <= _MOST_REPEATED:
            return names
    return found


def _repeated(frame: Any, stamps: list[str], names: list[str]) -> float:
    """Share of rows that repeat a time stamp of their series."""
    return float(frame[[*names, *stamps]].astype(str).duplicated(keep=False).mean())
