"""docs/benchmarks/regimes-found.md, of benchmarks/results/regimes.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE = ROOT / "benchmarks" / "results" / "regimes.csv"
PAGE = PAGES / "regimes-found.md"
SINGLE, MODELS = ("issm", "gls"), ("markov", "sgls", "rsgls-issm", "arsgls", "statsmodels")
INTRODUCTION = """# Regimes that are found

Simulated systems with known regimes, 20 series of 600 days, forecast ten times 12 days ahead. The oracle knows all
parameters. Of each model with defaults: the share of days whose regime is right, CRPS divided by the oracle's, and CPU
seconds. "Single" is the better of `issm` and `gls`. `benchmarks/regimes.py` makes the rows.

"""
NOTE = """
Empty: not measured.
"""


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    every: Any = pd.read_csv(TABLE).query("seed == 0")
    models = [model for model in MODELS if (every["model"] == model).any()]
    cells = []
    for case, own in every.groupby("case", sort=False):
        of_model = own.groupby("model").mean(numeric_only=True)
        single = min(of_model["crps_to_oracle"].get(name, float("nan")) for name in SINGLE)
        found = [_cell(of_model.loc[model]) if model in of_model.index else "" for model in models]
        cells.append([case, decimal(of_model["accuracy"]["oracle"]), decimal(single), *found])
    header = ["Case", "Oracle's share", "Single", *(f"`{model}`" for model in models)]
    return {PAGE: INTRODUCTION + table(header, cells) + "\n" + NOTE}


def _cell(row: Any) -> str:
    """Return share, relative CRPS and seconds of a model; one that forecasts nothing has no CRPS."""
    return ", ".join([decimal(row["accuracy"]), decimal(row["crps_to_oracle"]), decimal(row["cpu_s"], 0)])
