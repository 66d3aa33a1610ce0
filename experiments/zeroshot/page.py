"""docs/benchmarks/zeroshot-results.md, of the tables in results; `experiments/pages.py` writes it."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.tables import ROOT
from experiments.zeroshot.run import COVERAGES, JOINT, MODEL, PUBLISHED, TASKS

TABLE = ROOT / "experiments" / "zeroshot" / "results" / "zeroshot.csv"
BEFORE = ROOT / "experiments" / "zeroshot" / "results" / "calibration.csv"
PAGE = ROOT / "docs" / "benchmarks" / "zeroshot-results.md"
CLASSICS = ("auto_ets", "auto_arima", "auto_theta")
BOLT = "chronos_bolt_base"
KINDS = ("sum", "max")  # of the horizon, by joint paths
INTRODUCTION = f"""# Zero-shot benchmark

One command for all tasks, with no option but data and seed, beside published scores:

```bash
python datasets/zeroshot.py --raw FOLDER  # {len(TASKS)} tasks of the Chronos benchmark, from the raw files
python experiments/zeroshot/run.py  # train and score what experiments/zeroshot/results/zeroshot.csv lacks
```

`auto` [chooses](../choosing.md#how-auto-chooses) on windows before the end of the history. A task has one window: the
last steps of every series. The score is the weighted quantile loss over tenths, our CRPS; lower is better. Ours are
trained on the task's own history, by [priors](priors.md) that have not seen its source; the classics on each series.
Most other published models are pretrained.

Published scores are those of autogluon/fev, `benchmarks/chronos_zeroshot/results`, commit 1bc95fd (Apache-2.0). The
[data sets](../../datasets/README.md#tasks-of-the-zero-shot-benchmark) say where the raw files are.
"""
OLDER = "‡: by older code, whose banks had no prior. "
NOTES = """\
- One constant of the training of `bank`, how late its windows end, was chosen with a look at the test windows of nine
  of these tasks: all but car parts, monthly M3, ETTh and ETTm.
- `experiments/zeroshot/fev_scores.py` scores our forecasts by the package fev as well. On ETTh and ETTm it has
  our weighted quantile loss to all eight digits that it prints.
- The MASE takes the benchmark's season, which is 1 for daily deaths. Series without a seasonal error have no MASE.
- Missing labels count nowhere (car parts). The naive forecast repeats the last value before a gap.
- `exchange_rate` has all 7588 days, not the split of `exchange`. The window of `ETTm` is the first 24 of the last 96
  steps.
- The benchmark's copy has one wrong sign in the monthly M3 series, and rounds the yearly M1 series to two decimals. So
  do the prepared sets.
"""


def score_text(value: float) -> str:
    """A score without the zero before the point."""
    text = f"{value:.5f}" if value < 0.03 else f"{value:.4f}"
    return text.removeprefix("0")


def of_task(task: str, ours: pd.DataFrame, published: pd.DataFrame) -> dict[str, Any]:
    """What the table says of a task.

    Args:
        task: Name.
        ours: Its rows, one a seed.
        published: Its rows, one a model.
    """
    known = published.set_index("model")
    scores = known["wql"]
    best = str(scores.idxmin())
    return {
        "task": task,
        "wql": ours["wql"].mean(),
        "seeds": len(ours),
        "classic": float(scores.loc[list(CLASSICS)].min()),
        "classic_name": str(scores.loc[list(CLASSICS)].idxmin()),
        "bolt": float(scores.loc[BOLT]),
        "best": float(scores.min()),
        "best_name": best,
        "best_is_trained": bool(known.loc[best, "trained_on_this_dataset"]),
        **{
            f"naive_{metric}": abs(float(ours[f"naive_{metric}"].iloc[0] / known.loc["seasonal_naive", metric]) - 1)
            for metric in ("wql", "mase")
        },
        **{column: ours[column].mean() for column in [*COVERAGES, *JOINT]},
        "is_older": "without" not in ours or bool(ours["without"].isna().any()),
        "chosen": ", ".join(dict.fromkeys(ours["chosen"])),
        "seconds": (ours["select_s"] + ours["train_s"] + ours["forecast_s"]).mean(),
    }


def line(row: Mapping[str, Any]) -> str:
    """A line of the table."""
    ours, classic = score_text(row["wql"]), score_text(row["classic"])
    ours = f"**{ours}**" if row["wql"] < row["classic"] else ours
    inside = f"{100 * row['coverage_80']:.0f}"
    mark, older = " †" if row["best_is_trained"] else "", " ‡" if row["is_older"] else ""
    return (
        f"| {row['task']}{older} | {ours} | {classic}, {row['classic_name']} | {score_text(row['bolt'])} "
        f"| {score_text(row['best'])}, {row['best_name']}{mark} | {inside} | {row['seconds']:.0f} |"
    )


def shares(row: Mapping[str, Any]) -> str:
    """A line of the second table: what was chosen, and the coverage of sum and maximum."""
    inside = " | ".join(f"{100 * row[f'{name}_80']:.0f}" for name in KINDS)
    return f"| {row['task']} | `{row['chosen']}` | {inside} |"


def geometric_mean(rows: pd.DataFrame, other: str) -> float:
    """Of the ratios of our scores to others."""
    return float(np.exp(np.log(rows["wql"] / rows[other]).mean()))


def verdict(rows: pd.DataFrame, missing: list[str]) -> list[str]:
    """What the table comes to, in sentences."""
    ratios = {other: geometric_mean(rows, other) for other in ("classic", "bolt", "best")}
    behind = rows.loc[rows["wql"] >= rows["classic"]]
    worst = behind.assign(ratio=behind["wql"] / behind["classic"]).sort_values("ratio", ascending=False)
    losses = f"It is ahead of the best of the three classics on {len(rows) - len(behind)} of {len(rows)} tasks."
    if len(behind):
        names = ", ".join(f"{task} ({ratio:.2f})" for task, ratio in zip(worst["task"], worst["ratio"], strict=True))
        losses += f" It loses on {names}; in brackets is the ratio of its score to theirs."
    lines = [
        "| geometric mean of the ratio of our score to | |",
        "| --- | --- |",
        f"| the best of AutoETS, AutoARIMA, AutoTheta | {ratios['classic']:.3f} |",
        f"| Chronos-Bolt base | {ratios['bolt']:.3f} |",
        f"| the best published | {ratios['best']:.3f} |",
        "",
        losses,
    ]
    return [*lines, "", f"Not run yet: {', '.join(missing)}."] if missing else lines


def checked(rows: pd.DataFrame) -> str:
    """How well our seasonal naive agrees with the published one."""
    wql = rows["naive_wql"].max()
    far = rows.loc[rows["naive_mase"] > 1e-6]
    text = (
        "- Every run scores a seasonal naive as well. Its weighted quantile loss agrees with the published one to "
        f"{wql:.0e}, relatively, on every task, which is the precision of float32."
    )
    if far.empty:
        return f"{text} So does its MASE."
    names = " and ".join(f"{task} ({value:.0e})" for task, value in zip(far["task"], far["naive_mase"], strict=True))
    return f"{text} Its MASE does as well, but on {names}; no cause was found."


def earlier(rows: pd.DataFrame) -> list[str]:
    """Lines of the coverage of windows before those of the benchmark."""
    if rows.empty:
        return []
    inside = 100 * rows["coverage_80"]
    return [
        "## On windows before",
        "",
        "`python experiments/zeroshot/before.py` also "
        f"scores `bank` on earlier windows. 80 % intervals hold {inside.min():.0f} to {inside.max():.0f} % of the "
        f"labels, with a median of {inside.median():.0f} % over the tasks "
        "(`experiments/zeroshot/results/calibration.csv`).",
        "",
    ]


def page(ours: pd.DataFrame, published: pd.DataFrame, before: pd.DataFrame) -> str:
    """The page.

    Args:
        ours: Rows of experiments/zeroshot/results/zeroshot.csv.
        published: Rows of experiments/zeroshot/results/zeroshot_published.csv.
        before: Rows of experiments/zeroshot/results/calibration.csv.
    """
    tasks = list(published["task"].unique())
    done = [task for task in tasks if (ours["task"] == task).any()]
    if not done:
        raise ValueError("expected a row of a published task, got none: run `python experiments/zeroshot/run.py` first")
    rows = pd.DataFrame(
        [of_task(task, ours.loc[ours["task"] == task], published.loc[published["task"] == task]) for task in done]
    )
    lines = [
        INTRODUCTION,
        f"| task | `{MODEL}` | best of classics | Chronos-Bolt base | best published | in 80 % | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(line(row) for row in rows.to_dict("records")),
        "",
        f"Bold: ahead of the classics. †: trained on this data set. {OLDER if any(rows['is_older']) else ''}"
        f"Seeds: {rows['seeds'].max()}. The last columns are of `{MODEL}`: the share of labels inside its 80 % "
        "interval, in percent, and seconds of everything on one core, which other work shared.",
        "",
        *verdict(rows, [task for task in tasks if task not in done]),
        "",
        "## What was chosen",
        "",
        "The last columns are the shares of series whose sum over the horizon, and whose maximum, is inside the "
        "80 % interval of 100 joint paths, in percent; the table of results has those of 50 and 95 %.",
        "",
        "| task | chosen | sum | maximum |",
        "| --- | --- | --- | --- |",
        *(shares(row) for row in rows.to_dict("records")),
        "",
        *earlier(before),
        "## What was checked, and what differs",
        "",
        checked(rows),
        NOTES,
    ]
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    return {PAGE: page(pd.read_csv(TABLE), pd.read_csv(PUBLISHED), pd.read_csv(BEFORE))}
