"""Trains and scores every model on every data set; see table1.sh."""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pandas as pd
from tqdm import tqdm

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATASETS = ["exchange", "electricity-18dec", "solar", "traffic", "wiki"]
BASELINES = {"exchange": "seasonal_naive-1,empirical_random_walk,auto_ets"}
# Allowed for the training of one run, on one core; the epochs below fit it.
BUDGET_SECONDS = {"exchange": 600, "electricity-18dec": 900, "solar": 600, "traffic": 900, "wiki": 600}

# "paper": the settings of the switching-model papers with as many iterations as the budget allows; "best": ours; the
# others are "best" on exchange with one thing changed.
_HOURLY = "--context_length 168 --history_length 336 --batch_size 50 --num_batches_per_epoch 8 --max_epochs 8"
_DAILY = "--context_length 120 --history_length 240 --batch_size 50 --num_batches_per_epoch 8"
_DENSE = {
    "": _HOURLY,
    "exchange": f"--embedding_dim 8 {_DAILY} --max_epochs 20",
    "wiki": f"{_DAILY} --max_epochs 10",
}
PAPER: dict[str, dict[str, str]] = {
    "deepstate": {"": "", "traffic": "--max_epochs 20"},
    "kvae-rb": _DENSE,
    "kvae-mc": _DENSE,
    "rsgls-issm": {
        "": f"--components paper --learning_rate 5e-3 {_HOURLY}",
        "exchange": f"--components paper --learning_rate 5e-3 {_DAILY} --max_epochs 20",
        "wiki": f"--components paper --learning_rate 5e-3 {_DAILY} --max_epochs 10",
    },
    "arsgls": _DENSE,
}
# The ISSM alone in closed form for the epochs that it has in its own row, then regimes that last.
_SWITCH = (
    "--objective crps --resampling_gradient stop-gradient --proposal bootstrap --recurrence none --persistence 0.95 "
    "--switch_dim 4 --num_bases 10 --network_learning_rate 1e-2 --gradient_clip_val 1"
)
# Begins as a linear model which does not expand.
_START = (
    "--objective crps --stable true --skip true --learning_rate 0.05 --network_learning_rate 1e-2 "
    "--gradient_clip_val 1 --batch_size 32"
)
_LINEAR_START = {
    "exchange": f"--embedding_dim 8 {_START} --num_batches_per_epoch 10 --max_epochs 16 --gradient_length 60 "
    "--context_length 120 --history_length 240",
    "wiki": f"{_START} --num_batches_per_epoch 16 --max_epochs 18 --gradient_length 60 --history_length 360",
    "": f"{_START} --num_batches_per_epoch 16 --max_epochs 18 --gradient_length 48 --context_length 168 "
    "--history_length 336",
}
_LASTING = "--resampling_gradient stop-gradient --persistence 0.95"
BEST: dict[str, dict[str, str]] = {
    "arsgls": {name: f"{_LASTING} {options}" for name, options in _LINEAR_START.items()},
    "kvae-rb": _LINEAR_START,
    "issm": {
        "": "",
        "solar": "--components damped_level+hour_of_day --train_horizon 72",
        "traffic": "--max_epochs 20",
    },
    "gls": {"": ""},
    "rsgls-issm": {
        "exchange": f"--linear_epochs 40 --max_epochs 70 {_SWITCH} --num_particles 20 --batch_size 32 "
        "--num_batches_per_epoch 10 --gradient_length 100 --history_length 1000",
        "electricity-18dec": f"--linear_epochs 40 --max_epochs 60 {_SWITCH} --num_particles 5 --gradient_length 48",
        "solar": f"--components damped_level+hour_of_day --linear_epochs 40 --max_epochs 50 {_SWITCH} "
        "--num_particles 10 --batch_size 32 --num_batches_per_epoch 8 --gradient_length 48 --history_length 1344 "
        "--train_horizon 72",
        "traffic": f"--linear_epochs 20 --max_epochs 30 {_SWITCH} --num_particles 5 --forecast_particles 20 "
        "--gradient_length 48 --particle_length 168",
        "wiki": f"--linear_epochs 40 --max_epochs 48 {_SWITCH} --num_particles 10 --batch_size 32 "
        "--num_batches_per_epoch 16 --gradient_length 60 --history_length 360 --train_horizon 60",
    },
}
_ABLATION = BEST["rsgls-issm"]["exchange"]
CHANGED: dict[str, str] = {  # of an option given twice the last counts
    "encoder-32": f"{_ABLATION} --proposal encoder --num_particles 32",
    "bootstrap-32": f"{_ABLATION} --num_particles 32",
    "fivo": f"{_ABLATION} --resampling_gradient fivo",
}
RECIPES = ["best", "paper", *CHANGED]
COLUMNS = [
    "dataset", "protocol", "model", "recipe", "budget_s", "train_s", "iterations", "seed", "crps", "crps_99", "nd",
    "mase", "coverage_50", "coverage_80", "coverage_95", "num_samples", "commit", "command",
]  # fmt: skip


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=sorted({*PAPER, *BEST}))
    parser.add_argument("--recipes", nargs="+", default=RECIPES, choices=RECIPES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "table1.csv")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "table1", help="folder of the runs")
    options = parser.parse_args()
    jobs = [
        (dataset, model, recipe, seed, settings)
        for seed in options.seeds
        for dataset in options.datasets
        for recipe in options.recipes
        for model in options.models
        if (settings := settings_of(dataset, model, recipe)) is not None
        and not is_done(options.output, dataset, model, recipe, seed)
    ]
    failures = []
    with ThreadPoolExecutor(options.jobs) as pool, tqdm(total=len(jobs), unit="run", smoothing=0) as bar:
        futures = {pool.submit(run, job, options.runs): job for job in jobs}
        for future in as_completed(futures):
            try:
                append(options.output, future.result())
            except RuntimeError as error:
                failures.append(str(error))
                tqdm.write(str(error), file=sys.stderr)
            bar.update()
    if options.output.exists():
        tqdm.write(summary(options.output))
    if failures:
        raise SystemExit(f"{len(failures)} of {len(jobs)} runs failed")


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


def settings_of(dataset: str, model: str, recipe: str) -> str | None:
    """Options of `train.py`; None if the recipe does not have the model."""
    if recipe in CHANGED:
        return CHANGED[recipe] if (dataset, model) == ("exchange", "rsgls-issm") else None
    by_dataset = (PAPER if recipe == "paper" else BEST).get(model, {})
    return by_dataset.get(dataset, by_dataset.get(""))


def is_done(table: pathlib.Path, dataset: str, model: str, recipe: str, seed: int) -> bool:
    """Whether the table has the run."""
    if not table.exists():
        return False
    key = {"dataset": dataset, "model": model, "recipe": recipe, "seed": str(seed)}
    with table.open(newline="") as stream:
        return any(key.items() <= row.items() for row in csv.DictReader(stream))


def run(job: tuple[str, str, str, int, str], runs: pathlib.Path) -> list[dict[str, Any]]:
    """Trains and scores, going on with what an earlier call began.

    Raises:
        RuntimeError: If a command fails; the message ends with what it printed last.
    """
    dataset, model, recipe, seed, settings = job
    folder = runs / f"{dataset}-{model}-{recipe}-{seed}"
    train = ["train.py", model, "--dataset", dataset, *settings.split(), "--seed", str(seed), "--threads", "1"]
    command = train if not (folder / "run.json").exists() else ["train.py", "--resume", str(folder)]
    started = time.monotonic()
    call([*command, *([] if "--resume" in command else ["--output", str(folder)])])
    seconds = time.monotonic() - started
    with_baselines = model == "issm" and seed == 0
    names = BASELINES.get(dataset, "seasonal_naive,auto_ets") if with_baselines else "none"
    call(["evaluate.py", str(folder), "--baselines", names])
    scores = json.loads((folder / "scores.json").read_text())
    facts = json.loads((folder / "run.json").read_text())
    with (folder / "metrics.csv").open(newline="") as stream:
        iterations = max(int(row["step"]) for row in csv.DictReader(stream)) + 1
    shared = {"dataset": dataset, "seed": seed, "commit": facts["commit"]}
    mine = shared | {"model": model, "recipe": recipe, "budget_s": BUDGET_SECONDS[dataset], "train_s": round(seconds)}
    mine |= {"iterations": iterations, "command": "python " + " ".join(train)}
    rows = [mine | numbers(protocol, scores[protocol]) for protocol in ("rolling", "long_term")]
    for name, by_protocol in scores["baselines"].items():
        its = shared | {"model": name, "recipe": "baseline", "command": f"python evaluate.py RUN --baselines {names}"}
        rows += [its | numbers(protocol, by_protocol[protocol]) for protocol in ("rolling", "long_term")]
    return rows


def numbers(protocol: str, scores: dict[str, Any]) -> dict[str, Any]:
    """The columns of one protocol."""
    plain = {name: scores.get(name) for name in ("crps", "crps_99", "nd", "mase", "num_samples")}
    coverage = {f"coverage_{name}": value for name, value in scores["coverage"].items()}
    return {"protocol": protocol, **plain, **coverage}


def call(arguments: list[str]) -> None:
    """Runs a script of the project with one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {(done.stdout + done.stderr)[-500:]}")


def append(table: pathlib.Path, rows: list[dict[str, Any]]) -> None:
    """Adds lines, all of a run at once."""
    table.parent.mkdir(parents=True, exist_ok=True)
    is_new = not table.exists()
    with table.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
