"""docs/benchmarks/priors.md, of the table in results; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.markdown import table
from experiments.priors.scores import MODELS, TABLE
from experiments.tables import ROOT
from experiments.zeroshot.page import CLASSICS, score_text
from experiments.zeroshot.run import PUBLISHED

PAGE = ROOT / "docs" / "benchmarks" / "priors.md"
INTRODUCTION = """# What a bank knows before it sees the data

A [bank](../models/bank.md) begins with parameters that other public series of the same frequency have taught. Here each
task is forecast by a bank whose prior has not seen its source: conditioned alone, and as
`tsforecast forecast` does it, which learns from the task's own history, too. The score is the weighted quantile loss
over tenths of the last window; lower is better.

```bash
python experiments/priors/run.py --raw FOLDER --units Q --without m3 --output outputs/priors/m3  # for each source
python experiments/priors/scores.py
```

"""


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    ours: Any = pd.read_csv(TABLE)
    published: Any = pd.read_csv(PUBLISHED)
    rows, ratios = [], []
    for task, own in ours.groupby("task", sort=False):
        known = published[published["task"] == task]
        classic = known[known["model"].isin(CLASSICS)].nsmallest(1, "wql").iloc[0]
        best = known[~known["trained_on_this_dataset"].astype(bool)].nsmallest(1, "wql").iloc[0]
        by = own.set_index("model")
        cells = [str(task).removeprefix("monash_").replace("_", " ")]
        for model in MODELS:
            if model not in by.index:
                cells += ["-", "-"]
                continue
            one = by.loc[model]
            cells += [score_text(one["wql"]), f"{one['fit_cpu_s'] + one['forecast_cpu_s']:.0f}"]
        cells += [f"{score_text(row['wql'])} {row['model'].replace('_', ' ')}" for row in (classic, best)]
        rows.append(cells)
        ratios.append([by["wql"].reindex(MODELS).to_numpy() / row["wql"] for row in (classic, best)])
    header = ["Task", "Conditioned", "CPU s", "`forecast`", "CPU s", "Best classic", "Best published"]
    return {PAGE: INTRODUCTION + table(header, rows) + "\n" + _means(np.array(ratios))}


def _means(ratios: NDArray[np.float64]) -> str:
    """A sentence with geometric means, given ratios by task, yardstick and model."""
    (alone, ours), (alone_best, ours_best) = np.exp(np.log(ratios).mean(0))
    return (
        f"\nGeometric means of the ratio to the best of the classics: {alone:.3f} conditioned alone, {ours:.3f} as "
        f"`forecast`; to the best published: {alone_best:.3f} and {ours_best:.3f}.\n"
    )
