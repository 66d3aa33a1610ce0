"""The table of docs/particles.md, of results/stein.csv; `experiments/pages.py` writes it."""

import pathlib
import re

import pandas as pd

from experiments.stein.run import SETS, STEPS
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "stein" / "results" / "stein.csv", ROOT / "docs" / "particles.md"
BETWEEN = re.compile(r"(<!-- stein -->\n).*?(<!-- end -->)", re.DOTALL)
# Zhang et al. (2018), table 1: RMSE and log-likelihood of SVGD and S2VGD.
PUBLISHED = {
    "boston": ("2.96 / -2.50", "2.56 / -2.43"),
    "concrete": ("5.32 / -3.08", "4.25 / -2.90"),
    "energy": ("1.37 / -1.77", "0.38 / -0.55"),
    "yacht": ("0.86 / -1.23", "0.47 / -0.81"),
    "wine_red": ("0.61 / -0.93", "0.59 / -0.90"),
    "power": ("4.03 / -2.82", "3.84 / -2.77"),
    "kin8nm": ("0.09 / 0.98", "0.07 / 1.15"),
    "naval": ("0.00 / 4.09", "0.00 / 4.79"),
    "protein": ("4.61 / -2.95", "4.15 / -2.84"),
}


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    rows = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame({"data": [], "method": [], "steps": []})
    text = "\n".join([*table(rows.loc[rows["steps"] == STEPS]), ""])
    return {PAGE: BETWEEN.sub(lambda match: f"{match[1]}{text}{match[2]}", PAGE.read_text(encoding="utf-8"))}


def table(rows: pd.DataFrame) -> list[str]:
    """Return lines of Markdown: published scores, and ours with standard errors over splits."""
    lines = [
        "| set | splits | SVGD, published | SVGD, here | S2VGD, published | S2VGD, here |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in SETS:
        own = {method: rows.loc[(rows["data"] == name) & (rows["method"] == method)] for method in ("svgd", "s2vgd")}
        counts = {len(part) for part in own.values()}
        cells = [f"{known} | {scores(part)}" for known, part in zip(PUBLISHED[name], own.values(), strict=True)]
        lines.append(f"| {name} | {' and '.join(map(str, sorted(counts)))} | {' | '.join(cells)} |")
    return lines


def scores(part: pd.DataFrame) -> str:
    """Return mean and standard error of both scores; a dash without two splits."""
    if len(part) < 2:
        return "-"
    return " / ".join(f"{part[name].mean():.3g} ± {part[name].sem():.2g}" for name in ("rmse", "log_likelihood"))
