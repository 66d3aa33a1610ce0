"""docs/benchmarks/optimisation-results.md, of results/bayesopt.csv; `experiments/pages.py` writes it."""

import pathlib

import pandas as pd

from experiments.markdown import PAGES, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "bayesopt" / "results" / "bayesopt.csv", PAGES / "optimisation-results.md"
METHODS = ("vd-ekf", "lofi", "ekf", "gp", "tpe", "random")
FUNCTIONS = ("branin", "ackley-2", "ackley-5", "hartmann-6")
HEAD = """# Optimisation

Four functions with a known least value are minimised by {evaluations} evaluations each. Cells are the median over
{runs} runs of the regret: how far the best value found lies above the least one. The first three rows are
[ours](../optimisation.md). `gp` is a Gaussian process of scikit-learn with expected improvement, `tpe` is Optuna's
method, and `random` draws points.

{table}

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
    medians = frame.groupby(["method", "function"])[f"regret_{last}"].median()
    rows = [[f"`{method}`", *(f"{medians[method, function]:.2g}" for function in FUNCTIONS)] for method in METHODS]
    runs = frame.groupby(["method", "function"]).size().min()
    return {PAGE: HEAD.format(evaluations=last, runs=runs, table=table(["method", *FUNCTIONS], rows))}
