"""The looks of cells: dates, numbers, names, or nothing at all."""

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from tsforecast.data.tables.dates import readings

# Cells that hold no value.
MISSING = [
    "", "NA", "N/A", "n/a", "n.a.", "#N/A", "NaN", "nan", "null", "NULL", "None", "NaT", "?", "-", "--", ".", "..",
    "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!",
]  # fmt: skip

_NUMBER = r"\s*[+-]?\d[\d.,' \u00a0\u202f]*\s*"  # with whatever signs
_MOST_CELLS = 0.9  # which are dates, or numbers, in a column of these: a faulty one is named later


def looks_like_dates(cells: Any, *, years: bool = False) -> bool:
    """Whether nearly all cells that are not empty are dates; bare numbers of four or six digits only as years."""
    if cells.dtype.kind == "M" or isinstance(cells.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        return True
    text = filled(cells)
    if len(text) == 0 or pd.to_numeric(text, errors="coerce").notna().all():  # pyright: ignore[reportAttributeAccessIssue]
        return years and len(text) > 0 and bool(text.str.fullmatch(r"\d{4}|\d{6}").all())
    if text.str.contains(r"\d").mean() < _MOST_CELLS:  # no date is without a digit
        return False
    return max(float(reading.stamps.notna().mean()) for reading in readings(text)) >= _MOST_CELLS


def filled(cells: Any) -> Any:
    """Cells that are not missing, as text."""
    text = cells.dropna().astype(str).str.strip()
    return text[~text.isin(MISSING)]


def all_match(cells: Any, pattern: str) -> bool:
    """Whether all cells that are not empty are as a pattern says."""
    return bool(filled(cells).str.fullmatch(pattern).all())


def _share_of_numbers(cells: Any) -> float:
    """Share of the cells that are not empty; 1 where all are empty."""
    if bool(pd.Series(pd.to_numeric(cells, errors="coerce")).notna().all()):
        return 1.0
    text = filled(cells)
    numbers: Any = pd.to_numeric(text, errors="coerce")
    return float((numbers.notna() | text.str.fullmatch(_NUMBER)).mean()) if len(text) else 1.0


def looks_like_numbers(cells: Any) -> bool:
    """Whether nearly all cells that are not empty are numbers, with whatever signs."""
    return _share_of_numbers(cells) >= _MOST_CELLS


def all_numbers(frame: Any) -> bool:
    """Whether nearly all cells of each column are numbers; columns of plain numbers are looked at together."""
    cells: Any = pd.Series(frame.to_numpy(object).ravel())
    numbers: Any = pd.to_numeric(cells, errors="coerce")
    plain = numbers.notna() | cells.isna()
    text = cells[~plain].astype(str).str.strip()
    plain[text.index] = text.isin(MISSING) | text.str.fullmatch(_NUMBER)
    unsure = (~plain.to_numpy().reshape(frame.shape).all(0)).nonzero()[0]
    return all(looks_like_numbers(frame.iloc[:, place]) for place in unsure)


def looks_like_names(cells: Any) -> bool:
    """Whether cells are text that may name series: neither numbers nor dates nor empty."""
    if cells.dtype.kind in "fiubmMc" or isinstance(cells.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
        return False
    return _share_of_numbers(cells) < 0.5 and not looks_like_dates(cells)


def numbered(names: Sequence[str]) -> bool:
    """Whether three names or more are one word with numbers behind it, as those of series or steps are."""
    parts = [re.fullmatch(r"(.*?)[\s_.-]*(\d+)", name.strip()) for name in names]
    return len(parts) > 2 and all(parts) and len({part[1].lower() for part in parts if part}) == 1
