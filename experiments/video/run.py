"""Trains and scores models of video for the same time on the same frames; see run.sh."""

import argparse
import json
import pathlib
import sys
from typing import Any

import pandas as pd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import ROOT, call, fill, has_row
from tsforecast.data.folder import data_home

DATASETS = ["box", "box-gravity", "polygon", "pong"]
MODELS = ["kvae-mc", "kvae-rb", "arsgls"]
BUDGET_SECONDS = 1200  # of training, on one core
HORIZONS = (1, 5, 10, 20, 40)
# Options of train.py by recipe, then by model: "" is for all, and what a model has of its own takes its place.
# "paper": the sizes of the papers, which are its defaults; "small": what gets somewhere in minutes.
SETTINGS: dict[str, dict[str, dict[str, float]]] = {
    "paper": {"": {}},
    "small": {
        "": {"filters": 8, "num_particles": 4, "learning_rate": 0.02, "network_learning_rate": 0.007},
        # One sample a series in training, as of the others, which makes the objective an evidence lower bound.
        "arsgls": {"num_particles": 1, "reconstruction_weight": 0.3},
    },
}
EVALUATION = "--samples 32 --sequences 200 --particles 32 --workers 1"
COLUMNS = [
    "dataset", "model", "recipe", "seed", "budget_s", "train_s", "iterations", "train_frames_per_s", "train_peak_mib",
    *(f"wasserstein_{step}" for step in HORIZONS), "wasserstein", "wasserstein_se", "accuracy", "iou",
    *(f"expected_wasserstein_{step}" for step in HORIZONS), "expected_wasserstein", "expected_iou",
    "r2_auxiliary", "r2_state", "last_frame", "true_physics", "test_sequences", "samples", "forecast_frames_per_s",
    "forecast_s", "transport_s", "evaluate_peak_mib", "commit", "command",
]  # fmt: skip


def main() -> None:
    """Runs what is not in the table yet."""
    options = parse()
    keys = [
        {"dataset": dataset, "model": model, "recipe": recipe, "seed": seed, "budget_s": options.budget}
        for seed in options.seeds
        for recipe in options.recipes
        for dataset in options.datasets
        for model in options.models
    ]
    jobs = [key for key in keys if not has_row(options.output, key)]
    fill(options.output, COLUMNS, jobs, lambda key: [run(key, options)], summary)


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--recipes", nargs="+", default=["small"], choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--budget", type=int, default=BUDGET_SECONDS, help="seconds of training of every run")
    parser.add_argument("--evaluation", default=EVALUATION, help="options of evaluate.py (default: %(default)r)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments" / "video" / "results" / "video.csv")
    parser.add_argument(
        "--runs", type=pathlib.Path, default=ROOT / "outputs" / "video-table", help="folder of the runs"
    )
    return parser.parse_args()


def settings_of(model: str, recipe: str) -> list[str]:
    """Options of `train.py`, each once."""
    chosen = SETTINGS[recipe][""] | SETTINGS[recipe].get(model, {})
    return [word for name, value in chosen.items() for word in (f"--{name}", str(value))]


def make_data(dataset: str) -> None:
    """Makes the frames, unless there are some."""
    if not (data_home() / "video" / dataset / "test.npz").exists():
        call(["datasets/video.py", dataset])


def run(key: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Trains and scores, going on with what an earlier call began: a line of the table.

    Args:
        key: The first columns of the line: what to train.
        options: Of the command line.

    Raises:
        RuntimeError: If a command fails; the message ends with what it printed last.
    """
    dataset, model, recipe, seed, budget = key.values()
    make_data(dataset)
    folder = options.runs / f"{dataset}-{model}-{recipe}-{budget}-{seed}"
    train = ["experiments/video/train.py", model, "--dataset", dataset, *settings_of(model, recipe)]
    train += ["--max_minutes", f"{budget / 60:.6g}", "--seed", str(seed), "--threads", "1"]
    train += ["--accelerator", "cpu"]
    if (folder / "run.json").exists():
        call(["experiments/video/train.py", "--resume", str(folder)])
    else:
        call([*train, "--output", str(folder)])
    call(["experiments/video/evaluate.py", str(folder), *options.evaluation.split(), "--device", "cpu"])
    return key | facts_of(folder, model) | {"command": "python " + " ".join(train)}


def facts_of(folder: pathlib.Path, model: str) -> dict[str, Any]:
    """What training and evaluation have written down of a run."""
    record = json.loads((folder / "run.json").read_text())
    scores = json.loads((folder / "video_scores.json").read_text())
    table = pd.read_csv(folder / "video_horizon.csv").query("model == @model").set_index("horizon")
    drawn, expected, probe = scores["scores"]["all"], scores["expected"]["all"], scores["probe"]
    row = {
        "train_s": record["seconds"],
        "iterations": record["iterations"],
        "train_frames_per_s": record["frames_per_second"],
        "train_peak_mib": record["peak_mib"],
        **{f"wasserstein_{step}": table.at[step, "wasserstein"] for step in HORIZONS},
        **{f"expected_wasserstein_{step}": table.at[step, "expected_wasserstein"] for step in HORIZONS},
        **{name: drawn[name] for name in ("wasserstein", "wasserstein_se", "accuracy", "iou")},
        **{f"expected_{name}": expected[name] for name in ("wasserstein", "iou")},
        **{f"r2_{part}": (probe[f"r2_x_{part}"] + probe[f"r2_y_{part}"]) / 2 for part in ("auxiliary", "state")},
        "last_frame": scores["last frame"]["all"]["wasserstein"],
        "true_physics": scores["true physics"]["all"]["wasserstein"],
        "test_sequences": scores["sequences"],
        "samples": scores["samples"],
        "forecast_frames_per_s": scores["frames_per_second"],
        "forecast_s": scores["seconds"]["forecast"],
        "transport_s": scores["seconds"]["transport"],
        "evaluate_peak_mib": scores["peak_mib"],
        "commit": record["commit"],
    }
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def summary(table: pathlib.Path) -> str:
    """Mean Wasserstein distance of sampled frames and of expected ones by model and data, over (number of) seeds."""
    rows = pd.read_csv(table)
    keys = ["budget_s", "recipe", "model"]
    floors = ["last_frame", "true_physics"]
    means = rows.groupby([*keys, "dataset"])[["wasserstein", "expected_wasserstein"]].mean()
    seeds = rows.groupby([*keys, "dataset"])["seed"].nunique()
    cells = [f"{a:.2f} / {b:.2f} ({n})" for (a, b), n in zip(means.to_numpy(), seeds, strict=True)]
    models = pd.Series(cells, means.index).unstack().fillna("")
    known = rows.groupby("dataset")[floors].mean().T.map("{:.2f}".format)
    known.index = pd.MultiIndex.from_tuples([("", "", name.replace("_", " ")) for name in floors], names=keys)
    return pd.concat([models, known]).to_string()


if __name__ == "__main__":
    main()
