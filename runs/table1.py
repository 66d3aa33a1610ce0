"""Trains and scores every model on every data set; see table1.sh."""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import pandas as pd
from tqdm import tqdm

from tsforecast.data.files import append_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATASETS = ["exchange", "electricity-18dec", "solar", "traffic", "wiki"]
# Allowed for the training of one run, on one core; the epochs below fit it.
BUDGET_SECONDS = {"exchange": 600, "electricity-18dec": 900, "solar": 600, "traffic": 900, "wiki": 600}


# Recipes: by model and data set ("": all others) the options of `train.py`, or the name for `baseline.py`.
# "paper": the settings of the switching-model papers with as many iterations as the budget allows; "best": ours;
# "baseline": models of others, as `evaluate --baselines` has them; the rest are "best" with something changed.
def _paper(exchange: int, wiki: int, hourly: int, options: str = "", of_exchange: str = "") -> dict[str, str]:
    """Options by data set, with the epochs that the budget allows: an iteration of `arsgls` costs ten of `kvae-rb`."""
    batches = f"{options} --batch_size 50 --num_batches_per_epoch 8"
    daily = f"{batches} --context_length 120 --history_length 240"
    return {
        "": f"{batches} --context_length 168 --history_length 336 --max_epochs {hourly}",
        "exchange": f"{of_exchange} {daily} --max_epochs {exchange}",
        "wiki": f"{daily} --max_epochs {wiki}",
    }


PAPER: dict[str, dict[str, str]] = {
    "deepstate": {"": "", "traffic": "--max_epochs 20"},
    "kvae-rb": _paper(60, 40, 40, of_exchange="--embedding_dim 8"),
    "kvae-mc": _paper(36, 25, 24, of_exchange="--embedding_dim 8"),
    "rsgls-issm": _paper(40, 25, 20, "--components paper --learning_rate 5e-3"),
    "arsgls": _paper(20, 10, 8, of_exchange="--embedding_dim 8"),
}
# The ISSM alone in closed form for the epochs that it has in its own row, then regimes that last.
_SWITCH = (
    "--objective crps --resampling_gradient stop-gradient --proposal bootstrap --recurrence none --persistence 0.95 "
    "--switch_dim 4 --num_bases 10 --network_learning_rate 1e-2 --gradient_clip_val 1"
)
# Begins as a linear model which does not expand.
_START = (
    "--objective crps --stable true --learning_rate 0.05 --matrix_learning_rate 3e-3 "
    "--network_learning_rate 1e-2 --gradient_clip_val 1 --batch_size 32"
)
_LINEAR_START = {
    "exchange": f"--embedding_dim 8 {_START} --matrix_learning_rate 0.05 --num_batches_per_epoch 10 --max_epochs 16 "
    "--gradient_length 60 --context_length 120 --history_length 240",
    "wiki": f"{_START} --num_batches_per_epoch 16 --max_epochs 18 --gradient_length 60 --history_length 360",
    "": f"{_START} --num_batches_per_epoch 16 --max_epochs 14 --gradient_length 48 --context_length 168 "
    "--history_length 336 --train_horizon 72",
}
_LASTING = "--resampling_gradient stop-gradient --persistence 0.95"
# The linear model as `gls` has it, over histories of weeks, left as it is when networks join.
_LONG = (
    "--series_scales true --learning_rate 0.1 --gradient_clip_val 10 --batch_size 64 --num_batches_per_epoch 4 "
    "--context_length 672 --history_length 1344 --particle_length 168 --linear_share 0"
)
_ALONE = {  # more of the linear model
    "exchange": "--linear_epochs 30 --max_epochs 42 --matrix_learning_rate 3e-3",
    "electricity-18dec": f"{_LONG} --train_horizon 24 --linear_epochs 160 --max_epochs 185",
    "solar": f"{_LONG} --linear_epochs 200 --max_epochs 230",
    "traffic": "--series_scales true --linear_epochs 40 --max_epochs 50",
}
_DENSE = {name: f"{_LINEAR_START.get(name, _LINEAR_START[''])} {_ALONE.get(name, '')}" for name in DATASETS}
BEST: dict[str, dict[str, str]] = {
    # It begins as a linear model only where it has linear epochs.
    "sgls": {name: f"{_LASTING} {options}" for name, options in _DENSE.items()}
    | {"wiki": f"{_LASTING} {_LINEAR_START['wiki']} --linear_epochs 12"},
    "arsgls": {name: f"{_LASTING} --skip true {options}" for name, options in _DENSE.items()},
    "kvae-rb": {name: f"--skip true {_DENSE[name]}" for name in DATASETS if name != "exchange"}
    | {"exchange": f"--skip true {_LINEAR_START['exchange']}"},
    "issm": {
        "": "",
        "electricity-18dec": "--max_epochs 160",
        "solar": "--components damped_level+hour_of_day --train_horizon 72 --max_epochs 200",
        "traffic": "--max_epochs 20",
        "wiki": "--components damped_level+day_of_week --train_horizon 60",
    },
    "gls": {
        "": "",
        "electricity-18dec": "--max_epochs 160",
        "solar": "--train_horizon 72 --max_epochs 200",
        "traffic": "--max_epochs 100",
    },
    "rsgls-issm": {
        "exchange": f"--linear_epochs 40 --max_epochs 70 {_SWITCH} --num_particles 20 --batch_size 32 "
        "--num_batches_per_epoch 10 --gradient_length 100 --history_length 1000",
        "electricity-18dec": f"--linear_epochs 40 --max_epochs 60 {_SWITCH} --num_particles 5 --gradient_length 48",
        "solar": f"--components damped_level+hour_of_day --linear_epochs 150 --max_epochs 180 {_SWITCH} "
        "--num_particles 10 --batch_size 32 --num_batches_per_epoch 8 --gradient_length 48 --history_length 1344 "
        "--train_horizon 72",
        "traffic": f"--linear_epochs 20 --max_epochs 30 {_SWITCH} --num_particles 5 --forecast_particles 20 "
        "--gradient_length 48 --particle_length 168",
        "wiki": f"--components damped_level+day_of_week --linear_epochs 40 --max_epochs 48 {_SWITCH} "
        "--num_particles 10 --batch_size 32 --num_batches_per_epoch 16 --gradient_length 60 --history_length 360 "
        "--train_horizon 60",
    },
}
BASELINE: dict[str, dict[str, str]] = {
    "seasonal_naive-1": {"exchange": "seasonal_naive-1"},
    "empirical_random_walk": {"exchange": "empirical_random_walk"},
    "seasonal_naive": dict.fromkeys([name for name in DATASETS if name != "exchange"], "seasonal_naive"),
    "auto_ets": {"": "auto_ets"},
    "auto_theta": {"": "auto_theta"},
    "mstl": dict.fromkeys([name for name in DATASETS if name != "traffic"], "mstl"),  # there forty minutes
    "auto_arima": {"exchange": "auto_arima"},  # elsewhere hours
    "deepar": {"": "deepar"},  # 50 epochs: minutes
}
TRAINED = ("deepar",)  # among the baselines: the others are the same for every seed


def changed(models: list[str], datasets: list[str], options: str) -> dict[str, dict[str, str]]:
    """The recipe "best" with options behind it: of one given twice the last counts."""
    return {model: {name: f"{BEST[model][name]} {options}" for name in datasets} for model in models}


_BY_LIKELIHOOD = "--objective likelihood"
RECIPES: dict[str, dict[str, dict[str, str]]] = {
    "best": BEST,
    "paper": PAPER,
    "encoder-32": changed(["rsgls-issm"], ["exchange"], "--proposal encoder --num_particles 32"),
    "bootstrap-32": changed(["rsgls-issm"], ["exchange"], "--num_particles 32"),
    "fivo": changed(["rsgls-issm"], ["exchange"], "--resampling_gradient fivo"),
    "student-t": changed(["kvae-rb"], ["exchange"], "--likelihood student-t"),
    # Decoders of counts beside each other, all trained by the likelihood: the CRPS of paths cannot train the negative
    # binomial, and is infinite for Student's t on a log scale.
    "likelihood": changed(["arsgls"], ["wiki"], _BY_LIKELIHOOD),
    "likelihood-t": changed(["arsgls"], ["wiki"], f"{_BY_LIKELIHOOD} --likelihood student-t"),
    "negative-binomial": changed(
        ["arsgls"], ["wiki"], f"{_BY_LIKELIHOOD} --likelihood negative-binomial --transformation none"
    ),
    "baseline": BASELINE,
}
# Seeds, two elsewhere; and fewer where hours would go by: by recipe or model.
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
Job = tuple[str, str, str, int, str]  # data set, model, recipe, seed, settings
COLUMNS = [
    "dataset", "protocol", "model", "recipe", "budget_s", "train_s", "iterations", "seed", "crps", "crps_99", "nd",
    "mase", "coverage_50", "coverage_80", "coverage_95", "num_samples", "commit", "command",
]  # fmt: skip


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=sorted({name for models in RECIPES.values() for name in models}))
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--seeds", nargs="+", type=int, help="default: from 0 on, as many as SEEDS and REDUCED say")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "results" / "table1.csv")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "table1", help="folder of the runs")
    options = parser.parse_args()
    jobs = jobs_of(options)
    failures = []
    with ThreadPoolExecutor(options.jobs) as pool, tqdm(total=len(jobs), unit="run", smoothing=0) as bar:
        futures = {pool.submit(run, job, options.runs): job for job in jobs}
        for future in as_completed(futures):
            try:
                append_rows(options.output, COLUMNS, future.result())
            except RuntimeError as error:
                failures.append(str(error))
                tqdm.write(str(error), file=sys.stderr)
            bar.update()
    if options.output.exists():
        tqdm.write(summary(options.output))
    if failures:
        raise SystemExit(f"{len(failures)} of {len(jobs)} runs failed")


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """What is asked for and not in the table yet."""
    return [
        (dataset, model, recipe, seed, settings)
        for seed in options.seeds or range(max(SEEDS.values()))
        for dataset in options.datasets
        for recipe in options.recipes
        for model in options.models
        if (settings := settings_of(dataset, model, recipe)) is not None
        and (recipe != "baseline" or model in TRAINED or seed == 0)
        and (options.seeds or seed < seeds_of(dataset, model, recipe))
        and not is_done(options.output, dataset, model, recipe, seed)
    ]


def seeds_of(dataset: str, model: str, recipe: str) -> int:
    """How many runs a row has."""
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


def settings_of(dataset: str, model: str, recipe: str) -> str | None:
    """Options of `train.py`, or the name of a baseline; None if the recipe does not have the model."""
    by_dataset = RECIPES[recipe].get(model, {})
    return by_dataset.get(dataset, by_dataset.get(""))


def is_done(table: pathlib.Path, dataset: str, model: str, recipe: str, seed: int) -> bool:
    """Whether the table has the run."""
    if not table.exists():
        return False
    key = {"dataset": dataset, "model": model, "recipe": recipe, "seed": str(seed)}
    with table.open(newline="") as stream:
        return any(key.items() <= row.items() for row in csv.DictReader(stream))


def run(job: Job, runs: pathlib.Path) -> list[dict[str, Any]]:
    """Trains and scores: a line for each protocol.

    Raises:
        RuntimeError: If a command fails; the message ends with what it printed last.
    """
    dataset, model, recipe, seed, _ = job
    folder = runs / f"{dataset}-{model}-{recipe}-{seed}"
    facts = fit_baseline(job, folder) if recipe == "baseline" else train(job, folder)
    facts |= {"dataset": dataset, "model": model, "recipe": recipe, "seed": seed}
    scores = json.loads((folder / "scores.json").read_text())
    return [facts | numbers(protocol, scores[protocol]) for protocol in ("rolling", "long_term")]


def train(job: Job, folder: pathlib.Path) -> dict[str, Any]:
    """Trains and scores one of our models, going on with what an earlier call began."""
    dataset, model, _, seed, settings = job
    command = ["train.py", model, "--dataset", dataset, *settings.split(), "--seed", str(seed), "--threads", "1"]
    if (folder / "run.json").exists():
        call(["train.py", "--resume", str(folder)])
    else:
        call([*command, "--output", str(folder)])
    record = json.loads((folder / "run.json").read_text())
    call(["evaluate.py", str(folder), "--baselines", "none"])
    with (folder / "metrics.csv").open(newline="") as stream:
        iterations = max(int(row["step"]) for row in csv.DictReader(stream)) + 1
    return {
        "budget_s": BUDGET_SECONDS[dataset],
        "train_s": round(record["seconds"]),
        "iterations": iterations,
        "commit": record["commit"],
        "command": "python " + " ".join(command),
    }


def fit_baseline(job: Job, folder: pathlib.Path) -> dict[str, Any]:
    """Fits and scores a baseline, which needs none of our runs."""
    dataset, model, _, seed, name = job
    call(["runs/baseline.py", name, "--dataset", dataset, "--seed", str(seed), "--output", str(folder)])
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
    plain = {name: scores.get(name) for name in ("crps", "crps_99", "nd", "mase", "num_samples")}
    coverage = {f"coverage_{name}": value for name, value in scores["coverage"].items()}
    return {"protocol": protocol, **plain, **coverage}


def call(arguments: list[str]) -> None:
    """Runs a script of the project with one thread, by the package beside it, whatever else is installed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {(done.stdout + done.stderr)[-500:]}")


if __name__ == "__main__":
    main()
