"""Roles that users leave open, by the names and cells of columns."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsforecast.data.tables.contents import all_match, all_numbers, looks_like_dates, looks_like_names, numbered
from tsforecast.data.tables.roles import Columns, column_option
from tsforecast.wording import listed, option, plain, suggestion

log = logging.getLogger(__name__)

# Names under which a column is found without being told, in order of preference; case and marks do not matter.
ITEM_NAMES = (
    "item_id", "unique_id", "series_id", "item", "series", "ts_id", "sku", "sku_id", "product_id", "product",
    "article", "store_id", "store", "store_nbr", "shop_id", "shop", "station", "sensor", "meter", "household",
    "symbol", "ticker", "customer", "client", "dept", "department", "family", "category", "location", "city", "state",
    "region", "country", "id",
)  # fmt: skip
TIMESTAMP_NAMES = ("timestamp", "date", "datetime", "date_time", "time", "ds", "time_stamp", "period", "index")
# These are time stamps where their cells look so: `month` is also what a number from 1 to 12 is called.
_UNIT_NAMES = ("hour", "day", "week", "month", "quarter", "year")
_HOUR_NAMES = ("hour", "hr", "he", "hour_ending", "hour_of_day", "time")  # beside a column of dates
TARGET_NAMES = (
    "target", "value", "y", "sales", "qty", "quantity", "demand", "units", "unit_sales", "units_sold", "num_sold",
    "amount", "count", "close", "volume", "consumption", "load", "revenue", "orders", "values",
)  # fmt: skip

_MOST_LOOKED_AT = 1000  # columns whose cells are looked at for dates and names of series
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}.*)?(?:\s*[AaPp][Mm])?"


def resolve(path: Path, sample: pd.DataFrame, columns: Columns) -> tuple[Columns, list[str]]:
    """Fills in the roles that were left open.

    Args:
        path: Where the table comes from, for messages.
        sample: The first rows of the table, as text or as values.
        columns: What the user has said; names need not have the letter case of the table.

    Returns:
        The columns with their names as in the table; `item` is None for a single series. And the columns without a role
        that may name the series together with the item that was found, or alone.
    """
    names = [str(name) for name in sample.columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; rename one of them")
    columns = _as_written(path, names, columns)
    given = [*columns.items, *columns.stamps, *columns.numbers, *columns.static_categories]
    if twice := [name for name, count in Counter(given).items() if count > 1]:
        raise ValueError(f"{path}: a column has two roles, {twice[0]!r}; expected each column once, got {given}")
    known = {*given}
    free = [name for name in names if name not in known]
    stamps = columns.stamps or _find_timestamps(sample, free, columns)
    if columns.wide:
        return _resolve_wide(path, names, columns, stamps), []
    items = [] if columns.item else [name for name in _find_all(free, ITEM_NAMES) if name not in stamps]
    # An index that was written without a name.
    rest = [name for name in free if name not in stamps and not name.startswith("Unnamed: ")]
    rest = [name for name in rest if name not in items[:1]]
    # The only name of several words that ends with one of these: `Weekly_Sales`.
    ending = [name for name in rest if plain(re.split(r"[\W_]+", name.strip())[-1]) in TARGET_NAMES]
    ending = ending if len(ending) == 1 else [None]
    target: Any = columns.target or _find(rest, TARGET_NAMES) or ending[0]
    others = [name for name in items[1:] if name != target]
    if not columns.item:
        known = {*others, target} if isinstance(target, str) else {*others}
        others += _names_among(path, sample, [name for name in rest if name not in known])
    known = {*others}
    left = [name for name in rest if name not in known]
    if not target and len(left) == 1:
        target = left[0]
    if not stamps:
        raise ValueError(_no_timestamp(path, names))
    if not target and not (columns.item or items or others) and numbered(left) and all_numbers(sample[left]):
        return _resolve_wide(path, names, replace(columns, wide=True, target=left), stamps), []
    if not target:
        raise ValueError(_no_target(path, sample, names, left, columns.items or items))
    stamp = stamps[0] if len(stamps) == 1 else stamps
    item = columns.item or (items[0] if items else None)
    return replace(columns, item=item, timestamp=stamp, target=target), others


def _names_among(path: Path, sample: pd.DataFrame, names: list[str]) -> list[str]:
    """The columns with cells like names of series, among the first ones where there are very many."""
    if len(names) > _MOST_LOOKED_AT:
        told = path, len(names), _MOST_LOOKED_AT, column_option("item", "NAME")
        log.info("%s: of %d columns the first %d are looked at for names of series; %s names others", *told)
    return [name for name in names[:_MOST_LOOKED_AT] if looks_like_names(sample[name])]


def _as_written(path: Path, names: list[str], columns: Columns) -> Columns:
    """The names that were given, as they are written in the table."""

    def actual(name: str) -> str:
        same = [other for other in names if other == name] or [other for other in names if plain(other) == plain(name)]
        if len(same) != 1:
            near = suggestion(name, names)
            near = f"{near} The" if near else "the"
            raise ValueError(f"{path}: there is no column {name!r}; {near} columns are {listed(names)}")
        return same[0]

    item = None if columns.item is None else [actual(name) for name in columns.items]
    target = [actual(name) for name in columns.targets]
    stamps = [actual(name) for name in columns.stamps]
    return replace(
        columns,
        item=item[0] if isinstance(columns.item, str) and item else item,
        timestamp=stamps[0] if isinstance(columns.timestamp, str) else stamps or None,
        target=target[0] if isinstance(columns.target, str) and target else target or None,
        covariates=[actual(name) for name in columns.covariates],
        past_covariates=[actual(name) for name in columns.past_covariates],
        static_categories=[actual(name) for name in columns.static_categories],
        static_reals=[actual(name) for name in columns.static_reals],
    )


def _find(names: list[str], candidates: Sequence[str]) -> str | None:
    """The first candidate that is among the names, as it is written there."""
    return next(iter(_find_all(names, candidates)), None)


def _find_all(names: list[str], candidates: Sequence[str]) -> list[str]:
    """The candidates that are among the names, in their order of preference."""
    by_plain = {plain(name): name for name in reversed(names)}
    return list(dict.fromkeys(by_plain[plain(name)] for name in candidates if plain(name) in by_plain))


def _find_timestamps(sample: pd.DataFrame, names: list[str], columns: Columns) -> list[str]:
    """Among the names that are left, by name or else by content."""
    units = [name for name in (_find(names, [unit]) for unit in _UNIT_NAMES) if name is not None]
    named = _find(names, TIMESTAMP_NAMES)
    clock = next((name for name in (_find(names, ["time"]), _find(names, ["hour"])) if name not in (None, named)), None)
    if (
        named is not None
        and clock is not None
        and all_match(sample[clock], _CLOCK)
        and all_match(sample[named], r"[^:]*")
    ):
        return [named, clock]
    if named is not None and (hour := _hours_beside(sample, named, names)) is not None:
        return [named, hour]
    by_name = named or next(
        (name for name in units if columns.timestamp_format or looks_like_dates(sample[name], years=True)), None
    )
    if by_name is not None and plain(by_name) == "year":
        parts = [_find(names, [unit]) for unit in ("month", "day", "hour")]
        last = next((number for number, part in enumerate(parts) if part is None), len(parts))
        return [by_name, *(str(part) for part in parts[:last])]
    if by_name is not None:
        return [by_name]
    dates = [name for name in names[:_MOST_LOOKED_AT] if looks_like_dates(sample[name])]
    if dates and (len(dates) == 1 or dates[0] == names[0]):
        return [dates[0]]
    return units[:1]


def _hours_beside(sample: pd.DataFrame, dates: str, names: list[str]) -> str | None:
    """A column of hours of the day beside dates, one more from row to row; None where there is none."""
    hour = _find([name for name in names if name != dates], _HOUR_NAMES)
    if hour is None or not all_match(sample[dates], r"[^:]*|.* 00:00(:00)?"):
        return None
    hours: Any = pd.to_numeric(sample[hour], errors="coerce")
    steps = np.diff(hours)
    counted = np.isin(hours, range(25)).all() and np.isin(steps, (0, 1, -23)).all()
    return hour if counted and (steps == 1).any() else None


def _resolve_wide(path: Path, names: list[str], columns: Columns, stamps: list[str]) -> Columns:
    """Time stamps, and one series in each of the other columns."""
    for role in ("item", "covariates", "past_covariates", "static_categories", "static_reals"):
        if getattr(columns, role):
            raise ValueError(
                f"{path}: {option(role)} does not go with {option('wide')}: a wide table has time stamps and "
                "one column for each series; write it in long form, with a row for each series and time stamp"
            )
    stamps = stamps or names[:1]
    series = columns.targets or [name for name in names if name not in stamps and not name.startswith("Unnamed: ")]
    if not series:
        raise ValueError(f"{path}: expected time stamps and one column for each series, got {listed(names)}")
    return replace(columns, item=None, timestamp=stamps[0] if len(stamps) == 1 else stamps, target=series)


def _no_target(path: Path, sample: pd.DataFrame, names: list[str], rest: list[str], item: list[str]) -> str:
    """The message where no target is found: perhaps the table is wide."""
    name_it = column_option("target", "NAME")
    if not item and len(rest) > 1 and all_numbers(sample[rest]):
        wide = column_option("wide", True)
        return (
            f"{path}: no column looks like a target. If each of the {len(rest)} columns {listed(rest)} is a series of "
            f"its own, give {wide}; if one of them is the target, name it by {name_it}"
        )
    return f"{path}: no column looks like a target; name it by {name_it}, the columns are {listed(names)}"


def _no_timestamp(path: Path, names: list[str]) -> str:
    """The message where no time stamps are found: perhaps the names of columns are numbers of steps."""
    if numbered(names[-3:]):
        return (
            f"{path}: no column looks like time stamps. If columns such as {names[-2]!r} and {names[-1]!r} are steps "
            "of a series in each row, write dates as their names; or write a row for each series and time stamp"
        )
    return (
        f"{path}: no column looks like time stamps; name it by {column_option('timestamp', 'NAME')}, or add one, the "
        f"columns are {listed(names)}"
    )


def description(names: list[str], columns: Columns, dates: int = 0) -> str:
    """A sentence on the form of a table, for its readers to check."""
    together = lambda columns: " and ".join(map(repr, columns))  # noqa: E731
    if columns.wide:
        kind, parts = "wide table", [f"{len(columns.targets)} series ({listed(columns.targets, 5)})"]
    else:
        kind = "table with a row for each series" if dates else "long table" if columns.items else "one series"
        parts = [f"item {together(columns.items)}"] if columns.items else []
    if dates:
        parts.append(f"time in the names of {dates} columns")
    else:
        parts.append(f"time {together(columns.stamps)}")
        parts += [] if columns.wide else [f"target {listed(columns.targets, 5)}"]
    for role in ("covariates", "past_covariates", "static_categories", "static_reals"):
        if found := list(getattr(columns, role)):
            parts.append(f"{role.replace('_', ' ')} {listed(found, 5)}")
    used = {*columns.items, *columns.stamps, *columns.numbers, *columns.static_categories}
    unused = [name for name in names if name not in used and not name.startswith("Unnamed: ")]
    return f"{kind}: " + ", ".join(parts) + (f"; columns not used: {listed(unused)}" if unused else "")
