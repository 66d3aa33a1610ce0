"""docs/results.md, and the scores in docs/models, from results/table1.csv and differences.csv.

`python runs/leaderboard.py` writes them.

With `--check` nothing is written: are they up to date? In a page of docs/models what is between
`<!-- table1: NAMES -->` and `<!-- end -->` becomes the rows of these models.
"""

import argparse
import pathlib
import re

import numpy as np
import pandas as pd
from differences import LINEAR, OURS, Row, best_of

from tsforecast.data.files import replace_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
DIFFERENCES = ROOT / "results" / "differences.csv"
MARKED = re.compile(r"(<!-- table1: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PROTOCOLS = ("rolling", "long_term")
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
# What to beat, measured apart on these windows: DeepAR; and in exact quantiles a damped level with seasons, of every
# series by maximum likelihood (electricity; far ahead on solar and wiki).
PEERS = {
    "electricity-18dec": (0.0658, 0.0714),
    "solar": (0.091, 0.0994),
    "traffic": (0.2311, 0.2413),
    "wiki": (0.3419, 0.3685),
}
INTRODUCTION = """# Results

Made by `python runs/leaderboard.py` from `results/table1.csv`, which `runs/table1.sh` fills; every line there has its
command and commit. CRPS is the weighted quantile loss over tenths with 100 sample paths (exact quantiles for the
classics), mean ± standard deviation over seeds (in brackets: how many), lower is better. Recipes: `best` are our
settings. `default` has no option but data and seed: the data choose, and the seconds include the choice. `paper` are
the settings of the papers, with as many iterations as ten or fifteen minutes on one core allow. These are 64 to 640
instead of 2500. So the rows of `paper` say what these minutes buy, and not what the models can. `baseline` are [models
of others](models/baselines.md), and the rest are `best` with something changed. Their options are in
`tsforecast/recipes`, and `tsforecast train MODEL --recipe NAME --dataset NAME` takes them.
Settings of `best` were chosen while looking at these windows. Seconds are wall time of training, in part of runs that
shared two cores with three others, and above the budget where those were busy. Paired differences are of `python
runs/differences.py` (`results/differences.csv`): scores of a row's seeds are averaged first, so their intervals speak
of series and windows. Those of rows without options are of seed 0, on wiki `arsgls` and `kvae-rb` of three.
"""


def statistics(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of the CRPS by data set, model and recipe: mean, std and count of each protocol; and means of what it cost."""
    keys = ["dataset", "model", "recipe"]
    stats = rows.groupby([*keys, "protocol"])["crps"].agg(["mean", "std", "count"]).unstack()
    facts = rows.groupby(keys)[["iterations", "train_s"]].mean()
    return pd.DataFrame(stats), pd.DataFrame(facts)


def cells_of(stats: pd.DataFrame, facts: pd.DataFrame, key: tuple[str, str, str]) -> list[str]:
    """Scores of both protocols, iterations and seconds."""
    row = stats.loc[key]
    scores = [cell(row["mean", p], row["std", p], row["count", p]) for p in PROTOCOLS]
    return scores + ["" if pd.isna(x) else f"{x:.0f}" for x in facts.loc[key, ["iterations", "train_s"]]]


def table_of(rows: pd.DataFrame, dataset: str) -> list[str]:
    """Markdown lines of one data set, the best rolling score first."""
    part = rows.loc[rows["dataset"] == dataset]
    if part.empty:
        return []
    stats, facts = statistics(part)
    lines = [f"## {dataset}", "", f"{DATA[dataset]}.", ""]
    lines += [
        "| model | recipe | rolling | long-term | iterations | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    means = pd.DataFrame(stats["mean"])
    for key in means.sort_values("rolling").index:
        lines.append(f"| `{key[1]}` | {key[2]} | {' | '.join(cells_of(stats, facts, key))} |")
    if dataset == "exchange":
        lines += [f"| {name} | Kurle et al. (2020) | {a} | {b} | 2500 | |" for name, (a, b) in PAPER.items()]
    return [*lines, "", verdict(means.droplevel("dataset"), dataset), "", *paired(rows, dataset)]


def rows_of(rows: pd.DataFrame, models: list[str]) -> list[str]:
    """Markdown lines of some models on all data sets."""
    part = rows.loc[rows["model"].isin(models) & rows["dataset"].isin(list(DATA))]
    if part.empty:
        return ["None yet."]
    stats, facts = statistics(part)
    lines = [
        "CRPS, mean ± standard deviation over (number of) seeds; seconds of training on one core "
        "([results](../results.md)).",
        "",
        "| data | model | recipe | rolling | long-term | iterations | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = {name: place for place, name in enumerate([*DATA, *models])}
    for key in sorted(stats.index, key=lambda key: (order[key[0]], order[key[1]], key[2])):
        lines.append(f"| {key[0]} | `{key[1]}` | {key[2]} | {' | '.join(cells_of(stats, facts, key))} |")
    return lines


def cell(mean: float, deviation: float, count: float) -> str:
    """Mean, deviation where there is one, and number of seeds."""
    digits = 5 if mean < 0.03 else 4
    text = f"{mean:.{digits}f}".lstrip("0")
    if not pd.isna(deviation):
        text += f" ± {deviation:.{digits}f}".replace(" 0.", " .")
    return f"{text} ({count:.0f})"


def verdict(means: pd.DataFrame, dataset: str) -> str:
    """Whether one of ours is ahead, and of what."""
    sentences = []
    for protocol in PROTOCOLS:
        is_ours = means.index.get_level_values("model").isin(OURS)
        is_best = is_ours & (means.index.get_level_values("recipe") == "best")
        ours, others = means.loc[is_best, protocol], means.loc[~is_ours, protocol]
        if ours.empty:
            continue
        names = {f"`{name[0]}`": value for name, value in others.items()}
        if dataset in PEERS:
            names["the peers' best"] = PEERS[dataset][protocol == "long_term"]
        rival = min(names, key=names.__getitem__)
        best = ours.idxmin()
        change = ours.min() / names[rival] - 1
        word = "ahead of" if change < 0 else "behind"
        label = protocol.replace("_", "-").capitalize()
        sentences.append(f"{label}: `{best[0]}` is {abs(100 * change):.1f} % {word} {rival} ({names[rival]:.5g}).")
    return " ".join(sentences)


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


def pages(rows: pd.DataFrame) -> dict[pathlib.Path, str]:
    """What every page should be."""
    lines = [INTRODUCTION]
    for dataset in DATA:
        lines += table_of(rows, dataset)
    found = {PAGE: "\n".join(lines).rstrip() + "\n"}
    for page in sorted((ROOT / "docs" / "models").glob("*.md")):
        found[page] = MARKED.sub(
            lambda match: "\n".join([match[1], *rows_of(rows, match[2].split()), "", match[3]]),
            page.read_text(encoding="utf-8"),
        )
    return found


def main() -> None:
    """Writes the pages, or compares them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for page, text in pages(pd.read_csv(ROOT / "results" / "table1.csv")).items():
        if not options.check:
            with replace_file(page) as temporary:
                temporary.write_text(text, encoding="utf-8")
        elif page.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{page} is not what results/table1.csv says: run `python runs/leaderboard.py`")


if __name__ == "__main__":
    main()
