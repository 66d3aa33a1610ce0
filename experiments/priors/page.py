"""docs/benchmarks/priors.md, of the table in results; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import pandas as pd

from experiments.markdown import table
from experiments.priors.scores import TABLE
from experiments.tables import ROOT
from experiments.zeroshot.page import CLASSICS, score_text
from experiments.zeroshot.run import PUBLISHED
from tsforecast.forecasting.presets import EPOCHS

PAGE = ROOT / "docs" / "benchmarks" / "priors.md"
INTRODUCTION = """# What a bank knows before it sees the data

A [bank](../models/bank.md) begins with parameters that other public series of the same frequency have taught. Here each
task is forecast by a bank whose prior has not seen its source: conditioned alone, and after its usual short training on
the task's own history. The score is the weighted quantile loss over tenths of the last window; lower is better.

```bash
python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors/m3  # for each source
python experiments/priors/scores.py
```

"""
NOTES = """
The least number of steps of a short training, 12 batches an epoch, was chosen with a look at two of these tasks: CIF
2016 and COVID deaths.
"""


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    ours: Any = pd.read_csv(TABLE)
    published: Any = pd.read_csv(PUBLISHED)
    rows = []
    for task, own in ours.groupby("task", sort=False):
        known = published[published["task"] == task]
        classic = known[known["model"].isin(CLASSICS)].nsmallest(1, "wql").iloc[0]
        best = known[~known["trained_on_this_dataset"].astype(bool)].nsmallest(1, "wql").iloc[0]
        by = own.set_index("epochs")
        cells = [str(task).removeprefix("monash_").replace("_", " ")]
        for epochs in (0, EPOCHS["bank"]):
            if epochs not in by.index:
                cells += ["-", "-"]
                continue
            one = by.loc[epochs]
            cells += [score_text(one["wql"]), f"{one['fit_cpu_s'] + one['forecast_cpu_s']:.0f}"]
        cells += [f"{score_text(row['wql'])} {row['model'].replace('_', ' ')}" for row in (classic, best)]
        rows.append(cells)
    header = ["Task", "Conditioned", "CPU s", f"{EPOCHS['bank']} epochs", "CPU s", "Best classic", "Best published"]
    return {PAGE: INTRODUCTION + table(header, rows) + "\n" + NOTES}
