"""docs/bandits-results.md and docs/images/bandits.png, of results/bandits.csv; `experiments/pages.py` writes them."""

import math
import pathlib
from collections.abc import Collection

import numpy as np
import pandas as pd
import torch

from experiments.bandits.draw import draw
from experiments.bandits.run import DRIFTING, ROWS, SETS
from experiments.tables import ROOT
from tsforecast.decisions.tables import make_environment
from tsforecast.plots.style import save_figure

TABLE, PAGE = ROOT / "experiments" / "bandits" / "results" / "bandits.csv", ROOT / "docs" / "bandits-results.md"
# Reward of 5000 rounds by a mean of 10 runs, as the authors of "Efficient Online Bayesian Inference for Neural Bandits"
# drew it; the last two have seen the rewards of pulled arms alone.
PUBLISHED = {
    "best single arm": {"adult": "3776", "covertype": "2419", "shuttle": "3992"},
    "LiM2": {"adult": "3986 (113)", "covertype": "2661 (334)", "shuttle": "4826 (320)"},
    "NeuralTS": {"adult": "3769 (2)", "covertype": "1877 (83)", "shuttle": "4348 (265)"},
}

SHORT = 500  # rounds of what is too slow for more
WAYS = ("--epsilon 0.05", "--bag 5", "--squarecb")  # of experiments/bandits/vw.py, which needs a package of its own
HEAD = """# Bandits: results

`python experiments/bandits/run.py` plays {rounds} rounds of each set and adds a line to
`experiments/bandits/results/bandits.csv` for each run; `python experiments/pages.py` writes this page. The warm-up is
honest: nothing is fitted to rewards of arms that were not pulled. All agents of a run see the same rounds.
[The guide](bandits.md) says what the agents are.

One setting of each agent serves all sets. Prior variance and noise of the learners were chosen with `lofi` on runs 0
and 1 of adult, covertype and shuttle, the steps of a training and the prior of `neural-linear` on run 0 of the same
sets. [Below](#runs-that-chose-nothing) the other runs stand alone. The prior of the logistic agents and of
`stein`, and the steps of `lim2`, were chosen on runs that are not in the table.

![Rewards of all agents on four sets, and milliseconds of a round](images/bandits.png)

Dots are means and bars a standard deviation over runs; a dot without a bar is a single run. Agents are ordered by their
shares of the best reward on adult, covertype and shuttle.

## Rewards

Means over runs, with the standard deviation behind; the last column says how many runs the cells of a row have. `ucb`
and `greedy` behind a name are rules; `raw` means rewards as they come, in no units of their own.

{rewards}

Rows `vw` are Vowpal Wabbit (`cb_explore_adf`, linear in products of context and arm) by three ways to explore,
`python experiments/bandits/vw.py`.

Published, means and standard deviations of ten runs (`-`: not published):

{published}

- `covertype` is drawn from the class-balanced sample of 15 120 rows, with the class shares of the whole set
  (`datasets/bandits.py`), so rows repeat: what agents earn on the whole set may differ.
- `adult` has rows without missing values, and all words as columns: 104 features. The published one has 89.
- `lim2` remembers the last 100 rounds of each arm and takes a plain gradient step in each round, as the authors' code
  does.
- Some runs of `ekf`, `iterated-ekf` and `wolf-ekf` were made on a GPU.
- A cell without a number was not run: logistic agents learn 0 and 1 alone, a covariance of all weights takes gigabytes
  on MNIST, and particles take minutes a run.

## Runs that chose nothing

Settings were chosen with a look at runs 0 and 1. Means over these and over the others, which nobody had looked at:

{untouched}

## The wheel

`wheel` (delta 0.95) pays 50 in one context of ten, if the right one of four arms is pulled. All other rewards are 1 or
1.2, with a noise of 0.01. A warm-up of a hundred rounds meets none of the fifties in one run of seven; the table has
these runs apart.

{wheel}

Who met none has seen rewards that hardly differ. In their units the noise is small: after twenty pulls there is nothing
left to explore, and a belief that trusts the units never tries the other arms again. This is no slip of the prior. An
agent that takes the units from its rewards cannot know of rewards that are hundreds of units away. The reference
(Riquelme et al. 2018) takes rewards as they come, with a noise whose prior is about one. It goes on exploring, and
finds the fifties; so does `--raw_rewards` here, in both kinds of runs. Take it where you know the size of rewards. With
`--rule epsilon --amount 0.05` `lofi` earned {explored}.

## NeuralTS as published

`neural-ts` trains every 20 rounds here. The paper trains in every round: a hidden layer of 100 units, blocks of
features, 100 steps (`neural-ts-published`). That is slow, so these are {short} rounds of each set, of which the warm-up
has 140 where there are seven arms: reward, and milliseconds of the CPU for a round, all rounds together.
`python experiments/bandits/run.py --steps {short} --agents neural-ts-published neural-ts lofi --seeds 0`

{tangent}

## Time and memory

Milliseconds of the CPU for a round, and megabytes of all tensors that an agent keeps after the last, mean over the runs
above. Other work ran beside it, on a machine of two cores.

{costs}

## When arms change half-way

`python experiments/bandits/run.py --changes`: from the middle on each label means the arm after its own. Rewards,
as above.

{drifting}

## Told the rewards of all arms

`python experiments/bandits/run.py --all_arms`: the published protocol, in which the warm-up is told what every arm
would have paid. Only for comparison with results that were found in this way. In brackets is the honest
warm-up on the same runs.

{told}

## The same table by hand

```sh
python datasets/bandits.py adult adult.data adult.test  # and covertype, shuttle, mushroom
python experiments/bandits/run.py  # all agents, ten runs; many hours on one core
python experiments/bandits/run.py --changes --data covertype shuttle
python experiments/bandits/run.py --all_arms --data adult covertype shuttle \\
    --agents lofi vd-ekf neural-linear --seeds 0 1 2
pip install vowpalwabbit; python experiments/bandits/vw.py --seeds 0 1 2
python experiments/pages.py
```
"""


def table_of(frame: pd.DataFrame, rows: list[str]) -> str:
    """Return rewards in Markdown: mean (sd) by set, and the number of runs."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} | runs |", f"| --- | {' | '.join('---' for _ in names)} | --- |"]
    for row in rows:
        found = [np.asarray(frame.loc[(frame["row"] == row) & (frame["data"] == name), "reward"]) for name in names]
        counts = {len(values) for values in found} - {0}
        if not counts:
            continue
        cells = ["-" if not len(values) else f"{values.mean():.0f}{_spread(values)}" for values in found]
        lines.append(f"| `{row}` | {' | '.join(cells)} | {_range(counts)} |")
    return "\n".join(lines)


def _range(counts: Collection[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(max(counts))


def _spread(values: np.ndarray) -> str:
    return f" ({values.std(ddof=1):.0f})" if len(values) > 1 else ""


def told(frame: pd.DataFrame, honest: pd.DataFrame) -> str:
    """Return mean rewards of agents that were told those of all arms, with the honest ones of the same runs."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} | runs |", f"| --- | {' | '.join('---' for _ in names)} | --- |"]
    both = frame.merge(honest, on=["row", "data", "seed", "settings"], suffixes=("", "_honest"))
    means = both.groupby(["row", "data"])[["reward", "reward_honest"]].mean()
    for row in (row for row in ROWS if row in {*both["row"]}):
        cells = ("{:.0f} [{:.0f}]".format(*means.loc[(row, name)]) for name in names)
        lines.append(f"| `{row}` | {' | '.join(cells)} | {both.loc[both['row'] == row, 'seed'].nunique()} |")
    return "\n".join(lines)


def costs(frame: pd.DataFrame) -> str:
    """Return milliseconds and megabytes by agent and set."""
    names = [name for name in SETS if name in {*frame["data"]}]
    lines = [f"| agent | {' | '.join(names)} |", f"| --- | {' | '.join('---' for _ in names)} |"]
    for row in ROWS:
        cells = []
        for name in names:
            own = frame.loc[(frame["row"] == row) & (frame["data"] == name), ["milliseconds", "megabytes"]]
            time, memory = np.asarray(own).T if len(own) else ([], [])
            taken = f"{np.nanmean(time):.1f} ms" if np.isfinite(time).any() else "on a GPU"
            cells.append(f"{taken}, {_size(float(np.mean(memory)))} MB" if len(own) else "-")
        if {*cells} != {"-"}:
            lines.append(f"| `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _size(megabytes: float) -> str:
    return f"{megabytes:.0f}" if megabytes >= 100 else f"{megabytes:.2g}"


def untouched(frame: pd.DataFrame) -> str:
    """Return means over the runs by which settings were chosen, and over the others, by agent and set."""
    sets = ("adult", "covertype", "shuttle")
    lines = [f"| agent | {' | '.join(f'{name}, 0 and 1 | others' for name in sets)} | others |"]
    lines.append("| --- |" + " --- |" * (2 * len(sets) + 1))
    for row in ("linear", "lofi", "lofi-ucb", "vd-ekf", "neural-linear"):
        cells, counts = [], set()
        for name in sets:
            own = frame.loc[(frame["row"] == row) & (frame["data"] == name)]
            parts = [own.loc[(own["seed"] <= 1) == first, "reward"].to_numpy() for first in (True, False)]
            cells += [f"{part.mean():.0f}{_spread(part)}" if len(part) else "-" for part in parts]
            counts.add(len(parts[1]))
        lines.append(f"| `{row}` | {' | '.join(cells)} | {_range(counts)} runs |")
    return "\n".join(lines)


def wheel(frame: pd.DataFrame, rounds: int) -> str:
    """Return rewards on the wheel of the runs whose warm-up met a large one, and of the others."""
    own = frame.loc[frame["data"] == "wheel"]
    met = {}
    for seed in sorted({*own["seed"]}):
        rewards = make_environment("wheel", rounds, seed, False).rewards
        pulls = 20 * rewards.shape[-1]
        met[seed] = bool((rewards[torch.arange(pulls), torch.arange(pulls) % rewards.shape[-1]] > 10).any())
    lines = ["| agent | met one | runs | met none | runs |", "| --- | --- | --- | --- | --- |"]
    for row in ROWS:
        mine = own.loc[own["row"] == row]
        parts = [mine.loc[mine["seed"].map(met) == kind, "reward"].to_numpy() for kind in (True, False)]
        if len(mine):
            cells = (f"{part.mean():.0f}{_spread(part)} | {len(part)}" if len(part) else "- | 0" for part in parts)
            lines.append(f"| `{row}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    every, frame = rows()
    rounds = int(every["rounds"].max())
    still, drifting = frame.loc[~frame["changes"]], frame.loc[frame["changes"]]
    own = (still["data"] == "wheel") & (still["row"] == "lofi") & still["settings"].str.contains("epsilon")
    explored = still.loc[own, "reward"].tolist()
    still = of_defaults(still)
    names = ("adult", "covertype", "shuttle")
    lines = [f"| | {' | '.join(names)} |", f"| --- | {' | '.join('---' for _ in names)} |"]
    lines += [f"| {who} | {' | '.join(cells.get(n, '-') for n in names)} |" for who, cells in PUBLISHED.items()]
    short = every.loc[every["rounds"] == SHORT]
    text = HEAD.format(
        rounds=rounds,
        short=SHORT,
        rewards=table_of(still, [*ROWS, *(f"vw {way}" for way in WAYS)]),
        published="\n".join(lines),
        untouched=untouched(still),
        wheel=wheel(still, rounds),
        tangent=table_of(short, list(ROWS)) + "\n\n" + costs(short),
        costs=costs(still),
        explored=" and ".join(f"{reward:.0f}" for reward in explored),
        drifting=table_of(drifting, list(DRIFTING)),
        told=told(every.loc[every["warm_up"] == "all arms"], still),
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
    save_figure(draw(of_defaults(frame.loc[~frame["changes"]]), PUBLISHED), PAGE.parent / "images" / "bandits.png")
