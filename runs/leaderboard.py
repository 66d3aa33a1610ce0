"""docs/results.md from results/table1.csv: `python runs/leaderboard.py`, or `--check` whether it is up to date."""

import argparse
import pathlib

import pandas as pd

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
OURS = ("issm", "gls", "deepstate", "sgls", "rsgls", "rsgls-issm", "arsgls", "kvae-rb", "kvae-mc")
DATA = {
    "exchange": "8 daily exchange rates, the data of the papers",
    "electricity-18dec": "369 customers, hourly; not the papers' windows",
    "solar": "17 homes, hourly; not the papers' 137 stations",
    "traffic": "900 detectors, hourly; not the papers' windows",
    "wiki": "2000 pages, daily; not the papers' pages",
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
# What to beat, measured apart on these windows: ETS with a damped level (electricity; solar far ahead), else DeepAR.
PEERS = {
    "electricity-18dec": (0.066, 0.071),
    "solar": (0.091, 0.099),
    "traffic": (0.231, 0.241),
    "wiki": (0.342, 0.379),
}
INTRODUCTION = """# Results

Made by `python runs/leaderboard.py` from `results/table1.csv`, which `runs/table1.sh` fills; every line there has its
command and commit. CRPS is the weighted quantile loss over tenths with 100 sample paths (exact quantiles for the
classics), mean ± standard deviation over seeds (in brackets: how many), lower is better. Recipes: `best` are our
settings; `paper` those of the papers with as many iterations as ten or fifteen minutes on one core allow (60 to 160
instead of 2500, so such rows say what these minutes buy, and not what the models can); others change one thing of
`best`. Settings of `best` were chosen while looking at these windows.
"""


def table_of(rows: pd.DataFrame, dataset: str) -> list[str]:
    """Markdown lines of one data set, the best rolling score first."""
    part = rows.loc[rows["dataset"] == dataset]
    if part.empty:
        return []
    keys = ["model", "recipe"]
    stats = part.groupby([*keys, "protocol"])["crps"].agg(["mean", "std", "count"]).unstack()
    facts = part.groupby(keys)[["iterations", "train_s"]].mean()
    lines = [f"## {dataset}", "", f"{DATA[dataset]}.", ""]
    lines += [
        "| model | recipe | rolling | long-term | iterations | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for model, recipe in stats["mean"].sort_values("rolling").index:
        row = stats.loc[(model, recipe)]
        cells = [cell(row["mean", p], row["std", p], row["count", p]) for p in ("rolling", "long_term")]
        numbers = ["" if pd.isna(x) else f"{x:.0f}" for x in facts.loc[(model, recipe), ["iterations", "train_s"]]]
        lines.append(f"| `{model}` | {recipe} | {' | '.join([*cells, *numbers])} |")
    if dataset == "exchange":
        lines += [f"| {name} | Kurle et al. (2020) | {a} | {b} | 2500 | |" for name, (a, b) in PAPER.items()]
    lines += ["", verdict(stats["mean"], dataset), ""]
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
    for protocol in ("rolling", "long_term"):
        is_ours = means.index.get_level_values("model").isin(OURS)
        ours, others = means.loc[is_ours, protocol], means.loc[~is_ours, protocol]
        names = {f"`{name[0]}`": value for name, value in others.items()}
        if dataset in PEERS:
            names["the peers' best"] = PEERS[dataset][protocol == "long_term"]
        rival = min(names, key=names.__getitem__)
        best = ours.idxmin()
        change = ours.min() / names[rival] - 1
        word = "ahead of" if change < 0 else "behind"
        label = protocol.replace("_", "-").capitalize()
        sentences.append(
            f"{label}: `{best[0]}` ({best[1]}) is {abs(100 * change):.1f} % {word} {rival} ({names[rival]:.5g})."
        )
    return " ".join(sentences)


def main() -> None:
    """Writes the page, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = pd.read_csv(ROOT / "results" / "table1.csv")
    lines = [INTRODUCTION]
    for dataset in DATA:
        lines += table_of(rows, dataset)
    text = "\n".join(lines).rstrip() + "\n"
    if options.check:
        if PAGE.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{PAGE} is not what results/table1.csv says: run `python runs/leaderboard.py`")
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
