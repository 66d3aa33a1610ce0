"""docs/benchmarks/fev.md, of the tables in results; `experiments/pages.py` writes it."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd

from experiments.fev.run import PUBLISHED, TABLE, latest
from experiments.fev.tasks import SOURCES
from experiments.markdown import decimal, table
from experiments.tables import ROOT

PAGE = ROOT / "docs" / "benchmarks" / "fev.md"
NAIVE = "Seasonal Naive"
# Published models, and what each was trained on.
SHOWN = {
    NAIVE: "-", "AutoARIMA": "each series", "DeepAR": "the task", "TFT": "the task", "PatchTST": "the task",
    "Chronos-Bolt": "other data", "Chronos-2": "other data",
}  # fmt: skip
PRIOR = ("forecast", "bank", "auto")  # of ours, that begin with what other series have taught
INTRODUCTION = f"""# fev-bench

{len(SOURCES)} of the hundred tasks of fev-bench, beside published results:

```bash
python experiments/fev/run.py --raw FOLDER  # what experiments/fev/results/fev_bench.csv lacks
```

The score is twice the quantile loss over tenths, in units of each series' seasonal error before the window; lower is
better. Ours have no option but data and seed, and are trained once, before the first window. Banks begin with
[priors](priors.md) that have not seen the task. Published results are those of autogluon/fev,
`benchmarks/fev_bench/results`, commit 1bc95fd (Apache-2.0); the best is that of thirty models that have not seen the
data. A dash was not run.

"""
SKILL = """
Skill is one minus the geometric mean of the ratio of scores to Seasonal Naive, as which a task without a result counts.
The last columns are the mean share of labels in the 80 % interval, and the median CPU seconds of training and
forecasts.

"""
NOTES = """
Runs whose seasonal naive does not have the published MASE and WAPE are refused. On ETT_1D the MASE alone agrees: the
WAPE is .3690, published .3567, and no cause was found.
"""


def pages() -> dict[pathlib.Path, str]:
    """Return the page."""
    return {PAGE: page(latest(pd.read_csv(TABLE)), pd.read_csv(PUBLISHED))}


def page(ours: pd.DataFrame, published: pd.DataFrame) -> str:
    """Return the text of the page.

    Args:
        ours: The latest rows of our models.
        published: Rows of others, with Seasonal Naive on all tasks.
    """
    return INTRODUCTION + tasks(ours, published) + "\n" + SKILL + models(ours, published) + "\n" + NOTES


def tasks(ours: pd.DataFrame, published: pd.DataFrame) -> str:
    """Return the table of scores: `forecast`, the best of ours and others."""
    rows = []
    for task in SOURCES:
        own, known = ours.loc[ours["task"] == task], published.loc[published["task"] == task]
        best = known.loc[~known["trained_on"].astype(bool)].nsmallest(1, "sql").iloc[0]
        scores = known.set_index("model")["sql"]
        first = own.set_index("name")["sql"].get("forecast", np.nan)
        cells = [task, decimal(first), "-"]
        if len(own):
            top = own.nsmallest(1, "sql").iloc[0]
            cells[2] = f"{decimal(top['sql'])} `{top['name']}`"
        rows.append([*cells, *(decimal(scores.get(name, np.nan)) for name in SHOWN)])
        rows[-1].append(f"{decimal(best['sql'])} {best['model']}")
    return table(["task", "`forecast`", "best of ours", *SHOWN, "best published"], rows)


def models(ours: pd.DataFrame, published: pd.DataFrame) -> str:
    """Return the table of skills, the best first."""
    lines = []
    for name, own in ours.groupby("name"):
        learnt = "the task" + " and other data" * (str(name).split(",")[0] in PRIOR)
        facts = [f"{100 * own['coverage_80'].mean():.0f} %", f"{own['cpu_s'].median():.0f}"]
        lines.append((skill(own, published), [f"`{name}`", str(len(own)), learnt, *facts]))
    for name, learnt in SHOWN.items():
        own = published.loc[published["model"] == name]
        lines.append((skill(own, published), [name, str(len(own)), learnt, "-", "-"]))
    lines.sort(key=lambda line: -line[0])
    header = ["model", "skill", "tasks", "trained on", "in 80 %", "CPU s"]
    return table(header, [[name, decimal(value), *rest] for value, (name, *rest) in lines])


def skill(rows: pd.DataFrame, published: pd.DataFrame) -> float:
    """Return the skill of a model over all tasks, where a task that it lacks counts as Seasonal Naive."""
    naive: Any = published[published["model"] == NAIVE].set_index("task")["sql"]
    ratios = rows.set_index("task")["sql"].reindex(naive.index).fillna(naive) / naive
    return 1 - float(np.exp(np.log(ratios).mean()))
