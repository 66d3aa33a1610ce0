"""Data frames of any library, and their columns as users name them in Python and as a predictor keeps them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from tsforecast.data.tables.cells import timestamps
from tsforecast.data.tables.contents import MISSING
from tsforecast.data.tables.roles import Columns
from tsforecast.data.tables.table import Table

# Names of columns that stand for a role, where a mapping gives the columns that are called otherwise.
_ROLES = {"item_id": "item", "unique_id": "item", "ds": "timestamp", "y": "target"}
_SINGLE = ("item", "timestamp", "target", "timestamp_format", "decimal")


def columns_of(given: Columns | Mapping[str, Any] | None) -> Columns:
    """The roles of the columns of a frame.

    Args:
        given: `Columns`, or a mapping of its fields; `item_id`, `unique_id`, `ds` and `y` also name roles. None for
            what is found by names.
    """
    if isinstance(given, Columns):
        return given
    known = [field.name for field in fields(Columns)]
    found: dict[str, Any] = {}
    for name, value in (given or {}).items():
        role = _ROLES.get(name, name)
        if role not in known:
            raise ValueError(f"columns: there is no role {name!r}; expected {', '.join(known)}, each with its columns")
        several = isinstance(value, Sequence) and not isinstance(value, str)
        if role in _SINGLE:
            found[role] = value[0] if several and len(value) == 1 else value
        elif role in ("wide", "ahead"):
            found[role] = bool(value)
        else:
            found[role] = list(value) if several else [value]
    return Columns(**found)


def as_lists(columns: Columns) -> dict[str, list[str]]:
    """The roles that are given, as lists of text; `columns_of` reads them."""
    found: dict[str, list[str]] = {}
    for field in fields(Columns):
        value = getattr(columns, field.name)
        if value not in (field.default, None, [], ()):
            found[field.name] = [str(value)] if isinstance(value, str | bool) else list(value)
    return found


def as_pandas(data: Any) -> Any:
    """Return a frame of polars, an Arrow table or the like, but no lazy one, as a pandas frame; others as is.

    Columns that pandas keeps in Arrow become those of NumPy, which are what tables are read from.
    """
    frame = nw.from_native(data, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"expected a frame, got a lazy one, {type(data).__name__}: collect it first")
    if isinstance(data, pd.DataFrame):
        kept = [name for name, kind in data.dtypes.items() if isinstance(kind, pd.ArrowDtype)]
        own = [pa.array(data[name]).to_pandas(date_as_object=False).set_axis(data.index) for name in kept]
        return data.assign(**dict(zip(map(str, kept), own, strict=True))) if kept else data
    return frame.to_pandas() if isinstance(frame, nw.DataFrame) else data


def alike(found: pd.DataFrame, data: Any) -> Any:
    """Return a result as the library has frames that the data are of; a pandas frame where they are none."""
    frame = nw.from_native(data, pass_through=True)
    if isinstance(data, pd.DataFrame) or not isinstance(frame, nw.DataFrame):
        return found
    table = pa.Table.from_pandas(found, preserve_index=False).replace_schema_metadata()
    return nw.from_arrow(table, backend=frame.implementation).to_native()


def _stamps(frame: pd.DataFrame, name: str, roles: Columns) -> Any:
    """Return a column of time stamps, read as in any table."""
    return frame[name] if frame[name].dtype.kind == "M" else timestamps(Table(Path("DataFrame"), frame, roles, roles))


def with_rows(data: pd.DataFrame, new: pd.DataFrame, roles: Columns) -> pd.DataFrame:
    """Return a frame with further rows behind its own; what these have a value for wins where both have a row."""
    keys, stamps = [*roles.items, *roles.stamps], roles.stamps
    if not stamps or {*keys} - {*new}:
        names = ", ".join(keys) if stamps else "series and time stamp, a row for each"
        raise ValueError(f"expected new rows with the columns {names}, got {', '.join(map(str, new))}")
    for name in keys:  # a file has them as text
        if data[name].dtype.kind != new[name].dtype.kind:
            is_stamp = [name] == stamps
            both = (_stamps(frame, name, roles) if is_stamp else frame[name].astype(str) for frame in (data, new))
            data, new = (frame.assign(**{name: cells}) for frame, cells in zip((data, new), both, strict=True))
    values = new.columns.difference(keys)
    new = new.assign(**new[values].mask(new[values].isin(MISSING)))  # pyright: ignore[reportCallIssue]
    twice = new.duplicated(keys)
    if twice.any():
        raise ValueError(f"two new rows are of {', '.join(map(str, new.loc[twice, keys].iloc[0]))}; keep one")
    order = pd.concat([data[keys], new[keys]]).drop_duplicates()
    joined = new.set_index(keys).combine_first(data.set_index(keys)).reset_index()
    return order.merge(joined, on=keys, how="left")
