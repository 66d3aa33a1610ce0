"""Trains and scores every model on every data set; see run.sh."""

import argparse
import csv
import json
import os
import pathlib
import sys
from typing import Any

import pandas as pd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, call, fill, has_row
from tsforecast.cli import recipes
from tsforecast.evaluation.metrics import METRICS, flat

DATASETS = ["exchange", "electricity-18dec", "solar", "traffic", "wiki"]
# Allowed for the training of one run, on one core; the epochs of the recipes fit it.
BUDGET_SECONDS = {"exchange": 600, "electricity-18dec": 900, "solar": 600, "traffic": 900, "wiki": 600}


# Models of others, as `evaluate --baselines` has them, by data set: the recipe "baseline".
BASELINE: dict[str, list[str]] = {
    "seasonal_naive-1": ["exchange"],
    "empirical_random_walk": ["exchange"],
    "seasonal_naive": [name for name in DATASETS if name != "exchange"],
    "auto_ets": DATASETS,
    "auto_theta": DATASETS,
    "mstl": [name for name in DATASETS if name != "traffic"],  # there forty minutes
    "auto_arima": ["exchange"],  # elsewhere hours
    "deepar": DATASETS,  # 50 epochs: minutes
}
TRAINED = ("deepar",)  # among the baselines: the others are the same for every seed

DEFAULT = "default"  # the recipe of what has no option but data and seed

# Models of ours without options; particles with a decoder over 900 series of hours take an hour to be scored.
WITHOUT_OPTIONS = ("auto", "issm", "gls", "rsgls-issm", "sgls", "arsgls", "kvae-rb")

# Our models: the files of tsforecast/recipes, whose README says what the recipes are; and what the data choose.
ROWS = [
    *recipes.published(),
    *(recipes.RecipeFile(d, model, DEFAULT) for model in WITHOUT_OPTIONS for d in DATASETS),
    *(recipes.RecipeFile(d, model, "baseline") for model, sets in BASELINE.items() for d in sets),
]
RECIPES = list(dict.fromkeys(row.name for row in ROWS))
MODELS = sorted({row.model for row in ROWS})
# Seeds of recipes, two elsewhere; and fewer where hours would go by: by recipe or model.
SEEDS = {"exchange": 3, "wiki": 3}
REDUCED = {
    "sgls": {"electricity-18dec": 1, "solar": 1, "traffic": 1},
    "paper": {"wiki": 2, "solar": 1, "traffic": 1},
    "encoder-32": {"exchange": 2},
    "bootstrap-32": {"exchange": 2},
    "fivo": {"exchange": 2},
    "student-t": {"exchange": 2},
    "likelihood": {"wiki": 1},
    "likelihood-t": {"wiki": 1},
    "negative-binomial": {"wiki": 1},
}
# Seeds of rows without options, three elsewhere: one of `auto`, which trains many models.
OF_DEFAULTS = {(dataset, "auto"): 1 for dataset in DATASETS}
Job = tuple[str, str, str, int]  # data set, model, recipe, seed
COLUMNS = [
    "dataset", "protocol", "model", "recipe", "budget_s", "train_s", "iterations", "seed",
    *(metric.name for metric in METRICS), "num_samples", "commit", "command",
]  # fmt: skip


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES)
    parser.add_argument("--seeds", nargs="+", type=int, help="default: from 0 on, as many as SEEDS and REDUCED say")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "table1" / "results" / "table1.csv"
    )
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "table1", help="folder of the runs")
    options = parser.parse_args()
    fill(options.output, COLUMNS, jobs_of(options), lambda job: run(job, options.runs), summary, options.jobs)


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """What is asked for and not in the table yet."""
    return [
        (dataset, model, recipe, seed)
        for seed in options.seeds or range(max(SEEDS.values()))
        for dataset in options.datasets
        for recipe in options.recipes
        for model in options.models
        if recipes.RecipeFile(dataset, model, recipe) in ROWS
        and (recipe != "baseline" or model in TRAINED or seed == 0)
        and (options.seeds or seed < seeds_of(dataset, model, recipe))
        and not has_row(options.output, {"dataset": dataset, "model": model, "recipe": recipe, "seed": seed})
    ]


def seeds_of(dataset: str, model: str, recipe: str) -> int:
    """How many runs a row has."""
    if recipe == DEFAULT:
        return OF_DEFAULTS.get((dataset, model), 3)
    most = SEEDS.get(dataset, 2)
    return min(REDUCED.get(name, {}).get(dataset, most) for name in (model, recipe))


def summary(table: pathlib.Path) -> str:
    """CRPS by model and data: rolling / long-term, mean over (number of) seeds."""
    rows = pd.read_csv(table)
    means = rows.groupby(["model", "recipe", "dataset", "protocol"])["crps"].mean().unstack()
    seeds = rows.groupby(["model", "recipe", "dataset"])["seed"].nunique()
    cells = [
        f"{rolling:.5f} / {ahead:.5f} ({n})"
        for rolling, ahead, n in zip(means["rolling"], means["long_term"], seeds, strict=True)
    ]
    return pd.Series(cells, means.index).unstack().fillna("").to_string()


def run(job: Job, runs: pathlib.Path) -> list[dict[str, Any]]:
    """Trains and scores: a line for each protocol.

    Raises:
        RuntimeError: If a command fails; the message ends with what it printed last.
    """
    dataset, model, recipe, seed = job
    folder = runs / f"{dataset}-{model}-{recipe}-{seed}"
    facts = fit_baseline(job, folder) if recipe == "baseline" else train(job, folder)
    facts |= {"dataset": dataset, "model": model, "recipe": recipe, "seed": seed}
    scores = json.loads((folder / "scores.json").read_text())
    return [facts | numbers(protocol, scores[protocol]) for protocol in ("rolling", "long_term")]


def train(job: Job, folder: pathlib.Path) -> dict[str, Any]:
    """Trains and scores one of our models, going on with what an earlier call began."""
    dataset, model, recipe, seed = job
    settings = [] if recipe == DEFAULT else ["--recipe", recipe]
    command = ["train.py", model, *settings, "--dataset", dataset, "--seed", str(seed), "--threads", "1"]
    if (folder / "run.json").exists():
        call(["train.py", "--resume", str(folder)])
    else:
        call([*command, "--output", str(folder)])
    record = json.loads((folder / "run.json").read_text())
    call(["evaluate.py", str(folder), "--baselines", "none"])
    steps = []  # a bank that only conditions takes none
    if (folder / "metrics.csv").exists():
        with (folder / "metrics.csv").open(newline="") as stream:
            steps = [int(row["step"]) for row in csv.DictReader(stream)]
    return {
        "budget_s": BUDGET_SECONDS[dataset],
        "train_s": round(record["seconds"] + record.get("selection", {}).get("seconds", 0)),
        "iterations": max(steps, default=-1) + 1,
        "commit": record["commit"],
        "command": "python " + " ".join(command),
    }


def fit_baseline(job: Job, folder: pathlib.Path) -> dict[str, Any]:
    """Fits and scores a baseline, which needs none of our runs."""
    dataset, model, _, seed = job
    call(["experiments/table1/baseline.py", model, "--dataset", dataset, "--seed", str(seed), "--output", str(folder)])
    facts = json.loads((folder / "baseline.json").read_text())
    return {
        "budget_s": BUDGET_SECONDS[dataset] if model in TRAINED else None,
        "train_s": round(facts["fit_s"]),
        "iterations": facts["iterations"],
        "commit": facts["commit"],
        "command": facts["command"],
    }


def numbers(protocol: str, scores: dict[str, Any]) -> dict[str, Any]:
    """The columns of one protocol."""
    return {"protocol": protocol} | {name: value for name, value in flat(scores).items() if name in COLUMNS}


if __name__ == "__main__":
    main()
