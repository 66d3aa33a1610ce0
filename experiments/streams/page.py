"""docs/benchmarks/learners-results.md, of results/streams.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "streams" / "results" / "streams.csv", PAGES / "learners-results.md"
STREAMS = ("phishing", "noaa", "gas-drift", "gas-drift-unshuffled", "elec2", "elec2-lagged")
# Learner and settings, by name in the page.
ROWS = {
    "last class again": ("no-change", "{}"),
    "logistic regression, rate .01": ("logistic", '{"rate": 0.01}'),
    "logistic regression, rate .1": ("logistic", '{"rate": 0.1}'),
    "adaptive random forest": ("adaptive-random-forest", "{}"),
    "`lofi`": ("lofi", "{}"),
    "`lofi`, Wiener drift": ("lofi", '{"drift": "wiener", "rate": 0.001}'),
    "`lofi`, Ornstein-Uhlenbeck drift": ("lofi", '{"drift": "ou", "rate": 0.001}'),
    "`lofi`, forgetting": ("lofi", '{"drift": "forgetting", "rate": 0.001}'),
    "`vd-ekf`": ("vd-ekf", "{}"),
    "`vd-ekf`, Wiener drift": ("vd-ekf", '{"drift": "wiener", "rate": 0.001}'),
}
HEAD = """# Online learners

Each observation of a stream is predicted, scored and then learnt from. The table has the mean log-loss; lower is
better. The first four rows are learners of river. The others are [learners](../learners.md) over a network with 20
hidden units, with the same settings on every stream. Drifts have the rate .001. Where seeds differ, a cell is the mean
of three seeds.

{table}

- The streams come from `datasets/streams.py`; phishing comes with river. [Data sets](../../datasets/README.md#streams)
  describes them. `gas-drift` has eight of its ten batches.
- The settings of the drift were compared on the first 5000 days of `noaa`, and then used everywhere.
- The rows are of several commits, which the column `commit` of the table names.

```sh
python experiments/streams/run.py   # fills experiments/streams/results/streams.csv; hours on one core
```

![Daily CRPS of a frozen and of a learning forecaster, spring of 2020](../images/adaptation-eia-2020.png)

The picture shows the other use of learners: a [forecaster that keeps learning](../howto/live.md) after a break.
`python experiments/streams/adapt.py` makes it, and fills `experiments/streams/results/adapt.csv`.
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    means: Any = pd.read_csv(TABLE).groupby(["learner", "settings", "dataset"])["log_loss"].mean()
    rows = [
        [name, *(decimal(means.get((*key, stream), float("nan"))) for stream in STREAMS)] for name, key in ROWS.items()
    ]
    return {PAGE: HEAD.format(table=table(["learner", *STREAMS], rows))}
