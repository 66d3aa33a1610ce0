"""Three toys on which one choice of a learner decides: results/toys.csv and docs/images/toy-*.png.

    python experiments/streams/toys.py                       # all of them; half an hour on one core
    python experiments/streams/toys.py outliers tracking     # some

- `drift`: the boundary between two classes turns by five degrees a step, ten points a step, 721 steps (the toy of Kurle
  et al., *Continual Learning with Bayesian Neural Networks for Non-stationary Data*, 2020, section 6.2); or makes a
  quarter turn at once. Logistic regression by assumed density filtering, with each drift.
- `outliers`: 15 % of the targets of a curve are uniform over [-50, 50], and a network learns it; 10 % of the values of
  a level are uniform over [-20, 20], and moving averages follow it.
- `tracking`: a point moves over a plane and is seen with noise that has heavy tails, or now and then at twice its
  position (Duran-Martin et al., *Outlier-robust Kalman Filtering through Generalised Bayes*, 2024, section 4.1).

Streams are the same for all learners, and run as one program. Ten further streams choose settings that have a grid.
Means and standard errors are over streams; `minus` is a paired difference. A toy that is run replaces its rows.
"""

import argparse
import csv
import pathlib
import sys
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.streams.toys_drift import drift_toy
from experiments.streams.toys_outliers import outliers_toy
from experiments.streams.toys_shared import Row
from experiments.streams.toys_tracking import tracking_toy
from tsforecast.cli.provenance import provenance
from tsforecast.io.files import replace_file
from tsforecast.plots import save_figure

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ["toy", "learner", "settings", "metric", "mean", "standard_error", "seeds", "commit", "command"]
# Each with its number of streams.
TOYS: dict[str, tuple[Callable[[int], tuple[list[Row], Figure]], int]] = {
    "drift": (drift_toy, 30),
    "outliers": (outliers_toy, 30),
    "tracking": (tracking_toy, 300),
}


def write_rows(path: pathlib.Path, toy: str, rows: list[Row]) -> None:
    """Replaces the rows of a toy."""
    others: list[Row] = []
    if path.exists():
        with path.open(newline="") as stream:
            others = [row for row in csv.DictReader(stream) if row["toy"].split("-")[0] != toy]
    path.parent.mkdir(parents=True, exist_ok=True)
    order = {name: place for place, name in enumerate(TOYS)}
    with replace_file(path) as temporary, temporary.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(others + rows, key=lambda row: order[row["toy"].split("-")[0]]))


def main() -> None:
    """Runs toys, writes their rows and pictures, and prints what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("toys", nargs="*", default=[], help=f"of {', '.join(TOYS)} (default: all)")
    parser.add_argument("--streams", type=int, help="that count (default: 30, and 300 for tracking)")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "streams" / "results" / "toys.csv"
    )
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    if unknown := set(options.toys) - set(TOYS):
        parser.error(f"expected some of {', '.join(TOYS)}, got {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    facts = provenance(options.output)
    for name in options.toys or TOYS:
        toy, streams = TOYS[name]
        rows, figure = toy(options.streams or streams)
        write_rows(options.output, name, [row | facts for row in rows])
        save_figure(figure, options.images / f"toy-{name}.png")
        for row in rows:
            tqdm.write("  ".join(str(row[column]) for column in COLUMNS[:7]))


if __name__ == "__main__":
    main()
