"""Writes docs/bandits-results.md, of the rows in results/bandits.csv.

python runs/bandits_page.py
"""

import argparse
import pathlib

import numpy as np
import pandas as pd
from bandits import DRIFTING, ROWS, SETS
from tables import ROOT

from tsforecast.data.files import replace_file

# Reward of 5000 rounds by a mean of 10 runs, as the authors of "Efficient Online Bayesian Inference for Neural Bandits"
# drew it; the last two have seen the rewards of pulled arms alone.
PUBLISHED = {
    "best single arm": {"adult": "3776", "covertype": "2419", "shuttle": "3992"},
    "LiM2": {"adult": "3986 (113)", "covertype": "2661 (334)", "shuttle": "4826 (320)"},
    "NeuralTS": {"adult": "3769 (2)", "covertype": "1877 (83)", "shuttle": "4348 (265)"},
}

WAYS = ("--epsilon 0.05", "--bag 5", "--squarecb")  # of runs/bandits_vw.py, which needs a package of its own
HEAD = """# Bandits: results

`python runs/bandits.py` plays {rounds} rounds of each set and adds a line to `results/bandits.csv` for each run;
`python runs/bandits_page.py` writes this page. The warm-up is honest: nothing is fitted to rewards of arms that were
not pulled. All agents of a run see the same rounds. [The guide](bandits.md) says what the agents are.

One setting of each agent serves all sets. Prior variance and noise of the learners were chosen with `lofi` on two runs
of adult, covertype and shuttle, the steps of a training and the prior of `neural-linear` on one run of the same sets.
These runs are among those below.

## What they say

- Beliefs over all weights of a network (`lofi`, `vd-ekf`) earn more than linear ones on all sets of labels, at about a
  millisecond a round. `ucb` explores less than `thompson`, and earned more with `lofi` on three of four.
- `neural-linear` and `neural-ts` are best on shuttle, and behind `lofi` on adult and covertype.
- A memory of the last hundred rounds costs much (`neural-linear-limited`). `lim2` stays below what its authors report.
- Where arms change half-way, forgetting is worth most to agents that would not forget: `linear` and `neural-linear`. A
  linear agent that forgets earns more than one with a window. `lofi` and `vd-ekf` recover without a drift, and gain
  nothing from one.
- The table is small: a cell without a standard deviation is a single run, and near values do not differ.

## Rewards

Means over runs, with the standard deviation behind; the last column says how many runs the cells of a row have. `ucb`
and `greedy` behind a name are rules.

{rewards}

Rows `vw` are Vowpal Wabbit (`cb_explore_adf`, linear in products of context and arm) by three ways to explore,
`python runs/bandits_vw.py`.

Published, means and standard deviations of ten runs (`-`: not published):

{published}

- `covertype` is drawn from the class-balanced sample of 15 120 rows, with the class shares of the whole set
  (`datasets/bandits.py`), so rows repeat: what agents earn on the whole set may differ.
- `adult` has rows without missing values, and all words as columns: 104 features. The published one has 89.
- `wheel` (delta 0.95) pays 50 in one context of ten, if the right one of four arms is pulled. Who meets none of these
  in the warm-up and then trusts it never finds them: hence the spread. Who goes on exploring does: `lofi --rule epsilon
  --amount 0.05` earned {explored}.

## Time and memory

Milliseconds of the CPU for a round, and megabytes of all tensors that an agent keeps after the last, mean over the runs
above. Other work ran beside it, on a machine of two cores.

{costs}

## When arms change half-way

`python runs/bandits.py --changes`: from the middle on each label means the arm after its own. Rewards, as above.

{drifting}

## The same table by hand

```sh
python datasets/bandits.py adult adult.data adult.test    # and covertype, shuttle, mushroom
python runs/bandits.py --seeds 0 1 2
python runs/bandits.py --changes --data covertype shuttle --seeds 0 1 2
pip install vowpalwabbit; python runs/bandits_vw.py --seeds 0 1 2
python runs/bandits_page.py
```
"""


def table_of(frame: pd.DataFrame, rows: list[str]) -> str:
    """Return rewards in Markdown: mean (sd) by set, and the number of runs."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} | runs |", f"| --- | {' | '.join('---' for _ in names)} | --- |"]
    for row in rows:
        found = [np.asarray(frame.loc[(frame["row"] == row) & (frame["data"] == name), "reward"]) for name in names]
        counts = sorted({len(values) for values in found} - {0})
        if not counts:
            continue
        cells = ["-" if not len(values) else f"{values.mean():.0f}{_spread(values)}" for values in found]
        lines.append(f"| `{row}` | {' | '.join(cells)} | {' or '.join(map(str, counts))} |")
    return "\n".join(lines)


def _spread(values: np.ndarray) -> str:
    return f" ({values.std(ddof=1):.0f})" if len(values) > 1 else ""


def costs(frame: pd.DataFrame) -> str:
    """Return milliseconds and megabytes by agent and set."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} |", f"| --- | {' | '.join('---' for _ in names)} |"]
    for row in ROWS:
        cells = []
        for name in names:
            own = frame.loc[(frame["row"] == row) & (frame["data"] == name), ["milliseconds", "megabytes"]]
            time, memory = np.asarray(own).T if len(own) else ([], [])
            cells.append(f"{np.mean(time):.1f} ms, {np.mean(memory):.2g} MB" if len(own) else "-")
        if {*cells} != {"-"}:
            lines.append(f"| `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, default=ROOT / "results" / "bandits.csv")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "bandits-results.md")
    options = parser.parse_args()
    frame = pd.read_csv(options.table)
    rounds = int(frame["rounds"].max())
    frame = frame.loc[(frame["rounds"] == rounds) & (frame["warm_up"] == "pulled arms")]
    still, drifting = frame.loc[~frame["changes"]], frame.loc[frame["changes"]]
    own = (still["data"] == "wheel") & (still["row"] == "lofi") & still["settings"].str.contains("epsilon")
    explored = still.loc[own, "reward"].tolist()
    still = still.drop(still.index[(still["row"] == "lofi") & (still["settings"] != "{}")])
    names = ("adult", "covertype", "shuttle")
    lines = [f"| | {' | '.join(names)} |", f"| --- | {' | '.join('---' for _ in names)} |"]
    lines += [f"| {who} | {' | '.join(cells.get(n, '-') for n in names)} |" for who, cells in PUBLISHED.items()]
    text = HEAD.format(
        rounds=rounds,
        rewards=table_of(still, [*ROWS, *(f"vw {way}" for way in WAYS)]),
        published="\n".join(lines),
        costs=costs(still),
        explored=" and ".join(f"{reward:.0f}" for reward in explored),
        drifting=table_of(drifting, list(DRIFTING)),
    )
    with replace_file(options.page) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
