"""docs/benchmarks/irregular-results.md, of results/irregular.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "irregular" / "results" / "irregular.csv", PAGES / "irregular-results.md"
METHODS = {
    "continuous": "continuous time",
    "rsgls-issm": "`rsgls-issm`",
    "sgls": "`sgls`",
    "grid": "grid with missing values",
    "gp": "Gaussian process",
    "gru-d": "GRU-D",
}
HEAD = """# Series without a grid

A share of the values of each series is kept at random. The models are asked for others: between the observations
(interpolation) and in the last twentieth of the time (extrapolation). Cells are the CRPS over the mean size of the
values, interpolation / extrapolation, with one seed; lower is better. [The guide](../howto/irregular.md) describes the
models. A dash was not run.

{table}

- "Continuous time" is `issm`, and `gls` for the pendulum, with default options.
- Where series repeat one motion (pendulum), continuous time is ahead. On short single series a Gaussian process is
  about as good.
- The 80 % intervals of extrapolation in continuous time hold {least} to {most} of the values. One origin is little
  evidence, and short series have too narrow intervals.

```sh
python experiments/irregular/run.py --data FOLDER   # fills experiments/irregular/results/irregular.csv
```

![A pendulum, of whose values three in ten were observed](../images/irregular.png)
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    frame = pd.read_csv(TABLE)
    scores: Any = frame.groupby(["data", "rate", "method", "question"])["crps"].mean()
    rows = []
    for data, rate in frame[["data", "rate"]].drop_duplicates().itertuples(index=False):
        pairs = [
            [scores.get((data, rate, method, kind), float("nan")) for kind in ("interpolation", "extrapolation")]
            for method in METHODS
        ]
        cells = ["-" if pd.isna(pair[0]) else " / ".join(decimal(value, 4) for value in pair) for pair in pairs]
        rows.append([str(data), f"{100 * rate:.0f} %", *cells])
    ours = frame.loc[(frame["method"] == "continuous") & (frame["question"] == "extrapolation"), "coverage_80"]
    text = HEAD.format(
        table=table(["set", "kept", *METHODS.values()], rows), least=f"{ours.min():.0%}", most=f"{ours.max():.0%}"
    )
    return {PAGE: text}
