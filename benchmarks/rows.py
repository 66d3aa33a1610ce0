"""Rows of a benchmark's table: a CSV file that is measured piece by piece, and lines that are aligned."""

import csv
import pathlib
from collections.abc import Sequence
from typing import Any

from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file


def write(path: pathlib.Path, rows: list[dict[str, Any]], key: Sequence[str], columns: Sequence[str]) -> None:
    """Replaces the rows of the file that are measured anew and keeps the others; a reader never sees half a file.

    Each row gets commit and command of this script. Scripts call `provenance` before they measure, too.

    Args:
        path: Of the CSV file.
        rows: What was measured.
        key: Columns that tell rows apart; of those with all but the last alike all are replaced.
        columns: The others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    anew = {tuple(str(row.get(name, "")) for name in key[:-1]) for row in rows}
    kept = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in csv.DictReader(file) if tuple(row[name] for name in key[:-1]) not in anew]
    with replace_file(path) as temporary, temporary.open("w", newline="") as file:
        facts = provenance(path)
        writer = csv.DictWriter(file, [*key, *columns, *facts], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *(row | facts for row in rows)])


def aligned(lines: Sequence[Sequence[str]], numbers: set[int]) -> str:
    """Lines of cells as text, the columns of numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    align = [str.rjust if i in numbers else str.ljust for i in range(len(widths))]
    return "\n".join("  ".join(f(x, w) for f, x, w in zip(align, line, widths, strict=True)).rstrip() for line in lines)
