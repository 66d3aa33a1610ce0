r"""Forecasters that go on learning, beside frozen ones and gradient descent, across real breaks: results/adapt.csv.

    python experiments/streams/adapt.py  # three breaks, all learners; about forty minutes on one core
    python experiments/streams/adapt.py --datasets eia-2020 --learners lofi sgd-1e-3
    python experiments/streams/adapt.py --learners vb-wiener vb-wiener-random vb-wiener-grs sgd-1e-3 \
        --output experiments/streams/results/adapt_memory.csv

An ISSM is trained on what lies before a break of known date, then forecasts period after period across it. `frozen`
never learns; the others make one update after each period, from the same gradients of the same objective (that of
training), so that all cost as much, but for memories: what they keep is learnt from again, and scored. Settings that
the table does not name are those of `Adaptation`.

A row has the CRPS (inf where the parameters ran away) of the windows that begin before the break, with it, or after it:
the window of the break itself is forecast before anybody could learn of it. Beside it are the differences, with 95 %
intervals (`paired_difference`), from the frozen model; from `sgd`, gradient descent at the rate that did best after the
break, chosen in hindsight; from `common_sgd`, the largest rate that runs away on none of the data sets; and, with a
memory, from the same learner without (`no_memory`). Scores of single forecasts are kept in outputs/adapt/ and not
computed again.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from tsforecast.cli.provenance import provenance
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.data import ForecastTask, load_task
from tsforecast.data.task import with_windows
from tsforecast.evaluation import crps_by_window, paired_difference
from tsforecast.evaluation.scores import score
from tsforecast.forecasting.adaptation import Adaptation, AdaptivePredictor
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.forecasting.rolling import rolling
from tsforecast.io.files import replace_file
from tsforecast.plots import plot_adaptation, save_figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Windows, first day of the break and its name, seasons of the model.
DATASETS = {
    "eia-2020": (100, "2020-03-16", "closures", "hour_of_day+day_of_week"),
    "taxi-blizzard": (28, "2016-01-23", "blizzard", "half_hour_of_day+day_of_week"),
    "electricity-2012-2014": (42, "2012-02-09", "end of 2014", "hour_of_day+day_of_week"),
}
COMMON = "sgd-1e-3"
RATES = ("1e-4", "3e-4", "1e-3", "3e-3", "1e-2", "3e-2", "1e-1", "3e-1")
MEMORIES: dict[str, dict[str, Any]] = {
    "random": {"memory": "random"},
    "grs": {"memory": "grs", "settings": {"score": "grs"}},
    "grs-variance": {"memory": "grs", "settings": {"score": "residual_variance"}},
}
LEARNERS: dict[str, dict[str, Any] | None] = {
    "frozen": None,
    "lofi": {"drift": "ou"},
    "lofi-forgetting": {"drift": "forgetting"},
    "lofi-wiener": {"drift": "wiener"},
    "lofi-wiener-fast": {"drift": "wiener", "rate": 0.1},
    "lofi-ou-fast": {"rate": 0.1, "drift": "ou"},
    "lofi-no-drift": {"drift": "none"},
    "lofi-variance-.01": {"variance": 0.01, "drift": "ou"},
    "lofi-variance-1": {"variance": 1.0, "drift": "ou"},
    "lofi-population": {"part": "population", "drift": "ou"},
    "lofi-series": {"part": "series$", "drift": "ou"},
    "lofi-seasons": {"part": "season_means", "drift": "ou"},
    "vd-ekf": {"learner": "vd-ekf", "drift": "ou"},
    "vd-ekf-wiener": {"learner": "vd-ekf", "drift": "wiener"},
    "ekf-wiener": {"learner": "ekf", "drift": "wiener"},
    "vb-wiener": {"learner": "vb", "drift": "wiener"},
    **{f"vb-wiener-{name}": {"learner": "vb", "drift": "wiener"} | settings for name, settings in MEMORIES.items()},
    "vb-forgetting": {"learner": "vb", "drift": "forgetting"},
    "vb-forgetting-grs": {"learner": "vb", "drift": "forgetting"} | MEMORIES["grs"],
    **{f"sgd-{rate}": {"learner": "ogd", "drift": "none", "settings": {"rate": float(rate)}} for rate in RATES},
}
COLUMNS = [
    "dataset", "phase", "windows", "learner", "settings", "crps",
    *(f"minus_{o}{end}" for o in ("frozen", "sgd", "common_sgd", "no_memory") for end in ("", "_low", "_high")),
    "seconds_per_window", "seed", "commit", "command",
]  # fmt: skip


def train(dataset: str, folder: pathlib.Path) -> None:
    """The model, from the command line, if it is not there."""
    windows, _, _, seasons = DATASETS[dataset]
    if (folder / "predictor").exists():
        return
    command = [sys.executable, "train.py"]
    if folder.exists():
        command += ["--resume", str(folder)]
    else:
        options = f"--windows {windows} --train_length 0 --components damped_level+{seasons} --seed 0"
        command += ["issm", "--dataset", dataset, *options.split(), "--output", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)


def measure(task: ForecastTask, run: pathlib.Path, name: str, seed: int) -> pd.DataFrame:
    """Scores of every forecast, kept in a file beside the run, and of every window where the parameters were."""
    path = run / "adapt" / f"{name}.csv"
    if not path.exists():
        chosen = LEARNERS[name]
        learner = AdaptivePredictor(load_predictor(run / "predictor"), Adaptation(**(chosen or {})))
        began = time.perf_counter()
        try:
            result = rolling(learner, task, seed=seed, frozen=chosen is None)
        except (NotPositiveDefiniteError, ValueError) as error:
            tqdm.write(f"{name} on {task.name} failed: {error}")
            return measure(task, run, "frozen", seed).assign(crps=np.inf)
        seconds = (time.perf_counter() - began) / task.windows
        table = score(result.forecasts, task.test("rolling")).per_forecast[["crps", "size"]].assign(seconds=seconds)
        path.parent.mkdir(exist_ok=True)
        for suffix, part in ((".course", result.windows), (".remembered", result.remembered)):
            with replace_file(path.with_suffix(suffix)) as temporary:
                part.to_csv(temporary, index=False)
        with replace_file(path) as temporary:
            table.to_csv(temporary)
    return pd.read_csv(path, index_col=["item_id", "start"], parse_dates=["start"], converters={"item_id": str})


def part_of(table: pd.DataFrame, dataset: str, phase: str) -> pd.DataFrame:
    """The forecasts of windows that begin before the break, with it, or after it."""
    starts = table.index.get_level_values("start")
    first = pd.Timestamp(DATASETS[dataset][1])
    after = starts >= first + pd.Timedelta("1D")
    return table.loc[{"before": starts < first, "break": (starts >= first) & ~after, "after": after}[phase]]


def crps(table: pd.DataFrame) -> float:
    """Over all of its forecasts."""
    return float((table["crps"] * table["size"]).fillna(0).sum() / table["size"].sum())


def rows_of(dataset: str, tables: dict[str, pd.DataFrame], seed: int) -> list[dict[str, Any]]:
    """Of all learners, before and after the break."""
    rates = [name for name in tables if name.startswith("sgd-")]
    best = min(rates, key=lambda name: crps(part_of(tables[name], dataset, "after")))
    rows = []
    for phase in ("before", "break", "after"):
        parts = {name: part_of(table, dataset, phase) for name, table in tables.items()}
        windows = len(parts["frozen"]) // parts["frozen"].index.get_level_values("item_id").nunique()
        for name, part in parts.items():
            label = f"sgd (best of {len(rates)} rates: {best.removeprefix('sgd-')})" if name == best else name
            row = {"dataset": dataset, "phase": phase, "windows": windows, "learner": label, "seed": seed}
            row |= {"settings": json.dumps(LEARNERS[name]), "seconds_per_window": f"{part['seconds'].iloc[0]:.3f}"}
            row |= {"crps": f"{crps(part):.5f}"}
            if not np.isfinite(crps(part)):
                rows.append(row)
                continue
            beside = {"frozen": parts["frozen"], "sgd": parts[best], "common_sgd": parts.get(COMMON, parts[best])}
            if "memory" in (chosen := LEARNERS[name] or {}):
                bare = parts.get(f"{chosen['learner']}-{chosen['drift']}")
                beside |= {} if bare is None else {"no_memory": bare}
            for other, scores in beside.items():
                found = paired_difference(part, scores)
                row |= {f"minus_{other}": f"{found.estimate:.5f}"}
                if found.has_interval:  # else cells stay empty: there is too little to say how sure it is
                    row |= {f"minus_{other}_low": f"{found.low:.5f}", f"minus_{other}_high": f"{found.high:.5f}"}
            rows.append(row)
    return rows


def draw(dataset: str, run: pathlib.Path, tables: dict[str, pd.DataFrame], name: str, target: pathlib.Path) -> None:
    """Window by window, the frozen model and a learner."""
    result = pd.read_csv(run / "adapt" / f"{name}.course", parse_dates=["start"], index_col="start")
    models = ("issm", f"issm+{name}")
    for model, column in zip(models, ("frozen", name), strict=True):
        result[model] = crps_by_window(tables[column])
    _, date, event, _ = DATASETS[dataset]
    title = f"ISSM on {dataset}: frozen, and learning from every day ({name})"
    at = pd.Timestamp(date)
    assert isinstance(at, pd.Timestamp)
    save_figure(plot_adaptation(result, models, marks={event: at}, title=title), target)


def main() -> None:
    """Computes what is not there yet, then the table and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=LEARNERS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "streams" / "results" / "adapt.csv"
    )
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images")
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "adapt", help="folder of the runs")
    options = parser.parse_args()
    names = [name for name in LEARNERS if name in options.learners or name == "frozen"]
    if not any(name.startswith("sgd-") for name in names):
        parser.error("expected --learners to name a rate of sgd, which the others are compared with")
    facts = provenance(options.output)
    rows = []
    for dataset in options.datasets:
        run, task = options.runs / dataset, with_windows(load_task(dataset), DATASETS[dataset][0])
        train(dataset, run)
        bar = tqdm(names, desc=dataset, unit="learner", disable=None)
        tables = {name: measure(task, run, name, options.seed) for name in bar}
        rows += [row | facts for row in rows_of(dataset, tables, options.seed)]
        if "lofi-wiener" in tables:
            draw(dataset, run, tables, "lofi-wiener", options.images / f"adaptation-{dataset}.png")
    table = pd.DataFrame(rows, columns=pd.Index(COLUMNS))
    if options.output.exists():  # of the data sets that were not asked for
        before = pd.read_csv(options.output, dtype=str, keep_default_na=False)
        table = pd.concat([table.head(0), before[~before["dataset"].isin(options.datasets)], table])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(options.output) as temporary:
        table.to_csv(temporary, index=False)
    columns = ["dataset", "phase", "learner", "crps", "minus_frozen", "minus_frozen_low", "minus_frozen_high"]
    tqdm.write(pd.DataFrame(rows, columns=pd.Index(columns)).to_string(index=False, na_rep="-"))


if __name__ == "__main__":
    main()
