"""How far the best of our models is ahead of the others, forecast by forecast.

Of the folders which `experiments/table1/run.sh` leaves: on each data set and by each protocol, the row of the recipe
`best` with the lowest CRPS in results/table1.csv minus every other row, over the same series and windows, with a 95 %
interval (`paired_difference`); and every switching model without options minus the `issm` without any. The scores of a
row's seeds are averaged first, so an interval speaks of series and windows, and the deviation over seeds in
docs/benchmarks/results.md of the rest. A line of results/differences.csv is replaced by a newer one of the same two
rows; those whose folders are gone stay.
"""

import argparse
import json
import pathlib
import sys
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from tsforecast.cli.provenance import provenance
from tsforecast.evaluation import paired_difference
from tsforecast.forecasting.presets import SWITCHING
from tsforecast.io.files import replace_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ("auto", "issm", "gls", "deepstate", "sgls", "rsgls", "rsgls-issm", "arsgls", "kvae-rb", "kvae-mc")
KEYS = ["dataset", "protocol", "model", "recipe", "other_model", "other_recipe"]


class Row(NamedTuple):
    """A row of the table: what was run, by which settings."""

    model: str
    recipe: str


LINEAR = Row("issm", "default")  # what switching models without options are compared with


def main() -> None:
    """Compares what has been run, and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--table", type=pathlib.Path, default=ROOT / "experiments" / "table1" / "results" / "table1.csv"
    )
    parser.add_argument("--runs", type=pathlib.Path, default=ROOT / "outputs" / "table1", help="folder of the runs")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "table1" / "results" / "differences.csv"
    )
    options = parser.parse_args()
    facts = provenance(options.output)
    table = pd.read_csv(options.table)
    found = [line for dataset in tqdm(table["dataset"].unique()) for line in compared(table, dataset, options.runs)]
    if not found:
        raise SystemExit(
            f"expected runs of `experiments/table1/run.sh` in {options.runs}, found none that can be compared"
        )
    merged = pd.DataFrame(found).assign(**facts)
    if options.output.exists():
        exact: Any = {"float_precision": "round_trip"}  # which the stubs of pandas do not know
        merged = pd.concat([pd.read_csv(options.output, **exact), merged]).drop_duplicates(KEYS, keep="last")
    with replace_file(options.output) as temporary:
        merged.sort_values(KEYS).to_csv(temporary, index=False, lineterminator="\n")
    sys.stdout.write(f"{len(found)} pairs into {options.output}\n")


def compared(table: pd.DataFrame, dataset: str, runs: pathlib.Path) -> list[dict[str, Any]]:
    """A line for each protocol and row beside the best."""
    part = table.loc[table["dataset"] == dataset]
    scores = {row: of_seeds(part, row, runs) for row in rows_of(part)}
    lines = []
    for protocol in ("rolling", "long_term"):
        best = best_of(part, protocol)
        pairs = [(best, row) for row in scores if row != best] if best is not None else []
        pairs += [(row, LINEAR) for row in scores if row.recipe == LINEAR.recipe and row.model in SWITCHING]
        for row, other in pairs:
            of_row, of_other = scores.get(row), scores.get(other)
            if of_row is None or of_other is None:
                continue
            found = paired_difference(of_row.loc[protocol], of_other.loc[protocol])
            lines.append(
                {"dataset": dataset, "protocol": protocol}
                | {"model": row.model, "recipe": row.recipe, "other_model": other.model, "other_recipe": other.recipe}
                | {"difference": found.estimate}
                | ({"low": found.low, "high": found.high} if found.has_interval else {"low": np.nan, "high": np.nan})
            )
    return lines


def rows_of(part: pd.DataFrame) -> list[Row]:
    """All rows of a data set."""
    return [Row(*key) for key in part[["model", "recipe"]].drop_duplicates().itertuples(index=False)]


def best_of(part: pd.DataFrame, protocol: str) -> Row | None:
    """Ours with the lowest mean CRPS among those of the recipe `best`."""
    ours = part.loc[part["model"].isin(OURS) & (part["recipe"] == "best") & (part["protocol"] == protocol)]
    means = ours.groupby("model")["crps"].mean()
    return None if means.empty else Row(str(means.idxmin()), "best")


def of_seeds(part: pd.DataFrame, row: Row, runs: pathlib.Path) -> pd.DataFrame | None:
    """CRPS and size of every forecast by protocol, series and start, mean over the row's seeds; None if one is gone.

    What has other scores than the table, from a run of another time, is as good as gone.
    """
    frames: list[pd.DataFrame] = []
    of_row = part.loc[(part["model"] == row.model) & (part["recipe"] == row.recipe)]
    for seed, lines in of_row.groupby("seed"):
        folder = runs / f"{lines['dataset'].iloc[0]}-{row.model}-{row.recipe}-{seed}"
        if not (folder / "scores.json").exists():
            return None
        overall = json.loads((folder / "scores.json").read_text())
        if not np.allclose([overall[protocol]["crps"] for protocol in lines["protocol"]], lines["crps"], rtol=1e-9):
            return None
        names: Any = {"item_id": str}  # a series may be called NA
        table = pd.read_csv(folder / "per_forecast.csv", converters=names)
        frames.append(table.set_index(["protocol", "item_id", "start"]))
    scores = pd.concat(frames)[["crps", "size"]]
    return pd.DataFrame(scores.groupby(level=[0, 1, 2], sort=False).mean())


if __name__ == "__main__":
    main()
