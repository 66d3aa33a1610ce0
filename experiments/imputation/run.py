"""How well do models fill gaps? Days hidden from series, filled by smoothing, scored on what was hidden.

    python experiments/imputation/run.py  # all models; hours on one core, for kvae-rb and arsgls
    python experiments/imputation/run.py --models issm gls --datasets solar

Of the last four weeks of every series whole days are hidden at random, a fifth of them; a model is trained on what is
left and draws what is missing given all of it, before and behind. CRPS is the quantile loss over the levels .1 to .9,
summed over what was hidden, by the sum of absolute values; ND that of the median. Beside them the straight line across
the gap and the mean of the same hours one day before and behind. One line of results/imputation.csv for each finished
run; those which are there are not run again, and their quantiles are kept below outputs/imputation for `--draw`.
"""

import argparse
import csv
import pathlib
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from tqdm import tqdm

from tsforecast import StateSpaceEstimator
from tsforecast.cli.provenance import provenance
from tsforecast.data import load_task
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.io.files import replace_file
from tsforecast.plots import COLOURS, save_figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATASETS = ["solar", "electricity"]
STEPS, SHARE, SERIES = 672, 0.2, 17
LEVELS = np.arange(1, 10) / 10
# As the recipes of these models for hourly data, but for the long horizon and with fewer epochs: the model begins as a
# linear one which does not expand.
_LINEAR_START = {
    "objective": "crps",
    "stable": True,
    "skip": True,
    "learning_rate": 0.05,
    "matrix_learning_rate": 3e-3,
    "network_learning_rate": 0.01,
    "batch_size": 32,
    "num_batches_per_epoch": 16,
    "gradient_length": 48,
    "context_length": 168,
    "history_length": 336,
}
MODELS: dict[str, dict[str, Any]] = {
    "issm": {},
    "gls": {"train_horizon": 24},  # what is hidden are days
    "deepstate": {},
    "kvae-rb": _LINEAR_START,
    "arsgls": {**_LINEAR_START, "resampling_gradient": "stop-gradient", "persistence": 0.95},
    "interpolation": {},
    "neighbouring_days": {},
}
TRAINERS: dict[str, dict[str, Any]] = {  # where not that of the others
    name: {"max_epochs": 18, "gradient_clip_val": 1.0} for name in ("kvae-rb", "arsgls")
}
COLUMNS = [
    "dataset",
    "model",
    "seed",
    "hidden",
    "crps",
    "nd",
    "coverage_80",
    "train_s",
    "impute_s",
    "commit",
    "command",
]


def with_gaps(dataset: str, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Entries with days hidden, and as they were."""
    task = load_task(dataset)
    rng = np.random.default_rng(seed)
    holed, whole = [], []
    for entry in task.entries[:SERIES]:
        target = np.asarray(entry["target"], np.float32)[-STEPS:]
        start = entry["start"] + len(entry["target"]) - len(target)
        days = len(target) // task.season
        chosen = rng.choice(np.arange(1, days - 1), max(1, round(SHARE * days)), replace=False)
        gaps = target.copy()
        for day in chosen:
            gaps[day * task.season : (day + 1) * task.season] = np.nan
        base = {"item_id": entry["item_id"], "start": start}
        holed.append({**base, "target": gaps})
        whole.append({**base, "target": target})
    return holed, whole


def quantiles_of(
    model: str, dataset: str, holed: list[dict[str, Any]], seed: int
) -> tuple[list[np.ndarray], float, float]:
    """Quantiles (level, time) of every series, with the seconds of training and of filling."""
    task, began = load_task(dataset), time.monotonic()
    if model in ("interpolation", "neighbouring_days"):
        fill = straight if model == "interpolation" else neighbouring
        found = [np.tile(fill(entry["target"], task.season), (len(LEVELS), 1)) for entry in holed]
        return found, 0.0, time.monotonic() - began
    options = {"max_epochs": 40, "accelerator": "cpu", "logger": False, "gradient_clip_val": 10.0}
    options |= {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    options |= TRAINERS.get(model, {})
    estimator = StateSpaceEstimator(
        model, task.freq, task.prediction_length, seed=seed, preset="none", trainer_kwargs=options, **MODELS[model]
    )
    predictor = estimator.train(holed)
    assert isinstance(predictor, StateSpacePredictor)
    trained = time.monotonic()
    torch.manual_seed(seed)
    found = [
        np.quantile(f.samples, LEVELS, axis=0) for f in tqdm(predictor.impute(holed), total=len(holed), leave=False)
    ]
    return found, trained - began, time.monotonic() - trained


def straight(target: np.ndarray, season: int) -> np.ndarray:
    """A line across every gap."""
    return pd.Series(target).interpolate(limit_direction="both").to_numpy()


def neighbouring(target: np.ndarray, season: int) -> np.ndarray:
    """The mean of what was observed at the same hour next before and next behind."""
    days = pd.DataFrame(target[: len(target) // season * season].reshape(-1, season))
    filled = ((days.ffill() + days.bfill()) / 2).fillna(days.ffill()).fillna(days.bfill()).to_numpy().ravel()
    return np.concatenate([filled, straight(target, season)[len(filled) :]])


def scores(found: list[np.ndarray], holed: list[dict[str, Any]], whole: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all that was hidden."""
    loss = median = size = inside = hidden = 0.0
    for quantiles, gaps, truth in zip(found, holed, whole, strict=True):
        missing = np.isnan(gaps["target"]) & np.isfinite(truth["target"])
        label, drawn = truth["target"][missing], quantiles[:, missing]
        error = label - drawn
        level = LEVELS[:, None]
        loss += 2 * np.maximum(level * error, (level - 1) * error).mean(0).sum()
        median += np.abs(error[4]).sum()
        size += np.abs(label).sum()
        inside += ((drawn[0] <= label) & (label <= drawn[-1])).sum()
        hidden += missing.sum()
    return {
        "hidden": int(hidden), "crps": f"{loss / size:.5f}", "nd": f"{median / size:.5f}",
        "coverage_80": f"{inside / hidden:.3f}",
    }  # fmt: skip


def draw(
    dataset: str, found: dict[str, list[np.ndarray]], holed: list[dict[str, Any]], whole: list[dict[str, Any]]
) -> None:
    """The first series, ten days of it, one panel for each model."""
    figure = Figure(figsize=(10.0, 1.9 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    gaps = holed[0]["target"]
    first = max(0, int(np.flatnonzero(np.isnan(gaps))[0]) - 48)
    steps = np.arange(first, min(first + 240, len(gaps)))
    for axis, (model, quantiles) in zip(axes, found.items(), strict=True):
        hidden = np.isnan(gaps[steps])
        axis.plot(steps[~hidden], gaps[steps][~hidden], ".", color="black", markersize=2.5, label="observed")
        axis.plot(
            steps[hidden], whole[0]["target"][steps][hidden], ".", color=COLOURS[1], markersize=3.5, label="hidden"
        )
        middle = np.where(hidden, quantiles[0][4][steps], np.nan)
        low, high = (np.where(hidden, quantiles[0][k][steps], np.nan) for k in (0, 8))
        axis.plot(steps, middle, color=COLOURS[0], linewidth=1.2, label="median")
        axis.fill_between(steps, low, high, color=COLOURS[0], alpha=0.3, linewidth=0, label="80 % interval")
        axis.set_title(model, loc="left", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("hour")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(f"{dataset}, {holed[0]['item_id']}: days hidden and filled", fontsize=11)
    save_figure(figure, ROOT / "docs" / "images" / f"imputation-{dataset}.png")


def main() -> None:
    """Runs what is not in the table yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, choices=DATASETS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--draw", action="store_true", help="draw what is asked for, and run what was not kept")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "imputation" / "results" / "imputation.csv"
    )
    parser.add_argument(
        "--kept", type=pathlib.Path, default=ROOT / "outputs" / "imputation", help="folder of quantiles"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    if options.output.exists():
        with options.output.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
    facts = provenance(options.output)
    for dataset in options.datasets:
        for seed in options.seeds:
            holed, whole = with_gaps(dataset, seed)
            drawn = {}
            for model in options.models:
                key = {"dataset": dataset, "model": model, "seed": str(seed)}
                known = [row for row in rows if key.items() <= row.items()]
                kept = options.kept / f"{dataset}-{model}-{seed}.npz"
                if known and options.draw and kept.exists():
                    drawn[model] = [*np.load(kept)["quantiles"]]
                if known and (model in drawn or not options.draw):
                    continue
                found, train_s, impute_s = quantiles_of(model, dataset, holed, seed)
                drawn[model] = found
                kept.parent.mkdir(parents=True, exist_ok=True)
                with replace_file(kept) as temporary:
                    np.savez_compressed(temporary, quantiles=np.stack(found))
                row = key | scores(found, holed, whole)
                row |= {"train_s": f"{train_s:.0f}", "impute_s": f"{impute_s:.0f}"} | facts
                tqdm.write(str({name: row[name] for name in COLUMNS[:9]}))
                rows = [other for other in rows if other not in known] + [row]
                with replace_file(options.output) as temporary, temporary.open("w", newline="") as stream:
                    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
            if options.draw:
                draw(dataset, drawn, holed, whole)


if __name__ == "__main__":
    main()
