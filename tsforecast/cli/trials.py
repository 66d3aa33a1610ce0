"""`tsforecast optimise --trials FILE --bounds NAME:LOW:HIGH ..`: the next points of a table that its user fills in.

The table is a CSV file with a column for each name, a column `value` or those of --objectives and --limits, and any
others, which stay as they are. A row in which these are empty awaits them; one with nan or inf says that the evaluation
failed. The next points are new rows.
"""

import csv
import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from tsforecast.decisions.evaluations import Evaluations
from tsforecast.decisions.optimisation import Optimiser
from tsforecast.decisions.space import Choice, Number, Space, number_of
from tsforecast.io.files import replace_file
from tsforecast.online.features import is_number

VALUE = "value"
_DRAWS = 10  # for a point that is not awaited yet, at most
_KINDS = ("log", "whole")
_FORM = "NAME:LOW:HIGH, with :log or :whole behind it where it is of that kind, or NAME:WORD|WORD|.."


@dataclasses.dataclass(frozen=True)
class Goal:
    """Columns of a table that are filled in, and their meaning."""

    objectives: tuple[str, ...] = (VALUE,)  # columns that shall be small
    limits: tuple[tuple[str, float], ...] = ()  # columns and the largest number that each may have
    maximise: bool = False  # whether objectives shall be large instead

    @property
    def columns(self) -> list[str]:
        """Return all columns that are filled in."""
        return [*self.objectives, *(name for name, _ in self.limits)]


def read_bounds(texts: Sequence[str], taken: Sequence[str] = (VALUE,)) -> Space:
    """Return the inputs that the option names; a ValueError if the text has another form, or names come twice."""
    inputs: list[Number | Choice] = []
    for text in texts:
        name, *rest = text.split(":")
        try:
            if not name or name in taken or not rest:
                raise ValueError(f"expected {_FORM}, and no name {', '.join(map(repr, taken))}")
            if "|" in rest[0]:
                inputs.append(Choice(name, tuple(word.strip() for word in ":".join(rest).split("|"))))
                continue
            numbers, kinds = rest[:2], rest[2:]
            if len(numbers) < 2 or not {*kinds} <= {*_KINDS} or not all(map(is_number, numbers)):
                raise ValueError(f"expected {_FORM}")
            inputs.append(Number(name, *map(float, numbers), log="log" in kinds, whole="whole" in kinds))
        except ValueError as error:
            raise ValueError(f"--bounds: {error}, got {text!r}") from error
    try:
        return Space(tuple(inputs))
    except ValueError as error:
        raise ValueError(f"--bounds: {error}") from error


def read_limits(texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return columns and the largest number of each, as the option names them; a ValueError for another form."""
    found = []
    for text in texts:
        name, _, most = text.rpartition(":")
        if not name or not is_number(most) or not math.isfinite(float(most)):
            raise ValueError(f"--limits: expected NAME:MOST with a finite number, got {text!r}")
        found.append((name, float(most)))
    return tuple(found)


def propose(path: Path, space: Space, optimiser: Optimiser, points: int = 1, goal: Goal = Goal()) -> int:
    """Adds the next points to a table, begun where there is none, prints them, and returns 0."""
    columns, rows = _read(path, [*space.names, *goal.columns])
    known, waiting = optimiser.init(), 0
    evaluated = [row for row in rows if not _awaits(row, goal)]
    for line, row in enumerate(rows, 2):
        try:
            if _awaits(row, goal):
                waiting += 1
            else:
                known = _told(known, row, space, optimiser, goal)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}") from error
    new = _proposed(known, waiting, rows, space, optimiser, points, goal)
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, *new])
    for row in new:
        sys.stdout.write(" ".join(f"{name}={value}" for name, value in row.items()) + "\n")
    _report(known, evaluated, space.names, optimiser, goal)
    return 0


def _report(
    known: Evaluations, rows: Sequence[dict[str, str]], names: Sequence[str], optimiser: Optimiser, goal: Goal
) -> None:
    """Prints the best row, and the one that the surrogate recommends; of several objectives all that are best."""

    def at(number: int) -> str:
        return ", ".join(f"{name}={rows[number][name]}" for name in names)

    if not bool(known.succeeded.any()):
        return
    if not bool(known.feasible.any()):
        sys.stdout.write(f"none of {len(rows)} rows is within all limits\n")
        return
    within = f" ({int(known.feasible.sum())} within limits)" if goal.limits else ""
    if len(goal.objectives) > 1:
        sys.stdout.write(f"best of {len(rows)}{within}, none of which is better in every objective:\n")
        for number in known.front:
            values = ", ".join(f"{name} {rows[number][name].strip()}" for name in goal.objectives)
            sys.stdout.write(f"  {values} at {at(number)}\n")
        return
    best, chosen = known.best_number, optimiser.recommend(known)
    kind, sign = ("largest", -1) if goal.maximise else ("least", 1)
    value = rows[best][goal.columns[0]].strip()
    sys.stdout.write(f"{kind} value of {len(rows)}{within}: {value} at {at(best)}\n")
    sys.stdout.write(
        f"recommended, should values be noisy: {at(chosen.number)}, where the surrogate expects "
        f"{sign * chosen.mean:.6g} (sd {chosen.sd:.2g})\n"
    )


def _proposed(
    known: Evaluations,
    waiting: int,
    rows: Sequence[dict[str, str]],
    space: Space,
    optimiser: Optimiser,
    points: int,
    goal: Goal,
) -> list[dict[str, str]]:
    """Return the next rows. None is one that awaits its value, as long as the draws that come next have others."""
    draws = itertools.count(waiting)

    def drawn() -> dict[str, str]:
        return space.row(optimiser.ask(known, next(draws)))

    new: list[dict[str, str]] = []
    awaited = [{name: row[name] for name in space.names} for row in rows if _awaits(row, goal)]
    for _ in range(points):
        row, tries = drawn(), 1
        while row in awaited and tries < _DRAWS:
            row, tries = drawn(), tries + 1
        awaited.append(row)
        new.append(row)
    return new


def _read(path: Path, needed: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns of a table, and its rows as texts."""
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


def _awaits(row: dict[str, str], goal: Goal) -> bool:
    """Return whether a row awaits its values."""
    return not any(row[name].strip() for name in goal.columns)


def _told(known: Evaluations, row: dict[str, str], space: Space, optimiser: Optimiser, goal: Goal) -> Evaluations:
    """Return the knowledge after a row."""
    sign = -1 if goal.maximise else 1
    value, *costs = (sign * number_of(name, row[name]) for name in goal.objectives)
    excess = [number_of(name, row[name]) - most for name, most in goal.limits]
    return optimiser.tell(known, space.point(row), value, costs, excess)
