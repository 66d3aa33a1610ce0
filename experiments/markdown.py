"""What pages of results share: tables and numbers in Markdown, and where pages are."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.tables import ROOT

PAGES = ROOT / "docs" / "benchmarks"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def decimal(value: Any, digits: int = 3) -> str:
    """Return a number without the zero before its point; a dash for none."""
    text = f"{float(value):.{digits}f}"
    return "-" if math.isnan(value) else text.replace("0.", ".", 1 if abs(value) < 1 else 0)
