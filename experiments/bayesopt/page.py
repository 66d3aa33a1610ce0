"""docs/benchmarks/optimisation-results.md, of results/bayesopt.csv; `experiments/pages.py` writes it."""

import pathlib
import statistics

import pandas as pd

from experiments.markdown import PAGES, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "bayesopt" / "results" / "bayesopt.csv", PAGES / "optimisation-results.md"
METHODS = ("vd-ekf", "lofi", "ekf", "gp", "tpe", "random")
FUNCTIONS = ("branin", "ackley-2", "ackley-5", "hartmann-6")
# Of the second table, in which both acquisitions stand beside others after few evaluations and many.
FEW, COMPARED, SHOWN = 24, ("vd-ekf", "ei", "mixed", "gp", "botorch"), ("branin", "hartmann-6", "ackley-5")
HEAD = """# Optimisation

Four functions with a known least value are minimised by {evaluations} evaluations each. Cells are the median over
{runs} runs of the regret: how far the best value found lies above the least one. The first three rows are
[ours](../optimisation.md). `gp` is a Gaussian process of scikit-learn with expected improvement, `tpe` is Optuna's
method, and `random` draws points.

{table}

Medians after {few} and {evaluations} evaluations, over {seeds} runs: Thompson sampling (`vd-ekf`), expected improvement
(`ei`), both in turn (`mixed`). `botorch` is BoTorch's Gaussian process with expected improvement, of at most {others}.
A dash was not run.

{both}

- Settings were chosen on other seeds, with a look at all four functions.
- Smooth functions (Branin, Hartmann) suit a Gaussian process. Functions with many small minima (Ackley) suit networks.
- Medians hide bad runs: some runs of all methods end in another minimum. An optimisation that matters deserves several
  seeds.

```sh
python experiments/bayesopt/run.py   # fills experiments/bayesopt/results/bayesopt.csv, and draws
```

![Simple regret against evaluations: medians and quartiles](../images/bayesopt.png)
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    frame = pd.read_csv(TABLE)
    last = int(frame["evaluations"].max())
    whole = frame.loc[frame["evaluations"] == last]
    medians = whole.groupby(["method", "function"])[f"regret_{last}"].median()
    rows = [[f"`{method}`", *(f"{medians[method, function]:.2g}" for function in FUNCTIONS)] for method in METHODS]
    runs = whole.loc[whole["method"].isin(METHODS)].groupby(["method", "function"]).size().min()
    seeds = frame.loc[frame["method"] == "mixed", "seed"].unique()
    others = frame.loc[frame["method"] == "botorch", "seed"].nunique()
    head = ["method", *(f"{name}, {count}" for name in SHOWN for count in (FEW, last))]
    text = HEAD.format(
        evaluations=last, runs=runs, table=table(["method", *FUNCTIONS], rows), few=FEW, seeds=len(seeds),
        others=others, both=table(head, _both(frame.loc[frame["seed"].isin(seeds)], last)),
    )  # fmt: skip
    return {PAGE: text}


def _both(frame: pd.DataFrame, last: int) -> list[list[str]]:
    """Return the rows of the second table."""
    rows = []
    for method in COMPARED:
        row = [f"`{method}`"]
        for name in SHOWN:
            part = frame[(frame["method"] == method) & (frame["function"] == name)]
            curves = [[float(x) for x in text.split()] for text in part["regrets"]]
            for count in (FEW, last):
                reached = [curve[count - 1] for curve in curves if len(curve) >= count]
                row.append(f"{statistics.median(reached):.2g}" if reached else "-")
        rows.append(row)
    return rows
