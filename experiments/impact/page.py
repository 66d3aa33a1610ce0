"""docs/benchmarks/impact-results.md, of results/impact.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "impact" / "results" / "impact.csv", PAGES / "impact-results.md"
MEASURES = ("pointwise", "average", "cumulative")
HEAD = """# Impact: do the intervals hold?

Nothing happened in these series, so the 95 % intervals of an [impact](../howto/impact.md) must cover "no effect" in 95
of 100 cases. Simulated series are drawn anew for each row: independent noise, an autoregression, a random walk, growth
with an autoregression, and a weekly pattern. Real series (the last three rows) are cut at random dates. Cells are the
share of intervals that cover no effect: at single steps, for the average, and for the sum up to each step.
The largest standard errors are {simulated_error} for simulated and {real_error} for
real series.

{table}

- After a hundred steps a random walk is hard to tell from a series that returns. Intervals of random walks are then
  too narrow, and those of growing series too wide. Three other priors of structures did not mend this. One with a
  quarter of the weight on autoregressions, and less on moving trends, widened both.
- Averages of real page views have intervals that are too narrow.

```sh
python experiments/impact/run.py   # fills experiments/impact/results/impact.csv; seven minutes on one core
```
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    return {PAGE: page(pd.read_csv(TABLE))}


def page(rows: pd.DataFrame) -> str:
    """Return the page of the rows of results/impact.csv."""
    keys = ["set", "before", "horizon"]
    lines = []
    groups: Any = rows.groupby(keys, sort=False)
    for key, part in groups:
        own = part.set_index("controls")
        cells = [own[name].get(controls, float("nan")) for controls in (0, 3) for name in MEASURES]
        lines.append([*map(str, key), *(decimal(value) for value in cells)])
    errors: Any = rows[[f"{name}_se" for name in MEASURES]].max(axis=1).groupby(rows["dates"] == 1).max()
    header = ["series", "steps before", "with", *MEASURES, *(f"{name}, 3 controls" for name in MEASURES)]
    return HEAD.format(
        table=table(header, lines), simulated_error=decimal(errors[True]), real_error=decimal(errors[False])
    )
