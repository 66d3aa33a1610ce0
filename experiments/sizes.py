"""The table of sizes in docs/releases.md, of what `make release` has measured; `experiments/pages.py` writes it."""

import pathlib
import re
from typing import Any

import pandas as pd

from experiments.markdown import table
from experiments.tables import ROOT

PAGE = ROOT / "docs" / "releases.md"
SIZES = ROOT / "benchmarks" / "results" / "sizes.csv"
BETWEEN = re.compile(r"(<!-- sizes -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    sizes: Any = pd.read_csv(SIZES, dtype={"python": str, "extra": str}, keep_default_na=False)
    rows = [
        [f"`pip install 'tsforecast[{row.extra}]'`" if row.extra else "`pip install tsforecast`", row.python,
         str(row.megabytes)]
        for row in sizes.itertuples()
    ]  # fmt: skip
    text = table(["command", "Python", "MiB"], rows)
    return {PAGE: BETWEEN.sub(rf"\g<1>{text}\n\g<2>", PAGE.read_text(encoding="utf-8"))}
