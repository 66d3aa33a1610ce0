"""What pages of results share: tables and numbers in Markdown, and where pages are."""

from collections.abc import Iterable, Sequence

import pandas as pd

from experiments.tables import ROOT

PAGES = ROOT / "docs" / "benchmarks"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def decimal(value: float, digits: int = 3) -> str:
    """Return a number without the zero before its point; a dash for none."""
    return "-" if pd.isna(value) else f"{value:.{digits}f}".replace("0.", ".", 1 if abs(value) < 1 else 0)
