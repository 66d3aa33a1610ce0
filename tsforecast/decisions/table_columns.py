"""Arms in tables of decisions: features, rewards, and those that could be chosen in a round."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tsforecast.data.tables.contents import MISSING
from tsforecast.io.binary import check_packed, is_parquet, read_parquet
from tsforecast.wording import counted

log = logging.getLogger(__name__)

BETWEEN = "|"  # between the names of arms that could be chosen


def arm_sets(path: Path, frame: pd.DataFrame, column: str | None) -> list[list[str]] | None:
    """Return the names of the arms that could be chosen in each row; None without such a column.

    Raises:
        ValueError: If a row has none.
    """
    if column is None:
        return None
    if holes := int(frame[column].isna().sum()):
        raise ValueError(f"{path}: expected arms in every row of {column!r}, got none in {holes}")
    return [[name.strip() for name in cell.split(BETWEEN)] for cell in frame[column].astype(str)]


def masks_of(sets: list[list[str]] | None, names: Sequence[str], rows: int) -> Tensor:
    """Return a mask of the arms in the set of each row; all of them without sets."""
    place = {name: number for number, name in enumerate(names)}
    allowed = torch.full((rows, len(names)), sets is None)
    for row, some in enumerate(sets or ()):
        allowed[row, [place[name] for name in some]] = True
    return allowed


def features_of(path: Path, frame: pd.DataFrame) -> Tensor:
    """Return numbers as they are, and texts as one column for each word."""
    if not frame.shape[1]:
        raise ValueError(f"{path}: expected at least one column of features, got none")
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    values = pd.get_dummies(frame, columns=texts, dtype=float).to_numpy(np.float64)
    if np.isinf(values).any():
        raise ValueError(f"{path}: expected finite features, got an infinite one")
    return torch.from_numpy(values.copy())


def numbers_of(path: Path, frame: pd.DataFrame, kind: str = "rewards") -> Tensor:
    """Return columns of rewards, or of another kind of numbers.

    Raises:
        ValueError: If one is missing, or no finite number.
    """
    try:
        values = frame.to_numpy(np.float64)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: expected numbers as {kind} ({error})") from error
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).any(1).argmax())
        raise ValueError(f"{path}: expected finite {kind}, got none in row {row + 1}")
    return torch.from_numpy(values.copy())


def read_arms(path: str | Path, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """Return features of arms from a table, in units of their standard deviations over arms.

    Args:
        path: A CSV or Parquet file, with the arm's name in its first column, and features in the others.
        names: Of the arms that are wanted. Others of the table are left out, and a line says so.

    Raises:
        ValueError: If an arm is missing or comes twice, or a feature is none.
    """
    frame = read_frame(Path(path))
    found = frame.iloc[:, 0].astype(str)
    if found.duplicated().any():
        raise ValueError(f"{path}: expected each arm once, got {found[found.duplicated()].iloc[0]} twice")
    if absent := [name for name in names if name not in {*found}]:
        raise ValueError(f"{path}: expected features of every arm, got none of {', '.join(absent[:5])}")
    if more := len(found) - len(names):
        log.info("%s: left out are features of %s that the data do not have", path, counted(more, "arm"))
    values = features_of(Path(path), frame.iloc[:, 1:])
    if bool(values.isnan().any()):
        row = int(values.isnan().any(1).long().argmax())
        raise ValueError(f"{path}: expected a number of every feature, got none of arm {found.iloc[row]}")
    rows = values[[int((found == name).to_numpy().argmax()) for name in names]]  # in the order of the arms of the data
    spread = rows.std(0, correction=0)
    scaled = (rows - rows.mean(0)) / torch.where(spread > 0, spread, 1.0)  # a feature that all arms share says nothing
    return tuple(map(tuple, scaled.tolist()))


def read_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a file.

    Raises:
        ValueError: If it is damaged or has no row.
    """
    try:
        if is_parquet(path):
            frame = read_parquet(path)
        else:
            check_packed(path)
            frame = pd.read_csv(path, na_values=list(MISSING), keep_default_na=False, low_memory=False)
    except (ValueError, UnicodeError) as error:
        raise ValueError(f"{path}: expected a table ({error})") from error
    if frame.empty:
        raise ValueError(f"{path}: expected rows of a table, got none")
    frame.columns = frame.columns.astype(str)
    return frame
