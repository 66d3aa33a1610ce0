"""docs/benchmarks/regimes-found.md, of benchmarks/results/regimes.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE = ROOT / "benchmarks" / "results" / "regimes.csv"
PAGE = PAGES / "regimes-found.md"
SINGLE = ("oracle", "issm", "gls")
INTRODUCTION = """# Regimes that are found

Simulated systems whose regimes are known, 20 series of 600 days each, forecast ten times 12 days ahead. The oracle
knows all parameters. Accuracy is the share of days whose regime is right. CRPS is divided by the oracle's, and by that
of the better of `issm` and `gls`. Seconds are those of the CPU for one training with defaults.
`python benchmarks/regimes.py` makes the rows.

"""


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    every: Any = pd.read_csv(TABLE)
    rows = every.groupby(["case", "model"], sort=False).mean(numeric_only=True)
    cells = []
    for (case, model), row in rows.iterrows():
        if model in SINGLE:
            continue
        own = every[every["case"] == case]
        seeds = own[own["model"] == model]["seed"]
        oracle = own[(own["model"] == "oracle") & own["seed"].isin(seeds)].mean(numeric_only=True)
        share = f"{decimal(row['accuracy'])} ({decimal(oracle['accuracy'])})"
        ratios = [decimal(row[name]) for name in ("crps_to_oracle", "crps_to_single")]
        cells.append([case, f"`{model}`", share, *ratios, decimal(row["cpu_s"], 0)])
    header = ["Case", "Model", "Accuracy (oracle's)", "CRPS / oracle", "CRPS / single", "CPU s"]
    return {PAGE: INTRODUCTION + table(header, cells) + "\n"}
