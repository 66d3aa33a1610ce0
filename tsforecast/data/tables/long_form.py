"""Tables in long form: a row for each series and time stamp, the series named in one column."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.tables.roles import ACROSS_TARGET, ACROSS_TIME, WIDE_ITEM, WIDE_TARGET, Columns
from tsforecast.data.tables.table import Table


def in_long_form(table: Table) -> Table:
    """The table with a row for each series and time stamp, and its items, none of them empty, as text."""
    if not table.columns.wide:
        return _with_items(table)
    # Rows stand as often as there are series, one series after the other.
    stamp, series = str(table.columns.timestamp), table.columns.targets
    frame = table.frame.melt([stamp], series, WIDE_ITEM, WIDE_TARGET, ignore_index=False)
    return replace(table, frame=frame, columns=replace(table.columns, item=WIDE_ITEM, target=WIDE_TARGET))


def from_across(frame: pd.DataFrame, dates: Sequence[str]) -> pd.DataFrame:
    """A table with dates across the top in long form, each row as often as there are dates."""
    across = {*dates}
    left = [name for name in frame.columns if name not in across and not name.startswith("Unnamed: ")]
    long = frame.melt(left, list(dates), ACROSS_TIME, ACROSS_TARGET, ignore_index=False)
    return long.sort_index(kind="stable")  # one series after the other


def with_stamps(frame: pd.DataFrame, columns: Columns) -> tuple[pd.DataFrame, Columns]:
    """The table with its time stamps in one column."""
    if len(columns.stamps) == 1:
        return frame, replace(columns, timestamp=columns.stamps[0])
    parts = [frame[name].astype("string").str.strip() for name in columns.stamps]
    joined, name = parts[0], " ".join(columns.stamps)
    for part in parts[1:]:
        joined = joined + " " + part
    return frame.assign(**{name: joined.astype(object)}), replace(columns, timestamp=name)


def _with_items(table: Table) -> Table:
    """The table with its items as text in one column; rows without any are refused."""
    if not table.columns.items:
        return table
    # By category: a few names stand for millions of rows.
    codes, names = zip(*(_text_categories(pd.Series(table.frame[name])) for name in table.columns.items), strict=True)
    rows = pd.DataFrame(dict(enumerate(codes)))
    group = codes[0] if len(codes) == 1 else rows.groupby(list(rows), sort=False).ngroup().to_numpy()
    firsts = rows.groupby(group).first()
    parts = [["" if code < 0 else str(text[code]) for code in firsts[k]] for k, text in enumerate(names)]
    joined = [one[0] if len(one) == 1 else joined_name(one) for one in zip(*parts, strict=True)]
    nameless = np.isin(group, [code for code, one in zip(firsts.index, joined, strict=True) if not one])
    if nameless.any():
        place = table.place(int(np.argmax(nameless)), table.columns.items[0])
        raise ValueError(f"{place}: the item is empty; name the series of this row or delete it")
    if len(codes) > 1 or table.frame[table.columns.items[0]].dtype.kind != "O":  # no text
        cells = table.frame[table.columns.items].iloc[np.unique(group, return_index=True)[1]].set_axis(joined)
        cells = cells.fillna(dict.fromkeys(cells.select_dtypes("object"), ""))
        table = replace(table, cells=cells[~cells.index.duplicated()])
    name, (places, items) = "/".join(table.columns.items), pd.factorize(pd.Index(joined))
    items = pd.Categorical.from_codes(places[np.searchsorted(firsts.index, group)], pd.Index(items))
    return replace(table, frame=table.frame.assign(**{name: items}), columns=replace(table.columns, item=name))


def joined_name(parts: Sequence[str]) -> str:
    r"""Return one name of several columns, "north/1": no two rows of other names have the same.

    A slash within a part stands behind a backslash ("north\/a/1"), and so does a backslash. Parts at the end that are
    empty are left out.
    """
    filled = max((number for number, part in enumerate(parts, 1) if part), default=0)
    return "/".join(re.sub(r"([\\/])", r"\\\1", part) for part in parts[:filled])


def _text_categories(column: pd.Series) -> tuple[NDArray[np.int64], pd.Index]:
    """Return the number of the text of every cell, -1 where it is empty, and the texts."""
    codes, values = pd.factorize(column)
    text = pd.Index(values).astype(str)
    names = text.unique()
    places = np.where(text.str.strip() == "", -1, names.get_indexer(text))
    return np.append(places, -1)[codes], names
