"""Sums over periods, by paths of steps, by models of the sums, and by both: results/periods.csv.

    python experiments/hierarchies/periods.py                                            # tourism: years
    python experiments/hierarchies/periods.py --data wiki --horizon 28 --aggregate week
    python experiments/hierarchies/periods.py --data FILE --horizon 18 --aggregate quarter year

FILE is a table; a name is of the catalogue. Models are those of `tsforecast forecast`, fitted before the first of three
windows. `paths` are sums of the steps' sample paths, `models` forecasts of the sums alone, which do not add up, and
`together` is what `--aggregate` gives. CRPS and coverage are those of run.py. Of many series, two hundred count.
"""

import argparse
import pathlib
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.hierarchies.run import ROOT, ended
from experiments.tables import append_rows
from tsforecast.cli.provenance import check_rows, provenance
from tsforecast.data import Columns, ForecastTask, load_task, read_task
from tsforecast.data.catalog import CATALOG
from tsforecast.data.periods import Periods, find_periods, step_name
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.data.tables.naming import PERIOD
from tsforecast.forecasting.at_once import fitted
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.forecasting.temporal import temporal_forecasts

COLUMNS = ["dataset", "method", "period", "series", "sums", "crps", "coverage_80", "cpu_s", "commit", "command"]
WINDOWS, SERIES, PATHS = 3, 200, 1000


def forecasts_of(
    predictor: StateSpacePredictor, models: dict[Any, StateSpacePredictor], past: ForecastTask, levels: list[Periods]
) -> dict[tuple[str, str], np.ndarray]:
    """Return quantiles (level, series, period) by method and period, of one window."""

    def fit(sums: ForecastTask) -> StateSpacePredictor:
        key = sums.freq, sums.prediction_length
        return models.setdefault(key, models[key] if key in models else fitted(sums))

    alone = [replace(level, task=replace(level.task, entries=[])) for level in levels]
    found = {}
    for method, own in (("paths", alone), ("together", levels)):
        made = temporal_forecasts(predictor, fit, past, own, PATHS)
        for name in (step_name(past.freq), *(level.name for level in levels)):
            parts = [forecast_quantiles(one, TENTHS) for one in made if (one.info or {})[PERIOD] == name]
            found[method, name] = np.stack(parts, 1)
    for level in levels:
        made = fit(level.task).predict(level.task.latest, 0)
        parts = [forecast_quantiles(one, TENTHS)[:, -len(level.weights) :] for one in made]
        found["models", level.name] = np.stack(parts, 1)
    return found


def main() -> None:
    """Appends rows of one data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(ROOT / "datasets" / "tourism.csv"))
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--aggregate", nargs="+", default=["year"])
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments/hierarchies/results/periods.csv")
    chosen = parser.parse_args()
    facts = provenance(chosen.output)
    if chosen.data in CATALOG:
        task = replace(load_task(chosen.data), prediction_length=chosen.horizon, windows=0)
    else:
        frame = pd.read_csv(chosen.data)
        names = [str(name) for name in frame.columns]
        columns = Columns(item=names[:-2], timestamp=names[-2], target=names[-1])
        task = read_task(frame, None, chosen.horizon, columns=columns, beyond=True)
    whole = [entry for entry in task.ending_together().entries if not np.isnan(entry["target"]).any()]
    most = max(len(entry["target"]) for entry in whole)
    whole = [entry for entry in whole if len(entry["target"]) == most]
    task = replace(task, entries=whole[:: -(-len(whole) // SERIES)])
    begin, horizon = time.process_time(), task.prediction_length
    predictor, models = fitted(ended(task, WINDOWS * horizon)), {}
    found: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for window in range(WINDOWS, 0, -1):
        past = ended(task, window * horizon)
        levels = find_periods(chosen.aggregate, past)
        lengths = [len(entry["target"]) for entry in past.entries]
        actual = np.stack(
            [entry["target"][n : n + horizon] for entry, n in zip(task.entries, lengths, strict=True)]
        ).astype(float)
        weights = {step_name(task.freq): np.eye(horizon)} | {level.name: level.weights for level in levels}
        for key, quantiles in forecasts_of(predictor, models, past, levels).items():
            found.setdefault(key, []).append((quantiles, actual @ weights[key[1]].T))
    seconds, rows = time.process_time() - begin, []
    share = np.asarray(TENTHS)[:, None, None]
    for (method, name), parts in found.items():
        quantiles, actual = (np.concatenate(part, -1) for part in zip(*parts, strict=True))
        difference = actual - quantiles
        loss = 2 * np.where(difference >= 0, share * difference, (share - 1) * difference).mean(0)
        inside = (actual >= quantiles[0]) & (actual <= quantiles[-1])
        cells = {"dataset": pathlib.Path(chosen.data).name.split(".")[0], "method": method, "period": name}
        cells |= {"series": len(actual), "sums": actual.size, "crps": f"{loss.sum() / np.abs(actual).sum():.5f}"}
        rows.append(cells | {"coverage_80": f"{100 * inside.mean():.1f}", "cpu_s": f"{seconds:.1f}"} | facts)
    check_rows(chosen.output, rows)
    append_rows(chosen.output, COLUMNS, rows)
    print(pd.DataFrame(rows).pivot(index="method", columns="period", values="crps").to_string())


if __name__ == "__main__":
    main()
