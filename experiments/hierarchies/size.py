"""Seconds of forecasts of a hierarchy by its size: results/size.csv.

    python experiments/hierarchies/size.py                 # ten thousand series, five minutes
    python experiments/hierarchies/size.py --series 1000

Weekly series of 143 steps, made at random, below a hundred stores and ten states; eight steps are forecast. Seconds are
of one core: reading, fitting and forecasting as `tsforecast forecast` does.
"""

import argparse
import pathlib
import sys
import time

import numpy as np
import pandas as pd
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.hierarchies.run import ROOT
from experiments.tables import append_rows
from tsforecast.cli.provenance import check_rows, provenance
from tsforecast.data import Columns, read_task
from tsforecast.data.hierarchy import find_hierarchy, with_levels
from tsforecast.forecasting.default_model import fitted
from tsforecast.forecasting.sum_models import with_all_sums

COLUMNS = ["series", "sums", "read_s", "fit_s", "forecast_s", "largest_gap", "commit", "command"]
LEVELS, STEPS, HORIZON = "state/store/item", 143, 8


def table(series: int) -> pd.DataFrame:
    """Return weekly sales of so many series."""
    rng = np.random.default_rng(0)
    season = 1 + 0.3 * np.sin(2 * np.pi * np.arange(STEPS) / 52)
    values = rng.gamma(2, 50, (series, 1)) * season * rng.gamma(20, 1 / 20, (series, STEPS))
    number = np.repeat(np.arange(series), STEPS)
    names = {"state": number % 10, "store": number % 100, "item": number // 100}
    weeks = np.tile(pd.date_range("2022-01-07", periods=STEPS, freq="W-FRI"), series)
    texts = {name: np.char.add(name[:2], cells.astype(str)) for name, cells in names.items()}
    return pd.DataFrame(texts | {"date": weeks, "sales": values.ravel()})


def main() -> None:
    """Appends a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "experiments/hierarchies/results/size.csv")
    chosen = parser.parse_args()
    facts, frame = provenance(chosen.output), table(chosen.series)
    torch.set_num_threads(1)
    times = [time.process_time()]
    task = read_task(frame, None, HORIZON, columns=with_levels(Columns(target="sales"), LEVELS), beyond=True)
    tree, nodes = find_hierarchy(LEVELS, task.ending_together())
    times.append(time.process_time())
    predictor = fitted(nodes)
    times.append(time.process_time())
    found = with_all_sums(predictor, nodes, tree)
    times.append(time.process_time())
    means = np.stack([one.mean for one in found])
    gap = np.abs(means[: len(tree.aggregates)] - tree.sums @ means[len(tree.aggregates) :]).max()
    spent = {name: f"{x:.1f}" for name, x in zip(("read_s", "fit_s", "forecast_s"), np.diff(times), strict=True)}
    row = {"series": chosen.series, "sums": len(tree.aggregates), **spent, "largest_gap": f"{gap:.1g}"} | facts
    check_rows(chosen.output, [row])
    append_rows(chosen.output, COLUMNS, [row])


if __name__ == "__main__":
    main()
