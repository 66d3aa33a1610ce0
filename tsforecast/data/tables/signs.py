"""Numbers as people write them: decimal signs, and separators of thousands."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsforecast.data.tables.contents import MISSING, filled
from tsforecast.data.tables.roles import column_option

SIGNS = {",": "comma", ".": "point"}
_NEVER_DECIMAL = r"[ \u00a0\u202f']"  # blanks and apostrophes between digits only separate thousands


def other_sign(decimal: str) -> str:
    """The sign that may separate thousands where numbers have this decimal sign."""
    return "." if decimal == "," else ","


def _grouped(sign: str, decimal: str, groups: str = "+", fraction: str = "?") -> str:
    """Pattern of a number with separated thousands."""
    return rf"[+-]?[1-9]\d{{0,2}}(?:{re.escape(sign)}\d{{3}}){groups}(?:{re.escape(decimal)}\d*){fraction}"


def find_decimal(numbers: Any) -> str:
    """The decimal sign of a table: a comma if cells of a column can not be read otherwise."""
    text = numbers.select_dtypes(exclude=["number", "bool", "datetime", "timedelta"])
    return "," if any(_has_decimal_comma(column) for _, column in text.items()) else "."


def _has_decimal_comma(column: Any) -> bool:
    if not any("," in cell for cell in column.to_numpy(object) if isinstance(cell, str)):
        return False
    text = _without_blanks(column)
    fits = text.str.fullmatch(rf"[+-]?\d*,\d+|[+-]?\d+|{_grouped('.', ',')}")
    thousands = text.str.fullmatch(rf"[+-]?\d+|{_grouped(',', '.')}")
    return bool(fits.all()) and not bool(thousands.all())


def may_be_thousands(values: Any) -> bool:
    """Whether numbers read with a decimal point could all be whole ones with points between thousands."""
    size = np.abs(values[np.isfinite(values)])
    parts = size[size % 1 != 0]
    whole = np.abs(1000 * parts - np.round(1000 * parts)) < 1e-6
    return bool(len(parts) and (size < 1000).all() and (parts >= 1).all() and whole.all())


def refuse_ambiguous(path: Path, text: pd.DataFrame, delimiter: str | None) -> None:
    """Refuses columns of text where every point may separate thousands, or be the decimal sign."""
    first = None
    for name in text:
        cell = _ambiguous(text[name], delimiter)
        if cell is None:  # one column that is sure decides for all
            return
        first = first or (str(name), cell)
    if first is not None:
        name, cell = first
        raise ValueError(
            f"{path}, column {name!r}: in {cell!r} the point may separate thousands, or be the decimal sign; give "
            f"{column_option('decimal', ',')} in the first case, {column_option('decimal', '.')} in the second"
        )


def _ambiguous(column: Any, delimiter: str | None) -> str | None:
    """The first cell of a column of text with a point that may separate thousands, or be the decimal sign; else None.

    That is so where three digits follow every point, in a file of semicolons, which also stand where commas are
    decimal. Elsewhere there must be cells without a point beside them: numbers of three decimals all have one.
    """
    if delimiter == ",":
        return None
    text = _without_blanks(column)
    pointed = text.str.contains(".", regex=False)
    grouped = text.str.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}")
    small = text.str.fullmatch(r"[+-]?\d{1,3}")
    if not pointed.any() or not bool((grouped | small).all()):
        return None
    return str(text[pointed].iloc[0]) if delimiter == ";" or small.any() else None


def _without_blanks(column: Any) -> Any:
    """Cells as text, without missing values, and without signs that only separate thousands."""
    return filled(column).str.replace(rf"(?<=\d){_NEVER_DECIMAL}(?=\d{{3}}(?!\d))", "", regex=True)


def parse(raw: Any, decimal: str, delimiter: str | None) -> tuple[NDArray[np.float64], str | None]:
    """Cells as numbers, and one cell with separated thousands, as it was written.

    Separators are taken away only where no cell can be meant otherwise: 1,234,567 and 1,234.5 can not, and neither can
    1,234 in a file whose cells are delimited by commas.

    Returns:
        NaN where a cell is no number; None where no thousands are separated.
    """
    if isinstance(raw.dtype, pd.CategoricalDtype):
        raw = raw.astype(object)
    values = _pointed(raw, decimal)
    if raw.dtype.kind in "fiub":
        return values, None
    rest = np.isnan(values) & ~np.asarray(raw.isna() | raw.isin(MISSING))
    if not rest.any():
        return values, None
    written, sign = raw[rest].astype(str).str.strip(), other_sign(decimal)
    text = _without_blanks(written)
    grouped = text.str.fullmatch(_grouped(sign, decimal))
    never = text != written
    if not bool((grouped | never).all()) or not _is_decided(text, decimal, delimiter, values):
        return values, None
    values[rest] = _pointed(text.where(~grouped, text.str.replace(sign, "", regex=False)), decimal)
    return values, None if np.isnan(values[rest]).any() else str(written.iloc[0])


def _pointed(raw: Any, decimal: str) -> NDArray[np.float64]:
    if decimal != "." and raw.dtype.kind not in "fiub":
        point = raw.astype(str).str.replace(decimal, ".", regex=False)
        raw = point.where(~raw.astype(str).str.contains(".", regex=False))
    parsed: Any = pd.to_numeric(raw, errors="coerce")
    return np.array(parsed.to_numpy(dtype=np.float64, na_value=np.nan))


def _is_decided(text: Any, decimal: str, delimiter: str | None, values: NDArray[np.float64]) -> bool:
    """Whether the other sign can only separate thousands."""
    sign = other_sign(decimal)
    if decimal == "," or not text.str.contains(sign, regex=False).any():
        return True  # a comma has been found, or given, and the point is left
    sure = rf"{_grouped(sign, decimal, '{2,}')}|{_grouped(sign, decimal, fraction='')}"
    plain = np.abs(values[~np.isnan(values)])
    if bool((plain % 1 != 0).any()) or text.str.fullmatch(sure).any():
        return True
    return delimiter == sign and not bool((plain >= 1000).any())


def remedy(cells: Any, decimal: str) -> str | None:
    """Advice on texts that may be numbers with other signs; None where they are no numbers."""
    first, other = cells.iloc[0].strip(), other_sign(decimal)
    if re.fullmatch(_grouped(other, decimal), first):
        return (
            f"write {first.replace(other, '')} if its {SIGNS[other]} separates thousands; if it is the decimal sign, "
            f"give {column_option('decimal', other)}"
        )
    if re.fullmatch(rf"[+-]?\d*\{other}\d+", first):
        return f"if its {SIGNS[other]} is the decimal sign, give {column_option('decimal', other)}"
    return None
