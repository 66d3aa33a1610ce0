"""docs/benchmarks/bandits-results.md and its picture, of results/bandits.csv; `experiments/pages.py` writes them."""

import math
import pathlib

import numpy as np
import pandas as pd

from experiments.bandits.draw import draw
from experiments.bandits.run import ROWS, SETS
from experiments.markdown import PAGES, table
from experiments.tables import ROOT
from tsforecast.plots.style import save_figure

TABLE, PAGE = ROOT / "experiments" / "bandits" / "results" / "bandits.csv", PAGES / "bandits-results.md"
# Reward of 5000 rounds by a mean of 10 runs, as the authors of "Efficient Online Bayesian Inference for Neural Bandits"
# drew it; the last two have seen the rewards of pulled arms alone.
PUBLISHED = {
    "best single arm": {"adult": "3776", "covertype": "2419", "shuttle": "3992"},
    "LiM2": {"adult": "3986 (113)", "covertype": "2661 (334)", "shuttle": "4826 (320)"},
    "NeuralTS": {"adult": "3769 (2)", "covertype": "1877 (83)", "shuttle": "4348 (265)"},
}

WAYS = ("--epsilon 0.05", "--bag 5", "--squarecb")  # of experiments/bandits/vw.py, which needs a package of its own
HEAD = """# Bandits

Each [agent](../bandits.md) plays {rounds} rounds of each set. Cells are the reward as mean and standard deviation over
{runs} runs. All agents of a run see the same rounds, and no agent sees a reward of an arm
that was not pulled. `ucb` and `greedy` behind a name are rules; `raw` keeps rewards in their own units. Rows `vw` are
Vowpal Wabbit. A dash was not run.

{rewards}

![Rewards of all agents on four sets, and milliseconds of a round](../images/bandits.png)

Published rewards of the same protocol, as means and standard deviations of ten runs:

{published}

- One setting of each agent serves all sets. Prior variance and noise were chosen with `lofi` on runs 0 and 1 of adult,
  covertype and shuttle; a few other settings on run 0.
- Sets differ a little from the published ones: covertype repeats rows of a balanced sample, and adult has 104 features
  instead of 89.
- On `wheel` one context of ten pays 50, all others pay about 1. A warm-up that meets no 50 knows nothing of such
  rewards, and most agents then never find them. `--raw_rewards` finds them; so does `--rule epsilon`, by which
  `lofi` earned {explored}.

```sh
python datasets/bandits.py adult adult.data adult.test   # and covertype, shuttle, mushroom
python experiments/bandits/run.py    # fills experiments/bandits/results/bandits.csv; many hours on one core
```

`bandits.csv` also has times, memory, arms that change half-way (`--changes`), and the published warm-up by the rewards
of all arms (`--all_arms`).
"""


def table_of(frame: pd.DataFrame, rows: list[str]) -> str:
    """Return rewards in Markdown: mean (sd) by set."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} |", f"| --- | {' | '.join('---' for _ in names)} |"]
    for row in rows:
        found = [np.asarray(frame.loc[(frame["row"] == row) & (frame["data"] == name), "reward"]) for name in names]
        if not any(len(values) for values in found):
            continue
        cells = ["-" if not len(values) else f"{values.mean():.0f}{_spread(values)}" for values in found]
        lines.append(f"| `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_of(frame: pd.DataFrame) -> str:
    """Return the number of runs of a cell, from the least to the most."""
    counts = frame.groupby(["row", "data"]).size()
    return f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else str(counts.max())


def _spread(values: np.ndarray) -> str:
    return f" ({values.std(ddof=1):.0f})" if len(values) > 1 else ""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    every, frame = rows()
    still = frame.loc[~frame["changes"]]
    own = (still["data"] == "wheel") & (still["row"] == "lofi") & still["settings"].str.contains("epsilon")
    names = ("adult", "covertype", "shuttle")
    published = [[who, *(cells.get(name, "-") for name in names)] for who, cells in PUBLISHED.items()]
    shown = [*ROWS, *(f"vw {way}" for way in WAYS)]
    own_rows = of_defaults(still)
    text = HEAD.format(
        rounds=int(every["rounds"].max()),
        runs=runs_of(own_rows.loc[own_rows["row"].isin(shown)]),
        rewards=table_of(own_rows, shown),
        published=table(["", *names], published),
        explored=" and ".join(f"{reward:.0f}" for reward in still.loc[own, "reward"]),
    )
    return {PAGE: text}


def rows() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return all rows of the table, and those of full length with an honest warm-up."""
    every = pd.read_csv(TABLE)
    every.loc[every["device"] != "cpu", "milliseconds"] = math.nan  # which are those of another machine
    return every, every.loc[(every["rounds"] == every["rounds"].max()) & (every["warm_up"] == "pulled arms")]


def of_defaults(still: pd.DataFrame) -> pd.DataFrame:
    """Return the rows but those of `lofi` with other settings."""
    return still.loc[(still["row"] != "lofi") | (still["settings"] == "{}")]


def draw_rewards() -> None:
    """Draws the picture."""
    _, frame = rows()
    save_figure(draw(of_defaults(frame.loc[~frame["changes"]]), PUBLISHED), ROOT / "docs" / "images" / "bandits.png")
