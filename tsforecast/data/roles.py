"""Which column of a table is what: as the user says, or found by names and content."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tsforecast.data.wording import listed, option, plain, suggestion

log = logging.getLogger(__name__)

# Names under which a column is found without being told, in order of preference; case and marks do not matter.
ITEM_NAMES = (
    "item_id", "unique_id", "series_id", "item", "series", "ts_id", "sku", "sku_id", "product_id", "product",
    "article", "store_id", "store", "store_nbr", "shop_id", "shop", "station", "sensor", "meter", "household",
    "symbol", "ticker", "id",
)  # fmt: skip
TIMESTAMP_NAMES = ("timestamp", "date", "datetime", "date_time", "time", "ds", "time_stamp", "period", "index")
# These are time stamps where their cells look so: `month` is also what a number from 1 to 12 is called.
_UNIT_NAMES = ("hour", "day", "week", "month", "quarter", "year")
TARGET_NAMES = (
    "target", "value", "y", "sales", "qty", "quantity", "demand", "units", "unit_sales", "units_sold", "num_sold",
    "amount", "count", "volume", "consumption", "load", "revenue", "orders", "values",
)  # fmt: skip

MISSING = [
    "", "NA", "N/A", "n/a", "n.a.", "#N/A", "NaN", "nan", "null", "NULL", "None", "NaT", "?", "-", "--", ".", "..",
    "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!",
]  # fmt: skip

# Roles of the columns of a wide table once it is in long form; no header of a file is called so.
WIDE_ITEM, WIDE_TARGET = "(series)", "(value)"

_NUMBER = r"\s*[+-]?\d[\d.,' \u00a0\u202f]*\s*"  # with whatever signs
_DATE = r"\s*(?:\d{4}[-/.]\d{1,2}(?:[-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})(?:[T ].*)?\s*"


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are. Columns that are not named here are ignored; letter case does not matter.

    Attributes:
        item: Name of the series, or several columns that name it together (joined by "/"). None: one of `ITEM_NAMES`,
            or the whole table is one series.
        timestamp: None: one of `TIMESTAMP_NAMES`, a unit of time (`Month`), or a first column of dates.
        target: One column, or several for a vector at each step. None: one of `TARGET_NAMES`, or the only column left.
        covariates: Numbers known ahead of time (prices, holidays), which become `feat_dynamic_real`.
        static_categories: Text or numbers constant within a series, which become codes in `feat_static_cat`.
        static_reals: Numbers constant within a series, which become `feat_static_real`.
        timestamp_format: As `strptime` takes it, e.g. "%d/%m/%Y"; None: ISO 8601 or whatever is unambiguous.
        decimal: Decimal sign of numbers that are text; None: a point, or a comma where cells can not be read otherwise.
        wide: The table has one column for each series, named in its header: all but the time stamps, or those of
            `target`.
    """

    item: str | Sequence[str] | None = None
    timestamp: str | None = None
    target: str | Sequence[str] | None = None
    covariates: Sequence[str] = ()
    static_categories: Sequence[str] = ()
    static_reals: Sequence[str] = ()
    timestamp_format: str | None = None
    decimal: str | None = None
    wide: bool = False

    @property
    def items(self) -> list[str]:
        """The item columns as a list."""
        return [self.item] if isinstance(self.item, str) else list(self.item or ())

    @property
    def targets(self) -> list[str]:
        """The target columns as a list."""
        return [self.target] if isinstance(self.target, str) else list(self.target or ())

    @property
    def numbers(self) -> list[str]:
        """All columns that hold numbers."""
        return [*self.targets, *self.covariates, *self.static_reals]


def column_option(name: str, value: str | bool | Sequence[str] | None = None) -> str:
    """How the reader of a message gives an option of `Columns`."""
    return option(name, value, "columns=Columns")


def resolve(path: Path, sample: pd.DataFrame, columns: Columns) -> Columns:
    """Fills in the roles that were left open, and logs what was found.

    Args:
        path: Where the table comes from, for messages.
        sample: The first rows of the table, as text or as values.
        columns: What the user has said; names need not have the letter case of the table.

    Returns:
        The columns with their names as in the table; `item` is None for a single series.

    Raises:
        ValueError: If a column is not there, has two roles, or time stamps or target are not found.
    """
    names = [str(name) for name in sample.columns]
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"{path}: two columns are called {twice[0]!r}; rename one of them")
    columns = _as_written(path, names, columns)
    given = [*columns.items, *filter(None, [columns.timestamp]), *columns.numbers, *columns.static_categories]
    if len(set(given)) < len(given):
        raise ValueError(f"{path}: a column has two roles; expected each column once, got {given}")
    free = [name for name in names if name not in given]
    timestamp = columns.timestamp or _find_timestamp(sample, free, columns)
    if columns.wide:
        return _resolve_wide(path, names, columns, timestamp)
    item = columns.items or [name for name in [_find(free, ITEM_NAMES)] if name is not None and name != timestamp]
    # An index that was written without a name.
    rest = [name for name in free if name not in (*item, timestamp) and not name.startswith("Unnamed: ")]
    target = columns.target or _find(rest, TARGET_NAMES) or (rest[0] if len(rest) == 1 else None)
    if not timestamp:
        raise ValueError(
            f"{path}: no column looks like time stamps; name it by {column_option('timestamp', 'NAME')}, the columns "
            f"are {listed(names)}"
        )
    if not target:
        raise ValueError(_no_target(path, sample, names, rest, item))
    _tell(path, names, columns, (item, timestamp, target))
    found = item[0] if len(item) == 1 else item or None
    return replace(columns, item=found, timestamp=timestamp, target=target)


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
    return replace(
        columns,
        item=item[0] if isinstance(columns.item, str) and item else item,
        timestamp=None if columns.timestamp is None else actual(columns.timestamp),
        target=target[0] if isinstance(columns.target, str) and target else target or None,
        covariates=[actual(name) for name in columns.covariates],
        static_categories=[actual(name) for name in columns.static_categories],
        static_reals=[actual(name) for name in columns.static_reals],
    )


def _find(names: list[str], candidates: Sequence[str]) -> str | None:
    """The first candidate that is among the names, as it is written there."""
    by_plain = {plain(name): name for name in reversed(names)}
    return next((by_plain[plain(name)] for name in candidates if plain(name) in by_plain), None)


def _find_timestamp(sample: pd.DataFrame, names: list[str], columns: Columns) -> str | None:
    """Among the names that are left, by name or else by content."""
    units = [name for name in (_find(names, [unit]) for unit in _UNIT_NAMES) if name is not None]
    by_name = _find(names, TIMESTAMP_NAMES) or next(
        (name for name in units if columns.timestamp_format or looks_like_dates(sample[name], years=True)), None
    )
    if by_name is not None:
        return by_name
    dates = [name for name in names if looks_like_dates(sample[name])]
    if dates and (len(dates) == 1 or dates[0] == names[0]):
        return dates[0]
    return next(iter(units), None)


def looks_like_dates(cells: Any, *, years: bool = False) -> bool:
    """Whether all cells that are not empty are dates.

    Args:
        cells: Text or values.
        years: Whether bare numbers of four or six digits are taken as years and months.
    """
    if cells.dtype.kind == "M" or isinstance(cells.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        return True
    text = cells.dropna().astype(str)
    text = text[~text.isin(MISSING)]
    pattern = rf"{_DATE}|\d{{4}}|\d{{6}}" if years else _DATE
    return len(text) > 0 and bool(text.str.fullmatch(pattern).all())


def _looks_like_numbers(cells: Any) -> bool:
    text: Any = cells.dropna()
    text = text[~text.isin(MISSING)].astype(str)
    return bool(pd.to_numeric(text, errors="coerce").notna().all() or text.str.fullmatch(_NUMBER).all())  # pyright: ignore[reportAttributeAccessIssue]


def _resolve_wide(path: Path, names: list[str], columns: Columns, timestamp: str | None) -> Columns:
    """Time stamps, and one series in each of the other columns."""
    for role in ("item", "covariates", "static_categories", "static_reals"):
        if getattr(columns, role):
            raise ValueError(
                f"{path}: {option(role)} does not go with {option('wide')}: a wide table has time stamps and "
                "one column for each series; write it in long form, with a row for each series and time stamp"
            )
    timestamp = timestamp or names[0]
    series = columns.targets or [name for name in names if name != timestamp]
    if not series:
        raise ValueError(f"{path}: expected time stamps and one column for each series, got {listed(names)}")
    log.info("%s: wide, time stamps %r, %d series", path, timestamp, len(series))
    return replace(columns, item=None, timestamp=timestamp, target=series)


def _no_target(path: Path, sample: pd.DataFrame, names: list[str], rest: list[str], item: list[str]) -> str:
    """The message where no target is found: perhaps the table is wide."""
    name_it = column_option("target", "NAME")
    if not item and len(rest) > 1 and all(_looks_like_numbers(sample[name]) for name in rest):
        wide = column_option("wide", True)
        return (
            f"{path}: no column looks like a target. If each of the {len(rest)} columns {listed(rest)} is a series of "
            f"its own, give {wide}; if one of them is the target, name it by {name_it}"
        )
    return f"{path}: no column looks like a target; name it by {name_it}, the columns are {listed(names)}"


def _tell(path: Path, names: list[str], columns: Columns, found: tuple[list[str], str, str | Sequence[str]]) -> None:
    """Logs what was found without being told, and what is left."""
    item, timestamp, target = found
    guessed = []
    if item and not columns.item:
        guessed.append(f"series {item[0]!r}")
    if not columns.timestamp:
        guessed.append(f"time stamps {timestamp!r}")
    if not columns.target:
        guessed.append(f"target {target!r}")
    if guessed:
        log.info("%s: found by name: %s", path, ", ".join(guessed))
    known = {*item, timestamp, *([target] if isinstance(target, str) else target)}
    known |= {*columns.covariates, *columns.static_categories, *columns.static_reals}
    ignored = [name for name in names if name not in known]
    if ignored:
        log.info("%s: columns without a role are ignored: %s", path, ", ".join(ignored))
