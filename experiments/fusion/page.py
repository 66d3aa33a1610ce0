"""docs/benchmarks/fusion-results.md, of results/fusion.csv and sensors.csv; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import PAGES, decimal, table
from experiments.tables import ROOT

FOLDER, PAGE = ROOT / "experiments" / "fusion" / "results", PAGES / "fusion-results.md"
METHODS = {"fused": "product", "average": "averaged means", "experts": "mixture", "shard": "one shard"}
HEAD = """# Fused beliefs

Training rows are divided into shards, and each shard trains a learner of its own. The learners are then combined in
three ways ([guide](../fusion.md)). Cells are the share of wrong classes on 2000 other rows, as means of {seeds} seeds.
The largest standard error is {error}. The last column is the mean of the single learners.

{table}

- `fuse` is the product. It is good for few shards, and worse than the other ways for many shards.
- A mixture of predictions is safe for networks that were trained apart.

```sh
python experiments/fusion/run.py      # fills experiments/fusion/results/fusion.csv
python experiments/fusion/sensors.py  # the picture, and experiments/fusion/results/sensors.csv
```

![Signals of six gas sensors, conflicts, and the probability of each to be sound](../images/sensors.png)

In {cases} runs one of six gas sensors breaks. The probability that it is sound falls to {after} on average; it was
{before} before the fault.
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    frame, sensors = pd.read_csv(FOLDER / "fusion.csv"), pd.read_csv(FOLDER / "sensors.csv")
    cells = frame.groupby(["data", "learner", "shards", "method"])["error"]
    means: Any = cells.mean()
    rows = [
        [
            str(data),
            f"`{learner}`",
            str(shards),
            decimal(means[data, learner, 1, "all"]),
            *(decimal(means[data, learner, shards, method]) for method in METHODS),
        ]
        for data, learner, shards in sorted({key[:3] for key in means.index})
        if shards > 1
    ]
    header = ["set", "learner", "shards", "one learner of all rows", *METHODS.values()]
    text = HEAD.format(
        table=table(header, rows),
        seeds=frame["seed"].nunique(),
        error=decimal(cells.sem().max()),
        cases=len(sensors),
        after=decimal(sensors["sound_after"].mean(), 2),
        before=decimal(sensors["sound_before"].mean(), 2),
    )
    return {PAGE: text}
