"""The columns of a table: their roles by its first rows, then the whole table with its roles."""

import logging
from collections.abc import Container, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.tables.cells import timestamps
from tsforecast.data.tables.contents import MISSING, looks_like_dates
from tsforecast.data.tables.dates import readings
from tsforecast.data.tables.long_form import from_across, with_stamps
from tsforecast.data.tables.recognition import description, resolve
from tsforecast.data.tables.roles import ACROSS_TARGET, ACROSS_TIME, Columns, column_option
from tsforecast.data.tables.signs import find_decimal, parse
from tsforecast.data.tables.table import Table
from tsforecast.progress import warnings_only

log = logging.getLogger(__name__)

SAMPLE = 100  # rows by which columns are recognised
_CATEGORIES = 12  # of a column of text whose categories are covariates, at most

_LEAST_DATES = 3  # names of columns that are dates, from which on they are taken for time stamps
_MOST_REPEATED = 0.05  # share of rows that repeat a time stamp of their series by mistake, at most


class Schema(NamedTuple):
    """Roles of the columns, further candidates for the item, and columns named by dates."""

    columns: Columns
    others: list[str]
    across: list[str]

    @property
    def used(self) -> list[str]:
        """Columns of the table in long form that have a role."""
        columns = self.columns
        return [*columns.items, *columns.stamps, *columns.static_categories, *columns.numbers]


def find_schema(path: Path, sample: pd.DataFrame, columns: Columns) -> Schema:
    """The roles of the columns, by the first rows."""
    sample = with_categories(sample, columns)
    across = dates_across(sample, columns)
    if not across:
        return Schema(*resolve(path, sample, columns), [])
    sample = from_across(sample, across)
    columns, others = resolve(path, sample, replace(columns, timestamp=ACROSS_TIME, target=ACROSS_TARGET, wide=False))
    schema = Schema(columns, others, across)
    used = {*schema.used}
    rest = [name for name in map(str, sample.columns) if name not in used]
    return schema if others else schema._replace(others=rest)  # numbers, too, where there is nothing else


def filled_rows(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with its time stamps in a column, without empty rows."""
    if schema.across:
        frame = from_across(frame, schema.across)
    values = [name for name in schema.used if name != ACROSS_TIME]
    empty: Any = frame[values].isna()
    for name, column in frame[values].select_dtypes(["object", "string"]).items():  # pyright: ignore[reportAttributeAccessIssue]
        empty[name] |= column.isin([""])
    return frame[~empty.all(axis=1)]  # pyright: ignore[reportReturnType]


def table_of(path: Path, frame: pd.DataFrame, schema: Schema, given: Columns, **place: Any) -> Table:
    """The whole table with its roles; all rows decide on the columns that name the series."""
    names = [str(name) for name in frame.columns]
    frame, columns = filled_rows(frame, schema), schema.columns
    if len(frame) == 0:
        raise ValueError(f"{path}: there are no rows; expected one with time stamp and target for each step")
    if given.item is None and not columns.wide:
        item = tell_apart(frame, columns.stamps, columns.items, schema.others)
        columns = replace(columns, item=item[0] if len(item) == 1 else item or None)
    if columns.ahead and not (schema.across or columns.wide or columns.covariates or columns.past_covariates):
        used = {*schema._replace(columns=columns).used}
        table = Table(path, *with_stamps(frame, columns), columns, **place)
        ahead = _known_ahead(table, columns, [name for name in names if name not in used])
        columns, frame = replace(columns, covariates=list(ahead)), frame.assign(**ahead)
    across = {*schema.across} | {found[0] for name in columns.covariates if (found := category_of(name, names))}
    named = [name for name in names if name not in across]
    log.info("%s: %s", path, description(named, columns, len(schema.across)))
    roles = replace(columns, decimal=given.decimal, ahead=False)
    if schema.across or columns.wide:  # other tables of this form have other dates, or other series
        opened = {"timestamp": None} if schema.across else {}
        roles = replace(roles, target=given.target, **opened)
    frame = frame[schema._replace(columns=columns).used]  # pyright: ignore[reportAssignmentType]
    return Table(path, *with_stamps(frame, columns), roles, **place)


def _known_ahead(table: Table, columns: Columns, names: list[str]) -> dict[str, Any]:
    """Return numbers and categories that go on behind the last target of every series without a gap, and change."""
    frame = table.frame
    targets: Any = frame[columns.targets]
    missing = (targets.isna() | targets.isin(MISSING)).all(axis=1).to_numpy()
    if not missing.any():
        return {}
    with warnings_only("tsforecast.data.tables", logging.ERROR):  # the series say it again
        stamps = timestamps(table)
    series = np.zeros(len(frame), np.int64)
    if columns.items:
        series = frame.groupby(columns.items, sort=False, observed=True, dropna=False).ngroup().to_numpy()
    behind = pd.Series(stamps).where(~missing).groupby(series).transform("max").to_numpy() < stamps
    ends, count = len(np.unique(series[behind])), len(np.unique(series))
    if ends < count:
        if ends:
            none = count - ends
            log.info("%s: no covariates: %d of %d series have no row behind the last target", table.path, none, count)
        return {}
    found: dict[str, Any] = {}
    for name in names:
        if not name.startswith("Unnamed: "):
            found |= _candidates(name, frame[name], behind)
    return {name: x for name, x in found.items() if x.groupby(series).nunique().max() > 1}


def _candidates(name: str, column: Any, behind: NDArray[np.bool_]) -> dict[str, Any]:
    """Return a column of numbers without a gap, or a column of 0 and 1 for each rarer category of a text.

    Empty cells are a category, too, but not those behind the last target alone: there nobody knew it.
    """
    column = column.infer_objects()
    numbers, gaps = _as_numbers(column), column.isna() | column.isin(MISSING)
    if numbers is not None and numbers.isna().equals(gaps):
        if gaps.any():
            if not gaps[behind].all():
                said = "%r is no covariate, for %d of its %d cells are empty: fill them to use it"
                log.info(said, name, gaps.sum(), len(gaps))
            return {}
        # Whole numbers that follow each other without a gap, in whatever order, are those of rows.
        is_counted = numbers.dtype.kind in "iu" and numbers.is_unique and np.ptp(numbers.to_numpy()) < len(numbers)
        return {} if is_counted else {name: numbers}
    empty = column.isna() | column.isin([""])
    is_unknown = empty[behind].any() and not empty[~behind].any()
    if is_unknown or not all(isinstance(cell, str | bool) for cell in column[~empty]):
        return {}
    values = column.value_counts(dropna=False).index
    if len(values) > _CATEGORIES:
        if len(values) < 10 * _CATEGORIES:  # more are taken for notes
            some = column_option("covariates", [f"{name}={value}" for value in values[1:3]])
            log.info("%r has %d categories: from %d on they are no covariates, unless some are named, such as %s",
                     name, len(values), _CATEGORIES + 1, some)  # fmt: skip
        return {}
    names = [f"{name}={value}" for value in values[1:] if not pd.isna(value)]
    return {one: with_categories(column.to_frame(), Columns(covariates=[one]))[one] for one in names}


def with_categories(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The frame with a column of 0 and 1 for each covariate that is called by a category, "holiday=easter"."""
    for name in (*columns.covariates, *columns.targets):
        if name not in frame and (found := category_of(name, frame)):
            column, value = found
            frame = frame.assign(**{name: (frame[column].astype(str) == value).astype(float)})
    return frame


def category_of(name: str, columns: Container[str]) -> tuple[str, str] | None:
    """Return the column and the category of a covariate that is called by both, "holiday=easter"; None for others."""
    parts = name.split("=")
    splits = [("=".join(parts[:k]), "=".join(parts[k:])) for k in range(len(parts) - 1, 0, -1)]
    return next((found for found in splits if found[0] in columns), None)


def _as_numbers(column: Any) -> Any:
    """Return a column of numbers, or of yes and no, which may be text; None for another."""
    if column.dtype.kind in "biuf":
        return column
    first = next(iter(column.dropna()), None)
    if column.dtype.kind != "O" or not isinstance(first, str | Decimal):
        return None
    if isinstance(first, Decimal):
        return pd.to_numeric(column, errors="coerce")
    lower = column.str.lower()
    if lower.isin(["true", "false"]).all():
        return (lower == "true").astype(float)
    return pd.Series(parse(column, find_decimal(column.to_frame()), None)[0], column.index)


def with_decimal(path: Path, columns: Columns, frame: pd.DataFrame) -> Columns:
    """The columns with the decimal sign of their numbers; the log says where it is a comma."""
    if columns.decimal is not None:
        return columns
    decimal = find_decimal(frame[columns.numbers])
    if decimal == ",":
        log.info("%s: numbers have a decimal comma", path)
    return replace(columns, decimal=decimal)


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
