"""`tsforecast optimise --trials FILE --bounds NAME:LOW:HIGH ..`: the next points of a table that its user fills in.

The table is a CSV file with a column for each name, a column `value`, and any others, which stay as they are. A row
whose value is empty awaits it; one with nan or inf says that the evaluation failed. The next points are new rows.
"""

import csv
import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tsforecast.decisions.optimisation import Evaluations, ThompsonOptimiser
from tsforecast.io.files import replace_file

VALUE = "value"
_FINE = 1e-6  # part of the bounds' width to which values are rounded
_DRAWS = 10  # for a point that is not awaited yet, at most
_KINDS = ("log", "whole")
_FORM = "NAME:LOW:HIGH, with :log or :whole behind it where it is of that kind"


@dataclasses.dataclass(frozen=True)
class Bound:
    """A number that is looked for, and where.

    Attributes:
        name: Of its column.
        low: Least value.
        high: Largest value.
        log: Whether factors count, instead of differences.
        whole: Whether it is a whole number.
    """

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def place(self, value: float) -> float:
        """Return where the optimiser sees a value."""
        return math.log(value) if self.log else value

    def corners(self) -> tuple[float, float]:
        """Return between which places the optimiser looks; a whole number has half a unit on both sides."""
        wide = 0.5 if self.whole and not self.log else 0.0
        return self.place(self.low) - wide, self.place(self.high) + wide

    def value(self, place: float) -> str:
        """Return the value of a place as a table has it, within the bounds: to a millionth of their width, or finer."""
        number = math.exp(place) if self.log else place
        step = _FINE * (self.place(self.high) - self.place(self.low)) * (abs(number) if self.log else 1.0)
        digits = 0 if self.whole else -math.floor(math.log10(step))
        number = min(max(round(number, digits), self.low), self.high)
        return f"{int(number)}" if self.whole else repr(float(number))


def read_bounds(texts: Sequence[str]) -> list[Bound]:
    """Return what the option says.

    Raises:
        ValueError: If a text is of another form, names come twice, or the bounds are none.
    """
    bounds = []
    for text in texts:
        name, *rest = text.split(":")
        numbers, kinds = rest[:2], rest[2:]
        try:
            low, high = (float(number) for number in numbers)
        except ValueError as error:
            raise ValueError(f"--bounds: expected {_FORM}, got {text!r}") from error
        if not name or name == VALUE or not {*kinds} <= {*_KINDS}:
            raise ValueError(f"--bounds: expected {_FORM}, and no name {VALUE!r}, got {text!r}")
        bound = Bound(name, low, high, "log" in kinds, "whole" in kinds)
        if not -math.inf < low < high < math.inf or (bound.log and low <= 0):
            above = "LOW above 0 and " if bound.log else ""
            raise ValueError(f"--bounds: expected {above}LOW below HIGH, both finite, got {text!r}")
        if bound.whole and (low != int(low) or high != int(high)):
            raise ValueError(f"--bounds: expected whole numbers, got {text!r}")
        bounds.append(bound)
    if len({bound.name for bound in bounds}) < len(bounds):
        raise ValueError(f"--bounds: expected each name once, got {', '.join(texts)}")
    return bounds


def propose(
    path: Path, bounds: Sequence[Bound], optimiser: ThompsonOptimiser, points: int = 1, maximise: bool = False
) -> int:
    """Adds the next points to a table, which is begun where there is none, and prints them.

    Args:
        path: The table.
        bounds: Of its columns.
        optimiser: Over the corners of the bounds.
        points: How many are wanted.
        maximise: Whether large values are good.

    Returns:
        0.

    Raises:
        ValueError: If the table lacks a column or has a row that cannot be read; the message has its line.
    """
    names = [bound.name for bound in bounds]
    columns, rows = _read(path, [*names, VALUE])
    known, waiting = optimiser.init(), 0
    evaluated = [row for row in rows if row[VALUE].strip()]
    for line, row in enumerate(rows, 2):
        try:
            known, waiting = _told(known, waiting, row, bounds, optimiser, maximise)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
    new = _proposed(known, waiting, rows, bounds, optimiser, points)
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, *new])
    for row in new:
        sys.stdout.write(" ".join(f"{name}={value}" for name, value in row.items()) + "\n")
    if bool(known.values.isfinite().any()):
        _report(known, evaluated, names, optimiser, maximise)
    return 0


def _report(
    known: Evaluations,
    rows: Sequence[dict[str, str]],
    names: Sequence[str],
    optimiser: ThompsonOptimiser,
    maximise: bool,
) -> None:
    """Prints the best row, and the one that the surrogate recommends."""

    def at(number: int) -> str:
        return ", ".join(f"{name}={rows[number][name]}" for name in names)

    best, chosen = int(known.values.nan_to_num(nan=math.inf).argmin()), optimiser.recommend(known)
    kind, sign = ("largest", -1) if maximise else ("least", 1)
    sys.stdout.write(f"{kind} value of {len(rows)}: {rows[best][VALUE].strip()} at {at(best)}\n")
    sys.stdout.write(
        f"recommended, should values be noisy: {at(chosen.number)}, where the surrogate expects "
        f"{sign * chosen.mean:.6g} (sd {chosen.sd:.2g})\n"
    )


def _proposed(
    known: Evaluations,
    waiting: int,
    rows: Sequence[dict[str, str]],
    bounds: Sequence[Bound],
    optimiser: ThompsonOptimiser,
    points: int,
) -> list[dict[str, str]]:
    """Return the next rows. None is one that awaits its value, as long as the draws that come next have others."""
    names, draws = [bound.name for bound in bounds], itertools.count(waiting)

    def drawn() -> list[str]:
        place = optimiser.ask(known, next(draws)).tolist()
        return [bound.value(x) for bound, x in zip(bounds, place, strict=True)]

    new: list[dict[str, str]] = []
    awaited = [[row[name] for name in names] for row in rows if not row[VALUE].strip()]
    for _ in range(points):
        cells, tries = drawn(), 1
        while cells in awaited and tries < _DRAWS:
            cells, tries = drawn(), tries + 1
        awaited.append(cells)
        new.append(dict(zip(names, cells, strict=True)))
    return new


def _read(path: Path, needed: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns of a table, and its rows as texts.

    Raises:
        ValueError: If it is no such table.
    """
    if not path.exists():
        return [*needed], []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns, rows = [*(reader.fieldnames or ())], [*reader]
    if missing := [name for name in needed if columns.count(name) != 1]:
        raise ValueError(
            f"{path}: expected the columns {', '.join(needed)}, once each, which is not so of {', '.join(missing)}"
        )
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ValueError(f"{path}, line {line}: expected {len(columns)} cells")
    return columns, rows


def _told(
    known: Evaluations,
    waiting: int,
    row: dict[str, str],
    bounds: Sequence[Bound],
    optimiser: ThompsonOptimiser,
    maximise: bool,
) -> tuple[Evaluations, int]:
    """Return what is known after a row, and how many rows await their value."""
    if not row[VALUE].strip():
        return known, waiting + 1
    point = []
    for bound in bounds:
        number = _number(bound.name, row[bound.name])
        if not bound.low <= number <= bound.high:
            raise ValueError(f"expected {bound.name} from {bound.low:.15g} to {bound.high:.15g}, got {row[bound.name]}")
        point.append(bound.place(number))
    value = _number(VALUE, row[VALUE])
    told = optimiser.tell(known, torch.tensor(point, dtype=torch.float64), -value if maximise else value)
    return told, waiting


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"expected a number in column {name}, got {text!r}") from error
