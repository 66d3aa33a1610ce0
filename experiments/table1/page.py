"""docs/benchmarks/results.md and the table in the README, of results/table1.csv and differences.csv.

`experiments/pages.py` writes them.
"""

import pathlib
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.table1.differences import LINEAR, Row, best_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "experiments" / "table1" / "results" / "table1.csv"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "benchmarks" / "results.md"
DIFFERENCES = ROOT / "experiments" / "table1" / "results" / "differences.csv"
PROTOCOLS = ("rolling", "long_term")
DEFAULT = ("auto", "default")
DATA = {
    "exchange": "8 daily exchange rates, the data of the papers",
    "electricity-18dec": "369 customers, hourly; not the papers' windows",
    "solar": "17 homes, hourly; not the papers' 137 stations",
    "traffic": "900 detectors, hourly; not the papers' windows",
    "wiki": "1000 pages, daily; not the papers' pages",
}
# Table 1 of Kurle et al. (2020), rolling and long-term, on the same data: means and deviations over three or four runs.
PAPER = {
    "DeepAR": (".009 ± .001", ".019 ± .002"),
    "DeepState": (".010 ± .001", ".017 ± .002"),
    "KVAE-MC": (".010 ± .000", ".020 ± .001"),
    "KVAE-RB": (".009 ± .000", ".018 ± .001"),
    "RSGLS-ISSM": (".007 ± .000", ".014 ± .001"),
    "ARSGLS": (".009 ± .000", ".022 ± .001"),
}
SUMMARY = ("auto", "issm", "rsgls-issm", "sgls", "arsgls")  # the columns of the README
BETWEEN = re.compile(r"(<!-- results -->\n).*?(<!-- end -->)", re.DOTALL)
INTRODUCTION = """# Results

All models are trained and scored on five data sets. Cells are the CRPS (weighted quantile loss over tenths) as mean
± standard deviation over seeds; the number of seeds is in brackets. Lower is better. *Rolling* forecasts one horizon
from each window; *long-term* forecasts all windows at once.

| recipe | settings |
| --- | --- |
| `default` | no option but data and seed; the seconds include the choice of the model |
| `baseline` | [models of others](../models/baselines.md) |
| `best` | chosen with a look at these very windows |
| `paper` | settings of the papers, with ten or fifteen minutes on one core, and so far too few iterations |
| `fivo` | `best` with other options |

`tsforecast train MODEL --recipe NAME --dataset NAME` takes a recipe. Seconds are wall time of training; some runs
shared two cores with others. The row of `auto` on `electricity-18dec` is older than the others: the prior that banks
begin with has since seen its test part.

A damped level with seasons, fitted to every series by maximum likelihood, is not among the baselines; it is a strong
one.

```sh
experiments/table1/run.sh     # fills experiments/table1/results/table1.csv
python experiments/pages.py   # writes this page and the table of the README
```
"""


def statistics(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of the CRPS by data set, model and recipe: mean, std and count of each protocol; and means of what it cost."""
    keys = ["dataset", "model", "recipe"]
    stats = rows.groupby([*keys, "protocol"])["crps"].agg(["mean", "std", "count"]).unstack()
    facts = rows.groupby(keys)[["train_s"]].mean()
    return pd.DataFrame(stats), pd.DataFrame(facts)


def cells_of(stats: pd.DataFrame, facts: pd.DataFrame, key: tuple[str, str, str]) -> list[str]:
    """Scores of both protocols, and seconds."""
    row = stats.loc[key]
    scores = [cell(row["mean", p], row["std", p], row["count", p]) for p in PROTOCOLS]
    return [*scores, f"{facts.loc[key, 'train_s']:.0f}"]


def table_of(rows: pd.DataFrame, dataset: str) -> list[str]:
    """Markdown lines of one data set, the best rolling score first."""
    part = rows.loc[rows["dataset"] == dataset]
    if part.empty:
        return []
    stats, facts = statistics(part)
    lines = [f"## {dataset}", "", f"{DATA[dataset]}.", ""]
    lines += [
        "| model | recipe | rolling | long-term | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    means = pd.DataFrame(stats["mean"])
    for key in means.sort_values("rolling").index:
        lines.append(f"| `{key[1]}` | {key[2]} | {' | '.join(cells_of(stats, facts, key))} |")
    if dataset == "exchange":
        lines += [f"| {name} | Kurle et al. (2020) | {a} | {b} | |" for name, (a, b) in PAPER.items()]
    return [*lines, "", verdict(means.droplevel("dataset"), dataset), "", *paired(rows, dataset)]


def cell(mean: float, deviation: float, count: float) -> str:
    """Mean, deviation where there is one, and number of seeds."""
    digits = 5 if mean < 0.03 else 4
    text = f"{mean:.{digits}f}".lstrip("0")
    if not pd.isna(deviation):
        text += f" ± {deviation:.{digits}f}".replace(" 0.", " .")
    return f"{text} ({count:.0f})"


def verdict(means: pd.DataFrame, dataset: str) -> str:
    """How far `auto` is from the best of others, and what of ours is ahead of it with no option."""
    sentences = []
    for protocol in PROTOCOLS:
        others = means.loc[means.index.get_level_values("recipe") == "baseline", protocol]
        if others.empty or DEFAULT not in means.index:
            continue
        change = means.loc[DEFAULT, protocol] / others.min() - 1
        word = "ahead of" if change < 0 else "behind"
        label = protocol.replace("_", "-").capitalize()
        rival = others.idxmin()[0]
        sentences.append(f"{label}: `auto` is {abs(100 * change):.1f} % {word} `{rival}` ({others.min():.5g}).")
        ours = means.loc[means.index.get_level_values("recipe") == DEFAULT[1], protocol].sort_values()
        if ahead := [f"`{name}`" for name, _ in ours.index[ours < means.loc[DEFAULT, protocol]]]:
            sentences.append(f"Ahead by default: {', '.join(ahead)}.")
    return " ".join(sentences) or "Nothing of others, or no `auto`, has been run."


def summary(rows: pd.DataFrame) -> list[str]:
    """Markdown lines for the README: models without options, and the best of others, rolling / long-term."""
    stats, _ = statistics(rows)
    means = pd.DataFrame(stats["mean"])
    lines = [f"| data | {' | '.join(f'`{name}`' for name in SUMMARY)} | best of others |"]
    lines.append("| --- " * (len(SUMMARY) + 2) + "|")
    for dataset in (name for name in DATA if name in means.index):
        of_set = means.loc[dataset]
        ours = [scores_of(of_set, [(name, "default")]) for name in SUMMARY]
        baselines = [key for key in of_set.index if key[1] == "baseline"]
        lines.append(f"| {dataset} | {' | '.join(ours)} | {scores_of(of_set, baselines, named=True)} |")
    return lines


def scores_of(means: pd.DataFrame, keys: Sequence[tuple[str, str]], *, named: bool = False) -> str:
    """The least of both protocols among some rows."""
    cells, names = [], []
    for protocol in PROTOCOLS:
        found = means.loc[[key for key in keys if key in means.index], protocol]
        if found.empty:
            return "-"
        digits = 5 if found.min() < 0.03 else 4
        names.append(f"`{found.idxmin()[0]}`")
        cells.append(f"{found.min():.{digits}f}".lstrip("0"))
    return " / ".join(cells) + (f", {' / '.join(dict.fromkeys(names))}" if named else "")


def paired(rows: pd.DataFrame, dataset: str) -> list[str]:
    """Markdown lines of how far the best row is ahead of others, as far as that is known."""
    if not DIFFERENCES.exists():
        return []
    known = pd.read_csv(DIFFERENCES)
    known = known.loc[known["dataset"] == dataset]
    best = {protocol: best_of(rows.loc[rows["dataset"] == dataset], protocol) for protocol in PROTOCOLS}
    digits = 5 if dataset == "exchange" else 4
    cells: dict[Row, dict[str, str]] = {}
    without: dict[Row, dict[str, str]] = {}
    for line in known.to_dict("records"):
        text = f"{line['difference']:+.{digits}f}"
        if not np.isnan(line["low"]):  # without an interval where there were too few series and windows
            text += f" [{line['low']:+.{digits}f}, {line['high']:+.{digits}f}]"
        row, other = Row(line["model"], line["recipe"]), Row(line["other_model"], line["other_recipe"])
        if best[line["protocol"]] == row:
            cells.setdefault(other, {})[line["protocol"]] = text
        if other == LINEAR and row.recipe == LINEAR.recipe:
            without.setdefault(row, {})[line["protocol"]] = text
    found = []
    if without:
        found = [
            "Switching models without options minus the `issm` without any, likewise:",
            "",
            "| model | rolling | long-term |",
            "| --- | --- | --- |",
            *(
                f"| `{row.model}` | {' | '.join(texts.get(p, '') for p in PROTOCOLS)} |"
                for row, texts in without.items()
            ),
            "",
        ]
    if not cells:
        return found
    names = [f"{protocol.replace('_', '-')}, `{row.model}`" for protocol, row in best.items() if row]
    return [
        *found,
        "The best minus others, paired over series and windows, with 95 % intervals (less than 0: the best is ahead):",
        "",
        f"| minus | recipe | {' | '.join(names)} |",
        "| --- | --- | --- | --- |",
        *(
            f"| `{row.model}` | {row.recipe} | {' | '.join(texts.get(p, '') for p in PROTOCOLS)} |"
            for row, texts in cells.items()
        ),
        "",
    ]


def pages(rows: pd.DataFrame | None = None) -> dict[pathlib.Path, str]:
    """What every page should be, of the rows of experiments/table1/results/table1.csv if none are given."""
    rows = pd.read_csv(TABLE) if rows is None else rows
    lines = [INTRODUCTION]
    for dataset in DATA:
        lines += table_of(rows, dataset)
    found = {PAGE: "\n".join(lines).rstrip() + "\n"}
    table = "\n".join([*summary(rows), ""])
    found[README] = BETWEEN.sub(lambda match: f"{match[1]}{table}{match[2]}", README.read_text(encoding="utf-8"))
    return found
