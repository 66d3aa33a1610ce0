"""Forecasts of hierarchies, reconciled and not, beside hierarchicalforecast on ETS: results/hierarchies.csv.

    python experiments/hierarchies/run.py --peer PYTHON  # quarterly tourism in Australia, a few minutes
    python experiments/hierarchies/run.py --data FILE --levels Store/Dept --horizon 8 --peer PYTHON

PYTHON is an interpreter with hierarchicalforecast and statsforecast; without it their rows are left out. FILE has the
columns of the levels first, then the time stamp and the target. The models are those of `tsforecast forecast`: that of
series is fitted before the first of two windows, that of sums before each, as the peer is. `base` are forecasts of
every node alone, `coherent` those that add up. `bottom-up` are sums of paths of the series, drawn with the same
dependence. CRPS is the quantile loss over tenths by the sum of absolute values, of each level.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.tables import append_rows
from tsforecast.cli.provenance import check_rows, provenance
from tsforecast.data import Columns, ForecastTask, read_task
from tsforecast.data.hierarchy import ALL, Hierarchy, find_hierarchy, with_levels
from tsforecast.data.quantiles import TENTHS, forecast_quantiles
from tsforecast.forecasting.coherent import Joint, Marginals, coherent_forecasts
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.sum_models import forecasts_of_nodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ["dataset", "method", "level", "nodes", "crps", "coverage_80", "cpu_s", "commit", "command"]
WINDOWS, PATHS = 2, 1000


def ended(task: ForecastTask, steps: int) -> ForecastTask:
    """Return the task without so many steps at the end."""
    entries = [{**one, "target": one["target"][: len(one["target"]) - steps]} for one in task.entries]
    return replace(task, entries=entries)


def bottom_up(marginals: Marginals, tree: Hierarchy, joint: Joint) -> np.ndarray:
    """Return quantiles (level, node, step) of sums of paths of the series."""
    first, steps = len(tree.places[0]), marginals.mean.shape[1]
    drawn = joint.drawn.sample(PATHS, steps, np.random.default_rng(0))
    found = []
    for step in range(steps):
        series = marginals.values(step, drawn[:, step])[first:]
        found.append(np.quantile(np.concatenate([tree.distinct @ series, series]), TENTHS, axis=1))
    return np.stack(found, axis=-1)


def ours(task: ForecastTask, tree: Hierarchy) -> dict[str, tuple[np.ndarray, float]]:
    """Return quantiles (level, node, step) of both windows by method, one behind the other, and seconds."""
    horizon = task.prediction_length
    begin = time.process_time()
    predictor = fitted(ended(task, WINDOWS * horizon))
    fit, found, spent = time.process_time() - begin, {}, dict.fromkeys(("base", "coherent", "bottom-up"), 0.0)
    for window in range(WINDOWS, 0, -1):
        past, begin = ended(task, window * horizon), time.process_time()
        predict = forecasts_of_nodes(predictor, past, tree)
        fit, begin = fit + time.process_time() - begin, time.process_time()
        base = list(predict(past.latest))
        found.setdefault("base", []).append(np.stack([forecast_quantiles(one, TENTHS) for one in base], 1))
        spent["base"] += time.process_time() - begin
        begin = time.process_time()
        coherent = {one.item_id: one for one in coherent_forecasts(predict, past, tree, PATHS)}
        order = [coherent[str(entry["item_id"])] for entry in past.entries]
        found.setdefault("coherent", []).append(np.stack([forecast_quantiles(one, TENTHS) for one in order], 1))
        spent["coherent"] += time.process_time() - begin
        joint, begin = Joint.of(predict, past), time.process_time()
        found.setdefault("bottom-up", []).append(bottom_up(Marginals.of(base), tree, joint))
        spent["bottom-up"] += time.process_time() - begin
    return {name: (np.concatenate(parts, axis=-1), fit + spent[name]) for name, parts in found.items()}


def theirs(
    frame: pd.DataFrame, task: ForecastTask, tree: Hierarchy, chosen: Any
) -> dict[str, tuple[np.ndarray, float]]:
    """Return the same of hierarchicalforecast, by the script beside this one."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = pathlib.Path(folder, "data.csv"), pathlib.Path(folder, "out.csv")
        frame.to_csv(data, index=False)
        script = str(pathlib.Path(__file__).with_name("peer.py"))
        arguments = [data, out, chosen.levels, task.prediction_length, WINDOWS, task.season, chosen.peer_freq]
        subprocess.run([chosen.peer, script, *map(str, arguments)], check=True)
        table = pd.read_csv(out)
    # The peer names a node by the cells of its level alone.
    names = [
        "/".join(["all", *(c for c in tree.cells.get(str(e["item_id"]), str(e["item_id"]).split("/")) if c != ALL)])
        for e in task.entries
    ]
    found = {}
    for method, own in table.groupby("method"):
        rows = own.set_index(["unique_id", "window", "step"]).sort_index()[[str(level) for level in TENTHS]]
        values = np.stack([rows.loc[name].to_numpy() for name in names])
        found[str(method)] = (values.transpose(2, 0, 1), float(own["cpu_s"].iloc[0]))
    return found


def rows_of(quantiles: np.ndarray, actual: np.ndarray, levels: list[str]) -> list[dict[str, Any]]:
    """Return a row of scores for each level."""
    difference = actual - quantiles
    share = np.asarray(TENTHS)[:, None, None]
    loss = 2 * np.where(difference >= 0, share * difference, (share - 1) * difference).mean(0)
    inside = np.where(np.isnan(actual), np.nan, (actual >= quantiles[0]) & (actual <= quantiles[-1]))
    rows = []
    for level in dict.fromkeys(levels):
        own = np.array(levels) == level
        score = np.nansum(loss[own]) / np.nansum(np.abs(actual[own]))
        rows.append({"level": level, "nodes": int(own.sum()), "crps": f"{score:.5f}"})
        rows[-1]["coverage_80"] = f"{100 * np.nanmean(inside[own]):.1f}"
    return rows


def main() -> None:
    """Appends rows of one data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "datasets" / "tourism.csv")
    parser.add_argument("--levels", default="purpose/state/area")
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--peer", help="interpreter with hierarchicalforecast and statsforecast")
    parser.add_argument("--peer_freq", default="QS", help="frequency as pandas names it")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments/hierarchies/results/hierarchies.csv")
    chosen = parser.parse_args()
    facts, frame = provenance(chosen.output), pd.read_csv(chosen.data)
    columns = with_levels(Columns(timestamp=str(frame.columns[-2]), target=str(frame.columns[-1])), chosen.levels)
    task = read_task(frame, None, chosen.horizon, columns=columns, beyond=True)
    tree, nodes = find_hierarchy(chosen.levels, task.ending_together())
    found = ours(nodes, tree) | (theirs(frame, nodes, tree, chosen) if chosen.peer else {})
    actual = np.stack([entry["target"][-WINDOWS * chosen.horizon :] for entry in nodes.entries]).astype(float)
    names = chosen.levels.split("/")
    own = [tree.cells.get(str(entry["item_id"])) for entry in nodes.entries]
    levels = [
        "/".join(n for n, c in zip(names, cells, strict=True) if c != ALL) or "all" if cells else "series"
        for cells in own
    ]
    rows = []
    for method, (quantiles, seconds) in found.items():
        for row in rows_of(quantiles, actual, levels):
            cells = {"dataset": chosen.data.name.split(".")[0], "method": method, "cpu_s": f"{seconds:.1f}"}
            rows.append(cells | row | facts)
    check_rows(chosen.output, rows)
    append_rows(chosen.output, COLUMNS, rows)
    print(pd.DataFrame(rows).pivot(index="method", columns="level", values="crps").to_string())


if __name__ == "__main__":
    main()
