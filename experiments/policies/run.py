"""Policies by Stein gradients in environments of gymnasium, a line for each finished run: results/policies.csv.

    python experiments/policies/run.py  # CartPole-v1, ten seeds of all agents
    python experiments/policies/run.py --envs Pendulum-v1 --particles 4  # its actions are numbers: Gaussian policies
    python experiments/policies/run.py --envs Acrobot-v1 --particles 4 --horizon 500 --iterations 20
    python experiments/policies/run.py --summary  # means and standard errors
    python experiments/policies/run.py --draw  # docs/images/policies.png

Policies have four episodes each in an iteration, and "joint" is one policy that has the episodes of all. Scores are
returns without discount: of all policies, and of the best one, over the last tenth of the iterations; and the mean over
all iterations, which says how fast they learn. Settings are the defaults of `PolicyConfig`, but for those that are
options here. Seeds are the outer loop, and finished runs are not made again.
"""

import argparse
import itertools
import pathlib
import sys
import time
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from tqdm import tqdm

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from experiments.policies.config import GRADIENTS, POLICIES, PolicyConfig
from experiments.tables import ROOT, append_rows, has_row
from tsforecast.cli.provenance import provenance
from tsforecast.plots import COLOURS, save_figure
from tsforecast.plots.style import style_axis

COLUMNS = [
    "env", "agent", "gradient", "seed", "iterations", "horizon", "particles", "episodes", "returned", "best",
    "over_all", "seconds", "commit", "command",
]  # fmt: skip


def run(config: PolicyConfig, iterations: int) -> dict[str, float]:
    """Return the scores of a run."""
    began = time.perf_counter()
    learner, environments = config.build(), config.environments()
    policies, returns = learner.init(), []
    for iteration in tqdm(range(iterations), f"{config.agent} {config.gradient} {config.seed}", leave=False):
        episodes = learner.explore(policies, environments, config.seed_of(iteration))
        policies = learner.update(policies, episodes)
        returns.append(episodes.returns.mean(1))
    every = torch.stack(returns)
    last = every[-max(iterations // 10, 1) :].mean(0)
    return {
        "returned": last.mean().item(),
        "best": last.max().item(),
        "over_all": every.mean().item(),
        "seconds": time.perf_counter() - began,
    }


def read(table: pathlib.Path) -> pd.DataFrame:
    """Return the rows; `played` is the number of episodes of an iteration, of all policies together."""
    frame = pd.read_csv(table)
    return frame.assign(played=frame["particles"] * frame["episodes"])


def summary(table: pathlib.Path) -> str:
    """Return means and standard errors over seeds."""
    key = ["env", "gradient", "played", "agent"]
    lines = []
    for names, rows in read(table).groupby(key, sort=False):
        scores = [rows[column].to_numpy() for column in ("returned", "best", "over_all")]
        cells = [
            f"{x.mean():.0f} ± {x.std(ddof=1) / len(x) ** 0.5:.0f}" if len(x) > 1 else f"{x[0]:.0f}" for x in scores
        ]
        named = names if isinstance(names, tuple) else (names,)
        lines.append("| " + " | ".join([*map(str, named), *cells, str(len(rows))]) + " |")
    return "\n".join(lines)


def draw(table: pathlib.Path, target: pathlib.Path) -> None:
    """Draws the mean return over all iterations of each run, and the mean of its agent: a panel for each experiment."""
    panels = list(read(table).groupby(["env", "gradient", "played"], sort=False))
    columns = min(len(panels), 3)
    figure = Figure(figsize=(3.8 * columns, 2.8 * -(-len(panels) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False)
    for (names, rows), axis in zip(panels, axes.flat, strict=False):
        agents = [agent for agent in POLICIES if agent in set(rows["agent"])]
        for place, agent in enumerate(agents):
            found = rows.loc[rows["agent"] == agent, "over_all"].to_numpy()
            colour = COLOURS[list(POLICIES).index(agent)]
            axis.plot([place] * len(found), found, "o", color=colour, markersize=5, alpha=0.6)
            axis.hlines(found.mean(), place - 0.25, place + 0.25, color=colour, linewidth=2)
        axis.set_xticks(range(len(agents)), agents)
        env, gradient, played = names if isinstance(names, tuple) else (names, "", "")
        axis.set_title(f"{env}, {gradient}, {played} episodes", loc="left", fontsize=10)
        axis.set_xlim(-0.6, len(agents) - 0.4)
        style_axis(axis)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("return, mean of all iterations")
    target.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, target)


def main() -> None:
    """Makes the runs that the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1"], metavar="ENV", help="names of gymnasium")
    parser.add_argument("--agents", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--gradients", nargs="+", default=list(GRADIENTS), choices=GRADIENTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=200, help="steps of an episode at most")
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / "experiments" / "policies" / "results" / "policies.csv"
    )
    parser.add_argument("--summary", action="store_true", help="print the table's means, and run nothing")
    parser.add_argument("--draw", action="store_true", help="draw the table, and run nothing")
    parser.add_argument("--image", type=pathlib.Path, default=ROOT / "docs" / "images" / "policies.png")
    options = parser.parse_args()
    if options.draw:
        draw(options.output, options.image)
        return
    if options.summary:
        sys.stdout.write(summary(options.output) + "\n")
        return
    torch.set_num_threads(1)
    origin = provenance(options.output)
    jobs = itertools.product(options.seeds, options.envs, options.gradients, options.agents)
    for seed, env, gradient, agent in jobs:
        key: dict[str, Any] = {"env": env, "agent": agent, "gradient": gradient, "seed": seed}
        key |= {"iterations": options.iterations, "horizon": options.horizon}
        config = PolicyConfig(agent, env, gradient, options.particles, horizon=options.horizon, seed=seed)
        key |= dict(zip(("particles", "episodes"), config.played, strict=True))
        if has_row(options.output, key):
            continue
        scores = {name: round(value, 4) for name, value in run(config, options.iterations).items()}
        append_rows(options.output, COLUMNS, [key | scores | origin])


if __name__ == "__main__":
    main()
