"""docs/benchmarks/particles-results.md, of results/stein.csv and of policies.csv; `experiments/pages.py` writes it."""

import pathlib

import pandas as pd

from experiments.markdown import PAGES
from experiments.markdown import table as lines_of
from experiments.stein.run import SETS, STEPS
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "stein" / "results" / "stein.csv", PAGES / "particles-results.md"
DIGITS = ROOT / "experiments" / "stein" / "results" / "stein_digits.csv"
POLICIES = ROOT / "experiments" / "policies" / "results" / "policies.csv"
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
NAMES = {"map": "one particle (the mode)", "svgd": "SVGD", "s2vgd": "S2VGD"}
HEAD = """# Particles

## Regression

`python experiments/stein/run.py --folder FOLDER --splits 0 1 2` follows table 1 of Zhang et al. (2018): a hidden layer
of 50 units (Protein: 100), 20 [particles](../particles.md), batches of 100. Cells are RMSE / log-likelihood of test
rows (standard errors over splits). A dash was not run yet.

{table}

## Digits

A network 784-400-400-10 learns MNIST with 20 particles in 10 000 steps (`python experiments/stein/digits.py`, one seed,
no setting tuned).

{digits}

## Policies

`python experiments/policies/run.py` trains policies by Stein policy gradients, ten seeds each. Cells are means of the
returns in the last tenth of the iterations, of all policies and of the best. No setting was tuned. The kernel gains
nothing here over independent policies.

{policies}

![Mean returns over all iterations of every seed, for each agent and experiment](../images/policies.png)
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    rows = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame({"data": [], "method": [], "steps": []})
    digits = [
        [NAMES[row["method"]], f"{row['error']:.2%}", f"{row['error_each']:.2%}", f"{row['nll']:.3f}"]
        for row in pd.read_csv(DIGITS).to_dict("records")
    ]
    text = HEAD.format(
        table="\n".join(table(rows.loc[rows["steps"] == STEPS])),
        digits=lines_of(["", "error", "error of single particles", "-log p"], digits),
        policies=policies(pd.read_csv(POLICIES)),
    )
    return {PAGE: text}


def policies(rows: pd.DataFrame) -> str:
    """Return a table of the returns of each experiment."""
    keys = ["env", "gradient", "iterations", "agent", "particles"]
    means = rows.groupby(keys)[["returned", "best"]].mean().reset_index()
    cells = [
        [row["env"], row["gradient"], str(row["iterations"]), f"`{row['agent']}`", str(row["particles"])]
        + [f"{row[name]:.0f}" for name in ("returned", "best")]
        for row in means.to_dict("records")
    ]
    return lines_of([*keys[:-1], "policies", "all", "best"], cells)


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
    return " / ".join(f"{part[name].mean():.3g} ({part[name].sem():.2g})" for name in ("rmse", "log_likelihood"))
