"""docs/benchmarks/anomalies-results.md, of results/anomalies.csv; `experiments/pages.py` writes it."""

import csv
import pathlib

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "anomalies" / "results" / "anomalies.csv", PAGES / "anomalies-results.md"
RATES = (0.001, 0.01, 0.05)
METHODS = ("anomalies", "rolling z-score", "STL residual")
KINDS = ("spike", "variance", "shift")
HEAD = """# Anomalies

[`tsforecast anomalies`](../howto/anomalies.md) stands beside a rolling z-score and the residual of STL, which sees the
whole series. Six sets are simulated and three are real. The [NAB page](nab-results.md) has the online detector.

## What is found

Spikes, stretches of more variance and shifts of the level are planted. Cells are the share that is found (recall) at
the threshold which each method passes in one of 1000 ordinary steps. The largest standard error is {recall_error}.

{recall}

## How often it flags

Nothing is planted here. Cells are the share of flagged steps where .01 is asked for. The largest standard error is
{share_error}. `experiments/anomalies/results/anomalies.csv` has the same for .001 and .05.

{share}

Real series change for good, and the rate does not hold there. A few series with long alarms then set the threshold of
the first table. This is why little is found in `wiki`.

```sh
python experiments/anomalies/run.py   # fills experiments/anomalies/results/anomalies.csv; ten minutes on one core
```
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    return {PAGE: page(TABLE)}


def page(path: pathlib.Path) -> str:
    """Return the page of a table of results."""
    with path.open(newline="") as stream:
        cells = {
            (r["set"], r["method"], r["measure"]): (float(r["value"]), float(r["se"])) for r in csv.DictReader(stream)
        }
    sets = list(dict.fromkeys(name for name, _, _ in cells))
    columns = {f"{kind}, {method}": (method, f"recall {kind}") for kind in KINDS for method in METHODS}
    shares = {method: (method, "share 0.01") for method in METHODS}

    def lines(chosen: dict[str, tuple[str, str]]) -> str:
        rows = ([name, *(decimal(cells[(name, *key)][0]) for key in chosen.values())] for name in sets)
        return table(["set", *chosen], rows)

    def error(chosen: dict[str, tuple[str, str]]) -> str:
        return decimal(max(cells[(name, *key)][1] for name in sets for key in chosen.values()))

    return HEAD.format(
        recall=lines(columns), recall_error=error(columns), share=lines(shares), share_error=error(shares)
    )
